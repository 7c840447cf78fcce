"""RLlib's callbacks on runners: which hooks are wanted, and the episodes that they are told of."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

    from rayground.rollouts.runner import ArrayEnvRunner

EPISODE_HOOKS = ("on_episode_start", "on_episode_end")

STEP_HOOKS = ("on_episode_created", "on_episode_step")
"""Episode hooks that only RLlib's own way of sampling can call."""

RUNNER_HOOKS = ("on_environment_created", "on_sample_end", *EPISODE_HOOKS, *STEP_HOOKS)
"""The hooks that runners call."""


def overrides(config: AlgorithmConfig, hook: str) -> bool:
    """Says whether any callback class, instance or function of ``config`` implements ``hook``."""
    classes = config.callbacks_class
    for callback in classes if isinstance(classes, (list, tuple)) else [classes]:
        implementation = getattr(callback, hook, None)
        function = getattr(implementation, "__func__", implementation)
        if function is not getattr(RLlibCallback, hook):
            return True
    return bool(getattr(config, f"callbacks_{hook}", None))


def numbers_of(episode: SingleAgentEpisode) -> dict[str, float]:
    """The numbers that callbacks put into ``episode.custom_data``, by name."""
    data = episode.custom_data.items()
    return {str(name): float(value) for name, value in data if isinstance(value, numbers.Real)}


class EpisodeCallbacks:
    """Calls ``on_episode_start`` and ``on_episode_end`` of a runner's callbacks with RLlib's own episodes.

    Numbers that a callback puts into ``episode.custom_data`` become metrics, ``custom/<name>``. Nothing is
    collected, and nothing costs time, when no callback implements one of the two.
    """

    def __init__(self, runner: ArrayEnvRunner) -> None:
        self._runner = runner
        self.wanted = any(overrides(runner.config, hook) for hook in EPISODE_HOOKS)
        self.running: list[SingleAgentEpisode] = []

    def reset(self, obs_N: np.ndarray, infos: Sequence[dict[str, Any]]) -> None:
        """Starts an episode in every sub-environment; the ones that ran are given up without an end."""
        if self.wanted:
            self.running = [self._start(obs, info) for obs, info in zip(obs_N, infos, strict=True)]
            for env_index in range(len(self.running)):
                self._call("on_episode_start", env_index)

    def on_step(
        self,
        obs_N: np.ndarray,
        actions_N: np.ndarray,
        rewards_N: np.ndarray,
        terminated_N: np.ndarray,
        truncated_N: np.ndarray,
        infos: Sequence[dict[str, Any]],
    ) -> None:
        """Adds one vector step; a sub-environment whose episode had ended has just been reset."""
        if not self.wanted:
            return
        actions_N = actions_N.copy()
        for i, episode in enumerate(self.running):
            if episode.is_done:
                self.running[i] = self._start(obs_N[i], infos[i])
                self._call("on_episode_start", i)
            else:
                episode.add_env_step(
                    observation=obs_N[i],
                    action=actions_N[i],
                    reward=float(rewards_N[i]),
                    infos=infos[i],
                    terminated=bool(terminated_N[i]),
                    truncated=bool(truncated_N[i]),
                )

    def end(self, env_index: int) -> dict[str, float]:
        """Calls ``on_episode_end`` and returns the numbers in the episode's ``custom_data``."""
        if not self.wanted:
            return {}
        self._call("on_episode_end", env_index, prev_episode_chunks=[])
        return numbers_of(self.running[env_index])

    def _start(self, obs: np.ndarray, info: dict[str, Any]) -> SingleAgentEpisode:
        env = self._runner.env
        episode = SingleAgentEpisode(
            observation_space=env.single_observation_space, action_space=env.single_action_space
        )
        episode.add_env_reset(observation=obs, infos=info)
        return episode

    def _call(self, hook: str, env_index: int, **more: Any) -> None:
        runner = self._runner
        make_callback(
            hook,
            callbacks_objects=runner._callbacks,
            callbacks_functions=getattr(runner.config, f"callbacks_{hook}"),
            kwargs={
                "episode": self.running[env_index],
                "env_runner": runner,
                "metrics_logger": runner.metrics,
                "env": runner.env.unwrapped,
                "rl_module": runner.module,
                "env_index": env_index,
                **more,
            },
        )
