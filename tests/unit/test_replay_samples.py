"""What the replay buffer gives: n-step sums, shares, weights, priorities."""

import numpy as np
import pytest
from replays import CARTPOLE, NUMBERS, rollouts, walk

from rayground.replay import Batch, SlottedReplayBuffer, Transition
from rayground.rollouts.rollout import Rollout


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
    values = {name: getattr(batch, name) for name in Batch.__slots__ if getattr(batch, name) is not None}
    got = {name: (value.shape, value.dtype.name) for name, value in values.items()}
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
        "bytes": 6 * 10 + 128 * 6 // 12,  # six rows of 4 + 1 + 4 + 1 bytes, and their share of the sums
        "sample_age_mean": (2 * 2 + 1 * 2) / 2,  # two lanes: each slot of a lane is two env steps
        "priority_mean": pytest.approx(2.0),
        "priority_max": 3.0,
        "priority_spread": pytest.approx(0.5),
    }
