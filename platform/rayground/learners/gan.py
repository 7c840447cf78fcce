"""The learner of an image GAN: each update is a step of both nets, each against the other as it was."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from torch import Tensor

from custom_models.gan_module import FAKE_LOGITS, GENERATOR_LOGITS, IMAGES, LATENTS, REAL_LOGITS
from custom_models.nets.gan import SIDE, discriminator_loss, generator_loss
from rayground.learners.lean import STATS, LeanTorchLearner, Tensors


class GANLearner(LeanTorchLearner):
    """Adds up the losses of discriminator and generator: neither depends on the other's weights by its gradient."""

    def compute_loss_for_module(
        self, *, module_id: str, config: AlgorithmConfig | None = None, batch: Tensors, fwd_out: Tensors
    ) -> Tensor:
        """The loss of a minibatch (scalar).

        Args:
            module_id: RLlib's name of the module.
            config: Unused.
            batch: ``images`` and ``latents``.
            fwd_out: The logits that ``forward_train`` gives; ``STATS`` is added.
        """
        real, fake = fwd_out[REAL_LOGITS], fwd_out[FAKE_LOGITS]
        losses = {
            "discriminator_loss": discriminator_loss(real, fake),
            "generator_loss": generator_loss(fwd_out[GENERATOR_LOGITS]),
        }
        fwd_out[STATS] = {name: loss.detach() for name, loss in losses.items()} | {  # type: ignore[assignment]
            "accuracy_real": (real > 0).float().mean(),
            "accuracy_fake": (fake <= 0).float().mean(),
        }
        return losses["discriminator_loss"] + losses["generator_loss"]

    def learn(self, images: np.ndarray, latents: np.ndarray, env_steps: Sequence[int]) -> dict[str, float]:
        """Takes K gradient steps.

        Args:
            images: ``[K, B, 1, 64, 64]`` uint8.
            latents: ``[K, B, Z]`` float32.
            env_steps: K numbers, where the learning rate's schedule stands.

        Returns:
            The K steps' means of what TensorBoard shows.
        """
        columns = self.to_tensors(**{IMAGES: images, LATENTS: latents})
        for k, at in enumerate(env_steps):
            self.minibatch_step({name: column[k] for name, column in columns.items()}, at)
        return {name: values.mean().item() for name, values in self.collect().items()}

    def example_batch(self) -> Tensors:
        """A minibatch of zeros in the shapes and dtypes of those that are learnt from."""
        size, latent_dim = self.config.train_batch_size_per_learner, self.policy_module.net.generator.latent_dim
        return self.to_tensors(
            **{IMAGES: np.zeros((size, 1, SIDE, SIDE), np.uint8), LATENTS: np.zeros((size, latent_dim), np.float32)}
        )
