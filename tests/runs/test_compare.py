"""The comparison of actor-critics, with so few env steps that nobody reaches the goal; all in this process."""

import csv
import sys

import pytest

from experiments import compare_actor_critics

NAMES = ["A2C-1-env", "A2C-8-envs", "A3C-data-2-workers", "A3C-gradient-2-workers"]
STEPS, FLOAT, INT, FLAGS = 20, 4, 8, 3  # env steps of an update, then bytes: terminated, truncated and valid are flags


def read(file):
    with file.open() as lines:
        return list(csv.DictReader(lines))


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("one_ray", "modules_here")
def test_actor_critics(monkeypatch, capsys, tmp_path):
    folder = tmp_path / "all of it"
    words = ["--seeds", "1", "--env-steps", "2000", "--workers", "2", "--to", str(folder)]
    monkeypatch.setattr(sys, "argv", ["compare_actor_critics", *words])
    assert compare_actor_critics.main() == 0
    stdout = capsys.readouterr().out
    check_goal(read(folder / "goal.csv"), stdout)
    check_communication(read(folder / "communication.csv"))
    assert {"goal.md", "communication.md", "curves.png"} < {path.name for path in folder.iterdir()}
    for name in NAMES:
        assert f"{name}, seed 0: NOT reached after " in stdout
        assert len(list(folder.glob(f"{name}_*/result.json"))) == 1


def check_goal(lines, stdout):
    assert [line["contestant"] for line in lines] == NAMES
    for line in lines:
        assert line["reached"] == "0 of 1 seeds (not 0)"
        assert {line[name] for name in ("episodes", "env steps", "seconds of training")} == {"inf"}
        assert float(line["updates/s"]) > 0
    assert stdout.count("not reached") == 3 * len(lines)
    for line, is_a3c in zip(lines, (False, False, True, True), strict=True):
        assert all(bool(line[name]) == is_a3c for name in ("staleness, mean", "bytes up per update"))


def check_communication(lines):
    """Bytes grow with observations for data, with parameters for gradients; what comes back are always the weights."""
    sizes = [(4, 64), (400, 64), (4, 256)]
    assert [(line["observation"], line["net"]) for line in lines] == [(f"{f} floats", f"{u}-{u}") for f, u in sizes]
    parameters = [(f + 1) * u + (u + 1) * u + (u + 1) * 2 + u + 1 for f, u in sizes]
    weights = [FLOAT * count for count in parameters]
    assert weights == [18_700, 120_076, 271_372]
    sampled = [(STEPS + 1) * f * FLOAT + STEPS * (INT + FLOAT + FLAGS) for f, _ in sizes]
    assert sampled == [636, 33_900, 636]
    for kind, expected in {"data: bytes up": sampled, "gradient: bytes up": weights}.items():
        assert [float(line[f"{kind} per update"]) for line in lines] == expected
    for form in ("data", "gradient"):
        assert [float(line[f"{form}: bytes down per update"]) for line in lines] == weights
