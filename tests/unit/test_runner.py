"""The array runner against RLlib's own runner and against counted steps; no Ray is started."""

from typing import Any

import numpy as np
import pytest
import torch
from counting import config, make_counting, runner, sample
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

from rayground.rollouts.failures import RunnerFailure
from rayground.rollouts.runner import ArrayEnvRunner


@pytest.mark.parametrize("cut", [False, True])
def test_the_contract_across_an_episodes_end(cut: bool) -> None:
    rollout = sample(runner(cut=cut), 6)
    assert rollout.obs[:, 0, 0].tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert rollout.valid[:, 0].tolist() == [True, True, True, False, True, True]
    assert rollout.rewards[rollout.valid[:, 0], 0].tolist() == [1, 2, 3, 1, 2]
    ended = rollout.truncated if cut else rollout.terminated
    assert ended[:, 0].tolist() == [False, False, True, False, False, False]
    assert not (rollout.terminated if cut else rollout.truncated).any()
    assert rollout.num_env_steps == 10
    assert [(r.episode_return, r.length) for r in rollout.episodes] == [(6.0, 3), (6.0, 3)]
    assert rollout.fresh


def test_fragments_continue_each_other() -> None:
    whole = sample(runner(), 9)
    parts = runner()
    torch.manual_seed(0)
    fragments = [sample(parts, 3), sample(parts, 3), sample(parts, 3)]
    assert [fragment.fresh for fragment in fragments] == [True, False, False]
    assert np.array_equal(np.concatenate([f.obs[:-1] for f in fragments])[..., 0], whole.obs[:-1, :, 0])
    assert np.array_equal(fragments[0].obs[-1], fragments[1].obs[0])
    assert sum(len(fragment.episodes) for fragment in fragments) == len(whole.episodes) == 4


def test_sub_environments_and_resets_have_seeds_of_their_own() -> None:
    made = runner(envs=4)
    first, again = sample(made, 1, 0), sample(made, 1, 500, reset=True)
    tags = [*first.obs[0, :, 1], *again.obs[0, :, 1]]
    assert len({float(tag) for tag in tags}) == 8
    assert np.array_equal(sample(runner(envs=4), 1, 500, reset=True).obs[0], again.obs[0])


@pytest.mark.parametrize("env", ["CartPole-v1", "MountainCar-v0"])
def test_greedy_trajectories_equal_rllibs_own(env: str) -> None:
    """CartPole terminates; MountainCar is truncated after 200 steps by an untrained net."""
    made = config(env, envs=2, epsilon=0.0)
    ours = ArrayEnvRunner(config=made, worker_index=0)
    stock = SingleAgentEnvRunner(config=made, worker_index=0)
    stock.module.load_state_dict(ours.module.state_dict())
    ours._env_seeds = lambda seed: stock._seed  # type: ignore[method-assign]
    rollout = sample(ours, 450)
    episodes = stock.sample(num_timesteps=rollout.num_env_steps, explore=False)
    done = [episode for episode in episodes if episode.is_done]
    records = rollout.episodes
    assert len(done) == len(records) >= 2
    assert sorted((e.get_return(), len(e)) for e in done) == sorted((r.episode_return, r.length) for r in records)
    for i in range(2):
        ends = np.flatnonzero((rollout.terminated | rollout.truncated)[:, i])
        obs, actions = rollout.obs[: ends[0] + 2, i], rollout.actions[: ends[0] + 1, i]
        same = [e for e in done if len(e) == len(actions) and np.array_equal(e.get_observations(), obs)]
        assert same, f"no episode of RLlib's has the observations of sub-environment {i}"
        assert np.array_equal(same[0].get_actions(), actions)
        assert same[0].is_truncated == rollout.truncated[ends[0], i]


def test_epsilon_moves_within_a_fragment() -> None:
    made = config(make_counting, envs=2, length=1_000)
    made.training(epsilon=[[0, 1.0], [20, 0.0]])
    seen: list[int] = []
    ours = ArrayEnvRunner(config=made, worker_index=0)
    explore = ours.module.forward_exploration
    ours.module.forward_exploration = lambda batch, t: seen.append(t) or explore(batch, t=t)
    sample(ours, 5, 100)
    assert seen == [100, 102, 104, 106, 108]


def test_an_evaluation_plays_exactly_as_many_episodes_and_disturbs_nothing() -> None:
    made = runner(envs=3, length=4)
    records = made.evaluate(7, seed=1)
    assert isinstance(records, list)
    assert [(record.episode_return, record.length) for record in records] == [(10.0, 4)] * 7
    assert sample(made, 1).fresh


def test_the_same_seed_gives_the_same_evaluation() -> None:
    made = ArrayEnvRunner(config=config("CartPole-v1"), worker_index=0)
    lengths = [[r.length for r in made.evaluate(6, seed=seed)] for seed in (3, 3, 4)]  # type: ignore[union-attr]
    assert lengths[0] == lengths[1] != lengths[2]


def test_an_environment_that_raises_is_reported_with_its_own_traceback() -> None:
    failure = runner(fail_at=2).sample_arrays(5, 0)
    assert isinstance(failure, RunnerFailure)
    assert failure.error.startswith("the environment raised ZeroDivisionError: the wheel came off (counting.py:")
    assert "counting.py" in failure.traceback


def test_restarts_are_bounded() -> None:
    made = config(make_counting, fail_at=2)
    made.fault_tolerance(restart_failed_sub_environments=True, max_num_env_runner_restarts=2)
    ours = ArrayEnvRunner(config=made, worker_index=0)
    builds: list[int] = []
    make = ours.make_env
    ours.make_env = lambda: builds.append(1) or make()  # type: ignore[method-assign]
    assert isinstance(ours.sample_arrays(5, 0), RunnerFailure)
    assert len(builds) == 2


class PutsTheLastCount(RLlibCallback):
    def on_episode_start(self, *, episode: Any, **kwargs: Any) -> None:
        episode.custom_data["started_at"] = float(episode.get_observations(0)[0])

    def on_episode_end(self, *, episode: Any, prev_episode_chunks: list, **kwargs: Any) -> None:
        assert prev_episode_chunks == []
        episode.custom_data["last"] = episode.get_infos(-1)["count"]
        episode.custom_data["rewards"] = sum(episode.get_rewards())
        episode.custom_data["name"] = "not a number"


def test_callbacks_get_whole_episodes_and_their_numbers_are_kept() -> None:
    made = config(make_counting, length=5)
    made.callbacks(PutsTheLastCount)
    ours = ArrayEnvRunner(config=made, worker_index=0)
    records = [record for _ in range(4) for record in sample(ours, 3).episodes]
    assert len(records) == 4
    assert all(record.custom == {"started_at": 0.0, "last": 5.0, "rewards": 15.0} for record in records)
