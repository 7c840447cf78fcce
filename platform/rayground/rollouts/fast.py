"""Sampling straight into arrays: no Python object per env step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import Tensor

from custom_models.nets import ACTION_MASK
from rayground.action_masks import LegalActions
from rayground.rollouts.actions import FragmentActions, Output, action_dtype
from rayground.rollouts.callbacks import EpisodeCallbacks
from rayground.rollouts.failures import EnvironmentFailed
from rayground.rollouts.rollout import EpisodeRecord, Rollout
from rayground.spaces import actions_for_env

if TYPE_CHECKING:
    from rayground.rollouts.runner import ArrayEnvRunner

_RUNNING = ("_obs", "_done", "_returns", "_lengths")


class FastSampling:
    """Steps the sub-environments of a runner, array by array.

    Attributes:
        infos: What the vector environment told beside its last observations, as it told it.
    """

    def __init__(self, runner: ArrayEnvRunner) -> None:
        self._runner = runner
        self._callbacks = EpisodeCallbacks(runner)
        self._for_env = actions_for_env(
            runner.env.single_action_space,
            normalize=runner.config.normalize_actions,
            clip=runner.config.clip_actions,
        )
        self._obs: Any = None  # [N, ...] once the environments were reset
        self._env_s = 0.0
        self._legal: LegalActions = runner.legal_actions()
        self.infos: Any = {}

    @property
    def is_running(self) -> bool:
        """Whether there are episodes to go on with."""
        return self._obs is not None

    def forget(self) -> None:
        """Gives up the running episodes: what comes next begins with :meth:`reset`."""
        self._obs = None

    def get_state(self) -> dict[str, Any]:
        """What there is of the running episodes beside the environments themselves."""
        more = {"callbacks": self._callbacks.running, "action_masks": self._legal.masks}
        return {name: getattr(self, name) for name in _RUNNING} | more

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on with the episodes of :meth:`get_state`."""
        self._callbacks.running = state["callbacks"]
        self._legal.resume(state["action_masks"])
        for name in _RUNNING:
            setattr(self, name, state[name])

    def reset(self, seed: int | list[int]) -> None:
        """Starts an episode in every sub-environment.

        Raises:
            EnvironmentFailed: If an environment raised.
            RunError: If an action mask is wrong.
        """
        before = perf_counter()
        try:
            obs, self.infos = self._env.reset(seed=seed)
        except Exception as error:
            raise EnvironmentFailed from error
        self._env_s = perf_counter() - before
        self._obs = np.array(obs, dtype=np.float32 if obs.dtype == np.float64 else None)
        self._done = np.zeros(len(obs), bool)
        self._returns, self._lengths = np.zeros(len(obs)), np.zeros(len(obs), np.int64)
        self._legal.reset(self.infos)
        self._callbacks.reset(self._obs, self.infos)

    def fragment(
        self, num_steps: int, env_steps: int, *, explore: bool = True, infos: list[Any] | None = None
    ) -> Rollout:
        """Takes ``num_steps`` vector steps.

        Args:
            num_steps: T, vector steps.
            env_steps: Env steps that all runners together have taken before.
            explore: Whether the module explores.
            infos: Is given what came beside each of the T observations that are acted on: for RLlib's episodes, which
                have the extras too.

        Raises:
            EnvironmentFailed: If an environment raised.
            RunError: If an action mask is wrong.
        """
        rollout = self._empty_rollout(num_steps)
        extras = self._runner.keeps_extras or infos is not None
        answers = FragmentActions(self._runner.module, rollout.actions, explore=explore, extras=extras)
        rollout.extras = answers.extras
        forward = forward_of(self._runner.module, explore=explore)
        runners = max(1, self._runner.config.num_env_runners)
        inference_s = 0.0
        rollout.obs[0] = self._obs
        if rollout.action_masks is not None:
            rollout.action_masks[0] = self._legal.masks
        obs = torch.from_numpy(rollout.obs)
        with torch.inference_mode(), _lent(self._runner.env):
            for t in range(num_steps):
                if infos is not None:
                    infos.append(self.infos)
                before = perf_counter()
                step = {"t": env_steps} if explore else {}
                actions_N = answers.take(t, forward(self._seen(obs[t]), **step))
                inference_s += perf_counter() - before
                valid_N = rollout.valid[t] = ~self._done
                rewards_N, terminated_N, truncated_N = self._step(actions_N, valid_N, rollout.obs[t + 1])
                rollout.rewards[t], rollout.terminated[t], rollout.truncated[t] = rewards_N, terminated_N, truncated_N
                if rollout.action_masks is not None:
                    rollout.action_masks[t + 1] = self._legal.masks
                rollout.episodes.extend(self._finished(valid_N))
                env_steps += int(np.count_nonzero(valid_N)) * runners
            before = perf_counter()
            answers.finish()
        self._obs = rollout.obs[num_steps].copy()
        rollout.seconds = {"env": self._env_s, "inference": inference_s + perf_counter() - before}
        self._env_s = 0.0
        return rollout

    def play(self, left_N: np.ndarray) -> Iterator[list[EpisodeRecord]]:
        """Takes greedy vector steps, each of which gives the episodes that have just ended.

        Args:
            left_N: ``[N]`` how many more episodes of each sub-environment are wanted; counted down here. Those beyond
                are played on, but nobody hears of them.

        Raises:
            EnvironmentFailed: If an environment raised.
            RunError: If an action mask is wrong.
        """
        module = self._runner.module
        forward = forward_of(module, explore=False)
        answers = FragmentActions(module, self._empty_rollout(1).actions, explore=False, extras=False)
        while True:
            with torch.inference_mode(), _lent(self._runner.env):
                actions_N = answers.take(0, forward(self._seen(torch.from_numpy(self._obs))))
                wanted_N = ~self._done & (left_N > 0)
                self._obs = np.empty_like(self._obs)
                self._step(actions_N, wanted_N, self._obs)
            left_N -= self._done & wanted_N
            yield self._finished(wanted_N)

    def _seen(self, obs: Tensor) -> dict[str, Tensor]:
        """What the module acts on."""
        device = self._runner._device
        seen = {Columns.OBS: obs.to(device)}
        if (masks := self._legal.to_act_by(self._done)) is not None:
            seen[ACTION_MASK] = torch.from_numpy(masks).to(device)
        return seen

    def _step(
        self, actions_N: np.ndarray, valid_N: np.ndarray, obs_N: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Steps the environments with the policy's actions, and writes what is seen then into ``obs_N``."""
        before = perf_counter()
        try:
            obs, rewards_N, terminated_N, truncated_N, self.infos = self._env.step(self._for_env(actions_N))
        except Exception as error:
            raise EnvironmentFailed from error
        self._env_s += perf_counter() - before
        obs_N[...] = obs
        self._done = terminated_N | truncated_N
        self._legal.step(self.infos, terminated_N, truncated_N)
        self._returns += rewards_N * valid_N
        self._lengths += valid_N
        if self._callbacks.wanted:
            self._callbacks.on_step(obs_N, actions_N, rewards_N, terminated_N, truncated_N, self.infos)
        return rewards_N, terminated_N, truncated_N

    def _finished(self, wanted_N: np.ndarray) -> list[EpisodeRecord]:
        if not np.count_nonzero(self._done):
            return []
        records = []
        for env_index in np.flatnonzero(self._done & wanted_N).tolist():
            custom = self._callbacks.end(env_index)
            records.append(EpisodeRecord(float(self._returns[env_index]), int(self._lengths[env_index]), custom))
            self._returns[env_index], self._lengths[env_index] = 0.0, 0
        return records

    @property
    def _env(self) -> Any:
        """The environment without RLlib's wrapper that makes a dict per sub-environment out of every step's infos."""
        return self._runner.env if self._callbacks.wanted else self._runner.env.env

    def _empty_rollout(self, num_steps: int) -> Rollout:
        shape = (num_steps, len(self._obs))
        action_space, masks = self._runner.env.single_action_space, self._legal.masks
        return Rollout(
            obs=np.empty((num_steps + 1, *self._obs.shape), self._obs.dtype),
            actions=np.empty(shape + action_space.shape, action_dtype(action_space)),
            rewards=np.empty(shape, np.float32),
            terminated=np.empty(shape, bool),
            truncated=np.empty(shape, bool),
            valid=np.empty(shape, bool),
            action_masks=None if masks is None else np.empty((num_steps + 1, *masks.shape), bool),
            runner=self._runner.worker_index,
        )


def forward_of(module: RLModule, *, explore: bool) -> Callable[..., Output]:
    """The module's forward pass for acting, without what RLlib does around it where that changes nothing.

    RLlib switches all sub-modules to evaluation and back around every action; a runner's module never trains, so it
    is switched once. A forward pass that someone put in RLlib's place is called as it is.
    """
    name = "forward_exploration" if explore else "forward_inference"
    if name in vars(module) or getattr(type(module), name) is not getattr(TorchRLModule, name):
        return getattr(module, name)
    if module.training:
        module.eval()
    return getattr(module, f"_{name}")


@contextmanager
def _lent(env: gym.vector.VectorWrapper) -> Iterator[None]:
    """Lets Gymnasium's own vector environments lend their buffer of observations: we copy it at once, so they need not.

    A wrapper in between might keep what it is given, so there must be none but RLlib's.
    """
    inner: Any = env.env
    lends = type(inner) in (gym.vector.SyncVectorEnv, gym.vector.AsyncVectorEnv) and inner.copy
    if lends:
        inner.copy = False
    try:
        yield
    finally:
        if lends:
            inner.copy = True
