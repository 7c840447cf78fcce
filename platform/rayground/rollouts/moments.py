"""Moments of observations, piece by piece."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(slots=True)
class Moments:
    """How many observations there were, with mean and variance (of the population) of each feature in float64.

    Merged as in Chan, Golub and LeVeque 1983 (https://doi.org/10.1080/00031305.1983.10483115), which loses no digits
    where the mean is large beside the spread.

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
        count = len(obs)
        if count == 0:
            return
        mean = obs.mean(axis=0, dtype=np.float64)
        var = np.square(obs - mean).mean(axis=0)
        total, delta = self.count + count, mean - self.mean
        self.mean = self.mean + delta * (count / total)
        self.var = (self.var * self.count + var * count + np.square(delta) * (self.count * count / total)) / total
        self.count = total
