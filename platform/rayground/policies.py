"""The policy of an algorithm: act, read and write weights, export."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModule
from torch import Tensor, nn

from custom_models.nets import ACTION_MASK
from rayground import policy_file
from rayground.action_masks import asked_masks
from rayground.errors import InputError, RunError
from rayground.spaces import actions_for_env, as_batch
from rayground.weights import misfits

EXPORT_TOLERANCE = 1e-6


class TrainedPolicy:
    """What ``algo.get_policy()`` gives: a view on the module that is being trained.

    Attributes:
        loader: The function that loads what :meth:`export` writes.
    """

    loader: ClassVar[str] = "rayground.policy_file.load"

    def __init__(self, module: RLModule, config: AlgorithmConfig, on_change: Callable[[], None] = lambda: None) -> None:
        """Wraps a module.

        Args:
            module: The module.
            config: What it is trained with: says how its actions go to the environment.
            on_change: Called after its weights were set.
        """
        self._module, self._on_change = module, on_change
        self._normalize_actions, self._clip_actions = config.normalize_actions, config.clip_actions
        self._action_masks = getattr(config, "action_masks", False)  # RLlib's algorithms know none
        own = ("env_to_module_connector", "module_to_env_connector")
        self._connectors = [name for name in own if getattr(config, f"_{name}") is not None]

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
        if wrong := misfits(self._module, weights):
            raise InputError(f"set_weights: names or shapes that do not fit the module: {', '.join(wrong[:5])}")
        self._module.load_state_dict({name: torch.as_tensor(value) for name, value in weights.items()})
        self._on_change()

    def compute_single_action(self, obs: Any, explore: bool = False, action_mask: Any = None) -> Any:
        """The action for the environment for one observation ``[...]``.

        Args:
            obs: The observation.
            explore: Sample it, as in training once its schedules have run out, instead of taking the best one.
            action_mask: The legal actions ``[A]``, ``info["action_mask"]``: needed where the environment gives them.

        Raises:
            InputError: If shape or number type is not what the policy observes, or the mask is missing or wrong.
        """
        module = self._module
        batch = self._batch(as_batch(np.asarray(obs)[None], module.observation_space))
        given = None if action_mask is None else np.asarray(action_mask)[None]
        masks = asked_masks(given, module.action_space, 1, needed=self._action_masks)
        if masks is not None:
            batch[ACTION_MASK] = torch.from_numpy(masks).to(batch[Columns.OBS].device)
        with torch.inference_mode():
            if explore:
                out = module.forward_exploration(batch, t=np.iinfo(np.int64).max)
            else:
                out = module.forward_inference(batch)
            actions = out[Columns.ACTIONS] if Columns.ACTIONS in out else self._choose(out, explore)
        for_env = actions_for_env(module.action_space, normalize=self._normalize_actions, clip=self._clip_actions)
        action = for_env(actions.cpu().numpy())[0]
        return int(action) if action.ndim == 0 else action

    def _batch(self, obs_B: np.ndarray) -> dict[str, Tensor]:
        """A module's input, in the runner's precision."""
        device = next(self._module.parameters()).device
        return {Columns.OBS: torch.tensor(obs_B.astype(np.float32) if obs_B.dtype == np.float64 else obs_B).to(device)}

    def _choose(self, out: dict[str, Tensor], explore: bool) -> Tensor:
        inputs = out[Columns.ACTION_DIST_INPUTS]
        if explore:
            return self._module.get_exploration_action_dist_cls().from_logits(inputs).sample()
        return self._module.get_inference_action_dist_cls().from_logits(inputs).to_deterministic().sample()

    def export(self, folder: str | Path, info: dict[str, Any] | None = None) -> Path:
        """Writes ``policy.safetensors`` and ``policy.json``, which run without Ray, and checks what they give.

        Args:
            folder: A new or empty folder.
            info: What to note beside the weights: environment, env steps, the run.

        Raises:
            InputError: If the folder holds something, the module has no net that can stand alone, or it was trained
                through connectors, which would be missing.
            RunError: If the exported policy's outputs differ from the module's by more than 1e-6.
        """
        if self._connectors:
            raise InputError(
                f"export: the policy was trained through {' and '.join(self._connectors)}, and an exported policy "
                "holds no code: put the conversion into an environment wrapper or the net"
            )
        net = getattr(self._module, "net", None)
        if net is None:
            raise InputError(
                f"{type(self._module).__name__} has no .net to export; build it with q_module(Net) or "
                "actor_critic_module(Net) of custom_models"
            )
        path = policy_file.save(
            Path(folder).expanduser().absolute(),
            net,
            net_kwargs=self._module.model_config["net_kwargs"],
            observation_space=self._module.observation_space,
            action_space=self._module.action_space,
            normalize_actions=self._normalize_actions,
            clip_actions=self._clip_actions,
            action_masks=self._action_masks,
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
        batch = self._batch(np.stack([space.sample() for _ in range(100)]))[Columns.OBS]
        was_training = net.training
        net.eval()
        with torch.inference_mode():
            expected = policy_file.policy_outputs(net)(batch).cpu()
            difference = float((policy_file.policy_outputs(exported.model)(batch.cpu()) - expected).abs().max())
        net.train(was_training)
        return difference
