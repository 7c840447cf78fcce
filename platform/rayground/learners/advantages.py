"""Advantages of a rollout, before the learner."""

from __future__ import annotations

import numpy as np

from rayground.rollouts.rollout import Rollout


def gae(rollout: Rollout, values: np.ndarray, gamma: float, lambda_: float) -> tuple[np.ndarray, np.ndarray]:
    """Generalized advantage estimation (Schulman et al. 2016, https://arxiv.org/abs/1506.02438), all lanes at once.

    A terminated episode has no value after its end; a truncated one, and the end of the fragment, bootstrap from the
    value of the observation that was reached.

    Args:
        rollout: T steps of N sub-environments.
        values: ``[T + 1, N]`` float32 values of ``rollout.obs``.
        gamma: Discount of one env step.
        lambda_: Weight of longer returns: 0 for one-step TD errors, 1 for the whole return.

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
