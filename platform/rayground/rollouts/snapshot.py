"""Environments in the middle of their episodes, as bytes: a resumed run goes on with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import gymnasium as gym
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
    try:
        return cloudpickle.dumps((state, more))
    except Exception:  # whatever a foreign class raises when it cannot be pickled
        return None


def unpack(data: bytes, env: gym.vector.VectorEnv) -> dict[str, Any] | None:
    """Puts the state that :func:`pack` took into an environment of the same kind.

    Returns:
        What came with it, or None if a class has gone since.
    """
    try:
        state, more = cloudpickle.loads(data)
    except Exception:  # whatever a foreign class raises when it cannot be made from its pickle
        return None
    vars(env).update(state)
    return more


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
