"""One run here, new or resumed; those of many seeds are in :mod:`rayground.seeds`."""

from __future__ import annotations

import logging
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rayground import quiet
from rayground.algorithms.config import ArrayConfig
from rayground.errors import InputError
from rayground.experiment import Experiment
from rayground.interruption import Interruption
from rayground.keeper import env_steps_of
from rayground.named_files import name_files_absolutely
from rayground.preflight import preflight
from rayground.progress import Progress, SeedsProgress, shell_path
from rayground.resources import fit_to_cores
from rayground.results.files import class_name
from rayground.results.folder import (
    DEFAULT_STORAGE,
    create_run_folder,
    record_resume,
    write_experiment_json,
    write_params,
)
from rayground.run import Run, execute, settings_of
from rayground.settings import settings_tree

logger = logging.getLogger("rayground")


@dataclass(frozen=True)
class Origin:
    """How a run was asked for, for ``experiment.json``.

    Attributes:
        module: The experiment's module, for the command that resumes.
        command: The command line.
        flags: All flags.
        code: A folder inside the git repository of the experiment; the working directory if None.
    """

    module: str = ""
    command: list[str] = field(default_factory=lambda: list(sys.argv))
    flags: dict[str, Any] = field(default_factory=dict)
    code: Path | None = None


def train_here(
    experiment: Experiment,
    *,
    seed: int | None = None,
    storage: str | Path = DEFAULT_STORAGE,
    origin: Origin | None = None,
) -> Run:
    """Trains one run in this process, in a folder of its own.

    Raises:
        InputError: If something is wrong before training; no folder is left then.
        RunError: If the run had to end.
    """
    with _begun(ready(experiment, seed)) as (experiment, interruption):
        folder = create_run_folder(storage, experiment.name)
        try:
            record_run(folder, experiment, origin or Origin())
            with reporting(Progress(experiment.stop, experiment.name)) as shown:
                said = f"seed {experiment.config.seed}  {shell_path(folder)}"
                return execute(
                    experiment,
                    folder,
                    reporter=shown,
                    interruption=interruption,
                    on_start=lambda: shown.message(said),
                )
        except BaseException:
            if not (folder / "result.json").exists() and not (folder / "error.txt").exists():
                shutil.rmtree(folder, ignore_errors=True)
            raise


def resume_here(
    experiment: Experiment,
    checkpoint: Path,
    folder: Path,
    *,
    changed: dict[str, Any],
    origin: Origin,
) -> Run:
    """Goes on from ``checkpoint`` in the run's own ``folder``.

    Args:
        experiment: The run's own settings, with what was changed by hand.
        checkpoint: Where to go on from.
        folder: The run's.
        changed: The settings changed by hand, by name.
        origin: How the resume was asked for.
    """
    with _begun(ready(experiment, None)) as (experiment, interruption):

        def record() -> None:
            record_resume(
                folder,
                command=origin.command,
                changed=changed,
                from_checkpoint=checkpoint,
                env_steps=env_steps_of(checkpoint),
                code=origin.code,
            )
            write_params(folder, settings_of(experiment, settings_tree(experiment.config)))

        with reporting(Progress(experiment.stop, experiment.name)) as shown:
            changes = "".join(f", {key}={value!r}" for key, value in changed.items())
            shown.message(f"going on from {shell_path(checkpoint)}{changes}")
            return execute(
                experiment,
                folder,
                reporter=shown,
                interruption=interruption,
                resume=checkpoint,
                pinned=frozenset(changed),
                on_start=record,
            )


@contextmanager
def _begun(experiment: Experiment) -> Iterator[tuple[Experiment, Interruption]]:
    """Checks what can be checked, starts Ray where it is needed, then listens to signals; Ray would take them over."""
    preflight(experiment.config)
    if quiet.needs_ray(experiment.config):
        quiet.init_ray()
    interruption = Interruption()
    with interruption.on_signals():
        yield replace(experiment, config=fit_to_cores(experiment.config)), interruption


def ready(experiment: Experiment, seed: int | None) -> Experiment:
    """The experiment with its seed settled, the files that it names found, and its config validated.

    Raises:
        InputError: If a setting is wrong.
    """
    quiet.after_import()
    if not isinstance(experiment.config, ArrayConfig):
        raise InputError(
            f"config: expected one of rayground, such as rayground.DQNConfig, got {class_name(type(experiment.config))}"
        )
    config = experiment.config.copy(copy_frozen=False)
    if seed is not None:
        config.seed = seed
    elif config.seed is None:
        config.seed = secrets.randbits(31)
    name_files_absolutely(config)
    config.validate()
    return replace(experiment, config=config)


def record_run(folder: Path, experiment: Experiment, origin: Origin) -> None:
    """Writes how a run was asked for and its settings: ``experiment.json`` and ``params.json``."""
    write_experiment_json(folder, experiment=experiment.name, seed=experiment.config.seed, **vars(origin))
    write_params(folder, settings_of(experiment, settings_tree(experiment.config)))


@contextmanager
def reporting(display: Progress | SeedsProgress) -> Iterator[Any]:
    """Shows progress, and what is logged meanwhile, so that a message does not break the bar."""
    with display as shown:
        handler = _ToDisplay(shown.message)
        logger.addHandler(handler)
        try:
            yield shown
        finally:
            logger.removeHandler(handler)


class _ToDisplay(logging.Handler):
    def __init__(self, message: Callable[[str], None]) -> None:
        super().__init__()
        self._message = message

    def emit(self, record: logging.LogRecord) -> None:
        """Shows one log record."""
        self._message(self.format(record))
