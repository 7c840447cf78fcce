"""Checkpoints: everything that a run needs to go on, in a folder that is written whole or not at all.

A checkpoint is ``state.json`` (counters, RNG states), a ``<group>.safetensors`` for each group of arrays, other files
as bytes, and the manifest of :mod:`rayground.results.whole`. A run's checkpoints are ``checkpoints/step_<env steps>``.
"""

from __future__ import annotations

import io
import math
import pickle
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import safetensors.numpy

from rayground.errors import CheckpointError, InputError, closest
from rayground.results.files import absolute, dump_state, load_state, read_json, write_json, writing
from rayground.results.whole import (
    MANIFEST,
    check_hashes,
    delete_folder,
    reading,
    tidy,
    validate_folder,
    write_folder,
)

_STATE = "state.json"
_INDEX = "index.json"
_STEP = re.compile(r"step_(\d+)")
_ARRAYS = ".safetensors"
_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_DTYPES = {"bool", "float16", "float32", "float64"} | _INTEGERS


def save_checkpoint(
    path: Path,
    *,
    state: Mapping[str, Any],
    arrays: Mapping[str, Mapping[str, np.ndarray]],
    blobs: Mapping[str, bytes],
    overwrite: bool = False,
) -> Path:
    """Writes a checkpoint folder, whole or not at all.

    Args:
        path: The folder to make; its parents are made too.
        state: JSON: dicts with string keys, lists, strings, bools, None, integers of any size (RNG states), floats,
            also NaN and infinite ones. Scalars of numpy become Python's, tuples become lists.
        arrays: Arrays by name, by group; of bools, integers or floats, of any shape and memory layout.
        blobs: Contents of further files, by file name.
        overwrite: Replace a folder that holds something; it is deleted after the new one has its place.

    Returns:
        The absolute path.

    Raises:
        InputError: If ``path`` is a file, or a folder that holds something and ``overwrite`` is False.
        TypeError: If a state or an array is of another type; names it.
        ValueError: If a group or blob has a name that is no file name, or is taken.
        RunError: If the disk is full or cannot be written; nothing is left behind then, and nothing was replaced.
    """
    _check_names([*arrays, *blobs])
    groups = {group: _storable(group, named) for group, named in arrays.items()}
    contents = {_STATE: dump_state(state).encode(), **blobs}

    def fill(folder: Path) -> None:
        for name, data in contents.items():
            (folder / name).write_bytes(data)
        for group, named in groups.items():
            file = folder / f"{group}{_ARRAYS}"
            safetensors.numpy.save_file(named, file)
            file.chmod((folder / _STATE).stat().st_mode)  # safetensors lets only the owner read

    needed = sum(map(len, contents.values())) + sum(a.nbytes for named in groups.values() for a in named.values())
    return write_folder(path, fill, needed=needed, overwrite=overwrite)


def _check_names(names: list[str]) -> None:
    for name in names:
        if not re.fullmatch(r"\w[\w.-]*", name) or name in (MANIFEST, _STATE) or name.endswith(_ARRAYS):
            raise ValueError(f"checkpoint: expected a plain file name that is not taken, got {name!r}")


def _storable(group: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    for name, array in arrays.items():
        kind = array.dtype.name if isinstance(array, np.ndarray) else type(array).__name__
        if not isinstance(array, np.ndarray) or kind not in _DTYPES:
            raise TypeError(f"checkpoint array {group}/{name}: expected an array of bools or numbers, got {kind}")
    # safetensors reads the memory as if it were C-contiguous, whatever it is.
    return {name: np.asarray(array, order="C") for name, array in arrays.items()}


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was found whole.

    Attributes:
        path: Its absolute path.
        state: The state that was saved.
        groups: Names of the groups of arrays that can be read.
        blobs: Names of the further files.
    """

    path: Path
    state: dict[str, Any]
    groups: tuple[str, ...]
    blobs: tuple[str, ...]

    def arrays(self, group: str) -> dict[str, np.ndarray]:
        """Reads a group of arrays from the disk into writable memory.

        Raises:
            CheckpointError: If there is no such group, or it cannot be read.
        """
        self._expect(group, self.groups, "arrays")
        with reading(self.path):
            return safetensors.numpy.load_file(self.path / f"{group}{_ARRAYS}")

    def blob(self, name: str) -> bytes:
        """Reads a further file.

        Raises:
            CheckpointError: If there is no such file, or it cannot be read.
        """
        self._expect(name, self.blobs, "file")
        with reading(self.path):
            return (self.path / name).read_bytes()

    def _expect(self, name: str, known: tuple[str, ...], kind: str) -> None:
        if name not in known:
            raise CheckpointError(f"{self.path}: has no {kind} {name!r}{closest(name, known)}")


def load_checkpoint(path: Path, *, groups: Iterable[str] | None = None) -> Checkpoint:
    """Opens a checkpoint after checking the sizes of all files, and the hashes of those that are going to be read.

    Args:
        path: The folder.
        groups: The groups of arrays that are going to be read; a policy does not have to wait for the hash of a
            replay buffer. None for all.

    Raises:
        CheckpointError: If it is missing, torn, damaged, of a newer format, or lacks a group; names the absolute path
            and the file.
    """
    path = absolute(path)
    files = validate(path)
    present = tuple(sorted(name.removesuffix(_ARRAYS) for name in files if name.endswith(_ARRAYS)))
    blobs = tuple(sorted(name for name in files if name != _STATE and not name.endswith(_ARRAYS)))
    wanted = present if groups is None else tuple(groups)
    for group in wanted:
        if group not in present:
            raise CheckpointError(f"{path}: has no arrays {group!r}{closest(group, present)}")
    check_hashes(path, files, [_STATE, *blobs, *(f"{group}{_ARRAYS}" for group in wanted)])
    state = load_state((path / _STATE).read_text())
    return Checkpoint(path, state, wanted, blobs)


def validate(path: Path) -> dict[str, dict[str, Any]]:
    """Checks that a checkpoint is there with all its files in full length, without reading them.

    Returns:
        The ``bytes`` and ``sha256`` of each file.

    Raises:
        CheckpointError: If it is not; names the absolute path and the file.
    """
    files = validate_folder(path)
    if _STATE not in files:
        raise CheckpointError(f"{absolute(path)}: expected a checkpoint, but {MANIFEST} lists no {_STATE}")
    return files


def is_whole(path: Path) -> bool:
    """Returns whether :func:`validate` finds nothing wrong."""
    try:
        validate(path)
    except CheckpointError:
        return False
    return True


def dump_pickle(value: Any) -> bytes:
    """Pickles a value with cloudpickle: classes and functions of ``__main__`` by value, others by name."""
    return cloudpickle.dumps(value)


def load_pickle(data: bytes, where: Path) -> Any:
    """Unpickles what :func:`dump_pickle` made. It can run any code, like every pickle: only load your own.

    Args:
        data: The pickle.
        where: The checkpoint that it is from, for the error.

    Raises:
        CheckpointError: If a class or function cannot be imported (names ``module.QualName``), or the pickle is
            damaged or cannot be rebuilt; names the absolute path.
    """
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except Exception as error:
        reason = str(error) if isinstance(error, CheckpointError) else f"{type(error).__name__}: {error}"
        raise CheckpointError(f"{absolute(where)}: cannot be loaded: {reason}") from error


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError) as error:
            known = vars(sys.modules[module]) if module in sys.modules else ()
            raise CheckpointError(
                f"{module}.{name} cannot be imported ({error}{closest(name, known)}); give it its old name and place"
            ) from error


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
