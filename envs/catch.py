"""Catch: the smallest game of pixels, which a convolutional net learns on a CPU in minutes.

The game is that of Mnih et al., "Recurrent Models of Visual Attention" (2014), with the size, the rules and the rewards
that bsuite gives it (Osband et al., "Behaviour Suite for Reinforcement Learning", 2020).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

ROWS, COLUMNS, SIDE = 10, 5, 84
LAST_ROW, MIDDLE = ROWS - 1, COLUMNS // 2


@cache
def frames() -> np.ndarray:
    """Returns every frame of the game, read-only uint8: ``[ball's row, ball's column, paddle's column, 1, 84, 84]``.

    A pixel belongs to the grid cell that its upper left corner lies in: cells are 8 or 9 pixels high, 16 or 17 wide.
    The cells of the ball and of the paddle, which is in the last row, are 255, all others 0.
    """
    pixels = np.arange(SIDE)
    in_row = pixels * ROWS // SIDE == np.arange(ROWS)[:, None]
    in_column = pixels * COLUMNS // SIDE == np.arange(COLUMNS)[:, None]
    cells = in_row[:, None, :, None] & in_column[None, :, None, :]
    table = np.where(cells[:, :, None] | cells[LAST_ROW], np.uint8(255), np.uint8(0))[:, :, :, None]
    table.setflags(write=False)
    return table


def _observation_space(stack: int) -> gym.spaces.Box:
    if not isinstance(stack, int) or stack < 1:
        raise ValueError(f"Catch: stack: expected a whole number of frames, at least 1, got {stack!r}")
    return gym.spaces.Box(0, 255, (stack, SIDE, SIDE), np.uint8)


class Catch(gym.Env[np.ndarray, np.int64]):
    """A ball falls one row per env step from a random column of the top row; the paddle is to be below it at the end.

    Shows the last ``stack`` frames ``[stack, 84, 84]`` uint8 (see ``frames``), the newest last; those before an
    episode's first are 0, as Atari's. Actions: 0 left, 1 stay, 2 right; at the edge the paddle stays. It starts in the
    middle. An episode terminates after 9 env steps, when the ball is in the paddle's row, and pays 1 if the paddle
    caught it, else -1; all other steps pay 0. The best mean return is 1; never moving gets -0.6.
    """

    metadata = {"render_modes": []}

    def __init__(self, stack: int = 1) -> None:
        """Makes a game that shows ``stack`` frames; 4 are what nets and replay get from Atari."""
        self.observation_space = _observation_space(stack)
        self.action_space = gym.spaces.Discrete(3)
        self._row, self._ball, self._paddle = LAST_ROW, MIDDLE, MIDDLE
        self._shown = np.zeros((stack, SIDE, SIDE), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode; see Gymnasium."""
        super().reset(seed=seed)
        self._row, self._ball, self._paddle = 0, int(self.np_random.integers(COLUMNS)), MIDDLE
        self._shown = np.zeros_like(self._shown)
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Moves the paddle, then the ball; see Gymnasium.

        Raises:
            ResetNeeded: If no episode is going on.
            ValueError: If the action is none of 0, 1, 2.
        """
        if self._row == LAST_ROW:
            raise gym.error.ResetNeeded("Catch: expected reset() before the first step and after an episode's end")
        if not self.action_space.contains(action):
            raise ValueError(f"Catch: expected the action 0, 1 or 2, got {action!r}")
        self._paddle = min(max(self._paddle + int(action) - 1, 0), COLUMNS - 1)
        self._row += 1
        terminated = self._row == LAST_ROW
        reward = (1.0 if self._ball == self._paddle else -1.0) if terminated else 0.0
        return self._observation(), reward, terminated, False, {}

    def _observation(self) -> np.ndarray:
        self._shown = np.concatenate([self._shown[1:], frames()[self._row, self._ball, self._paddle]])
        return self._shown.copy()


class CatchVector(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """``num_envs`` games of ``Catch`` at once, without a loop over them; NEXT_STEP autoreset.

    In the step after an episode's end a game starts anew: its action counts for nothing, and its reward is 0. All games
    draw from one generator, so a seed gives a sequence of balls for each ``num_envs``.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int = 1, stack: int = 1) -> None:
        """Makes ``num_envs`` games, which show ``stack`` frames each."""
        single = Catch(stack)
        self.num_envs, self._stack = num_envs, stack
        self.single_observation_space, self.single_action_space = single.observation_space, single.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._running = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode in each game, and shows ``[N, stack, 84, 84]``; see Gymnasium."""
        super().reset(seed=seed)
        self._running = True
        self._rows = np.zeros(self.num_envs, np.int64)
        self._balls = self.np_random.integers(COLUMNS, size=self.num_envs)
        self._paddles = np.full(self.num_envs, MIDDLE)
        self._shown = np.zeros((self.num_envs, self._stack, SIDE, SIDE), np.uint8)
        return self._observations(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps each game, or starts it anew; see Gymnasium.

        Args:
            actions: ``[N]`` integers.

        Returns:
            ``[N, stack, 84, 84]`` uint8, rewards ``[N]`` float64, terminated and truncated ``[N]`` bool, an empty dict.

        Raises:
            ResetNeeded: Before the first reset.
            ValueError: If the actions are not N of 0, 1, 2.
        """
        if not self._running:
            raise gym.error.ResetNeeded("CatchVector: expected reset() before the first step")
        actions = np.asarray(actions)
        if not self.action_space.contains(actions):
            raise ValueError(f"CatchVector: expected {self.num_envs} actions of 0, 1, 2, got {actions.tolist()}")
        over = self._rows == LAST_ROW
        self._balls[over] = self.np_random.integers(COLUMNS, size=np.count_nonzero(over))
        self._paddles = np.where(over, MIDDLE, np.clip(self._paddles + actions - 1, 0, COLUMNS - 1))
        self._rows = np.where(over, 0, self._rows + 1)
        self._shown[over] = 0
        terminated = self._rows == LAST_ROW
        rewards = np.where(terminated, np.where(self._balls == self._paddles, 1.0, -1.0), 0.0)
        return self._observations(), rewards, terminated, np.zeros(self.num_envs, np.bool_), {}

    def _observations(self) -> np.ndarray:
        self._shown = np.concatenate([self._shown[:, 1:], frames()[self._rows, self._balls, self._paddles]], axis=1)
        return self._shown.copy()
