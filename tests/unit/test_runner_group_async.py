"""Remote runners that never wait for each other: who is asked, whose answer comes first, who is told off.

No Ray is started, and time passes only where the group waits.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError

from rayground.errors import RunError
from rayground.rollouts import group as module
from rayground.rollouts.failures import RunnerFailure
from rayground.rollouts.group import POLL_S, RETRY_S, EnvironmentCrash, RunnerGroup

TIMEOUT_S, RUNNERS = 60.0, (1, 2, 3)


class Future:
    """What one call of a runner will give; by ``at`` it is there."""

    def __init__(self, world: World, answer: Any, at: float) -> None:
        self._world, self.answer, self.at = world, answer, at

    @property
    def is_done(self) -> bool:
        return self._world.now >= self.at


class World:
    """A clock, three actors and what stands for Ray: by itself an answer ``"<runner>.<call>"`` is there at once."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.calls: dict[int, list[dict[str, Any]]] = {runner: [] for runner in RUNNERS}
        self.takes: dict[int, float] = dict.fromkeys(RUNNERS, 0.0)
        self.gives: dict[int, list[Any]] = {runner: [] for runner in RUNNERS}
        self.is_interrupted = False
        self.ray = SimpleNamespace(get=self.get, wait=self.wait)
        self.time = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)
        self.actors = {runner: SimpleNamespace(work=SimpleNamespace(remote=self._call(runner))) for runner in RUNNERS}

    def _call(self, runner: int) -> Callable[..., Future]:
        def remote(**arguments: Any) -> Future:
            self.calls[runner].append(arguments)
            given = self.gives[runner]
            answer = given.pop(0) if given else f"{runner}.{len(self.calls[runner])}"
            return Future(self, answer, self.now + self.takes[runner])

        return remote

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait(self, futures: list[Future], num_returns: int, timeout: float) -> tuple[list[Future], list[Future]]:
        self.now = max(self.now, min(min(future.at for future in futures), self.now + timeout))
        ready = [future for future in futures if future.is_done][:num_returns]  # Ray keeps their order
        return ready, [future for future in futures if future not in ready]

    def get(self, future: Future, timeout: float) -> Any:
        self.now = max(self.now, min(future.at, self.now + timeout))
        if not future.is_done:
            raise GetTimeoutError
        if isinstance(future.answer, Exception):
            raise future.answer
        return future.answer


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def runners(world: World, monkeypatch: pytest.MonkeyPatch) -> RunnerGroup:
    monkeypatch.setattr(module, "ray", world.ray)
    monkeypatch.setattr(module, "time", world.time)
    config = SimpleNamespace(
        num_env_runners=len(RUNNERS),
        sample_timeout_s=TIMEOUT_S,
        restart_failed_env_runners=True,
        max_num_env_runner_restarts=2,
    )
    manager = SimpleNamespace(actors=lambda: world.actors)
    return RunnerGroup(SimpleNamespace(_worker_manager=manager), config, lambda: world.is_interrupted)


def once(runners: RunnerGroup) -> Any:
    """Asks all that are idle, and gives what comes first."""
    for runner in runners.idle():
        runners.ask(runner, "work")
    return runners.first_answer()


def answers(runners: RunnerGroup, count: int, heard: list[Any] | None = None) -> list[Any]:
    """The first so many answers to those who ask all that are idle again and again; also added to ``heard``."""
    found = [] if heard is None else heard
    while len(found) < count:
        answer = once(runners)
        found += [] if answer is None else [answer]
    return found


def test_a_call_reaches_its_runner_as_it_was_made(runners: RunnerGroup, world: World) -> None:
    assert runners.idle() == [1, 2, 3]
    runners.ask(2, "work", weights="new", reset=False)
    assert world.calls == {1: [], 2: [{"weights": "new", "reset": False}], 3: []}
    assert runners.idle() == [1, 3]
    assert runners.first_answer() == "2.1"
    assert runners.idle() == [1, 2, 3]


def test_of_several_the_one_that_was_asked_first_comes_first_and_nobody_starves(
    runners: RunnerGroup, world: World
) -> None:
    for runner in (3, 1, 2):
        runners.ask(runner, "work")
    assert [runners.first_answer() for _ in range(2)] == ["3.1", "1.1"]
    assert answers(runners, 6) == ["2.1", "1.2", "3.2", "2.2", "1.3", "3.3"]


def test_a_slow_one_slows_nobody_and_is_heard_when_it_is_done(runners: RunnerGroup, world: World) -> None:
    world.takes = {1: 1.0, 2: 3.5, 3: 1.0}
    assert answers(runners, 8) == ["1.1", "3.1", "1.2", "3.2", "1.3", "3.3", "2.1", "1.4"]
    assert world.now == 1_004.0


def test_waiting_ends_after_a_moment_without_an_answer(runners: RunnerGroup, world: World) -> None:
    assert runners.first_answer() is None  # nobody was asked
    assert world.now == 1_000.0 + RETRY_S
    world.takes = dict.fromkeys(RUNNERS, 0.8)
    start = world.now
    assert once(runners) is None
    assert world.now == start + POLL_S
    assert once(runners) == "1.1"
    assert world.now == start + 0.8


def test_one_that_died_is_left_alone_for_a_moment_and_asked_again(
    runners: RunnerGroup, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.gives[2] = [ActorDiedError()]
    assert [once(runners) for _ in range(3)] == ["1.1", None, "3.1"]
    assert runners.idle() == [3]  # 1 is at work again
    assert runners.restarts == 1
    assert "runner 2 died: its process was killed (out of memory?) or crashed; restart 1 of at most 2" in caplog.text
    world.now += RETRY_S / 2
    assert 2 not in runners.idle()
    world.now += RETRY_S
    assert runners.idle() == [2, 3]
    assert answers(runners, 3) == ["1.2", "2.2", "3.2"]


def test_while_it_is_made_anew_that_is_no_further_death_but_takes_an_end(runners: RunnerGroup, world: World) -> None:
    world.gives[2] = [ActorDiedError()] + [ActorUnavailableError("being made", None) for _ in range(10_000)]
    world.takes = {1: 1.0, 2: 0.0, 3: 1.0}
    died_at, heard = world.now, []
    with pytest.raises(RunError, match=r"^runner 2 died, and did not come back within 60 s$"):
        answers(runners, 10_000, heard)
    assert TIMEOUT_S < world.now - died_at <= TIMEOUT_S + 2 * POLL_S
    assert {"1.59", "3.59"} <= set(heard)  # nobody else was slowed
    assert runners.restarts == 1


def test_one_that_came_back_may_be_away_as_long_again(runners: RunnerGroup, world: World) -> None:
    for error in (ActorDiedError(), ActorUnavailableError("died", None)):
        world.gives[2] = [error, ActorUnavailableError("being made", None)]
        while not str(once(runners)).startswith("2"):
            world.now += RETRY_S
        world.now += 2.0 * TIMEOUT_S
        answers(runners, 3)
    assert runners.restarts == 2


def test_restarts_are_bounded_for_all_together(runners: RunnerGroup, world: World) -> None:
    for dies in (1, 3):
        world.gives[dies] = [ActorDiedError()]
    assert [once(runners) for _ in range(3)] == [None, "2.1", None]
    assert runners.restarts == 2
    world.gives[2] = [ActorDiedError()]
    with pytest.raises(RunError, match=r"^runner 2 died: .* or crashed; all 2 restarts are used up$"):
        answers(runners, 3)


def test_one_that_does_not_answer_is_named_even_while_others_do(runners: RunnerGroup, world: World) -> None:
    world.takes, asked_at = {1: 0.25, 2: 1e9, 3: 0.25}, world.now
    heard: list[Any] = []
    with pytest.raises(RunError, match=r"^runner 2 did not answer within 60 s; raise sample_timeout_s if"):
        answers(runners, 10_000, heard)
    assert {"1.239", "3.239"} <= set(heard)
    assert TIMEOUT_S < world.now - asked_at < TIMEOUT_S + 1.0


def test_of_several_that_do_not_answer_the_one_that_was_asked_first_is_named(
    runners: RunnerGroup, world: World
) -> None:
    world.takes = dict.fromkeys(RUNNERS, 1e9)
    runners.ask(3, "work")
    world.now += 1.0
    with pytest.raises(RunError, match=r"^runner 3 did not answer within 60 s"):
        answers(runners, 1)


def test_an_environment_that_raised_ends_it(runners: RunnerGroup, world: World) -> None:
    world.gives[1] = [RunnerFailure(1, "the environment raised ValueError: no", "its traceback")]
    with pytest.raises(EnvironmentCrash, match=r"^runner 1: the environment raised ValueError: no$") as crash:
        answers(runners, 3)
    assert crash.value.traceback == "its traceback"


def test_after_an_interruption_what_fails_is_left_out(runners: RunnerGroup, world: World) -> None:
    """The signal may have reached environments and runners too."""
    world.is_interrupted = True
    world.gives = {1: [RunnerFailure(1, "raised", "")], 2: [ActorDiedError()], 3: ["whole"]}
    assert [once(runners) for _ in range(3)] == [None, None, "whole"]
    runners.forget()
    world.takes = dict.fromkeys(RUNNERS, 1e9)
    runners.ask(3, "work")
    world.now += TIMEOUT_S + 1.0
    assert runners.first_answer() is None
    assert 3 in runners.idle()
    assert runners.all_answers() == ([], None)
    assert runners.restarts == 0


def test_all_that_was_asked_is_waited_for_once(runners: RunnerGroup, world: World) -> None:
    assert runners.all_answers() == ([], None)
    world.takes = {1: 7.0, 2: 0.0, 3: 2.0}
    world.gives[2] = [ActorDiedError()]
    for runner in RUNNERS:
        runners.ask(runner, "work")
    assert runners.all_answers() == (["3.1", "1.1"], None)
    assert world.now == 1_007.0
    assert [len(calls) for calls in world.calls.values()] == [1, 1, 1]
    assert runners.idle() == [1, 2, 3]


def test_an_answer_is_not_lost_by_who_fails_beside_it(runners: RunnerGroup, world: World) -> None:
    world.gives |= {1: [RunnerFailure(1, "raised once", "")], 2: [RunnerFailure(2, "raised twice", "")]}
    for runner in RUNNERS:
        runners.ask(runner, "work")
    found, failure = runners.all_answers()
    assert found == ["3.1"]
    assert str(failure) == "runner 1: raised once"
    assert runners.idle() == [1, 2, 3]


def test_what_is_given_up_is_never_heard(runners: RunnerGroup, world: World) -> None:
    world.takes = dict.fromkeys(RUNNERS, 5.0)
    assert once(runners) is None
    runners.forget()
    assert runners.idle() == [1, 2, 3]
    world.takes = dict.fromkeys(RUNNERS, 0.0)
    assert answers(runners, 3) == ["1.2", "2.2", "3.2"]


def test_the_local_runner_works_when_it_is_to_answer(world: World) -> None:
    done: list[int] = []
    local = SimpleNamespace(work=lambda number: done.append(number) or number * 2)
    config = SimpleNamespace(num_env_runners=0)
    runners = RunnerGroup(SimpleNamespace(local_env_runner=local), config)
    assert runners.idle() == [0]
    runners.ask(0, "work", number=21)
    assert (runners.idle(), done) == ([], [])
    assert (runners.first_answer(), done) == (42, [21])
    runners.ask(0, "work", number=3)
    assert runners.all_answers() == ([6], None)
    runners.ask(0, "work", number=4)
    runners.forget()
    assert (runners.idle(), done) == ([0], [21, 3])
    local.work = lambda: RunnerFailure(0, "the environment raised ValueError: no", "")
    runners.ask(0, "work")
    with pytest.raises(EnvironmentCrash, match=r"^runner 0: the environment raised"):
        runners.first_answer()
