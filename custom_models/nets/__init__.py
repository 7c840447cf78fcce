"""Plain torch networks: they know no Ray."""
