"""Generalized advantage estimation against its definition, episode by episode, and against RLlib's own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.rllib.utils.postprocessing.value_predictions import compute_value_targets

from rayground.learners.advantages import gae
from rayground.rollouts.rollout import Rollout


def random_rollout(length: int, lanes: int, seed: int) -> tuple[Rollout, np.ndarray]:
    """Episodes of random lengths that terminate, are truncated, or both; one may have ended right before."""
    rng = np.random.default_rng(seed)
    terminated, truncated = rng.random((2, length, lanes)) < 0.2
    valid = np.ones((length, lanes), bool)
    valid[0] = rng.random(lanes) < 0.8
    for t in range(length):
        if t:
            valid[t] = ~(terminated[t - 1] | truncated[t - 1])
        terminated[t] &= valid[t]
        truncated[t] &= valid[t]
    rewards, values = rng.normal(size=(length, lanes)), rng.normal(size=(length + 1, lanes))
    obs, actions = np.zeros((length + 1, lanes, 1), np.float32), np.zeros((length, lanes), np.int64)
    rollout = Rollout(obs, actions, rewards.astype(np.float32), terminated, truncated, valid)
    return rollout, values.astype(np.float32)


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
