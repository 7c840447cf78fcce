"""Compares experiments over seeds: trains each by its own command, then writes a table and a plot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from rayground import bench
from rayground.errors import InputError
from rayground.results import curves, report
from rayground.results.files import absolute
from rayground.results.folder import DEFAULT_STORAGE, create_run_folder
from rayground.results.runs import RunFiles, find_runs


@dataclass(frozen=True)
class CompareFlags:
    """What every comparison can be told; what a subclass adds is a number of something, too."""

    seeds: int = 5
    """Seeds 0, 1, ... of each contestant."""
    env_steps: int = 300_000
    """Env steps after which a seed has not reached the goal."""
    to: Annotated[str | None, arg(metavar="FOLDER", help_behavior_hint="")] = None
    """A new or empty folder for tables, plot and runs. Left out: a new one in ~/ray_results."""

    def check(self) -> None:
        """Checks the values.

        Raises:
            InputError: If a number is below 1, or the folder holds something.
        """
        for name, value in vars(self).items():
            if isinstance(value, int) and value < 1:
                raise InputError(f"--{name.replace('_', '-')}: expected at least 1, got {value}")
        folder = absolute(self.to) if self.to is not None else None
        if folder and (folder.is_file() or (folder.is_dir() and any(folder.iterdir()))):
            raise InputError(f"--to: expected a new or empty folder, got {folder}, which holds something")

    def folder(self, name: str) -> Path:
        """Makes the folder that all goes into.

        Args:
            name: Of the comparison, for a folder in ~/ray_results.
        """
        if self.to is None:
            return create_run_folder(DEFAULT_STORAGE, name)
        folder = absolute(self.to)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


@dataclass(frozen=True)
class Comparison:
    """Who races to which goal.

    Attributes:
        contestants: By a name that may begin a folder's, what follows ``python -m`` in the command that trains it.
        goal: Mean episode return.
        window: Over how many episodes.
        metrics: Further columns of the table; see :func:`rayground.results.report.goal_table`.
    """

    contestants: Mapping[str, str]
    goal: float
    window: int
    metrics: Mapping[str, report.Measure]

    def run(self, folder: Path, seeds: int, env_steps: int) -> report.Table:
        """Trains all contestants, one run after the other; each seed of all of them before the next.

        Writes ``goal.md``, ``goal.csv`` and ``curves.png`` into ``folder``, beside the runs.

        Args:
            folder: An empty one.
            seeds: How many seeds, from 0 on.
            env_steps: After how many a run ends that has not reached the goal.

        Returns:
            The table.

        Raises:
            RunError: If a run fails; those before it stay in the folder.
            InputError: If a run finished no episode, or none has a metric.
        """
        folders: dict[str, list[Path]] = {name: [] for name in self.contestants}
        for seed in range(seeds):
            for name, command in self.contestants.items():
                bench.train_to_goal(
                    *command.split(),
                    "--name",
                    name,
                    seed=seed,
                    storage=folder,
                    goal=self.goal,
                    window=self.window,
                    env_steps=env_steps,
                )
                folders[name].append(find_runs(folder, name)[0])
                print(f"{name}, seed {seed}: {self._said(folders[name][-1])}", flush=True)
        runs = report.read(folders)
        table = report.goal_table(runs, self.goal, self.metrics)
        table.save(folder / "goal")
        curves.plot(runs, self.goal, folder / "curves.png")
        return table

    def _said(self, run: Path) -> str:
        found = report.solution(RunFiles(run).rows, self.goal)
        how = "reached" if found.reached else "NOT reached"
        return f"{how} after {found.episodes:,} episodes, {found.env_steps:,} env steps, {found.time_s:.1f} s"
