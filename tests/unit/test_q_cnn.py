"""The convolutional Q-networks: values by hand, weights, and which layers are noisy."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.nn.functional import conv2d, linear

from custom_models.nets import DuelingCNN, DuelingMLP, NoisyLinear, PlainCNN, PlainMLP

torch.set_num_threads(1)
THREE = gym.spaces.Discrete(3)


def frames(*shape: int) -> gym.spaces.Box:
    return gym.spaces.Box(0, 255, shape, np.uint8)


def some_frames(batch: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, 256, (batch, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def convolved(net: torch.nn.Module, obs: torch.Tensor) -> torch.Tensor:
    """The features of the net's first three layers, in float64."""
    features = obs.double() / 255
    parameters = [p.detach().double() for p in net.parameters()][:6]
    for weight, bias, stride in zip(parameters[::2], parameters[1::2], (4, 2, 1), strict=True):
        features = conv2d(features, weight, bias, stride).relu()
    return features.flatten(1)


def applied(features: torch.Tensor, layer: torch.nn.Linear) -> torch.Tensor:
    return linear(features, layer.weight.double(), layer.bias.double())


def test_the_plain_net_is_that_of_the_paper():
    net, obs = PlainCNN(frames(4, 84, 84), THREE), some_frames(3, 4, 84, 84)
    features = applied(convolved(net, obs), net.torso.linear).relu()
    torch.testing.assert_close(net(obs).double(), applied(features, net.head), rtol=1e-3, atol=1e-5)
    assert sum(p.numel() for p in net.parameters()) == 1_684_128 + 512 * 3 + 3


def test_the_dueling_net_is_that_of_the_paper():
    net, obs = DuelingCNN(frames(4, 84, 84), THREE), some_frames(3, 4, 84, 84)
    features, streams = convolved(net, obs), net.head.streams
    value = applied(applied(features, streams.value_hidden).relu(), streams.value)
    advantages = applied(applied(features, streams.advantages_hidden).relu(), streams.advantages)
    expected = value + advantages - advantages.mean(1, keepdim=True)
    torch.testing.assert_close(net(obs).double(), expected, rtol=1e-3, atol=1e-5)
    # Three convolutions, then two streams of 3136 -> 512 -> 1 or 3.
    assert sum(p.numel() for p in net.parameters()) == 77_984 + 2 * 3137 * 512 + 513 + 513 * 3


def test_dueling_streams_of_one_layer_share_the_linear_layer():
    net, obs = DuelingCNN(frames(4, 84, 84), THREE, head_hidden=None), some_frames(3, 4, 84, 84)
    streams = applied(applied(convolved(net, obs), net.torso.linear).relu(), net.head.streams)
    expected = streams[:, :1] + streams[:, 1:] - streams[:, 1:].mean(1, keepdim=True)
    torch.testing.assert_close(net(obs).double(), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 36, 36), (3, 64, 64), (4, 84, 84), (2, 96, 72), (3, 210, 160)])
@pytest.mark.parametrize("net_class", [PlainCNN, DuelingCNN])
def test_any_size(net_class, shape):
    assert net_class(frames(*shape), THREE)(some_frames(2, *shape)).shape == (2, 3)


def test_255_is_1():
    net = PlainCNN(frames(1, 36, 36), THREE)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        net.torso.convolutions[0].weight[0].fill_(1 / 64)  # the mean of 8 x 8 pixels, handed through
        net.torso.convolutions[2].weight[0, 0, 0, 0] = 1.0
        net.torso.convolutions[4].weight[0, 0, 0, 0] = 1.0
        net.torso.linear.weight[0, 0] = 1.0
        net.head.weight[:, 0] = torch.tensor([1.0, 2.0, -1.0])
    torch.testing.assert_close(
        net(torch.full((1, 1, 36, 36), 255, dtype=torch.uint8)), torch.tensor([[1.0, 2.0, -1.0]])
    )
    torch.testing.assert_close(net(torch.full((1, 1, 36, 36), 51, dtype=torch.uint8))[0, 0], torch.tensor(0.2))


def test_a_dueling_net_leaves_illegal_actions_out_of_the_mean():
    net, obs = DuelingCNN(frames(1, 36, 36), THREE, head_hidden=8), some_frames(2, 1, 36, 36)
    streams = net.head.streams(net.torso(obs))
    q = net(obs, torch.tensor([[True, False, True]]).expand(2, -1))
    legal = streams[:, [1, 3]]
    torch.testing.assert_close(q[:, [0, 2]], streams[:, :1] + legal - legal.mean(1, keepdim=True))
    assert q[:, 1].tolist() == [float("-inf")] * 2


VECTOR, IMAGE = gym.spaces.Box(-1.0, 1.0, (4,)), frames(1, 36, 36)
TWO_STREAMS = {f"head.streams.{part}" for part in ("value_hidden", "value", "advantages_hidden", "advantages")}


@pytest.mark.parametrize(
    ("net_class", "space", "kwargs", "noisy"),
    [
        (PlainCNN, IMAGE, {}, {"torso.linear", "head"}),
        (DuelingCNN, IMAGE, {"head_hidden": None}, {"torso.linear", "head.streams"}),
        (DuelingCNN, IMAGE, {"head_hidden": 8}, TWO_STREAMS),
        (DuelingMLP, VECTOR, {"head_hidden": 8}, TWO_STREAMS),
        (DuelingMLP, VECTOR, {}, {"head.streams"}),
        (PlainMLP, VECTOR, {}, {"head"}),
    ],
)
def test_noisy_layers_are_all_linear_ones_behind_the_torso(net_class, space, kwargs, noisy):
    net = net_class(space, THREE, **kwargs, noisy=True, sigma0=0.3)
    layers = {name: part for name, part in net.named_modules() if isinstance(part, NoisyLinear)}
    assert layers.keys() == noisy
    for layer in layers.values():
        torch.testing.assert_close(layer.bias_sigma, torch.full_like(layer.bias_sigma, 0.3 / layer.in_features**0.5))
    others = [name for name, part in net.named_modules() if isinstance(part, torch.nn.Linear)]
    assert all(name.startswith("torso.layers.") for name in others)
    obs = torch.as_tensor(np.stack([space.sample()] * 2))
    net(obs)[0].square().sum().backward()
    assert all(layer.weight_sigma.grad.any() and layer.bias_sigma.grad.any() for layer in layers.values())
    assert (net(obs) != net(obs)).any()
    net.eval()
    assert torch.equal(net(obs), net(obs))
