"""Trading a stock: short, flat or long, on made-up prices that can be foreseen a little, or on those of a CSV file."""

from __future__ import annotations

import csv as csv_files
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

REVERSION, VOLATILITY = 0.2, 0.01
COLUMN = "Close"


def mean_reverting(rng: np.random.Generator, num_paths: int, num_prices: int) -> np.ndarray:
    """Draws log prices ``[num_paths, num_prices]`` that come back to 0, an Ornstein-Uhlenbeck process in whole steps.

    Each step takes away a fifth of the log price (``REVERSION``), and adds normal noise with a standard deviation of 1%
    (``VOLATILITY``); a path starts in the stationary distribution. Uhlenbeck and Ornstein, "On the Theory of the
    Brownian Motion" (1930).
    """
    noise = rng.normal(scale=VOLATILITY, size=(num_prices, num_paths))
    noise[0] /= np.sqrt(1.0 - (1.0 - REVERSION) ** 2)
    for before, after in pairwise(noise):
        after += (1.0 - REVERSION) * before
    return noise.T


def read_log_prices(path: Path, column: str) -> np.ndarray:
    """Reads the logarithms of a column of prices ``[T]`` from a CSV file with a header.

    Raises:
        ValueError: If there is no such file or column, or one of its values is no number above 0.
    """
    if not path.is_file():
        raise ValueError(f"Stock: csv: expected a file of prices, got {path.resolve()}, which is none")
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv_files.DictReader(file)
        names = reader.fieldnames or []
        if column not in names:
            near = get_close_matches(column, names, n=1, cutoff=0.4)
            hint = f"; the closest is {near[0]!r}" if near else ""
            raise ValueError(
                f"Stock: {path}: expected a column {column!r}, got {', '.join(names) or 'no header'}{hint}"
            )
        return np.log([_price(row[column], f"{path}, line {reader.line_num}, {column}") for row in reader])


def _price(text: str | None, where: str) -> float:
    try:
        price = float(text or "nothing")
    except ValueError:
        price = np.nan
    if not 0.0 < price < np.inf:
        raise ValueError(f"Stock: {where}: expected a price above 0, got {text!r}")
    return price


class StockVector(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """``num_envs`` traders at once, without a loop over them; NEXT_STEP autoreset.

    Shows the last ``window`` log returns in percent, the newest last, and the position: ``[window + 1]`` float32.
    Actions, the position from now to the next price: 0 short (-1), 1 flat (0), 2 long (1). Pays the position times the
    log return to the next price, less the cost of the change of position, all in percent: what a year of going long
    pays is the growth of the log price. Episodes start flat, and are truncated after ``length`` env steps.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self,
        num_envs: int = 1,
        *,
        csv: str | None = None,
        column: str | None = None,
        window: int = 20,
        length: int = 250,
        cost: float = 0.05,
    ) -> None:
        """Makes the traders.

        Args:
            num_envs: N, how many.
            csv: A file of prices, oldest first, of which each episode takes a random stretch; None: prices are made up,
                see ``mean_reverting``.
            column: The column of prices in the file; None: ``"Close"``.
            window: Returns to show.
            length: Env steps of an episode.
            cost: Percent of the stock's price that a change of position by 1 costs.

        Raises:
            ValueError: If an argument is out of range, or the file is not as expected, or too short.
        """
        for name, value in (("window", window), ("length", length)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"Stock: {name}: expected a whole number of at least 1, got {value!r}")
        if not 0.0 <= cost < np.inf:
            raise ValueError(f"Stock: cost: expected a number of percent from 0 up, got {cost!r}")
        if csv is None and column is not None:
            raise ValueError(f"Stock: column={column!r} has no effect without csv")
        self._window, self._length, self._cost = window, length, cost
        self._history = None if csv is None else self._stretches(Path(csv), column or COLUMN)
        self.num_envs = num_envs
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (window + 1,), np.float32)
        self.single_action_space = gym.spaces.Discrete(3)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._step = length + 1  # beyond the end: none goes on

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode for each trader, and shows ``[N, window + 1]``; see Gymnasium."""
        super().reset(seed=seed)
        self._step, self._positions = 0, np.zeros(self.num_envs)
        self._returns = 100.0 * np.diff(self._log_prices(), axis=1)
        return self._observations(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Moves on by one price, or starts anew; see Gymnasium.

        Args:
            actions: ``[N]`` integers.

        Returns:
            ``[N, window + 1]`` float32, rewards ``[N]`` float64, terminated and truncated ``[N]`` bool, an empty dict.

        Raises:
            ResetNeeded: Before the first reset.
            ValueError: If the actions are not N of 0, 1, 2.
        """
        if self._step > self._length:
            raise gym.error.ResetNeeded("Stock: expected reset() before the first step")
        actions = np.asarray(actions)
        if not self.action_space.contains(actions):
            raise ValueError(f"Stock: expected {self.num_envs} actions of 0, 1, 2, got {actions.tolist()}")
        never = np.zeros(self.num_envs, np.bool_)
        if self._step == self._length:  # of all, as they began together
            obs, infos = self.reset()
            return obs, np.zeros(self.num_envs), never, never.copy(), infos
        costs = self._cost * np.abs(actions - 1.0 - self._positions)
        self._positions = actions - 1.0
        rewards = self._positions * self._returns[:, self._window + self._step] - costs
        self._step += 1
        truncated = np.full(self.num_envs, self._step == self._length)
        return self._observations(), rewards, never, truncated, {}

    def _observations(self) -> np.ndarray:
        seen = self._returns[:, self._step : self._step + self._window]
        return np.concatenate([seen, self._positions[:, None]], axis=1).astype(np.float32)

    def _log_prices(self) -> np.ndarray:
        """``[N, window + length + 1]`` for one episode each."""
        if self._history is None:
            return mean_reverting(self.np_random, self.num_envs, self._window + self._length + 1)
        return self._history[self.np_random.integers(len(self._history), size=self.num_envs)]

    def _stretches(self, path: Path, column: str) -> np.ndarray:
        """All stretches of the file that make an episode, ``[S, window + length + 1]``; a view."""
        log_prices, needed = read_log_prices(path, column), self._window + self._length + 1
        if len(log_prices) < needed:
            raise ValueError(
                f"Stock: {path}: expected at least window + length + 1 = {needed} prices, got {len(log_prices)}: "
                "give a smaller length, or more prices"
            )
        return np.lib.stride_tricks.sliding_window_view(log_prices, needed)


class Stock(gym.Env[np.ndarray, np.int64]):
    """One trader: what ``StockVector`` is with one."""

    metadata = {"render_modes": []}

    def __init__(self, **options: Any) -> None:
        """Makes the trader; ``options`` are those of ``StockVector``, without ``num_envs``."""
        self._market = StockVector(**options)
        self.observation_space = self._market.single_observation_space
        self.action_space = self._market.single_action_space
        self._is_running = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode, and shows ``[window + 1]``; see Gymnasium."""
        super().reset(seed=seed)
        self._is_running = True
        obs, info = self._market.reset(seed=seed)
        return obs[0], info

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Moves on by one price; see Gymnasium.

        Raises:
            ResetNeeded: If no episode is going on.
            ValueError: If the action is none of 0, 1, 2.
        """
        if not self._is_running:
            raise gym.error.ResetNeeded("Stock: expected reset() before the first step and after an episode's end")
        obs, rewards, _, truncated, info = self._market.step(np.array([action]))
        self._is_running = not truncated[0]
        return obs[0], float(rewards[0]), False, bool(truncated[0]), info
