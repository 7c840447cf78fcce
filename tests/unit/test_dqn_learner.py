"""DQN's learner against RLlib's stock learner, and its own promises; no Ray is started."""

from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from tiny_learners import StockDQN, dqn_batch, dqn_learner, stock_loss

from custom_models.q_module import dueling_mlp
from rayground.errors import CheckpointError
from rayground.replay import Batch, SlottedReplay
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


@pytest.mark.parametrize("compiled", [False, True])
def test_masked_actions_are_neither_valued_nor_bootstrapped_from(compiled: bool) -> None:
    """By hand: a dueling net without hidden layers, whose values of an observation (x, 0, 0) are x times what is set.

    Rows: the best next action is illegal; the best legal one by the online net is another by the target net; nothing
    is legal after a cut; everything is, after a terminal step.
    """
    made = dqn_learner(
        spec=dueling_mlp(hidden=[]), td_error_loss_fn="mse", replay=SlottedReplay(), masked=True, compiled=compiled
    )
    (online, target), *_ = made.policy_module.get_target_network_pairs()
    for net, advantages in ((online, [1.0, 4.0, 2.0, 9.0]), (target, [5.0, 1.0, 3.0, 7.0])):
        net.head.streams.weight.data.zero_()
        net.head.streams.bias.data.zero_()
        net.head.streams.weight.data[:, 0] = torch.tensor([10.0, *advantages])
    x = np.zeros((1, 4, 3), np.float32)
    x[..., 0] = 1.0
    on, off = True, False
    masks = np.array([[[on, on, off, off], [on, on, on, off], [off, off, on, on], [on, off, off, off]]])
    next_masks = np.array([[[on, off, on, off], [on, on, off, off], [off] * 4, [on] * 4]])
    actions, rewards = np.array([[0, 1, 2, 0]]), np.array([[0.5, 0.0, 2.0, 1.0]], np.float32)
    discounts, ones = np.array([[0.9, 0.5, 0.9, 0.0]], np.float32), np.ones((1, 4), np.float32)
    batch = Batch(x, actions, rewards, x, discounts, ones, actions, masks, next_masks)
    td_errors, _ = made.learn(batch, [0, 1])
    # Q = V + A - mean of the legal A; the online net picks 2, 1 (of 1 and 4), none, 3; the target net values it.
    values = [10 + 1 - 2.5, 10 + 4 - 7 / 3, 10 + 2 - 5.5, 10 + 1 - 1]
    targets = [0.5 + 0.9 * (10 + 3 - 4), 0.5 * (10 + 1 - 3), 2.0, 1.0]
    np.testing.assert_allclose(td_errors[0], np.array(values) - targets, rtol=0, atol=1e-5)
    assert all(torch.isfinite(p).all() for p in made.policy_module.parameters())
