"""Observations and actions of every kind of space arrive as they were given."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchMultiCategorical
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.utils.spaces.space_utils import clip_action, unsquash_action

from rayground.rollouts.rollout import Rollout
from rayground.rollouts.runner import ArrayEnvRunner


class Records(gym.Env):
    """Keeps what it gave and what it was told."""

    def __init__(self, observation_space: gym.Space, action_space: gym.Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.given: list[Any] = []
        self.told: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.told.append(np.array(action))
        return self.observe(), 1.0, len(self.told) % 4 == 0, False, {}

    def observe(self) -> Any:
        self.given.append(self.observation_space.sample())
        return self.given[-1]


class Blind(TorchRLModule):
    """The same distribution whatever it sees; it insists on what it sees."""

    def setup(self) -> None:
        space = self.action_space
        if isinstance(space, MultiDiscrete):
            sizes = space.nvec.tolist()
            self.action_dist_cls = TorchMultiCategorical.get_partial_dist_cls(space=space, input_lens=sizes)
        self.num_inputs = self.get_inference_action_dist_cls().required_input_dim(space=space)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        obs = batch[Columns.OBS]
        assert obs.shape[1:] == self.observation_space.shape
        assert obs.dtype != torch.float64
        return {Columns.ACTION_DIST_INPUTS: torch.ones(len(obs), self.num_inputs)}


def sampled(observed: gym.Space, acted: gym.Space, **how: Any) -> tuple[Rollout, list[Records]]:
    envs: list[Records] = []
    config = (
        PPOConfig()
        .environment(lambda context: envs.append(Records(observed, acted)) or envs[-1])
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=Blind))
        .debugging(seed=3)
    )
    config.normalize_actions, config.clip_actions = how.get("normalize", True), how.get("clip", False)
    rollout = ArrayEnvRunner(config=config, worker_index=0).sample_arrays(7, 0)
    assert isinstance(rollout, Rollout), rollout.traceback
    return rollout, envs[-2:]


@pytest.mark.parametrize("acted", [Discrete(3), MultiDiscrete([2, 3])])
@pytest.mark.parametrize(
    "observed",
    [
        Box(-1.0, 1.0, (2, 3)),
        Box(-1.0, 1.0, (2,), np.float64),
        Box(0, 255, (4, 4, 1), np.uint8),
        Discrete(5),
        MultiDiscrete([2, 3]),
        MultiBinary(3),
    ],
)
def test_observations_and_whole_numbers(observed: gym.Space, acted: gym.Space) -> None:
    rollout, envs = sampled(observed, acted)
    assert rollout.obs.dtype == (np.float32 if observed.dtype == np.float64 else observed.dtype)
    for i, env in enumerate(envs):
        assert np.array_equal(rollout.obs[:, i], np.array(env.given, rollout.obs.dtype))
        assert np.array_equal(rollout.actions[rollout.valid[:, i], i], env.told)
        assert all(acted.contains(action) for action in env.told)
    assert rollout.actions.dtype == acted.dtype


@pytest.mark.parametrize(("normalize", "clip"), [(True, False), (False, True), (False, False)])
def test_real_numbers_are_normalized_or_clipped_on_their_way(normalize: bool, clip: bool) -> None:
    space = Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 5.0], np.float32))
    rollout, envs = sampled(Box(-1.0, 1.0, (1,)), space, normalize=normalize, clip=clip)
    assert rollout.actions.dtype == np.float32
    assert (np.abs(rollout.actions - 1.0) > 1.0).any()  # mean 1, standard deviation e
    for i, env in enumerate(envs):
        policys = rollout.actions[rollout.valid[:, i], i]
        way = unsquash_action if normalize else clip_action if clip else lambda action, space: action
        assert np.array_equal(env.told, [way(action, space) for action in policys])
