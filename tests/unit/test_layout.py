"""The house: what may import what, and that `platform/` shadows nothing."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = {"rayground", "envs", "custom_models", "callbacks", "experiments"}
MAY_IMPORT = {
    "platform/rayground": {"rayground", "custom_models"},
    "custom_models": {"custom_models"},
    "envs": {"envs"},
    "callbacks": {"callbacks"},
    "experiments": {"rayground", "envs", "callbacks", "custom_models"},
    "experiments/baselines": set(),
}
WITHOUT_RAY = [
    "custom_models/nets",
    "platform/rayground/replay",
    "platform/rayground/learners/losses.py",
    "platform/rayground/policy_file.py",
    "platform/rayground/generator_file.py",
    "platform/rayground/exported.py",
    "platform/rayground/spaces.py",
    "platform/rayground/distributions.py",
    "platform/rayground/results",
    "platform/rayground/checkpoints.py",
    "platform/rayground/keeper.py",
]


def imports(path: Path) -> set[str]:
    """Top-level names of all modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").split(".")[0])
    return found


def files(place: str) -> list[Path]:
    path = ROOT / place
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_only_what_they_may(package: str) -> None:
    assert files(package)
    for path in files(package):
        assert imports(path) & OURS <= MAY_IMPORT[package], path


@pytest.mark.parametrize("place", WITHOUT_RAY)
def test_what_must_outlive_ray_does_not_import_it(place: str) -> None:
    assert files(place)
    for path in files(place):
        assert "ray" not in imports(path), path


def test_platform_is_no_package() -> None:
    assert not (ROOT / "platform" / "__init__.py").exists()


def test_experiments_are_short() -> None:
    experiments = [path for path in (ROOT / "experiments").glob("*.py") if not path.name.startswith(("bench_", "_"))]
    assert [path.name for path in experiments if len(path.read_text().splitlines()) >= 80] == []


PRINT_PLATFORM = "import platform; print(platform.machine(), platform.__file__)"


def test_platform_from_the_repository_root_is_the_standard_librarys() -> None:
    done = subprocess.run([sys.executable, "-c", PRINT_PLATFORM], cwd=ROOT, capture_output=True, text=True, check=True)
    assert str(ROOT) not in done.stdout


def test_platform_in_an_experiment_and_in_a_ray_worker_is_the_standard_librarys() -> None:
    code = f"""
import experiments.dqn_cartpole, platform, ray
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error")
worker = ray.remote(lambda: __import__("platform").__file__)
assert not platform.__file__.startswith({str(ROOT)!r}), platform.__file__
assert not ray.get(worker.remote()).startswith({str(ROOT)!r})
print("right")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip().endswith("right"), done.stderr


def test_an_exported_policy_needs_no_ray() -> None:
    code = """
import sys
sys.modules["ray"] = None
import rayground.policy_file, rayground.generator_file, custom_models.nets, rayground.replay
print("right")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "right", done.stderr
