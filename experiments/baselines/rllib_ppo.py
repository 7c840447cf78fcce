"""PPO of stock RLlib with the zoo's settings for CartPole until it solves it, as a user would write it.

RLlib has no schedule for the clip range; it stays. Run by ``bench_time_to_solve`` in a process of its own:
``python -m experiments.baselines.rllib_ppo ENV_ID SEED GOAL WINDOW BUDGET``. Prints a JSON line.
"""

import json
import sys
import time

import torch
from ray.rllib.algorithms.ppo import PPOConfig

ENVS, STEPS = 8, 32


def main(env_id: str, seed: int, goal: float, window: int, budget: int) -> None:
    """Trains, and prints how it went."""
    torch.set_num_threads(1)
    config = (
        PPOConfig()
        .environment(env_id)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=ENVS, rollout_fragment_length=STEPS)
        .learners(num_learners=0)
        .training(
            train_batch_size=ENVS * STEPS,
            minibatch_size=ENVS * STEPS,
            num_epochs=20,
            lr=[[0, 0.001], [budget, 0.0]],
            gamma=0.98,
            lambda_=0.8,
            clip_param=0.2,
            vf_clip_param=float("inf"),
            vf_loss_coeff=0.5,
            entropy_coeff=0.0,
            grad_clip=0.5,
            use_kl_loss=False,
        )
        .rl_module(model_config={"fcnet_hiddens": [64, 64], "fcnet_activation": "tanh", "vf_share_layers": False})
        .reporting(metrics_num_episodes_for_smoothing=window)
        .debugging(seed=seed, log_level="ERROR", log_sys_usage=False)
    )
    algorithm = config.build_algo()
    started, env_steps, solved = time.perf_counter(), 0, False
    while env_steps < budget and not solved:
        result = algorithm.train()
        env_steps = int(result["num_env_steps_sampled_lifetime"])
        of_runners = result["env_runners"]
        full = of_runners.get("num_episodes_lifetime", 0) >= window
        solved = full and of_runners["episode_return_mean"] >= goal
    seconds = time.perf_counter() - started
    print(json.dumps({"solved": bool(solved), "training_s": seconds, "env_steps": env_steps}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
