"""Reading runs back: rows, checkpoints, the newest run; from any path, also after a move."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rayground.checkpoints import load_checkpoint, save_checkpoint
from rayground.errors import CheckpointError, InputError
from rayground.keeper import CheckpointKeeper
from rayground.results.folder import record_resume, write_experiment_json, write_params
from rayground.results.loggers import json_line
from rayground.results.runs import RunFiles, find_runs, resolve_checkpoint, run_folder_of


def make_run(folder: Path, scores: dict[int, float | None], experiment: str = "dqn") -> Path:
    """A run with a checkpoint at each of the env steps, judged by the score."""
    folder.mkdir(parents=True)
    write_experiment_json(folder, experiment=experiment, module="m", command=["m"], flags={}, seed=1, code=Path("/"))
    write_params(folder, {"lr": 0.5})
    keeper = CheckpointKeeper(folder / "checkpoints", keep_last=9)
    rows = []
    for env_steps, score in scores.items():
        save_checkpoint(
            keeper.path_for(env_steps), state={"env_steps": env_steps}, arrays={"net": {"w": np.zeros(3)}}, blobs={}
        )
        keeper.add(keeper.path_for(env_steps), env_steps, score)
        rows.append({"env_steps": env_steps, "iteration": len(rows), "score": score})
    (folder / "result.json").write_text("".join(map(json_line, rows)))
    return folder


def tear(checkpoint: Path) -> None:
    (checkpoint / "net.safetensors").write_bytes(b"torn")


def step(run: Path, env_steps: int) -> Path:
    return run / "checkpoints" / f"step_{env_steps:09d}"


def test_a_run_is_read_back(tmp_path, monkeypatch):
    run = make_run(tmp_path / "run", {100: 1.0, 200: 5.0, 300: None})
    monkeypatch.chdir(tmp_path)
    files = RunFiles("run")
    assert files.folder == run
    assert files == RunFiles(run)
    assert files.rows == [
        {"env_steps": 100, "iteration": 0, "score": 1.0},
        {"env_steps": 200, "iteration": 1, "score": 5.0},
        {"env_steps": 300, "iteration": 2, "score": None},
    ]
    assert files.row_at(299)["score"] == 5.0
    assert files.row_at(300)["score"] is None
    with pytest.raises(InputError, match="at or before env step 99, got none"):
        files.row_at(99)
    assert files.experiment["experiment"] == "dqn"
    assert files.params == {"lr": 0.5}
    assert files.checkpoints == [step(run, 100), step(run, 200), step(run, 300)]
    assert files.last_checkpoint == step(run, 300)
    assert files.best_checkpoint == step(run, 200)
    assert files.seed_folders == []


def test_the_frame_is_wide_and_current(tmp_path):
    run = make_run(tmp_path / "run", {})
    assert RunFiles(run).frame.empty
    rows = [{"env_steps": 1, "b": 2.5}, {"env_steps": 2, "late": "x", "b": None}]
    (run / "result.json").write_text("".join(map(json_line, rows)) + '{"env_steps": 3, "b"')  # being written
    frame = RunFiles(run).frame
    assert list(frame.columns) == ["env_steps", "b", "late"]
    assert frame["env_steps"].tolist() == [1, 2]
    assert frame["b"].dtype == float
    np.testing.assert_array_equal(frame["b"], [2.5, np.nan])
    assert frame["late"].isna().tolist() == [True, False]
    assert frame["late"][1] == "x"


def test_torn_checkpoints_are_left_out(tmp_path):
    run = make_run(tmp_path / "run", {100: 1.0, 200: 5.0, 300: 3.0})
    tear(step(run, 200))
    files = RunFiles(run)
    assert files.checkpoints == [step(run, 100), step(run, 300)]
    assert files.best_checkpoint == step(run, 300)
    tear(step(run, 300))
    assert files.last_checkpoint == files.best_checkpoint == step(run, 100)


def test_seeds(tmp_path):
    group = make_run(tmp_path / "group", {})
    shutil.rmtree(group / "checkpoints")
    for seed, best in ((10, 3.0), (2, 7.0)):
        make_run(group / f"seed_{seed}", {100: best, 200: 1.0})
    files = RunFiles(group)
    assert [path.name for path in files.seed_folders] == ["seed_2", "seed_10"]
    assert files.checkpoints == []
    with pytest.raises(InputError, match=f"^{group}: holds 2 seeds"):
        _ = files.frame
    assert resolve_checkpoint(group, prefer="best") == step(group / "seed_2", 100)
    assert resolve_checkpoint("latest", storage=tmp_path, prefer="best") == step(group / "seed_2", 100)
    with pytest.raises(
        CheckpointError, match=f"^{group}: holds several seeds, give the folder of one: seed_2, seed_10"
    ):
        resolve_checkpoint(group)
    for name in ("last_checkpoint", "best_checkpoint"):
        with pytest.raises(CheckpointError, match=f"^{group}: holds several seeds, .*: seed_2, seed_10"):
            getattr(files, name)
    assert resolve_checkpoint(group / "seed_10") == step(group / "seed_10", 200)
    for seed, env_steps in ((1, 300), (11, 100)):  # equal scores: the one that trained longer
        make_run(group / f"seed_{seed}", {env_steps: 8.0})
    assert resolve_checkpoint(group, prefer="best") == step(group / "seed_1", 300)


def test_what_is_no_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("empty").mkdir()
    for name, what in {"gone": "nothing there", "file": "a file", "empty": "one without experiment.json"}.items():
        with pytest.raises(InputError, match=f"^{tmp_path / name}: expected a run folder, got {what}$"):
            RunFiles(name)


def test_runs_are_found_newest_first(tmp_path):
    runs = [make_run(tmp_path / name, {}, experiment) for name, experiment in (("c", "x"), ("a", "y"), ("b", "x"))]
    (tmp_path / "other").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "experiment.json").write_text("{")
    assert find_runs(tmp_path) == [runs[2], runs[1], runs[0]]
    assert find_runs(tmp_path, "x") == [runs[2], runs[0]]
    assert find_runs(tmp_path, "z") == find_runs(tmp_path / "gone") == []
    record_resume(runs[0], command=[], changed={}, from_checkpoint="c", env_steps=1)
    assert find_runs(str(tmp_path)) == [runs[0], runs[2], runs[1]]


def test_a_checkpoint_is_found_from_anywhere(tmp_path, monkeypatch):
    run = make_run(tmp_path / "store" / "run", {100: 5.0, 200: 1.0})
    last = step(run, 200)
    monkeypatch.setenv("HOME", str(tmp_path))
    elsewhere = tmp_path / "else" / "where"
    elsewhere.mkdir(parents=True)
    for working, texts in {
        tmp_path: ["store/run", "./store/run/", "store/run/checkpoints/step_000000200"],
        run: [".", "checkpoints/step_000000200", "../run"],
        elsewhere: ["../../store/run", "~/store/run", "~/store/run/checkpoints/step_000000200", str(run), run],
    }.items():
        monkeypatch.chdir(working)
        for text in texts:
            assert resolve_checkpoint(text) == last
    assert resolve_checkpoint(run, prefer="best") == step(run, 100)
    assert resolve_checkpoint(step(run, 200), prefer="best") == last
    assert run_folder_of("~/store/run/checkpoints/step_000000200") == run


def test_a_moved_run_works(tmp_path):
    run = make_run(tmp_path / "run", {100: 5.0, 200: 1.0})
    moved = tmp_path / "new" / "place"
    moved.parent.mkdir()
    run.rename(moved)
    assert RunFiles(moved).best_checkpoint == resolve_checkpoint(moved, prefer="best") == step(moved, 100)
    assert run_folder_of(step(moved, 100)) == moved
    assert load_checkpoint(resolve_checkpoint("latest", storage=moved.parent)).state == {"env_steps": 200}
    assert str(tmp_path) not in (moved / "checkpoints" / "index.json").read_text()
    with pytest.raises(CheckpointError, match=f"^{run}: expected a run or checkpoint folder, got nothing there$"):
        resolve_checkpoint(run)


def test_latest(tmp_path, monkeypatch):
    runs = {
        name: make_run(tmp_path / "ray_results" / name, {100: 1.0}, name[:3])
        for name in ("dqn_1", "dqn_2", "ppo_3", "dqn_4")
    }
    monkeypatch.setenv("HOME", str(tmp_path))
    tear(step(runs["dqn_4"], 100))
    assert resolve_checkpoint("latest") == step(runs["ppo_3"], 100)
    assert resolve_checkpoint("latest", name="dqn") == step(runs["dqn_2"], 100)
    storage = tmp_path / "ray_results"
    with pytest.raises(CheckpointError, match=f"^{storage}: expected a run of a2c with a whole checkpoint, got 0 runs"):
        resolve_checkpoint("latest", name="a2c")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=f"^{tmp_path}/none: expected a run with a whole checkpoint"):
        resolve_checkpoint("latest", storage="none")


def test_what_is_wrong_with_a_path_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bare, torn = make_run(tmp_path / "bare", {}), make_run(tmp_path / "torn", {100: 1.0, 200: 2.0})
    for env_steps in (100, 200):
        tear(step(torn, env_steps))
    Path("file").touch()
    Path("empty").mkdir()
    size = f"{torn}/checkpoints/step_000000200: net.safetensors is damaged: expected 88 bytes, got 4"
    for text, problem in {
        "xyz": f"{tmp_path}/xyz: expected a run or checkpoint folder, got nothing there",
        "tron": f"{tmp_path}/tron: expected a run or checkpoint folder, got nothing there; did you mean 'torn'?",
        "no/such/run": f"{tmp_path}/no/such/run: expected a run or checkpoint folder, got nothing there",
        "file": f"{tmp_path}/file: expected a run or checkpoint folder, got a file",
        "empty": f"{tmp_path}/empty: expected a checkpoint, got an empty folder",
        "bare": f"{bare}: this run holds no whole checkpoint; it ended before it saved one",
        "torn": f"{torn}: this run holds no whole checkpoint; {size}",
        "torn/checkpoints/step_000000200": size,
    }.items():
        with pytest.raises(CheckpointError) as caught:
            resolve_checkpoint(text)
        assert str(caught.value) == problem
    save_checkpoint(Path("outside"), state={}, arrays={}, blobs={})
    for text in ("outside", "torn"):
        with pytest.raises(
            CheckpointError, match=f"^{tmp_path / text}: expected a checkpoint in the checkpoints folder"
        ):
            run_folder_of(text)


def test_reading_needs_neither_ray_nor_torch(tmp_path):
    run = make_run(tmp_path / "run", {100: 1.0})
    code = (
        "import sys; sys.modules['ray'] = sys.modules['torch'] = None\n"
        "from rayground.results.runs import RunFiles, resolve_checkpoint\n"
        "print(len(RunFiles(sys.argv[1]).frame), resolve_checkpoint(sys.argv[1]).name)"
    )
    done = subprocess.run([sys.executable, "-c", code, run], capture_output=True, text=True, check=True)
    assert done.stdout == "1 step_000000100\n"
