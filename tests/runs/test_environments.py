"""Environments of envs/ in whole runs, also in remote runners, which import them and stand in another folder."""

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import RunHere
from snapshots import only_run

from custom_models.actor_critic_module import actor_critic_cnn, actor_critic_mlp
from envs.atari import atari
from experiments.ppo_stock import experiment as ppo_stock
from rayground import Experiment, PPOConfig, Stop
from rayground.named_files import name_files_absolutely


def tiny(env: str, spec: Any, **env_config: Any) -> Experiment:
    config = PPOConfig().environment(env, env_config=env_config, clip_rewards=True)
    config.env_runners(num_envs_per_env_runner=2, gym_env_vectorize_mode="vector_entry_point")
    config.rl_module(rl_module_spec=spec).training(train_batch_size=32, minibatch_size=16, num_epochs=1)
    config.evaluation(evaluation_duration=1)
    return Experiment("tiny_dqn", config, Stop(env_steps=60))


def rows(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "result.json").read_text().splitlines()]


@pytest.mark.usefixtures("one_ray")
@pytest.mark.parametrize("remote", [0, 1])
def test_atari_trains_and_the_return_is_not_clipped(run_here: RunHere, tmp_path: Path, remote: int) -> None:
    """Asterix pays 50 at a time, and random play gets some of that in 100 steps."""
    experiment = tiny(atari("asterix"), actor_critic_cnn(), size=36, max_num_frames_per_episode=100)
    words = ("--num-env-runners", remote, "--seed", 1, "--storage-path", tmp_path)
    done = run_here(*words, "--set", "env_config.repeat_action_probability=0.25", experiment=experiment)
    assert done.code == 0, done.stderr
    last = rows(only_run(tmp_path))[-1]
    assert last["episode_len_mean"] == last["evaluation/episode_len_mean"] == 25
    assert last["episode_return_max"] >= 50
    assert last["episode_return_max"] % 50 == 0


@pytest.mark.usefixtures("one_ray")
def test_a_file_of_prices_is_found_where_the_user_stands(
    run_here: RunHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's processes stand elsewhere: where they were started."""
    monkeypatch.chdir(tmp_path)
    Path("prices.csv").write_text("Close\n" + "".join(f"{2.0**i}\n" for i in range(20)))
    experiment = tiny("envs:rayground/Stock-v0", actor_critic_mlp(), window=2, length=10)
    words = ("--num-env-runners", 1, "--seed", 1, "--storage-path", "results", "--set", "env_config.csv=prices.csv")
    done = run_here(*words, experiment=experiment)
    assert done.code == 0, done.stderr
    params = json.loads((only_run(tmp_path / "results") / "params.json").read_text())
    assert params["algorithm"]["env_config"]["csv"] == str(tmp_path / "prices.csv")


def test_a_missing_file_ends_a_run_before_training(
    run_here: RunHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_here("--storage-path", tmp_path, "--set", "env_config.csv=pricse.csv", experiment=ppo_stock)
    assert done.code == 2
    assert f"expected a file of prices, got {tmp_path}/pricse.csv" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_only_texts_that_are_paths_of_files_here_become_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "pong"):
        Path(name).write_text("")
    Path("folder.d").mkdir()
    given = {"csv": "a.csv", "game": "pong", "none": "b.csv", "folder": "folder.d", "number": 3}
    config = PPOConfig().environment("x", env_config=given)
    config.evaluation(evaluation_config={"env_config": {"csv": "./a.csv"}, "env": "y"})
    name_files_absolutely(config)
    assert config.env_config == given | {"csv": str(tmp_path / "a.csv")}
    assert config.evaluation_config == {"env_config": {"csv": str(tmp_path / "a.csv")}, "env": "y"}
    assert given["csv"] == "a.csv"
