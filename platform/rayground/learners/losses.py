"""Losses as pure functions of tensors.

Suffixes: B batch, A actions; ``q_tm1`` is for the observation acted on, ``q_t`` for the one reached n steps later.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F

Tensor = torch.Tensor
LossKind = Literal["huber", "mse"]


def q_learning_target(
    reward_B: Tensor,
    discount_B: Tensor,
    target_q_t_BA: Tensor,
    online_q_t_BA: Tensor | None = None,
    *,
    masked: bool = False,
) -> Tensor:
    """The n-step target ``r + discount * Q_target(s_t, argmax_a Q(s_t, a))``.

    With ``online_q_t_BA`` the online network picks the action and the target network values it (double
    Q-learning, van Hasselt et al. 2016, https://arxiv.org/abs/1509.06461); without, the target network does both.

    Args:
        reward_B: ``[B]`` discounted sums of the n rewards.
        discount_B: ``[B]`` gamma**n, 0 where the episode terminated within the n steps.
        target_q_t_BA: ``[B, A]`` target network's values; -inf where an action is masked.
        online_q_t_BA: ``[B, A]`` online network's values, or None.
        masked: Whether all actions of a state may be masked: it has no value then.

    Returns:
        ``[B]`` targets, without gradient.
    """
    with torch.no_grad():
        if online_q_t_BA is None:
            value_B = target_q_t_BA.amax(dim=1)
        else:
            value_B = target_q_t_BA.gather(1, online_q_t_BA.argmax(dim=1, keepdim=True)).squeeze(1)
        if masked:  # 0 * -inf would be NaN
            value_B = torch.nan_to_num(value_B, nan=torch.nan, neginf=0.0)
        return reward_B + discount_B * value_B


def td_loss(
    q_tm1_BA: Tensor, action_B: Tensor, target_B: Tensor, weight_B: Tensor | None = None, kind: LossKind = "huber"
) -> tuple[Tensor, Tensor]:
    """Weighted mean of the Huber (delta 1) or squared TD error of the actions taken.

    Args:
        q_tm1_BA: ``[B, A]`` online network's values.
        action_B: ``[B]`` int64 actions taken.
        target_B: ``[B]`` targets.
        weight_B: ``[B]`` importance weights of prioritized replay; None for uniform replay.
        kind: ``"huber"`` or ``"mse"``.

    Returns:
        The loss (scalar) and the TD errors ``Q - target`` (``[B]``, without gradient).
    """
    q_tm1_B1, target_B1 = q_tm1_BA.gather(1, action_B.unsqueeze(1)), target_B.unsqueeze(1)
    loss_fn = F.huber_loss if kind == "huber" else F.mse_loss
    if weight_B is None:
        loss = loss_fn(q_tm1_B1, target_B1)
    else:
        loss = (weight_B.unsqueeze(1) * loss_fn(q_tm1_B1, target_B1, reduction="none")).mean()
    return loss, (q_tm1_B1.detach() - target_B1).squeeze(1)


def clipped_surrogate(
    logp_B: Tensor, old_logp_B: Tensor, advantage_B: Tensor, clip: float | Tensor
) -> tuple[Tensor, Tensor]:
    """PPO's clipped surrogate objective (Schulman et al. 2017, https://arxiv.org/abs/1707.06347, equation 7).

    Args:
        logp_B: ``[B]`` log-probabilities of the actions now.
        old_logp_B: ``[B]`` those when they were taken.
        advantage_B: ``[B]`` advantages.
        clip: How far the ratio of the two may leave 1 (scalar).

    Returns:
        The loss of each sample ``[B]`` (the negative objective), and the ratios ``[B]``.
    """
    ratio_B = torch.exp(logp_B - old_logp_B)
    clipped_B = torch.clamp(ratio_B, 1.0 - clip, 1.0 + clip)  # type: ignore[arg-type]  # both of one kind
    return -torch.minimum(advantage_B * ratio_B, advantage_B * clipped_B), ratio_B


def clipped_value_loss(value_B: Tensor, target_B: Tensor, clip: float | Tensor) -> Tensor:
    """Squared errors ``[B]`` of values, none above ``clip``: RLlib's ``vf_clip_param``.

    Args:
        value_B: ``[B]`` predicted values.
        target_B: ``[B]`` value targets.
        clip: The largest squared error; one that is cut has no gradient.
    """
    squared_B = (value_B - target_B).square()
    return squared_B if isinstance(clip, float) and clip == math.inf else squared_B.clamp(max=clip)


def actor_critic_loss(
    logp_B: Tensor,
    entropy_B: Tensor,
    value_B: Tensor,
    advantage_B: Tensor,
    value_target_B: Tensor,
    weight_B: Tensor,
    *,
    entropy_coeff: float | Tensor,
    vf_loss_coeff: float | Tensor,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Advantage actor-critic (Mnih et al. 2016, https://arxiv.org/abs/1602.01783, section 4).

    Args:
        logp_B: ``[B]`` log-probabilities of the actions taken.
        entropy_B: ``[B]`` entropies of the policy, in nats.
        value_B: ``[B]`` predicted values.
        advantage_B: ``[B]`` advantages.
        value_target_B: ``[B]`` value targets.
        weight_B: ``[B]`` weights of the rows, 1 on average.
        entropy_coeff: Weight of the entropy (scalar).
        vf_loss_coeff: Weight of the value loss (scalar).

    Returns:
        The loss (scalar), and of what it is made, without gradient: ``policy_loss``, ``vf_loss`` and ``entropy``.
    """
    policy_loss = -(weight_B * advantage_B * logp_B).mean()
    vf_loss = (weight_B * (value_B - value_target_B).square()).mean()
    entropy = (weight_B * entropy_B).mean()
    loss = policy_loss + vf_loss_coeff * vf_loss - entropy_coeff * entropy
    parts = {"policy_loss": policy_loss, "vf_loss": vf_loss, "entropy": entropy}
    return loss, {name: part.detach() for name, part in parts.items()}


def explained_variance(target_B: Tensor, value_B: Tensor) -> Tensor:
    """The share of the targets' variance that the values explain: 1 all, 0 none, below 0 worse than their mean.

    Args:
        target_B: ``[B]`` value targets.
        value_B: ``[B]`` predicted values.
    """
    return 1.0 - (target_B - value_B).var(correction=0) / target_B.var(correction=0).clamp(min=1e-8)
