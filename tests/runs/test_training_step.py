"""DQN's iteration: the order of its parts, the replay ratio, the shares of time, and running normalization."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Build
from snapshots import differing, everything, train

from custom_models.nets.normalizer import running_norms
from custom_models.q_module import dueling_mlp
from rayground import DQNConfig
from rayground.algorithms.dqn import DQN
from rayground.algorithms.timing import PARTS
from rayground.run import Clock, make_row


def two_runners(config: DQNConfig) -> None:
    config.env_runners(num_env_runners=2, num_cpus_per_env_runner=0.5, rollout_fragment_length=3)


def normalized(config: DQNConfig) -> None:
    config.rl_module(model_config={}, rl_module_spec=dueling_mlp(hidden=[16], normalize_observations=True))


def watched(owner: Any, name: str, note: Any) -> None:
    """Calls ``note`` with the arguments before each call of a method."""
    method = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: (note(*args, **kwargs), method(*args, **kwargs))[1])


def test_the_next_steps_are_requested_before_learning_and_none_when_an_iteration_ends(build: Build) -> None:
    algorithm = build(replay_ratio=1.0)
    seen: list[tuple[str, int]] = []
    for owner, name in ((algorithm.runners, "request"), (algorithm.runners, "collect"), (algorithm, "learn")):
        watched(
            owner, name, lambda *args, name=name, **_: seen.append((name, args[1] if args else algorithm.env_steps))
        )
    (row,) = train(algorithm)
    fragments = len(seen) // 3
    middle = ["request", "learn", "collect"] * (fragments - 1)
    assert [what for what, _ in seen] == ["request", "collect", *middle, "learn"]
    asked = [step for what, step in seen if what == "request"]
    learned = [step for what, step in seen if what == "learn"]
    assert asked == [0, *learned[:-1]]  # epsilon goes by all env steps that were taken before
    assert learned[-1] == row["env_steps"]


def test_the_replay_ratio_is_kept_and_shown(build: Build) -> None:
    algorithm = build(replay_ratio=0.3, num_steps_sampled_before_learning_starts=150)
    first, second, third = train(algorithm, 3)
    assert first["learner/replay_ratio"] is None
    for row in (second, third):
        steps = row["env_steps"] - 150
        assert row["learner/updates"] == int(0.3 * steps + 1e-9)
        assert row["learner/replay_ratio"] == row["learner/updates"] / steps


def assert_shares(row: dict[str, Any], prefix: str, parts: tuple[str, ...]) -> dict[str, float]:
    shares = {part: row[f"{prefix}/{part}_share"] for part in parts}
    assert all(0 <= share <= 1 for share in shares.values())
    assert sum(shares.values()) == 1.0
    return shares


def test_shares_of_time_in_this_process(build: Build) -> None:
    algorithm = build()
    clock = Clock(algorithm)
    for _ in range(2):
        row = make_row(algorithm.train(), clock)
        shares = assert_shares(row, "time", PARTS)
        assert shares.pop("wait") == 0
        assert all(share > 0 for share in shares.values())
        assert all(assert_shares(row, "runner_time", ("env", "inference", "rest")).values())


@pytest.mark.usefixtures("one_ray")
def test_two_runners_repeat_and_their_time_is_not_the_drivers(build: Build, tmp_path: Path) -> None:
    algorithm = build(change=lambda config: (two_runners(config), normalized(config)))
    clock = Clock(algorithm)
    rows = train(algorithm, 2)
    row = make_row(algorithm.train(), clock)
    shares = assert_shares(row, "time", PARTS)
    assert shares["env"] == shares["inference"] == 0
    assert all(shares[part] > 0 for part in ("replay", "learn", "sync", "wait", "rest"))
    assert all(assert_shares(row, "runner_time", ("env", "inference", "rest")).values())
    assert row["learner/replay_ratio"] == ((row["env_steps"] - 50) // 2) / (row["env_steps"] - 50)
    went_on = everything(algorithm) | {"time": None}
    algorithm.stop()

    again = build(change=lambda config: (two_runners(config), normalized(config)))
    assert train(again, 2) == rows
    again.save(tmp_path / "ck")
    train(again)
    assert differing(went_on, everything(again) | {"time": None}) == []
    again.restore(tmp_path / "ck")
    train(again)
    assert differing(went_on, everything(again) | {"time": None}) == []


def observed(algorithm: DQN) -> list[np.ndarray]:
    """All valid observations that are collected from here on."""
    seen: list[np.ndarray] = []
    collect = algorithm.runners.collect

    def collect_and_note() -> Any:
        rollouts = collect()
        seen.extend(rollout.obs[t, n] for rollout in rollouts for t, n in np.argwhere(rollout.valid))
        return rollouts

    algorithm.runners.collect = collect_and_note
    return seen


def test_norms_know_every_observation_once_before_the_first_update_and_at_the_end_of_each_iteration(
    build: Build,
) -> None:
    algorithm = build(change=normalized, num_steps_sampled_before_learning_starts=150)
    seen, counts = observed(algorithm), []
    norms = running_norms(algorithm.learner.policy_module)
    assert len(norms) == 2  # that of the target network too
    watched(algorithm.learner, "learn", lambda *args: counts.append((int(norms[0].count), len(seen))))
    for learns in (False, True):
        (row,) = train(algorithm)
        assert bool(counts) == learns
        assert len(seen) == row["env_steps"]
        for norm in (*norms, *running_norms(algorithm.runners.local.module)):
            assert norm.count == len(seen)
            np.testing.assert_allclose(norm.mean, np.mean(seen, axis=0, dtype=np.float64), rtol=1e-9)
            np.testing.assert_allclose(norm.var, np.var(seen, axis=0, dtype=np.float64), rtol=1e-9)
    assert all(known == taken for known, taken in counts)


@pytest.mark.parametrize("start", [150, 50])
def test_with_norms_it_goes_on_bit_for_bit(build: Build, tmp_path: Path, start: int) -> None:
    """Also from a checkpoint before the first update."""
    training = {"num_steps_sampled_before_learning_starts": start, "replay_ratio": 0.3}
    never_saved = build(change=normalized, **training)
    rows = train(never_saved, 3)[1:]
    went_on = everything(never_saved) | {"time": None}
    original = build(change=normalized, **training)
    train(original)
    original.save(tmp_path / "ck")
    fresh = build(seed=99, change=normalized, **training)
    fresh.restore(tmp_path / "ck")
    for algorithm in (original, build(change=normalized, **training)):
        algorithm.restore(tmp_path / "ck")
        assert train(algorithm, 2) == rows
        assert differing(went_on, everything(algorithm) | {"time": None}) == []


@pytest.mark.usefixtures("one_ray")
def test_remote_learners_norms_know_every_observation_and_their_work_is_waiting(build: Build) -> None:
    def two_learners(config: DQNConfig) -> None:
        normalized(config)
        config.learners(num_learners=2, num_cpus_per_learner=0.5)

    algorithm = build(change=two_learners, num_steps_sampled_before_learning_starts=95)
    seen, clock = observed(algorithm), Clock(algorithm)
    row = make_row(algorithm.train(), clock)
    shares = assert_shares(row, "time", PARTS)
    assert shares["learn"] == 0 < shares["wait"]
    arrays = algorithm.learner.module_arrays()
    for net in ("net", "target_net"):
        assert arrays[f"{net}.torso.encoder.norm.count"] == len(seen) == row["env_steps"]
        np.testing.assert_allclose(
            arrays[f"{net}.torso.encoder.norm.mean"], np.mean(seen, axis=0, dtype=np.float64), rtol=1e-9
        )
