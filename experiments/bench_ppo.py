"""PPO on CartPole against stock RLlib and Stable-Baselines3, all doing exactly the same work: env steps per second.

8 environments, batches of 256 x 8, 10 epochs of minibatches of 64, separate nets 64-64 tanh, Adam, GAE, one torch
thread, Gymnasium's plain CartPole stepped one by one. Rounds in turn, medians. Updates are counted by the optimizers;
an env step without its 10 / 64 updates does not count. (RLlib's batches hold one more row for every episode.) Ours on
Gymnasium's NumPy-vectorized CartPole stands beside it.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro
from ray.rllib.algorithms.ppo import PPOConfig as StockPPOConfig

from custom_models.actor_critic_module import actor_critic_mlp
from rayground import PPOConfig, bench, quiet
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
class Args:
    """Flags of the benchmark."""

    rounds: int = 5
    """Rounds, each of them every contestant once."""
    batches: int = 4
    """Batches of 2,048 env steps that are timed in a round."""
    compile: bool = False
    """Also ours with the whole update compiled (torch_compile_learner)."""
    json: Path | None = None
    """Where to write the numbers."""


def stock_config() -> Any:
    """RLlib's PPO."""
    model = {"fcnet_hiddens": HIDDEN, "fcnet_activation": "tanh", "vf_share_layers": False}
    return bench.on_cartpole(StockPPOConfig().training(**SAME).rl_module(model_config=model), ENVS, FRAGMENT)


def our_config(compiled: bool = False, mode: str = "sync") -> Any:
    """Ours."""
    config = PPOConfig().training(**SAME).rl_module(rl_module_spec=actor_critic_mlp(hidden=HIDDEN))
    if compiled:
        config.framework(torch_compile_learner=True)
    return bench.on_cartpole(config, ENVS, FRAGMENT).env_runners(gym_env_vectorize_mode=mode)


def sb3_model() -> Any:
    """Stable-Baselines3's PPO; its default policy is the same nets."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    return PPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=ENVS, seed=0),
        n_steps=FRAGMENT,
        batch_size=MINIBATCH,
        n_epochs=EPOCHS,
        learning_rate=SAME["lr"],
        gamma=SAME["gamma"],
        gae_lambda=SAME["lambda_"],
        clip_range=SAME["clip_param"],
        vf_coef=SAME["vf_loss_coeff"],
        ent_coef=SAME["entropy_coeff"],
        max_grad_norm=SAME["grad_clip"],
        normalize_advantage=True,
        seed=0,
        device="cpu",
    )


def main() -> int:
    """Runs the benchmark."""
    args = tyro.cli(Args, description=__doc__)
    bench.require("stable_baselines3")
    torch.set_num_threads(1)
    quiet.init_ray()
    configs = {bench.OURS: our_config(), "rllib": stock_config(), VECTORIZED: our_config(mode="vector_entry_point")}
    if args.compile:
        configs[bench.COMPILED] = our_config(compiled=True)
    contestants = {name: bench.of_algorithm(config.build_algo()) for name, config in configs.items()}
    contestants["sb3"] = bench.of_sb3(sb3_model())
    bench.warm_up(contestants, 2 * BATCH)
    taken, updates = bench.race(contestants, args.rounds, args.batches * BATCH, EPOCHS / MINIBATCH)
    title = "PPO on CartPole, env steps per second, 1 torch thread"
    compile_s = contestants[bench.COMPILED].compile_s if args.compile else 0.0
    better = bench.print_race(title, taken, ("rllib", "sb3"), updates, compile_s)
    print(f"{VECTORIZED}: {bench.medians(taken)[VECTORIZED]:,.1f}")
    details = {"env_steps_per_s": taken, "updates_per_env_step": updates, "compile_s": compile_s}
    bench.write_json(args.json, better, **details, **vars(args))
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
