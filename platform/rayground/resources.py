"""What the processes of a run take of Ray's cores, GPUs and other resources."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ray

from rayground import quiet
from rayground.algorithms.config import ArrayConfig
from rayground.budget import warn_cores
from rayground.errors import InputError, closest

logger = logging.getLogger("rayground")

Bundle = dict[str, float]

GIVE_CPUS = "start Ray with some, as ray.init(num_cpus=2) does, or join a cluster that has some"


@dataclass(frozen=True)
class Processes:
    """The processes of one kind, and the settings that they come from.

    Attributes:
        count_setting: Where their number stands.
        count: Their number.
        cpus_setting: Where the cores of one stand.
        cpus: The cores that each wants of Ray.
    """

    count_setting: str
    count: int
    cpus_setting: str
    cpus: float


def remote_processes(config: ArrayConfig) -> list[Processes]:
    """The runners, and the learners that have processes of their own."""
    return [
        Processes("num_env_runners", config.num_env_runners, "num_cpus_per_env_runner", config.num_cpus_per_env_runner),
        Processes("num_learners", config.num_learners, "num_cpus_per_learner", cpus_per_learner(config)),
    ]


def cpus_per_learner(config: ArrayConfig) -> float:
    """The cores of a learner in a process of its own; "auto" is 1, or 0 for one that has a GPU."""
    if config.num_cpus_per_learner == "auto":
        return 0 if config.num_gpus_per_learner else 1
    return config.num_cpus_per_learner


def gpus_wanted(config: ArrayConfig) -> list[float]:
    """The share of a GPU that each process wants: learners (also one in the main process), then runners."""
    learners = [config.num_gpus_per_learner] * max(1, config.num_learners)
    return [share for share in learners + [config.num_gpus_per_env_runner] * config.num_env_runners if share]


def check_room(config: ArrayConfig) -> None:
    """Refuses runners and learners that would wait for cores for ever; for an algorithm that is built here and now.

    RLlib starts Ray, or joins a cluster, for the first of them; this does so before, to ask what there is. In a trial
    there always is enough in all: Tune has reserved it.

    Args:
        config: Validated.

    Raises:
        InputError: If Ray has no cores for them, or too few and is not a cluster that may grow (a warning then), or too
            little of a custom resource that runners need.
    """
    if not (config.num_env_runners or config.num_learners):
        return
    quiet.init_ray()
    there = ray.cluster_resources()
    _check_custom_resources(config, there)
    wanting = _wanting_cores(config, there)
    cores = there.get("CPU", 0)
    share = fair_share([(kind.count, kind.cpus) for kind in wanting], 0, cores)
    if share == math.inf:
        return
    wanted = sum(kind.count * kind.cpus for kind in wanting)
    missing = f"{_counts(wanting)}: expected {wanted:g} CPUs in Ray, got {cores:g}"
    remedy = f"use fewer, or set {_shares(wanting, share)} so that they share"
    if not _may_grow():
        raise InputError(f"{missing}: {remedy}, or start Ray with more")
    logger.warning("%s: waiting for the cluster to grow; if it will not, %s", missing, remedy)


def fit_to_cores(config: ArrayConfig, main: float = 0) -> ArrayConfig:
    """Lets more runners and learners than cores share them, with a warning: Ray would wait for cores for ever.

    Args:
        config: Validated.
        main: Cores of Ray's that the main process takes too; that of a single run takes none, that of a trial does.

    Raises:
        InputError: If Ray has no cores for them, or too little of a custom resource that runners need.
    """
    if not (config.num_env_runners or config.num_learners):
        return config
    there = ray.cluster_resources()
    _check_custom_resources(config, there)
    wanting = _wanting_cores(config, there)
    cores = there.get("CPU", 0)
    share = fair_share([(kind.count, kind.cpus) for kind in wanting], main, cores)
    if share == math.inf:
        return config
    learners_on_cores = config.num_learners * bool(cpus_per_learner(config))
    logger.warning(
        warn_cores(config.num_env_runners, max(1, int(cores - main)), learners_on_cores)
        or f"env runners and learners get at most {share:g} cores each: Ray has {cores:g}"
    )
    shared = config.copy(copy_frozen=False)
    for kind in wanting:
        setattr(shared, kind.cpus_setting, min(share, kind.cpus))
    return shared


def fair_share(processes: Sequence[tuple[int, float]], main: float, cores: float) -> float:
    """The most cores that a process may take, so that all fit: infinite, or an equal share of what main leaves.

    If that leaves nothing, the main process has to take no more than the others.

    Args:
        processes: How many there are of a kind, and the cores that each wants.
        main: The cores that the main process wants.
        cores: All that there are.

    Raises:
        InputError: If there are too few cores even for small shares.
    """
    if main + sum(count * wanted for count, wanted in processes) <= cores:
        return math.inf
    count = sum(count for count, wanted in processes if wanted)
    share = _rounded((cores - main) / count) if main < cores else _rounded(cores / (count + 1))
    if count and share <= 0:
        raise InputError(
            f"num_env_runners and num_learners: expected as many as can share {cores:g} cores, got {count}: use fewer"
        )
    return share


def bundles(config: ArrayConfig, cores: float) -> list[Bundle]:
    """What one trial takes of Ray's resources: its main process first, then each runner and each learner.

    Args:
        config: As :func:`fit_to_cores` gives it.
        cores: All that Ray has.

    Raises:
        InputError: If there are no cores for the main process.
    """
    runner = {"CPU": config.num_cpus_per_env_runner, "GPU": config.num_gpus_per_env_runner}
    learner = {"CPU": cpus_per_learner(config), "GPU": config.num_gpus_per_learner}
    others = [runner | config.custom_resources_per_env_runner] * config.num_env_runners
    others += [learner] * config.num_learners
    main = config.num_cpus_for_main_process
    left = _rounded(cores - sum(bundle["CPU"] for bundle in others))
    if left <= 0 < main:
        raise InputError(
            f"num_cpus_for_main_process: expected cores for {main}, got {cores:g} in all of Ray: {GIVE_CPUS}"
        )
    first = {"CPU": min(main, left), "GPU": 0 if config.num_learners else config.num_gpus_per_learner}
    first_without_zeros, *rest = ({name: n for name, n in bundle.items() if n} for bundle in (first, *others))
    return [first_without_zeros or {"CPU": 0}, *filter(None, rest)]


def _rounded(cores: float) -> float:
    """Down to a thousandth: Ray counts in ten-thousandths, and all shares together must not be more than there is."""
    return int(cores * 1000 + 1e-6) / 1000


def _wanting_cores(config: ArrayConfig, there: Mapping[str, float]) -> list[Processes]:
    """The processes that want cores of Ray.

    Raises:
        InputError: If it has none.
    """
    wanting = [kind for kind in remote_processes(config) if kind.count and kind.cpus]
    if wanting and not there.get("CPU", 0):
        here = " and ".join(f"{kind.count_setting}=0" for kind in wanting)
        raise InputError(
            f"{_counts(wanting)}: expected CPUs in Ray, got 0: {GIVE_CPUS}, "
            f"or set {here} (all in this process) or {_shares(wanting, 0)} (no CPU is reserved)"
        )
    return wanting


def _counts(wanting: Sequence[Processes]) -> str:
    return " and ".join(f"{kind.count_setting}={kind.count}" for kind in wanting)


def _shares(wanting: Sequence[Processes], share: float) -> str:
    """The settings that let each process take no more than ``share`` cores."""
    return " and ".join(f"{kind.cpus_setting}={share:g}" for kind in wanting if kind.cpus > share)


def _may_grow() -> bool:
    """Whether Ray may get more cores: it is a cluster that this process has joined, and did not start."""
    node = ray._private.worker._global_node
    return node is None or not node.head


def _check_custom_resources(config: ArrayConfig, there: Mapping[str, float]) -> None:
    for name, amount in config.custom_resources_per_env_runner.items():
        needed = amount * config.num_env_runners
        if needed > there.get(name, 0):
            raise InputError(
                f"custom_resources_per_env_runner: {config.num_env_runners} runners need {needed:g} of {name!r}, "
                f"got {there.get(name, 0):g} in all of Ray{closest(name, there)}"
            )
