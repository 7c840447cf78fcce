"""One run here, or one for each of many seeds through Ray Tune: always the same loop, the same files."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray import tune

from rayground import quiet
from rayground.budget import warn_cores
from rayground.checkpoints import env_steps_of
from rayground.errors import RunError
from rayground.experiment import Experiment
from rayground.preflight import preflight
from rayground.progress import Progress, SeedsProgress
from rayground.results.files import read_rows
from rayground.results.folder import (
    DEFAULT_STORAGE,
    create_run_folder,
    record_resume,
    write_experiment_json,
    write_params,
)
from rayground.run import Interruption, Run, execute, settings_of
from rayground.settings import settings_tree

logger = logging.getLogger("rayground")

STOP_FILE = ".stop"
WATCH_EVERY_S = 0.5


@dataclass(frozen=True)
class Origin:
    """How a run was asked for, for ``experiment.json``.

    Attributes:
        module: The experiment's module, for the command that resumes.
        command: The command line.
        flags: All flags.
    """

    module: str = ""
    command: list[str] = field(default_factory=lambda: list(sys.argv))
    flags: dict[str, Any] = field(default_factory=dict)


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
    experiment = ready(experiment, seed)
    preflight(experiment.config)
    quiet.init_ray()
    interruption = Interruption()
    with interruption.on_signals():
        experiment = fit_to_cores(experiment)
        folder = create_run_folder(storage, experiment.name)
        try:
            _describe(folder, experiment, origin or Origin())
            with _reporting(experiment) as shown:
                return execute(experiment, folder, reporter=shown, interruption=interruption)
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
    experiment = ready(experiment, None)
    preflight(experiment.config)
    quiet.init_ray()
    interruption = Interruption()
    with interruption.on_signals():
        experiment = fit_to_cores(experiment)

        def record() -> None:
            env_steps = env_steps_of(checkpoint)
            record_resume(
                folder, command=origin.command, changed=changed, from_checkpoint=checkpoint, env_steps=env_steps
            )
            write_params(folder, settings_of(experiment, settings_tree(experiment.config)))

        with _reporting(experiment) as shown:
            return execute(
                experiment,
                folder,
                reporter=shown,
                interruption=interruption,
                resume=checkpoint,
                pinned=frozenset(changed),
                on_start=record,
            )


def train_seeds(
    experiment: Experiment,
    seeds: list[int],
    *,
    storage: str | Path = DEFAULT_STORAGE,
    origin: Origin | None = None,
) -> list[Run]:
    """Trains one run per seed as Tune trials, as many at once as fit; their folders lie in one.

    Tune only schedules: every trial runs the loop of :mod:`rayground.run` and writes its own files.

    Raises:
        RunError: If a seed failed; the others have been finished.
    """
    origin = origin or Origin()
    quiet.init_ray()
    experiments = {seed: fit_to_cores(ready(experiment, seed)) for seed in seeds}
    group = create_run_folder(storage, experiment.name)
    write_experiment_json(group, experiment=experiment.name, seed=None, **vars(origin))
    folders = {seed: group / f"seed_{seed}" for seed in seeds}
    for seed, folder in folders.items():
        folder.mkdir()
        _describe(folder, experiments[seed], origin)
    interruption = Interruption()
    reasons: dict[int, str] = {}
    failures: dict[int, str] = {}
    worker = threading.Thread(target=_run_trials, args=(experiments, group, reasons, failures), daemon=True)
    with interruption.on_signals(), _reporting(experiment, SeedsProgress) as progress:
        worker.start()
        while worker.is_alive():
            worker.join(WATCH_EVERY_S)
            progress.update({seed: rows[-1] for seed in seeds if (rows := read_rows(folders[seed] / "result.json"))})
            if interruption():
                (group / STOP_FILE).touch()
    (group / STOP_FILE).unlink(missing_ok=True)
    if failures:
        raise RunError("; ".join(f"seed {seed}: {error}" for seed, error in sorted(failures.items())))
    return [Run(folders[seed], reasons.get(seed, "interrupted"), interruption.signal) for seed in seeds]


def ready(experiment: Experiment, seed: int | None) -> Experiment:
    """The experiment with its seed settled and its config validated.

    Raises:
        InputError: If a setting is wrong.
    """
    config = experiment.config.copy(copy_frozen=False)
    if seed is not None:
        config.seed = seed
    elif config.seed is None:
        config.seed = secrets.randbits(31)
    config.validate()
    return replace(experiment, config=config)


def fit_to_cores(experiment: Experiment) -> Experiment:
    """Lets more runners than cores share them, with a warning: Ray would wait for cores for ever."""
    config = experiment.config
    cores = ray.cluster_resources().get("CPU", 1)
    wanted = config.num_env_runners * config.num_cpus_per_env_runner
    if wanted <= cores:
        return experiment
    warning = warn_cores(config.num_env_runners, cores)
    if warning:
        logger.warning(warning)
    shared = config.copy(copy_frozen=False)
    shared.num_cpus_per_env_runner = int(cores / config.num_env_runners * 1000) / 1000
    return replace(experiment, config=shared)


def _describe(folder: Path, experiment: Experiment, origin: Origin) -> None:
    write_experiment_json(folder, experiment=experiment.name, seed=experiment.config.seed, **vars(origin))
    write_params(folder, settings_of(experiment, settings_tree(experiment.config)))


@contextmanager
def _reporting(experiment: Experiment, display: type[Progress] | type[SeedsProgress] = Progress) -> Iterator[Any]:
    """Shows progress, and what is logged meanwhile, so that a message does not break the bar."""
    with display(experiment.stop, experiment.name) as shown:
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


def _run_trials(
    experiments: dict[int, Experiment], group: Path, reasons: dict[int, str], failures: dict[int, str]
) -> None:
    """Runs the trials; Tune's own files go to a temporary folder and away."""
    os.environ |= {"TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1", "RAY_CHDIR_TO_TRIAL_DIR": "0"}
    scratch = tempfile.mkdtemp(prefix="rayground-tune-")
    config = next(iter(experiments.values())).config
    bundles = [{"CPU": config.num_cpus_for_main_process}] + [
        {"CPU": config.num_cpus_per_env_runner}
    ] * config.num_env_runners
    trial = partial(_trial, experiments=experiments, group=group)
    try:
        results = tune.Tuner(
            tune.with_resources(trial, tune.PlacementGroupFactory(bundles)),
            param_space={"seed": tune.grid_search(list(experiments))},
            run_config=tune.RunConfig(name="seeds", storage_path=scratch, verbose=0),
        ).fit()
        for result in results:
            seed = result.config["seed"]
            if result.error is not None:
                failures[seed] = str(result.error).strip().splitlines()[-1]
            else:
                reasons[seed] = result.metrics["stop_reason"]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _trial(config: dict[str, Any], *, experiments: dict[int, Experiment], group: Path) -> dict[str, Any]:
    quiet.after_import()
    seed = config["seed"]
    stop_asked = Throttled((group / STOP_FILE).exists, WATCH_EVERY_S)
    interruption = Interruption(also=stop_asked)
    run = execute(experiments[seed], group / f"seed_{seed}", reporter=_Silent(), interruption=interruption)
    return {"stop_reason": run.stop_reason}


class Throttled:
    """Asks a question at most every so many seconds, and remembers a yes."""

    def __init__(self, question: Callable[[], bool], every_s: float) -> None:
        self._question, self._every_s = question, every_s
        self._asked_at, self._answer = -float("inf"), False

    def __call__(self) -> bool:
        """The last answer."""
        now = time.monotonic()
        if not self._answer and now - self._asked_at >= self._every_s:
            self._asked_at, self._answer = now, self._question()
        return self._answer


class _Silent:
    def update(self, row: dict[str, Any]) -> None:
        """Shows nothing: whoever started the trials reads the results from the folder."""
