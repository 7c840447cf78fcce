"""Which checkpoints of a run stay, and how they are found again without their index."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayground.checkpoints import save_checkpoint
from rayground.errors import CheckpointError, InputError, RunError
from rayground.keeper import CheckpointKeeper, env_steps_of, kept_checkpoints
from rayground.results import files


def add(keeper: CheckpointKeeper, env_steps: int, score: float | None) -> Path:
    path = keeper.path_for(env_steps)
    save_checkpoint(path, state={"env_steps": env_steps}, arrays={"net": {"w": np.zeros(3)}}, blobs={})
    keeper.add(path, env_steps, score)
    return path


def steps(folder: Path) -> list[int]:
    return [one.env_steps for one in kept_checkpoints(folder)]


def test_names(tmp_path):
    keeper = CheckpointKeeper(tmp_path / "new" / "checkpoints")
    assert keeper.path_for(12_000) == tmp_path / "new" / "checkpoints" / "step_000012000"
    assert env_steps_of(keeper.path_for(12_000)) == 12_000
    assert env_steps_of(keeper.path_for(10**10)) == 10**10
    for name in ("step_", "step_1x", "best"):
        with pytest.raises(CheckpointError, match=f"^{tmp_path / name}: expected a checkpoint of a run"):
            env_steps_of(tmp_path / name)


def test_best_and_last_stay(tmp_path):
    keeper = CheckpointKeeper(tmp_path)
    assert keeper.last is keeper.best is keeper.best_score is None
    add(keeper, 100, 5.0)
    add(keeper, 200, 9.0)
    assert steps(tmp_path) == [200]
    add(keeper, 300, 7.0)
    assert steps(tmp_path) == [200, 300]
    add(keeper, 400, None)
    assert steps(tmp_path) == [200, 400]
    assert keeper.last == tmp_path / "step_000000400"
    assert keeper.best == tmp_path / "step_000000200"
    assert keeper.best_score == 9.0
    add(keeper, 500, 9.0)  # of equals the later one
    assert steps(tmp_path) == [500]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.json", "step_000000500"]


@settings(deadline=None, max_examples=25)
@given(
    scores=st.lists(st.none() | st.sampled_from([1.0, 2.0, 3.0, math.nan, math.inf]), min_size=1, max_size=6),
    keep_best=st.integers(0, 3),
    keep_last=st.integers(1, 3),
)
def test_any_scores(tmp_path_factory, scores, keep_best, keep_last):
    folder = tmp_path_factory.mktemp("any")
    keeper = CheckpointKeeper(folder, keep_best, keep_last)
    expected: dict[int, float | None] = {}
    for number, score in enumerate(scores):
        add(keeper, number, score)
        expected[number] = score if score in (1.0, 2.0, 3.0) else None
        scored = sorted((number for number in expected if expected[number]), key=lambda n: (expected[n], n))
        stay = set(sorted(expected)[-keep_last:]) | set(scored[len(scored) - min(keep_best, len(scored)) :])
        expected = {number: expected[number] for number in expected if number in stay}
        assert [(one.env_steps, one.score) for one in kept_checkpoints(folder)] == sorted(expected.items())


@pytest.mark.parametrize("index", [None, "", "{", "[]", '{"scores": 3}', '{"scores": {"step_000000100": "x"}}'])
def test_a_missing_or_damaged_index_only_costs_scores(tmp_path, index):
    keeper = CheckpointKeeper(tmp_path)
    add(keeper, 100, 9.0)
    add(keeper, 200, 1.0)
    (tmp_path / "index.json").unlink() if index is None else (tmp_path / "index.json").write_text(index)
    keeper = CheckpointKeeper(tmp_path)
    assert steps(tmp_path) == [100, 200]
    assert keeper.best_score is None
    assert keeper.best == keeper.last == tmp_path / "step_000000200"
    add(keeper, 300, 2.0)
    assert steps(tmp_path) == [300]


def test_a_stale_index_and_torn_or_foreign_folders(tmp_path):
    keeper = CheckpointKeeper(tmp_path, keep_last=9)
    for env_steps in (100, 200, 300, 400):
        add(keeper, env_steps, float(env_steps))
    for file in keeper.path_for(400).iterdir():
        file.unlink()
    keeper.path_for(400).rmdir()  # in the index, not on the disk
    (keeper.path_for(300) / "net.safetensors").write_bytes(b"torn")
    save_checkpoint(keeper.path_for(250), state={}, arrays={}, blobs={})  # on the disk, not in the index
    save_checkpoint(tmp_path / "step_mine", state={}, arrays={}, blobs={})
    assert [(one.env_steps, one.score) for one in kept_checkpoints(tmp_path)] == [
        (100, 100.0),
        (200, 200.0),
        (250, None),
    ]
    assert keeper.best == keeper.path_for(200)
    assert keeper.last == keeper.path_for(250)


def test_rewind_deletes_the_other_branch(tmp_path):
    keeper = CheckpointKeeper(tmp_path, keep_last=9)
    for env_steps in (100, 200, 300, 400):
        add(keeper, env_steps, float(env_steps))
    (keeper.path_for(400) / "manifest.json").unlink()
    keeper.rewind(200)
    assert [path.name for path in sorted(tmp_path.glob("step_*"))] == ["step_000000100", "step_000000200"]
    assert list(tmp_path.glob(".*")) == []
    assert json.loads((tmp_path / "index.json").read_text()) == {
        "scores": {"step_000000100": 100.0, "step_000000200": 200.0}
    }
    add(keeper, 400, None)  # has no score of the old branch
    assert keeper.best == keeper.path_for(200)


def test_a_kill_during_rewind_leaves_no_score_for_the_next_checkpoint_of_the_name(tmp_path, monkeypatch):
    keeper = CheckpointKeeper(tmp_path, keep_last=9)
    add(keeper, 100, 1.0)
    add(keeper, 200, 500.0)

    def killed(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("rayground.keeper.delete_folder", killed)
        with pytest.raises(KeyboardInterrupt):
            keeper.rewind(100)
    assert keeper.best_score == 1.0


def test_wrong_use(tmp_path):
    for best, last in ((-1, 1), (1, 0)):
        with pytest.raises(InputError, match=f"keep_best >= 0 and keep_last >= 1, got {best} and {last}"):
            CheckpointKeeper(tmp_path / "x", best, last)
    keeper = CheckpointKeeper(tmp_path)
    with pytest.raises(ValueError, match=r"expected .*step_000000100, got "):
        keeper.add(tmp_path / "step_000000200", 100, None)


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    keeper = CheckpointKeeper(tmp_path)
    path = add(keeper, 100, 1.0)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(RunError, match=f"^{tmp_path}: cannot be written: No space left on device"):
        keeper.add(path, 100, 2.0)
    assert keeper.best_score == 1.0
