"""The replay ratio, kept exactly."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass


@dataclass(slots=True)
class UpdateClock:
    """Says how many updates are due, and which env step each belongs to.

    Counted from an anchor, never summed up, so that a ratio such as 0.1 does not drift.

    Attributes:
        ratio: Updates per env step (the replay ratio).
        anchor_env_steps: Env steps at which counting starts (learning starts, or where the ratio changed).
        anchor_updates: Updates done by then.
        updates: Updates done so far.
    """

    ratio: float
    anchor_env_steps: int
    anchor_updates: int = 0
    updates: int = 0

    def due(self, env_steps: int) -> int:
        """The number of updates to do now, ``env_steps`` having been taken."""
        steps = max(0, env_steps - self.anchor_env_steps)
        # Ratios such as 1/3 as floats: the tiny excess keeps 3 steps worth one update.
        return max(0, self.anchor_updates + math.floor(steps * self.ratio + 1e-9) - self.updates)

    def env_steps_of(self, update: int) -> int:
        """The env step at which update number ``update`` (from 1) became due."""
        return self.anchor_env_steps + math.ceil((update - self.anchor_updates) / self.ratio - 1e-9)

    def next(self, count: int) -> list[int]:
        """Env steps of the last update and of the ``count`` next ones, which are then counted as done."""
        steps = [self.env_steps_of(update) for update in range(self.updates, self.updates + count + 1)]
        self.updates += count
        return steps

    def measured_ratio(self, env_steps: int) -> float | None:
        """Updates done per env step since counting starts (or the ratio changed); None before."""
        steps = env_steps - self.anchor_env_steps
        return (self.updates - self.anchor_updates) / steps if steps > 0 else None

    def change(self, ratio: float, env_steps: int) -> None:
        """Goes on with another ratio from ``env_steps``; what is due by then is not lost, nor done twice."""
        if ratio != self.ratio and env_steps > self.anchor_env_steps:
            self.anchor_updates += math.floor((env_steps - self.anchor_env_steps) * self.ratio + 1e-9)
            self.anchor_env_steps = env_steps
        self.ratio = ratio

    def wait(self, env_steps: int, steps: int) -> None:
        """Does no update for ``steps`` env steps from ``env_steps`` on, and makes up for none of them."""
        self.anchor_env_steps, self.anchor_updates = env_steps + steps, self.updates

    def get_state(self) -> dict[str, float]:
        """What a checkpoint keeps."""
        return asdict(self)
