"""Checkpoints of an algorithm: everything comes back, and training goes on as if it had never stopped."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import ray
import tiny_dqn
import torch
from snapshots import differing, everything, untimed

from callbacks import ReturnThreshold
from rayground import DQNConfig, SlottedReplay
from rayground.algorithms.dqn import DQN
from rayground.errors import CheckpointError, InputError
from rayground.run import Clock, make_row
from rayground.schedules import Piecewise

Build = Callable[..., DQN]


@pytest.fixture(scope="module", autouse=True)
def one_ray() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False)
    yield
    ray.shutdown()


@pytest.fixture
def build() -> Iterator[Build]:
    """Builds algorithms of the tiny experiment's config with changed settings, and ends them."""
    built: list[DQN] = []

    def make(seed: int = 3, change: Callable[[DQNConfig], Any] = lambda config: None, **training: Any) -> DQN:
        config = tiny_dqn.config.copy(copy_frozen=False).training(**training).debugging(seed=seed)
        change(config)
        built.append(config.build_algo())
        return built[-1]

    yield make
    for algorithm in built:
        algorithm.stop()


def train(algorithm: DQN, iterations: int = 1) -> list[dict[str, Any]]:
    clock = Clock(algorithm)
    rows = [make_row(algorithm.train(), clock) for _ in range(iterations)]
    assert [row["rllib/num_env_steps_sampled_lifetime"] for row in rows] == [row["env_steps"] for row in rows]
    return [untimed(row) for row in rows]


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
    assert saved["target updates"] == original.env_steps // 30 - 50 // 30

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


def test_remote_runners_are_rolled_back_too(build: Build, tmp_path: Path) -> None:
    algorithm = build(change=lambda config: config.env_runners(num_env_runners=2, num_cpus_per_env_runner=0.5))
    train(algorithm, 2)
    algorithm.save(tmp_path / "ck")
    rows = train(algorithm, 2)
    weights = everything(algorithm)["weights"]
    algorithm.restore(tmp_path / "ck")
    assert train(algorithm, 2) == rows
    assert everything(algorithm)["weights"] == weights


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
    monkeypatch.delattr("test_algorithm_state.Corridor")
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
