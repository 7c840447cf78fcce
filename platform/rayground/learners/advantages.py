"""Advantages of a rollout, before the learner."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ray.rllib.core.columns import Columns
from ray.rllib.evaluation.postprocessing import Postprocessing

from custom_models.nets import ACTION_MASK
from rayground.rollouts.rollout import Rollout

ADVANTAGES, VALUE_TARGETS = Postprocessing.ADVANTAGES, Postprocessing.VALUE_TARGETS

WEIGHTS = "weights"
"""Column of a batch: 0 for a row that holds no transition, the same for all others, 1 on average."""


def judged(
    rollout: Rollout, values: Callable[[np.ndarray], np.ndarray], gamma: float, lambda_: float
) -> dict[str, np.ndarray]:
    """What an actor-critic loss reads of a rollout: ``obs``, ``actions``, ``advantages``, ``value_targets``.

    And ``action_mask``, where the environments say which actions are legal.

    Args:
        rollout: T steps of N sub-environments.
        values: Gives values ``[M]`` of observations ``[M, ...]``; called once.
        gamma: Discount of one env step.
        lambda_: As in :func:`gae`.

    Returns:
        Columns ``[T, N, ...]``; where ``rollout.valid`` is False they mean nothing, but are finite.
    """
    num_steps, num_envs = rollout.obs.shape[:2]
    values_TN = values(rollout.obs.reshape(-1, *rollout.obs.shape[2:])).reshape(num_steps, num_envs)
    advantages, targets = gae(rollout, values_TN, gamma, lambda_)
    columns = {
        Columns.OBS: rollout.obs[:-1],
        Columns.ACTIONS: rollout.actions,
        ADVANTAGES: advantages,
        VALUE_TARGETS: targets,
    }
    return columns if rollout.action_masks is None else columns | {ACTION_MASK: rollout.action_masks[:-1]}


def gae(rollout: Rollout, values: np.ndarray, gamma: float, lambda_: float) -> tuple[np.ndarray, np.ndarray]:
    """Generalized advantage estimation (Schulman et al. 2016, https://arxiv.org/abs/1506.02438), all lanes at once.

    A terminated episode has no value after its end; a truncated one, and the end of the fragment, bootstrap from the
    value of the observation that was reached.

    Args:
        rollout: T steps of N sub-environments.
        values: ``[T + 1, N]`` float32 values of ``rollout.obs``.
        gamma: Discount of one env step.
        lambda_: Weight of longer returns: 0 for one-step TD errors; 1 for n-step returns, with the n that is left of
            the fragment or the episode, as in A3C (Mnih et al. 2016, https://arxiv.org/abs/1602.01783).

    Returns:
        ``[T, N]`` float32 advantages, and value targets (advantages plus values). Where ``rollout.valid`` is False
        they mean nothing.
    """
    lives = ~rollout.terminated
    goes_on = ~(rollout.terminated | rollout.truncated)
    delta = rollout.rewards + np.float32(gamma) * values[1:] * lives - values[:-1]
    decay = np.float32(gamma * lambda_) * goes_on
    advantages = np.empty_like(delta)
    after = np.zeros(delta.shape[1], np.float32)
    for t in range(len(delta) - 1, -1, -1):
        after = advantages[t] = delta[t] + decay[t] * after
    return advantages, advantages + values[:-1]


def value_sums(batch: dict[str, np.ndarray]) -> np.ndarray:
    """Sums over the rows of a batch, from which :class:`ValueSums` tells how well the values explain their targets.

    Args:
        batch: ``advantages``, ``value_targets`` and ``weights``, each ``[B]``; an advantage is a target less its value.

    Returns:
        The number of rows with a weight, their errors, squared errors, targets and squared targets, float64 ``[5]``.
    """
    errors, targets = (batch[name][batch[WEIGHTS] > 0].astype(np.float64) for name in (ADVANTAGES, VALUE_TARGETS))
    return np.array([len(errors), errors.sum(), errors @ errors, targets.sum(), targets @ targets])


class ValueSums:
    """How much of the variance of value targets the values explained, over many batches."""

    def __init__(self) -> None:
        self._sums = np.zeros(5)
        self._batches: list[dict[str, np.ndarray]] = []  # to be summed up all at once

    def add(self, batch: dict[str, np.ndarray]) -> None:
        """Adds the rows of a batch; see :func:`value_sums`."""
        self._batches.append({name: batch[name] for name in (ADVANTAGES, VALUE_TARGETS, WEIGHTS)})

    def merge(self, sums: np.ndarray) -> None:
        """Adds what :func:`value_sums` gave."""
        self._sums += sums

    def row(self) -> dict[str, float]:
        """``learner/vf_explained_var``: 1 all, 0 none, below 0 worse than their mean; nothing without rows."""
        if self._batches:
            joined = {name: np.concatenate([batch[name] for batch in self._batches]) for name in self._batches[0]}
            self._batches.clear()
            self.merge(value_sums(joined))
        count, error, error_squares, target, target_squares = self._sums.tolist()
        if not count:
            return {}
        unexplained = error_squares / count - (error / count) ** 2
        variance = target_squares / count - (target / count) ** 2
        return {"learner/vf_explained_var": 1.0 - unexplained / max(variance, 1e-8)}
