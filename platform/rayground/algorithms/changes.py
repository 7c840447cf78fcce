"""Settings that change while an algorithm trains; checkpoints keep the changes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from rayground.errors import InputError, closest

if TYPE_CHECKING:
    from rayground.algorithms.base import ArrayAlgorithm
    from rayground.algorithms.config import ArrayConfig

logger = logging.getLogger("rayground")


def check(algorithm: ArrayAlgorithm, key: str, value: Any) -> ArrayConfig:
    """Checks that a setting can change to ``value`` while training, and returns the config with that change.

    Raises:
        InputError: If ``key`` cannot change while training, or not to ``value``.
    """
    changeable = algorithm.changeable
    if key not in changeable:
        raise InputError(f"{key!r} cannot change while training{closest(key, changeable)}; {', '.join(changeable)} can")
    config = algorithm.config.copy(copy_frozen=False)
    setattr(config, key, value)
    config.validate()
    config.freeze()
    return config


def make(algorithm: ArrayAlgorithm, key: str, value: Any) -> None:
    """Changes a setting.

    Raises:
        InputError: If ``key`` cannot change while training, or not to ``value``; nothing changes then.
    """
    config, before = check(algorithm, key, value), getattr(algorithm.config, key)
    logger.info("env step %d: %s changes from %r to %r", algorithm.env_steps, key, before, value)
    algorithm.changes[key] = value
    algorithm.config = config
    algorithm.apply_settings()


def redo(algorithm: ArrayAlgorithm, changes: dict[str, Any]) -> None:
    """Takes back all changes, then makes those of a checkpoint, except of what ``algorithm.pinned`` names."""
    kept = {key: value for key, value in changes.items() if key not in algorithm.pinned}
    for key, value in ({key: getattr(algorithm.own_config, key) for key in algorithm.changes} | kept).items():
        make(algorithm, key, value)
    algorithm.changes = kept
