"""What is checked of an environment's spaces, and of the observations that claim to come from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Protocol

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

ACTIONS: tuple[type[gym.Space], ...] = (spaces.Discrete, spaces.MultiDiscrete, spaces.Box)
"""The kinds of action spaces that runners act in; an algorithm may want fewer."""

_PLAIN = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
_WANTED = {
    spaces.Discrete: "Discrete space that starts at 0",
    spaces.MultiDiscrete: "MultiDiscrete space of one dimension that starts at 0",
    spaces.Box: "Box space of floats of one dimension",
}


class Fail(Protocol):
    """Reports a finding: raises, with the name of whose fault it is."""

    def __call__(self, key: str, expected: str, got: str) -> NoReturn:
        """Raises InputError."""


def check_spaces(observation_space: Any, action_space: Any, actions: tuple[type[gym.Space], ...], fail: Fail) -> None:
    """Checks that there is a way to deal with the spaces of an environment.

    Args:
        observation_space: What it observes.
        action_space: What it is told.
        actions: The kinds of action spaces that the algorithm takes, of :data:`ACTIONS`.
        fail: Reports a finding.
    """
    if not _is_observed(observation_space):
        kinds = "Box, Discrete, MultiDiscrete or MultiBinary"
        fail("observation_space", f"a {kinds} space of gymnasium, or a Dict or Tuple of them", _told(observation_space))
    if not (isinstance(action_space, actions) and _is_acted_in(action_space)):
        fail("action_space", "a " + " or a ".join(_WANTED[kind] for kind in actions), _told(action_space))
    for key, space in (("observation_space", observation_space), ("action_space", action_space)):
        if 0 in (space.shape or ()):
            fail(key, "a space with numbers in it", _told(space))


def _told(space: Any) -> str:
    """A space in one line; that of arrays is told in many."""
    return " ".join(str(space).split())


def _is_observed(space: Any) -> bool:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return bool(parts) and all(map(_is_observed, parts))
    return isinstance(space, _PLAIN)


def _is_acted_in(space: gym.Space) -> bool:
    if isinstance(space, spaces.Discrete):
        return bool(space.start == 0)
    if isinstance(space, spaces.MultiDiscrete):
        return space.nvec.ndim == 1 and not space.start.any()
    return len(space.shape or ()) == 1 and np.dtype(space.dtype).kind == "f"


def check_observation(space: gym.Space, obs: Any, key: str, fail: Fail) -> None:
    """Checks that an observation is one of its space: structure, dtype, shape, finite, within the bounds.

    Args:
        space: A space that :func:`check_spaces` passed.
        obs: The observation.
        key: What messages call it.
        fail: Reports a finding.
    """
    if isinstance(space, spaces.Dict):
        if not isinstance(obs, Mapping) or set(obs) != set(space.spaces):
            got = f"the keys {sorted(obs)}" if isinstance(obs, Mapping) else kind(obs)
            fail(key, f"a dict with the keys {sorted(space.spaces)}", got)
        for name, part in space.spaces.items():
            check_observation(part, obs[name], f"{key}[{name!r}]", fail)
    elif isinstance(space, spaces.Tuple):
        if not isinstance(obs, tuple) or len(obs) != len(space.spaces):
            got = f"a tuple of {len(obs)}" if isinstance(obs, tuple) else kind(obs)
            fail(key, f"a tuple of {len(space.spaces)}", got)
        for i, part in enumerate(space.spaces):
            check_observation(part, obs[i], f"{key}[{i}]", fail)
    else:
        _check_values(space, obs, key, fail)


def _check_values(space: gym.Space, obs: Any, key: str, fail: Fail) -> None:
    if isinstance(space, spaces.Discrete):
        if np.ndim(obs) != 0 or np.asarray(obs).dtype.kind not in "iu":
            fail(key, "an int", kind(obs))
    else:
        expected, got = f"{space.dtype} {list(space.shape or ())}", kind(obs)
        if expected != got:
            fail(key, f"an array {expected}", got)
        check_finite(obs, key, fail)
    low, high = _bounds(space)
    outside = np.argwhere((np.asarray(obs) < low) | (np.asarray(obs) > high))
    if len(outside):
        index = tuple(outside[0].tolist())
        fail(_at(key, index), f"a value from {low[index]} to {high[index]}", str(np.asarray(obs)[index]))


def _bounds(space: Any) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(space, spaces.Discrete):
        return np.array(space.start), np.array(int(space.start) + int(space.n) - 1)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(space.shape, np.int8), np.ones(space.shape, np.int8)
    return space.low, space.high


def check_finite(values: np.ndarray, key: str, fail: Fail) -> None:
    """Checks that there is no NaN and no infinity among numbers."""
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        index = tuple(bad[0].tolist())
        fail(_at(key, index), "a finite number", str(values[index]))


def _at(key: str, index: tuple[int, ...]) -> str:
    return f"{key} at {list(index)}" if index else key


def kind(value: Any) -> str:
    """What a value is: dtype and shape of arrays and tensors, otherwise its class."""
    if isinstance(value, np.ndarray | np.generic | torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return type(value).__name__
