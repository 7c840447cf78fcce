"""Checkpoints: everything that a run needs to go on, in a folder that is written whole or not at all.

A checkpoint is ``state.json`` (counters, RNG states), a ``<group>.safetensors`` for each group of arrays, other files
as bytes, and the manifest of :mod:`rayground.results.whole`. A run's checkpoints are ``checkpoints/step_<env steps>``.
"""

from __future__ import annotations

import io
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

from rayground.errors import CheckpointError, closest
from rayground.results.files import absolute, dump_state, load_state
from rayground.results.whole import (
    MANIFEST,
    check_hashes,
    reading,
    validate_folder,
    write_folder,
)

_STATE = "state.json"
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
