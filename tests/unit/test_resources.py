"""Whether runners and learners fit into Ray, where an algorithm is about to be built."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st

from rayground import PPOConfig, preflight, quiet, resources
from rayground.algorithms.config import ArrayConfig
from rayground.errors import InputError

GIVE = "start Ray with some, as ray.init(num_cpus=2) does, or join a cluster that has some"

RayWith = Callable[..., None]


@pytest.fixture
def ray_with(monkeypatch: pytest.MonkeyPatch) -> RayWith:
    """A Ray with so many of each resource: this process's own, or a cluster's."""

    def make(*, cluster: bool = False, **there: float) -> None:
        monkeypatch.setattr(quiet, "init_ray", lambda: False)
        monkeypatch.setattr(ray, "cluster_resources", lambda: there)
        monkeypatch.setattr(ray._private.worker, "_global_node", SimpleNamespace(head=not cluster))

    return make


def config(runners: int, learners: int = 0, *, runner_cpus: float = 1, learner_cpus: float | str = 1) -> ArrayConfig:
    made = PPOConfig().env_runners(num_env_runners=runners, num_cpus_per_env_runner=runner_cpus)
    return made.learners(num_learners=learners, num_cpus_per_learner=learner_cpus)


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            config(2),
            f"num_env_runners=2: expected CPUs in Ray, got 0: {GIVE}, "
            "or set num_env_runners=0 (all in this process) or num_cpus_per_env_runner=0 (no CPU is reserved)",
        ),
        (
            config(2, 1, runner_cpus=0),
            f"num_learners=1: expected CPUs in Ray, got 0: {GIVE}, "
            "or set num_learners=0 (all in this process) or num_cpus_per_learner=0 (no CPU is reserved)",
        ),
        (
            config(1, 3, runner_cpus=0.2, learner_cpus="auto"),
            f"num_env_runners=1 and num_learners=3: expected CPUs in Ray, got 0: {GIVE}, "
            "or set num_env_runners=0 and num_learners=0 (all in this process) "
            "or num_cpus_per_env_runner=0 and num_cpus_per_learner=0 (no CPU is reserved)",
        ),
    ],
)
def test_no_cores_for_remote_processes(ray_with: RayWith, asked: ArrayConfig, message: str, cluster: bool) -> None:
    ray_with(GPU=1.0, cluster=cluster)
    for refuse in (resources.check_room, resources.fit_to_cores, preflight.check_hardware):
        with pytest.raises(InputError) as raised:
            refuse(asked)
        assert str(raised.value) == message


def test_no_cores_for_a_trials_main_process(ray_with: RayWith) -> None:
    with pytest.raises(InputError) as raised:
        resources.bundles(config(0), 0)
    assert str(raised.value) == f"num_cpus_for_main_process: expected cores for 1, got 0 in all of Ray: {GIVE}"


@pytest.mark.parametrize(
    ("asked", "missing"),
    [
        (
            config(3),
            "num_env_runners=3: expected 3 CPUs in Ray, got 2: "
            "use fewer, or set num_cpus_per_env_runner=0.666 so that they share",
        ),
        (
            config(8, 2, runner_cpus=0.1),
            "num_env_runners=8 and num_learners=2: expected 2.8 CPUs in Ray, got 2: "
            "use fewer, or set num_cpus_per_learner=0.2 so that they share",
        ),
        (
            config(4, 1, runner_cpus=0.5, learner_cpus=2),
            "num_env_runners=4 and num_learners=1: expected 4 CPUs in Ray, got 2: "
            "use fewer, or set num_cpus_per_env_runner=0.4 and num_cpus_per_learner=0.4 so that they share",
        ),
        (
            config(5000, 2, runner_cpus=0, learner_cpus=1.5),
            "num_learners=2: expected 3 CPUs in Ray, got 2: "
            "use fewer, or set num_cpus_per_learner=1 so that they share",
        ),
    ],
)
def test_too_few_cores(ray_with: RayWith, asked: ArrayConfig, missing: str, caplog: pytest.LogCaptureFixture) -> None:
    ray_with(CPU=2.0)
    with pytest.raises(InputError) as raised:
        preflight.check_hardware(asked)
    assert str(raised.value) == f"{missing}, or start Ray with more"
    ray_with(CPU=2.0, cluster=True)
    with caplog.at_level(logging.WARNING, "rayground"):
        preflight.check_hardware(asked)
    warned = missing.replace(": use", ": waiting for the cluster to grow; if it will not, use")
    assert [record.getMessage() for record in caplog.records] == [warned]


def test_what_fits_or_is_reserved_is_not_warned_of(ray_with: RayWith, caplog: pytest.LogCaptureFixture) -> None:
    ray_with(CPU=2.0)
    preflight.check_hardware(config(2))
    preflight.check_hardware(config(8, 1, runner_cpus=0.1))
    preflight.check_hardware(config(9), here=False)  # for a trial, which Tune reserves them for
    ray_with()
    preflight.check_hardware(config(9, 2, runner_cpus=0, learner_cpus=0))
    assert caplog.records == []


def test_ray_is_started_only_for_remote_processes(ray_with: RayWith, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[bool] = []
    ray_with(CPU=2.0)
    monkeypatch.setattr(quiet, "init_ray", lambda: started.append(True))
    resources.check_room(config(0))
    assert started == []
    resources.check_room(config(0, 1))
    assert started == [True]


def test_a_custom_resource_that_nobody_has(ray_with: RayWith) -> None:
    ray_with(CPU=2.0, robots=1.0)
    asked = config(2).env_runners(custom_resources_per_env_runner={"robot": 1})
    with pytest.raises(InputError, match="2 runners need 2 of 'robot', got 0 in all of Ray; did you mean 'robots'"):
        resources.check_room(asked)


@given(
    st.integers(0, 40), st.integers(0, 8), st.floats(0.001, 8), st.floats(0.001, 4), st.integers(1, 16), st.booleans()
)
def test_what_the_message_advises_fits(
    runners: int, learners: int, runner_cpus: float, learner_cpus: float, cores: int, cluster: bool
) -> None:
    asked = config(runners, learners, runner_cpus=runner_cpus, learner_cpus=learner_cpus)
    share = resources.fair_share([(runners, runner_cpus), (learners, learner_cpus)], 0, cores)
    needed = runners * runner_cpus + learners * learner_cpus
    assert (share == math.inf) == (needed <= cores)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray, "cluster_resources", lambda: {"CPU": cores})
        fitted = resources.fit_to_cores(asked)
        patch.setattr(quiet, "init_ray", lambda: False)
        patch.setattr(ray._private.worker, "_global_node", SimpleNamespace(head=True))
        resources.check_room(fitted)  # raises nothing
    assert fitted.num_cpus_per_env_runner == (min(share, runner_cpus) if runners else runner_cpus)
    assert fitted.num_cpus_per_learner == (min(share, learner_cpus) if learners else learner_cpus)
