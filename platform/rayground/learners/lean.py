"""The lean learner: RLlib's TorchLearner without bookkeeping per minibatch."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.core.rl_module.rl_module import RLModule

from rayground.errors import CheckpointError, RunError
from rayground.learners.optimizers import clip_gradients, describe_optimizer, make_optimizer
from rayground.schedules import Schedule, as_schedule

logger = logging.getLogger("rayground")

Arrays = dict[str, np.ndarray]


class LeanTorchLearner(TorchLearner):
    """One module, one optimizer; a subclass loops over minibatches and calls :meth:`gradient_step` for each."""

    def build(self) -> None:
        """Builds module and optimizer as RLlib does, then looks up once what every gradient step needs."""
        super().build()
        self.policy_module: RLModule = self.module[DEFAULT_MODULE_ID]
        self.optimizer: torch.optim.Optimizer = self.get_optimizer(DEFAULT_MODULE_ID)
        self._parameters_trained = [p for group in self.optimizer.param_groups for p in group["params"]]
        self._parameter_names = {p: name for name, p in self.policy_module.named_parameters()}

    def configure_optimizers_for_module(self, module_id: str, config: AlgorithmConfig | None = None) -> None:
        """Registers the optimizer of the config; the learning rate is ours to schedule, per gradient step."""
        config = config or self.config
        self.use_settings(config)
        parameters = self.get_parameters(self._module[module_id])
        optimizer = make_optimizer(parameters, config.optimizer, self._lr(0))
        self.optimizer_name = describe_optimizer(config.optimizer)
        self.register_optimizer(module_id=module_id, optimizer=optimizer, params=parameters)

    def use_settings(self, config: AlgorithmConfig) -> None:
        """Takes over the settings that may change while training: learning rate and clipping."""
        self._lr: Schedule = as_schedule(config.lr, "lr")
        self._grad_clip, self._grad_clip_by = config.grad_clip, config.grad_clip_by

    def learning_rate(self, env_steps: int) -> float:
        """The learning rate that a gradient step at ``env_steps`` uses."""
        return self._lr(env_steps)

    def gradient_step(self, loss: torch.Tensor, env_steps: int) -> torch.Tensor:
        """Applies one gradient step.

        Args:
            loss: Scalar.
            env_steps: Where the learning rate's schedule stands.

        Returns:
            The global gradient norm before clipping (scalar).

        Raises:
            RunError: If the loss or a gradient is not finite; nothing is applied then.
        """
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = clip_gradients(self._parameters_trained, self._grad_clip, self._grad_clip_by)
        if not torch.isfinite(norm):
            raise RunError(self._not_finite(loss, env_steps))
        rate = self._lr(env_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        return norm

    def _not_finite(self, loss: torch.Tensor, env_steps: int) -> str:
        if not torch.isfinite(loss):
            what = f"the loss is {loss.item()}"
        else:
            names = [
                self._parameter_names[p]
                for p in self._parameters_trained
                if p.grad is not None and not torch.isfinite(p.grad).all()
            ]
            what = f"the gradient of {', '.join(names) or 'the module'} is not finite"
        return (
            f"at env step {env_steps} {what}; the step was not applied. "
            "Look for rewards or observations that are not finite, or lower lr"
        )

    def module_arrays(self) -> Arrays:
        """All parameters and buffers of the module by name, target networks included."""
        return {name: value.detach().cpu().numpy() for name, value in self.policy_module.state_dict().items()}

    def load_module_arrays(self, arrays: Arrays) -> None:
        """Loads what :meth:`module_arrays` gave.

        Raises:
            CheckpointError: If names or shapes differ from this module's.
        """
        own = self.policy_module.state_dict()
        wrong = sorted(own.keys() ^ arrays.keys())
        wrong += [name for name in own.keys() & arrays.keys() if own[name].shape != arrays[name].shape]
        if wrong:
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
        by_name: dict[str, dict[str, Any]] = {}
        for key, value in arrays.items():
            name, moment = key.rsplit("/", 1)
            by_name.setdefault(name, {})[moment] = torch.as_tensor(value).clone()
        self.optimizer.state.clear()
        for parameter in self._parameters_trained:
            state = by_name.get(self._parameter_names[parameter])
            if state:
                self.optimizer.state[parameter] = {k: v.to(parameter.device) for k, v in state.items()}
