"""A generator and a discriminator for images of 64 x 64 pixels, and their losses.

The nets are those of DCGAN (Radford et al. 2016, https://arxiv.org/abs/1511.06434) for gray images; the losses are the
non-saturating ones (Goodfellow et al. 2014, https://arxiv.org/abs/1406.2661, section 3).
"""

from __future__ import annotations

from itertools import pairwise

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from custom_models.nets.arguments import layer_size

SIDE = 64
"""Pixels of an image, in height and in width."""


class Generator(nn.Module):
    """Draws images from random numbers: transposed convolutions that double the side, from 4 to 64.

    Args:
        latent_dim: Z, how many random numbers an image is made of.
        width: Channels before the last layer; twice as many before each layer that comes earlier.

    Raises:
        ValueError: If an argument is no whole number of at least 1.
    """

    def __init__(self, latent_dim: int = 100, width: int = 64) -> None:
        super().__init__()
        self.latent_dim = layer_size(latent_dim, "latent_dim")
        channels = [layer_size(width, "width") * times for times in (8, 4, 2, 1)]
        layers: list[nn.Module] = [nn.ConvTranspose2d(latent_dim, channels[0], 4, bias=False)]
        for inputs, outputs in zip(channels, [*channels[1:], None], strict=True):
            layers += [nn.BatchNorm2d(inputs), nn.ReLU()]
            layers.append(nn.ConvTranspose2d(inputs, outputs or 1, 4, 2, 1, bias=outputs is None))
        self.layers = nn.Sequential(*layers, nn.Tanh())
        _initialize(self)

    def forward(self, latents: Tensor) -> Tensor:
        """Returns images ``[B, 1, 64, 64]`` between -1 and 1 of standard normal numbers ``[B, Z]``."""
        return self.layers(latents[:, :, None, None])

    def images(self, latents: Tensor) -> Tensor:
        """Returns images ``[B, 1, 64, 64]``, uint8, by the statistics of training and not of these B."""
        was_training = self.training
        self.eval()
        with torch.inference_mode():
            images = to_bytes(self(latents))
        self.train(was_training)
        return images


class Discriminator(nn.Module):
    """Tells real images from generated ones: strided convolutions that halve the side, from 64 to 4.

    Args:
        width: Channels after the first layer; twice as many after each later one.

    Raises:
        ValueError: If it is no whole number of at least 1.
    """

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        channels = [layer_size(width, "width") * times for times in (1, 2, 4, 8)]
        layers: list[nn.Module] = [nn.Conv2d(1, channels[0], 4, 2, 1), nn.LeakyReLU(0.2)]
        for inputs, outputs in pairwise(channels):
            layers += [nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.2)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(channels[-1], 1, 4), nn.Flatten(0))
        _initialize(self)

    def forward(self, images: Tensor) -> Tensor:
        """Returns the logits ``[B]`` that images ``[B, 1, 64, 64]`` between -1 and 1 are real."""
        return self.layers(images)


class ImageGAN(nn.Module):
    """The two, against each other on what an agent sees.

    Args:
        observation_space: A uint8 Box ``[C, H, W]`` of C frames, the last of which are the real images.
        action_space: Unused.
        latent_dim: See :class:`Generator`.
        width: See :class:`Generator` and :class:`Discriminator`.

    Raises:
        ValueError: If the space is of another kind, or an argument is wrong.
    """

    def __init__(
        self, observation_space: gym.Space, action_space: gym.Space, latent_dim: int = 100, width: int = 64
    ) -> None:
        super().__init__()
        space = observation_space
        if not (isinstance(space, gym.spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8):
            raise ValueError(f"observation space: expected frames, a uint8 Box [C, H, W], got {space}")
        self.generator = Generator(latent_dim, width)
        self.discriminator = Discriminator(width)

    def forward(self, images: Tensor, latents: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Judges real and generated images.

        Args:
            images: ``[B, 1, 64, 64]`` uint8.
            latents: ``[B, Z]``.

        Returns:
            Three times logits ``[B]`` of the discriminator: of the real images; of generated ones, with gradients for
            the discriminator only; of the same ones, with gradients for the generator only.
        """
        generated = self.generator(latents)
        fixed = {name: weights.detach() for name, weights in self.discriminator.named_parameters()}
        return (
            self.discriminator(to_unit(images)),
            self.discriminator(generated.detach()),
            functional_call(self.discriminator, fixed, (generated,)),
        )


def discriminator_loss(real_logits: Tensor, fake_logits: Tensor) -> Tensor:
    """Cross-entropy (scalar) of telling real images from generated ones; logits ``[B]``; ``2 log 2`` by guessing."""
    return functional.softplus(-real_logits).mean() + functional.softplus(fake_logits).mean()


def generator_loss(fake_logits: Tensor) -> Tensor:
    """Mean ``-log D(G(z))`` (scalar) of logits ``[B]``, which also teaches where the discriminator is sure."""
    return functional.softplus(-fake_logits).mean()


def to_unit(images: Tensor) -> Tensor:
    """Returns uint8 images as numbers between -1 and 1."""
    return images.float() / 127.5 - 1.0


def to_bytes(images: Tensor) -> Tensor:
    """Returns numbers between -1 and 1 as uint8 images: :func:`to_unit` turned back."""
    return ((images + 1.0) * 127.5).round().to(torch.uint8)


def last_frames(obs: np.ndarray) -> np.ndarray:
    """Returns the last frame of each stack ``[B, C, H, W]``, resized to ``[B, 1, 64, 64]`` by area; both are uint8."""
    frames = torch.from_numpy(np.ascontiguousarray(obs[:, -1:])).float()
    return functional.interpolate(frames, (SIDE, SIDE), mode="area").round().to(torch.uint8).numpy()


def _initialize(net: nn.Module) -> None:
    """The paper's: weights N(0, 0.02), scales of the normalization N(1, 0.02), biases 0."""
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.BatchNorm2d):
            nn.init.normal_(layer.weight, 1.0 if isinstance(layer, nn.BatchNorm2d) else 0.0, 0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
