import math

import pytest

from rayground.errors import InputError
from rayground.flags import Flags
from rayground.stop import Stop

FULL = {"episodes_in_window": 20, "episode_window": 20}


def row(env_steps=10_000, iteration=5, seconds=20.0, episode_return=100.0, **more):
    return {
        "env_steps": env_steps,
        "iteration": iteration,
        "time_s": seconds,
        "env_steps_per_s": 500.0,
        "episode_return_mean": episode_return,
        **FULL,
        **more,
    }


@pytest.mark.parametrize(
    ("stop", "result", "reason"),
    [
        (Stop(episode_return_mean=475), row(episode_return=481.23), "episode_return_mean 481.2 >= 475"),
        (Stop(episode_return_mean=475), row(episode_return=475.0), "episode_return_mean 475 >= 475"),
        (Stop(episode_return_mean=475), row(episode_return=474.99), None),
        (Stop(episode_return_mean=0.95), row(episode_return=0.9512), "episode_return_mean 0.951 >= 0.95"),
        (Stop(episode_return_mean=-200), row(episode_return=-150.55), "episode_return_mean -150.6 >= -200"),
        (Stop(env_steps=100_000), row(env_steps=100_032), "env_steps 100,032 >= 100,000"),
        (Stop(env_steps=100_000), row(env_steps=99_999), None),
        (Stop(iterations=5), row(), "iterations 5 >= 5"),
        (Stop(seconds=19.5), row(), "seconds 20 >= 19.5"),
        (Stop(episode_return_mean=475, env_steps=10_000), row(), "env_steps 10,000 >= 10,000"),
    ],
)
def test_a_run_stops_at_the_value_and_says_why(stop, result, reason):
    assert stop.reason(result) == reason


@pytest.mark.parametrize("nothing", [None, math.nan])
def test_no_return_stops_nothing(nothing):
    assert Stop(episode_return_mean=-math.pi).reason(row(episode_return=nothing)) is None


def test_a_return_waits_for_a_full_window():
    stop = Stop(episode_return_mean=50)
    assert stop.reason(row(episodes_in_window=19)) is None
    assert stop.reason(row(episodes_in_window=20)) is not None
    assert stop.reason({"episode_return_mean": 60.0, "episodes_in_window": 20}) is None


@pytest.mark.parametrize(
    ("rules", "error"),
    [
        (
            {},
            "the stop rule: expected at least one of episode_return_mean, env_steps, iterations, seconds, got none",
        ),
        ({"env_steps": 0}, "the stop rule env_steps: expected more than 0, got 0"),
        ({"env_steps": 1e5}, "the stop rule env_steps: expected a whole number, got 100000.0"),
        ({"iterations": True}, "the stop rule iterations: expected a whole number, got True"),
        ({"seconds": math.inf}, "the stop rule seconds: expected a finite number, got inf"),
        ({"episode_return_mean": math.nan}, "the stop rule episode_return_mean: expected a finite number, got nan"),
        ({"episode_return_mean": "475"}, "the stop rule episode_return_mean: expected a finite number, got '475'"),
    ],
)
def test_a_wrong_rule_is_refused(rules, error):
    with pytest.raises(InputError) as raised:
        Stop(**rules)
    assert str(raised.value) == error


def test_fraction_is_that_of_the_budget_which_ends_first():
    assert Stop(env_steps=40_000).fraction(row()) == 0.25
    assert Stop(env_steps=40_000, iterations=10).fraction(row()) == 0.5
    assert Stop(env_steps=40_000, iterations=10, seconds=25).fraction(row()) == 0.8
    assert Stop(env_steps=5_000).fraction(row()) == 1.0
    assert Stop(episode_return_mean=475).fraction(row()) is None


def test_seconds_left_are_those_of_the_budget_which_ends_first():
    assert Stop(env_steps=40_000).seconds_left(row()) == 60.0  # 30,000 steps at 500 per second
    assert Stop(iterations=10).seconds_left(row()) == 20.0
    assert Stop(seconds=25).seconds_left(row()) == 5.0
    assert Stop(env_steps=40_000, iterations=10, seconds=25).seconds_left(row()) == 5.0
    assert Stop(env_steps=5_000).seconds_left(row()) == 0.0
    assert Stop(episode_return_mean=475).seconds_left(row()) is None
    assert Stop(env_steps=40_000).seconds_left(row(env_steps_per_s=0.0)) is None


def test_flags_replace_their_rule_and_leave_the_others():
    stop = Stop(episode_return_mean=475, env_steps=100_000)
    assert stop.with_flags(Flags()) == stop
    assert stop.with_flags(Flags(stop_timesteps=5)) == Stop(episode_return_mean=475, env_steps=5)
    told = Flags(stop_reward=-1.5, stop_iters=3, stop_time_s=0.5)
    assert stop.with_flags(told) == Stop(episode_return_mean=-1.5, env_steps=100_000, iterations=3, seconds=0.5)
    assert stop.with_flags(Flags(stop_reward=math.inf)) == Stop(env_steps=100_000)
    with pytest.raises(InputError, match="at least one of"):
        Stop(episode_return_mean=475).with_flags(Flags(stop_reward=math.inf))


@pytest.mark.parametrize(
    ("stop", "words"),
    [
        (Stop(episode_return_mean=475, env_steps=100_000), []),
        (Stop(episode_return_mean=50, env_steps=100_000), ["--stop-reward", "inf"]),
        (Stop(episode_return_mean=50), ["--stop-reward", "inf", "--stop-timesteps", "20000"]),
        (Stop(env_steps=9_000), ["--stop-timesteps", "18000"]),
        (
            Stop(episode_return_mean=50, env_steps=9_000, iterations=4),
            ["--stop-reward", "inf", "--stop-timesteps", "18000", "--stop-iters", "8"],
        ),
        (Stop(seconds=12.5), ["--stop-time-s", "25"]),
    ],
)
def test_flags_to_go_on_leave_a_run_something_to_do(stop, words):
    assert stop.flags_to_go_on(row()) == words
    flags = {f.lstrip("-").replace("-", "_"): float(v) for f, v in zip(words[::2], words[1::2], strict=True)}
    whole = {name: int(value) if name in ("stop_timesteps", "stop_iters") else value for name, value in flags.items()}
    assert stop.with_flags(Flags(**whole)).reason(row()) is None
