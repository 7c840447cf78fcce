"""Sampling through RLlib's connectors, one object per env step: slow, and where it is needed the only way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.utils.metrics import ENV_TO_MODULE_CONNECTOR, MODULE_TO_ENV_CONNECTOR, WEIGHTS_SEQ_NO
from ray.rllib.utils.spaces.space_utils import unbatch

from custom_models.nets import ACTION_MASK
from rayground.action_masks import LegalActions
from rayground.errors import InputError
from rayground.rollouts.actions import action_dtype
from rayground.rollouts.callbacks import EPISODE_HOOKS, STEP_HOOKS, numbers_of, overrides
from rayground.rollouts.rollout import EpisodeRecord, Rollout
from rayground.space_checks import kind

if TYPE_CHECKING:
    from rayground.rollouts.runner import ArrayEnvRunner

_RUNNING = ("_ongoing_episodes", "_cached_to_module", "_shared_data")
"""What RLlib's runner holds of its running episodes."""

_CONNECTORS = ("_env_to_module_connector", "_module_to_env_connector")
_DEFAULTS = ("add_default_connectors_to_env_to_module_pipeline", "add_default_connectors_to_module_to_env_pipeline")


def why_slow(runner: ArrayEnvRunner) -> str | None:
    """Why a runner cannot sample straight into arrays; None if it can."""
    config = runner.config
    for name in (*_CONNECTORS, *_DEFAULTS):
        if getattr(config, name) not in (None, True):
            return name.removeprefix("_")
    for hook in STEP_HOOKS:
        if overrides(config, hook):
            return f"the callback {hook}()"
    for space in (runner.env.single_observation_space, runner.env.single_action_space):
        if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
            return f"the space {space}"
    if runner.module is None or runner.module.is_stateful():
        return "a module with memory" if runner.module else "no module"
    return None


def why_episodes_are_slow(runner: ArrayEnvRunner) -> str | None:
    """Why RLlib's ``sample()`` cannot cut its episodes from arrays; None if it can."""
    hooks = [f"the callback {hook}()" for hook in EPISODE_HOOKS if overrides(runner.config, hook)]
    return why_slow(runner) or next(iter(hooks), None)


@dataclass(slots=True)
class _Row:
    """One vector step; ``obs`` is what the module saw, and all else what a rollout's row holds."""

    obs: np.ndarray
    masks: np.ndarray | None
    actions: np.ndarray
    extras: dict[str, np.ndarray]
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray


class SlowSampling:
    """Does what :class:`FastSampling` does as RLlib's own runner would, with its episodes, connectors and callbacks.

    Observations in rollouts are those that the module saw: what came out of the env-to-module connectors.

    Attributes:
        infos: One dict per sub-environment: what it told beside its last observation.
    """

    def __init__(self, runner: ArrayEnvRunner) -> None:
        self._runner = runner
        self._is_running = False
        self._env_s = self._inference_s = 0.0
        self._legal: LegalActions = runner.legal_actions()
        self.infos: Any = []

    @property
    def is_running(self) -> bool:
        """Whether there are episodes to go on with."""
        return self._is_running

    def forget(self) -> None:
        """Gives up the running episodes: what comes next begins with :meth:`reset`."""
        self._is_running = False

    def get_state(self) -> dict[str, Any]:
        """What there is of the running episodes beside the environments themselves."""
        more = {"infos": self.infos, "action_masks": self._legal.masks}
        return {name: getattr(self._runner, name) for name in _RUNNING} | more

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on with the episodes of :meth:`get_state`."""
        self.infos, self._is_running = state["infos"], True
        self._legal.resume(state["action_masks"])
        for name in _RUNNING:
            setattr(self._runner, name, state[name])

    def reset(self, seed: int | list[int], *, explore: bool = True) -> None:
        """Starts an episode in every sub-environment.

        Raises:
            EnvironmentFailed: If an environment raised.
            RunError: If an action mask is wrong.
        """
        before = perf_counter()
        self._runner._seed, self._runner._needs_initial_reset = seed, True  # RLlib seeds an initial reset only
        self._runner._reset_envs_and_episodes(explore)
        self._env_s = perf_counter() - before
        self.infos = [episode.get_infos(-1) for episode in self._runner._ongoing_episodes]
        self._legal.reset(self.infos)
        self._is_running = True

    def fragment(
        self, num_steps: int, env_steps: int, *, explore: bool = True, infos: list[Any] | None = None
    ) -> Rollout:
        """Takes ``num_steps`` vector steps; see :meth:`FastSampling.fragment`.

        Raises:
            EnvironmentFailed: If an environment raised.
            InputError: If the connectors hand the module something else than one array of observations.
            RunError: If an action mask is wrong.
        """
        runners = max(1, self._runner.config.num_env_runners)
        rows: list[_Row] = []
        records: list[EpisodeRecord] = []
        self._inference_s = 0.0
        for _ in range(num_steps):
            if infos is not None:
                infos.append(self.infos)
            rows.append(self._step(explore, env_steps))
            records.extend(self._finished(rows[-1].valid))
            env_steps += int(rows[-1].valid.sum()) * runners
        rollout = self._stack(rows)
        rollout.episodes = records
        rollout.seconds = {"env": self._env_s, "inference": self._inference_s}
        self._env_s = 0.0
        return rollout

    def play(self, left_N: np.ndarray) -> Iterator[list[EpisodeRecord]]:
        """Takes greedy vector steps, each of which gives the episodes that have just ended; see FastSampling.play."""
        while True:
            wanted_N = self._step(explore=False, env_steps=0).valid & (left_N > 0)
            done_N = np.array([episode.is_done for episode in self._runner._ongoing_episodes])
            left_N -= done_N & wanted_N
            yield self._finished(wanted_N)

    def _step(self, explore: bool, env_steps: int) -> _Row:
        """One vector step; the episodes that it ended are still there, as callbacks want them."""
        runner = self._runner
        obs_N, masks_N = self._seen(), self._legal.masks
        valid_N = np.array([episode.is_reset for episode in runner._ongoing_episodes])
        before = perf_counter()
        to_env = self._act(explore, env_steps, self._legal.to_act_by(~valid_N))
        acted = perf_counter()
        actions_N = to_env.pop(Columns.ACTIONS)
        results = runner._try_env_step(to_env.pop(Columns.ACTIONS_FOR_ENV, actions_N))
        self._inference_s, self._env_s = self._inference_s + acted - before, self._env_s + perf_counter() - acted
        obs, rewards_N, terminated_N, truncated_N, self.infos = results
        self._legal.step(self.infos, terminated_N, truncated_N)
        self._add(unbatch(obs), unbatch(actions_N), rewards_N, terminated_N, truncated_N, to_env)
        self._connect(explore, unbatch(obs), unbatch(actions_N), rewards_N, terminated_N, truncated_N)
        for env_index, stepped in enumerate(valid_N):
            hook = "on_episode_step" if stepped else "on_episode_start"
            runner._make_on_episode_callback(hook, env_index, runner._ongoing_episodes)
        extras = {name: np.stack(values) for name, values in to_env.items()}
        return _Row(obs_N, masks_N, np.asarray(actions_N), extras, rewards_N, terminated_N, truncated_N, valid_N)

    def _act(self, explore: bool, env_steps: int, masks_N: np.ndarray | None) -> dict[str, Any]:
        """What the module-to-env connectors make of the module's answer: lists with an item per sub-environment."""
        runner = self._runner
        seen = dict(runner._cached_to_module)
        if masks_N is not None:
            seen[ACTION_MASK] = torch.from_numpy(masks_N).to(runner._device)
        if explore:
            output = runner.module.forward_exploration(seen, t=env_steps)
        else:
            output = runner.module.forward_inference(seen)
        return runner._module_to_env(
            rl_module=runner.module,
            batch=output,
            episodes=runner._ongoing_episodes,
            explore=explore,
            shared_data=runner._shared_data,
            metrics=runner.metrics,
            metrics_prefix_key=(MODULE_TO_ENV_CONNECTOR,),
        )

    def _add(
        self,
        obs: list[Any],
        actions: list[Any],
        rewards_N: np.ndarray,
        terminated_N: np.ndarray,
        truncated_N: np.ndarray,
        extras: dict[str, Any],
    ) -> None:
        """Adds a vector step to the episodes; an episode that has no observation yet has just been reset."""
        for i, episode in enumerate(self._runner._ongoing_episodes):
            if not episode.is_reset:
                episode.add_env_reset(observation=obs[i], infos=self.infos[i])
                continue
            episode.add_env_step(
                observation=obs[i],
                action=actions[i],
                reward=rewards_N[i],
                infos=self.infos[i],
                terminated=bool(terminated_N[i]),
                truncated=bool(truncated_N[i]),
                extra_model_outputs={name: values[i] for name, values in extras.items()}
                | {WEIGHTS_SEQ_NO: self._runner._weights_seq_no},
            )

    def _connect(
        self,
        explore: bool,
        obs: list[Any],
        actions: list[Any],
        rewards_N: np.ndarray,
        terminated_N: np.ndarray,
        truncated_N: np.ndarray,
    ) -> None:
        """Runs the env-to-module connectors: what the module acts on next."""
        runner = self._runner
        columns = {
            Columns.OBS: obs,
            Columns.ACTIONS: actions,
            Columns.REWARDS: rewards_N,
            Columns.INFOS: self.infos,
            Columns.TERMINATEDS: terminated_N,
            Columns.TRUNCATEDS: truncated_N,
        }
        runner._cached_to_module = runner._env_to_module(
            episodes=runner._ongoing_episodes,
            batch={},
            explore=explore,
            rl_module=runner.module,
            shared_data=runner._shared_data,
            metrics=runner.metrics,
            metrics_prefix_key=(ENV_TO_MODULE_CONNECTOR,),
            **columns,
        )

    def _finished(self, wanted_N: np.ndarray) -> list[EpisodeRecord]:
        """The records of episodes that have just ended, of which the wanted ones are told to callbacks."""
        runner, records = self._runner, []
        for env_index, episode in enumerate(runner._ongoing_episodes):
            if not episode.is_done:
                continue
            if wanted_N[env_index]:
                runner._make_on_episode_callback("on_episode_end", env_index, runner._ongoing_episodes)
                records.append(EpisodeRecord(float(episode.get_return()), len(episode), numbers_of(episode)))
            runner._new_episode(env_index, runner._ongoing_episodes)
        runner._ongoing_episodes_for_metrics.clear()  # RLlib's callback helper leaves empty entries there
        return records

    def _seen(self) -> np.ndarray:
        """The observations ``[N, ...]`` that the module acts on next."""
        obs = self._runner._cached_to_module.get(Columns.OBS)
        if not isinstance(obs, torch.Tensor) or len(obs) != self._runner.num_envs:
            expected = f"one array of observations with {self._runner.num_envs} rows"
            raise InputError(
                f"env_to_module_connector: expected {expected} for the module, got {kind(obs)}; "
                "FlattenObservations makes one of a Dict or Tuple"
            )
        return obs.cpu().numpy()

    def _stack(self, rows: list[_Row]) -> Rollout:
        dtype = action_dtype(self._runner.env.single_action_space)
        masks = [given for given in (*(row.masks for row in rows), self._legal.masks) if given is not None]
        return Rollout(
            obs=np.stack([row.obs for row in rows] + [self._seen()]),
            actions=np.stack([row.actions for row in rows]).astype(dtype, copy=False),
            rewards=np.stack([row.rewards for row in rows]).astype(np.float32),
            terminated=np.stack([row.terminated for row in rows]),
            truncated=np.stack([row.truncated for row in rows]),
            valid=np.stack([row.valid for row in rows]),
            action_masks=np.stack(masks) if masks else None,
            extras={name: np.stack([row.extras[name] for row in rows]) for name in rows[0].extras},
            runner=self._runner.worker_index,
        )
