"""From what a module answers to the actions of a fragment.

A module answers with ``actions``, or with the inputs of a distribution. For RLlib's three plain distributions the noise
of a whole fragment is drawn at once, from torch's generator, and the log-probabilities are computed at once in the end:
between two steps of the environment there is an addition and an argmax.
"""

from __future__ import annotations

from typing import Any

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

from rayground.distributions import CategoricalSampler, GaussianSampler, Sampler

Output = dict[str, Tensor]


def sampler_of(distribution_class: Any) -> Sampler | None:
    """How to sample from a distribution class of RLlib; None if it is not exactly one of the three."""
    if distribution_class is TorchCategorical:
        return CategoricalSampler()
    if distribution_class is TorchDiagGaussian:
        return GaussianSampler()
    sizes = multi_categorical_sizes(distribution_class)
    return CategoricalSampler(sizes) if sizes else None


def multi_categorical_sizes(distribution_class: Any) -> list[int]:
    """The categories of each component of what ``TorchMultiCategorical.get_partial_dist_cls()`` made, else none."""
    # A class that a user derived has another name, or other bases.
    is_partial = distribution_class.__name__ == f"{TorchMultiCategorical}Partial"
    if not (is_partial and distribution_class.__bases__ == (TorchMultiCategorical,)):
        return []
    return [int(size) for size in distribution_class._merge_kwargs()["input_lens"]]


class FragmentActions:
    """The actions of one fragment, and what the module gave beside them.

    Attributes:
        actions: ``[T, N, ...]`` the policy's actions, as RLlib's episodes hold them.
        extras: By name ``[T, N, ...]``: all else that the module gave, and ``action_logp`` of what was sampled.
    """

    def __init__(self, module: RLModule, actions: np.ndarray, *, explore: bool, extras: bool = True) -> None:
        """Writes into ``actions``.

        Args:
            module: What answers.
            actions: ``[T, N, ...]``.
            explore: Whether to sample; else a distribution gives its mode.
            extras: Whether anything but the actions is wanted.
        """
        self.actions = actions
        self.extras: dict[str, np.ndarray] = {}
        self._module, self._explore, self._with_extras = module, explore, extras
        self._distribution: Any = None
        self._sampler: Sampler | None = None
        self._noise: np.ndarray | None = None

    def take(self, t: int, output: Output) -> np.ndarray:
        """Keeps what the module answered in step ``t``, and returns the policy's actions ``[N, ...]``."""
        if self._with_extras:
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
        if not self._with_extras or self._distribution is None or Columns.ACTION_LOGP in self.extras:
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
        if self._sampler is not None:
            return self._sampler.act(inputs.cpu().numpy(), None if self._noise is None else self._noise[t])
        distribution = self._distribution.from_logits(inputs)
        if not self._explore:
            return distribution.to_deterministic().sample().cpu().numpy()
        actions = distribution.sample()
        if self._with_extras:
            self._keep(Columns.ACTION_LOGP, t, distribution.logp(actions))
        return actions.cpu().numpy()

    def _find_distribution(self, num_inputs: int) -> None:
        module, explore = self._module, self._explore
        self._distribution = (
            module.get_exploration_action_dist_cls() if explore else module.get_inference_action_dist_cls()
        )
        self._sampler = sampler_of(self._distribution)
        if explore and self._sampler is not None:
            num_steps, num_envs = self.actions.shape[:2]
            self._noise = self._sampler.noise(num_steps, num_envs, num_inputs)

    def _keep(self, name: str, t: int, value: Tensor) -> None:
        array = value.cpu().numpy()
        if name not in self.extras:
            self.extras[name] = np.empty((len(self.actions), *array.shape), array.dtype)
        self.extras[name][t] = array


def action_dtype(space: gym.Space) -> np.dtype:
    """What the policy's actions are stored as: the space's dtype, but float32 where a net computes them."""
    return np.dtype(np.float32) if isinstance(space, gym.spaces.Box) else np.dtype(space.dtype)
