"""The dueling head (Wang et al., 2016, https://arxiv.org/abs/1511.06581, equation 9)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from custom_models.nets.arguments import activation_function, layer_size
from custom_models.nets.noisy import LinearMaker


class DuelingHead(nn.Module):
    """Action values as ``V + A - mean(A)``: what the state is worth, and what each action adds to that.

    Without a hidden layer the two streams are one linear layer: its first output is V, the others are A.

    Args:
        in_features: F, the number of features.
        num_actions: A.
        hidden: Units of each stream's own hidden layer; None for no such layer.
        activation: Name of the activation after the hidden layers.
        linear: What makes the linear layers.

    Raises:
        ValueError: If a size is no positive int, or the activation is unknown.
    """

    combine: Tensor

    def __init__(
        self,
        in_features: int,
        num_actions: int,
        hidden: int | None = None,
        activation: str = "relu",
        linear: LinearMaker = nn.Linear,
    ) -> None:
        super().__init__()
        self.num_actions = num_actions
        activation_function(activation)
        self.streams: nn.Module
        if hidden is None:
            self.streams = linear(in_features, 1 + num_actions)
        else:
            units = layer_size(hidden, "the dueling head's hidden layer")
            self.streams = _TwoStreams(in_features, num_actions, units, activation, linear)
        # V + A - mean(A) is a fixed linear map of (V, A). One matrix product instead of mean, difference and sum
        # makes the head nearly as cheap as a plain one, forward and backward.
        # In NumPy: torch.eye on the device "meta", where specs try their nets, imports torch's compiler for a second.
        centred = np.eye(num_actions, dtype=np.float32) - np.float32(1.0 / num_actions)
        combine = np.concatenate([np.ones((1, num_actions), np.float32), centred])
        self.register_buffer("combine", torch.from_numpy(combine), persistent=False)

    def forward(self, features: Tensor, action_mask: Tensor | None = None) -> Tensor:
        """Returns the action values.

        Args:
            features: ``[B, F]``.
            action_mask: ``[B, A]`` bool, True is legal. Illegal actions are left out of the mean and get -inf.

        Returns:
            ``[B, A]``.
        """
        value_and_advantages = self.streams(features)
        if action_mask is None:
            return value_and_advantages @ self.combine
        value, advantages = value_and_advantages.split((1, self.num_actions), dim=1)
        legal_sum = advantages.masked_fill(~action_mask, 0.0).sum(dim=1, keepdim=True)
        legal_mean = legal_sum / action_mask.sum(dim=1, keepdim=True)
        return (value + advantages - legal_mean).masked_fill(~action_mask, float("-inf"))


class _TwoStreams(nn.Module):
    """V and A from separate hidden layers: ``[B, F] -> [B, 1 + A]``."""

    def __init__(self, in_features: int, num_actions: int, hidden: int, activation: str, linear: LinearMaker) -> None:
        super().__init__()
        self.value_hidden, self.value = linear(in_features, hidden), linear(hidden, 1)
        self.advantages_hidden, self.advantages = linear(in_features, hidden), linear(hidden, num_actions)
        self.activation = activation_function(activation)

    def forward(self, features: Tensor) -> Tensor:
        value = self.value.forward(self.activation(self.value_hidden.forward(features)))
        advantages = self.advantages.forward(self.activation(self.advantages_hidden.forward(features)))
        return torch.cat([value, advantages], dim=1)
