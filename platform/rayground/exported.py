"""What every export is: ``<what>.safetensors`` (weights) and ``<what>.json`` (everything else), no code, no Ray.

It is written whole or not at all, and read as plain tensors and plain JSON: whatever a file names, it runs nothing.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor, nn

from rayground.errors import InputError


def absolute(folder: str | Path) -> Path:
    """Returns an absolute path; ``~`` is the home folder."""
    return Path(folder).expanduser().absolute()


def json_file(what: str) -> str:
    """The name of the file of everything but weights, of a ``"policy"`` or a ``"generator"``."""
    return f"{what}.json"


def weights_file(what: str) -> str:
    """The name of the file of weights."""
    return f"{what}.safetensors"


def write(
    folder: str | Path,
    what: str,
    description: dict[str, Any],
    state: Mapping[str, Tensor],
    load: Callable[[Path], object],
) -> Path:
    """Writes an export: whole or not at all, and only if it can be loaded again.

    Args:
        folder: A folder that does not exist yet, or is empty.
        what: What is exported, which names the files.
        description: Its format and whatever is needed to build the net anew, as JSON.
        state: Parameters and buffers by name.
        load: Loads what was written.

    Returns:
        The folder, absolute.

    Raises:
        InputError: If the folder holds something, the description is not JSON, or ``load`` raises one.
    """
    target = absolute(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target} already holds something: export to a new or empty folder")
    try:
        text = json.dumps(description, indent=2, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: net_kwargs and info must be JSON: {error}") from None
    # Cloned, as tensors that share memory are refused.
    tensors = {name: value.detach().cpu().clone().contiguous() for name, value in state.items()}
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        temporary.mkdir(parents=True, exist_ok=True)
        (temporary / json_file(what)).write_text(text + "\n")
        (temporary / weights_file(what)).write_bytes(safetensors.torch.save(tensors))
        load(temporary)
        temporary.replace(target)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error}") from error
    except InputError as error:
        reason = str(error).replace(str(temporary), str(target))
        raise InputError(f"not exported, as it would not load again: {reason}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def read_description(path: Path, what: str, version: int) -> dict[str, Any]:
    """Reads what :func:`write` was told.

    Args:
        path: The folder, absolute.
        what: What should be there.
        version: The format that it should have.

    Raises:
        InputError: If it is not there, damaged, or of another format.
    """
    file = path / json_file(what)
    if not file.is_file():
        missing = f"it has no {file.name}" if path.is_dir() else "there is no such folder"
        raise InputError(f"{path} holds no exported {what}: {missing}; `rayground export` makes one")
    try:
        description = json.loads(file.read_text())
    except ValueError as error:
        raise InputError(f"{file} is damaged: {error}") from error
    found = description.get("format") if isinstance(description, dict) else None
    if found != version:
        raise InputError(f"{file}: expected format {version}, got {found!r}")
    return description


def load_weights(net: nn.Module, path: Path, what: str) -> None:
    """Loads the weights of an export into a net.

    Raises:
        InputError: If they are not there, damaged, or do not fit.
    """
    file = path / weights_file(what)
    if not file.is_file():
        raise InputError(f"{file} is missing")
    try:
        weights = safetensors.torch.load(file.read_bytes())
    except SafetensorError as error:
        raise InputError(f"{file} is damaged: {error}") from error
    own = net.state_dict()
    for name in [*own, *sorted(weights.keys() - own.keys())]:
        expected, got = _kind(own.get(name)), _kind(weights.get(name))
        if expected != got:
            raise InputError(f"{file} does not fit {type(net).__name__}: {name}: expected {expected}, got {got}")
    net.load_state_dict(weights)


def _kind(tensor: Tensor | None) -> str:
    return "no such tensor" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}".removeprefix("torch.")
