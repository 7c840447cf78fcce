"""Rayground: reinforcement-learning experiments on Ray RLlib.

>>> from rayground import DQNConfig, Experiment, Stop
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rayground.algorithms.a2c import A2C, A2CConfig
    from rayground.algorithms.a3c import A3C, A3CConfig
    from rayground.algorithms.dqn import DQN, DQNConfig
    from rayground.algorithms.gan import GAN, GANConfig
    from rayground.algorithms.ppo import PPO, PPOConfig
    from rayground.experiment import CheckpointRule, Experiment
    from rayground.replay import SlottedReplay, Transition
    from rayground.run import Run, load
    from rayground.stop import Stop

_HOME = {
    "A2C": "rayground.algorithms.a2c",
    "A2CConfig": "rayground.algorithms.a2c",
    "A3C": "rayground.algorithms.a3c",
    "A3CConfig": "rayground.algorithms.a3c",
    "DQN": "rayground.algorithms.dqn",
    "DQNConfig": "rayground.algorithms.dqn",
    "GAN": "rayground.algorithms.gan",
    "GANConfig": "rayground.algorithms.gan",
    "PPO": "rayground.algorithms.ppo",
    "PPOConfig": "rayground.algorithms.ppo",
    "CheckpointRule": "rayground.experiment",
    "Experiment": "rayground.experiment",
    "SlottedReplay": "rayground.replay",
    "Transition": "rayground.replay",
    "Run": "rayground.run",
    "load": "rayground.run",
    "Stop": "rayground.stop",
}

__all__ = [
    "A2C",
    "A3C",
    "DQN",
    "GAN",
    "PPO",
    "A2CConfig",
    "A3CConfig",
    "CheckpointRule",
    "DQNConfig",
    "Experiment",
    "GANConfig",
    "PPOConfig",
    "Run",
    "SlottedReplay",
    "Stop",
    "Transition",
    "load",
]


def __getattr__(name: str) -> Any:
    """Imports what is asked for when it is asked for: an exported policy must load where Ray cannot."""
    if name not in _HOME:
        raise AttributeError(f"module 'rayground' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
