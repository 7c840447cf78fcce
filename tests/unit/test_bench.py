import gc
import json
import math
import os

import pytest

from rayground import bench
from rayground.errors import InputError


def test_measurements_are_taken_in_turn():
    calls = []

    def measure(name, numbers):
        calls.append(name)
        return numbers.pop(0)

    numbers = {"a": [1.0, 9.0, 2.0], "b": [5.0, 4.0, 6.0]}
    taken = bench.take_turns({name: lambda name=name: measure(name, numbers[name]) for name in numbers}, rounds=3)
    assert taken == {"a": [1.0, 9.0, 2.0], "b": [5.0, 4.0, 6.0]}
    assert bench.medians(taken) == {"a": 2.0, "b": 5.0}
    assert calls == ["a", "b"] * 3
    assert gc.get_freeze_count() == 0


def test_ratios_above_one_are_better():
    numbers = {"ours": [2.0, 1.0, 3.0], "theirs": [8.0]}
    assert bench.ratios(numbers, "ours", higher_is_better=False) == {"theirs": 4.0}
    assert bench.ratios(numbers, "ours", higher_is_better=True) == {"theirs": 0.25}


def test_a_median_that_never_ended_is_worse_than_any():
    numbers = {"ours": [2.0, math.inf, 3.0], "theirs": [math.inf, 1.0, math.inf]}
    assert bench.medians(numbers) == {"ours": 3.0, "theirs": math.inf}
    assert bench.ratios(numbers, "ours", higher_is_better=False) == {"theirs": math.inf}


def test_the_table_shows_median_spread_and_ratio(capsys):
    numbers = {"ours": [5000.0, 4000.0, 3000.0], "theirs": [1000.0]}
    assert bench.print_table("steps/s", numbers, "ours", higher_is_better=True) == {"theirs": 4.0}
    assert capsys.readouterr().out.split("\n")[1:4] == [
        "steps/s",
        "  ours         4,000.0  [3,000.0 to 5,000.0]",
        "  theirs       1,000.0                            ours is 4.00 times better",
    ]


def test_microseconds_are_those_of_a_unit(monkeypatch):
    ticks = iter([10.0, 10.6])
    monkeypatch.setattr(bench.time, "perf_counter", lambda: next(ticks))
    calls = []
    assert bench.microseconds(lambda: calls.append(0), calls=3, units=4) == pytest.approx(0.6e6 / 12)
    assert len(calls) == 3


def test_resident_bytes_grow_with_what_is_held():
    before = bench.resident_bytes()
    held = bytearray(b"x" * 50_000_000)
    assert bench.resident_bytes() - before == pytest.approx(len(held), rel=0.1)


def test_json_holds_ratios_and_details(tmp_path):
    file = tmp_path / "new" / "result.json"
    bench.write_json(file, {"rllib": 8.1, "sb3": math.inf}, rounds=3, seconds={"a": [1.0, math.inf]}, json=file)
    content = json.loads(file.read_text())
    assert content["ratios"] == {"rllib": 8.1, "sb3": None}
    assert (content["rounds"], content["seconds"], content["json"]) == (3, {"a": [1.0, None]}, str(file))
    assert content["machine"]["cores"] >= 1
    bench.write_json(None, {"rllib": 8.1})


def test_what_is_not_installed_is_named():
    bench.require("json", "torch")
    with pytest.raises(InputError, match=r"^no_such_library: not installed; pip install -e '\.\[bench\]'$"):
        bench.require("json", "no_such_library")


def test_a_new_process_is_another():
    assert bench.in_new_process(os.getpid) != os.getpid()
