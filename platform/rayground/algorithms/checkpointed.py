"""RLlib's checkpoint methods, over checkpoints that are complete."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
from ray.rllib.algorithms.algorithm import Algorithm

from rayground.algorithms import state


class CheckpointedAlgorithm(Algorithm):
    """An RLlib Algorithm whose checkpoints hold everything that a run needs to go on.

    A subclass has ``load_checkpoint``, and says what it adds in :meth:`extra_state`, :meth:`extra_blobs` and
    :meth:`load_extra_state`.
    """

    def save(self, checkpoint_dir: str | Path | None = None) -> Any:
        """Writes a complete checkpoint; relative paths and ``~`` are fine.

        Args:
            checkpoint_dir: A folder that does not exist yet or is empty; None makes a temporary one.

        Returns:
            RLlib's result object; its ``checkpoint.path`` is the folder.
        """
        if checkpoint_dir is None:
            return super().save()
        folder = Path(checkpoint_dir).expanduser().absolute()
        try:
            return super().save(str(folder))
        except BaseException:
            with suppress(OSError):  # RLlib has made it, empty
                folder.rmdir()
            raise

    def save_to_path(self, path: str | Path | None = None, **_: Any) -> str:
        """RLlib's other name for :meth:`save`; returns the folder. RLlib's own format would leave out the replay."""
        return self.save(path).checkpoint.path

    def restore_from_path(self, path: str | Path, **_: Any) -> None:
        """RLlib's other name for :meth:`restore`."""
        self.restore(path)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Writes everything that a run needs to go on; called by :meth:`save`."""
        state.save(self, Path(checkpoint_dir))

    def restore(self, checkpoint: Any) -> None:
        """Restores a checkpoint of :meth:`save`: its result object, or a path (relative and ``~`` are fine).

        Raises:
            CheckpointError: If the path holds no whole checkpoint, or one that does not fit this algorithm.
        """
        if isinstance(checkpoint, str | Path):
            self.load_checkpoint(str(checkpoint))
        else:
            super().restore(checkpoint)

    @classmethod
    def from_checkpoint(cls, path: str | Path, **_: Any) -> Self:
        """Builds the algorithm that a checkpoint was made with, and restores it."""
        algorithm = state.read_config(Path(path))[0].build_algo()
        algorithm.restore(path)
        return algorithm

    def extra_state(self) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
        """What the algorithm adds to a checkpoint: JSON, and groups of arrays by name."""
        return {}, {}

    def extra_blobs(self) -> dict[str, bytes]:
        """What the algorithm adds to a checkpoint that is neither: files by name."""
        return {}

    def load_extra_state(self, extra: dict[str, Any], checkpoint: Any) -> None:
        """Restores what :meth:`extra_state` and :meth:`extra_blobs` gave."""
