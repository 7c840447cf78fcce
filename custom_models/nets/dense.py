"""Fully connected layers with as little as possible around the arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import cast

from torch import Tensor, nn
from torch.nn.functional import linear

from custom_models.nets.arguments import activation_function, layer_sizes


class DenseLayers(nn.ModuleList):
    """A list of ``nn.Linear``, each followed by the activation: ``[B, in_features] -> [B, out_features]``.

    On batches of 8 to 64 the calls of ``nn.Linear`` and ``nn.Tanh`` cost as much as what they compute, so layers and
    activation are applied as functions (hooks on the single layers are not called).

    Args:
        in_features: Size of the input.
        hidden: Units of each layer, first to last; empty for no layer.
        activation: Name of the activation after every layer.

    Attributes:
        out_features: Units of the last layer.

    Raises:
        ValueError: If an argument is wrong.
    """

    def __init__(self, in_features: int, hidden: Sequence[int], activation: str) -> None:
        sizes = (in_features, *layer_sizes(hidden, "hidden"))
        super().__init__(nn.Linear(size_in, size_out) for size_in, size_out in itertools.pairwise(sizes))
        self.activation = activation_function(activation)
        self.out_features = sizes[-1]

    def forward(self, features: Tensor) -> Tensor:
        """Returns what the last layer gives."""
        for layer in cast(Iterable[nn.Linear], self):
            features = self.activation(linear(features, layer.weight, layer.bias))
        return features
