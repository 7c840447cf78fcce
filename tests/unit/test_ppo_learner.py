"""PPO's learner against RLlib's stock learner, and its own promises; no Ray is started."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.algorithms.ppo.ppo_catalog import PPOCatalog
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from tiny_learners import (
    SPACES,
    StockPPO,
    assert_equal_weights,
    call,
    ppo_batch,
    ppo_learner,
    stock_loss,
    weights,
)

from custom_models.actor_critic_module import actor_critic_mlp
from rayground.learners.advantages import ADVANTAGES
from rayground.learners.ppo import PPOLearner
from rayground.schedules import Step

LOSSES: dict[str, dict[str, Any]] = {
    "plain": {"use_kl_loss": False, "vf_clip_param": float("inf")},
    "kl": {"kl_coeff": 0.7},
    "entropy": {"use_kl_loss": False, "entropy_coeff": 0.05},
    "all": {"kl_coeff": 0.7, "entropy_coeff": 0.05, "vf_clip_param": 2.0, "vf_loss_coeff": 0.3, "clip_param": 0.1},
}


def pair(space: str, spec: Callable[[], RLModuleSpec] | None = None, **settings: Any) -> tuple[Any, Any]:
    """Our learner and RLlib's, with the same weights."""
    ours = ppo_learner(space=SPACES[space], spec=spec and spec(), **settings)
    stock = ppo_learner(StockPPO, space=SPACES[space], spec=spec and spec(), **settings)
    stock.module[DEFAULT_MODULE_ID].load_state_dict(ours.policy_module.state_dict())
    return ours, stock


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("losses", LOSSES)
def test_loss_gradient_and_step_equal_rllibs(space: str, losses: str) -> None:
    ours, stock = pair(space, optimizer="sgd", lr=0.01, **LOSSES[losses])
    config, batch = stock.config, ppo_batch(SPACES[space])
    advantages = batch[ADVANTAGES]
    normalized = (advantages - advantages.mean()) / advantages.std(ddof=1)
    tensors = {name: torch.tensor(array) for name, array in (batch | {ADVANTAGES: normalized}).items()}
    expected = stock_loss(stock, tensors)
    numbers = (config.clip_param, config.entropy_coeff, config.kl_coeff)
    found = ours.learn(batch, call(clip=numbers[0], entropy=numbers[1], kl=numbers[2]))
    assert found["loss"] == pytest.approx(expected.item(), abs=1e-5)
    parameters = list(stock.module[DEFAULT_MODULE_ID].parameters())
    gradients = torch.autograd.grad(expected, parameters)
    norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
    assert found["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
    assert norm > 0.1
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.data -= 0.01 * gradient
    theirs = {name: value.numpy() for name, value in stock.module[DEFAULT_MODULE_ID].state_dict().items()}
    assert_equal_weights(weights(ours), theirs, atol=1e-5)


def rllibs_own_module() -> RLModuleSpec:
    model = {"fcnet_hiddens": [8], "vf_share_layers": True}
    return RLModuleSpec(module_class=DefaultPPOTorchRLModule, model_config=model, catalog_class=PPOCatalog)


def test_with_rllibs_own_module_too() -> None:
    """It gives embeddings, and values when it is asked for them."""
    ours, stock = pair("discrete", rllibs_own_module, **LOSSES["all"])
    tensors = ours.to_tensors(**ppo_batch())
    ours._clip, ours._entropy_coeff, ours._kl_coeff = 0.1, 0.05, 0.7
    loss, _ = ours.loss(tensors)
    assert loss.item() == pytest.approx(stock_loss(stock, tensors).item(), abs=1e-5)
    before = weights(ours)
    found = ours.learn(ppo_batch(), call())
    assert np.isfinite(found["vf_explained_var"])
    same = {name for name, value in weights(ours).items() if np.array_equal(value, before[name])}
    assert {name for name in same if not name.endswith("log_std_clip_param_const")} == set()


def test_what_it_reports_is_of_the_policy_after_the_update() -> None:
    """Against RLlib's objects; the ratios that left the clip range are counted."""
    space = SPACES["box"]
    made = ppo_learner(space=space, lr=0.05, num_epochs=3)
    batch = ppo_batch(space)
    found = made.learn(batch, call(clip=0.2))
    distribution = made.policy_module.get_train_action_dist_cls()
    with torch.no_grad():
        out = made.policy_module.forward_train({"obs": torch.tensor(batch["obs"])})
        new = distribution.from_logits(out["action_dist_inputs"])
        old = distribution.from_logits(torch.tensor(batch["action_dist_inputs"]))
        ratio = (new.logp(torch.tensor(batch["actions"])) - torch.tensor(batch["action_logp"])).exp()
    assert found["entropy"] == pytest.approx(new.entropy().mean().item(), abs=1e-5)
    assert found["kl"] == pytest.approx(old.kl(new).mean().item(), rel=1e-5)
    assert 0 < found["clip_fraction"] < 1
    assert found["clip_fraction"] == pytest.approx(((ratio < 0.8) | (ratio > 1.2)).float().mean().item())
    residual = batch["value_targets"] - out["vf_preds"].numpy()
    assert found["vf_explained_var"] == pytest.approx(1 - residual.var() / batch["value_targets"].var(), abs=1e-5)


class Spy(PPOLearner):
    """Keeps the minibatches that its loss got."""

    def compute_loss_for_module(self, *, batch: dict[str, torch.Tensor], **kwargs: Any) -> torch.Tensor:
        self.__dict__.setdefault("seen", []).append(batch)
        return super().compute_loss_for_module(batch=batch, **kwargs)


def numbered(rows: int) -> dict[str, np.ndarray]:
    """A batch in which every row is known by the first number of its observation."""
    batch = ppo_batch(rows=rows)
    batch["obs"][:, 0] = np.arange(rows)
    return batch


@pytest.mark.parametrize(("rows", "size", "epochs"), [(12, 4, 3), (10, 4, 3), (10, 4, 2), (5, 8, 1), (3, 8, 5)])
def test_minibatches_have_one_size_and_every_row_comes_equally_often(rows: int, size: int, epochs: int) -> None:
    made = ppo_learner(Spy, num_epochs=epochs, minibatch_size=size)
    made.learn(numbered(rows), call())
    seen = [batch["obs"][:, 0].int().tolist() for batch in made.seen]
    assert {len(minibatch) for minibatch in seen} == {size}
    assert len(seen) == -(-rows * epochs // size)
    flat = [row for minibatch in seen for row in minibatch]
    for epoch in range(epochs):
        assert sorted(flat[epoch * rows : (epoch + 1) * rows]) == list(range(rows))
    assert flat[:rows] != sorted(flat[:rows])
    times = Counter(flat)
    assert max(times.values()) - min(times.values()) <= 1 + (rows < size)


def test_rows_stay_together_and_advantages_are_normalized_in_their_minibatch() -> None:
    made, batch = ppo_learner(Spy, num_epochs=2, minibatch_size=4), numbered(12)
    made.learn(batch, call())
    for minibatch in made.seen:
        rows = minibatch["obs"][:, 0].long().numpy()
        for name in ("actions", "action_logp", "action_dist_inputs", "value_targets"):
            np.testing.assert_array_equal(minibatch[name].numpy(), batch[name][rows])
        advantages = batch[ADVANTAGES][rows]
        normalized = (advantages - advantages.mean()) / advantages.std(ddof=1)
        np.testing.assert_allclose(minibatch[ADVANTAGES].numpy(), normalized, atol=1e-5)


def test_the_order_comes_from_the_seed_alone() -> None:
    def order(seed: int) -> list[float]:
        made, batch = ppo_learner(Spy, minibatch_size=4), numbered(12)
        torch.manual_seed(np.random.default_rng().integers(1 << 30))
        before = torch.get_rng_state()
        made.learn(batch, call(seed=seed))
        assert torch.equal(torch.get_rng_state(), before)
        return torch.cat([batch["obs"][:, 0] for batch in made.seen]).tolist()

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_the_rate_follows_its_schedule() -> None:
    made = ppo_learner(optimizer="sgd", lr=Step(initial=1.0, factor=0.0, every=10))
    made.learn(ppo_batch(), call(env_steps=9))
    moved = weights(made)
    made.learn(ppo_batch(), call(env_steps=10))
    assert_equal_weights(weights(made), moved)


def test_a_clip_range_of_nothing_stops_the_policy_but_not_the_values() -> None:
    """After one step every ratio is on one side of 1 or the other: what would gain is cut."""
    made = ppo_learner(optimizer="sgd", lr=1e-3, use_kl_loss=False, vf_loss_coeff=0.0)
    batch = ppo_batch()
    inputs = made.policy_module.forward_train({"obs": torch.tensor(batch["obs"])})["action_dist_inputs"].detach()
    distribution = made.policy_module.get_train_action_dist_cls().from_logits(inputs)
    batch["action_logp"] = distribution.logp(torch.tensor(batch["actions"])).numpy()
    wide = made.learn(batch, call(clip=0.3))["grad_norm"]
    narrow = made.learn(batch, call(clip=0.0))["grad_norm"]
    assert narrow < 0.8 * wide


def test_values_need_no_gradient_and_are_those_of_the_net() -> None:
    made = ppo_learner(spec=actor_critic_mlp(hidden=[8], shared=True))
    obs = ppo_batch()["obs"]
    expected = made.policy_module.net.value(torch.tensor(obs)).detach().numpy()
    assert made.values(obs).dtype == np.float32
    np.testing.assert_allclose(made.values(obs), expected, atol=1e-6)


def test_rows_are_dealt_out_to_learners_and_means_put_together() -> None:
    shards = PPOLearner.shard(numbered(11), 3)
    assert [shard["obs"][:, 0].tolist() for shard in shards] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    assert all(len(column) == 3 for shard in shards for column in shard.values())
    assert PPOLearner.merge([{"loss": 1.0, "kl": 3.0}, {"loss": 2.0, "kl": 5.0}]) == {"loss": 1.5, "kl": 4.0}
