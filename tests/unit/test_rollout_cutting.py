"""Episodes cut from arrays, against a twin that builds them step by step, as RLlib's runner does."""

from typing import Any

import gymnasium as gym
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from rayground.rollouts.cutting import EpisodeCutter
from rayground.rollouts.rollout import Rollout

OBSERVED, ACTED = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32), gym.spaces.Discrete(100)
Rows = list[tuple[bool, bool, bool]]


def rows_of(lengths: list[int], num_rows: int) -> Rows:
    """(valid, terminated, truncated) of one sub-environment: odd episodes terminate, even ones are truncated."""
    rows: Rows = []
    for number, length in enumerate(lengths):
        rows += [(True, False, False)] * (length - 1) + [(True, number % 2 == 1, number % 2 == 0)]
        rows.append((False, False, False))
    return (rows + [(True, False, False)] * num_rows)[:num_rows]


def rollout_of(lanes: list[Rows], start: int, stop: int) -> Rollout:
    """Rows ``start`` to ``stop``; every number in it says where it is from."""
    flags = np.array([lane[start:stop] for lane in lanes]).transpose(1, 0, 2)
    where = np.arange(start, stop + 1)[:, None] + 1_000.0 * np.arange(len(lanes))
    return Rollout(
        obs=np.stack([where, where + 0.5], axis=-1).astype(np.float32),
        actions=where[:-1].astype(np.int64) % 100,
        rewards=where[:-1].astype(np.float32),
        terminated=flags[..., 1],
        truncated=flags[..., 2],
        valid=flags[..., 0],
        extras={"logp": -where[:-1]},
        fresh=start == 0,
    )


def test_what_is_not_finite_is_found_where_it_is():
    rollout = rollout_of([rows_of([5], 4)] * 3, 0, 4)
    assert rollout.not_finite() is None
    rollout.obs[2, 1, 1] = np.inf
    assert rollout.not_finite() == "runner 0: the observation of sub-environment 1 is inf at [1]"
    rollout.runner, rollout.rewards[3, 2] = 4, np.nan
    assert rollout.not_finite() == "runner 4: the reward of sub-environment 2 is nan"


def infos_of(rollout: Rollout) -> list[list[dict[str, Any]]]:
    return [[{"at": float(obs[0])} for obs in row] for row in rollout.obs]


class Twin:
    """RLlib's own steps, in ``SingleAgentEnvRunner._sample``."""

    def __init__(self, num_lanes: int, lookback: int) -> None:
        self.lookback = lookback
        self.ongoing = [self.new() for _ in range(num_lanes)]

    def new(self) -> SingleAgentEpisode:
        return SingleAgentEpisode(observation_space=OBSERVED, action_space=ACTED)

    def cut(self, rollout: Rollout, infos: list[list[dict[str, Any]]]) -> list[SingleAgentEpisode]:
        done = []
        if rollout.fresh:
            for lane, episode in enumerate(self.ongoing):
                episode.add_env_reset(rollout.obs[0, lane], infos[0][lane])
        for t in range(len(rollout.rewards)):
            for lane, episode in enumerate(self.ongoing):
                if not episode.is_reset:
                    episode.add_env_reset(rollout.obs[t + 1, lane], infos[t + 1][lane])
                    continue
                episode.add_env_step(
                    rollout.obs[t + 1, lane],
                    rollout.actions[t, lane],
                    rollout.rewards[t, lane],
                    infos[t + 1][lane],
                    terminated=bool(rollout.terminated[t, lane]),
                    truncated=bool(rollout.truncated[t, lane]),
                    extra_model_outputs={"logp": rollout.extras["logp"][t, lane]},
                )
                if episode.is_done:
                    done.append(episode.to_numpy())
                    self.ongoing[lane] = self.new()
        after = [episode.cut(len_lookback_buffer=self.lookback) for episode in self.ongoing]
        chunks, self.ongoing = self.ongoing, after
        return done + [episode.to_numpy() for episode in chunks if len(episode)]


def described(episode: SingleAgentEpisode) -> dict[str, Any]:
    """All there is of an episode but its id, with the lookback."""
    return {
        "len": len(episode),
        "t": (episode.t_started, episode.t),
        "ended": (episode.is_terminated, episode.is_truncated),
        "observations": (episode.observations.data.tolist(), episode.observations.lookback),
        "actions": (episode.actions.data.tolist(), episode.actions.lookback),
        "rewards": (episode.rewards.data.tolist(), episode.rewards.lookback),
        "logp": (episode.extra_model_outputs["logp"].data.tolist(), episode.extra_model_outputs["logp"].lookback),
        "infos": (episode.infos.data, episode.infos.lookback),
        "numpy": episode.is_numpy,
    }


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.lists(st.integers(1, 6), max_size=4), min_size=1, max_size=3),
    fragments=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    lookback=st.integers(0, 1),
)
def test_chunks_are_those_of_rllibs_runner(lengths: list[list[int]], fragments: list[int], lookback: int) -> None:
    lanes = [rows_of(of_lane, sum(fragments)) for of_lane in lengths]
    cutter, twin = EpisodeCutter(OBSERVED, ACTED, lookback=lookback), Twin(len(lanes), lookback)
    ids: list[tuple[str, str]] = []
    for fragment, stop in zip(fragments, np.cumsum(fragments).tolist(), strict=True):
        rollout = rollout_of(lanes, stop - fragment, stop)
        ours, theirs = cutter.cut(rollout, infos_of(rollout)), twin.cut(rollout, infos_of(rollout))
        assert [described(episode) for episode in ours] == [described(episode) for episode in theirs]
        ids += [(a.id_, b.id_) for a, b in zip(ours, theirs, strict=True)]
        for episode in ours:
            episode.validate()
    assert len(set(ids)) == len({a for a, _ in ids}) == len({b for _, b in ids})  # the same chunks share an id


def test_a_fresh_rollout_continues_nothing() -> None:
    cutter = EpisodeCutter(OBSERVED, ACTED)
    rollout = rollout_of([rows_of([], 3)], 0, 3)
    first, again = (cutter.cut(rollout, infos_of(rollout))[0] for _ in range(2))
    assert first.id_ != again.id_
    assert (again.t_started, again.observations.lookback) == (0, 0)


def test_chunks_share_no_memory_with_the_rollout() -> None:
    rollout = rollout_of([rows_of([], 3)], 0, 3)
    chunk = EpisodeCutter(OBSERVED, ACTED).cut(rollout, infos_of(rollout))[0]
    rollout.obs[:], rollout.actions[:] = 0, 0
    assert chunk.get_observations()[:, 0].tolist() == [0, 1, 2, 3]
    assert chunk.get_actions().tolist() == [0, 1, 2]


def test_lists_where_the_config_asks_for_them() -> None:
    rollout = rollout_of([rows_of([], 3)], 0, 3)
    chunk = EpisodeCutter(OBSERVED, ACTED, to_numpy=False).cut(rollout, infos_of(rollout))[0]
    assert not chunk.is_numpy
    assert isinstance(chunk.observations.data, list)
    chunk.to_numpy()
