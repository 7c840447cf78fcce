"""The tiny experiment in a process that kills itself where ``KILL_IN`` says: in ``training`` or in a ``checkpoint``."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors.numpy
from tiny_dqn import experiment as tiny

from rayground.algorithms.dqn import DQN
from rayground.experiment import CheckpointRule

experiment = replace(tiny, name="tiny_killed", checkpoints=CheckpointRule(every=2, keep_best=0, keep_last=2))
save_file, learn = safetensors.numpy.save_file, DQN.learn


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def save_half(arrays: Any, file: Path) -> None:
    """Kills in the middle of the last group of the checkpoint at 400 env steps."""
    save_file(arrays, file)
    if file.name == "replay.safetensors" and "step_0000004" in file.parent.name:
        with file.open("r+b") as stream:
            stream.truncate(file.stat().st_size // 2)
        kill()


def learn_until(self: DQN) -> None:
    """Kills between two results, the first of which is later than the last checkpoint."""
    learn(self)
    if self.env_steps > 350:
        kill()


if __name__ == "__main__":
    where = os.environ.get("KILL_IN")
    if where == "checkpoint":
        safetensors.numpy.save_file = save_half
    elif where == "training":
        DQN.learn = learn_until  # type: ignore[method-assign]
    experiment.main()
