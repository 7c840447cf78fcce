"""Callbacks that a user may add to an experiment."""

from callbacks.return_threshold import ReturnThreshold

__all__ = ["ReturnThreshold"]
