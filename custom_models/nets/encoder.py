"""What turns observations of any simple space into features, the same for all nets."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from custom_models.nets.normalizer import RunningNorm


def observation_encoder(space: gym.Space, normalize: bool = False) -> FlatEncoder | OneHotEncoder:
    """Makes the encoder of an observation space.

    Args:
        space: Box and MultiBinary are flattened, as float32; Discrete and MultiDiscrete become one-hot vectors.
        normalize: Whether Box observations pass a :class:`RunningNorm`.

    Returns:
        A module ``[B, *space.shape] -> [B, F]`` (float32) with ``out_features``, which is F.

    Raises:
        ValueError: If the space is of another kind, one of images, or not one that can be normalized.
    """
    if not isinstance(normalize, bool):
        raise ValueError(f"normalize_observations: expected True or False, got {normalize!r}")
    if normalize and not isinstance(space, gym.spaces.Box):
        raise ValueError(f"normalize_observations: expected a Box observation space, got {space}: leave it out")
    if is_image(space):
        raise ValueError(
            f"observation space: expected vectors, got a {space.dtype} Box {list(space.shape or ())}: take a net for "
            "images, dueling_cnn(), plain_cnn() or actor_critic_cnn(), or flatten small ones in the environment"
        )
    if isinstance(space, gym.spaces.Box | gym.spaces.MultiBinary):
        return FlatEncoder(space, normalize)
    if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
        return OneHotEncoder(space)
    raise ValueError(f"observation space: expected Box, Discrete, MultiDiscrete or MultiBinary, got {space}")


def is_image(space: gym.Space) -> bool:
    """Whether observations are images: a Box of three dimensions, whatever its numbers are."""
    return isinstance(space, gym.spaces.Box) and len(space.shape) == 3


class FlatEncoder(nn.Module):
    """Box or MultiBinary observations ``[B, *space.shape]`` of any number type to float32 ``[B, F]``.

    Args:
        space: The observation space.
        normalize: Whether they pass a :class:`RunningNorm`.

    Attributes:
        norm: It, or None.
        out_features: F, the number of elements of one observation.
    """

    def __init__(self, space: gym.spaces.Box | gym.spaces.MultiBinary, normalize: bool = False) -> None:
        super().__init__()
        self.out_features = math.prod(space.shape)
        self.norm = RunningNorm(space.shape) if normalize else None

    def forward(self, obs: Tensor) -> Tensor:
        """Returns the features ``[B, F]``."""
        if obs.dtype != torch.float32:
            obs = obs.float()
        if self.norm is not None:
            obs = self.norm(obs)
        return obs if obs.ndim == 2 else obs.reshape(obs.shape[0], self.out_features)


class OneHotEncoder(nn.Module):
    """Discrete ``[B]`` or MultiDiscrete ``[B, *space.shape]`` observations to a one-hot vector each, concatenated.

    Args:
        space: The observation space; its ``start`` is the value of the first feature.

    Attributes:
        out_features: F, the number of values, summed over the components.
    """

    start: Tensor | None
    columns: Tensor | None

    def __init__(self, space: gym.spaces.Discrete | gym.spaces.MultiDiscrete) -> None:
        super().__init__()
        sizes = np.ravel(space.n if isinstance(space, gym.spaces.Discrete) else space.nvec).tolist()
        self.num_components, self.width, self.out_features = len(sizes), max(sizes), sum(sizes)
        start = torch.as_tensor(np.ravel(space.start).astype(np.int64))
        self.register_buffer("start", start if start.any() else None, persistent=False)
        # All components get the width of the widest; these columns remain.
        columns = [i * self.width + j for i, size in enumerate(sizes) for j in range(size)]
        ragged = len(columns) < self.num_components * self.width
        self.register_buffer("columns", torch.tensor(columns) if ragged else None, persistent=False)

    def forward(self, obs: Tensor) -> Tensor:
        """Returns the features ``[B, F]``.

        Raises:
            RuntimeError: If a value is beyond what every component can be (on a CPU).
        """
        values = obs.long().reshape(obs.shape[0], self.num_components)
        if self.start is not None:
            values = values - self.start
        features = one_hot(values, self.width).flatten(1)
        if self.columns is not None:
            features = features[:, self.columns]
        return features.float()
