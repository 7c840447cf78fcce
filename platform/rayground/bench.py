"""What every benchmark shares: rounds in turn, counted work, medians, ratios, a table, and the JSON file."""

from __future__ import annotations

import gc
import importlib.util
import json
import math
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import cpu_count
from pathlib import Path
from typing import Any

import psutil

from rayground.errors import InputError

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


@dataclass(frozen=True)
class Work:
    """What was done, and how long it took.

    Attributes:
        env_steps: Env steps taken.
        updates: Gradient steps applied.
        seconds: Wall time.
    """

    env_steps: int
    updates: int
    seconds: float

    def rate(self, updates_per_env_step: float) -> float:
        """Env steps per second; those that lack their updates do not count.

        Args:
            updates_per_env_step: Gradient steps that belong to an env step; 0 if none do.
        """
        updated = self.updates / updates_per_env_step if updates_per_env_step else math.inf
        return min(self.env_steps, updated) / self.seconds


@dataclass(frozen=True)
class Contestant:
    """Something that trains, and whose work can be counted from outside.

    Attributes:
        train: Trains for at least so many env steps.
        env_steps: Env steps so far.
        updates: Gradient steps so far.
        compile_s: Seconds that compiling took, before anything is timed.
    """

    train: Callable[[int], Any]
    env_steps: Callable[[], int]
    updates: Callable[[], int]
    compile_s: float = 0.0

    def work(self, env_steps: int) -> Work:
        """Trains for at least ``env_steps`` env steps and returns what that was."""
        steps, updates, started = self.env_steps(), self.updates(), time.perf_counter()
        self.train(env_steps)
        seconds = time.perf_counter() - started
        return Work(self.env_steps() - steps, self.updates() - updates, seconds)


def on_cartpole(config: Any, envs: int, fragment: int) -> Any:
    """A config of ours or of RLlib's, all of it in this process.

    Args:
        config: Without environment, runners and learners.
        envs: CartPole environments, stepped together.
        fragment: Vector steps of one call of the runner.

    Returns:
        The same config.
    """
    config = config.environment("CartPole-v1").debugging(seed=0, log_level="ERROR", log_sys_usage=False)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=envs, rollout_fragment_length=fragment)
    return config.learners(num_learners=0)


def of_algorithm(algorithm: Any) -> Contestant:
    """An algorithm of ours or of RLlib's, with its learner in this process, as a contestant."""
    steps = [0]

    def train(env_steps: int) -> None:
        goal = steps[0] + env_steps
        while steps[0] < goal:
            steps[0] = int(algorithm.train()["num_env_steps_sampled_lifetime"])

    learner = algorithm.learner_group._learner
    compile_s = getattr(learner, "compile_s", 0.0)  # RLlib's own has none
    return Contestant(train, lambda: steps[0], lambda: gradient_steps(learner.get_optimizer()), compile_s)


def of_sb3(model: Any) -> Contestant:
    """A model of Stable-Baselines3 as a contestant."""
    return Contestant(
        lambda env_steps: model.learn(env_steps, reset_num_timesteps=False),
        lambda: model.num_timesteps,
        lambda: gradient_steps(model.policy.optimizer),
    )


def gradient_steps(optimizer: Any) -> int:
    """Gradient steps that an Adam has applied, by its own count: what a library says of itself may count otherwise."""
    return max((int(state["step"]) for state in optimizer.state.values()), default=0)


def warm_up(contestants: Mapping[str, Contestant], env_steps: int) -> None:
    """Lets each train for ``env_steps`` env steps, before anything is timed."""
    for contestant in contestants.values():
        contestant.train(env_steps)


def race(
    contestants: Mapping[str, Contestant], rounds: int, env_steps: int, updates_per_env_step: float
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Lets all train in turn.

    Args:
        contestants: By name, all of them warm.
        rounds: How often each trains.
        env_steps: Env steps each time, at least.
        updates_per_env_step: As in :meth:`Work.rate`.

    Returns:
        Env steps per second of all rounds, and gradient steps per env step over all rounds, both by name.
    """
    done: dict[str, list[Work]] = {name: [] for name in contestants}

    def once(name: str) -> float:
        done[name].append(contestants[name].work(env_steps))
        return done[name][-1].rate(updates_per_env_step)

    taken = take_turns({name: lambda name=name: once(name) for name in contestants}, rounds)  # type: ignore[misc]
    return taken, {name: sum(w.updates for w in all_) / sum(w.env_steps for w in all_) for name, all_ in done.items()}


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


OURS, COMPILED = "rayground", "rayground compiled"
"""What all benchmarks call ours, and ours with the whole update compiled."""


def print_race(
    title: str, taken: Numbers, others: Sequence[str], updates: Mapping[str, float], compile_s: float
) -> dict[str, float]:
    """Prints what :func:`race` gave: ours, then ours compiled if it is there, against the others.

    Args:
        title: What was measured.
        taken: Env steps per second by name, :data:`OURS` and ``others`` among them.
        others: Whom ours is held against.
        updates: Gradient steps per env step by name.
        compile_s: Seconds that compiling ours took.

    Returns:
        The ratios by the others' names, those of the compiled one as ``<name>, compiled``.
    """
    better = print_table(title, {name: taken[name] for name in (OURS, *others)}, OURS, higher_is_better=True)
    if COMPILED in taken:
        numbers = {name: taken[name] for name in (COMPILED, *others)}
        against = print_table(f"{title}; compiled", numbers, COMPILED, higher_is_better=True)
        better |= {f"{name}, compiled": ratio for name, ratio in against.items()}
        print(f"  compiling took {compile_s:.1f} s (less where the cache of an earlier run was found)")
    print("\ngradient steps per env step: " + ", ".join(f"{name} {count:.3f}" for name, count in updates.items()))
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


def require(*modules: str) -> None:
    """Checks that the others are installed.

    Raises:
        InputError: If one of the extra ``bench`` is not.
    """
    if missing := [name for name in modules if importlib.util.find_spec(name) is None]:
        raise InputError(f"{', '.join(missing)}: not installed; pip install -e '.[bench]'")
