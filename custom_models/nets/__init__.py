"""Networks in plain PyTorch: they know Gymnasium's spaces, and no Ray.

A net that plugs into Rayground, also one of your own, is an ``nn.Module`` with this contract:

* ``__init__(self, observation_space, action_space, **kwargs)``, where the keyword arguments can be written as JSON;
* ``forward(obs)`` takes observations as the environment gives them, ``[B, *observation_space.shape]``, and returns
  ``[B, A]`` action values. A net that also takes ``action_mask`` (``[B, A]`` bool, True is legal) is given it.
"""

from torch import nn

from custom_models.nets.dueling import DuelingHead
from custom_models.nets.mlp import DuelingMLP, MLPTorso, PlainMLP

NETS: tuple[type[nn.Module], ...] = (DuelingMLP, PlainMLP)
"""The nets that an exported policy may name without the caller handing in their class."""

__all__ = ["NETS", "DuelingHead", "DuelingMLP", "MLPTorso", "PlainMLP"]
