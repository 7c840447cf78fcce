"""The replay ratio is kept exactly, whatever it is and however steps arrive."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayground.replay.ratio import UpdateClock


@given(
    ratio=st.sampled_from([Fraction(1), Fraction(1, 4), Fraction(1, 10), Fraction(1, 3), Fraction(2), Fraction(5, 2)]),
    start=st.integers(0, 50),
    steps=st.lists(st.integers(0, 40), max_size=60),
)
def test_updates_are_the_ratio_of_steps_after_the_start(ratio: Fraction, start: int, steps: list[int]) -> None:
    clock, env_steps = UpdateClock(float(ratio), start), 0
    for taken in steps:
        env_steps += taken
        due = clock.due(env_steps)
        at = clock.next(due)
        assert clock.updates == int(ratio * max(0, env_steps - start))
        assert at[1:] == sorted(at[1:])
        assert all(start < step <= env_steps for step in at[1:])


def test_each_update_belongs_to_the_step_at_which_it_became_due() -> None:
    clock = UpdateClock(ratio=0.25, anchor_env_steps=1_000)
    assert clock.due(1_011) == 2
    assert clock.next(2) == [1_000, 1_004, 1_008]
    assert clock.due(1_011) == 0


def test_a_changed_ratio_holds_from_there_and_loses_nothing() -> None:
    clock = UpdateClock(ratio=1.0, anchor_env_steps=100)
    clock.next(clock.due(200))
    clock.change(0.5, 204)
    assert clock.due(204) == 4
    clock.next(4)
    assert clock.due(214) == 5
    assert clock.next(5) == [204, 206, 208, 210, 212, 214]


def test_its_state_restores_it() -> None:
    clock = UpdateClock(ratio=0.3, anchor_env_steps=7)
    clock.next(clock.due(1_000))
    assert UpdateClock(**clock.get_state()) == clock


def test_before_learning_starts_nothing_is_due() -> None:
    assert UpdateClock(ratio=4.0, anchor_env_steps=500).due(500) == 0
    assert UpdateClock(ratio=4.0, anchor_env_steps=500).due(501) == pytest.approx(4)
