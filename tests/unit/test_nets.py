"""The networks: values by hand, gradients, spaces, arguments."""

import json

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from custom_models.nets import NETS, DuelingHead, DuelingMLP, MLPTorso, PlainMLP

BOX = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
TWO = gym.spaces.Discrete(2)
NEG_INF = float("-inf")


def head_with(value: float, advantages: list[float]) -> DuelingHead:
    """A head over one feature that is always 1: V and A are the weights."""
    head = DuelingHead(1, len(advantages))
    assert isinstance(head.streams, nn.Linear)
    with torch.no_grad():
        head.streams.weight.copy_(torch.tensor([[value], *[[a] for a in advantages]]))
        head.streams.bias.zero_()
    return head


def test_dueling_values_by_hand():
    q = head_with(10.0, [1.0, 2.0, 6.0])(torch.ones(1, 1))
    torch.testing.assert_close(q, torch.tensor([[8.0, 9.0, 13.0]]))  # mean A = 3


def test_masked_actions_are_left_out_of_the_mean():
    q = head_with(10.0, [1.0, 2.0, 6.0])(torch.ones(1, 1), torch.tensor([[True, True, False]]))
    torch.testing.assert_close(q, torch.tensor([[9.5, 10.5, NEG_INF]]))  # mean of 1 and 2 = 1.5


def test_one_legal_action_is_worth_the_state():
    mask = torch.tensor([[False, True, False], [True, True, True]])
    q = head_with(10.0, [1.0, 2.0, 6.0])(torch.ones(2, 1), mask)
    torch.testing.assert_close(q, torch.tensor([[NEG_INF, 10.0, NEG_INF], [8.0, 9.0, 13.0]]))


@pytest.mark.parametrize("hidden", [None, 5])
@pytest.mark.parametrize("mask_row", [[False, True, False], [False, False, False]])
def test_gradients_stay_finite_under_a_mask(hidden, mask_row):
    head = DuelingHead(3, 3, hidden)
    mask = torch.tensor([mask_row, [True, True, True]])
    features = torch.randn(2, 3, requires_grad=True)
    q = head(features, mask)
    q[mask].sum().backward()
    gradients = [features.grad, *(p.grad for p in head.parameters())]
    assert all(torch.isfinite(g).all() for g in gradients)
    assert not torch.isnan(q).any()


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.integers(1, 5), st.sampled_from([None, 3]), st.integers(0, 2**31 - 1))
def test_dueling_head_equals_the_equation(num_actions, batch, hidden, seed):
    torch.manual_seed(seed)
    head = DuelingHead(4, num_actions, hidden, activation="tanh")
    features = torch.randn(batch, 4)
    streams = head.streams(features)
    value, advantages = streams[:, :1], streams[:, 1:]
    expected = value + advantages - advantages.mean(dim=1, keepdim=True)
    torch.testing.assert_close(head(features), expected)
    torch.testing.assert_close(head(features, torch.ones(batch, num_actions, dtype=torch.bool)), expected)


def test_two_streams_share_no_hidden_unit():
    head = DuelingHead(4, 3, hidden=5)
    value = head.streams(torch.randn(2, 4))[:, 0].sum()
    value.backward()
    touched = {name for name, p in head.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    assert touched == {name for name, _ in head.named_parameters() if name.startswith("streams.value")}


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float64, np.float32])
def test_torso_takes_any_number_type_and_flattens(dtype):
    space = gym.spaces.Box(0, 100, (2, 3), dtype)
    torso = MLPTorso(space, hidden=(), activation="relu")
    obs = torch.as_tensor(np.arange(12).reshape(2, 2, 3).astype(dtype))
    assert torso.out_features == 6
    torch.testing.assert_close(torso(obs), torch.arange(12, dtype=torch.float32).reshape(2, 6))


def test_torso_takes_scalar_boxes():
    torso = MLPTorso(gym.spaces.Box(0.0, 1.0, ()), hidden=(), activation="relu")
    torch.testing.assert_close(torso(torch.tensor([0.25, 0.5])), torch.tensor([[0.25], [0.5]]))


def test_torso_is_one_hot_over_discrete_observations():
    torso = MLPTorso(gym.spaces.Discrete(3, start=5), hidden=(), activation="relu")
    expected = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    torch.testing.assert_close(torso(torch.tensor([5, 7])), expected)
    with pytest.raises(RuntimeError):
        torso(torch.tensor([8]))


def test_torso_refuses_observations_of_another_size():
    with pytest.raises(RuntimeError):
        MLPTorso(BOX, (8,), "relu")(torch.zeros(3, 8))


def test_torso_layers():
    torso = MLPTorso(BOX, hidden=[16, 8], activation="tanh")
    first, second = torso.layers
    assert torso.out_features == 8
    obs = torch.randn(3, 4)
    torch.testing.assert_close(torso(obs), torch.tanh(second(torch.tanh(first(obs)))))
    assert [(layer.in_features, layer.out_features) for layer in (first, second)] == [(4, 16), (16, 8)]


def test_plain_mlp_by_hand():
    net = PlainMLP(gym.spaces.Box(-9.0, 9.0, (2,)), TWO, hidden=(2,))
    with torch.no_grad():
        net.torso.layers[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        net.torso.layers[0].bias.copy_(torch.tensor([0.0, 1.0]))
        net.head.weight.copy_(torch.tensor([[1.0, 1.0], [2.0, -1.0]]))
        net.head.bias.copy_(torch.tensor([0.5, 0.0]))
    # relu([3, -4] + [0, 1]) = [3, 0]
    torch.testing.assert_close(net(torch.tensor([[3.0, -4.0]])), torch.tensor([[3.5, 6.0]]))


@pytest.mark.parametrize("net_class", NETS)
def test_nets_are_rebuilt_from_json(net_class):
    is_cnn = "CNN" in net_class.__name__
    kwargs = {} if is_cnn else json.loads(json.dumps({"hidden": (8, 8), "activation": "silu"}))
    for space in [gym.spaces.Box(0, 255, (2, 36, 36), np.uint8)] if is_cnn else [BOX, gym.spaces.Discrete(7)]:
        net, twin = (net_class(space, gym.spaces.Discrete(3), **kwargs) for _ in range(2))
        twin.load_state_dict(net.state_dict())
        obs = torch.as_tensor(np.stack([space.sample() for _ in range(5)]))
        outputs = net(obs)
        assert (outputs[0] if isinstance(outputs, tuple) else outputs).shape == (5, 3)
        torch.testing.assert_close(outputs, twin(obs))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DuelingMLP(BOX, TWO, activation="rely"), "got 'rely'; did you mean 'relu'"),
        (lambda: DuelingHead(4, 2, activation="tanhh"), "did you mean 'tanh'"),
        (lambda: PlainMLP(BOX, TWO, hidden=256), r"such as \(256,\), got 256"),
        (lambda: PlainMLP(BOX, TWO, hidden=(8, 0)), r"hidden\[1\]: expected a positive int, got 0"),
        (lambda: DuelingMLP(BOX, TWO, head_hidden="64"), "head's hidden layer: expected a positive int, got '64'"),
        (lambda: PlainMLP(BOX, TWO, noisy=1), "noisy: expected True or False, got 1"),
        (lambda: DuelingMLP(BOX, TWO, sigma0=0.4), "sigma0=0.4 has no effect without noisy=True: leave it out"),
        (lambda: PlainMLP(BOX, TWO, noisy=True, sigma0=-1.0), "sigma0: expected a number of at least 0, got -1.0"),
        (
            lambda: PlainMLP(gym.spaces.Box(0, 255, (4, 84, 84), np.uint8), TWO),
            r"expected vectors, got a uint8 Box \[4, 84, 84\]: take a net for images, dueling_cnn\(\)",
        ),
        (
            lambda: MLPTorso(gym.spaces.Box(0.0, 1.0, (7, 7, 3)), (8,), "relu"),
            r"got a float32 Box \[7, 7, 3\]: .*flatten",
        ),
        (lambda: PlainMLP(gym.spaces.Dict(a=BOX), TWO), "MultiDiscrete or MultiBinary, got Dict"),
        (lambda: PlainMLP(BOX, BOX), "action space: expected a Discrete space that starts at 0, got Box"),
        (lambda: PlainMLP(BOX, gym.spaces.Discrete(2, start=1)), "starts at 0, got Discrete"),
    ],
)
def test_bad_arguments_are_one_line(build, message):
    with pytest.raises(ValueError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)
