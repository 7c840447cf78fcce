"""Writes the results of a run as JSON lines, CSV, TensorBoard events and pictures, all current after every result."""

from __future__ import annotations

import csv
import io
import json
import math
import numbers
import reprlib
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rayground.errors import InputError, RunError
from rayground.results.events import EventWriter, cut_events, wait_for_later_name
from rayground.results.files import absolute, append_whole, read_rows, write_atomically, writing
from rayground.results.shown import Shown, sort_out

Row = dict[str, Any]
IMAGES = "images"


class RunLogger:
    """Logs rows into ``result.json``, ``progress.csv`` and TensorBoard event files of one run folder.

    ``result.json`` has one strict-JSON object a line; non-finite numbers are null. ``progress.csv`` has a column for
    every key ever logged, in order of first appearance: a key that comes late widens the file. TensorBoard gets the
    finite numbers under their keys, with env steps as x axis. Lists are JSON lists and TensorBoard histograms, and
    not in the CSV. The newest picture of each tag is also a file, ``images/<tag>.png``. When :meth:`log` returns, the
    operating system has all of it: ``kill -9`` loses nothing.

    There is nothing to close: no file stays open.
    """

    def __init__(self, folder: Path, *, resume_at: int | None = None) -> None:
        """Opens the files of a run, new or cut back.

        Args:
            folder: Of the run; it exists.
            resume_at: Env steps of the checkpoint that the run goes on from: what was logged after it, and a line
                that a kill tore, is cut from all files. None for a new run.

        Raises:
            InputError: If ``resume_at`` is None and the folder already holds results, or ``result.json`` is damaged
                before its last line; nothing is changed then.
        """
        self._folder = absolute(folder)
        self._json = self._folder / "result.json"
        self._csv = self._folder / "progress.csv"
        self._columns: list[str] = []
        if resume_at is not None:
            self._cut_back(resume_at)
        elif self._json.exists():
            raise InputError(f"{self._folder}: expected a folder without results, got one with result.json; resume it")
        # TensorBoards that run forget from purge_step on, that step included.
        purge_step = None if resume_at is None else resume_at + 1
        self._events = EventWriter(self._folder, purge_step)

    def _cut_back(self, env_steps: int) -> None:
        rows = [row for row in read_rows(self._json) if row["env_steps"] <= env_steps]
        write_atomically(self._json, "".join(json_line(row) for row in rows))
        self._columns = csv_columns(rows)
        if rows:
            write_atomically(self._csv, csv_text(self._columns, rows))
        else:  # pandas reads no empty file
            self._csv.unlink(missing_ok=True)
        shutil.rmtree(self._folder / IMAGES, ignore_errors=True)  # the next result draws them anew
        cut_events(self._folder, env_steps)
        wait_for_later_name(self._folder)

    def log(self, row: Mapping[str, Any], shown: Mapping[str, Any] | None = None) -> None:
        """Appends one result.

        Args:
            row: Numbers (also of numpy or torch), strings, None, and lists or 1-D arrays of these, by keys whose
                parts are joined with ``/``. ``env_steps`` and ``iteration`` are needed.
            shown: What only TensorBoard shows, by tag; see :mod:`rayground.results.shown`.

        Raises:
            ValueError: If ``env_steps`` or ``iteration`` is missing or no integer.
            RunError: If a value is of another type, or the disk takes no more.
        """
        plain = {key: plain_value(key, value) for key, value in row.items()}
        sorted_out = sort_out(shown or {})
        for key in ("env_steps", "iteration"):
            if not isinstance(plain.get(key), int):
                raise ValueError(f"result row: expected an integer {key!r}, got {plain.get(key)!r}")
        with writing(self._folder):
            append_whole(self._json, json_line(plain))
            self._append_csv(plain)
            self._append_events(plain, sorted_out)
            self._write_pictures(sorted_out)

    def _append_csv(self, row: Row) -> None:
        late = [key for key in csv_columns([row]) if key not in self._columns]
        if late:
            self._columns += late
            write_atomically(self._csv, csv_text(self._columns, read_rows(self._json)))
        else:
            append_whole(self._csv, csv_line(self._columns, row))

    def _append_events(self, row: Row, shown: Shown) -> None:
        scalars = {key: value for key, value in row.items() if _is_number(value)}
        lists = {
            key: [entry for entry in value if _is_number(entry)] for key, value in row.items() if type(value) is list
        }
        samples = {key: np.array(sample, np.float64) for key, sample in lists.items() if sample}
        self._events.add(row["env_steps"], scalars, samples, shown)

    def _write_pictures(self, shown: Shown) -> None:
        for tag, picture in shown.pictures.items():
            file = self._folder / IMAGES / f"{tag}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, picture.png)


def plain_value(key: str, value: Any) -> Any:
    """Turns a logged value into a bool, int, float, str, None or list of these; non-finite floats become None.

    Args:
        key: The name that the value is logged under, for the error.
        value: What was logged.

    Raises:
        RunError: If it is none of what :meth:`RunLogger.log` takes.
    """
    if hasattr(value, "tolist"):  # arrays and scalars of numpy and torch
        value = value.tolist()
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, (list, tuple)) and not any(isinstance(entry, (list, tuple)) for entry in value):
        return [plain_value(key, entry) for entry in value]
    raise RunError(f"metric {key!r}: expected a number, string, None or flat list, got {reprlib.repr(value)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def json_line(row: Row) -> str:
    """Returns a row as one line of strict JSON."""
    return json.dumps(row, allow_nan=False) + "\n"


def csv_columns(rows: Iterable[Row]) -> list[str]:
    """Returns the keys of all values that are not lists, in order of first appearance."""
    return list(dict.fromkeys(key for row in rows for key, value in row.items() if not isinstance(value, list)))


def csv_text(columns: list[str], rows: Iterable[Row]) -> str:
    """Returns a whole CSV file: the header and a line for each row."""
    return _csv_line(columns) + "".join(csv_line(columns, row) for row in rows)


def csv_line(columns: list[str], row: Row) -> str:
    """Returns a row as one CSV line; cells of what it lacks, and of lists, are empty."""
    cells = (row.get(column) for column in columns)
    return _csv_line(None if isinstance(cell, list) else cell for cell in cells)


def _csv_line(cells: Iterable[Any]) -> str:
    line = io.StringIO()
    # Only with \r\n as its line end does the csv module also quote a lone \r, at which pandas would break the line.
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue().removesuffix("\r\n") + "\n"
