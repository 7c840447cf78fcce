"""From what a module answers to the actions of a fragment, and on to the environment.

A module answers with ``actions``, or with the inputs of a distribution. For RLlib's three plain distributions the noise
of a whole fragment is drawn at once, from torch's generator, and the log-probabilities are computed at once in the end:
between two steps of the environment there is an addition and an argmax.
"""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import (
    TorchCategorical,
    TorchDiagGaussian,
    TorchMultiCategorical,
)
from ray.rllib.core.rl_module.rl_module import RLModule
from torch import Tensor

Output = dict[str, Tensor]


class Noisy(Protocol):
    """A distribution whose samples are a function of its inputs and of noise that does not depend on them."""

    def noise(self, num_steps: int, num_envs: int, num_inputs: int) -> np.ndarray:
        """Draws the noise of a fragment from torch's generator: ``[T, N, ...]`` float32."""

    def act(self, inputs_N: np.ndarray, noise_N: np.ndarray | None) -> np.ndarray:
        """The actions for inputs ``[N, D]``: a sample, or without noise the mode."""


class Categoricals:
    """One categorical distribution, or several side by side, by the Gumbel-max trick (Maddison et al. 2014).

    The largest of logit + Gumbel noise is a sample: https://arxiv.org/abs/1411.0030
    """

    def __init__(self, sizes: tuple[int, ...] | None) -> None:
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


class DiagonalGaussian:
    """Independent normal distributions: the inputs are means, then logarithms of standard deviations."""

    def noise(self, num_steps: int, num_envs: int, num_inputs: int) -> np.ndarray:
        """Standard normal noise ``[T, N, D / 2]``."""
        return torch.randn(num_steps, num_envs, num_inputs // 2).numpy()

    def act(self, inputs_N: np.ndarray, noise_N: np.ndarray | None) -> np.ndarray:
        """Actions ``[N, D / 2]``, float32."""
        half = inputs_N.shape[1] // 2
        mean = inputs_N[:, :half]
        return mean if noise_N is None else mean + np.exp(inputs_N[:, half:]) * noise_N


def noisy(distribution: Any) -> Noisy | None:
    """How to sample from a distribution class of RLlib; None if it is not exactly one of the three."""
    if distribution is TorchCategorical:
        return Categoricals(None)
    if distribution is TorchDiagGaussian:
        return DiagonalGaussian()
    # What get_partial_dist_cls() makes, and nothing that a user derived.
    is_partial = distribution.__name__ == f"{TorchMultiCategorical}Partial"
    if is_partial and distribution.__bases__ == (TorchMultiCategorical,):
        return Categoricals(tuple(map(int, distribution._merge_kwargs()["input_lens"])))
    return None


class FragmentActions:
    """The actions of one fragment, and what the module gave beside them.

    Attributes:
        actions: ``[T, N, ...]`` the policy's actions, as RLlib's episodes hold them.
        extras: By name ``[T, N, ...]``: all else that the module gave, and ``action_logp`` of what was sampled.
    """

    def __init__(self, module: RLModule, actions: np.ndarray, *, explore: bool) -> None:
        """Writes into ``actions`` ``[T, N, ...]``; without ``explore`` a distribution gives its mode."""
        self.actions = actions
        self.extras: dict[str, np.ndarray] = {}
        self._module, self._explore = module, explore
        self._distribution: Any = None
        self._noisy: Noisy | None = None
        self._noise: np.ndarray | None = None

    def take(self, t: int, output: Output) -> np.ndarray:
        """Keeps what the module answered in step ``t``, and returns the policy's actions ``[N, ...]``."""
        for name, value in output.items():
            if name != Columns.ACTIONS:
                self._keep(name, t, value)
        if Columns.ACTIONS in output:
            self.actions[t] = output[Columns.ACTIONS].cpu().numpy()
        else:
            self.actions[t] = self._sample(t, output[Columns.ACTION_DIST_INPUTS])
        return self.actions[t]

    def finish(self) -> None:
        """Adds the log-probabilities, all at once, where they are not there already."""
        if self._distribution is None or Columns.ACTION_LOGP in self.extras:
            return
        shape = self.actions.shape[:2]
        if not self._explore:
            self.extras[Columns.ACTION_LOGP] = np.zeros(shape, np.float32)
            return
        inputs = torch.from_numpy(self.extras[Columns.ACTION_DIST_INPUTS]).flatten(0, 1)
        actions = torch.from_numpy(self.actions).flatten(0, 1)
        logp = self._distribution.from_logits(inputs).logp(actions)
        self.extras[Columns.ACTION_LOGP] = logp.reshape(shape).numpy()

    def _sample(self, t: int, inputs: Tensor) -> np.ndarray:
        if self._distribution is None:
            self._find_distribution(inputs.shape[1])
        if self._noisy is not None:
            return self._noisy.act(inputs.cpu().numpy(), None if self._noise is None else self._noise[t])
        distribution = self._distribution.from_logits(inputs)
        if not self._explore:
            return distribution.to_deterministic().sample().cpu().numpy()
        actions = distribution.sample()
        self._keep(Columns.ACTION_LOGP, t, distribution.logp(actions))
        return actions.cpu().numpy()

    def _find_distribution(self, num_inputs: int) -> None:
        if not self._explore:
            self._distribution = self._module.get_inference_action_dist_cls()
            self._noisy = noisy(self._distribution)
            return
        self._distribution = self._module.get_exploration_action_dist_cls()
        self._noisy = noisy(self._distribution)
        if self._noisy is not None:
            num_steps, num_envs = self.actions.shape[:2]
            self._noise = self._noisy.noise(num_steps, num_envs, num_inputs)

    def _keep(self, name: str, t: int, value: Tensor) -> None:
        array = value.cpu().numpy()
        if name not in self.extras:
            self.extras[name] = np.empty((len(self.actions), *array.shape), array.dtype)
        self.extras[name][t] = array


def action_dtype(space: gym.Space) -> np.dtype:
    """What the policy's actions are stored as: the space's dtype, but float32 where a net computes them."""
    return np.dtype(np.float32) if isinstance(space, gym.spaces.Box) else np.dtype(space.dtype)
