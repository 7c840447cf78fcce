"""PPO of stock RLlib until it solves CartPole, as a user would write it.

The settings are those of ``experiments.ppo_cartpole``: with them RLlib is quicker than with the zoo's. Its own mean
return is over the episodes of one iteration, here a few, so a callback keeps them all. Run by
``bench_time_to_solve`` in a process of its own: ``python -m experiments.baselines.rllib_ppo ENV_ID SEED GOAL WINDOW
BUDGET``. Prints a JSON line.
"""

import json
import sys
import time
from typing import Any, ClassVar

import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback

ENVS, STEPS = 8, 64


class Returns(RLlibCallback):
    """Keeps the returns of all episodes, in the class: RLlib makes the instance, and copies all else."""

    returns: ClassVar[list[float]] = []

    def on_episode_end(self, *, episode: Any, prev_episode_chunks: list[Any], **_: Any) -> None:
        """Adds the return of an episode that has ended."""
        self.returns.append(sum(chunk.get_return() for chunk in (*prev_episode_chunks, episode)))


def main(env_id: str, seed: int, goal: float, window: int, budget: int) -> None:
    """Trains, and prints how it went."""
    torch.set_num_threads(1)
    returns = Returns.returns
    config = (
        PPOConfig()
        .environment(env_id)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=ENVS, rollout_fragment_length=STEPS)
        .learners(num_learners=0)
        .training(
            train_batch_size=ENVS * STEPS,
            minibatch_size=128,
            num_epochs=8,
            lr=[[0, 2e-3], [40_000, 2e-4]],
            gamma=0.98,
            lambda_=0.95,
            clip_param=0.2,
            vf_clip_param=float("inf"),
            vf_loss_coeff=0.5,
            entropy_coeff=0.0,
            grad_clip=0.5,
            use_kl_loss=False,
        )
        .rl_module(model_config={"fcnet_hiddens": [64, 64], "fcnet_activation": "tanh", "vf_share_layers": False})
        .callbacks(Returns)
        .debugging(seed=seed, log_level="ERROR", log_sys_usage=False)
    )
    algorithm = config.build_algo()
    started, env_steps, solved = time.perf_counter(), 0, False
    while env_steps < budget and not solved:
        env_steps = int(algorithm.train()["num_env_steps_sampled_lifetime"])
        last = returns[-window:]
        solved = len(last) == window and sum(last) / window >= goal
    seconds = time.perf_counter() - started
    result = {"solved": bool(solved), "env_steps": env_steps, "episodes": len(returns), "training_s": seconds}
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
