"""Runs that are killed or interrupted at a bad moment go on from the last whole checkpoint."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import tiny_killed
from conftest import Command, RunHere
from snapshots import checked_rows, facts, fingerprint, last_state, only_run

from rayground.algorithms.dqn import DQN
from rayground.results import loggers
from rayground.results.runs import RunFiles


def test_killed_it_goes_on_from_the_last_whole_checkpoint(command: Command, run_here: RunHere, tmp_path: Path) -> None:
    """``kill -9`` in the middle of training, and of a checkpoint; both processes at the same time."""
    words = ("tiny_killed", "--seed", 5, "--stop-timesteps", 600, "--storage-path")
    killed = {
        where: command.start(*words, tmp_path / where, env={"KILL_IN": where}) for where in ("training", "checkpoint")
    }
    assert run_here(*words[1:], tmp_path / "whole", experiment=tiny_killed.experiment).code == 0
    expected = only_run(tmp_path / "whole")
    for where, process in killed.items():
        _, errors = process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, errors
        run = only_run(tmp_path / where)
        assert len(RunFiles(run).rows) == (3 if where == "training" else 4)
        assert len(list((run / "checkpoints").glob(".*.tmp-*"))) == (where == "checkpoint")
        latest = ("latest", "--storage-path", run.parent)
        done = run_here("--resume", *(latest if where == "training" else [run]), experiment=tiny_killed.experiment)
        assert done.code == 0, done.stderr
        (resume,) = RunFiles(run).experiment["resumes"]
        assert resume["env_steps"] // 100 == 2
        assert facts(checked_rows(run)) == facts(checked_rows(expected))
        assert last_state(run) == last_state(expected)
        assert not list((run / "checkpoints").glob(".*"))


def test_a_signal_while_a_checkpoint_is_written(
    run_here: RunHere, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run takes one more step, so that its last row and checkpoint are not of the same one as those before."""
    save = DQN.save_checkpoint

    def interrupted(self: DQN, folder: str) -> None:
        if self.iteration == 2:
            os.kill(os.getpid(), signal.SIGINT)
        save(self, folder)

    monkeypatch.setattr(DQN, "save_checkpoint", interrupted)
    done = run_here("--seed", 5, "--stop-timesteps", 300, "--storage-path", tmp_path)
    assert done.code == 128 + signal.SIGINT, done.stderr
    run = only_run(tmp_path)
    steps = [row["env_steps"] for row in RunFiles(run).rows]
    assert 0 < steps[2] - steps[1] <= 2
    assert [int(path.name.removeprefix("step_")) for path in RunFiles(run).checkpoints] == steps
    monkeypatch.undo()
    assert run_here("--resume", run).code == 0
    assert last_state(run) == last_state(finished)
    last, whole = RunFiles(run).rows[-1], RunFiles(finished).rows[-1]
    for key in ("env_steps", "episodes", "episode_return_mean", "learner/updates", "learner/target_updates"):
        assert last[key] == whole[key]


def test_a_kill_at_any_moment_of_a_resume_leaves_what_can_be_resumed(
    run_here: RunHere, copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies the folder, as a kill would leave it, before each step that changes what others see."""
    assert run_here("--seed", 5, "--stop-timesteps", 400, "--storage-path", tmp_path / "whole").code == 0
    whole = only_run(tmp_path / "whole")
    moments: dict[str, Path] = {}

    def watched(owner: Any, name: str) -> None:
        do = getattr(owner, name)

        def copy_then_do(*args: Any, **kwargs: Any) -> Any:
            state = str(fingerprint(copied))
            if state not in moments and len(moments) < 13:
                moments[state] = Path(shutil.copytree(copied, tmp_path / f"moment {len(moments)}"))
            return do(*args, **kwargs)

        monkeypatch.setattr(owner, name, copy_then_do)

    for owner, name in ((os, "rename"), (os, "replace"), (loggers, "append_whole")):
        watched(owner, name)
    assert run_here("--resume", RunFiles(copied).checkpoints[0], "--stop-timesteps", 200).code == 0
    monkeypatch.undo()
    left = {tuple(int(path.name[5:]) // 100 for path in sorted(m.glob("checkpoints/step_*"))) for m in moments.values()}
    assert left == {(1, 2, 3), (1, 2), (1,)}  # never a gap
    for moment in moments.values():
        done = run_here("--resume", moment, "--stop-timesteps", 400)
        assert done.code == 0, done.stderr
        assert facts(checked_rows(moment)) == facts(checked_rows(whole))
        assert last_state(moment) == last_state(whole)
