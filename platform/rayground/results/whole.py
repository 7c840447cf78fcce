"""Folders of files that are there whole or not at all.

A folder is filled under a hidden name beside its place, gets a manifest of sizes and SHA-256 hashes, is synced to
the disk, and renamed: under its final name it was whole. What processes left that died before the rename, or between
the two renames that replace a folder, :func:`tidy` deletes or puts back.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
from safetensors import SafetensorError

from rayground.budget import human_bytes
from rayground.errors import CheckpointError, InputError, RunError
from rayground.results.files import absolute, read_json, write_json

FORMAT = 1
MANIFEST = "manifest.json"
_STALE_SECONDS = 24 * 3600
_SIBLING = re.compile(r"\.(?P<name>.+)\.(?P<kind>tmp|old)-(?P<host>.+)-(?P<process>\d+)")

Files = dict[str, dict[str, Any]]
"""Of each file its ``bytes`` and its ``sha256`` in hex."""


def write_folder(path: Path, fill: Callable[[Path], None], *, needed: int, overwrite: bool = False) -> Path:
    """Makes a folder whose files are all there, or none.

    Args:
        path: The folder to make; its parents are made too.
        fill: Writes the files into the folder that it is given.
        needed: Bytes that it is going to write, for the error.
        overwrite: Replace a folder that holds something; it is deleted after the new one has its place.

    Returns:
        The absolute path.

    Raises:
        InputError: If ``path`` is a file, or a folder that holds something and ``overwrite`` is False.
        RunError: If the disk is full or cannot be written; nothing is left behind then, and nothing was replaced.
    """
    path = absolute(path)
    if path.is_file() or (path.is_dir() and not overwrite and any(path.iterdir())):
        raise InputError(f"{path}: expected a new or empty folder for a checkpoint, got one that holds something")
    temporary = _sibling(path, "tmp")
    try:
        tidy(path.parent)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        fill(temporary)
        _seal(temporary)
        _move_in(temporary, path)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise RunError(_not_written(path, needed, error)) from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return path


def _seal(folder: Path) -> None:
    names = sorted(file.name for file in folder.iterdir())
    files = {name: {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)} for name in names}
    for name in names:
        _sync(folder / name)
    write_json(folder / MANIFEST, {"format": FORMAT, "files": files})
    _sync(folder)


def _move_in(temporary: Path, path: Path) -> None:
    old = _sibling(path, "old")
    replaced = path.exists()
    if replaced:
        path.rename(old)
    try:
        temporary.rename(path)
    except OSError:
        if replaced:
            old.rename(path)
        raise
    _sync(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(file: Path) -> str:
    """Returns the SHA-256 hash of a file in hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _not_written(path: Path, needed: int, error: Exception) -> str:
    there = next(folder for folder in path.parents if folder.is_dir())
    free = human_bytes(shutil.disk_usage(there).free)
    reason = getattr(error, "strerror", None) or error
    return (
        f"{path}: the checkpoint could not be written ({reason}): it needs {human_bytes(needed)}, "
        f"{free} are free; make room, then resume from the checkpoint before it"
    )


def delete_folder(path: Path) -> None:
    """Deletes a folder, if it is there; a kill in between leaves no torn one under its name."""
    hidden = _sibling(path, "tmp")
    shutil.rmtree(hidden, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        path.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def _sibling(path: Path, kind: str) -> Path:
    return path.with_name(f".{path.name}.{kind}-{socket.gethostname()}-{os.getpid()}")


def tidy(parent: Path) -> None:
    """Cleans up in a folder after processes that died while they wrote into it.

    Half-written folders are deleted. A folder that had to make room for a new one goes back to its name if the new
    one did not get there. What belongs to a living process stays, and for a day what belongs to another machine.
    """
    for left in parent.glob(".*-*"):
        match = _SIBLING.fullmatch(left.name)
        with contextlib.suppress(OSError):  # another process tidies too, or the disk is read-only
            if match is None or not _is_stale(left, match["host"], int(match["process"])):
                continue
            place = parent / match["name"]
            if match["kind"] == "old" and not place.exists():
                left.rename(place)
            else:
                shutil.rmtree(left, ignore_errors=True)


def _is_stale(left: Path, host: str, process: int) -> bool:
    dead = host == socket.gethostname() and not psutil.pid_exists(process)
    return dead or time.time() - left.stat().st_mtime > _STALE_SECONDS


def validate_folder(path: Path) -> Files:
    """Checks that a folder is there with all its files in full length, without reading them.

    Returns:
        What its manifest says of each file.

    Raises:
        CheckpointError: If it is not; names the absolute path and the file.
    """
    path = absolute(path)
    if not path.exists():
        tidy(path.parent)  # a process that died while it replaced this folder left the old one beside
    with reading(path):
        if not path.is_dir():
            raise CheckpointError(
                f"{path}: expected a checkpoint folder, got {'a file' if path.exists() else 'nothing'}"
            )
        if not any(path.iterdir()):
            raise CheckpointError(f"{path}: expected a checkpoint, got an empty folder")
        files = _read_manifest(path)
        for name, entry in files.items():
            got = (path / name).stat().st_size if (path / name).is_file() else None
            if got != entry["bytes"]:
                found = "no such file" if got is None else f"{got:,}"
                raise CheckpointError(f"{path}: {name} is damaged: expected {entry['bytes']:,} bytes, got {found}")
    return files


def _read_manifest(folder: Path) -> Files:
    if not (folder / MANIFEST).is_file():
        raise CheckpointError(f"{folder}: expected a whole checkpoint, but it has no {MANIFEST}")
    try:
        manifest = read_json(folder / MANIFEST)
        version = int(manifest["format"])
        files = {name: {"bytes": int(of["bytes"]), "sha256": of["sha256"]} for name, of in manifest["files"].items()}
    except (InputError, LookupError, TypeError, ValueError, AttributeError):
        raise CheckpointError(f"{folder}: {MANIFEST} is damaged; use another checkpoint") from None
    if version > FORMAT:
        raise CheckpointError(f"{folder}: expected checkpoint format {FORMAT}, got {version}; update rayground")
    return files


def check_hashes(path: Path, files: Files, names: Iterable[str]) -> None:
    """Reads files of a folder and compares their hashes with the manifest's.

    Raises:
        CheckpointError: If one differs; names the absolute path and the file.
    """
    for name in names:
        with reading(path):
            if sha256(path / name) != files[name]["sha256"]:
                raise CheckpointError(f"{absolute(path)}: {name} is damaged: its SHA-256 is not the one in {MANIFEST}")


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns errors of the disk into a CheckpointError that names the absolute path."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{absolute(path)}: cannot be read: {error.strerror}") from error
