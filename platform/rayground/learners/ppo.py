"""PPO's learner: several epochs of minibatches over one batch, in one call."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.columns import Columns
from torch import Tensor

from rayground.learners.actor_critic import ActorCriticLearner
from rayground.learners.advantages import ADVANTAGES, VALUE_TARGETS
from rayground.learners.lean import STATS, Arrays, Tensors
from rayground.learners.losses import clipped_surrogate, clipped_value_loss, explained_variance


@dataclass(frozen=True, slots=True)
class UpdateSettings:
    """What one update goes by, besides its batch.

    Attributes:
        env_steps: Where the learning rate's schedule stands.
        seed: Of the order of the minibatches.
        clip: How far the ratio of probabilities may leave 1.
        entropy_coeff: Weight of the entropy.
        kl_coeff: Weight of the divergence from the policy that sampled.
    """

    env_steps: int
    seed: int
    clip: float
    entropy_coeff: float
    kl_coeff: float


class PPOLearner(ActorCriticLearner, PPOTorchLearner):
    """Proximal policy optimization (Schulman et al. 2017, https://arxiv.org/abs/1707.06347)."""

    def use_settings(self, config: AlgorithmConfig) -> None:
        """Takes over the settings that may change while training."""
        super().use_settings(config)
        self._clip, self._kl_coeff = self.changing(0.0), self.changing(0.0)  # until learn()
        self._vf_clip = self.changing(config.vf_clip_param)
        self._with_entropy, self._with_kl = config.entropy_coeff != 0.0, config.use_kl_loss

    def compute_loss_for_module(
        self, *, module_id: str, config: AlgorithmConfig | None = None, batch: Tensors, fwd_out: Tensors
    ) -> Tensor:
        """The loss of a minibatch ``[B, ...]`` (scalar).

        Args:
            module_id: RLlib's name of the module.
            config: Unused: the settings are those of :meth:`use_settings`.
            batch: ``actions``, ``action_logp``, ``advantages``, ``value_targets`` and, for the divergence,
                ``action_dist_inputs``, each ``[B, ...]``.
            fwd_out: ``action_dist_inputs`` ``[B, D]`` and ``vf_preds`` ``[B]``; ``STATS`` is added.
        """
        inputs = fwd_out[Columns.ACTION_DIST_INPUTS]
        logp = self._terms.logp(inputs, batch[Columns.ACTIONS])
        surrogate, _ = clipped_surrogate(logp, batch[Columns.ACTION_LOGP], batch[ADVANTAGES], self._clip)
        policy_loss = surrogate.mean()
        vf_loss = clipped_value_loss(self.values_of(batch, fwd_out), batch[VALUE_TARGETS], self._vf_clip).mean()
        loss = policy_loss + self._vf_loss_coeff * vf_loss
        if self._with_entropy:
            loss = loss - self._entropy_coeff * self._terms.entropy(inputs).mean()
        if self._with_kl:
            divergence = self._terms.kl(batch[Columns.ACTION_DIST_INPUTS], inputs).mean()
            loss = loss + self._kl_coeff * divergence
        fwd_out[STATS] = {"policy_loss": policy_loss.detach(), "vf_loss": vf_loss.detach()}  # type: ignore[assignment]
        return loss

    def learn(self, batch: Arrays, settings: UpdateSettings) -> dict[str, float]:
        """Takes ``num_epochs`` passes over a batch, in minibatches of ``minibatch_size`` in random order.

        Args:
            batch: What :meth:`compute_loss_for_module` reads, and ``obs``, each ``[L, ...]``. Advantages are
                normalized within each minibatch.
            settings: What the update goes by.

        Returns:
            Means over the minibatches of losses and gradient norms; entropy, divergence, share of clipped ratios and
            explained variance of the batch after the update; and the number of ``updates``, one for each minibatch.
        """
        self._clip, self._entropy_coeff = self.changing(settings.clip), self.changing(settings.entropy_coeff)
        self._kl_coeff = self.changing(settings.kl_coeff)
        columns = self.to_tensors(**batch)
        found = []
        for order_KB in self._orders(len(batch[Columns.OBS]), settings.seed):
            shuffled = {name: _pick(column, order_KB).unbind() for name, column in columns.items()}
            shuffled[ADVANTAGES] = _normalized(_pick(columns[ADVANTAGES], order_KB)).unbind()
            for k in range(len(order_KB)):
                self.minibatch_step({name: column[k] for name, column in shuffled.items()}, settings.env_steps)
            found.append(self.collect())
        all_K = {name: torch.cat([stats[name] for stats in found]) for name in found[0]}
        means = {name: values_K.mean().item() for name, values_K in all_K.items()}
        return means | self._assess(columns) | {"updates": len(all_K["loss"])}

    def _orders(self, length: int, seed: int) -> Iterator[Tensor]:
        """Rows of the minibatches ``[K, B]``, about an epoch at a time.

        Every row comes ``num_epochs`` times; what the last minibatch lacks is taken from one more epoch. So all have
        one size, which a graph needs, also where there are fewer rows than that.
        """
        generator, size = torch.Generator().manual_seed(seed), self.config.minibatch_size
        whole = math.ceil(self.config.num_epochs * length / size)
        epochs = [torch.randperm(length, generator=generator) for _ in range(math.ceil(whole * size / length))]
        orders = torch.cat(epochs)[: whole * size].view(whole, size).to(self.device)
        yield from orders.split(max(1, length // size))

    @torch.no_grad()
    def _assess(self, columns: Tensors) -> dict[str, float]:
        fwd_out = self.policy_module.forward_train(columns)
        inputs = fwd_out[Columns.ACTION_DIST_INPUTS]
        logp = self._terms.logp(inputs, columns[Columns.ACTIONS])
        _, ratio = clipped_surrogate(logp, columns[Columns.ACTION_LOGP], columns[ADVANTAGES], self._clip)
        explained = explained_variance(columns[VALUE_TARGETS], self.values_of(columns, fwd_out))
        return {
            "entropy": self._terms.entropy(inputs).mean().item(),
            "kl": self._terms.kl(columns[Columns.ACTION_DIST_INPUTS], inputs).mean().item(),
            "clip_fraction": ((ratio - 1.0).abs() > self._clip).float().mean().item(),
            "vf_explained_var": explained.item(),
        }

    def example_batch(self) -> Tensors:
        """A minibatch of zeros in the shapes and dtypes of those that :meth:`learn` makes."""
        rows = self.example_rows(self.config.minibatch_size)
        with torch.no_grad():
            inputs = self.policy_module.forward_train(rows)[Columns.ACTION_DIST_INPUTS]
        logp = torch.zeros_like(rows[ADVANTAGES])
        return rows | {Columns.ACTION_LOGP: logp, Columns.ACTION_DIST_INPUTS: torch.zeros_like(inputs)}


def _pick(column: Tensor, order_KB: Tensor) -> Tensor:
    return column.index_select(0, order_KB.flatten()).view(*order_KB.shape, *column.shape[1:])


def _normalized(advantages_KB: Tensor) -> Tensor:
    """Each minibatch to mean 0 and standard deviation 1."""
    mean, std = advantages_KB.mean(dim=1, keepdim=True), advantages_KB.std(dim=1, keepdim=True)
    return (advantages_KB - mean) / (std + 1e-8)
