"""PPO as an algorithm: same seed, same run; resumes, changes, its KL coefficient, its policies, its metrics."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import tiny_ppo
from conftest import Build, RunHere
from ray.rllib.callbacks.callbacks import RLlibCallback
from snapshots import only_run, repeated, rows_of, train

import rayground
from rayground import Experiment
from rayground.checkpoints import load_checkpoint
from rayground.cli import rayground_command
from rayground.errors import InputError
from rayground.results.runs import RunFiles

EXPERIMENTS = {"cartpole": tiny_ppo.experiment, "pendulum": tiny_ppo.pendulum}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_same_seed_same_run_also_after_a_resume_and_another_seed_another(
    run_here: RunHere, tmp_path: Path, name: str
) -> None:
    whole, _ = repeated(run_here, tmp_path, EXPERIMENTS[name])
    last = rows_of(whole)[-1]
    assert last["learner/updates"] >= len(rows_of(whole)) >= 4
    if name == "pendulum":  # nothing but valid steps, each seen by the norm once
        assert last["env_steps"] == 400
        arrays = load_checkpoint(RunFiles(whole).last_checkpoint).arrays("module")
        assert {float(array) for name, array in arrays.items() if name.endswith(".count")} == {400.0}


def test_a_batch_has_transitions_also_where_all_environments_reset_themselves_at_once(build: Build) -> None:
    config = tiny_ppo.config.copy(copy_frozen=False).environment("envs:rayground/TimeLimited-v0")
    config.env_runners(rollout_fragment_length=1).training(train_batch_size=2, minibatch_size=2)
    made = build(config=config.reporting(min_sample_timesteps_per_iteration=40))
    made.train()
    assert (made.env_steps, made.batches, made.updates) == (40, 20, 60)


@pytest.mark.usefixtures("one_ray")
def test_with_two_runners_what_goes_on_from_a_checkpoint_has_the_rows_of_what_went_on(
    build: Build, tmp_path: Path
) -> None:
    def two(config: Any) -> None:
        config.env_runners(num_env_runners=2, num_cpus_per_env_runner=0.5)

    made = build(config=tiny_ppo.config, change=two)
    train(made, 2)
    made.save(tmp_path / "ck")
    rows = train(made, 2)
    weights = {name: array.copy() for name, array in made.learner.module_arrays().items()}
    made.restore(tmp_path / "ck")
    assert train(made, 2) == rows
    assert all(np.array_equal(value, weights[name]) for name, value in made.learner.module_arrays().items())


def test_settings_come_from_the_command_line_and_every_metric_is_explained(run_here: RunHere, tmp_path: Path) -> None:
    changes = ("clip_param=0.15", "num_epochs=2", "entropy_coeff=[[0, 0.1], [100, 0.0]]", "vf_clip_param=inf")
    words = [word for change in changes for word in ("--set", change)]
    stop = ("--seed", 1, "--stop-timesteps", 100, "--storage-path", tmp_path)
    done = run_here(*words, *stop, experiment=tiny_ppo.experiment)
    assert done.code == 0, done.stderr
    run = only_run(tmp_path)
    settings = RunFiles(run).params["algorithm"]
    assert (settings["clip_param"], settings["num_epochs"]) == (0.15, 2)
    assert settings["entropy_coeff"] == [[0, 0.1], [100, 0.0]]
    explained = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    section = explained.split("## Learner (PPO)")[1].split("\n## ")[0]
    logged = {name for name in rows_of(run)[-1] if name.startswith("learner/")}
    assert {name for name in logged if f"`{name}`" not in section} == set()
    assert {"learner/entropy", "learner/kl", "learner/clip_fraction", "learner/vf_explained_var"} <= logged
    refused = run_here("--set", "clip_parm=0.1", experiment=tiny_ppo.experiment)
    assert refused.code == 2
    assert "clip_param" in refused.stderr


def test_the_coefficient_of_the_divergence_adapts_and_is_saved(build: Build, tmp_path: Path) -> None:
    def one_update(config: Any) -> None:
        config.reporting(min_sample_timesteps_per_iteration=None)

    made = build(config=tiny_ppo.config, change=one_update)
    expected, coefficients = 0.2, []
    for row in train(made, 6):
        assert row["learner/kl"] > 0
        expected *= 1.5 if row["learner/kl"] > 0.004 else 0.5 if row["learner/kl"] < 0.001 else 1.0
        assert row["learner/kl_coeff"] == pytest.approx(expected)
        coefficients.append(row["learner/kl_coeff"])
    assert len(set(coefficients)) > 1
    made.save(tmp_path / "ck")
    saved, rows = (made.kl_coeff, made.updates), train(made)
    fresh = build(seed=3, config=tiny_ppo.config, change=one_update)
    fresh.restore(tmp_path / "ck")
    assert (fresh.kl_coeff, fresh.updates) == saved
    assert train(fresh) == rows
    without = build(config=tiny_ppo.config, use_kl_loss=False)
    assert {row["learner/kl_coeff"] for row in train(without, 3)} == {0.2}


def test_changed_settings_reach_the_loss_survive_and_yield_to_pinned_ones(build: Build, tmp_path: Path) -> None:
    made = build(config=tiny_ppo.config)
    train(made)
    made.save(tmp_path / "before")
    calls = []
    learn = made.learner.learn
    made.learner.learn = lambda batch, call: (calls.append(call), learn(batch, call))[1]
    made.change_setting("clip_param", 0.05)
    made.change_setting("entropy_coeff", 0.5)
    made.change_setting("vf_loss_coeff", 0.25)
    rows = train(made)
    assert (calls[-1].clip, calls[-1].entropy_coeff, calls[-1].env_steps) == (0.05, 0.5, made.env_steps)
    assert made.learner._vf_loss_coeff == 0.25
    made.save(tmp_path / "after")
    fresh = build(config=tiny_ppo.config, clip_param=0.11)
    fresh.pinned = frozenset({"clip_param"})
    fresh.restore(tmp_path / "after")
    assert (fresh.config.clip_param, fresh.config.entropy_coeff) == (0.11, 0.5)
    made.restore(tmp_path / "before")
    assert (made.config.clip_param, made.learner._vf_loss_coeff) == ([[0, 0.3], [1_000, 0.1]], 1.0)
    assert train(made)[0]["learner/loss"] != rows[0]["learner/loss"]
    assert calls[-1].clip == pytest.approx(0.3 - 0.2 * made.env_steps / 1_000)
    for key, value in (("clip_param", -0.1), ("kl_target", 0), ("num_epochs", 2)):
        with pytest.raises(InputError, match=key):
            made.change_setting(key, value)


def test_a_batch_is_what_was_asked_for_without_the_rows_of_resets(build: Build) -> None:
    made = build(config=tiny_ppo.config)
    batches = []
    learn = made.learner.learn
    made.learner.learn = lambda batch, call: (batches.append(batch), learn(batch, call))[1]
    train(made, 2)
    assert sum(len(batch["obs"]) for batch in batches) == made.env_steps
    assert all(80 < len(batch["obs"]) <= 100 for batch in batches)
    assert made.env_steps < 100 * len(batches)  # there were episodes


class FinalAngle(RLlibCallback):
    def on_episode_end(self, *, episode: Any, **kwargs: Any) -> None:
        episode.custom_data["length"] = len(episode)


def test_callbacks_see_the_episodes_of_the_policy(build: Build) -> None:
    row = train(build(config=tiny_ppo.config, change=lambda config: config.callbacks(FinalAngle)), 2)[-1]
    assert row["episodes_in_window"] == 5
    assert row["custom/length"] == row["episode_len_mean"] == row["episode_return_mean"] > 5


PLAYS = """
import sys
sys.modules["ray"] = None
import gymnasium as gym, numpy as np
from rayground.policy_file import load
policy = load(sys.argv[1])
env = gym.make("Pendulum-v1")
obs, _ = env.reset(seed=3)
actions, returns = [], 0.0
for _ in range(50):
    actions.append(policy.compute_single_action(obs))
    assert env.action_space.contains(actions[-1]), actions[-1]
    obs, reward, *_ = env.step(actions[-1])
    returns += float(reward)
np.save(sys.argv[2], np.array(actions))
assert -1e3 < returns < 0
"""


def test_an_exported_policy_plays_without_ray_as_the_run_does(run_here: RunHere, tmp_path: Path) -> None:
    stop = ("--seed", 1, "--stop-timesteps", 400, "--storage-path", tmp_path / "runs")
    assert run_here(*stop, experiment=tiny_ppo.pendulum).code == 0
    folder = only_run(tmp_path / "runs")
    with pytest.raises(SystemExit, match="0"):
        rayground_command(["export", str(folder), "--to", str(tmp_path / "policy")])
    command = [sys.executable, "-c", PLAYS, str(tmp_path / "policy"), str(tmp_path / "actions.npy")]
    subprocess.run(command, check=True, timeout=100)
    env, policy = gym.make("Pendulum-v1"), rayground.load(folder).policy
    obs, _ = env.reset(seed=3)
    for action in np.load(tmp_path / "actions.npy"):
        np.testing.assert_allclose(policy.compute_single_action(obs), action, atol=1e-5)
        obs, *_ = env.step(action)


def test_the_policy_explores_by_its_distribution_and_is_greedy_otherwise(build: Build) -> None:
    made = build(config=tiny_ppo.pendulum_config)
    train(made)
    policy, obs = made.get_policy(), np.array([0.3, 0.9, 1.0], np.float32)
    greedy = {float(policy.compute_single_action(obs)[0]) for _ in range(5)}
    sampled = [float(made.compute_single_action(obs, explore=True)[0]) for _ in range(200)]
    assert len(greedy) == 1
    assert len(set(sampled)) > 50
    results = [made.evaluate()["env_runners"]["episode_return_mean"] for _ in range(2)]
    assert results[0] == results[1] < -100


def test_a_run_can_be_continued_in_a_notebook(tmp_path: Path) -> None:
    experiment: Experiment = replace(tiny_ppo.experiment, stop=rayground.Stop(env_steps=200))
    run = experiment.train(seed=2, storage=tmp_path)
    algorithm = rayground.load(run.folder).algorithm
    updates = run.frame["learner/updates"].iloc[-1]
    assert algorithm.updates == updates > 1
    assert algorithm.train()["headline"]["learner/updates"] > updates
    algorithm.stop()
