"""A2C and A3C on CartPole-v1: what each form needs to a 20-episode mean of 475, and what its workers send.

Every run is the experiment's own command, one after the other. Then a few updates with wider observations, and with a
larger net, show what the bytes grow with. One folder gets the tables, the plot and the runs.
"""

import sys
from dataclasses import dataclass

import gymnasium as gym
from ray.rllib.examples.envs.classes.random_env import RandomEnv
from rich.console import Console

from custom_models.actor_critic_module import actor_critic_mlp
from rayground import A3CConfig, quiet
from rayground.cli import guarded
from rayground.compare import CompareFlags, Comparison
from rayground.flags import parse
from rayground.results import report

BYTES = {f"bytes {way} per update": report.mean_of(f"workers/bytes_{way}_per_update") for way in ("up", "down")}
METRICS = {
    "updates/s": report.per_second("learner/updates"),
    "staleness, mean": report.mean_of("learner/staleness_mean"),
    "staleness, highest": report.highest("learner/staleness_max"),
    **BYTES,
}
FLOATS_AND_UNITS = [(4, 64), (400, 64), (4, 256)]


@dataclass(frozen=True)
class Args(CompareFlags):
    """Flags of the comparison."""

    workers: int = 8
    """Workers of A3C."""


def contestants(workers: int) -> dict[str, str]:
    """By name, the commands that train them."""
    a3c = f"experiments.a3c_cartpole --num-env-runners {workers} --parallelism"
    return {
        "A2C-1-env": "experiments.a2c_cartpole --num-envs-per-env-runner 1 --set rollout_fragment_length=32",
        "A2C-8-envs": "experiments.a2c_cartpole --num-envs-per-env-runner 8",
        f"A3C-data-{workers}-workers": f"{a3c} data",
        f"A3C-gradient-{workers}-workers": f"{a3c} gradient",
    }


def communication(floats: int, units: int) -> dict[str, str | float | None]:
    """The bytes of both forms of A3C with so many numbers to see and so many units in each of two layers."""
    spaces = {"observation_space": gym.spaces.Box(-1, 1, (floats,)), "reward_space": gym.spaces.Discrete(2)}
    config = A3CConfig().environment(RandomEnv, env_config=spaces).env_runners(num_env_runners=1)
    config.rl_module(rl_module_spec=actor_critic_mlp(hidden=[units, units], shared=True))
    cells: dict[str, str | float | None] = {"observation": f"{floats} floats", "net": f"{units}-{units}"}
    for form in ("data", "gradient"):
        algorithm = config.copy().training(parallelism=form).build_algo()
        row = algorithm.train()["headline"]
        algorithm.stop()
        cells |= {f"{form}: {name}": measure([row]) for name, measure in BYTES.items()}
    return cells


def main() -> int:
    """Runs the comparison."""
    args = parse(sys.argv[1:], "python -m experiments.compare_actor_critics", __doc__ or "", Args)
    folder = args.folder("compare_actor_critics")
    table = Comparison(contestants(args.workers), 475, 20, METRICS).run(folder, args.seeds, args.env_steps)
    Console().print(table)
    quiet.init_ray()
    cells = [communication(*sizes) for sizes in FLOATS_AND_UNITS]
    table = report.Table("Bytes of arrays that a worker sends and gets for each update of 20 env steps", cells)
    table.save(folder / "communication")
    Console().print(table, f"written to {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
