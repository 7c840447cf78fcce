"""Schedules: numbers that change with the env steps handed out so far."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np

from rayground.errors import InputError

FAR = 10**9
"""The env step at which a schedule counts as having reached its end."""


@runtime_checkable
class Schedule(Protocol):
    """A number as a function of env steps."""

    def __call__(self, env_steps: int) -> float:
        """Returns the value at ``env_steps``."""
        ...


@dataclass(frozen=True)
class Constant:
    """The same value for ever."""

    value: float

    def __post_init__(self) -> None:
        """Raises InputError if ``value`` is no finite number."""
        _check_numbers(self)

    def __call__(self, env_steps: int) -> float:
        """Returns the value."""
        return self.value


@dataclass(frozen=True)
class Piecewise:
    """Linear between ``(env_steps, value)`` points, constant outside of them."""

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        """Checks the points.

        Raises:
            InputError: If there are none, they do not ascend, or one of them is no pair of finite numbers.
        """
        pairs = [tuple(point) for point in self.points]
        are_numbers = all(len(pair) == 2 and all(map(_is_finite, pair)) for pair in pairs)
        if not (pairs and are_numbers and all(a[0] < b[0] for a, b in pairwise(pairs))):
            raise InputError(f"Piecewise: expected (env_steps, value) points that ascend, got {self.points!r}")

    def __call__(self, env_steps: int) -> float:
        """Returns the value at ``env_steps``."""
        steps, values = zip(*self.points, strict=True)
        return float(np.interp(env_steps, steps, values))


@dataclass(frozen=True)
class Step:
    """Multiplied by ``factor`` every ``every`` env steps."""

    initial: float
    factor: float
    every: int

    def __post_init__(self) -> None:
        """Raises InputError if a field is no finite number, ``factor`` is negative or ``every`` not above 0."""
        _check_numbers(self, above_0=("every",), from_0=("factor",))

    def __call__(self, env_steps: int) -> float:
        """Returns the value at ``env_steps``."""
        return self.initial * self.factor ** (env_steps // self.every)


@dataclass(frozen=True)
class Exponential:
    """Falls smoothly by ``factor`` every ``every`` env steps, never below ``final``."""

    initial: float
    factor: float
    every: int
    final: float = 0.0

    def __post_init__(self) -> None:
        """Raises InputError if a field is no finite number, ``factor`` is negative or ``every`` not above 0."""
        _check_numbers(self, above_0=("every",), from_0=("factor",))

    def __call__(self, env_steps: int) -> float:
        """Returns the value at ``env_steps``."""
        return max(self.final, self.initial * self.factor ** (env_steps / self.every))


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from ``initial`` to ``final`` over ``over`` env steps (Loshchilov and Hutter, 2017)."""

    initial: float
    over: int
    final: float = 0.0

    def __post_init__(self) -> None:
        """Raises InputError if a field is no finite number, or ``over`` is not above 0."""
        _check_numbers(self, above_0=("over",))

    def __call__(self, env_steps: int) -> float:
        """Returns the value at ``env_steps``."""
        share = min(env_steps / self.over, 1.0)
        return self.final + 0.5 * (self.initial - self.final) * (1.0 + math.cos(math.pi * share))


def as_schedule(value: Any, name: str = "value", low: float = -math.inf, high: float = math.inf) -> Schedule:
    """Turns a number, RLlib's ``[[env_steps, value], ...]`` or a schedule into a schedule.

    Args:
        value: What the user wrote.
        name: What the user knows it as, for the error.
        low: The smallest value that it may have; looked at are the points, or other schedules' start and far end.
        high: The largest one.

    Raises:
        InputError: If it is none of these, the points do not start at 0 or do not ascend, or a value is not finite or
            out of its range.
    """
    schedule = _made(value, name)
    for step in [at for at, _ in schedule.points] if isinstance(schedule, Piecewise) else [0, FAR]:
        found = _value_at(schedule, step)
        if not (_is_finite(found) and low <= found <= high):
            raise InputError(f"{name}: expected {_range(low, high)}, got {found!r} at env step {step}")
    return schedule


def _value_at(schedule: Schedule, env_steps: int) -> float:
    try:
        return schedule(env_steps)
    except OverflowError:  # of a factor above 1
        return math.inf


def _is_finite(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


def _check_numbers(schedule: Any, above_0: tuple[str, ...] = (), from_0: tuple[str, ...] = ()) -> None:
    for name, value in vars(schedule).items():
        expected = "above 0" if name in above_0 else "of at least 0" if name in from_0 else ""
        if not _is_finite(value) or (name in above_0 and value <= 0) or (name in from_0 and value < 0):
            said = f"a finite number {expected}".rstrip()
            raise InputError(f"{type(schedule).__name__}: {name}: expected {said}, got {value!r}")


def _range(low: float, high: float) -> str:
    if high < math.inf:
        return f"values from {low:g} to {high:g}"
    return f"values of at least {low:g}" if low > -math.inf else "finite values"


def _made(value: Any, name: str) -> Schedule:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise InputError(f"{name}: expected a finite number, got {value!r}")
        return Constant(float(value))
    if isinstance(value, Schedule) and not isinstance(value, type):
        return value
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _piecewise(value, name)
    raise InputError(
        f"{name}: expected a number, [[env_steps, value], ...] or a schedule of rayground.schedules, got {value!r}"
    )


def _piecewise(value: Sequence[Any], name: str) -> Piecewise:
    try:
        points = tuple((int(step), float(y)) for step, y in value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name}: expected [[env_steps, value], ...], got {value!r}") from None
    if not all(math.isfinite(y) for _, y in points):
        raise InputError(f"{name}: expected finite values, got {value!r}")
    steps = [step for step, _ in points]
    if not points or steps[0] != 0 or any(a >= b for a, b in pairwise(steps)):
        raise InputError(f"{name}: expected points that start at env step 0 and ascend, got {value!r}")
    return Piecewise(points)
