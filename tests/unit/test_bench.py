import gc
import json
import math
from types import SimpleNamespace

import pytest
import torch

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


@pytest.mark.parametrize(
    ("updates", "updates_per_env_step", "rate"),
    [(400, 1.0, 200.0), (300, 1.0, 150.0), (500, 1.0, 200.0), (100, 0.25, 200.0), (50, 0.25, 100.0), (0, 0.0, 200.0)],
)
def test_only_env_steps_with_their_updates_count(updates, updates_per_env_step, rate):
    assert bench.Work(env_steps=400, updates=updates, seconds=2.0).rate(updates_per_env_step) == rate


def test_adam_counts_its_own_steps():
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([parameter])
    assert bench.gradient_steps(optimizer) == 0
    for _ in range(3):
        parameter.sum().backward()
        optimizer.step()
    assert bench.gradient_steps(optimizer) == 3


def contestant(ticks, seconds_per_step, updates_per_step):
    """Trains in tens of env steps, against a clock of its own."""
    done = SimpleNamespace(steps=100, updates=50.0)

    def train(env_steps):
        taken = math.ceil(env_steps / 10) * 10
        ticks[0] += taken * seconds_per_step
        done.steps, done.updates = done.steps + taken, done.updates + taken * updates_per_step

    return bench.Contestant(train, lambda: done.steps, lambda: int(done.updates))


def test_a_race_counts_what_was_done_in_it(monkeypatch):
    ticks = [7.0]
    monkeypatch.setattr(bench.time, "perf_counter", lambda: ticks[0])
    all_ = {"whole": contestant(ticks, 0.25, 1.0), "half": contestant(ticks, 0.125, 0.5)}
    bench.warm_up(all_, 11)
    assert [one.env_steps() for one in all_.values()] == [120, 120]
    taken, updates = bench.race(all_, rounds=2, env_steps=35, updates_per_env_step=1.0)
    assert taken == {"whole": [4.0, 4.0], "half": [4.0, 4.0]}
    assert updates == {"whole": 1.0, "half": 0.5}


def test_a_race_is_shown_with_and_without_compilation(capsys):
    taken = {"rayground": [4.0], "sb3": [2.0], "rayground compiled": [6.0], "another": [1.0]}
    better = bench.print_race("speed", taken, ["sb3"], {"sb3": 1.0}, 21.0)
    assert better == {"sb3": 2.0, "sb3, compiled": 3.0}
    out = capsys.readouterr().out
    assert "compiling took 21.0 s" in out
    assert "gradient steps per env step: sb3 1.000" in out
    assert "another" not in out
    assert bench.print_race("speed", {"rayground": [4.0], "sb3": [2.0]}, ["sb3"], {}, 0.0) == {"sb3": 2.0}


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
