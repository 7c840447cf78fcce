"""A3C when runners fail: what is not finite is dropped, who dies comes back, who raises ends the run."""

from __future__ import annotations

import logging
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import tiny_a3c
from conftest import Build, RunHere
from ray.rllib.callbacks.callbacks import RLlibCallback
from snapshots import only_run, train

from rayground import Experiment, Stop
from rayground.algorithms import a3c
from rayground.algorithms.a3c import A3C
from rayground.errors import RunError
from rayground.results.runs import RunFiles
from rayground.rollouts.group import EnvironmentCrash

FORMS = ("gradient", "data")
RUNNERS = 3


class Counted(RLlibCallback):
    """Counts episodes on the runners."""

    def on_episode_end(self, *, metrics_logger: Any, **kwargs: Any) -> None:
        metrics_logger.log_value(("seen", "episodes"), 1, reduce="lifetime_sum")


@pytest.fixture(scope="module", params=FORMS)
def crew(one_ray: None, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[A3C]:
    """One for all tests of a form, in the order in which they stand here; the last one breaks it."""
    config = tiny_a3c.told(tmp_path_factory.mktemp("notes"), RUNNERS, request.param).callbacks(Counted)
    algorithm = config.fault_tolerance(max_num_env_runner_restarts=1).build_algo()
    yield algorithm
    algorithm.stop()


def notes_of(algorithm: A3C) -> Path:
    return Path(algorithm.config.env_config["notes"])


def train_until(algorithm: A3C, happened: Any) -> list[dict[str, Any]]:
    """Rows of so many iterations as it takes; pytest's timeout ends it if it never happens."""
    rows = train(algorithm)
    while not happened(rows):
        rows += train(algorithm)
    return rows


def is_counted(algorithm: A3C) -> bool:
    return algorithm.env_steps == 8 * (algorithm.updates + algorithm.dropped)


def test_who_takes_long_keeps_nobody_waiting_also_if_callbacks_log_on_the_runners(crew: A3C) -> None:
    with tiny_a3c.telling(notes_of(crew), "holds_2"):
        rows = train(crew, 3)
    assert [row["workers/2/share"] for row in rows[1:]] == [0.0] * 2
    train_until(crew, lambda rows: rows[-1]["workers/2/share"] > 0)
    counted = 0
    while not counted:
        counted = crew.train()["env_runners"].get("seen", {}).get("episodes", 0)
    assert counted <= crew.episodes.count + 2 * RUNNERS  # those that are not delivered yet


def test_updates_that_are_not_finite_are_dropped_counted_and_said(
    crew: A3C, build: Build, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: dict[int, set[str]] = {runner: set() for runner in range(1, RUNNERS + 1)}
    learn_from = crew.learn_from

    def learn_and_look(sampled: Any, staleness: int) -> None:
        before, dropped = {name: array.copy() for name, array in crew.learner.module_arrays().items()}, crew.dropped
        learn_from(sampled, staleness)
        is_same = [np.array_equal(array, before[name]) for name, array in crew.learner.module_arrays().items()]
        assert all(is_same) if crew.dropped > dropped else not all(is_same)
        outcomes[sampled.runner].add("dropped" if crew.dropped > dropped else "learnt from")

    monkeypatch.setattr(crew, "learn_from", learn_and_look)
    with caplog.at_level(logging.WARNING, "rayground"):
        with tiny_a3c.telling(notes_of(crew), "spoils_2"):
            rows = train_until(crew, lambda rows: rows[-1]["learner/updates_dropped"] >= 3)
        rows += train(crew)
    assert outcomes.pop(2) >= {"dropped"}
    assert set().union(*outcomes.values()) == {"learnt from"}
    said = [
        re.match(r"dropped (\d+) updates whose .*\(runner 2: (\d+)\); (\d+) so far", r.message) for r in caplog.records
    ]
    dropped = [int(words[1]) for words in said if words]
    assert [int(words[2]) for words in said if words] == dropped
    assert [int(words[3]) for words in said if words] == list(np.cumsum(dropped))
    assert sum(dropped) == rows[-1]["learner/updates_dropped"] == crew.dropped
    assert is_counted(crew)
    assert all(np.isfinite(array).all() for array in crew.learner.module_arrays().values())
    assert all(np.isfinite(row["learner/loss"]) for row in rows)
    crew.save(tmp_path / "ck")
    fresh = build(config=tiny_a3c.told(notes_of(crew), 0, crew.config.parallelism))
    fresh.restore(tmp_path / "ck")
    assert (fresh.dropped, fresh.updates) == (crew.dropped, crew.updates)


def test_an_environment_that_raises_is_told_of_with_its_own_traceback(crew: A3C) -> None:
    line = r"^runner 1: the environment raised OSError: the sensor went away \(tiny_a3c\.py:"
    with tiny_a3c.telling(notes_of(crew), "raises_1"), pytest.raises(EnvironmentCrash, match=line) as told:
        train_until(crew, lambda rows: False)
    assert f'File "{tiny_a3c.__file__}"' in told.value.traceback
    assert told.value.traceback.rstrip().endswith("OSError: the sensor went away")
    train_until(crew, lambda rows: rows[-1]["workers/1/share"] > 0)
    assert is_counted(crew)


def test_who_dies_comes_back_and_the_others_go_on_until_restarts_are_used_up(
    crew: A3C, caplog: pytest.LogCaptureFixture
) -> None:
    def pid(runner: int) -> int:
        return ray.get(crew.runners._actors()[runner].__ray_call__.remote(lambda actor: os.getpid()), timeout=60)

    killed = pid(3)
    os.kill(killed, signal.SIGKILL)
    with caplog.at_level(logging.WARNING, "rayground"):
        rows = train_until(crew, lambda rows: crew.runners.restarts and not rows[-1]["workers/3/share"])
        rows += train_until(crew, lambda rows: rows[-1]["workers/3/share"] > 0)
    died = "runner 3 died: its process was killed (out of memory?) or crashed; restart 1 of at most 1"
    assert [record.message for record in caplog.records] == [died]
    assert crew.runners.restarts == 1
    assert pid(3) != killed
    assert is_counted(crew)
    shares = [sum(row[f"workers/{i}/share"] for i in range(1, RUNNERS + 1)) for row in rows]
    assert shares == pytest.approx([1.0] * len(rows))
    os.kill(pid(1), signal.SIGKILL)
    with pytest.raises(RunError, match=r"^runner 1 died: .*; all 1 restarts are used up$"):
        train_until(crew, lambda rows: False)


class Trouble(RLlibCallback):
    """After the second result, does in the folder of notes what the environment's settings say."""

    def on_train_result(self, *, algorithm: Any, result: dict[str, Any], **kwargs: Any) -> None:
        if result["training_iteration"] == 2:
            (notes_of(algorithm) / algorithm.config.env_config["then"]).touch()


def troubled(notes: Path, form: str, then: str) -> Experiment:
    config = tiny_a3c.told(notes, 0, form).callbacks(Trouble)
    return Experiment("tiny_a3c", config.environment(env_config={"then": then}), Stop(env_steps=10_000))


@pytest.mark.parametrize("form", FORMS)
def test_an_environment_that_raises_ends_the_run(run_here: RunHere, tmp_path: Path, form: str) -> None:
    (tmp_path / "notes").mkdir()
    words = ("--seed", 1, "--storage-path", tmp_path / "runs")
    done = run_here(*words, experiment=troubled(tmp_path / "notes", form, "raises_0"))
    assert done.code == 1
    *shown, line = done.stderr.splitlines()
    assert line.startswith("error: runner 0: the environment raised OSError: the sensor went away (tiny_a3c.py:")
    run = only_run(tmp_path / "runs")
    assert shown[-1] == "OSError: the sensor went away" == (run / "error.txt").read_text().splitlines()[-1]
    assert [row["iteration"] for row in RunFiles(run).rows] == [1, 2]


@pytest.mark.parametrize("form", FORMS)
def test_where_nothing_is_finite_any_more_the_run_ends(
    run_here: RunHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(a3c, "MAX_DROPPED_IN_A_ROW", 20)
    (tmp_path / "notes").mkdir()
    words = ("--seed", 1, "--storage-path", tmp_path / "runs")
    done = run_here(*words, experiment=troubled(tmp_path / "notes", form, "spoils_0"))
    assert done.code == 1
    last = RunFiles(only_run(tmp_path / "runs")).rows[-1]
    assert 0 < last["learner/updates_dropped"] < 20
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert re.match(r"error: at env step \d+ the last 20 gradients were not finite: nothing is learnt", line)
