"""PPO of Stable-Baselines3 with the zoo's settings until it solves a task, as a user would write it.

Run by ``bench_time_to_solve`` in a process of its own:
``python -m experiments.baselines.sb3_ppo ENV_ID SEED GOAL WINDOW BUDGET``. Prints a JSON line.
"""

import json
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env


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


class UntilSolved(BaseCallback):
    """Ends training when the mean return of the last ``window`` episodes has reached ``goal``."""

    def __init__(self, goal: float, window: int) -> None:
        super().__init__()
        self.goal, self.returns, self.solved, self.started = goal, deque[float](maxlen=window), False, 0.0

    def _on_training_start(self) -> None:
        self.started = time.perf_counter()

    def _on_step(self) -> bool:
        ended = [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        self.returns.extend(ended)
        full = len(self.returns) == self.returns.maxlen
        self.solved = bool(ended) and full and sum(self.returns) / len(self.returns) >= self.goal
        return not self.solved


def main(env_id: str, seed: int, goal: float, window: int, budget: int) -> None:
    """Trains, and prints how it went."""
    torch.set_num_threads(1)
    envs = make_vec_env(env_id, n_envs=ENVS[env_id], seed=seed)
    model = PPO("MlpPolicy", envs, seed=seed, device="cpu", **ZOO[env_id])
    until = UntilSolved(goal, window)
    model.learn(budget, callback=until)
    seconds = time.perf_counter() - until.started
    print(json.dumps({"solved": until.solved, "training_s": seconds, "env_steps": model.num_timesteps}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
