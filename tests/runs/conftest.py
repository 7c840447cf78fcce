"""Fixtures of the tests of whole runs: commands in processes of their own, with a home of their own.

Other test modules of this folder may import ``tiny_dqn`` (the smallest experiment there is) and run it as a command:

>>> def test_it(command):
...     done = command("tiny_dqn", "--seed", "1")
...     assert done.code == 0, done.stderr
...     assert (command.home / "ray_results").is_dir()
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

HERE = Path(__file__).parent


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
