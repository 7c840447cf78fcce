"""Where a run came from: the code, the versions and the machine."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

PACKAGES = ("rayground", "ray", "torch", "gymnasium", "numpy")
LARGEST_DIFF = 1_000_000
"""Bytes of a diff that are kept."""


def git_state(code: Path) -> dict[str, str | None]:
    """Returns the commit that ``code`` is at and what was changed since, new Python files included.

    Args:
        code: A folder of the code that is run.

    Returns:
        ``git_commit`` and ``git_diff``, None each when there is no git, no repository or no commit. A diff of more
        than ``LARGEST_DIFF`` bytes is cut, and its last line says so.
    """
    commit = _git(code, "rev-parse", "HEAD")
    if commit is None:
        return {"git_commit": None, "git_diff": None}
    changed = _git(code, "diff", "HEAD", "--no-color", "--no-ext-diff", "--no-textconv")
    if changed is None:
        return {"git_commit": commit.strip(), "git_diff": None}
    return {"git_commit": commit.strip(), "git_diff": _cut(changed + _new_files(code))}


def _git(code: Path, *arguments: str) -> str | None:
    # Without the optional locks, a run that starts never makes the user's own git command fail.
    command = ["git", "-C", str(code), "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")


def _new_files(code: Path) -> str:
    """Returns untracked Python files as a diff from nothing: a new experiment is rarely committed before its run."""
    root = (_git(code, "rev-parse", "--show-toplevel") or "").strip()
    names = _git(Path(root), "ls-files", "--others", "--exclude-standard", "-z", "--", "*.py") if root else None
    diff = ""
    for name in filter(None, (names or "").split("\0")):
        if len(diff) > LARGEST_DIFF:  # somebody's whole virtual environment
            break
        with contextlib.suppress(OSError):
            lines = (Path(root) / name).read_text(errors="replace").splitlines()
            diff += f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1,{len(lines)} @@\n"
            diff += "".join(f"+{line}\n" for line in lines)
    return diff


def _cut(diff: str) -> str:
    data = diff.encode()
    if len(data) <= LARGEST_DIFF:
        return diff
    kept = data[:LARGEST_DIFF].decode(errors="ignore")
    return f"{kept}\n[cut here: the diff is longer than the {LARGEST_DIFF:,} bytes that are kept]\n"


def versions() -> dict[str, str | None]:
    """Returns the versions of Python and of the packages that decide what a run computes; None where absent."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def machine() -> dict[str, Any]:
    """Returns host name, operating system, CPU model, usable cores, bytes of memory and the names of the GPUs.

    GPUs are asked for only where torch is imported already: importing it here would cost seconds.
    """
    torch = sys.modules.get("torch")
    gpus = range(torch.cuda.device_count()) if torch is not None and torch.cuda.is_available() else ()
    return {
        "hostname": socket.gethostname(),
        "os": platform.platform(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": [torch.cuda.get_device_name(gpu) for gpu in gpus] if torch is not None else [],
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
