# ruff: noqa: UP007, UP045 - RLlib writes its hints in the old way
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Optional, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayground.errors import InputError
from rayground.values import describe, fit, holds_data, parse_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),  # these five are something else in YAML 1.1
        ("1e4", 10_000.0),
        ("on", "on"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("-3", -3),
        ("100_000", 100_000),
        ("010", "010"),
        (".5", 0.5),
        ("1.", 1.0),
        ("-inf", -math.inf),
        ("true", True),
        ("False", False),
        ("null", None),
        ("None", None),
        ("'1'", "1"),
        ("''", ""),
        ("auto", "auto"),
        ("[[0, 1.0], [10000, 0.05]]", [[0, 1.0], [10_000, 0.05]]),
        ("{type: rmsprop, alpha: 0.95}", {"type": "rmsprop", "alpha": 0.95}),
    ],
)
def test_text_becomes_the_value_that_people_mean(text, value):
    read = parse_value(text, "key")
    assert (read, type(read)) == (value, type(value))


@given(st.floats() | st.integers())
def test_every_number_that_python_writes_is_read_back(number):
    read = parse_value(repr(number), "key")
    assert type(read) is type(number)
    assert read == number or math.isnan(number)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (" ", "lr: expected a value after '=', got nothing; an empty text is ''"),
        ("[1, 2", "lr: expected a number, a text, [1, 2] or {a: 1}, got '[1, 2'"),
        (
            "!!python/object/apply:os.getcwd []",
            "lr: expected a number, a text, [1, 2] or {a: 1}, got '!!python/object/apply:os.getcwd []'",
        ),
    ],
)
def test_text_that_is_no_value_is_refused(text, error):
    with pytest.raises(InputError) as raised:
        parse_value(text, "lr")
    assert str(raised.value) == error


SCHEDULE = Union[float, list[list[int | float]], list[tuple[int, int | float]]]


@pytest.mark.parametrize(
    ("value", "hint", "fitted"),
    [
        (1, float, 1.0),
        (1, int | float, 1),
        (1, Optional[float], 1.0),
        (None, Optional[float], None),
        ("auto", int | str, "auto"),
        ([1, 3], Union[int, tuple[int, int]], (1, 3)),
        ([1, 2, 3], tuple[int, ...], (1, 2, 3)),
        ([64, 64], Sequence[int], [64, 64]),
        ([1, 2], list[float], [1.0, 2.0]),
        ([[0, 1.0], [10, 0]], SCHEDULE, [[0, 1.0], [10, 0]]),
        ({"a": 1}, str | Mapping[str, Any], {"a": 1}),
        ("b", Literal["a", "b"], "b"),
        ("x", Any, "x"),
    ],
)
def test_a_value_of_the_right_type_fits(value, hint, fitted):
    result = fit(value, hint, "key")
    assert (result, type(result)) == (fitted, type(fitted))


@pytest.mark.parametrize(
    ("value", "hint", "error"),
    [
        (True, int, "key: expected a whole number, got True"),
        (1, bool, "key: expected true or false, got 1"),
        (1.0, int, "key: expected a whole number, got 1.0"),
        (True, float, "key: expected a number, got True"),
        (None, float, "key: expected a number, got None"),
        ("a", int | float | None, "key: expected a number or null, got 'a'"),
        (5, SCHEDULE | None, None),
        ("5", SCHEDULE, "key: expected a number or [[...], ...], got '5'"),
        ([1.5], list[int], "key: expected [a whole number, ...], got [1.5]"),
        ([1, 2, 3], tuple[int, int], "key: expected [a whole number, ...], got [1, 2, 3]"),
        ([1], dict[str, int], "key: expected {...}, got [1]"),
        ("dat", Literal["gradient", "data"], "key: expected gradient or data, got 'dat'; did you mean 'data'?"),
        ("x", Literal["a", "b"] | None, "key: expected a or b or null, got 'x'"),
    ],
)
def test_a_value_of_another_type_is_refused(value, hint, error):
    if error is None:
        assert fit(value, hint, "key") == value
        return
    with pytest.raises(InputError) as raised:
        fit(value, hint, "key")
    assert str(raised.value) == error


def test_only_plain_types_can_be_written():
    assert [holds_data(hint) for hint in (int, str | None, list[int], dict, Literal["a"], Any, Path_or_int)] == [
        True
    ] * 7
    assert [holds_data(hint) for hint in (type, type[int], object, None | type)] == [False] * 4
    assert describe(type) == "type"


class Path:
    pass


Path_or_int = Path | int
