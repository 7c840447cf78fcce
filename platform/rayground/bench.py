"""What every benchmark shares: rounds in turn, medians, ratios, a table, and the JSON file."""

from __future__ import annotations

import gc
import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from os import cpu_count
from pathlib import Path
from typing import Any

import psutil


def medians(measurements: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Takes each measurement once a round, all in turn, so that a slow minute of the machine hits all alike.

    Args:
        measurements: By name, a function that does the work once and returns its number (seconds, steps/s, ...).
        rounds: How often each is taken.

    Returns:
        The median of each name's numbers.
    """
    taken: dict[str, list[float]] = {name: [] for name in measurements}
    for _ in range(rounds):
        for name, measure in measurements.items():
            taken[name].append(measure())
    return {name: statistics.median(numbers) for name, numbers in taken.items()}


def microseconds(call: Callable[[], Any], calls: int, units: int = 1) -> float:
    """Calls a function this often; returns the mean microseconds of a unit, of which one call does so many."""
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return 1e6 * (time.perf_counter() - started) / (calls * units)


def resident_bytes() -> int:
    """Returns the memory that this process holds, garbage collected."""
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def ratios(results: Mapping[str, float], ours: str, *, higher_is_better: bool) -> dict[str, float]:
    """How many times better ``ours`` is than each of the others: above 1 is better, whatever the unit.

    Args:
        results: Numbers by name, ``ours`` among them.
        ours: The name that the others are held against.
        higher_is_better: True for steps/s, False for seconds, microseconds and bytes.
    """
    mine = results[ours]
    others = {name: value for name, value in results.items() if name != ours}
    return {name: mine / value if higher_is_better else value / mine for name, value in others.items()}


def print_table(title: str, results: Mapping[str, float], ours: str, *, higher_is_better: bool) -> dict[str, float]:
    """Prints one line per name: its number, and how many times better ours is.

    Args:
        title: What was measured, with its unit.
        results: Numbers by name, ``ours`` among them.
        ours: The name that the others are held against.
        higher_is_better: As in :func:`ratios`.

    Returns:
        The ratios.
    """
    better = ratios(results, ours, higher_is_better=higher_is_better)
    width = max(map(len, results))
    print(f"\n{title}")
    for name, value in results.items():
        ratio = f"ours is {better[name]:.2f} times better" if name in better else ""
        print(f"  {name:<{width}}  {value:>12,.1f}  {ratio}".rstrip(), flush=True)
    return better


def write_json(path: Path | None, better: Mapping[str, float], **details: Any) -> None:
    """Writes ``{"ratios": {...}, "machine": {...}, **details}`` to ``path``; does nothing without a path.

    Args:
        path: What the user gave as ``--json FILE``, or None.
        better: The ratios, named after what ours was held against.
        details: Whatever else the reader needs: the numbers themselves, counts, settings.
    """
    if path is None:
        return
    machine = {"cores": cpu_count(), "processor": platform.machine(), "python": platform.python_version()}
    content = {"ratios": dict(better), "machine": machine, **details}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2, default=str) + "\n")
