"""A2C's learner against plain torch; A3C's, which also takes gradients from elsewhere; no Ray is started."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_rollouts import random_rollout
from tiny_learners import DISCRETE, SPACES, a2c_batch, a2c_call, a2c_learner, assert_equal_weights, weights
from torch.distributions import Categorical, Normal

from rayground.budget import check_compiler
from rayground.errors import InputError, RunError
from rayground.learners.a2c import A2CLearner, A3CLearner, batch_of
from rayground.learners.advantages import ADVANTAGES, VALUE_TARGETS, WEIGHTS, judged
from rayground.rollouts.rollout import Rollout
from rayground.schedules import Step

RMSPROP = {"type": "rmsprop", "alpha": 0.9, "eps": 0.01}
OPTIMIZERS: dict[str, tuple[Any, Callable[..., torch.optim.Optimizer]]] = {
    "default": (None, lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.99, eps=1e-5)),
    "rmsprop": (RMSPROP, lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9, eps=0.01)),
    "adam": ("adam", lambda p: torch.optim.Adam(p, lr=0.01)),
}


def learner(*args: Any, **settings: Any) -> Any:
    """With random weights: the policy's first ones are so small that nothing of its entropy is seen."""
    made = a2c_learner(*args, **{"lr": 0.01} | settings)
    made.flat.vector.copy_(0.4 * torch.randn(made.flat.vector.shape, generator=torch.Generator().manual_seed(1)))
    return made


def plain_loss(
    module: Any, space: gym.Space, batch: dict[str, np.ndarray], entropy: float, vf: float
) -> dict[str, torch.Tensor]:
    """The loss by torch's own distributions, a mean over the rows that hold a transition."""
    rows = {name: torch.tensor(column[batch[WEIGHTS] > 0]) for name, column in batch.items()}
    inputs, values = module.net(rows["obs"])
    actions = rows["actions"].reshape(len(inputs), -1).unbind(1)
    if isinstance(space, gym.spaces.Box):
        means, log_stds = inputs.chunk(2, dim=1)
        parts: list[Any] = [Normal(mean, log.exp()) for mean, log in zip(means.T, log_stds.T, strict=True)]
    else:
        sizes = [int(space.n)] if isinstance(space, gym.spaces.Discrete) else space.nvec.tolist()
        parts = [Categorical(logits=logits) for logits in inputs.split(sizes, dim=1)]
    logp = sum(part.log_prob(action) for part, action in zip(parts, actions, strict=True))
    found = {
        "policy_loss": -(logp * rows[ADVANTAGES]).mean(),
        "vf_loss": (values - rows[VALUE_TARGETS]).pow(2).mean(),
        "entropy": sum(part.entropy() for part in parts).mean(),
    }
    return found | {"loss": found["policy_loss"] + vf * found["vf_loss"] - entropy * found["entropy"]}


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_loss_gradient_and_steps_are_those_of_plain_torch(space: str, clip: float | None, optimizer: str) -> None:
    setting, make_optimizer = OPTIMIZERS[optimizer]
    made = learner(space=SPACES[space], grad_clip=clip, optimizer=setting)
    module = copy.deepcopy(made.policy_module)
    twin = make_optimizer(module.parameters())
    for step, (entropy, vf) in enumerate([(0.3, 0.5), (0.0, 0.25), (0.02, 2.0)]):
        batch = a2c_batch(SPACES[space], seed=step)
        expected = plain_loss(module, SPACES[space], batch, entropy, vf)
        twin.zero_grad()
        expected["loss"].backward()
        norm = torch.nn.utils.clip_grad_norm_(module.parameters(), clip or torch.inf)
        twin.step()
        found = made.learn(batch, a2c_call(entropy=entropy, vf=vf))
        assert found.pop("grad_norm") == pytest.approx(norm.item(), rel=1e-4)
        assert found == pytest.approx({name: value.item() for name, value in expected.items()}, rel=1e-4, abs=1e-5)
        assert norm > 0.5
    theirs = {name: value.numpy() for name, value in module.state_dict().items()}
    assert_equal_weights(weights(made), theirs, atol=1e-5)


@pytest.mark.parametrize("space", SPACES)
def test_rows_without_a_transition_change_nothing(space: str) -> None:
    batch, other = (a2c_batch(SPACES[space], seed=seed) for seed in (0, 1))
    empty = batch[WEIGHTS] == 0
    assert 0 < empty.sum() < len(empty)
    spoilt = {name: np.where(empty.reshape(-1, *[1] * (c.ndim - 1)), other[name], c) for name, c in batch.items()}
    spoilt[ADVANTAGES] *= np.where(empty, 1e3, 1).astype(np.float32)
    spoilt[WEIGHTS] = batch[WEIGHTS]
    first, second = learner(space=SPACES[space]), learner(space=SPACES[space])
    assert first.learn(batch, a2c_call(entropy=0.1)) == second.learn(spoilt, a2c_call(entropy=0.1))
    assert_equal_weights(weights(second), weights(first))


def values(obs: np.ndarray) -> np.ndarray:
    return obs[:, 0] - 2 * obs[:, 2]


def one_lane(*valid: bool) -> Rollout:
    """Of a random rollout, with other rows in which the environment resets itself."""
    rollout, _ = random_rollout(len(valid), 1, seed=4)
    rollout.valid = np.array(valid)[:, None]
    return rollout


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(0, 10**6)), min_size=1, max_size=4),
    st.floats(0.5, 1.0),
)
def test_a_batch_holds_every_row_of_all_rollouts(shapes: list[tuple[int, int, int]], lambda_: float) -> None:
    rollouts = [random_rollout(*shape)[0] for shape in shapes]
    rollouts.append(one_lane(False, True))  # there is one transition at least
    batch = batch_of(rollouts, values, 0.9, lambda_)
    rows: dict[str, list[Any]] = {name: [] for name in batch}
    for rollout in rollouts:
        parts = judged(rollout, values, 0.9, lambda_) | {WEIGHTS: rollout.valid}
        for t, lane in np.ndindex(rollout.valid.shape):
            for name, column in parts.items():
                rows[name].append(column[t, lane])
    valid = np.array(rows.pop(WEIGHTS))
    source = np.where(valid, np.arange(len(valid)), valid.argmax())  # a row that holds nothing could spoil a loss
    for name, expected in rows.items():
        np.testing.assert_array_equal(batch[name], np.array(expected)[source], err_msg=name)
    assert batch[WEIGHTS] == pytest.approx(valid * len(valid) / valid.sum())
    assert batch[WEIGHTS].mean() == pytest.approx(1.0)


def test_weights_by_hand() -> None:
    batch = batch_of([one_lane(True, False, True), one_lane(True, True)], values, 0.9, 1.0)
    assert batch[WEIGHTS].tolist() == [1.25, 0.0, 1.25, 1.25, 1.25]


@pytest.mark.parametrize("num_learners", [0, 2])
def test_the_graph_is_made_for_the_batches_that_come(num_learners: int) -> None:
    made = a2c_learner()
    made.config = made.config.copy(copy_frozen=False).learners(num_learners=num_learners)
    rollouts = [random_rollout(8, 4, seed=0)[0]]  # what the config says
    batch = made.to_tensors(**A2CLearner.shard(batch_of(rollouts, made.values, 0.9, 1.0), max(1, num_learners))[0])
    example = made.example_batch()
    assert {n: (v.shape, v.dtype) for n, v in example.items()} == {n: (v.shape, v.dtype) for n, v in batch.items()}
    assert len(example[WEIGHTS]) == 32 // max(1, num_learners)


def test_the_rate_follows_its_schedule() -> None:
    made = learner(lr=Step(initial=1.0, factor=0.0, every=10), optimizer="sgd")
    before = weights(made)
    made.learn(a2c_batch(), a2c_call(env_steps=9))
    moved = weights(made)
    assert any(np.abs(value - before[name]).max() > 0.1 for name, value in moved.items())
    made.learn(a2c_batch(), a2c_call(env_steps=10))
    assert_equal_weights(weights(made), moved)


@pytest.mark.parametrize("learner_class", [A2CLearner, A3CLearner])
@pytest.mark.parametrize("coeff", [0.0, 0.01])
def test_without_an_entropy_coefficient_no_gradient_of_it_is_computed_but_it_is_told(
    learner_class: type, coeff: float
) -> None:
    made = learner(learner_class, entropy_coeff=coeff)
    needed, entropy = [], made._terms.entropy
    made._terms.entropy = lambda inputs: needed.append(inputs.requires_grad) or entropy(inputs)
    expected = plain_loss(made.policy_module, DISCRETE, a2c_batch(), 0.0, 0.5)["entropy"].item()
    assert made.learn(a2c_batch(), a2c_call(entropy=coeff))["entropy"] == pytest.approx(expected, rel=1e-5)
    assert needed == [coeff > 0]


@pytest.mark.parametrize("n", [2, 4])
def test_the_shards_gradients_are_on_average_that_of_the_whole(n: int) -> None:
    """Also where one shard has more rows without a transition than another: weights are of the whole."""
    made, batch = learner(), a2c_batch()
    made.take_settings(a2c_call(entropy=0.1))
    shards = A2CLearner.shard(batch, n)
    assert len({int((shard[WEIGHTS] > 0).sum()) for shard in shards}) > 1
    parts = [made.gradient(made.to_tensors(**shard)) for shard in shards]
    found = torch.stack([made.gradient(made.to_tensors(**shard))[0].clone() for shard in shards]).mean(dim=0)
    whole, stats = made.gradient(made.to_tensors(**batch))
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-6)
    merged = A2CLearner.merge([{name: value.item() for name, value in part.items()} for _, part in parts])
    assert merged == pytest.approx({name: value.item() for name, value in stats.items()}, rel=1e-4)


def steep(learner_class: type) -> type:
    """Either the gradient of one bias is infinite and the loss is not, or the other way round."""

    class Steep(learner_class):
        spoils: str | None = "gradient"

        def compute_loss_for_module(self, **kwargs: Any) -> torch.Tensor:
            bias = self.policy_module.net.policy_head.bias
            edge = (bias - bias.detach()).sum().clamp(min=0.0).sqrt()
            added = {"gradient": edge, "loss": torch.tensor(torch.inf)}.get(self.spoils, 0.0)
            return super().compute_loss_for_module(**kwargs) + added

    return Steep


def spoilt(what: str) -> dict[str, np.ndarray]:
    batch = a2c_batch(seed=5)
    batch[what][0] = np.nan
    return batch


@pytest.mark.parametrize("what", ["obs", ADVANTAGES, VALUE_TARGETS])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_a2c_raises_where_the_loss_is_not_finite(what: str, clip: float | None) -> None:
    made = learner(grad_clip=clip)
    made.learn(a2c_batch(), a2c_call())
    before = weights(made)
    with pytest.raises(RunError, match="at env step 78 the loss is nan; its gradient was not applied"):
        made.learn(spoilt(what), a2c_call(78))
    assert all(np.isfinite(value).all() for value in made.optimizer_arrays().values())
    assert all(np.abs(value - before[name]).max() < 0.1 for name, value in weights(made).items())


def test_a2c_raises_where_the_gradient_is_not_finite() -> None:
    with pytest.raises(RunError, match=r"the gradient of net\.policy_head\.bias is not finite; it was not applied"):
        learner(steep(A2CLearner)).learn(a2c_batch(), a2c_call())


@pytest.mark.parametrize("how", ["loss", "gradient", "rows", "from elsewhere"])
@pytest.mark.parametrize("optimizer", ["adam", RMSPROP])
def test_a3c_drops_what_is_not_finite_and_goes_on_as_if_it_had_not_been(how: str, optimizer: Any) -> None:
    made, spared = (learner(steep(A3CLearner), optimizer=optimizer, grad_clip=0.5) for _ in range(2))
    for one in (made, spared):
        one.spoils = None
        one.learn(a2c_batch(seed=0), a2c_call())
    before, moments = weights(made), {name: value.copy() for name, value in made.optimizer_arrays().items()}
    if how == "from elsewhere":
        gradient = np.zeros(made.flat.vector.shape, np.float32)
        gradient[3] = -np.inf
        found = made.apply_array(gradient, 77)
    else:
        made.spoils = how
        found = made.learn(spoilt(ADVANTAGES) if how == "rows" else a2c_batch(seed=1), a2c_call())
        made.spoils = None
    assert found == {"dropped": 1.0}
    assert_equal_weights(weights(made), before)
    assert_equal_weights(made.optimizer_arrays(), moments)
    assert {float(value) for name, value in moments.items() if name.endswith("/step")} == {1.0}
    for one in (made, spared):
        assert one.learn(a2c_batch(seed=2), a2c_call())["dropped"] == 0.0
    assert_equal_weights(weights(made), weights(spared))
    assert_equal_weights(made.optimizer_arrays(), spared.optimizer_arrays())


@pytest.mark.parametrize("clip", [None, 0.5])
def test_a3c_learns_as_a2c_does_from_a_batch_or_a_gradient_of_another(clip: float | None) -> None:
    """Each step is taken by three learners, and by a fourth with the gradients that the third has computed."""
    settings = {"grad_clip": clip, "lr": Step(0.05, 0.5, 2), "entropy_coeff": 0.1}
    a2c = learner(A2CLearner, **settings)
    whole, halves, elsewhere = (learner(A3CLearner, **settings) for _ in range(3))
    for step in range(4):
        batch, call = a2c_batch(seed=step), a2c_call(env_steps=step, entropy=0.1)
        expected = a2c.learn(batch, call)
        assert whole.learn(batch, call) == expected | {"dropped": 0.0}
        stats = halves.gradient_of(batch, call)
        sent = halves.gradient_P.numpy().copy()
        sent.flags.writeable = False  # as Ray gives it
        assert stats | halves.apply_gradient(halves.gradient_P, step) == expected | {"dropped": 0.0}
        kept = sent.copy()
        assert elsewhere.apply_array(sent, step) == {"grad_norm": expected["grad_norm"], "dropped": 0.0}
        np.testing.assert_array_equal(sent, kept)
    for one in (whole, halves, elsewhere):
        assert_equal_weights(weights(one), weights(a2c))
        assert_equal_weights(one.optimizer_arrays(), a2c.optimizer_arrays())


def test_compiled_it_goes_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        check_compiler()
    except InputError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    settings = {"space": DISCRETE, "lr": Step(0.05, 0.1, 100), "entropy_coeff": 0.01, "grad_clip": 0.5}
    eager, made = learner(**settings), learner(compiled=True, **settings)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for step, (entropy, vf) in enumerate([(0.01, 0.5), (0.3, 0.1)]):
            call = a2c_call(env_steps=100 * step, entropy=entropy, vf=vf)
            found = [one.learn(a2c_batch(DISCRETE, seed=step), call) for one in (eager, made)]
            assert found[0] == pytest.approx(found[1], rel=1e-3, abs=1e-5)
        assert_equal_weights(weights(made), weights(eager), atol=1e-5)
        bad = a2c_batch(DISCRETE)
        bad[ADVANTAGES][0] = np.inf
        with pytest.raises(RunError, match="at env step 7 the loss is "):
            made.learn(bad, a2c_call(env_steps=7))
    assert all(np.isfinite(value).all() for value in weights(made).values())
