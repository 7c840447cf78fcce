"""Every command and every piece of code in the README, as it stands there, with small budgets."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Command

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
ELSEWHERE = ("pip install", "tensorboard --logdir", "python -m experiments.bench_")
"""CI does the first, for both lines; the second does not end; the third have tests of their own, as a test says."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands() -> list[str]:
    lines = [line.split("  #")[0].strip() for block in blocks("bash") for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith(ELSEWHERE)]


def shortened(line: str, iterations: int) -> list[str]:
    """The words after `python -m`, or from `rayground` on, with a small budget."""
    words = shlex.split(line)
    words = words[2:] if words[0] == "python" else words
    words = ["2" if before == "--num-seeds" else word for before, word in zip(["", *words], words, strict=False)]
    if words[0] == "rayground" or "--dry-run" in words:
        return words
    return [*words, "--stop-iters", str(iterations), "--evaluation-duration", "2"]


LEARNS_WITH_IT = """
from rayground import PPOConfig
config = PPOConfig().environment("CartPole-v1").learners(learner_class=SmallWeights)
algorithm = config.training(train_batch_size=64, minibatch_size=32, num_epochs=1).build_algo()
assert algorithm.train()["headline"]["learner/size"] > 0
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Command:
    return Command(tmp_path_factory.mktemp("home"))


def test_the_readme_has_the_two_commands_that_ci_runs() -> None:
    assert 'pip install -e ".[dev]" && pytest' in README
    assert "pip install -e . && python -m experiments.dqn_cartpole" in README
    assert 'pip install --quiet -e ".[dev]"' in (ROOT / ".ci" / "run").read_text()


def test_the_benchmarks_are_those_that_have_tests() -> None:
    tested = (ROOT / "tests" / "runs" / "test_benchmarks.py").read_text()
    named = re.findall(r"^python -m experiments\.(bench_\w+)", README, flags=re.MULTILINE)
    assert sorted(set(named)) == sorted(path.stem for path in (ROOT / "experiments").glob("bench_*.py"))
    assert all(f'"{name}"' in tested for name in named)


@pytest.mark.timeout(900)
def test_the_commands_in_their_order(home: Command) -> None:
    """One after the other in one home: some resume or export what an earlier one left."""
    lines = ["python -m experiments.dqn_cartpole", *commands()]
    assert len(lines) >= 10
    for number, line in enumerate(lines, start=1):
        done = home(*shortened(line, iterations=number), timeout_s=300)
        assert done.code == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    runs = list(home.results.glob("dqn_cartpole_*"))
    assert len(runs) == 5, "one for each command that trains and resumes nothing"
    assert any(list(run.glob("events.out.tfevents.*")) for run in runs)
    policy = next(block for block in blocks("python") if "policy_file" in block)
    done = subprocess.run([sys.executable, "-c", policy], cwd=home.home, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(300)
def test_the_code(home: Command, tmp_path: Path) -> None:
    python = [block for block in blocks("python") if "policy_file" not in block]
    assert len(python) == 5
    for block in python:
        if "experiment.main()" in block:
            (tmp_path / "my_acrobot.py").write_text(block)
            done = home("my_acrobot", "--stop-iters", "1", "--evaluation-duration", "2", cwd=tmp_path)
            assert done.code == 0, done.stderr
            assert "my_acrobot stopped" in done.stdout
        else:
            code = block.replace("env_steps=5_000", "env_steps=1_500")
            code += LEARNS_WITH_IT if "class SmallWeights" in block else ""
            words = [sys.executable, "-c", code]
            env = {"PATH": "/usr/bin:/bin", "HOME": str(home.home), "PYTHONPATH": str(ROOT)}
            done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=env)
            assert done.returncode == 0, f"{block}\n{done.stderr}"


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
