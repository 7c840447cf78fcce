"""Actor-critic nets: a distribution over actions and the value of the state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import gymnasium as gym
import torch
from torch import Tensor, nn

from custom_models.nets.arguments import finite_number, policy_outputs
from custom_models.nets.dense import DenseLayers
from custom_models.nets.encoder import observation_encoder
from custom_models.nets.nature_cnn import NatureCNN

POLICY_GAIN = 0.01
"""Of the policy's last layer: the first policy is close to uniform, whatever it observes."""


class _ActorCritic(nn.Module):
    """The two heads: a distribution over actions and the value of the state."""

    log_std: nn.Parameter | None
    value_head: nn.Linear

    def _make_policy_head(self, features: int, action_space: gym.Space, log_std_init: float) -> None:
        num_outputs, is_gaussian = policy_outputs(action_space)
        log_std = torch.full((num_outputs,), finite_number(log_std_init, "log_std_init"))
        self.policy_head = nn.Linear(features, num_outputs)
        self.log_std = nn.Parameter(log_std) if is_gaussian else None

    def _initialize(self) -> None:
        """Makes all weights orthogonal, with gain sqrt(2), 0.01 in the policy's head and 1 in the value's."""
        gains: dict[nn.Module, float] = {self.policy_head: POLICY_GAIN, self.value_head: 1.0}
        for layer in self.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                nn.init.orthogonal_(layer.weight, gains.get(layer, math.sqrt(2.0)))
                nn.init.zeros_(cast(Tensor, layer.bias))

    def _policy(self, features: Tensor) -> Tensor:
        outputs = self.policy_head.forward(features)
        return outputs if self.log_std is None else torch.cat((outputs, self.log_std.expand_as(outputs)), dim=-1)

    def _value(self, features: Tensor) -> Tensor:
        return self.value_head.forward(features).squeeze(-1)


class ActorCriticMLP(_ActorCritic):
    """Two towers of fully connected layers, or two heads on one torso.

    Weights start orthogonal with gain sqrt(2), 0.01 in the policy's head and 1 in the value's, and biases at 0
    (Andrychowicz et al., 2021, https://arxiv.org/abs/2006.05990, and what Stable-Baselines3 and CleanRL do).

    Args:
        observation_space: A Box, Discrete, MultiDiscrete or MultiBinary space.
        action_space: A Discrete or MultiDiscrete space that starts at 0, or a Box of floats.
        hidden: Units of each layer, of each tower.
        activation: Name of the activation after every layer.
        shared: Whether policy and value stand on one torso.
        normalize_observations: Whether Box observations pass a ``RunningNorm``.
        log_std_init: With a Box of actions, the logarithm of the first standard deviation, which does not depend on
            the observation.

    Attributes:
        value_only: Names of what only the value needs: whoever acts does without.

    Raises:
        ValueError: If a space is not supported, or an argument is wrong.
    """

    def __init__(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        hidden: Sequence[int] = (64, 64),
        activation: str = "tanh",
        shared: bool = False,
        normalize_observations: bool = False,
        log_std_init: float = 0.0,
    ) -> None:
        super().__init__()
        if not isinstance(shared, bool):
            raise ValueError(f"shared: expected True or False, got {shared!r}")
        self.encoder = observation_encoder(observation_space, normalize_observations)
        inputs = self.encoder.out_features
        self.policy_torso = DenseLayers(inputs, hidden, activation)
        features = self.policy_torso.out_features
        self._make_policy_head(features, action_space, log_std_init)
        self.value_torso = None if shared else DenseLayers(inputs, hidden, activation)
        self.value_head = nn.Linear(features, 1)
        self.value_only = ("value_head",) if shared else ("value_torso", "value_head")
        self._initialize()

    def policy(self, obs: Tensor) -> Tensor:
        """Returns what RLlib's distributions are made from.

        Args:
            obs: ``[B, *observation_space.shape]``.

        Returns:
            ``[B, D]``: the logits of a Discrete space, those of a MultiDiscrete's components one after the other, or
            means and log standard deviations of a Box (flattened).
        """
        return self._policy(self.policy_torso.forward(self.encoder.forward(obs)))

    def value(self, obs: Tensor) -> Tensor:
        """Returns the values ``[B]`` of observations ``[B, *observation_space.shape]``."""
        torso = self.policy_torso if self.value_torso is None else self.value_torso
        return self._value(torso.forward(self.encoder.forward(obs)))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Returns ``policy(obs)`` ``[B, D]`` and ``value(obs)`` ``[B]``; what they share is computed once."""
        encoded = self.encoder.forward(obs)
        features = self.policy_torso.forward(encoded)
        value_features = features if self.value_torso is None else self.value_torso.forward(encoded)
        return self._policy(features), self._value(value_features)


class ActorCriticCNN(_ActorCritic):
    """Two heads on the convolutional torso of ``NatureCNN``: the net of PPO's, A2C's and A3C's Atari results.

    Weights start as those of :class:`ActorCriticMLP`, the convolutions' with gain sqrt(2).

    Args:
        observation_space: A uint8 Box ``[C, H, W]``, H and W at least 36.
        action_space: A Discrete or MultiDiscrete space that starts at 0, or a Box of floats.
        log_std_init: With a Box of actions, the logarithm of the first standard deviation, which does not depend on
            the observation.

    Attributes:
        value_only: Names of what only the value needs: whoever acts does without.

    Raises:
        ValueError: If a space is not supported, or an argument is wrong.
    """

    value_only = ("value_head",)

    def __init__(self, observation_space: gym.Space, action_space: gym.Space, log_std_init: float = 0.0) -> None:
        super().__init__()
        self.torso = NatureCNN(observation_space)
        self._make_policy_head(self.torso.out_features, action_space, log_std_init)
        self.value_head = nn.Linear(self.torso.out_features, 1)
        self._initialize()

    def policy(self, obs: Tensor) -> Tensor:
        """Returns what RLlib's distributions are made from, ``[B, D]``, of ``[B, C, H, W]``; see ActorCriticMLP."""
        return self._policy(self.torso.forward(obs))

    def value(self, obs: Tensor) -> Tensor:
        """Returns the values ``[B]`` of observations ``[B, C, H, W]``."""
        return self._value(self.torso.forward(obs))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Returns ``policy(obs)`` ``[B, D]`` and ``value(obs)`` ``[B]``; the torso is computed once."""
        features = self.torso.forward(obs)
        return self._policy(features), self._value(features)


def drop_value(net: nn.Module) -> None:
    """Takes away what the net names in ``value_only``; it can still answer ``policy(obs)``."""
    for name in getattr(net, "value_only", ()):
        if hasattr(net, name):
            delattr(net, name)
