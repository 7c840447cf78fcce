"""Observations of every simple space as features."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from custom_models.nets import observation_encoder


def encode(space: gym.Space, *observations) -> list[list[float]]:
    encoder = observation_encoder(space)
    features = encoder(torch.as_tensor(np.stack([np.asarray(obs, space.dtype) for obs in observations])))
    assert (features.dtype, features.shape[1]) == (torch.float32, encoder.out_features)
    return features.tolist()


@pytest.mark.parametrize(
    ("space", "observations", "features"),
    [
        (gym.spaces.Discrete(3, start=-1), [-1, 1], [[1, 0, 0], [0, 0, 1]]),
        (gym.spaces.MultiDiscrete([2, 3]), [[1, 0], [0, 2]], [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]),
        (gym.spaces.MultiDiscrete([2, 2], start=[5, -1]), [[5, 0]], [[1, 0, 0, 1]]),
        (gym.spaces.MultiDiscrete([[2, 1], [1, 2]]), [[[1, 0], [0, 1]]], [[0, 1, 1, 1, 0, 1]]),
        (gym.spaces.MultiBinary(3), [[1, 0, 1]], [[1, 0, 1]]),
        (gym.spaces.MultiBinary([2, 2]), [[[1, 0], [0, 1]]], [[1, 0, 0, 1]]),
        (gym.spaces.Box(0, 255, (2, 2), np.uint8), [[[0, 255], [7, 1]]], [[0, 255, 7, 1]]),
        (gym.spaces.Box(0.0, 1.0, (), np.float64), [0.25, 0.5], [[0.25], [0.5]]),
    ],
)
def test_features_by_hand(space, observations, features):
    assert encode(space, *observations) == features


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 2**31 - 1))
def test_one_hot_is_gymnasiums_flatten(sizes, seed):
    space = gym.spaces.MultiDiscrete(sizes, seed=seed, start=np.arange(len(sizes)) - 1)
    observations = [space.sample() for _ in range(3)]
    shifted = gym.spaces.MultiDiscrete(sizes)
    expected = [gym.spaces.flatten(shifted, obs - space.start).tolist() for obs in observations]
    assert encode(space, *observations) == expected


def test_float32_vectors_are_not_copied():
    obs = torch.randn(3, 4)
    assert observation_encoder(gym.spaces.Box(-1.0, 1.0, (4,)))(obs) is obs


@pytest.mark.parametrize(
    ("space", "value"), [(gym.spaces.Discrete(3), 3), (gym.spaces.MultiDiscrete([3, 3], start=[1, 1]), [1, 0])]
)
def test_values_outside_the_space_are_errors(space, value):
    with pytest.raises(RuntimeError):
        encode(space, value)


def test_other_spaces_are_refused():
    with pytest.raises(ValueError, match="expected Box, Discrete, MultiDiscrete or MultiBinary, got Text"):
        observation_encoder(gym.spaces.Text(3))
