"""Runs that are stopped, killed, moved, changed and resumed: files, rows and weights are as if nothing had been."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import ray
import tiny_dqn
import tiny_killed
import torch
from conftest import Command, Done
from snapshots import untimed
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import rayground
from callbacks import ReturnThreshold
from custom_models.q_module import q_module
from rayground import Experiment, quiet
from rayground.algorithms.dqn import DQN
from rayground.checkpoints import load_checkpoint
from rayground.cli import experiment_command
from rayground.errors import CheckpointError, InputError
from rayground.experiment import CheckpointRule
from rayground.learners.dqn import DQNLearner
from rayground.results import loggers
from rayground.results.runs import RunFiles
from rayground.schedules import Piecewise

RATE, EPSILON = Piecewise(((0, 1e-3), (1_000, 1e-4))), Piecewise(((0, 1.0), (800, 0.1)))
RunHere = Callable[..., Done]


@pytest.fixture(scope="module", autouse=True)
def one_ray() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False)
    yield
    ray.shutdown()


def run_command(experiment: Experiment, *words: object) -> int:
    """The command line of an experiment of a module ``tiny_dqn`` or ``tiny_killed``, in this process."""
    main = sys.modules["__main__"]
    shutdown, quiet.shutdown_ray = quiet.shutdown_ray, lambda: None
    sys.modules["__main__"] = sys.modules[experiment.name if experiment.name in sys.modules else "tiny_dqn"]
    try:
        return experiment_command(experiment, [str(word) for word in words])
    except SystemExit as left:
        return int(str(left.code))
    finally:
        sys.modules["__main__"], quiet.shutdown_ray = main, shutdown


@pytest.fixture
def run_here(capsys: pytest.CaptureFixture[str]) -> RunHere:
    def run(*words: object, experiment: Experiment = tiny_dqn.experiment) -> Done:
        code = run_command(experiment, *words)
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 300 env steps with seed 5, all of whose checkpoints are kept. Copy it before you change it."""
    storage = tmp_path_factory.mktemp("finished")
    assert run_command(tiny_dqn.experiment, "--seed", 5, "--stop-timesteps", 300, "--storage-path", storage) == 0
    return only_run(storage)


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """That run, in another place."""
    return Path(shutil.copytree(finished, tmp_path / "elsewhere" / "a run"))


def only_run(storage: Path) -> Path:
    (folder,) = storage.iterdir()
    return folder


def checked_rows(folder: Path, rate: Callable[[int], float] = RATE) -> list[dict[str, Any]]:
    """A run's rows, after checking that all result files agree and nothing in them is twice, missing or jumps."""
    rows = RunFiles(folder).rows
    for key in ("env_steps", "iteration", "episodes", "time_s", "learner/updates", "learner/target_updates"):
        assert all(a[key] < b[key] for a, b in itertools.pairwise(rows)), key
    assert [row["iteration"] for row in rows] == list(range(1, len(rows) + 1))
    assert [row["env_steps"] // 100 for row in rows] == list(range(1, len(rows) + 1))
    for row in rows:
        assert row["learner/lr"] == pytest.approx(rate(row["env_steps"]))
        assert row["explore/epsilon"] == pytest.approx(EPSILON(row["env_steps"]))
        assert row["rllib/num_env_steps_sampled_lifetime"] == row["env_steps"]
    assert (folder / "progress.csv").read_text().count("env_steps,") == 1
    frame = pd.read_csv(folder / "progress.csv")
    events = EventAccumulator(str(folder), purge_orphaned_data=False).Reload()  # TensorBoard shows what lies there
    for key in ("time_s", "episode_return_mean", "learner/loss", "explore/epsilon"):
        logged = {row["env_steps"]: row[key] for row in rows}
        assert dict(zip(frame["env_steps"], frame[key], strict=True)) == pytest.approx(logged), key
        curve = [(point.step, point.value) for point in events.Scalars(key)]
        assert curve == [(step, pytest.approx(value)) for step, value in logged.items()], key
    return rows


def facts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without times, and without the greedy evaluation that each session ends with."""
    return [{k: v for k, v in untimed(row).items() if not k.startswith("evaluation/")} for row in rows]


def last_state(folder: Path) -> dict[str, bytes]:
    """Weights, optimizer, replay and random generators in a run's last checkpoint."""
    checkpoint = load_checkpoint(RunFiles(folder).last_checkpoint)
    arrays = {f"{group}/{name}": a for group in checkpoint.groups for name, a in checkpoint.arrays(group).items()}
    assert {"module", "optimizer", "replay", "rng"} == {name.split("/")[0] for name in arrays}
    return {name: array.tobytes() for name, array in arrays.items()}


def fingerprint(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def assert_refused(done: Done, *parts: str) -> None:
    """Exit code 2 and one line on stderr with all of these parts."""
    assert done.code == 2
    (line,) = done.stderr.strip().splitlines()
    for part in parts:
        assert part in line


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


def test_with_two_remote_runners(run_here: RunHere, tmp_path: Path) -> None:
    runners = ("--num-env-runners", 2, "--seed", 5, "--set", "num_cpus_per_env_runner=0.5")
    for steps, name in ((400, "whole"), (200, "stopped")):
        done = run_here(*runners, "--stop-timesteps", steps, "--storage-path", tmp_path / name)
        assert done.code == 0, done.stderr
    stopped, whole = only_run(tmp_path / "stopped"), only_run(tmp_path / "whole")
    assert run_here("--resume", stopped, "--stop-timesteps", 400).code == 0
    assert facts(checked_rows(stopped)) == facts(checked_rows(whole))
    assert last_state(stopped) == last_state(whole)


def test_a_finished_run_wants_a_higher_stop(run_here: RunHere, copied: Path) -> None:
    before = fingerprint(copied)
    for flags in ((), ("--stop-timesteps", 200)):
        assert_refused(run_here("--resume", copied, *flags), str(copied), "env_steps 30", "--stop-timesteps")
    assert fingerprint(copied) == before


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


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--set", "replay.capacity=100"), ("resume with the settings of the run",)),
        (("--set", "model_config.fcnet_hiddens=[8]"), ("do not fit",)),
        (("--set", "lrr=1"), ("lrr", "'lr'")),
        (("--seed", "7"), ("--seed",)),
    ],
)
def test_settings_that_do_not_fit_change_nothing(
    run_here: RunHere, copied: Path, words: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    before = fingerprint(copied)
    assert_refused(run_here("--resume", copied, "--stop-timesteps", 400, *words), *parts)
    assert fingerprint(copied) == before


@pytest.mark.parametrize("damage", ["missing", "empty", "emptied", "torn", "truncated", "changed", "no run"])
def test_damage_is_named_with_the_absolute_path(
    run_here: RunHere, copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.chdir(copied.parent)
    checkpoint = RunFiles(copied).last_checkpoint
    weights = checkpoint / "module.safetensors"
    if damage == "emptied":
        shutil.rmtree(checkpoint)
        checkpoint.mkdir()
    elif damage == "torn":
        weights.unlink()
    elif damage == "truncated":
        os.truncate(weights, weights.stat().st_size - 1)
    elif damage == "changed":
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
    elif damage == "no run":
        checkpoint = Path(shutil.copytree(checkpoint, tmp_path / checkpoint.name))
    elif damage == "empty":
        checkpoint = tmp_path / "empty"
        checkpoint.mkdir()
    else:
        checkpoint = copied.parent / "a rum"
    before = fingerprint(copied)
    done = run_here("--resume", os.path.relpath(checkpoint), "--stop-timesteps", 400)
    assert_refused(done, str(checkpoint), *(["a run"] if damage == "missing" else []))
    assert fingerprint(copied) == before
    if damage in ("emptied", "torn", "truncated"):
        assert run_here("--resume", copied, "--stop-timesteps", 400).code == 0  # from the one before
        assert len(checked_rows(copied)) == 4
        assert RunFiles(copied).experiment["resumes"][0]["env_steps"] // 100 == 2


def test_a_class_that_was_renamed_is_named(
    run_here: RunHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_nets.py").write_text(
        "from custom_models.nets import PlainMLP\nclass OwnNet(PlainMLP):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import own_nets

    config = tiny_dqn.config.copy(copy_frozen=False).rl_module(
        rl_module_spec=q_module(own_nets.OwnNet, hidden=[8]), model_config={}
    )
    experiment = replace(tiny_dqn.experiment, config=config)
    storage = tmp_path / "results"
    assert run_here("--stop-timesteps", 100, "--storage-path", storage, experiment=experiment).code == 0
    run = only_run(storage)
    assert rayground.load(run).policy.model.net.__class__ is own_nets.OwnNet
    own_nets.OurNet = own_nets.OwnNet
    del own_nets.OwnNet
    checkpoint = RunFiles(run).last_checkpoint
    before = fingerprint(run)
    done = run_here("--resume", run, "--stop-timesteps", 200, experiment=experiment)
    assert_refused(done, str(checkpoint), "own_nets.OwnNet", "OurNet")
    for use in (lambda: rayground.load(run).policy, lambda: rayground.load(run).algorithm):
        with pytest.raises(CheckpointError, match=r"own_nets\.OwnNet"):
            use()
    assert fingerprint(run) == before


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
        if where == "training":  # in a process of its own, from anywhere
            done = command("tiny_killed", "--resume", "latest", "--storage-path", run.parent, cwd=tmp_path)
        else:
            done = run_here("--resume", run, experiment=tiny_killed.experiment)
        assert done.code == 0, done.stderr
        (resume,) = RunFiles(run).experiment["resumes"]
        assert resume["env_steps"] // 100 == 2
        assert facts(checked_rows(run)) == facts(checked_rows(expected))
        assert last_state(run) == last_state(expected)
        assert not list((run / "checkpoints").glob(".*"))


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
