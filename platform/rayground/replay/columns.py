"""How values of a space are stored: in the smallest dtype that holds them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from rayground.errors import InputError, RunError

_INTEGERS = tuple(np.dtype(name) for name in ("u1", "i1", "u2", "i2", "u4", "i4", "i8", "u8"))


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a replay buffer.

    Attributes:
        shape: Shape of one value.
        stored: The dtype in memory.
        given: The dtype in which values are read: that of the space, but float32 for float64.
        low: The smallest value that the space holds, if it is one of integers.
        high: The largest.
    """

    shape: tuple[int, ...]
    stored: np.dtype
    given: np.dtype
    low: int | None = None
    high: int | None = None

    @classmethod
    def of(cls, space: gym.Space, what: str) -> Column:
        """Chooses the column for a space.

        Args:
            space: A Box, Discrete, MultiDiscrete or MultiBinary space.
            what: What it is the space of, for the error.

        Raises:
            InputError: If it is another kind of space.
        """
        given = np.dtype(space.dtype)
        match space:
            case gym.spaces.Box() if given.kind == "f":
                given = np.dtype(np.float16 if given == np.float16 else np.float32)
                return cls(space.shape, given, given)
            case gym.spaces.Box() if given.kind in "iu":
                low, high = int(space.low.min()), int(space.high.max())
            case gym.spaces.Box() | gym.spaces.MultiBinary():
                low, high = 0, 1
            case gym.spaces.Discrete():
                low, high = int(space.start), int(space.start) + int(space.n) - 1
            case gym.spaces.MultiDiscrete():
                start, sizes = np.asarray(space.start, np.int64), np.asarray(space.nvec, np.int64)
                low, high = int(start.min()), int((start + sizes).max()) - 1
            case _:
                raise InputError(
                    f"replay: expected a Box, Discrete, MultiDiscrete or MultiBinary {what} space, got {space}: "
                    "flatten it (gymnasium.wrappers.FlattenObservation)"
                )
        return cls(space.shape or (), _smallest(low, high), given, low, high)

    @classmethod
    def of_masks(cls, action_space: gym.Space) -> Column:
        """The column of which actions are legal.

        Raises:
            InputError: If the actions are not Discrete.
        """
        if not isinstance(action_space, gym.spaces.Discrete):
            raise InputError(f"replay: expected a Discrete action space for action masks, got {action_space}")
        return cls((int(action_space.n),), np.dtype(np.bool_), np.dtype(np.bool_))

    @property
    def nbytes(self) -> int:
        """Bytes of one value."""
        return math.prod(self.shape) * self.stored.itemsize

    def empty(self, length: int) -> np.ndarray:
        """Memory for ``length`` values, which the system hands out only as they are written."""
        return np.zeros((length, *self.shape), self.stored)

    def to_stored(self, values: np.ndarray) -> np.ndarray:
        """Converts values of the space.

        Raises:
            RunError: If an integer lies outside of the space, where it would not fit into the stored dtype.
        """
        if self.low is not None and values.dtype != self.stored and values.size:
            low, high = int(values.min()), int(values.max())
            if low < self.low or high > self.high:  # type: ignore[operator]
                raise RunError(
                    f"replay: expected integers from {self.low} to {self.high}, as the space says, got {low} to "
                    f"{high}: correct the space or the environment"
                )
        return values.astype(self.stored, copy=False)

    def to_given(self, values: np.ndarray) -> np.ndarray:
        """Converts stored values back."""
        return values.astype(self.given, copy=False)


def _smallest(low: int, high: int) -> np.dtype:
    fits = (dtype for dtype in _INTEGERS if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max)
    return next(fits)
