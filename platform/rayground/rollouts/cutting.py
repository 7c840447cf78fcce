"""RLlib's episodes, cut from rollouts."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from rayground.rollouts.rollout import Rollout

LaneColumns = dict[str, np.ndarray]
"""The rows of one sub-environment: actions, rewards and extras, each ``[steps, ...]``."""


@dataclass(slots=True)
class OpenEpisode:
    """An episode that goes on.

    Attributes:
        id: Its id, the same in all its chunks.
        length: Env steps in the chunks so far.
        obs: ``[L, ...]`` the observations of its last L steps, before the one that the next chunk begins with.
        infos: Those that came with them.
        columns: ``[L, ...]`` the rest of these steps.
    """

    id: str
    length: int
    obs: np.ndarray
    infos: list[dict[str, Any]]
    columns: LaneColumns


class EpisodeCutter:
    """Cuts a runner's rollouts, one after the other, into chunks of episodes.

    Chunks are as RLlib's runner makes them: one per episode and call, with a lookback into the chunk before.

    Attributes:
        open: The episodes that go on, by sub-environment.
    """

    def __init__(
        self, observation_space: gym.Space, action_space: gym.Space, *, lookback: int = 1, to_numpy: bool = True
    ) -> None:
        """``lookback``: steps of an earlier chunk that the next one repeats; ``to_numpy``: arrays instead of lists."""
        self._spaces = {"observation_space": observation_space, "action_space": action_space}
        self._lookback, self._to_numpy = lookback, to_numpy
        self.open: dict[int, OpenEpisode] = {}

    def cut(self, rollout: Rollout, infos: Sequence[Sequence[dict[str, Any]]]) -> list[SingleAgentEpisode]:
        """Cuts one rollout, which continues the one before unless it is fresh.

        Args:
            rollout: T vector steps of N sub-environments.
            infos: ``[T + 1][N]`` what the environments told beside each observation.

        Returns:
            The chunks that end their episodes, in the order in which they ended, then those of the episodes that go
            on, by sub-environment. A chunk has at least one env step.
        """
        if rollout.fresh:
            self.open.clear()
        ended, ongoing = [], []
        for lane in range(rollout.valid.shape[1]):
            for start, stop in _stretches(rollout.valid[:, lane]):
                chunk = self._chunk(rollout, infos, lane, start, stop)
                if chunk.is_done:
                    ended.append((stop, chunk))
                else:
                    ongoing.append(chunk)
        return [chunk for _, chunk in sorted(ended, key=lambda pair: pair[0])] + ongoing

    def _chunk(
        self, rollout: Rollout, infos: Sequence[Sequence[dict[str, Any]]], lane: int, start: int, stop: int
    ) -> SingleAgentEpisode:
        """The env steps ``start`` to ``stop`` of a sub-environment, which belong to one episode."""
        obs = rollout.obs[start : stop + 1, lane].copy()
        told = [infos[t][lane] for t in range(start, stop + 1)]
        columns = {
            name: values[start:stop, lane].copy()
            for name, values in {"actions": rollout.actions, "rewards": rollout.rewards, **rollout.extras}.items()
        }
        before = self.open.pop(lane, None)
        looked_back = 0
        episode_id, length = (before.id, before.length) if before else (uuid.uuid4().hex, 0)
        if before is not None:
            looked_back = len(before.obs)
            obs, told = np.concatenate([before.obs, obs]), before.infos + told
            columns = {name: np.concatenate([before.columns[name], values]) for name, values in columns.items()}
        terminated, truncated = bool(rollout.terminated[stop - 1, lane]), bool(rollout.truncated[stop - 1, lane])
        if not (terminated or truncated):
            kept = min(self._lookback, len(columns["rewards"]))
            since = len(columns["rewards"]) - kept
            tail = {name: values[since:] for name, values in columns.items()}
            self.open[lane] = OpenEpisode(episode_id, length + stop - start, obs[since:-1], told[since:-1], tail)
        return self._episode(episode_id, length, obs, told, columns, looked_back, terminated, truncated)

    def _episode(
        self,
        episode_id: str,
        t_started: int,
        obs: np.ndarray,
        infos: list[dict[str, Any]],
        columns: LaneColumns,
        lookback: int,
        terminated: bool,
        truncated: bool,
    ) -> SingleAgentEpisode:
        data: dict[str, Any] = columns | {"observations": obs}
        if not self._to_numpy:
            data = {name: list(values) for name, values in data.items()}
        return SingleAgentEpisode(
            id_=episode_id,
            observations=data.pop("observations"),
            actions=data.pop("actions"),
            rewards=data.pop("rewards"),
            extra_model_outputs=data,
            infos=infos,
            terminated=terminated,
            truncated=truncated,
            t_started=t_started,
            len_lookback_buffer=lookback,
            **self._spaces,
        )


def _stretches(valid_T: np.ndarray) -> Iterator[tuple[int, int]]:
    """The stretches of valid rows, as (start, stop): what lies between two rows in which an episode was reset."""
    edges = np.flatnonzero(np.diff(valid_T.astype(np.int8), prepend=0, append=0))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
