"""What is sampled from a module's distribution, against the distribution itself."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import MultiDiscrete
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import (
    TorchCategorical,
    TorchDiagGaussian,
    TorchMultiCategorical,
    TorchSquashedGaussian,
)

from rayground.rollouts.actions import FragmentActions, sampler_of

STEPS, ENVS = 2_000, 4
SIZES = [2, 3]
MULTI = TorchMultiCategorical.get_partial_dist_cls(space=MultiDiscrete(SIZES), input_lens=SIZES)
LOGITS = torch.tensor([[0.0, 1.0, -2.0], [0.0, 0.0, 0.0], [5.0, 0.0, 0.0], [-1.0, float("-inf"), 1.0]])
MULTI_LOGITS = torch.tensor([[0.0, 1.0, 1.0, 0.0, -1.0]]).repeat(ENVS, 1)
GAUSSIAN = torch.tensor([[0.0, 3.0, 0.0, -1.0]]).repeat(ENVS, 1)


class Own(TorchCategorical):
    """A distribution that RLlib's runner would sample from by its own methods."""


class Answers:
    """Stands for a module: it says which distribution its answers are the inputs of."""

    def __init__(self, distribution: Any) -> None:
        self.get_exploration_action_dist_cls = self.get_inference_action_dist_cls = lambda: distribution


def sampled(distribution: Any, inputs: torch.Tensor, shape: tuple[int, ...], dtype: Any, **how: Any) -> FragmentActions:
    torch.manual_seed(0)
    made = FragmentActions(Answers(distribution), np.empty((STEPS, ENVS, *shape), dtype), **({"explore": True} | how))
    for t in range(STEPS):
        assert np.array_equal(made.take(t, {Columns.ACTION_DIST_INPUTS: inputs}), made.actions[t])
    made.finish()
    return made


def assert_logp_is_rllibs(made: FragmentActions, distribution: Any) -> None:
    inputs, actions = torch.from_numpy(made.extras[Columns.ACTION_DIST_INPUTS]), torch.from_numpy(made.actions)
    per_step = [distribution.from_logits(i).logp(a).numpy() for i, a in zip(inputs[:20], actions[:20], strict=True)]
    np.testing.assert_allclose(made.extras[Columns.ACTION_LOGP][:20], per_step, rtol=1e-6)
    assert made.extras[Columns.ACTION_LOGP].shape == (STEPS, ENVS)


def assert_frequencies(actions: np.ndarray, logits: torch.Tensor) -> None:
    """Within five standard deviations of the softmax."""
    p = torch.softmax(logits, -1).numpy()
    got = (actions[..., None] == np.arange(len(p))).reshape(-1, len(p)).mean(0)
    assert np.all(np.abs(got - p) <= 5 * np.sqrt(p * (1 - p) / actions.size)), (got, p)


def test_categorical() -> None:
    made = sampled(TorchCategorical, LOGITS, (), np.int64)
    for env in range(ENVS):
        assert_frequencies(made.actions[:, env], LOGITS[env])
    assert not np.any(made.actions[:, 3] == 1)  # its logit is -inf
    assert_logp_is_rllibs(made, TorchCategorical)


def test_neighbouring_steps_and_environments_are_independent() -> None:
    actions = sampled(TorchCategorical, torch.zeros(ENVS, 2), (), np.int64).actions * 2.0 - 1.0
    assert abs((actions[1:] * actions[:-1]).mean()) < 5 / np.sqrt(actions.size)
    assert abs((actions[:, 1:] * actions[:, :-1]).mean()) < 5 / np.sqrt(actions.size)


def test_multi_categorical() -> None:
    made = sampled(MULTI, MULTI_LOGITS, (2,), np.int64)
    assert_frequencies(made.actions[..., 0], MULTI_LOGITS[0, :2])
    assert_frequencies(made.actions[..., 1], MULTI_LOGITS[0, 2:])
    assert_logp_is_rllibs(made, MULTI)


def test_gaussian() -> None:
    made = sampled(TorchDiagGaussian, GAUSSIAN, (2,), np.float32)
    flat = made.actions.reshape(-1, 2)
    std = np.exp([0.0, -1.0])
    assert np.all(np.abs(flat.mean(0) - [0.0, 3.0]) < 5 * std / np.sqrt(len(flat)))
    np.testing.assert_allclose(flat.std(0), std, rtol=0.05)
    assert abs(np.corrcoef(flat.T)[0, 1]) < 0.05
    assert_logp_is_rllibs(made, TorchDiagGaussian)


def test_any_other_distribution_is_sampled_by_its_own_methods() -> None:
    made = sampled(TorchSquashedGaussian, GAUSSIAN, (2,), np.float32)
    assert np.abs(made.actions).max() <= 1.0
    assert_logp_is_rllibs(made, TorchSquashedGaussian)
    assert sampler_of(TorchSquashedGaussian) is None
    assert sampler_of(Own) is None


@pytest.mark.parametrize(
    ("distribution", "inputs", "shape", "dtype"),
    [
        (TorchCategorical, LOGITS, (), np.int64),
        (MULTI, MULTI_LOGITS, (2,), np.int64),
        (TorchDiagGaussian, GAUSSIAN, (2,), np.float32),
        (TorchSquashedGaussian, GAUSSIAN, (2,), np.float32),
    ],
)
def test_greedy_actions_are_rllibs(distribution: Any, inputs: torch.Tensor, shape: Any, dtype: Any) -> None:
    made = sampled(distribution, inputs, shape, dtype, explore=False)
    expected = distribution.from_logits(inputs).to_deterministic().sample().numpy()
    assert np.array_equal(made.actions[0], expected)
    assert np.array_equal(made.actions[-1], expected)
    assert not made.extras[Columns.ACTION_LOGP].any()


def test_the_noise_comes_from_torchs_generator() -> None:
    first, again = (sampled(TorchCategorical, LOGITS, (), np.int64).actions for _ in range(2))
    assert np.array_equal(first, again)
    torch.manual_seed(0)
    state = torch.get_rng_state()
    made = FragmentActions(Answers(TorchDiagGaussian), np.empty((1, ENVS, 2), np.float32), explore=True)
    made.take(0, {Columns.ACTION_DIST_INPUTS: GAUSSIAN})
    assert not torch.equal(state, torch.get_rng_state())


def test_a_module_may_give_actions_and_more() -> None:
    made = FragmentActions(Answers(None), np.empty((2, 3), np.int64), explore=True)
    for t in range(2):
        made.take(t, {Columns.ACTIONS: torch.tensor([t, 1, 2]), "value": torch.full((3, 1), float(t))})
    made.finish()
    assert made.actions.tolist() == [[0, 1, 2], [1, 1, 2]]
    assert made.extras.keys() == {"value"}
    assert made.extras["value"].tolist() == [[[0.0]] * 3, [[1.0]] * 3]
