"""What can be known of a run before it starts: a wrong environment, module or size costs a second then, not a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import ray
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES

from rayground import checks, quiet
from rayground.algorithms.config import ArrayConfig
from rayground.algorithms.observers import check_callbacks
from rayground.budget import check_compiler, check_gpus, check_memory, free_memory, human_bytes
from rayground.errors import InputError, RunError, one_line
from rayground.replay import SlottedReplayBuffer
from rayground.resources import check_room, gpus_wanted
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


def preflight(config: ArrayConfig, *, here: bool = True) -> Preflight:
    """Makes one environment and the module, and checks them, the memory, GPUs and compiler.

    Args:
        config: Validated.
        here: See :func:`check_devices`.

    Raises:
        InputError: If there is no environment, it or the module breaks its contract, a callback can do nothing with
            them, or something does not fit.
    """
    check_devices(config, here=here)
    if config.env is None:
        raise InputError("the experiment has no environment: give its config one with .environment(...)")
    config = checked_env(config)
    spaces = _spaces(config)
    try:
        module = config.get_rl_module_spec(spaces={DEFAULT_MODULE_ID: spaces}).build()
    except ValueError as error:  # what our modules, and RLlib's, say about arguments that they cannot take
        raise InputError(" ".join(str(error).split())) from error
    except Exception as error:
        raise InputError(f"the module could not be built: {one_line(error.__cause__ or error)}") from error
    config.check_module(module, *spaces)
    check_callbacks(config, module)
    return Preflight(module, check_replay(config, *spaces))


def checked_env(config: ArrayConfig) -> ArrayConfig:
    """Checks the environment, unless the config says not to.

    Returns:
        A config that knows whether the environment says which actions are legal.

    Raises:
        InputError: If it cannot be made or breaks its contract.
    """
    name = env_name(config)
    if config.disable_env_checking:
        gives_masks = checks.says_what_is_legal(lambda: make_single_env(config), name)
    else:
        gives_masks = checks.check_env(lambda: make_single_env(config), name, config.action_spaces)
    return config.with_action_masks() if gives_masks else config


def check_replay(config: ArrayConfig, observation_space: gym.Space, action_space: gym.Space) -> int:
    """Returns the memory of the replay buffer in bytes; 0 without one.

    Raises:
        InputError: If less memory is free.
    """
    replay = getattr(config, "replay", None)
    if replay is None:
        return 0
    size = replay.num_bytes(observation_space, action_space, action_masks=config.action_masks)
    check_memory(size, f"a replay buffer of {replay.capacity:,} transitions")
    return size


def check_growth(replay: SlottedReplayBuffer, expected_bytes: int) -> None:
    """Ends a run whose frames shrink less than was expected of them, before the system does for want of memory.

    Args:
        replay: The buffer as it fills; nothing is said before a twentieth of it has.
        expected_bytes: What :func:`check_replay` expected of a full one.

    Raises:
        RunError: If a full one is going to need more memory than is free.
    """
    if replay.share_used < 0.05 or (full := int(replay.nbytes / replay.share_used)) <= expected_bytes:
        return
    missing, free = full - replay.nbytes, free_memory()
    if missing > free:
        raise RunError(
            f"replay: its frames compress badly: {replay.capacity:,} transitions will take {human_bytes(full)}, "
            f"expected {human_bytes(expected_bytes)}; {human_bytes(missing)} more are needed, got {human_bytes(free)} "
            "free: start again with a smaller replay.capacity"
        )


def check_hardware(config: ArrayConfig, *, here: bool = True) -> None:
    """Checks the GPUs, the compiler and Ray's cores that an algorithm needs which is about to be built.

    Args:
        config: Validated.
        here: Whether it is built here and now, and not in a trial, for which Ray reserves cores; Ray is started then,
            if there are to be remote processes and it has not been.

    Raises:
        InputError: If something is missing; it says how much there is.
    """
    check_devices(config, here=here)
    if here:
        check_room(config)


def check_devices(config: ArrayConfig, *, here: bool = True) -> None:
    """Checks the GPUs and the compiler that a run needs, as far as this process can see them.

    Nothing that is to run on a GPU may run on the CPU instead, as it would in RLlib, and nothing may wait for one that
    is not there.

    Args:
        config: Validated.
        here: Whether the run's main process is this one, and not a trial that Ray puts where there is room.

    Raises:
        InputError: If something is missing; it says how much there is.
    """
    visible = torch.cuda.device_count()
    if here and config.num_gpus_per_learner and not config.num_learners and visible <= config.local_gpu_idx:
        raise InputError(
            f"num_gpus_per_learner with local_gpu_idx={config.local_gpu_idx}: expected a GPU of that index here, "
            f"got {visible} GPUs that torch {torch.__version__} can use; num_learners=1 goes where Ray has one"
        )
    wanted = gpus_wanted(config)
    there = _gpus_there() if wanted else None
    if there is not None:
        settings = ("num_gpus_per_learner", "num_gpus_per_env_runner")
        named = " and ".join(f"{key}={getattr(config, key):g}" for key in settings if getattr(config, key))
        check_gpus(wanted, there, named)
    if config.torch_compile_learner and not config.num_gpus_per_learner:
        check_compiler()


def _gpus_there() -> int | None:
    """Ray's GPUs, or this machine's if Ray will have those; None if a cluster is yet to be asked."""
    if ray.is_initialized():
        return int(ray.cluster_resources().get("GPU", 0))
    return None if quiet.joins_cluster() else torch.cuda.device_count()


def _spaces(config: ArrayConfig) -> tuple[gym.Space, Any]:
    """The spaces of one observation, as the module sees it, and of one action."""
    env = make_single_env(config)
    try:
        observed = getattr(env, "single_observation_space", env.observation_space)
        acted = getattr(env, "single_action_space", env.action_space)
    finally:
        env.close()
    connector = config.build_env_to_module_connector(spaces={INPUT_ENV_SINGLE_SPACES: (observed, acted)})
    return connector.observation_space, acted
