import gc
import json
import weakref
from dataclasses import dataclass, replace

import gymnasium as gym
import numpy as np
import pytest

from rayground.errors import CheckpointError, InputError, RunError
from rayground.replay import Batch, SlottedReplay, SlottedReplayBuffer, Transition
from rayground.replay.columns import Column
from rayground.rollouts.rollout import Rollout

CARTPOLE = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32), gym.spaces.Discrete(2)
NUMBERS = gym.spaces.Discrete(100_000), gym.spaces.Discrete(2)


def walk(buffer: SlottedReplayBuffer, steps: int, *, ends_every: int = 0, start: int = 0, lane: int = 0) -> None:
    """Pushes steps from observation ``start`` to ``start + steps``; each reward is its observation's number."""
    for i in range(start, start + steps):
        end = bool(ends_every and (i + 1) % ends_every == 0)
        buffer.push(Transition(i, i % 2, float(i), i + 1, end, False), lane)
        if end:
            buffer.cut([lane])  # so that the last observation keeps a slot of its own


def rollouts(num: int, steps: int, num_envs: int, mean_length: int = 22):
    """Fragments as a runner gives them from CartPole-like environments."""
    rng = np.random.default_rng(0)
    obs, over = rng.standard_normal((num_envs, 4), np.float32), np.zeros(num_envs, bool)
    for _ in range(num):
        all_obs, ends, valid = [obs], [], []
        for _ in range(steps):
            valid.append(~over)
            over = (rng.random(num_envs) < 1 / mean_length) & ~over
            ends.append(over)
            obs = rng.standard_normal((num_envs, 4), np.float32)
            all_obs.append(obs)
        shape = (steps, num_envs)
        actions, rewards = rng.integers(0, 2, shape), np.ones(shape, np.float32)
        yield Rollout(np.array(all_obs), actions, rewards, np.array(ends), np.zeros(shape, bool), np.array(valid))


def same_state(a: SlottedReplayBuffer, b: SlottedReplayBuffer) -> bool:
    (values, arrays), (others, other_arrays) = a.get_state(), b.get_state()
    return (
        values == others
        and arrays.keys() == other_arrays.keys()
        and all(np.array_equal(arrays[name], other_arrays[name]) for name in arrays)
    )


def equal(a: Batch, b: Batch) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in Batch.__slots__)


# Transition


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


# Contents


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
    nbytes = buffer.nbytes
    for i in range(2000):
        walk(buffer, 1, start=i)
        assert len(buffer) == min(i + 1, 200)
        batch = buffer.sample(4)
        assert (batch.obs >= i - 199).all()
        buffer.update_priorities(batch.indices, np.ones(4))
    assert [t.obs for t in buffer] == list(range(1800, 2000))
    assert buffer.nbytes == nbytes


def test_nan_observations_continue():
    """They are stored as they are: finding them is not the buffer's work, and must not cut the episode."""
    nan = np.full(4, np.nan, np.float32)
    buffer = SlottedReplayBuffer(10, *CARTPOLE, n_step=2, gamma=0.5)
    for _ in range(2):
        buffer.push(Transition(nan, 0, 1.0, nan, False, False))
    assert sorted(set(buffer.sample(50).rewards)) == [1.0, 1.5]


# Samples


def test_n_step_by_hand():
    """Rewards 1, 2, 3 and the end, with gamma 0.5 and n = 2."""
    for truncated, last_discounts in ((False, (0.0, 0.0)), (True, (0.25, 0.5))):
        buffer = SlottedReplayBuffer(10, *NUMBERS, n_step=2, gamma=0.5)
        for i, reward in enumerate((1.0, 2.0, 3.0)):
            buffer.push(Transition(i, 0, reward, i + 1, i == 2 and not truncated, i == 2 and truncated))
        walk(buffer, 3, start=3)  # another episode, from the very observation that ended this one
        batch = buffer.sample(300)
        rows = {(int(o), float(r), int(n), float(d)) for o, r, n, d in _rows(batch) if o < 3}
        assert rows == {
            (0, 1.0 + 0.5 * 2.0, 2, 0.25),
            (1, 2.0 + 0.5 * 3.0, 3, last_discounts[0]),
            (2, 3.0, 3, last_discounts[1]),
        }


def _rows(batch):
    return zip(batch.obs, batch.rewards, batch.next_obs, batch.discounts, strict=True)


@pytest.mark.parametrize("fresh", [False, True])
def test_a_cut_ends_the_walk_but_keeps_the_transitions(fresh):
    buffer = SlottedReplayBuffer(10, *NUMBERS, n_step=3, gamma=0.5)
    walk(buffer, 2)
    if not fresh:
        buffer.cut()
    column = np.array([[2], [3]])  # begins at the very observation that waited
    no, yes = np.zeros((2, 1), bool), np.ones((2, 1), bool)
    buffer.add(Rollout(np.array([[2], [3], [4]]), column % 2, np.float32(column), no, no, yes, fresh=fresh))
    rows = {(int(o), float(r), int(n), float(d)) for o, r, n, d in _rows(buffer.sample(300))}
    assert rows == {(0, 0.5, 2, 0.25), (1, 1.0, 2, 0.5), (2, 3.5, 4, 0.25), (3, 3.0, 4, 0.5)}


def test_shapes_and_dtypes_of_a_batch():
    buffer = SlottedReplayBuffer(100, *CARTPOLE, num_lanes=2)
    for rollout in rollouts(2, 8, 2):
        buffer.add(rollout)
    batch = buffer.sample(5, num_batches=3)
    got = {name: (getattr(batch, name).shape, getattr(batch, name).dtype.name) for name in Batch.__slots__}
    assert got == {
        "obs": ((3, 5, 4), "float32"),
        "actions": ((3, 5), "int64"),
        "rewards": ((3, 5), "float32"),
        "next_obs": ((3, 5, 4), "float32"),
        "discounts": ((3, 5), "float32"),
        "weights": ((3, 5), "float32"),
        "indices": ((3, 5), "int64"),
    }
    assert (batch.weights == 1).all()
    assert buffer.sample(5).obs.shape == (5, 4)
    assert buffer.sample(5, num_batches=1).obs.shape == (1, 5, 4)


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    """In standard deviations from its mean."""
    degrees = len(counts) - 1
    return float((((counts - expected) ** 2 / expected).sum() - degrees) / np.sqrt(2 * degrees))


def test_uniform_over_what_is_stored():
    """Lanes of different fill, obs-only slots, wrapped around; 400,000 draws."""
    buffer = SlottedReplayBuffer(120, *NUMBERS, num_lanes=3, seed=1)
    walk(buffer, 130, ends_every=4, lane=0)
    walk(buffer, 7, start=1000, lane=1)
    stored = [t.obs for t in buffer]
    draws = np.concatenate([buffer.sample(100, num_batches=100).obs.ravel() for _ in range(40)])
    numbers, counts = np.unique(draws, return_counts=True)
    assert numbers.tolist() == stored
    assert abs(chi_square(counts, np.full(len(stored), len(draws) / len(stored)))) < 4


def test_prioritized_in_proportion():
    buffer = SlottedReplayBuffer(120, *NUMBERS, num_lanes=3, prioritized=True, alpha=0.5, seed=1)
    walk(buffer, 130, ends_every=4, lane=0)
    walk(buffer, 7, start=1000, lane=1)
    batch = buffer.sample(5000)
    tickets = dict(zip(batch.obs.tolist(), batch.indices.tolist(), strict=True))
    errors = np.arange(1, len(buffer) + 1) ** 2 * np.where(np.arange(len(buffer)) % 2, 1.0, -1.0)
    buffer.update_priorities(np.array([tickets[t.obs] for t in buffer]), errors)
    expected = np.arange(1, len(buffer) + 1) / np.arange(1, len(buffer) + 1).sum()
    draws = np.concatenate([buffer.sample(1, num_batches=10_000).obs.ravel() for _ in range(40)])
    numbers, counts = np.unique(draws, return_counts=True)
    assert numbers.tolist() == [t.obs for t in buffer]
    assert abs(chi_square(counts, len(draws) * expected)) < 4
    # In shares of one minibatch the counts are closer to the mean than chance.
    counts = np.unique(buffer.sample(10_000).obs, return_counts=True)[1]
    assert np.abs(counts - 10_000 * expected).max() < 2


def test_weights_by_hand():
    buffer = SlottedReplayBuffer(10, *NUMBERS, prioritized=True, alpha=0.5, priority_epsilon=1e-12)
    walk(buffer, 3)
    first = buffer.sample(50)
    assert (first.weights == 1).all()  # new ones all have the largest priority so far
    tickets = [first.indices[first.obs == i][0] for i in range(3)]
    buffer.update_priorities(np.array(tickets), np.array([1.0, -4.0, 16.0]))  # priorities 1, 2, 4
    batch = buffer.sample(60, num_batches=2, beta=0.5)
    for i, weight in enumerate((1.0, 0.5**0.5, 0.5)):
        np.testing.assert_allclose(batch.weights[batch.obs == i], weight, rtol=1e-6)
    # P is 1/7, 2/7, 4/7 and each minibatch holds all three: (N P) ** -beta over its largest is the same thing.
    probability = np.array([1, 2, 4])[batch.obs] / 7
    by_paper = (3 * probability) ** -0.5
    np.testing.assert_allclose(batch.weights, by_paper / by_paper.max(axis=1, keepdims=True), rtol=1e-6)
    assert (buffer.sample(60, beta=0.0).weights == 1).all()
    assert (buffer.sample(1, num_batches=50).weights == 1).all()  # each minibatch has its own largest


def test_new_transitions_get_the_largest_priority_so_far():
    buffer = SlottedReplayBuffer(10, *NUMBERS, prioritized=True, alpha=1.0, priority_epsilon=1e-12)
    walk(buffer, 1)
    buffer.update_priorities(buffer.sample(1).indices, np.array([7.0]))
    buffer.update_priorities(buffer.sample(1).indices, np.array([2.0]))
    walk(buffer, 1, start=1)
    batch = buffer.sample(400, beta=1.0)
    np.testing.assert_allclose(batch.weights[batch.obs == 1], 2 / 7, rtol=1e-6)


def test_tickets_of_overwritten_transitions_are_ignored():
    buffer = SlottedReplayBuffer(4, *NUMBERS, prioritized=True, alpha=1.0, priority_epsilon=1e-12)
    walk(buffer, 4)
    old = buffer.sample(100)
    walk(buffer, 2, start=4)
    buffer.update_priorities(old.indices, np.where(old.obs < 2, 50.0, 0.25))
    batch = buffer.sample(100, beta=1.0)
    np.testing.assert_allclose(batch.weights, np.where(batch.obs >= 4, 0.25, 1.0), rtol=1e-6)
    buffer.cut()
    walk(buffer, 1, start=6)  # the cut took a slot: 2 and 3 are gone
    assert [t.obs for t in buffer] == [4, 5, 6]
    buffer.update_priorities(old.indices, np.full(100, 9.0))
    assert buffer.metrics()["priority_max"] == 1.0


def test_a_uniform_buffer_takes_no_priorities():
    buffer = SlottedReplayBuffer(4, *NUMBERS)
    walk(buffer, 4)
    before = buffer.get_state()[1]
    buffer.update_priorities(buffer.sample(3).indices, np.ones(3))
    after = buffer.get_state()[1]
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_seeds():
    def samples(seed, prioritized):
        buffer = SlottedReplayBuffer(100, *NUMBERS, prioritized=prioritized, seed=seed)
        walk(buffer, 150, ends_every=9)
        return np.concatenate([buffer.sample(20).obs for _ in range(3)]).tolist()

    for prioritized in (False, True):
        assert samples(3, prioritized) == samples(3, prioritized) != samples(4, prioritized)
        assert samples(np.random.SeedSequence(3), prioritized) == samples(3, prioritized)


def test_metrics():
    buffer = SlottedReplayBuffer(10, *NUMBERS, num_lanes=2, prioritized=True, alpha=1.0, priority_epsilon=1e-12)
    assert buffer.metrics() == {"size": 0.0, "fill": 0.0, "bytes": 0.0}
    walk(buffer, 2)
    batch = buffer.sample(2)
    assert sorted(batch.obs.tolist()) == [0, 1]  # one from each half of the sum
    buffer.update_priorities(batch.indices, np.array([1.0, 3.0]))
    metrics = buffer.metrics()
    assert metrics == {
        "size": 2.0,
        "fill": 0.2,
        "bytes": pytest.approx(buffer.nbytes * 3 / 6),
        "sample_age_mean": (2 * 2 + 1 * 2) / 2,  # two lanes: each slot of a lane is two env steps
        "priority_mean": pytest.approx(2.0),
        "priority_max": 3.0,
        "priority_spread": pytest.approx(0.5),
    }


# Memory


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


# Errors


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


# Save and restore


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("steps", [0, 2, 9])
def test_goes_on_as_if_nothing_had_been_between(prioritized, steps):
    def build(seed):
        return SlottedReplayBuffer(90, *CARTPOLE, num_lanes=4, n_step=3, prioritized=prioritized, seed=seed)

    def go_on(buffer, fragments):
        for rollout in fragments:
            buffer.add(rollout)
            batch = buffer.sample(6, num_batches=2)
            buffer.update_priorities(batch.indices, batch.rewards - 3)
            yield batch

    fragments = list(rollouts(14, 5, 4))
    original, restored = build(1), build(2)
    list(go_on(original, fragments[:steps]))
    original.cut([1])
    list(go_on(restored, fragments[2:13]))  # set_state replaces whatever is there
    values, arrays = original.get_state()
    restored.set_state(json.loads(json.dumps(values)), arrays)
    assert same_state(original, restored)
    assert restored.metrics().items() <= original.metrics().items()
    assert all(repr(a) == repr(b) for a, b in zip(original, restored, strict=True))
    assert all(len(array) <= len(original) * 1.2 + 8 for array in arrays.values())  # only the used part
    for a, b in zip(go_on(original, fragments[steps:]), go_on(restored, fragments[steps:]), strict=True):
        assert equal(a, b)
    assert same_state(original, restored)


def test_the_state_is_a_copy():
    buffer = SlottedReplayBuffer(5, *NUMBERS, prioritized=True)
    walk(buffer, 4)
    state = buffer.get_state()
    walk(buffer, 4, start=50)
    buffer.set_state(*state)
    assert [t.obs for t in buffer] == [0, 1, 2, 3]


def test_a_changed_alpha_converts_the_priorities():
    old = SlottedReplayBuffer(10, *NUMBERS, prioritized=True, alpha=1.0, priority_epsilon=1e-12)
    walk(old, 3)
    first = old.sample(50)
    tickets = [first.indices[first.obs == i][0] for i in range(3)]
    old.update_priorities(np.array(tickets), np.array([1.0, 4.0, 16.0]))
    new = SlottedReplayBuffer(10, *NUMBERS, prioritized=True, alpha=0.5, priority_epsilon=1e-12)
    new.set_state(*old.get_state())
    batch = new.sample(50, beta=1.0)
    np.testing.assert_allclose(batch.weights, np.array([1.0, 0.5, 0.25])[batch.obs], rtol=1e-6)
    walk(new, 1, start=3)
    assert new.metrics()["priority_max"] == pytest.approx(4.0)
    assert new.metrics()["priority_mean"] == pytest.approx((1 + 2 + 4 + 4) / 4)


def test_what_does_not_fit_is_refused_and_changes_nothing():
    base = {"capacity": 12, "num_lanes": 2, "prioritized": True}
    buffer = SlottedReplayBuffer(base["capacity"], *NUMBERS, num_lanes=2, prioritized=True)
    walk(buffer, 5)
    before = repr(buffer.get_state())
    for change, said in (
        ({"capacity": 13}, "capacity=12, got 13"),
        ({"num_lanes": 3}, "num_lanes=2, got 3"),
        ({"prioritized": False}, "prioritized=True, got False"),
        ({"spaces": CARTPOLE}, r"observations=uint32\[\], got float32\[4\]"),
        ({"spaces": (NUMBERS[0], CARTPOLE[0])}, r"actions=uint8\[\], got float32\[4\]"),
    ):
        settings = base | change
        spaces = settings.pop("spaces", NUMBERS)
        other = SlottedReplayBuffer(settings.pop("capacity"), *spaces, **settings)
        with pytest.raises(CheckpointError, match=said):
            buffer.set_state(*other.get_state())
        assert repr(buffer.get_state()) == before
    values, arrays = buffer.get_state()
    for damaged in (
        (values | {"heads": [1]}, arrays),
        ({name: v for name, v in values.items() if name != "rng"}, arrays),
        ({name: v for name, v in values.items() if name != "priorities"}, arrays),
        (values, {name: array for name, array in arrays.items() if name != "obs"}),
        (values, {name: array for name, array in arrays.items() if name != "priorities"}),
        (values, arrays | {"rewards": arrays["rewards"][:-1]}),
        (values, arrays | {"priorities": arrays["priorities"] * 0}),
    ):
        with pytest.raises(CheckpointError, match="replay: expected"):
            buffer.set_state(*damaged)
        assert repr(buffer.get_state()) == before
