"""What the replay buffer holds, and what it refuses."""

import gc
import weakref
from dataclasses import dataclass, replace

import gymnasium as gym
import numpy as np
import pytest
from replays import CARTPOLE, NUMBERS, rollouts, walk

from rayground.errors import InputError, RunError
from rayground.replay import SlottedReplay, SlottedReplayBuffer, Transition


@dataclass(slots=True)
class Noted(Transition):
    note: str = ""


def test_a_subclass_of_transition_has_slots_and_no_dict():
    noted = Noted(1, 0, 0.5, 2, False, True, note="here")
    assert not hasattr(noted, "__dict__")
    assert Noted.__slots__ == ("note",)
    with pytest.raises(AttributeError):
        noted.more = 1
    assert replace(noted, obs=3) == Noted(3, 0, 0.5, 2, False, True, note="here")


@pytest.mark.parametrize("kind", [Transition, Noted])
def test_transitions_can_be_weakly_referenced(kind):
    transition = kind(1, 0, 0.5, 2, False, False)
    reference = weakref.ref(transition)
    assert reference() is transition
    del transition
    gc.collect()
    assert reference() is None


def test_reads_what_was_pushed_with_any_space():
    spaces = [
        gym.spaces.Discrete(300, start=-5),
        gym.spaces.Box(0, 255, (3, 2), np.uint8),
        gym.spaces.Box(-1, 1, (2,), np.float32),
        gym.spaces.MultiDiscrete([3, 400]),
        gym.spaces.MultiBinary(4),
        gym.spaces.Box(-1000, 1000, (), np.int64),
    ]
    for space in spaces:
        space.seed(1)
        buffer = SlottedReplayBuffer(10, space, space)
        pushed = [Transition(space.sample(), space.sample(), 0.25, space.sample(), False, i == 1) for i in range(4)]
        for transition in pushed:
            buffer.push(transition)
        for got, expected in zip(buffer, pushed, strict=True):
            for name in ("obs", "action", "next_obs"):
                np.testing.assert_array_equal(getattr(got, name), getattr(expected, name))
                assert np.asarray(getattr(got, name)).dtype == space.dtype
            assert (got.reward, got.terminated, got.truncated) == (0.25, False, expected.truncated)


def test_reading_gives_copies():
    buffer = SlottedReplayBuffer(4, CARTPOLE[0], CARTPOLE[0])
    buffer.push(Transition(np.zeros(4), np.zeros(4), 0.0, np.zeros(4), False, False))
    row, batch = buffer[0], buffer.sample(1)
    for values in (row.obs, row.action, row.next_obs, batch.obs, batch.actions, batch.next_obs):
        values += 1
    assert not buffer[0].obs.any()
    assert not buffer[0].action.any()
    assert not buffer[0].next_obs.any()


def test_indexing_is_a_sequence():
    buffer = SlottedReplayBuffer(6, *NUMBERS, num_lanes=2)
    walk(buffer, 5, start=10, lane=1)
    walk(buffer, 2, lane=0)
    assert [t.obs for t in buffer] == [0, 1, 12, 13, 14]
    assert [buffer[i].obs for i in range(-5, 5)] == [0, 1, 12, 13, 14] * 2
    with pytest.raises(IndexError, match="below 5"):
        buffer[5]


@pytest.mark.parametrize("prioritized", [False, True])
def test_an_episode_that_never_ends_stays_within_the_capacity(prioritized):
    """RLlib's buffers grow without end or crash here (facts: F2)."""
    buffer = SlottedReplayBuffer(200, *NUMBERS, prioritized=prioritized, n_step=3)
    sizes = set()
    for i in range(2000):
        walk(buffer, 1, start=i)
        assert len(buffer) == min(i + 1, 200)
        batch = buffer.sample(4)
        assert (batch.obs >= i - 199).all()
        buffer.update_priorities(batch.indices, np.ones(4))
        sizes.add(buffer.nbytes)
    assert [t.obs for t in buffer] == list(range(1800, 2000))
    assert max(sizes) == buffer.nbytes == SlottedReplay(200, prioritized).num_bytes(*NUMBERS)


def test_nan_observations_continue():
    """They are stored as they are: finding them is not the buffer's work, and must not cut the episode."""
    nan = np.full(4, np.nan, np.float32)
    buffer = SlottedReplayBuffer(10, *CARTPOLE, n_step=2, gamma=0.5)
    for _ in range(2):
        buffer.push(Transition(nan, 0, 1.0, nan, False, False))
    assert sorted(set(buffer.sample(50).rewards)) == [1.0, 1.5]


def test_wrong_input_is_said_in_one_line():
    buffer = SlottedReplayBuffer(10, *CARTPOLE, num_lanes=2)
    (rollout,) = rollouts(1, 3, 2)
    with pytest.raises(RunError, match="an empty buffer"):
        buffer.sample(1)
    with pytest.raises(InputError, match=r"lanes from 0 to 1, .* got 1 to 2"):
        buffer.add(rollout, first_lane=1)
    with pytest.raises(InputError, match=r"observations of shape \(4, 2, 4\).* got \(4, 2, 1\)"):
        buffer.add(replace(rollout, obs=rollout.obs[..., :1]))
    with pytest.raises(InputError, match=r"actions of shape \(3, 2\).* got \(3, 2, 1\)"):
        buffer.add(replace(rollout, actions=rollout.actions[..., None]))
    with pytest.raises(InputError, match="at least one transition for each of 4 environments, got 3"):
        SlottedReplayBuffer(3, *CARTPOLE, num_lanes=4)
    with pytest.raises(InputError, match="n_step of at least 1, got 0"):
        SlottedReplayBuffer(3, *CARTPOLE, n_step=0)
    with pytest.raises(InputError, match=r"Box, Discrete, .* observation space, got Dict"):
        SlottedReplayBuffer(3, gym.spaces.Dict(), CARTPOLE[1])
    with pytest.raises(RunError, match="integers from 0 to 99, as the space says, got 1 to 256"):
        SlottedReplayBuffer(3, gym.spaces.Discrete(100), CARTPOLE[1]).push(Transition(256, 0, 0.0, 1, False, False))
    with pytest.raises(RunError, match="integers from 10 to 99, as the space says, got 9 to 20"):
        SlottedReplayBuffer(3, gym.spaces.Discrete(90, start=10), NUMBERS[1]).push(
            Transition(9, 0, 0.0, 20, False, False)
        )
    assert len(buffer) == 0


def test_wrong_td_errors_change_nothing():
    buffer = SlottedReplayBuffer(10, *NUMBERS, prioritized=True)
    walk(buffer, 5)
    batch, before = buffer.sample(2), buffer.metrics()
    with pytest.raises(RunError, match="finite TD errors"):
        buffer.update_priorities(batch.indices, np.array([1.0, np.nan]))
    with pytest.raises(RunError, match="finite TD errors"):
        buffer.update_priorities(batch.indices, np.array([1.0, np.inf]))
    with pytest.raises(InputError, match="expected 2 TD errors, one an index, got 3"):
        buffer.update_priorities(batch.indices, np.ones(3))
    assert buffer.metrics() == before
