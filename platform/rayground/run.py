"""One run: build or restore, then train, evaluate, log, checkpoint, until the stop rule holds."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, EVALUATION_RESULTS
from ray.tune.utils import flatten_dict

from rayground.algorithms import state
from rayground.algorithms.base import ArrayAlgorithm
from rayground.errors import CheckpointError, InputError
from rayground.experiment import Experiment
from rayground.interruption import Interruption
from rayground.keeper import CheckpointKeeper
from rayground.policies import TrainedPolicy
from rayground.results.files import writing
from rayground.results.folder import alone_in
from rayground.results.loggers import RunLogger
from rayground.results.runs import RunFiles
from rayground.results.shown import TENSORBOARD
from rayground.rollouts.group import EnvironmentCrash

logger = logging.getLogger("rayground")

Row = dict[str, Any]
SCORE = "evaluation/episode_return_mean"


class Reporter(Protocol):
    """Whoever shows a run's progress."""

    def update(self, row: Row) -> None:
        """Takes the next result."""
        ...


@dataclass(frozen=True)
class Run:
    """A run that has ended, or has been read back.

    Attributes:
        folder: Its folder.
        stop_reason: Why it ended, where that is known.
        interrupted_by: The signal that ended it, if one did.
    """

    folder: Path
    stop_reason: str | None = None
    interrupted_by: int | None = None

    @property
    def files(self) -> RunFiles:
        """What is in the folder."""
        return RunFiles(self.folder)

    @property
    def frame(self) -> pd.DataFrame:
        """One row per result, by the names of ``docs/metrics.md``."""
        return self.files.frame

    @cached_property
    def policy(self) -> TrainedPolicy:
        """The best policy (by greedy evaluation where there was one), without building the algorithm."""
        checkpoint = self.files.best_checkpoint
        if checkpoint is None:
            raise CheckpointError(f"{self.folder}: no whole checkpoint")
        return state.read_policy(checkpoint)

    @cached_property
    def algorithm(self) -> ArrayAlgorithm:
        """The algorithm as it was at the last checkpoint, built anew; ``algorithm.stop()`` ends it."""
        checkpoint = self.files.last_checkpoint
        if checkpoint is None:
            raise CheckpointError(f"{self.folder}: no whole checkpoint")
        return ArrayAlgorithm.from_checkpoint(checkpoint)


def execute(
    experiment: Experiment,
    folder: Path,
    *,
    reporter: Reporter,
    interruption: Interruption,
    resume: Path | None = None,
    pinned: frozenset[str] = frozenset(),
    on_start: Callable[[], None] = lambda: None,
) -> Run:
    """Runs ``experiment`` in ``folder`` until it stops.

    Args:
        experiment: With the seed in its config.
        folder: The run's own.
        reporter: Shows progress.
        interruption: Ends the run early, with a last checkpoint.
        resume: A checkpoint of this run to go on from: what came after it is cut away.
        pinned: Settings given by hand, which hold against changes that training had made.
        on_start: Called when the algorithm is built and restored; until then nothing in the folder has changed.

    Returns:
        The run.

    Raises:
        InputError: If something is wrong before training.
        RunError: If the run cannot go on; the traceback is in ``error.txt`` of its folder.
    """
    logger.setLevel(logging.INFO)
    algorithm = experiment.config.copy(copy_frozen=False).build_algo()
    try:
        algorithm.interruption = interruption
        algorithm.pinned = pinned
        with alone_in(folder):
            if resume is not None:
                algorithm.restore(resume)
            on_start()
            keeper, log = _open(experiment, algorithm, folder, resumed=resume is not None)
            with interruption.listening():
                reason = _loop(experiment, algorithm, keeper, log, reporter, interruption)
        return Run(folder, reason, interruption.signal)
    except InputError:
        raise
    except Exception as error:
        with suppress(OSError):  # the disk may be what failed
            (folder / "error.txt").write_text(getattr(error, "traceback", None) or traceback.format_exc())
        raise
    finally:
        algorithm.stop()


def _loop(
    experiment: Experiment,
    algorithm: ArrayAlgorithm,
    keeper: CheckpointKeeper,
    log: RunLogger,
    reporter: Reporter,
    interruption: Interruption,
) -> str:
    clock = Clock(algorithm)
    best = keeper.best_score
    while True:
        before = algorithm.env_steps
        result = algorithm.train()
        if interruption():
            logger.info("interrupted: saving a last checkpoint")
        shown = result.pop(TENSORBOARD, {})
        row = make_row(result, clock)
        reason = "interrupted" if interruption() else _why_done(result) or experiment.stop.reason(row)
        if reason and SCORE not in row and not interruption():
            row |= _last_evaluation(algorithm)
        if algorithm.env_steps > before:  # the interruption may have ended the environments before they took a step
            log.log(row, shown)
            reporter.update(row)
        score = _score(row, experiment.config)
        is_best = score is not None and experiment.checkpoints.keep_best > 0 and (best is None or score >= best)
        if reason or (is_best and SCORE in row) or is_due(experiment.checkpoints.every, algorithm.iteration):
            algorithm._time_total = clock.seconds
            path = keeper.path_for(algorithm.env_steps)
            if not path.exists():
                algorithm.save(path)
                keeper.add(path, algorithm.env_steps, score)
            best = score if is_best else best
        if reason:
            return reason


def _open(
    experiment: Experiment, algorithm: ArrayAlgorithm, folder: Path, *, resumed: bool
) -> tuple[CheckpointKeeper, RunLogger]:
    """Opens checkpoints and results, cut back to where a resumed run goes on."""
    rule = experiment.checkpoints
    with writing(folder):
        (folder / "error.txt").unlink(missing_ok=True)
        keeper = CheckpointKeeper(folder / "checkpoints", keep_best=rule.keep_best, keep_last=rule.keep_last)
        if resumed:  # before the rows: a kill in between leaves more rows than checkpoints, never fewer
            keeper.rewind(algorithm.env_steps)
        return keeper, RunLogger(folder, resume_at=algorithm.env_steps if resumed else None)


def _score(row: Row, config: AlgorithmConfig) -> float | None:
    """What a checkpoint is judged by: greedy evaluation or, without, the mean return over a full window."""
    if not config.learns_to_act:
        return None
    if config.evaluation_interval:
        return row.get(SCORE)
    return row["episode_return_mean"] if row["episodes_in_window"] >= row["episode_window"] else None


def _last_evaluation(algorithm: ArrayAlgorithm) -> Row:
    """Evaluates at the end of a run; one that cannot be evaluated is saved all the same."""
    try:
        return evaluation_row(algorithm.evaluate())
    except EnvironmentCrash as error:
        logger.warning("the evaluation at the end could not be done: %s", error)
        return {}


def is_due(every: int, iteration: int) -> bool:
    """Whether something that happens every so many iterations (0: never) happens now."""
    return every > 0 and iteration % every == 0


class Clock:
    """Wall time of a run over all its resumes, and env steps per second."""

    def __init__(self, algorithm: ArrayAlgorithm) -> None:
        self._before = algorithm._time_total
        self._started = self._last = time.monotonic()
        self._last_env_steps = algorithm.env_steps

    @property
    def seconds(self) -> float:
        """Seconds of running so far."""
        return self._before + time.monotonic() - self._started

    def lap(self, env_steps: int) -> float:
        """Env steps per second since the last call."""
        now = time.monotonic()
        speed = (env_steps - self._last_env_steps) / max(now - self._last, 1e-9)
        self._last, self._last_env_steps = now, env_steps
        return speed


def make_row(result: dict[str, Any], clock: Clock) -> Row:
    """Turns a result of ``algorithm.train()`` into the flat row that is logged."""
    result = {key: value for key, value in result.items() if key != "config"}
    headline = result.pop("headline")
    evaluation = result.pop(EVALUATION_RESULTS, None)
    row = {"env_steps": headline.pop("env_steps"), "iteration": result["training_iteration"]}
    row |= {"time_s": clock.seconds, "env_steps_per_s": clock.lap(row["env_steps"])}
    row |= headline
    if evaluation:
        row |= evaluation_row(evaluation)
    return row | {f"rllib/{key}": value for key, value in flatten_dict(result, delimiter="/").items()}


def evaluation_row(results: dict[str, Any]) -> Row:
    """The evaluation's part of a row."""
    flat = flatten_dict(results[ENV_RUNNER_RESULTS], delimiter="/")
    return {f"evaluation/{key}": value for key, value in flat.items()}


def _why_done(result: dict[str, Any]) -> str | None:
    """Callbacks stop a run as in Tune: they set ``result["done"]``, and ours say why."""
    return (result.get("stop_reason") or "a callback set result['done']") if result.get("done") else None


def settings_of(experiment: Experiment, tree: dict[str, Any]) -> dict[str, Any]:
    """What ``params.json`` holds."""
    return {"algorithm": tree, "stop": asdict(experiment.stop), "checkpoints": asdict(experiment.checkpoints)}


def load(folder: str | Path) -> Run:
    """Reads a run back: ``run.frame``, ``run.policy``, ``run.algorithm``.

    Args:
        folder: A run folder; relative paths and ``~`` are fine.

    Raises:
        InputError: If there is no run in that folder.
    """
    return Run(RunFiles(folder).folder)
