"""An environment that counts, and runners of it, for the tests of rollouts."""

from typing import Any

import gymnasium as gym
import numpy as np
from ray.rllib.connectors.connector_v2 import ConnectorV2

from custom_models.q_module import plain_mlp
from rayground import DQNConfig
from rayground.rollouts.rollout import Rollout
from rayground.rollouts.runner import ArrayEnvRunner


class Identity(ConnectorV2):
    """A connector that changes nothing: it takes a runner onto RLlib's slow path."""

    def __call__(self, *, batch: Any, **kwargs: Any) -> Any:
        return batch


class Counting(gym.Env):
    """Observes its own step count; ends after `length` steps: terminates, or is truncated if `cut`."""

    def __init__(self, length: int = 3, cut: bool = False, fail_at: int | None = None) -> None:
        self.observation_space = gym.spaces.Box(-1.0, 100.0, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.length, self.cut, self.fail_at = length, cut, fail_at

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.count, self.tag = 0, self.np_random.uniform()
        return self.observe(), {}

    def observe(self) -> np.ndarray:
        return np.array([self.count, self.tag], np.float32)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.count += 1
        if self.count == self.fail_at:
            raise ZeroDivisionError("the wheel came off")
        over = self.count == self.length
        return self.observe(), float(self.count), over and not self.cut, over and self.cut, {"count": self.count}


def config(env: Any, *, envs: int = 2, epsilon: float = 1.0, **env_config: Any) -> DQNConfig:
    made = DQNConfig().environment(env, env_config=env_config).env_runners(num_envs_per_env_runner=envs)
    made.training(epsilon=epsilon).rl_module(rl_module_spec=plain_mlp(hidden=[8])).debugging(seed=5)
    made.validate()
    return made


def make_counting(context: dict[str, Any]) -> gym.Env:
    return Counting(**{key: context[key] for key in ("length", "cut", "fail_at") if key in context})


def runner(env: Any = make_counting, **kwargs: Any) -> ArrayEnvRunner:
    return ArrayEnvRunner(config=config(env, **kwargs), worker_index=0)


def sample(made: ArrayEnvRunner, num_steps: int, env_steps: int = 0, **kwargs: Any) -> Rollout:
    rollout = made.sample_arrays(num_steps, env_steps, **kwargs)
    assert isinstance(rollout, Rollout), rollout.traceback
    return rollout
