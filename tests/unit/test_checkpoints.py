"""The checkpoint format: everything comes back as it was, and nothing damaged is taken for whole."""

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayground import checkpoints
from rayground.checkpoints import is_whole, load_checkpoint, save_checkpoint, validate
from rayground.errors import CheckpointError, InputError, RunError
from rayground.results import whole

KINDS = ["bool", "float16", "float32", "float64"] + [f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64)]


def save(path: Path, version: int = 1, **options) -> Path:
    return save_checkpoint(
        path,
        state={"version": version},
        arrays={"net": {"w": np.full(1000, version, np.float32)}, "replay": {"obs": np.arange(500)}},
        blobs={"config.pkl": b"config"},
        **options,
    )


def left_over(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_everything_comes_back(tmp_path):
    rng = np.random.default_rng(3)
    rng.random(7)
    state = {"rng": rng.bit_generator.state, "steps": np.int64(12), "best": float("-inf"), "none": [None, (1, "é")]}
    arrays = {kind: np.arange(-3, 3).astype(kind).reshape(2, 3) for kind in KINDS}
    shapes = {
        "zero_d": np.array(7, np.int16),
        "empty": np.zeros((0, 4), np.float32),
        "fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        "strided": np.arange(20)[::3],
        "reversed": np.arange(5)[::-1],
        "big_endian": np.arange(4, dtype=">i4"),
        "nan": np.array([np.nan, -0.0, np.inf]),
    }
    path = save_checkpoint(
        tmp_path / "deep" / "er",
        state=state,
        arrays={"kinds": arrays, "shapes": shapes, "none": {}},
        blobs={"b.pkl": b"\0\xff"},
    )
    assert path == tmp_path / "deep" / "er"
    loaded = load_checkpoint(path)
    again = np.random.default_rng()
    again.bit_generator.state = loaded.state["rng"]
    assert again.random(5).tolist() == rng.random(5).tolist()
    assert loaded.state["steps"] == 12
    assert loaded.state["best"] == float("-inf")
    assert loaded.state["none"] == [None, [1, "é"]]
    assert loaded.groups == ("kinds", "none", "shapes")
    assert loaded.blobs == ("b.pkl",)
    assert loaded.blob("b.pkl") == b"\0\xff"
    assert loaded.arrays("none") == {}
    for group, saved in (("kinds", arrays), ("shapes", shapes)):
        got = loaded.arrays(group)
        assert got.keys() == saved.keys()
        for name, array in saved.items():
            np.testing.assert_array_equal(got[name], array, strict=name != "big_endian")
            assert got[name].flags.writeable
    json.loads((path / "state.json").read_text(), parse_constant=pytest.fail)
    assert np.signbit(loaded.arrays("shapes")["nan"][1])


def test_manifest_lists_every_other_file(tmp_path):
    path = save(tmp_path / "ck")
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["format"] == 1
    assert manifest["files"].keys() | {"manifest.json"} == {file.name for file in path.iterdir()}
    assert manifest["files"]["config.pkl"] == {
        "bytes": 6,
        "sha256": "b79606fb3afea5bd1609ed40b622142f1c98125abcfe89a76a661b0e8e343910",
    }
    assert len({file.stat().st_mode for file in path.iterdir()}) == 1  # all as the umask says
    assert left_over(tmp_path) == []


def test_what_cannot_come_back_the_same_is_refused(tmp_path):
    def attempt(state=None, arrays=None, blobs=None):
        save_checkpoint(tmp_path / "ck", state=state or {}, arrays=arrays or {}, blobs=blobs or {})

    with pytest.raises(TypeError, match=r"^state\['rng'\]: .* got ndarray"):
        attempt(state={"rng": np.zeros(2)})
    for array, kind in ((np.zeros(2, complex), "complex128"), (np.array(["a"]), "str32"), ([1.0], "list")):
        with pytest.raises(
            TypeError, match=f"^checkpoint array net/w: expected an array of bools or numbers, got {kind}"
        ):
            attempt(arrays={"net": {"w": array}})
    for name in ("manifest.json", "state.json", "a/b", "..", ".hidden", "x.safetensors", ""):
        with pytest.raises(ValueError, match="expected a plain file name"):
            attempt(blobs={name: b""})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_is_only_replaced_when_asked(tmp_path):
    (tmp_path / "empty").mkdir()
    save(tmp_path / "empty")
    path = save(tmp_path / "ck")
    (tmp_path / "file").write_text("mine")
    for taken in (path, tmp_path / "file"):
        with pytest.raises(InputError, match=f"^{taken}: expected a new or empty folder"):
            save(taken, version=2)
    with pytest.raises(InputError):
        save(tmp_path / "file", overwrite=True)
    assert load_checkpoint(path).state == {"version": 1}
    save(path, version=2, overwrite=True)
    assert load_checkpoint(path).state == {"version": 2}
    assert (tmp_path / "file").read_text() == "mine"
    assert left_over(tmp_path) == []


def damage(path: Path, file: str, change) -> None:
    data = (path / file).read_bytes()
    (path / file).write_bytes(change(data))


def flip(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize("file", ["state.json", "net.safetensors", "replay.safetensors", "config.pkl"])
def test_a_flipped_bit_is_found_when_loading(tmp_path, file):
    path = save(tmp_path / "ck")
    damage(path, file, flip)
    assert is_whole(path)  # sizes only
    with pytest.raises(CheckpointError, match=f"^{path}: {file} is damaged: its SHA-256"):
        load_checkpoint(path)


def test_groups_that_nobody_reads_are_not_hashed(tmp_path):
    path = save(tmp_path / "ck")
    damage(path, "replay.safetensors", flip)
    loaded = load_checkpoint(path, groups=["net"])
    assert loaded.arrays("net")["w"].tolist() == [1.0] * 1000
    with pytest.raises(CheckpointError, match=f"^{path}: has no arrays 'replay'"):
        loaded.arrays("replay")
    with pytest.raises(CheckpointError, match=f"^{path}: has no arrays 'nett'; did you mean 'net'"):
        load_checkpoint(path, groups=["nett"])
    with pytest.raises(CheckpointError, match=f"^{path}: has no file 'config'; did you mean 'config.pkl'"):
        loaded.blob("config")


@pytest.mark.parametrize(
    ("file", "found"),
    [
        ("net.safetensors", "4,0.. bytes, got 10"),
        ("config.pkl", "6 bytes, got 0"),
        ("state.json", "14 bytes, got no such file"),
    ],
)
def test_a_torn_file_is_named(tmp_path, monkeypatch, file, found):
    path = save(tmp_path / "ck")
    if "no such" in found:
        (path / file).unlink()
    else:
        os.truncate(path / file, int(found.split()[-1]))
    monkeypatch.chdir(tmp_path)
    assert not is_whole(Path("ck"))
    with pytest.raises(CheckpointError, match=f"^{path}: {file} is damaged: expected {found}$"):
        load_checkpoint(Path("ck"))


def test_other_things_that_are_no_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    Path("file").touch()
    Path("empty").mkdir()
    save(Path("bare"))
    Path("bare/manifest.json").unlink()
    for text, problem in {
        "gone": f"{tmp_path}/gone: expected a checkpoint folder, got nothing",
        "~/gone": f"{tmp_path}/gone: expected a checkpoint folder, got nothing",
        "empty/../file": f"{tmp_path}/file: expected a checkpoint folder, got a file",
        "empty": f"{tmp_path}/empty: expected a checkpoint, got an empty folder",
        "bare": f"{tmp_path}/bare: expected a whole checkpoint, but it has no manifest.json",
    }.items():
        with pytest.raises(CheckpointError) as caught:
            load_checkpoint(Path(text))
        assert str(caught.value) == problem
        assert not is_whole(Path(text))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format": 1}', '{"format": 1, "files": {"a": 3}}', '{"format": 1, "files": []}']
)
def test_a_damaged_manifest(tmp_path, text):
    path = save(tmp_path / "ck")
    (path / "manifest.json").write_text(text)
    with pytest.raises(CheckpointError, match=f"^{path}: manifest.json is damaged"):
        validate(path)


def test_a_manifest_without_a_state_and_a_newer_format(tmp_path):
    path = save(tmp_path / "ck")
    (path / "manifest.json").write_text('{"format": 1, "files": {}}')
    with pytest.raises(CheckpointError, match=f"^{path}: expected a checkpoint, but manifest.json lists no state.json"):
        validate(path)
    (path / "manifest.json").write_text('{"format": 2, "files": {}}')
    with pytest.raises(CheckpointError, match=f"^{path}: expected checkpoint format 1, got 2; update rayground"):
        validate(path)


@pytest.fixture(scope="module")
def whole_checkpoint(tmp_path_factory):
    return save(tmp_path_factory.mktemp("whole") / "ck")


@settings(deadline=None)
@given(data=st.data())
def test_no_truncation_is_ever_taken_for_whole(whole_checkpoint, data):
    file = data.draw(st.sampled_from(sorted(whole_checkpoint.iterdir())))
    content = file.read_bytes()
    os.truncate(file, data.draw(st.integers(0, len(content) - 2)))  # the manifest's last byte is a mere line feed
    torn = not is_whole(whole_checkpoint)
    file.write_bytes(content)
    assert torn
    assert is_whole(whole_checkpoint)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), OSError(30, "Read-only file system")])
@pytest.mark.parametrize("step", ["mkdir", "write_bytes", "save_file", "fsync", "rename"])
def test_a_full_or_readonly_disk_keeps_the_old_checkpoint(tmp_path, monkeypatch, error, step):
    path = save(tmp_path / "ck")

    def fail(*arguments, **options):
        raise error

    where = {"fsync": whole.os, "save_file": checkpoints.safetensors.numpy}.get(step, Path)
    with monkeypatch.context() as patch:
        patch.setattr(where, step, fail)
        with pytest.raises(RunError) as caught:
            save(path, version=2, overwrite=True)
    message = str(caught.value)
    assert message.startswith(f"{path}: the checkpoint could not be written ({error.strerror}): it needs 8.0 kB, ")
    assert message.endswith(" are free; make room, then resume from the checkpoint before it")
    assert "\n" not in message
    assert load_checkpoint(path).state == {"version": 1}
    assert left_over(tmp_path) == []


def test_a_failed_second_rename_puts_the_old_checkpoint_back(tmp_path, monkeypatch):
    path = save(tmp_path / "ck")
    rename = Path.rename

    def second_fails(self, target):
        if ".tmp-" in self.name:
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", second_fails)
    with pytest.raises(RunError, match=r"Input/output error"):
        save(path, version=2, overwrite=True)
    assert load_checkpoint(path).state == {"version": 1}
    assert left_over(tmp_path) == []


def test_a_file_size_limit_of_the_system(tmp_path):
    code = (
        "import resource, sys, numpy as np; from pathlib import Path\n"
        "from rayground.checkpoints import save_checkpoint\n"
        "from rayground.errors import RunError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try: save_checkpoint(Path(sys.argv[1]), state={}, arrays={'net': {'w': np.zeros(500_000)}}, blobs={})\n"
        "except RunError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "ck"], capture_output=True, text=True, check=False)
    assert done.stdout.startswith(f"{tmp_path}/ck: the checkpoint could not be written (")
    assert "File too large" in done.stdout
    assert "it needs 4.0 MB, " in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_files_reach_the_disk_before_the_name_and_the_name_after(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync

    def record(descriptor):
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        there = "after" if (tmp_path / "ck").exists() else "before"
        synced.append((there, "folder" if path.is_dir() and path != tmp_path else path.name.partition(".tmp-")[0]))
        fsync(descriptor)

    monkeypatch.setattr(whole.os, "fsync", record)
    save(tmp_path / "ck")
    files = ["config.pkl", "net.safetensors", "replay.safetensors", "state.json", ".manifest.json", "folder"]
    assert synced == [*(("before", name) for name in files), ("after", tmp_path.name)]


def test_ctrl_c_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(whole.os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path / "ck")
    assert list(tmp_path.iterdir()) == []


class Named:
    """Pickled by name: this module is not ``__main__``."""

    def __init__(self, value):
        self.value = value


def test_pickles_come_back():
    data = checkpoints.dump_pickle({"named": Named(3), "function": lambda x: x + 1})
    loaded = checkpoints.load_pickle(data, Path("ck"))
    assert type(loaded["named"]) is Named
    assert loaded["named"].value == 3
    assert loaded["function"](1) == 2


def test_a_renamed_or_moved_class_is_named(tmp_path, monkeypatch):
    module = types.ModuleType("old_envs")
    exec("class GridWorld:\n    class Inner: pass\n", module.__dict__)
    monkeypatch.setitem(sys.modules, "old_envs", module)
    outer, inner = (checkpoints.dump_pickle(cls()) for cls in (module.GridWorld, module.GridWorld.Inner))
    monkeypatch.chdir(tmp_path)
    where = f"^{tmp_path}/ck: cannot be loaded: old_envs"
    module.GridWorlds = module.__dict__.pop("GridWorld")
    with pytest.raises(CheckpointError, match=rf"{where}\.GridWorld cannot be imported .*did you mean 'GridWorlds'"):
        checkpoints.load_pickle(outer, Path("ck"))
    with pytest.raises(CheckpointError, match=rf"{where}\.GridWorld\.Inner cannot be imported"):
        checkpoints.load_pickle(inner, Path("ck"))
    monkeypatch.delitem(sys.modules, "old_envs")
    with pytest.raises(CheckpointError, match=rf"{where}\.GridWorld cannot be imported \(No module named 'old_envs'"):
        checkpoints.load_pickle(outer, Path("ck"))


def test_a_damaged_pickle(tmp_path):
    for data in (b"", b"nonsense", checkpoints.dump_pickle([1, 2])[:-3]):
        with pytest.raises(CheckpointError, match=f"^{tmp_path}: cannot be loaded: "):
            checkpoints.load_pickle(data, tmp_path)
