"""DQN finds values that are known exactly."""

import numpy as np
import pytest
import torch

from custom_models.q_module import dueling_mlp
from rayground import DQNConfig, SlottedReplay
from rayground.algorithms.dqn import DQN


def trained(env: str, env_steps: int) -> DQN:
    config = (
        DQNConfig()
        .environment(env)
        .env_runners(num_envs_per_env_runner=4)
        .rl_module(rl_module_spec=dueling_mlp(hidden=[32]))
        .training(
            lr=5e-3,
            gamma=0.9,
            n_step=2,
            train_batch_size=32,
            replay=SlottedReplay(capacity=2_000, prioritized=True),
            epsilon=[[0, 1.0], [1_000, 0.2]],
            num_steps_sampled_before_learning_starts=100,
            target_network_update_freq=50,
        )
        .reporting(min_sample_timesteps_per_iteration=500)
        .debugging(seed=1)
    )
    algorithm = config.build_algo()
    while algorithm.env_steps < env_steps:
        algorithm.train()
    return algorithm


def q_values(algorithm: DQN, *observations: float) -> np.ndarray:
    with torch.inference_mode():
        return algorithm.get_policy().model.net(torch.tensor([[x] for x in observations])).numpy()


def test_observation_and_action_together_decide() -> None:
    algorithm = trained("envs:rayground/ObservedChoice-v0", 1_500)
    np.testing.assert_allclose(q_values(algorithm, -1.0, 1.0), [[1.0, -1.0], [-1.0, 1.0]], atol=0.1)
    policy = algorithm.get_policy()
    assert [policy.compute_single_action(np.array([x], np.float32)) for x in (-1, 1)] == [0, 1]
    assert algorithm.evaluate()["env_runners"]["episode_return_mean"] == 1.0
    algorithm.stop()


@pytest.mark.parametrize(("env", "terminates"), [("TimeLimited-v0", False), ("TwoStepDelay-v0", True)])
def test_truncation_is_bootstrapped_and_termination_is_not(env: str, terminates: bool) -> None:
    algorithm = trained(f"envs:rayground/{env}", 2_500)
    if terminates:
        np.testing.assert_allclose(q_values(algorithm, 0.0, 1.0), [[0.9, 0.9], [1.0, 1.0]], atol=0.1)
    else:
        assert q_values(algorithm, 0.0) == pytest.approx(10.0, abs=0.7)
    algorithm.stop()
