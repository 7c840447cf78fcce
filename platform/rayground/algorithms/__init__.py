"""RLlib algorithms that sample, store and learn in arrays."""
