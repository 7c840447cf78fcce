"""Remote runners where Ray has no CPUs: RLlib would wait for ever, and say nothing."""

from __future__ import annotations

from conftest import Command

CODE = """
import sys
import ray
import tiny_ppo
from rayground.errors import InputError

ray.init(num_cpus=0, include_dashboard=False)
config = tiny_ppo.config.copy(copy_frozen=False).env_runners(num_env_runners=2).debugging(seed=1)
try:
    config.build_algo()
except InputError as error:
    print(error)
algorithm = config.copy(copy_frozen=False).env_runners(num_env_runners=1, num_cpus_per_env_runner=0).build_algo()
print(algorithm.train()["headline"]["env_steps"])
sys.modules["__main__"] = tiny_ppo
tiny_ppo.experiment.main(["--num-env-runners", "2"])
"""

LINE = (
    "num_env_runners=2: expected CPUs in Ray, got 0: start Ray with some, as ray.init(num_cpus=2) does, or join a "
    "cluster that has some, or set num_env_runners=0 (all in this process) or num_cpus_per_env_runner=0 "
    "(no CPU is reserved)"
)


def test_build_algo_and_a_command_end_with_one_line_that_says_what_to_change(command: Command) -> None:
    (command.home / "zero.py").write_text(CODE)
    done = command("zero", timeout_s=90)
    line, env_steps = done.stdout.splitlines()
    assert line == LINE
    assert int(env_steps) >= 100  # by runners that reserve none
    assert done.code == 2
    assert done.stderr.splitlines()[-1] == f"error: {LINE}"
    assert not list(command.results.glob("tiny_ppo*/*"))
