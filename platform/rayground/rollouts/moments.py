"""Moments of observations, piece by piece."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from custom_models.nets.normalizer import merged


@dataclass(slots=True)
class Moments:
    """How many observations there were, with mean and variance (of the population) of each feature in float64.

    Attributes:
        count: Observations.
        mean: ``[...]``, an observation's shape.
        var: ``[...]``, an observation's shape.
    """

    count: int = 0
    mean: np.ndarray = field(default_factory=lambda: np.zeros(()))
    var: np.ndarray = field(default_factory=lambda: np.zeros(()))

    def add(self, obs: np.ndarray) -> None:
        """Adds ``[B, ...]`` observations."""
        if len(obs) == 0:
            return
        mean = obs.mean(axis=0, dtype=np.float64)
        self.merge(Moments(len(obs), mean, np.square(obs - mean).mean(axis=0)))

    def merge(self, other: Moments) -> None:
        """Adds what another has seen."""
        if other.count:
            mine, others = (self.count, self.mean, self.var), (other.count, other.mean, other.var)
            self.count, self.mean, self.var = merged(mine, others)
