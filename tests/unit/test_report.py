"""Comparing runs: when each reached a goal, medians and quartiles over seeds, tables and curves."""

import csv
import io
import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread
from rich.console import Console

from rayground.compare import CompareFlags, Comparison
from rayground.errors import InputError, RunError
from rayground.results import report
from rayground.results.curves import curve, plot
from rayground.results.folder import write_experiment_json
from rayground.results.report import Solution, Spread, Table, spread

inf = math.inf


def row(episodes, env_steps, time_s, mean, **more):
    """A result; its window of 20 is as full as it can be."""
    headline = {"episodes": episodes, "env_steps": env_steps, "time_s": time_s, "episode_return_mean": mean}
    return {**headline, "episodes_in_window": min(episodes, 20), "episode_window": 20, **more}


QUICK = [row(10, 100, 1.0, 480.0), row(20, 200, 2.0, 470.0), row(30, 300, 3.0, 475.0), row(40, 400, 4.0, 490.0)]
SLOW = [row(0, 100, 1.0, None), row(20, 500, 5.0, 475.0)]
FAILED = [row(20, 200, 2.0, None), row(90, 900, 9.0, 474.9)]


def test_a_goal_is_reached_at_the_first_result_with_a_full_window_and_the_mean():
    assert report.solution(QUICK, 475) == Solution(True, 30, 300, 3.0)
    assert report.solution(SLOW, 475) == Solution(True, 20, 500, 5.0)
    assert report.solution(FAILED, 475) == Solution(False, 90, 900, 9.0)
    assert report.solution([row(20, 1, 0.1, -150.0), row(30, 2, 0.2, 0.0)], -100) == Solution(True, 30, 2, 0.2)


def test_what_was_never_reached_takes_for_ever():
    needed = {axis: [report.to_goal(axis, 475)(rows) for rows in (QUICK, SLOW, FAILED)] for axis in report.AXES}
    assert needed == {"episodes": [30, 20, inf], "env_steps": [300, 500, inf], "time_s": [3.0, 5.0, inf]}


def test_measures_of_a_metric_leave_out_results_that_lack_it():
    rows = [row(0, 1, 2.0, None), row(1, 2, 4.0, 9.0, up=3), row(2, 3, 8.0, 9.0, up=6), row(3, 4, 10.0, 9.0, up=None)]
    assert [measure("up")(rows) for measure in (report.mean_of, report.highest, report.per_second)] == [4.5, 6, 0.6]
    assert [measure("no")(rows) for measure in (report.mean_of, report.highest, report.per_second)] == [None] * 3


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], Spread(7.0, 7.0, 7.0)),
        ([5, 1, 4, 2, 3], Spread(3, 2, 4)),
        ([1.0, 2.0, 3.0, 4.0], Spread(2.5, 1.75, 3.25)),
        ([1.0, 2.0, 3.0, inf, inf], Spread(3.0, 2.0, inf)),
        ([1.0, 2.0, inf, inf], Spread(inf, 1.75, inf)),
        ([1.0, 2.0, 3.0, inf], Spread(2.5, 1.75, inf)),
        ([inf, inf, inf], Spread(inf, inf, inf)),
    ],
)
def test_median_and_quartiles(values, expected):
    assert spread(values) == expected


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 1))
def test_quantiles_of_numbers_are_numpys(values, share):
    assert report.quantile(values, share) == pytest.approx(np.quantile(values, share), abs=1e-6)


def test_numbers_are_as_long_as_they_need_to_be():
    texts = {
        27_752.5: "27,752",
        99.96: "100",
        99.94: "99.9",
        3.4361: "3.44",
        0.0: "0",
        0.00162: "0.00162",
        inf: "not reached",
    }
    assert {value: report.number(value) for value in texts} == texts
    assert str(Spread(30.0, 25.0, inf)) == "30 (25 to not reached)"
    assert str(Spread(3.001, 3.0, 3.002)) == "3"


RUNS = {
    "plain": {0: QUICK, 1: SLOW},
    "bold": {4: FAILED, 2: QUICK, 3: FAILED},
    "lone": {0: [row(20, 7, 0.5, 500.0, lag=2.0)]},
}
TITLE = "To a mean return of 475 over 20 episodes: median and quartiles of the seeds"
MORE = {"lag": report.mean_of("lag")}


def test_the_table_says_who_reached_the_goal_and_what_it_took():
    assert report.goal_table(RUNS, 475, MORE).markdown() == (
        f"{TITLE}\n\n"
        "| contestant | reached | episodes | env steps | seconds of training | lag |\n"
        "|---|---|---|---|---|---|\n"
        "| plain | 2 of 2 seeds | 25 (22.5 to 27.5) | 400 (350 to 450) | 4 (3.5 to 4.5) | - |\n"
        "| bold | 1 of 3 seeds (not 3, 4) | not reached | not reached | not reached | - |\n"
        "| lone | 1 of 1 seeds | 20 | 7 | 0.5 | 2 |\n"
    )


def test_the_csv_has_full_numbers_and_the_quartiles_in_columns_of_their_own():
    lines = list(csv.DictReader(io.StringIO(report.goal_table(RUNS, 475, MORE).csv())))
    assert list(lines[0])[:5] == ["contestant", "reached", "episodes", "episodes q1", "episodes q3"]
    assert list(lines[0])[-3:] == ["lag", "lag q1", "lag q3"]
    assert [line["contestant"] for line in lines] == ["plain", "bold", "lone"]
    assert [lines[0][f"env steps{part}"] for part in ("", " q1", " q3")] == ["400.0", "350.0", "450.0"]
    assert [lines[1][f"env steps{part}"] for part in ("", " q1", " q3")] == ["inf", "inf", "inf"]
    assert [line["lag"] for line in lines] == ["", "", "2.0"]


def test_on_a_terminal_each_contestant_has_a_column(capsys):
    Console(width=100).print(Table("Sizes", [{"net": "[64]", "bytes": 12_345}, {"net": "[8, 8]", "bytes": None}]))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["Sizes"]
    assert [line for line in lines if line and line[0] in ("net", "bytes")] == [
        ["net", "[64]", "[8,", "8]"],
        ["bytes", "12,345", "-"],
    ]


def test_a_column_that_no_run_has_is_an_error():
    with pytest.raises(InputError, match=r"^log: expected a metric that some run has, got one that none has"):
        report.goal_table(RUNS, 475, {"log": report.mean_of("log")})


def test_curves_are_medians_on_common_places_and_a_run_that_ended_keeps_its_last_value():
    runs = [
        [row(1, 0, 0, 0.0), row(2, 10, 1, 10.0)],
        [row(0, 1, 0, None), row(1, 4, 0, 2.0), row(2, 8, 1, 6.0), row(3, 24, 2, 22.0)],
        [row(1, 2, 0, 1.0), row(2, 12, 1, 31.0)],
    ]
    got = curve(runs, "env_steps")
    np.testing.assert_allclose(got.x[[0, -1]], [4, 24])  # the second run has no value before 4
    at = lambda x: [float(np.interp(x, got.x, part)) for part in (got.low, got.median, got.high)]  # noqa: E731
    assert at(4) == pytest.approx([3.0, 4.0, 5.5])  # of 4, 2 and 7
    assert at(24) == pytest.approx([16.0, 22.0, 26.5])  # of 10, 22 and 31
    assert at(10) == pytest.approx([9.0, 10.0, 17.5], abs=0.1)  # of 10, 8 and 25


def test_curves_of_runs_without_an_episode_are_an_error():
    with pytest.raises(InputError, match="got one without; give it more env steps"):
        curve([QUICK, [row(0, 5, 1.0, None)]], "episodes")


def test_the_plot_is_a_picture(tmp_path):
    late = [row(5, 100, 1.0, 20.0), row(60, 700, 9.0, 300.0)]
    plot({"blue": {0: QUICK}, "orange": {0: late}}, 475, tmp_path / "curves.png")
    picture = imread(tmp_path / "curves.png")
    assert picture.shape == (600, 1800, 4)
    for panel in np.array_split(picture[..., :3], len(report.AXES), axis=1):
        for color in ((0x1F, 0x77, 0xB4), (0xFF, 0x7F, 0x0E)):
            assert (np.abs(panel - np.array(color) / 255).max(-1) < 0.01).sum() > 50


def test_comparing_imports_nothing_slow_before_it_needs_it():
    code = "import sys, rayground.compare; print({'matplotlib', 'pandas', 'ray'} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def make_run(folder, seed, rows):
    folder.mkdir(parents=True)
    write_experiment_json(folder, experiment="x", module="m", command=[], flags={}, seed=seed, code=folder)
    (folder / "result.json").write_text("".join(json.dumps(one) + "\n" for one in rows))
    return folder


def test_runs_are_read_by_seed_and_those_of_a_folder_of_seeds_one_by_one(tmp_path):
    alone = make_run(tmp_path / "alone", 5, QUICK)
    group = make_run(tmp_path / "group", None, [])
    make_run(group / "seed_0", 0, SLOW)
    make_run(group / "seed_1", 1, FAILED)
    assert report.read({"a": [alone], "b": [alone, group]}) == {"a": {5: QUICK}, "b": {5: QUICK, 0: SLOW, 1: FAILED}}
    with pytest.raises(InputError, match="seed 5 of a is there twice"):
        report.read({"a": [alone, alone]})
    with pytest.raises(InputError, match="without"):
        report.read({"a": [make_run(tmp_path / "empty", 3, [])]})


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        ({"seeds": 0}, "--seeds: expected at least 1, got 0"),
        ({"env_steps": -1}, "--env-steps: expected at least 1, got -1"),
    ],
)
def test_numbers_below_1_are_refused(flags, error):
    with pytest.raises(InputError, match=error):
        CompareFlags(**flags).check()


def test_a_folder_that_holds_something_is_refused(tmp_path):
    flags = CompareFlags(to=str(tmp_path / "new" / "one"))
    flags.check()
    assert flags.folder("x") == tmp_path / "new" / "one"
    flags.check()
    (tmp_path / "new" / "one" / "file").touch()
    for path in (flags.to, f"{flags.to}/file"):
        with pytest.raises(InputError, match="expected a new or empty folder"):
            CompareFlags(to=path).check()


def test_a_run_that_fails_ends_the_comparison_with_its_command_and_error(tmp_path):
    race = Comparison({"a": "json.tool --indent 2"}, 475, 20, {})
    said = r"^python -m json.tool --indent 2 --name a --seed 0 .* --stop-timesteps 5 .*: exit code 2: .*can't open 'a'"
    with pytest.raises(RunError, match=said):
        race.run(tmp_path, seeds=1, env_steps=5)
