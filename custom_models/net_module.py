"""What the RLModules around our nets share: building the net from a spec, and its exact state."""

from __future__ import annotations

import difflib
import inspect
import json
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn

from custom_models.nets.nature_cnn import SMALLEST_SIDE

VECTOR = gym.spaces.Box(0.0, 1.0, (1,))
IMAGE = gym.spaces.Box(0, 255, (1, SMALLEST_SIDE, SMALLEST_SIDE), np.uint8)

Self = TypeVar("Self", bound="NetModule")


class NetModule(TorchRLModule, InferenceOnlyAPI):
    """A module around one net, which ``model_config`` names: ``net`` (its class) and ``net_kwargs``.

    Attributes:
        net: The net.
    """

    net: nn.Module

    def setup(self) -> None:
        """Builds the net.

        Raises:
            ValueError: If ``model_config`` names no net, or the net refuses its spaces or arguments.
        """
        if "net" not in self.model_config:
            raise ValueError(
                f"{type(self).__name__}: model_config names no net; "
                "build the spec with dueling_mlp(), actor_critic_mlp() or another function of custom_models"
            )
        self.net = self._build_net()
        self.train(not self.inference_only)

    def _build_net(self) -> nn.Module:
        net_class = self.model_config["net"]
        try:
            return net_class(self.observation_space, self.action_space, **self.model_config["net_kwargs"])
        except AttributeError as error:
            # RLlib takes an AttributeError for an old-style module, and hides it behind a deprecation error.
            raise RuntimeError(f"{net_class.__name__} could not be built: {error}") from error

    def train(self: Self, mode: bool = True) -> Self:
        """Switches to training or evaluation, if it is not there already.

        RLlib calls this around every action; walking all sub-modules each time costs 20 us and more.
        """
        return self if self.training == mode else super().train(mode)

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Returns RLlib's state, with every number in its own precision: RLlib rounds float64 to float32."""
        own = self.state_dict()
        return {name: own[name].detach().cpu().numpy() for name in super().get_state(*args, **kwargs)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Loads what :meth:`get_state` gave; more names than the module has are ignored, as RLlib does.

        Raises:
            ValueError: If a name is missing.
        """
        own = self.state_dict()
        missing = [name for name in own if name not in state]
        if missing:
            raise ValueError(f"{type(self).__name__}: the state lacks {', '.join(missing)}")
        self.load_state_dict({name: torch.as_tensor(state[name]) for name in own})


def net_spec(module_class: type[NetModule], net_class: type[nn.Module], net_kwargs: dict[str, Any]) -> RLModuleSpec:
    """Makes the spec of a module around a net.

    Args:
        module_class: The module's class.
        net_class: An ``nn.Module`` that keeps the contract in ``custom_models.nets``.
        net_kwargs: Its keyword arguments. They go through JSON here, as they will in an exported policy, so that
            the net is never built from anything else (tuples arrive as lists).

    Raises:
        ValueError: If ``net_class`` is no such class, takes no such argument, or an argument cannot be JSON.
    """
    if not (isinstance(net_class, type) and issubclass(net_class, nn.Module)):
        raise ValueError(f"{module_class.__name__}: expected a torch.nn.Module class, got {net_class!r}")
    _check_arguments(net_class, net_kwargs)
    try:
        plain_kwargs = json.loads(json.dumps(net_kwargs, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{net_class.__name__}: expected arguments that can be written as JSON: {error}") from None
    return RLModuleSpec(module_class=module_class, model_config={"net": net_class, "net_kwargs": plain_kwargs})


def tried_net_spec(
    module_class: type[NetModule],
    net_class: type[nn.Module],
    net_kwargs: dict[str, Any],
    observation_space: gym.Space = VECTOR,
) -> RLModuleSpec:
    """Does what :func:`net_spec` does, for nets of ours: wrong arguments are found at once.

    The net is built without memory or random numbers.

    Args:
        module_class: The module's class.
        net_class: The net's class.
        net_kwargs: Its keyword arguments.
        observation_space: The smallest that the net takes, ``VECTOR`` or ``IMAGE``.

    Raises:
        ValueError: If an argument is wrong.
    """
    with torch.device("meta"):
        net_class(observation_space, gym.spaces.Discrete(1), **net_kwargs)
    return net_spec(module_class, net_class, net_kwargs)


def _check_arguments(net_class: type[nn.Module], net_kwargs: dict[str, Any]) -> None:
    signature = inspect.signature(net_class)
    try:
        signature.bind("observation_space", "action_space", **net_kwargs)
    except TypeError as error:
        unknown = [name for name in net_kwargs if name not in signature.parameters]
        near = difflib.get_close_matches(unknown[0], signature.parameters, n=1) if unknown else []
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{net_class.__name__}{signature}: {error}{hint}") from None
