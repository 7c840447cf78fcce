"""Settings, environments and signals that change between a checkpoint and what goes on from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from conftest import Build
from snapshots import train

from callbacks import ReturnThreshold
from rayground import DQNConfig
from rayground.algorithms.dqn import DQN
from rayground.errors import InputError


def test_a_changed_setting_survives_and_is_rolled_back_with_the_rest(build: Build, tmp_path: Path) -> None:
    original = build()
    train(original, 2)
    original.save(tmp_path / "before")
    original.change_setting("lr", 5e-5)
    original.change_setting("replay_ratio", 0.25)
    original.change_setting("tau", 0.5)
    original.save(tmp_path / "after")
    step, updates = original.env_steps, original.updates.updates
    rows = train(original)
    assert rows[0]["learner/lr"] == 5e-5
    assert rows[0]["learner/updates"] == updates + int((rows[0]["env_steps"] - step) * 0.25)

    fresh = build()
    fresh.restore(tmp_path / "after")
    assert train(fresh) == rows
    for algorithm in (fresh, original):
        algorithm.restore(tmp_path / "before")
        assert algorithm.config.lr == [[0, 1e-3], [1_000, 1e-4]]
        assert algorithm.config.replay_ratio == 0.5
        row = train(algorithm)[0]
        assert row["learner/lr"] == pytest.approx(1e-3 - 9e-4 * row["env_steps"] / 1_000)
        assert row["learner/updates"] == updates + (row["env_steps"] - step) // 2


@pytest.mark.parametrize(
    ("key", "value"),
    [("replay_ratio", -1), ("target_network_update_freq", 0), ("lr", "fast"), ("grad_clip", 0), ("gamma", 0.9)],
)
def test_a_change_that_cannot_be_changes_nothing(build: Build, key: str, value: Any) -> None:
    algorithm = build()
    before = algorithm.config
    with pytest.raises(InputError, match=key):
        algorithm.change_setting(key, value)
    assert algorithm.config is before
    assert algorithm.changes == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [({"repaly_ratio": 0.5}, "did you mean 'replay_ratio'"), ({"replay_ratio": -1}, "replay_ratio: expected")],
)
def test_a_threshold_with_a_wrong_change_is_found_before_training(
    build: Build, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        build(change=lambda config: config.callbacks([ReturnThreshold(475.0, change=change)]))


def calls_of(algorithm: DQN, name: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The env steps at which a method of its runners is called from now on."""
    steps: list[int] = []
    original = getattr(algorithm.runners, name)
    monkeypatch.setattr(algorithm.runners, name, lambda *args: (steps.append(algorithm.env_steps), original(*args))[1])
    return steps


def test_weights_go_to_the_runners_once_per_fragment(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = build(replay_ratio=100.0)
    steps = calls_of(algorithm, "set_weights", monkeypatch)
    train(algorithm)
    assert algorithm.updates.updates == (algorithm.env_steps - 50) * 100  # more at a time than are drawn in one call
    assert steps == sorted(set(steps))
    assert (steps[0] - 50 <= 2, steps[-1]) == (True, algorithm.env_steps)


def test_metrics_of_runners_are_asked_for_only_if_a_callback_may_log_some(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hook(config: DQNConfig) -> None:
        config.callbacks(on_episode_end=lambda **_: None)

    for algorithm, expected in ((build(), 0), (build(change=hook), 1)):
        steps = calls_of(algorithm, "get_metrics", monkeypatch)
        train(algorithm)
        assert len(steps) == expected


def test_a_setting_pinned_by_hand_wins_over_a_change_in_the_checkpoint(build: Build, tmp_path: Path) -> None:
    original = build()
    original.change_setting("lr", 5e-5)
    original.change_setting("tau", 0.5)
    original.save(tmp_path / "ck")
    fresh = build(lr=7e-4)
    fresh.pinned = frozenset({"lr"})
    fresh.restore(tmp_path / "ck")
    assert (fresh.config.lr, fresh.config.tau) == (7e-4, 0.5)
    fresh.save(tmp_path / "again")  # by now the pinned value is the run's own
    last = build(lr=7e-4)
    last.restore(tmp_path / "again")
    assert (last.config.lr, last.config.tau) == (7e-4, 0.5)


def test_a_return_threshold_acts_once_also_after_a_restore(build: Build, tmp_path: Path) -> None:
    def threshold(config: DQNConfig) -> None:
        config.callbacks([ReturnThreshold(0.0, change={"lr": 5e-5})])

    original = build(change=threshold)
    rates = [row["learner/lr"] for row in train(original, 3)]
    assert rates[0] != 5e-5  # it waits for a full window of five episodes
    assert rates[-1] == 5e-5
    original.change_setting("lr", 6e-5)
    original.save(tmp_path / "ck")
    fresh = build(change=threshold)
    fresh.restore(tmp_path / "ck")
    assert [row["learner/lr"] for row in train(fresh, 2)] == [6e-5, 6e-5]
    assert fresh.callbacks[0].passed_at == original.callbacks[0].passed_at


def test_another_optimizer_after_a_restore_starts_anew_and_says_so(
    build: Build, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    original = build()
    train(original, 1)
    original.save(tmp_path / "ck")
    other = build(optimizer={"type": "rmsprop", "alpha": 0.95})
    other.restore(tmp_path / "ck")
    assert "rmsprop" in caplog.text.lower()
    row = train(other)[0]
    assert np.isfinite(row["learner/loss"])
    assert {key.rsplit("/", 1)[1] for key in other.learner.optimizer_arrays()} == {"step", "square_avg"}


class Corridor(gym.Env):
    """Ends after ``length`` steps, and shows how many there were."""

    def __init__(self, context: dict[str, Any]) -> None:
        self.observation_space = gym.spaces.Box(0.0, 100.0, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.length, self.taken = context["length"], 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.taken = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> Any:
        self.taken += 1
        return np.array([self.taken], np.float32), 1.0, self.taken == self.length, False, {}


def corridor(length: int) -> Callable[[DQNConfig], Any]:
    def change(config: DQNConfig) -> None:
        config.environment(Corridor, env_config={"length": length}).reporting(metrics_num_episodes_for_smoothing=2)
        config.env_runners(num_envs_per_env_runner=1)

    return change


def test_episodes_go_on_unless_the_environment_has_changed(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = build(change=corridor(60))
    assert train(original)[0]["episodes"] == 1
    original.save(tmp_path / "ck")  # 40 steps into the second episode

    def episodes(algorithm: DQN) -> tuple[int, float]:
        algorithm.restore(tmp_path / "ck")
        row = train(algorithm)[0]
        return row["episodes"], row["episode_len_mean"]

    assert episodes(build(change=corridor(60))) == (3, 60.0)  # at 120 and 180
    assert episodes(build(change=corridor(55))) == (2, 57.5)  # at 155
    class_gone = build(change=corridor(60))
    monkeypatch.delitem(globals(), "Corridor")
    assert episodes(class_gone) == (2, 60.0)  # at 160


def test_an_interrupted_iteration_takes_a_step_all_the_same(build: Build) -> None:
    """Or its row, and its checkpoint, would have the env steps of the one before."""
    algorithm = build(change=corridor(1))  # every second vector step only resets
    train(algorithm)
    algorithm.interruption = lambda: True
    before = algorithm.env_steps
    assert [row["env_steps"] for row in train(algorithm, 4)] == [before + 1, before + 2, before + 3, before + 4]


def test_an_interrupted_evaluation_says_nothing(build: Build) -> None:
    algorithm = build(change=corridor(10))
    assert algorithm.evaluate()["env_runners"]["episode_return_mean"] == 10.0
    asked = iter([False] * 15)
    algorithm.interruption = lambda: next(asked, True)
    results = algorithm.evaluate()["env_runners"]
    assert (results["episode_return_mean"], results["num_episodes"]) == (None, 0)


def test_evaluation_does_not_change_training(build: Build) -> None:
    rows = train(build(), 2)
    evaluated = build()
    evaluated.evaluate()
    first = train(evaluated)
    evaluated.evaluate()
    assert first + train(evaluated) == rows


def test_without_the_replay_in_the_checkpoint_learning_waits_until_there_is_new_data(
    build: Build, tmp_path: Path
) -> None:
    def forgetful(config: DQNConfig) -> None:
        config.store_buffer_in_checkpoints = False

    original = build(change=forgetful, num_steps_sampled_before_learning_starts=150)
    train(original, 3)
    original.save(tmp_path / "ck")
    updates, step = original.updates.updates, original.env_steps
    fresh = build(change=forgetful, num_steps_sampled_before_learning_starts=150)
    for algorithm in (fresh, original):
        train(algorithm)
        algorithm.restore(tmp_path / "ck")
        assert len(algorithm.replay) == 0
        row = train(algorithm)[0]
        assert row["learner/updates"] == updates
        assert row["replay/size"] == row["env_steps"] - step
        row = train(algorithm)[0]
        assert row["learner/updates"] == updates + (row["env_steps"] - step - 150) // 2


def test_another_start_of_learning_holds_if_it_is_still_to_come(build: Build, tmp_path: Path) -> None:
    original = build(num_steps_sampled_before_learning_starts=500)
    train(original)
    original.save(tmp_path / "ck")
    fresh = build(num_steps_sampled_before_learning_starts=150)
    fresh.restore(tmp_path / "ck")
    row = train(fresh)[0]
    assert row["learner/updates"] == (row["env_steps"] - 150) // 2


def test_iterations_end_on_a_grid_of_env_steps(build: Build, tmp_path: Path) -> None:
    """Also with fragments longer than the grid's meshes, and when the meshes change at a restore."""

    def meshes(size: int | None) -> Callable[[DQNConfig], Any]:
        return lambda config: config.reporting(min_sample_timesteps_per_iteration=size)

    original = build(change=lambda config: meshes(None)(config).env_runners(rollout_fragment_length=10))
    steps = [row["env_steps"] for row in train(original, 3)]
    assert all(b - a >= 18 for a, b in zip([0, *steps], steps, strict=False))  # no iteration without a step
    original.save(tmp_path / "ck")
    for size in (200, 40):
        other = build(change=meshes(size))
        other.restore(tmp_path / "ck")
        goals = [(original.env_steps // size + 1 + i) * size for i in range(2)]
        assert [row["env_steps"] // 2 * 2 for row in train(other, 2)] == goals
