"""A learner's whole update compiled: forward, loss, gradient, clipping and optimizer in one graph."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rayground.budget import compile_cache
from rayground.errors import InputError
from rayground.learners.flat import one_if_finite
from rayground.learners.optimizers import FlatStepper
from rayground.learners.sharding import alone, average_over_learners

if TYPE_CHECKING:
    from rayground.learners.lean import LeanTorchLearner

logger = logging.getLogger("rayground")

Tensors = dict[str, Tensor]
Step = Callable[[Tensors, float], Tensors]
"""An update: of a minibatch and a learning rate it makes what the loss hands out, ``loss`` and ``grad_norm``."""


def compiled_step(learner: LeanTorchLearner) -> tuple[Step, float]:
    """Compiles a learner's update and tries it, so that what cannot be compiled is found before training.

    Args:
        learner: With module, optimizer and settings; trying leaves nothing behind in them.

    Returns:
        The update, and the seconds that compiling took.

    Raises:
        InputError: If the module or its loss cannot be compiled; it names the place.
    """
    cache, started = compile_cache(), time.perf_counter()
    moved = [learner.flat.vector, *learner.policy_module.buffers()]
    kept = [tensor.clone() for tensor in moved]
    step = _untried(learner)
    try:
        step(learner.example_batch(), 0.0)
    except Exception as error:  # whatever torch.compile raises, of many classes
        raise InputError(
            f"torch_compile_learner: {type(learner.policy_module).__name__} and its loss cannot be compiled: "
            f"{_told(error)}; leave --compile out"
        ) from error
    with torch.no_grad():
        for tensor, value in zip(moved, kept, strict=True):
            tensor.copy_(value)
    learner.stepper.load({})
    seconds = time.perf_counter() - started
    logger.info("compiled the update in %.1f s; %s keeps it for the next run", seconds, cache)
    return step, seconds


def _untried(learner: LeanTorchLearner) -> Step:
    rate = torch.zeros((), device=learner.flat.vector.device)  # a number would be built into the graph
    gradient = _gradient_of(learner)

    def whole(batch: Tensors) -> Tensors:
        gradient_P, stats = gradient(batch)
        return stats | {"grad_norm": learner.take_step(gradient_P, rate)}

    if alone() and isinstance(learner.stepper, FlatStepper):
        graph = torch.compile(whole, fullgraph=True, dynamic=False)
        return lambda batch, value: (rate.fill_(value), graph(batch))[1]
    # Learners meet between gradient and step, outside of any graph; and an optimizer's own step is no part of one.
    gradient_graph = torch.compile(gradient, fullgraph=True, dynamic=False)

    def in_two(batch: Tensors, value: float) -> Tensors:
        gradient_P, stats = gradient_graph(batch)
        average_over_learners(gradient_P)
        return stats | {"grad_norm": learner.take_step(gradient_P, value)}

    return in_two


def _gradient_of(learner: LeanTorchLearner) -> Callable[[Tensors], tuple[Tensor, Tensors]]:
    """What :meth:`LeanTorchLearner.gradient` does, in a form that a graph can hold."""
    objective = _Objective(learner)

    def of_vector(vector: Tensor, batch: Tensors) -> tuple[Tensor, Tensors]:
        parameters = dict(zip(objective.trained, learner.flat.views(vector), strict=True))
        loss, stats = torch.func.functional_call(objective, parameters, (batch,))
        return loss * one_if_finite(loss), stats | {"loss": loss.detach()}

    def gradient(batch: Tensors) -> tuple[Tensor, Tensors]:
        gradient_P, (_, stats) = torch.func.grad_and_value(of_vector, has_aux=True)(learner.flat.vector, batch)
        return gradient_P, stats

    return gradient


class _Objective(nn.Module):
    """The loss as a module, whose parameters ``torch.func`` can exchange for the slices of a vector."""

    def __init__(self, learner: LeanTorchLearner) -> None:
        super().__init__()
        self.module = learner.policy_module
        self._loss = learner.loss
        own = {parameter: name for name, parameter in self.named_parameters()}
        self.trained = [own[parameter] for parameter in learner.flat.parameters]

    def forward(self, batch: Tensors) -> tuple[Tensor, Tensors]:
        return self._loss(batch)


def _told(error: Exception) -> str:
    """The first line of what torch's compiler says, with the innermost place in code that is not installed."""
    places = re.findall(r'File "([^"]+)", line (\d+)', str(error))
    own = [f" ({Path(file).name}:{line})" for file, line in places if "site-packages" not in file]
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}{own[-1] if own else ''}"
