"""What a loss needs of RLlib's action distributions, computed from their inputs.

Going through RLlib's objects, and torch's behind them, costs a small minibatch several times the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from ray.rllib.core.distribution.torch.torch_distribution import TorchCategorical, TorchDiagGaussian
from torch import Tensor

from rayground.rollouts.actions import multi_categorical_sizes

_LOG_2PI = math.log(2.0 * math.pi)


class Terms(Protocol):
    """The terms of a policy's loss as functions of the distribution's inputs ``[B, D]``."""

    def logp(self, inputs_BD: Tensor, actions_B: Tensor) -> Tensor:
        """Log-probabilities ``[B]`` of actions ``[B, ...]``."""

    def entropy(self, inputs_BD: Tensor) -> Tensor:
        """Entropies ``[B]``."""

    def kl(self, old_inputs_BD: Tensor, inputs_BD: Tensor) -> Tensor:
        """Kullback-Leibler divergences ``[B]`` of the new distributions from the old ones, KL(old, new)."""


def terms_of(distribution_class: Any) -> Terms:
    """Returns the terms of one of RLlib's distribution classes, or of one derived from them or made by a user."""
    if distribution_class is TorchCategorical:
        return Categorical()
    if distribution_class is TorchDiagGaussian:
        return DiagonalGaussian()
    sizes = multi_categorical_sizes(distribution_class)
    return MultiCategorical(sizes) if sizes else AsRLlibComputes(distribution_class)


class Categorical:
    """Of logits ``[B, A]``, for actions ``[B]``."""

    def logp(self, inputs_BD: Tensor, actions_B: Tensor) -> Tensor:
        """Log-probabilities ``[B]``."""
        return inputs_BD.log_softmax(dim=1).gather(1, actions_B.unsqueeze(1)).squeeze(1)

    def entropy(self, inputs_BD: Tensor) -> Tensor:
        """Entropies ``[B]``; actions that are masked with -inf count for nothing."""
        logp_BA = inputs_BD.log_softmax(dim=1)
        return -(logp_BA.exp() * _finite(logp_BA)).sum(dim=1)

    def kl(self, old_inputs_BD: Tensor, inputs_BD: Tensor) -> Tensor:
        """Divergences ``[B]``."""
        old_logp_BA, logp_BA = old_inputs_BD.log_softmax(dim=1), inputs_BD.log_softmax(dim=1)
        return (old_logp_BA.exp() * (_finite(old_logp_BA) - _finite(logp_BA))).sum(dim=1)


class MultiCategorical:
    """Several independent ones: logits side by side ``[B, sum of sizes]``, for actions ``[B, K]``."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes, self._one = list(sizes), Categorical()

    def logp(self, inputs_BD: Tensor, actions_B: Tensor) -> Tensor:
        """Log-probabilities ``[B]``."""
        parts = zip(inputs_BD.split(self._sizes, dim=1), actions_B.unbind(dim=1), strict=True)
        return torch.stack([self._one.logp(inputs, actions) for inputs, actions in parts]).sum(dim=0)

    def entropy(self, inputs_BD: Tensor) -> Tensor:
        """Entropies ``[B]``."""
        return torch.stack([self._one.entropy(part) for part in inputs_BD.split(self._sizes, dim=1)]).sum(dim=0)

    def kl(self, old_inputs_BD: Tensor, inputs_BD: Tensor) -> Tensor:
        """Divergences ``[B]``."""
        parts = zip(old_inputs_BD.split(self._sizes, dim=1), inputs_BD.split(self._sizes, dim=1), strict=True)
        return torch.stack([self._one.kl(old, new) for old, new in parts]).sum(dim=0)


class DiagonalGaussian:
    """Independent normals: means and logarithms of standard deviations ``[B, 2 K]``, for actions ``[B, K]``."""

    def logp(self, inputs_BD: Tensor, actions_B: Tensor) -> Tensor:
        """Log-densities ``[B]``."""
        mean_BK, log_std_BK = inputs_BD.chunk(2, dim=1)
        deviation_BK = (actions_B - mean_BK) * torch.exp(-log_std_BK)
        return -(0.5 * deviation_BK.square() + log_std_BK).sum(dim=1) - 0.5 * _LOG_2PI * mean_BK.shape[1]

    def entropy(self, inputs_BD: Tensor) -> Tensor:
        """Entropies ``[B]``."""
        _, log_std_BK = inputs_BD.chunk(2, dim=1)
        return log_std_BK.sum(dim=1) + 0.5 * (1.0 + _LOG_2PI) * log_std_BK.shape[1]

    def kl(self, old_inputs_BD: Tensor, inputs_BD: Tensor) -> Tensor:
        """Divergences ``[B]``."""
        (old_mean, old_log_std), (mean, log_std) = old_inputs_BD.chunk(2, dim=1), inputs_BD.chunk(2, dim=1)
        spread = torch.exp(2.0 * (old_log_std - log_std)) + ((old_mean - mean) * torch.exp(-log_std)).square()
        return (log_std - old_log_std + 0.5 * (spread - 1.0)).sum(dim=1)


class AsRLlibComputes:
    """Any other distribution, through RLlib's own objects."""

    def __init__(self, distribution_class: Any) -> None:
        self._class = distribution_class

    def logp(self, inputs_BD: Tensor, actions_B: Tensor) -> Tensor:
        """Log-probabilities ``[B]``."""
        return self._class.from_logits(inputs_BD).logp(actions_B)

    def entropy(self, inputs_BD: Tensor) -> Tensor:
        """Entropies ``[B]``."""
        return self._class.from_logits(inputs_BD).entropy()

    def kl(self, old_inputs_BD: Tensor, inputs_BD: Tensor) -> Tensor:
        """Divergences ``[B]``."""
        return self._class.from_logits(old_inputs_BD).kl(self._class.from_logits(inputs_BD))


def _finite(logp: Tensor) -> Tensor:
    """The log-probability of what cannot happen, made finite: its product with probability 0 is 0."""
    return logp.clamp(min=torch.finfo(logp.dtype).min)
