"""DQN's learner: several gradient steps on replayed minibatches in one call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn.dqn_learner import QF_PREDS
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.core.columns import Columns

from rayground.learners.lean import LeanTorchLearner
from rayground.learners.losses import q_learning_target, td_loss
from rayground.replay import Batch


class DQNLearner(LeanTorchLearner, DQNTorchLearner):
    """Double Q-learning with n-step targets and a target network (Mnih et al. 2015, van Hasselt et al. 2016)."""

    def build(self) -> None:
        """Builds the module with its target network."""
        super().build()
        self.num_target_updates = 0
        self._target_pairs = [
            (online_parameter, target_parameter)
            for online, target in self.policy_module.get_target_network_pairs()
            for online_parameter, target_parameter in zip(
                online.state_dict().values(), target.state_dict().values(), strict=True
            )
        ]

    def use_settings(self, config: AlgorithmConfig) -> None:
        """Takes over the settings that may change while training."""
        super().use_settings(config)
        self._double_q, self._loss_kind = config.double_q, config.td_error_loss_fn
        self._target_every, self._tau = config.target_network_update_freq, config.tau

    def learn(self, batch: Batch, env_steps: Sequence[int]) -> tuple[np.ndarray, dict[str, float]]:
        """Takes K gradient steps.

        Args:
            batch: K minibatches of B transitions, ``[K, B, ...]``.
            env_steps: K + 1 numbers: the env step of the update before the first, then of each of the K updates;
                schedules and the target network's clock go by them.

        Returns:
            The TD errors ``[K, B]`` and the K updates' means of what TensorBoard shows.
        """
        device = self.device
        obs, next_obs = torch.from_numpy(batch.obs).to(device), torch.from_numpy(batch.next_obs).to(device)
        actions = torch.from_numpy(batch.actions).to(device, torch.int64)
        rewards, discounts = torch.from_numpy(batch.rewards).to(device), torch.from_numpy(batch.discounts).to(device)
        weights = torch.from_numpy(batch.weights).to(device)
        td_errors, losses, norms, q_means = [], [], [], []
        for k in range(len(actions)):
            q_tm1 = self._q_values(obs[k])
            with torch.no_grad():
                target_q_t = self.policy_module.forward_target({Columns.OBS: next_obs[k]})[QF_PREDS]
                online_q_t = self._q_values(next_obs[k]) if self._double_q else None
            target = q_learning_target(rewards[k], discounts[k], target_q_t, online_q_t)
            loss, td_error = td_loss(q_tm1, actions[k], target, weights[k], self._loss_kind)
            norms.append(self.gradient_step(loss, env_steps[k + 1]))
            self._update_target(env_steps[k], env_steps[k + 1])
            td_errors.append(td_error)
            losses.append(loss.detach())
            q_means.append(target.mean())
        td_errors_KB = torch.stack(td_errors)
        return td_errors_KB.cpu().numpy(), {
            "loss": torch.stack(losses).mean().item(),
            "grad_norm": torch.stack(norms).mean().item(),
            "target_mean": torch.stack(q_means).mean().item(),
            "td_error_abs": td_errors_KB.abs().mean().item(),
        }

    def _q_values(self, obs_B: torch.Tensor) -> torch.Tensor:
        return self.policy_module.compute_q_values({Columns.OBS: obs_B})[QF_PREDS]

    @torch.no_grad()
    def _update_target(self, env_steps_before: int, env_steps: int) -> None:
        """Moves the target network once for every multiple of the update frequency that was passed."""
        times = env_steps // self._target_every - env_steps_before // self._target_every
        for _ in range(times):
            for online, target in self._target_pairs:
                target.lerp_(online, self._tau) if target.is_floating_point() else target.copy_(online)
        self.num_target_updates += times
