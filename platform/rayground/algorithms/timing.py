"""Where wall time goes: the driver's, and that of the runners."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Literal, get_args

import numpy as np

Part = Literal["env", "inference", "replay", "learn", "sync", "wait", "rest"]
PARTS: tuple[Part, ...] = get_args(Part)


class WallClock:
    """Divides this process's wall time among :data:`PARTS`: each moment belongs to the innermost one that runs.

    >>> clock = WallClock()
    >>> with clock("learn"):
    ...     pass
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        """Starts at once, with ``rest``; ``now`` gives seconds."""
        self._now = now
        self._running: Part = "rest"
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._last = now()

    def __call__(self, part: Part) -> _Span:
        """What runs inside ``with clock(part):`` counts for ``part``; a part inside it counts for itself alone."""
        return _Span(self, part)

    def move(self, part: Part, seconds: float) -> None:
        """Says that ``seconds`` of the running part were spent on ``part``, as something else has measured."""
        self._seconds[self._running] -= seconds
        self._seconds[part] += seconds

    def shares(self) -> dict[str, float]:
        """Each part's share of the wall time since the last call; in the order of :data:`PARTS` they add up to 1."""
        self._switch(self._running)
        total = sum(self._seconds.values())
        shares: dict[str, float] = {part: self._seconds[part] / total for part in PARTS if part != "rest"}
        self._seconds = dict.fromkeys(PARTS, 0.0)
        return shares | {"rest": 1.0 - sum(shares.values())}

    def _switch(self, part: Part) -> Part:
        """Goes over to another part; returns the one before."""
        now, before = self._now(), self._running
        self._seconds[before] += now - self._last
        self._last, self._running = now, part
        return before


class _Span:
    __slots__ = ("_clock", "_outer", "_part")

    def __init__(self, clock: WallClock, part: Part) -> None:
        self._clock, self._part = clock, part

    def __enter__(self) -> None:
        self._outer: Part = self._clock._switch(self._part)

    def __exit__(self, *_: object) -> None:
        self._clock._switch(self._outer)


class RunnerTimes:
    """What the runners spent their sampling calls on."""

    def __init__(self) -> None:
        self._seconds: dict[int, Counter[str]] = {}

    def add(self, runner: int, seconds: Mapping[str, float]) -> None:
        """Adds a call's ``seconds``: its parts, and ``total``; see :class:`Rollout`."""
        self._seconds.setdefault(runner, Counter()).update(seconds)

    def shares(self) -> dict[str, float]:
        """Each part's share of ``total`` since the last call, and ``rest``, averaged over the runners that sampled."""
        runners, self._seconds = list(self._seconds.values()), {}
        if not runners:
            return {}
        parts = [part for part in dict.fromkeys(chain.from_iterable(runners)) if part != "total"]
        shares = {part: float(np.mean([seconds[part] / seconds["total"] for seconds in runners])) for part in parts}
        return shares | {"rest": 1.0 - sum(shares.values())}
