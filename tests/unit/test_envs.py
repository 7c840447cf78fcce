"""The probe environments: the contract, and the action values that their docstrings promise."""

import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check_env

import envs.sleeping
from rayground import checks

IDS = [*envs.PROBES, "rayground/TimeLimited-v0", "rayground/Sleeping-v0"]
GAMMA = 0.9


def constant_return(env: gym.Env, seed: int, action: int) -> tuple[float, float]:
    """Returns what the first observation shows, and the discounted return of taking ``action`` every time."""
    obs, _ = env.reset(seed=seed)
    first, discounted, discount, ended = float(obs[0]), 0.0, 1.0, False
    while not ended and discount > 1e-8:
        obs, reward, terminated, truncated, _ = env.step(np.int64(action))
        discounted += discount * reward
        discount *= GAMMA
        ended = terminated or truncated
    return first, discounted


@pytest.mark.parametrize("env_id", IDS)
def test_gymnasium_and_our_own_checks_pass(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gymnasium_check_env(gym.make(env_id).unwrapped, skip_render_check=True)
    checks.check_env(lambda: gym.make(f"envs:{env_id}"), env_id)


@pytest.mark.parametrize(
    ("env_id", "q"),
    [
        ("rayground/OneStepReward-v0", lambda o, a: 1.0),
        ("rayground/ObservedReward-v0", lambda o, a: o),
        ("rayground/TwoStepDelay-v0", lambda o, a: GAMMA),
        ("rayground/ChosenReward-v0", lambda o, a: [-1.0, 1.0][a]),
        ("rayground/ObservedChoice-v0", lambda o, a: 1.0 if (o > 0) == (a == 1) else -1.0),
        ("rayground/NeverEnding-v0", lambda o, a: 1.0 / (1.0 - GAMMA)),
        ("rayground/TimeLimited-v0", lambda o, a: (1.0 - GAMMA**10) / (1.0 - GAMMA)),  # without the bootstrap
    ],
)
def test_action_values_are_as_promised(env_id, q):
    env = gym.make(env_id)
    for seed in range(6):
        for action in (0, 1):
            first, value = constant_return(env, seed, action)
            assert value == pytest.approx(q(first, action), abs=1e-6)


def test_the_second_step_of_the_delay_shows_another_observation():
    env = gym.make("rayground/TwoStepDelay-v0")
    first, _ = env.reset(seed=0)
    second, reward, terminated, _, _ = env.step(0)
    assert (first.tolist(), second.tolist(), reward, terminated) == ([0.0], [1.0], 0.0, False)
    assert env.step(0)[1:3] == (1.0, True)


@pytest.mark.parametrize("env_id", ["rayground/ObservedReward-v0", "rayground/ObservedChoice-v0"])
def test_random_observations_show_both_values_and_repeat_with_the_seed(env_id):
    env = gym.make(env_id)
    shown = [env.reset(seed=seed)[0].item() for seed in range(20)]
    assert set(shown) == {-1.0, 1.0}
    assert shown == [env.reset(seed=seed)[0].item() for seed in range(20)]


def test_time_limited_truncates_and_never_terminates():
    env = gym.make("rayground/TimeLimited-v0")
    env.reset(seed=0)
    ends = [env.step(0)[2:4] for _ in range(10)]
    assert ends == [(False, False)] * 9 + [(False, True)]


def test_sleeping_sleeps_what_it_is_told_in_every_step_and_ends_at_its_length(monkeypatch):
    slept = []
    monkeypatch.setattr(envs.sleeping.time, "sleep", slept.append)
    env = gym.make("rayground/Sleeping-v0", milliseconds=2.5, length=3)
    for _ in range(2):
        env.reset(seed=0)
        steps = [env.step(0) for _ in range(3)]
        assert [step[1:4] for step in steps] == [(1.0, False, False), (1.0, False, False), (1.0, True, False)]
    assert slept == [0.0025] * 6


def test_an_id_with_the_package_in_front_works_in_a_fresh_process():
    script = """
import gymnasium as gym
vector = gym.make_vec("envs:rayground/ChosenReward-v0", num_envs=2, vectorization_mode="sync")
vector.reset(seed=0)
assert vector.step([0, 1])[1].tolist() == [-1.0, 1.0]
"""
    subprocess.run([sys.executable, "-c", script], check=True)
