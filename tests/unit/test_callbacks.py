"""ReturnThreshold with an algorithm that only takes notes."""

from typing import Any

import pytest

from callbacks import ReturnThreshold


class Notes:
    """Stands for an algorithm whose rates end at 1."""

    def __init__(self) -> None:
        self.checked: list[tuple[str, Any]] = []
        self.changed: list[tuple[str, Any]] = []

    def check_setting(self, key: str, value: Any) -> None:
        self.checked.append((key, value))
        if value > 1:
            raise ValueError(key)

    def change_setting(self, key: str, value: Any) -> None:
        self.changed.append((key, value))


def result(mean: float, episodes: int = 5) -> dict[str, Any]:
    return {
        "headline": {
            "episode_return_mean": mean,
            "episodes_in_window": episodes,
            "episode_window": 5,
            "env_steps": 100,
        }
    }


def test_changes_are_checked_at_the_start_and_made_once_with_a_full_window() -> None:
    notes, threshold = Notes(), ReturnThreshold(10.0, change={"lr": 0.1, "tau": 0.5})
    threshold.on_algorithm_init(algorithm=notes)
    assert notes.checked == [("lr", 0.1), ("tau", 0.5)]
    for row in (result(9.9), result(12.0, episodes=4)):
        threshold.on_train_result(algorithm=notes, result=row)
    assert notes.changed == []
    for _ in range(2):
        threshold.on_train_result(algorithm=notes, result=result(10.0))
    assert notes.changed == [("lr", 0.1), ("tau", 0.5)]


def test_a_change_that_cannot_be_fails_at_the_start() -> None:
    with pytest.raises(ValueError, match="tau"):
        ReturnThreshold(10.0, change={"tau": 2.0}).on_algorithm_init(algorithm=Notes())


def test_stopping_has_nothing_to_check() -> None:
    notes, threshold = Notes(), ReturnThreshold(10.0, stop=True)
    threshold.on_algorithm_init(algorithm=notes)
    row = result(10.5)
    threshold.on_train_result(algorithm=notes, result=row)
    assert (notes.checked, row["done"]) == ([], True)
    assert row["stop_reason"] == "episode_return_mean 10.5 >= 10 at env step 100"
