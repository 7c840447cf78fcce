import json

import pytest

from rayground import bench


def test_medians_are_taken_in_turn():
    calls = []

    def measure(name, numbers):
        calls.append(name)
        return numbers.pop(0)

    numbers = {"a": [1.0, 9.0, 2.0], "b": [5.0, 4.0, 6.0]}
    result = bench.medians({name: lambda name=name: measure(name, numbers[name]) for name in numbers}, rounds=3)
    assert result == {"a": 2.0, "b": 5.0}
    assert calls == ["a", "b"] * 3


def test_ratios_above_one_are_better():
    results = {"ours": 2.0, "theirs": 8.0}
    assert bench.ratios(results, "ours", higher_is_better=False) == {"theirs": 4.0}
    assert bench.ratios(results, "ours", higher_is_better=True) == {"theirs": 0.25}


def test_the_table_shows_numbers_and_ratios(capsys):
    better = bench.print_table("steps/s", {"ours": 4000.0, "theirs": 1000.0}, "ours", higher_is_better=True)
    assert better == {"theirs": 4.0}
    lines = capsys.readouterr().out.split("\n")
    assert lines[1:4] == [
        "steps/s",
        "  ours         4,000.0",
        "  theirs       1,000.0  ours is 4.00 times better",
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
    bench.write_json(file, {"rllib": 8.1}, rounds=3, json=file)
    content = json.loads(file.read_text())
    assert content["ratios"] == {"rllib": 8.1}
    assert (content["rounds"], content["json"]) == (3, str(file))
    assert content["machine"]["cores"] >= 1
    bench.write_json(None, {"rllib": 8.1})
