"""Probe environments: tasks with known action values that debug an agent in seconds.

The first five follow Andy Jones, "Debugging RL, Without the Agonizing Pain" (https://andyljones.com/posts/rl-debugging.html);
here all have two actions, so that one net fits all. ``Q`` below is the optimal action value, ``gamma`` the discount.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

Step = tuple[np.ndarray, float, bool, bool, dict[str, Any]]


class _Probe(gym.Env[np.ndarray, np.int64]):
    """One number between -1 and 1 to see, two actions, one step."""

    metadata = {"render_modes": []}

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self._seen = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode; see Gymnasium."""
        super().reset(seed=seed)
        self._seen = self._first()
        return self._observation(), {}

    def step(self, action: np.int64) -> Step:
        """Ends the episode with the reward; see Gymnasium."""
        return self._observation(), self._reward(int(action)), True, False, {}

    def _first(self) -> float:
        """What an episode shows first."""
        return 0.0

    def _reward(self, action: int) -> float:
        """What the last step pays."""
        return 1.0

    def _observation(self) -> np.ndarray:
        return np.array([self._seen], np.float32)

    def _coin(self) -> float:
        return float(self.np_random.choice((-1.0, 1.0)))


class OneStepReward(_Probe):
    """Always a reward of 1 after one step. ``Q = 1`` for both actions.

    An agent that fails: its loss or optimizer is wrong.
    """


class ObservedReward(_Probe):
    """Shows -1 or 1 at random, and pays what it shows. ``Q(o, a) = o`` for both actions.

    An agent that fails, but not on ``OneStepReward``: observations and rewards do not belong together in its batches,
    or its net does not see the observation.
    """

    def _first(self) -> float:
        return self._coin()

    def _reward(self, action: int) -> float:
        return self._seen


class TwoStepDelay(_Probe):
    """Shows 0, then 1; pays 1 at the end of the second step. ``Q(0, a) = gamma``, ``Q(1, a) = 1``.

    An agent that fails, but not on ``ObservedReward``: its bootstrap or discount is wrong.
    """

    def step(self, action: np.int64) -> Step:
        """Goes from 0 to 1, and from 1 to the end; see Gymnasium."""
        ends = self._seen == 1.0
        self._seen = 1.0
        return self._observation(), float(ends), ends, False, {}


class ChosenReward(_Probe):
    """Pays 1 for action 1 and -1 for action 0, after one step. ``Q(a) = 2a - 1``.

    An agent that fails, but not on ``OneStepReward``: actions and rewards do not belong together, or it never explores.
    """

    def _reward(self, action: int) -> float:
        return 2.0 * action - 1.0


class ObservedChoice(_Probe):
    """Shows -1 or 1 at random; pays 1 for action 1 at 1 and action 0 at -1, otherwise -1. ``Q(o, a) = o (2a - 1)``.

    An agent that fails, but not on ``ChosenReward`` and ``ObservedReward``: its policy does not look at what it sees.
    """

    def _first(self) -> float:
        return self._coin()

    def _reward(self, action: int) -> float:
        return self._seen * (2.0 * action - 1.0)


class NeverEnding(_Probe):
    """Shows 0 and pays 1, for ever. ``Q = 1 / (1 - gamma)`` for both actions.

    ``rayground/TimeLimited-v0`` is the same with episodes cut after 10 steps. Nothing shows when the cut comes, so an
    agent that bootstraps on truncation finds the same Q, and one that takes it for termination a smaller one.
    """

    def step(self, action: np.int64) -> Step:
        """Pays 1 and goes on; see Gymnasium."""
        return self._observation(), 1.0, False, False, {}
