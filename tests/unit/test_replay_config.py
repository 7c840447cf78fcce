"""Columns, their memory, and SlottedReplay as a config value."""

import gymnasium as gym
import numpy as np
import pytest
from replays import CARTPOLE, NUMBERS, rollouts, walk

from rayground.errors import InputError
from rayground.replay import SlottedReplay
from rayground.replay.columns import Column


@pytest.mark.parametrize(
    ("space", "stored", "given"),
    [
        (gym.spaces.Discrete(2), "uint8", "int64"),
        (gym.spaces.Discrete(257), "uint16", "int64"),
        (gym.spaces.Discrete(256, start=-128), "int8", "int64"),
        (gym.spaces.MultiDiscrete([5, 70_000]), "uint32", "int64"),
        (gym.spaces.MultiBinary(3), "uint8", "int8"),
        (gym.spaces.Box(0, 255, (2,), np.uint8), "uint8", "uint8"),
        (gym.spaces.Box(-1, 200, (2,), np.int64), "int16", "int64"),
        (gym.spaces.Box(-(2**60), 2**60, (2,), np.int64), "int64", "int64"),
        (gym.spaces.Box(-1, 1, (2,), np.float64), "float32", "float32"),
        (gym.spaces.Box(-1, 1, (2,), np.float16), "float16", "float16"),
    ],
)
def test_the_smallest_dtype_that_holds_the_space(space, stored, given):
    column = Column.of(space, "observation")
    assert (column.stored, column.given, column.shape) == (np.dtype(stored), np.dtype(given), space.shape)


@pytest.mark.parametrize(("prioritized", "most"), [(False, 26), (True, 40)])
def test_bytes_of_a_cartpole_transition(prioritized, most):
    replay = SlottedReplay(20_000, prioritized)
    buffer = replay.build(*CARTPOLE, num_lanes=8, n_step=1, gamma=0.99, seed=0)
    for rollout in rollouts(20, 150, 8):
        buffer.add(rollout)
    assert buffer.nbytes / len(buffer) <= most
    assert buffer.metrics()["bytes"] == buffer.nbytes == replay.num_bytes(*CARTPOLE, num_lanes=8)
    assert SlottedReplay(2_000_000, prioritized).num_bytes(*CARTPOLE) / 2_000_000 <= most


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"capacity": 0}, "capacity: expected a whole number of transitions above 0, got 0"),
        ({"capacity": 1e6}, "capacity: expected a whole number"),
        ({"capacity": True}, "capacity"),
        ({"prioritized": "yes"}, "prioritized: expected True or False, got 'yes'"),
        ({"prioritized": True, "alpha": 1.5}, "alpha: expected a number from 0 to 1, got 1.5"),
        ({"prioritized": True, "priority_epsilon": 0.0}, "priority_epsilon: expected a number above 0, got 0.0"),
        ({"prioritized": True, "beta": 2.0}, "beta: expected values from 0 to 1, got 2.0"),
        ({"prioritized": True, "beta": [[5, 0.4]]}, "beta: expected points that start at env step 0"),
        ({"prioritized": True, "beta": "0.4"}, "beta: expected a number"),
        ({"beta": 0.5}, "beta: 0.5 has no effect without prioritized=True"),
    ],
)
def test_the_config_value_checks_itself(fields, said):
    with pytest.raises(InputError) as error:
        SlottedReplay(**fields)
    assert str(error.value).startswith(f"replay.{said}")
    assert "\n" not in str(error.value)


def test_the_config_value_builds_what_it_says():
    replay = SlottedReplay(9, prioritized=True, alpha=1.0, beta=[[0, 0.4], [1000, 1.0]], priority_epsilon=0.5)
    buffer = replay.build(*NUMBERS, num_lanes=2, n_step=2, gamma=0.5, seed=7)
    assert (buffer.capacity, buffer.num_lanes, buffer.prioritized) == (9, 2, True)
    walk(buffer, 3, start=1)
    assert set(buffer.sample(60).rewards) == {1.0 + 0.5 * 2.0, 2.0 + 0.5 * 3.0, 3.0}
    buffer.update_priorities(buffer.sample(2).indices, np.array([1.0, 1.0]))
    assert buffer.metrics()["priority_max"] == 1.5


def test_masks_are_among_the_bytes():
    """One for each action."""
    replay = SlottedReplay(500)
    buffer = replay.build(*CARTPOLE, num_lanes=4, n_step=1, gamma=0.99, action_masks=True, seed=0)
    for rollout in rollouts(2, 150, 4):
        rollout.action_masks = np.ones((151, 4, 2), np.bool_)
        buffer.add(rollout)
    assert buffer.nbytes == replay.num_bytes(*CARTPOLE, num_lanes=4, action_masks=True)
    difference = buffer.nbytes - replay.num_bytes(*CARTPOLE, num_lanes=4)
    assert 2 * 500 <= difference <= 2 * 520
