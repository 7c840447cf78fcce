"""When a run ends: any one of these rules is enough."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from rayground.errors import InputError

if TYPE_CHECKING:
    from rayground.flags import Flags

Row = Mapping[str, Any]
"""One result of a run: the headline metrics by name."""


@dataclass(frozen=True)
class Stop:
    """A run stops as soon as one of its rules holds.

    Attributes:
        episode_return_mean: Stop once the mean return of the last ``episode_window`` episodes is at least this, and
            that window is full.
        env_steps: Stop after this many env steps.
        iterations: Stop after this many training iterations.
        seconds: Stop after this much time, over all sessions of a run that was resumed.
    """

    episode_return_mean: float | None = None
    env_steps: int | None = None
    iterations: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        """Checks the rules.

        Raises:
            InputError: If no rule is given, or one of them is no number, not finite, or (but for the return) not
                above zero.
        """
        if not self._given():
            raise InputError(f"the stop rule: expected at least one of {', '.join(_ROW_KEYS)}, got none")
        for name, value in self._given().items():
            _check_rule(name, value)

    def reason(self, row: Row) -> str | None:
        """Returns why the run is over, such as ``env_steps 100,000 >= 100,000``, or None if it goes on.

        Args:
            row: ``env_steps``, ``iteration``, ``time_s``, ``episode_return_mean`` (None or NaN before the first
                episode ends), ``episodes_in_window`` and ``episode_window`` (both in episodes). What is missing
                stops nothing.
        """
        for name, limit in self._given().items():
            value = row.get(_ROW_KEYS[name])
            if value is None or not value >= limit:  # NaN is not, either
                continue
            if name != "episode_return_mean" or _window_is_full(row):
                return f"{name} {_show(value)} >= {_show(limit)}"
        return None

    def fraction(self, row: Row) -> float | None:
        """Returns the share of the env step, iteration or time budget that is done, 0 to 1, or None without one."""
        shares = [value / limit for limit, value in self._budgets(row)]
        return min(max(shares), 1.0) if shares else None

    def seconds_left(self, row: Row) -> float | None:
        """Returns the seconds until the first budget is used up at the present pace, or None if nothing tells.

        Args:
            row: As for ``reason``, with ``env_steps_per_s``.
        """
        left = []
        speed = row.get("env_steps_per_s")
        if self.env_steps is not None and speed is not None and speed > 0:
            left.append((self.env_steps - row["env_steps"]) / speed)
        if self.iterations is not None and row["iteration"] > 0:
            left.append((self.iterations / row["iteration"] - 1.0) * row["time_s"])
        if self.seconds is not None:
            left.append(self.seconds - row["time_s"])
        return max(min(left), 0.0) if left else None

    def with_flags(self, flags: Flags) -> Stop:
        """Returns this rule with what the command line says in its place.

        ``--stop-reward inf`` takes the rule on the return away: it lets a run that has reached it go on.

        Raises:
            InputError: If a value is not one that its rule can have, or no rule is left.
        """
        told = {name: value for name, flag in _FLAGS.items() if (value := getattr(flags, flag)) is not None}
        if told.get("episode_return_mean") == math.inf:
            told["episode_return_mean"] = None
        return replace(self, **told)

    def flags_to_go_on(self, row: Row) -> list[str]:
        """Returns the flags that give a run which ended with ``row`` more to do; none if it has more to do anyway.

        A budget that is used up is doubled, and a return that is reached stops the run no more.
        """
        met = {name: limit for name, limit in self._given().items() if Stop(**{name: limit}).reason(row)}
        left = self._given().keys() - met.keys()
        words = []
        for name, limit in met.items():
            more = "inf" if name == "episode_return_mean" else f"{2 * limit:g}" if name == "seconds" else str(2 * limit)
            words += [f"--{_FLAGS[name].replace('_', '-')}", more]
        if met.keys() == {"episode_return_mean"} and not left:
            words += ["--stop-timesteps", str(2 * row["env_steps"])]
        return words

    def _given(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}

    def _budgets(self, row: Row) -> list[tuple[float, float]]:
        budgets = {name: limit for name, limit in self._given().items() if name != "episode_return_mean"}
        return [(limit, row[_ROW_KEYS[name]]) for name, limit in budgets.items()]


_ROW_KEYS = {
    "episode_return_mean": "episode_return_mean",
    "env_steps": "env_steps",
    "iterations": "iteration",
    "seconds": "time_s",
}
_FLAGS = {
    "episode_return_mean": "stop_reward",
    "env_steps": "stop_timesteps",
    "iterations": "stop_iters",
    "seconds": "stop_time_s",
}


def _check_rule(name: str, value: Any) -> None:
    whole = name in ("env_steps", "iterations")
    right = isinstance(value, int) if whole else isinstance(value, (int, float))
    if not right or isinstance(value, bool) or not math.isfinite(value):
        raise InputError(f"the stop rule {name}: expected a {'whole' if whole else 'finite'} number, got {value!r}")
    if name != "episode_return_mean" and value <= 0:
        raise InputError(f"the stop rule {name}: expected more than 0, got {value!r}")


def _window_is_full(row: Row) -> bool:
    return row.get("episodes_in_window", 0) >= row.get("episode_window", math.inf)


def _show(value: float) -> str:
    if isinstance(value, int) or abs(value) < 10:
        return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"
    return f"{value:,.1f}".removesuffix(".0")
