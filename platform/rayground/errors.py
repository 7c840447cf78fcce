"""The two ways in which a command can fail, and the one line that it then says."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """What the user gave is wrong: found before training, one line, exit code 2."""


class CheckpointError(InputError):
    """A path holds no whole checkpoint, or one that cannot be loaded here."""


class RunError(RuntimeError):
    """A run that had started could not go on: exit code 1."""


def closest(name: str, known: Iterable[str]) -> str:
    """Returns a hint such as ``; did you mean 'gamma'?``, or the empty string when nothing known is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
