"""All runners of an algorithm as one: asked in step, read in order, replaced when they die."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.env.env_runner_group import EnvRunnerGroup

from rayground.errors import RunError
from rayground.rollouts.environments import env_name, make_single_env
from rayground.rollouts.failures import RunnerFailure
from rayground.rollouts.rollout import Rollout
from rayground.rollouts.runner import ArrayEnvRunner, Weights

logger = logging.getLogger("rayground")

STOP_WITHIN_S = 3.0
MAKE_WITHIN_S = 30.0
INTERRUPTED_WITHIN_S = 10.0
RETRY_S = 0.1
POLL_S = 0.5


class EnvironmentCrash(RunError):
    """An environment, or a callback on a runner, raised.

    Attributes:
        traceback: Its own traceback.
    """

    def __init__(self, failure: RunnerFailure) -> None:
        super().__init__(failure)  # RLlib copies exceptions, from these arguments
        self.traceback = failure.traceback


class RunnerGroup:
    """The local runner, or the remote ones: whichever hold environments."""

    def __init__(
        self, group: EnvRunnerGroup, config: AlgorithmConfig, interruption: Callable[[], bool] = lambda: False
    ) -> None:
        """After an ``interruption``, what fails is left out: the signal may have reached environments too."""
        self._group, self._config, self._interruption = group, config, interruption
        self._weights: Any = None
        self._stale: set[int] = set()
        self._requested: dict[int, Any] = {}  # what was asked longest ago comes first
        self._asked_at: dict[int, float] = {}
        self._retry_at: dict[int, float] = {}
        self._not_handed_out: set[int] = set()
        self._down_since: dict[int, float] = {}
        self.restarts = 0

    @property
    def local(self) -> ArrayEnvRunner | None:
        """The runner in this process, if it is the one that samples."""
        return self._group.local_env_runner if self._config.num_env_runners == 0 else None

    @property
    def num_envs(self) -> int:
        """Sub-environments of all runners together: the lanes that a replay buffer needs."""
        return self.num_runners * self._config.num_envs_per_env_runner

    def set_weights(self, weights: Weights) -> None:
        """Hands parameters (by name) to all runners: to the local one at once, to others with their next call."""
        if self.local is not None:
            self.local.load_weights(weights)
        else:
            self._weights = ray.put(weights)
            self._stale = set(self._actors())

    def request(self, num_steps: int, env_steps: int, *, reset: bool = False) -> None:
        """Asks each runner for ``num_steps`` vector steps: remote ones take them while this process goes on.

        Args:
            num_steps: Vector steps per runner.
            env_steps: Env steps handed out so far, by all runners together.
            reset: Whether the environments start anew first. Where the last fragment asked for was never handed out,
                they do so anyway: the next one would not continue what is known.
        """
        self._requested = {}
        for index in self.indices:
            anew = reset or index in self._not_handed_out
            weights = self._weights if index in self._stale else None
            self.ask(index, "sample_arrays", num_steps=num_steps, env_steps=env_steps, reset=anew, weights=weights)
        self._not_handed_out |= self._requested.keys()
        self._stale -= self._requested.keys()

    def collect(self) -> list[Rollout]:
        """Waits for what was requested; the local runner samples only now.

        Returns:
            One rollout per runner, by index; a runner that has died and is being restarted is left out.

        Raises:
            EnvironmentCrash: If an environment raised.
            RunError: If a runner is gone for good, or does not answer or come back within ``sample_timeout_s``.
        """
        requested, self._requested = self._requested, {}
        results = []
        for index, asked in requested.items():
            result = self._answer(index, asked)
            if result is None:
                self._stale.add(index)
            else:
                results.append(result)
        if not results:
            time.sleep(RETRY_S)
        rollouts = self._good(results)
        self._not_handed_out -= {rollout.runner for rollout in rollouts}
        return rollouts

    def ask(self, index: int, call: str, **arguments: Any) -> None:
        """Asks one runner to do something, whatever the others do; the local one does it when it is to answer.

        Args:
            index: The runner's.
            call: Its method.
            **arguments: The method's.
        """
        if self.local is not None:
            self._requested[index] = partial(getattr(self.local, call), **arguments)
        else:
            self._requested[index] = getattr(self._actors()[index], call).remote(**arguments)
            self._asked_at[index] = time.monotonic()

    def idle(self) -> list[int]:
        """Runners that have nothing to do; one that was found down is left alone for a moment."""
        now = time.monotonic()
        return [i for i in self.indices if i not in self._requested and now >= self._retry_at.get(i, 0.0)]

    def first_answer(self) -> Any | None:
        """Waits until one runner has answered to :meth:`ask`; of several, the one that was asked first.

        Returns:
            What it gave; None if nobody has answered for a moment, or that runner is down.

        Raises:
            EnvironmentCrash: If an environment raised.
            RunError: If a runner is gone for good, or does not answer or come back within ``sample_timeout_s``.
        """
        index = self._first_done() if self.local is None else 0
        if index is None:
            return None
        result = self._answer(index, self._requested.pop(index))
        if result is None:
            self._retry_at[index] = time.monotonic() + RETRY_S
            return None
        return next(iter(self._good([result])), None)

    def all_answers(self) -> tuple[list[Any], RunError | None]:
        """Waits for all that was asked.

        Returns:
            What came of it, and what :meth:`first_answer` raised first, if it did: the others' answers are not lost.
        """
        answers: list[Any] = []
        failure: RunError | None = None
        while self._requested:
            try:
                answers.append(self.first_answer())
            except RunError as error:
                failure = failure or error
        return [answer for answer in answers if answer is not None], failure

    def forget(self) -> None:
        """Gives up whatever was asked."""
        self._requested.clear()

    def _first_done(self) -> int | None:
        if not self._requested:
            time.sleep(RETRY_S)
            return None
        indices = {future: index for index, future in self._requested.items()}
        ready, _ = ray.wait(list(indices), num_returns=1, timeout=POLL_S)
        first = indices[ready[0]] if ready else None
        longest = next(iter(self._requested))
        late = time.monotonic() - self._asked_at[longest] > self._patience_s
        if first == longest or not late:
            return first
        del self._requested[longest]
        if not self._interruption():
            self._failed(longest, GetTimeoutError())
        return None

    def get_episodes(self) -> list[bytes | None]:
        """Every runner's environments in the middle of their episodes; see :meth:`ArrayEnvRunner.get_episodes`."""
        if self.local is not None:
            return [self.local.get_episodes()]
        futures = {index: actor.get_episodes.remote() for index, actor in sorted(self._actors().items())}
        return [self._result(index, future) for index, future in futures.items()]

    def set_episodes(self, episodes: list[bytes]) -> bool:
        """Lets every runner go on with its episodes, one for each runner, in order; returns whether all could."""
        self._not_handed_out.clear()
        if self.local is not None:
            return self.local.set_episodes(episodes[0])
        actors = sorted(self._actors().items())
        futures = {i: actor.set_episodes.remote(data) for (i, actor), data in zip(actors, episodes, strict=True)}
        return all([self._result(index, future) for index, future in futures.items()])

    @property
    def indices(self) -> list[int]:
        """The runners' own: 0 for the local one, 1 and up for others."""
        return [0] if self.local is not None else sorted(self._actors())

    @property
    def num_runners(self) -> int:
        """Runners that hold environments."""
        return max(1, self._config.num_env_runners)

    def get_metrics(self, indices: Iterable[int] | None = None) -> list[dict[str, Any]]:
        """What callbacks on the runners, or on some of them, logged with RLlib's MetricsLogger since the last call."""
        if self.local is not None:
            return [self.local.get_metrics()]
        actors = self._actors()
        futures = {
            index: actors[index].get_metrics.remote() for index in (self.indices if indices is None else indices)
        }
        return [found for index, future in futures.items() if (found := self._result(index, future)) is not None]

    def _actors(self) -> dict[int, Any]:
        return self._group._worker_manager.actors()

    def _good(self, results: list[Rollout | RunnerFailure]) -> list[Rollout]:
        for result in results:
            if isinstance(result, RunnerFailure) and not self._interruption():
                raise EnvironmentCrash(result)
        return [result for result in results if not isinstance(result, RunnerFailure)]

    def stop(self) -> None:
        """Closes the environments of remote runners; one that does not answer soon is ended all the same.

        RLlib would wait for ever for one that hangs, and complain about those that are dead.
        """
        actors = list(self._actors().values()) if ray.is_initialized() else []
        if actors:
            ray.wait([actor.stop.remote() for actor in actors], num_returns=len(actors), timeout=STOP_WITHIN_S)
        for actor in actors:
            ray.kill(actor)
        self._group._worker_manager.clear()

    def _answer(self, index: int, asked: Any) -> Any:
        """What came of :meth:`ask`: the local runner works only now; None from a remote one that is down."""
        return self._result(index, asked) if self.local is None else asked()

    def _result(self, index: int, future: Any) -> Any:
        """What a call gave; None from a runner that is down."""
        try:
            result = ray.get(future, timeout=self._patience_s)
        except (GetTimeoutError, RayActorError) as error:
            if not self._interruption():
                self._failed(index, error)
            return None
        self._down_since.pop(index, None)
        return result

    def _failed(self, index: int, error: GetTimeoutError | RayActorError) -> None:
        if isinstance(error, GetTimeoutError):
            raise RunError(
                f"runner {index} did not answer within {self._config.sample_timeout_s:g} s; "
                "raise sample_timeout_s if its environments are that slow"
            ) from None
        if isinstance(error, ActorUnavailableError) and index in self._down_since:
            self._check_wait(index)
        else:
            self._died(index)

    def _died(self, index: int) -> None:
        """Takes a runner for down from here on; Ray is making it anew."""
        died = f"runner {index} died: its process was killed (out of memory?) or crashed"
        if self.restarts >= self._max_restarts:
            used_up = f"all {self.restarts} restarts are used up" if self.restarts else "restarts are off"
            raise RunError(f"{died}; {used_up}")
        self.restarts += 1
        self._stale.add(index)
        self._down_since[index] = time.monotonic()
        logger.warning("%s; restart %d of at most %d", died, self.restarts, self._max_restarts)

    def _check_wait(self, index: int) -> None:
        if time.monotonic() - self._down_since[index] > self._config.sample_timeout_s:
            raise RunError(f"runner {index} died, and did not come back within {self._config.sample_timeout_s:g} s")

    @property
    def _patience_s(self) -> float:
        """After an interruption a last checkpoint is to be written soon, whatever hangs."""
        timeout_s = self._config.sample_timeout_s
        return min(timeout_s, INTERRUPTED_WITHIN_S) if self._interruption() else timeout_s

    @property
    def _max_restarts(self) -> int:
        return self._config.max_num_env_runner_restarts if self._config.restart_failed_env_runners else 0


def why_runners_fail(config: AlgorithmConfig) -> str | None:
    """Makes an environment in another process, as a runner would; None if that works.

    RLlib only logs that a runner could not be built, and goes on without it.
    """
    making = ray.remote(num_cpus=0)(_make_and_close).remote(config)
    try:
        ray.get(making, timeout=MAKE_WITHIN_S)
    except GetTimeoutError:
        ray.cancel(making, force=True)
        return f"a runner's process did not make {env_name(config)} within {MAKE_WITHIN_S:g} s; look what it waits for"
    except Exception as error:
        last = [line for line in str(error).splitlines() if line.strip()][-1].strip().rstrip("),")
        return f"a runner's process cannot make {env_name(config)}: {last}; what it needs must be installed there"
    return None


def _make_and_close(config: AlgorithmConfig) -> None:
    make_single_env(config).close()
