"""The commands of A2C and A3C: what they write, what they refuse, and what Ctrl-C leaves to go on from."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import Command
from snapshots import only_run

from experiments import a3c_cartpole
from rayground.results.runs import RunFiles

LINE = "error: --parallelism: expected one of gradient, data, got 'foo'"


def test_a2c(command: Command) -> None:
    done = command("experiments.a2c_cartpole", "--seed", 1, "--stop-timesteps", 2_000)
    assert (done.code, done.stderr) == (0, "")
    run = only_run(command.results)
    rows = RunFiles(run).rows
    assert rows[-1]["env_steps"] >= 2_000
    assert rows[-1]["learner/updates"] > 0
    assert f"--resume {run}".replace(str(command.home), "~") in done.stdout
    assert RunFiles(run).last_checkpoint.name == f"step_{rows[-1]['env_steps']:09d}"


def wait_for(process: subprocess.Popen[str], happened: Callable[[], Any]) -> None:
    while not happened():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def test_a3c_is_interrupted_and_goes_on_in_the_other_form(command: Command) -> None:
    """Ctrl-C reaches all processes of the terminal, the runners too."""
    runners = ("--num-env-runners", 2, "--set", "min_sample_timesteps_per_iteration=200")
    words = ("experiments.a3c_cartpole", "--seed", 1, "--parallelism", "data", *runners)
    process = command.start(*words, "--stop-timesteps", 10_000_000, "--stop-reward", "inf")
    wait_for(process, lambda: list(command.results.glob("*/result.json")))
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (128 + signal.SIGINT, "")
    run = only_run(command.results)
    rows = RunFiles(run).rows
    assert list(pd.read_csv(run / "progress.csv")["env_steps"]) == [row["env_steps"] for row in rows]
    assert RunFiles(run).last_checkpoint.name == f"step_{rows[-1]['env_steps']:09d}"
    assert RunFiles(run).params["algorithm"]["parallelism"] == "data"
    for row in rows:
        assert row["workers/1/share"] + row["workers/2/share"] == pytest.approx(1.0)
        assert row["workers/bytes_up_per_update"] > row["learner/staleness_max"] >= row["learner/staleness_mean"] > 0

    goal = rows[-1]["env_steps"] + 400
    words = ("experiments.a3c_cartpole", "--resume", "latest", "--parallelism", "gradient", "--num-env-runners", 1)
    done = command(*words, "--stop-timesteps", goal)
    assert (done.code, done.stderr) == (0, "")
    assert RunFiles(run).params["algorithm"]["parallelism"] == "gradient"
    more = RunFiles(run).rows[len(rows) :]
    assert RunFiles(run).rows[: len(rows)] == rows
    assert more[0]["learner/updates"] > rows[-1]["learner/updates"]
    assert more[-1]["env_steps"] >= goal
    alone = more[1:]
    assert {(row["learner/staleness_max"], row["workers/1/share"]) for row in alone} == {(0, 1.0)}
    parameters = 4 * (2 * (4 * 64 + 64 + 64 * 64 + 64) + (64 + 1) * 2 + (64 + 1))  # two torsos, 2 actions, a value
    assert {row["workers/bytes_up_per_update"] for row in alone} == {parameters}
    assert {row["workers/bytes_down_per_update"] for row in alone} == {parameters}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--parallelism", "foo"), LINE),
        (
            ("--num-learners", "2"),
            "error: num_learners=2: with parallelism='gradient' the runners compute the gradients, and the main "
            "process applies them: set num_learners=0, or parallelism='data'",
        ),
    ],
)
def test_what_is_refused(words: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as left:
        a3c_cartpole.experiment.main([*words, "--storage-path", str(tmp_path)], flags=a3c_cartpole.A3CFlags)
    captured = capsys.readouterr()
    assert (left.value.code, captured.out, captured.err) == (2, "", f"{line}\n")
    assert not any(tmp_path.iterdir())
