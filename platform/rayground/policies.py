"""The policy of an algorithm: act, read and write weights, export."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModule
from torch import nn

from rayground import policy_file
from rayground.errors import InputError, RunError
from rayground.spaces import as_batch

EXPORT_TOLERANCE = 1e-6


class TrainedPolicy:
    """What ``algo.get_policy()`` gives: a view on the module that is being trained."""

    def __init__(self, module: RLModule, on_change: Callable[[], None] = lambda: None) -> None:
        """Wraps ``module``; ``on_change`` is called after its weights were set."""
        self._module, self._on_change = module, on_change

    @property
    def model(self) -> nn.Module:
        """The torch module. Its ``state_dict()`` goes through ``torch.save`` and ``torch.load(weights_only=True)``."""
        return self._module

    def get_weights(self) -> dict[str, np.ndarray]:
        """Copies of all parameters and buffers by name."""
        return {name: value.detach().cpu().numpy().copy() for name, value in self._module.state_dict().items()}

    def set_weights(self, weights: dict[str, np.ndarray]) -> None:
        """Loads weights of :meth:`get_weights` into the learner and the runners.

        Raises:
            InputError: If names or shapes do not fit; nothing is loaded then.
        """
        own = self._module.state_dict()
        wrong = sorted(own.keys() ^ weights.keys())
        wrong += sorted(name for name in own.keys() & weights.keys() if own[name].shape != np.shape(weights[name]))
        if wrong:
            raise InputError(f"set_weights: names or shapes that do not fit the module: {', '.join(wrong[:5])}")
        self._module.load_state_dict({name: torch.as_tensor(value) for name, value in weights.items()})
        self._on_change()

    def compute_single_action(self, obs: Any, explore: bool = False) -> Any:
        """The action for one observation ``[...]``: greedy, or as in training once its schedules have run out.

        Raises:
            InputError: If shape or number type is not what the policy observes.
        """
        array = as_batch(np.asarray(obs)[None], self._module.observation_space)
        device = next(self._module.parameters()).device
        batch = {Columns.OBS: torch.tensor(array, device=device)}
        with torch.inference_mode():
            if explore:
                out = self._module.forward_exploration(batch, t=np.iinfo(np.int64).max)
            else:
                out = self._module.forward_inference(batch)
        action = out[Columns.ACTIONS][0].cpu().numpy()
        return int(action) if action.ndim == 0 else action

    def export(self, folder: str | Path, info: dict[str, Any] | None = None) -> Path:
        """Writes ``policy.safetensors`` and ``policy.json``, which run without Ray, and checks what they give.

        Args:
            folder: A new or empty folder.
            info: What to note beside the weights: environment, env steps, the run.

        Raises:
            InputError: If the folder holds something, or the module has no net that can stand alone.
            RunError: If the exported policy's outputs differ from the module's by more than 1e-6.
        """
        net = getattr(self._module, "net", None)
        if net is None:
            raise InputError(
                f"{type(self._module).__name__} has no .net to export; "
                "build it with custom_models.q_module.q_module(Net)"
            )
        path = policy_file.save(
            Path(folder).expanduser().absolute(),
            net,
            net_kwargs=self._module.model_config["net_kwargs"],
            observation_space=self._module.observation_space,
            action_space=self._module.action_space,
            info=info or {},
        )
        difference = self._difference(policy_file.load(path, nets=[type(net)]), net)
        if not difference <= EXPORT_TOLERANCE:
            shutil.rmtree(path)
            raise RunError(f"exported outputs differ from the module's by {difference:g}; nothing was kept")
        return path

    def _difference(self, exported: policy_file.Policy, net: nn.Module) -> float:
        """The largest difference of outputs on 100 observations, both nets evaluating."""
        space = copy.deepcopy(self._module.observation_space)
        space.seed(0)
        obs = torch.as_tensor(np.stack([space.sample() for _ in range(100)]))
        was_training = net.training
        net.eval()
        with torch.inference_mode():
            difference = float((exported.model(obs) - net(obs)).abs().max())
        net.train(was_training)
        return difference
