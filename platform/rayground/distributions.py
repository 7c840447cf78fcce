"""Actions from what a policy's net gives, without Ray: Discrete, MultiDiscrete and Box.

The outputs ``[B, D]`` are laid out as RLlib's distributions want them: the logits of a Discrete space, those of a
MultiDiscrete's components one after the other, means and then log standard deviations of a Box.
"""

from __future__ import annotations

import gymnasium as gym
import torch
from torch import Tensor


def greedy_actions(outputs: Tensor, space: gym.Space) -> Tensor:
    """Returns the most likely actions: ``[B]`` or ``[B, K]`` int64, or the means ``[B, A]``."""
    if isinstance(space, gym.spaces.Box):
        return outputs.chunk(2, dim=1)[0]
    if isinstance(space, gym.spaces.MultiDiscrete):
        parts = outputs.split(space.nvec.ravel().tolist(), dim=1)
        return torch.stack([part.argmax(dim=1) for part in parts], dim=1)
    return outputs.argmax(dim=1)


def sampled_actions(outputs: Tensor, space: gym.Space) -> Tensor:
    """Returns samples, drawn with torch's generator: ``[B]`` or ``[B, K]`` int64, or ``[B, A]`` float32."""
    if isinstance(space, gym.spaces.Box):
        mean, log_std = outputs.chunk(2, dim=1)
        return mean + log_std.exp() * torch.randn_like(mean)
    gumbel = -torch.empty_like(outputs).exponential_().log()
    return greedy_actions(outputs + gumbel, space)  # the Gumbel-max trick, https://arxiv.org/abs/1411.0030
