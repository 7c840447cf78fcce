"""Seconds and episodes until an algorithm solves CartPole (or Pendulum): ours against Stable-Baselines3 and RLlib.

PPO and A2C, SB3's with the zoo's settings. Solved is a mean return over the last 20 episodes of training of 475 (-200),
within a budget of env steps. Each seed of each contestant is a process of its own, started as a user starts it; the
rounds go over the seeds, all contestants in turn. Training time is from the first env step on, without imports; process
time is all that the shell waits for, with whatever the contestant does at the end (ours: a greedy evaluation and a
checkpoint). A seed that does not get there counts as one that never ends, and is named. One torch thread each.
"""

import json
import math
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import tyro

from rayground import bench
from rayground.cli import guarded
from rayground.results import report
from rayground.results.runs import RunFiles, find_runs

WINDOW = 20


@dataclass(frozen=True)
class Task:
    """What is to be solved, and by whom.

    Attributes:
        env_id: The environment.
        goal: The mean return that solves it.
        ours: Our experiment.
        others: By name, the modules in ``experiments.baselines``.
        env_steps: The budget, if the user gives none. SB3's schedules end there.
    """

    env_id: str
    goal: float
    ours: str
    others: dict[str, str]
    env_steps: int


TASKS = {
    "cartpole": Task("CartPole-v1", 475.0, "ppo_cartpole", {"sb3": "sb3_ppo", "rllib": "rllib_ppo"}, 100_000),
    "pendulum": Task("Pendulum-v1", -200.0, "ppo_pendulum", {"sb3": "sb3_ppo"}, 100_000),
    "a2c_cartpole": Task("CartPole-v1", 475.0, "a2c_cartpole", {"sb3": "sb3_a2c"}, 300_000),
}
MEASURES = {
    "training_s": ("training", "seconds, training"),
    "process_s": ("whole process", "seconds, whole process"),
    "episodes": ("episodes", "episodes"),
}


@dataclass(frozen=True)
class Args:
    """Flags of the benchmark."""

    task: Literal["cartpole", "pendulum", "a2c_cartpole"] = "cartpole"
    """What is to be solved, by PPO or A2C."""
    seeds: int = 5
    """Seeds 0, 1, ... of every contestant."""
    env_steps: int | None = None
    """Env steps after which a seed has failed; by default 100,000, of A2C 300,000."""
    json: Path | None = None
    """Where to write the numbers."""


@dataclass(frozen=True)
class Attempt:
    """What became of a seed.

    Attributes:
        solved: Whether it got there.
        env_steps: Env steps until then, or in all.
        episodes: Episodes that had ended by then, or in all.
        training_s: Seconds from the first env step until then, or in all.
        process_s: Seconds of the whole process.
    """

    solved: bool
    env_steps: int
    episodes: int
    training_s: float
    process_s: float = 0.0


def attempt(name: str, seed: int, task: Task) -> Attempt:
    """Lets a contestant try a seed."""
    if name == bench.OURS:
        return ours(seed, task)
    numbers = [seed, task.goal, WINDOW, task.env_steps]
    seconds, out = bench.run_module(f"experiments.baselines.{task.others[name]}", task.env_id, *map(str, numbers))
    return Attempt(**json.loads(out.splitlines()[-1]), process_s=seconds)


def ours(seed: int, task: Task) -> Attempt:
    """Our experiment, its results read back from the run folder."""
    with tempfile.TemporaryDirectory() as storage:
        seconds = bench.train_to_goal(
            f"experiments.{task.ours}",
            seed=seed,
            storage=storage,
            goal=task.goal,
            window=WINDOW,
            env_steps=task.env_steps,
        )
        found = report.solution(RunFiles(find_runs(storage)[0]).rows, task.goal)
    return Attempt(found.reached, found.env_steps, found.episodes, found.time_s, seconds)


def taken_until_solved(attempts: list[Attempt], what: str) -> list[float]:
    """An attribute of all attempts, such as their seconds; infinite where one failed."""
    return [getattr(one, what) if one.solved else math.inf for one in attempts]


def main() -> int:
    """Runs the benchmark."""
    args = tyro.cli(Args, description=__doc__)
    bench.require("stable_baselines3")
    task = TASKS[args.task]
    if args.env_steps is not None:
        task = replace(task, env_steps=args.env_steps)
    attempts: dict[str, list[Attempt]] = {name: [] for name in (bench.OURS, *task.others)}
    for seed in range(args.seeds):
        for name, all_ in attempts.items():
            one = attempt(name, seed, task)
            all_.append(one)
            how = f"{'solved' if one.solved else 'FAILED'} after {one.env_steps:,} env steps"
            print(f"{name}, seed {seed}: {how}, {one.episodes:,} episodes, {one.training_s:.1f} s", flush=True)
    better: dict[str, float] = {}
    for attribute, (what, label) in MEASURES.items():
        taken = {name: taken_until_solved(all_, attribute) for name, all_ in attempts.items()}
        title = f"{task.env_id} to a {WINDOW}-episode mean of {task.goal:g}, {label}"
        ratios = bench.print_table(title, taken, bench.OURS, higher_is_better=False)
        better |= {f"{what}/{name}": ratio for name, ratio in ratios.items()}
    details = {name: [asdict(one) for one in all_] for name, all_ in attempts.items()}
    bench.write_json(args.json, better, attempts=details, **vars(args) | {"env_steps": task.env_steps})
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
