"""The RLModule around an image GAN: it acts at random, and learns to draw what it sees."""

from __future__ import annotations

from typing import Any

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from torch import Tensor

from custom_models.net_module import IMAGE, NetModule, tried_net_spec
from custom_models.nets.gan import ImageGAN
from custom_models.q_module import ACTION_MASK

IMAGES = "images"
LATENTS = "latents"
REAL_LOGITS = "real_logits"
FAKE_LOGITS = "fake_logits"
GENERATOR_LOGITS = "generator_logits"


class GANModule(NetModule):
    """An :class:`ImageGAN`, and uniformly random actions. A module for acting only has no discriminator.

    Attributes:
        net: The two nets.
    """

    net: ImageGAN

    def setup(self) -> None:
        """Builds the nets.

        Raises:
            ValueError: If the observations are no frames, or an argument is wrong.
        """
        super().setup()
        if self.inference_only:
            del self.net.discriminator

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Returns random ``actions`` ``[B]``, legal ones where ``action_mask`` (``[B, A]`` bool) says which are.

        It is what RLlib calls for inference and exploration.
        """
        obs, mask = batch[Columns.OBS], batch.get(ACTION_MASK)
        noise = torch.rand((len(obs), int(self.action_space.n)), device=obs.device)
        return {Columns.ACTIONS: (noise if mask is None else noise.masked_fill(~mask, -1.0)).argmax(dim=1)}

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Returns three times logits ``[B]``, as :meth:`ImageGAN.forward` gives them for ``images`` and ``latents``."""
        return dict(
            zip((REAL_LOGITS, FAKE_LOGITS, GENERATOR_LOGITS), self.net(batch[IMAGES], batch[LATENTS]), strict=True)
        )

    def get_non_inference_attributes(self) -> list[str]:
        """Returns the names of what an environment runner does without."""
        return ["net.discriminator"]


def image_gan(latent_dim: int = 100, width: int = 64) -> RLModuleSpec:
    """A generator and a discriminator of images of 64 x 64 pixels (``custom_models.nets.gan``).

    Args:
        latent_dim: How many random numbers an image is made of.
        width: Channels next to the images; 64 is DCGAN's, 16 is quick on a CPU.

    Returns:
        The spec for ``config.rl_module(rl_module_spec=...)``.

    Raises:
        ValueError: If an argument is wrong.
    """
    return tried_net_spec(GANModule, ImageGAN, {"latent_dim": latent_dim, "width": width}, IMAGE)
