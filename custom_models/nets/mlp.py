"""Multi-layer perceptrons: the torso, and the Q-networks built on it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import gymnasium as gym
from torch import Tensor, nn

from custom_models.nets.arguments import activation_class, layer_sizes, num_discrete_actions
from custom_models.nets.dueling import DuelingHead
from custom_models.nets.encoder import observation_encoder


def dense_layers(in_features: int, hidden: Sequence[int], activation: str) -> nn.Sequential:
    """Makes fully connected layers, ``[B, in_features] -> [B, hidden[-1]]``.

    Args:
        in_features: Size of the input.
        hidden: Units of each layer, first to last; empty for no layer.
        activation: Name of the activation after every layer.

    Raises:
        ValueError: If an argument is wrong.
    """
    act = activation_class(activation)
    layers: list[nn.Module] = []
    for size_in, size_out in itertools.pairwise((in_features, *layer_sizes(hidden, "hidden"))):
        layers += [nn.Linear(size_in, size_out), act()]
    return nn.Sequential(*layers)


class MLPTorso(nn.Module):
    """Fully connected layers over observations as ``observation_encoder`` encodes them.

    Args:
        observation_space: A Box, Discrete, MultiDiscrete or MultiBinary space.
        hidden: Units of each layer, first to last; empty for none, then the features are the encoded observations.
        activation: Name of the activation after every layer.
        normalize_observations: Whether Box observations pass a ``RunningNorm``.

    Attributes:
        out_features: F, the number of features.

    Raises:
        ValueError: If the space is of another kind, or an argument is wrong.
    """

    def __init__(
        self,
        observation_space: gym.Space,
        hidden: Sequence[int],
        activation: str,
        normalize_observations: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = observation_encoder(observation_space, normalize_observations)
        self.layers = dense_layers(self.encoder.out_features, hidden, activation)
        self.out_features = hidden[-1] if hidden else self.encoder.out_features

    def forward(self, obs: Tensor) -> Tensor:
        """Returns the features ``[B, F]`` of observations ``[B, *observation_space.shape]`` of any number type."""
        return self.layers(self.encoder(obs))


class PlainMLP(nn.Module):
    """Action values from a torso and one linear layer.

    Args:
        observation_space: A Box, Discrete, MultiDiscrete or MultiBinary space.
        action_space: A Discrete space that starts at 0.
        hidden: Units of each layer of the torso.
        activation: Name of the torso's activation.
        normalize_observations: Whether Box observations pass a ``RunningNorm``.

    Raises:
        ValueError: If a space is not supported, or an argument is wrong.
    """

    def __init__(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        hidden: Sequence[int] = (256,),
        activation: str = "relu",
        normalize_observations: bool = False,
    ) -> None:
        super().__init__()
        self.torso = MLPTorso(observation_space, hidden, activation, normalize_observations)
        self.head = nn.Linear(self.torso.out_features, num_discrete_actions(action_space))

    def forward(self, obs: Tensor) -> Tensor:
        """Returns the action values ``[B, A]`` of observations ``[B, *observation_space.shape]``."""
        return self.head(self.torso(obs))


class DuelingMLP(nn.Module):
    """Action values from a torso and a dueling head.

    Args:
        observation_space: A Box, Discrete, MultiDiscrete or MultiBinary space.
        action_space: A Discrete space that starts at 0.
        hidden: Units of each layer of the torso.
        activation: Name of the activation in torso and head.
        head_hidden: Units of the hidden layer in each stream of the head; None for none.
        normalize_observations: Whether Box observations pass a ``RunningNorm``.

    Raises:
        ValueError: If a space is not supported, or an argument is wrong.
    """

    def __init__(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        hidden: Sequence[int] = (256,),
        activation: str = "relu",
        head_hidden: int | None = None,
        normalize_observations: bool = False,
    ) -> None:
        super().__init__()
        self.torso = MLPTorso(observation_space, hidden, activation, normalize_observations)
        self.head = DuelingHead(self.torso.out_features, num_discrete_actions(action_space), head_hidden, activation)

    def forward(self, obs: Tensor, action_mask: Tensor | None = None) -> Tensor:
        """Returns the action values.

        Args:
            obs: ``[B, *observation_space.shape]``.
            action_mask: ``[B, A]`` bool, True is legal; see ``DuelingHead``.

        Returns:
            ``[B, A]``.
        """
        return self.head(self.torso(obs), action_mask)
