"""What callbacks may have beside RLlib's hooks: a look at the module before training, and recent observations.

A callback class may have

* ``check(self, module)``, which is called with the module, built, before training, and raises ValueError if the
  callback can do nothing with it;
* ``num_observations``: how many of the observations that an iteration acted on it wants to find in
  ``algorithm.recent`` in ``on_train_result``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModule

from custom_models.q_module import ACTION_MASK
from rayground.errors import InputError
from rayground.rollouts.rollout import Rollout

if TYPE_CHECKING:
    from rayground.algorithms.config import ArrayConfig


class RecentObservations:
    """The last observations that were acted on since :meth:`clear`.

    Attributes:
        size: How many are kept at most.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._parts: deque[dict[str, np.ndarray]] = deque()
        self._count = 0

    def clear(self) -> None:
        """Forgets all."""
        self._parts.clear()
        self._count = 0

    def add(self, rollout: Rollout) -> None:
        """Takes copies of the last ones of a rollout."""
        steps, lanes = (index[-self.size :] for index in np.nonzero(rollout.valid))
        part = {Columns.OBS: rollout.obs[steps, lanes]}
        if rollout.action_masks is not None:
            part[ACTION_MASK] = rollout.action_masks[steps, lanes]
        self._parts.append(part)
        self._count += len(steps)
        while self._count - len(self._parts[0][Columns.OBS]) >= self.size:
            self._count -= len(self._parts.popleft()[Columns.OBS])

    def batch(self) -> dict[str, np.ndarray]:
        """What was kept, oldest first: ``obs`` ``[B, ...]``, and ``action_mask`` ``[B, A]`` where there are masks.

        Empty if nothing was.
        """
        names = self._parts[0] if self._count else ()
        return {name: np.concatenate([part[name] for part in self._parts])[-self.size :] for name in names}


def num_observations(callbacks: Iterable[Any]) -> int:
    """How many observations the callbacks want to be kept."""
    return max((getattr(callback, "num_observations", 0) for callback in callbacks), default=0)


def check_callbacks(config: ArrayConfig, module: RLModule) -> None:
    """Asks the callbacks of a config whether they can work.

    Args:
        config: The config.
        module: The module, built.

    Raises:
        InputError: If one cannot.
    """
    for callback in [make() for make in _classes(config)]:
        name = type(callback).__name__
        if hasattr(callback, "check"):
            try:
                callback.check(module)
            except ValueError as error:
                raise InputError(f"{name}: {' '.join(str(error).split())}") from error
        if num_observations([callback]) and not config.sends_observations:
            raise InputError(
                f"{name}: expected observations in the main process, but {config.algo_class.__name__}'s "
                "runners keep theirs: they send gradients"
            )


def add_callbacks(config: ArrayConfig, callbacks: Sequence[type]) -> list[type]:
    """Adds callback classes to those that a config has, behind them: a resumed run knows their states by their places.

    Returns:
        Those of them that the config did not have yet.
    """
    own = [callback for callback in _classes(config) if callback is not RLlibCallback]
    added = [callback for callback in callbacks if not any(_is_of(one, callback) for one in own)]
    if added:
        config.callbacks([*own, *added])
    return added


def _classes(config: ArrayConfig) -> list[Any]:
    """The callbacks of a config: classes, or instances that RLlib calls as if they were."""
    given = config.callbacks_class
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _is_of(callback: Any, kind: type) -> bool:
    return callback is kind or isinstance(callback, kind)
