import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from rayground import budget
from rayground.errors import InputError

GB = 1_000_000_000


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A machine with 16 GB free and 8 cores, whose control groups are the files that a test writes."""
    monkeypatch.setattr(budget.psutil, "virtual_memory", lambda: SimpleNamespace(available=16 * GB))
    monkeypatch.setattr(budget.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(budget, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(budget, "_OWN_CGROUP", tmp_path / "own")

    def write(own: str, **files: str) -> None:
        (tmp_path / "own").write_text(own)
        for name, text in files.items():
            path = tmp_path / "cgroup" / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


def test_without_control_groups_the_machine_counts(machine):
    assert (budget.free_memory(), budget.cores()) == (16 * GB, 8)


def test_the_tightest_control_group_of_version_2_counts(machine):
    machine(
        "0::/a/b\n",
        memory_dot_max="max\n",
        a__memory_dot_max=f"{8 * GB}\n",
        a__memory_dot_current=f"{6 * GB}\n",
        a__memory_dot_stat=f"anon 1\ninactive_file {GB}\n",
        a__b__memory_dot_max=f"{7 * GB}\n",
        a__b__memory_dot_current=f"{GB}\n",
        a__cpu_dot_max="250000 100000\n",
        a__b__cpu_dot_max="max 100000\n",
    )
    assert budget.free_memory() == 3 * GB  # 8 - 6, and 1 of cached files that the kernel gives up
    assert budget.cores() == 3  # 2.5 rounded up


def test_control_groups_of_version_1_count(machine):
    machine(
        "4:memory:/c\n1:cpu,cpuacct:/c\n",
        memory__c__memory_dot_limit_in_bytes=f"{2 * GB}\n",
        memory__c__memory_dot_usage_in_bytes=f"{GB}\n",
        memory__memory_dot_limit_in_bytes="9223372036854771712\n",
        cpu__c__cpu_dot_cfs_quota_us="100000\n",
        cpu__c__cpu_dot_cfs_period_us="100000\n",
    )
    assert budget.free_memory() == GB
    assert budget.cores() == 1


def test_no_quota_and_a_full_group(machine):
    machine(
        "4:memory:/c\n1:cpu:/c\n",
        memory__c__memory_dot_limit_in_bytes=f"{GB}\n",
        memory__c__memory_dot_usage_in_bytes=f"{GB + 5}\n",
        cpu__c__cpu_dot_cfs_quota_us="-1\n",
        cpu__c__cpu_dot_cfs_period_us="100000\n",
    )
    assert (budget.free_memory(), budget.cores()) == (0, 8)


def test_memory_that_cannot_fit_is_refused_with_the_numbers(machine):
    budget.check_memory(16 * GB, "a replay buffer of 2,000,000 transitions")
    with pytest.raises(InputError) as raised:
        budget.check_memory(52 * GB + 1, "a replay buffer of 2,000,000 transitions")
    assert str(raised.value) == (
        "a replay buffer of 2,000,000 transitions: needs 52.0 GB of memory, got 16.0 GB free: make it smaller"
    )


def test_more_runners_than_cores_get_a_warning(machine):
    assert budget.warn_cores(8) is None
    assert budget.warn_cores(2, num_cores=2) is None
    assert budget.warn_cores(3, num_cores=2) == (
        "3 env runners share 2 cores: expect them to slow each other down; --num-env-runners 2 or fewer is faster"
    )
    assert budget.warn_cores(2, num_cores=1).startswith("2 env runners share 1 core: ")
    assert budget.warn_cores(1, num_cores=2, num_learners=1) is None
    assert budget.warn_cores(0, num_cores=2, num_learners=3) == (
        "3 learners share 2 cores: expect them to slow each other down; fewer are faster"
    )
    assert budget.warn_cores(1, num_cores=2, num_learners=2).startswith("1 env runner and 2 learners share 2 cores: ")


@pytest.mark.parametrize(
    ("wanted", "there", "message"),
    [
        ([], 0, None),
        ([1], 1, None),
        ([0.5, 0.25, 0.25], 1, None),
        ([0.1] * 10, 1, None),
        ([0.6, 0.4, 0.6, 0.4], 2, None),
        ([1], 0, "1 process needs 1 GPUs, got 0"),
        ([1, 0.25, 0.25], 1, "3 processes need 1.5 GPUs, got 1"),
        ([0.6, 0.6, 0.6], 2, "3 processes need 1.8 GPUs, got 2"),  # each comes from one GPU
    ],
)
def test_shares_of_gpus_that_do_not_fit_are_refused(wanted, there, message):
    if message is None:
        budget.check_gpus(wanted, there, "x")
    else:
        with pytest.raises(InputError, match=f"^num_gpus_per_learner=1: {message}: use fewer"):
            budget.check_gpus(wanted, there, "num_gpus_per_learner=1")


def test_compiled_code_is_kept_where_the_user_says_or_in_the_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    ours = tmp_path / ".cache" / "rayground" / "torchinductor"
    assert budget.compile_cache() == ours
    assert ours.is_dir()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(ours)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "mine"))
    assert budget.compile_cache() == tmp_path / "mine"
    assert list((tmp_path / "mine").iterdir()) == []
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"--compile\): cannot write to .*/file: .*TORCHINDUCTOR_CACHE_DIR$"):
        budget.check_compiler()


def test_compiling_needs_a_compiler_and_pythons_headers(tmp_path, monkeypatch):
    from torch._inductor import cpp_builder, exc

    def found():
        return "g++"

    def missing():
        raise exc.InvalidCxxCompiler

    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(budget.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", found)
    budget.check_compiler()
    (tmp_path / "Python.h").unlink()
    with pytest.raises(InputError, match=r"--compile.*Python's headers.*install them \(apt install python3-dev"):
        budget.check_compiler()
    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", missing)
    with pytest.raises(InputError, match=r"--compile.*a C\+\+ compiler, got none: install g\+\+"):
        budget.check_compiler()


@pytest.mark.parametrize(
    ("count", "text"),
    [(999, "999 bytes"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB"), (7_056_000_000, "7.1 GB")],
)
def test_bytes_as_people_read_them(count, text):
    assert budget.human_bytes(count) == text
