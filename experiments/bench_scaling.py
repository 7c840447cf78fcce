"""More runners, each with an environment that sleeps 5 ms a step: efficiency, and what a runner costs the driver.

A runner asks for a tenth of a core, so that 16 fit on 2 cores: there is nothing to compute, only to wait. DQN learns
next to nothing, and its runners sample in step, about a second a call; those of A3C compute a gradient every 20 steps,
and wait for nobody. Efficiency is env steps per second over those of one runner times their number; the driver's cost
is the CPU time of its own process.
"""

import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import tyro

from rayground import A3CConfig, DQNConfig, SlottedReplay, bench, quiet
from rayground.cli import guarded


@dataclass(frozen=True)
class Args:
    """Flags of the benchmark."""

    algorithm: Literal["dqn", "a3c"] = "dqn"
    """What trains; a3c is parallel in gradients."""
    runners: tuple[int, ...] = (1, 2, 4, 8, 16)
    """Numbers of runners; efficiency is against the first."""
    rounds: int = 5
    """Iterations that are timed, after one that is not."""
    milliseconds: float = 5.0
    """What an env step sleeps."""
    env_steps: int = 200
    """Env steps of each runner in an iteration."""
    json: Path | None = None
    """Where to write the numbers."""


@dataclass(frozen=True)
class Measured:
    """One number of runners.

    Attributes:
        env_steps_per_s: Medians over the iterations.
        driver_s_per_1000: CPU seconds of the driver for 1,000 env steps.
        driver_share_per_runner: Share of a core that the driver needs for each runner.
    """

    env_steps_per_s: float
    driver_s_per_1000: float
    driver_share_per_runner: float


def measure(runners: int, args: Args) -> Measured:
    """Trains with so many runners."""
    config: Any = A3CConfig()
    if args.algorithm == "dqn":
        config = DQNConfig().training(replay=SlottedReplay(capacity=10_000), replay_ratio=1e-3)
        config.env_runners(rollout_fragment_length=args.env_steps)
    config.environment("envs:rayground/Sleeping-v0", env_config={"milliseconds": args.milliseconds}).debugging(seed=0)
    config.env_runners(num_env_runners=runners, num_cpus_per_env_runner=0.1)
    config.reporting(min_sample_timesteps_per_iteration=runners * args.env_steps)
    algorithm = config.build_algo()
    try:
        algorithm.train()
        before, speeds, driver, started = algorithm.env_steps, [], time.process_time(), time.perf_counter()
        for _ in range(args.rounds):
            since, steps = time.perf_counter(), algorithm.env_steps
            algorithm.train()
            speeds.append((algorithm.env_steps - steps) / (time.perf_counter() - since))
        cpu, taken = time.process_time() - driver, algorithm.env_steps - before
        share = cpu / (time.perf_counter() - started) / runners
        return Measured(statistics.median(speeds), 1000 * cpu / taken, share)
    finally:
        algorithm.stop()


def efficiencies(speeds: dict[int, float]) -> dict[int, float]:
    """Env steps per second of each number of runners, over what so many times the first number's would be."""
    first = next(iter(speeds))
    return {runners: speed / (runners / first * speeds[first]) for runners, speed in speeds.items()}


def main() -> int:
    """Runs the benchmark."""
    args = tyro.cli(Args, description=__doc__)
    torch.set_num_threads(1)
    quiet.init_ray()
    measured = {runners: measure(runners, args) for runners in args.runners}
    efficiency = efficiencies({runners: one.env_steps_per_s for runners, one in measured.items()})
    print("runners  env steps/s  efficiency  driver CPU s per 1,000 env steps  and share of a core per runner")
    for runners, one in measured.items():
        print(
            f"{runners:>7}  {one.env_steps_per_s:>11,.1f}  {efficiency[runners]:>10.1%}"
            f"  {one.driver_s_per_1000:>32.4f}  {one.driver_share_per_runner:>30.2%}"
        )
    numbers = {runners: asdict(one) for runners, one in measured.items()}
    bench.write_json(
        args.json, {f"efficiency/{n}": value for n, value in efficiency.items()}, runs=numbers, **vars(args)
    )
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
