"""Remote runners as one: what is asked of them, with which weights, and when they start anew. No Ray is started."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError

from rayground.errors import RunError
from rayground.rollouts import group as module
from rayground.rollouts.failures import RunnerFailure
from rayground.rollouts.group import EnvironmentCrash, RunnerGroup
from rayground.rollouts.rollout import Rollout


class Actor:
    """Notes the calls of ``sample_arrays`` and answers with what is in ``answers``, or with a fragment."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.calls: list[dict[str, Any]] = []
        self.answers: list[Any] = []
        self.sample_arrays = SimpleNamespace(remote=self._call)

    def _call(self, **call: Any) -> Any:
        self.calls.append(call)
        return self.answers.pop(0) if self.answers else fragment(self.index)


def fragment(index: int) -> Rollout:
    nothing = np.zeros((1, 1), bool)
    return Rollout(nothing, nothing, nothing, nothing, nothing, nothing, runner=index)


def get(answer: Any, timeout: float) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


@pytest.fixture
def actors() -> dict[int, Actor]:
    return {2: Actor(2), 1: Actor(1)}


@pytest.fixture
def runners(monkeypatch: pytest.MonkeyPatch, actors: dict[int, Actor]) -> RunnerGroup:
    fake = SimpleNamespace(put=lambda weights: weights, get=get)
    monkeypatch.setattr(module, "ray", fake)
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    config = SimpleNamespace(
        num_env_runners=2, sample_timeout_s=60.0, restart_failed_env_runners=True, max_num_env_runner_restarts=1
    )
    return RunnerGroup(SimpleNamespace(_worker_manager=SimpleNamespace(actors=lambda: actors)), config)


def sample(runners: RunnerGroup, num_steps: int, env_steps: int) -> list[Rollout]:
    runners.request(num_steps, env_steps)
    return runners.collect()


def weights_of(actor: Actor) -> list[Any]:
    return [call["weights"] for call in actor.calls]


def test_rollouts_come_in_the_order_of_the_runners(runners: RunnerGroup, actors: dict[int, Actor]) -> None:
    runners.request(5, 40, reset=True)
    asked = {"num_steps": 5, "env_steps": 40, "reset": True, "weights": None}
    assert [actor.calls for actor in actors.values()] == [[asked], [asked]]
    assert [rollout.runner for rollout in runners.collect()] == [1, 2]


def test_weights_travel_with_the_next_request_and_once(runners: RunnerGroup, actors: dict[int, Actor]) -> None:
    runners.set_weights("first")
    sample(runners, 1, 0)
    runners.request(1, 2)
    runners.set_weights("second")  # while the runners are at work
    runners.set_weights("third")
    runners.collect()
    sample(runners, 1, 4)
    sample(runners, 1, 6)
    assert [weights_of(actor) for actor in actors.values()] == [["first", None, "third", None]] * 2


def test_a_runner_that_died_gets_the_weights_again_and_the_other_goes_on(
    runners: RunnerGroup, actors: dict[int, Actor]
) -> None:
    runners.set_weights("first")
    actors[1].answers = [fragment(1), ActorDiedError(), ActorUnavailableError("being made", None)]
    came = [[rollout.runner for rollout in sample(runners, 1, step)] for step in range(4)]
    assert came == [[1, 2], [2], [2], [1, 2]]
    assert weights_of(actors[1]) == ["first", None, "first", "first"]
    assert [call["reset"] for call in actors[1].calls] == [False, False, True, True]
    assert weights_of(actors[2]) == ["first", None, None, None]
    assert not any(call["reset"] for call in actors[2].calls)
    actors[1].answers = [ActorDiedError()]
    with pytest.raises(RunError, match=r"runner 1 died.*all 1 restarts are used up"):
        sample(runners, 1, 4)


@pytest.mark.parametrize("how", ["never collected", "lost with another's failure"])
def test_after_a_fragment_that_nobody_saw_environments_start_anew(
    runners: RunnerGroup, actors: dict[int, Actor], how: str
) -> None:
    sample(runners, 1, 0)
    if how == "never collected":
        runners.request(1, 2)
    else:
        actors[1].answers = [RunnerFailure(1, "raised", "")]
        with pytest.raises(EnvironmentCrash):
            sample(runners, 1, 2)
    sample(runners, 1, 2)
    sample(runners, 1, 4)
    for actor in actors.values():
        assert [call["reset"] for call in actor.calls] == [False, False, True, False]
