"""What every benchmark shares: rounds in turn, medians, ratios, a table, and the JSON file."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.util
import json
import math
import multiprocessing
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from os import cpu_count
from pathlib import Path
from typing import Any

import psutil

from rayground.errors import InputError, RunError

OURS = "rayground"
"""What all benchmarks call ours."""

Numbers = Mapping[str, Sequence[float]]
"""By name, the numbers of all rounds."""


def take_turns(measurements: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Takes each measurement once a round, all in turn, so that a slow minute of the machine hits all alike.

    What exists already is kept from the garbage collector, and new garbage is collected before each measurement: none
    pays for the objects of another.

    Args:
        measurements: By name, a function that does the work once and returns its number (seconds, steps/s, ...).
        rounds: How often each is taken.

    Returns:
        Each name's numbers, in order.
    """
    taken: dict[str, list[float]] = {name: [] for name in measurements}
    gc.collect()
    gc.freeze()
    try:
        for _ in range(rounds):
            for name, measure in measurements.items():
                gc.collect()
                taken[name].append(measure())
    finally:
        gc.unfreeze()
    return taken


def microseconds(call: Callable[[], Any], calls: int, units: int = 1) -> float:
    """Calls a function this often; returns the mean microseconds of a unit, of which one call does so many."""
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return 1e6 * (time.perf_counter() - started) / (calls * units)


def in_new_process(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function of an importable module in a process of its own, and returns what it returned.

    The process is forked from one that has only imported the module, which happens once.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", function.__module__])
    with context.Pool(1) as pool:
        return pool.apply(function, args)


def resident_bytes() -> int:
    """Returns the memory that this process holds: garbage is collected, and given back where that is possible."""
    gc.collect()
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library than GNU's
            ctypes.CDLL(None).malloc_trim(0)
    return int(psutil.Process().memory_info().rss)


def medians(numbers: Numbers) -> dict[str, float]:
    """The median of each name's numbers."""
    return {name: statistics.median(values) for name, values in numbers.items()}


def ratios(numbers: Numbers, ours: str, *, higher_is_better: bool) -> dict[str, float]:
    """How many times better the median of ``ours`` is than each of the others: above 1 is better, whatever the unit.

    Args:
        numbers: By name, ``ours`` among them; inf seconds for what never ended.
        ours: The name that the others are held against.
        higher_is_better: True for steps/s, False for seconds, microseconds and bytes.
    """
    middle = medians(numbers)
    mine = middle.pop(ours)
    return {name: mine / value if higher_is_better else value / mine for name, value in middle.items()}


def print_table(title: str, numbers: Numbers, ours: str, *, higher_is_better: bool) -> dict[str, float]:
    """Prints one line per name: its median, the lowest and the highest, and how many times better ours is.

    Args:
        title: What was measured, with its unit.
        numbers: By name, ``ours`` among them.
        ours: The name that the others are held against.
        higher_is_better: As in :func:`ratios`.

    Returns:
        The ratios.
    """
    better = ratios(numbers, ours, higher_is_better=higher_is_better)
    width = max(map(len, numbers))
    print(f"\n{title}")
    for name, median in medians(numbers).items():
        spread = f"[{min(numbers[name]):,.1f} to {max(numbers[name]):,.1f}]" if len(numbers[name]) > 1 else ""
        ratio = f"{ours} is {better[name]:.2f} times better" if name in better else ""
        print(f"  {name:<{width}}  {median:>12,.1f}  {spread:<24}  {ratio}".rstrip(), flush=True)
    return better


def write_json(path: Path | None, better: Mapping[str, float], **details: Any) -> None:
    """Writes ``{"ratios": {...}, "machine": {...}, **details}`` to ``path``; does nothing without a path.

    Args:
        path: What the user gave as ``--json FILE``, or None.
        better: The ratios, named after what ours was held against.
        details: Whatever else the reader needs: the numbers themselves, counts, settings. Numbers that are not finite
            become null.
    """
    if path is None:
        return
    machine = {"cores": cpu_count(), "processor": platform.machine(), "python": platform.python_version()}
    content = _finite({"ratios": dict(better), "machine": machine, **details})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2, default=str) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def run_module(module: str, *words: str) -> tuple[float, str]:
    """Runs ``python -m module`` in a process of its own; returns its seconds and what it printed.

    Raises:
        RunError: If it fails, with the last line that it said.
    """
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", module, *words], capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().rpartition("\n")[2]  # of an experiment the one line that says what is wrong
        raise RunError(f"python -m {module} {' '.join(words)}: exit code {done.returncode}: {said}")
    return time.perf_counter() - started, done.stdout


def train_to_goal(*words: str, seed: int, storage: Path | str, goal: float, window: int, env_steps: int) -> float:
    """Runs an experiment by its command; returns the seconds of the whole process.

    Args:
        words: What follows ``python -m``: the module, and flags.
        seed: Of the run.
        storage: Where its folder goes.
        goal: Mean return over the last ``window`` episodes at which it ends.
        window: Episodes.
        env_steps: After how many it ends anyway.

    Raises:
        RunError: If it fails.
    """
    what = ["--seed", str(seed), "--storage-path", str(storage)]
    stop = ["--stop-reward", str(goal), "--stop-timesteps", str(env_steps)]
    return run_module(*words, *what, *stop, "--set", f"metrics_num_episodes_for_smoothing={window}")[0]


def require(*modules: str) -> None:
    """Checks that the others are installed.

    Raises:
        InputError: If one of the extra ``bench`` is not.
    """
    if missing := [name for name in modules if importlib.util.find_spec(name) is None]:
        raise InputError(f"{', '.join(missing)}: not installed; pip install -e '.[bench]'")
