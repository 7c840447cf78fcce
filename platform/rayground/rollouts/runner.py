"""The array runner: RLlib's EnvRunner that hands out arrays instead of lists of per-step objects."""

from __future__ import annotations

import logging
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics import ENV_RESET_TIMER, ENV_STEP_TIMER
from torch import Tensor

from rayground import quiet
from rayground.action_masks import LegalActions
from rayground.errors import InputError
from rayground.rollouts.callbacks import overrides
from rayground.rollouts.clipping import clipped
from rayground.rollouts.failures import Deadline, EnvironmentFailed, RunnerFailure
from rayground.rollouts.fast import FastSampling
from rayground.rollouts.rollout import EpisodeRecord, Rollout
from rayground.rollouts.slow import SlowSampling, why_episodes_are_slow, why_slow
from rayground.rollouts.snapshot import pack, unpack
from rayground.rollouts.stock import EpisodeSampling
from rayground.seeding import seed_for
from rayground.startup import without_compiler

logger = logging.getLogger("rayground")

Weights = dict[str, np.ndarray]


class ArrayEnvRunner(SingleAgentEnvRunner):
    """Steps N sub-environments in step and returns :class:`Rollout` arrays.

    It is RLlib's single-agent runner (same environments, module, connectors, state) with another way to sample:
    no Python object per env step. Box, Discrete, MultiDiscrete and MultiBinary observations, Discrete, MultiDiscrete
    and Box actions, any Gymnasium vector environment with NEXT_STEP autoreset.

    Attributes:
        run_seed: What the seeds of its environments are made from: that of the config.
        sampling: How it steps its environments: straight into arrays, or RLlib's slow way.
        keeps_extras: Whether its rollouts hold what the policy computed beside the actions.
    """

    def __init__(self, *, config: AlgorithmConfig, **kwargs: Any) -> None:
        quiet.after_import()
        _check_origin(config)
        with without_compiler():
            super().__init__(config=config, **kwargs)
        self.run_seed = secrets.randbits(31) if config.seed is None else config.seed
        self._failures_left = config.max_num_env_runner_restarts if config.restart_failed_sub_environments else 0
        self._parameters = dict(self.module.state_dict()) if self.module is not None else {}
        if self.env is not None:
            self._is_said = False
            reason = why_slow(self)
            self._say(reason)
            self.sampling: FastSampling | SlowSampling = SlowSampling(self) if reason else FastSampling(self)
            self._why_like_rllib = why_episodes_are_slow(self)
            self._tells_samples = overrides(config, "on_sample_end")
            self.keeps_extras: bool = getattr(config, "reads_extras", True)  # RLlib's algorithms read them
            self._episode_sampling = EpisodeSampling(self)

    def make_env(self) -> None:
        """Makes the vector environment anew, as ``config`` describes it; the next call starts with a reset."""
        super().make_env()
        if hasattr(self, "sampling"):
            self.sampling.forget()

    def stop(self) -> None:
        """Closes the environments; those in processes that a signal has ended are closed already."""
        with suppress(ConnectionError, EOFError), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*Calling `close` while waiting")
            super().stop()

    def sample_arrays(
        self, num_steps: int, env_steps: int, *, weights: Weights | None = None, reset: bool = False
    ) -> Rollout | RunnerFailure:
        """Takes ``num_steps`` exploring vector steps.

        Args:
            num_steps: T, vector steps of all N sub-environments.
            env_steps: Env steps that all runners together have handed out before this call.
            weights: The module's parameters by name, or None if they have not changed since the last call.
            reset: Start new episodes first, seeded by ``env_steps``.

        Returns:
            The arrays, or what went wrong.
        """
        started = perf_counter()
        if weights is not None:
            self.load_weights(weights)
        while True:
            try:
                rollout = self._sample_arrays(num_steps, env_steps, reset)
                rollout.seconds["total"] = perf_counter() - started
                return rollout
            except EnvironmentFailed as failed:
                failure = self._failure(failed)
                if not self._made_anew(failure):
                    return failure
            except Exception as error:
                return self._failure(error)

    def evaluate(
        self,
        num_episodes: int,
        *,
        seed: int,
        weights: Weights | None = None,
        timeout_s: float | None = None,
        interruption: Callable[[], bool] = lambda: False,
    ) -> list[EpisodeRecord] | RunnerFailure:
        """Plays exactly ``num_episodes`` greedy episodes from a reset with ``seed``.

        Each sub-environment has its own share of the episodes: counting whichever ends first would favour short ones.

        Args:
            num_episodes: Episodes over all sub-environments.
            seed: Seed of the environments; the same one gives the same starts.
            weights: The module's parameters by name, or None if they are loaded.
            timeout_s: Give up after this many seconds.
            interruption: Asked before each step; when true, what has been played so far is returned.

        Returns:
            The records in the order in which the episodes ended, or what went wrong.
        """
        if weights is not None:
            self.load_weights(weights)
        try:
            return list(self._evaluate(num_episodes, seed, timeout_s, interruption))
        except Exception as error:
            return self._failure(error)

    def _sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool,
        random_actions: bool = False,
        force_reset: bool = False,
    ) -> list[SingleAgentEpisode]:
        """What RLlib's ``sample()`` does inside its timers and callbacks: so many env steps, or whole episodes.

        Raises:
            EnvironmentFailed: If an environment raised, and may not be made anew (once more).
        """
        how: dict[str, Any] = {"num_timesteps": num_timesteps, "num_episodes": num_episodes, "explore": explore}
        while True:
            try:
                if random_actions or self._why_like_rllib:
                    self._say(self._why_like_rllib)
                    self.sampling.forget()
                    self._seed = self._env_seeds(self._episode_sampling.next_seed())  # for a reset, should it do one
                    return super()._sample(**how, random_actions=random_actions, force_reset=force_reset)
                return self._episode_sampling.sample(**how, force_reset=force_reset)
            except EnvironmentFailed as failed:
                if not self._made_anew(self._failure(failed)):
                    raise

    def get_metrics(self) -> dict[str, Any]:
        """RLlib's metrics of what was sampled since the last call."""
        if self.env is not None:
            self._episode_sampling.log_finished()
        return super().get_metrics()

    def get_episodes(self) -> bytes | None:
        """The environments in the middle of their episodes, or None where they cannot be copied."""
        if self.env is None or not self.sampling.is_running:
            return None
        more = {"torch": torch.get_rng_state(), "chunks": self._episode_sampling.get_state()}
        return pack(self.env.env, self.sampling.get_state() | more)

    def set_episodes(self, data: bytes) -> bool:
        """Goes on with the episodes of :meth:`get_episodes`; returns whether it can."""
        running = unpack(data, self.env.env)
        if running is None:
            return False
        rng = running.pop("torch")
        if self.worker_index:
            torch.set_rng_state(rng)
        self._episode_sampling.set_state(running.pop("chunks"))
        self.sampling.set_state(running)
        return True

    def legal_actions(self) -> LegalActions:
        """What is to know of legal actions; RLlib's own algorithms do without."""
        config = self.config
        ours = getattr(config, "_of_rayground", False)
        given = (config.action_masks and not config.in_evaluation) or None if ours else False
        return LegalActions(self.env.single_action_space, self.num_envs, given)

    def start_episodes(self, seed: int) -> None:
        """Starts an episode in every sub-environment; a remote runner seeds torch's generator too.

        Raises:
            EnvironmentFailed: If an environment raised.
        """
        self.sampling.reset(self._env_seeds(seed))
        if self.worker_index:
            torch.manual_seed(seed_for(seed, "torch"))
        self._needs_initial_reset = True  # RLlib's own _sample() must not go on from our environments' state

    def load_weights(self, weights: Weights) -> None:
        """Copies parameters by name into the module; names that an inference-only module lacks are left out."""
        copy_weights(weights, self._parameters)

    def _try_env_reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        """RLlib would try again for ever, or hide what was raised."""
        try:
            with self.metrics.log_time(ENV_RESET_TIMER):
                return self.env.reset(seed=seed, options=options)
        except Exception as error:
            raise EnvironmentFailed from error

    def _try_env_step(self, actions: Any) -> Any:
        try:
            with self.metrics.log_time(ENV_STEP_TIMER):
                return self.env.step(actions)
        except Exception as error:
            raise EnvironmentFailed from error

    def _sample_arrays(self, num_steps: int, env_steps: int, reset: bool) -> Rollout:
        fresh = reset or not self.sampling.is_running
        if fresh:
            self.start_episodes(seed_for(self.run_seed, "env", self.worker_index, env_steps))
        infos: list[Any] | None = [] if self._tells_samples else None
        rollout = self.sampling.fragment(num_steps, env_steps, infos=infos)
        rollout.fresh = fresh
        if infos is not None:
            self._episode_sampling.tell(rollout, infos)
        rollout.rewards = clipped(rollout.rewards, self.config.clip_rewards)  # returns are counted already
        if not self.keeps_extras:
            rollout.extras = {}
        return rollout

    def _evaluate(
        self, num_episodes: int, seed: int, timeout_s: float | None, interruption: Callable[[], bool]
    ) -> Iterator[EpisodeRecord]:
        self.start_episodes(seed)
        clock = Deadline(timeout_s, f"{num_episodes} evaluation episodes")
        left_N = np.full(self.num_envs, num_episodes // self.num_envs)
        left_N[: num_episodes % self.num_envs] += 1
        play = self.sampling.play(left_N)
        while left_N.any() and not interruption():
            clock.check()
            yield from next(play)
        self.sampling.forget()

    def _env_seeds(self, seed: int) -> int | list[int]:
        """Vector environments made of single ones take a seed each; others derive them from one."""
        if isinstance(self.env.unwrapped, gym.vector.SyncVectorEnv | gym.vector.AsyncVectorEnv):
            return [seed_for(seed, env_index) for env_index in range(self.num_envs)]
        return seed

    def _say(self, reason: str | None) -> None:
        """Says once in a run, by one of its runners, why sampling is slow."""
        if reason and not self._is_said and self.worker_index in (0, 1) and not self.config.in_evaluation:
            logger.warning("sampling takes RLlib's slow path because of %s", reason)
            self._is_said = True

    def _made_anew(self, failure: RunnerFailure) -> bool:
        """Makes the environments anew after a failure, if that was allowed and has not happened too often."""
        if self._failures_left == 0:
            return False
        self._failures_left -= 1
        logger.warning("%s; made anew, %d more times at most", failure, self._failures_left)
        self.make_env()
        return True

    def _failure(self, error: BaseException) -> RunnerFailure:
        self.sampling.forget()
        return RunnerFailure.of(self.worker_index, error)


def copy_weights(weights: Weights, parameters: Mapping[str, Tensor]) -> None:
    """Copies weights into parameters and buffers of the same names, without a look at others."""
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.as_tensor(weights[name]))


def _check_origin(config: AlgorithmConfig) -> None:
    """Refuses an algorithm of RLlib's with our settings: it would train, and ignore those that it does not know.

    Raises:
        InputError: It says how to have ours.
    """
    if getattr(config, "_of_rayground", False) and type(config).__module__.startswith("ray.rllib."):
        name = config.algo_class.__name__
        raise InputError(
            f"expected an algorithm of rayground for settings of rayground, got RLlib's {name}: to Tune, the name "
            f"{name!r} is RLlib's; give the class: tune.Tuner(rayground.{name}, ...)"
        )
