"""RLlib's ``sample()`` and ``get_metrics()`` on the array path, for its stock algorithms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics import ENV_RESET_TIMER, ENV_STEP_TIMER, RLMODULE_INFERENCE_TIMER, WEIGHTS_SEQ_NO

from rayground.rollouts.cutting import EpisodeCutter
from rayground.rollouts.rollout import Rollout, concatenate
from rayground.seeding import seed_for

if TYPE_CHECKING:
    from rayground.rollouts.runner import ArrayEnvRunner


class EpisodeSampling:
    """What ``SingleAgentEnvRunner._sample`` does, with episodes cut from arrays."""

    def __init__(self, runner: ArrayEnvRunner) -> None:
        self._runner = runner
        self._resets = 0
        self._finished: list[tuple[float, int, float]] = []  # return, length and seconds of episodes
        self._cutter = EpisodeCutter(
            runner.env.single_observation_space,
            runner.env.single_action_space,
            lookback=runner.config.episode_lookback_horizon,
            to_numpy=runner.config.episodes_to_numpy,
        )

    def sample(
        self, *, num_timesteps: int | None, num_episodes: int | None, explore: bool, force_reset: bool
    ) -> list[SingleAgentEpisode]:
        """Samples at least ``num_timesteps`` env steps, or exactly ``num_episodes`` whole episodes.

        Raises:
            EnvironmentFailed: If an environment raised.
        """
        sampling = self._runner.sampling
        fresh = force_reset or num_episodes is not None or not sampling.is_running
        if fresh:
            with self._runner.metrics.log_time(ENV_RESET_TIMER):
                self._runner.start_episodes(self.next_seed())
        infos: list[Any] = []
        if num_timesteps is not None:
            rollouts = list(self._steps(num_timesteps, explore, infos))
        else:
            rollouts = list(self._episodes(num_episodes or 0, explore, infos))
        if not rollouts:
            return []
        whole = concatenate(rollouts)
        whole.fresh = fresh
        chunks = self.cut(whole, infos)
        if num_episodes is not None:
            sampling.forget()
            chunks = [chunk for chunk in chunks if chunk.is_done][:num_episodes]
        self._count(whole, num_finished=sum(chunk.is_done for chunk in chunks))
        return chunks

    def get_state(self) -> dict[str, Any]:
        """What the next chunks of the running episodes must know."""
        return {"resets": self._resets, "open": self._cutter.open}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on after :meth:`get_state`."""
        self._resets, self._cutter.open = state["resets"], state["open"]

    def cut(self, rollout: Rollout, infos: list[Any]) -> list[SingleAgentEpisode]:
        """The episodes of the rollout that was sampled last; ``infos``: what came beside its first T observations."""
        seq_no = np.full(rollout.rewards.shape, self._runner._weights_seq_no)
        rollout = replace(rollout, extras=rollout.extras | {WEIGHTS_SEQ_NO: seq_no})
        return self._cutter.cut(rollout, self._as_lists([*infos, self._runner.sampling.infos]))

    def tell(self, rollout: Rollout, infos: list[Any]) -> None:
        """Calls ``on_sample_end`` with the episodes of the rollout that was sampled last."""
        runner = self._runner
        make_callback(
            "on_sample_end",
            callbacks_objects=runner._callbacks,
            callbacks_functions=runner.config.callbacks_on_sample_end,
            kwargs={
                "env_runner": runner,
                "metrics_logger": runner.metrics,
                "samples": self.cut(rollout, infos),
            },
        )

    def next_seed(self) -> int:
        """A seed of its own for every reset: RLlib's runner would take the same one each time."""
        self._resets += 1
        runner = self._runner
        part = "evaluation" if runner.config.in_evaluation else "sample"
        return seed_for(runner.run_seed, part, runner.worker_index, self._resets)

    def log_finished(self) -> None:
        """Logs the episodes that ended since the last call, as RLlib does."""
        for episode_return, length, seconds in self._finished:
            self._runner._log_episode_metrics(length, episode_return, seconds)
        self._finished.clear()

    def _steps(self, num_timesteps: int, explore: bool, infos: list[Any]) -> Iterator[Rollout]:
        """As many vector steps as RLlib would take: those in which a sub-environment resets itself bring fewer."""
        taken = 0
        while taken < num_timesteps:
            missing = -(-(num_timesteps - taken) // self._runner.num_envs)
            rollout = self._fragment(missing, taken, explore, infos)
            taken += rollout.num_env_steps
            yield rollout

    def _episodes(self, num_episodes: int, explore: bool, infos: list[Any]) -> Iterator[Rollout]:
        taken = finished = 0
        while finished < num_episodes:
            rollout = self._fragment(1, taken, explore, infos)
            taken, finished = taken + rollout.num_env_steps, finished + len(rollout.episodes)
            yield rollout

    def _fragment(self, num_steps: int, taken: int, explore: bool, infos: list[Any]) -> Rollout:
        runner = self._runner
        runners = runner.config.num_env_runners or 1
        env_steps = (runner.num_env_steps_sampled_lifetime // runners + taken) * runners
        return runner.sampling.fragment(num_steps, env_steps, explore=explore, infos=infos)

    def _as_lists(self, infos: list[Any]) -> list[Any]:
        """One dict per sub-environment, of the one dict that a vector environment gives."""
        nothing: list[dict[str, Any]] = [{} for _ in range(self._runner.num_envs)]
        return [
            told if isinstance(told, list) else self._runner.env._convert_info_to_list(told) if told else nothing
            for told in infos
        ]

    def _count(self, rollout: Rollout, num_finished: int) -> None:
        runner, num_steps = self._runner, rollout.num_env_steps
        seconds = {part: value / len(rollout.rewards) for part, value in rollout.seconds.items()}
        runner.metrics.log_value(ENV_STEP_TIMER, seconds["env"], reduce="ema")
        runner.metrics.log_value(RLMODULE_INFERENCE_TIMER, seconds["inference"], reduce="ema")
        runner._log_env_steps(metric=runner._metrics_num_env_steps_sampled, num_steps=num_steps)
        runner._increase_sampled_metrics(num_steps, num_finished)
        per_step = seconds["env"] + seconds["inference"]
        for record in rollout.episodes[:num_finished]:
            self._finished.append((record.episode_return, record.length, record.length * per_step))
