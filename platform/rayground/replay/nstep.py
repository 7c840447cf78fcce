"""Rewards and bootstrap discounts over up to n env steps."""

from __future__ import annotations

import numpy as np

from rayground.replay.lanes import TERMINATED, VALID, Lanes


class NStep:
    """Follows episodes through lanes for up to n steps.

    A step follows the one before it if that did not end the episode and the next slot holds a transition: an episode's
    end, a cut and the head of a lane all end the walk early, after m <= n steps. Then the value of the observation
    there counts ``gamma ** m``, or nothing if the last of the steps terminated the episode.
    """

    __slots__ = ("_alive", "_factors", "_lanes", "_steps", "_values_after_one", "_values_by_steps", "n_step")

    def __init__(self, lanes: Lanes, n_step: int, gamma: float):
        """Follows ``lanes`` for up to ``n_step`` steps with discount ``gamma`` per step."""
        self._lanes, self.n_step = lanes, n_step
        self._steps = np.arange(n_step) * lanes.num_lanes
        self._factors = np.power(gamma, np.arange(n_step)).astype(np.float32)
        self._values_by_steps = (gamma * self._factors.astype(np.float64)).astype(np.float32)
        # By the flags of a step: whether the episode has a value behind it, and how much that counts for n = 1.
        self._alive = (np.arange(8) & TERMINATED == 0).astype(np.float32)
        self._values_after_one = self._values_by_steps[0] * self._alive

    def follow(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Walks on from rows that hold transitions.

        Args:
            rows: ``[...]`` rows.

        Returns:
            ``[...]`` discounted sums of rewards (float32), factors of the value behind the last step (float32), and
            the row of the last step.
        """
        lanes = self._lanes
        if self.n_step == 1:
            return lanes.rewards.take(rows), self._values_after_one.take(lanes.flags.take(rows)), rows
        path = rows[..., None] + self._steps
        flags = lanes.flags.take(path, mode="wrap")
        goes_on = (flags[..., :-1] == VALID) & (flags[..., 1:] != 0)
        np.logical_and.accumulate(goes_on, axis=-1, out=goes_on)
        rewards = lanes.rewards.take(path, mode="wrap")
        rewards[..., 1:][~goes_on] = 0.0
        more = np.add.reduce(goes_on, axis=-1, dtype=np.int64)
        last = lanes.rows(rows + more * lanes.num_lanes)
        values = self._alive.take(lanes.flags.take(last)) * self._values_by_steps.take(more)
        return rewards @ self._factors, values, last
