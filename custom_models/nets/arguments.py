"""Checks of what a net is built from, shared by the nets."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "elu": functional.elu,
    "gelu": functional.gelu,
    "leaky_relu": functional.leaky_relu,
    "relu": torch.relu,
    "silu": functional.silu,
    "tanh": torch.tanh,
}


def activation_function(name: str) -> Callable[[Tensor], Tensor]:
    """Returns an activation.

    Raises:
        ValueError: If there is none of that name.
    """
    if name in ACTIVATIONS:
        return ACTIVATIONS[name]
    near = difflib.get_close_matches(str(name), ACTIVATIONS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"activation: expected one of {', '.join(ACTIVATIONS)}, got {name!r}{hint}")


def layer_size(value: Any, argument: str) -> int:
    """Returns ``value`` if it can be the number of units of a layer.

    Raises:
        ValueError: If it is no positive int.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{argument}: expected a positive int, got {value!r}")
    return value


def layer_sizes(values: Any, argument: str) -> tuple[int, ...]:
    """Returns ``values`` as the numbers of units of successive layers.

    Raises:
        ValueError: If they are no sequence of positive ints.
    """
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise ValueError(f"{argument}: expected a sequence of positive ints such as (256,), got {values!r}")
    return tuple(layer_size(value, f"{argument}[{i}]") for i, value in enumerate(values))


def finite_number(value: Any, argument: str) -> float:
    """Returns ``value`` as a float.

    Raises:
        ValueError: If it is no finite number.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{argument}: expected a finite number, got {value!r}")
    return float(value)


def num_discrete_actions(action_space: gym.Space) -> int:
    """Returns A, the number of actions of a Discrete space.

    Raises:
        ValueError: If the space is not Discrete, or does not start at 0: the action is the index of the largest Q.
    """
    if not isinstance(action_space, gym.spaces.Discrete) or action_space.start != 0:
        raise ValueError(f"action space: expected a Discrete space that starts at 0, got {action_space}")
    return int(action_space.n)


def policy_outputs(action_space: gym.Space) -> tuple[int, bool]:
    """Returns the number of logits or means that a policy gives, and whether they are means.

    Raises:
        ValueError: If the space is neither Discrete nor MultiDiscrete, starting at 0, nor a Box of floats.
    """
    if isinstance(action_space, gym.spaces.Box) and np.issubdtype(action_space.dtype, np.floating):
        return math.prod(action_space.shape), True
    if isinstance(action_space, gym.spaces.Discrete) and action_space.start == 0:
        return int(action_space.n), False
    if isinstance(action_space, gym.spaces.MultiDiscrete) and not action_space.start.any():
        return int(action_space.nvec.sum()), False
    raise ValueError(
        f"action space: expected Discrete or MultiDiscrete that starts at 0, or a Box of floats, got {action_space}"
    )
