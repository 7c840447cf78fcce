"""A2C's learner: one gradient step on what the runners have just sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.columns import Columns
from torch import Tensor

from rayground.learners.actor_critic import ActorCriticLearner
from rayground.learners.advantages import ADVANTAGES, VALUE_TARGETS, WEIGHTS, judged
from rayground.learners.lean import STATS, Arrays, Tensors, as_floats
from rayground.learners.losses import actor_critic_loss
from rayground.learners.sharding import average_over_learners
from rayground.rollouts.rollout import Rollout


@dataclass(frozen=True)
class A2CSettings:
    """What one update goes by, besides its batch.

    Attributes:
        env_steps: Where the learning rate's schedule stands.
        entropy_coeff: Weight of the entropy.
        vf_loss_coeff: Weight of the value loss.
    """

    env_steps: int
    entropy_coeff: float
    vf_loss_coeff: float


class A2CLearner(ActorCriticLearner):
    """Advantage actor-critic (Mnih et al. 2016, https://arxiv.org/abs/1602.01783, without its threads)."""

    def use_settings(self, config: AlgorithmConfig) -> None:
        """Takes over the settings that may change while training."""
        super().use_settings(config)
        self._with_entropy = config.explores_by_entropy

    def take_settings(self, settings: A2CSettings) -> None:
        """Takes over what the next gradient goes by."""
        self._entropy_coeff = self.changing(settings.entropy_coeff)
        self._vf_loss_coeff = self.changing(settings.vf_loss_coeff)
        self._with_entropy = self._with_entropy or settings.entropy_coeff != 0.0

    def compute_loss_for_module(
        self, *, module_id: str, config: AlgorithmConfig | None = None, batch: Tensors, fwd_out: Tensors
    ) -> Tensor:
        """The loss of a batch ``[B, ...]`` (scalar).

        Args:
            module_id: RLlib's name of the module.
            config: Unused: the settings are those of :meth:`use_settings` and :meth:`take_settings`.
            batch: ``actions``, ``advantages``, ``value_targets`` and ``weights``, each ``[B, ...]``.
            fwd_out: ``action_dist_inputs`` ``[B, D]`` and ``vf_preds`` ``[B]``; ``STATS`` is added.
        """
        inputs = fwd_out[Columns.ACTION_DIST_INPUTS]
        loss, stats = actor_critic_loss(
            self._terms.logp(inputs, batch[Columns.ACTIONS]),
            self._terms.entropy(inputs if self._with_entropy else inputs.detach()),
            self.values_of(batch, fwd_out),
            batch[ADVANTAGES],
            batch[VALUE_TARGETS],
            batch[WEIGHTS],
            entropy_coeff=self._entropy_coeff,
            vf_loss_coeff=self._vf_loss_coeff,
        )
        fwd_out[STATS] = stats  # type: ignore[assignment]
        return loss

    def learn(self, batch: Arrays, settings: A2CSettings) -> dict[str, float]:
        """Takes one gradient step on a batch.

        Args:
            batch: What :func:`batch_of` gives.
            settings: What the update goes by.

        Returns:
            The losses, the entropy and the gradient's norm.

        Raises:
            RunError: If the loss or the gradient was not finite; the step was not applied.
        """
        self.take_settings(settings)
        return self.single_step(self.to_tensors(**batch), settings.env_steps)

    def example_batch(self) -> Tensors:
        """A batch of zeros in the shapes and dtypes of those that :meth:`learn` gets, with every runner's rows."""
        rows = self.example_rows(self.config.total_train_batch_size // max(1, self.config.num_learners))
        return rows | {WEIGHTS: torch.ones_like(rows[ADVANTAGES])}


class A3CLearner(A2CLearner):
    """A2C's learner for gradients that come one by one, perhaps from elsewhere; one that is not finite is dropped.

    One optimizer, and its moments, serve the gradients of all (the paper's shared RMSprop).
    """

    def learn(self, batch: Arrays, settings: A2CSettings) -> dict[str, float]:
        """Computes the gradient of a batch and applies it.

        Args:
            batch: What :func:`batch_of` gives.
            settings: What the update goes by.

        Returns:
            What :meth:`apply_gradient` gives and, if that was applied, the losses and the entropy.
        """
        stats = self.gradient_of(batch, settings)
        average_over_learners(self.gradient_P)
        applied = self.apply_gradient(self.gradient_P, settings.env_steps)
        return applied if applied["dropped"] else stats | applied

    def gradient_of(self, batch: Arrays, settings: A2CSettings) -> dict[str, float]:
        """Computes the gradient of a batch: it is in :attr:`gradient_P`. Returns the losses and the entropy."""
        self.take_settings(settings)
        self.gradient_P, stats = self.gradient(self.to_tensors(**batch))
        return as_floats(stats)

    def apply_gradient(self, gradient_P: Tensor, env_steps: int) -> dict[str, float]:
        """Takes a step with a gradient ``[P]``, which may be overwritten.

        Returns:
            ``dropped``: 1 where the gradient is not finite, and nothing was done; else 0, and ``grad_norm``.
        """
        if not torch.isfinite(torch.linalg.vector_norm(gradient_P)):
            return {"dropped": 1.0}
        return {"grad_norm": self.take_step(gradient_P, self.rate_at(env_steps)).item(), "dropped": 0.0}

    def apply_array(self, gradient_P: np.ndarray, env_steps: int) -> dict[str, float]:
        """What :meth:`apply_gradient` does, with a gradient from another process."""
        return self.apply_gradient(torch.tensor(gradient_P, device=self.device), env_steps)


def batch_of(
    rollouts: Sequence[Rollout], values: Callable[[np.ndarray], np.ndarray], gamma: float, lambda_: float
) -> Arrays:
    """The rows of rollouts as one batch, each column ``[B, ...]``.

    All batches have one size, which a graph needs: rows in which an environment reset itself are not left out, but
    become copies of another row, with weight 0. (What they hold could spoil a loss: 0 * inf is not 0.)

    Args:
        rollouts: With one transition at least.
        values: Gives values ``[M]`` of observations ``[M, ...]``.
        gamma: Discount of one env step.
        lambda_: As in :func:`rayground.learners.advantages.gae`.
    """
    parts = [judged(rollout, values, gamma, lambda_) for rollout in rollouts]
    batch = {name: np.concatenate([_rows(part[name]) for part in parts]) for name in parts[0]}
    valid = np.concatenate([_rows(rollout.valid) for rollout in rollouts])
    for column in batch.values():
        column[~valid] = column[valid.argmax()]
    weight = np.float32(valid.size / np.count_nonzero(valid))
    return batch | {WEIGHTS: valid * weight}


def _rows(column: np.ndarray) -> np.ndarray:
    """``[T, N, ...]`` as ``[T * N, ...]``."""
    return column.reshape(-1, *column.shape[2:])
