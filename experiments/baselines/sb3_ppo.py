"""PPO of Stable-Baselines3 with the zoo's settings until it solves a task, as a user would write it."""

from collections.abc import Callable
from typing import Any

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from .until_solved import main


def falling(start: float) -> Callable[[float], float]:
    """The zoo's ``lin_<start>``: falls in a line to 0 at the end of the budget."""
    return lambda remaining: remaining * start


# https://github.com/DLR-RM/rl-baselines3-zoo/blob/master/hyperparams/ppo.yml
ZOO: dict[str, dict[str, Any]] = {
    "CartPole-v1": {
        "n_steps": 32,
        "batch_size": 256,
        "gae_lambda": 0.8,
        "gamma": 0.98,
        "n_epochs": 20,
        "ent_coef": 0.0,
        "learning_rate": falling(0.001),
        "clip_range": falling(0.2),
    },
    "Pendulum-v1": {
        "n_steps": 1024,
        "gae_lambda": 0.95,
        "gamma": 0.9,
        "n_epochs": 10,
        "ent_coef": 0.0,
        "learning_rate": 1e-3,
        "clip_range": 0.2,
        "use_sde": True,
        "sde_sample_freq": 4,
    },
}
ENVS = {"CartPole-v1": 8, "Pendulum-v1": 4}


def make_model(env_id: str, seed: int) -> PPO:
    """The zoo's."""
    envs = make_vec_env(env_id, n_envs=ENVS[env_id], seed=seed)
    return PPO("MlpPolicy", envs, seed=seed, device="cpu", **ZOO[env_id])


if __name__ == "__main__":
    main(make_model)
