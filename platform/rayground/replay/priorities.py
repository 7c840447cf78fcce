"""Prioritized replay: Schaul et al. 2016, https://arxiv.org/abs/1511.05952, the proportional variant."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rayground.errors import CheckpointError, RunError
from rayground.replay.sumtree import SumTree

_SMALLEST, _LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


class Priorities:
    """One priority a row: ``(|td_error| + epsilon) ** alpha``, or 0 where no transition is.

    Attributes:
        alpha: How much TD errors count.
        epsilon: Added to their absolute values.
        largest: The largest priority so far, which new transitions get.
    """

    __slots__ = ("_tree", "alpha", "epsilon", "largest")

    def __init__(self, num_rows: int, alpha: float, epsilon: float):
        """Makes priorities that are all 0."""
        self.alpha, self.epsilon, self.largest = alpha, epsilon, 1.0
        self._tree = SumTree(num_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._tree.nbytes

    def renew(self, rows: np.ndarray, valid: np.ndarray) -> None:
        """Gives the largest priority so far to rows that were written, and 0 to those without a transition."""
        self._tree.set(rows.ravel(), valid.ravel() * self.largest)

    def update(self, rows: np.ndarray, td_errors: np.ndarray) -> None:
        """Sets the priorities of ``[M]`` rows; the last one holds where a row comes twice.

        Raises:
            RunError: If a TD error is not finite.
        """
        priorities = (np.abs(td_errors) + self.epsilon) ** self.alpha
        largest = float(priorities.max(initial=0.0))
        if not largest <= _LARGEST:
            raise RunError("replay: expected finite TD errors, got NaN or infinity: lower the learning rate")
        self._tree.set(rows, _bounded(priorities))
        self.largest = max(self.largest, largest)

    def draw(self, shape: tuple[int, ...], beta: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draws rows in proportion to their priorities: one from each of B equal shares of the sum (appendix B.2.1).

        The weights are ``(N P(i)) ** -beta``, divided by the largest one of the minibatch. The paper leaves open over
        what the largest is taken; that of the minibatch needs neither N nor a second tree for the smallest priority
        (8 bytes a transition), and uses the range up to 1 however small a priority is stored somewhere.

        Args:
            shape: ``[B]``, or ``[K, B]`` for K minibatches.
            beta: How much of the bias the weights correct.
            rng: Where random numbers come from.

        Returns:
            Rows (int64) and weights (float32) of that shape.
        """
        size = shape[-1]
        rows = self._tree.find(((np.arange(size) + rng.random(shape)) / size).ravel()).reshape(shape)
        priorities = self._tree.priorities.take(rows)
        return rows, (priorities.min(axis=-1, keepdims=True) / priorities) ** beta

    def metrics(self, size: int) -> dict[str, float]:
        """Mean, maximum and spread (standard deviation by mean) of the ``size`` priorities that are not 0."""
        priorities = self._tree.priorities
        mean = self._tree.total / size
        variance = max(0.0, float(np.dot(priorities, priorities)) / size - mean**2)
        return {
            "priority_mean": mean,
            "priority_max": float(priorities.max()),
            "priority_spread": math.sqrt(variance) / mean,
        }

    def get_state(self, num_used: int) -> tuple[dict[str, Any], np.ndarray]:
        """Values that JSON holds exactly, and a copy of the priorities of the first ``num_used`` rows."""
        return {"alpha": self.alpha, "largest": self.largest}, self._tree.priorities[:num_used].copy()

    def set_state(self, values: Any, priorities: np.ndarray | None, flags: np.ndarray) -> None:
        """Takes over what :meth:`get_state` gave; if alpha has changed since, the priorities are converted.

        Args:
            values: The values.
            priorities: The array.
            flags: The flags of the same rows, to check it against.

        Raises:
            CheckpointError: If it is not whole or does not belong to these flags; nothing has changed then.
        """
        whole = isinstance(values, dict) and values.keys() == {"alpha", "largest"}
        if not whole or priorities is None or not np.array_equal(priorities > 0, flags > 0):
            raise CheckpointError("replay: expected a priority for each transition, got damaged ones or none")
        exponent = self.alpha / values["alpha"] if values["alpha"] else 1.0
        self._tree.set_all(np.where(priorities > 0, _bounded(priorities**exponent), 0.0))
        self.largest = float(_bounded(values["largest"] ** exponent))


def _bounded(priorities: Any) -> Any:
    """Within what float32 holds, and never 0, which means that there is nothing to draw."""
    return np.clip(priorities, _SMALLEST, _LARGEST)
