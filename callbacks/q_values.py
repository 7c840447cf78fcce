"""Statistics of a Q-network's action values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.rl_module.apis import QNetAPI
from torch import nn

from callbacks.observations import as_tensor


class QValueStatistics(RLlibCallback):
    """Logs, as ``q_values/...``, what the network makes of the last observations of each result's iteration.

    >>> config.callbacks([QValueStatistics])

    Attributes:
        num_observations: Over how many observations.
    """

    num_observations = 256

    def check(self, module: Any) -> None:
        """Looks whether the module has Q-values.

        Raises:
            ValueError: If it has none.
        """
        if not isinstance(module, QNetAPI):
            raise ValueError(f"expected a module with Q-values, such as DQN's, got {type(module).__name__}")

    def on_train_result(self, *, algorithm: Any, result: dict[str, Any], **kwargs: Any) -> None:
        """Evaluates the learner's module, its noise off, and leaves it and the generators as they were."""
        batch = algorithm.recent.batch()
        if not batch:
            return
        module = algorithm.get_policy().model
        device = next(module.parameters()).device
        with evaluating(module), torch.random.fork_rng(devices=[]), torch.inference_mode():
            inputs = {name: as_tensor(array, device) for name, array in batch.items()}
            q_BA = module.compute_q_values(inputs)["qf_preds"].cpu().numpy()
        result["headline"] |= {f"q_values/{name}": value for name, value in q_statistics(q_BA).items()}


def q_statistics(q_BA: np.ndarray) -> dict[str, float | None]:
    """Describes action values ``[B, A]``, those of illegal actions (-inf) left out.

    Returns:
        ``mean``, ``min``, ``max`` and ``spread`` (standard deviation) over all observations and actions, and
        ``action_gap``: how much better the best action is than the second, a mean over the observations that leave a
        choice; None if none does.
    """
    legal_BA = q_BA > -np.inf
    values = q_BA[legal_BA].astype(np.float64)
    second, best = np.partition(q_BA[legal_BA.sum(axis=1) > 1], -2, axis=1)[:, -2:].T.astype(np.float64)
    return {
        "mean": float(values.mean()),
        "min": float(values.min()),
        "max": float(values.max()),
        "spread": float(values.std()),
        "action_gap": float((best - second).mean()) if len(best) else None,
    }


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Switches a module to evaluation, and each of its parts back to what it was."""
    was_training = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, mode in was_training.items():
            part.training = mode
