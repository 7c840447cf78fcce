"""The RLModule that plugs an actor-critic net into RLlib's PPO and ours, and the specs for ``rl_module()``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import (
    TorchCategorical,
    TorchDiagGaussian,
    TorchDistribution,
    TorchMultiCategorical,
)
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from torch import Tensor, nn

from custom_models.net_module import IMAGE, NetModule, net_spec, tried_net_spec
from custom_models.nets import ACTION_MASK, ActorCriticCNN, ActorCriticMLP, drop_value


class ActorCriticModule(NetModule, ValueFunctionAPI):
    """A policy and a value function.

    Where a batch has an ``action_mask`` (``[B, A]`` bool, of a Discrete space), illegal actions get the logit -inf.

    Read from ``model_config``: ``net`` (the class) and ``net_kwargs``, which ``actor_critic_mlp`` and
    its like put there. A module for acting only is without what its net names in ``value_only``.

    Attributes:
        net: The net, with ``policy``, ``value`` and ``forward``; see ``custom_models.nets``.
        action_dist_cls: RLlib's distribution class for the action space.
    """

    net: Any

    def setup(self) -> None:
        """Builds the net.

        Raises:
            ValueError: If ``model_config`` names no net, the net refuses its spaces or arguments, or there is no
                distribution over the action space.
        """
        super().setup()
        self.action_dist_cls = distribution_class(self.action_space)
        if self.inference_only:
            drop_value(self.net)  # RLlib would do it, but fails on attributes of attributes

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> Tensor:
        """Returns the values ``[B]`` of ``obs``.

        Args:
            batch: ``obs`` ``[B, ...]``.
            embeddings: Unused: ``forward_train`` gives none, but the values themselves.
        """
        return self.net.value(batch[Columns.OBS])

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Returns ``action_dist_inputs`` ``[B, D]``: what RLlib calls for inference and exploration."""
        return {Columns.ACTION_DIST_INPUTS: _masked(self.net.policy(batch[Columns.OBS]), batch)}

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Returns ``action_dist_inputs`` ``[B, D]`` and ``vf_preds`` ``[B]``."""
        dist_inputs, values = self.net(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: _masked(dist_inputs, batch), Columns.VF_PREDS: values}

    def get_non_inference_attributes(self) -> list[str]:
        """Returns the names of what an environment runner does without."""
        return [f"net.{name}" for name in getattr(self.net, "value_only", ())]


def _masked(logits: Tensor, batch: dict[str, Any]) -> Tensor:
    mask = batch.get(ACTION_MASK)
    return logits if mask is None else logits.masked_fill(~mask, float("-inf"))


def distribution_class(action_space: gym.Space) -> type[TorchDistribution]:
    """Returns RLlib's distribution class, which makes distributions ``from_logits(inputs)``, ``[B, D]``.

    Raises:
        ValueError: If the space is neither Discrete nor MultiDiscrete nor Box.
    """
    if isinstance(action_space, gym.spaces.Discrete):
        return TorchCategorical
    if isinstance(action_space, gym.spaces.MultiDiscrete):
        return TorchMultiCategorical.get_partial_dist_cls(input_lens=np.ravel(action_space.nvec).tolist())
    if isinstance(action_space, gym.spaces.Box):
        return TorchDiagGaussian
    raise ValueError(f"action space: expected Discrete, MultiDiscrete or Box, got {action_space}")


def actor_critic_mlp(
    hidden: Sequence[int] = (64, 64),
    activation: str = "tanh",
    shared: bool = False,
    normalize_observations: bool = False,
    log_std_init: float = 0.0,
) -> RLModuleSpec:
    """Policy and value on fully connected layers (``custom_models.nets.ActorCriticMLP``).

    Args:
        hidden: Units of each layer.
        activation: Name of the activation.
        shared: Whether policy and value stand on one torso.
        normalize_observations: Whether Box observations are normalized by their running mean and variance.
        log_std_init: With a Box of actions, the logarithm of the first standard deviation.

    Returns:
        The spec for ``config.rl_module(rl_module_spec=...)``.

    Raises:
        ValueError: If an argument is wrong.
    """
    return tried_net_spec(
        ActorCriticModule,
        ActorCriticMLP,
        {
            "hidden": hidden,
            "activation": activation,
            "shared": shared,
            "normalize_observations": normalize_observations,
            "log_std_init": log_std_init,
        },
    )


def actor_critic_cnn(log_std_init: float = 0.0) -> RLModuleSpec:
    """Policy and value on frames ``[C, H, W]``, uint8 (``custom_models.nets.ActorCriticCNN``).

    Args:
        log_std_init: With a Box of actions, the logarithm of the first standard deviation.

    Returns:
        The spec for ``config.rl_module(rl_module_spec=...)``.

    Raises:
        ValueError: If the argument is wrong.
    """
    return tried_net_spec(ActorCriticModule, ActorCriticCNN, {"log_std_init": log_std_init}, IMAGE)


def actor_critic_module(net_class: type[nn.Module], **net_kwargs: Any) -> RLModuleSpec:
    """An actor-critic net of one's own.

    Args:
        net_class: An ``nn.Module`` that keeps the contract in ``custom_models.nets``.
        **net_kwargs: Its keyword arguments; see ``net_spec``.

    Returns:
        The spec for ``config.rl_module(rl_module_spec=...)``.

    Raises:
        ValueError: If ``net_class`` is no such class, takes no such argument, or an argument cannot be JSON.
    """
    if not all(callable(getattr(net_class, method, None)) for method in ("policy", "value")):
        name = getattr(net_class, "__name__", repr(net_class))
        raise ValueError(f"{name}: expected a net with policy(obs) and value(obs), see custom_models.nets")
    return net_spec(ActorCriticModule, net_class, net_kwargs)
