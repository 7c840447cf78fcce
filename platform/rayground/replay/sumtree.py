"""Draws items in proportion to their priorities."""

from __future__ import annotations

import numpy as np

# 32 children a node: a draw reads a few cache lines a level, and the inner nodes cost a quarter of a byte an item.
_FANOUT = 32
# The top level is searched through one cumulative sum, which is cheap up to about this many nodes.
_TOP = 2048
_BELOW_ONE = 1.0 - 2.0**-53


class SumTree:
    """Sums over a fixed number of float32 priorities, of which 0 means "never draw".

    A node is always recomputed as the sum of its children and never incremented, so that no error builds up.
    All methods work on whole arrays.
    """

    __slots__ = ("_levels",)

    def __init__(self, size: int):
        """Makes a tree over ``size`` priorities, all 0."""
        leaves, *nodes = _level_lengths(size)
        self._levels: list[np.ndarray] = [np.zeros(leaves, np.float32), *(np.zeros(length) for length in nodes)]

    @staticmethod
    def num_bytes(size: int) -> int:
        """Bytes that a tree over ``size`` priorities takes."""
        leaves, *nodes = _level_lengths(size)
        return 4 * leaves + 8 * sum(nodes)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(level.nbytes for level in self._levels)

    @property
    def priorities(self) -> np.ndarray:
        """float32 ``[size or a little more]``: the priorities themselves, to be read only."""
        return self._levels[0]

    @property
    def total(self) -> float:
        """The sum of all priorities."""
        return float(self._levels[-1].sum(dtype=np.float64))

    def set(self, indices: np.ndarray, priorities: np.ndarray) -> None:
        """Sets ``[M]`` priorities at ``[M]`` indices; the last one wins where an index comes twice."""
        self._levels[0][indices] = priorities
        for children, parents in zip(self._levels, self._levels[1:], strict=False):
            indices = _without_repeats(indices // _FANOUT)
            parents[indices] = children.reshape(-1, _FANOUT).take(indices, axis=0).sum(axis=1, dtype=np.float64)

    def set_all(self, priorities: np.ndarray) -> None:
        """Sets the first ``len(priorities)`` priorities, and 0 for the rest."""
        self._levels[0][: len(priorities)] = priorities
        self._levels[0][len(priorities) :] = 0.0
        for children, parents in zip(self._levels, self._levels[1:], strict=False):
            sums = children.reshape(-1, _FANOUT).sum(axis=1, dtype=np.float64)
            parents[: len(sums)] = sums

    def find(self, shares: np.ndarray) -> np.ndarray:
        """Returns the indices at which the running sum of priorities passes these shares of the total.

        Args:
            shares: ``[M]`` float64 in [0, 1); uniform ones draw each index in proportion to its priority.

        Returns:
            ``[M]`` int64 indices; never one of priority 0, whatever the rounding: at every level the child is
            taken at which the running sum grows past the share, and it only grows at a child above 0.
        """
        sums = self._levels[-1].cumsum(dtype=np.float64)
        rest = np.minimum(shares * sums[-1], sums[-1] * _BELOW_ONE)
        indices = sums.searchsorted(rest, side="right")
        values, chosen, first = self._levels[-1], indices, np.arange(0, len(shares) * _FANOUT, _FANOUT)
        for children in reversed(self._levels[:-1]):
            rest -= sums.take(chosen) - values.take(chosen)
            values = children.reshape(-1, _FANOUT).take(indices, axis=0)
            sums = values.cumsum(axis=1, dtype=np.float64)
            np.minimum(np.maximum(rest, 0.0, out=rest), sums[:, -1] * _BELOW_ONE, out=rest)
            child = (sums > rest[:, None]).argmax(axis=1)
            indices, chosen = indices * _FANOUT + child, first + child
        return indices


def _level_lengths(size: int) -> list[int]:
    """From the leaves up to the first level that is short enough to be the top; whole families of children only."""
    lengths = [-(-size // _FANOUT) * _FANOUT]
    while lengths[-1] > _TOP:
        families = lengths[-1] // _FANOUT
        lengths.append(-(-families // _FANOUT) * _FANOUT)
    return lengths


def _without_repeats(indices: np.ndarray) -> np.ndarray:
    """Drops neighbours that are equal: what is added lies side by side and shares its parents."""
    keep = np.empty(len(indices), np.bool_)
    keep[:1] = True
    np.not_equal(indices[1:], indices[:-1], out=keep[1:])
    return indices[keep]
