"""The run folder: unique, and with a record of code, versions, machine and settings."""

import dataclasses
import datetime
import enum
import json
import subprocess
import sys
import types
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayground.errors import InputError, RunError
from rayground.results import files, folder, provenance

PYTHON = sys.executable


def describe(run: Path, **changes) -> dict:
    settings = {"experiment": "dqn", "module": "experiments.dqn", "command": ["dqn.py", "--seed", "3"]}
    folder.write_experiment_json(run, **{**settings, "flags": {"seed": 3}, "seed": 3, **changes})
    return json.loads((run / "experiment.json").read_text())


def git(where: Path, *arguments: str) -> str:
    settings = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", "-C", where, *settings, *arguments], check=True, capture_output=True, text=True
    ).stdout


def test_runs_of_the_same_second_get_folders_of_their_own(tmp_path, monkeypatch):
    now = types.SimpleNamespace(now=lambda: datetime.datetime(2026, 1, 2, 3, 4, 5, 999_999))
    monkeypatch.setattr(folder, "datetime", types.SimpleNamespace(datetime=now))
    names = [folder.create_run_folder(tmp_path / "new" / "er", "dqn").name for _ in range(3)]
    assert names == ["dqn_2026-01-02_03-04-05", "dqn_2026-01-02_03-04-05_2", "dqn_2026-01-02_03-04-05_3"]


def test_run_folder_is_named_by_local_time(tmp_path):
    before = datetime.datetime.now().replace(microsecond=0)
    made = folder.create_run_folder(tmp_path, "a_b")
    stamp = datetime.datetime.strptime(made.name, "a_b_%Y-%m-%d_%H-%M-%S")
    assert before <= stamp <= datetime.datetime.now()


def test_processes_never_share_a_folder(tmp_path):
    code = (
        "import datetime, sys, types; from rayground.results import folder\n"
        "now = types.SimpleNamespace(now=lambda: datetime.datetime(2026, 1, 2))\n"
        "folder.datetime = types.SimpleNamespace(datetime=now)\n"
        "for _ in range(20): print(folder.create_run_folder(sys.argv[1], 'x'))"
    )
    running = [
        subprocess.Popen([PYTHON, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    made = [line for process in running for line in process.communicate()[0].split()]
    assert len(made) == len(set(made)) == 60
    assert {Path(path).name for path in made} == {path.name for path in tmp_path.iterdir()}


def test_storage_that_cannot_be_used_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    for storage in ("file", "file/below"):
        with pytest.raises(InputError, match=f"^{tmp_path / storage}: .*a file is in the way"):
            folder.create_run_folder(storage, "x")
    with pytest.raises(InputError, match=r"^/proc/nowhere: cannot store runs here: No such file"):
        folder.create_run_folder("/proc/nowhere", "x")
    for name in ("", "..", "a/b"):
        with pytest.raises(InputError, match="can name a folder"):
            folder.create_run_folder(tmp_path, name)


def test_storage_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder.create_run_folder(folder.DEFAULT_STORAGE, "x").parent == tmp_path / "ray_results"


def test_experiment_json(tmp_path):
    before = datetime.datetime.now(datetime.UTC)
    content = describe(tmp_path, flags={"storage": Path("/x"), "lr": float("inf")}, code=tmp_path)
    assert content["experiment"] == "dqn"
    assert content["module"] == "experiments.dqn"
    assert content["command"] == ["dqn.py", "--seed", "3"]
    assert content["flags"] == {"storage": "/x", "lr": "inf"}
    assert content["seed"] == 3
    assert content["resumes"] == []
    assert before <= datetime.datetime.fromisoformat(content["started"]) <= datetime.datetime.now(datetime.UTC)
    assert content["versions"]["numpy"] == np.__version__
    assert content["versions"]["gymnasium"] == gym.__version__
    assert content["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert set(content["machine"]) == {"hostname", "os", "cpu", "cores", "memory_bytes", "gpus"}
    assert content["git_commit"] is content["git_diff"] is None  # tmp_path is in no repository
    assert [path.name for path in tmp_path.iterdir()] == ["experiment.json"]


def test_a_missing_package_or_git_is_null(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "PACKAGES", ("numpy", "no-such-package"))
    monkeypatch.setenv("PATH", str(tmp_path))
    content = describe(tmp_path, code=Path.cwd())
    assert content["versions"]["no-such-package"] is None
    assert content["git_commit"] is content["git_diff"] is None


def test_commit_and_changes_of_the_code_that_runs(tmp_path):
    code = tmp_path / "code"
    (code / "sub").mkdir(parents=True)
    git(code, "init", "-q")
    assert provenance.git_state(code) == {"git_commit": None, "git_diff": None}  # no commit yet
    (code / "a.py").write_text("old = 1\n")
    git(code, "add", "a.py")
    git(code, "commit", "-qm", "a")
    assert provenance.git_state(code / "sub") == {"git_commit": git(code, "rev-parse", "HEAD").strip(), "git_diff": ""}
    (code / "a.py").write_text("new = 2\n")
    (code / "experiment.py").write_text("lr = 3\nn = 4")
    (code / "data.bin").write_text("left out")
    diff = provenance.git_state(code / "sub")["git_diff"]
    assert diff.endswith("-old = 1\n+new = 2\n--- /dev/null\n+++ b/experiment.py\n@@ -0,0 +1,2 @@\n+lr = 3\n+n = 4\n")
    assert "data.bin" not in diff
    git(code, "checkout", "-q", ".")
    (code / "experiment.py").unlink()
    (code / "again.diff").write_text(diff)
    git(code, "apply", "again.diff")
    assert (code / "a.py").read_text() == "new = 2\n"
    assert (code / "experiment.py").read_text() == "lr = 3\nn = 4\n"


def test_a_long_diff_is_cut_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "LARGEST_DIFF", 1000)
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "a")
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("é" * 900)
    diff = provenance.git_state(tmp_path)["git_diff"]
    kept, _, last = diff.rstrip("\n").rpartition("\n")
    assert last == "[cut here: the diff is longer than the 1,000 bytes that are kept]"
    assert 990 < len(kept.encode()) <= 1000


def test_resumes_are_appended(tmp_path, tmp_path_factory):
    describe(tmp_path)
    code = tmp_path_factory.mktemp("code")
    git(code, "init", "-q")
    git(code, "commit", "-q", "--allow-empty", "-m", "a")
    commit = git(code, "rev-parse", "HEAD").strip()
    (code / "a.py").write_text("a\n")
    for steps in (100, 200):
        folder.record_resume(
            tmp_path,
            command=["r.py"],
            changed={"lr": np.float32(0.5)},
            from_checkpoint=tmp_path / "checkpoints" / f"step_{steps:09d}",
            env_steps=steps,
            code=code,
        )
    content = json.loads((tmp_path / "experiment.json").read_text())
    assert content["seed"] == 3
    assert [resume["env_steps"] for resume in content["resumes"]] == [100, 200]
    first = content["resumes"][0]
    assert datetime.datetime.fromisoformat(first.pop("time")).tzinfo is datetime.UTC
    assert first.pop("versions") == provenance.versions()
    assert (first.pop("git_commit"), first.pop("git_diff")) == (
        commit,
        "--- /dev/null\n+++ b/a.py\n@@ -0,0 +1,1 @@\n+a\n",
    )
    assert first == {
        "command": ["r.py"],
        "changed": {"lr": 0.5},
        "from_checkpoint": "checkpoints/step_000000100",
        "env_steps": 100,
    }
    with pytest.raises(InputError, match=f"^{tmp_path}/gone/experiment.json: "):
        folder.record_resume(tmp_path / "gone", command=[], changed={}, from_checkpoint="x", env_steps=0)


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Stop:
    steps: np.int64
    space: gym.Space


class Thing:
    pass


def test_params_are_readable(tmp_path):
    space = gym.spaces.Box(-1.0, 1.0, (4,))
    values = {
        "z": [1, (2.5, None), {3}],
        "a": {"class": Thing, "function": describe, "object": Thing(), "colour": Colour.RED},
        "stop": Stop(np.int64(7), space),
        "numbers": [np.float32(0.5), np.bool_(True), np.array([1, 2]), np.zeros((84, 84), np.uint8), float("nan")],
        5: {"key": Path("/x")},
        Thing: "by class",
    }
    text = folder.write_params(tmp_path, values).read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {
        "z": [1, [2.5, None], [3]],
        "a": {
            "class": f"{__name__}:Thing",
            "function": f"{__name__}:describe",
            "object": f"<{__name__}.Thing object>",
            "colour": "Colour.RED",
        },
        "stop": {"class": f"{__name__}:Stop", "steps": 7, "space": "Box(-1.0, 1.0, (4,), float32)"},
        "numbers": [0.5, True, [1, 2], "uint8 array of shape [84, 84]", "nan"],
        "5": {"key": "/x"},
        f"{__name__}:Thing": "by class",
    }
    assert list(json.loads(text)) == sorted(json.loads(text))


def test_a_full_disk_keeps_the_old_file(tmp_path, monkeypatch):
    describe(tmp_path)
    before = (tmp_path / "experiment.json").read_text()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(
        RunError, match=rf"^{tmp_path}: cannot be written: No space left on device; [\d,.]+ [kMGT]B are free"
    ):
        describe(tmp_path, seed=4)
    assert (tmp_path / "experiment.json").read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["experiment.json"]


numbers_of_numpy = st.sampled_from([np.int8, np.uint64, np.float16, np.float64]).map(lambda kind: kind(3))
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | numbers_of_numpy
keys = st.text().filter(lambda key: key != "$float")
states = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=10)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(keys, states))
def test_any_state_comes_back_through_strict_json(state):
    text = files.dump_state(state)
    json.loads(text, parse_constant=pytest.fail)
    np.testing.assert_equal(files.load_state(text), state)  # NaN equals NaN here


def test_state_that_would_change_is_refused():
    for value, kind in (
        (np.zeros(2), "ndarray"),
        ({1: 2}, "dict"),
        ({1}, "set"),
        (b"", "bytes"),
        ({"$float": 1}, "dict"),
    ):
        with pytest.raises(TypeError, match=rf"^state\['a'\]\[1\]: expected JSON with string keys, got {kind}$"):
            files.dump_state({"a": [0, value]})


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.dictionaries(st.sampled_from("ab"), st.text(max_size=30)), max_size=4),
    st.sampled_from(['{"torn', "", "[]", '{"whole": 1}']),
    st.integers(1, 40),
)
def test_the_last_row_is_the_last_of_all_rows(tmp_path_factory, rows, torn, block):
    path = tmp_path_factory.mktemp("rows") / "result.json"
    assert files.read_last_row(path) is None
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + torn)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_TAIL_BYTES", block)
        assert files.read_last_row(path) == (files.read_rows(path) or [None])[-1]


def test_two_processes_never_run_in_one_folder(tmp_path):
    code = f"""
from pathlib import Path
from rayground.results.folder import alone_in
with alone_in(Path({str(tmp_path)!r})):
    print("in", flush=True)
    input()
"""
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "in\n"
    with pytest.raises(InputError, match="another process is running in this folder"), folder.alone_in(tmp_path):
        pass
    other.kill()
    other.wait()
    with folder.alone_in(tmp_path):
        pass
