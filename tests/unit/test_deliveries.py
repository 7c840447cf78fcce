"""What A3C does with what comes in, and the numbers that it makes of that; runners and learner are stand-ins."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from random_rollouts import random_rollout

from rayground import A3CConfig
from rayground.algorithms import a3c
from rayground.algorithms.a3c import A3C, MAX_DROPPED_IN_A_ROW
from rayground.algorithms.deliveries import Deliveries
from rayground.algorithms.headline import EpisodeWindow
from rayground.algorithms.observers import RecentObservations
from rayground.algorithms.timing import RunnerTimes, WallClock
from rayground.errors import RunError
from rayground.learners.a2c import A2CSettings, batch_of
from rayground.learners.advantages import ADVANTAGES, VALUE_TARGETS, WEIGHTS, ValueSums, value_sums
from rayground.rollouts.gradients import RolloutGradient
from rayground.rollouts.moments import Moments


def test_numbers_by_hand() -> None:
    deliveries = Deliveries()
    assert deliveries.row([1, 2]) == {}
    deliveries.seconds, deliveries.bytes_down = 2.0, 100
    for runner, size, staleness, is_dropped in [
        (1, 10, 0, False),
        (3, 30, 5, True),
        (1, 10, 1, False),
        (3, 30, 6, True),
    ]:
        deliveries.add(runner, size, staleness, is_dropped)
    assert deliveries.row([1, 2, 3]) == {
        "learner/updates_per_s": 1.0,
        "learner/staleness_mean": 3.0,
        "learner/staleness_max": 6,
        "workers/bytes_up_per_update": 20.0,
        "workers/bytes_down_per_update": 25.0,
        "workers/1/share": 0.5,
        "workers/2/share": 0.0,
        "workers/3/share": 0.5,
    }
    assert deliveries.dropped == {3: 2}


def explained(advantage: float = 0.0) -> np.ndarray:
    """Of two values, both wrong by ``advantage``."""
    columns = {ADVANTAGES: [advantage, advantage], VALUE_TARGETS: [1.0, 3.0], WEIGHTS: [1.0, 1.0]}
    return value_sums({name: np.array(column, np.float32) for name, column in columns.items()})


def gradient(runner: int, spoilt: bool = False, steps: int = 10) -> RolloutGradient:
    """Of 7 parameters."""
    return RolloutGradient(
        gradient=np.full(7, np.nan if spoilt else runner, np.float32),
        stats={"loss": float(runner)},
        value_sums=explained(np.nan if spoilt else 0.0),
        num_env_steps=steps,
        wrong=None,
        observed=Moments(),
        episodes=[],
        runner=runner,
        seconds={"env": 1.0, "inference": 1.0, "learn": 1.0, "total": 4.0},
    )


class Runners:
    """Answers what is in ``answers``, in turn."""

    local = None

    def __init__(self, *answers: Any, runners: int = 2) -> None:
        self.answers, self.indices = list(answers), list(range(1, runners + 1))
        self.asked: list[tuple[int, str, dict[str, Any]]] = []
        self._at_work: set[int] = set()

    def idle(self) -> list[int]:
        return [runner for runner in self.indices if runner not in self._at_work]

    def ask(self, runner: int, call: str, **arguments: Any) -> None:
        self._at_work.add(runner)
        self.asked.append((runner, call, arguments))

    def first_answer(self) -> Any:
        answer = self.answers.pop(0)
        self._at_work -= set() if answer is None else {answer.runner}
        return answer


class Learner:
    """Its one array of weights holds the number of updates that it has applied; a gradient with NaN is dropped."""

    def __init__(self) -> None:
        self.updates = 0
        self.learned: list[tuple[dict[str, np.ndarray], A2CSettings]] = []

    def module_arrays(self) -> dict[str, np.ndarray]:
        return {"weights": np.full(5, self.updates, np.float32)}

    def learning_rate(self, env_steps: int) -> float:
        return 0.5

    def values(self, obs: np.ndarray) -> np.ndarray:
        return obs[:, 0]

    def apply_array(self, gradient_P: np.ndarray, env_steps: int) -> dict[str, float]:
        if np.isnan(gradient_P).any():
            return {"dropped": 1.0}
        self.updates += 1
        return {"grad_norm": float(np.linalg.norm(gradient_P)), "dropped": 0.0}

    def learn(self, batch: dict[str, np.ndarray], settings: A2CSettings) -> dict[str, float]:
        self.learned.append((batch, settings))
        return {"loss": 1.0} | self.apply_array(batch[ADVANTAGES], settings.env_steps)


class Started(A3C):
    """As ``setup()`` leaves it, on stand-ins."""

    def __init__(self, runners: Runners, goal: int = 50, **training: Any) -> None:
        self.config = A3CConfig().training(**training).env_runners(num_env_runners=len(runners.indices))
        self.config.reporting(min_sample_timesteps_per_iteration=goal)
        self.runners, self.learner = runners, Learner()
        self.env_steps = self.updates = self.dropped = self._dropped_in_a_row = 0
        self.episodes, self.clock, self._runner_times = EpisodeWindow(10), WallClock(), RunnerTimes()
        self._has_norms, self._has_runner_hooks, self._observed, self._reset_next = False, False, Moments(), True
        self._versions, self._to_reset, self._arrived, self._learned = {}, set(), [], []
        self._value_sums, self._deliveries = ValueSums(), Deliveries()
        self.interruption, self.recent = lambda: False, RecentObservations(0)

    def log_iteration(self) -> None:
        """RLlib's own metrics are not looked at."""


def test_only_who_delivered_gets_fresh_weights_and_staleness_counts_the_updates_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Started(Runners(*[gradient(1), gradient(1), None, gradient(2), gradient(1), gradient(2)]), lr=0.5)
    monkeypatch.setattr(a3c, "perf_counter", iter([10.0, 14.0]).__next__)
    made.training_step()
    asked = made.runners.asked
    assert [(runner, int(call["weights"]["weights"][0])) for runner, _, call in asked] == [
        (1, 0), (2, 0), (1, 1), (1, 2), (2, 3), (1, 4),
    ]  # fmt: skip
    assert made.metrics_of_iteration() == {
        "learner/updates": 5,
        "learner/updates_dropped": 0,
        "learner/lr": 0.5,
        "learner/loss": pytest.approx((1 + 1 + 2 + 1 + 2) / 5),
        "learner/grad_norm": pytest.approx(7**0.5 * (1 + 1 + 2 + 1 + 2) / 5),
        "learner/vf_explained_var": 1.0,
        "learner/updates_per_s": 5 / 4,
        "learner/staleness_mean": pytest.approx((0 + 0 + 2 + 1 + 1) / 5),
        "learner/staleness_max": 2,
        "workers/bytes_up_per_update": 4 * 7,
        "workers/bytes_down_per_update": 6 * 4 * 5 / 5,
        "workers/1/share": 3 / 5,
        "workers/2/share": 2 / 5,
    }
    assert made._deliveries.row([1, 2]) == {}


def test_runners_are_asked_with_settings_of_their_own_and_start_anew_once() -> None:
    made = Started(
        Runners(gradient(1), gradient(2), gradient(1)), goal=30, vf_loss_coeff=0.25,
        entropy_coeff_per_worker=[0.0, [[0, 0.2], [100, 0.0]]],
    )  # fmt: skip
    made.training_step()
    asked = made.runners.asked
    assert {call for _, call, _ in asked} == {"sample_gradient"}
    assert [(runner, call["reset"], call["num_steps"], call["env_steps"]) for runner, _, call in asked] == [
        (1, True, 20, 0), (2, True, 20, 0), (1, False, 20, 10), (2, False, 20, 20),
    ]  # fmt: skip
    assert [call["settings"] for _, _, call in asked] == [
        A2CSettings(0, 0.0, 0.25), A2CSettings(0, 0.2, 0.25), A2CSettings(10, 0.0, 0.25),
        A2CSettings(20, pytest.approx(0.16), 0.25),
    ]  # fmt: skip


def test_trajectories_are_learnt_from_with_the_newest_values_and_the_runners_own_coefficient() -> None:
    rollout, _ = random_rollout(20, 2, seed=3)
    rollout.runner, rollout.seconds = 2, {"env": 1.0, "inference": 1.0, "total": 2.0}
    settings = {"entropy_coeff_per_worker": [0.1, 0.3], "gamma": 0.9, "lambda_": 0.7, "vf_loss_coeff": 0.25}
    made = Started(Runners(rollout), goal=1, parallelism="data", **settings)
    made.training_step()
    calls = [(runner, call, sorted(given)) for runner, call, given in made.runners.asked]
    given = ["env_steps", "num_steps", "reset", "weights"]
    assert calls == [(1, "sample_arrays", given), (2, "sample_arrays", given)]
    (batch, found), = made.learner.learned  # fmt: skip
    expected = batch_of([rollout], made.learner.values, 0.9, 0.7)
    for name, column in expected.items():
        np.testing.assert_array_equal(batch[name], column, err_msg=name)
    assert found == A2CSettings(rollout.num_env_steps, 0.3, 0.25)
    row = made.metrics_of_iteration()
    assert row["workers/bytes_up_per_update"] == rollout.nbytes
    sums = ValueSums()
    sums.add(expected)
    assert row.items() >= sums.row().items()


def test_what_is_dropped_is_counted_said_and_makes_no_new_version(caplog: pytest.LogCaptureFixture) -> None:
    answers = [gradient(2, True), gradient(1), gradient(2, True), gradient(2), gradient(1, True)]
    made = Started(Runners(*answers))
    with caplog.at_level(logging.WARNING, logger="rayground"):
        made.training_step()
    message = "dropped 3 updates whose gradient was not finite (runner 1: 1, runner 2: 2); 3 so far"
    assert [record.message for record in caplog.records] == [message]
    made._deliveries.seconds = 4.0
    row = made.metrics_of_iteration()
    assert (row["learner/updates"], row["learner/updates_dropped"], row["learner/updates_per_s"]) == (2, 3, 0.5)
    assert (row["learner/loss"], row["workers/2/share"]) == (1.5, 0.6)
    # asked after 0, 0, 0, 1 and 1 updates, applied after 0, 0, 1, 1 and 2
    assert row["learner/staleness_mean"] == pytest.approx((0 + 0 + 1 + 0 + 1) / 5)
    assert made.metrics_of_iteration()["learner/updates_dropped"] == 3


def test_what_is_dropped_does_not_spoil_the_values_metric() -> None:
    made = Started(Runners(), parallelism="data")
    made.learn_from(gradient(1), 0)
    made.learn_from(gradient(1, spoilt=True), 0)
    rollout, _ = random_rollout(20, 2, seed=3)
    rollout.rewards[:] = np.nan
    made.learn_from(rollout, 0)
    assert (made.updates, made.dropped) == (1, 2)
    assert made._value_sums.row() == {"learner/vf_explained_var": 1.0}


def test_so_many_dropped_in_a_row_end_the_run() -> None:
    made = Started(Runners())
    made.env_steps = 30
    for number in range(2 * MAX_DROPPED_IN_A_ROW):
        made.learn_from(gradient(1, spoilt=number != MAX_DROPPED_IN_A_ROW - 1), staleness=0)
        if made._dropped_in_a_row == MAX_DROPPED_IN_A_ROW - 1 and made.updates:
            break
    assert (made.updates, made.dropped) == (1, 2 * (MAX_DROPPED_IN_A_ROW - 1))
    with pytest.raises(RunError) as ended:
        made.learn_from(gradient(2, spoilt=True), staleness=0)
    assert str(ended.value) == (
        f"at env step 30 the last {MAX_DROPPED_IN_A_ROW} gradients were not finite: nothing is learnt any more. "
        "Lower lr, set grad_clip, or look into the loss"
    )


def test_a_delivery_without_a_transition_is_no_update() -> None:
    made = Started(Runners())
    made.learn_from(gradient(1, steps=0), staleness=0)
    assert (made.updates, made.dropped, made._learned, made._deliveries.row([1])) == (0, 0, [], {})


def test_what_had_arrived_before_comes_first_and_as_stale_as_it_is() -> None:
    made = Started(Runners(gradient(2)), goal=20)
    made.updates, made._arrived = 7, [(4, gradient(1))]
    made.training_step()
    assert (made.updates, made.env_steps, made._arrived) == (9, 20, [])
    assert made._deliveries.row([1, 2]).items() >= {"learner/staleness_max": 3, "learner/staleness_mean": 1.5}.items()


def test_nobody_is_asked_for_more_while_there_is_work_from_before() -> None:
    made = Started(Runners(gradient(2)), goal=20)
    made._arrived = [(0, gradient(1)) for _ in range(3)]
    for left in (1, 0):
        made.training_step()
        assert (len(made._arrived), len(made.runners.asked)) == (left, 0 if left else 2)


@pytest.mark.parametrize(("answers", "steps"), [([None], 0), ([gradient(1)], 10)])
def test_an_interruption_ends_an_iteration_after_one_delivery_or_none(answers: list[Any], steps: int) -> None:
    made = Started(Runners(*answers), goal=1_000)
    made.interruption = lambda: True
    made.training_step()
    assert made.env_steps == steps


def test_what_the_local_runner_does_costs_no_bytes() -> None:
    runners = Runners(gradient(0), gradient(0))
    runners.local, runners.indices = SimpleNamespace(), [0]
    made = Started(runners, goal=20)
    made.training_step()
    row = made.metrics_of_iteration()
    assert (row["workers/bytes_up_per_update"], row["workers/bytes_down_per_update"]) == (0, 0)
    assert (row["learner/staleness_max"], row["workers/0/share"]) == (0, 1.0)
