"""DQN's learner: several gradient steps on replayed minibatches in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn.dqn_learner import QF_NEXT_PREDS, QF_PREDS, QF_TARGET_NEXT_PREDS
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.core.columns import Columns
from torch import Tensor

from custom_models.q_module import ACTION_MASK, NEXT_ACTION_MASK
from rayground.learners.lean import STATS, LeanTorchLearner, Tensors
from rayground.learners.losses import q_learning_target, td_loss
from rayground.learners.sharding import merge_td_errors, shard_minibatches
from rayground.replay import Batch
from rayground.replay.columns import Column

DISCOUNTS = "discounts"
"""Column of a minibatch: ``gamma ** m``, or 0 where the episode terminated."""


class DQNLearner(LeanTorchLearner, DQNTorchLearner):
    """Double Q-learning with n-step targets and a target network (Mnih et al. 2015, van Hasselt et al. 2016)."""

    shard = staticmethod(shard_minibatches)
    merge = staticmethod(merge_td_errors)

    def build(self) -> None:
        """Builds the module with its target network."""
        super().build()
        self.num_target_updates = 0
        pairs = self.policy_module.get_target_network_pairs()
        self._weights = [[p for net in nets for p in net.parameters()] for nets in zip(*pairs, strict=True)]
        self._buffers = [
            pair for online, target in pairs for pair in zip(online.buffers(), target.buffers(), strict=True)
        ]

    def use_settings(self, config: AlgorithmConfig) -> None:
        """Takes over the settings that may change while training."""
        super().use_settings(config)
        self._double_q, self._loss_kind = config.double_q, config.td_error_loss_fn
        self._target_every, self._tau = config.target_network_update_freq, config.tau

    def compute_loss_for_module(
        self, *, module_id: str, config: AlgorithmConfig | None = None, batch: Tensors, fwd_out: Tensors
    ) -> Tensor:
        """The loss of a minibatch ``[B, ...]`` (scalar).

        Args:
            module_id: RLlib's name of the module.
            config: Unused: the settings are those of :meth:`use_settings`.
            batch: ``actions``, ``rewards`` (n-step sums), ``discounts`` and, of prioritized replay,
                ``weights``, each ``[B]``.
            fwd_out: The Q-values ``[B, A]`` that ``forward_train`` gives; ``STATS`` is added.
        """
        online_next = fwd_out[QF_NEXT_PREDS] if self._double_q else None
        target = q_learning_target(
            batch[Columns.REWARDS],
            batch[DISCOUNTS],
            fwd_out[QF_TARGET_NEXT_PREDS],
            online_next,
            masked=NEXT_ACTION_MASK in batch,
        )
        weights = batch.get("weights")
        loss, td_error = td_loss(fwd_out[QF_PREDS], batch[Columns.ACTIONS], target, weights, self._loss_kind)
        fwd_out[STATS] = {"td_error": td_error, "target": target}  # type: ignore[assignment]
        return loss

    def learn(self, batch: Batch, env_steps: Sequence[int]) -> tuple[np.ndarray, dict[str, float]]:
        """Takes K gradient steps.

        Args:
            batch: K minibatches of B transitions, ``[K, B, ...]``.
            env_steps: K + 1 numbers: the env step of the update before the first, then of each of the K updates;
                schedules and the target network's clock go by them.

        Returns:
            The TD errors ``[K, B]`` and the K updates' means of what TensorBoard shows.
        """
        columns = {name: column.unbind() for name, column in self._columns(batch).items()}
        for k in range(len(env_steps) - 1):
            self.minibatch_step({name: column[k] for name, column in columns.items()}, env_steps[k + 1])
            self._update_target(env_steps[k], env_steps[k + 1])
        stats = self.collect()
        td_errors_KB = stats.pop("td_error")
        stats |= {"target_mean": stats.pop("target"), "td_error_abs": td_errors_KB.abs()}
        return td_errors_KB.cpu().numpy(), {name: values.mean().item() for name, values in stats.items()}

    def _columns(self, batch: Batch) -> Tensors:
        optional = {ACTION_MASK: batch.action_masks, NEXT_ACTION_MASK: batch.next_action_masks}
        if self.config.replay.prioritized:
            optional["weights"] = batch.weights
        columns = self.to_tensors(
            **{
                Columns.OBS: batch.obs,
                Columns.NEXT_OBS: batch.next_obs,
                Columns.ACTIONS: batch.actions,
                Columns.REWARDS: batch.rewards,
                DISCOUNTS: batch.discounts,
            }
            | {name: column for name, column in optional.items() if column is not None}
        )
        columns[Columns.ACTIONS] = columns[Columns.ACTIONS].long()
        return columns

    def example_batch(self) -> Tensors:
        """A minibatch of zeros in the shapes and dtypes of those from the replay."""
        size = (1, self.config.train_batch_size_per_learner)
        column = Column.of(self.policy_module.observation_space, "observation")
        obs, numbers = np.zeros((*size, *column.shape), column.given), np.zeros(size, np.float32)
        whole = np.zeros(size, np.int64)
        masks = None
        if self.config.action_masks:
            masks = np.ones((*size, int(self.policy_module.action_space.n)), np.bool_)
        batch = Batch(obs, whole, numbers, obs, numbers, numbers, whole, masks, masks)
        return {name: values[0] for name, values in self._columns(batch).items()}

    def extra_state(self) -> dict[str, Any]:
        """How often the target network has moved."""
        return {"num_target_updates": self.num_target_updates}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Loads what :meth:`extra_state` gave."""
        self.num_target_updates = state["num_target_updates"]

    @torch.no_grad()
    def _update_target(self, env_steps_before: int, env_steps: int) -> None:
        """Moves the target network once for every multiple of the update frequency that was passed."""
        times = env_steps // self._target_every - env_steps_before // self._target_every
        for _ in range(times):
            online, target = self._weights
            torch._foreach_lerp_(target, online, self._tau)
            for statistic, target_statistic in self._buffers:
                target_statistic.copy_(statistic)
        self.num_target_updates += times
