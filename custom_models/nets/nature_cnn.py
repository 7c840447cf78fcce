"""The convolutional torso of DQN in Nature (Mnih et al., 2015, https://doi.org/10.1038/nature14236, methods)."""

from __future__ import annotations

from typing import cast

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from custom_models.nets.noisy import LinearMaker

SMALLEST_SIDE = 36
"""Pixels; of a smaller frame the convolutions would leave nothing."""


class NatureConvolutions(nn.Sequential):
    """Three convolutions without padding, each followed by a ReLU, over frames stacked along the first axis.

    Weights start as PyTorch's layers start them.

    Args:
        observation_space: A uint8 Box ``[C, H, W]``, H and W at least 36: C frames (or channels), 0 to 255.

    Attributes:
        out_features: F, the number of features: 64 for each position of the last convolution.

    Raises:
        ValueError: If the space is of another kind, or its frames are too small.
    """

    def __init__(self, observation_space: gym.Space) -> None:
        channels, *sides = frame_shape(observation_space)
        layers = (nn.Conv2d(channels, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3, 1))
        super().__init__(*(part for layer in layers for part in (layer, nn.ReLU(inplace=True))), nn.Flatten())
        for kernel, step in ((layer.kernel_size[0], layer.stride[0]) for layer in layers):
            sides = [(side - kernel) // step + 1 for side in sides]
        self.out_features = layers[-1].out_channels * sides[0] * sides[1]

    def forward(self, obs: Tensor) -> Tensor:
        """Returns the features ``[B, F]`` of observations ``[B, C, H, W]``, uint8 (or 0 to 255 in another type)."""
        # With channels last in memory, forward and backward pass take 0.6 of the time on a CPU. Frames are scaled here,
        # not by the environment (they travel, and wait in replay, at a byte per pixel); the weights are, being fewer.
        layers = iter(self)
        first = cast(nn.Conv2d, next(layers))
        pixels = torch.stack(obs.unbind(1), dim=-1).float().permute(0, 3, 1, 2)
        features = conv2d(pixels, first.weight / 255.0, first.bias, first.stride)
        for layer in layers:
            features = layer(features)
        return features


class NatureCNN(nn.Module):
    """The convolutions and one linear layer, followed by a ReLU.

    Args:
        observation_space: See :class:`NatureConvolutions`.
        linear: What makes the linear layer of its two sizes.

    Attributes:
        convolutions: ``[B, C, H, W]`` -> ``[B, linear.in_features]``.
        linear: The layer behind them.
        out_features: F = 512, the number of features.

    Raises:
        ValueError: If the space is of another kind, or its frames are too small.
    """

    def __init__(self, observation_space: gym.Space, linear: LinearMaker = nn.Linear) -> None:
        super().__init__()
        self.convolutions = NatureConvolutions(observation_space)
        self.out_features = 512
        self.linear = linear(self.convolutions.out_features, self.out_features)

    def forward(self, obs: Tensor) -> Tensor:
        """Returns the features ``[B, F]`` of observations ``[B, C, H, W]``, uint8 (or 0 to 255 in another type)."""
        return torch.relu(self.linear.forward(self.convolutions.forward(obs)))


def frame_shape(space: gym.Space) -> tuple[int, int, int]:
    """Returns C, H and W of a space of images.

    Raises:
        ValueError: If it is no uint8 Box of three dimensions, or a side has fewer than 36 pixels.
    """
    wanted = f"observation space: expected a uint8 Box [C, H, W] with H and W at least {SMALLEST_SIDE}, got"
    if not isinstance(space, gym.spaces.Box):
        raise ValueError(f"{wanted} {space}: take a net for such observations, for example an MLP")
    got = f"a {space.dtype} Box {list(space.shape)}"
    if len(space.shape) != 3:
        raise ValueError(f"{wanted} {got}: take an MLP for vectors, and stack gray frames for images")
    if space.dtype != np.uint8:
        raise ValueError(f"{wanted} {got}: let the environment give the frames as bytes, the net scales them")
    channels, height, width = space.shape
    if min(height, width) < SMALLEST_SIDE:
        raise ValueError(
            f"{wanted} {got}: resize the frames, if channels are the last axis put them first, or flatten small ones "
            "for an MLP"
        )
    return channels, height, width
