"""Updates compiled whole: the same weights as eager, numbers that change without a new graph, refusals in one line."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tiny_learners import (
    SPACES,
    assert_equal_weights,
    call,
    dqn_batch,
    dqn_learner,
    ppo_batch,
    ppo_learner,
    weights,
)

from custom_models.actor_critic_module import actor_critic_module
from custom_models.nets import ActorCriticMLP
from rayground.budget import check_compiler
from rayground.errors import InputError, RunError
from rayground.schedules import Step


@pytest.fixture(scope="module", autouse=True)
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    try:
        check_compiler()
    except InputError as error:
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield


def test_ppo_goes_the_same_way_and_its_numbers_change_without_a_new_graph(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="rayground")
    space = SPACES["box"]
    settings = {"space": space, "lr": Step(0.05, 0.1, 100), "entropy_coeff": 0.01, "grad_clip": 5.0, "num_epochs": 2}
    eager = ppo_learner(**settings, minibatch_size=16)
    made = ppo_learner(**settings, minibatch_size=16, compiled=True)
    assert_equal_weights(weights(made), weights(eager))  # trying it has left nothing behind
    assert made.compile_s > 0
    assert "compiled the update in" in caplog.text
    with torch._dynamo.config.patch(error_on_recompile=True):
        found = [learner.learn(ppo_batch(space, rows=24), call(0, entropy=0.01)) for learner in (eager, made)]
        assert found[0] == pytest.approx(found[1], rel=1e-3, abs=1e-5)
        assert_equal_weights(weights(made), weights(eager), atol=1e-5)
        later = call(100, clip=0.05, entropy=0.2, kl=3.0)  # the rate is a tenth by then
        change = eager.config.copy(copy_frozen=False).training(vf_clip_param=2.0, vf_loss_coeff=0.1, grad_clip=0.3)
        for learner in (eager, made):
            learner.use_settings(change if learner is eager else change.framework(torch_compile_learner=True))
            learner.learn(ppo_batch(space, rows=30, seed=1), later)
        assert_equal_weights(weights(made), weights(eager), atol=1e-5)
        before, bad = weights(made), ppo_batch(space)
        bad["advantages"][:] = np.nan
        with pytest.raises(RunError, match="at env step 78 the loss is nan; its gradient was not applied"):
            made.learn(bad, call(78))
    assert all(np.isfinite(value).all() for value in weights(made).values())
    assert max(np.abs(value - before[name]).max() for name, value in weights(made).items()) < 0.1


def test_dqn_goes_the_same_way() -> None:
    settings = {"lr": Step(0.05, 0.1, 4), "grad_clip": 0.5, "train_batch_size": 8, "target_network_update_freq": 2}
    eager = dqn_learner(**settings)
    made = dqn_learner(**settings, compiled=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        found = [learner.learn(dqn_batch(6), range(7)) for learner in (eager, made)]
    np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-5)
    assert_equal_weights(weights(made), weights(eager), atol=1e-5)
    arrays = eager.optimizer_arrays()
    assert_equal_weights(made.optimizer_arrays(), arrays, atol=1e-5)
    assert {int(value) for name, value in arrays.items() if name.endswith("/step")} == {6}


@pytest.mark.parametrize("space", SPACES)
def test_the_graph_is_made_for_the_batches_that_come(space: str) -> None:
    made = ppo_learner(space=SPACES[space])
    example = made.example_batch()
    batch = made.to_tensors(**ppo_batch(SPACES[space]))
    assert {n: (v.shape, v.dtype) for n, v in example.items()} == {n: (v.shape, v.dtype) for n, v in batch.items()}


class Breaks(ActorCriticMLP):
    def policy(self, obs: torch.Tensor) -> torch.Tensor:
        if obs.sum().item() > 1e9:  # depends on data
            return super().policy(-obs)
        return super().policy(obs)

    def forward(self, obs: torch.Tensor) -> Any:
        return self.policy(obs), self.value(obs)


def test_what_cannot_be_compiled_is_refused_in_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError) as refused:
        ppo_learner(spec=actor_critic_module(Breaks), compiled=True)
    message = str(refused.value)
    assert message.startswith("torch_compile_learner: ActorCriticModule and its loss cannot be compiled: ")
    assert message.endswith("; leave --compile out")
    assert "test_compile.py" in message
    assert "\n" not in message
    assert len(message) < 400
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""
