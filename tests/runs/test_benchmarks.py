"""The benchmarks as commands, with numbers so small that their results mean nothing."""

import json

import pandas as pd
import pytest

SB3 = {"rllib", "sb3"}
MEASURES = {"training", "whole process", "episodes"}


def result(command, tmp_path, module, *words):
    file = tmp_path / "result.json"
    done = command(f"experiments.{module}", *words, "--json", str(file))
    assert done.code == 0, done.stderr
    return json.loads(file.read_text()), done.stdout


def test_dqn(command, tmp_path):
    content, out = result(command, tmp_path, "bench_dqn", "--rounds", "1", "--env-steps", "16")
    assert content["ratios"].keys() == SB3
    speeds, updates = content["env_steps_per_s"], content["updates_per_env_step"]
    assert speeds.keys() == updates.keys() > {"rayground", *SB3}
    assert all(len(numbers) == 1 and numbers[0] > 0 for numbers in speeds.values())
    assert updates["rayground"] == updates["sb3"] == 1.0
    assert 0.5 <= updates["rllib"] <= 1.0
    assert content["ratios"]["sb3"] == speeds["rayground"][0] / speeds["sb3"][0]
    assert "rayground 1.000" in out


def test_ppo(command, tmp_path):
    content, _ = result(command, tmp_path, "bench_ppo", "--rounds", "1", "--batches", "1")
    assert content["ratios"].keys() == SB3
    speeds, updates = content["env_steps_per_s"], content["updates_per_env_step"]
    assert speeds.keys() == updates.keys() > {"rayground", *SB3}
    assert updates["sb3"] == 320 / 2048
    assert updates["rayground"] >= 320 / 2048
    assert updates["rllib"] >= 320 / 2056


def test_a2c(command, tmp_path):
    content, out = result(command, tmp_path, "bench_a2c", "--rounds", "1", "--updates", "5")
    assert content["ratios"].keys() == {"sb3"}
    speeds, updates = content["env_steps_per_s"], content["updates_per_env_step"]
    assert speeds.keys() == updates.keys() == {"rayground", "rayground, NumPy-vectorized CartPole", "sb3"}
    assert updates["sb3"] == 1 / 40
    assert all(count >= 1 / 40 for count in updates.values())
    assert content["ratios"]["sb3"] == speeds["rayground"][0] / speeds["sb3"][0]
    assert "sb3 0.025" in out


def test_sampling(command, tmp_path):
    content, _ = result(command, tmp_path, "bench_sampling", "--rounds", "1", "--calls", "1")
    assert content["ratios"].keys() == SB3
    assert content["env_steps_per_s"].keys() == {"rayground", "rayground, with values", *SB3}


def test_atari(command, tmp_path):
    content, out = result(command, tmp_path, "bench_atari", "--rounds", "1", "--env-steps", "64")
    parts = {"sampling": {"rllib"}, "DQN, one update of 32 per 4 env steps": SB3, "PPO, 4 epochs of 256": {"sb3"}}
    assert content["ratios"].keys() == {f"{part}/{name}" for part, others in parts.items() for name in others}
    for part, others in parts.items():
        speeds = content["env_steps_per_s"][part]
        assert speeds.keys() == {"rayground", *others}
        assert all(content["ratios"][f"{part}/{name}"] == speeds["rayground"][0] / speeds[name][0] for name in others)
    assert "gradient steps per env step: rayground 0.250, rllib 0.250, sb3 0.250" in out
    assert "gradient steps per env step: rayground 0.016, sb3 0.016" in out


def test_frames(command, tmp_path):
    words = ["--transitions", "2000", "--games", "pong", "breakout"]
    content, out = result(command, tmp_path, "bench_frames", *words)
    assert content["games"].keys() == {"pong", "breakout"}
    assert all(game["transitions"] >= 2000 for game in content["games"].values())
    assert content["ratios"].keys() == {f"{what}/sb3 light" for what in ("bytes", "batch_us", "add_us")}
    assert 28_000 < content["sb3"]["bytes"] < 40_000  # a stack is 28,224
    assert "mean of 2 games: " in out


def test_replay_memory(command, tmp_path):
    folder = tmp_path / "table"
    done = command("experiments.replay_memory", "--transitions", "2000", "--folder", str(folder))
    assert done.code == 0, done.stderr
    table = pd.read_csv(folder / "replay_memory.csv", index_col=["task", "store"])
    assert set(table.columns) == {"transitions", "bytes", "add_us", "read_ns", "batch_us"}
    stores = ("__dict__", "__slots__", "@dataclass(slots=True)", "NamedTuple", "rayground", "rllib", "sb3", "sb3 light")
    assert table.index.tolist() == [(task, store) for task in ("cartpole", "pong") for store in stores]
    assert (table[["transitions", "read_ns", "batch_us"]] > 0).all(axis=None)
    assert table.loc[("pong", "NamedTuple"), "bytes"] > 20_000
    assert (folder / "replay_memory.png").read_bytes().startswith(b"\x89PNG")
    assert str(folder) in done.out


@pytest.mark.parametrize(("task", "others"), [("cartpole", SB3), ("pendulum", {"sb3"}), ("a2c_cartpole", {"sb3"})])
def test_time_to_solve(command, tmp_path, task, others):
    words = ["--task", task, "--seeds", "1", "--env-steps", "256"]
    content, out = result(command, tmp_path, "bench_time_to_solve", *words)
    assert content["attempts"].keys() == {"rayground", *others}
    assert content["ratios"].keys() == {f"{what}/{name}" for what in MEASURES for name in others}
    for name, (one,) in content["attempts"].items():
        assert one["solved"] is False
        assert one["process_s"] > one["training_s"] > 0
        assert f"{name}, seed 0: FAILED after {one['env_steps']:,} env steps, {one['episodes']} episodes, " in out
    assert set(content["ratios"].values()) == {None}


def test_scaling(command, tmp_path):
    words = ["--runners", "1", "2", "--rounds", "1", "--env-steps", "20", "--milliseconds", "1"]
    content, _ = result(command, tmp_path, "bench_scaling", *words)
    assert content["ratios"].keys() == {"efficiency/1", "efficiency/2"}
    assert content["ratios"]["efficiency/1"] == 1.0
    one, two = content["runs"]["1"], content["runs"]["2"]
    assert content["ratios"]["efficiency/2"] == two["env_steps_per_s"] / (2 * one["env_steps_per_s"])
    assert 0 < one["env_steps_per_s"] < 1000  # it sleeps a millisecond at least
    assert one["driver_s_per_1000"] > 0


def test_replay(command, tmp_path):
    content, out = result(command, tmp_path, "bench_replay", "--rounds", "1", "--transitions", "20000")
    assert "rayground prioritized" in out
    assert content["machine"]["cores"] >= 1
    assert min(content["ratios"].values()) > 0
