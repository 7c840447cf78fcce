"""The image GAN as a whole run: its files, the same seed, resume, the exported generator, what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_dqn
import tiny_gan
import torch
from conftest import Build, Command, RunHere
from PIL import Image
from snapshots import facts, only_run, rows_of, train
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import rayground
from custom_models.gan_module import image_gan
from custom_models.nets.gan import last_frames
from envs.catch import frames
from rayground import Experiment
from rayground.checkpoints import load_checkpoint
from rayground.cli import rayground_command
from rayground.errors import InputError
from rayground.generator_file import load
from rayground.results.runs import RunFiles

METRICS = Path(__file__).parents[2] / "docs" / "metrics.md"


def checkpointed(folder: Path) -> dict[str, bytes]:
    """All arrays in a run's last checkpoint."""
    checkpoint = load_checkpoint(RunFiles(folder).last_checkpoint)
    arrays = {f"{group}/{name}": a for group in checkpoint.groups for name, a in checkpoint.arrays(group).items()}
    assert {name.split("/")[0] for name in arrays} == {"images", "module", "optimizer", "rng"}
    return {name: array.tobytes() for name, array in arrays.items()}


def pictures(folder: Path) -> dict[str, bytes]:
    return {name: (folder / "images" / f"{name}.png").read_bytes() for name in ("real", "generated")}


def test_a_command_leaves_curves_pictures_and_a_generator(
    command: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    done = command("tiny_gan", "--seed", 3)
    assert (done.code, done.stderr) == (0, "")
    folder = only_run(command.results)
    files = {path.name for path in folder.iterdir() if not path.name.startswith((".", "events"))}
    assert files == {
        *("checkpoints", "experiment.json", "images", "params.json", "progress.csv", "result.json"),
    }
    rows = rows_of(folder)
    last = rows[-1]
    updates = (last["env_steps"] - 40) // 20
    assert (last["learner/updates"], last["images/size"]) == (updates, 60)
    assert not any(key.startswith("evaluation/") for row in rows for key in row)
    section = METRICS.read_text().split("\n## Learner (image GAN)\n")[1].split("\n## ")[0]
    assert set(re.findall("`((?:learner|images)/.+?)`", section)) == {
        name for name in last if name.startswith(("learner/", "images/"))
    }
    board = EventAccumulator(str(folder), size_guidance={"images": 0}).Reload()
    for name, png in pictures(folder).items():
        shown = board.Images(name)
        assert [picture.step for picture in shown] == [row["env_steps"] for row in rows]
        assert shown[-1].encoded_image_string == png
        assert np.asarray(Image.open(folder / "images" / f"{name}.png")).shape == (512, 512)
    with pytest.raises(SystemExit, match="0"):
        rayground_command(["export", str(folder), "--to", str(tmp_path / "gen")])
    said = capsys.readouterr().out  # of several checkpoints the last is the one: returns of random play rank none
    assert said.startswith(f"{RunFiles(folder).checkpoints[-1]}\n")
    assert "rayground.generator_file.load(" in said
    generator = load(tmp_path / "gen")
    assert generator.info["env"] == "envs:rayground/Catch-v0"
    algorithm = rayground.load(folder).algorithm
    latents = np.random.default_rng(0).standard_normal((5, 3), np.float32)
    expected = algorithm.generator.images(torch.from_numpy(latents)).numpy()[:, 0]
    assert np.array_equal(generator.images_of(latents), expected)
    algorithm.stop()


def test_the_real_images_are_what_the_runners_have_seen(build: Build) -> None:
    algorithm = build(config=tiny_gan.config, num_images=10_000)
    train(algorithm)
    count, images = algorithm.images.get_state()
    assert count == len(images) == algorithm.env_steps
    every = {image.tobytes() for image in last_frames(frames().reshape(-1, 1, 84, 84))}
    assert len({image.tobytes() for image in images}) > 20
    assert {image.tobytes() for image in images} <= every


def test_same_seed_same_run_also_after_a_resume_and_another_seed_another(run_here: RunHere, tmp_path: Path) -> None:
    for place, steps, seed in (("whole", 300, 5), ("again", 300, 5), ("stopped", 200, 5), ("other", 200, 6)):
        words = ("--seed", seed, "--stop-timesteps", steps, "--storage-path", tmp_path / place)
        done = run_here(*words, experiment=tiny_gan.experiment)
        assert done.code == 0, done.stderr
    whole, again, stopped, other = (only_run(tmp_path / place) for place in ("whole", "again", "stopped", "other"))
    assert facts(rows_of(again)) == facts(rows_of(whole))
    assert (checkpointed(again), pictures(again)) == (checkpointed(whole), pictures(whole))
    assert rows_of(other)[0]["learner/loss"] != rows_of(whole)[0]["learner/loss"]
    assert run_here("--resume", stopped, "--stop-timesteps", 300, experiment=tiny_gan.experiment).code == 0
    assert facts(rows_of(stopped)) == facts(rows_of(whole))
    assert (checkpointed(stopped), pictures(stopped)) == (checkpointed(whole), pictures(whole))


def changed(**settings: Any) -> Experiment:
    config = tiny_gan.config.copy(copy_frozen=False)
    for name, value in settings.items():
        setattr(config, name, value)
    return replace(tiny_gan.experiment, config=config)


@pytest.mark.parametrize(
    ("experiment", "words", "message"),
    [
        (changed(env="CartPole-v1"), (), "observation space: expected frames, a uint8 Box [C, H, W], got Box("),
        (changed(env="Pendulum-v1"), (), "environment Pendulum-v1: action_space: expected a Discrete space"),
        (changed(_rl_module_spec=tiny_dqn.config._rl_module_spec, _model_config={"width": 3}), (), "model_config="),
        (changed(), ("--num-learners", 2), "num_learners=2 is not supported by GAN"),
        (changed(), ("--evaluation-interval", 2), "evaluation_interval=2 is not supported by GAN"),
        (changed(), ("--set", "gamma=0.5"), "gamma=0.5 is not supported by GAN"),
        (changed(clip_rewards=True), (), "clip_rewards=True is not supported by GAN"),
        (changed(), ("--set", "replay_ratio=0"), "replay_ratio: expected a finite number above 0, got 0"),
        (changed(), ("--set", "num_images=1000000000000"), "num_images=1,000,000,000,000: needs"),
        (changed(), ("--set", "model_config.net_kwargs.width=0"), "width: expected a positive int, got 0"),
        (changed(), ("--log-q-values",), "QValueStatistics: expected a module with Q-values"),
    ],
)
def test_what_cannot_be_is_an_error_before_training(
    run_here: RunHere, tmp_path: Path, experiment: Experiment, words: tuple, message: str
) -> None:
    done = run_here(*words, "--storage-path", tmp_path / "runs", experiment=experiment)
    assert done.code == 2, done.stderr
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists() or not any((tmp_path / "runs").iterdir())


def test_a_module_of_another_kind_is_refused(build: Build) -> None:
    from custom_models.q_module import plain_cnn

    with pytest.raises(InputError, match=r"rl_module_spec: expected image_gan\(\.\.\.\), got one of QModule"):
        build(config=tiny_gan.config, change=lambda config: config.rl_module(rl_module_spec=plain_cnn()))
    assert image_gan().model_config["net_kwargs"] == {"latent_dim": 100, "width": 64}
