"""Rayground: reinforcement-learning experiments on Ray RLlib.

>>> from rayground import DQNConfig, Experiment, Stop
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rayground.algorithms.dqn import DQN, DQNConfig
    from rayground.algorithms.ppo import PPO, PPOConfig
    from rayground.experiment import CheckpointRule, Experiment
    from rayground.replay import SlottedReplay, Transition
    from rayground.run import Run, load
    from rayground.stop import Stop

_HOME = {
    "DQN": "rayground.algorithms.dqn",
    "DQNConfig": "rayground.algorithms.dqn",
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
    "DQN",
    "PPO",
    "CheckpointRule",
    "DQNConfig",
    "Experiment",
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
