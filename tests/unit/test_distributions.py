"""The terms of the losses against RLlib's distribution objects, with their gradients."""

from typing import Any

import pytest
import torch
from ray.rllib.core.distribution.torch.torch_distribution import TorchCategorical, TorchDiagGaussian
from tiny_learners import SPACES, dist_inputs

from custom_models.actor_critic_module import distribution_class
from rayground.learners.distributions import (
    AsRLlibComputes,
    Categorical,
    DiagonalGaussian,
    MultiCategorical,
    terms_of,
)

KINDS = {"discrete": Categorical, "multi": MultiCategorical, "box": DiagonalGaussian}


def inputs(kind: str, seed: int) -> torch.Tensor:
    return dist_inputs(SPACES[kind], 9, seed).requires_grad_()


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_equal_rllibs(kind: str) -> None:
    theirs = distribution_class(SPACES[kind])
    terms = terms_of(theirs)
    assert type(terms) is KINDS[kind]
    old, new = inputs(kind, 0), inputs(kind, 1)
    actions = theirs.from_logits(old).sample()
    pairs = {
        "logp": (terms.logp(new, actions), theirs.from_logits(new).logp(actions)),
        "entropy": (terms.entropy(new), theirs.from_logits(new).entropy()),
        "kl": (terms.kl(old, new), theirs.from_logits(old).kl(theirs.from_logits(new))),
    }
    for name, (ours, expected) in pairs.items():
        assert ours.shape == (9,), name
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)
        ours_grad, expected_grad = (torch.autograd.grad(value.square().sum(), new)[0] for value in (ours, expected))
        torch.testing.assert_close(ours_grad, expected_grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["discrete", "multi"])
def test_masked_actions_count_for_nothing(kind: str) -> None:
    """What is masked with -inf might as well not be there, in values and gradients."""
    terms = terms_of(distribution_class(SPACES[kind]))
    old, new = inputs(kind, 0), inputs(kind, 1)
    mask = torch.zeros_like(old)
    mask[:, 1] = -torch.inf
    shown = [i for i in range(old.shape[1]) if i != 1]
    less = Categorical() if kind == "discrete" else MultiCategorical([2, 2])
    actions = torch.zeros((9, 2) if kind == "multi" else 9, dtype=torch.int64)
    pairs = (
        (terms.logp(new + mask, actions), less.logp(new[:, shown], actions)),
        (terms.entropy(new + mask), less.entropy(new[:, shown])),
        (terms.kl(old + mask, new + mask), less.kl(old[:, shown], new[:, shown])),
    )
    for ours, expected in pairs:
        torch.testing.assert_close(ours, expected)
        gradients = [torch.autograd.grad(value.sum(), new)[0] for value in (ours, expected)]
        torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-5)


class Sharper(TorchCategorical):
    """A distribution of a user's: twice as sure."""

    @classmethod
    def from_logits(cls, logits: torch.Tensor, **kwargs: Any) -> "Sharper":
        return super().from_logits(2.0 * logits, **kwargs)


def test_any_other_distribution_is_asked_itself() -> None:
    terms, old, new = terms_of(Sharper), inputs("discrete", 0), inputs("discrete", 1)
    assert type(terms) is AsRLlibComputes
    actions = torch.arange(9) % 4
    torch.testing.assert_close(terms.logp(new, actions), Categorical().logp(2 * new, actions))
    torch.testing.assert_close(terms.entropy(new), Categorical().entropy(2 * new))
    torch.testing.assert_close(terms.kl(old, new), Categorical().kl(2 * old, 2 * new))
    assert type(terms_of(type("Mine", (TorchDiagGaussian,), {}))) is AsRLlibComputes
