"""What the baselines on Stable-Baselines3 share: they train until a task is solved, and print a JSON line.

Run by ``bench_time_to_solve`` in a process of its own: ``python -m experiments.baselines.MODULE ENV_ID SEED GOAL WINDOW
BUDGET``.
"""

import json
import sys
import time
from collections.abc import Callable

import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback


class UntilSolved(BaseCallback):
    """Ends training when the mean return of the last ``window`` episodes has reached ``goal``."""

    def __init__(self, goal: float, window: int) -> None:
        super().__init__()
        self.goal, self.window, self.solved, self.started = goal, window, False, 0.0
        self.returns: list[float] = []

    def _on_training_start(self) -> None:
        self.started = time.perf_counter()

    def _on_step(self) -> bool:
        ended = [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        self.returns.extend(ended)
        last = self.returns[-self.window :]
        self.solved = bool(ended) and len(last) == self.window and sum(last) / self.window >= self.goal
        return not self.solved


def main(make_model: Callable[[str, int], BaseAlgorithm]) -> None:
    """Trains the model that ``make_model(env_id, seed)`` builds, and prints how it went."""
    env_id, seed, goal, window, budget = sys.argv[1:]
    torch.set_num_threads(1)
    model = make_model(env_id, int(seed))
    until = UntilSolved(float(goal), int(window))
    model.learn(int(budget), callback=until)
    result = {
        "solved": until.solved,
        "env_steps": model.num_timesteps,
        "episodes": len(until.returns),
        "training_s": time.perf_counter() - until.started,
    }
    print(json.dumps(result))
