"""Actions from the inputs of RLlib's three plain distributions, without Ray.

The inputs ``[B, D]`` are laid out as RLlib's distributions want them: the logits of a Discrete space, those of a
MultiDiscrete's components one after the other, means and then logarithms of standard deviations of a Box. Noise is
drawn from torch's generator, for many steps at once: it does not depend on the inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import gymnasium as gym
import numpy as np
import torch


class Sampler(Protocol):
    """A distribution whose samples are a function of its inputs and of noise that does not depend on them."""

    def noise(self, num_steps: int, num_envs: int, num_inputs: int) -> np.ndarray:
        """Draws the noise of T steps from torch's generator: ``[T, N, ...]`` float32."""

    def act(self, inputs_N: np.ndarray, noise_N: np.ndarray | None) -> np.ndarray:
        """The actions for inputs ``[N, D]``: a sample, or without noise the mode."""


class CategoricalSampler:
    """One categorical distribution, or several side by side, by the Gumbel-max trick (Maddison et al. 2014).

    The largest of logit + Gumbel noise is a sample: https://arxiv.org/abs/1411.0030
    """

    def __init__(self, sizes: Sequence[int] | None = None) -> None:
        """``sizes``: categories of each component, for actions ``[N, K]``; None for the one of actions ``[N]``."""
        ends = np.cumsum(sizes or ()).tolist()
        self._parts = [slice(end - size, end) for end, size in zip(ends, sizes or (), strict=True)]

    def noise(self, num_steps: int, num_envs: int, num_inputs: int) -> np.ndarray:
        """Gumbel noise ``[T, N, D]``, finite also where a logit is -inf."""
        exponential = torch.empty(num_steps, num_envs, num_inputs).exponential_()
        return exponential.clamp_min_(torch.finfo(torch.float32).tiny).log_().neg_().numpy()

    def act(self, inputs_N: np.ndarray, noise_N: np.ndarray | None) -> np.ndarray:
        """Actions ``[N]`` or ``[N, K]``, int64."""
        scores = inputs_N if noise_N is None else inputs_N + noise_N
        if not self._parts:
            return scores.argmax(axis=1)
        return np.stack([scores[:, part].argmax(axis=1) for part in self._parts], axis=1)


class GaussianSampler:
    """Independent normal distributions: the inputs are means, then logarithms of standard deviations."""

    def noise(self, num_steps: int, num_envs: int, num_inputs: int) -> np.ndarray:
        """Standard normal noise ``[T, N, D / 2]``."""
        return torch.randn(num_steps, num_envs, num_inputs // 2).numpy()

    def act(self, inputs_N: np.ndarray, noise_N: np.ndarray | None) -> np.ndarray:
        """Actions ``[N, D / 2]``, float32."""
        half = inputs_N.shape[1] // 2
        mean = inputs_N[:, :half]
        return mean if noise_N is None else mean + np.exp(inputs_N[:, half:]) * noise_N


def sampler_over(space: gym.Space) -> Sampler:
    """The sampler of a policy's actions in a Discrete, MultiDiscrete or Box space."""
    if isinstance(space, gym.spaces.Box):
        return GaussianSampler()
    return CategoricalSampler(space.nvec.ravel().tolist() if isinstance(space, gym.spaces.MultiDiscrete) else None)
