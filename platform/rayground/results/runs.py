"""The one way to read what runs left on the disk. Nothing in a run folder says where it lies: it may be moved."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rayground.checkpoints import validate
from rayground.errors import CheckpointError, InputError, closest
from rayground.keeper import KeptCheckpoint, best_checkpoint, kept_checkpoints
from rayground.results.files import absolute, read_json, read_rows
from rayground.results.folder import DEFAULT_STORAGE

if TYPE_CHECKING:
    import pandas as pd

Preference = Literal["last", "best"]


@dataclass(frozen=True)
class RunFiles:
    """What a run left in its folder; every access reads the disk, so a run may still be going on.

    Attributes:
        folder: Absolute path of the run folder.
    """

    folder: Path

    def __init__(self, folder: str | Path) -> None:
        """Takes the folder of a run, or of several seeds; relative paths and ``~`` are resolved.

        Raises:
            InputError: If that is no folder with an ``experiment.json``; names the absolute path.
        """
        path = absolute(folder)
        object.__setattr__(self, "folder", path)
        if not (path / "experiment.json").is_file():
            what = "one without experiment.json" if path.is_dir() else _what_is(path)
            raise InputError(f"{path}: expected a run folder, got {what}")

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All results in order, as they were logged; non-finite numbers are None.

        Raises:
            InputError: If this is the folder of several seeds, or ``result.json`` is damaged.
        """
        if self.seed_folders:
            raise InputError(f"{self.folder}: holds {len(self.seed_folders)} seeds; read those in seed_folders")
        return read_rows(self.folder / "result.json")

    def row_at(self, env_steps: int) -> dict[str, Any]:
        """Returns the last result at or before ``env_steps``: what was known when a checkpoint was written.

        Raises:
            InputError: If there is none, or as for ``rows``.
        """
        rows = [row for row in self.rows if row["env_steps"] <= env_steps]
        if not rows:
            raise InputError(f"{self.folder}: expected a result at or before env step {env_steps:,}, got none")
        return rows[-1]

    @property
    def frame(self) -> pd.DataFrame:
        """All results as a pandas DataFrame: a row for each result, a column for each key in order of appearance.

        Raises:
            InputError: As for ``rows``.
        """
        import pandas as pd  # half a second that a run does not need

        return pd.DataFrame(self.rows)

    @property
    def experiment(self) -> dict[str, Any]:
        """The contents of ``experiment.json``."""
        return read_json(self.folder / "experiment.json")

    @property
    def params(self) -> dict[str, Any]:
        """The contents of ``params.json``."""
        return read_json(self.folder / "params.json")

    @property
    def seed_folders(self) -> list[Path]:
        """The folders ``seed_<k>`` in order of k; empty for a single run."""
        found = ((re.fullmatch(r"seed_(\d+)", path.name), path) for path in self.folder.iterdir())
        return [path for _, path in sorted((int(match[1]), path) for match, path in found if match)]

    @property
    def checkpoints(self) -> list[Path]:
        """The whole checkpoints, oldest first by env steps; torn ones are left out."""
        return [one.path for one in self._kept]

    @property
    def last_checkpoint(self) -> Path | None:
        """The whole checkpoint with the most env steps.

        Raises:
            CheckpointError: If this is the folder of several seeds.
        """
        return self._preferred("last")

    @property
    def best_checkpoint(self) -> Path | None:
        """The whole checkpoint with the highest recorded score; the last one where none has a score.

        Raises:
            CheckpointError: If this is the folder of several seeds.
        """
        return self._preferred("best")

    def _preferred(self, prefer: Preference) -> Path | None:
        if self.seed_folders:
            raise _several(self.folder, self.seed_folders)
        return _pick(self._kept, prefer)

    @property
    def _kept(self) -> list[KeptCheckpoint]:
        return kept_checkpoints(self.folder / "checkpoints")


def _pick(kept: list[KeptCheckpoint], prefer: Preference) -> Path | None:
    best = best_checkpoint(kept) if prefer == "best" else None
    chosen = best or (kept[-1] if kept else None)
    return chosen.path if chosen else None


def find_runs(storage: str | Path = DEFAULT_STORAGE, name: str | None = None) -> list[Path]:
    """Returns the run folders in a storage folder, those started or resumed last first.

    Args:
        storage: The folder that holds run folders.
        name: Only runs of the experiment with this name.
    """
    found = []
    for file in absolute(storage).glob("*/experiment.json"):
        try:
            experiment = read_json(file)
            times = [experiment["started"], *(resume["time"] for resume in experiment["resumes"])]
            newest = max(map(datetime.datetime.fromisoformat, times))
        except (InputError, LookupError, TypeError, ValueError):
            continue  # no run of ours
        if name is None or experiment["experiment"] == name:
            found.append((newest, file.parent))
    return [folder for _, folder in sorted(found, reverse=True)]


def resolve_checkpoint(
    text: str | Path,
    *,
    storage: str | Path = DEFAULT_STORAGE,
    name: str | None = None,
    prefer: Preference = "last",
) -> Path:
    """Finds the checkpoint that a user means.

    Args:
        text: A checkpoint folder, a run folder, or ``latest``: the run in ``storage`` that was started or resumed
            last and has a whole checkpoint. Relative paths and ``~`` are resolved.
        storage: Where ``latest`` looks.
        name: Of the experiment that ``latest`` looks for; any if None.
        prefer: Of a run's checkpoints, the last one or the best one.

    Returns:
        The absolute path of a checkpoint whose files are all there in full length.

    Raises:
        CheckpointError: If there is none; names the absolute path tried, and what is wrong with it.
    """
    if str(text) == "latest":
        return _latest(absolute(storage), name, prefer)
    path = absolute(text)
    if not path.is_dir():
        raise CheckpointError(f"{path}: expected a run or checkpoint folder, got {_what_is(path)}{_hint(path)}")
    if not (path / "experiment.json").exists():
        validate(path)
        return path
    chosen = _chosen(path, prefer)
    if chosen is None:
        raise CheckpointError(f"{path}: this run holds no whole checkpoint{_why_not(path)}")
    return chosen


def _latest(storage: Path, name: str | None, prefer: Preference) -> Path:
    runs = find_runs(storage, name)
    chosen = next(filter(None, (_chosen(run, prefer) for run in runs)), None)
    if chosen is None:
        of = f" of {name}" if name else ""
        raise CheckpointError(
            f"{storage}: expected a run{of} with a whole checkpoint, got {len(runs)} runs without one"
        )
    return chosen


def _chosen(run: Path, prefer: Preference) -> Path | None:
    """Returns the run's preferred checkpoint; the best of several seeds is the best over all of them."""
    seeds = RunFiles(run).seed_folders
    if seeds and prefer == "last":
        raise _several(run, seeds)
    kept = [one for folder in seeds or [run] for one in kept_checkpoints(folder / "checkpoints")]
    return _pick(kept, prefer)


def _several(run: Path, seeds: list[Path]) -> CheckpointError:
    names = ", ".join(seed.name for seed in seeds)
    return CheckpointError(f"{run}: holds several seeds, give the folder of one: {names}")


def _why_not(run: Path) -> str:
    torn = sorted(run.glob("checkpoints/step_*"))
    try:
        validate(torn[-1])
    except IndexError:
        return "; it ended before it saved one"
    except CheckpointError as error:
        return f"; {error}"
    return ""


def _what_is(path: Path) -> str:
    return "a file" if path.exists() else "nothing there"


def _hint(path: Path) -> str:
    folders = path.parent.iterdir() if path.parent.is_dir() and not path.exists() else []
    return closest(path.name, [folder.name for folder in folders if folder.is_dir()])


def run_folder_of(checkpoint: str | Path) -> Path:
    """Returns the run folder that a checkpoint lies in.

    Raises:
        CheckpointError: If it does not lie in a run's ``checkpoints/``; names the absolute path.
    """
    path = absolute(checkpoint)
    run = path.parent.parent
    if path.parent.name != "checkpoints" or not (run / "experiment.json").is_file():
        raise CheckpointError(f"{path}: expected a checkpoint in the checkpoints folder of a run")
    return run
