"""PPO on CartPole against stock RLlib and Stable-Baselines3, all doing exactly the same work: env steps per second.

8 environments, batches of 256 x 8, 10 epochs of minibatches of 64, separate nets 64-64 tanh, Adam, GAE, one torch
thread, Gymnasium's plain CartPole stepped one by one. Rounds in turn, medians. Updates are counted by the optimizers;
an env step without its 10 / 64 updates does not count. (RLlib's batches hold one more row for every episode.) Ours on
Gymnasium's NumPy-vectorized CartPole stands beside it.
"""

import sys
from dataclasses import dataclass
from typing import Any

import torch
import tyro
from ray.rllib.algorithms.ppo import PPOConfig as StockPPOConfig

from custom_models.actor_critic_module import actor_critic_mlp
from rayground import PPOConfig, bench, quiet, racing
from rayground.cli import guarded

ENVS, FRAGMENT, MINIBATCH, EPOCHS, HIDDEN = 8, 256, 64, 10, [64, 64]
BATCH = ENVS * FRAGMENT
VECTORIZED = "rayground, NumPy-vectorized CartPole"
SAME: dict[str, Any] = {
    "train_batch_size": BATCH,
    "minibatch_size": MINIBATCH,
    "num_epochs": EPOCHS,
    "lr": 3e-4,
    "gamma": 0.99,
    "lambda_": 0.95,
    "clip_param": 0.2,
    "vf_loss_coeff": 0.5,
    "entropy_coeff": 0.0,
    "grad_clip": 0.5,
    "use_kl_loss": False,
}


@dataclass(frozen=True)
class Args(racing.RaceArgs):
    """Flags of the benchmark."""

    batches: int = 4
    """Batches of 2,048 env steps that are timed in a round."""


def stock() -> racing.Contestant:
    """RLlib's PPO."""
    model = {"fcnet_hiddens": HIDDEN, "fcnet_activation": "tanh", "vf_share_layers": False}
    config = StockPPOConfig().training(**SAME).rl_module(model_config=model)
    return racing.of_algorithm(racing.in_this_process(config, racing.CARTPOLE, ENVS, FRAGMENT).build_algo())


def ours(**options: Any) -> racing.Contestant:
    """Ours, with options of :func:`rayground.racing.in_this_process`."""
    config = PPOConfig().training(**SAME).rl_module(rl_module_spec=actor_critic_mlp(hidden=HIDDEN))
    return racing.of_algorithm(racing.in_this_process(config, racing.CARTPOLE, ENVS, FRAGMENT, **options).build_algo())


def sb3_model() -> Any:
    """Stable-Baselines3's PPO; its default policy is the same nets."""
    from stable_baselines3 import PPO

    return racing.sb3_model(
        PPO,
        "MlpPolicy",
        ENVS,
        SAME,
        n_steps=FRAGMENT,
        batch_size=MINIBATCH,
        n_epochs=EPOCHS,
        gae_lambda=SAME["lambda_"],
        clip_range=SAME["clip_param"],
        vf_coef=SAME["vf_loss_coeff"],
        ent_coef=SAME["entropy_coeff"],
        normalize_advantage=True,
    )


def main() -> int:
    """Runs the benchmark."""
    args = tyro.cli(Args, description=__doc__)
    bench.require("stable_baselines3")
    torch.set_num_threads(1)
    quiet.init_ray()
    contestants = {bench.OURS: ours(), "rllib": stock(), VECTORIZED: ours(mode="vector_entry_point")}
    if args.compile:
        contestants[racing.COMPILED] = ours(compiled=True)
    contestants["sb3"] = racing.of_sb3(sb3_model())
    taken = racing.hold_race(
        "PPO on CartPole, env steps per second, 1 torch thread",
        contestants,
        ("rllib", "sb3"),
        args,
        warm=2 * BATCH,
        env_steps=args.batches * BATCH,
        updates_per_env_step=EPOCHS / MINIBATCH,
    )
    print(f"{VECTORIZED}: {bench.medians(taken)[VECTORIZED]:,.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
