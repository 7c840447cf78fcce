"""A2C of Stable-Baselines3 with the zoo's settings until it solves CartPole, as a user would write it."""

from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env

from .until_solved import main


def make_model(env_id: str, seed: int) -> A2C:
    """The zoo's: https://github.com/DLR-RM/rl-baselines3-zoo/blob/master/hyperparams/a2c.yml, all else by default."""
    return A2C("MlpPolicy", make_vec_env(env_id, n_envs=8, seed=seed), ent_coef=0.0, seed=seed, device="cpu")


if __name__ == "__main__":
    main(make_model)
