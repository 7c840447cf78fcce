"""Rollouts: the contract of arrays, and the runner that fills it."""
