import json
import math
from types import SimpleNamespace

import pytest
import torch

from rayground import racing


@pytest.mark.parametrize(
    ("updates", "updates_per_env_step", "rate"),
    [(400, 1.0, 200.0), (300, 1.0, 150.0), (500, 1.0, 200.0), (100, 0.25, 200.0), (50, 0.25, 100.0), (0, 0.0, 200.0)],
)
def test_only_env_steps_with_their_updates_count(updates, updates_per_env_step, rate):
    assert racing.Work(env_steps=400, updates=updates, seconds=2.0).rate(updates_per_env_step) == rate


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.RMSprop])
def test_optimizers_count_their_own_steps(kind):
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = kind([parameter])
    assert racing.gradient_steps(optimizer) == 0
    for _ in range(3):
        parameter.sum().backward()
        optimizer.step()
    assert racing.gradient_steps(optimizer) == 3


def contestant(ticks, seconds_per_step, updates_per_step):
    """Trains in tens of env steps, against a clock of its own."""
    done = SimpleNamespace(steps=100, updates=50.0)

    def train(env_steps):
        taken = math.ceil(env_steps / 10) * 10
        ticks[0] += taken * seconds_per_step
        done.steps, done.updates = done.steps + taken, done.updates + taken * updates_per_step

    return racing.Contestant(train, lambda: done.steps, lambda: int(done.updates))


def test_a_race_counts_what_was_done_in_it(monkeypatch):
    ticks = [7.0]
    monkeypatch.setattr(racing.time, "perf_counter", lambda: ticks[0])
    all_ = {"whole": contestant(ticks, 0.25, 1.0), "half": contestant(ticks, 0.125, 0.5)}
    racing.warm_up(all_, 11)
    assert [one.env_steps() for one in all_.values()] == [120, 120]
    taken, updates = racing.race(all_, rounds=2, env_steps=35, updates_per_env_step=1.0)
    assert taken == {"whole": [4.0, 4.0], "half": [4.0, 4.0]}
    assert updates == {"whole": 1.0, "half": 0.5}


def test_a_race_is_shown_with_and_without_compilation(capsys):
    taken = {"rayground": [4.0], "sb3": [2.0], "rayground compiled": [6.0], "another": [1.0]}
    better = racing.print_race("speed", taken, ["sb3"], {"sb3": 1.0}, 21.0)
    assert better == {"sb3": 2.0, "sb3, compiled": 3.0}
    out = capsys.readouterr().out
    assert "compiling took 21.0 s" in out
    assert "gradient steps per env step: sb3 1.000" in out
    assert "another" not in out
    assert racing.print_race("speed", {"rayground": [4.0], "sb3": [2.0]}, ["sb3"], {}, 0.0) == {"sb3": 2.0}


def test_what_a_race_gave_is_written(monkeypatch, tmp_path):
    ticks = [0.0]
    monkeypatch.setattr(racing.time, "perf_counter", lambda: ticks[0])
    all_ = {"rayground": contestant(ticks, 0.125, 1.0), "sb3": contestant(ticks, 0.25, 1.0)}
    args = racing.RaceArgs(rounds=2, json=tmp_path / "result.json")
    taken = racing.hold_race("speed", all_, ["sb3"], args, warm=30, env_steps=40, updates_per_env_step=1.0)
    assert all_["sb3"].env_steps() == 100 + 30 + 2 * 40
    content = json.loads(args.json.read_text())
    assert content["env_steps_per_s"] == taken == {"rayground": [8.0, 8.0], "sb3": [4.0, 4.0]}
    assert content["updates_per_env_step"] == {"rayground": 1.0, "sb3": 1.0}
    assert (content["ratios"], content["rounds"], content["compile"]) == ({"sb3": 2.0}, 2, False)
