"""What a run shows while it goes on, and when it has ended."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rayground.stop import Row, Stop

EVALUATION = "evaluation/episode_return_mean"
BAR_WIDTH = 20
PLAIN_EVERY_S = 5.0


class _Display:
    """A live table on a terminal, otherwise a plain line for each run every few seconds."""

    def __init__(
        self,
        stop: Stop,
        name: str,
        console: Console | None = None,
        *,
        every: float = PLAIN_EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Shows nothing yet.

        Args:
            stop: When a run ends, for its bar and its time left.
            name: Of the experiment.
            console: Where to; None: standard output.
            every: Seconds between two plain lines of a run, at least.
            clock: Seconds, always growing.
        """
        self._stop, self._name = stop, name
        self._console = console or Console()
        self._every, self._clock = every, clock
        self._rows: dict[str, Row] = {}
        self._updated_at: dict[str, float] = {}
        self._printed: dict[str, int] = {}
        self._printed_at = -math.inf
        self._ended = False
        is_live = self._console.is_terminal and not self._console.is_dumb_terminal
        self._live = Live(console=self._console, get_renderable=self._table, refresh_per_second=4) if is_live else None

    def __enter__(self) -> Self:
        """Shows that it starts."""
        if self._live:
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the display, however the run ended."""
        self.finish()

    def message(self, text: str) -> None:
        """Prints a line, above the live bars if there are any."""
        self._console.print(Text(text), soft_wrap=True)

    def finish(self) -> None:
        """Shows the last results, which plain lines may have left out, and ends the display. Once is enough."""
        if not self._ended:
            self._ended = True
            self._print_lines()
            if self._live:
                self._live.stop()

    def _show(self, rows: dict[str, Row]) -> None:
        now = self._clock()
        for label, row in rows.items():
            before = self._rows.get(label, {})
            if row["iteration"] != before.get("iteration"):
                evaluation = row.get(EVALUATION)
                self._rows[label] = {**row, EVALUATION: before.get(EVALUATION) if evaluation is None else evaluation}
                self._updated_at[label] = now
        if now - self._printed_at >= self._every and self._print_lines():
            self._printed_at = now

    def _print_lines(self) -> bool:
        """Prints a plain line for each run with a new result, if there is no live table; says whether it did."""
        if self._live:
            return False
        new = {label: row for label, row in self._rows.items() if self._printed.get(label) != row["iteration"]}
        for label, row in new.items():
            self.message(self._line(label, row))
            self._printed[label] = row["iteration"]
        return bool(new)

    def _line(self, label: str, row: Row) -> str:
        return plain_line(row, self._stop)

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 1, 0, 0), show_edge=False, header_style="dim")
        table.add_column("", no_wrap=True)
        table.add_column("", min_width=4, max_width=BAR_WIDTH)
        for heading in ("env steps", "return", "eval", "steps/s", "time", "left"):
            table.add_column(heading, justify="right", no_wrap=True)
        for label, row in list(self._rows.items()):
            table.add_row(*self._cells(label, row))
        if not self._rows:
            bar = ProgressBar(total=1.0, pulse=not self._ended, width=BAR_WIDTH)
            table.add_row(Text(self._name), bar, Text("starting", "dim"))
        return table

    def _cells(self, label: str, row: Row) -> list[Any]:
        since = 0.0 if self._ended else self._clock() - self._updated_at[label]
        done, left = self._stop.fraction(row), self._stop.seconds_left(row)
        total = "" if self._stop.env_steps is None else f" / {self._stop.env_steps:,}"
        return [
            Text(label),
            ProgressBar(total=1.0, completed=done or 0.0, pulse=done is None and not self._ended, width=BAR_WIDTH),
            f"{row['env_steps']:,}{total}",
            _number(row.get("episode_return_mean")),
            _number(row.get(EVALUATION)),
            f"{row['env_steps_per_s']:,.0f}",
            duration(row["time_s"] + since),
            "" if left is None else duration(max(left - since, 0.0)),
        ]


class Progress(_Display):
    """Shows one run: a live bar on a terminal, otherwise a plain line every few seconds, and the first and the last.

    It is a context manager; leaving it calls ``finish``.
    """

    def update(self, row: Row) -> None:
        """Takes the latest result.

        Args:
            row: ``env_steps``, ``iteration``, ``time_s``, ``env_steps_per_s``, ``episode_return_mean`` (None or NaN
                before the first episode ends), and in some rows ``evaluation/episode_return_mean``, which is shown
                until the next one comes.
        """
        self._show({self._name: row})


class SeedsProgress(_Display):
    """Shows several runs at once, each as ``Progress`` does.

    It is a context manager; leaving it calls ``finish``.
    """

    def update(self, rows: Mapping[int, Row]) -> None:
        """Takes the latest results, by seed; they may be the same ones as before."""
        self._show({f"seed {seed}": row for seed, row in sorted(rows.items())})

    def _line(self, label: str, row: Row) -> str:
        return f"{label}  {plain_line(row, self._stop)}"


def plain_line(row: Row, stop: Stop) -> str:
    """Returns such as ``12,000 env steps  return 143.2  eval 201.0  3,412 steps/s  4 s  left 26 s``."""
    words = [f"{row['env_steps']:,} env steps", f"return {_number(row.get('episode_return_mean'))}"]
    if row.get(EVALUATION) is not None:
        words.append(f"eval {_number(row[EVALUATION])}")
    words += [f"{row['env_steps_per_s']:,.0f} steps/s", duration(row["time_s"])]
    left = stop.seconds_left(row)
    if left is not None:
        words.append(f"left {duration(left)}")
    return "  ".join(words)


def duration(seconds: float) -> str:
    """Returns such as ``26 s``, ``3 min 20 s``, ``2 h 5 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


@dataclass(frozen=True)
class Ended:
    """A run that has ended.

    Attributes:
        folder: The run's.
        reason: Why it ended.
        rows: All its results, at least one.
        stop: The rule it had.
    """

    folder: Path
    reason: str
    rows: Sequence[Row]
    stop: Stop

    @property
    def last(self) -> Row:
        """The last result, with the latest greedy evaluation."""
        evaluations = [row[EVALUATION] for row in self.rows if row.get(EVALUATION) is not None]
        return {**self.rows[-1], EVALUATION: evaluations[-1] if evaluations else None}


def summary(run: Ended, name: str, module: str) -> str:
    """Returns the text that closes a run: why it stopped, what it reached, and the commands to go on.

    Args:
        run: The run.
        name: Of the experiment.
        module: Of the experiment, as ``python -m`` takes it.
    """
    lines = [f"{name} stopped: {run.reason}", f"  {_reached(run.last)}", f"  {shell_path(run.folder)}"]
    return "\n".join([*lines, "Go on:", *_commands(run.folder, run, name, module)])


def seeds_summary(runs: Mapping[int, Ended], folder: Path, name: str, module: str) -> str:
    """Returns the text that closes several runs: a line for each, and the commands to go on.

    Args:
        runs: By seed.
        folder: The one that theirs lie in.
        name: Of the experiment.
        module: Of the experiment, as ``python -m`` takes it.
    """
    lines = [f"{name}: {len(runs)} seeds"]
    lines += [f"  seed {seed}: {_reached(run.last)}; {run.reason}" for seed, run in sorted(runs.items())]
    first = runs[min(runs)]
    return "\n".join([*lines, f"  {shell_path(folder)}", "Go on:", *_commands(folder, first, name, module)])


def shell_path(path: Path) -> str:
    """Returns a path to paste into a shell: the home folder as ``~``, and quoted where that is needed."""
    absolute = path.expanduser().absolute()
    home = Path.home()
    if absolute != home and absolute.is_relative_to(home):
        return "~/" + shlex.quote(str(absolute.relative_to(home)))
    return shlex.quote(str(absolute))


def _reached(row: Row) -> str:
    return (
        f"return {_number(row.get('episode_return_mean'))}  greedy evaluation {_number(row.get(EVALUATION))}"
        f"  {row['env_steps']:,} env steps  {duration(row['time_s'])}"
    )


def _commands(folder: Path, run: Ended, name: str, module: str) -> list[str]:
    more = " ".join(["", *run.stop.flags_to_go_on(run.last)])
    return [
        f"  tensorboard --logdir {shell_path(folder)}",
        f"  python -m {module} --resume {shell_path(run.folder)}{more}",
        f"  rayground export {shell_path(folder)} --to {shlex.quote(name + '_policy')}",
    ]


def _number(value: float | None) -> str:
    """Tenths of a large return, and three digits of a small one."""
    if value is None or math.isnan(value):
        return "-"
    return f"{value:,.1f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"
