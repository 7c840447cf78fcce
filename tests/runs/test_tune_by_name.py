"""A2C and A3C in Ray Tune by their names; DQN and PPO, whose names are RLlib's, by their classes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import tune
from ray.rllib.algorithms.ppo import PPOConfig as RLlibPPOConfig

from rayground import DQN, PPO, A2CConfig, A3CConfig, DQNConfig, PPOConfig
from rayground.algorithms.a2c import A2C
from rayground.algorithms.a3c import A3C
from rayground.algorithms.config import ArrayConfig
from rayground.errors import InputError
from rayground.rollouts.runner import ArrayEnvRunner


@pytest.fixture(scope="module", autouse=True)
def second_ray() -> Iterator[None]:
    """Tune's own register tells a name only to the first Ray of a process."""
    ray.init(num_cpus=1, include_dashboard=False)
    ray.shutdown()
    ray.init(num_cpus=2, include_dashboard=False)
    yield
    ray.shutdown()


def fit(trainable: Any, config: Any, storage: Path, iterations: int = 2, max_failures: int = 0) -> tune.Result:
    tuner = tune.Tuner(
        trainable,
        param_space=config,
        run_config=tune.RunConfig(
            storage_path=str(storage),
            stop={"training_iteration": iterations},
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
            failure_config=tune.FailureConfig(max_failures=max_failures),
            verbose=0,
        ),
    )
    (result,) = tuner.fit()
    assert result.error is None
    return result


def small(config: ArrayConfig, **env_runners: Any) -> Any:
    config.environment("CartPole-v1").debugging(seed=1).reporting(min_sample_timesteps_per_iteration=40)
    return config.rl_module(model_config={"fcnet_hiddens": [8]}).env_runners(rollout_fragment_length=10, **env_runners)


def test_a2c_by_its_name(tmp_path: Path) -> None:
    config = small(A2CConfig()).training(lr=tune.grid_search([3e-3]), entropy_coeff=0.02)
    result = fit("A2C", config, tmp_path)
    headline = result.metrics["headline"]
    assert headline["learner/lr"] == 3e-3
    assert result.config["entropy_coeff"] == 0.02
    assert headline["env_steps"] >= 80
    algorithm = A2C.from_checkpoint(result.checkpoint.path)
    assert (algorithm.iteration, algorithm.env_steps) == (2, headline["env_steps"])
    assert algorithm.updates == headline["learner/updates"]
    assert algorithm.train()["headline"]["learner/updates"] > headline["learner/updates"]
    algorithm.stop()


def test_a3c_by_its_name_with_a_runner_and_a_failure_that_tune_recovers_from(tmp_path: Path) -> None:
    def fail_once(result: dict[str, Any], **_: Any) -> None:
        if result["training_iteration"] == 2 and not failed.exists():
            failed.write_text(str(result["headline"]["env_steps"]))
            raise RuntimeError("once")
        with seen.open("a") as file:  # Tune's own files of a trial that went on are now and then empty
            print(result["headline"]["env_steps"], file=file)

    failed, seen = tmp_path / "failed", tmp_path / "seen"
    config = small(A3CConfig(), num_env_runners=1, num_cpus_per_env_runner=0.2).callbacks(on_train_result=fail_once)
    two = config.copy(copy_frozen=False).env_runners(num_env_runners=2).to_dict()
    assert A3C.default_resource_request(two).bundles == [{"CPU": 1}, {"CPU": 0.2}, {"CPU": 0.2}]
    result = fit("A3C", config, tmp_path / "results", iterations=3, max_failures=1)
    assert failed.exists()
    assert (result.metrics["training_iteration"], result.metrics["iterations_since_restore"]) == (3, 2)
    headline = result.metrics["headline"]
    assert headline["env_steps"] >= 120
    assert headline["workers/1/share"] == 1
    first, second, third = map(int, seen.read_text().split())
    assert 40 <= first < second < third == headline["env_steps"]


def test_dqn_and_ppo_by_their_classes_which_leave_rllibs_names_alone(tmp_path: Path) -> None:
    assert tune.Experiment.get_trainable_name(PPO) == "rayground.PPO"
    assert tune.Experiment.get_trainable_name(DQN) == "rayground.DQN"
    result = fit(DQN, small(DQNConfig()), tmp_path, iterations=1)
    assert result.metrics["headline"]["env_steps"] >= 40


def test_settings_of_ours_in_an_algorithm_of_rllibs_and_the_other_way_round() -> None:
    ours = PPOConfig().environment("CartPole-v1").training(optimizer={"type": "sgd"})
    named = RLlibPPOConfig().update_from_dict(ours.to_dict())  # what Tune makes of the name "PPO"
    with pytest.raises(InputError, match=r"got RLlib's PPO.*tune.Tuner\(rayground.PPO, "):
        ArrayEnvRunner(config=named, worker_index=0)
    theirs = RLlibPPOConfig().environment("CartPole-v1")
    with pytest.raises(InputError, match="env_runner_cls: expected ArrayEnvRunner or a subclass, got None"):
        PPO.default_resource_request(theirs.to_dict())
