"""What is checked of an environment before training: that it keeps Gymnasium's contract.

RLlib's own runner does not (NaN observations train without a word), so each finding here is one line: whose fault,
which key, what was expected, what came.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np
import tree
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import iterate

from rayground.action_masks import ACTION_MASK, LegalActions, gives_masks, legal_sample, mask_fault
from rayground.errors import InputError, RunError, closest, one_line
from rayground.space_checks import ACTIONS, check_finite, check_observation, check_spaces, kind

NUM_STEPS = 3
"""Checked steps: few, as an environment that fails later fails in training, with its own traceback."""

RESET_PARTS = ("observation", "info")
STEP_PARTS = ("observation", "reward", "terminated", "truncated", "info")


def check_env(
    make: Callable[[], gym.Env | VectorEnv], name: str, actions: tuple[type[gym.Space], ...] = ACTIONS
) -> bool:
    """Makes an environment, resets it and takes a few steps with sampled actions.

    Args:
        make: Makes one environment, as a runner would. A vector environment is checked by :func:`check_vector_env`.
        name: What the user knows it as.
        actions: The kinds of action spaces that the algorithm takes.

    Returns:
        Whether it says which actions are legal; see :mod:`rayground.action_masks`.

    Raises:
        InputError: If it is not registered or cannot be made, or breaks the Gymnasium contract.
    """
    with warnings.catch_warnings():
        # Gymnasium's own checker warns of the same things, in many lines.
        warnings.simplefilter("ignore")
        env = _make(make, name)
        try:
            if isinstance(env, VectorEnv):
                return check_vector_env(env, name, actions)
            return _check_single_env(env, actions, Subject(f"environment {name}"))
        finally:
            getattr(env, "close", lambda: None)()


def says_what_is_legal(make: Callable[[], gym.Env | VectorEnv], name: str) -> bool:
    """Makes and resets an environment, which is not checked, to find out whether it says which actions are legal.

    Raises:
        InputError: If it is not registered or cannot be made, or raises.
    """
    env = _make(make, name)
    try:
        _, infos = Subject(f"environment {name}").call("reset()", RESET_PARTS, env.reset, seed=0)
        return gives_masks(infos, getattr(env, "single_action_space", env.action_space))
    finally:
        env.close()


def check_vector_env(env: VectorEnv, name: str, actions: tuple[type[gym.Space], ...] = ACTIONS) -> bool:
    """Checks a vector environment; it is reset and stepped.

    Args:
        env: The vector environment.
        name: What the user knows it as.
        actions: The kinds of action spaces that the algorithm takes.

    Returns:
        Whether it says which actions are legal.

    Raises:
        InputError: If it breaks the Gymnasium contract, or does not reset itself in the step after the last one.
    """
    subject = Subject(f"vector environment {name}")
    # Gymnasium writes its vector environments' mode into metadata that instances of a class share: ask them first.
    modes = (getattr(env.unwrapped, "autoreset_mode", None), env.metadata.get("autoreset_mode"))
    mode = next((mode for mode in modes if isinstance(mode, AutoresetMode)), None)
    if mode != AutoresetMode.NEXT_STEP:
        subject.fail("autoreset_mode", "AutoresetMode.NEXT_STEP", str(mode))
    check_spaces(env.single_observation_space, env.single_action_space, actions, subject.fail)
    env.action_space.seed(0)
    obs, infos = subject.call("reset()", RESET_PARTS, env.reset, seed=0)
    _check_rows(env, obs, subject)
    legal, ended = LegalActions(env.single_action_space, env.num_envs), np.zeros(env.num_envs, np.bool_)
    _take_masks(legal.reset, infos, subject)
    for _ in range(NUM_STEPS):
        sample = legal_sample(env.action_space, legal.to_act_by(ended))
        obs, rewards, terminated, truncated, infos = subject.call("step()", STEP_PARTS, env.step, sample)
        _check_rows(env, obs, subject)
        _check_column(env, rewards, "reward", "iuf", subject)
        check_finite(np.asarray(rewards), "reward", subject.fail)
        _check_column(env, terminated, "terminated", "b", subject)
        _check_column(env, truncated, "truncated", "b", subject)
        _take_masks(legal.step, infos, subject, terminated, truncated)
        ended = terminated | truncated
    return legal.masks is not None


@dataclass(frozen=True)
class Subject:
    """Whom a finding is about."""

    name: str

    def fail(self, key: str, expected: str, got: str) -> NoReturn:
        """Raises the finding."""
        raise InputError(f"{self.name}: {key}: expected {expected}, got {got}")

    def call(
        self, what: str, parts: tuple[str, ...] | None, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Calls a function of the subject; ``parts`` name the items of the tuple that it must return."""
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            raise InputError(f"{self.name}: {what} raised {one_line(error)}") from error
        if parts and not (isinstance(result, tuple) and len(result) == len(parts)):
            got = f"a tuple of {len(result)}" if isinstance(result, tuple) else kind(result)
            self.fail(what, f"({', '.join(parts)}), Gymnasium's API", got)
        return result


def _make(make: Callable[[], Any], name: str) -> Any:
    try:
        return make()
    except (gym.error.UnregisteredEnv, gym.error.DeprecatedEnv) as error:
        hint = closest(name.rpartition(":")[2], gym.registry)
        raise InputError(f"environment {name}: no such environment is registered{hint}") from error
    except Exception as error:
        raise InputError(f"environment {name} could not be made: {one_line(error)}") from error


def _check_single_env(env: Any, actions: tuple[type[gym.Space], ...], subject: Subject) -> bool:
    if not isinstance(env, gym.Env):
        subject.fail("class", "a gymnasium.Env", f"{type(env).__module__}.{type(env).__qualname__}")
    spaces = (getattr(env, "observation_space", None), getattr(env, "action_space", None))
    check_spaces(*spaces, actions, subject.fail)
    # Wrappers unpack what comes from inside, so that a wrong tuple is only seen for what it is on the inside.
    base = env.unwrapped
    _check_reset_arguments(base, subject)
    _, info = subject.call("reset()", RESET_PARTS, base.reset, seed=0)
    base.action_space.seed(0)
    subject.call("step()", STEP_PARTS, base.step, _innermost_sample(env, info, subject))
    env.action_space.seed(0)
    ended, legal = True, LegalActions(env.action_space, 1)
    for _ in range(NUM_STEPS):
        if ended:
            obs, info = subject.call("reset()", RESET_PARTS, env.reset, seed=0)
            check_observation(env.observation_space, obs, "observation of reset()", subject.fail)
            _check_info(info, "info of reset()", subject)
            _take_masks(legal.reset, [info], subject)
        ended = _check_step(env, legal, subject)
    return legal.masks is not None


def _check_step(env: gym.Env, legal: LegalActions, subject: Subject) -> bool:
    """Takes a legal step and returns whether the episode ended."""
    sample = legal_sample(env.action_space, None if legal.masks is None else legal.masks[0])
    obs, reward, terminated, truncated, info = subject.call("step()", STEP_PARTS, env.step, sample)
    check_observation(env.observation_space, obs, "observation of step()", subject.fail)
    if np.ndim(reward) != 0 or np.asarray(reward).dtype.kind not in "iuf":
        subject.fail("reward", "a number", kind(reward))
    check_finite(np.asarray(reward), "reward", subject.fail)
    for key, value in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(value, bool | np.bool_):
            subject.fail(key, "a bool", f"{kind(value)} {value!r}")
    _check_info(info, "info of step()", subject)
    _take_masks(legal.step, [info], subject, np.array([terminated]), np.array([truncated]))
    return bool(terminated or truncated)


def _check_reset_arguments(env: gym.Env, subject: Subject) -> None:
    parameters = inspect.signature(env.reset).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return
    names = [parameter.name for parameter in parameters]
    if not {"seed", "options"} <= set(names):
        subject.fail("reset()", "the arguments seed and options, Gymnasium's API", f"reset({', '.join(names)})")


def _check_info(info: Any, key: str, subject: Subject) -> None:
    if not isinstance(info, dict):
        subject.fail(key, "a dict", kind(info))


def _innermost_sample(env: gym.Env, info: Any, subject: Subject) -> Any:
    """An action for the innermost environment, which has been reset: a legal one, if it says what is legal."""
    space = env.unwrapped.action_space
    if not gives_masks([info], space):
        return space.sample()
    if not mask_fault(info[ACTION_MASK], space):
        return legal_sample(space, info[ACTION_MASK])
    # What it says is wrong; and unless the wrappers mend that, it is what must be said.
    _take_masks(LegalActions(env.action_space, 1).reset, [env.reset(seed=0)[1]], subject)
    return space.sample()


def _take_masks(take: Callable[..., None], infos: Any, subject: Subject, *ends: np.ndarray) -> None:
    """Lets the masks in infos be read."""
    try:
        take(infos, *ends)
    except RunError as error:
        raise InputError(f"{subject.name}: {error}") from None


def _check_rows(env: VectorEnv, obs: Any, subject: Subject) -> None:
    wrong = [part for part in tree.flatten(obs) if not isinstance(part, np.ndarray) or len(part) != env.num_envs]
    if wrong:
        subject.fail("observation", f"an array with {env.num_envs} rows", kind(wrong[0]))
    for i, row in enumerate(iterate(env.observation_space, obs)):
        check_observation(env.single_observation_space, row, f"observation of sub-environment {i}", subject.fail)


def _check_column(env: VectorEnv, values: Any, key: str, kinds: str, subject: Subject) -> None:
    array = np.asarray(values)
    if array.shape != (env.num_envs,) or array.dtype.kind not in kinds:
        what = "bools" if kinds == "b" else "numbers"
        subject.fail(key, f"{what} of shape {(env.num_envs,)}", f"{array.dtype} of shape {array.shape}")
