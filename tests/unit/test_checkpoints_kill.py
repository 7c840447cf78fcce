"""``kill -9`` at every point of writing a checkpoint: the older one loads, a torn one is never accepted."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rayground.checkpoints import is_whole, load_checkpoint, save_checkpoint
from rayground.errors import CheckpointError
from rayground.keeper import CheckpointKeeper, kept_checkpoints

# Saves version 2 beside or over version 1, again and again, and dies one operation later each time.
KILLER = """
import os, shutil, signal, sys
from pathlib import Path
import numpy as np, safetensors.numpy
from rayground.checkpoints import save_checkpoint
from rayground.results import whole

def dies_at(point):
    done = iter(range(1000))

    def patch(owner, name, half):
        original = getattr(owner, name)

        def patched(*arguments, **options):
            if next(done) == point:
                half(original, *arguments, **options)
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **options)

        setattr(owner, name, patched)

    def half_write(original, path, data):
        original(path, data[: len(data) // 2])

    def half_save(original, arrays, path):
        original(arrays, path)
        os.truncate(path, path.stat().st_size // 2)

    def half_rmtree(original, path, **options):
        if Path(path).exists():
            next(file for file in Path(path).iterdir()).unlink()

    nothing = lambda original, *arguments, **options: None
    patch(Path, "write_bytes", half_write)
    patch(safetensors.numpy, "save_file", half_save)
    patch(shutil, "rmtree", half_rmtree)
    patch(whole.os, "fsync", nothing)
    patch(Path, "replace", nothing)
    patch(Path, "rename", nothing)

root, mode = Path(sys.argv[1]), sys.argv[2]
for point in range(1000):
    folder = root / f"{point:03d}"
    shutil.copytree(root / "start", folder)
    child = os.fork()
    if child == 0:
        dies_at(point)
        path = folder / ("step_000000001" if mode == "over" else "step_000000002")
        arrays = {"net": {"w": np.full(1000, 2.0)}, "replay": {"obs": np.arange(100)}}
        save_checkpoint(path, state={"version": 2}, arrays=arrays, blobs={"b": bytes(100)}, overwrite=mode == "over")
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
"""


def save(path: Path, version: int, **options) -> None:
    arrays = {"net": {"w": np.full(1000, float(version))}, "replay": {"obs": np.arange(100)}}
    save_checkpoint(path, state={"version": version}, arrays=arrays, blobs={"b": bytes(100)}, **options)


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory):
    root = tmp_path_factory.mktemp("killed")
    for mode in ("beside", "over"):
        save(root / mode / "start" / "step_000000001", 1)
        subprocess.run([sys.executable, "-c", KILLER, root / mode, mode], check=True)
        shutil.rmtree(root / mode / "start")
    return root


@pytest.fixture
def killed(killed_once, tmp_path):
    """Folders of checkpoints after a kill at each point, the last of them after none, by mode."""
    shutil.copytree(killed_once, tmp_path / "killed")  # readers tidy up
    return {mode.name: sorted(mode.iterdir()) for mode in (tmp_path / "killed").iterdir()}


def version(path: Path) -> int:
    loaded = load_checkpoint(path)
    assert loaded.arrays("net")["w"].tolist() == [float(loaded.state["version"])] * 1000
    assert loaded.arrays("replay")["obs"].tolist() == list(range(100))
    return loaded.state["version"]


def test_the_points_cover_the_whole_save(killed):
    for folders in killed.values():
        assert len(folders) > 12
        torn = [[path for path in folder.glob(".*.tmp-*") if not is_whole(path)] for folder in folders]
        assert sum(map(len, torn)) >= 10  # most kills left a torn temporary folder
        assert torn[-1] == []


def test_a_kill_while_writing_a_new_checkpoint(killed):
    found = []
    for folder in killed["beside"]:
        assert version(folder / "step_000000001") == 1
        kept = [one.env_steps for one in kept_checkpoints(folder)]
        assert version(folder / f"step_{kept[-1]:09d}") == kept[-1]
        if kept == [1]:
            with pytest.raises(CheckpointError, match="got nothing"):
                load_checkpoint(folder / "step_000000002")
        found.append(kept)
    assert found == sorted(found)  # once it is there, it is there
    assert found[0] == [1]
    assert found[-1] == [1, 2]


def test_a_kill_while_replacing_a_checkpoint(killed):
    found = []
    for folder in killed["over"]:
        assert any(is_whole(path) for path in folder.iterdir())
        found.append(version(folder / "step_000000001"))
    assert found == sorted(found)
    assert (found[0], found[-1]) == (1, 2)


def test_a_list_of_checkpoints_is_never_without_the_replaced_one(killed):
    for folder in killed["over"]:
        assert [one.env_steps for one in kept_checkpoints(folder)] == [1]


@pytest.mark.parametrize("mode", ["beside", "over"])
def test_the_next_save_cleans_up(killed, mode):
    assert sum(len(list(folder.glob(".*"))) for folder in killed[mode]) >= 10
    for folder in killed[mode]:
        save(folder / "step_000000003", 3)
        assert list(folder.glob(".*")) == []
        assert version(folder / "step_000000001") in (1, 2)
        assert version(folder / "step_000000003") == 3


def test_what_living_processes_write_is_left_alone(tmp_path):
    save(tmp_path / "a", 1)
    host = os.uname().nodename
    ours, foreign = f".b.tmp-{host}-{os.getpid()}", ".c.tmp-another-host-1"
    (tmp_path / ours).mkdir()
    (tmp_path / foreign).mkdir()
    (tmp_path / ".mine-1").mkdir()
    save(tmp_path / "d", 1)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "d", ours, foreign, ".mine-1"}
    os.utime(tmp_path / foreign, (0, 0))
    save(tmp_path / "e", 1)
    assert not (tmp_path / foreign).exists()
    assert (tmp_path / ours).exists()


def test_a_kill_while_deleting_a_checkpoint(tmp_path):
    """The keeper hides a checkpoint before it deletes it, so half of one never blocks its place."""
    save(tmp_path / "step_000000001", 1)
    save(tmp_path / "step_000000002", 2)
    code = (
        "import os, shutil, sys; from pathlib import Path; from rayground.keeper import CheckpointKeeper\n"
        "original = shutil.rmtree\n"
        "def half(path, **options):\n"
        "    if Path(path).exists(): next(Path(path).iterdir()).unlink(); os.kill(os.getpid(), 9)\n"
        "shutil.rmtree = half\n"
        "CheckpointKeeper(Path(sys.argv[1])).rewind(1)"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path], check=False).returncode == -9
    assert not (tmp_path / "step_000000002").exists()
    assert len(list(tmp_path.glob(".*"))) == 1
    keeper = CheckpointKeeper(tmp_path)
    assert keeper.last == tmp_path / "step_000000001"
    save(keeper.path_for(2), 2)
    assert list(tmp_path.glob(".*")) == []
