"""Gymnasium spaces as JSON (exact, readable, no pickle), and arrays in the form that a space wants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from rayground.errors import InputError


def to_json(space: gym.Space) -> dict[str, Any]:
    """Describes a Box, Discrete, MultiDiscrete or MultiBinary space by values that JSON holds exactly.

    Bounds that are the same everywhere are written once; infinite ones as ``"inf"`` and ``"-inf"``.

    Raises:
        InputError: If it is another kind of space.
    """
    kind = type(space).__name__
    if isinstance(space, gym.spaces.Box):
        bounds = {"low": _bound_to_json(space.low), "high": _bound_to_json(space.high)}
        return {"type": kind, "shape": list(space.shape), "dtype": str(space.dtype)} | bounds
    if isinstance(space, gym.spaces.Discrete):
        return {"type": kind, "n": int(space.n), "start": int(space.start), "dtype": str(space.dtype)}
    if isinstance(space, gym.spaces.MultiDiscrete):
        sizes = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
        return {"type": kind, "dtype": str(space.dtype)} | sizes
    if isinstance(space, gym.spaces.MultiBinary):
        return {"type": kind, "n": space.n if isinstance(space.n, int) else list(space.shape)}
    raise InputError(f"space: expected Box, Discrete, MultiDiscrete or MultiBinary, got {space}")


def from_json(description: dict[str, Any]) -> gym.Space:
    """Builds the space that :func:`to_json` described.

    Raises:
        KeyError: If a value is missing.
        InputError: If the kind of space is unknown.
    """
    kind = description["type"]
    if kind == "Box":
        shape, dtype = tuple(description["shape"]), np.dtype(description["dtype"])
        low, high = (_bound_from_json(description[key], shape, dtype) for key in ("low", "high"))
        return gym.spaces.Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        dtype = np.dtype(description["dtype"])
        return gym.spaces.Discrete(description["n"], start=description["start"], dtype=dtype.type)
    if kind == "MultiDiscrete":
        dtype = np.dtype(description["dtype"])
        nvec, start = (np.array(description[key], dtype) for key in ("nvec", "start"))
        return gym.spaces.MultiDiscrete(nvec, dtype=dtype.type, start=start)
    if kind == "MultiBinary":
        return gym.spaces.MultiBinary(description["n"])
    raise InputError(f"unknown kind of space {kind!r}")


def _bound_to_json(bound: np.ndarray) -> Any:
    values = [value if np.isfinite(value) else str(value) for value in bound.ravel().tolist()]
    return values[0] if len(set(values)) == 1 else values


def _bound_from_json(values: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    numbers = [float(v) if isinstance(v, str) else v for v in (values if isinstance(values, list) else [values])]
    array = np.array(numbers, dtype)
    return array.reshape(shape) if isinstance(values, list) else np.full(shape, array[0])


def as_batch(obs: Any, space: gym.Space) -> np.ndarray:
    """Returns observations ``[B, ...]`` in the shape and dtype of their space.

    Raises:
        InputError: If shape or number type is not the space's.
    """
    array, dtype = np.asarray(obs), np.dtype(space.dtype)
    if array.shape[1:] != space.shape or array.ndim == 0:
        expected = ", ".join(["B", *map(str, space.shape or ())])
        raise InputError(f"observations: expected shape [{expected}], got {list(array.shape)}")
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise InputError(f"observations: expected dtype {dtype}, got {array.dtype}")
    return array.astype(dtype, copy=False)


def actions_for_env(space: gym.Space, *, normalize: bool, clip: bool) -> Callable[[np.ndarray], np.ndarray]:
    """How actions of a policy become those of the environment: what RLlib's ``NormalizeAndClipActions`` does.

    Args:
        space: The environment's action space.
        normalize: ``config.normalize_actions``: the policy's -1 to 1 is stretched to the bounds of a bounded Box.
        clip: ``config.clip_actions``: where they are not normalized, actions are clipped to the bounds of a Box.

    Returns:
        A function of actions ``[B, ...]`` that returns new ones ``[B, *space.shape]``, in the space's dtype.
    """
    shape, dtype = (-1, *(space.shape or ())), np.dtype(space.dtype)
    if not isinstance(space, gym.spaces.Box):
        return lambda actions_B: actions_B.reshape(shape).astype(dtype)
    low, high = space.low, space.high
    if normalize and space.bounded_below.all() and space.bounded_above.all():
        span = high - low
        return lambda actions_B: _clipped(low + (actions_B.reshape(shape) + 1.0) * span / 2.0, low, high)
    if clip and not normalize:
        return lambda actions_B: _clipped(actions_B.reshape(shape), low, high)
    return lambda actions_B: actions_B.reshape(shape).astype(dtype)


def _clipped(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Values in the bounds and their dtype: twice as quick as np.clip on a few numbers."""
    return np.minimum(np.maximum(values, low), high).astype(low.dtype, copy=False)
