"""Seconds until PPO solves CartPole (or Pendulum): ours against Stable-Baselines3 with the zoo's settings, and RLlib.

Solved is a mean return over the last 20 episodes of training of 475 (-200), within 100,000 env steps. Each seed of each
contestant is a process of its own, started as a user starts it; the rounds go over the seeds, all contestants in turn.
Training time is from the first env step on, without imports; process time is all that the shell waits for, with
whatever the contestant does at the end (ours: a greedy evaluation and a checkpoint). A seed that does not get there
counts as one that never ends, and is named. One torch thread each.
"""

import json
import math
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import tyro

from rayground import bench
from rayground.cli import guarded
from rayground.errors import RunError
from rayground.results.runs import RunFiles, find_runs

WINDOW = 20
ENVS = {"cartpole": "CartPole-v1", "pendulum": "Pendulum-v1"}
GOALS = {"cartpole": 475.0, "pendulum": -200.0}
OTHERS = {"cartpole": ("sb3", "rllib"), "pendulum": ("sb3",)}


@dataclass(frozen=True)
class Args:
    """Flags of the benchmark."""

    task: Literal["cartpole", "pendulum"] = "cartpole"
    """What is to be solved."""
    seeds: int = 5
    """Seeds 0, 1, ... of every contestant."""
    env_steps: int = 100_000
    """Env steps after which a seed has failed; the zoo's schedules end there."""
    json: Path | None = None
    """Where to write the numbers."""


@dataclass(frozen=True)
class Attempt:
    """What became of a seed.

    Attributes:
        solved: Whether it got there.
        env_steps: Env steps until then, or in all.
        training_s: Seconds from the first env step until then, or in all.
        process_s: Seconds of the whole process.
    """

    solved: bool
    env_steps: int
    training_s: float
    process_s: float = 0.0


def attempt(name: str, seed: int, args: Args) -> Attempt:
    """Lets a contestant try a seed."""
    if name == bench.OURS:
        return ours(seed, args)
    numbers = [seed, GOALS[args.task], WINDOW, args.env_steps]
    seconds, out = run(f"experiments.baselines.{name}_ppo", ENVS[args.task], *map(str, numbers))
    return Attempt(**json.loads(out.splitlines()[-1]), process_s=seconds)


def ours(seed: int, args: Args) -> Attempt:
    """Our experiment, its results read back from the run folder."""
    with tempfile.TemporaryDirectory() as storage:
        stop = ["--stop-reward", str(GOALS[args.task]), "--stop-timesteps", str(args.env_steps)]
        window = ["--set", f"metrics_num_episodes_for_smoothing={WINDOW}"]
        where = ["--seed", str(seed), "--storage-path", storage]
        seconds, _ = run(f"experiments.ppo_{args.task}", *where, *stop, *window)
        rows = RunFiles(find_runs(storage)[0]).rows
    return replace(solution(rows, GOALS[args.task]), process_s=seconds)


def solution(rows: list[dict[str, Any]], goal: float) -> Attempt:
    """Finds the first result whose mean over a full window is the goal; else how it stood at the end."""
    full = (row for row in rows if row["episodes_in_window"] >= row["episode_window"])
    solved = next((row for row in full if row["episode_return_mean"] >= goal), None)
    row = solved or rows[-1]
    return Attempt(solved is not None, row["env_steps"], row["time_s"])


def run(module: str, *words: str) -> tuple[float, str]:
    """Runs ``python -m module``; returns its seconds and what it printed.

    Raises:
        RunError: If it fails.
    """
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", module, *words], capture_output=True, text=True)
    if done.returncode:
        raise RunError(f"{module} {' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    return time.perf_counter() - started, done.stdout


def seconds(attempts: list[Attempt], which: str) -> list[float]:
    """The seconds of all attempts; those of one that failed are infinite."""
    return [getattr(one, which) if one.solved else math.inf for one in attempts]


def main() -> int:
    """Runs the benchmark."""
    args = tyro.cli(Args, description=__doc__)
    bench.require("stable_baselines3")
    attempts: dict[str, list[Attempt]] = {name: [] for name in (bench.OURS, *OTHERS[args.task])}
    for seed in range(args.seeds):
        for name, all_ in attempts.items():
            all_.append(attempt(name, seed, args))
            how = "solved" if all_[-1].solved else "FAILED"
            print(
                f"{name}, seed {seed}: {how} after {all_[-1].env_steps:,} env steps, {all_[-1].training_s:.1f} s",
                flush=True,
            )
    better: dict[str, float] = {}
    for which, what in (("training_s", "training"), ("process_s", "whole process")):
        taken = {name: seconds(all_, which) for name, all_ in attempts.items()}
        title = f"{ENVS[args.task]} to a {WINDOW}-episode mean of {GOALS[args.task]:g}, seconds, {what}"
        ratios = bench.print_table(title, taken, bench.OURS, higher_is_better=False)
        better |= {f"{what}/{name}": ratio for name, ratio in ratios.items()}
    details = {name: [asdict(one) for one in all_] for name, all_ in attempts.items()}
    bench.write_json(args.json, better, attempts=details, **vars(args))
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
