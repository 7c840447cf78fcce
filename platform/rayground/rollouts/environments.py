"""Single environments, made as RLlib's runner would make them."""

from __future__ import annotations

import gymnasium as gym
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.env.env_context import EnvContext
from ray.tune.registry import ENV_CREATOR, _global_registry


def make_single_env(config: AlgorithmConfig) -> gym.Env | gym.vector.VectorEnv:
    """Makes one environment of ``config.env``: a Gymnasium id, a name registered with Tune, or a class or function.

    With ``gym_env_vectorize_mode="vector_entry_point"`` what comes is a vector environment of one.
    """
    is_vector = gym.VectorizeMode(config.gym_env_vectorize_mode) is gym.VectorizeMode.VECTOR_ENTRY_POINT
    context = EnvContext(config.env_config, worker_index=0, num_workers=config.num_env_runners)
    if callable(config.env):
        creator = config.env
    elif _global_registry.contains(ENV_CREATOR, config.env):
        creator = _global_registry.get(ENV_CREATOR, config.env)
    elif is_vector:
        mode = gym.VectorizeMode.VECTOR_ENTRY_POINT
        return gym.make_vec(config.env, num_envs=1, vectorization_mode=mode, **config.env_config)
    else:
        return gym.make(config.env, **config.env_config)
    return creator(context | {"num_envs": 1}) if is_vector else creator(context)


def env_name(config: AlgorithmConfig) -> str:
    """What messages call the environment: its id, or the name of its class or function."""
    return config.env if isinstance(config.env, str) else getattr(config.env, "__name__", str(config.env))
