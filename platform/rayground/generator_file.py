"""An exported generator of images: ``generator.safetensors`` (weights) and ``generator.json``, no code, no Ray.

>>> generator = load("pong_generator")
>>> images = generator.images(64, seed=1)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from custom_models.nets.gan import Generator
from rayground import exported
from rayground.errors import InputError

FORMAT = 1
GENERATOR = "generator"


class ImageGenerator:
    """A generator that draws.

    Attributes:
        model: The net, in evaluation mode.
        info: What was noted at export: environment, env steps, the run.
    """

    def __init__(self, model: Generator, info: dict[str, Any] | None = None) -> None:
        self.model = model.eval()
        self.info = info or {}

    def images(self, count: int, seed: int = 0) -> np.ndarray:
        """Draws ``count`` images ``[B, 64, 64]``, uint8; the same ones for the same seed."""
        latents = np.random.default_rng(seed).standard_normal((count, self.model.latent_dim), np.float32)
        return self.images_of(latents)

    def images_of(self, latents: np.ndarray) -> np.ndarray:
        """Draws the images ``[B, 64, 64]``, uint8, of latents ``[B, Z]``, float32.

        Raises:
            InputError: If they have another shape.
        """
        if latents.ndim != 2 or latents.shape[1] != self.model.latent_dim:
            raise InputError(f"latents: expected [B, {self.model.latent_dim}], got {list(latents.shape)}")
        return self.model.images(torch.as_tensor(latents, dtype=torch.float32)).numpy()[:, 0]


def save(folder: str | Path, model: Generator, *, net_kwargs: dict[str, Any], info: dict[str, Any]) -> Path:
    """Writes a generator: whole or not at all, and only if it can be loaded again.

    Args:
        folder: A folder that does not exist yet, or is empty.
        model: Built as ``Generator(**net_kwargs)``.
        net_kwargs: Its arguments.
        info: What to note beside the weights, as JSON.

    Returns:
        The folder, absolute.

    Raises:
        InputError: If the folder holds something, something cannot be written as JSON, or what was written does not
            load.
    """
    description = {"format": FORMAT, "net": {"class": "Generator", "kwargs": net_kwargs}, "info": info}
    return exported.write(folder, GENERATOR, description, model.state_dict(), load)


def load(folder: str | Path) -> ImageGenerator:
    """Loads a generator that :func:`save` wrote; relative paths and ``~`` are fine.

    Raises:
        InputError: If the folder holds no whole generator, or one that does not fit its weights.
    """
    path = exported.absolute(folder)
    description = exported.read_description(path, GENERATOR, FORMAT)
    try:
        kwargs, info = description["net"]["kwargs"], description["info"]
        with torch.random.fork_rng(devices=[]):  # whoever loads it goes on drawing as if nothing had been between
            model = Generator(**kwargs)
    except (KeyError, TypeError, ValueError) as error:
        file = path / exported.json_file(GENERATOR)
        raise InputError(f"{file} is damaged: {type(error).__name__}: {error}") from error
    exported.load_weights(model, path, GENERATOR)
    return ImageGenerator(model, info)
