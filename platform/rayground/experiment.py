"""What one experiment is, as data."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from rayground.errors import InputError, closest
from rayground.flags import Flags
from rayground.results.folder import DEFAULT_STORAGE
from rayground.stop import Stop

if TYPE_CHECKING:
    from rayground.run import Run


@dataclass(frozen=True)
class CheckpointRule:
    """When a run writes checkpoints, and which it keeps. One is always written at the end.

    Attributes:
        every: Training iterations between two checkpoints; 0 writes none on the way but those of a new best.
        keep_best: How many of the best to keep, by greedy evaluation where the experiment evaluates.
        keep_last: How many of the latest to keep.
    """

    every: int = 10
    keep_best: int = 1
    keep_last: int = 1

    def __post_init__(self) -> None:
        for name in ("every", "keep_best", "keep_last"):
            value = getattr(self, name)
            lowest = 1 if name == "keep_last" else 0
            if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
                raise InputError(f"checkpoints.{name}: expected a whole number of at least {lowest}, got {value!r}")


@dataclass(frozen=True)
class Experiment:
    """One experiment: an algorithm's config, and what a run of it does around it.

    Attributes:
        name: Names its run folders.
        config: A config of ``rayground.algorithms``.
        stop: When a run has reached its goal, or its budget.
        checkpoints: When to write checkpoints.
        description: One paragraph for ``--help``; the module's docstring if empty.
    """

    name: str
    config: AlgorithmConfig
    stop: Stop
    checkpoints: CheckpointRule = field(default_factory=CheckpointRule)
    description: str = ""

    def main(self, argv: list[str] | None = None, *, flags: type[Flags] = Flags) -> None:
        """Runs the command line, ``python -m experiments.<module> --help``, and exits with its code.

        Args:
            argv: What follows the program's name; None: what this process was started with.
            flags: :class:`Flags`, or a subclass with flags of the experiment's own.
        """
        from rayground.cli import experiment_command

        sys.exit(experiment_command(self, sys.argv[1:] if argv is None else argv, flags))

    def train(self, *, seed: int | None = None, storage: str | Path = DEFAULT_STORAGE, **stop: Any) -> Run:
        """Trains once, here, until the stop rule holds.

        Args:
            seed: Of the run; None draws one, which is recorded.
            storage: Where run folders go.
            **stop: Fields of :class:`Stop` that replace the experiment's, such as ``env_steps=5_000``.

        Returns:
            The run: ``run.policy``, ``run.frame``, ``run.folder``.

        Raises:
            InputError: If something is wrong before training, such as a rule that :class:`Stop` does not have.
            RunError: If the run had to end.
        """
        from rayground.launch import train_here

        known = [rule.name for rule in fields(Stop)]
        for name in stop.keys() - set(known):
            raise InputError(
                f"train: expected seed, storage or one of {', '.join(known)}, got {name!r}{closest(name, known)}"
            )
        experiment = replace(self, stop=replace(self.stop, **stop)) if stop else self
        return train_here(experiment, seed=seed, storage=storage)
