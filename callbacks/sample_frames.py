"""Observed frames as a picture in TensorBoard and in the run folder."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from ray.rllib.callbacks.callbacks import RLlibCallback

NUM_SAMPLES = 4


class SampleFrames(RLlibCallback):
    """Shows observations of each result's iteration as one picture, ``frames``: a row for each, oldest frame first.

    >>> config.callbacks([SampleFrames])

    Attributes:
        num_observations: From how many of the last observations the rows are taken, evenly.
    """

    num_observations = 64

    def check(self, module: Any) -> None:
        """Looks at the observation space.

        Raises:
            ValueError: If observations are no stacks of frames.
        """
        space = module.observation_space
        if not (isinstance(space, gym.spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8):
            raise ValueError(f"expected frames to show, a uint8 Box [C, H, W], got the observation space {space}")

    def on_train_result(self, *, algorithm: Any, result: dict[str, Any], **kwargs: Any) -> None:
        """Hands the picture over."""
        if batch := algorithm.recent.batch():
            obs_B = batch["obs"]
            rows = np.linspace(0, len(obs_B) - 1, min(NUM_SAMPLES, len(obs_B))).astype(int)
            result.setdefault("tensorboard", {})["frames"] = film(obs_B[rows])


def film(stacks: np.ndarray) -> np.ndarray:
    """Lays stacks of frames ``[B, C, H, W]`` out as one gray picture ``[1, B * H, C * W]``, a row for each stack."""
    num, channels, height, width = stacks.shape
    return stacks.transpose(0, 2, 1, 3).reshape(1, num * height, channels * width)
