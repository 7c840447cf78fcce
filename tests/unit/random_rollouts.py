"""Rollouts of random episodes."""

from __future__ import annotations

import numpy as np

from rayground.rollouts.rollout import Rollout


def random_rollout(length: int, lanes: int, seed: int) -> tuple[Rollout, np.ndarray]:
    """Episodes of random lengths that terminate, are truncated, or both; one may have ended right before.

    Returns:
        The rollout, of observations ``[T + 1, N, 3]`` and 4 actions, and values ``[T + 1, N]``.
    """
    rng = np.random.default_rng(seed)
    terminated, truncated = rng.random((2, length, lanes)) < 0.2
    valid = np.ones((length, lanes), bool)
    valid[0] = rng.random(lanes) < 0.8
    for t in range(length):
        if t:
            valid[t] = ~(terminated[t - 1] | truncated[t - 1])
        terminated[t] &= valid[t]
        truncated[t] &= valid[t]
    rewards, values = rng.normal(size=(length, lanes)), rng.normal(size=(length + 1, lanes))
    obs = rng.uniform(-1, 1, (length + 1, lanes, 3)).astype(np.float32)
    actions = rng.integers(0, 4, (length, lanes))
    rollout = Rollout(obs, actions, rewards.astype(np.float32), terminated, truncated, valid)
    return rollout, values.astype(np.float32)
