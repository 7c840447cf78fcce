"""What lies under all our learners: flat parameters, torch's optimizers on them, clipping, what a subclass may do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.utils.torch_utils import clip_gradients
from tiny_learners import assert_equal_weights, call, dqn_batch, dqn_learner, ppo_batch, ppo_learner, weights
from torch import nn

from rayground.errors import InputError, RunError
from rayground.learners.flat import FlatParameters
from rayground.learners.optimizers import FlatStepper, OwnStepper, clipped, make_optimizer, stepper_of
from rayground.learners.ppo import PPOLearner
from rayground.schedules import Step

OPTIMIZERS: list[dict[str, Any]] = [
    {"type": "adam"},
    {"type": "adam", "amsgrad": True, "betas": (0.8, 0.9), "eps": 1e-4},
    {"type": "adam", "weight_decay": 0.1, "maximize": True},
    {"type": "adam", "weight_decay": 0.1, "decoupled_weight_decay": True},
    {"type": "rmsprop", "alpha": 0.9},
    {"type": "rmsprop", "momentum": 0.7, "centered": True, "weight_decay": 0.1},
    {"type": "sgd"},
    {"type": "sgd", "momentum": 0.9, "weight_decay": 0.1},
    {"type": "sgd", "momentum": 0.9, "nesterov": True},
]


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def test_parameters_are_views_and_stay_views(tmp_path: Path) -> None:
    made, other = net(), net()
    flat = FlatParameters(list(made.parameters()))
    assert flat.vector.shape == (3 * 4 + 4 + 4 * 2 + 2,)
    assert torch.equal(flat.vector, torch.cat([p.flatten() for p in other.parameters()]))
    for parameter in other.parameters():
        nn.init.normal_(parameter)
    torch.save(other.state_dict(), tmp_path / "net.pt")
    made.load_state_dict(torch.load(tmp_path / "net.pt", weights_only=True))
    assert torch.equal(flat.vector, torch.cat([p.flatten() for p in other.parameters()]))
    flat.vector.fill_(0.5)
    assert all((parameter == 0.5).all() for parameter in made.parameters())
    torch.save(made.state_dict(), tmp_path / "flat.pt")
    again = torch.load(tmp_path / "flat.pt", weights_only=True)
    assert {name: value.shape for name, value in again.items()} == {n: v.shape for n, v in other.state_dict().items()}
    assert all((value == 0.5).all() for value in again.values())


def test_the_gradient_is_torchs_and_zero_for_what_is_not_used() -> None:
    made = net()
    unused = nn.Parameter(torch.ones(5))
    flat = FlatParameters([unused, *made.parameters()])
    made(torch.ones(6, 3)).square().mean().backward()
    found = flat.gradient(made(torch.ones(6, 3)).square().mean())
    assert torch.equal(found, torch.cat([torch.zeros(5), *[p.grad.flatten() for p in made.parameters()]]))


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ([nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1).double())], "torch.float32 on cpu, torch.float64"),
        ([], "got no parameter"),
    ],
)
def test_what_cannot_be_one_vector_is_refused(parameters: list[nn.Parameter], found: str) -> None:
    with pytest.raises(InputError, match=f"expected trained parameters of one dtype on one device, .*{found}"):
        FlatParameters(parameters)


@pytest.mark.parametrize("options", OPTIMIZERS, ids=str)
def test_steps_equal_torchs_own(options: dict[str, Any]) -> None:
    """Twenty random gradients, the rate halved in the middle; the moments are torch's too."""
    made, twin = net(), net()
    flat = FlatParameters(list(made.parameters()))
    optimizer = make_optimizer(flat.parameters, options, lr=0.01)
    ours = stepper_of(optimizer, flat)
    assert isinstance(ours, FlatStepper)
    torchs = make_optimizer(list(twin.parameters()), options, lr=0.01)
    for step in range(20):
        rate = 0.01 if step < 10 else 0.005
        torchs.param_groups[0]["lr"] = rate
        gradient = torch.randn(flat.vector.shape)
        for parameter, part in zip(twin.parameters(), flat.views(gradient.clone()), strict=True):
            parameter.grad = part
        torchs.step()
        ours.step(gradient, rate)
        torch.testing.assert_close(flat.vector, torch.cat([p.flatten() for p in twin.parameters()]), atol=1e-7, rtol=0)
    for parameter, own in zip(flat.parameters, twin.parameters(), strict=True):
        for name, moment in torchs.state[own].items():
            torch.testing.assert_close(optimizer.state[parameter][name], moment, atol=1e-6, rtol=1e-6)


def test_moments_of_parameters_that_are_not_named_start_anew() -> None:
    made = net()
    flat = FlatParameters(list(made.parameters()))
    optimizer = make_optimizer(flat.parameters, "adam", lr=0.01)
    ours = stepper_of(optimizer, flat)
    ours.step(torch.ones(flat.vector.shape), 0.01)
    first, second, *_ = flat.parameters
    kept = {name: value.clone() for name, value in optimizer.state[first].items()}
    ours.load({first: kept})
    assert all(torch.equal(optimizer.state[first][name], value) for name, value in kept.items())
    assert optimizer.state[first]["step"] == 1
    assert not optimizer.state[second]["exp_avg"].any()


@pytest.mark.parametrize("by", ["global_norm", "norm", "value"])
@pytest.mark.parametrize("limit", [0.3, 100.0, torch.tensor(0.3)])
def test_gradients_are_clipped_as_rllib_does(by: str, limit: float | torch.Tensor) -> None:
    flat = FlatParameters(list(net().parameters()))
    gradient = torch.randn(flat.vector.shape)
    theirs = dict(enumerate(view.clone() for view in flat.views(gradient)))
    clip_gradients(theirs, grad_clip=float(limit), grad_clip_by=by)
    expected = torch.cat([theirs[i].flatten() for i in range(len(theirs))])
    found = clipped(gradient.clone(), gradient.norm(), limit, by, flat)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    assert torch.equal(found, gradient) == (float(limit) == 100.0)


@pytest.mark.parametrize("by", ["global_norm", "norm", "value"])
@pytest.mark.parametrize("limit", [None, 0.3])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_nothing_remains_of_a_gradient_that_is_not_finite(by: str, limit: float | None, bad: float) -> None:
    flat = FlatParameters(list(net().parameters()))
    gradient = torch.ones(flat.vector.shape)
    gradient[3] = bad
    assert not clipped(gradient.clone(), gradient.norm(), limit, by, flat).any()


class Regularized(PPOLearner):
    """A user's learner: an L2 term, and a rate of its own for the policy's part."""

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Any, fwd_out: Any) -> torch.Tensor:
        loss = super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)
        return loss + 0.1 * sum(parameter.square().sum() for parameter in self.policy_module.parameters())


class PerRow(PPOLearner):
    def compute_loss_for_module(self, **kwargs: Any) -> torch.Tensor:
        return super().compute_loss_for_module(**kwargs) * torch.ones(3)


class TwoRates(PPOLearner):
    """A user's learner: the value function keeps a rate of its own."""

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        named = dict(self._module[module_id].named_parameters())
        value = [p for name, p in named.items() if "value" in name]
        policy = [p for name, p in named.items() if "value" not in name]
        optimizer = torch.optim.SGD([{"params": value, "lr": 0.25}, {"params": policy}], lr=1.0)
        self.register_optimizer(module_id=module_id, optimizer=optimizer, params=value + policy)


def test_a_term_added_to_the_loss_is_learnt_from() -> None:
    settings = {"optimizer": "sgd", "lr": 0.5}
    plain, ours = ppo_learner(**settings), ppo_learner(Regularized, **settings)
    before = weights(plain)
    for made in (plain, ours):
        made.learn(ppo_batch(), call())
    expected = {name: value - 0.5 * 0.2 * before[name] for name, value in weights(plain).items()}
    assert_equal_weights(weights(ours), expected, atol=1e-6)


def test_a_loss_per_row_is_refused() -> None:
    made = ppo_learner(PerRow)
    before = weights(made)
    with pytest.raises(
        InputError, match=r"^PerRow\.compute_loss_for_module: expected a scalar tensor, got shape \[3\]"
    ):
        made.learn(ppo_batch(), call())
    assert_equal_weights(weights(made), before)


def test_parameter_groups_keep_their_rates_and_those_at_the_configs_rate_follow_its_schedule() -> None:
    lr = Step(initial=1.0, factor=0.0, every=10)
    plain, ours = ppo_learner(optimizer="sgd", lr=lr), ppo_learner(TwoRates, lr=lr)
    assert isinstance(ours.stepper, OwnStepper)
    assert ours.optimizer_name.startswith("SGD(")
    before = weights(ours)
    for made in (plain, ours):
        made.learn(ppo_batch(), call(env_steps=0))
    rates = {name: 0.25 if "value" in name else 1.0 for name in before}
    expected = {name: before[name] + rate * (weights(plain)[name] - before[name]) for name, rate in rates.items()}
    assert_equal_weights(weights(ours), expected, atol=1e-6)
    before = weights(ours)
    ours.learn(ppo_batch(), call(env_steps=10))
    moved = {name for name, value in weights(ours).items() if not np.array_equal(value, before[name])}
    assert moved == {name for name in before if "value" in name}


def learn_ppo(made: Any, spoil: str | None) -> None:
    batch = ppo_batch(rows=96)
    if spoil:
        batch[spoil][40] = np.nan
    made.learn(batch, call(env_steps=77))


def learn_dqn(made: Any, spoil: str | None) -> None:
    batch = dqn_batch(3)
    if spoil:
        getattr(batch, spoil)[1, 0] = np.nan
    made.learn(batch, [75, 76, 77, 78])


@pytest.mark.parametrize(
    ("make", "learn", "spoil", "clip"),
    [
        (dqn_learner, learn_dqn, "rewards", {"grad_clip": None}),
        (dqn_learner, learn_dqn, "obs", {"grad_clip": 0.5, "grad_clip_by": "norm"}),
        (ppo_learner, learn_ppo, "obs", {"grad_clip": 0.5, "grad_clip_by": "value"}),
        (ppo_learner, learn_ppo, "advantages", {"grad_clip": 0.5, "grad_clip_by": "global_norm"}),
        (ppo_learner, learn_ppo, "value_targets", {"grad_clip": None}),
    ],
)
def test_a_loss_that_is_not_finite_is_named_and_never_applied(
    make: Any, learn: Any, spoil: str, clip: dict[str, Any]
) -> None:
    made = make(**clip)
    with pytest.raises(RunError, match="at env step 77 the loss is nan; its gradient was not applied"):
        learn(made, spoil)
    assert all(np.isfinite(value).all() for value in [*weights(made).values(), *made.optimizer_arrays().values()])
    learn(made, None)


class Infinite(PPOLearner):
    """A loss without bounds, whose gradient is an ordinary one."""

    def compute_loss_for_module(self, **kwargs: Any) -> torch.Tensor:
        return super().compute_loss_for_module(**kwargs) + torch.inf


def test_a_loss_that_is_not_finite_is_never_applied_whatever_its_gradient() -> None:
    made = ppo_learner(Infinite)
    before = weights(made)
    with pytest.raises(RunError, match="at env step 77 the loss is inf; its gradient was not applied"):
        made.learn(ppo_batch(), call())
    assert_equal_weights(weights(made), before)


def test_a_gradient_that_is_not_finite_is_named_by_its_parameters() -> None:
    class Steep(PPOLearner):
        def compute_loss_for_module(self, **kwargs: Any) -> torch.Tensor:
            bias = self.policy_module.net.policy_head.bias
            return super().compute_loss_for_module(**kwargs) + (bias - bias.detach()).sum().clamp(min=0.0).sqrt()

    made = ppo_learner(Steep)
    before = weights(made)
    with pytest.raises(RunError, match=r"the gradient of net\.policy_head\.bias is not finite; it was not applied"):
        made.learn(ppo_batch(), call())
    assert_equal_weights(weights(made), before)
