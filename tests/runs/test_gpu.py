"""DQN and PPO with a learner on a GPU; skipped where torch sees none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_dqn
import torch

from rayground import PPOConfig
from rayground.learners.group import RemoteLearners

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason=f"torch {torch.__version__} sees no CUDA device")

PPO = (
    PPOConfig()
    .environment("CartPole-v1")
    .env_runners(num_envs_per_env_runner=2)
    .rl_module(model_config={"fcnet_hiddens": [16]})
    .training(train_batch_size_per_learner=128, minibatch_size=32, num_epochs=2)
)


@pytest.fixture(params=[tiny_dqn.config, PPO], ids=["dqn", "ppo"])
def config(request: pytest.FixtureRequest) -> Any:
    return request.param.copy(copy_frozen=False).debugging(seed=1).learners(num_gpus_per_learner=1)


def weights(algorithm: Any) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in algorithm.learner.module_arrays().items()}


def check(algorithm: Any, folder: Path, optimizer_device: str | None) -> None:
    """Trains, saves, goes on, and goes on once more from what was saved."""
    before = weights(algorithm)
    algorithm.train()
    algorithm.save(folder)
    saved = weights(algorithm)
    assert any(not np.array_equal(before[name], saved[name]) for name in saved)
    if optimizer_device is not None:
        moments = [value for state in algorithm.learner.optimizer.state.values() for value in state.values()]
        assert {value.device.type for value in moments} == {optimizer_device}
    optimizer = {name: array.copy() for name, array in algorithm.learner.optimizer_arrays().items()}
    algorithm.train()
    assert any(not np.array_equal(array, saved[name]) for name, array in weights(algorithm).items())
    algorithm.restore(folder)
    for name, array in weights(algorithm).items():
        np.testing.assert_array_equal(array, saved[name], err_msg=name)
    for name, array in algorithm.learner.optimizer_arrays().items():
        np.testing.assert_array_equal(array, optimizer[name], err_msg=name)
    algorithm.train()
    policy = algorithm.get_policy()
    assert policy.compute_single_action(np.zeros(4, np.float32)) in (0, 1)
    policy.export(folder / ".." / "policy")


def test_the_main_process_learns_on_the_gpu_and_a_runner_steps_on_the_cpu(
    config: Any, tmp_path: Path, one_ray: None
) -> None:
    algorithm = config.env_runners(num_env_runners=1, num_cpus_per_env_runner=0.5).build_algo()
    try:
        assert algorithm.learner.device.type == "cuda"
        assert {parameter.device.type for parameter in algorithm.learner.policy_module.parameters()} == {"cuda"}
        (runner,) = algorithm.env_runner_group.foreach_env_runner(lambda r: str(r._device), local_env_runner=False)
        assert runner == "cpu"
        check(algorithm, tmp_path / "ck", "cuda")
    finally:
        algorithm.stop()


def test_a_learner_in_a_process_of_its_own_has_the_gpu(config: Any, tmp_path: Path, one_ray: None) -> None:
    algorithm = config.learners(num_learners=1).build_algo()
    try:
        assert isinstance(algorithm.learner, RemoteLearners)
        assert [device.split(":")[0] for device in algorithm.learner.devices] == ["cuda"]
        check(algorithm, tmp_path / "ck", None)
    finally:
        algorithm.stop()


def test_runner_and_learner_share_a_gpu(config: Any, one_ray: None) -> None:
    config.learners(num_gpus_per_learner=0.5)
    config.env_runners(num_env_runners=1, num_cpus_per_env_runner=0.5, num_gpus_per_env_runner=0.5)
    algorithm = config.build_algo()
    try:
        (runner,) = algorithm.env_runner_group.foreach_env_runner(lambda r: str(r._device), local_env_runner=False)
        assert runner.startswith("cuda")
        before = weights(algorithm)
        algorithm.train()
        assert any(not np.array_equal(before[name], array) for name, array in weights(algorithm).items())
    finally:
        algorithm.stop()
