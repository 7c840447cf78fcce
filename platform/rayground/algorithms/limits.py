"""What the numbers among the settings may be."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any

from rayground.errors import InputError


@dataclass(frozen=True)
class Number:
    """A finite number.

    Attributes:
        low: The smallest value, or the largest that is too small if ``above``.
        high: The largest value.
        whole: Only whole numbers.
        optional: None is fine too.
        above: ``low`` itself is too small.
    """

    low: float
    high: float = math.inf
    whole: bool = False
    optional: bool = False
    above: bool = False

    def check(self, value: Any, key: str) -> None:
        """Raises unless ``value`` is such a number; a bool is none.

        Raises:
            InputError: It says what was expected for ``key``, and what came.
        """
        if value is None and self.optional:
            return
        kind = numbers.Integral if self.whole else numbers.Real
        is_number = isinstance(value, kind) and not isinstance(value, bool)
        if not (is_number and self.low <= value <= self.high and math.isfinite(value)) or (
            self.above and value == self.low
        ):
            raise InputError(f"{key}: expected {self._describe()}, got {value!r}")

    def _describe(self) -> str:
        bounds = f"above {self.low:g}" if self.above else f"of at least {self.low:g}"
        if self.high < math.inf:
            bounds = f"from {self.low:g} to {self.high:g}{f' and {bounds}' if self.above else ''}"
        return f"a {'whole' if self.whole else 'finite'} number {bounds}{', or None' if self.optional else ''}"
