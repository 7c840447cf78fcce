"""What is wrong from the start: exit code 2 and one line, nothing trained, nothing left behind."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import ray
import tiny_dqn
import torch
from conftest import Command, Done
from ray.rllib.algorithms.dqn import DQNConfig as RLlibDQNConfig
from torch import nn

from custom_models.q_module import q_module
from rayground import DQNConfig, Experiment
from rayground.cli import experiment_command, rayground_command
from rayground.results.runs import RunFiles

Refused = Callable[..., str]


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return tmp_path / "storage"


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Calls a command line in this process, as the module ``tiny_dqn`` would."""
    monkeypatch.setitem(sys.modules, "__main__", tiny_dqn)

    def call(command: Callable[..., Any], *words: object) -> Done:
        try:
            code = command([str(word) for word in words])
        except SystemExit as left:
            code = left.code
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return call


@pytest.fixture
def refused(called: Callable[..., Done], storage: Path) -> Refused:
    """Runs an experiment that must be refused; returns what follows ``error: ``."""

    def refuse(*words: object, experiment: Experiment = tiny_dqn.experiment) -> str:
        at = () if "--resume" in words or "--storage-path" in words else ("--storage-path", storage)
        done = called(lambda argv: experiment_command(experiment, argv), *words, *at)
        assert not storage.exists() or not any(storage.iterdir())
        assert not ray.is_initialized()
        return only_error(done)

    return refuse


def only_error(done: Done) -> str:
    assert (done.code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


def with_env(env: Any, **env_config: Any) -> Experiment:
    return replace(tiny_dqn.experiment, config=DQNConfig().environment(env, env_config=env_config))


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


def assert_in_order(line: str, parts: str) -> None:
    """The words come one after another."""
    rest = line
    for part in parts.split():
        assert part in rest, (part, line)
        rest = rest.partition(part)[2]


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


@pytest.mark.parametrize("how", [(), ("--num-seeds", 2), ("--num-env-runners", 2), ("--dry-run",)])
def test_an_unknown_environment(refused: Refused, how: tuple[object, ...]) -> None:
    line = refused(*how, experiment=with_env("CartPol-v1"))
    assert line == "environment CartPol-v1: no such environment is registered; did you mean 'CartPole-v1'?"


def test_no_environment(refused: Refused) -> None:
    assert "has no environment" in refused(experiment=replace(tiny_dqn.experiment, config=DQNConfig()))


class Good(gym.Env[np.ndarray, int]):
    observation_space: Any = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space: Any = gym.spaces.Discrete(2)
    first: Any = np.zeros(2, np.float32)
    later: Any = np.zeros(2, np.float32)
    reward: Any = 1.0

    def __init__(self, config: Any = None) -> None:
        """RLlib gives every environment class its config."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.first, {}

    def step(self, action: Any) -> Any:
        return self.later, self.reward, False, False, {}


class OldReset(Good):
    def reset(self) -> Any:  # type: ignore[override]
        return self.first


class OldStep(Good):
    def step(self, action: Any) -> Any:
        return self.later, 1.0, False, {}


class WrongShape(Good):
    first = np.zeros(3, np.float32)


class NotANumber(Good):
    later = np.array([0.0, np.nan], np.float32)


class OutOfBounds(Good):
    later = np.array([0.0, 1.5], np.float32)


class Float64(Good):
    first = np.zeros(2)


class NoReward(Good):
    reward = float("nan")


class Continuous(Good):
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))


class NoFile(Good):
    def __init__(self, config: Any = None) -> None:
        raise FileNotFoundError("no ROM at /x\nin two lines")


class NoEnv:
    def __init__(self, config: Any = None) -> None:
        """Nothing of an environment."""


@pytest.mark.parametrize(
    ("env", "parts"),
    [
        (OldReset, "reset(): expected seed options got reset()"),
        (OldStep, "step(): expected (observation, reward, terminated, truncated, info) got tuple 4"),
        (WrongShape, "observation reset(): expected float32 [2], got float32 [3]"),
        (NotANumber, "observation step() [1]: expected finite got nan"),
        (OutOfBounds, "observation step() [1]: expected -1.0 to 1.0, got 1.5"),
        (Float64, "observation reset(): expected float32 [2], got float64 [2]"),
        (NoReward, "reward: expected finite got nan"),
        (Continuous, "action_space: expected Discrete got Box"),
        (NoFile, "could not be made: FileNotFoundError: no ROM at /x (test_bad_input.py:"),
        (NoEnv, "expected gymnasium.Env, got NoEnv"),
    ],
)
def test_an_environment_that_breaks_the_contract(refused: Refused, env: type, parts: str) -> None:
    assert_in_order(refused(experiment=with_env(env)), f"environment {env.__name__} {parts}")


class Net(nn.Module):
    def __init__(self, observation_space: gym.Space, action_space: gym.Space, inputs: int = 2, outputs: int = 2):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.layer(obs)


class Unbuilt(Net):
    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__(observation_space, action_space, inputs=observation_space.n)


@pytest.mark.parametrize("runners", [0, 1])
@pytest.mark.parametrize(
    ("net", "kwargs", "parts"),
    [
        (Net, {"outputs": 4}, "qf_preds expected float32 [2, 2], got float32 [2, 4]"),
        (Net, {"inputs": 3}, "raised RuntimeError: shapes (test_bad_input.py:"),
        (Net, {"inputs": -1}, "RuntimeError: negative"),
        (Unbuilt, {}, "could not be built: AttributeError: 'n' (test_bad_input.py:"),
    ],
)
def test_a_net_that_does_not_fit(
    refused: Refused, net: type[nn.Module], kwargs: dict[str, int], parts: str, runners: int
) -> None:
    spec = q_module(net, **kwargs)
    experiment = replace(tiny_dqn.experiment, config=DQNConfig().environment(Good).rl_module(rl_module_spec=spec))
    assert_in_order(refused("--num-env-runners", runners, experiment=experiment), parts)


def test_a_config_of_stock_rllib(refused: Refused) -> None:
    line = refused(experiment=replace(tiny_dqn.experiment, config=RLlibDQNConfig().environment(Good)))
    assert_in_order(line, "config: expected rayground.DQNConfig, got ray.rllib")


def test_a_name_that_is_no_folder(refused: Refused) -> None:
    assert "'a/b'" in refused(experiment=replace(tiny_dqn.experiment, name="a/b"))


def test_a_storage_that_cannot_be_written(refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    assert_in_order(refused("--storage-path", tmp_path / "file"), f"{tmp_path}/file: expected a folder a file")
    assert_in_order(refused("--storage-path", tmp_path / "file" / "deeper"), f"{tmp_path}/file/deeper: a file")
    assert_in_order(refused("--storage-path", "/proc/none"), "/proc/none: cannot store runs here")
    monkeypatch.chdir(tmp_path)
    assert_in_order(refused("--storage-path", "file"), f"{tmp_path}/file: a file")


def test_a_resume_of_nothing_names_the_absolute_path(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert_in_order(refused("--resume", "nowhere"), f"{tmp_path}/nowhere: nothing")
    assert_in_order(refused("--resume", "~/nowhere"), f"{tmp_path}/nowhere: nothing")
    assert_in_order(refused("--resume", "latest"), f"{tmp_path}/ray_results: tiny_dqn")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    return tiny_dqn.experiment.train(seed=1, storage=tmp_path_factory.mktemp("run"), env_steps=100).folder


def test_export(called: Callable[..., Done], run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def line(*words: object) -> str:
        return only_error(called(rayground_command, *words))

    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    assert_in_order(line("export", run, "--to", "full"), f"{full} already holds something")
    assert [path.name for path in full.iterdir()] == ["notes.txt"]
    assert_in_order(line("export", run, "--to", full / "notes.txt"), f"{full}/notes.txt already holds something")
    assert_in_order(line("export", "nowhere", "--to", "new"), f"{tmp_path}/nowhere: nothing")
    assert_in_order(line("export", full, "--to", "new"), f"{full}: checkpoint")
    assert_in_order(line("exprt", run), "export 'exprt'; did you mean 'export'?")
    assert_in_order(line("export", run, "--too", "new"), "'--too'; did you mean '--to'?")
    assert_in_order(line("export", run), "--to")
    assert not (tmp_path / "new").exists()
    done = called(rayground_command, "export", run, "--to", "new")
    assert done.code == 0, done.stderr
    assert_in_order(line("export", run, "--to", "new"), f"{tmp_path}/new already holds something")


def test_a_run_that_has_ended_wants_more(called: Callable[..., Done], run: Path) -> None:
    rows = RunFiles(run).rows
    done = called(lambda argv: experiment_command(tiny_dqn.experiment, argv), "--resume", run)
    assert_in_order(only_error(done), f"{run} env_steps --stop-timesteps")
    assert RunFiles(run).rows == rows
