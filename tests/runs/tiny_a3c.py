"""The smallest A3C experiments of the tests: everything on that a checkpoint has to hold, and done in a second."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from custom_models.actor_critic_module import actor_critic_mlp
from rayground import A3CConfig, Experiment, Stop
from rayground.experiment import CheckpointRule
from rayground.learners.a2c import A3CLearner

config = (
    A3CConfig()
    .environment("CartPole-v1")
    .env_runners(num_envs_per_env_runner=2, rollout_fragment_length=5)
    .rl_module(model_config={"fcnet_hiddens": [16]})
    .training(lr=[[0, 3e-3], [1_000, 1e-4]], entropy_coeff=0.02, lambda_=0.9)
    .evaluation(evaluation_interval=0, evaluation_duration=2)
    .reporting(metrics_num_episodes_for_smoothing=5, min_sample_timesteps_per_iteration=100)
)

pendulum_config = (
    config.copy(copy_frozen=False)
    .environment("Pendulum-v1")
    .rl_module(rl_module_spec=actor_critic_mlp(hidden=[8], normalize_observations=True), model_config={})
    .training(optimizer="adam")
)

experiment = Experiment(
    name="tiny_a3c", config=config, stop=Stop(env_steps=400), checkpoints=CheckpointRule(every=1, keep_last=10)
)

pendulum = Experiment(
    name="tiny_a3c", config=pendulum_config, stop=Stop(env_steps=400), checkpoints=CheckpointRule(every=1, keep_last=10)
)

LENGTH = 4
"""Env steps of an episode of :class:`Told`: with the step in which it starts anew, a fragment of 5."""
MARK = 77.0
HELD_AT_MOST_S = 20.0


class Told(gym.Env[np.ndarray, int]):
    """Does what files in the folder ``notes`` tell the runner it is in: ``holds_1`` stops runner 1 until it is gone,
    ``spoils_1`` spoils its losses, ``raises_1`` makes it raise."""

    observation_space = gym.spaces.Box(-100.0, 100.0, (6,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config: Any) -> None:
        self._notes, self._runner = Path(config["notes"]), config.worker_index

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observation(), {}

    def step(self, action: int) -> Any:
        self._steps += 1
        deadline = time.monotonic() + HELD_AT_MOST_S
        while self._is_told("holds"):
            assert time.monotonic() < deadline, "somebody waits for this runner"
            time.sleep(0.01)
        if self._is_told("raises"):
            raise OSError("the sensor went away")
        return self._observation(), float(action), self._steps == LENGTH, False, {}

    def _observation(self) -> np.ndarray:
        observation = self.np_random.uniform(-1, 1, 6).astype(np.float32)
        observation[0] = MARK if self._is_told("spoils") else self._steps
        return observation

    def _is_told(self, what: str) -> bool:
        return (self._notes / f"{what}_{self._runner}").exists()


@contextmanager
def telling(notes: Path, what: str) -> Iterator[None]:
    """Tells a runner something, such as ``holds_1``, for as long as this lasts."""
    (notes / what).touch()
    try:
        yield
    finally:
        (notes / what).unlink()


class Spoilt(A3CLearner):
    """Has a loss that is not a number where a batch holds a marked observation."""

    def compute_loss_for_module(self, **kwargs: Any) -> torch.Tensor:
        is_marked = (kwargs["batch"]["obs"][:, 0] == MARK).any()
        return super().compute_loss_for_module(**kwargs) * torch.where(is_marked, torch.nan, 1.0)


def told(notes: Path, runners: int, parallelism: str, **training: Any) -> A3CConfig:
    """With 2 environments per runner that do as they are told: 8 env steps and 2 episodes an update."""
    return (
        config.copy(copy_frozen=False)
        .environment(Told, env_config={"notes": str(notes)})
        .env_runners(num_env_runners=runners, num_cpus_per_env_runner=0.1)
        .learners(learner_class=Spoilt)
        .training(parallelism=parallelism, **training)
        .debugging(seed=1)
    )


if __name__ == "__main__":
    experiment.main()
