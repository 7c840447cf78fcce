"""The two ways in which a command can fail, and the one line that it then says."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable
from pathlib import Path


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


def one_line(error: BaseException) -> str:
    """Returns an exception in one line, with the innermost place that is not in an installed package."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename]
    place = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    message = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {message}{place}"
