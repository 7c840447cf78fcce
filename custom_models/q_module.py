"""The RLModule that plugs a Q-network into RLlib's DQN, and the specs that an experiment hands to ``rl_module()``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from ray.rllib.algorithms.dqn.dqn_learner import QF_NEXT_PREDS, QF_PREDS, QF_TARGET_NEXT_PREDS
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.utils import make_target_network
from ray.rllib.core.rl_module.apis import QNetAPI, TargetNetworkAPI
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from torch import Tensor, nn

from custom_models.net_module import IMAGE, NetModule, net_spec, tried_net_spec
from custom_models.nets import ACTION_MASK, DuelingCNN, DuelingMLP, PlainCNN, PlainMLP, noisy_layers
from custom_models.nets.noisy import SIGMA0, noise

NEXT_ACTION_MASK = "next_action_mask"


class QModule(NetModule, QNetAPI, TargetNetworkAPI):
    """A Q-network, its target network and exploration: epsilon-greedy, or by the noise of a noisy net.

    A net with ``NoisyLinear`` layers acts on its largest Q-values always, and draws new noise for every exploring
    forward pass and for each of the three in training (Fortunato et al., 2018, sections 3.1 and 3.2); evaluation is
    without noise.

    Read from ``model_config``: ``net`` (the class) and ``net_kwargs``, which ``dueling_mlp``, ``plain_mlp`` and
    their like put there, and what RLlib's DQN adds: ``epsilon``, ``double_q``, ``num_atoms``.

    Attributes:
        net: The Q-network, ``[B, *observation_space.shape] -> [B, A]``.
        target_net: Its target network, after ``make_target_networks()``; never on an environment runner.
    """

    target_net: nn.Module

    def setup(self) -> None:
        """Builds the net.

        Raises:
            ValueError: If ``model_config`` names no net or asks for what this module cannot do, or the net refuses
                its spaces or arguments.
        """
        if self.model_config.get("num_atoms", 1) > 1:
            raise ValueError("QModule: expected num_atoms=1, it learns no distribution of returns")
        super().setup()
        self._noisy_layers = noisy_layers(self.net)
        self._net_takes_mask = ACTION_MASK in inspect.signature(self.net.forward).parameters
        self._epsilon_schedule = _schedule(self.model_config.get("epsilon"))

    def compute_q_values(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        """Returns ``{"qf_preds": [B, A]}`` for ``obs``; -inf where ``action_mask`` (``[B, A]`` bool) is False."""
        return self._q_values(self.net, batch)

    def forward_target(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        """Returns what ``compute_q_values`` does, by the target network."""
        return self._q_values(self.target_net, batch)

    def _q_values(self, net: nn.Module, batch: dict[str, Any]) -> dict[str, Tensor]:
        mask = batch.get(ACTION_MASK)
        if mask is None:
            return {QF_PREDS: net(batch[Columns.OBS])}
        if self._net_takes_mask:
            return {QF_PREDS: net(batch[Columns.OBS], action_mask=mask)}
        return {QF_PREDS: net(batch[Columns.OBS]).masked_fill(~mask, float("-inf"))}

    def _forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Returns the greedy ``actions`` ``[B]``."""
        with torch.no_grad():
            return {Columns.ACTIONS: self.compute_q_values(batch)[QF_PREDS].argmax(dim=1)}

    def _forward_exploration(self, batch: dict[str, Any], t: int | None = None, **kwargs: Any) -> dict[str, Tensor]:
        """Returns ``actions`` ``[B]``: a noisy net's best, else one of all legal ones with probability epsilon(t).

        Args:
            batch: ``obs`` ``[B, ...]``, perhaps ``action_mask`` ``[B, A]``.
            t: Env steps handed out so far, over all runners.
            **kwargs: Unused.

        Raises:
            ValueError: If ``t`` or the epsilon schedule is missing, and the net is not noisy.
        """
        if self._noisy_layers:
            with noise(self._noisy_layers):
                return self._forward_inference(batch)
        epsilon = self.epsilon(t)
        with torch.no_grad():
            q = self.compute_q_values(batch)[QF_PREDS]
            explores = torch.rand((q.shape[0], 1), device=q.device) < epsilon
            # The largest of equal and independent noise is a uniform pick; -inf stays, so it is never picked.
            scores = torch.where(explores & (q > float("-inf")), torch.rand_like(q), q)
            return {Columns.ACTIONS: scores.argmax(dim=1)}

    def epsilon(self, t: int | None) -> float:
        """Returns the share of exploratory actions at ``t`` env steps; 0 of a noisy net.

        Raises:
            ValueError: If ``t`` or the schedule is missing, and the net is not noisy.
        """
        if self._noisy_layers:
            return 0.0
        if t is None:
            raise ValueError("QModule: exploration needs t, the env steps so far: forward_exploration(batch, t=...)")
        if self._epsilon_schedule is None:
            raise ValueError("QModule: exploration needs model_config['epsilon'], which the DQN config puts there")
        return float(self._epsilon_schedule(t))

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Tensor]:
        """Returns what RLlib's own DQN learner needs, each ``[B, A]``.

        ``qf_preds`` for ``obs``; for ``new_obs`` ``qf_target_next_preds`` and, with double Q, ``qf_next_preds``, both
        without gradients: the loss takes only the index of the best action from the latter.
        """
        output = {QF_PREDS: self.compute_q_values(batch)[QF_PREDS]}
        next_batch = {Columns.OBS: batch[Columns.NEXT_OBS], ACTION_MASK: batch.get(NEXT_ACTION_MASK)}
        with torch.no_grad():
            output[QF_TARGET_NEXT_PREDS] = self.forward_target(next_batch)[QF_PREDS]
            if self.model_config["double_q"]:
                output[QF_NEXT_PREDS] = self.compute_q_values(next_batch)[QF_PREDS]
        return output

    def make_target_networks(self) -> None:
        """Makes the target network, equal to the net and without gradients."""
        self.target_net = make_target_network(self.net)

    def get_target_network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """Returns the one pair of net and target network."""
        return [(self.net, self.target_net)]

    def get_non_inference_attributes(self) -> list[str]:
        """Returns the names of what an environment runner does without."""
        return ["target_net"]


def is_noisy(module: RLModule) -> bool:
    """Whether a module explores by the noise of its net, and not by epsilon."""
    return isinstance(module, QModule) and bool(module._noisy_layers)


def _schedule(epsilon: Any) -> Callable[[int], float] | None:
    """Makes a function of env steps of a number, RLlib's ``[[env_steps, value], ...]``, or a function already."""
    if epsilon is None or callable(epsilon):
        return epsilon
    pairs = [[0, epsilon]] if isinstance(epsilon, (int, float)) else epsilon
    points = np.asarray(pairs, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2 or np.any(np.diff(points[:, 0]) <= 0):
        raise ValueError(f"epsilon: expected a number or ascending [[env_steps, value], ...], got {epsilon!r}")
    if points[:, 1].min() < 0.0 or points[:, 1].max() > 1.0:
        raise ValueError(f"epsilon: expected values between 0 and 1, got {epsilon!r}")
    return partial(np.interp, xp=points[:, 0].copy(), fp=points[:, 1].copy())


def dueling_mlp(
    hidden: Sequence[int] = (256,),
    activation: str = "relu",
    head_hidden: int | None = None,
    normalize_observations: bool = False,
    noisy: bool = False,
    sigma0: float = SIGMA0,
) -> RLModuleSpec:
    """A dueling Q-network on fully connected layers (``custom_models.nets.DuelingMLP``).

    Args:
        hidden: Units of each layer.
        activation: Name of the activation.
        head_hidden: Units of the hidden layer in each stream of the head; None for none.
        normalize_observations: Whether Box observations are normalized by their running mean and variance.
        noisy: Whether the net explores by noise in its head, instead of by epsilon.
        sigma0: How much noise the head starts with, with ``noisy``.

    Returns:
        The spec for ``config.rl_module(rl_module_spec=...)``.

    Raises:
        ValueError: If an argument is wrong.
    """
    return tried_net_spec(
        QModule,
        DuelingMLP,
        {
            "hidden": hidden,
            "activation": activation,
            "head_hidden": head_hidden,
            "normalize_observations": normalize_observations,
            "noisy": noisy,
            "sigma0": sigma0,
        },
    )


def plain_mlp(
    hidden: Sequence[int] = (256,),
    activation: str = "relu",
    normalize_observations: bool = False,
    noisy: bool = False,
    sigma0: float = SIGMA0,
) -> RLModuleSpec:
    """A Q-network on fully connected layers (``custom_models.nets.PlainMLP``).

    Args:
        hidden: Units of each layer.
        activation: Name of the activation.
        normalize_observations: Whether Box observations are normalized by their running mean and variance.
        noisy: Whether the net explores by noise in its head, instead of by epsilon.
        sigma0: How much noise the head starts with, with ``noisy``.

    Returns:
        The spec for ``config.rl_module(rl_module_spec=...)``.

    Raises:
        ValueError: If an argument is wrong.
    """
    return tried_net_spec(
        QModule,
        PlainMLP,
        {
            "hidden": hidden,
            "activation": activation,
            "normalize_observations": normalize_observations,
            "noisy": noisy,
            "sigma0": sigma0,
        },
    )


def dueling_cnn(noisy: bool = False, head_hidden: int | None = 512, sigma0: float = SIGMA0) -> RLModuleSpec:
    """A dueling Q-network on frames ``[C, H, W]``, uint8 (``custom_models.nets.DuelingCNN``).

    Args:
        noisy: Whether the net explores by noise in its linear layers, instead of by epsilon.
        head_hidden: Units of the hidden layer in each stream of the head; None for streams of one layer each behind a
            linear layer that they share.
        sigma0: How much noise the layers start with, with ``noisy``.

    Returns:
        The spec for ``config.rl_module(rl_module_spec=...)``.

    Raises:
        ValueError: If an argument is wrong.
    """
    return tried_net_spec(QModule, DuelingCNN, {"head_hidden": head_hidden, "noisy": noisy, "sigma0": sigma0}, IMAGE)


def plain_cnn(noisy: bool = False, sigma0: float = SIGMA0) -> RLModuleSpec:
    """The Nature DQN's Q-network on frames ``[C, H, W]``, uint8 (``custom_models.nets.PlainCNN``).

    Args:
        noisy: Whether the net explores by noise in its linear layers, instead of by epsilon.
        sigma0: How much noise the layers start with, with ``noisy``.

    Returns:
        The spec for ``config.rl_module(rl_module_spec=...)``.

    Raises:
        ValueError: If an argument is wrong.
    """
    return tried_net_spec(QModule, PlainCNN, {"noisy": noisy, "sigma0": sigma0}, IMAGE)


def q_module(net_class: type[nn.Module], **net_kwargs: Any) -> RLModuleSpec:
    """A Q-network of one's own.

    Args:
        net_class: An ``nn.Module`` that keeps the contract in ``custom_models.nets``.
        **net_kwargs: Its keyword arguments; see ``net_spec``.

    Returns:
        The spec for ``config.rl_module(rl_module_spec=...)``.

    Raises:
        ValueError: If ``net_class`` is no such class, takes no such argument, or an argument cannot be JSON.
    """
    return net_spec(QModule, net_class, net_kwargs)
