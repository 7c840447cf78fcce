"""What a run logs: JSON lines, CSV and TensorBoard, whole after every row and cut back on resume."""

import contextlib
import io
import json
import math
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from rayground.errors import InputError, RunError
from rayground.results import events, files, loggers
from rayground.results.loggers import RunLogger


class Clock:
    """A clock that only waiting moves on."""

    def __init__(self, now: float) -> None:
        self.now = now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch) -> Clock:
    """Every logger here opens within the same second, unless it waits; and no test has to."""
    clock = Clock(1_000_000.25)
    monkeypatch.setattr(events, "time", clock)
    return clock


def row(env_steps: int, **metrics) -> dict:
    return {"env_steps": env_steps, "iteration": env_steps // 100, **metrics}


def json_rows(folder: Path) -> list[dict]:
    return [json.loads(line, parse_constant=pytest.fail) for line in (folder / "result.json").read_text().splitlines()]


def points(folder: Path, tag: str) -> list[tuple[int, float]]:
    accumulator = EventAccumulator(str(folder)).Reload()
    return [(event.step, event.value) for event in accumulator.Scalars(tag)]


def raw_steps(folder: Path, tag: str) -> list[int]:
    """The steps of all points in the files, without TensorBoard's own rules of what to forget."""
    return [
        event.step
        for file in events.event_files(folder)
        for event in EventFileLoader(str(file)).Load()
        for value in event.summary.value
        if value.tag == tag
    ]


def test_all_three_are_complete_after_every_row(tmp_path):
    log = RunLogger(tmp_path)  # never closed: a killed run does not get to it
    for steps in (100, 200):
        log.log(row(steps, **{"a/b": steps / 8, "text": f"at {steps}"}))
        assert json_rows(tmp_path)[-1] == row(steps, **{"a/b": steps / 8, "text": f"at {steps}"})
        frame = pd.read_csv(tmp_path / "progress.csv")
        assert frame.iloc[-1].to_dict() == row(steps, **{"a/b": steps / 8, "text": f"at {steps}"})
        assert points(tmp_path, "a/b")[-1] == (steps, steps / 8)
    assert points(tmp_path, "a/b") == [(100, 12.5), (200, 25.0)]
    assert points(tmp_path, "iteration") == [(100, 1.0), (200, 2.0)]
    assert set(EventAccumulator(str(tmp_path)).Reload().Tags()["scalars"]) == {"env_steps", "iteration", "a/b"}


def test_rows_survive_kill_9(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from rayground.results.loggers import RunLogger\n"
        "log = RunLogger(Path(sys.argv[1]))\n"
        "for k in range(1, 4): log.log({'env_steps': k, 'iteration': k, 'x': k / 2})\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path], check=False).returncode == -9
    expected = [{"env_steps": k, "iteration": k, "x": k / 2} for k in range(1, 4)]
    assert json_rows(tmp_path) == expected
    assert pd.read_csv(tmp_path / "progress.csv").to_dict("records") == expected
    assert points(tmp_path, "x") == [(1, 0.5), (2, 1.0), (3, 1.5)]


def test_a_late_metric_widens_the_csv(tmp_path):
    log = RunLogger(tmp_path)
    log.log(row(100, first=1.5))
    log.log(row(200, late="x,y"))
    log.log(row(300, first=2.5, late=None, later=True))
    log.log(row(400, late="z"))
    lines = (tmp_path / "progress.csv").read_text().splitlines()
    assert lines == [
        "env_steps,iteration,first,late,later",
        "100,1,1.5,,",
        '200,2,,"x,y",',
        "300,3,2.5,,True",
        "400,4,,z,",
    ]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_non_finite_numbers(tmp_path):
    log = RunLogger(tmp_path)
    log.log(row(100, x=math.nan, y=1.0, z=np.float32("inf"), lists=[1.0, -math.inf]))
    log.log(row(200, x=2.0, y=None, z=-math.inf, lists=[math.nan]))
    assert json_rows(tmp_path) == [
        row(100, x=None, y=1.0, z=None, lists=[1.0, None]),
        row(200, x=2.0, y=None, z=None, lists=[None]),
    ]
    assert (tmp_path / "progress.csv").read_text() == "env_steps,iteration,x,y,z\n100,1,,1.0,\n200,2,2.0,,\n"
    assert points(tmp_path, "x") == [(200, 2.0)]
    assert points(tmp_path, "y") == [(100, 1.0)]
    assert "z" not in EventAccumulator(str(tmp_path)).Reload().Tags()["scalars"]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float16(0.5), 0.5),
        (np.uint8(200), 200),
        (np.int64(2**62), 2**62),
        (np.bool_(True), True),
        (np.array(3), 3),
        (np.array([1, 2], np.int8), [1, 2]),
        (torch.tensor(0.25), 0.25),
        (torch.tensor([1.0, 2.0]), [1.0, 2.0]),
        ((1, "a", None), [1, "a", None]),
        (np.str_("s"), "s"),
        (np.float64("nan"), None),
    ],
)
def test_values_of_numpy_and_torch_become_plain(value, plain):
    got = loggers.plain_value("x", value)
    assert got == plain
    assert type(got) is type(plain)


def test_numbers_of_numpy_are_tensorboard_scalars(tmp_path):
    log = RunLogger(tmp_path)
    log.log(row(np.int64(100), half=np.float16(0.5), byte=np.uint8(200), flag=True))
    assert points(tmp_path, "half") == [(100, 0.5)]
    assert points(tmp_path, "byte") == [(100, 200.0)]
    assert points(tmp_path, "flag") == [(100, 1.0)]


def test_lists_are_histograms(tmp_path):
    log = RunLogger(tmp_path)
    log.log(row(100, returns=[1.0, 5.0, 6.0, math.nan], names=["a"], none=[]))
    assert json_rows(tmp_path) == [row(100, returns=[1.0, 5.0, 6.0, None], names=["a"], none=[])]
    assert (tmp_path / "progress.csv").read_text() == "env_steps,iteration\n100,1\n"
    accumulator = EventAccumulator(str(tmp_path)).Reload()
    assert accumulator.Tags()["histograms"] == ["returns"]
    (event,) = accumulator.Histograms("returns")
    histogram = event.histogram_value
    assert (event.step, histogram.num, histogram.min, histogram.max, histogram.sum) == (100, 3, 1.0, 6.0, 12.0)


def test_wrong_rows_are_refused_whole(tmp_path):
    log = RunLogger(tmp_path)
    for wrong in ({"iteration": 1}, {"env_steps": 1.5, "iteration": 1}, {"env_steps": 1}):
        with pytest.raises(ValueError, match=r"expected an integer '(env_steps|iteration)'"):
            log.log(wrong)
    for value in ({"nested": 1}, np.zeros((2, 2)), object(), 1j):
        with pytest.raises(RunError, match=r"^metric 'x': expected a number, string, None or flat list, got "):
            log.log(row(100, x=value))
    assert not (tmp_path / "result.json").exists()


def test_a_new_run_does_not_append_to_an_old_one(tmp_path, monkeypatch):
    log = RunLogger(tmp_path)
    log.log(row(100))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=f"^{tmp_path}: expected a folder without results"):
        RunLogger(Path())


@contextlib.contextmanager
def largest_file(size: int):
    """The system refuses to write files of more bytes, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_whole_lines(tmp_path):
    log = RunLogger(tmp_path)
    log.log(row(100))
    with largest_file(40), pytest.raises(RunError, match=f"^{tmp_path}: cannot be written: File too large; "):
        log.log(row(200))
    assert json_rows(tmp_path) == [row(100)]
    log.log(row(200))
    assert json_rows(tmp_path) == [row(100), row(200)]


def test_append_takes_a_torn_write_back(tmp_path):
    path = tmp_path / "lines"
    files.append_whole(path, "first\n")
    with largest_file(9), pytest.raises(OSError, match="File too large"):
        files.append_whole(path, "second\n")
    assert path.read_text() == "first\n"


cells = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"))
)


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("abcd"), cells), min_size=1, max_size=5))
def test_any_csv_is_read_back_by_pandas(rows):
    rows = [row(100 * number, **metrics) for number, metrics in enumerate(rows)]
    columns = loggers.csv_columns(rows)
    text = io.StringIO(loggers.csv_text(columns, rows), newline="")
    frame = pd.read_csv(text, dtype=str, keep_default_na=False)
    assert list(frame.columns) == list(dict.fromkeys(key for one in rows for key in one))
    expected = [[("" if one.get(column) is None else str(one[column])) for column in columns] for one in rows]
    assert frame.to_numpy().tolist() == expected


def logged(folder: Path, steps: list[int], sign: int, **options) -> None:
    log = RunLogger(folder, **options)
    for step in steps:
        log.log(row(step, x=sign * step, h=[1.0, step]))


def test_resume_cuts_all_three_back_to_the_checkpoint(tmp_path):
    logged(tmp_path, [100, 200, 250, 300, 350], 1)
    with (tmp_path / "result.json").open("a") as file:
        file.write('{"env_steps": 400, "iter')  # torn by a kill
    with events.event_files(tmp_path)[0].open("ab") as file:
        file.write(b"\x20\0\0\0\0\0\0\0torn")
    logged(tmp_path, [300, 400], -1, resume_at=200)
    before, after = events.event_files(tmp_path)
    assert b"torn" not in before.read_bytes()
    assert [file.name.split(".")[3] for file in (before, after)] == ["0001000000", "0001000001"]
    expected = [(100, 100), (200, 200), (300, -300), (400, -400)]
    assert [(one["env_steps"], one["x"]) for one in json_rows(tmp_path)] == expected
    frame = pd.read_csv(tmp_path / "progress.csv")
    assert list(zip(frame["env_steps"], frame["x"], strict=True)) == expected
    assert (tmp_path / "progress.csv").read_text().count("env_steps") == 1
    assert points(tmp_path, "x") == expected
    assert raw_steps(tmp_path, "x") == raw_steps(tmp_path, "h") == [100, 200, 300, 400]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_resume_twice_also_to_before_the_first_resume(tmp_path):
    logged(tmp_path, [100, 200, 300], 1)
    logged(tmp_path, [300, 400], 2, resume_at=200)
    logged(tmp_path, [200, 300], 3, resume_at=100)
    logged(tmp_path, [400], 4, resume_at=300)
    expected = [(100, 100), (200, 600), (300, 900), (400, 1600)]
    assert [(one["env_steps"], one["x"]) for one in json_rows(tmp_path)] == expected
    assert points(tmp_path, "x") == expected
    assert raw_steps(tmp_path, "x") == [100, 200, 300, 400]


def test_resume_keeps_columns_that_do_not_come_again(tmp_path):
    log = RunLogger(tmp_path)
    log.log(row(100, early=1))
    log.log(row(200, gone=2))
    logged(tmp_path, [200], 1, resume_at=100)
    assert (tmp_path / "progress.csv").read_text() == "env_steps,iteration,early,x\n100,1,1,\n200,2,,200\n"


def test_a_tensorboard_that_watches_forgets_too(tmp_path):
    logged(tmp_path, [100, 200, 300], 1)
    watching = EventAccumulator(str(tmp_path)).Reload()
    logged(tmp_path, [250], -1, resume_at=200)
    watching.Reload()
    assert [(event.step, event.value) for event in watching.Scalars("x")] == [(100, 100), (200, 200), (250, -250)]


def test_resume_from_the_start_and_without_results(tmp_path):
    logged(tmp_path, [], 1, resume_at=0)
    logged(tmp_path, [100], 1, resume_at=0)
    logged(tmp_path, [], 1, resume_at=0)
    assert json_rows(tmp_path) == []
    assert not (tmp_path / "progress.csv").exists()
    logged(tmp_path, [50], 1, resume_at=0)
    assert (tmp_path / "progress.csv").read_text() == "env_steps,iteration,x\n50,0,50\n"
    assert raw_steps(tmp_path, "x") == [50]


def test_resume_of_damaged_results_changes_nothing(tmp_path):
    logged(tmp_path, [100, 200, 300], 1)
    damaged = (tmp_path / "result.json").read_text().replace('"iteration": 1', '"iterat')
    (tmp_path / "result.json").write_text(damaged)
    with pytest.raises(InputError, match=f"^{tmp_path}/result.json: line 1 is damaged"):
        RunLogger(tmp_path, resume_at=100)
    assert (tmp_path / "result.json").read_text() == damaged
    assert raw_steps(tmp_path, "x") == [100, 200, 300]


@pytest.mark.parametrize(("newest", "waited"), [(None, 0), (999_999, 0), (1_000_000, 0.75), (5_000_000, 1)])
def test_a_new_event_file_waits_for_a_later_name_but_not_for_long(tmp_path, clock, newest, waited):
    if newest:
        (tmp_path / f"events.out.tfevents.{newest:010d}.host.1.0").touch()
    events.wait_for_later_name(tmp_path)
    assert clock.now - 1_000_000.25 == waited
