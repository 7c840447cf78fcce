"""What is refused: exit code 2 and one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Done

Refused = Callable[..., str]


def only_error(done: Done) -> str:
    assert (done.code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


def assert_in_order(line: str, parts: str) -> None:
    """The words come one after another."""
    rest = line
    for part in parts.split():
        assert part in rest, (part, line)
        rest = rest.partition(part)[2]
