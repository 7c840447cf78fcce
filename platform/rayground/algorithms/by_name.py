"""Tune finds an algorithm by its name."""

from __future__ import annotations

import ray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.tune.registry import register_trainable


def register(algorithm: type[Algorithm]) -> None:
    """Lets ``tune.Tuner("A2C", ...)`` find ``A2C``, in the Ray that runs and in those that are started or joined later.

    Tune itself tells its names only to the first of them: after a ``ray.shutdown()`` they would be unknown.
    """

    def tell() -> None:
        register_trainable(algorithm.__name__, algorithm)

    tell()
    ray._private.worker._post_init_hooks.append(tell)
