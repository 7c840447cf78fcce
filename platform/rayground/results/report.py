"""Compares contestants over seeds: what each needed to reach a goal, as a table; the plot is in ``curves.py``.

Only :func:`read` knows run folders; all else works on their rows (``docs/metrics.md``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from rayground.errors import InputError
from rayground.results.loggers import csv_text
from rayground.results.runs import RunFiles

Row = dict[str, Any]
Runs = Mapping[str, Mapping[int, Sequence[Row]]]
"""By contestant and seed, all results of a run, at least one."""
Measure = Callable[[Sequence[Row]], float | None]
"""One number of a run: infinite for what never happened, None for what such a run does not have."""

AXES = {"episodes": "episodes", "env_steps": "env steps", "time_s": "seconds of training"}
"""What a goal costs: names in a row, and in words."""


def read(folders: Mapping[str, Iterable[str | Path]]) -> dict[str, dict[int, list[Row]]]:
    """Reads the runs to compare.

    Args:
        folders: By contestant, its run folders; the folder of several seeds stands for all of them.

    Raises:
        InputError: If a folder is no run's, a run has no results yet, or a contestant has a seed twice.
    """
    runs: dict[str, dict[int, list[Row]]] = {}
    for contestant, places in folders.items():
        seeds = runs[contestant] = {}
        for files in (one for place in places for one in _each_seed(RunFiles(place))):
            seed, rows = files.experiment["seed"], files.rows
            if not rows:
                raise InputError(f"{files.folder}: expected a run with results, got one without")
            if seed in seeds:
                raise InputError(f"{files.folder}: seed {seed} of {contestant} is there twice; leave one out")
            seeds[seed] = rows
    return runs


def _each_seed(files: RunFiles) -> list[RunFiles]:
    return [RunFiles(folder) for folder in files.seed_folders] or [files]


@dataclass(frozen=True)
class Solution:
    """When a run reached a goal; if it did not, how it stood at its end.

    Attributes:
        reached: Whether it did.
        episodes: Episodes that had ended by then.
        env_steps: Env steps until then.
        time_s: Seconds of training until then.
    """

    reached: bool
    episodes: int
    env_steps: int
    time_s: float


def solution(rows: Sequence[Row], goal: float) -> Solution:
    """Finds the first result whose mean return over a full window is at least ``goal``."""
    full = (row for row in rows if row["episodes_in_window"] >= row["episode_window"])
    means = ((row["episode_return_mean"], row) for row in full)
    first = next((row for mean, row in means if mean is not None and mean >= goal), None)
    row = first or rows[-1]
    return Solution(first is not None, row["episodes"], row["env_steps"], row["time_s"])


def to_goal(axis: str, goal: float) -> Callable[[Sequence[Row]], float]:
    """What a run needed to reach the goal on one of :data:`AXES`; infinite if it never did."""

    def measure(rows: Sequence[Row]) -> float:
        found = solution(rows, goal)
        return float(getattr(found, axis)) if found.reached else math.inf

    return measure


def mean_of(key: str) -> Measure:
    """The mean of a metric over a run's results; None if it is in none."""
    return lambda rows: float(np.mean(values)) if (values := _values(rows, key)) else None


def highest(key: str) -> Measure:
    """The highest value of a metric in a run's results; None if it is in none."""
    return lambda rows: max(_values(rows, key), default=None)


def per_second(key: str) -> Measure:
    """What a metric that counts has come to, for each second of training; None if no result has it."""
    return lambda rows: values[-1] / rows[-1]["time_s"] if (values := _values(rows, key)) else None


def _values(rows: Sequence[Row], key: str) -> list[float]:
    return [row[key] for row in rows if row.get(key) is not None]


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of the seeds; infinite where too few of them got there.

    Attributes:
        median: Of them all.
        low: First quartile.
        high: Third quartile.
    """

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        """Returns such as ``512 (430 to 601)``."""
        median, low, high = map(number, (self.median, self.low, self.high))
        return median if low == high else f"{median} ({low} to {high})"


def spread(values: Sequence[float]) -> Spread:
    """Returns median and quartiles, between two values linearly as numpy does; other than numpy's, right with inf."""
    return Spread(quantile(values, 0.5), quantile(values, 0.25), quantile(values, 0.75))


def quantile(values: Sequence[float], share: float) -> float:
    """Returns the value below which this share of the values lies; infinite if it lies between a number and inf."""
    ordered = sorted(values)
    whole, part = divmod(share * (len(ordered) - 1), 1)
    below = ordered[int(whole)]
    return (1 - part) * below + part * ordered[int(whole) + 1] if part else below


def number(value: float) -> str:
    """Returns a number in three digits or, from 100 on, to the whole; an infinite one never was reached."""
    if math.isinf(value):
        return "not reached"
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


@dataclass(frozen=True)
class Table:
    """A table to print, and to write as Markdown and CSV.

    Attributes:
        title: What it shows.
        rows: By column, a text, a number, a spread, or None for nothing; all rows have the same columns.
    """

    title: str
    rows: Sequence[Mapping[str, str | float | Spread | None]]

    @property
    def lines(self) -> list[list[str]]:
        """The heads of the columns, then the cells of each row, as people read them."""
        return [list(self.rows[0]), *([_text(cell) for cell in row.values()] for row in self.rows)]

    def markdown(self) -> str:
        """Returns it as Markdown, the title in front."""
        head, *body = (f"| {' | '.join(line)} |\n" for line in self.lines)
        return f"{self.title}\n\n{head}|{'---|' * len(self.rows[0])}\n{''.join(body)}"

    def csv(self) -> str:
        """Returns it as CSV with full numbers: of a spread its median, with columns for the quartiles beside it."""
        spreads = {name for row in self.rows for name, cell in row.items() if isinstance(cell, Spread)}
        columns = [part for name in self.rows[0] for part in (_parts(name) if name in spreads else (name,))]
        return csv_text(columns, [dict(pair for cell in row.items() for pair in _plain(*cell)) for row in self.rows])

    def save(self, path: Path) -> None:
        """Writes ``<path>.md`` and ``<path>.csv``."""
        path.with_suffix(".md").write_text(self.markdown())
        path.with_suffix(".csv").write_text(self.csv())

    def __rich__(self) -> RichTable:
        """How rich prints it: a column for each row, for the quantities may be many, and a terminal is narrow."""
        head, *body = zip(*self.lines, strict=True)
        table = RichTable(title=self.title, title_justify="left", box=box.SIMPLE_HEAD)
        for name in head:
            table.add_column(Text(name), overflow="fold")
        for line in body:
            table.add_row(*map(Text, line))
        return table


def _text(cell: str | float | Spread | None) -> str:
    if cell is None:
        return "-"
    return number(cell) if isinstance(cell, int | float) else str(cell)


def _parts(name: str) -> tuple[str, str, str]:
    return name, f"{name} q1", f"{name} q3"


def _plain(name: str, cell: str | float | Spread | None) -> list[tuple[str, str | float | None]]:
    if isinstance(cell, Spread):
        return list(zip(_parts(name), (cell.median, cell.low, cell.high), strict=True))
    return [(name, cell)]


def goal_table(runs: Runs, goal: float, more: Mapping[str, Measure] | None = None) -> Table:
    """Makes a line for each contestant: how many seeds reached the goal, and what that took, median and quartiles.

    Args:
        runs: What is compared.
        goal: Mean return over a full window.
        more: Further columns, from the whole runs.

    Raises:
        InputError: If no run has what a further column shows.
    """
    more = more or {}
    measures = {**{name: to_goal(axis, goal) for axis, name in AXES.items()}, **more}
    rows = []
    for contestant, seeds in runs.items():
        numbers = {name: [measure(rows) for rows in seeds.values()] for name, measure in measures.items()}
        cells = {name: _spread_of_all(values) for name, values in numbers.items()}
        rows.append({"contestant": contestant, "reached": _reached(seeds, goal), **cells})
    if missing := [name for name in more if all(row[name] is None for row in rows)]:
        raise InputError(f"{missing[0]}: expected a metric that some run has, got one that none has")
    return Table(f"To a mean return of {goal:g} over {window(runs)} episodes: median and quartiles of the seeds", rows)


def _spread_of_all(values: Sequence[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return spread(known) if known else None


def _reached(seeds: Mapping[int, Sequence[Row]], goal: float) -> str:
    failed = [seed for seed, rows in sorted(seeds.items()) if not solution(rows, goal).reached]
    text = f"{len(seeds) - len(failed)} of {len(seeds)} seeds"
    return f"{text} (not {', '.join(map(str, failed))})" if failed else text


def window(runs: Runs) -> str:
    """Returns over how many episodes means are taken, such as ``20``, or ``20 or 100``."""
    windows = {row["episode_window"] for seeds in runs.values() for rows in seeds.values() for row in rows}
    return " or ".join(map(str, sorted(windows)))
