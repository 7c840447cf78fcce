"""DQN against stock RLlib on CartPole, doing exactly the same work: env steps per second.

Single Q, plain net 4-256-2, uniform replay, 1-step targets, Adam, one update of 32 per env step, 8 environments, a
policy at most 8 env steps old. Rounds in turn, medians. Ours in its dueling double prioritized form stands beside it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from ray.rllib.algorithms.dqn import DQNConfig as StockDQNConfig

from custom_models.q_module import dueling_mlp, plain_mlp
from rayground import DQNConfig, SlottedReplay, quiet
from rayground.bench import medians, print_table, ratios, write_json

ENVS = 8
LEARNING_STARTS = 1_000
SAME = {
    "lr": 5e-4,
    "train_batch_size": 32,
    "double_q": False,
    "n_step": 1,
    "target_network_update_freq": 500,
    "num_steps_sampled_before_learning_starts": LEARNING_STARTS,
    "epsilon": [[0, 1.0], [10_000, 0.02]],
}


@dataclass(frozen=True)
class Args:
    """Flags of the benchmark."""

    rounds: int = 5
    """Rounds, each of them every contestant once."""
    env_steps: int = 1_600
    """Env steps, and so updates, that are timed in a round."""
    json: Path | None = None
    """Where to write the numbers."""


def stock(dueling: bool) -> Any:
    """RLlib's DQN; its training intensity makes one update of 32 per env step."""
    config = StockDQNConfig().training(
        **SAME | {"dueling": dueling, "double_q": dueling},
        training_intensity=32,
        replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 50_000},
    )
    return config.rl_module(model_config={"fcnet_hiddens": [256], "fcnet_activation": "relu"})


def ours(dueling: bool) -> Any:
    """Ours; the dueling double form also has prioritized replay."""
    spec = dueling_mlp(hidden=[256]) if dueling else plain_mlp(hidden=[256])
    replay = SlottedReplay(capacity=50_000, prioritized=dueling)
    config = DQNConfig().training(**SAME | {"double_q": dueling}, replay=replay, replay_ratio=1.0)
    return config.rl_module(rl_module_spec=spec)


def contestant(config: Any, env_steps: int) -> Callable[[], float]:
    """Builds an algorithm, lets it pass the start of learning, and returns what times one round of it."""
    config = config.environment("CartPole-v1").debugging(seed=0, log_level="ERROR", log_sys_usage=False)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=ENVS, rollout_fragment_length=1)
    algorithm = config.learners(num_learners=0).reporting(min_sample_timesteps_per_iteration=ENVS * 50).build_algo()
    while steps_of(algorithm.train()) < LEARNING_STARTS + ENVS * 50:
        pass

    def one_round() -> float:
        started, taken, first = time.perf_counter(), 0, None
        while taken < env_steps:
            total = steps_of(algorithm.train())
            first = total - ENVS * 50 if first is None else first
            taken = total - first
        return taken / (time.perf_counter() - started)

    return one_round


def steps_of(result: dict[str, Any]) -> int:
    """Env steps so far."""
    return int(result["num_env_steps_sampled_lifetime"])


def main() -> None:
    """Runs the benchmark."""
    args = tyro.cli(Args, description=__doc__)
    quiet.init_ray()
    results = medians(
        {
            "rayground": contestant(ours(dueling=False), args.env_steps),
            "rllib": contestant(stock(dueling=False), args.env_steps),
            "rayground, dueling double prioritized": contestant(ours(dueling=True), args.env_steps),
            "rllib, dueling double": contestant(stock(dueling=True), args.env_steps),
        },
        args.rounds,
    )
    plain = {name: results[name] for name in ("rayground", "rllib")}
    print_table("DQN on CartPole, env steps (and updates of 32) per second", plain, "rayground", higher_is_better=True)
    rest = {name: value for name, value in results.items() if name not in plain}
    print_table("the same, dueling double", rest, "rayground, dueling double prioritized", higher_is_better=True)
    write_json(args.json, ratios(plain, "rayground", higher_is_better=True), env_steps_per_s=results, **vars(args))
    quiet.shutdown_ray()


if __name__ == "__main__":
    main()
