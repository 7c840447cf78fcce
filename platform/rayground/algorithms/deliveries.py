"""What asynchronous runners deliver, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np


class Deliveries:
    """What the runners have delivered since the last result.

    Attributes:
        seconds: Of training.
        bytes_down: Bytes of the weights that were sent to runners.
        dropped: By runner, how many gradients were not finite.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.bytes_down = 0
        self.dropped: Counter[int] = Counter()
        self._bytes_up = 0
        self._staleness: list[int] = []
        self._by_runner: Counter[int] = Counter()

    def add(self, runner: int, num_bytes: int, staleness: int, is_dropped: bool) -> None:
        """Adds one delivery."""
        self._by_runner[runner] += 1
        self._bytes_up += num_bytes
        self._staleness.append(staleness)
        if is_dropped:
            self.dropped[runner] += 1

    def row(self, runners: Sequence[int]) -> dict[str, float]:
        """The metrics; nothing if nothing was delivered."""
        count = self._by_runner.total()
        if not count:
            return {}
        return {
            "learner/updates_per_s": (count - self.dropped.total()) / self.seconds,
            "learner/staleness_mean": float(np.mean(self._staleness)),
            "learner/staleness_max": max(self._staleness),
            "workers/bytes_up_per_update": self._bytes_up / count,
            "workers/bytes_down_per_update": self.bytes_down / count,
        } | {f"workers/{runner}/share": self._by_runner[runner] / count for runner in runners}
