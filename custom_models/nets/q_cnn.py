"""Convolutional Q-networks: the Nature DQN's layers under the heads that the MLPs have too."""

from __future__ import annotations

import gymnasium as gym
from torch import Tensor, nn

from custom_models.nets.arguments import num_discrete_actions
from custom_models.nets.dueling import DuelingHead
from custom_models.nets.nature_cnn import NatureCNN, NatureConvolutions
from custom_models.nets.noisy import SIGMA0, linear_maker


class PlainCNN(nn.Module):
    """Action values from ``NatureCNN`` and one linear layer: the net of Mnih et al., 2015.

    Args:
        observation_space: A uint8 Box ``[C, H, W]``, H and W at least 36.
        action_space: A Discrete space that starts at 0.
        noisy: Whether the two linear layers are ``NoisyLinear``, as in that paper.
        sigma0: How much noise they start with, with ``noisy``.

    Raises:
        ValueError: If a space is not supported, or an argument is wrong.
    """

    def __init__(
        self, observation_space: gym.Space, action_space: gym.Space, noisy: bool = False, sigma0: float = SIGMA0
    ) -> None:
        super().__init__()
        linear = linear_maker(noisy, sigma0)
        self.torso = NatureCNN(observation_space, linear)
        self.head = linear(self.torso.out_features, num_discrete_actions(action_space))

    def forward(self, obs: Tensor) -> Tensor:
        """Returns the action values ``[B, A]`` of observations ``[B, C, H, W]``, uint8."""
        return self.head.forward(self.torso.forward(obs))


class DuelingCNN(nn.Module):
    """Action values from the Nature DQN's convolutions and a dueling head: the net of Wang et al., 2016.

    Args:
        observation_space: A uint8 Box ``[C, H, W]``, H and W at least 36.
        action_space: A Discrete space that starts at 0.
        head_hidden: Units of the hidden layer in each stream of the head, which stand on the convolutions; None for
            streams of one layer each on ``NatureCNN``, which has half the weights.
        noisy: Whether all linear layers are ``NoisyLinear``, as in that paper.
        sigma0: How much noise they start with, with ``noisy``.

    Raises:
        ValueError: If a space is not supported, or an argument is wrong.
    """

    def __init__(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        head_hidden: int | None = 512,
        noisy: bool = False,
        sigma0: float = SIGMA0,
    ) -> None:
        super().__init__()
        linear = linear_maker(noisy, sigma0)
        self.torso = (
            NatureCNN(observation_space, linear) if head_hidden is None else NatureConvolutions(observation_space)
        )
        actions = num_discrete_actions(action_space)
        self.head = DuelingHead(self.torso.out_features, actions, head_hidden, linear=linear)

    def forward(self, obs: Tensor, action_mask: Tensor | None = None) -> Tensor:
        """Returns the action values.

        Args:
            obs: ``[B, C, H, W]``, uint8.
            action_mask: ``[B, A]`` bool, True is legal; see ``DuelingHead``.

        Returns:
            ``[B, A]``.
        """
        return self.head.forward(self.torso.forward(obs), action_mask)
