"""The folder of one run, and what it says about how it was started."""

from __future__ import annotations

import datetime
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rayground.errors import InputError
from rayground.results.files import absolute, read_json, readable, write_json, writing
from rayground.results.provenance import git_state, machine, versions

DEFAULT_STORAGE = Path("~/ray_results")


def create_run_folder(storage: str | Path, name: str) -> Path:
    """Makes ``<storage>/<name>_<YYYY-mm-dd_HH-MM-SS>``, which no other run has or gets.

    Runs that start in the same second, also in other processes, get ``_2``, ``_3`` and so on.

    Args:
        storage: Folder of all runs, made if need be; ``~`` and relative paths are resolved.
        name: Of the experiment.

    Returns:
        The absolute path of the new, empty folder.

    Raises:
        InputError: If the name is not one of a folder, or ``storage`` is a file or cannot be written.
    """
    if not name or name in (".", "..") or "/" in name or os.sep in name:
        raise InputError(f"name: expected one that can name a folder, got {name!r}")
    storage = absolute(storage)
    stem = f"{name}_{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}"
    try:
        storage.mkdir(parents=True, exist_ok=True)
        return _make_unique(storage, stem)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{storage}: expected a folder to store runs in, but a file is in the way") from None
    except OSError as error:
        raise InputError(f"{storage}: cannot store runs here: {error.strerror}; give another folder") from None


def _make_unique(storage: Path, stem: str) -> Path:
    number = 1
    while True:
        folder = storage / (stem if number == 1 else f"{stem}_{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            return folder


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keeps other processes from running in the same folder meanwhile; the operating system forgets the dead.

    Raises:
        InputError: If another process runs there.
    """
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder}: another process is running in this folder; wait for it, or end it") from None
        yield


def write_experiment_json(
    folder: Path,
    *,
    experiment: str,
    module: str,
    command: list[str],
    flags: dict[str, Any],
    seed: int | None,
    code: Path | None = None,
) -> Path:
    """Writes ``experiment.json``: what was started, from which code, with what, where and when.

    Args:
        folder: Of the run.
        experiment: Name of the experiment; :func:`rayground.results.runs.find_runs` finds it by this.
        module: Importable name of the module that was run.
        command: Command line, as ``sys.argv``.
        flags: All flags with the values that hold.
        seed: Of the run; None for the folder of several seeds.
        code: A folder inside the git repository of the experiment; the working directory if None.

    Returns:
        The path of the file.

    Raises:
        RunError: If the disk is full or cannot be written.
    """
    path = folder / "experiment.json"
    content = {
        "experiment": experiment,
        "module": module,
        "command": command,
        "flags": readable(flags),
        "seed": seed,
        "started": _now(),
        "resumes": [],
        "versions": versions(),
        "machine": machine(),
        **git_state(code or Path.cwd()),
    }
    with writing(folder):
        write_json(path, content)
    return path


def record_resume(
    folder: Path,
    *,
    command: list[str],
    changed: dict[str, Any],
    from_checkpoint: str | Path,
    env_steps: int,
    code: Path | None = None,
) -> None:
    """Appends a resume to ``experiment.json``.

    Args:
        folder: Of the run.
        command: Command line of the resume.
        changed: Settings that differ from the run's own, by name.
        from_checkpoint: Where it goes on from; stored relative to the run folder, which may move.
        env_steps: Env steps of that checkpoint.
        code: A folder inside the git repository of the experiment; the working directory if None.

    Raises:
        InputError: If the folder has no readable ``experiment.json``.
        RunError: If the disk is full or cannot be written.
    """
    path = folder / "experiment.json"
    content = read_json(path)
    resume = {
        "time": _now(),
        "command": command,
        "changed": readable(changed),
        "from_checkpoint": os.path.relpath(absolute(from_checkpoint), absolute(folder)),
        "env_steps": env_steps,
        "versions": versions(),
        **git_state(code or Path.cwd()),
    }
    with writing(folder):
        write_json(path, {**content, "resumes": [*content["resumes"], resume]})


def write_params(folder: Path, settings: dict[str, Any]) -> Path:
    """Writes ``params.json``: all settings of the run, as :func:`rayground.results.files.readable` shows them.

    Returns:
        The path of the file.

    Raises:
        RunError: If the disk is full or cannot be written.
    """
    path = folder / "params.json"
    with writing(folder):
        write_json(path, readable(settings))
    return path


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat()
