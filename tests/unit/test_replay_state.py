"""The replay buffer saved and restored."""

import json

import numpy as np
import pytest
from replays import CARTPOLE, NUMBERS, rollouts, walk

from rayground.errors import CheckpointError
from rayground.replay import Batch, SlottedReplayBuffer


def same_state(a: SlottedReplayBuffer, b: SlottedReplayBuffer) -> bool:
    (values, arrays), (others, other_arrays) = a.get_state(), b.get_state()
    return (
        values == others
        and arrays.keys() == other_arrays.keys()
        and all(np.array_equal(arrays[name], other_arrays[name]) for name in arrays)
    )


def equal(a: Batch, b: Batch) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in Batch.__slots__)


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
