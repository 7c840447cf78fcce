"""A2C as an algorithm: same seed, same run; resumes, changes, runners in step, several learners, its policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import tiny_a2c
from conftest import Build, RunHere
from snapshots import last_state, only_run, repeated, rows_of, train

import rayground
from callbacks import ReturnThreshold
from rayground.checkpoints import load_checkpoint
from rayground.cli import rayground_command
from rayground.errors import InputError
from rayground.learners.a2c import A2CSettings
from rayground.policy_file import load
from rayground.results.runs import RunFiles

EXPERIMENTS = {"cartpole": tiny_a2c.experiment, "pendulum": tiny_a2c.pendulum}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_same_seed_same_run_also_after_a_resume_and_another_seed_another(
    run_here: RunHere, tmp_path: Path, name: str
) -> None:
    whole, other = repeated(run_here, tmp_path, EXPERIMENTS[name])
    state, others = (last_state(run, replay=False) for run in (whole, other))
    assert [key for key in state if key.endswith(".weight") and others[key] == state[key]] == []
    last = rows_of(whole)[-1]
    if name == "pendulum":  # nothing but valid steps, 10 in each batch, each seen by the norm once
        assert (last["env_steps"], last["learner/updates"]) == (400, 40)
        arrays = load_checkpoint(RunFiles(whole).last_checkpoint).arrays("module")
        assert {float(array) for name, array in arrays.items() if name.endswith(".count")} == {400.0}


def test_a_policy_is_the_learners_is_exported_and_plays_without_the_run(run_here: RunHere, tmp_path: Path) -> None:
    stop = ("--seed", 1, "--stop-timesteps", 400, "--storage-path", tmp_path / "runs")
    assert run_here(*stop, experiment=tiny_a2c.pendulum).code == 0
    folder = only_run(tmp_path / "runs")
    with pytest.raises(SystemExit, match="0"):
        rayground_command(["export", str(folder), "--to", str(tmp_path / "policy")])
    run, exported = rayground.load(folder), load(tmp_path / "policy")
    algorithm, env = run.algorithm, gym.make("Pendulum-v1")
    obs, _ = env.reset(seed=3)
    for _ in range(20):
        action = exported.compute_single_action(obs)
        for policy in (run.policy, algorithm.get_policy(), algorithm):
            np.testing.assert_allclose(policy.compute_single_action(obs), action, atol=1e-6)
        obs, *_ = env.step(action)
    train(algorithm)
    weights, learned = algorithm.get_policy().get_weights(), algorithm.learner.module_arrays()
    assert all(np.array_equal(weights[name], learned[name]) for name in learned)
    assert not np.allclose(algorithm.compute_single_action(obs), exported.compute_single_action(obs), atol=1e-6)
    algorithm.stop()


def settings_seen(algorithm: Any) -> list[A2CSettings]:
    """What each update goes by, from here on."""
    seen: list[A2CSettings] = []
    learn = algorithm.learner.learn
    algorithm.learner.learn = lambda batch, settings: (seen.append(settings), learn(batch, settings))[1]
    return seen


def test_changed_settings_reach_the_loss_survive_and_yield_to_pinned_ones(build: Build, tmp_path: Path) -> None:
    made = build(config=tiny_a2c.config)
    seen = settings_seen(made)
    train(made)
    made.save(tmp_path / "before")
    assert [used.entropy_coeff for used in seen] == pytest.approx(
        [0.02 - 0.02 * used.env_steps / 1_000 for used in seen]
    )
    made.change_setting("entropy_coeff", 0.5)
    made.change_setting("vf_loss_coeff", 0.25)
    (row,) = train(made)
    assert seen[-1] == A2CSettings(env_steps=made.env_steps, entropy_coeff=0.5, vf_loss_coeff=0.25)
    parts = {name: row[f"learner/{name}"] for name in ("policy_loss", "vf_loss", "entropy")}
    expected = parts["policy_loss"] + 0.25 * parts["vf_loss"] - 0.5 * parts["entropy"]
    assert row["learner/loss"] == pytest.approx(expected, rel=1e-5)
    made.save(tmp_path / "after")
    fresh = build(config=tiny_a2c.config, vf_loss_coeff=0.75)
    fresh.pinned = frozenset({"vf_loss_coeff"})
    fresh.restore(tmp_path / "after")
    assert (fresh.config.vf_loss_coeff, fresh.config.entropy_coeff) == (0.75, 0.5)
    made.restore(tmp_path / "before")
    assert train(made)[0]["learner/loss"] != row["learner/loss"]
    assert (seen[-1].vf_loss_coeff, seen[-1].entropy_coeff) == (0.5, pytest.approx(0.02 - 0.02 * made.env_steps / 1000))
    for key, value in (("entropy_coeff", -0.1), ("vf_loss_coeff", -1), ("rollout_fragment_length", 2)):
        with pytest.raises(InputError, match=key):
            made.change_setting(key, value)


def test_what_a_threshold_changed_holds_in_a_resumed_run(run_here: RunHere, tmp_path: Path) -> None:
    config = tiny_a2c.config.copy(copy_frozen=False)
    config.callbacks([ReturnThreshold(0.0, change={"lr": 5e-5, "vf_loss_coeff": 0.0})])
    experiment = replace(tiny_a2c.experiment, config=config)
    words = ("--seed", 5, "--stop-timesteps", 300, "--storage-path", tmp_path)
    assert run_here(*words, experiment=experiment).code == 0
    run = only_run(tmp_path)
    assert run_here("--resume", run, "--stop-timesteps", 400, experiment=experiment).code == 0
    first, *_, last = rows_of(run)
    assert (first["learner/lr"], last["learner/lr"]) == (pytest.approx(3e-3, rel=0.2), 5e-5)
    entropy_coeff = 0.02 - 0.02 * (last["env_steps"] - 50) / 1_000
    without_values = last["learner/policy_loss"] - entropy_coeff * last["learner/entropy"]
    assert last["learner/loss"] == pytest.approx(without_values, abs=1e-3)
    assert last["learner/vf_loss"] > 0.1


def two_runners(config: Any) -> None:
    config.env_runners(num_env_runners=2, num_cpus_per_env_runner=0.5)


@pytest.mark.usefixtures("one_ray")
def test_two_runners_are_in_step_and_what_goes_on_from_a_checkpoint_has_the_rows_of_what_went_on(
    build: Build, tmp_path: Path
) -> None:
    made = build(config=tiny_a2c.config, change=two_runners)
    batches, rollouts = [], []
    learn, collect = made.learner.learn, made.runners.collect
    made.learner.learn = lambda batch, settings: (batches.append(batch), learn(batch, settings))[1]
    made.runners.collect = lambda: (rollouts.append(collect()), rollouts[-1])[1]
    train(made, 2)
    for batch, parts in zip(batches, rollouts, strict=True):
        assert [part.runner for part in parts] == [1, 2]
        seen, valid = np.concatenate([part.obs[:-1].reshape(-1, 4) for part in parts]), batch["weights"] > 0
        np.testing.assert_array_equal(batch["obs"][valid], seen[valid])
        assert len(batch["weights"]) == 5 * 2 * 2
        assert np.mean(batch["weights"]) == pytest.approx(1.0)
    assert not np.array_equal(rollouts[0][0].obs, rollouts[0][1].obs)
    assert made.updates == len(batches) > 9
    assert made.env_steps == sum(np.count_nonzero(batch["weights"]) for batch in batches)
    made.save(tmp_path / "ck")
    rows = train(made, 2)
    weights = {name: array.copy() for name, array in made.learner.module_arrays().items()}
    made.restore(tmp_path / "ck")
    assert train(made, 2) == rows
    assert all(np.array_equal(value, weights[name]) for name, value in made.learner.module_arrays().items())


@pytest.fixture(scope="module")
def learners(one_ray: None) -> Iterator[Callable[[int], Any]]:
    """Builds the algorithm with so many learners."""
    built = []

    def make(num_learners: int) -> Any:
        config = tiny_a2c.config.copy(copy_frozen=False).debugging(seed=3).learners(num_learners=num_learners)
        config.num_cpus_per_learner = 0.5 if num_learners else "auto"
        built.append(config.build_algo())
        return built[-1]

    yield make
    for algorithm in built:
        algorithm.stop()


def test_two_learners_learn_as_one_would_from_the_whole_batch(learners: Callable[[int], Any], tmp_path: Path) -> None:
    single, pair = learners(0), learners(2)
    pair.learner.load_module_arrays(single.learner.module_arrays())
    rng, expected, found = np.random.default_rng(0), [], []
    for step in range(5):
        batch = {
            "obs": rng.normal(size=(10, 4)).astype(np.float32),
            "actions": rng.integers(0, 2, 10),
            "advantages": rng.normal(size=10).astype(np.float32),
            "value_targets": rng.normal(size=10).astype(np.float32),
            "weights": np.array([0, 1, 1, 1, 0, 1, 1, 1, 1, 1], np.float32) * 1.25,
        }
        settings = A2CSettings(env_steps=10 * step, entropy_coeff=0.1, vf_loss_coeff=0.5)
        expected.append(single.learner.learn(batch, settings))
        found.append(pair.learner.learn(batch, settings))
    for one, other in zip(expected, found, strict=True):
        assert other == pytest.approx(one, abs=1e-6)
    first, second = pair.learner._on_all("module_arrays")
    for name, array in single.learner.module_arrays().items():
        np.testing.assert_array_equal(first[name], second[name])
        np.testing.assert_allclose(first[name], array, rtol=0, atol=1e-6, err_msg=name)
    pair.sync_weights()
    train(pair)
    pair.save(tmp_path / "ck")
    rows = train(pair, 2)
    pair.restore(tmp_path / "ck")
    assert train(pair, 2) == rows
    single.restore(tmp_path / "ck")  # with another number of learners
    for name, array in load_checkpoint(tmp_path / "ck").arrays("module").items():
        np.testing.assert_array_equal(single.learner.module_arrays()[name], array)
    assert train(single)[0]["env_steps"] == rows[0]["env_steps"]
