"""What a run leaves: written once here, read back through the same code."""
