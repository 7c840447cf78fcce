"""Atari Pong against stock RLlib and Stable-Baselines3: env steps per second of sampling, of DQN and of PPO.

8 environments in this process, 84x84, 4 frames stacked, the Nature DQN's net, Adam. Sampling: the net acts, nothing is
learnt; RLlib on its own wrapper. DQN: single Q, 1-step targets, one update of 32 per 4 env steps, uniform replay. PPO:
128 vector steps, 4 epochs of minibatches of 256, the zoo's settings. Ours plays on ale-py's vector environment, the
others on what comes with them. Rounds in turn, medians; an env step without its updates does not count.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import torch
import tyro
from ray import tune
from ray.rllib.algorithms.dqn import DQNConfig as StockDQNConfig
from ray.rllib.algorithms.ppo import PPOConfig as StockPPOConfig

from custom_models.actor_critic_module import actor_critic_cnn
from custom_models.q_module import plain_cnn
from envs.atari import atari
from rayground import DQNConfig, PPOConfig, SlottedReplay, bench, quiet, racing
from rayground.cli import guarded

ENVS, CAPACITY, STARTS, FRAGMENT, STOCK = 8, 5_000, 500, 128, "pong of RLlib"
NATURE = {
    "conv_filters": [[32, 8, 4, "valid"], [64, 4, 2, "valid"], [64, 3, 1, "valid"]],
    "conv_activation": "relu",
    "head_fcnet_hiddens": [512],
    "head_fcnet_activation": "relu",
    "vf_share_layers": True,
}
DQN: dict[str, Any] = {
    "lr": 1e-4,
    "gamma": 0.99,
    "grad_clip": 10.0,
    "train_batch_size": 32,
    "double_q": False,
    "n_step": 1,
    "tau": 1.0,
    "target_network_update_freq": 1_000,
    "num_steps_sampled_before_learning_starts": STARTS,
    "epsilon": 0.1,
}
PPO: dict[str, Any] = {
    "lr": 2.5e-4,
    "gamma": 0.99,
    "lambda_": 0.95,
    "clip_param": 0.1,
    "train_batch_size": ENVS * FRAGMENT,
    "minibatch_size": 256,
    "num_epochs": 4,
    "use_kl_loss": False,
    "vf_loss_coeff": 0.5,
    "vf_clip_param": float("inf"),
    "entropy_coeff": 0.01,
    "grad_clip": 0.5,
}


@dataclass(frozen=True)
class Args(racing.RaceArgs):
    """Flags of the benchmark."""

    env_steps: int = 1_024
    """Env steps that are timed in a round; PPO takes 1,024 at least."""
    threads: int = 2
    """Threads of torch, for all."""


def here(config: Any, fragment: int, **options: Any) -> Any:
    """An algorithm of ours on the vector environment, in this process."""
    options |= {"mode": "vector_entry_point"}
    return racing.in_this_process(config, atari("pong"), ENVS, fragment, **options)


def stock(config: Any, fragment: int) -> Any:
    """An algorithm of RLlib's on its own wrapper, in this process."""
    return racing.in_this_process(config.rl_module(model_config=NATURE), STOCK, ENVS, fragment)


def stock_env(_: Any) -> gym.Env:
    """RLlib's Pong."""
    from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack

    env = gym.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0)
    return wrap_atari_for_new_api_stack(env, dim=84, framestack=4)


def sb3_envs() -> Any:
    """Stable-Baselines3's Pongs."""
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    kwargs = {"frameskip": 1, "repeat_action_probability": 0.0}
    return VecFrameStack(make_atari_env("ALE/Pong-v5", n_envs=ENVS, seed=0, env_kwargs=kwargs), 4)


def samplers() -> dict[str, Callable[[], int]]:
    """What samples 32 vector steps, and returns the number of env steps."""
    ours = here(PPOConfig().training(**PPO).rl_module(rl_module_spec=actor_critic_cnn()), FRAGMENT).build_algo()
    runner = stock(StockPPOConfig().training(**PPO), FRAGMENT).build_algo().env_runner
    return {
        bench.OURS: lambda: sum(rollout.num_env_steps for rollout in ours.sample(32)),
        "rllib": lambda: sum(len(episode) for episode in runner.sample(num_timesteps=32 * ENVS, explore=True)),
    }


def dqn(args: Args) -> dict[str, racing.Contestant]:
    """DQN of all three."""
    from stable_baselines3 import DQN as SB3DQN

    an_iteration = {"min_sample_timesteps_per_iteration": max(ENVS, args.env_steps // 4)}
    ours = DQNConfig().training(**DQN, replay=SlottedReplay(capacity=CAPACITY), replay_ratio=0.25)
    theirs = StockDQNConfig().training(
        **DQN,
        dueling=False,
        training_intensity=8,
        replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": CAPACITY},
    )
    model = racing.sb3_model(
        SB3DQN,
        "CnnPolicy",
        sb3_envs(),
        DQN,
        batch_size=32,
        target_update_interval=DQN["target_network_update_freq"],
        buffer_size=CAPACITY,
        learning_starts=STARTS,
        train_freq=1,  # a vector step, 8 env steps
        gradient_steps=2,
        exploration_initial_eps=DQN["epsilon"],
        exploration_final_eps=DQN["epsilon"],
    )
    ours = ours.rl_module(rl_module_spec=plain_cnn()).reporting(**an_iteration)
    return {
        bench.OURS: racing.of_algorithm(here(ours, 1).build_algo()),
        "rllib": racing.of_algorithm(stock(theirs.reporting(**an_iteration), 1).build_algo()),
        "sb3": racing.of_sb3(model),
    }


def ppo(args: Args) -> dict[str, racing.Contestant]:
    """PPO, ours, compiled too if asked for, and SB3's."""
    from stable_baselines3 import PPO as SB3PPO

    def ours(**options: Any) -> racing.Contestant:
        config = PPOConfig().training(**PPO).rl_module(rl_module_spec=actor_critic_cnn())
        return racing.of_algorithm(here(config, FRAGMENT, **options).build_algo())

    model = racing.sb3_model(
        SB3PPO,
        "CnnPolicy",
        sb3_envs(),
        PPO,
        n_steps=FRAGMENT,
        batch_size=PPO["minibatch_size"],
        n_epochs=PPO["num_epochs"],
        gae_lambda=PPO["lambda_"],
        clip_range=PPO["clip_param"],
        ent_coef=PPO["entropy_coeff"],
        vf_coef=PPO["vf_loss_coeff"],
    )
    contestants = {bench.OURS: ours(), "sb3": racing.of_sb3(model)}
    return contestants | ({racing.COMPILED: ours(compiled=True)} if args.compile else {})


def speed(sample: Callable[[], int], env_steps: int) -> float:
    """Env steps per second."""
    started, taken = time.perf_counter(), 0
    while taken < env_steps:
        taken += sample()
    return taken / (time.perf_counter() - started)


def main() -> int:
    """Runs the benchmark."""
    args = tyro.cli(Args, description=__doc__)
    bench.require("stable_baselines3", "cv2")
    quiet.init_ray()
    tune.register_env(STOCK, stock_env)
    turns = {name: partial(speed, sample, args.env_steps) for name, sample in samplers().items()}
    torch.set_num_threads(args.threads)  # ours sets its own when it is built
    title = "sampling with the net, env steps per second"
    better = {
        "sampling": bench.print_table(title, bench.take_turns(turns, args.rounds), bench.OURS, higher_is_better=True)
    }
    taken: dict[str, Any] = {}
    for name, contestants, per_env_step in (
        ("DQN, one update of 32 per 4 env steps", dqn(args), 1 / 4),
        ("PPO, 4 epochs of 256", ppo(args), 4 / 256),
    ):
        torch.set_num_threads(args.threads)
        racing.warm_up(contestants, STARTS + args.env_steps // 4)
        taken[name], updates = racing.race(contestants, args.rounds, args.env_steps, per_env_step)
        compile_s = contestants[racing.COMPILED].compile_s if racing.COMPILED in contestants else 0.0
        others = [other for other in ("rllib", "sb3") if other in contestants]
        better[name] = racing.print_race(f"{name}, env steps per second", taken[name], others, updates, compile_s)
    flat = {f"{part}/{name}": ratio for part, ratios in better.items() for name, ratio in ratios.items()}
    bench.write_json(args.json, flat, env_steps_per_s=taken, **vars(args))
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
