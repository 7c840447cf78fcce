"""clip_rewards: learning sees clipped rewards, returns and callbacks the environment's own."""

from typing import Any

import numpy as np
import pytest
from counting import Identity, config, make_counting, sample
from ray.rllib.callbacks.callbacks import RLlibCallback

from rayground.errors import InputError
from rayground.rollouts.clipping import clipped
from rayground.rollouts.runner import ArrayEnvRunner

TOLD: list[float] = []


class Tells(RLlibCallback):
    def on_sample_end(self, *, samples: Any, **kwargs: Any) -> None:
        TOLD.extend(samples[0].get_rewards().tolist())


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (None, [-3.0, -0.5, 0.0, 0.5, 200.0]),
        (False, [-3.0, -0.5, 0.0, 0.5, 200.0]),
        (True, [-1.0, -1.0, 0.0, 1.0, 1.0]),
        (2, [-2.0, -0.5, 0.0, 0.5, 2.0]),
        (1.0, [-1.0, -0.5, 0.0, 0.5, 1.0]),
    ],
)
def test_by_hand(limit: Any, expected: list[float]) -> None:
    rewards = np.array([[-3.0, -0.5, 0.0, 0.5, 200.0]], np.float32)
    got = clipped(rewards, limit)
    assert got.tolist() == [expected]
    assert got.dtype == np.float32


@pytest.mark.parametrize("limit", [True, 1.0])
def test_what_is_not_finite_is_still_found(limit: Any) -> None:
    got = clipped(np.array([np.inf, -np.inf, np.nan, 3.0], np.float32), limit)
    np.testing.assert_array_equal(got, np.array([np.inf, -np.inf, np.nan, 1.0], np.float32))


@pytest.mark.parametrize("is_slow", [False, True])
def test_returns_and_evaluation_are_not_clipped(is_slow: bool) -> None:
    made = config(make_counting).environment(clip_rewards=2.0)  # the environment pays 1, 2, 3
    if is_slow:
        made.env_runners(env_to_module_connector=lambda env, spaces, device: Identity())
    made.callbacks(Tells).validate()
    TOLD.clear()
    runner = ArrayEnvRunner(config=made, worker_index=0)
    rollout = sample(runner, 3)
    assert rollout.rewards[:, 0].tolist() == [1.0, 2.0, 2.0]
    assert [record.episode_return for record in rollout.episodes] == [6.0, 6.0]
    assert TOLD == [1.0, 2.0, 3.0]
    assert [record.episode_return for record in runner.evaluate(2, seed=0)] == [6.0, 6.0]


@pytest.mark.parametrize("limit", [0.0, -1.0, "sign"])
def test_a_wrong_limit_is_told(limit: Any) -> None:
    with pytest.raises(InputError, match="clip_rewards: expected a finite number above 0"):
        config(make_counting).environment(clip_rewards=limit).validate()
