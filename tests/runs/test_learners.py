"""Learners in processes of their own: they learn as one would, are saved and restored, and fail in one line."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tiny_dqn
from conftest import RunHere
from snapshots import checked_rows, differing, everything, facts, last_state, only_run, train

from rayground import PPOConfig
from rayground.errors import InputError, RunError
from rayground.learners.group import RemoteLearners
from rayground.replay import Batch

Make = Callable[..., Any]


@pytest.fixture(scope="module")
def make(one_ray: None) -> Iterator[Make]:
    """Builds the tiny DQN with so many learners, which share minibatches of 16."""
    built = []

    def build(num_learners: int) -> Any:
        config = tiny_dqn.config.copy(copy_frozen=False).debugging(seed=3).learners(num_learners=num_learners)
        config.training(lr=1e-3, grad_clip=0.3, train_batch_size_per_learner=16 // max(1, num_learners))
        config.num_cpus_per_learner = 0.5 if num_learners else "auto"
        built.append(config.build_algo())
        return built[-1]

    yield build
    for algorithm in built:
        algorithm.stop()


@pytest.fixture(scope="module")
def pair(make: Make) -> Any:
    return make(2)


@pytest.fixture(scope="module")
def single(make: Make) -> Any:
    return make(0)


def minibatches(count: int = 5, size: int = 16) -> Batch:
    rng = np.random.default_rng(1)
    shape = (count, size)
    return Batch(
        obs=rng.normal(size=(*shape, 4)).astype(np.float32),
        actions=rng.integers(0, 2, shape),
        rewards=rng.normal(size=shape).astype(np.float32),
        next_obs=rng.normal(size=(*shape, 4)).astype(np.float32),
        discounts=(0.9 * rng.integers(0, 2, shape)).astype(np.float32),
        weights=rng.uniform(0.1, 1, shape).astype(np.float32),
        indices=np.arange(count * size).reshape(shape),
    )


def copied(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in arrays.items()}


def of_each(learners: Any) -> list[dict[str, np.ndarray]]:
    assert isinstance(learners, RemoteLearners)
    return learners._on_all("module_arrays")


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray], tolerance: float = 0.0) -> None:
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=0, atol=tolerance, err_msg=name)


def test_two_learners_learn_as_one_would_from_the_whole_batch(pair: Any, single: Any) -> None:
    rng = np.random.default_rng(0)
    start = {name: rng.normal(size=a.shape).astype(a.dtype) for name, a in single.learner.module_arrays().items()}
    for algorithm in (single, pair):
        algorithm.learner.load_module_arrays(copied(start))
        algorithm.learner.load_optimizer_arrays({}, algorithm.learner.optimizer_name)
    assert single.config.total_train_batch_size == pair.config.total_train_batch_size == 16
    batch, env_steps = minibatches(), [0, 29, 30, 61, 95, 96]
    expected, expected_means = single.learner.learn(batch, env_steps)
    td_errors, means = pair.learner.learn(batch, env_steps)
    np.testing.assert_allclose(td_errors, expected, rtol=0, atol=1e-5)
    assert means == pytest.approx(expected_means, abs=1e-5)
    assert means["grad_norm"] > 0.3  # so it was clipped, after averaging
    first, second = of_each(pair.learner)
    assert_same(first, second)
    assert_same(first, single.learner.module_arrays(), 1e-6)
    assert_same(pair.learner.optimizer_arrays(), single.learner.optimizer_arrays(), 1e-6)
    moved = [name for name in first if not np.array_equal(first[name], start[name])]
    assert len(moved) == len(start)
    learnt = pair.learner.extra_state()["num_target_updates"], single.learner.extra_state()["num_target_updates"]
    assert learnt == (3, 3)


def test_weights_of_the_policy_are_the_learners(pair: Any) -> None:
    policy = pair.get_policy()
    assert_same(policy.get_weights(), of_each(pair.learner)[1])
    pair.learner.learn(minibatches(), list(range(6)))
    pair.sync_weights()
    assert_same(policy.get_weights(), of_each(pair.learner)[1])
    given = {name: array + 1 for name, array in policy.get_weights().items()}
    policy.set_weights(given)
    for arrays in of_each(pair.learner):
        assert_same(arrays, given)
    runner = pair.runners.local.module.state_dict()
    assert all(np.array_equal(value.numpy(), given[name]) for name, value in runner.items())


def test_a_checkpoint_brings_all_of_them_back(pair: Any, single: Any, tmp_path: Path) -> None:
    train(pair, 2)
    pair.save(tmp_path / "ck")
    saved = everything(pair)
    rows = train(pair, 2)
    later = everything(pair)
    assert {"weights", "optimizer", "learner"} <= set(differing(later, saved))
    pair.restore(tmp_path / "ck")
    assert differing(everything(pair), saved) == []
    assert train(pair, 2) == rows
    assert set(differing(everything(pair), later)) <= {"time"}
    assert_same(*of_each(pair.learner))
    single.restore(tmp_path / "ck")  # with another number of learners
    assert everything(single)["weights"] == saved["weights"]
    assert single.learner.num_target_updates == saved["learner"]["num_target_updates"]


def test_a_setting_changes_on_all_of_them(pair: Any) -> None:
    before = of_each(pair.learner)[0]
    pair.change_setting("lr", 0.0)
    pair.learner.learn(minibatches(1), [0, 1])
    assert pair.learner.learning_rate(0) == 0.0
    for arrays in of_each(pair.learner):
        assert_same(arrays, before)
    pair.change_setting("lr", 1e-3)


def test_what_is_not_finite_on_one_of_them_stops_all(pair: Any) -> None:
    bad = minibatches(1)
    bad.rewards[0, -1] = np.nan
    with pytest.raises(RunError, match=r"^at env step 77 the loss is nan; its gradient was not applied"):
        pair.learner.learn(bad, [76, 77])
    first, second = of_each(pair.learner)
    assert all(np.isfinite(array).all() for array in first.values())
    assert_same(first, second)


def test_what_one_of_them_raises_is_told_in_one_line(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayground.learners.group.GRACE_S", 0.1)
    wrong = minibatches(1)
    wrong.obs = wrong.obs[..., :3]
    with pytest.raises(RunError, match=r"^learner 0 raised RuntimeError: .*shapes cannot be multiplied") as raised:
        pair.learner.learn(wrong, [0, 1])
    assert len(str(raised.value).splitlines()) == 1
    assert ", in learn\n" in raised.value.traceback
    with pytest.raises(InputError, match="weights do not fit QModule"):
        pair.learner.load_module_arrays({})


def test_a_learner_that_is_killed_ends_the_run(pair: Any) -> None:
    pids = pair.learner._on_all(lambda learner: os.getpid())
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(RunError, match=r"^learner 1 died: its process was killed .*--resume$"):
        pair.learner.learn(minibatches(), list(range(6)))
    pair.stop()  # which does not wait for the other
    psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=10)
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_ppo_with_two_learners_is_trained_saved_and_restored(one_ray: None, tmp_path: Path) -> None:
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_envs_per_env_runner=4)
        .training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=2)
        .learners(num_learners=2, num_cpus_per_learner=0.5)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .debugging(seed=1)
    )
    algorithm = config.build_algo()
    try:
        assert algorithm.train()["headline"]["env_steps"] > 100
        algorithm.save(tmp_path / "ck")
        runs = []
        for _ in range(2):
            algorithm.restore(tmp_path / "ck")
            algorithm.train()
            first, second = of_each(algorithm.learner)
            assert_same(first, second)
            runs.append(first)
        assert_same(*runs)
    finally:
        algorithm.stop()


def test_a_run_whose_learner_is_elsewhere_goes_the_way_of_one_whose_is_not(
    run_here: RunHere, one_ray: None, tmp_path: Path
) -> None:
    for steps, learners, name in ((400, 0, "here"), (200, 1, "elsewhere")):
        words = ("--seed", 5, "--num-learners", learners, "--stop-timesteps", steps, "--storage-path", tmp_path / name)
        done = run_here(*words)
        assert (done.code, done.stderr) == (0, "")
    here, elsewhere = only_run(tmp_path / "here"), only_run(tmp_path / "elsewhere")
    assert run_here("--resume", elsewhere, "--stop-timesteps", 400).code == 0
    assert facts(checked_rows(elsewhere)) == facts(checked_rows(here))
    assert last_state(elsewhere) == last_state(here)
