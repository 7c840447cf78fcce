"""A2C on CartPole against Stable-Baselines3, both doing exactly the same work: env steps per second.

8 environments, an update of 5 x 8 env steps after the other, n-step returns, RMSprop, separate nets 64-64 tanh, one
torch thread, Gymnasium's plain CartPole stepped one by one; a result every 100 updates, which is when SB3 logs. Rounds
in turn, medians. Updates are counted by the optimizers; an env step without its 1 / 40 update does not count. Ours on
Gymnasium's NumPy-vectorized CartPole stands beside it. RLlib has no A2C any more.
"""

import sys
from dataclasses import dataclass
from typing import Any

import torch
import tyro

from custom_models.actor_critic_module import actor_critic_mlp
from rayground import A2CConfig, bench, quiet, racing
from rayground.cli import guarded

ENVS, FRAGMENT, HIDDEN = 8, 5, [64, 64]
BATCH = ENVS * FRAGMENT
VECTORIZED = "rayground, NumPy-vectorized CartPole"
SAME: dict[str, Any] = {
    "lr": 7e-4,
    "gamma": 0.99,
    "lambda_": 1.0,
    "vf_loss_coeff": 0.5,
    "entropy_coeff": 0.0,
    "grad_clip": 0.5,
}
RMSPROP = {"alpha": 0.99, "eps": 1e-5}


@dataclass(frozen=True)
class Args(racing.RaceArgs):
    """Flags of the benchmark."""

    updates: int = 400
    """Updates of 40 env steps that are timed in a round."""


def ours(args: Args, **options: Any) -> racing.Contestant:
    """Ours, with options of :func:`rayground.racing.in_this_process`."""
    config = A2CConfig().training(**SAME, optimizer={"type": "rmsprop"} | RMSPROP)
    config.rl_module(rl_module_spec=actor_critic_mlp(hidden=HIDDEN))
    config.reporting(min_sample_timesteps_per_iteration=min(100, args.updates) * BATCH)
    return racing.of_algorithm(racing.in_this_process(config, racing.CARTPOLE, ENVS, FRAGMENT, **options).build_algo())


def sb3_model() -> Any:
    """Stable-Baselines3's A2C; its default policy is the same nets, its default optimizer torch's RMSprop."""
    from stable_baselines3 import A2C

    return racing.sb3_model(
        A2C,
        "MlpPolicy",
        ENVS,
        SAME,
        n_steps=FRAGMENT,
        gae_lambda=SAME["lambda_"],
        vf_coef=SAME["vf_loss_coeff"],
        ent_coef=SAME["entropy_coeff"],
        policy_kwargs={"optimizer_class": torch.optim.RMSprop, "optimizer_kwargs": RMSPROP},
    )


def main() -> int:
    """Runs the benchmark."""
    args = tyro.cli(Args, description=__doc__)
    bench.require("stable_baselines3")
    torch.set_num_threads(1)
    quiet.init_ray()
    contestants = {bench.OURS: ours(args), VECTORIZED: ours(args, mode="vector_entry_point")}
    if args.compile:
        contestants[racing.COMPILED] = ours(args, compiled=True)
    contestants["sb3"] = racing.of_sb3(sb3_model())
    taken = racing.hold_race(
        "A2C on CartPole, env steps per second, 1 torch thread",
        contestants,
        ("sb3",),
        args,
        warm=min(100, args.updates) * BATCH,
        env_steps=args.updates * BATCH,
        updates_per_env_step=1 / BATCH,
    )
    print(f"{VECTORIZED}: {bench.medians(taken)[VECTORIZED]:,.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
