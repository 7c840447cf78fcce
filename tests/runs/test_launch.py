"""What runs take of Ray's cores and resources, and how they are recorded as asked for."""

from __future__ import annotations

import logging
import math
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray
import tiny_dqn
from conftest import Command, RunHere
from hypothesis import given
from hypothesis import strategies as st
from snapshots import only_run

from rayground.errors import InputError
from rayground.experiment import Experiment
from rayground.flags import Flags, Int
from rayground.resources import bundles, fair_share, fit_to_cores, gpus_wanted
from rayground.results.runs import RunFiles
from rayground.rollouts import group


def experiment_with(**env_runners: Any) -> Experiment:
    config = tiny_dqn.config.copy(copy_frozen=False).env_runners(**env_runners)
    return Experiment(name="tiny_dqn", config=config, stop=tiny_dqn.experiment.stop)


@pytest.mark.parametrize(
    ("processes", "main", "cores", "expected"),
    [
        ([(2, 1)], 0, 2, math.inf),
        ([(3, 1)], 0, 2, 0.666),
        ([(2, 1)], 1, 2, 0.5),
        ([(2, 1)], 1, 3, math.inf),
        ([(2, 0.25)], 1, 2, math.inf),
        ([(2, 1)], 1, 1, 0.333),
        ([(3, 1)], 4, 2, 0.5),
        ([(5, 0)], 1, 1, math.inf),
        ([(2, 1), (2, 1)], 0, 2, 0.5),
        ([(2, 1), (2, 0)], 0, 2, math.inf),
        ([(3, 1), (2, 0)], 0, 2, 0.666),
    ],
)
def test_fair_share(processes: list[tuple[int, float]], main: float, cores: float, expected: float) -> None:
    assert fair_share(processes, main, cores) == expected


@given(st.floats(0.001, 8), st.integers(1, 40), st.integers(0, 8), st.integers(1, 8), st.integers(1, 16))
def test_a_trial_always_fits(wanted: float, runners: int, learners: int, main: int, cores: int) -> None:
    config = experiment_with(num_env_runners=runners).config
    config.num_cpus_for_main_process, config.num_learners = main, learners
    share = fair_share([(runners, wanted), (learners, 1)], main, cores)
    config.num_cpus_per_env_runner, config.num_cpus_per_learner = min(wanted, share), min(1, share)
    first, *others = bundles(config, cores)
    assert 0 < first["CPU"] <= main
    assert len(others) == runners + learners
    assert all(0 < other["CPU"] <= max(1, wanted) for other in others)
    assert sum(bundle["CPU"] for bundle in (first, *others)) <= cores + 1e-9


def test_no_cores_at_all() -> None:
    with pytest.raises(InputError, match="share 0 cores, got 2"):
        fair_share([(2, 1)], 0, 0)
    with pytest.raises(InputError, match="num_cpus_for_main_process: expected cores for 1, got 0"):
        bundles(experiment_with().config, 0)


def test_all_that_a_trial_takes_is_in_its_bundles() -> None:
    config = experiment_with(num_env_runners=2, custom_resources_per_env_runner={"robot": 1}).config
    assert bundles(config, 8) == [{"CPU": 1}, {"CPU": 1, "robot": 1}, {"CPU": 1, "robot": 1}]
    config.num_gpus_per_learner, config.num_gpus_per_env_runner = 0.5, 0.25
    assert bundles(config, 8) == [{"CPU": 1, "GPU": 0.5}, *[{"CPU": 1, "GPU": 0.25, "robot": 1}] * 2]
    config.learners(num_learners=2)
    assert bundles(config, 8)[3:] == [{"GPU": 0.5}] * 2
    assert bundles(config, 8)[0] == {"CPU": 1}
    assert gpus_wanted(config) == [0.5, 0.5, 0.25, 0.25]


def test_a_resource_that_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 8.0, "robots": 1.0})
    missing = experiment_with(num_env_runners=2, custom_resources_per_env_runner={"robot": 1}).config
    with pytest.raises(InputError, match="2 runners need 2 of 'robot', got 0 in all of Ray; did you mean 'robots'"):
        fit_to_cores(missing)
    scarce = experiment_with(num_env_runners=2, custom_resources_per_env_runner={"robots": 1}).config
    with pytest.raises(InputError, match="need 2 of 'robots', got 1"):
        fit_to_cores(scarce)
    enough = experiment_with(num_env_runners=1, custom_resources_per_env_runner={"robots": 1}).config
    assert fit_to_cores(enough) is enough


def test_shared_cores_are_warned_of(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    with caplog.at_level(logging.WARNING, "rayground"):
        fitted = fit_to_cores(experiment_with(num_env_runners=2).config, main=1)
        fit_to_cores(experiment_with(num_env_runners=1, num_cpus_per_env_runner=4).config)
        both = experiment_with(num_env_runners=1).config.learners(num_learners=2)
        shared = fit_to_cores(both)
        on_gpus = fit_to_cores(both.copy(copy_frozen=False).learners(num_gpus_per_learner=0.5))
    assert fitted.num_cpus_per_env_runner == 0.5
    assert (shared.num_cpus_per_env_runner, shared.num_cpus_per_learner) == (0.666, 0.666)
    assert (on_gpus.num_cpus_per_env_runner, on_gpus.num_cpus_per_learner) == (1, "auto")
    first, second, third = (record.getMessage() for record in caplog.records)
    assert first.startswith("2 env runners share 1 core: ")
    assert second == "env runners and learners get at most 2 cores each: Ray has 2"
    assert third.startswith("1 env runner and 2 learners share 2 cores: ")


@dataclass(frozen=True)
class OwnFlags(Flags):
    n_step: Int = None
    """Steps of a return before it is bootstrapped."""


def test_flags_of_an_experiments_own_change_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        tiny_dqn.experiment.main(["--n-step", "7", "--dry-run"], flags=OwnFlags)
    assert '"n_step": 7' in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"^0$"):
        tiny_dqn.experiment.main(["--dry-run"], flags=OwnFlags)
    assert '"n_step": 3' in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"^2$"):
        tiny_dqn.experiment.main(["--n-step", "7", "--set", "n_step=8", "--dry-run"], flags=OwnFlags)
    assert capsys.readouterr().err == "error: n_step: expected once, got it twice\n"


def test_a_stop_rule_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="got 'evn_steps'; did you mean 'env_steps'"):
        tiny_dqn.experiment.train(evn_steps=5, storage=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_script_is_resumed_as_its_module(command: Command) -> None:
    package = command.home / "code" / "tried"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    shutil.copy(tiny_dqn.__file__, package / "small.py")
    git = ("git", "-C", str(command.home / "code"), "-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "a"], check=True)
    script = [sys.executable, str(package / "small.py"), "--stop-timesteps"]
    env = os.environ | {"HOME": str(command.home)}
    done = subprocess.run([*script, "100"], cwd=command.home, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    run = only_run(command.results)
    assert f"python -m tried.small --resume {run}".replace(str(command.home), "~") in done.stdout
    resumed = command("tried.small", "--resume", "latest", "--stop-timesteps", 200, cwd=package.parent)
    assert resumed.code == 0, resumed.stderr
    again = subprocess.run(
        [*script, "300", "--resume", "latest"], cwd=command.home, env=env, capture_output=True, text=True, timeout=120
    )
    assert again.returncode == 0, again.stderr
    recorded = RunFiles(run).experiment
    assert recorded["module"] == "tried.small"
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert [entry["git_commit"] for entry in (recorded, *recorded["resumes"])] == [commit] * 3
    assert "+++ b/tried/small.py" in recorded["git_diff"]


@pytest.mark.usefixtures("one_ray")
class TestWithRay:
    def test_seeds_with_as_many_runners_as_cores(self, run_here: RunHere, tmp_path: Path) -> None:
        words = ("--num-seeds", 2, "--num-env-runners", 2, "--stop-timesteps", 100, "--storage-path", tmp_path)
        done = run_here(*words)
        assert done.code == 0, done.stderr
        files = RunFiles(only_run(tmp_path))
        assert [path.name for path in files.seed_folders] == ["seed_0", "seed_1"]
        assert all(RunFiles(path).rows[-1]["env_steps"] >= 100 for path in files.seed_folders)

    def test_a_missing_resource_leaves_no_folder(self, run_here: RunHere, tmp_path: Path) -> None:
        experiment = experiment_with(num_env_runners=1, custom_resources_per_env_runner={"robot": 1})
        for more in ((), ("--num-seeds", 2)):
            done = run_here("--storage-path", tmp_path / "runs", *more, experiment=experiment)
            assert done.code == 2
            assert "need 1 of 'robot', got 0" in done.stderr
            assert not list(tmp_path.glob("runs/*"))

    def test_an_environment_that_takes_for_ever(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(group, "MAKE_WITHIN_S", 0.5)
        monkeypatch.setattr(group, "_make_and_close", lambda config: time.sleep(3_600))
        cause = group.why_runners_fail(tiny_dqn.config)
        assert cause is not None
        assert cause.startswith("a runner's process did not make CartPole-v1 within 0.5 s")
