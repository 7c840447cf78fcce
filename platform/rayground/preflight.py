"""What can be known of a run before it starts: a wrong environment, module or size costs a second then, not a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.rl_module import RLModule

from rayground import checks
from rayground.algorithms.config import ArrayConfig
from rayground.budget import check_memory
from rayground.errors import InputError, one_line
from rayground.rollouts.environments import env_name, make_single_env


@dataclass(frozen=True)
class Preflight:
    """What was found.

    Attributes:
        module: The module, built as the learner's.
        replay_bytes: Memory of the replay buffer in bytes; 0 for an algorithm without one.
    """

    module: RLModule
    replay_bytes: int


def preflight(config: ArrayConfig) -> Preflight:
    """Makes one environment and the module, and checks them and the memory.

    Args:
        config: Validated.

    Raises:
        InputError: If there is no environment, it or the module breaks its contract, or the replay buffer cannot fit.
    """
    if config.env is None:
        raise InputError("the experiment has no environment: give its config one with .environment(...)")
    if not config.disable_env_checking:
        checks.check_env(lambda: make_single_env(config), env_name(config), config.action_spaces)
    spaces = _spaces(config)
    try:
        module = config.get_rl_module_spec(spaces={DEFAULT_MODULE_ID: spaces}).build()
    except ValueError as error:  # what our modules, and RLlib's, say about arguments that they cannot take
        raise InputError(" ".join(str(error).split())) from error
    except Exception as error:
        raise InputError(f"the module could not be built: {one_line(error.__cause__ or error)}") from error
    config.check_module(module, *spaces)
    return Preflight(module, check_replay(config, *spaces))


def check_replay(config: ArrayConfig, observation_space: gym.Space, action_space: gym.Space) -> int:
    """Returns the memory of the replay buffer in bytes; 0 without one.

    Raises:
        InputError: If less memory is free.
    """
    replay = getattr(config, "replay", None)
    if replay is None:
        return 0
    size = replay.num_bytes(observation_space, action_space)
    check_memory(size, f"a replay buffer of {replay.capacity:,} transitions")
    return size


def _spaces(config: ArrayConfig) -> tuple[gym.Space, Any]:
    """The spaces of one observation and one action."""
    env = make_single_env(config)
    try:
        return (
            getattr(env, "single_observation_space", env.observation_space),
            getattr(env, "single_action_space", env.action_space),
        )
    finally:
        env.close()
