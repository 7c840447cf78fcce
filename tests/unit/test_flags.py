from dataclasses import dataclass, fields
from typing import Literal

import pytest

from rayground import DQNConfig
from rayground.flags import Flags, Int, parse

PROG = "python -m experiments.dqn_cartpole"


def parsed(*argv, flags_type=Flags):
    return parse(argv, PROG, "Dueling double DQN on CartPole-v1.", flags_type)


def test_nothing_given_leaves_all_to_the_experiment():
    assert parsed() == Flags()
    assert Flags().settings() == {}
    assert Flags().num_seeds == 1
    assert {value for name, value in vars(Flags()).items() if name != "num_seeds"} == {None, (), False}


def test_every_flag_arrives():
    argv = (
        "--num-seeds 5 --num-env-runners 0 --num-envs-per-env-runner=8 --num-gpus-per-env-runner 0.25 --num-learners 2 "
        "--num-gpus-per-learner 1 --compile --stop-reward -200 --stop_timesteps 100_000 "
        "--stop-iters 7 --stop-time-s 2.5 --checkpoint-freq 0 --evaluation-interval 5 --evaluation-duration 20 "
        "--seed 3 --storage-path ~/runs --name -quick --set lr=-1e-4 --set=a.b=[1,2] --set c=d=e --dry-run"
    )
    assert parsed(*argv.split()) == Flags(
        seed=3,
        num_seeds=5,
        num_env_runners=0,
        num_envs_per_env_runner=8,
        num_gpus_per_env_runner=0.25,
        num_learners=2,
        num_gpus_per_learner=1.0,
        compile=True,
        stop_reward=-200.0,
        stop_timesteps=100_000,
        stop_iters=7,
        stop_time_s=2.5,
        checkpoint_freq=0,
        evaluation_interval=5,
        evaluation_duration=20,
        storage_path="~/runs",
        name="-quick",
        set_=("lr=-1e-4", "a.b=[1,2]", "c=d=e"),
        dry_run=True,
    )


def test_flags_of_settings_change_these_and_no_other_flag_does():
    argv = "--num-env-runners 0 --num-learners 2 --num-gpus-per-learner 0.5 --compile --seed 3"
    flags = parsed(*argv.split())
    assert flags.settings() == {
        "num_env_runners": 0,
        "num_learners": 2,
        "num_gpus_per_learner": 0.5,
        "torch_compile_learner": True,
    }
    given = {f.name: "x" for f in fields(Flags) if f.name not in ("num_seeds", "compile", "dry_run")}
    settings = Flags(**given, num_seeds=5, compile=True, dry_run=True).settings()
    assert settings.keys() <= set(vars(DQNConfig()))
    assert len(settings) == 8


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        ("--sede 3", "unknown flag '--sede'; did you mean '--seed'?"),
        ("--num-env-runner=2", "unknown flag '--num-env-runner'; did you mean '--num-env-runners'?"),
        (
            "--learning-rate 3",
            "unknown flag '--learning-rate'; --help lists them, and --set learning_rate=VALUE is for a setting of "
            "the algorithm",
        ),
        ("seed=3", "expected a flag such as --seed, got 'seed=3'"),
        ("-s 3", "expected a flag such as --seed, got '-s'"),
        ("--seed x", "--seed: expected a whole number, got 'x'"),
        ("--seed 1.5", "--seed: expected a whole number, got '1.5'"),
        ("--seed None", "--seed: expected a whole number, got 'None'"),
        ("--seed", "--seed: expected a whole number, got nothing"),
        ("--seed --dry-run", "--seed: expected a whole number, got nothing"),
        ("--seed 1 --seed 1", "--seed: expected once, got it twice"),
        ("--stop-reward high", "--stop-reward: expected a number, got 'high'"),
        ("--name", "--name: expected a text, got nothing"),
        ("--set", "--set: expected KEY=VALUE, got nothing"),
        ("--dry-run=yes", "--dry-run: expected no value, got 'yes'"),
        ("--dry-run yes", "expected a flag such as --seed, got 'yes'"),
        ("--seed -1", "--seed: expected at least 0, got -1"),
        ("--num-seeds 0", "--num-seeds: expected at least 1, got 0"),
        ("--num-env-runners -1", "--num-env-runners: expected at least 0, got -1"),
        ("--num-envs-per-env-runner 0", "--num-envs-per-env-runner: expected at least 1, got 0"),
        ("--num-learners -1", "--num-learners: expected at least 0, got -1"),
        ("--num-gpus-per-learner -1", "--num-gpus-per-learner: expected at least 0, got -1.0"),
        ("--compile=yes", "--compile: expected no value, got 'yes'"),
        ("--stop-timesteps 0", "--stop-timesteps: expected at least 1, got 0"),
        ("--stop-iters 0", "--stop-iters: expected at least 1, got 0"),
        ("--stop-time-s 0", "--stop-time-s: expected a number of seconds above 0, got 0.0"),
        ("--stop-time-s nan", "--stop-time-s: expected a number of seconds above 0, got nan"),
        ("--stop-reward nan", "--stop-reward: expected a number or inf, got nan"),
        ("--checkpoint-freq -1", "--checkpoint-freq: expected at least 0, got -1"),
        ("--evaluation-interval -1", "--evaluation-interval: expected at least 0, got -1"),
        ("--evaluation-duration 0", "--evaluation-duration: expected at least 1, got 0"),
        ("--name=", "--name: expected a text, got an empty one"),
        ("--name a/b", "--name: expected the first part of a folder's name, got 'a/b'"),
        (
            "--resume run --seed 0",
            "--seed and --resume contradict each other: the run keeps what it has; leave --seed out",
        ),
        (
            "--resume latest --num-seeds 2",
            "--num-seeds and --resume contradict each other: the run keeps what it has; leave --num-seeds out",
        ),
        (
            "--resume run --name x",
            "--name and --resume contradict each other: the run keeps what it has; leave --name out",
        ),
        (
            "--resume run --storage-path x",
            "--storage-path and --resume contradict each other: the run keeps what it has; leave --storage-path out",
        ),
    ],
)
def test_wrong_input_gets_one_line_and_code_2(argv, error, capsys):
    with pytest.raises(SystemExit) as left:
        parsed(*argv.split())
    assert left.value.code == 2
    assert tuple(capsys.readouterr()) == ("", f"error: {error}\n")


def test_latest_may_be_looked_for_elsewhere():
    flags = parsed("--resume", "latest", "--storage-path", "x", "--name", "y", "--num-seeds", "1")
    assert (flags.resume, flags.storage_path, flags.name) == ("latest", "x", "y")


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["--seed", "x", "--help"]])
def test_help_names_the_experiment_and_every_flag(argv, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as left:
        parsed(*argv)
    out, err = capsys.readouterr()
    assert (left.value.code, err) == (0, "")
    assert out.startswith(f"usage: {PROG} [-h] [OPTIONS]\n\nDueling double DQN on CartPole-v1.\n")
    for name in vars(Flags()):
        assert "--" + name.rstrip("_").replace("_", "-") + " " in out
    assert "--no-dry-run" not in out
    assert "None" not in out
    assert "Stop after this many env steps." in out


@dataclass(frozen=True)
class Own(Flags):
    parallelism: Literal["gradient", "data"] | None = None
    """What the workers send."""
    staleness: Int = None
    """Updates that a gradient may be late."""
    overlap: bool = False
    """Whether they wait."""


def test_an_experiment_has_flags_of_its_own(capsys):
    flags = parsed("--parallelism", "data", "--staleness", "3", "--overlap", "--seed", "1", flags_type=Own)
    assert flags == Own(seed=1, parallelism="data", staleness=3, overlap=True)
    assert flags.settings() == {"parallelism": "data", "staleness": 3, "overlap": True}
    assert Own(parallelism="gradient", num_learners=0).settings() == {"parallelism": "gradient", "num_learners": 0}
    with pytest.raises(SystemExit, match="2"):
        parsed("--parallelism", "dat", flags_type=Own)
    assert capsys.readouterr().err == (
        "error: --parallelism: expected one of gradient, data, got 'dat'; did you mean 'data'?\n"
    )
