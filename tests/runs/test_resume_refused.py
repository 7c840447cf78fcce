"""What cannot be resumed says why in one line, and stays as it is."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import tiny_dqn
from conftest import Done, RunHere
from snapshots import checked_rows, fingerprint, only_run

import rayground
from custom_models.q_module import q_module
from rayground.errors import CheckpointError
from rayground.results.runs import RunFiles


def assert_refused(done: Done, *parts: str) -> None:
    """Exit code 2 and one line on stderr with all of these parts."""
    assert done.code == 2
    (line,) = done.stderr.strip().splitlines()
    for part in parts:
        assert part in line


@pytest.mark.parametrize("damage", ["missing", "empty", "emptied", "torn", "truncated", "changed", "no run"])
def test_damage_is_named_with_the_absolute_path(
    run_here: RunHere, copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.chdir(copied.parent)
    checkpoint = RunFiles(copied).last_checkpoint
    weights = checkpoint / "module.safetensors"
    if damage == "emptied":
        shutil.rmtree(checkpoint)
        checkpoint.mkdir()
    elif damage == "torn":
        weights.unlink()
    elif damage == "truncated":
        os.truncate(weights, weights.stat().st_size - 1)
    elif damage == "changed":
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
    elif damage == "no run":
        checkpoint = Path(shutil.copytree(checkpoint, tmp_path / checkpoint.name))
    elif damage == "empty":
        checkpoint = tmp_path / "empty"
        checkpoint.mkdir()
    else:
        checkpoint = copied.parent / "a rum"
    before = fingerprint(copied)
    done = run_here("--resume", os.path.relpath(checkpoint), "--stop-timesteps", 400)
    assert_refused(done, str(checkpoint), *(["a run"] if damage == "missing" else []))
    assert fingerprint(copied) == before
    if damage in ("emptied", "torn", "truncated"):
        assert run_here("--resume", copied, "--stop-timesteps", 400).code == 0  # from the one before
        assert len(checked_rows(copied)) == 4
        assert RunFiles(copied).experiment["resumes"][0]["env_steps"] // 100 == 2


def test_a_class_that_was_renamed_is_named(
    run_here: RunHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_nets.py").write_text(
        "from custom_models.nets import PlainMLP\nclass OwnNet(PlainMLP):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import own_nets

    config = tiny_dqn.config.copy(copy_frozen=False).rl_module(
        rl_module_spec=q_module(own_nets.OwnNet, hidden=[8]), model_config={}
    )
    experiment = replace(tiny_dqn.experiment, config=config)
    storage = tmp_path / "results"
    assert run_here("--stop-timesteps", 100, "--storage-path", storage, experiment=experiment).code == 0
    run = only_run(storage)
    assert rayground.load(run).policy.model.net.__class__ is own_nets.OwnNet
    own_nets.OurNet = own_nets.OwnNet
    del own_nets.OwnNet
    checkpoint = RunFiles(run).last_checkpoint
    before = fingerprint(run)
    done = run_here("--resume", run, "--stop-timesteps", 200, experiment=experiment)
    assert_refused(done, str(checkpoint), "own_nets.OwnNet", "OurNet")
    for use in (lambda: rayground.load(run).policy, lambda: rayground.load(run).algorithm):
        with pytest.raises(CheckpointError, match=r"own_nets\.OwnNet"):
            use()
    assert fingerprint(run) == before


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--set", "replay.capacity=100"), ("resume with the settings of the run",)),
        (("--set", "model_config.fcnet_hiddens=[8]"), ("do not fit",)),
        (("--set", "lrr=1"), ("lrr", "'lr'")),
        (("--seed", "7"), ("--seed",)),
    ],
)
def test_settings_that_do_not_fit_change_nothing(
    run_here: RunHere, copied: Path, words: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    before = fingerprint(copied)
    assert_refused(run_here("--resume", copied, "--stop-timesteps", 400, *words), *parts)
    assert fingerprint(copied) == before


def test_a_finished_run_wants_a_higher_stop(run_here: RunHere, copied: Path) -> None:
    before = fingerprint(copied)
    for flags in ((), ("--stop-timesteps", 200)):
        assert_refused(run_here("--resume", copied, *flags), str(copied), "env_steps 30", "--stop-timesteps")
    assert fingerprint(copied) == before
