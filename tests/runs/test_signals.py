"""Ctrl-C and SIGTERM: a last checkpoint, whole files, the signal's exit code, and no process of Ray's left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
import psutil
import pytest
from conftest import Command, Done, RunHere
from ray.rllib.callbacks.callbacks import RLlibCallback
from snapshots import only_run

from rayground import DQNConfig, Experiment, PPOConfig, Stop
from rayground.algorithms.config import ArrayConfig
from rayground.interruption import Interrupted, Interruption
from rayground.results.runs import RunFiles

SIGNALS = [signal.SIGINT, signal.SIGTERM]
NOTHING_SAVED = "interrupted: nothing was saved since the last checkpoint"


class Signalled(gym.Env[np.ndarray, int]):
    """Episodes of 10 steps. Sends this process signals, one after another, at one step of its life.

    The first few steps are those of the checks before training. If it ``ends`` with them, it answers no more.
    """

    observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config: Any) -> None:
        self._at, self._signals = config.get("at"), config.get("signals", ())
        self._taken, self._ends = 0, config.get("ends", False)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        assert not (self._ends and self._taken == self._at)
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> Any:
        self._taken += 1
        if self._taken == self._at:
            send(self._signals)
            assert not self._ends
        return np.zeros(1, np.float32), 1.0, self._taken % 10 == 0, False, {}


class Hooks(RLlibCallback):
    """Sends signals in the hook that the environment's settings name."""

    def on_algorithm_init(self, *, algorithm: Any, **kwargs: Any) -> None:
        self._send(algorithm, "on_algorithm_init")

    def on_evaluate_start(self, *, algorithm: Any, **kwargs: Any) -> None:
        self._send(algorithm, "on_evaluate_start")

    def _send(self, algorithm: Any, hook: str) -> None:
        config = algorithm.config.env_config
        if config.get("at") == hook:
            send(config["signals"])


def send(signals: list[int]) -> None:
    for number in signals:
        os.kill(os.getpid(), number)


def dqn() -> ArrayConfig:
    return DQNConfig().training(train_batch_size_per_learner=8, num_steps_sampled_before_learning_starts=10)


def ppo() -> ArrayConfig:
    return PPOConfig().training(train_batch_size_per_learner=20, minibatch_size=10, num_epochs=1)


def signalled(at: int | str, *signals: int, ends: bool = False, make: Callable[[], ArrayConfig] = dqn) -> Experiment:
    """An experiment that gets signals at a step, or in a hook."""
    config = (
        make()
        .environment(Signalled, env_config={"at": at, "signals": signals, "ends": ends})
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .callbacks(Hooks)
        .evaluation(evaluation_interval=2, evaluation_duration=3)
        .reporting(min_sample_timesteps_per_iteration=20, metrics_num_episodes_for_smoothing=2)
    )
    return Experiment("signalled", config, Stop(env_steps=100))


def assert_saved(run: Path) -> int:
    """The files agree, and end with the last checkpoint; returns its env steps."""
    files = RunFiles(run)
    steps = [row["env_steps"] for row in files.rows]
    assert [row["iteration"] for row in files.rows] == list(range(1, len(steps) + 1))
    assert list(pd.read_csv(run / "progress.csv")["env_steps"]) == steps
    assert files.last_checkpoint.name == f"step_{steps[-1]:09d}"
    assert not (run / "error.txt").exists()
    return steps[-1]


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(
    ("at", "steps"), [(6, 6), (50, 50), ("on_evaluate_start", 40)], ids=["first iteration", "training", "evaluation"]
)
def test_a_run_saves_and_can_go_on(run_here: RunHere, tmp_path: Path, at: int | str, steps: int, number: int) -> None:
    done = run_here("--storage-path", tmp_path, experiment=signalled(at, number))
    assert (done.code, done.stderr) == (128 + number, "")
    run = only_run(tmp_path)
    assert assert_saved(run) == steps
    assert "signalled stopped: interrupted" in done.stdout
    assert RunFiles(run).rows[-1].get("evaluation/episode_return_mean") is None
    done = run_here("--resume", run, "--set", "env_config.at=null", experiment=signalled(0))
    assert done.code == 0, done.stderr
    assert assert_saved(run) == 100


@pytest.mark.parametrize(("make", "steps"), [(dqn, 40), (ppo, 37)])
@pytest.mark.parametrize("words", [(), ("--checkpoint-freq", 1)], ids=["no checkpoint", "a checkpoint"])
def test_environments_may_end_with_the_signal(
    run_here: RunHere, tmp_path: Path, words: tuple[Any, ...], make: Callable[[], ArrayConfig], steps: int
) -> None:
    """At an iteration's first step, so that nothing has come since the last result."""
    experiment = signalled(steps + 1, signal.SIGTERM, ends=True, make=make)
    done = run_here("--storage-path", tmp_path, *words, experiment=experiment)
    assert (done.code, done.stderr) == (128 + signal.SIGTERM, "")
    assert assert_saved(only_run(tmp_path)) == steps


@pytest.mark.parametrize("number", SIGNALS)
def test_while_the_algorithm_is_built_there_is_nothing_to_save(run_here: RunHere, tmp_path: Path, number: int) -> None:
    done = run_here("--storage-path", tmp_path, experiment=signalled("on_algorithm_init", number))
    assert (done.code, done.stdout, done.stderr) == (128 + number, "", f"{NOTHING_SAVED}\n")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_in_a_call_of_rays_keeps_its_number(number: int) -> None:
    """Ray's calls swallow what a handler raises, and raise KeyboardInterrupt."""

    def call() -> None:
        try:
            os.kill(os.getpid(), number)
            time.sleep(10)
        except Interrupted:
            raise KeyboardInterrupt from None

    with pytest.raises(Interrupted) as caught, Interruption().on_signals():
        call()
    assert caught.value.signal == number


def test_a_second_ctrl_c_ends_at_once(run_here: RunHere, tmp_path: Path) -> None:
    experiment = signalled(50, signal.SIGINT, signal.SIGINT)
    done = run_here("--storage-path", tmp_path, "--checkpoint-freq", 1, experiment=experiment)
    assert (done.code, done.stderr) == (128 + signal.SIGINT, f"{NOTHING_SAVED}\n")
    assert assert_saved(only_run(tmp_path)) == 40


@pytest.mark.parametrize("first", SIGNALS)
def test_a_second_sigterm_changes_nothing(run_here: RunHere, tmp_path: Path, first: int) -> None:
    done = run_here("--storage-path", tmp_path, experiment=signalled(50, first, signal.SIGTERM))
    assert (done.code, done.stderr) == (128 + first, "")
    assert assert_saved(only_run(tmp_path)) == 50


def test_the_handlers_are_given_back(run_here: RunHere, tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    assert run_here("--storage-path", tmp_path, experiment=signalled(0)).code == 0
    assert [signal.getsignal(number) for number in SIGNALS] == before


MODULE = """
import time
import gymnasium as gym
import numpy as np
from rayground import DQNConfig, Experiment, Stop

class Slow(gym.Env):
    observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config):
        self.taken = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        time.sleep(0.002)
        self.taken += 1
        return np.zeros(1, np.float32), 1.0, self.taken % 10 == 0, False, {}

experiment = Experiment(
    "slow",
    DQNConfig()
    .environment(Slow)
    .training(num_steps_sampled_before_learning_starts=10)
    .reporting(min_sample_timesteps_per_iteration=50),
    Stop(env_steps=10_000_000),
)

if __name__ == "__main__":
    experiment.main()
"""


@pytest.fixture
def slow(command: Command) -> Command:
    """A home with a module ``slow``: an experiment that does not end by itself."""
    (command.home / "slow.py").write_text(MODULE)
    return command


def wait_for(process: subprocess.Popen[str], happened: Callable[[], Any]) -> None:
    while not happened():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def ended(process: subprocess.Popen[str], home: Path, number: int, *, group: bool) -> Done:
    """Sends a signal to a command, or to all processes of its terminal, and waits until it and all it made are gone."""
    (os.killpg if group else os.kill)(process.pid, number)
    stdout, stderr = process.communicate(timeout=60)
    deadline = time.monotonic() + 5  # for the operating system to take away what has ended
    while left := processes_of(home):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
    return Done(process.returncode, stdout, stderr)


def processes_of(home: Path) -> list[str]:
    """The processes that live in a home: whatever a command there has started, and its children."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME") == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {' '.join(process.cmdline())[:80]}")
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGINT, ("--set", "gym_env_vectorize_mode=async", "--num-envs-per-env-runner", 2)),
        (signal.SIGTERM, ("--set", "gym_env_vectorize_mode=async", "--num-envs-per-env-runner", 2)),
    ],
    ids=["environments of their own", "which end with it"],
)
def test_a_command_without_ray(slow: Command, number: int, words: tuple[object, ...]) -> None:
    """The environments that are processes get the signal too."""
    process = slow.start("slow", *words)
    wait_for(process, lambda: list(slow.results.glob("*/result.json")))
    done = ended(process, slow.home, number, group=True)
    assert (done.code, done.stderr) == (128 + number, "")
    assert_saved(only_run(slow.results))


def test_a_command_with_remote_runners(slow: Command) -> None:
    process = slow.start("slow", "--num-env-runners", 2)
    wait_for(process, lambda: list(slow.results.glob("*/result.json")))
    done = ended(process, slow.home, signal.SIGTERM, group=True)
    assert done.code == 128 + signal.SIGTERM, done.stderr
    assert_saved(only_run(slow.results))


def test_a_command_with_remote_runners_that_are_being_made(slow: Command) -> None:
    process = slow.start("slow", "--num-env-runners", 2)
    wait_for(process, lambda: list(slow.results.glob("*/params.json")))
    done = ended(process, slow.home, signal.SIGINT, group=True)
    assert (done.code, done.stdout) == (128 + signal.SIGINT, "")
    assert NOTHING_SAVED in done.stderr
    assert not any(slow.results.iterdir())


def test_several_seeds(slow: Command) -> None:
    """The third one has not begun, as there are cores for two."""
    process = slow.start("slow", "--num-seeds", 3)
    wait_for(process, lambda: len(list(slow.results.glob("*/*/result.json"))) == 2)
    done = ended(process, slow.home, signal.SIGINT, group=True)
    assert done.code == 128 + signal.SIGINT, done.stderr
    group = only_run(slow.results)
    assert sorted(path.name for path in group.iterdir()) == ["experiment.json", "seed_0", "seed_1"]
    for seed in (0, 1):
        assert_saved(group / f"seed_{seed}")
    assert "seed 1:" in done.stdout


def test_several_seeds_that_are_being_started(slow: Command) -> None:
    process = slow.start("slow", "--num-seeds", 2)
    wait_for(process, lambda: list(slow.results.glob("*/seed_1/params.json")))
    done = ended(process, slow.home, signal.SIGTERM, group=False)
    assert (done.code, done.stdout) == (128 + signal.SIGTERM, "")
    assert NOTHING_SAVED in done.stderr
    assert not any(slow.results.iterdir())
