"""The lean learner: RLlib's TorchLearner without bookkeeping per minibatch."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.core.rl_module.rl_module import RLModule
from torch import Tensor, nn

from custom_models.nets.normalizer import running_norms
from rayground import quiet
from rayground.errors import CheckpointError, InputError, RunError
from rayground.learners.compiling import compiled_step
from rayground.learners.flat import FlatParameters
from rayground.learners.optimizers import (
    clipped,
    describe_optimizer,
    make_optimizer,
    scheduled_groups,
    stepper_of,
)
from rayground.learners.sharding import average_over_learners
from rayground.rollouts.moments import Moments
from rayground.schedules import Schedule, as_schedule
from rayground.startup import without_compiler
from rayground.weights import misfits

logger = logging.getLogger("rayground")

Arrays = dict[str, np.ndarray]
Tensors = dict[str, Tensor]

STATS = "stats"
"""What a loss puts into ``fwd_out``: a dict of detached tensors to hand out, the same ones for every minibatch."""


class LeanTorchLearner(TorchLearner):
    """One module, one optimizer, and a whole minibatch's work in one call, :meth:`minibatch_step`.

    Of RLlib's hooks a subclass overrides ``compute_loss_for_module``, which returns the loss and may put tensors into
    ``fwd_out[STATS]``, and ``configure_optimizers_for_module``. The module answers in ``forward_train``.

    With ``config.framework(torch_compile_learner=True)`` an update is one compiled graph: forward, loss, gradient,
    clipping and optimizer.

    Attributes:
        policy_module: The module.
        optimizer: Torch's optimizer; :attr:`stepper` steps it.
        optimizer_name: The same for the same optimizer at any rate.
        flat: The trained parameters as one vector.
        compile_s: Seconds that compiling took; 0 without.
    """

    def __init__(self, **kwargs: Any) -> None:
        quiet.after_import()  # this may be a process of its own
        super().__init__(**kwargs)

    def build(self) -> None:
        """Builds module and optimizer as RLlib does, then looks up once what every update needs.

        Raises:
            InputError: If the update is to be compiled and cannot be.
        """
        with without_compiler():
            super().build()
        self.use_settings(self.config)
        self.policy_module: RLModule = self.module[DEFAULT_MODULE_ID]
        self.optimizer: torch.optim.Optimizer = self.get_optimizer(DEFAULT_MODULE_ID)
        self.optimizer_name = describe_optimizer(self.optimizer)
        self._scheduled = scheduled_groups(self.optimizer)
        trained = [p for group in self.optimizer.param_groups for p in group["params"] if p.requires_grad]
        self.flat = FlatParameters(trained)
        self.stepper = stepper_of(self.optimizer, self.flat)
        self._parameter_names = {p: name for name, p in self.policy_module.named_parameters()}
        self._pending: list[tuple[int, Tensors, Tensors]] = []
        compiles = self.config.torch_compile_learner
        self._step, self.compile_s = compiled_step(self) if compiles else (self._eager_step, 0.0)

    def _make_modules_ddp_if_necessary(self) -> None:
        """RLlib would wrap the module to average gradients; :meth:`take_step` does that, on one vector."""

    def configure_optimizers_for_module(self, module_id: str, config: AlgorithmConfig | None = None) -> None:
        """Registers the optimizer of the config; the learning rate is ours to schedule, per gradient step."""
        config = config or self.config
        parameters = [p for p in self.get_parameters(self._module[module_id]) if p.requires_grad]
        optimizer = make_optimizer(parameters, config.optimizer, as_schedule(config.lr, "lr")(0))
        self.register_optimizer(module_id=module_id, optimizer=optimizer, params=parameters)

    def use_settings(self, config: AlgorithmConfig) -> None:
        """Takes over the settings that may change while training: learning rate and clipping."""
        self._lr: Schedule = as_schedule(config.lr, "lr")
        self._grad_clip = None if config.grad_clip is None else self.changing(config.grad_clip)
        self._grad_clip_by = config.grad_clip_by

    def changing(self, value: float) -> float | Tensor:
        """A number that may change while training, as an update reads it: into a graph it would be built."""
        return torch.tensor(float(value), device=self._device) if self.config.torch_compile_learner else float(value)

    def learning_rate(self, env_steps: int) -> float:
        """The learning rate that a gradient step at ``env_steps`` uses."""
        return self._lr(env_steps)

    def loss(self, batch: Tensors) -> tuple[Tensor, Tensors]:
        """The loss of a minibatch (scalar), and what the loss put into ``fwd_out[STATS]``.

        Raises:
            InputError: If ``compute_loss_for_module`` gives no scalar, such as a loss per row.
        """
        fwd_out = self.policy_module.forward_train(batch)
        loss = self.compute_loss_for_module(
            module_id=DEFAULT_MODULE_ID, config=self.config, batch=batch, fwd_out=fwd_out
        )
        if not isinstance(loss, Tensor) or loss.ndim:
            found = f"shape {list(loss.shape)}: take the mean" if isinstance(loss, Tensor) else f"{loss!r}"
            raise InputError(f"{type(self).__name__}.compute_loss_for_module: expected a scalar tensor, got {found}")
        return loss, fwd_out.get(STATS, {})

    def gradient(self, batch: Tensors) -> tuple[Tensor, Tensors]:
        """The gradient ``[P]`` of a minibatch's loss, and the loss's tensors with the loss itself as ``loss``."""
        loss, stats = self.loss(batch)
        return self.flat.gradient(loss), stats | {"loss": loss.detach()}

    def take_step(self, gradient_P: Tensor, rate: float | Tensor) -> Tensor:
        """Clips a gradient that all learners have agreed on, and takes a step; but none with one that is not finite.

        Returns:
            The gradient's norm before clipping (scalar).
        """
        norm = torch.linalg.vector_norm(gradient_P)
        self.stepper.step(clipped(gradient_P, norm, self._grad_clip, self._grad_clip_by, self.flat), rate)
        return norm

    def minibatch_step(self, batch: Tensors, env_steps: int) -> None:
        """Takes one gradient step on a minibatch.

        Args:
            batch: What the module and the loss read, on the learner's device.
            env_steps: Where the learning rate's schedule stands.
        """
        self._pending.append((env_steps, batch, self._step(batch, self.rate_at(env_steps))))

    def single_step(self, batch: Tensors, env_steps: int) -> dict[str, float]:
        """What :meth:`minibatch_step` and :meth:`collect` do, for a step whose numbers are wanted at once.

        Raises:
            RunError: If the loss or the gradient was not finite; the step was not applied.
        """
        stats = self._step(batch, self.rate_at(env_steps))
        numbers = as_floats(stats)
        if not (math.isfinite(numbers["loss"]) and math.isfinite(numbers["grad_norm"])):
            raise RunError(self._not_finite(env_steps, batch, stats["loss"]))
        return numbers

    def rate_at(self, env_steps: int) -> float:
        """The learning rate that a gradient step at ``env_steps`` uses, put into the optimizer's groups as well."""
        rate = self._lr(env_steps)
        for group in self._scheduled:
            group["lr"] = rate
        return rate

    def collect(self) -> Tensors:
        """What the updates since the last call gave, each ``[K, ...]``, with ``loss`` and ``grad_norm``.

        Raises:
            RunError: If a loss or a gradient was not finite; that step was not applied.
        """
        pending, self._pending = self._pending, []
        stats = {name: torch.stack([found[name] for _, _, found in pending]) for name in pending[0][2]}
        finite_K = torch.isfinite(stats["grad_norm"]) & torch.isfinite(stats["loss"])
        if not finite_K.all():
            env_steps, batch, found = pending[int(finite_K.int().argmin())]
            raise RunError(self._not_finite(env_steps, batch, found["loss"]))
        return stats

    def _eager_step(self, batch: Tensors, rate: float) -> Tensors:
        gradient_P, stats = self.gradient(batch)
        average_over_learners(gradient_P)
        stats["grad_norm"] = self.take_step(gradient_P, rate)
        return stats

    @abstractmethod
    def example_batch(self) -> Tensors:
        """A minibatch of zeros in the shapes and dtypes of those that :meth:`minibatch_step` will get."""

    def _not_finite(self, env_steps: int, batch: Tensors, loss: Tensor) -> str:
        if torch.isfinite(loss):
            gradients = zip(self.flat.parameters, self.flat.views(self.gradient(batch)[0]), strict=True)
            names = [self._parameter_names[p] for p, gradient in gradients if not torch.isfinite(gradient).all()]
            what = f"the gradient of {', '.join(names) or 'the module'} is not finite; it"
        else:
            what = f"the loss is {loss.item()}; its gradient"
        return (
            f"at env step {env_steps} {what} was not applied. "
            "Look for rewards or observations that are not finite, or lower lr"
        )

    def to_tensors(self, **arrays: np.ndarray) -> Tensors:
        """Moves arrays to the learner's device."""
        return {name: torch.from_numpy(array).to(self.device, non_blocking=True) for name, array in arrays.items()}

    def move_norms(self, observed: Moments) -> None:
        """Lets the module's :class:`RunningNorm` layers know what has been observed since the last call."""
        for norm in running_norms(self.policy_module):
            norm.update(observed.count, observed.mean, observed.var)

    def extra_state(self) -> dict[str, Any]:
        """What a checkpoint holds beside weights and moments, as JSON; the same on every learner."""
        return {}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Loads what :meth:`extra_state` gave."""

    def module_arrays(self) -> Arrays:
        """All parameters and buffers of the module by name, target networks included."""
        return {name: value.detach().cpu().numpy() for name, value in self.policy_module.state_dict().items()}

    def load_module_arrays(self, arrays: Arrays) -> None:
        """Loads what :meth:`module_arrays` gave.

        Raises:
            CheckpointError: If names or shapes differ from this module's.
        """
        if wrong := misfits(self.policy_module, arrays):
            raise CheckpointError(
                f"the checkpoint's weights do not fit {type(self.policy_module).__name__}: {', '.join(wrong[:5])}"
            )
        self.policy_module.load_state_dict({name: torch.as_tensor(value) for name, value in arrays.items()})

    def optimizer_arrays(self) -> Arrays:
        """The optimizer's moments and step counts, keyed ``<parameter>/<moment>``."""
        return {
            f"{self._parameter_names[parameter]}/{key}": torch.as_tensor(value).detach().cpu().numpy()
            for parameter, state in self.optimizer.state.items()
            for key, value in state.items()
            if value is not None
        }

    def load_optimizer_arrays(self, arrays: Arrays, optimizer_name: str) -> None:
        """Loads what :meth:`optimizer_arrays` gave; the rate stays as the config says.

        Args:
            arrays: The moments.
            optimizer_name: The ``optimizer_name`` that they are of. Those of another optimizer, or of one with other
                arguments, are not loaded: it starts anew.
        """
        if optimizer_name != self.optimizer_name:
            logger.warning("the optimizer was %s and is %s: it starts anew", optimizer_name, self.optimizer_name)
            arrays = {}
        parameters = {name: parameter for parameter, name in self._parameter_names.items()}
        moments: dict[nn.Parameter, dict[str, Tensor]] = {}
        for key, value in arrays.items():
            name, moment = key.rsplit("/", 1)
            tensor = torch.as_tensor(value).clone().to(parameters[name].device)
            moments.setdefault(parameters[name], {})[moment] = tensor
        self.stepper.load(moments)


def as_floats(stats: Tensors) -> dict[str, float]:
    """Scalars as floats, read from the device at once."""
    return dict(zip(stats, torch.stack(list(stats.values())).tolist(), strict=True))
