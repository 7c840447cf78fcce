"""The array runner: RLlib's EnvRunner that hands out arrays instead of lists of per-step objects."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

from rayground import quiet
from rayground.rollouts.episodes import EpisodeCallbacks
from rayground.rollouts.failures import Deadline, EnvironmentFailed, RunnerFailure
from rayground.rollouts.rollout import EpisodeRecord, Rollout
from rayground.rollouts.snapshot import pack, unpack
from rayground.seeding import seed_for

logger = logging.getLogger("rayground")

Weights = dict[str, np.ndarray]
_RUNNING = ("_obs", "_done", "_returns", "_lengths")
"""What a runner holds of its running episodes."""


class ArrayEnvRunner(SingleAgentEnvRunner):
    """Steps N sub-environments in step and returns :class:`Rollout` arrays.

    It is RLlib's single-agent runner (same environments, module, connectors, state) with another way to sample:
    no Python object per env step. Box and Discrete observations, Discrete actions, any Gymnasium vector
    environment with NEXT_STEP autoreset.
    """

    def __init__(self, *, config: AlgorithmConfig, **kwargs: Any) -> None:
        quiet.after_import()
        super().__init__(config=config, **kwargs)
        self._obs: Any = None  # [N, ...] once the environments were reset
        self._run_seed = secrets.randbits(31) if config.seed is None else config.seed
        self._failures_left = config.max_num_env_runner_restarts if config.restart_failed_sub_environments else 0
        self._parameters = dict(self.module.state_dict()) if self.module is not None else {}
        self._episode_callbacks = EpisodeCallbacks(self)

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
        if weights is not None:  # read-only, as they come from Ray, which torch warns of
            self.load_weights({name: weight.copy() for name, weight in weights.items()})
        while True:
            try:
                return self._sample_arrays(num_steps, env_steps, reset)
            except EnvironmentFailed as failed:
                failure = self._failure(failed)
                if self._failures_left == 0:
                    return failure
                self._failures_left -= 1
                logger.warning("%s; made anew, %d more times at most", failure, self._failures_left)
                self._make_env_anew()
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

    def get_episodes(self) -> bytes | None:
        """The environments in the middle of their episodes, or None where they cannot be copied."""
        if self._obs is None or self.env is None:
            return None
        running = {name: getattr(self, name) for name in _RUNNING}
        return pack(
            self.env.env, running | {"callbacks": self._episode_callbacks.running, "torch": torch.get_rng_state()}
        )

    def set_episodes(self, data: bytes) -> bool:
        """Goes on with the episodes of :meth:`get_episodes`; returns whether it can."""
        running = unpack(data, self.env.env)
        if running is None:
            return False
        self._episode_callbacks.running = running.pop("callbacks")
        rng = running.pop("torch")
        if self.worker_index:
            torch.set_rng_state(rng)
        for name, value in running.items():
            setattr(self, name, value)
        return True

    def load_weights(self, weights: Weights) -> None:
        """Copies parameters by name into the module; names that an inference-only module lacks are left out."""
        for name, parameter in self._parameters.items():
            parameter.copy_(torch.as_tensor(weights[name]))

    def _sample_arrays(self, num_steps: int, env_steps: int, reset: bool) -> Rollout:
        fresh = reset or self._obs is None
        if fresh:
            self._reset(seed_for(self._run_seed, "env", self.worker_index, env_steps))
        rollout = self._empty_rollout(num_steps, fresh)
        runners = max(1, self.config.num_env_runners)
        taken = 0
        for t in range(num_steps):
            valid_N = ~self._done
            rollout.obs[t], rollout.valid[t] = self._obs, valid_N
            actions_N, extras = self._act(env_steps + taken * runners)
            rollout.actions[t] = actions_N
            self._store_extras(rollout, t, extras)
            rewards_N, terminated_N, truncated_N = self._step(actions_N, valid_N)
            rollout.rewards[t], rollout.terminated[t], rollout.truncated[t] = (
                rewards_N,
                terminated_N,
                truncated_N,
            )
            rollout.episodes.extend(self._finished(valid_N))
            taken += int(valid_N.sum())
        rollout.obs[num_steps] = self._obs
        return rollout

    def _evaluate(
        self, num_episodes: int, seed: int, timeout_s: float | None, interruption: Callable[[], bool]
    ) -> Iterator[EpisodeRecord]:
        self._reset(seed)
        clock = Deadline(timeout_s, f"{num_episodes} evaluation episodes")
        left_N = np.full(self.num_envs, num_episodes // self.num_envs)
        left_N[: num_episodes % self.num_envs] += 1
        while left_N.any() and not interruption():
            clock.check()
            valid_N = ~self._done
            actions_N = self._act_greedily()
            self._step(actions_N, valid_N)
            wanted_N = valid_N & (left_N > 0)  # those beyond their share are played on, but nobody hears of them
            left_N -= self._done & wanted_N
            yield from self._finished(wanted_N)
        self._obs = None

    def _act(self, env_steps: int) -> tuple[np.ndarray, dict[str, torch.Tensor]]:
        with torch.inference_mode():
            out = dict(self.module.forward_exploration({Columns.OBS: self._obs_tensor()}, t=env_steps))
        return out.pop(Columns.ACTIONS).cpu().numpy(), out

    def _act_greedily(self) -> np.ndarray:
        with torch.inference_mode():
            out = self.module.forward_inference({Columns.OBS: self._obs_tensor()})
        return out[Columns.ACTIONS].cpu().numpy()

    def _obs_tensor(self) -> torch.Tensor:
        return torch.from_numpy(self._obs).to(self._device)

    def _step(self, actions_N: np.ndarray, valid_N: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Steps the environments; afterwards ``_obs``, ``_done`` and the running returns are those after the step."""
        try:
            obs, rewards_N, terminated_N, truncated_N, infos = self._vector_env.step(actions_N)
        except Exception as error:
            raise EnvironmentFailed from error
        self._obs = self._convert(obs)
        self._done = terminated_N | truncated_N
        self._returns += rewards_N * valid_N
        self._lengths += valid_N
        self._episode_callbacks.on_step(self._obs, actions_N, rewards_N, terminated_N, truncated_N, infos)
        return rewards_N, terminated_N, truncated_N

    def _finished(self, valid_N: np.ndarray) -> Iterator[EpisodeRecord]:
        for env_index in np.flatnonzero(self._done & valid_N):
            custom = self._episode_callbacks.end(int(env_index))
            yield EpisodeRecord(float(self._returns[env_index]), int(self._lengths[env_index]), custom)
            self._returns[env_index], self._lengths[env_index] = 0.0, 0

    def _reset(self, seed: int) -> None:
        try:
            obs, infos = self._vector_env.reset(seed=self._env_seeds(seed))
        except Exception as error:
            raise EnvironmentFailed from error
        self._obs = self._convert(obs)
        self._done = np.zeros(self.num_envs, bool)
        self._returns, self._lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, np.int64)
        if self.worker_index:
            torch.manual_seed(seed_for(seed, "torch"))
        self._needs_initial_reset = True  # RLlib's own sample() must not go on from our environments' state
        self._episode_callbacks.reset(self._obs, infos)

    def _env_seeds(self, seed: int) -> int | list[int]:
        """Vector environments made of single ones take a seed each; others derive them from one."""
        if isinstance(self.env.unwrapped, gym.vector.SyncVectorEnv | gym.vector.AsyncVectorEnv):
            return [seed_for(seed, env_index) for env_index in range(self.num_envs)]
        return seed

    def _make_env_anew(self) -> None:
        self.make_env()
        self._obs = None

    @property
    def _vector_env(self) -> Any:
        """The environment without RLlib's wrapper that makes a dict per sub-environment out of every step's infos."""
        return self.env if self._episode_callbacks.wanted else self.env.env

    def _convert(self, obs: np.ndarray) -> np.ndarray:
        """Floats become float32, the networks' precision; the copy keeps the environment from changing them later."""
        return np.array(obs, dtype=np.float32 if obs.dtype == np.float64 else None)

    def _empty_rollout(self, num_steps: int, fresh: bool) -> Rollout:
        shape = (num_steps, self.num_envs)
        action_space = self.env.single_action_space
        return Rollout(
            obs=np.empty((num_steps + 1, *self._obs.shape), self._obs.dtype),
            actions=np.empty(shape + action_space.shape, action_space.dtype),
            rewards=np.empty(shape, np.float32),
            terminated=np.empty(shape, bool),
            truncated=np.empty(shape, bool),
            valid=np.empty(shape, bool),
            runner=self.worker_index,
            fresh=fresh,
        )

    @staticmethod
    def _store_extras(rollout: Rollout, t: int, extras: dict[str, torch.Tensor]) -> None:
        for name, value in extras.items():
            array = value.cpu().numpy()
            if t == 0:
                rollout.extras[name] = np.empty((len(rollout.actions), *array.shape), array.dtype)
            rollout.extras[name][t] = array

    def _failure(self, error: BaseException) -> RunnerFailure:
        self._obs = None
        return RunnerFailure.of(self.worker_index, error)
