"""What a run needs against what this machine, or its container, has."""

from __future__ import annotations

import math
import os
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psutil

from rayground.errors import InputError

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")
_NO_LIMIT = 2**60
"""Control groups of version 1 write "no limit" as a number near 2**63."""

COMPILE_CACHE = "~/.cache/rayground/torchinductor"
"""Where compiled code is kept; torch's own default is a folder that a restart of the machine empties."""


def check_memory(needed_bytes: int, what: str) -> None:
    """Refuses what cannot fit into memory before it is allocated.

    Args:
        needed_bytes: How much it takes, in bytes.
        what: What it is, as the user knows it, such as ``a replay capacity of 2,000,000``.

    Raises:
        InputError: If less memory is free; it says how much is needed and how much is free.
    """
    free = free_memory()
    if needed_bytes > free:
        raise InputError(
            f"{what}: needs {human_bytes(needed_bytes)} of memory, got {human_bytes(free)} free: make it smaller"
        )


def free_memory() -> int:
    """Returns the bytes that can still be allocated: the machine's, or its container's if that has fewer."""
    return int(min(psutil.virtual_memory().available, _free_in_cgroups(_CGROUPS, _OWN_CGROUP)))


def cores() -> int:
    """Returns the number of cores that this process may use: its affinity, and its container's quota rounded up."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(allowed, _cores_in_cgroups(_CGROUPS, _OWN_CGROUP))))


def warn_cores(num_env_runners: int, num_cores: int | None = None, num_learners: int = 0) -> str | None:
    """Returns a warning if runners and learners in processes of their own have to share cores, otherwise None.

    Args:
        num_env_runners: Runner processes of all runs that go on at once.
        num_cores: Cores that they have. None: those of this machine.
        num_learners: Learner processes that compute on cores.
    """
    available = cores() if num_cores is None else num_cores
    if num_env_runners + num_learners <= available:
        return None
    kinds = {"env runner": num_env_runners, "learner": num_learners}
    who = " and ".join(f"{count} {kind}{'s' * (count != 1)}" for kind, count in kinds.items() if count)
    faster = "fewer are faster" if num_learners else f"--num-env-runners {available} or fewer is faster"
    return f"{who} share {available} core{'s' * (available != 1)}: expect them to slow each other down; {faster}"


def check_gpus(wanted: Sequence[float], there: int, what: str) -> None:
    """Refuses processes that wait for GPUs for ever: a share of one comes from a single GPU.

    Args:
        wanted: The share of a GPU that each process wants, at most 1.
        there: GPUs.
        what: The settings, as the user knows them.

    Raises:
        InputError: If the shares do not fit; it says how many GPUs there are.
    """
    free = [1.0] * there
    for share in sorted(wanted, reverse=True):
        place = next((i for i, left in enumerate(free) if left >= share - 1e-9), None)
        if place is None:
            raise InputError(
                f"{what}: {len(wanted)} process{'es' * (len(wanted) != 1)} need{'s' * (len(wanted) == 1)} "
                f"{sum(wanted):g} GPUs, got {there}: use fewer, smaller shares, or none"
            )
        free[place] -= share


def compile_cache() -> Path:
    """Tells torch's compiler, before it is imported, where it keeps what it compiles; the folder is made.

    Returns:
        What the variable ``TORCHINDUCTOR_CACHE_DIR`` says, or a folder of ours that outlives a restart of the machine.

    Raises:
        InputError: If nothing can be written there.
    """
    folder = Path(os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(COMPILE_CACHE).expanduser()))).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"torch_compile_learner (--compile): cannot write to {folder}: {error.strerror}; "
            "name another folder in the variable TORCHINDUCTOR_CACHE_DIR"
        ) from error
    return folder


def check_compiler() -> None:
    """Refuses to compile without what torch needs for it on a CPU.

    Raises:
        InputError: If there is no C++ compiler, or no header of Python; it says what to install. Or if nothing can be
            written to :func:`compile_cache`.
    """
    compile_cache()
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    what = "torch_compile_learner (--compile): expected"
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        raise InputError(
            f"{what} a C++ compiler, got none: install g++ (apt install g++), or name yours in the variable CXX"
        ) from None
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not header.exists():
        raise InputError(f"{what} Python's headers, got no {header}: install them (apt install python3-dev)")


def human_bytes(count: int) -> str:
    """Returns a number of bytes as people read it: ``512 bytes``, ``7.1 MB``, ``52.0 GB`` (powers of 1,000)."""
    if count < 1000:
        return f"{count} bytes"
    value, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < 999.95:
            break
        value, unit = value / 1000, larger
    return f"{value:.1f} {unit}"


def _free_in_cgroups(root: Path, own: Path) -> float:
    """The least that any control group around this process has left, or infinity without one (versions 1 and 2)."""
    free = math.inf
    for folder in _folders(root, own, "memory"):
        limit = _number(folder / "memory.max") or _number(folder / "memory.limit_in_bytes")
        if limit is None or limit > _NO_LIMIT:
            continue
        used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes") or 0
        free = min(free, limit - used + _droppable(folder))
    return max(free, 0)


def _cores_in_cgroups(root: Path, own: Path) -> float:
    quotas = [math.inf]
    for folder in _folders(root, own, "cpu"):
        words = _words(folder / "cpu.max") or _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
        if len(words) == 2 and all(word.isdigit() for word in words):
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas)


def _folders(root: Path, own: Path, controller: str) -> list[Path]:
    """The control groups around this process, from its own to the root: version 2, or version 1's ``controller``."""
    found: list[Path] = []
    for line in own.read_text().splitlines() if own.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / controller if controllers else root
        place = top / path.lstrip("/")
        found += [folder for folder in (place, *place.parents) if folder.is_relative_to(top)]
    return found


def _droppable(folder: Path) -> int:
    """Bytes of cached files, which the kernel gives up when memory is asked for."""
    words = _words(folder / "memory.stat")
    counts = dict(zip(words[::2], words[1::2], strict=False))
    return int(counts.get("total_inactive_file", counts.get("inactive_file", 0)))


def _number(file: Path) -> int | None:
    words = _words(file)
    return int(words[0]) if words and words[0].isdigit() else None


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []
