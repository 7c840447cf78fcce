"""DQN's learner against RLlib's stock learner, and its own promises; no Ray is started."""

from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from tiny_learners import StockDQN, dqn_batch, dqn_learner, stock_loss

from rayground.errors import CheckpointError
from rayground.schedules import Step


def separate_target(made: Any) -> None:
    """Gives the target network weights of its own: right after the start it equals the online network."""
    torch.manual_seed(7)
    for _, target in made.module[DEFAULT_MODULE_ID].get_target_network_pairs():
        for parameter in target.parameters():
            parameter.data.normal_(0.0, 0.3)


@pytest.mark.parametrize("double_q", [True, False])
@pytest.mark.parametrize("loss", ["huber", "mse"])
def test_the_loss_equals_rllibs_for_the_same_batch_and_weights(double_q: bool, loss: str) -> None:
    settings = {"double_q": double_q, "td_error_loss_fn": loss, "gamma": 0.9}
    ours = dqn_learner(**settings)
    separate_target(ours)
    b = dqn_batch()
    stock = dqn_learner(StockDQN, **settings)
    stock.module[DEFAULT_MODULE_ID].load_state_dict(ours.policy_module.state_dict())
    stock_batch = {
        "obs": torch.tensor(b.obs[0]),
        "new_obs": torch.tensor(b.next_obs[0]),
        "actions": torch.tensor(b.actions[0]),
        "rewards": torch.tensor(b.rewards[0]),
        "terminateds": torch.tensor(b.discounts[0] == 0),
        "weights": torch.tensor(b.weights[0]),
        "n_step": torch.full((8,), 3.0),
    }
    td_errors, means = ours.learn(b, [0, 1])
    assert means["loss"] == pytest.approx(stock_loss(stock, stock_batch).item(), abs=1e-5)
    assert td_errors.shape == (1, 8)


def test_one_sgd_step_is_the_gradient_times_the_rate() -> None:
    ours = dqn_learner(optimizer="sgd", lr=0.5)
    before = {name: p.detach().clone() for name, p in ours.policy_module.named_parameters()}
    _, means = ours.learn(dqn_batch(), [0, 1])
    moved = sum(((p.detach() - before[n]) ** 2).sum() for n, p in ours.policy_module.named_parameters()).sqrt()
    assert means["grad_norm"] > 0
    assert moved.item() == pytest.approx(0.5 * means["grad_norm"], rel=1e-5)


@pytest.mark.parametrize("by", ["global_norm", "norm", "value"])
def test_gradients_are_clipped(by: str) -> None:
    ours = dqn_learner(optimizer="sgd", lr=1.0, grad_clip=1e-3, grad_clip_by=by)
    before = {name: p.detach().clone() for name, p in ours.policy_module.named_parameters() if p.requires_grad}
    ours.learn(dqn_batch(), [0, 1])
    moves = [p.detach() - before[n] for n, p in ours.policy_module.named_parameters() if n in before]
    sizes = {
        "global_norm": torch.cat([m.flatten() for m in moves]).norm(),
        "norm": max(m.norm() for m in moves),
        "value": max(m.abs().max() for m in moves),
    }
    assert sizes[by].item() == pytest.approx(1e-3, rel=1e-3)


def test_the_rate_follows_its_schedule_at_every_gradient_step() -> None:
    ours = dqn_learner(optimizer="sgd", lr=Step(initial=1.0, factor=0.0, every=10))
    online = [p for p in ours.policy_module.parameters() if p.requires_grad]
    ours.learn(dqn_batch(), [0, 9])
    moved = [p.detach().clone() for p in online]
    ours.learn(dqn_batch(2), [9, 10, 11])
    assert all(torch.equal(a, b) for a, b in zip(moved, online, strict=True))
    assert ours.optimizer.param_groups[0]["lr"] == 0.0


def distance(made: Any) -> float:
    return sum(
        (a - b).abs().sum().item()
        for online, target in made.policy_module.get_target_network_pairs()
        for a, b in zip(online.state_dict().values(), target.state_dict().values(), strict=True)
    )


def test_hard_target_updates_come_at_multiples_of_their_frequency() -> None:
    ours = dqn_learner(target_network_update_freq=10, tau=1.0)
    ours.learn(dqn_batch(), [0, 9])
    assert distance(ours) > 0
    ours.learn(dqn_batch(), [9, 10])
    assert distance(ours) == 0
    assert ours.num_target_updates == 1
    ours.learn(dqn_batch(3), [10, 12, 21, 31])
    assert ours.num_target_updates == 3


def test_soft_target_updates_move_by_tau() -> None:
    ours = dqn_learner(target_network_update_freq=1, tau=0.25)
    separate_target(ours)
    (online, target), *_ = ours.policy_module.get_target_network_pairs()
    before = [p.clone() for p in target.state_dict().values()]
    ours.learn(dqn_batch(), [0, 1])
    for old, new, source in zip(before, target.state_dict().values(), online.state_dict().values(), strict=True):
        torch.testing.assert_close(new, 0.75 * old + 0.25 * source)


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", {"type": "sgd", "momentum": 0.9}])
def test_saved_and_restored_it_goes_on_bit_for_bit(optimizer: Any) -> None:
    one, other = dqn_learner(optimizer=optimizer), dqn_learner(optimizer=optimizer)
    one.learn(dqn_batch(3), [0, 1, 2, 3])
    state = [{k: v.copy() for k, v in arrays.items()} for arrays in (one.module_arrays(), one.optimizer_arrays())]
    other.learn(dqn_batch(2, seed=9), [0, 1, 2])
    other.load_module_arrays(state[0])
    other.load_optimizer_arrays(state[1], one.optimizer_name)
    for made in (one, other):
        made.learn(dqn_batch(2, seed=5), [3, 4, 5])
    assert one.module_arrays().keys() == other.module_arrays().keys()
    assert all(np.array_equal(value, other.module_arrays()[name]) for name, value in one.module_arrays().items())


def test_weights_that_do_not_fit_are_an_error() -> None:
    arrays = dqn_learner().module_arrays()
    name = next(iter(arrays))
    with pytest.raises(CheckpointError, match=f"do not fit QModule: {name}"):
        dqn_learner().load_module_arrays({**arrays, name: np.zeros((1, 1), np.float32)})
    with pytest.raises(CheckpointError, match="do not fit"):
        dqn_learner().load_module_arrays({k: v for k, v in arrays.items() if k != name})
