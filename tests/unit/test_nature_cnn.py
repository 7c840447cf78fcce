"""The Nature torso: its size and values, and what it says to spaces that are no frames."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.nn.functional import conv2d

from custom_models.nets import NatureCNN

torch.set_num_threads(1)


def frames(*shape: int, dtype: type = np.uint8) -> gym.spaces.Box:
    return gym.spaces.Box(0, 255, shape, dtype)


def some_frames(batch: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, 256, (batch, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_parameters_by_hand():
    # Weights and biases: 32 of 4 * 8 * 8, 64 of 32 * 4 * 4, 64 of 64 * 3 * 3, 512 of 64 * 7 * 7.
    expected = [8192, 32, 32768, 64, 36864, 64, 1605632, 512]
    assert [p.numel() for p in NatureCNN(frames(4, 84, 84)).parameters()] == expected
    assert sum(expected) == 1_684_128


@pytest.mark.parametrize(
    ("shape", "positions"),
    # 36: 8, 3, 1. 64: 15, 6, 4. 84: 20, 9, 7. 100: 24, 11, 9. 50: 11, 4, 2.
    [((1, 36, 36), 1), ((3, 64, 64), 4 * 4), ((4, 84, 84), 7 * 7), ((4, 100, 50), 9 * 2), ((4, 50, 100), 2 * 9)],
)
def test_any_size_from_36_up(shape, positions):
    net = NatureCNN(frames(*shape))
    assert net.linear.in_features == 64 * positions
    assert net(some_frames(2, *shape)).shape == (2, 512)
    assert net.out_features == 512


def test_bytes_are_scaled_to_0_to_1_and_every_layer_has_its_relu():
    net = NatureCNN(frames(2, 44, 40))
    obs = some_frames(3, 2, 44, 40)
    weight_1, bias_1, weight_2, bias_2, weight_3, bias_3, weight, bias = net.parameters()
    features = conv2d(obs.double() / 255, weight_1.double(), bias_1.double(), stride=4).clamp(min=0)
    features = conv2d(features, weight_2.double(), bias_2.double(), stride=2).clamp(min=0)
    features = conv2d(features, weight_3.double(), bias_3.double()).clamp(min=0)
    expected = (features.reshape(3, -1) @ weight.double().T + bias.double()).clamp(min=0)
    torch.testing.assert_close(net(obs).double(), expected, rtol=1e-4, atol=1e-6)
    assert expected.any()


def test_bytes_and_the_same_numbers_as_floats_are_one_and_stay_as_they_are():
    net, obs = NatureCNN(frames(2, 36, 36)), some_frames(3, 2, 36, 36)
    as_floats = obs.float()
    assert torch.equal(net(obs), net(as_floats))
    assert torch.equal(as_floats, obs.float())


def test_building_draws_only_the_weights():
    torch.manual_seed(7)
    net = NatureCNN(frames(4, 36, 36))
    after = torch.rand(())
    torch.manual_seed(7)
    for layer in (net.convolutions[0], net.convolutions[2], net.convolutions[4], net.linear):
        layer.reset_parameters()
    assert torch.equal(after, torch.rand(()))


@pytest.mark.parametrize(
    ("space", "got", "advice"),
    [
        (gym.spaces.Box(-1.0, 1.0, (4,), np.float32), "a float32 Box [4]", "MLP"),
        (gym.spaces.Box(-np.arange(90.0), np.arange(90.0), (90,), np.float64), "a float64 Box [90]", "MLP"),
        (gym.spaces.Discrete(3), "Discrete(3)", "MLP"),
        (frames(84, 84), "a uint8 Box [84, 84]", "stack"),
        (frames(4, 84, 84, dtype=np.float32), "a float32 Box [4, 84, 84]", "as bytes"),
        (frames(4, 35, 84), "a uint8 Box [4, 35, 84]", "resize"),
        (frames(4, 84, 35), "a uint8 Box [4, 84, 35]", "resize"),
        (frames(210, 160, 3), "a uint8 Box [210, 160, 3]", "put them first"),
    ],
)
def test_other_spaces_are_refused_in_one_line(space, got, advice):
    with pytest.raises(ValueError, match="expected a uint8 Box") as caught:
        NatureCNN(space)
    message = str(caught.value)
    assert f"H and W at least 36, got {got}: " in message
    assert advice in message.split(got)[1]
    assert "\n" not in message
