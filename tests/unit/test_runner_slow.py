"""The slow path does what the fast one does, and what only it can do."""

import logging
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from counting import Identity, config, make_counting, sample
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns

from rayground import DQNConfig
from rayground.replay import SlottedReplay
from rayground.rollouts.failures import RunnerFailure
from rayground.rollouts.fast import FastSampling
from rayground.rollouts.runner import ArrayEnvRunner
from rayground.rollouts.slow import SlowSampling

ARRAYS = ("obs", "actions", "rewards", "terminated", "truncated", "valid")


class Doubles(ConnectorV2):
    """The module sees twice what the environment gave."""

    def __call__(self, *, batch: Any, episodes: Any, **kwargs: Any) -> Any:
        for episode in self.single_agent_episode_iterator(episodes):
            self.add_batch_item(batch, Columns.OBS, 2 * episode.get_observations(-1), single_agent_episode=episode)
        return batch


def slow(made: DQNConfig, connector: Any = Identity) -> ArrayEnvRunner:
    made.env_runners(env_to_module_connector=lambda env, spaces, device: connector())
    made.validate()
    return ArrayEnvRunner(config=made, worker_index=0)


@pytest.mark.parametrize("env", ["CartPole-v1", "MountainCar-v0"])
def test_greedy_rollouts_are_those_of_the_fast_path(env: str) -> None:
    fast = ArrayEnvRunner(config=config(env, envs=3, epsilon=0.0), worker_index=0)
    through = slow(config(env, envs=3, epsilon=0.0))
    assert (type(fast.sampling), type(through.sampling)) == (FastSampling, SlowSampling)
    through.module.load_state_dict(fast.module.state_dict())
    for num_steps in (40, 1, 170):
        a, b = sample(fast, num_steps), sample(through, num_steps)
        for name in ARRAYS:
            assert np.array_equal(getattr(a, name), getattr(b, name)), name
            assert getattr(a, name).dtype == getattr(b, name).dtype
        assert a.episodes == b.episodes
        assert a.fresh == b.fresh
        assert a.seconds.keys() == b.seconds.keys()
    assert fast.evaluate(4, seed=3) == through.evaluate(4, seed=3)


def test_a_snapshot_goes_on_in_the_middle_of_an_episode() -> None:
    through = slow(config("CartPole-v1", epsilon=0.0))
    sample(through, 5)
    data = through.get_episodes()
    expected = sample(through, 20)
    assert data is not None
    assert through.set_episodes(data)
    again = sample(through, 20)
    assert all(np.array_equal(getattr(expected, name), getattr(again, name)) for name in ARRAYS)


def test_observations_are_what_the_module_saw() -> None:
    through = slow(config(make_counting, length=3), Doubles)
    rollout = sample(through, 5)
    assert rollout.obs[:, 0, 0].tolist() == [0, 2, 4, 6, 0, 2]
    assert rollout.valid[:, 0].tolist() == [True, True, True, False, True]
    assert through._ongoing_episodes[0].get_observations()[:][-1][0] == 1  # the episode holds what the environment gave


class Watches(RLlibCallback):
    calls: list[tuple[str, int]] = []

    def on_episode_created(self, *, episode: Any, **kwargs: Any) -> None:
        self.calls.append(("created", len(episode)))

    def on_episode_start(self, *, episode: Any, **kwargs: Any) -> None:
        self.calls.append(("start", len(episode)))

    def on_episode_step(self, *, episode: Any, **kwargs: Any) -> None:
        self.calls.append(("step", len(episode)))
        episode.custom_data["largest"] = episode.get_infos(-1)["count"]

    def on_episode_end(self, *, episode: Any, **kwargs: Any) -> None:
        self.calls.append(("end", len(episode)))


def test_per_step_callbacks_are_called_and_their_numbers_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    Watches.calls.clear()
    made = config(make_counting, envs=1, length=2)
    made.callbacks(Watches)
    with caplog.at_level(logging.WARNING, "rayground"):
        runner = ArrayEnvRunner(config=made, worker_index=0)
    assert [record.message for record in caplog.records] == [
        "sampling takes RLlib's slow path because of the callback on_episode_created()"
    ]
    records = [record for _ in range(2) for record in sample(runner, 2).episodes]
    of_first = [("created", 0), ("start", 0), ("step", 1), ("step", 2), ("end", 2)]
    assert Watches.calls == [*of_first, *of_first[:3]]
    assert [record.custom for record in records] == [{"largest": 2.0}]


class Samples(RLlibCallback):
    lengths: list[list[tuple[int, int]]] = []

    def on_sample_end(self, *, samples: list[Any], **kwargs: Any) -> None:
        self.lengths.append([(episode.t_started, len(episode)) for episode in samples])


def test_on_sample_end_gets_episodes_and_costs_no_slow_path() -> None:
    Samples.lengths.clear()
    made = config(make_counting, envs=1, length=5)
    made.callbacks(Samples)
    runner = ArrayEnvRunner(config=made, worker_index=0)
    assert isinstance(runner.sampling, FastSampling)
    for _ in range(3):
        sample(runner, 4)
    assert Samples.lengths == [[(0, 4)], [(4, 1), (0, 2)], [(2, 3)]]


class Dicts(gym.ObservationWrapper):
    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.observation_space = gym.spaces.Dict(values=env.observation_space, half=gym.spaces.Discrete(2))

    def observation(self, observation: np.ndarray) -> dict[str, Any]:
        return {"values": observation, "half": int(observation[0] >= 2)}


def test_dict_observations_reach_module_and_replay_flat() -> None:
    made = config(lambda context: Dicts(make_counting(context)), length=3)
    runner = ArrayEnvRunner(config=made, worker_index=0)
    rollout = sample(runner, 4)
    assert rollout.obs.shape == (5, 2, 4)
    assert rollout.obs[:, 0, 0:2].tolist() == [[1, 0], [1, 0], [0, 1], [0, 1], [1, 0]]  # one-hot, keys in order
    assert rollout.obs[:, 0, 2].tolist() == [0, 1, 2, 3, 0]
    space = runner.module.observation_space
    buffer = SlottedReplay(capacity=16).build(space, gym.spaces.Discrete(2), num_lanes=2, n_step=1, gamma=1.0, seed=0)
    buffer.add(rollout, first_lane=0)
    assert set(np.unique(buffer.sample(8, num_batches=1, beta=1.0).obs[..., 2])) <= {0.0, 1.0, 2.0}


def test_observations_that_are_no_array_are_an_error() -> None:
    through = slow(config(make_counting))
    sample(through, 1)
    through._cached_to_module = {Columns.OBS: {"a": through._cached_to_module[Columns.OBS]}}
    failure = through.sample_arrays(1, 0)
    assert isinstance(failure, RunnerFailure)
    assert "env_to_module_connector: expected one array of observations with 2 rows for the module, got dict" in str(
        failure
    )


def test_an_environment_that_raises_is_reported_and_restarts_are_bounded() -> None:
    made = config(make_counting, fail_at=2)
    made.fault_tolerance(restart_failed_sub_environments=True, max_num_env_runner_restarts=2)
    through = slow(made)
    failure = through.sample_arrays(5, 0)
    assert isinstance(failure, RunnerFailure)
    assert failure.error.startswith("the environment raised ZeroDivisionError: the wheel came off (counting.py:")
    assert through._failures_left == 0
