"""What the tests compare: algorithms, rows, run folders."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rayground.algorithms.base import ArrayAlgorithm
from rayground.algorithms.dqn import DQN
from rayground.checkpoints import load_checkpoint
from rayground.results.runs import RunFiles
from rayground.run import Clock, make_row
from rayground.schedules import Piecewise

RATE, EPSILON = Piecewise(((0, 1e-3), (1_000, 1e-4))), Piecewise(((0, 1.0), (800, 0.1)))
"""The schedules of the tiny experiment."""
TIMES = ("time_s", "env_steps_per_s", "time/", "runner_time/")


def untimed(row: dict[str, Any]) -> dict[str, Any]:
    """A row without times and speeds, and without RLlib's own names, most of which are times."""
    return {key: value for key, value in row.items() if not key.startswith((*TIMES, "rllib/"))}


def everything(algorithm: DQN) -> dict[str, Any]:
    """All that decides how training goes on, by name, as values that ``==`` compares exactly."""
    replay_values, replay_arrays = algorithm.replay.get_state()
    step = algorithm.env_steps
    runner = algorithm.runners.local
    return {
        "replay transitions": [_exact(t) for t in algorithm.replay],
        "replay write positions": (replay_values["heads"], replay_values["waiting"]),
        "replay rng": replay_values["rng"],
        "replay priorities": (_bytes(replay_arrays.get("priorities")), replay_values.get("priorities")),
        "weights": _all_bytes(algorithm.learner.module_arrays()),
        "runner's weights": _all_bytes(runner.module.state_dict()) if runner else None,
        "optimizer": _all_bytes(algorithm.learner.optimizer_arrays()),
        "env steps": step,
        "iteration": algorithm.iteration,
        "time": algorithm._time_total,
        "update clock": algorithm.updates.get_state(),
        "learner": algorithm.learner.extra_state(),
        "episodes": algorithm.episodes.headline(),
        "schedules": (algorithm.learner.learning_rate(step), algorithm._epsilon(step), algorithm._beta(step)),
        "python rng": random.getstate(),
        "numpy rng": tuple(map(_bytes, np.random.get_state())),  # noqa: NPY002 - libraries draw from this one
        "torch rng": _bytes(torch.get_rng_state()),
    }


def differing(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """The names under which two of :func:`everything` differ."""
    return [name for name in a if a[name] != b[name]]


def _exact(t: Any) -> tuple[Any, ...]:
    return _bytes(t.obs), int(t.action), t.reward, _bytes(t.next_obs), t.terminated, t.truncated


def _all_bytes(arrays: dict[str, Any]) -> dict[str, bytes]:
    return {name: _bytes(value) for name, value in arrays.items()}


def _bytes(value: Any) -> bytes:
    return np.asarray(value).tobytes()


def checked_rows(folder: Path, rate: Callable[[int], float] = RATE) -> list[dict[str, Any]]:
    """A run's rows, after checking that all result files agree and nothing in them is twice, missing or jumps."""
    rows = RunFiles(folder).rows
    for key in ("env_steps", "iteration", "episodes", "time_s", "learner/updates", "learner/target_updates"):
        assert all(a[key] < b[key] for a, b in itertools.pairwise(rows)), key
    assert [row["iteration"] for row in rows] == list(range(1, len(rows) + 1))
    assert [row["env_steps"] // 100 for row in rows] == list(range(1, len(rows) + 1))
    for row in rows:
        assert row["learner/lr"] == pytest.approx(rate(row["env_steps"]))
        assert row["explore/epsilon"] == pytest.approx(EPSILON(row["env_steps"]))
        assert row["rllib/num_env_steps_sampled_lifetime"] == row["env_steps"]
    assert (folder / "progress.csv").read_text().count("env_steps,") == 1
    frame = pd.read_csv(folder / "progress.csv")
    events = EventAccumulator(str(folder), purge_orphaned_data=False).Reload()  # TensorBoard shows what lies there
    for key in ("time_s", "episode_return_mean", "learner/loss", "explore/epsilon"):
        logged = {row["env_steps"]: row[key] for row in rows}
        assert dict(zip(frame["env_steps"], frame[key], strict=True)) == pytest.approx(logged), key
        curve = [(point.step, point.value) for point in events.Scalars(key)]
        assert curve == [(step, pytest.approx(value)) for step, value in logged.items()], key
    return rows


def facts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without times, and without the greedy evaluation that each session ends with."""
    return [{k: v for k, v in untimed(row).items() if not k.startswith("evaluation/")} for row in rows]


def last_state(folder: Path, *, replay: bool = True) -> dict[str, bytes]:
    """Weights, optimizer, random generators and, of DQN, the replay in a run's last checkpoint."""
    checkpoint = load_checkpoint(RunFiles(folder).last_checkpoint)
    arrays = {f"{group}/{name}": a for group in checkpoint.groups for name, a in checkpoint.arrays(group).items()}
    assert {"module", "optimizer", "rng", *["replay"] * replay} == {name.split("/")[0] for name in arrays}
    return {name: array.tobytes() for name, array in arrays.items()}


def fingerprint(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return RunFiles(folder).rows


def only_run(storage: Path) -> Path:
    (folder,) = storage.iterdir()
    return folder


def train(algorithm: ArrayAlgorithm, iterations: int = 1) -> list[dict[str, Any]]:
    clock = Clock(algorithm)
    rows = [make_row(algorithm.train(), clock) for _ in range(iterations)]
    assert [row["rllib/num_env_steps_sampled_lifetime"] for row in rows] == [row["env_steps"] for row in rows]
    return [untimed(row) for row in rows]


def repeated(run_here: Any, storage: Path, experiment: Any) -> tuple[Path, Path]:
    """Checks, bit for bit (weights, moments, norms and generators; rows without their times), that a seed repeats a run
    of 400 env steps, also over a resume after 200, and that another seed does not.

    Returns:
        The run, and one of 200 env steps with the other seed.
    """
    runs = (("whole", 400, 5), ("again", 400, 5), ("stopped", 200, 5), ("other", 200, 6))
    for place, steps, seed in runs:
        words = ("--seed", seed, "--stop-timesteps", steps, "--storage-path", storage / place)
        done = run_here(*words, experiment=experiment)
        assert done.code == 0, done.stderr
    whole, again, stopped, other = (only_run(storage / place) for place, _, _ in runs)
    rows = rows_of(whole)
    assert [untimed(row) for row in rows_of(again)] == [untimed(row) for row in rows]
    state = last_state(whole, replay=False)
    assert last_state(again, replay=False) == state
    assert all(a["learner/loss"] != b["learner/loss"] for a, b in zip(rows_of(other), rows, strict=False))
    assert run_here("--resume", stopped, "--stop-timesteps", 400, experiment=experiment).code == 0
    assert facts(rows_of(stopped)) == facts(rows)
    assert last_state(stopped, replay=False) == state
    assert rows[-1]["learner/lr"] == pytest.approx(3e-3 - 2.9e-3 * rows[-1]["env_steps"] / 1_000)
    return whole, other
