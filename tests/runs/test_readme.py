"""Every command and every piece of code in the README, as it stands there, with small budgets.

Of what stands together most is run in one process, as it takes seconds to start one.
"""

import itertools
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Command, Done

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
DOCS = sorted((ROOT / "docs").glob("*.md"))
ELSEWHERE = ("pip install", "tensorboard --logdir", "python -m experiments.bench_", "python -m experiments.compare_")
"""CI does the first, for both lines; the second does not end; the others have tests of their own, as a test says."""


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


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
    workers = ["--num-env-runners", "2"] if "a3c" in words[0] else []  # 8 take long to start
    return [*words, *workers, "--stop-iters", str(iterations), "--evaluation-duration", "2"]


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


@pytest.mark.parametrize(("kind", "tests"), [("bench", "test_benchmarks.py"), ("compare", "test_compare.py")])
def test_benchmarks_and_comparisons_are_those_that_have_tests(kind: str, tests: str) -> None:
    tested = (ROOT / "tests" / "runs" / tests).read_text()
    named = re.findall(rf"^python -m experiments\.({kind}_\w+)", README, flags=re.MULTILINE)
    assert sorted(set(named)) == sorted(path.stem for path in (ROOT / "experiments").glob(f"{kind}_*.py"))
    assert all(re.search(rf'\b{name}"', tested) for name in named)


def test_all_experiments_are_in_the_table() -> None:
    table = README.split("\n## Experiments\n")[1].split("\n## ")[0]
    there = {path.stem for path in (ROOT / "experiments").glob("*.py")}
    assert set(re.findall(r"^\| `python -m experiments\.(\w+)", table, flags=re.MULTILINE)) == {
        name for name in there if not name.startswith(("bench_", "compare_", "replay_", "_"))
    }


def done_with(home: Command, lines: list[list[str]]) -> list[Done]:
    """What came of commands: of modules together, of ``rayground`` each in a process of its own."""
    parts = [(own, list(part)) for own, part in itertools.groupby(lines, lambda words: words[0] == "rayground")]
    return [
        done
        for own, part in parts
        for done in ([home(*words) for words in part] if own else home.together(*part, timeout_s=600))
    ]


@pytest.mark.timeout(900)
def test_the_commands_in_their_order(home: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other in one home: some resume or export what an earlier one left."""
    assert len(commands()) >= 10
    first = home("experiments.dqn_cartpole", "--stop-iters", "1", "--evaluation-duration", "2")
    assert first.code == 0, first.stderr
    lines = [shortened(line, number if "--resume" in line else 1) for number, line in enumerate(commands(), start=2)]
    for words, done in zip(lines, done_with(home, lines), strict=True):
        assert done.code == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    runs = list(home.results.glob("dqn_cartpole_*"))
    assert len(runs) == 5, "one for each command that trains and resumes nothing"
    assert any(list(run.glob("events.out.tfevents.*")) for run in runs)
    monkeypatch.chdir(home.home)
    exec(next(block for block in blocks("python") if "policy_file" in block), {})


VALID = """
for config in (config, old_a2c, old_a3c):
    config.validate()
"""
EACH = """
import sys
for number, code in enumerate(sys.argv[1:]):
    exec(compile(code, f"<{number}>", "exec"), {"__name__": "__main__"})
"""


@pytest.mark.timeout(300)
def test_the_code_also_of_the_docs(home: Command, tmp_path: Path) -> None:
    python = [block for block in blocks("python") if "policy_file" not in block]
    assert len(python) == 5
    (experiment,) = (block for block in python if "experiment.main()" in block)
    (tmp_path / "my_acrobot.py").write_text(experiment)
    done = home("my_acrobot", "--stop-iters", "1", "--evaluation-duration", "2", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert "my_acrobot stopped" in done.stdout

    codes = [block.replace("env_steps=5_000", "env_steps=1_500") for block in python if block != experiment]
    codes = [code + (LEARNS_WITH_IT if "class SmallWeights" in code else "") for code in codes]
    codes.append("\n".join([*(block for file in DOCS for block in blocks("python", file.read_text())), VALID]))
    words = [sys.executable, "-c", EACH, *codes]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home.home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=240, env=env)
    assert done.returncode == 0, done.stderr


def test_imports_of_the_old_a2c_and_a3c_say_what_the_docs_say() -> None:
    rows = re.findall(
        r"^\| `(from .+)` \| `(\w+): (.+)` \|$", "\n".join(file.read_text() for file in DOCS), re.MULTILINE
    )
    assert len(rows) == 5
    for line, kind, message in rows:
        with pytest.raises(ImportError) as raised:
            exec(line)
        assert (type(raised.value).__name__, str(raised.value)) == (kind, message)


@pytest.mark.parametrize("file", [ROOT / "README.md", *DOCS], ids=lambda file: file.name)
def test_links_lead_somewhere(file: Path) -> None:
    for target in re.findall(r"\]\(((?!https?://)[^)#]+)\)", file.read_text()):
        assert (file.parent / target).exists(), target
