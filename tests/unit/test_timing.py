"""Every moment of the driver belongs to one part, and the runners' shares are means over runners."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayground.algorithms.timing import PARTS, RunnerTimes, WallClock


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_nested_parts_count_once_and_the_outer_one_goes_on() -> None:
    now = Hands()
    clock = WallClock(now)
    now.seconds += 1
    with clock("learn"):
        now.seconds += 2
        with clock("sync"):
            now.seconds += 4
        with clock("learn"):
            now.seconds += 8
        now.seconds += 1
    assert clock.shares() == {
        "env": 0, "inference": 0, "replay": 0, "learn": 11 / 16, "sync": 4 / 16, "wait": 0, "rest": 1 / 16,
    }  # fmt: skip


def test_a_part_ends_when_what_runs_in_it_raises() -> None:
    now = Hands()
    clock = WallClock(now)
    with suppress(KeyError), clock("wait"):
        now.seconds += 3
        raise KeyError
    now.seconds += 1
    assert (clock.shares()["wait"], clock._running) == (0.75, "rest")


def test_what_the_local_runner_measured_is_taken_from_the_part_that_ran() -> None:
    now = Hands()
    clock = WallClock(now)
    now.seconds += 8
    clock.move("env", 4.0)
    clock.move("inference", 2.0)
    shares = clock.shares()
    assert (shares["env"], shares["inference"], shares["rest"]) == (0.5, 0.25, 0.25)


def test_shares_are_since_the_last_call_also_inside_a_part() -> None:
    now = Hands()
    clock = WallClock(now)
    with clock("replay"):
        now.seconds += 5
        assert clock.shares()["replay"] == 1.0
        now.seconds += 1
    now.seconds += 1
    assert clock.shares()["replay"] == 0.5


@given(st.lists(st.tuples(st.sampled_from(PARTS), st.floats(1e-6, 1e3)), min_size=1, max_size=30))
def test_they_add_up_to_one(spent: list[tuple[str, float]]) -> None:
    now = Hands()
    clock = WallClock(now)
    for part, seconds in spent:
        with clock(part):
            now.seconds += seconds
    shares = clock.shares()
    assert list(shares) == list(PARTS)
    assert sum(shares.values()) == 1.0
    total = sum(seconds for _, seconds in spent)
    for part in PARTS:
        assert shares[part] == pytest.approx(sum(s for p, s in spent if p == part) / total, abs=1e-6)


def test_runners_count_the_same_however_long_they_sampled() -> None:
    times = RunnerTimes()
    times.add(1, {"env": 1.0, "inference": 2.0, "total": 4.0})
    times.add(2, {"env": 30.0, "inference": 2.0, "total": 30.0})
    times.add(2, {"env": 30.0, "inference": 8.0, "total": 50.0})
    assert times.shares() == {"env": 0.5, "inference": 0.3125, "rest": 0.1875}
    times.add(1, {"env": 1.0, "inference": 0.0, "total": 2.0})
    assert times.shares() == {"env": 0.5, "inference": 0.0, "rest": 0.5}


def test_runners_that_learn_themselves_tell_what_of_their_time_it_took() -> None:
    times = RunnerTimes()
    times.add(1, {"env": 1.0, "inference": 2.0, "learn": 4.0, "total": 8.0})
    times.add(3, {"env": 5.0, "inference": 0.0, "learn": 1.0, "total": 10.0})
    times.add(3, {"env": 5.0, "inference": 5.0, "learn": 9.0, "total": 30.0})
    assert times.shares() == {
        "env": pytest.approx((1 / 8 + 10 / 40) / 2),
        "inference": pytest.approx((2 / 8 + 5 / 40) / 2),
        "learn": pytest.approx((4 / 8 + 10 / 40) / 2),
        "rest": pytest.approx((1 / 8 + 15 / 40) / 2),
    }
    assert times.shares() == {}


def test_a_part_that_only_some_runners_have_is_none_of_the_others() -> None:
    times = RunnerTimes()
    times.add(1, {"env": 1.0, "inference": 1.0, "learn": 1.0, "total": 4.0})  # a gradient kept in a checkpoint
    times.add(2, {"env": 1.0, "inference": 0.0, "total": 2.0})
    assert times.shares() == {"env": 0.375, "inference": 0.125, "learn": 0.125, "rest": 0.375}
