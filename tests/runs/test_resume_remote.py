"""Resumes and rollbacks with remote runners."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Build, RunHere
from snapshots import checked_rows, everything, facts, last_state, only_run, train


@pytest.mark.usefixtures("one_ray")
def test_with_two_remote_runners(run_here: RunHere, tmp_path: Path) -> None:
    runners = ("--num-env-runners", 2, "--seed", 5, "--set", "num_cpus_per_env_runner=0.5")
    for steps, name in ((400, "whole"), (200, "stopped")):
        done = run_here(*runners, "--stop-timesteps", steps, "--storage-path", tmp_path / name)
        assert done.code == 0, done.stderr
    stopped, whole = only_run(tmp_path / "stopped"), only_run(tmp_path / "whole")
    assert run_here("--resume", stopped, "--stop-timesteps", 400).code == 0
    assert facts(checked_rows(stopped)) == facts(checked_rows(whole))
    assert last_state(stopped) == last_state(whole)


@pytest.mark.usefixtures("one_ray")
def test_remote_runners_are_rolled_back_too(build: Build, tmp_path: Path) -> None:
    algorithm = build(change=lambda config: config.env_runners(num_env_runners=2, num_cpus_per_env_runner=0.5))
    train(algorithm, 2)
    algorithm.save(tmp_path / "ck")
    rows = train(algorithm, 2)
    weights = everything(algorithm)["weights"]
    algorithm.restore(tmp_path / "ck")
    assert train(algorithm, 2) == rows
    assert everything(algorithm)["weights"] == weights
