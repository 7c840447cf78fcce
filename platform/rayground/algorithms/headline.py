"""Headline metrics: true means over the last episodes, across iterations and runners."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from rayground.rollouts.rollout import EpisodeRecord


class EpisodeWindow:
    """The last ``size`` episodes, and how many there were in all."""

    def __init__(self, size: int) -> None:
        self._records: deque[EpisodeRecord] = deque(maxlen=size)
        self.count = 0

    def extend(self, records: Iterable[EpisodeRecord]) -> None:
        """Adds episodes in the order in which they ended."""
        for record in records:
            self._records.append(record)
            self.count += 1

    def headline(self) -> dict[str, Any]:
        """Means over the window; None while no episode has ended. ``custom/<name>`` is over those that have it."""
        returns = [record.episode_return for record in self._records]
        lengths = [record.length for record in self._records]
        names = sorted({name for record in self._records for name in record.custom})
        custom = {name: [r.custom[name] for r in self._records if name in r.custom] for name in names}
        return {
            "episodes": self.count,
            "episodes_in_window": len(returns),
            "episode_window": self._records.maxlen,
            "episode_return_mean": float(np.mean(returns)) if returns else None,
            "episode_return_min": min(returns, default=None),
            "episode_return_max": max(returns, default=None),
            "episode_len_mean": float(np.mean(lengths)) if lengths else None,
        } | {f"custom/{name}": float(np.mean(values)) for name, values in custom.items()}

    def get_state(self) -> dict[str, Any]:
        """JSON for a checkpoint."""
        return {
            "count": self.count,
            "records": [[record.episode_return, record.length, record.custom] for record in self._records],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores :meth:`get_state`; a window that has become shorter keeps the latest."""
        self._records.clear()
        self._records.extend(EpisodeRecord(*record) for record in state["records"])
        self.count = state["count"]
