"""The benchmarks as commands, with numbers so small that their results mean nothing; all in one process of theirs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from conftest import Command, Done

from experiments import bench_atari, bench_time_to_solve

SB3 = {"rllib", "sb3"}
MEASURES = {"training", "whole process", "episodes"}
ONE_SEED = "--seeds 1 --env-steps 256 --task"
COMMANDS = {
    "bench_dqn": "--rounds 1 --env-steps 16",
    "bench_ppo": "--rounds 1 --batches 1",
    "bench_a2c": "--rounds 1 --updates 5",
    "bench_sampling": "--rounds 1 --calls 1",
    "bench_frames": "--transitions 2000 --games pong breakout",
    "bench_time_to_solve": f"{ONE_SEED} cartpole",
    "bench_scaling": "--runners 1 2 --rounds 1 --env-steps 20 --milliseconds 1",
    "bench_replay": "--rounds 1 --transitions 20000",
}
MEMORY = "replay_memory"

pytestmark = pytest.mark.timeout(900)

Result = Callable[[str], tuple[Any, str]]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Done]]:
    """The folder of the results, and what the commands wrote, by name."""
    home = tmp_path_factory.mktemp("home")
    lines: dict[str, list[object]] = {
        name: [f"experiments.{name}", *words.split(), "--json", home / f"{name}.json"]
        for name, words in COMMANDS.items()
    }
    lines["compare_actor_critics"] = ["experiments.compare_actor_critics", "--seeds", 0]
    lines["bench_atari"] = ["experiments.bench_atari", "--rounds", "none"]
    lines[MEMORY] = [f"experiments.{MEMORY}", "--transitions", 2000, "--folder", home / "table"]
    return home, dict(zip(lines, Command(home).together(*lines.values(), timeout_s=800), strict=True))


@pytest.fixture
def result(done: tuple[Path, dict[str, Done]]) -> Result:
    """Of a benchmark, what it wrote into the file, and what it printed."""

    def read(name: str) -> tuple[Any, str]:
        folder, commands = done
        assert commands[name].code == 0, commands[name].stderr
        return json.loads((folder / f"{name}.json").read_text()), commands[name].stdout

    return read


@pytest.mark.parametrize("name", ["compare_actor_critics", "bench_atari"])
def test_wrong_numbers_are_refused(done: tuple[Path, dict[str, Done]], name: str) -> None:
    """Of the commands that are otherwise run in the process of the tests."""
    assert done[1][name].code == 2
    assert "--seeds: expected at least 1, got 0" in done[1][name].stderr or "none" in done[1][name].stderr


def test_dqn(result: Result) -> None:
    content, out = result("bench_dqn")
    assert content["ratios"].keys() == SB3
    speeds, updates = content["env_steps_per_s"], content["updates_per_env_step"]
    assert speeds.keys() == updates.keys() > {"rayground", *SB3}
    assert all(len(numbers) == 1 and numbers[0] > 0 for numbers in speeds.values())
    assert updates["rayground"] == updates["sb3"] == 1.0
    assert 0.5 <= updates["rllib"] <= 1.0
    assert content["ratios"]["sb3"] == speeds["rayground"][0] / speeds["sb3"][0]
    assert "rayground 1.000" in out


def test_ppo(result: Result) -> None:
    content, _ = result("bench_ppo")
    assert content["ratios"].keys() == SB3
    speeds, updates = content["env_steps_per_s"], content["updates_per_env_step"]
    assert speeds.keys() == updates.keys() > {"rayground", *SB3}
    assert updates["sb3"] == 320 / 2048
    assert updates["rayground"] >= 320 / 2048
    assert updates["rllib"] >= 320 / 2056


def test_a2c(result: Result) -> None:
    content, out = result("bench_a2c")
    assert content["ratios"].keys() == {"sb3"}
    speeds, updates = content["env_steps_per_s"], content["updates_per_env_step"]
    assert speeds.keys() == updates.keys() == {"rayground", "rayground, NumPy-vectorized CartPole", "sb3"}
    assert updates["sb3"] == 1 / 40
    assert all(count >= 1 / 40 for count in updates.values())
    assert content["ratios"]["sb3"] == speeds["rayground"][0] / speeds["sb3"][0]
    assert "sb3 0.025" in out


def test_sampling(result: Result) -> None:
    content, _ = result("bench_sampling")
    assert content["ratios"].keys() == SB3
    assert content["env_steps_per_s"].keys() == {"rayground", "rayground, with values", *SB3}


@pytest.mark.usefixtures("one_ray")
def test_atari(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """With PPO's batches a quarter of what they are, in this process: one minibatch is one of 256 all the same."""
    monkeypatch.setattr(bench_atari, "STARTS", 100)
    monkeypatch.setitem(bench_atari.DQN, "num_steps_sampled_before_learning_starts", 100)
    monkeypatch.setattr(bench_atari, "FRAGMENT", 32)
    monkeypatch.setitem(bench_atari.PPO, "train_batch_size", 32 * 8)
    words = ["--rounds", "1", "--env-steps", "64", "--threads", "1", "--json", str(tmp_path / "result.json")]
    monkeypatch.setattr(sys, "argv", ["bench_atari", *words])
    threads = torch.get_num_threads()
    assert bench_atari.main() == 0
    torch.set_num_threads(threads)
    content, out = json.loads((tmp_path / "result.json").read_text()), capsys.readouterr().out
    parts = {"sampling": {"rllib"}, "DQN, one update of 32 per 4 env steps": SB3, "PPO, 4 epochs of 256": {"sb3"}}
    assert content["ratios"].keys() == {f"{part}/{name}" for part, others in parts.items() for name in others}
    assert content["env_steps_per_s"].keys() == parts.keys() - {"sampling"}
    for part, speeds in content["env_steps_per_s"].items():
        others = parts[part]
        assert speeds.keys() == {"rayground", *others}
        assert all(content["ratios"][f"{part}/{name}"] == speeds["rayground"][0] / speeds[name][0] for name in others)
    assert "gradient steps per env step: rayground 0.250, rllib 0.250, sb3 0.250" in out
    assert "gradient steps per env step: rayground 0.016, sb3 0.016" in out


def test_frames(result: Result) -> None:
    content, out = result("bench_frames")
    assert content["games"].keys() == {"pong", "breakout"}
    assert all(game["transitions"] >= 2000 for game in content["games"].values())
    assert content["ratios"].keys() == {f"{what}/sb3 light" for what in ("bytes", "batch_us", "add_us")}
    assert 28_000 < content["sb3"]["bytes"] < 40_000  # a stack is 28,224
    assert "mean of 2 games: " in out


def test_replay_memory(done: tuple[Path, dict[str, Done]]) -> None:
    home, commands = done
    assert commands[MEMORY].code == 0, commands[MEMORY].stderr
    table = pd.read_csv(home / "table" / "replay_memory.csv", index_col=["task", "store"])
    assert set(table.columns) == {"transitions", "bytes", "add_us", "read_ns", "batch_us"}
    stores = ("__dict__", "__slots__", "@dataclass(slots=True)", "NamedTuple", "rayground", "rllib", "sb3", "sb3 light")
    assert table.index.tolist() == [(task, store) for task in ("cartpole", "pong") for store in stores]
    assert (table[["transitions", "read_ns", "batch_us"]] > 0).all(axis=None)
    assert table.loc[("pong", "NamedTuple"), "bytes"] > 20_000
    assert (home / "table" / "replay_memory.png").read_bytes().startswith(b"\x89PNG")
    assert str(home / "table") in commands[MEMORY].stdout


def test_time_to_solve(result: Result) -> None:
    """Its contestants are processes."""
    content, out = result("bench_time_to_solve")
    assert_nobody_solves_it(content, out, SB3)
    assert all(one["process_s"] > one["training_s"] for (one,) in content["attempts"].values())


@pytest.mark.parametrize("task", ["pendulum", "a2c_cartpole"])
def test_time_to_solve_something_else(
    task: str, modules_here: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """By contestants in this process."""
    words = [*ONE_SEED.split(), task, "--json", str(tmp_path / "result.json")]
    monkeypatch.setattr(sys, "argv", ["bench_time_to_solve", *words])
    assert bench_time_to_solve.main() == 0
    content = json.loads((tmp_path / "result.json").read_text())
    assert_nobody_solves_it(content, capsys.readouterr().out, {"sb3"})
    assert {one["process_s"] for (one,) in content["attempts"].values()} == {99.0}


def assert_nobody_solves_it(content: Any, out: str, others: set[str]) -> None:
    assert content["attempts"].keys() == {"rayground", *others}
    assert content["ratios"].keys() == {f"{what}/{name}" for what in MEASURES for name in others}
    for name, (one,) in content["attempts"].items():
        assert one["solved"] is False
        assert one["training_s"] > 0
        assert f"{name}, seed 0: FAILED after {one['env_steps']:,} env steps, {one['episodes']} episodes, " in out
    assert set(content["ratios"].values()) == {None}


def test_scaling(result: Result) -> None:
    content, _ = result("bench_scaling")
    assert content["ratios"].keys() == {"efficiency/1", "efficiency/2"}
    assert content["ratios"]["efficiency/1"] == 1.0
    one, two = content["runs"]["1"], content["runs"]["2"]
    assert content["ratios"]["efficiency/2"] == two["env_steps_per_s"] / (2 * one["env_steps_per_s"])
    assert 0 < one["env_steps_per_s"] < 1000  # it sleeps a millisecond at least
    assert one["driver_s_per_1000"] > 0


def test_replay(result: Result) -> None:
    content, out = result("bench_replay")
    assert "rayground prioritized" in out
    assert content["machine"]["cores"] >= 1
    assert min(content["ratios"].values()) > 0
