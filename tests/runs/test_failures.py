"""Runs that break: the environment's own traceback, exit code 1, bounded restarts, files that stay whole, no hang."""

from __future__ import annotations

import os
import re
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest
from conftest import Done, RunHere
from ray.rllib.callbacks.callbacks import RLlibCallback
from snapshots import only_run

from rayground import DQNConfig, Experiment, SlottedReplay, Stop
from rayground.results.runs import RunFiles


class Ladder(gym.Env[np.ndarray, int]):
    """Shows which episode it is and how many steps were taken in it; episodes of 10 steps.

    Its settings: at which step of its life it fails, and how; ``notes`` is a folder for a file per process that made
    one, and a line in ``failed`` for each failure.
    """

    observation_space = gym.spaces.Box(0.0, 2.0**24, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config: Any) -> None:
        self._config = config
        self._notes = Path(config["notes"])
        self._taken = 0
        self._episode = os.getpid() % 1_000 * 10_000
        if config.worker_index:
            (self._notes / f"runner_{config.worker_index}").write_text(str(os.getpid()))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._episode += 1
        self._steps = 0
        return self._observation(), {}

    def step(self, action: int) -> Any:
        self._taken += 1
        self._steps += 1
        if self._taken == self._config.get("fails_at") and self._is_to_fail():
            if self._config["how"] == "hangs":
                time.sleep(3_600)
            if self._config["how"] == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            raise SensorError("the sensor", "went away")
        nan = self._taken == self._config.get("nan_at")
        return self._observation(), np.nan if nan else 1.0, self._steps == 10, False, {}

    def _is_to_fail(self) -> bool:
        with (self._notes / "failed").open("a") as file:
            file.write("x")
            return file.tell() <= self._config.get("failures", 1_000)

    def _observation(self) -> np.ndarray:
        return np.array([self._episode, self._steps], np.float32)


class SensorError(Exception):
    """Cannot be copied, as its arguments are not those of its constructor."""

    def __init__(self, what: str, happened: str) -> None:
        super().__init__(f"{what} {happened}")


class Callbacks(RLlibCallback):
    """Does what the settings of the environment say."""

    def on_episode_end(self, *, episode: Any, env_runner: Any, **kwargs: Any) -> None:
        if env_runner.config.env_config.get("callback") == "on_episode_end":
            raise SensorError("the callback", "went away")

    def on_train_result(self, *, algorithm: Any, result: dict[str, Any], **kwargs: Any) -> None:
        config = algorithm.config.env_config
        iteration = result["training_iteration"]
        if config.get("callback") == "on_train_result":
            raise SensorError("the callback", "went away")
        if config.get("kills_at") == iteration:
            os.kill(int((Path(config["notes"]) / "runner_1").read_text()), signal.SIGKILL)
        if config.get("kills_at"):
            Steps.seen.append(algorithm.replay.sample(64, num_batches=4, beta=0.0))
        if config.get("largest_file_at") == iteration:
            set_largest_file(config["largest_file"])


def set_largest_file(size: int) -> None:
    """Writes beyond it fail in this process, as they do on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


class Steps:
    """What was in the replay after each iteration."""

    seen: ClassVar[list[Any]] = []


@pytest.fixture(autouse=True)
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


@pytest.fixture
def broken(notes: Path) -> Any:
    """Makes experiments with an environment that has these settings."""

    def make(**env_config: Any) -> Experiment:
        config = (
            DQNConfig()
            .environment(Ladder, env_config={"notes": str(notes), "how": "raises"} | env_config)
            .rl_module(model_config={"fcnet_hiddens": [8]})
            .training(
                replay=SlottedReplay(capacity=1_000, prioritized=False),
                n_step=1,
                train_batch_size_per_learner=8,
                num_steps_sampled_before_learning_starts=10,
            )
            .callbacks(Callbacks)
            .reporting(min_sample_timesteps_per_iteration=20, metrics_num_episodes_for_smoothing=2)
        )
        return Experiment("broken", config, Stop(env_steps=400))

    return make


def failures(notes: Path) -> int:
    return len((notes / "failed").read_text())


def assert_failed(done: Done, storage: Path, error: str, trace: str) -> Path:
    """Exit code 1, the traceback shown and in the run folder, one line at the end, and files that agree."""
    assert done.code == 1
    *shown, line = done.stderr.splitlines()
    assert line.startswith(f"error: {error}")
    run = only_run(storage)
    written = (run / "error.txt").read_text()
    assert "\n".join(shown).endswith(written.rstrip("\n"))
    assert written.startswith("Traceback (most recent call last):")
    assert f'File "{__file__}"' in written
    assert written.splitlines()[-1] == trace
    assert_whole(run)
    return run


def assert_whole(run: Path) -> None:
    rows = RunFiles(run).rows
    assert [row["iteration"] for row in rows] == list(range(1, len(rows) + 1))
    assert list(pd.read_csv(run / "progress.csv")["env_steps"]) == [row["env_steps"] for row in rows]


RAISED = "test_failures.SensorError: the sensor went away"


@pytest.mark.parametrize("restarts", [None, 0, 2])
def test_an_environment_that_raises(
    run_here: RunHere, broken: Any, notes: Path, tmp_path: Path, restarts: int | None
) -> None:
    on = f"restart_failed_sub_environments={'false' if restarts is None else 'true'}"
    bound = f"max_num_env_runner_restarts={restarts or 0}"
    words = ("--storage-path", tmp_path / "runs", "--set", on, "--set", bound)
    done = run_here(*words, experiment=broken(fails_at=45))
    what = "runner 0: the environment raised SensorError: the sensor went away (test_failures.py:"
    run = assert_failed(done, tmp_path / "runs", what, RAISED)
    assert failures(notes) == 1 + (restarts or 0)
    assert done.stdout.count("made anew") == (restarts or 0)
    # Before each failure 44 steps, of which those of the last fragment are given up with it.
    assert RunFiles(run).rows[-1]["env_steps"] == 44 * failures(notes) // 20 * 20


def test_an_environment_that_raises_in_evaluation(run_here: RunHere, broken: Any, tmp_path: Path) -> None:
    words = ("--storage-path", tmp_path / "runs", "--evaluation-interval", 1, "--evaluation-duration", 5)
    done = run_here(*words, experiment=broken(fails_at=45))
    what = "runner 0: the environment raised SensorError: the sensor went away (test_failures.py:"
    assert done.code == 1
    assert done.stderr.splitlines()[-1].startswith(f"error: {what}")
    assert RAISED in (only_run(tmp_path / "runs") / "error.txt").read_text()


def test_a_callback_that_raises_on_a_runner(run_here: RunHere, broken: Any, tmp_path: Path) -> None:
    done = run_here("--storage-path", tmp_path / "runs", experiment=broken(callback="on_episode_end"))
    assert done.code == 1
    assert done.stderr.splitlines()[-1].startswith(
        "error: runner 0: raised SensorError: the callback went away (test_failures.py:"
    )
    assert "test_failures.SensorError: the callback" in (only_run(tmp_path / "runs") / "error.txt").read_text()


def test_a_callback_that_raises_in_the_main_process(run_here: RunHere, broken: Any, tmp_path: Path) -> None:
    """Python itself shows it, as for any other script, and exits with 1."""
    with pytest.raises(SensorError, match="the callback went away"):
        run_here("--storage-path", tmp_path / "runs", experiment=broken(callback="on_train_result"))
    assert "test_failures.SensorError: the callback" in (only_run(tmp_path / "runs") / "error.txt").read_text()


def test_a_reward_that_is_not_a_number(run_here: RunHere, broken: Any, tmp_path: Path) -> None:
    words = ("--storage-path", tmp_path / "runs", "--set", "train_batch_size_per_learner=64")
    done = run_here(*words, experiment=broken(nan_at=45))
    assert done.code == 1
    (line,) = done.stderr.splitlines()
    assert re.match(
        r"error: before env step \d\d: runner 0: the reward of sub-environment \d is nan: expected a fi", line
    )
    assert "is nan" in (only_run(tmp_path / "runs") / "error.txt").read_text()
    assert_whole(only_run(tmp_path / "runs"))


@pytest.mark.usefixtures("one_ray")
class TestRay:
    def test_an_environment_that_raises(self, run_here: RunHere, broken: Any, notes: Path, tmp_path: Path) -> None:
        words = ("--storage-path", tmp_path / "runs", "--num-env-runners", 2)
        words += ("--set", "restart_failed_sub_environments=true", "--set", "max_num_env_runner_restarts=1")
        done = run_here(*words, experiment=broken(fails_at=45))
        what = "runner 1: the environment raised SensorError: the sensor went away (test_failures.py:"
        assert_failed(done, tmp_path / "runs", what, RAISED)
        assert failures(notes) == 2 * 2

    def test_a_callback_that_raises(self, run_here: RunHere, broken: Any, tmp_path: Path) -> None:
        words = ("--storage-path", tmp_path / "runs", "--num-env-runners", 1)
        done = run_here(*words, experiment=broken(callback="on_episode_end"))
        assert done.code == 1
        assert done.stderr.splitlines()[-1].startswith(
            "error: runner 1: raised SensorError: the callback went away (test_failures.py:"
        )

    def test_a_killed_runner_comes_back(self, run_here: RunHere, broken: Any, notes: Path, tmp_path: Path) -> None:
        Steps.seen.clear()
        words = ("--storage-path", tmp_path / "runs", "--num-env-runners", 2, "--num-envs-per-env-runner", 2)
        words += ("--set", "rollout_fragment_length=7")
        done = run_here(*words, experiment=broken(kills_at=2))
        assert done.code == 0, done.stderr
        died = "runner 1 died: its process was killed (out of memory?) or crashed; restart 1 of at most 3"
        assert done.stdout.count(died) == 1
        run = only_run(tmp_path / "runs")
        assert_whole(run)
        assert RunFiles(run).rows[-1]["env_steps"] >= 400
        made_by = set()
        for batch in Steps.seen:
            assert (batch.next_obs[..., 0] == batch.obs[..., 0]).all()  # of the same episode
            assert (batch.next_obs[..., 1] == batch.obs[..., 1] + 1).all()
            made_by |= set((batch.obs[..., 0] // 10_000).ravel())
        assert len(made_by) == 3

    def test_a_killed_runner_ends_the_run_where_restarts_are_off(
        self, run_here: RunHere, broken: Any, tmp_path: Path
    ) -> None:
        words = ("--storage-path", tmp_path / "runs", "--num-env-runners", 1)
        done = run_here(*words, "--set", "restart_failed_env_runners=false", experiment=broken(kills_at=2))
        assert done.code == 1
        assert done.stderr.splitlines()[-1] == (
            "error: runner 1 died: its process was killed (out of memory?) or crashed; restarts are off"
        )
        assert_whole(only_run(tmp_path / "runs"))

    def test_a_runner_that_hangs_does_not_hold_up_the_end(self, run_here: RunHere, broken: Any, tmp_path: Path) -> None:
        words = ("--storage-path", tmp_path / "runs", "--num-env-runners", 1, "--set", "sample_timeout_s=1")
        done = run_here(*words, experiment=broken(fails_at=45, how="hangs"))
        assert done.code == 1
        assert done.stderr.splitlines()[-1].startswith("error: runner 1 did not answer within 1 s")

    @pytest.mark.parametrize("how", ["raises", "dies"])
    def test_one_of_two_seeds(self, run_here: RunHere, broken: Any, tmp_path: Path, how: str) -> None:
        """The other one is finished."""
        words = ("--storage-path", tmp_path / "runs", "--num-seeds", 2)
        done = run_here(*words, experiment=broken(fails_at=45, failures=1, how=how))
        assert done.code == 1
        group = only_run(tmp_path / "runs")
        ended = {seed: RunFiles(group / f"seed_{seed}").rows[-1]["env_steps"] for seed in (0, 1)}
        assert sorted(ended.values()) == [40, 400]
        failed = min(ended, key=lambda seed: ended[seed])
        *shown, line = done.stderr.splitlines()
        if how == "raises":
            what = "runner 0: the environment raised SensorError: the sensor went away (test_failures.py:"
            assert line.startswith(f"error: seed {failed}: {what}")
            assert shown[-1] == RAISED
        else:
            assert line.startswith(f"error: seed {failed}: ")
            assert "died" in line
        assert "; seed" not in line
        assert_whole(group / f"seed_{failed}")
        assert not (group / ".stop").exists()


@pytest.fixture
def files_as_before() -> Iterator[Callable[[], None]]:
    """Gives this process back its right to write large files."""
    before, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda: set_largest_file(before)
    set_largest_file(before)


@pytest.mark.parametrize(
    ("largest", "error"),
    [
        (40, r"/runs/broken_[^/]*: cannot be written: File too large; .* are free there$"),
        (
            10_000,
            r"/runs/broken_[^/]*/checkpoints/step_0*6\d: the checkpoint could not be written \(.*[Ff]ile too large",
        ),
    ],
)
def test_a_full_disk(
    run_here: RunHere, broken: Any, files_as_before: Callable[[], None], tmp_path: Path, largest: int, error: str
) -> None:
    """It stays so until the end: what went before must have been written, and nothing be torn now."""
    experiment = broken(largest_file_at=3, largest_file=largest)
    words = ("--storage-path", tmp_path / "runs", "--checkpoint-freq", 1, "--seed", 1)
    done = run_here(*words, experiment=experiment)
    files_as_before()
    assert done.code == 1
    (line,) = done.stderr.splitlines()
    assert re.match(f"error: {tmp_path}{error}", line), line
    run = only_run(tmp_path / "runs")
    assert_whole(run)
    assert RunFiles(run).last_checkpoint.name == "step_000000040"
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"index.json", "step_000000040"}
    done = run_here("--resume", run, "--set", "env_config.largest_file_at=0", experiment=experiment)
    assert done.code == 0, done.stderr
    assert_whole(run)
