"""A resume with remote runners."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import RunHere
from snapshots import checked_rows, facts, last_state, only_run

from rayground.results.runs import RunFiles


@pytest.mark.usefixtures("one_ray")
def test_new_runners_go_on_from_a_checkpoint_as_those_before_did(run_here: RunHere, tmp_path: Path) -> None:
    runners = ("--num-env-runners", 2, "--seed", 5, "--set", "num_cpus_per_env_runner=0.5")
    done = run_here(*runners, "--stop-timesteps", 400, "--storage-path", tmp_path / "runs")
    assert done.code == 0, done.stderr
    whole = only_run(tmp_path / "runs")
    resumed = Path(shutil.copytree(whole, tmp_path / "resumed"))
    (second,) = resumed.glob("checkpoints/step_0000002*")
    done = run_here("--resume", second, "--stop-timesteps", 400)
    assert done.code == 0, done.stderr
    assert RunFiles(resumed).experiment["resumes"][0]["env_steps"] // 100 == 2
    assert facts(checked_rows(resumed)) == facts(checked_rows(whole))
    assert last_state(resumed) == last_state(whole)
