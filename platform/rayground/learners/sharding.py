"""How several learners share minibatches of replayed transitions, and their gradients."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import torch.distributed as dist
from torch import Tensor

from rayground.replay import Batch

Learnt = tuple[np.ndarray, dict[str, float]]


def shard_minibatches(batch: Batch, n: int) -> list[Batch]:
    """Cuts every minibatch into n parts of the same size, so that each learner takes part in each gradient step.

    Args:
        batch: K minibatches, ``[K, B, ...]``; B is a multiple of n.
        n: Learners.

    Returns:
        n batches ``[K, B / n, ...]``: the first columns, the next ones, and so on.
    """
    given = {field.name: getattr(batch, field.name) for field in fields(Batch)}
    parts = {name: np.split(column, n, axis=1) for name, column in given.items() if column is not None}
    return [Batch(**{name: shards[i] for name, shards in parts.items()}) for i in range(n)]


def merge_td_errors(results: list[Learnt]) -> Learnt:
    """Puts together what learners gave for the parts of :func:`shard_minibatches`.

    Args:
        results: From each learner the TD errors ``[K, B / n]`` and means over its part.

    Returns:
        The TD errors ``[K, B]`` and the means over the whole.
    """
    td_errors = np.concatenate([td_errors for td_errors, _ in results], axis=1)
    return td_errors, {name: float(np.mean([means[name] for _, means in results])) for name in results[0][1]}


def alone() -> bool:
    """Says whether this process is the only learner."""
    return not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)


def average_over_learners(gradient: Tensor) -> None:
    """Replaces a gradient by its mean over all learners, in place; alone, it stays as it is.

    All learners must call this equally often, with gradients of the same shape.
    """
    if not alone():
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()
