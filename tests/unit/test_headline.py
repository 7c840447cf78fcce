"""Headline metrics: true means over episodes."""

import json

import pytest

from rayground.algorithms.headline import EpisodeWindow
from rayground.rollouts.rollout import EpisodeRecord


def test_means_are_over_the_last_episodes_only() -> None:
    window = EpisodeWindow(3)
    window.extend([EpisodeRecord(100.0, 7), EpisodeRecord(1.0, 10), EpisodeRecord(2.0, 20)])
    window.extend([EpisodeRecord(6.0, 60)])
    headline = window.headline()
    assert headline["episode_return_mean"] == pytest.approx(3.0)
    assert headline["episode_len_mean"] == pytest.approx(30.0)
    assert (headline["episode_return_min"], headline["episode_return_max"]) == (1.0, 6.0)
    assert (headline["episodes"], headline["episodes_in_window"], headline["episode_window"]) == (4, 3, 3)


def test_before_the_first_episode_there_is_no_mean() -> None:
    headline = EpisodeWindow(20).headline()
    assert headline["episode_return_mean"] is None
    assert headline["episodes_in_window"] == 0


def test_a_custom_value_is_averaged_over_the_episodes_that_have_it() -> None:
    window = EpisodeWindow(10)
    window.extend([EpisodeRecord(0.0, 1, {"x": 1.0}), EpisodeRecord(0.0, 1), EpisodeRecord(0.0, 1, {"x": 4.0})])
    assert window.headline()["custom/x"] == pytest.approx(2.5)


def test_its_state_is_json_and_restores_it() -> None:
    window = EpisodeWindow(2)
    window.extend([EpisodeRecord(1.5, 3, {"x": 2.0}), EpisodeRecord(2.5, 4), EpisodeRecord(3.5, 5)])
    other = EpisodeWindow(2)
    other.set_state(json.loads(json.dumps(window.get_state())))
    assert other.headline() == window.headline()
