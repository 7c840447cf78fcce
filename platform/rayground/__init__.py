"""Rayground: reinforcement-learning experiments on Ray RLlib."""
