"""Starting without torch's compiler, whose import takes seconds, where nothing is compiled."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def without_compiler() -> Iterator[None]:
    """Keeps torch from importing its compiler (Dynamo and Inductor) while RLlib builds runners and learners.

    ``torch.use_deterministic_algorithms`` imports it to tell it, and an optimizer to be left out of what it compiles.
    What the former makes of new memory, which it fills with NaN, costs a convolutional net a twentieth of its time.
    """
    deterministic, add_param_group = torch.use_deterministic_algorithms, torch.optim.Optimizer.add_param_group
    torch.use_deterministic_algorithms = torch._C._set_deterministic_algorithms
    torch.optim.Optimizer.add_param_group = inspect.unwrap(add_param_group)  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.use_deterministic_algorithms = deterministic
        torch.optim.Optimizer.add_param_group = add_param_group  # type: ignore[method-assign]
