"""Files that are written whole or not at all, and values as JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from rayground.budget import human_bytes
from rayground.errors import InputError, RunError

_LARGEST_ARRAY_SHOWN = 64
_TAIL_BYTES = 8192
_FLOAT_KEY = "$float"
"""Strict JSON has no NaN and no infinity: a state holds them as objects with this key."""


def absolute(path: str | Path) -> Path:
    """Returns the path with ``~`` and relative parts resolved against the home and working directory.

    Symbolic links are kept as the user wrote them.
    """
    return Path(os.path.abspath(os.path.expanduser(path)))


def write_atomically(path: Path, data: str | bytes) -> None:
    """Replaces a file in one step: whoever reads, also after a crash, sees the old content or the new.

    Raises:
        OSError: If it cannot be written; the old file is then untouched.
    """
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def append_whole(path: Path, data: str | bytes) -> None:
    """Appends data, handed to the operating system before this returns, so that it survives ``kill -9``.

    Raises:
        OSError: If it cannot be written; the part that was is then cut off again.
    """
    left = memoryview(data.encode() if isinstance(data, str) else data)
    with path.open("ab", buffering=0) as file:
        start = file.tell()
        try:
            while left:
                left = left[file.write(left) :]
        except OSError:
            file.truncate(start)
            raise


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turns errors of the disk into a RunError that names the absolute path and the space that is left."""
    try:
        yield
    except OSError as error:
        reason, free = error.strerror or error, human_bytes(shutil.disk_usage(folder).free)
        raise RunError(f"{absolute(folder)}: cannot be written: {reason}; {free} are free there") from error


def write_json(path: Path, value: Any) -> None:
    """Writes a value as indented strict JSON with sorted keys, atomically."""
    write_atomically(path, json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Reads a JSON file.

    Raises:
        InputError: If it is missing or not JSON; names the absolute path.
    """
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{absolute(path)}: expected a JSON file, but {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{absolute(path)}: expected JSON, but {error}") from None


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Reads a file of one JSON object a line; empty when there is no such file.

    A last line that is not JSON was being written when its process was killed, and is left out.

    Raises:
        InputError: If another line is not a JSON object; names the absolute path and the line.
    """
    lines = path.read_bytes().splitlines() if path.exists() else []
    rows = []
    for number, line in enumerate(lines, start=1):
        row = _row(line)
        if row is not None:
            rows.append(row)
        elif number < len(lines):
            raise InputError(f"{absolute(path)}: line {number} is damaged: expected one JSON object a line")
    return rows


def read_last_row(path: Path) -> dict[str, Any] | None:
    """Reads the last of the rows that :func:`read_rows` reads, from the file's end; None if there is none."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        start, tail = file.seek(0, os.SEEK_END), b""
        while start > 0 and tail.count(b"\n") < 3:  # the last line may be torn: the one before it must be whole
            size = min(_TAIL_BYTES, start)
            start -= size
            file.seek(start)
            tail = file.read(size) + tail
    rows = map(_row, reversed(tail.splitlines()[-2:]))
    return next((row for row in rows if row is not None), None)


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def dump_state(state: Mapping[str, Any]) -> str:
    """Turns a state into strict JSON that :func:`load_state` turns back.

    Args:
        state: Dicts with string keys, lists, strings, bools, None, integers of any size, floats, also NaN and
            infinite ones. Scalars of numpy become Python's, tuples become lists.

    Raises:
        TypeError: If there is anything else in it, or the key ``$float``; names where.
    """
    return json.dumps(_encoded(state, "state"), allow_nan=False)


def _encoded(value: Any, where: str) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_FLOAT_KEY: repr(value)}
    if isinstance(value, Mapping) and all(isinstance(key, str) and key != _FLOAT_KEY for key in value):
        return {key: _encoded(entry, f"{where}[{key!r}]") for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encoded(entry, f"{where}[{index}]") for index, entry in enumerate(value)]
    raise TypeError(f"{where}: expected JSON with string keys, got {type(value).__name__}")


def load_state(text: str) -> Any:
    """Turns the text of :func:`dump_state` back."""
    return json.loads(text, object_hook=lambda o: float(o[_FLOAT_KEY]) if o.keys() == {_FLOAT_KEY} else o)


def class_name(cls: type) -> str:
    """Returns ``module:QualName``."""
    return f"{cls.__module__}:{cls.__qualname__}"


def readable(value: Any) -> Any:
    """Turns any settings into JSON that a person can read.

    Numbers of numpy become numbers; classes and functions ``module:QualName``; dataclasses objects that hold their
    class beside their fields; non-finite floats and whatever else there is (Gymnasium spaces, devices) their text,
    without memory addresses.
    """
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, (np.generic, float)):
        return _readable_number(value)
    if isinstance(value, np.ndarray):
        return (
            readable(value.tolist())
            if value.size <= _LARGEST_ARRAY_SHOWN
            else f"{value.dtype} array of shape {list(value.shape)}"
        )
    if isinstance(value, Mapping):
        return {_readable_key(key): readable(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [readable(entry) for entry in value]
    if isinstance(value, (set, frozenset)):
        return sorted((readable(entry) for entry in value), key=str)
    return _readable_object(value)


def _readable_number(value: Any) -> Any:
    plain = value.item() if isinstance(value, np.generic) else float(value)
    if isinstance(plain, float) and not math.isfinite(plain):
        return str(plain)
    return plain if isinstance(plain, (bool, int, float, str)) else str(plain)


def _readable_object(value: Any) -> Any:
    if isinstance(value, type):
        return class_name(value)
    if dataclasses.is_dataclass(value):
        fields = {field.name: readable(getattr(value, field.name, None)) for field in dataclasses.fields(value)}
        return {"class": class_name(type(value)), **fields}
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if hasattr(value, "__qualname__") and hasattr(value, "__module__"):
        return f"{value.__module__}:{value.__qualname__}"
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


def _readable_key(key: Any) -> str:
    text = readable(key)
    return text if isinstance(text, str) else str(key)
