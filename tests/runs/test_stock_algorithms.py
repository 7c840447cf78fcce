"""RLlib's own algorithms on the array runner: they learn, are evaluated, and their weights arrive."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig

from rayground import quiet
from rayground.rollouts.runner import ArrayEnvRunner

pytestmark = pytest.mark.usefixtures("one_ray")

Start = Callable[..., Algorithm]


@pytest.fixture
def start() -> Iterator[Start]:
    """Builds an algorithm of RLlib's with our runner, and ends it."""
    built: list[Algorithm] = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as our own algorithms do; several wait for each other on busy cores

    def build(config: AlgorithmConfig, env: str, runners: int, **how: Any) -> Algorithm:
        quiet.after_import()
        config.environment(env).debugging(seed=1, log_level="ERROR")
        config.env_runners(env_runner_cls=ArrayEnvRunner, num_env_runners=runners, **how)
        built.append(config.build_algo())
        return built[-1]

    yield build
    for algorithm in built:
        algorithm.stop()
    torch.set_num_threads(threads)


def ppo() -> PPOConfig:
    return PPOConfig().training(
        lr=1e-3, train_batch_size=1_000, minibatch_size=125, num_epochs=8, vf_loss_coeff=0.01, entropy_coeff=0.0
    )


def test_ppo_learns_cartpole(start: Start) -> None:
    algorithm = start(ppo(), "CartPole-v1", runners=0, num_envs_per_env_runner=8)
    means = (algorithm.train()["env_runners"]["episode_return_mean"] for _ in range(20))
    assert any(mean > 150 for mean in means)


def test_ppo_with_a_remote_runner_is_evaluated_and_its_weights_arrive(start: Start) -> None:
    config = ppo().evaluation(evaluation_interval=1, evaluation_duration=3)
    algorithm = start(config, "CartPole-v1", runners=1, num_envs_per_env_runner=4)
    for iteration in range(2):
        result = algorithm.train()
        assert result["num_env_steps_sampled_lifetime"] >= 1_000 * (iteration + 1)
        assert result["evaluation"]["env_runners"]["num_episodes"] == 3
        assert 8 <= result["evaluation"]["env_runners"]["episode_return_mean"] <= 500
    learnt = algorithm.learner_group.get_weights()["default_policy"]
    (acting,) = algorithm.env_runner_group.foreach_env_runner(
        lambda runner: runner.module.get_state(), local_env_runner=False
    )
    assert acting
    assert all(np.array_equal(value, learnt[name]) for name, value in acting.items())


@pytest.mark.parametrize(
    ("config", "env", "runners"), [(SACConfig(), "Pendulum-v1", 0), (DQNConfig(), "CartPole-v1", 1)]
)
def test_replaying_algorithms_learn_from_the_episodes(
    start: Start, config: AlgorithmConfig, env: str, runners: int
) -> None:
    config.training(num_steps_sampled_before_learning_starts=100, train_batch_size=32)
    config.reporting(min_sample_timesteps_per_iteration=220, min_time_s_per_iteration=0)
    algorithm = start(config, env, runners, num_envs_per_env_runner=2, rollout_fragment_length=10)
    result = algorithm.train()
    learnt = result["learners"]["default_policy"]
    assert all(np.isfinite(value) for name, value in learnt.items() if name.endswith("loss"))
    assert learnt["weights_seq_no"] > 3
    assert algorithm.local_replay_buffer.get_num_timesteps() == result["num_env_steps_sampled_lifetime"] >= 220
