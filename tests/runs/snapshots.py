"""What the tests compare of algorithms and of result rows."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from rayground.algorithms.dqn import DQN

TIMES = {"time_s", "env_steps_per_s"}


def untimed(row: dict[str, Any]) -> dict[str, Any]:
    """A row without times and speeds, and without RLlib's own names, most of which are times."""
    return {key: value for key, value in row.items() if key not in TIMES and not key.startswith("rllib/")}


def everything(algorithm: DQN) -> dict[str, Any]:
    """All that decides how training goes on, by name, as values that ``==`` compares exactly."""
    replay_values, replay_arrays = algorithm.replay.get_state()
    step = algorithm.env_steps
    runner = algorithm.runners.local
    return {
        "replay transitions": [_exact(t) for t in algorithm.replay],
        "replay write positions": (replay_values["heads"], replay_values["waiting"]),
        "replay rng": replay_values["rng"],
        "replay priorities": (_bytes(replay_arrays.get("priorities")), replay_values.get("priorities")),
        "weights": _all_bytes(algorithm.learner.module_arrays()),
        "runner's weights": _all_bytes(runner.module.state_dict()) if runner else None,
        "optimizer": _all_bytes(algorithm.learner.optimizer_arrays()),
        "env steps": step,
        "iteration": algorithm.iteration,
        "time": algorithm._time_total,
        "update clock": algorithm.updates.get_state(),
        "target updates": algorithm.learner.num_target_updates,
        "episodes": algorithm.episodes.headline(),
        "schedules": (algorithm.learner.learning_rate(step), algorithm._epsilon(step), algorithm._beta(step)),
        "python rng": random.getstate(),
        "numpy rng": tuple(map(_bytes, np.random.get_state())),  # noqa: NPY002 - libraries draw from this one
        "torch rng": _bytes(torch.get_rng_state()),
    }


def differing(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """The names under which two of :func:`everything` differ."""
    return [name for name in a if a[name] != b[name]]


def _exact(t: Any) -> tuple[Any, ...]:
    return _bytes(t.obs), int(t.action), t.reward, _bytes(t.next_obs), t.terminated, t.truncated


def _all_bytes(arrays: dict[str, Any]) -> dict[str, bytes]:
    return {name: _bytes(value) for name, value in arrays.items()}


def _bytes(value: Any) -> bytes:
    return np.asarray(value).tobytes()
