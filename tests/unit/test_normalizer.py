"""Running normalization: exact moments whatever the batches, and a state that goes everywhere unrounded."""

import copy

import gymnasium as gym
import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from custom_models.nets import ActorCriticMLP, PlainMLP, RunningNorm, running_norms

BOX = gym.spaces.Box(-np.inf, np.inf, (2, 3), np.float32)
TWO = gym.spaces.Discrete(2)


def seen(*batches: np.ndarray, clip: float = 10.0) -> RunningNorm:
    """A norm that has seen these batches ``[B, ...]``."""
    norm = RunningNorm(batches[0].shape[1:], clip)
    for batch in batches:
        norm.update(len(batch), batch.mean(axis=0), batch.var(axis=0))
    return norm


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**31 - 1),
    st.lists(st.integers(1, 40), min_size=1, max_size=6),
    st.sampled_from([0.0, -3.0, 1e6]),
    st.sampled_from([1e-3, 1.0, 1e4]),
)
def test_moments_are_those_of_all_that_was_seen(seed, sizes, offset, spread):
    rng = np.random.default_rng(seed)
    batches = [offset + spread * rng.normal(size=(size, 3)) * [0.1, 1.0, 2.0] for size in sizes]
    everything = np.concatenate(batches)
    norm = seen(*batches)
    assert norm.count.item() == len(everything)
    np.testing.assert_allclose(norm.mean.numpy(), everything.mean(axis=0), rtol=1e-12, atol=1e-12 * spread)
    np.testing.assert_allclose(norm.var.numpy(), everything.var(axis=0), rtol=1e-5, atol=1e-12 * spread**2)


def test_normalized_by_hand():
    norm = seen(np.array([[1.0, 10.0], [3.0, 10.0]]), np.array([[5.0, 10.0], [7.0, 10.0]]))
    # means 4 and 10, variances 5 and 0
    out = norm(torch.tensor([[4.0 + 5.0**0.5, 10.0], [-1.0, 11.0]]))
    torch.testing.assert_close(out, torch.tensor([[1.0, 0.0], [-(5.0**0.5), 10.0]]))
    assert out.dtype == torch.float32


def test_before_the_first_update_only_clips():
    norm = RunningNorm((2,), clip=5.0)
    norm.update(0, np.zeros(2), np.full(2, np.nan))
    obs = torch.tensor([[0.25, -7.0]])
    torch.testing.assert_close(norm(obs), torch.tensor([[0.25, -5.0]]))


def test_forward_changes_nothing():
    norm = seen(np.random.default_rng(0).normal(size=(20, 3)))
    before = copy.deepcopy(norm.state_dict())
    norm.train()(torch.randn(50, 3))
    torch.testing.assert_close(norm.state_dict(), before, rtol=0, atol=0)


def test_the_state_goes_through_numpy_and_safetensors_unrounded():
    norm = seen(np.random.default_rng(0).normal(size=(7, 3)) / 3.0)
    state = norm.state_dict()
    assert {name: value.dtype for name, value in state.items()} == {
        "count": torch.float64,
        "mean": torch.float64,
        "var": torch.float64,
        "shift": torch.float32,
        "scale": torch.float32,
    }
    by_numpy = {name: torch.as_tensor(value.numpy().copy()) for name, value in state.items()}
    by_file = safetensors.torch.load(safetensors.torch.save(state))
    for again in (by_numpy, by_file, copy.deepcopy(norm).state_dict()):
        torch.testing.assert_close(again, dict(state), rtol=0, atol=0)
        twin = RunningNorm((3,))
        twin.load_state_dict(again)
        obs = torch.randn(4, 3)
        assert torch.equal(twin(obs), norm(obs))


@pytest.mark.parametrize("net_class", [ActorCriticMLP, PlainMLP])
def test_nets_see_normalized_observations(net_class):
    net = net_class(BOX, TWO, hidden=(8,), normalize_observations=True)
    plain = net_class(BOX, TWO, hidden=(8,))
    plain.load_state_dict({name: v for name, v in net.state_dict().items() if ".norm." not in name})
    [norm] = running_norms(net)
    batch = 5.0 + 2.0 * np.random.default_rng(0).normal(size=(100, 2, 3))
    norm.update(100, batch.mean(axis=0), batch.var(axis=0))
    obs = torch.as_tensor(batch[:9], dtype=torch.float32)
    expected = plain(torch.as_tensor((batch[:9] - batch.mean(axis=0)) / batch.std(axis=0), dtype=torch.float32))
    torch.testing.assert_close(net(obs), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("space", [TWO, gym.spaces.MultiDiscrete([2, 3]), gym.spaces.MultiBinary(3)])
def test_only_boxes_are_normalized(space):
    with pytest.raises(ValueError, match="normalize_observations: expected a Box observation space, got"):
        PlainMLP(space, TWO, normalize_observations=True)
