"""The checkpoints of one run: ``checkpoints/step_<env steps>``, which of them stay, and which is best."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rayground.checkpoints import is_whole
from rayground.errors import CheckpointError, InputError
from rayground.results.files import absolute, read_json, write_json, writing
from rayground.results.whole import delete_folder, tidy

_INDEX = "index.json"
_STEP = re.compile(r"step_(\d+)")


@dataclass(frozen=True)
class KeptCheckpoint:
    """One of a run's whole checkpoints.

    Attributes:
        path: The folder.
        env_steps: Env steps of the run when it was written.
        score: What it is judged by, higher is better; None where that was not known.
    """

    path: Path
    env_steps: int
    score: float | None


def kept_checkpoints(folder: Path) -> list[KeptCheckpoint]:
    """Returns the whole checkpoints in a run's ``checkpoints/``, oldest first; torn ones are left out.

    What lies on the disk counts: an index that is missing, damaged or stale only costs scores.
    """
    tidy(folder)
    scores = _read_scores(folder)
    return [
        KeptCheckpoint(path, env_steps, scores.get(path.name))
        for env_steps, path in _step_folders(folder)
        if is_whole(path)
    ]


def best_checkpoint(kept: Iterable[KeptCheckpoint]) -> KeptCheckpoint | None:
    """Returns the one with the highest score, the later of equals; None where none has a score."""
    scored = _by_score(kept)
    return scored[-1] if scored else None


def _by_score(kept: Iterable[KeptCheckpoint]) -> list[KeptCheckpoint]:
    scored = [(one.score, one.env_steps, one) for one in kept if one.score is not None]
    return [one for *_, one in sorted(scored, key=lambda entry: entry[:2])]


def env_steps_of(checkpoint: Path) -> int:
    """Returns the env steps that a run's checkpoint is named by.

    Raises:
        CheckpointError: If its name is not ``step_<env steps>``; names the absolute path.
    """
    match = _STEP.fullmatch(checkpoint.name)
    if match is None:
        raise CheckpointError(f"{absolute(checkpoint)}: expected a checkpoint of a run, named step_<env steps>")
    return int(match[1])


def _step_folders(folder: Path) -> list[tuple[int, Path]]:
    return sorted((env_steps_of(path), path) for path in folder.glob("step_*") if _STEP.fullmatch(path.name))


def _read_scores(folder: Path) -> dict[str, float]:
    try:
        scores = read_json(folder / _INDEX)["scores"]
        return {name: float(score) for name, score in scores.items() if score is not None}
    except (InputError, LookupError, TypeError, ValueError, AttributeError):
        return {}


class CheckpointKeeper:
    """Names the checkpoints of a run, and keeps the best and the last of them.

    Scores are in ``checkpoints/index.json``, written atomically; folders decide what is there.
    """

    def __init__(self, folder: Path, keep_best: int = 1, keep_last: int = 1) -> None:
        """Makes the folder.

        Args:
            folder: The run's ``checkpoints/``.
            keep_best: How many to keep by score.
            keep_last: How many to keep by env steps, at least 1.

        Raises:
            InputError: If ``keep_best`` is negative or ``keep_last`` below 1.
        """
        if keep_best < 0 or keep_last < 1:
            raise InputError(
                f"checkpoints: expected keep_best >= 0 and keep_last >= 1, got {keep_best} and {keep_last}"
            )
        self._folder = absolute(folder)
        self._keep_best = keep_best
        self._keep_last = keep_last
        self._folder.mkdir(parents=True, exist_ok=True)

    def path_for(self, env_steps: int) -> Path:
        """Returns where the checkpoint of these env steps belongs."""
        return self._folder / f"step_{env_steps:09d}"

    def add(self, path: Path, env_steps: int, score: float | None) -> None:
        """Records a checkpoint that was saved, then deletes those that are neither among the best nor the last.

        Args:
            path: ``path_for(env_steps)``.
            env_steps: Env steps of the run when it was saved.
            score: Higher is better; None, NaN or infinite where there is none.

        Raises:
            ValueError: If the path is another one.
            RunError: If the disk is full or cannot be written.
        """
        if absolute(path) != self.path_for(env_steps):
            raise ValueError(f"checkpoint: expected {self.path_for(env_steps)}, got {path}")
        judged = None if score is None or not math.isfinite(score) else float(score)
        kept = [one for one in kept_checkpoints(self._folder) if one.env_steps != env_steps]
        kept.append(KeptCheckpoint(self.path_for(env_steps), env_steps, judged))
        self._keep(kept, self._worth_keeping(kept))

    def _worth_keeping(self, kept: list[KeptCheckpoint]) -> list[KeptCheckpoint]:
        last = sorted(kept, key=lambda one: one.env_steps)[-self._keep_last :]
        best = _by_score(kept)[-self._keep_best :] if self._keep_best else []
        return [one for one in kept if one in last or one in best]

    def _keep(self, kept: list[KeptCheckpoint], worth: list[KeptCheckpoint]) -> None:
        # The index goes first: a score must never outlive its folder and meet a new one of the same name.
        with writing(self._folder):
            write_json(self._folder / _INDEX, {"scores": {one.path.name: one.score for one in worth}})
        for one in kept:
            if one not in worth:
                delete_folder(one.path)

    def rewind(self, env_steps: int) -> None:
        """Deletes all checkpoints after ``env_steps``, torn ones too: the run goes on from there on another way."""
        self._keep([], [one for one in kept_checkpoints(self._folder) if one.env_steps <= env_steps])
        # The latest first: a kill in between leaves a run that ends earlier, not one with a gap.
        for steps, path in reversed(_step_folders(self._folder)):
            if steps > env_steps:
                delete_folder(path)

    @property
    def last(self) -> Path | None:
        """The whole checkpoint with the most env steps."""
        kept = kept_checkpoints(self._folder)
        return kept[-1].path if kept else None

    @property
    def best(self) -> Path | None:
        """The whole checkpoint with the highest score; the last one where none has a score."""
        best = best_checkpoint(kept_checkpoints(self._folder))
        return best.path if best else self.last

    @property
    def best_score(self) -> float | None:
        """The highest score among the whole checkpoints; None where none has one."""
        best = best_checkpoint(kept_checkpoints(self._folder))
        return best.score if best else None
