"""RLlib's stock DQN and PPO train with our specs: nothing in the modules depends on our own algorithms."""

import gymnasium as gym
import numpy as np
import pytest
import ray
import torch
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig

from custom_models.actor_critic_module import actor_critic_mlp
from custom_models.nets import DuelingMLP
from custom_models.q_module import QModule, dueling_mlp


@pytest.fixture(scope="module", autouse=True)
def _ray():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def trained(_ray):
    """One iteration with prioritized replay and double Q, on a local and a remote runner's module."""
    config = (
        DQNConfig()
        .environment("CartPole-v1")
        .rl_module(rl_module_spec=dueling_mlp(hidden=(16,)))
        .env_runners(num_env_runners=1, rollout_fragment_length=8)
        .training(
            train_batch_size=16,
            num_steps_sampled_before_learning_starts=16,
            epsilon=[[0, 1.0], [1000, 0.05]],
            target_network_update_freq=8,
        )
        .reporting(min_sample_timesteps_per_iteration=64, min_time_s_per_iteration=0)
        .debugging(log_sys_usage=False)
    )
    algorithm = config.build_algo()
    before = {k: v.clone() for k, v in _learner_module(algorithm).state_dict().items()}
    result = algorithm.train()
    yield algorithm, before, result
    algorithm.stop()


def _learner_module(algorithm) -> QModule:
    return algorithm.learner_group._learner.module["default_policy"]


def test_the_learner_trains_the_net_and_moves_the_target(trained):
    algorithm, before, result = trained
    after = _learner_module(algorithm).state_dict()
    assert result["learners"]["default_policy"]["qf_loss"] > 0
    assert after.keys() == before.keys()
    assert all(not torch.equal(after[key], before[key]) for key in after)


def test_the_remote_runner_builds_the_same_net(trained):
    algorithm, _, _ = trained
    [(name, kwargs, has_target)] = algorithm.env_runner_group.foreach_env_runner(
        lambda r: (type(r.module.net).__name__, r.module.model_config["net_kwargs"], hasattr(r.module, "target_net")),
        local_env_runner=False,
    )
    assert (name, kwargs["hidden"], has_target) == ("DuelingMLP", [16], False)


def test_the_config_keeps_the_net_class(trained):
    algorithm, _, _ = trained
    config = type(algorithm.config).from_state(algorithm.config.get_state())
    spec = config.get_rl_module_spec(env=gym.make("CartPole-v1"))
    assert spec.model_config["net"] is DuelingMLP
    assert spec.model_config["double_q"] is True


class Pairs(gym.Env):
    """One step; the reward is the first of two sub-actions."""

    observation_space = gym.spaces.MultiDiscrete([2, 3])
    action_space = gym.spaces.MultiDiscrete([2, 3])

    def __init__(self, config=None):
        pass

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.array([1, 2]), {}

    def step(self, action):
        return np.array([0, 0]), float(action[0]), True, False, {}


@pytest.mark.parametrize(("env", "normalize", "shared"), [("Pendulum-v1", True, False), (Pairs, False, True)])
def test_stock_ppo_trains_the_actor_critic_module(env, normalize, shared):
    config = (
        PPOConfig()
        .environment(env)
        .rl_module(rl_module_spec=actor_critic_mlp(hidden=(8,), shared=shared, normalize_observations=normalize))
        .env_runners(num_env_runners=0, rollout_fragment_length=32)
        .training(train_batch_size_per_learner=32, minibatch_size=16, num_epochs=1, vf_clip_param=float("inf"))
        .debugging(log_sys_usage=False)
    )
    algorithm = config.build_algo()
    before = {name: value.detach().clone() for name, value in _learner_module(algorithm).named_parameters()}
    result = algorithm.train()
    learner, runner = _learner_module(algorithm), algorithm.env_runner.module
    assert np.isfinite(result["learners"]["default_policy"]["total_loss"])
    assert all(not torch.equal(value, before[name]) for name, value in learner.named_parameters())
    assert not hasattr(runner.net, "value_head")
    state = learner.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in runner.state_dict().items())
    algorithm.stop()
