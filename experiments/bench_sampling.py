"""Sampling alone: env steps per second of 8 CartPole environments and an MLP policy, nothing learnt.

Ours (``algorithm.sample``) against RLlib's ``SingleAgentEnvRunner.sample`` and Stable-Baselines3's
``collect_rollouts``, 256 vector steps a call, separate nets 64-64 tanh, one torch thread. SB3 computes the values
of all observations while it samples, RLlib does so when it learns: ours is held against RLlib without them and against
SB3 with them (one batched forward of the whole fragment).
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import tyro
from ray.rllib.algorithms.ppo import PPOConfig as StockPPOConfig

from custom_models.actor_critic_module import actor_critic_mlp
from rayground import PPOConfig, bench, quiet, racing
from rayground.cli import guarded

ENVS, FRAGMENT, HIDDEN = 8, 256, [64, 64]
WITH_VALUES = "rayground, with values"


@dataclass(frozen=True)
class Args:
    """Flags of the benchmark."""

    rounds: int = 7
    """Rounds, each of them every contestant once."""
    calls: int = 4
    """Calls of 256 vector steps that are timed in a round."""
    json: Path | None = None
    """Where to write the numbers."""


def built(config: Any) -> Any:
    """The algorithm with its environments in this process."""
    config = racing.in_this_process(config, racing.CARTPOLE, ENVS, FRAGMENT)
    return config.training(train_batch_size=ENVS * FRAGMENT, minibatch_size=64).build_algo()


def ours(with_values: bool = False) -> Callable[[], int]:
    """Ours: a call samples and returns the number of env steps."""
    algorithm = built(PPOConfig().rl_module(rl_module_spec=actor_critic_mlp(hidden=HIDDEN)))
    module = algorithm.learner.policy_module

    def sample() -> int:
        (rollout,) = algorithm.sample(FRAGMENT)
        if with_values:
            with torch.inference_mode():
                module.compute_values({"obs": torch.from_numpy(rollout.obs).flatten(0, 1)}).numpy()
        return rollout.num_env_steps

    return sample


def stock() -> Callable[[], int]:
    """RLlib's runner."""
    model = {"fcnet_hiddens": HIDDEN, "fcnet_activation": "tanh", "vf_share_layers": False}
    runner = built(StockPPOConfig().rl_module(model_config=model)).env_runner
    return lambda: sum(len(episode) for episode in runner.sample(num_timesteps=ENVS * FRAGMENT, explore=True))


def sb3() -> Callable[[], int]:
    """Stable-Baselines3's rollouts; its default policy is the same nets."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    envs = make_vec_env("CartPole-v1", n_envs=ENVS, seed=0)
    model: Any = PPO("MlpPolicy", envs, n_steps=FRAGMENT, seed=0, device="cpu")
    _, callback = model._setup_learn(ENVS * FRAGMENT)

    def sample() -> int:
        before = model.num_timesteps
        model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=FRAGMENT)
        return model.num_timesteps - before

    return sample


def speed(sample: Callable[[], int], calls: int) -> float:
    """Env steps per second over so many calls."""
    started = time.perf_counter()
    env_steps = sum(sample() for _ in range(calls))
    return env_steps / (time.perf_counter() - started)


def main() -> int:
    """Runs the benchmark."""
    args = tyro.cli(Args, description=__doc__)
    bench.require("stable_baselines3")
    torch.set_num_threads(1)
    quiet.init_ray()
    samplers = {bench.OURS: ours(), "rllib": stock(), WITH_VALUES: ours(with_values=True), "sb3": sb3()}
    for sample in samplers.values():
        sample()
    taken = bench.take_turns(
        {name: partial(speed, sample, args.calls) for name, sample in samplers.items()}, args.rounds
    )
    better: dict[str, float] = {}
    for mine, other in ((bench.OURS, "rllib"), (WITH_VALUES, "sb3")):
        title = f"sampling 8 CartPoles against {other}, env steps per second, 1 torch thread"
        better |= bench.print_table(title, {name: taken[name] for name in (mine, other)}, mine, higher_is_better=True)
    bench.write_json(args.json, better, env_steps_per_s=taken, **vars(args))
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
