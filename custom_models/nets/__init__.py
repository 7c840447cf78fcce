"""Networks in plain PyTorch: they know Gymnasium's spaces, and no Ray.

A net that plugs into Rayground, also one of your own, is an ``nn.Module`` with this contract:

* ``__init__(self, observation_space, action_space, **kwargs)``, where the keyword arguments can be written as JSON;
* observations come as the environment gives them, ``obs``: ``[B, *observation_space.shape]``;
* a Q-network has ``forward(obs)``, which returns ``[B, A]`` action values. If it also takes ``action_mask`` (``[B, A]``
  bool, True is legal), it is given it;
* an actor-critic net has ``policy(obs)``, which returns what the action distribution is made from, ``[B, D]`` (the
  logits of a Discrete space, those of a MultiDiscrete's components one after the other, means and log standard
  deviations of a Box), ``value(obs)``, which returns ``[B]`` values, and ``forward(obs)``, which returns both.
  ``value_only`` may name the submodules that only the value needs: runners and exported policies do without them.
"""

from torch import nn

from custom_models.nets.actor_critic import ActorCriticCNN, ActorCriticMLP, drop_value
from custom_models.nets.dueling import DuelingHead
from custom_models.nets.encoder import observation_encoder
from custom_models.nets.mlp import DuelingMLP, MLPTorso, PlainMLP
from custom_models.nets.nature_cnn import NatureCNN
from custom_models.nets.noisy import NoisyLinear, noisy_layers
from custom_models.nets.normalizer import RunningNorm, running_norms
from custom_models.nets.q_cnn import DuelingCNN, PlainCNN

ACTION_MASK = "action_mask"
"""What nets, batches and Gymnasium's infos call the legal actions."""

NETS: tuple[type[nn.Module], ...] = (ActorCriticCNN, ActorCriticMLP, DuelingCNN, DuelingMLP, PlainCNN, PlainMLP)
"""The nets that an exported policy may name without the caller handing in their class."""

__all__ = [
    "ACTION_MASK",
    "NETS",
    "ActorCriticCNN",
    "ActorCriticMLP",
    "DuelingCNN",
    "DuelingHead",
    "DuelingMLP",
    "MLPTorso",
    "NatureCNN",
    "NoisyLinear",
    "PlainCNN",
    "PlainMLP",
    "RunningNorm",
    "drop_value",
    "noisy_layers",
    "observation_encoder",
    "running_norms",
]
