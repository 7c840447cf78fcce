"""Losses against numbers worked out by hand."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from rayground.learners.losses import (
    LossKind,
    actor_critic_loss,
    clipped_surrogate,
    clipped_value_loss,
    explained_variance,
    q_learning_target,
    td_loss,
)


def test_target_network_picks_and_values() -> None:
    target = q_learning_target(
        torch.tensor([1.0, 2.0]), torch.tensor([0.9, 0.0]), torch.tensor([[3.0, 5.0], [7.0, 1.0]])
    )
    assert target.tolist() == pytest.approx([1.0 + 0.9 * 5.0, 2.0])


def test_double_q_lets_the_online_network_pick() -> None:
    online = torch.tensor([[9.0, 0.0]], requires_grad=True)
    target = q_learning_target(torch.tensor([1.0]), torch.tensor([0.5]), torch.tensor([[3.0, 5.0]]), online)
    assert target.tolist() == pytest.approx([1.0 + 0.5 * 3.0])
    assert not target.requires_grad


def test_masked_actions_are_not_bootstrapped_from() -> None:
    masked = torch.tensor([[-math.inf, 2.0], [-math.inf, -math.inf]])
    target = q_learning_target(torch.tensor([0.0, 1.0]), torch.tensor([0.5, 0.0]), masked, masked, masked=True)
    assert target.tolist() == [1.0, 1.0]


def test_huber_loss_is_weighted_and_averaged() -> None:
    q = torch.tensor([[1.0, 5.0], [2.0, 0.0]], requires_grad=True)
    loss, error = td_loss(q, torch.tensor([1, 0]), torch.tensor([2.0, 1.5]), torch.tensor([1.0, 0.5]))
    # errors 3 and 0.5: Huber 3 - 0.5 = 2.5 and 0.5 * 0.25 = 0.125
    assert loss.item() == pytest.approx((1.0 * 2.5 + 0.5 * 0.125) / 2)
    assert error.tolist() == [3.0, 0.5]
    loss.backward()
    # gradients: clipped to 1 times weight 1, and 0.5 times weight 0.5, over the batch of 2
    assert q.grad.tolist() == [[0.0, 0.5], [0.125, 0.0]]


@pytest.mark.parametrize("kind", ["huber", "mse"])
def test_without_weights_all_count_alike(kind: LossKind) -> None:
    q, actions, target = torch.tensor([[1.0, 5.0], [2.0, 0.0]]), torch.tensor([1, 0]), torch.tensor([2.0, 1.5])
    loss, error = td_loss(q, actions, target, None, kind)
    weighted, same_error = td_loss(q, actions, target, torch.ones(2), kind)
    assert loss.item() == pytest.approx(weighted.item())
    assert torch.equal(error, same_error)


def test_squared_loss() -> None:
    loss, _ = td_loss(torch.tensor([[1.0, 5.0]]), torch.tensor([1]), torch.tensor([2.0]), torch.ones(1), "mse")
    assert loss.item() == pytest.approx(9.0)


def test_a_value_that_is_not_a_number_stays_one() -> None:
    target = q_learning_target(torch.zeros(1), torch.ones(1), torch.tensor([[math.nan, 0.0]]))
    assert math.isnan(target.item())


@pytest.mark.parametrize("clip", [0.2, torch.tensor(0.2)])
def test_the_surrogate_is_cut_where_the_ratio_has_gone_far_enough(clip: float | torch.Tensor) -> None:
    ratio = torch.tensor([1.1, 1.5, 0.5, 1.5, 0.5])
    logp = ratio.log().requires_grad_()
    loss, ratios = clipped_surrogate(logp, torch.zeros(5), torch.tensor([2.0, 2.0, 2.0, -2.0, -2.0]), clip)
    assert ratios.tolist() == pytest.approx(ratio.tolist())
    # kept, cut at 1.2, not cut (it would lose), not cut (it would lose), cut at 0.8
    assert loss.tolist() == pytest.approx([-2.2, -2.4, -1.0, 3.0, 1.6])
    loss.sum().backward()
    assert logp.grad.tolist() == pytest.approx([-2.2, 0.0, -1.0, 3.0, 0.0])


def test_the_surrogate_of_the_policy_that_sampled_is_the_advantage() -> None:
    logp = torch.tensor([-0.3, -2.0])
    loss, ratios = clipped_surrogate(logp, logp, torch.tensor([1.5, -0.5]), 0.0)
    assert (loss.tolist(), ratios.tolist()) == ([-1.5, 0.5], [1.0, 1.0])


@pytest.mark.parametrize(("clip", "losses", "gradient"), [(math.inf, [4.0, 25.0], [4.0, -10.0]), (9.0, [4, 9], [4, 0])])
def test_squared_errors_of_values_are_cut(clip: float, losses: list[float], gradient: list[float]) -> None:
    for bound in (clip, torch.tensor(clip)):
        values = torch.tensor([3.0, 0.0], requires_grad=True)
        found = clipped_value_loss(values, torch.tensor([1.0, 5.0]), bound)
        found.sum().backward()
        assert (found.tolist(), values.grad.tolist()) == (losses, gradient)


@pytest.mark.parametrize("kind", [float, torch.tensor])
def test_the_parts_of_an_actor_critics_loss_are_weighted_and_averaged(kind: Callable[[float], Any]) -> None:
    """Rows of weights 1.5, 1.5 and 0: the last would change everything."""
    logp = torch.tensor([-1.0, -2.0, -50.0], requires_grad=True)
    entropy = torch.tensor([0.5, 1.0, 70.0], requires_grad=True)
    value = torch.tensor([1.0, 4.0, 90.0], requires_grad=True)
    advantage, target = torch.tensor([2.0, -3.0, 40.0]), torch.tensor([3.0, 3.0, -9.0])
    weight = torch.tensor([1.5, 1.5, 0.0])
    loss, parts = actor_critic_loss(
        logp, entropy, value, advantage, target, weight, entropy_coeff=kind(0.1), vf_loss_coeff=kind(0.25)
    )
    # the means over the first two rows: -(2 * -1 + -3 * -2) / 2, (4 + 1) / 2 and (0.5 + 1) / 2
    assert {name: part.item() for name, part in parts.items()} == {"policy_loss": -2.0, "vf_loss": 2.5, "entropy": 0.75}
    assert not any(part.requires_grad for part in parts.values())
    assert loss.item() == pytest.approx(-2.0 + 0.25 * 2.5 - 0.1 * 0.75)
    loss.backward()
    assert logp.grad.tolist() == [-1.0, 1.5, 0.0]
    assert value.grad.tolist() == [0.25 * -4 / 2, 0.25 * 2 / 2, 0.0]
    assert entropy.grad.tolist() == pytest.approx([-0.05, -0.05, 0.0])


def test_explained_variance() -> None:
    targets = torch.tensor([1.0, 2.0, 3.0, 6.0])  # variance 3.5
    assert explained_variance(targets, targets - 7.0).item() == 1.0  # a constant error is none of variance
    assert explained_variance(targets, torch.full((4,), 5.0)).item() == 0.0
    assert explained_variance(targets, -targets).item() == pytest.approx(-3.0)
    assert explained_variance(targets, torch.tensor([1.0, 2.0, 3.0, 2.0])).item() == pytest.approx(1 - 3.0 / 3.5)
    assert math.isfinite(explained_variance(torch.ones(4), torch.zeros(4)).item())
