"""What the learners of a policy and a value function share."""

from __future__ import annotations

import numpy as np
import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from torch import Tensor

from custom_models.nets import ACTION_MASK
from rayground.learners.advantages import ADVANTAGES, VALUE_TARGETS
from rayground.learners.distributions import terms_of
from rayground.learners.lean import Arrays, LeanTorchLearner, Tensors
from rayground.replay.columns import Column
from rayground.rollouts.actions import action_dtype


class ActorCriticLearner(LeanTorchLearner):
    """A learner of a module that gives a distribution over actions, and values by RLlib's ``ValueFunctionAPI``."""

    def use_settings(self, config: AlgorithmConfig) -> None:
        """Takes over the settings that may change while training."""
        super().use_settings(config)
        self._terms = terms_of(self._module[DEFAULT_MODULE_ID].get_train_action_dist_cls())
        self._entropy_coeff = self.changing(0.0)  # until an update says what it is
        self._vf_loss_coeff = self.changing(config.vf_loss_coeff)

    @classmethod
    def rl_module_required_apis(cls) -> list[type]:
        """The APIs of RLlib that the module must have."""
        return [ValueFunctionAPI]

    def values(self, obs: np.ndarray) -> np.ndarray:
        """Values ``[M]`` float32 of observations ``[M, ...]``."""
        with torch.inference_mode():
            batch = self.to_tensors(**{Columns.OBS: obs})
            return self.policy_module.compute_values(batch).cpu().numpy()

    def values_of(self, batch: Tensors, fwd_out: Tensors) -> Tensor:
        """Values ``[B]`` of a batch, of which ``forward_train`` has made ``fwd_out``."""
        values = fwd_out.get(Columns.VF_PREDS)
        if values is None:  # a module of RLlib's kind
            values = self.policy_module.compute_values(batch, embeddings=fwd_out.get(Columns.EMBEDDINGS))
        return values

    @staticmethod
    def shard(batch: Arrays, n: int) -> list[Arrays]:
        """Deals the rows of a batch out to n learners, as many to each: up to n - 1 rows are left out."""
        length = len(batch[Columns.OBS]) // n * n
        return [{name: column[i:length:n] for name, column in batch.items()} for i in range(n)]

    @staticmethod
    def merge(results: list[dict[str, float]]) -> dict[str, float]:
        """Means over the learners."""
        return {name: float(np.mean([result[name] for result in results])) for name in results[0]}

    def example_rows(self, size: int) -> Tensors:
        """``size`` rows of zeros on the device, in the columns of :func:`judged`; all actions are legal."""
        module = self.policy_module
        column, space = Column.of(module.observation_space, "observation"), module.action_space
        arrays = {
            Columns.OBS: np.zeros((size, *column.shape), column.given),
            Columns.ACTIONS: np.zeros((size, *(space.shape or ())), action_dtype(space)),
            ADVANTAGES: np.zeros(size, np.float32),
            VALUE_TARGETS: np.zeros(size, np.float32),
        }
        if self.config.action_masks:
            arrays[ACTION_MASK] = np.ones((size, int(space.n)), np.bool_)
        return self.to_tensors(**arrays)
