"""DQN on CartPole against stock RLlib and Stable-Baselines3, all doing exactly the same work: env steps per second.

Single Q, plain net 4-256-2, uniform replay, 1-step targets, Huber loss, Adam, one update of 32 per env step, 8
environments, a policy at most 8 env steps old, one torch thread. Rounds in turn, medians. Updates are counted by the
optimizers; an env step without its update does not count. (RLlib's runner takes up to 15 env steps before an update
where an episode ends.) Ours in its dueling double prioritized form stands beside it.
"""

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import tyro
from ray.rllib.algorithms.dqn import DQNConfig as StockDQNConfig

from custom_models.q_module import dueling_mlp, plain_mlp
from rayground import DQNConfig, SlottedReplay, bench, quiet, racing
from rayground.cli import guarded

ENVS, CAPACITY, LEARNING_STARTS, EPSILON = 8, 50_000, 1_000, [[0, 1.0], [10_000, 0.02]]
DUELING = "rayground, dueling double prioritized"
SAME: dict[str, Any] = {
    "lr": 5e-4,
    "gamma": 0.99,
    "grad_clip": 40.0,
    "train_batch_size": 32,
    "double_q": False,
    "n_step": 1,
    "tau": 1.0,
    "target_network_update_freq": 504,  # a multiple of 8: SB3 counts vector steps
    "num_steps_sampled_before_learning_starts": LEARNING_STARTS,
    "epsilon": EPSILON,
}


@dataclass(frozen=True)
class Args(racing.RaceArgs):
    """Flags of the benchmark."""

    env_steps: int = 1_600
    """Env steps, and so updates, that are timed in a round."""


def stock(args: Args, dueling: bool = False) -> racing.Contestant:
    """RLlib's DQN; its training intensity makes one update of 32 per env step."""
    config = StockDQNConfig().training(
        **SAME | {"dueling": dueling, "double_q": dueling},
        training_intensity=32,
        replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": CAPACITY},
    )
    return built(config.rl_module(model_config={"fcnet_hiddens": [256], "fcnet_activation": "relu"}), args)


def ours(args: Args, dueling: bool = False, compiled: bool = False) -> racing.Contestant:
    """Ours; the dueling double form also has prioritized replay."""
    spec = dueling_mlp(hidden=[256]) if dueling else plain_mlp(hidden=[256])
    replay = SlottedReplay(capacity=CAPACITY, prioritized=dueling)
    config = DQNConfig().training(**SAME | {"double_q": dueling}, replay=replay, replay_ratio=1.0)
    return built(config.rl_module(rl_module_spec=spec), args, compiled)


def built(config: Any, args: Args, compiled: bool = False) -> racing.Contestant:
    """An algorithm on CartPole in this process, of which an iteration is a quarter of a round."""
    config = racing.in_this_process(config, racing.CARTPOLE, ENVS, fragment=1, compiled=compiled)
    config.reporting(min_sample_timesteps_per_iteration=max(ENVS, args.env_steps // 4))
    return racing.of_algorithm(config.build_algo())


def sb3_model() -> Any:
    """Stable-Baselines3's DQN; ``gradient_steps=-1`` makes as many updates as env steps."""
    from stable_baselines3 import DQN

    model = racing.sb3_model(
        DQN,
        "MlpPolicy",
        ENVS,
        SAME,
        policy_kwargs={"net_arch": [256]},
        batch_size=SAME["train_batch_size"],
        tau=SAME["tau"],
        target_update_interval=SAME["target_network_update_freq"],
        buffer_size=CAPACITY,
        learning_starts=LEARNING_STARTS,
        train_freq=1,
        gradient_steps=-1,
    )
    steps, values = np.array(EPSILON).T
    model.exploration_schedule = lambda _: float(np.interp(model.num_timesteps, steps, values))
    return model


def main() -> int:
    """Runs the benchmark."""
    args = tyro.cli(Args, description=__doc__)
    bench.require("stable_baselines3")
    torch.set_num_threads(1)
    quiet.init_ray()
    contestants = {bench.OURS: ours(args), "rllib": stock(args), "sb3": racing.of_sb3(sb3_model())}
    if args.compile:
        contestants[racing.COMPILED] = ours(args, compiled=True)
    contestants[DUELING] = ours(args, dueling=True)
    contestants["rllib, dueling double"] = stock(args, dueling=True)
    taken = racing.hold_race(
        "DQN on CartPole, env steps (each with an update of 32) per second, 1 torch thread",
        contestants,
        ("rllib", "sb3"),
        args,
        warm=LEARNING_STARTS + max(ENVS, args.env_steps // 4),
        env_steps=args.env_steps,
        updates_per_env_step=1.0,
    )
    rest = {name: numbers for name, numbers in taken.items() if "dueling" in name}
    bench.print_table("the same, dueling double", rest, DUELING, higher_is_better=True)
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
