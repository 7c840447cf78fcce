"""Does something once when the mean episode return passes a value."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback

logger = logging.getLogger("rayground")


class ReturnThreshold(RLlibCallback):
    """When ``episode_return_mean`` reaches ``above``: stop, call a function, or change settings. Once.

    >>> config.callbacks([ReturnThreshold(400, change={"lr": 1e-4}), ReturnThreshold(490, stop=True)])

    It waits for a full window of episodes, says in the log what it did, and a resumed run remembers it.
    """

    def __init__(
        self,
        above: float,
        *,
        stop: bool = False,
        change: Mapping[str, Any] | None = None,
        call: Callable[[Any], None] | None = None,
    ) -> None:
        """Sets the threshold and exactly one thing to do.

        Args:
            above: The mean return to reach.
            stop: End the run.
            change: Settings and their new values; those that the algorithm lists as ``changeable``.
            call: Called with the algorithm.

        Raises:
            ValueError: If not exactly one thing is to be done, or ``above`` is no finite number.
        """
        super().__init__()
        if sum((stop, change is not None, call is not None)) != 1:
            raise ValueError("ReturnThreshold: expected exactly one of stop=True, change={...}, call=function")
        if not math.isfinite(above):
            raise ValueError(f"ReturnThreshold: expected a finite return, got {above!r}")
        self.above, self.stop, self.change, self.call = above, stop, change, call
        self.passed_at: int | None = None

    def __call__(self) -> ReturnThreshold:
        """RLlib makes its callbacks by calling what it was given, once per process."""
        return copy.copy(self)

    def on_algorithm_init(self, *, algorithm: Any, metrics_logger: Any = None, **kwargs: Any) -> None:
        """Checks the changes, so that a wrong one is found before training and not when the threshold is reached."""
        for key, value in (self.change or {}).items():
            algorithm.check_setting(key, value)

    def on_train_result(
        self, *, algorithm: Any, metrics_logger: Any = None, result: dict[str, Any], **kwargs: Any
    ) -> None:
        """Looks at the mean return of every result."""
        headline = result["headline"]
        mean = headline["episode_return_mean"]
        full = headline["episodes_in_window"] >= headline["episode_window"]
        if self.passed_at is not None or not full or mean is None or mean < self.above:
            return
        self.passed_at = headline["env_steps"]
        reason = f"episode_return_mean {mean:.1f} >= {self.above:g} at env step {self.passed_at:,}"
        logger.info("%s: %s", reason, self._what())
        if self.stop:
            result["done"], result["stop_reason"] = True, reason
        for key, value in (self.change or {}).items():
            algorithm.change_setting(key, value)
        if self.call is not None:
            self.call(algorithm)

    def get_state(self) -> dict[str, Any]:
        """For the checkpoint."""
        return {"above": self.above, "passed_at": self.passed_at}

    def set_state(self, state: dict[str, Any]) -> None:
        """From the checkpoint; a threshold that was moved since starts anew."""
        if state["above"] == self.above:
            self.passed_at = state["passed_at"]

    def _what(self) -> str:
        if self.stop:
            return "stopping"
        if self.change is not None:
            return "changing " + ", ".join(f"{key} to {value!r}" for key, value in self.change.items())
        return f"calling {getattr(self.call, '__name__', self.call)!s}"
