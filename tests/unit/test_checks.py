"""The checks before training: each bad environment and module gets its one line."""

import re
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rayground.checks import check_env, check_vector_env
from rayground.errors import InputError

BOX = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
TWO = gym.spaces.Discrete(2)


class Good(gym.Env):
    """Keeps the contract; what a bad environment does otherwise is given by key."""

    observation_space = BOX
    action_space = TWO

    def __init__(self, first=None, **step):
        self.first = np.zeros(2, np.float32) if first is None else first
        self.step_parts = {
            "obs": np.zeros(2, np.float32),
            "reward": 0.0,
            "terminated": False,
            "truncated": False,
            "info": {},
        } | step
        self.num_steps, self.resets, self.closed = 0, 0, False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets += 1
        return self.first, {}

    def step(self, action):
        self.num_steps += 1
        return tuple(self.step_parts.values())

    def close(self):
        self.closed = True


class DiscreteObs(Good):
    observation_space = gym.spaces.Discrete(3, start=1)


class OldReset(Good):
    def reset(self, *, seed=None, options=None):
        return self.first


class OldResetArguments(Good):
    def reset(self):
        return self.first


class OldStep(Good):
    def step(self, action):
        return self.first, 0.0, False, {}


class Raises(Good):
    def step(self, action):
        raise KeyError("wheel")


class NoSpaces(gym.Env):
    pass


class NotAnEnv:
    pass


def with_spaces(**spaces):
    return type("Odd", (Good,), spaces)()


def obs(*values, dtype=np.float32):
    return np.array(values, dtype)


OBSERVED = "a Box, Discrete, MultiDiscrete or MultiBinary space of gymnasium, or a Dict or Tuple of them"
ACTED = (
    "a Discrete space that starts at 0 or a MultiDiscrete space of one dimension that starts at 0 "
    "or a Box space of floats of one dimension"
)
NESTED = gym.spaces.Tuple((gym.spaces.Dict(a=TWO, b=BOX), TWO))

BAD = {
    "reset gives no tuple": (OldReset, "reset(): expected (observation, info), Gymnasium's API, got float32 [2]"),
    "reset takes no seed": (
        OldResetArguments,
        "reset(): expected the arguments seed and options, Gymnasium's API, got reset()",
    ),
    "step gives four": (
        OldStep,
        "step(): expected (observation, reward, terminated, truncated, info), Gymnasium's API, got a tuple of 4",
    ),
    "shape at reset": (
        lambda: Good(first=obs(0, 0, 0)),
        "observation of reset(): expected an array float32 [2], got float32 [3]",
    ),
    "shape": (
        lambda: Good(obs=np.zeros((1, 2), np.float32)),
        "observation of step(): expected an array float32 [2], got float32 [1, 2]",
    ),
    "list": (lambda: Good(obs=[0.0, 0.0]), "observation of step(): expected an array float32 [2], got list"),
    "dtype": (
        lambda: Good(obs=obs(0, 0, dtype=np.float64)),
        "observation of step(): expected an array float32 [2], got float64 [2]",
    ),
    "NaN": (
        lambda: Good(obs=obs(0, np.nan)),
        "observation of step() at [1]: expected a finite number, got nan",
    ),
    "inf": (
        lambda: Good(first=obs(np.inf, 0)),
        "observation of reset() at [0]: expected a finite number, got inf",
    ),
    "bounds": (
        lambda: Good(obs=obs(0, 1.5)),
        "observation of step() at [1]: expected a value from -1.0 to 1.0, got 1.5",
    ),
    "discrete bounds": (
        lambda: DiscreteObs(first=1, obs=4),
        "observation of step(): expected a value from 1 to 3, got 4",
    ),
    "discrete type": (lambda: DiscreteObs(first=1.0), "observation of reset(): expected an int, got float"),
    "reward array": (lambda: Good(reward=np.zeros(1)), "reward: expected a number, got float64 [1]"),
    "reward None": (lambda: Good(reward=None), "reward: expected a number, got NoneType"),
    "reward bool": (lambda: Good(reward=True), "reward: expected a number, got bool"),
    "reward NaN": (lambda: Good(reward=float("nan")), "reward: expected a finite number, got nan"),
    "terminated": (lambda: Good(terminated=0), "terminated: expected a bool, got int 0"),
    "truncated": (lambda: Good(truncated=None), "truncated: expected a bool, got NoneType None"),
    "info": (lambda: Good(info=None), "info of step(): expected a dict, got NoneType"),
    "no spaces": (NoSpaces, f"observation_space: expected {OBSERVED}, got None"),
    "text observations": (
        lambda: with_spaces(observation_space=gym.spaces.Dict(a=gym.spaces.Text(3))),
        f"observation_space: expected {OBSERVED}, got Dict('a': Text(1, 3, charset={gym.spaces.Text(3).characters}))",
    ),
    "dict keys": (
        lambda: with_spaces(observation_space=gym.spaces.Dict(a=TWO)),
        "observation of reset(): expected a dict with the keys ['a'], got float32 [2]",
    ),
    "inside a dict and a tuple": (
        lambda: type("Odd", (Good,), {"observation_space": NESTED})(first=({"a": 2, "b": obs(0, 0)}, np.int8(0))),
        "observation of reset()[0]['a']: expected a value from 0 to 1, got 2",
    ),
    "tuple length": (
        lambda: type("Odd", (Good,), {"observation_space": NESTED})(first=({"a": 1, "b": obs(0, 0)},)),
        "observation of reset(): expected a tuple of 2, got a tuple of 1",
    ),
    "multi discrete bounds": (
        lambda: type("Odd", (Good,), {"observation_space": gym.spaces.MultiDiscrete([2, 3])})(first=np.array([1, 3])),
        "observation of reset() at [1]: expected a value from 0 to 2, got 3",
    ),
    "multi binary bounds": (
        lambda: type("Odd", (Good,), {"observation_space": gym.spaces.MultiBinary(2)})(first=np.array([1, 2], np.int8)),
        "observation of reset() at [1]: expected a value from 0 to 1, got 2",
    ),
    "dict actions": (
        lambda: with_spaces(action_space=gym.spaces.Dict(a=TWO)),
        f"action_space: expected {ACTED}, got Dict('a': Discrete(2))",
    ),
    "whole numbers in a box as actions": (
        lambda: with_spaces(action_space=gym.spaces.Box(0, 3, (2,), np.int64)),
        f"action_space: expected {ACTED}, got Box(0, 3, (2,), int64)",
    ),
    "a plane of actions": (
        lambda: with_spaces(action_space=gym.spaces.Box(-1.0, 1.0, (2, 2))),
        f"action_space: expected {ACTED}, got Box(-1.0, 1.0, (2, 2), float32)",
    ),
    "rows of actions": (
        lambda: with_spaces(action_space=gym.spaces.MultiDiscrete([[2, 2], [3, 3]])),
        f"action_space: expected {ACTED}, got MultiDiscrete([[2 2] [3 3]])",
    ),
    "nothing to observe": (
        lambda: with_spaces(observation_space=gym.spaces.Box(-1.0, 1.0, (0,))),
        "observation_space: expected a space with numbers in it, got Box([], [], (0,), float32)",
    ),
    "actions from 1": (
        lambda: with_spaces(action_space=gym.spaces.Discrete(2, start=1)),
        f"action_space: expected {ACTED}, got Discrete(2, start=1)",
    ),
    "components from 1": (
        lambda: with_spaces(action_space=gym.spaces.MultiDiscrete([2, 2], start=[0, 1])),
        f"action_space: expected {ACTED}, got MultiDiscrete([2 2], start=[0 1])",
    ),
    "no environment": (NotAnEnv, "class: expected a gymnasium.Env, got test_checks.NotAnEnv"),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD)
def test_a_bad_environment_is_one_line(make, message):
    with pytest.raises(InputError, match=f"^environment mine: {re.escape(message)}$"):
        check_env(make, "mine")


def test_bad_environments_are_found_behind_gymnasiums_own_wrappers():
    gym.register("tests/OldStep-v0", OldStep, max_episode_steps=10)
    gym.register("tests/Dtype-v0", lambda: Good(obs=obs(0, 0, dtype=np.float64)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(InputError, match=r"step\(\): expected .* got a tuple of 4"):
                check_env(lambda: gym.make("tests/OldStep-v0"), "tests/OldStep-v0")
            with pytest.raises(InputError, match=r"expected an array float32 \[2\], got float64 \[2\]"):
                check_env(lambda: gym.make("tests/Dtype-v0"), "tests/Dtype-v0")
    finally:
        del gym.registry["tests/OldStep-v0"], gym.registry["tests/Dtype-v0"]


def test_an_exception_keeps_its_name_and_place():
    with pytest.raises(InputError, match=r"step\(\) raised KeyError: 'wheel' \(test_checks\.py:\d+\)") as caught:
        check_env(Raises, "mine")
    assert isinstance(caught.value.__cause__, KeyError)


def test_good_environments_pass_and_are_closed():
    made = []
    for arguments in ({}, {"terminated": np.True_, "reward": np.int64(3)}):
        check_env(lambda arguments=arguments: made.append(Good(**arguments)) or made[-1], "mine")
    check_env(lambda: DiscreteObs(first=1, obs=np.int64(3)), "mine")
    assert [env.closed for env in made] == [True, True]
    assert [env.num_steps for env in made] == [4, 4]  # an environment that raises at its fifth step fails in training
    assert [env.resets for env in made] == [2, 4]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "FrozenLake-v1", "Acrobot-v1", "Blackjack-v1", "Pendulum-v1"])
def test_gymnasiums_environments(env_id):
    check_env(lambda: gym.make(env_id), env_id)
    check_env(lambda: gym.make_vec(env_id, num_envs=2, vectorization_mode="sync"), env_id)


def test_an_algorithm_may_take_fewer_kinds_of_actions():
    message = r"action_space: expected a Discrete space that starts at 0, got Box\(-2.0, 2.0"
    with pytest.raises(InputError, match=message):
        check_env(lambda: gym.make("Pendulum-v1"), "Pendulum-v1", (gym.spaces.Discrete,))


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("Cartpole-v1", "environment Cartpole-v1: no such environment is registered; did you mean 'CartPole-v1'?"),
        ("envs:rayground/TwoStepDeley-v0", "did you mean 'rayground/TwoStepDelay-v0'?"),
        ("CartPole-v7", "did you mean 'CartPole-v1'?"),
        ("nowhere_at_all:X-v0", "could not be made: ModuleNotFoundError: No module named 'nowhere_at_all'"),
    ],
)
def test_unknown_ids_get_the_closest(env_id, message):
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        check_env(lambda: gym.make(env_id), env_id)
    assert "\n" not in str(caught.value)


class BadVector(SyncVectorEnv):
    """Two good sub-environments; what is bad about the batch is given by position."""

    def __init__(self, **parts):
        super().__init__([Good, Good])
        self.parts = parts

    def step(self, actions):
        result = dict(zip(("obs", "reward", "terminated", "truncated", "info"), super().step(actions), strict=True))
        return tuple((result | self.parts).values())


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            SyncVectorEnv([Good], autoreset_mode=AutoresetMode.SAME_STEP),
            "autoreset_mode: expected AutoresetMode.NEXT_STEP, got AutoresetMode.SAME_STEP",
        ),
        (BadVector(reward=np.zeros((2, 1))), "reward: expected numbers of shape (2,), got float64 of shape (2, 1)"),
        (BadVector(reward=np.array([0, np.nan])), "reward at [1]: expected a finite number, got nan"),
        (BadVector(terminated=np.zeros(2)), "terminated: expected bools of shape (2,), got float64 of shape (2,)"),
        (BadVector(truncated=[False]), "truncated: expected bools of shape (2,), got bool of shape (1,)"),
        (BadVector(obs=np.zeros((3, 2), np.float32)), "observation: expected an array with 2 rows, got float32 [3, 2]"),
        (
            BadVector(obs=np.array([[0, 0], [0, 7]], np.float32)),
            "observation of sub-environment 1 at [1]: expected a value from -1.0 to 1.0, got 7.0",
        ),
        (
            SyncVectorEnv([lambda: with_spaces(action_space=gym.spaces.MultiBinary(2))]),
            f"action_space: expected {ACTED}, got MultiBinary(2)",
        ),
    ],
)
def test_a_bad_vector_environment_is_one_line(env, message):
    with pytest.raises(InputError, match=f"^vector environment mine: {re.escape(message)}$"):
        check_vector_env(env, "mine")


def test_good_vector_environments_pass():
    check_vector_env(BadVector(), "mine")
    check_vector_env(gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="vector_entry_point"), "CartPole-v1")
