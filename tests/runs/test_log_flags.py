"""The flags that show more in TensorBoard, in whole runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import tiny_a3c
import tiny_dqn
import torch
from conftest import Build, RunHere
from snapshots import facts, last_state, only_run, rows_of
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from torch import nn

from callbacks import QValueStatistics
from custom_models.q_module import q_module
from rayground import Experiment
from rayground.checkpoints import load_checkpoint
from rayground.results.events import event_files
from rayground.results.runs import RunFiles

ALL = ("--log-weights", "--log-graph", "--log-frames", "--log-q-values")


class PixelNet(nn.Module):
    """The smallest Q-network on Catch."""

    def __init__(self, observation_space: gym.Space, action_space: Any, traceable: bool = True) -> None:
        super().__init__()
        self.traceable = traceable
        self.head = nn.Linear(6 * 6, int(action_space.n))

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        if not self.traceable and torch.jit.is_tracing():
            raise TypeError("this net counts\nits calls")
        return self.head(obs[:, 0, ::14, ::14].float().flatten(1) / 255.0)


def on_catch(**net_kwargs: Any) -> Experiment:
    config = tiny_dqn.config.copy(copy_frozen=False).environment("envs:rayground/Catch-v0")
    config.rl_module(rl_module_spec=q_module(PixelNet, **net_kwargs), model_config={})
    return replace(tiny_dqn.experiment, config=config)


def a3c_on_catch(parallelism: str) -> Experiment:
    config = tiny_a3c.config.copy(copy_frozen=False).environment("envs:rayground/Catch-v0")
    config.training(parallelism=parallelism).rl_module(model_config={})
    return replace(tiny_a3c.experiment, config=config)


def without_q(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if not key.startswith("q_values/")} for row in facts(rows)]


def test_they_show_what_there_is_go_on_in_a_resume_and_change_nothing(run_here: RunHere, tmp_path: Path) -> None:
    for place, steps, flags in (("bare", 300, ()), ("shown", 200, ALL)):
        words = ("--seed", 4, "--stop-timesteps", steps, "--storage-path", tmp_path / place, *flags)
        done = run_here(*words, experiment=on_catch())
        assert done.code == 0, done.stderr
    bare, shown = only_run(tmp_path / "bare"), only_run(tmp_path / "shown")
    done = run_here("--resume", shown, "--stop-timesteps", 300, "--log-weights", experiment=on_catch())
    assert done.code == 0, done.stderr
    rows = rows_of(shown)
    assert without_q(rows) == facts(rows_of(bare))
    assert last_state(shown) == last_state(bare)
    for row in rows:
        lowest, mean, highest = (row[f"q_values/{name}"] for name in ("min", "mean", "max"))
        assert lowest < mean < highest
        assert min(row["q_values/spread"], row["q_values/action_gap"]) > 0
    steps = [row["env_steps"] for row in rows]
    board = EventAccumulator(str(shown), size_guidance={"images": 0, "histograms": 0}).Reload()
    arrays = load_checkpoint(RunFiles(shown).last_checkpoint).arrays("module")
    trained = {f"weights/{name}": array for name, array in arrays.items() if name.startswith("net.")}
    assert set(board.Tags()["histograms"]) == trained.keys()
    for tag, array in trained.items():
        points = board.Histograms(tag)
        assert [point.step for point in points] == steps
        assert points[-1].histogram_value.sum == pytest.approx(array.astype(float).sum(), rel=1e-5)
    assert [picture.step for picture in board.Images("frames")] == steps
    last = board.Images("frames")[-1]
    assert (last.height, last.width) == (4 * 84, 84)
    assert (shown / "images" / "frames.png").read_bytes() == last.encoded_image_string
    graphs = [event for file in event_files(shown) for event in EventFileLoader(str(file)).Load() if event.graph_def]
    assert [event.step for event in graphs] == steps[:1]
    assert any("PixelNet/Linear[head]" in node.name for node in board.Graph().node)


def test_observations_are_those_of_the_iteration(build: Build) -> None:
    algorithm = build(change=lambda config: config.callbacks([QValueStatistics]))
    for _ in range(2):
        before = algorithm.env_steps
        result = algorithm.train()
        obs = algorithm.recent.batch()["obs"]
        assert len(obs) == algorithm.env_steps - before < QValueStatistics.num_observations
        q_BA = algorithm.get_policy().model.net(torch.from_numpy(obs)).detach()
        assert result["headline"]["q_values/max"] == pytest.approx(q_BA.max().item())


def test_a_resume_may_begin_to_show_and_the_change_is_recorded(run_here: RunHere, copied: Path) -> None:
    done = run_here("--resume", copied, "--stop-timesteps", 400, "--log-q-values")
    assert done.code == 0, done.stderr
    *before, last = rows_of(copied)
    assert "q_values/mean" in last
    assert not any("q_values/mean" in row for row in before)
    changed = RunFiles(copied).experiment["resumes"][0]["changed"]
    assert changed == {"callbacks_class": ["callbacks.q_values:QValueStatistics"]}


VECTORS = "SampleFrames: expected frames to show, a uint8 Box [C, H, W], got the observation space Box("
GRADIENTS = (
    "SampleFrames: expected observations in the main process, but A3C's runners keep theirs: they send gradients"
)
NO_Q = "QValueStatistics: expected a module with Q-values, such as DQN's, got ActorCriticModule"
NO_TRACE = "ModelGraph: expected a net that torch.jit.trace can follow, but PixelNet raised TypeError: this net counts"


@pytest.mark.parametrize(
    ("experiment", "words", "message"),
    [
        (tiny_dqn.experiment, ("--log-frames",), VECTORS),
        (a3c_on_catch("gradient"), ("--log-frames", "--dry-run"), GRADIENTS),
        (tiny_a3c.experiment, ("--log-q-values", "--num-seeds", 2), NO_Q),
        (on_catch(traceable=False), ("--log-graph",), NO_TRACE),
    ],
)
def test_one_that_cannot_be_is_an_error_before_training(
    run_here: RunHere, tmp_path: Path, experiment: Experiment, words: tuple, message: str
) -> None:
    done = run_here(*words, "--storage-path", tmp_path / "runs", experiment=experiment)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_data_parallel_a3c_shows_frames_of_its_runners(run_here: RunHere, tmp_path: Path) -> None:
    words = ("--log-frames", "--stop-timesteps", 10, "--storage-path", tmp_path)
    assert run_here(*words, experiment=a3c_on_catch("data")).code == 0
    frames = (only_run(tmp_path) / "images" / "frames.png").read_bytes()
    assert frames.startswith(b"\x89PNG")
    assert np.frombuffer(frames[16:24], ">u4").tolist() == [84, 4 * 84]
