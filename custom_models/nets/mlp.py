"""Multi-layer perceptrons: the torso, and the Q-networks built on it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import gymnasium as gym
from torch import Tensor, nn
from torch.nn.functional import one_hot

from custom_models.nets.arguments import activation_class, layer_sizes, num_discrete_actions
from custom_models.nets.dueling import DuelingHead


class MLPTorso(nn.Module):
    """Fully connected layers over Box (flattened, as float32) or Discrete (one-hot) observations.

    Args:
        observation_space: A Box or Discrete space.
        hidden: Units of each layer, first to last; empty for none, then the features are the observations.
        activation: Name of the activation after every layer.

    Attributes:
        out_features: F, the number of features.

    Raises:
        ValueError: If the space is neither Box nor Discrete, or an argument is wrong.
    """

    def __init__(self, observation_space: gym.Space, hidden: Sequence[int], activation: str) -> None:
        super().__init__()
        self.discrete_start: int | None = None
        if isinstance(observation_space, gym.spaces.Box):
            self.in_features = math.prod(observation_space.shape)
        elif isinstance(observation_space, gym.spaces.Discrete):
            self.in_features = int(observation_space.n)
            self.discrete_start = int(observation_space.start)
        else:
            raise ValueError(f"observation space: expected Box or Discrete, got {observation_space}")
        act = activation_class(activation)
        sizes = (self.in_features, *layer_sizes(hidden, "hidden"))
        layers: list[nn.Module] = []
        for size_in, size_out in itertools.pairwise(sizes):
            layers += [nn.Linear(size_in, size_out), act()]
        self.layers = nn.Sequential(*layers)
        self.out_features = sizes[-1]

    def forward(self, obs: Tensor) -> Tensor:
        """Returns the features ``[B, F]`` of observations ``[B, *observation_space.shape]`` of any number type."""
        if self.discrete_start is not None:
            obs = one_hot(obs.long() - self.discrete_start, self.in_features)
        return self.layers(obs.float().reshape(obs.shape[0], self.in_features))


class PlainMLP(nn.Module):
    """Action values from a torso and one linear layer.

    Args:
        observation_space: A Box or Discrete space.
        action_space: A Discrete space that starts at 0.
        hidden: Units of each layer of the torso.
        activation: Name of the torso's activation.

    Raises:
        ValueError: If a space is not supported, or an argument is wrong.
    """

    def __init__(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        hidden: Sequence[int] = (256,),
        activation: str = "relu",
    ) -> None:
        super().__init__()
        self.torso = MLPTorso(observation_space, hidden, activation)
        self.head = nn.Linear(self.torso.out_features, num_discrete_actions(action_space))

    def forward(self, obs: Tensor) -> Tensor:
        """Returns the action values ``[B, A]`` of observations ``[B, *observation_space.shape]``."""
        return self.head(self.torso(obs))


class DuelingMLP(nn.Module):
    """Action values from a torso and a dueling head.

    Args:
        observation_space: A Box or Discrete space.
        action_space: A Discrete space that starts at 0.
        hidden: Units of each layer of the torso.
        activation: Name of the activation in torso and head.
        head_hidden: Units of the hidden layer in each stream of the head; None for none.

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
    ) -> None:
        super().__init__()
        self.torso = MLPTorso(observation_space, hidden, activation)
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
