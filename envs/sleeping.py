"""An environment that only takes time: for measuring what surrounds environments."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np


class Sleeping(gym.Env[np.ndarray, np.int64]):
    """Sleeps in every step, as a simulator in another process would keep one waiting; uses no core meanwhile.

    Shows zeros, pays 1, and ends after ``length`` steps.
    """

    metadata = {"render_modes": []}

    def __init__(self, milliseconds: float = 5.0, length: int = 200) -> None:
        """Makes one.

        Args:
            milliseconds: How long a step takes, at least.
            length: Env steps of an episode.
        """
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self._seconds, self._length, self._steps = milliseconds / 1000.0, length, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode, at once; see Gymnasium."""
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Sleeps; see Gymnasium."""
        time.sleep(self._seconds)
        self._steps += 1
        return np.zeros(4, np.float32), 1.0, self._steps == self._length, False, {}
