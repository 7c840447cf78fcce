"""Noisy DQN as runs: a seed repeats, also over a resume; epsilon is off; two learners draw the noise of one."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_dqn
import torch
from conftest import Build, RunHere
from snapshots import facts, last_state, only_run, rows_of

import rayground
from rayground import DQNConfig, policy_file
from rayground.learners.group import TORCH_RNG

config = tiny_dqn.config.copy(copy_frozen=False).training(noisy=True, epsilon=DQNConfig().epsilon)
experiment = replace(tiny_dqn.experiment, config=config)


def test_a_seed_repeats_also_over_a_resume_and_the_policy_acts_without_noise(run_here: RunHere, tmp_path: Path) -> None:
    for place, steps, seed in (("whole", 300, 5), ("again", 300, 5), ("stopped", 200, 5), ("other", 200, 6)):
        words = ("--seed", seed, "--stop-timesteps", steps, "--storage-path", tmp_path / place)
        done = run_here(*words, experiment=experiment)
        assert done.code == 0, done.stderr
    whole, again, stopped, other = (only_run(tmp_path / place) for place in ("whole", "again", "stopped", "other"))
    rows, state = facts(rows_of(whole)), last_state(whole)
    assert {row["explore/epsilon"] for row in rows} == {0.0}
    assert rows[-1]["learner/updates"] > 100
    assert facts(rows_of(again)) == rows
    assert last_state(again) == state
    assert all(a["learner/loss"] != b["learner/loss"] for a, b in zip(rows_of(other), rows, strict=False))
    assert run_here("--resume", stopped, "--stop-timesteps", 300, experiment=experiment).code == 0
    assert facts(rows_of(stopped)) == rows
    assert last_state(stopped) == state
    trained = rayground.load(whole).policy
    obs = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    exported = policy_file.load(trained.export(tmp_path / "exported"))
    actions = [exported.compute_actions(obs).tolist() for _ in range(3)]
    assert actions == [[trained.compute_single_action(row) for row in obs]] * 3


@pytest.mark.usefixtures("one_ray")
def test_two_learners_draw_the_noise_that_one_draws(build: Build) -> None:
    def two(config: Any) -> None:
        config.learners(num_learners=2)
        config.num_cpus_per_learner = 0.5

    single = build(config=config, lr=1e-3)
    pair = build(config=config, change=two, lr=1e-3, train_batch_size_per_learner=8)
    single.train()
    batch, env_steps = single.replay.sample(16, num_batches=4), [100, 101, 102, 103, 104]
    pair.learner.load_module_arrays({name: array.copy() for name, array in single.learner.module_arrays().items()})
    for algorithm in (single, pair):
        algorithm.learner.load_optimizer_arrays({}, algorithm.learner.optimizer_name)
    pair.learner.load_extra_state(single.learner.extra_state() | {TORCH_RNG: rng_state()})
    td_errors = [algorithm.learner.learn(batch, env_steps)[0] for algorithm in (single, pair)]
    np.testing.assert_allclose(td_errors[1], td_errors[0], rtol=0, atol=1e-5)
    assert pair.learner.extra_state()[TORCH_RNG] == rng_state()


def rng_state() -> str:
    """That of torch in this process, as a learner's state holds it."""
    return base64.b64encode(torch.get_rng_state().numpy().tobytes()).decode()
