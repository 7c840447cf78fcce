"""Environments in the middle of their episodes, as bytes: a resumed run goes on with them."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import EzPickle

_MAKERS = "env_fns"
"""What a SyncVectorEnv was made from: used up, and often nothing that can be pickled."""


def pack(env: gym.vector.VectorEnv, more: dict[str, Any]) -> bytes | None:
    """Packs the state of a vector environment and what belongs to it.

    Args:
        env: The vector environment.
        more: Whatever else is to come back with it.

    Returns:
        The bytes, or None where a pickle would not copy the environment's state: it lies in other processes, in
        foreign memory, or the class says how it is pickled (Gymnasium's ``EzPickle`` makes it anew).
    """
    if not all(map(_is_plain, _layers(env))):
        return None
    state = {name: value for name, value in vars(env).items() if name != _MAKERS}
    file = io.BytesIO()
    try:
        _Pickler(file, env).dump((state, more))
        return file.getvalue()
    except Exception:  # whatever a foreign class raises when it cannot be pickled
        return None


def unpack(data: bytes, env: gym.vector.VectorEnv) -> dict[str, Any] | None:
    """Puts the state that :func:`pack` took into an environment of the same kind.

    Returns:
        What came with it, or None if a class has gone since.
    """
    try:
        state, more = _Unpickler(io.BytesIO(data), env).load()
    except Exception:  # whatever a foreign class raises when it cannot be made from its pickle
        return None
    vars(env).update(state)
    return more


class _Pickler(cloudpickle.Pickler):
    """Leaves out what the new environment has as well: its specs. Those that RLlib makes hold the whole runner."""

    def __init__(self, file: io.BytesIO, env: gym.vector.VectorEnv) -> None:
        super().__init__(file)
        self._numbers = {id(spec): number for number, spec in enumerate(_specs(env)) if spec is not None}

    def persistent_id(self, value: Any) -> int | None:
        return self._numbers.get(id(value))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, env: gym.vector.VectorEnv) -> None:
        super().__init__(file)
        self._specs = list(_specs(env))

    def persistent_load(self, number: int) -> EnvSpec | None:
        return self._specs[number]


def _specs(env: gym.vector.VectorEnv) -> Iterator[EnvSpec | None]:
    """The spec of each layer, as it lies there: wrappers make theirs when they are asked."""
    for layer in _layers(env):
        yield vars(layer).get("_cached_spec") or vars(layer).get("spec")


def _layers(env: Any) -> Iterator[Any]:
    """The environment, all that it wraps, and the sub-environments of a synchronous vector environment."""
    while env is not None:
        yield env
        if isinstance(env, gym.vector.SyncVectorEnv):
            for sub_env in env.envs:
                yield from _layers(sub_env)
        env = env.env if isinstance(env, gym.Wrapper | gym.vector.VectorWrapper) else None


def _is_plain(layer: Any) -> bool:
    is_wrapper = isinstance(layer, gym.Wrapper | gym.vector.VectorWrapper)
    own_pickling = any(
        getattr(type(layer), name, None) is not getattr(object, name, None)
        for name in ("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__")
    )
    return not isinstance(layer, gym.vector.AsyncVectorEnv | EzPickle) and (is_wrapper or not own_pickling)
