"""Fixtures of the tests of whole runs: commands in processes of their own, with a home of their own.

Other test modules of this folder may import ``tiny_dqn`` (the smallest experiment there is) and run it as a command:

>>> def test_it(command):
...     done = command("tiny_dqn", "--seed", "1")
...     assert done.code == 0, done.stderr
...     assert (command.home / "ray_results").is_dir()
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import ray
import tiny_dqn
from refusals import Refused, only_error
from several import run_module
from snapshots import only_run

from rayground import Experiment, bench, quiet
from rayground.algorithms.config import ArrayConfig
from rayground.cli import experiment_command

HERE = Path(__file__).parent

RunHere = Callable[..., "Done"]
Build = Callable[..., Any]


@dataclass(frozen=True)
class Done:
    """A command that has ended: its exit code (negative: ended by that signal) and what it wrote."""

    code: int
    stdout: str
    stderr: str


@dataclass
class Command:
    """Runs ``python -m <module> <words>``, or the ``rayground`` command if that is the first word.

    Modules of this folder are importable. The home folder is ``home``, which is empty at first, so that
    ``~/ray_results`` is nobody else's.
    """

    home: Path
    _started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def results(self) -> Path:
        """The default storage folder of the commands."""
        return self.home / "ray_results"

    def __call__(
        self, *words: object, cwd: Path | None = None, timeout_s: float = 120, env: dict[str, str] | None = None
    ) -> Done:
        """Runs a command to its end."""
        process = self.start(*words, cwd=cwd, env=env)
        stdout, stderr = process.communicate(timeout=timeout_s)
        return Done(process.returncode, stdout, stderr)

    def together(self, *lines: Sequence[object], timeout_s: float) -> list[Done]:
        """Runs several commands to their ends, one after the other, in one process; see ``several.py``."""
        file = self.home / "several.json"
        file.write_text(json.dumps([list(map(str, words)) for words in lines]))
        done = self("several", file, timeout_s=timeout_s)
        assert done.code == 0, done.stderr
        return [Done(*one) for one in json.loads(file.read_text())]

    def start(
        self, *words: object, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Starts a command and leaves it running; the fixture ends it with ``kill -9`` if the test does not."""
        first, *rest = map(str, words)
        program = (
            [str(Path(sys.executable).with_name(first))] if first == "rayground" else [sys.executable, "-m", first]
        )
        process = subprocess.Popen(
            [*program, *rest],
            cwd=cwd or self.home,
            env=os.environ | {"HOME": str(self.home), "PYTHONPATH": str(HERE)} | (env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a signal to its process group reaches nobody else
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        """Ends what still runs."""
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.communicate()


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """Runs commands; see :class:`Command`."""
    home = tmp_path / "home"
    home.mkdir()
    made = Command(home)
    yield made
    made.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests with Ray come last: it is started once, and those without it find none."""
    items.sort(key=lambda item: "one_ray" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def one_ray() -> Iterator[None]:
    """Ray, for the tests with remote processes, which can import the modules of this folder.

    A run without them does not need it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE))
        ray.init(num_cpus=2, include_dashboard=False)
    yield
    ray.shutdown()


def run_command(experiment: Experiment, *words: object) -> int:
    """The command line of an experiment of a module ``tiny_dqn`` or ``tiny_killed``, in this process."""
    main = sys.modules["__main__"]
    shutdown, quiet.shutdown_ray = quiet.shutdown_ray, lambda: None
    sys.modules["__main__"] = sys.modules[experiment.name if experiment.name in sys.modules else "tiny_dqn"]
    try:
        return experiment_command(experiment, [str(word) for word in words])
    except SystemExit as left:
        return int(str(left.code))
    finally:
        sys.modules["__main__"], quiet.shutdown_ray = main, shutdown


@pytest.fixture
def run_here(capsys: pytest.CaptureFixture[str]) -> RunHere:
    """Runs the command line of an experiment (the tiny one if none is given) in this process, which is quick."""

    def run(*words: object, experiment: Experiment = tiny_dqn.experiment) -> Done:
        code = run_command(experiment, *words)
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run


@pytest.fixture
def modules_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What benchmarks and comparisons run in processes of their own they run in this one, as if it took 99 s."""

    def run_here(*words: str) -> tuple[float, str]:
        code, out, errors = run_module(words)
        assert code == 0, errors
        return 99.0, out

    monkeypatch.setattr(bench, "run_module", run_here)


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


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 300 env steps with seed 5, all of whose checkpoints are kept. Copy it before you change it."""
    storage = tmp_path_factory.mktemp("finished")
    assert run_command(tiny_dqn.experiment, "--seed", 5, "--stop-timesteps", 300, "--storage-path", storage) == 0
    return only_run(storage)


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """That run, in another place."""
    return Path(shutil.copytree(finished, tmp_path / "elsewhere" / "a run"))


@pytest.fixture
def build() -> Iterator[Build]:
    """Builds algorithms of a config, that of the tiny experiment if none is given, with changes, and ends them."""
    built: list[Any] = []

    def make(
        seed: int = 3,
        change: Callable[[Any], Any] = lambda config: None,
        config: ArrayConfig = tiny_dqn.config,
        **training: Any,
    ) -> Any:
        config = config.copy(copy_frozen=False).training(**training).debugging(seed=seed)
        change(config)
        built.append(config.build_algo())
        return built[-1]

    yield make
    for algorithm in built:
        algorithm.stop()
