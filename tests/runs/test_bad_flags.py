"""Flags and settings that are wrong: exit code 2 and one line, nothing trained, nothing left behind."""

from __future__ import annotations

import pytest
import torch
from conftest import Command
from refusals import Refused, assert_in_order, only_error


def test_a_command_says_nothing_but_the_line(command: Command) -> None:
    done = command("tiny_dqn", "--set", "lrr=1", "--num-env-runners", 2, "--num-seeds", 2)
    assert only_error(done) == "DQNConfig has no setting 'lrr'; did you mean 'lr'?"
    assert not command.results.exists()


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("--stop-timestep 5", "unknown flag '--stop-timestep'; did you mean '--stop-timesteps'?"),
        ("--lr 1e-4", "unknown flag '--lr'; --set lr=VALUE"),
        ("extra", "expected a flag 'extra'"),
        ("--stop-timesteps 1e5", "--stop-timesteps: expected a whole number '1e5'"),
        ("--stop-timesteps", "--stop-timesteps: expected a whole number nothing"),
        ("--seed -1", "--seed: at least 0 -1"),
        ("--evaluation-duration 0", "--evaluation-duration: at least 1 0"),
        ("--stop-time-s -3", "--stop-time-s: above 0 -3"),
        ("--dry-run=no", "--dry-run: no value 'no'"),
        ("--seed 1 --seed 2", "--seed: once twice"),
        ("--num-seeds 2 --resume latest", "--num-seeds and --resume contradict each other"),
        ("--seed 2 --resume latest", "--seed and --resume contradict each other"),
        ("--name a/b", "--name: 'a/b'"),
        ("--set lr", "--set: expected KEY=VALUE, got 'lr'"),
        ("--set lrr=1", "no setting 'lrr'; did you mean 'lr'?"),
        ("--set replay.capacty=5", "SlottedReplay has no setting 'capacty'; did you mean 'capacity'?"),
        ("--set evaluation_config.gama=1", "no setting 'gama'; did you mean 'gamma'?"),
        ("--set optimizer=adm", "optimizer: 'adm'; did you mean 'adam'?"),
        ("--set model_config.fcnet_activation=rleu", "activation: 'rleu'; did you mean 'relu'?"),
        ("--set lr=fast", "lr: expected a number 'fast'"),
        ("--set n_step=1.5", "n_step: expected a whole number 1.5"),
        ("--set double_q=perhaps", "double_q: expected true or false, got 'perhaps'"),
        ("--set lr=[[0,1e-3],[0,1e-4]]", "lr: ascend"),
        ("--set replay=5", "replay: replay.capacity"),
        ("--set env=CartPole-v1", "env cannot be changed env_config"),
        ("--set env_config.lenght=3", "CartPole-v1 could not be made: TypeError 'lenght'"),
    ],
)
def test_words(refused: Refused, words: str, parts: str) -> None:
    assert_in_order(refused(*words.split()), parts)


@pytest.mark.parametrize(
    "setting",
    [
        "num_atoms=51",
        "batch_mode=complete_episodes",
        "training_intensity=4",
        "evaluation_num_env_runners=1",
        "evaluation_duration_unit=timesteps",
        "evaluation_parallel_to_training=true",
        "offline_sampling=true",
        "explore=false",
        "normalize_actions=false",
    ],
)
def test_settings_without_effect(refused: Refused, setting: str) -> None:
    key, _, value = setting.partition("=")
    assert_in_order(
        refused("--set", setting), f"{key}= {value.title() if value in ('true', 'false') else value} not DQN"
    )


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("gamma=1.5", "from 0 to 1"),
        ("gamma=nan", "from 0 to 1"),
        ("lr=-1", "at least 0"),
        ("lr=[[0,1e-3],[100,-1e-3]]", "at least 0, got -0.001 at env step 100"),
        ("epsilon=2", "from 0 to 1"),
        ("tau=2", "from 0 to 1"),
        ("tau=0", "above 0"),
        ("replay.beta=2", "from 0 to 1"),
        ("replay.capacity=0", "above 0"),
        ("replay_ratio=0", "above 0"),
        ("train_batch_size_per_learner=0", "at least 1"),
        ("num_env_runners=-1", "at least 0"),
        ("num_envs_per_env_runner=0", "at least 1"),
        ("evaluation_duration=0", "at least 1"),
        ("metrics_num_episodes_for_smoothing=0", "at least 1"),
        ("max_num_env_runner_restarts=-1", "at least 0"),
        ("sample_timeout_s=-1", "at least 0"),
        ("grad_clip=0", "above 0"),
        ("grad_clip_by=vlue", "did you mean 'value'?"),
        ("td_error_loss_fn=l1", "'huber' or 'mse'"),
    ],
)
def test_values_out_of_range(refused: Refused, setting: str, expected: str) -> None:
    line = refused("--set", setting)
    key, _, _ = setting.partition("=")
    assert key.removesuffix("_per_learner") in line
    assert expected in line


@pytest.mark.parametrize("how", [(), ("--num-seeds", 2), ("--num-env-runners", 2), ("--dry-run",)])
def test_a_replay_that_cannot_fit(refused: Refused, how: tuple[object, ...]) -> None:
    line = refused("--set", "replay.capacity=100000000000000", *how)
    assert_in_order(line, "replay 100,000,000,000,000 transitions needs PB free")


GPU, HALF = ("--num-gpus-per-learner", 1), ("--num-env-runners", 2, "--num-gpus-per-env-runner", 0.5)


@pytest.mark.parametrize(
    ("words", "gpus", "parts"),
    [
        (GPU, 0, "num_gpus_per_learner local_gpu_idx=0: expected a GPU got 0 GPUs"),
        ((*GPU, "--dry-run"), 0, "expected a GPU got 0 GPUs"),
        ((*GPU, "--set", "local_gpu_idx=2"), 2, "local_gpu_idx=2: got 2 GPUs"),
        ((*GPU, "--num-seeds", 2), 0, "num_gpus_per_learner=1: 1 process needs 1 GPUs, got 0"),
        ((*GPU, "--num-learners", 1), 0, "num_gpus_per_learner=1: 1 process needs 1 GPUs, got 0"),
        ((*GPU, "--num-learners", 2), 1, "num_gpus_per_learner=1: 2 processes need 2 GPUs, got 1"),
        (HALF, 0, "num_gpus_per_env_runner=0.5: 2 processes need 1 GPUs, got 0"),
        ((*HALF, *GPU), 1, "num_gpus_per_learner=1 and num_gpus_per_env_runner=0.5: 3 processes need 2 GPUs, got 1"),
        (("--num-gpus-per-learner", 2), 4, "num_gpus_per_learner: from 0 to 1 got 2"),
        (("--num-gpus-per-env-runner", 1), 4, "num_gpus_per_env_runner=1 has no effect num_env_runners=0"),
        (("--num-learners", 3, "--set", "train_batch_size_per_learner=null"), 0, "train_batch_size"),
    ],
)
def test_gpus_that_are_not_there(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...], gpus: int, parts: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert_in_order(refused(*words), parts)


def test_compiling_without_a_compiler(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import cpp_builder, exc

    def none() -> str:
        raise exc.InvalidCxxCompiler

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", none)
    for more in ((), ("--dry-run",)):
        assert_in_order(refused("--compile", *more), "--compile a C++ compiler, got none: install g++")
