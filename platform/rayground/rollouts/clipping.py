"""Rewards as the learner gets them."""

from __future__ import annotations

import numpy as np


def clipped(rewards: np.ndarray, limit: bool | float | None) -> np.ndarray:
    """What RLlib's setting ``clip_rewards`` makes of rewards; those that are not finite stay, for they must be found.

    Args:
        rewards: Float32, of any shape.
        limit: True: their signs, as in DQN on Atari (Mnih et al., 2015); a number above 0: no further from 0 than
            that; None or False: as they are.

    Returns:
        An array of the same shape and dtype.
    """
    if limit is None or limit is False:
        return rewards
    bounded = np.sign(rewards) if limit is True else np.clip(rewards, -limit, limit)
    return np.where(np.isfinite(rewards), bounded, rewards)
