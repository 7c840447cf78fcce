"""One run for each of many seeds, through Ray Tune: it schedules, and every trial runs the loop of ``run.py``."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray import tune

from rayground import quiet
from rayground.budget import free_memory
from rayground.errors import InputError, RunError, one_line
from rayground.experiment import Experiment
from rayground.interruption import Interrupted, Interruption
from rayground.launch import Origin, ready, record_run, reporting
from rayground.preflight import check_hardware, preflight
from rayground.progress import SeedsProgress
from rayground.resources import bundles, fit_to_cores
from rayground.results.files import read_last_row
from rayground.results.folder import DEFAULT_STORAGE, create_run_folder, write_experiment_json
from rayground.run import Run, execute

WATCH_EVERY_S = 0.5


def train_seeds(
    experiment: Experiment,
    seeds: list[int],
    *,
    storage: str | Path = DEFAULT_STORAGE,
    origin: Origin | None = None,
) -> dict[int, Run]:
    """Trains one run per seed, as many at once as fit; their folders lie in one.

    Returns:
        The runs by seed. After a signal, seeds that had not begun are left out, and so are their folders.

    Raises:
        InputError: If something is wrong before training; no folder is left then.
        RunError: If a seed failed; the others have been finished.
    """
    origin = origin or Origin()
    config = ready(experiment, seeds[0]).config
    at_once = _fitting(preflight(config, here=False).replay_bytes)
    quiet.init_ray()
    check_hardware(config, here=False)
    interruption = Interruption()
    with interruption.on_signals():
        group = _Group(create_run_folder(storage, experiment.name), seeds)
        try:
            fitted = replace(experiment, config=fit_to_cores(config, main=config.num_cpus_for_main_process))
            experiments = {seed: ready(fitted, seed) for seed in seeds}
            write_experiment_json(group.folder, experiment=experiment.name, seed=None, **vars(origin))
            for seed in seeds:
                group.of(seed).mkdir()
                record_run(group.of(seed), experiments[seed], origin)
            with reporting(SeedsProgress(experiment.stop, experiment.name)) as progress, interruption.listening():
                watch = _Watch(group, progress, interruption)
                _run_trials(experiments, group, at_once, watch)
            return _runs(group, watch.ended, interruption)
        except BaseException:
            if not group.begun:
                shutil.rmtree(group.folder, ignore_errors=True)
            raise
        finally:
            group.stop_file.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Group:
    """The folder that those of the seeds lie in."""

    folder: Path
    seeds: list[int]

    def of(self, seed: int) -> Path:
        return self.folder / f"seed_{seed}"

    @property
    def stop_file(self) -> Path:
        """It tells the trials, which may run on other machines, to stop."""
        return self.folder / ".stop"

    @property
    def begun(self) -> set[int]:
        """The seeds that have trained, or have tried to."""
        return {
            seed for seed in self.seeds if any((self.of(seed) / name).exists() for name in ("checkpoints", "error.txt"))
        }


def _fitting(replay_bytes: int) -> int | None:
    """How many replay buffers fit into the memory that is free, at least 1; None for no limit."""
    return max(1, free_memory() // replay_bytes) if replay_bytes else None


def _runs(group: _Group, ended: dict[int, Ended], interruption: Interruption) -> dict[int, Run]:
    failed = {seed: end.failure for seed, end in sorted(ended.items()) if end.failure}
    if failed:
        error_file = group.of(min(failed)) / "error.txt"
        raise SeedsFailed(failed, error_file.read_text() if error_file.exists() else "")
    for seed in group.seeds:
        if seed not in ended:
            shutil.rmtree(group.of(seed))
    if not ended and interruption.signal is not None:
        raise Interrupted(interruption.signal)
    return {seed: Run(group.of(seed), end.reason, interruption.signal) for seed, end in sorted(ended.items())}


class SeedsFailed(RunError):
    """Some of many seeds failed.

    Attributes:
        traceback: That of the first of them.
    """

    def __init__(self, failed: dict[int, str], traceback: str) -> None:
        super().__init__("; ".join(f"seed {seed}: {failure}" for seed, failure in failed.items()))
        self.traceback = traceback


@dataclass(frozen=True)
class Ended:
    """How a seed ended: why it stopped, or what it failed with."""

    reason: str | None = None
    failure: str | None = None


class _Watch(tune.Callback, tune.Stopper):
    """Shows progress between Tune's steps, and stops the trials when the user wants to.

    Attributes:
        ended: The seeds that have ended.
    """

    def __init__(self, group: _Group, progress: SeedsProgress, interruption: Interruption) -> None:
        self._group, self._progress, self._interruption = group, progress, interruption
        self._shown_at = -float("inf")
        self.ended: dict[int, Ended] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its callbacks for a resume of its own, which nobody asks for."""
        return {}

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Shows the latest results, and passes a signal on to the trials."""
        if time.monotonic() - self._shown_at >= WATCH_EVERY_S:
            self.show()
        if self._interruption.signal is not None:
            if not self._group.begun:
                raise Interrupted(self._interruption.signal)
            self._group.stop_file.touch()

    def show(self) -> None:
        """Shows the latest results."""
        self._shown_at = time.monotonic()
        rows = {seed: read_last_row(self._group.of(seed) / "result.json") for seed in self._group.seeds}
        self._progress.update({seed: row for seed, row in rows.items() if row is not None})

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Takes what a trial returned."""
        self.ended[trial.config["seed"]] = Ended(trial.last_result.get("reason"), trial.last_result.get("failure"))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Notes a trial that could not even return what it failed with."""
        self.ended[trial.config["seed"]] = Ended(failure="its process died: it was killed (out of memory?) or crashed")

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """No single trial is stopped from here."""
        return False

    def stop_all(self) -> bool:
        """After a signal, trials that have nothing to save yet need not wait for their turn."""
        return self._interruption() and self._group.begun <= self.ended.keys()


def _run_trials(experiments: dict[int, Experiment], group: _Group, at_once: int | None, watch: _Watch) -> None:
    """Runs the trials; Tune's own files go to a temporary folder and away."""
    os.environ |= {
        "RAY_AIR_NEW_OUTPUT": "0",  # tables, also with verbose=0
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
        "TUNE_DISABLE_SIGINT_HANDLER": "1",
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
    }
    for name in ("ray.tune.tune", "ray.tune.analysis.experiment_analysis"):  # where Tune's own results are
        logging.getLogger(name).setLevel(logging.ERROR)
    config = next(iter(experiments.values())).config
    resources = tune.PlacementGroupFactory(bundles(config, ray.cluster_resources().get("CPU", 0)))
    trial = partial(_trial, experiments=experiments, group=group)
    scratch = tempfile.mkdtemp(prefix="rayground-tune-")
    try:
        tune.Tuner(
            tune.with_resources(trial, resources),
            param_space={"seed": tune.grid_search(list(experiments))},
            tune_config=tune.TuneConfig(max_concurrent_trials=at_once),
            run_config=tune.RunConfig(name="seeds", storage_path=scratch, verbose=0, callbacks=[watch], stop=watch),
        ).fit()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    watch.show()


def _trial(config: dict[str, Any], *, experiments: dict[int, Experiment], group: _Group) -> dict[str, str | None]:
    quiet.after_import()
    seed = config["seed"]
    interruption = Interruption(also=Throttled(group.stop_file.exists, WATCH_EVERY_S))
    try:
        run = execute(experiments[seed], group.of(seed), reporter=_Silent(), interruption=interruption)
    except (InputError, RunError) as error:
        return {"reason": None, "failure": str(error)}
    except Exception as error:
        return {"reason": None, "failure": one_line(error)}
    return {"reason": run.stop_reason, "failure": None}


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
