"""Where a lane's observations lie: in a column as they are, or as frames (``rayground.replay.frames``)."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from rayground.errors import CheckpointError
from rayground.replay.columns import Column
from rayground.replay.frames import FrameObservations, holds_frames


class Observations(Protocol):
    """One observation a row; row r belongs to lane ``r % num_lanes``."""

    def write(self, rows: np.ndarray, obs: np.ndarray) -> None:
        """Writes ``[T, N, ...]`` observations into rows ``[T, N]``: the next T rows of N different lanes.

        The first row of a lane may be the last one written, with the same observation.
        """
        ...

    def equal(self, rows: np.ndarray, obs: np.ndarray) -> np.ndarray:
        """Which of ``[N]`` rows, the last ones written of N lanes, hold exactly these observations."""
        ...

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Copies the observations of rows ``[...]``, in the dtype of the space."""
        ...

    def nbytes(self, num_used: int) -> int:
        """Bytes in use when so many rows are."""
        ...

    def get_state(self, num_used: int) -> dict[str, np.ndarray]:
        """Copies of what is in use."""
        ...

    def check_state(self, arrays: dict[str, np.ndarray], num_used: int) -> None:
        """Checks what :meth:`set_state` is to take over.

        Raises:
            CheckpointError: If it is not what :meth:`get_state` gives.
        """
        ...

    def set_state(self, arrays: dict[str, np.ndarray]) -> None:
        """Takes over what :meth:`get_state` gave, in place of what is there."""
        ...


class DenseObservations:
    """Observations in one array, as the column stores them."""

    __slots__ = ("_column", "_name", "_rows")

    def __init__(self, column: Column, num_rows: int, name: str = "obs"):
        """Makes memory for ``num_rows`` observations, which a checkpoint calls ``name``."""
        self._column, self._name = column, name
        self._rows = column.empty(num_rows)

    def write(self, rows: np.ndarray, obs: np.ndarray) -> None:
        """See :class:`Observations`."""
        self._rows[rows] = obs

    def equal(self, rows: np.ndarray, obs: np.ndarray) -> np.ndarray:
        """See :class:`Observations`; bit for bit, so that NaN equals itself."""
        held = self._rows.take(rows, axis=0)
        if held.tobytes() == obs.tobytes():
            return np.ones(len(rows), np.bool_)
        return np.array([a.tobytes() == b.tobytes() for a, b in zip(held, obs, strict=True)])

    def take(self, rows: np.ndarray) -> np.ndarray:
        """See :class:`Observations`."""
        return self._column.to_given(self._rows.take(rows, axis=0))

    def nbytes(self, num_used: int) -> int:
        """See :class:`Observations`."""
        return num_used * self._column.nbytes

    def get_state(self, num_used: int) -> dict[str, np.ndarray]:
        """See :class:`Observations`."""
        return {self._name: self._rows[:num_used].copy()}

    def check_state(self, arrays: dict[str, np.ndarray], num_used: int) -> None:
        """See :class:`Observations`."""
        got = arrays.get(self._name)
        if got is None or got.dtype != self._rows.dtype or got.shape != (num_used, *self._rows.shape[1:]):
            raise CheckpointError(f"replay: expected {self._name} as this buffer stores them, got damaged ones or none")

    def set_state(self, arrays: dict[str, np.ndarray]) -> None:
        """See :class:`Observations`."""
        self._rows[: len(arrays[self._name])] = arrays[self._name]


def observations(column: Column, num_lanes: int, num_rows: int) -> Observations:
    """Chooses how observations are held: images of bytes as frames, all others as they are."""
    if holds_frames(column):
        return FrameObservations(column.shape, num_lanes, num_rows)
    return DenseObservations(column, num_rows)


def num_bytes(column: Column, num_lanes: int, num_rows: int) -> int:
    """Bytes that the observations of ``num_rows`` rows take; of frames, which compress as they do, an estimate."""
    if holds_frames(column):
        return FrameObservations.num_bytes(column.shape, num_lanes, num_rows)
    return num_rows * column.nbytes
