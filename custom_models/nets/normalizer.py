"""Running normalization of observations, as a part of the net: checkpoints, weight sync and exports carry it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

EPSILON = 1e-8
"""Added to the variance, so that a feature that never changes is not divided by 0."""


class RunningNorm(nn.Module):
    """Shifts and scales to the mean 0 and variance 1 of all that was seen so far, then clips.

    ``forward`` only reads: who trains the net collects a batch's moments and calls ``update`` when sampling and
    learning of that batch are over. Mean and variance are kept in float64; what ``forward`` needs of them is kept in
    float32 beside them. All five are buffers, so they go wherever the net's state goes.

    Args:
        shape: Of one observation.
        clip: Largest absolute value that comes out, in standard deviations.

    Attributes:
        count: Number of observations seen, a float64 scalar.
        mean: Their mean, float64 ``[*shape]``; 0 before the first.
        var: Their variance (of the population), float64 ``[*shape]``; 1 before the first.
        shift: The mean in float32.
        scale: 1 / standard deviation in float32.
    """

    count: Tensor
    mean: Tensor
    var: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(self, shape: Sequence[int], clip: float = 10.0) -> None:
        super().__init__()
        self.clip = clip
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(tuple(shape), dtype=torch.float64))
        self.register_buffer("var", torch.ones(tuple(shape), dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(tuple(shape)))
        self.register_buffer("scale", torch.ones(tuple(shape)))

    def forward(self, obs: Tensor) -> Tensor:
        """Returns ``obs``, float32 ``[B, *shape]``, normalized and clipped."""
        return ((obs - self.shift) * self.scale).clamp(-self.clip, self.clip)

    @torch.no_grad()
    def update(self, count: int, mean: np.ndarray | Tensor, var: np.ndarray | Tensor) -> None:
        """Merges the moments of a batch that was not seen before; see :func:`merged`.

        Args:
            count: Number of observations in the batch; nothing changes for 0.
            mean: Their mean ``[*shape]``.
            var: Their variance (of the population, divided by ``count``) ``[*shape]``.
        """
        if count == 0:
            return
        mean, var = (torch.as_tensor(moment, dtype=torch.float64, device=self.mean.device) for moment in (mean, var))
        own = (self.count, self.mean, self.var)
        for buffer, moment in zip(own, merged(own, (count, mean, var)), strict=True):
            buffer.copy_(moment)
        self.shift.copy_(self.mean)
        self.scale.copy_((self.var + EPSILON).rsqrt())


def merged(first: tuple[Any, Any, Any], second: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    """Merges count, mean and variance (of the population) of two sets of observations, not both empty.

    As in Chan, Golub and LeVeque 1983 (https://doi.org/10.1080/00031305.1983.10483115), which loses no digits where the
    mean is large beside the spread. Moments are arrays or tensors, float64 ``[...]``.
    """
    (count_a, mean_a, var_a), (count_b, mean_b, var_b) = first, second
    count, delta = count_a + count_b, mean_b - mean_a
    squares = var_a * count_a + var_b * count_b + delta * delta * (count_a * count_b / count)
    return count, mean_a + delta * (count_b / count), squares / count


def running_norms(module: nn.Module) -> list[RunningNorm]:
    """Returns every :class:`RunningNorm` in ``module``, each once.

    Those of a target network are among them: updated with the same batches, they stay equal to the online network's.
    """
    return [part for part in module.modules() if isinstance(part, RunningNorm)]
