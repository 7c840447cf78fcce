"""What a checkpoint of an algorithm holds, and how it comes back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import torch
from ray.rllib.core import DEFAULT_MODULE_ID

from rayground import checkpoints
from rayground.algorithms import changes
from rayground.errors import CheckpointError
from rayground.policies import TrainedPolicy
from rayground.results.files import readable
from rayground.seeding import get_rng_state, set_rng_state
from rayground.weights import misfits

if TYPE_CHECKING:
    from rayground.algorithms.base import ArrayAlgorithm
    from rayground.algorithms.config import ArrayConfig

CONFIG = "config.pkl"
EPISODES = "episodes_{}.pkl"


def save(algorithm: ArrayAlgorithm, folder: Path) -> None:
    """Writes weights, optimizer, counters, episodes, random generators, callbacks and the algorithm's own."""
    extra, extra_arrays = algorithm.extra_state()
    episodes = algorithm.runners.get_episodes()
    rng, rng_arrays = get_rng_state()
    checkpoints.save_checkpoint(
        folder,
        state={
            "algorithm": type(algorithm).__name__,
            "env_steps": algorithm.env_steps,
            "iteration": algorithm._iteration,
            "time_total_s": algorithm._time_total,
            "episodes": algorithm.episodes.get_state(),
            "changes": algorithm.changes,
            "optimizer": algorithm.learner.optimizer_name,
            "learner": algorithm.learner.extra_state(),
            "callbacks": [_callback_state(callback) for callback in algorithm.callbacks],
            "environment": environment(algorithm.own_config),
            "runners_with_episodes": [i for i, data in enumerate(episodes) if data is not None],
            "rng": rng,
            "extra": extra,
        },
        arrays={
            "module": algorithm.learner.module_arrays(),
            "optimizer": algorithm.learner.optimizer_arrays(),
            "rng": rng_arrays,
        }
        | extra_arrays,
        blobs={
            CONFIG: checkpoints.dump_pickle(
                (algorithm.own_config.copy(copy_frozen=False), algorithm.observation_space, algorithm.action_space)
            )
        }
        | {EPISODES.format(i): data for i, data in enumerate(episodes) if data is not None}
        | algorithm.extra_blobs(),
    )


def load(algorithm: ArrayAlgorithm, folder: Path) -> None:
    """Puts a checkpoint into a built algorithm, also one that has trained already.

    Settings that training had changed stay changed, unless ``algorithm.pinned`` names them.

    Raises:
        CheckpointError: If the folder holds no whole checkpoint, or one of another algorithm or model.
    """
    checkpoint = checkpoints.load_checkpoint(folder)
    state = checkpoint.state
    if state["algorithm"] != type(algorithm).__name__:
        raise CheckpointError(f"{folder}: a checkpoint of {state['algorithm']}, not of {type(algorithm).__name__}")
    algorithm.learner.load_module_arrays(checkpoint.arrays("module"))
    algorithm.learner.load_optimizer_arrays(checkpoint.arrays("optimizer"), state["optimizer"])
    algorithm.learner.load_extra_state(state["learner"])
    algorithm.env_steps = state["env_steps"]
    algorithm._iteration, algorithm._time_total = state["iteration"], state["time_total_s"]
    algorithm.episodes.set_state(state["episodes"])
    changes.redo(algorithm, state["changes"])
    for callback, callback_state in zip(algorithm.callbacks, state["callbacks"], strict=False):
        if callback_state is not None:
            callback.set_state(callback_state)
    algorithm.load_extra_state(state["extra"], checkpoint)
    is_same = state["environment"] == environment(algorithm.own_config)
    runners = state["runners_with_episodes"] if is_same else []
    algorithm.resume_episodes([checkpoint.blob(EPISODES.format(i)) for i in runners])
    set_rng_state((state["rng"], checkpoint.arrays("rng")))


def environment(config: ArrayConfig) -> dict[str, Any]:
    """What decides how environments are made, as a checkpoint holds it: with other settings, none goes on as it was."""
    names = ("env", "env_config", "gym_env_vectorize_mode", "num_envs_per_env_runner")
    return {name: readable(getattr(config, name)) for name in names}


def read_config(folder: Path) -> tuple[ArrayConfig, gym.Space, gym.Space]:
    """The config that a checkpoint was made with, and the spaces of one observation and one action.

    It is a pickle, and loading one can run code: load checkpoints from people you trust. (An exported policy
    holds none.)

    Raises:
        CheckpointError: If a class in it cannot be imported; the class is named.
    """
    return checkpoints.load_pickle(checkpoints.load_checkpoint(folder, groups=()).blob(CONFIG), folder)


def read_policy(folder: Path) -> TrainedPolicy:
    """The policy of a checkpoint, for acting only, without an algorithm around it.

    Raises:
        CheckpointError: If the folder holds no whole checkpoint, or its weights do not fit its module.
    """
    config, observation_space, action_space = read_config(folder)
    arrays = checkpoints.load_checkpoint(folder, groups=["module"]).arrays("module")
    spec = config.get_rl_module_spec(spaces={DEFAULT_MODULE_ID: (observation_space, action_space)}, inference_only=True)
    module = spec.build()
    # A module for acting only lacks some of what was trained.
    weights = {name: arrays[name] for name in module.state_dict() if name in arrays}
    if wrong := misfits(module, weights):
        raise CheckpointError(f"{folder}: its weights do not fit {type(module).__name__}: {', '.join(wrong[:5])}")
    module.load_state_dict({name: torch.as_tensor(value) for name, value in weights.items()})
    return config.policy_class(module, config)


def _callback_state(callback: Any) -> dict[str, Any] | None:
    return callback.get_state() if hasattr(callback, "get_state") else None
