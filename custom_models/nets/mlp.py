"""Multi-layer perceptrons: the torso, and the Q-networks built on it."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium as gym
from torch import Tensor, nn

from custom_models.nets.arguments import num_discrete_actions
from custom_models.nets.dense import DenseLayers
from custom_models.nets.dueling import DuelingHead
from custom_models.nets.encoder import observation_encoder
from custom_models.nets.noisy import SIGMA0, linear_maker


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
        self.layers = DenseLayers(self.encoder.out_features, hidden, activation)
        self.out_features = self.layers.out_features

    def forward(self, obs: Tensor) -> Tensor:
        """Returns the features ``[B, F]`` of observations ``[B, *observation_space.shape]`` of any number type."""
        return self.layers.forward(self.encoder.forward(obs))


class PlainMLP(nn.Module):
    """Action values from a torso and one linear layer.

    Args:
        observation_space: A Box, Discrete, MultiDiscrete or MultiBinary space.
        action_space: A Discrete space that starts at 0.
        hidden: Units of each layer of the torso.
        activation: Name of the torso's activation.
        normalize_observations: Whether Box observations pass a ``RunningNorm``.
        noisy: Whether the head is made of ``NoisyLinear`` layers.
        sigma0: How much noise they start with, with ``noisy``.

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
        noisy: bool = False,
        sigma0: float = SIGMA0,
    ) -> None:
        super().__init__()
        self.torso = MLPTorso(observation_space, hidden, activation, normalize_observations)
        self.head = linear_maker(noisy, sigma0)(self.torso.out_features, num_discrete_actions(action_space))

    def forward(self, obs: Tensor) -> Tensor:
        """Returns the action values ``[B, A]`` of observations ``[B, *observation_space.shape]``."""
        return self.head.forward(self.torso.forward(obs))


class DuelingMLP(nn.Module):
    """Action values from a torso and a dueling head.

    Args:
        observation_space: A Box, Discrete, MultiDiscrete or MultiBinary space.
        action_space: A Discrete space that starts at 0.
        hidden: Units of each layer of the torso.
        activation: Name of the activation in torso and head.
        head_hidden: Units of the hidden layer in each stream of the head; None for none.
        normalize_observations: Whether Box observations pass a ``RunningNorm``.
        noisy: Whether the head is made of ``NoisyLinear`` layers.
        sigma0: How much noise they start with, with ``noisy``.

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
        noisy: bool = False,
        sigma0: float = SIGMA0,
    ) -> None:
        super().__init__()
        self.torso = MLPTorso(observation_space, hidden, activation, normalize_observations)
        linear = linear_maker(noisy, sigma0)
        actions = num_discrete_actions(action_space)
        self.head = DuelingHead(self.torso.out_features, actions, head_hidden, activation, linear)

    def forward(self, obs: Tensor, action_mask: Tensor | None = None) -> Tensor:
        """Returns the action values.

        Args:
            obs: ``[B, *observation_space.shape]``.
            action_mask: ``[B, A]`` bool, True is legal; see ``DuelingHead``.

        Returns:
            ``[B, A]``.
        """
        return self.head.forward(self.torso.forward(obs), action_mask)
