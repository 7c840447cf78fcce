"""Runs that are stopped, moved, changed and resumed: rows, files and weights are as if nothing had been."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_dqn
import torch
from conftest import RunHere
from snapshots import checked_rows, facts, last_state, only_run, untimed

import rayground
from callbacks import ReturnThreshold
from rayground.algorithms.dqn import DQN
from rayground.checkpoints import load_checkpoint
from rayground.errors import InputError
from rayground.experiment import CheckpointRule
from rayground.learners.dqn import DQNLearner
from rayground.results.runs import RunFiles


def test_the_same_command_gives_the_same_rows_and_weights_and_another_seed_others(
    run_here: RunHere, finished: Path, tmp_path: Path
) -> None:
    for seed, storage in ((5, tmp_path / "same"), (6, tmp_path / "other")):
        done = run_here("--seed", seed, "--stop-timesteps", 300, "--storage-path", storage)
        assert done.code == 0, done.stderr
    rows, state = checked_rows(finished), last_state(finished)
    same, other = only_run(tmp_path / "same"), only_run(tmp_path / "other")
    assert [untimed(row) for row in checked_rows(same)] == [untimed(row) for row in rows]
    assert last_state(same) == state
    assert all(a["learner/loss"] != b["learner/loss"] for a, b in zip(checked_rows(other), rows, strict=True))
    others = last_state(other)
    assert [name for name in state if name.startswith("module/") and others[name] == state[name]] == []


def test_extended_it_equals_a_run_that_was_never_stopped(run_here: RunHere, copied: Path, tmp_path: Path) -> None:
    assert run_here("--seed", 5, "--stop-timesteps", 500, "--storage-path", tmp_path / "whole").code == 0
    done = run_here("--resume", copied, "--stop-timesteps", 500)
    assert done.code == 0, done.stderr
    whole = only_run(tmp_path / "whole")
    assert facts(checked_rows(copied)) == facts(checked_rows(whole))
    assert last_state(copied) == last_state(whole)


def test_from_an_older_checkpoint_what_came_after_it_is_gone_and_comes_again(
    run_here: RunHere, finished: Path, copied: Path
) -> None:
    (older,) = copied.glob("checkpoints/step_0000001*")
    done = run_here("--resume", older)  # its stop rule, 300 env steps, is not met there
    assert done.code == 0, done.stderr
    rows, before = checked_rows(copied), checked_rows(finished)
    assert facts(rows) == facts(before)
    assert rows[0] == before[0]
    assert rows[1]["time_s"] != before[1]["time_s"]
    assert rows[1]["time_s"] > before[0]["time_s"]
    assert last_state(copied) == last_state(finished)
    (resume,) = RunFiles(copied).experiment["resumes"]
    assert (resume["from_checkpoint"], resume["changed"]) == (f"checkpoints/{older.name}", {})


@pytest.mark.parametrize("how", ["latest", "relative", "relative checkpoint", "home", "moved in between"])
def test_it_is_found_by_any_path(
    run_here: RunHere, copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    storage, place = tmp_path / "ray_results", tmp_path / "ray_results" / "moved"
    storage.mkdir()
    copied.rename(place)
    (storage / "no run").mkdir()
    monkeypatch.chdir(place / "checkpoints")
    monkeypatch.setenv("HOME", str(tmp_path))
    texts = {
        "latest": "latest",
        "relative": "..",
        "relative checkpoint": f"./{RunFiles(place).last_checkpoint.name}",
        "home": "~/ray_results/moved",
        "moved in between": place,
    }
    if how == "moved in between":
        assert run_here("--resume", place, "--stop-timesteps", 400).code == 0
        place = texts[how] = place.rename(tmp_path / "again")
    done = run_here("--resume", texts[how], "--stop-timesteps", 500)
    assert done.code == 0, done.stderr
    assert len(checked_rows(place)) == 5


def test_changed_settings_hold_from_the_first_update_and_are_recorded(
    run_here: RunHere, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = []
    learn = DQNLearner.learn

    def spy(self: DQNLearner, *args: Any) -> Any:
        result = learn(self, *args)
        rates.append(self.optimizer.param_groups[0]["lr"])
        return result

    monkeypatch.setattr(DQNLearner, "learn", spy)
    updates = RunFiles(copied).rows[-1]["learner/updates"]
    changes = ("--set", "lr=1e-4", "--set", "replay_ratio=0.25", "--set", "epsilon=0.5")
    done = run_here("--resume", copied, "--stop-timesteps", 400, *changes)
    assert done.code == 0, done.stderr
    row = RunFiles(copied).rows[-1]
    assert set(rates) == {1e-4}
    assert (row["learner/lr"], row["explore/epsilon"]) == (1e-4, 0.5)
    assert row["learner/updates"] == updates + 25
    files = RunFiles(copied)
    (resume,) = files.experiment["resumes"]
    assert resume["changed"] == {"lr": 1e-4, "replay_ratio": 0.25, "epsilon": 0.5}
    assert resume["command"] == sys.argv
    settings = files.params["algorithm"]
    assert (settings["lr"], settings["replay_ratio"], settings["epsilon"]) == (1e-4, 0.25, 0.5)
    assert files.params["stop"]["env_steps"] == 400
    assert run_here("--resume", copied, "--stop-timesteps", 500).code == 0  # and stay
    assert RunFiles(copied).rows[-1]["learner/lr"] == 1e-4
    assert RunFiles(copied).experiment["resumes"][1]["changed"] == {}


def test_what_a_threshold_changed_survives_and_a_setting_by_hand_wins(run_here: RunHere, tmp_path: Path) -> None:
    config = tiny_dqn.config.copy(copy_frozen=False).callbacks([ReturnThreshold(0.0, change={"lr": 5e-5})])
    experiment = replace(tiny_dqn.experiment, config=config)
    words = ("--seed", 5, "--stop-timesteps", 300, "--storage-path", tmp_path)
    assert run_here(*words, experiment=experiment).code == 0
    run = only_run(tmp_path)
    by_hand = Path(shutil.copytree(run, tmp_path / "by hand"))
    assert RunFiles(run).rows[-1]["learner/lr"] == 5e-5
    assert run_here("--resume", run, "--stop-timesteps", 500, experiment=experiment).code == 0
    assert [row["learner/lr"] for row in RunFiles(run).rows[3:]] == [5e-5, 5e-5]
    assert RunFiles(run).params["algorithm"]["lr"] == [[0, 1e-3], [1_000, 1e-4]]
    words = ("--resume", by_hand, "--stop-timesteps", 500, "--set", "lr=7e-5")
    assert run_here(*words, experiment=experiment).code == 0
    assert [row["learner/lr"] for row in RunFiles(by_hand).rows[3:]] == [7e-5, 7e-5]


def test_the_best_checkpoint_by_greedy_evaluation_is_kept_beside_the_last(
    run_here: RunHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([10.0, 30.0, 20.0, 25.0, 30.0, 7.0])
    evaluate = DQN.evaluate

    def scored(self: DQN, **kwargs: Any) -> dict[str, Any]:
        results = evaluate(self, **kwargs)
        results["env_runners"]["episode_return_mean"] = next(scores)
        return results

    monkeypatch.setattr(DQN, "evaluate", scored)
    experiment = replace(tiny_dqn.experiment, checkpoints=CheckpointRule(every=1))
    words = ("--seed", 5, "--evaluation-interval", 1, "--stop-timesteps", 400, "--storage-path", tmp_path)
    assert run_here(*words, experiment=experiment).code == 0
    run = only_run(tmp_path)

    def kept() -> tuple[list[int], int]:
        files = RunFiles(run)
        hundreds = [int(path.name.removeprefix("step_")) // 100 for path in files.checkpoints]
        return hundreds, int(files.best_checkpoint.name.removeprefix("step_")) // 100

    assert kept() == ([2, 4], 2)
    assert run_here("--resume", run, "--stop-timesteps", 600, experiment=experiment).code == 0
    assert kept() == ([5, 6], 5)  # of equals the later one
    assert [row["evaluation/episode_return_mean"] for row in checked_rows(run)] == [10, 30, 20, 25, 30, 7]


def test_a_run_is_read_back(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(finished.parent)
    run = rayground.load(finished.name)
    assert run.folder == finished
    assert list(run.frame["env_steps"]) == [row["env_steps"] for row in checked_rows(finished)]
    algorithm = run.algorithm
    try:
        assert algorithm.env_steps == run.frame["env_steps"].iloc[-1]
        assert algorithm.iteration == 3
        assert len(algorithm.replay) == run.frame["replay/size"].iloc[-1]
        learned = load_checkpoint(run.files.last_checkpoint).arrays("module")
        weights = algorithm.get_policy().get_weights()
        assert weights.keys() == learned.keys()
        assert all(np.array_equal(weights[name], learned[name]) for name in weights)
        best = load_checkpoint(run.files.best_checkpoint).arrays("module")
        acting = run.policy.get_weights()
        assert acting
        assert all(np.array_equal(acting[name], best[name]) for name in acting)
        run.policy.set_weights({name: weights[name] for name in acting})
        for obs in np.random.default_rng(0).uniform(-1, 1, (20, 4)).astype(np.float32):
            net = algorithm.learner.policy_module.net
            assert run.policy.compute_single_action(obs) == int(net(torch.as_tensor(obs[None])).argmax())
        assert algorithm.train()["headline"]["env_steps"] // 100 == 4
    finally:
        algorithm.stop()


def test_no_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=str(tmp_path)):
        rayground.load(tmp_path)
