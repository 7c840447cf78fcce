"""Advantages against their definitions, episode by episode, and against RLlib's own; how well values explain them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_rollouts import random_rollout
from ray.rllib.utils.postprocessing.value_predictions import compute_value_targets

from rayground.learners.advantages import ADVANTAGES, VALUE_TARGETS, WEIGHTS, ValueSums, gae, judged, value_sums
from rayground.rollouts.rollout import Rollout


def pieces(rollout: Rollout) -> list[tuple[slice, int]]:
    """Rows and lane of every episode, or of the part of it that the rollout holds."""
    ends = rollout.terminated | rollout.truncated
    found = []
    for lane in range(rollout.valid.shape[1]):
        start = None
        for t in range(len(rollout.valid)):
            if rollout.valid[t, lane] and start is None:
                start = t
            if start is not None and (ends[t, lane] or t == len(rollout.valid) - 1):
                found.append((slice(start, t + 1), lane))
                start = None
    return found


shapes = {"length": st.integers(1, 12), "lanes": st.integers(1, 4), "seed": st.integers(0, 10**6)}


@given(**shapes, gamma=st.floats(0, 1), lambda_=st.floats(0, 1))
def test_it_is_the_weighted_sum_of_the_td_errors_that_follow_in_the_episode(
    length: int, lanes: int, seed: int, gamma: float, lambda_: float
) -> None:
    rollout, values = random_rollout(length, lanes, seed)
    advantages, targets = gae(rollout, values, gamma, lambda_)
    assert advantages.dtype == targets.dtype == np.float32
    for rows, lane in pieces(rollout):
        errors = []
        for t in range(rows.start, rows.stop):
            after = 0.0 if rollout.terminated[t, lane] else float(values[t + 1, lane])
            errors.append(float(rollout.rewards[t, lane]) + gamma * after - float(values[t, lane]))
        expected = [
            sum((gamma * lambda_) ** k * error for k, error in enumerate(errors[i:])) for i in range(len(errors))
        ]
        np.testing.assert_allclose(advantages[rows, lane], expected, atol=1e-5)
        np.testing.assert_allclose(targets[rows, lane], expected + values[rows, lane], atol=1e-5)


@given(**shapes)
def test_rllib_finds_the_same_value_targets(length: int, lanes: int, seed: int) -> None:
    rollout, values = random_rollout(length, lanes, seed)
    _, targets = gae(rollout, values, np.float64(0.97), 0.9)
    assert targets.dtype == np.float32
    for rows, lane in pieces(rollout):
        terminates = float(rollout.terminated[rows.stop - 1, lane])
        ends = np.zeros(rows.stop - rows.start + 1)  # RLlib adds a step with the value that was reached
        ends[-2] = 1.0
        theirs = compute_value_targets(
            values[rows.start : rows.stop + 1, lane],
            np.append(rollout.rewards[rows, lane], 0.0),
            ends * terminates,
            ends * (1.0 - terminates),
            gamma=0.97,
            lambda_=0.9,
        )
        np.testing.assert_allclose(targets[rows, lane], theirs[:-1], atol=1e-5)


def test_by_hand() -> None:
    """Two steps, a truncation, the reset's row, and one step of the next episode."""
    flags = {"terminated": [0, 0, 0, 0], "truncated": [0, 1, 0, 0], "valid": [1, 1, 0, 1]}
    columns = {name: np.array(values, bool)[:, None] for name, values in flags.items()}
    rewards = np.array([1.0, 2.0, 99.0, 3.0], np.float32)[:, None]
    rollout = Rollout(np.zeros((5, 1, 1), np.float32), np.zeros((4, 1), np.int64), rewards, **columns)
    values = np.array([10.0, 20.0, 30.0, 40.0, 50.0], np.float32)[:, None]
    advantages, targets = gae(rollout, values, gamma=0.5, lambda_=0.5)
    last = 2.0 + 0.5 * 30.0 - 20.0  # of the first episode: -3
    assert advantages[[0, 1, 3], 0].tolist() == pytest.approx([1.0 + 0.5 * 20.0 - 10.0 + 0.25 * last, last, -12.0])
    assert targets[[0, 1, 3], 0].tolist() == pytest.approx([10.25, 17.0, 28.0])


@given(**shapes, gamma=st.floats(0, 1))
def test_lambda_1_gives_n_step_returns_up_to_the_end_of_episode_or_fragment(
    length: int, lanes: int, seed: int, gamma: float
) -> None:
    rollout, values = random_rollout(length, lanes, seed)
    advantages, targets = gae(rollout, values, gamma, 1.0)
    for t, lane in np.argwhere(rollout.valid):
        last = t
        while not (rollout.terminated[last, lane] or rollout.truncated[last, lane] or last == length - 1):
            last += 1
        expected = sum(gamma ** (i - t) * float(rollout.rewards[i, lane]) for i in range(t, last + 1))
        if not rollout.terminated[last, lane]:
            expected += gamma ** (last + 1 - t) * float(values[last + 1, lane])
        assert targets[t, lane] == pytest.approx(expected, abs=1e-5)
        assert advantages[t, lane] == pytest.approx(expected - float(values[t, lane]), abs=1e-5)


def test_n_step_returns_by_hand() -> None:
    """Three steps and a termination, the reset's row, and two steps that the fragment cuts; nothing of it rounds."""
    flags = {"terminated": [0, 0, 1, 0, 0, 0], "truncated": [0] * 6, "valid": [1, 1, 1, 0, 1, 1]}
    columns = {name: np.array(values, bool)[:, None] for name, values in flags.items()}
    rewards = np.array([1.0, 2.0, 4.0, 99.0, 8.0, 16.0], np.float32)[:, None]
    rollout = Rollout(np.zeros((7, 1, 1), np.float32), np.zeros((6, 1), np.int64), rewards, **columns)
    values = np.array([0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0], np.float32)[:, None]
    advantages, targets = gae(rollout, values, gamma=0.5, lambda_=1.0)
    assert targets[[0, 1, 2, 4, 5], 0].tolist() == [1 + 1 + 1, 2 + 2, 4, 8 + 8 + 15, 16 + 30]
    assert advantages[[0, 1, 2, 4, 5], 0].tolist() == [3, -6, -16, -9, -4]


@given(**shapes)
def test_a_rollout_is_judged_by_one_look_at_all_its_observations(length: int, lanes: int, seed: int) -> None:
    rollout, _ = random_rollout(length, lanes, seed)
    looks = []

    def values(obs: np.ndarray) -> np.ndarray:
        looks.append(obs.shape)
        return obs[:, 0] - 2 * obs[:, 2]

    columns = judged(rollout, values, 0.9, 0.8)
    assert looks == [((length + 1) * lanes, 3)]
    advantages, targets = gae(rollout, rollout.obs[..., 0] - 2 * rollout.obs[..., 2], 0.9, 0.8)
    expected = {"obs": rollout.obs[:-1], "actions": rollout.actions, ADVANTAGES: advantages, VALUE_TARGETS: targets}
    assert columns.keys() == expected.keys()
    for name, column in expected.items():
        np.testing.assert_array_equal(columns[name], column, err_msg=name)
        assert np.isfinite(columns[name]).all()


def random_batch(rows: int, seed: int, offset: float) -> dict[str, np.ndarray]:
    """Rows with errors of values and their targets; those without a transition have numbers that would be seen."""
    rng = np.random.default_rng(seed)
    valid = rng.random(rows) < 0.7
    columns = {ADVANTAGES: rng.normal(0.3, 0.5, rows), VALUE_TARGETS: offset + rng.normal(size=rows)}
    spoilt = {name: np.where(valid, column, 1e6).astype(np.float32) for name, column in columns.items()}
    return spoilt | {WEIGHTS: (1.5 * valid).astype(np.float32)}


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=6),
    st.integers(0, 5),
    st.integers(0, 10**6),
    st.sampled_from([0.0, -100.0]),
)
def test_explained_variance_is_over_all_batches_however_they_are_divided(
    sizes: list[int], first: int, seed: int, offset: float
) -> None:
    batches = [random_batch(rows, seed + i, offset) for i, rows in enumerate(sizes)]
    sums = ValueSums()
    for i, batch in enumerate(batches):
        if i < first:
            sums.add(batch)
        else:
            sums.merge(value_sums(batch))
        if i % 2:
            sums.row()  # looked at in between
    valid = np.concatenate([batch[WEIGHTS] for batch in batches]) > 0
    names = (ADVANTAGES, VALUE_TARGETS)
    errors, targets = (np.concatenate([b[name] for b in batches])[valid].astype(np.float64) for name in names)
    if valid.any():
        expected = 1.0 - errors.var() / max(targets.var(), 1e-8)
        assert sums.row() == {"learner/vf_explained_var": pytest.approx(expected, rel=1e-6, abs=1e-6)}
    else:
        assert sums.row() == {}


def test_explained_variance_by_hand() -> None:
    sums, alone = ValueSums(), []
    for errors, targets in (([1.0, 1.0], [1.0, 2.0]), ([1.0, 5.0], [3.0, 6.0])):
        columns = {ADVANTAGES: errors, VALUE_TARGETS: targets, WEIGHTS: [1.0, 1.0]}
        batch = {name: np.array(column, np.float32) for name, column in columns.items()}
        sums.add(batch)
        alone.append(value_sums(batch).tolist())
    assert alone == [[2, 2, 2, 3, 5], [2, 6, 26, 9, 45]]
    assert sums.row() == {"learner/vf_explained_var": pytest.approx(1 - 3.0 / 3.5)}
