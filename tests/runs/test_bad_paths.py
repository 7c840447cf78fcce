"""Paths and runs that are not there, or already hold something: exit code 2 and one line, all stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import tiny_dqn
from conftest import Done
from refusals import Refused, assert_in_order, only_error

from rayground.cli import experiment_command, rayground_command
from rayground.results.runs import RunFiles


def test_a_name_that_is_no_folder(refused: Refused) -> None:
    assert "'a/b'" in refused(experiment=replace(tiny_dqn.experiment, name="a/b"))


def test_a_storage_that_cannot_be_written(refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    assert_in_order(refused("--storage-path", tmp_path / "file"), f"{tmp_path}/file: expected a folder a file")
    assert_in_order(refused("--storage-path", tmp_path / "file" / "deeper"), f"{tmp_path}/file/deeper: a file")
    assert_in_order(refused("--storage-path", "/proc/none"), "/proc/none: cannot store runs here")
    monkeypatch.chdir(tmp_path)
    assert_in_order(refused("--storage-path", "file"), f"{tmp_path}/file: a file")


def test_a_resume_of_nothing_names_the_absolute_path(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert_in_order(refused("--resume", "nowhere"), f"{tmp_path}/nowhere: nothing")
    assert_in_order(refused("--resume", "~/nowhere"), f"{tmp_path}/nowhere: nothing")
    assert_in_order(refused("--resume", "latest"), f"{tmp_path}/ray_results: tiny_dqn")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    return tiny_dqn.experiment.train(seed=1, storage=tmp_path_factory.mktemp("run"), env_steps=100).folder


def test_export(called: Callable[..., Done], run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def line(*words: object) -> str:
        return only_error(called(rayground_command, *words))

    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    assert_in_order(line("export", run, "--to", "full"), f"{full} already holds something")
    assert [path.name for path in full.iterdir()] == ["notes.txt"]
    assert_in_order(line("export", run, "--to", full / "notes.txt"), f"{full}/notes.txt already holds something")
    assert_in_order(line("export", "nowhere", "--to", "new"), f"{tmp_path}/nowhere: nothing")
    assert_in_order(line("export", full, "--to", "new"), f"{full}: checkpoint")
    assert_in_order(line("exprt", run), "export 'exprt'; did you mean 'export'?")
    assert_in_order(line("export", run, "--too", "new"), "'--too'; did you mean '--to'?")
    assert_in_order(line("export", run), "--to")
    assert not (tmp_path / "new").exists()
    done = called(rayground_command, "export", run, "--to", "new")
    assert done.code == 0, done.stderr
    assert_in_order(line("export", run, "--to", "new"), f"{tmp_path}/new already holds something")


def test_a_run_that_has_ended_wants_more(called: Callable[..., Done], run: Path) -> None:
    rows = RunFiles(run).rows
    done = called(lambda argv: experiment_command(tiny_dqn.experiment, argv), "--resume", run)
    assert_in_order(only_error(done), f"{run} env_steps --stop-timesteps")
    assert RunFiles(run).rows == rows
