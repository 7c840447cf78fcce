"""The image GAN: nets, losses against numbers worked out by hand, gradients, the ring of images, the exported file."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ray.rllib.core import DEFAULT_MODULE_ID

from custom_models.gan_module import GANModule, image_gan
from custom_models.nets.gan import (
    Discriminator,
    Generator,
    ImageGAN,
    discriminator_loss,
    generator_loss,
    last_frames,
    to_bytes,
    to_unit,
)
from rayground import GANConfig
from rayground.algorithms.gan import GRID, Images, tiled
from rayground.errors import InputError
from rayground.generator_file import load, save

FRAMES = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
ACTIONS = gym.spaces.Discrete(6)
LOG3 = math.log(3.0)


def lively(latent_dim: int, width: int) -> Generator:
    """A generator whose images are not all gray, as they are at first."""
    torch.manual_seed(0)
    model = Generator(latent_dim, width)
    with torch.no_grad():
        for weights in model.parameters():
            weights.normal_()
    model(torch.randn(20, latent_dim))
    return model


def test_losses_by_hand() -> None:
    """Logits 0, log 3 and -log 3 are the probabilities 1/2, 3/4 and 1/4."""
    real, fake = torch.tensor([0.0, LOG3]), torch.tensor([-LOG3, LOG3])
    judged = -(math.log(1 / 2) + math.log(3 / 4)) / 2 - (math.log(1 - 1 / 4) + math.log(1 - 3 / 4)) / 2
    assert discriminator_loss(real, fake).item() == pytest.approx(judged)
    assert discriminator_loss(torch.zeros(5), torch.zeros(3)).item() == pytest.approx(2 * math.log(2))
    logits = torch.tensor([0.0, LOG3, -LOG3], requires_grad=True)
    loss = generator_loss(logits)
    assert loss.item() == pytest.approx(-(math.log(1 / 2) + math.log(3 / 4) + math.log(1 / 4)) / 3)
    loss.backward()
    assert logits.grad.tolist() == pytest.approx([-1 / 2 / 3, -1 / 4 / 3, -3 / 4 / 3])  # -(1 - D(G(z))) / B


def test_shapes_and_range() -> None:
    generator, discriminator = Generator(latent_dim=5, width=2), Discriminator(width=3)
    images = generator(torch.randn(7, 5))
    assert images.shape == (7, 1, 64, 64)
    assert images.abs().max() <= 1.0
    assert discriminator(images).shape == (7,)
    assert [layer.out_channels for layer in generator.modules() if hasattr(layer, "out_channels")] == [16, 8, 4, 2, 1]
    channels = [layer.out_channels for layer in discriminator.modules() if hasattr(layer, "out_channels")]
    assert channels == [3, 6, 12, 24, 1]


def test_images_are_drawn_by_the_statistics_of_training_and_leave_the_net_as_it_was() -> None:
    generator, latents = lively(3, 1), torch.randn(6, 3)
    before = {name: value.clone() for name, value in generator.state_dict().items()}
    images = generator.images(latents)
    assert (images.dtype, images.shape) == (torch.uint8, (6, 1, 64, 64))
    assert torch.equal(images[2:3], generator.images(latents[2:3]))
    assert images.float().std() > 20
    assert generator.training
    assert all(torch.equal(value, before[name]) for name, value in generator.state_dict().items())


def test_bytes_survive_and_ends_are_black_and_white() -> None:
    every = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(to_bytes(to_unit(every)), every)
    assert to_unit(every)[[0, -1]].tolist() == [-1.0, 1.0]


def test_the_last_frame_of_each_stack_by_area() -> None:
    rng = np.random.default_rng(0)
    stacks = rng.integers(256, size=(3, 4, 64, 64)).astype(np.uint8)
    assert np.array_equal(last_frames(stacks), stacks[:, 3:])
    big = rng.integers(256, size=(2, 2, 128, 192)).astype(np.uint8)
    means = big[:, 1].astype(float).reshape(2, 64, 2, 64, 3).mean(axis=(2, 4))
    assert np.abs(last_frames(big)[:, 0] - means).max() <= 0.5 + 1e-4
    flat = np.full((1, 4, 84, 84), 77, np.uint8)
    assert (last_frames(flat) == 77).all()


def gan_learner(**settings: Any) -> Any:
    config = GANConfig().rl_module(rl_module_spec=image_gan(latent_dim=3, width=1)).training(**settings)
    learner = config.debugging(seed=0).build_learner(spaces={DEFAULT_MODULE_ID: (FRAMES, ACTIONS)})
    assert isinstance(learner.policy_module, GANModule)
    return learner


def minibatch(learner: Any, size: int = 4) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(1)
    images = rng.integers(256, size=(size, 1, 64, 64)).astype(np.uint8)
    return learner.to_tensors(images=images, latents=rng.standard_normal((size, 3), np.float32))


def test_an_update_is_two_steps_each_by_its_own_loss_at_what_the_other_was() -> None:
    learner = gan_learner(optimizer="sgd", lr=0.5)
    net: ImageGAN = learner.policy_module.net
    batch, twin = minibatch(learner), copy.deepcopy(net)
    fake = twin.generator(batch["latents"])
    # First the discriminator, on images that are only numbers to it; then the generator, which moves alone.
    judged = discriminator_loss(twin.discriminator(to_unit(batch["images"])), twin.discriminator(fake.detach()))
    drawn = generator_loss(twin.discriminator(fake))
    assert all(g is None for g in torch.autograd.grad(judged, list(twin.generator.parameters()), allow_unused=True))
    expected = {
        f"{part}.{name}": weights - 0.5 * gradient
        for part, loss in (("discriminator", judged), ("generator", drawn))
        for (name, weights), gradient in zip(
            getattr(twin, part).named_parameters(),
            torch.autograd.grad(loss, list(getattr(twin, part).parameters()), retain_graph=True),
            strict=True,
        )
    }
    means = learner.learn(batch["images"].numpy()[None], batch["latents"].numpy()[None], [100])
    assert expected.keys() == dict(net.named_parameters()).keys()
    for name, weights in net.named_parameters():
        torch.testing.assert_close(weights.detach(), expected[name].detach(), rtol=1e-4, atol=1e-6)
        assert not torch.equal(weights, dict(twin.named_parameters())[name]), name
    assert means["discriminator_loss"] == pytest.approx(judged.item())
    assert means["generator_loss"] == pytest.approx(drawn.item())
    assert means["loss"] == pytest.approx(judged.item() + drawn.item())
    assert {means["accuracy_real"] * 4, means["accuracy_fake"] * 4} <= {0, 1, 2, 3, 4}


def test_accuracies_by_hand() -> None:
    learner = gan_learner()
    out = {
        "real_logits": torch.tensor([1.0, -1.0, 2.0, 0.0]),
        "fake_logits": torch.tensor([0.0, -1.0, -2.0, 3.0]),
        "generator_logits": torch.zeros(4),
    }
    learner.compute_loss_for_module(module_id=DEFAULT_MODULE_ID, batch={}, fwd_out=out)
    assert (out["stats"]["accuracy_real"], out["stats"]["accuracy_fake"]) == (0.5, 0.75)


def test_acting_is_uniform_and_needs_no_discriminator() -> None:
    module = GANModule(
        observation_space=FRAMES, action_space=ACTIONS, inference_only=True, model_config=image_gan(3, 1).model_config
    )
    assert not hasattr(module.net, "discriminator")
    torch.manual_seed(0)
    obs = torch.zeros((6_000, 1), dtype=torch.uint8)
    counts = np.bincount(module.forward_exploration({"obs": obs}, t=0)["actions"].numpy())
    assert len(counts) == 6
    assert np.abs(counts - 1_000).max() < 5 * math.sqrt(1_000 * 5 / 6)
    legal = torch.tensor([False, True, False, True, False, False]).expand(6_000, 6)
    counts = np.bincount(module.forward_exploration({"obs": obs, "action_mask": legal}, t=0)["actions"].numpy())
    assert counts[[0, 2]].sum() == 0
    assert len(counts) == 4
    assert abs(counts[1] - 3_000) < 5 * math.sqrt(6_000 / 4)


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(1, 7), st.integers(1, 9))
def test_the_ring_keeps_the_last_images_also_in_another_size(counts: list[int], capacity: int, other: int) -> None:
    ring, every = Images(capacity), []
    for index, count in enumerate(counts):
        numbers = 10 * index + np.arange(count)
        ring.add(np.broadcast_to(numbers.astype(np.uint8)[:, None, None, None], (count, 1, 64, 64)))
        every += numbers.tolist()
    drawn = ring.sample((300,), np.random.default_rng(0))[:, 0, 0, 0] if every else []
    assert sorted(set(map(int, drawn))) == sorted(every[-capacity:])
    same, changed = Images(capacity), Images(other)
    for restored in (same, changed):
        restored.set_state(*ring.get_state())
        restored.add(np.full((1, 1, 64, 64), 255, np.uint8))
    kept = [*every[-capacity:], 255]
    assert sorted(map(int, changed.get_state()[1][:, 0, 0, 0])) == sorted(kept[-other:])
    ring.add(np.full((1, 1, 64, 64), 255, np.uint8))
    assert np.array_equal(same.get_state()[1], ring.get_state()[1])
    assert same.count == ring.count == len(every) + 1


def test_a_ring_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match=r"num_images=10,000,000,000: needs .* of memory, got .* free"):
        Images(10_000_000_000)


def test_pictures_are_tiled_row_by_row() -> None:
    images = np.arange(GRID * GRID * 2, dtype=np.uint8).reshape(GRID * GRID, 1, 1, 2)
    assert np.array_equal(tiled(images), np.arange(GRID * GRID * 2).reshape(1, GRID, 2 * GRID))
    tall = np.arange(GRID * GRID * 2, dtype=np.uint8).reshape(GRID * GRID, 1, 2, 1)
    assert tiled(tall)[0, :2, :3].tolist() == [[0, 2, 4], [1, 3, 5]]


def test_an_exported_generator_draws_the_same_images(tmp_path: Path) -> None:
    model = lively(3, 1)
    latents = np.random.default_rng(5).standard_normal((9, 3), np.float32)
    folder = save(tmp_path / "gen", model, net_kwargs={"latent_dim": 3, "width": 1}, info={"env": "Pong"})
    assert {file.name for file in folder.iterdir()} == {"generator.json", "generator.safetensors"}
    rng = torch.get_rng_state()
    loaded = load(folder)
    assert torch.equal(torch.get_rng_state(), rng)
    assert loaded.info == {"env": "Pong"}
    expected = model.images(torch.from_numpy(latents))[:, 0].numpy()
    assert np.array_equal(loaded.images_of(latents), expected)
    assert np.array_equal(loaded.images(9, seed=5), expected)
    assert not np.array_equal(loaded.images(9, seed=6), expected)
    with pytest.raises(InputError, match=r"latents: expected \[B, 3\], got \[9, 4\]"):
        loaded.images_of(np.zeros((9, 4), np.float32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, r"generator\.json: expected format 1, got 2"),
        ({"net": {"class": "Generator", "kwargs": {"width": 0}}}, "generator.json is damaged: ValueError: width"),
        ({"net": {"class": "Generator", "kwargs": {"code": "os"}}}, "generator.json is damaged: TypeError"),
        ({"net": {"class": "Generator", "kwargs": {"latent_dim": 3, "width": 2}}}, "does not fit Generator: layers"),
    ],
)
def test_a_damaged_export_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    folder = save(tmp_path / "gen", Generator(3, 1), net_kwargs={"latent_dim": 3, "width": 1}, info={})
    file = folder / "generator.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(InputError, match=message):
        load(folder)


def test_an_export_that_would_not_load_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"not exported, as it would not load again: .*/gen/generator\.safetensors does"
    ):
        save(tmp_path / "gen", Generator(3, 1), net_kwargs={"latent_dim": 3, "width": 2}, info={})
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="/gen holds no exported generator: there is no such folder"):
        load(tmp_path / "gen")


@pytest.mark.parametrize(
    "space", [gym.spaces.Box(0, 255, (84, 84), np.uint8), gym.spaces.Box(0.0, 1.0, (4, 84, 84)), ACTIONS]
)
def test_other_observations_are_refused(space: gym.Space) -> None:
    with pytest.raises(ValueError, match=r"observation space: expected frames, a uint8 Box \[C, H, W\], got"):
        ImageGAN(space, ACTIONS)


@pytest.mark.parametrize(("kwargs", "name"), [({"latent_dim": 0}, "latent_dim"), ({"width": 1.5}, "width")])
def test_wrong_arguments_are_refused(kwargs: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected a positive int"):
        image_gan(**kwargs)
