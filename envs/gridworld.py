"""GridWorld: a walk over a small map to its goal, with moves into walls masked.

The rewards are those of Russell and Norvig, "Artificial Intelligence: A Modern Approach", chapter "Making Complex
Decisions"; here moves always succeed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

WALL, FLOOR, START, GOAL, PIT = "#.SGP"
DEFAULT_MAP = (
    "S....P",
    ".##...",
    ".#P.#.",
    ".#..#.",
    "....#.",
    "P.#..G",
)
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
STEP_REWARD, GOAL_REWARD, PIT_REWARD = -0.04, 1.0, -1.0


@dataclass(frozen=True)
class GridMap:
    """A map as tables over its S = rows x columns cells, which are numbered row by row from 0.

    Attributes:
        start: The cell that episodes start in.
        legal: ``[S, 4]`` bool, whether a move leads to a cell that is no wall. All False for a wall.
        following: ``[S, 4]`` int64, the cell after each move; the same one where the move is not legal.
        rewards: ``[S]`` float64, what entering a cell pays, or staying in it.
        ends: ``[S]`` bool, whether an episode terminates there: the goal and the pits.
    """

    start: int
    legal: np.ndarray
    following: np.ndarray
    rewards: np.ndarray
    ends: np.ndarray


def parse_map(rows: Sequence[str]) -> GridMap:
    """Reads a map: ``#`` wall, ``.`` floor, ``S`` start (one), ``G`` goal (one), ``P`` pit.

    Args:
        rows: Its rows from the top, of equal length.

    Raises:
        ValueError: If the rows are not such a map, or no way leads from the start to the goal around the pits.
    """
    grid = _letters(rows)
    width = grid.shape[1]
    legal, following = np.zeros((grid.size, 4), np.bool_), np.repeat(np.arange(grid.size)[:, None], 4, axis=1)
    open_cells = [(int(row), int(column)) for row, column in np.argwhere(grid != WALL)]
    for row, column in open_cells:
        for action, (down, right) in enumerate(MOVES):
            if (row + down, column + right) in open_cells:
                legal[row * width + column, action] = True
                following[row * width + column, action] = (row + down) * width + column + right
    cells = grid.ravel()
    ends = (cells == GOAL) | (cells == PIT)
    start, goal = int(np.flatnonzero(cells == START)[0]), int(np.flatnonzero(cells == GOAL)[0])
    if goal not in _reachable(start, following, ends):
        raise ValueError("GridWorld: expected a way from S to G around walls (#) and pits (P), got a map without one")
    rewards = np.where(cells == GOAL, GOAL_REWARD, np.where(cells == PIT, PIT_REWARD, STEP_REWARD))
    return GridMap(start, legal, following, rewards, ends)


def _letters(rows: Sequence[str]) -> np.ndarray:
    """Returns the map's letters ``[rows, columns]``."""
    if isinstance(rows, str) or not all(isinstance(row, str) for row in rows):
        raise ValueError(f"GridWorld: expected the map as a list of strings, one per row, got {rows!r}")
    lengths = [len(row) for row in rows]
    if len(set(lengths)) != 1 or not lengths[0]:
        raise ValueError(f"GridWorld: expected map rows of one length of at least 1, got the lengths {lengths}")
    counts = Counter("".join(rows))
    unknown = sorted(set(counts) - {WALL, FLOOR, START, GOAL, PIT})
    if unknown:
        raise ValueError(f"GridWorld: expected a map of # (wall), . (floor), S, G and P (pit), got {unknown}")
    for letter, name in ((START, "start"), (GOAL, "goal")):
        if counts[letter] != 1:
            raise ValueError(f"GridWorld: expected one {name} ({letter}) in the map, got {counts[letter]}")
    return np.array([list(row) for row in rows])


def _reachable(start: int, following: np.ndarray, ends: np.ndarray) -> set[int]:
    """Returns the cells that an episode can come to."""
    found, waiting = {start}, [start]
    while waiting:
        cell = waiting.pop()
        new = set() if ends[cell] else set(following[cell].tolist()) - found
        found |= new
        waiting.extend(new)
    return found


class GridWorld(gym.Env[np.ndarray, np.int64]):
    """Walks from the start to the goal. Nothing is random: all seeds give the same.

    Shows the walker's cell, one-hot ``[S]`` float32 over the map's S = rows x columns cells, row by row. Actions: 0 up,
    1 right, 2 down, 3 left. ``info["action_mask"]`` (``[4]`` bool, True is legal) comes with each observation, also
    the first, and is False for moves into walls and off the map; such a move is a step all the same, and leads nowhere.
    A step pays 1 into the goal and -1 into a pit, which both terminate, and -0.04 otherwise. The registered
    ``rayground/GridWorld-v0`` truncates after 100 env steps. On the default map the best return is 0.64, in 10 steps.
    """

    metadata = {"render_modes": []}

    def __init__(self, rows: Sequence[str] = DEFAULT_MAP) -> None:
        """Makes one on the map ``rows``; see ``parse_map``."""
        self._map = parse_map(rows)
        cells = len(self._map.ends)
        self._shown = np.eye(cells, dtype=np.float32)
        self.observation_space = gym.spaces.Box(0.0, 1.0, (cells,), np.float32)
        self.action_space = gym.spaces.Discrete(4)
        self._cell, self._running = self._map.start, False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Goes to the start; see Gymnasium."""
        super().reset(seed=seed)
        self._cell, self._running = self._map.start, True
        return self._told()

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Makes a move; see Gymnasium.

        Raises:
            ResetNeeded: If no episode is going on.
            ValueError: If the action is none of 0, 1, 2, 3.
        """
        if not self._running:
            raise gym.error.ResetNeeded("GridWorld: expected reset() before the first step and after an episode's end")
        if not self.action_space.contains(action):
            raise ValueError(f"GridWorld: expected the action 0, 1, 2 or 3, got {action!r}")
        self._cell = int(self._map.following[self._cell, action])
        terminated = bool(self._map.ends[self._cell])
        self._running = not terminated
        obs, info = self._told()
        return obs, float(self._map.rewards[self._cell]), terminated, False, info

    def _told(self) -> tuple[np.ndarray, dict[str, Any]]:
        return self._shown[self._cell].copy(), {"action_mask": self._map.legal[self._cell].copy()}


class GridWorldVector(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """``num_envs`` walks of ``GridWorld`` at once, without a loop over them; NEXT_STEP autoreset.

    In the step after an episode's end a walk starts anew: its action counts for nothing, and its reward is 0. Infos
    hold ``action_mask`` ``[N, 4]`` and, as in Gymnasium's own vector environments, ``_action_mask`` ``[N]``, all True.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int = 1, *, max_episode_steps: int, rows: Sequence[str] = DEFAULT_MAP) -> None:
        """Makes ``num_envs`` walks.

        Args:
            num_envs: N.
            max_episode_steps: Env steps after which an episode is truncated; ``make_vec`` gives what is registered.
            rows: The map; see ``parse_map``.

        Raises:
            ValueError: If the limit is below 1, or the map is wrong.
        """
        if max_episode_steps < 1:
            raise ValueError(f"GridWorldVector: expected max_episode_steps of at least 1, got {max_episode_steps}")
        single = GridWorld(rows)
        self.num_envs, self._max_episode_steps = num_envs, max_episode_steps
        self._map, self._shown = single._map, single._shown
        self.single_observation_space, self.single_action_space = single.observation_space, single.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._running = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Goes to the start in each walk, and shows ``[N, S]``; see Gymnasium."""
        super().reset(seed=seed)
        self._running = True
        self._cells = np.full(self.num_envs, self._map.start)
        self._steps = np.zeros(self.num_envs, np.int64)
        self._over = np.zeros(self.num_envs, np.bool_)
        return self._told()

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Makes a move in each walk, or starts it anew; see Gymnasium.

        Args:
            actions: ``[N]`` integers.

        Returns:
            ``[N, S]`` float32, rewards ``[N]`` float64, terminated and truncated ``[N]`` bool, the infos.

        Raises:
            ResetNeeded: Before the first reset.
            ValueError: If the actions are not N of 0, 1, 2, 3.
        """
        if not self._running:
            raise gym.error.ResetNeeded("GridWorldVector: expected reset() before the first step")
        actions = np.asarray(actions)
        if not self.action_space.contains(actions):
            raise ValueError(f"GridWorldVector: expected {self.num_envs} actions of 0 to 3, got {actions.tolist()}")
        anew = self._over
        self._cells = np.where(anew, self._map.start, self._map.following[self._cells, actions])
        self._steps = np.where(anew, 0, self._steps + 1)
        rewards = np.where(anew, 0.0, self._map.rewards[self._cells])
        terminated, truncated = self._map.ends[self._cells], self._steps >= self._max_episode_steps
        self._over = terminated | truncated
        obs, infos = self._told()
        return obs, rewards, terminated, truncated, infos

    def _told(self) -> tuple[np.ndarray, dict[str, Any]]:
        told = {"action_mask": self._map.legal[self._cells], "_action_mask": np.ones(self.num_envs, np.bool_)}
        return self._shown[self._cells], told
