"""The linear layer of NoisyNet (Fortunato et al., 2018, https://arxiv.org/abs/1706.10295, section 3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from custom_models.nets.arguments import finite_number, layer_size

LinearMaker = Callable[[int, int], nn.Module]
"""Makes a linear layer ``[..., I] -> [..., O]`` of I and O: ``nn.Linear``, or what :func:`linear_maker` gives."""
SIGMA0 = 0.5
"""Of the paper, for factorised noise."""


class NoisyLinear(nn.Module):
    """A linear layer whose weights and biases carry learned, factorised Gaussian noise: ``[..., I] -> [..., O]``.

    In training mode each forward pass draws its own noise, one for the whole batch, from PyTorch's generator of the
    CPU: that one a run saves, whatever its devices. In evaluation mode there is none: the layer is linear in its
    means. As in the paper, means start uniform in ±1 / sqrt(I) and all sigmas at ``sigma0 / sqrt(I)``.

    Args:
        in_features: I, the size of the input.
        out_features: O, the size of the output.
        sigma0: The paper's sigma_0.

    Raises:
        ValueError: If a size is no positive int, or ``sigma0`` no finite number of at least 0.
    """

    def __init__(self, in_features: int, out_features: int, sigma0: float = SIGMA0) -> None:
        super().__init__()
        self.in_features = layer_size(in_features, "in_features")
        self.out_features = layer_size(out_features, "out_features")
        if finite_number(sigma0, "sigma0") < 0.0:
            raise ValueError(f"sigma0: expected a number of at least 0, got {sigma0!r}")
        bound = 1.0 / math.sqrt(in_features)
        self.weight_mu = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((out_features, in_features), sigma0 * bound))
        self.bias_mu = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound))
        self.bias_sigma = nn.Parameter(torch.full((out_features,), sigma0 * bound))

    def forward(self, features: Tensor) -> Tensor:
        """Returns ``[..., O]`` for features ``[..., I]``, with new noise in training mode and without in evaluation."""
        outputs = linear(features, self.weight_mu, self.bias_mu)
        if not self.training:
            return outputs
        sizes = (self.in_features, self.out_features)
        draws = torch.randn(sum(sizes), dtype=self.weight_mu.dtype).to(features.device)
        noise_in, noise_out = (draws.sign() * draws.abs().sqrt()).split(sizes)
        # The noise of weight [o, i] is noise_out[o] * noise_in[i], that of bias [o] is noise_out[o]: scaling input and
        # output by them gives the same sum, and no noise of the weights' size is ever made.
        return outputs + noise_out * linear(features * noise_in, self.weight_sigma, self.bias_sigma)


def linear_maker(noisy: bool, sigma0: float) -> LinearMaker:
    """What makes the linear layers of a head.

    Args:
        noisy: Whether they are noisy.
        sigma0: Of :class:`NoisyLinear`; without noise it has to stay at ``SIGMA0``.

    Raises:
        ValueError: If ``noisy`` is no bool, or ``sigma0`` has no effect.
    """
    if not isinstance(noisy, bool):
        raise ValueError(f"noisy: expected True or False, got {noisy!r}")
    if noisy:
        return partial(NoisyLinear, sigma0=sigma0)
    if sigma0 != SIGMA0:
        raise ValueError(f"sigma0={sigma0!r} has no effect without noisy=True: leave it out")
    return nn.Linear


def noisy_layers(module: nn.Module) -> list[NoisyLinear]:
    """Returns every :class:`NoisyLinear` in ``module``, each once."""
    return [part for part in module.modules() if isinstance(part, NoisyLinear)]


@contextmanager
def noise(layers: Sequence[NoisyLinear]) -> Iterator[None]:
    """Lets layers draw noise, whatever mode the module around them is in."""
    modes = [layer.training for layer in layers]
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for layer, mode in zip(layers, modes, strict=True):
            layer.training = mode
