"""What all our algorithms share: sampling in arrays, headline metrics, evaluation, complete checkpoints."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from ray.rllib.algorithms.algorithm import TrainIterCtx
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    TIMERS,
    TRAINING_ITERATION_TIMER,
)

from custom_models.nets.normalizer import running_norms
from rayground import quiet
from rayground.algorithms import changes, evaluation, state
from rayground.algorithms.checkpointed import CheckpointedAlgorithm
from rayground.algorithms.config import ArrayConfig
from rayground.algorithms.headline import EpisodeWindow
from rayground.algorithms.observers import RecentObservations, check_callbacks, num_observations
from rayground.algorithms.timing import PARTS, RunnerTimes, WallClock
from rayground.errors import InputError, RunError
from rayground.learners.group import make_learner, why_learners_fail
from rayground.policies import TrainedPolicy
from rayground.preflight import check_hardware, checked_env
from rayground.rollouts.callbacks import RUNNER_HOOKS, overrides
from rayground.rollouts.group import RunnerGroup, why_runners_fail
from rayground.rollouts.moments import Moments
from rayground.rollouts.rollout import Rollout, Sampled
from rayground.rollouts.runner import ArrayEnvRunner
from rayground.seeding import seed_everything, seed_for
from rayground.startup import without_compiler

logger = logging.getLogger("rayground")


class ArrayAlgorithm(CheckpointedAlgorithm):
    """An RLlib Algorithm whose ``training_step`` is one iteration over arrays.

    A subclass writes ``training_step``, ``metrics_of_iteration`` and what it adds to a checkpoint.

    Attributes:
        env_steps: Env steps taken so far.
        episodes: The finished episodes, and the window that headline metrics are over.
        clock: Divides the wall time between two results; what ``training_step`` does runs in its parts.
        recent: The last observations of this iteration, for callbacks that want some; see ``observers.py``.
        interruption: Asked between steps; when true, an iteration or an evaluation ends early.
        own_config: The config as it was built, without the changes that training made.
        changes: The settings that have changed since, by name.
        pinned: Settings that were given by hand: a checkpoint's changes of them do not hold.
    """

    config: ArrayConfig
    changeable: tuple[str, ...] = ("lr", "grad_clip")
    """Settings that may change while training; see :meth:`change_setting`."""

    def setup(self, config: ArrayConfig) -> None:
        """Checks the environment, then builds runners and learner.

        Raises:
            InputError: If environment or module break their contract, or a GPU or a compiler is missing.
        """
        # RLlib would raise copies of what an iteration raises, and fail where an exception cannot be copied.
        os.environ.setdefault("RAY_AIR_FULL_TRACEBACKS", "1")
        check_hardware(config)
        self.config = checked_env(self.config)
        self.config.freeze()
        # Threads that wait for each other cost small networks far more than they bring, the more so on busy cores.
        torch.set_num_threads(max(1, config.num_cpus_for_main_process))
        self.env_steps = self._env_steps_logged = 0
        self.episodes = EpisodeWindow(config.metrics_num_episodes_for_smoothing)
        self.changes: dict[str, Any] = {}
        self.pinned: frozenset[str] = frozenset()
        self.interruption: Callable[[], bool] = lambda: False
        self._reset_next = True
        self._has_runner_hooks = any(overrides(config, hook) for hook in RUNNER_HOOKS)
        self.clock, self._runner_times = WallClock(), RunnerTimes()
        self._eval_runner: ArrayEnvRunner | None = None
        quiet.after_import()
        try:
            with quiet.config_by_value(), without_compiler():
                super().setup(config)
        except Exception as error:
            cause = why_learners_fail(error) if config.num_learners else None
            cause = cause or (why_runners_fail(config) if config.num_env_runners else None)
            if cause or isinstance(error, ValueError):
                raise InputError(cause or str(error)) from error
            raise
        self.runners = RunnerGroup(self.env_runner_group, self.config, lambda: self.interruption())
        self.learner = make_learner(self.learner_group, self.config)
        self._has_norms, self._observed = bool(running_norms(self.learner.policy_module)), Moments()
        self.own_config = self.config
        self.config.check_module(self.learner.policy_module, self.observation_space, self.action_space)
        check_callbacks(self.config, self.learner.policy_module)
        self.recent = RecentObservations(num_observations(self.callbacks))
        self.sync_weights()
        seed_everything(self.seed_for("driver"))

    def _setup_logdir(self) -> None:
        """RLlib would leave an empty folder in ``~/ray_results``; what a run leaves is written elsewhere."""
        self._logdir = self._storage.trial_working_directory if self._storage else tempfile.gettempdir()

    def env_steps_goal(self) -> int:
        """Env steps at which this iteration ends: the next multiple, so that a resume keeps to the same grid."""
        mesh = max(1, self.config.min_sample_timesteps_per_iteration or 0)
        return (self.env_steps // mesh + 1) * mesh

    def ends_early(self, start: int, came: object) -> bool:
        """Says whether an iteration ends here because of an interruption.

        It takes a step first, so that results and checkpoints are told apart by their env steps; but the signal may
        have ended the environments too.

        Args:
            start: Env steps at its beginning.
            came: What the last request gave; empty, or None, if that was nothing.
        """
        return self.interruption() and (self.env_steps > start or not came)

    def _create_local_replay_buffer_if_necessary(self, config: ArrayConfig) -> None:
        """RLlib would build a buffer of its own; those of our algorithms come from their ``replay`` setting."""

    @property
    def observation_space(self) -> gym.Space:
        """The space of one observation."""
        return self.learner.policy_module.observation_space

    @property
    def action_space(self) -> gym.Space:
        """The space of one action."""
        return self.learner.policy_module.action_space

    def seed_for(self, *path: str | int) -> int:
        """A seed of its own for each part, derived from the run's."""
        return seed_for(self.config.seed, *path)

    def sample(self, num_steps: int) -> list[Rollout]:
        """Takes ``num_steps`` vector steps with every runner and counts them."""
        self.request(num_steps)
        return self.collect()

    def request(self, num_steps: int) -> None:
        """Asks every runner for ``num_steps`` vector steps with the newest weights; :meth:`collect` gives them."""
        self.runners.request(num_steps, self.env_steps, reset=self._reset_next)
        self._reset_next = False

    def collect(self) -> list[Rollout]:
        """Waits for the vector steps that were requested, and counts them.

        Raises:
            RunError: If a reward or an observation is not finite: the first loss would not be either, or be a lie.
        """
        with self.waiting():
            rollouts = self.runners.collect()
        for rollout in rollouts:
            self.count(rollout)
        return rollouts

    def count(self, sampled: Sampled) -> None:
        """Counts what a runner has sampled.

        Raises:
            RunError: If a reward or an observation is not finite: the first loss would not be either, or be a lie.
        """
        self.env_steps += sampled.num_env_steps
        if wrong := sampled.not_finite():
            raise RunError(f"before env step {self.env_steps + 1}: {wrong}: expected a finite number")
        self.episodes.extend(sampled.episodes)
        self._runner_times.add(sampled.runner, sampled.seconds)
        if self.recent.size and isinstance(sampled, Rollout):
            self.recent.add(sampled)
        if self._has_norms:
            self._observed.merge(sampled.moments())
        if sampled.runner == 0:  # in this process
            for part in PARTS:
                self.clock.move(part, sampled.seconds.get(part, 0.0))

    def waiting(self) -> AbstractContextManager[None]:
        """What runs inside ``with self.waiting():`` is waiting for remote runners; a local one says what it did."""
        return nullcontext() if self.runners.local is not None else self.clock("wait")

    def learning(self) -> AbstractContextManager[None]:
        """What runs inside ``with self.learning():`` counts as learning, or as waiting for remote learners."""
        return self.clock("wait" if self.config.num_learners else "learn")

    def first_lane(self, rollout: Rollout) -> int:
        """The replay lane of a rollout's first sub-environment."""
        return max(0, rollout.runner - 1) * self.config.num_envs_per_env_runner

    def sync_weights(self) -> None:
        """Gives the learner's weights to the runners, its norms moved first."""
        with self.clock("sync"):
            self.move_norms()
            self.runners.set_weights(self.learner.module_arrays())

    def move_norms(self) -> None:
        """Lets the module's :class:`RunningNorm` layers, if it has any, know what was observed since the last time."""
        if self._observed.count:
            self.learner.move_norms(self._observed)
            self._observed = Moments()

    def log_iteration(self) -> None:
        """Tells RLlib's MetricsLogger what its users look for under RLlib's own names."""
        if self._has_runner_hooks:
            self.metrics.aggregate(self.runner_metrics(), key=ENV_RUNNER_RESULTS)
        taken, self._env_steps_logged = self.env_steps - self._env_steps_logged, self.env_steps
        self.metrics.log_value((ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME), taken, reduce="lifetime_sum")
        for name, value in self.episodes.headline().items():
            if name.startswith("episode_") and value is not None:
                self.metrics.log_value((ENV_RUNNER_RESULTS, name), value, window=1)

    def runner_metrics(self) -> list[dict[str, Any]]:
        """What callbacks on the runners have logged since the last iteration, with RLlib's MetricsLogger."""
        return self.runners.get_metrics()

    def metrics_of_iteration(self) -> dict[str, Any]:
        """What the algorithm adds to an iteration's metrics."""
        return {}

    def _run_one_training_iteration(self) -> tuple[dict[str, Any], TrainIterCtx]:
        """RLlib repeats ``training_step`` until enough was sampled; ours does one iteration, and may end early."""
        with self.metrics.log_time((TIMERS, TRAINING_ITERATION_TIMER)), TrainIterCtx(algo=self) as context:
            self.recent.clear()
            self.training_step()
            if self._observed.count:  # nothing waits at the end of an iteration, for a checkpoint would not have it
                self.sync_weights()
        return self.metrics.compile(), context

    def step(self) -> dict[str, Any]:
        """RLlib's iteration; the result's ``headline`` holds our metrics."""
        result = super().step()
        result["headline"] = (
            {"env_steps": self.env_steps}
            | self.episodes.headline()
            | self.metrics_of_iteration()
            | {f"time/{part}_share": share for part, share in self.clock.shares().items()}
            | {f"runner_time/{part}_share": share for part, share in self._runner_times.shares().items()}
        )
        return result

    def evaluate(self, parallel_train_future: Any = None) -> dict[str, Any]:
        """Plays exactly ``evaluation_duration`` greedy episodes, from the same starts each time.

        Returns:
            ``env_runners/episode_return_mean`` and friends, in RLlib's nesting; None if it was interrupted.

        Raises:
            EnvironmentCrash: If the environment raised.
        """
        return evaluation.evaluate(self)

    @property
    def evaluation_runner(self) -> ArrayEnvRunner:
        """The runner with the evaluation environments, made when first needed."""
        if self.eval_env_runner_group is not None:
            return self.eval_env_runner_group.local_env_runner
        if self._eval_runner is None:
            self._eval_runner = ArrayEnvRunner(config=self.evaluation_config, worker_index=0, num_workers=0)
        return self._eval_runner

    def check_setting(self, key: str, value: Any) -> None:
        """Checks that a setting can change to ``value`` while training.

        Raises:
            InputError: If ``key`` cannot change while training, or not to ``value``.
        """
        changes.check(self, key, value)

    def change_setting(self, key: str, value: Any) -> None:
        """Changes a setting while training; the change is kept in checkpoints.

        Raises:
            InputError: If ``key`` cannot change while training, or not to ``value``; nothing changes then.
        """
        changes.make(self, key, value)

    def apply_settings(self) -> None:
        """Takes over a setting that has changed."""
        self.learner.use_settings(self.config)

    def get_policy(self, policy_id: str = DEFAULT_MODULE_ID) -> TrainedPolicy:
        """The policy being trained: its weights are the learner's, not a runner's copy.

        Raises:
            InputError: If there is no module of that name.
        """
        if policy_id != DEFAULT_MODULE_ID:
            raise InputError(f"no policy {policy_id!r}; there is {DEFAULT_MODULE_ID!r}")
        policy = self.config.policy_class(
            self.learner.policy_module, self.config, on_change=lambda: self._take_weights(policy)
        )
        return policy

    def _take_weights(self, policy: TrainedPolicy) -> None:
        self.learner.load_module_arrays(policy.get_weights())
        self.sync_weights()

    def compute_single_action(
        self, observation: Any, *, explore: bool = False, action_mask: Any = None, **_: Any
    ) -> Any:
        """The policy's action for one observation; see :meth:`TrainedPolicy.compute_single_action`."""
        return self.get_policy().compute_single_action(observation, explore=explore, action_mask=action_mask)

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        """Reads what :meth:`save_checkpoint` wrote; called by :meth:`restore`."""
        self._reset_next, self._observed = True, Moments()
        state.load(self, Path(checkpoint_dir))
        self.sync_weights()
        make_callback(
            "on_checkpoint_loaded",
            self.callbacks,
            self.config.callbacks_on_checkpoint_loaded,
            kwargs={"algorithm": self},
        )

    def resume_episodes(self, episodes: list[bytes]) -> None:
        """Goes on with the episodes that ran when a checkpoint was written, if that is possible for every runner."""
        self._reset_next = not (len(episodes) == self.runners.num_runners and self.runners.set_episodes(episodes))
        if self._reset_next:
            logger.info("the environments start new episodes: those that were running could not be kept")

    def cleanup(self) -> None:
        """Closes environments and ends runners."""
        self.runners.stop()
        super().cleanup()
        if self._eval_runner is not None:
            self._eval_runner.stop()
