"""How a runner reports what went wrong."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass

from rayground.errors import one_line


class EnvironmentFailed(Exception):
    """The environment raised in ``reset()`` or ``step()``; its own exception is the cause."""


@dataclass(slots=True)
class RunnerFailure:
    """What a runner hands back instead of raising: an exception that leaves an actor would kill it, unexplained.

    Attributes:
        runner: Index of the runner.
        error: One line: who raised what.
        traceback: The environment's (or callback's) own traceback.
    """

    runner: int
    error: str
    traceback: str

    @classmethod
    def of(cls, runner: int, error: BaseException) -> RunnerFailure:
        """Describes ``error``, or, where the environment raised it, what the environment raised."""
        who = ""
        if isinstance(error, EnvironmentFailed) and error.__cause__ is not None:
            who, error = "the environment ", error.__cause__
        return cls(runner, f"{who}raised {one_line(error)}", "".join(traceback.format_exception(error)))

    def __str__(self) -> str:
        return f"runner {self.runner}: {self.error}"


class Deadline:
    """Raises once a number of seconds has passed."""

    def __init__(self, seconds: float | None, what: str) -> None:
        self._seconds, self._what = seconds, what
        self._started = time.monotonic()

    def check(self) -> None:
        """Raises TimeoutError when the time is over."""
        if self._seconds is not None and time.monotonic() - self._started > self._seconds:
            raise TimeoutError(f"{self._what}: not done after {self._seconds:g} s (evaluation_sample_timeout_s)")
