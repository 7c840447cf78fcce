"""Our algorithms where only RLlib's slow path will do: Dict observations, connectors, a callback per step."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import tiny_ppo
from conftest import Build
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.connectors.connector_v2 import ConnectorV2
from snapshots import untimed

from rayground import DQNConfig, Experiment, Stop


class Named(gym.ObservationWrapper):
    """CartPole that names what it observes."""

    def __init__(self, config: Any = None) -> None:
        super().__init__(gym.make("CartPole-v1"))
        space = self.env.observation_space
        self.observation_space = gym.spaces.Dict(
            cart=gym.spaces.Box(space.low[:2], space.high[:2]), pole=gym.spaces.Box(space.low[2:], space.high[2:])
        )

    def observation(self, observation: np.ndarray) -> dict[str, np.ndarray]:
        return {"cart": observation[:2], "pole": observation[2:]}


class Steps(RLlibCallback):
    def on_episode_step(self, *, episode: Any, **kwargs: Any) -> None:
        episode.custom_data["steps"] = episode.custom_data.get("steps", 0) + 1


class Logged(RLlibCallback):
    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **kwargs: Any) -> None:
        metrics_logger.log_value(("seen", "steps"), len(episode), reduce="sum")


class Same(ConnectorV2):
    def __call__(self, *, batch: Any, **kwargs: Any) -> Any:
        return batch


def slow(config: DQNConfig) -> None:
    config.environment(Named).callbacks(Steps)


def train(algorithm: Any, iterations: int) -> list[dict[str, Any]]:
    return [untimed(algorithm.train()["headline"]) for _ in range(iterations)]


def test_dict_observations_and_a_callback_per_step(build: Build) -> None:
    algorithm = build(change=slow)
    rows = train(algorithm, 3)
    assert algorithm.observation_space.shape == (4,)
    assert rows[-1]["learner/updates"] > 0
    assert rows[-1]["custom/steps"] == rows[-1]["episode_len_mean"] > 8
    evaluated = algorithm.evaluate()["env_runners"]
    assert evaluated["custom/steps"] == evaluated["episode_len_mean"]


def test_a_run_that_is_evaluated_has_the_evaluations_metrics_and_no_others(tmp_path: Path) -> None:
    config = tiny_ppo.config.copy(copy_frozen=False)
    config.environment(Named).callbacks(Logged).evaluation(evaluation_interval=1)
    frame = Experiment(name="slow", config=config, stop=Stop(env_steps=200)).train(seed=1, storage=tmp_path).frame
    names = {name.removeprefix("evaluation/") for name in frame if name.startswith("evaluation/")}
    headline = {"episode_return_mean", "episode_return_min", "episode_return_max", "episode_len_mean"}
    assert names == {*headline, "num_episodes", "seen/steps"}
    assert frame["evaluation/seen/steps"].tolist() == (2 * frame["evaluation/episode_len_mean"]).tolist()


def through_a_connector(config: DQNConfig) -> None:
    config.env_runners(env_to_module_connector=lambda env, spaces, device: Same())


def test_it_is_the_same_run_as_on_the_fast_path(build: Build) -> None:
    rows, weights = [], []
    for change in (lambda config: None, through_a_connector):
        algorithm = build(change=change)
        rows.append(train(algorithm, 3))
        weights.append(algorithm.get_policy().get_weights())
    assert rows[0] == rows[1]
    assert all(np.array_equal(value, weights[1][name]) for name, value in weights[0].items())


def test_a_resumed_run_is_the_uninterrupted_one(build: Build, tmp_path: Path) -> None:
    whole = train(build(change=slow), 4)
    stopped = build(change=slow)
    train(stopped, 2)
    stopped.save(tmp_path / "checkpoint")
    resumed = build(change=slow)
    resumed.restore(tmp_path / "checkpoint")
    assert train(resumed, 2) == whole[2:]


def test_with_a_remote_runner(one_ray: None, build: Build) -> None:
    def remote(config: DQNConfig) -> None:
        slow(config)
        config.env_runners(num_env_runners=1)

    rows = train(build(change=remote), 2)
    assert rows[-1]["custom/steps"] == rows[-1]["episode_len_mean"] > 8
