"""Checkpoints of an algorithm: everything comes back, and training goes on as if it had never stopped."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Build
from snapshots import differing, everything, train

from rayground import DQNConfig, SlottedReplay
from rayground.algorithms.dqn import DQN
from rayground.errors import CheckpointError, InputError
from rayground.schedules import Piecewise


def vectorized(config: DQNConfig) -> None:
    config.env_runners(num_envs_per_env_runner=4, gym_env_vectorize_mode="vector_entry_point")


def dueling_sgd(config: DQNConfig) -> None:
    config.training(dueling=True, optimizer={"type": "sgd", "momentum": 0.9}, tau=0.1)


def test_everything_comes_back_into_a_fresh_algorithm_and_into_one_that_went_on(build: Build, tmp_path: Path) -> None:
    original = build()
    train(original, 3)
    original.save(tmp_path / "ck")
    saved = everything(original)
    assert len(saved["replay transitions"]) > 200
    assert saved["update clock"]["updates"] == (original.env_steps - 50) // 2
    assert saved["learner"]["num_target_updates"] == original.env_steps // 30 - 50 // 30

    fresh = build(seed=99)
    assert set(saved) - set(differing(saved, everything(fresh))) == set()  # or equality would say nothing
    fresh.restore(tmp_path / "ck")
    assert differing(saved, everything(fresh)) == []

    train(original)
    assert set(saved) - set(differing(saved, everything(original))) <= {"python rng", "numpy rng"}
    original.restore(tmp_path / "ck")
    assert differing(saved, everything(original)) == []


def test_the_first_update_after_a_restore_uses_old_data(build: Build, tmp_path: Path) -> None:
    original = build()
    train(original, 2)
    original.save(tmp_path / "ck")
    old = {np.asarray(t.obs).tobytes() for t in original.replay}
    restored = build(seed=99)
    restored.restore(tmp_path / "ck")
    drawn = []
    learn = restored.learner.learn
    restored.learner.learn = lambda batch, steps: (drawn.append((batch.obs, steps)), learn(batch, steps))[1]
    train(restored)
    obs, steps = drawn[0]
    from_before = [row.tobytes() in old for row in obs.reshape(-1, 4)]
    assert np.mean(from_before) > 0.8  # 16 of 203 transitions, of which 2 are new
    assert steps == [50 + 2 * 75, 50 + 2 * 76]  # the clock of the updates goes on


@pytest.mark.parametrize(
    ("change", "training"),
    [
        (lambda config: None, {}),
        (lambda config: None, {"replay": SlottedReplay(capacity=150)}),
        (vectorized, {"replay_ratio": 0.3}),
        (dueling_sgd, {"n_step": 1}),
    ],
    ids=["prioritized", "uniform", "vector env", "dueling, sgd, soft target"],
)
def test_it_goes_on_bit_for_bit(
    build: Build, tmp_path: Path, change: Callable[[DQNConfig], None], training: dict[str, Any]
) -> None:
    never_saved = build(change=change, **training)
    rows = train(never_saved, 4)[2:]
    went_on = everything(never_saved) | {"time": None}

    original = build(change=change, **training)
    train(original, 2)
    original.save(tmp_path / "ck")
    assert train(original, 2) == rows
    fresh = build(change=change, **training)
    for algorithm in (fresh, original):
        algorithm.restore(tmp_path / "ck")
        assert train(algorithm, 2) == rows
        assert differing(went_on, everything(algorithm) | {"time": None}) == []


def test_epsilon_and_rate_are_functions_of_env_steps_inside_a_long_iteration_and_after_a_restore(
    build: Build, tmp_path: Path
) -> None:
    acted: list[tuple[int, float]] = []

    def watched(algorithm: DQN) -> DQN:
        module = algorithm.runners.local.module
        epsilon = module.epsilon
        module.epsilon = lambda t: (acted.append((t, epsilon(t))), acted[-1][1])[1]
        return algorithm

    schedule = Piecewise(((0, 1.0), (5_500, 0.1)))
    training = {"epsilon": [[0, 1.0], [5_500, 0.1]], "num_steps_sampled_before_learning_starts": 5_900}

    def every(env_steps: int) -> Callable[[DQNConfig], Any]:
        return lambda config: config.reporting(min_sample_timesteps_per_iteration=env_steps)

    original = watched(build(change=every(5_000), **training))
    rows = train(original)
    original.save(tmp_path / "ck")
    assert acted[-1][1] < 0.2
    restored = watched(build(seed=99, change=every(1_000), **training))
    restored.restore(tmp_path / "ck")
    rows += train(restored)

    steps = [t for t, _ in acted]
    assert steps[0] == 0
    assert all(0 <= b - a <= 2 for a, b in itertools.pairwise(steps))  # 0: both environments reset themselves
    assert rows[1]["env_steps"] - 2 <= steps[-1] < rows[1]["env_steps"]
    assert [value for _, value in acted] == pytest.approx([schedule(t) for t in steps])
    rate = Piecewise(((0, 1e-3), (1_000, 1e-4)))
    for row in rows:
        assert row["explore/epsilon"] == pytest.approx(schedule(row["env_steps"]))
        assert row["learner/lr"] == pytest.approx(rate(row["env_steps"]))


def test_relative_paths_home_and_result_objects(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    original = build()
    train(original)
    original.save("here/ck")
    original.save("~/there")
    result = original.save()
    assert (tmp_path / "work" / "here" / "ck" / "state.json").is_file()
    assert (tmp_path / "home" / "there" / "state.json").is_file()
    saved = everything(original)
    fresh = build(seed=99)
    for place in ("here/ck", "./here/../here/ck", "~/there", tmp_path / "work/here/ck", result, result.checkpoint):
        train(fresh)
        fresh.restore(place)
        assert differing(saved, everything(fresh)) == []
    again = DQN.from_checkpoint("~/there")
    assert differing(saved, everything(again)) == []
    again.stop()


def test_paths_that_hold_nothing_are_named_in_full(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    algorithm = build()
    (tmp_path / "empty").mkdir()
    for text in ("nowhere", "empty"):
        with pytest.raises(CheckpointError, match=str(tmp_path / text)):
            algorithm.restore(text)


def test_a_checkpoint_of_another_net_names_class_and_parameters(build: Build, tmp_path: Path) -> None:
    build().save(tmp_path / "ck")
    other = build(change=lambda config: config.rl_module(model_config={"fcnet_hiddens": [8]}))
    before = everything(other)
    with pytest.raises(CheckpointError, match=r"QModule: .*weight"):
        other.restore(tmp_path / "ck")
    assert differing(before, everything(other)) == []


@pytest.mark.parametrize("key", ["capacity", "prioritized"])
def test_a_replay_that_does_not_fit_is_an_error(build: Build, tmp_path: Path, key: str) -> None:
    build().save(tmp_path / "ck")
    replays = {"capacity": SlottedReplay(capacity=100, prioritized=True), "prioritized": SlottedReplay(capacity=250)}
    with pytest.raises(CheckpointError, match="resume with the settings of the run"):
        build(replay=replays[key]).restore(tmp_path / "ck")


def test_the_policy_is_the_learners_and_its_weights_go_round(build: Build) -> None:
    algorithm = build(num_steps_sampled_before_learning_starts=10)
    train(algorithm)
    algorithm.runners.local.module.net.requires_grad_(False).apply(
        lambda layer: layer.weight.zero_() if hasattr(layer, "weight") else None
    )
    policy = algorithm.get_policy()
    weights = policy.get_weights()
    learned = algorithm.learner.module_arrays()
    assert weights.keys() == learned.keys()
    assert all(np.array_equal(weights[name], learned[name]) and weights[name].any() for name in weights)

    file = io.BytesIO()
    torch.save(policy.model.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert all(np.array_equal(loaded[name].numpy(), weights[name]) for name in weights)

    other = build(seed=99)
    assert any(not np.array_equal(value, weights[name]) for name, value in other.get_policy().get_weights().items())
    other.get_policy().set_weights(weights)
    for module in (other.learner.policy_module, other.runners.local.module):
        for name, value in module.state_dict().items():
            assert np.array_equal(value.numpy(), weights[name])
    obs = np.random.default_rng(0).uniform(-1, 1, (20, 4)).astype(np.float32)
    assert [policy.compute_single_action(o) for o in obs] == [other.compute_single_action(o) for o in obs]
    weights["net.unknown"] = weights.popitem()[1]
    with pytest.raises(InputError, match=r"net\.unknown"):
        policy.set_weights(weights)


def test_get_weights_are_copies(build: Build) -> None:
    algorithm = build(num_steps_sampled_before_learning_starts=10)
    weights = algorithm.get_policy().get_weights()
    kept = {name: value.copy() for name, value in weights.items()}
    train(algorithm)
    assert all(np.array_equal(weights[name], kept[name]) for name in weights)


def test_an_unknown_policy_is_an_error(build: Build) -> None:
    with pytest.raises(InputError, match="default_policy"):
        build().get_policy("p0")
