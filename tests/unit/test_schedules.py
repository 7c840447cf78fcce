"""Schedules against numbers worked out by hand."""

from collections.abc import Callable

import pytest

from rayground.errors import InputError
from rayground.schedules import Constant, Cosine, Exponential, Piecewise, Schedule, Step, as_schedule


def test_piecewise_is_linear_between_points_and_constant_outside() -> None:
    schedule = as_schedule([[0, 1.0], [100, 0.5], [200, 0.1]])
    assert [schedule(k) for k in (0, 50, 100, 150, 200, 999)] == pytest.approx([1.0, 0.75, 0.5, 0.3, 0.1, 0.1])


def test_step_falls_at_multiples() -> None:
    schedule = Step(initial=1.0, factor=0.5, every=10)
    assert [schedule(k) for k in (0, 9, 10, 20, 25)] == [1.0, 1.0, 0.5, 0.25, 0.25]


def test_exponential_falls_smoothly_to_its_floor() -> None:
    schedule = Exponential(initial=1.0, factor=0.25, every=10, final=0.1)
    assert [schedule(k) for k in (0, 5, 10, 100)] == pytest.approx([1.0, 0.5, 0.25, 0.1])


def test_cosine_goes_through_its_middle() -> None:
    schedule = Cosine(initial=1.0, over=100, final=0.2)
    assert [schedule(k) for k in (0, 50, 100, 500)] == pytest.approx([1.0, 0.6, 0.2, 0.2])


def test_numbers_and_schedules_are_taken_as_they_are() -> None:
    assert as_schedule(3)(12345) == 3.0
    given = Cosine(initial=1.0, over=10)
    assert as_schedule(given) is given
    assert isinstance(as_schedule(0.1), Constant)
    assert isinstance(as_schedule([(0, 1)]), Piecewise)


@pytest.mark.parametrize(
    "value",
    [
        "0.1",
        True,
        [],
        [[5, 1.0]],
        [[0, 1.0], [0, 2.0]],
        [[0, 1.0], [10]],
        [0.1, 0.2],
        None,
        float("nan"),
        float("inf"),
        [[0, 1.0], [10, float("nan")]],
    ],
)
def test_anything_else_is_an_error_that_names_the_setting(value: object) -> None:
    with pytest.raises(InputError, match=r"^lr: expected"):
        as_schedule(value, "lr")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Step(1.0, 0.5, every=0), "Step: every: expected a finite number above 0, got 0"),
        (lambda: Exponential(1.0, -0.5, every=10), "Exponential: factor: expected a finite number of at least 0, got"),
        (lambda: Cosine(1.0, over=-5), "Cosine: over: expected a finite number above 0, got -5"),
        (lambda: Cosine(float("nan"), over=5), "Cosine: initial: expected a finite number, got nan"),
        (lambda: Constant("x"), "Constant: value: expected a finite number, got 'x'"),  # type: ignore[arg-type]
        (lambda: Piecewise(()), "Piecewise: expected"),
        (lambda: Piecewise(((0, 1.0), (0, 2.0))), "Piecewise: expected"),
    ],
)
def test_a_schedule_that_cannot_be_is_an_error(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        make()


@pytest.mark.parametrize(
    "schedule", [Cosine(1.0, over=10, final=-0.5), Step(0.5, 2.0, every=10), Exponential(2.0, 0.5, every=10)]
)
def test_a_schedule_stays_in_its_range_from_start_to_end(schedule: Schedule) -> None:
    with pytest.raises(InputError, match="epsilon: expected values from 0 to 1"):
        as_schedule(schedule, "epsilon", 0, 1)
