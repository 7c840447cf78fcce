"""Environments, nets and configs that do not fit: exit code 2 and one line, nothing trained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import tiny_dqn
import torch
from ray.rllib.algorithms.dqn import DQNConfig as RLlibDQNConfig
from refusals import Refused, assert_in_order
from torch import nn

from custom_models.q_module import q_module
from rayground import DQNConfig, Experiment


def with_env(env: Any, **env_config: Any) -> Experiment:
    return replace(tiny_dqn.experiment, config=DQNConfig().environment(env, env_config=env_config))


@pytest.mark.parametrize("how", [(), ("--num-seeds", 2), ("--num-env-runners", 2), ("--dry-run",)])
def test_an_unknown_environment(refused: Refused, how: tuple[object, ...]) -> None:
    line = refused(*how, experiment=with_env("CartPol-v1"))
    assert line == "environment CartPol-v1: no such environment is registered; did you mean 'CartPole-v1'?"


def test_no_environment(refused: Refused) -> None:
    assert "has no environment" in refused(experiment=replace(tiny_dqn.experiment, config=DQNConfig()))


class Good(gym.Env[np.ndarray, int]):
    observation_space: Any = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space: Any = gym.spaces.Discrete(2)
    first: Any = np.zeros(2, np.float32)
    later: Any = np.zeros(2, np.float32)
    reward: Any = 1.0

    def __init__(self, config: Any = None) -> None:
        """RLlib gives every environment class its config."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.first, {}

    def step(self, action: Any) -> Any:
        return self.later, self.reward, False, False, {}


class OldReset(Good):
    def reset(self) -> Any:  # type: ignore[override]
        return self.first


class OldStep(Good):
    def step(self, action: Any) -> Any:
        return self.later, 1.0, False, {}


class WrongShape(Good):
    first = np.zeros(3, np.float32)


class NotANumber(Good):
    later = np.array([0.0, np.nan], np.float32)


class OutOfBounds(Good):
    later = np.array([0.0, 1.5], np.float32)


class Float64(Good):
    first = np.zeros(2)


class NoReward(Good):
    reward = float("nan")


class Continuous(Good):
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))


class NoFile(Good):
    def __init__(self, config: Any = None) -> None:
        raise FileNotFoundError("no ROM at /x\nin two lines")


class NoEnv:
    def __init__(self, config: Any = None) -> None:
        """Nothing of an environment."""


@pytest.mark.parametrize(
    ("env", "parts"),
    [
        (OldReset, "reset(): expected seed options got reset()"),
        (OldStep, "step(): expected (observation, reward, terminated, truncated, info) got tuple 4"),
        (WrongShape, "observation reset(): expected float32 [2], got float32 [3]"),
        (NotANumber, "observation step() [1]: expected finite got nan"),
        (OutOfBounds, "observation step() [1]: expected -1.0 to 1.0, got 1.5"),
        (Float64, "observation reset(): expected float32 [2], got float64 [2]"),
        (NoReward, "reward: expected finite got nan"),
        (Continuous, "action_space: expected Discrete got Box"),
        (NoFile, "could not be made: FileNotFoundError: no ROM at /x (test_bad_environments.py:"),
        (NoEnv, "expected gymnasium.Env, got NoEnv"),
    ],
)
def test_an_environment_that_breaks_the_contract(refused: Refused, env: type, parts: str) -> None:
    assert_in_order(refused(experiment=with_env(env)), f"environment {env.__name__} {parts}")


class Net(nn.Module):
    def __init__(self, observation_space: gym.Space, action_space: gym.Space, inputs: int = 2, outputs: int = 2):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.layer(obs)


class Unbuilt(Net):
    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__(observation_space, action_space, inputs=observation_space.n)


@pytest.mark.parametrize("runners", [0, 1])
@pytest.mark.parametrize(
    ("net", "kwargs", "parts"),
    [
        (Net, {"outputs": 4}, "qf_preds expected float32 [2, 2], got float32 [2, 4]"),
        (Net, {"inputs": 3}, "raised RuntimeError: shapes (test_bad_environments.py:"),
        (Net, {"inputs": -1}, "RuntimeError: negative"),
        (Unbuilt, {}, "could not be built: AttributeError: 'n' (test_bad_environments.py:"),
    ],
)
def test_a_net_that_does_not_fit(
    refused: Refused, net: type[nn.Module], kwargs: dict[str, int], parts: str, runners: int
) -> None:
    spec = q_module(net, **kwargs)
    experiment = replace(tiny_dqn.experiment, config=DQNConfig().environment(Good).rl_module(rl_module_spec=spec))
    assert_in_order(refused("--num-env-runners", runners, experiment=experiment), parts)


def test_a_config_of_stock_rllib(refused: Refused) -> None:
    line = refused(experiment=replace(tiny_dqn.experiment, config=RLlibDQNConfig().environment(Good)))
    assert_in_order(line, "config: expected rayground.DQNConfig, got ray.rllib")
