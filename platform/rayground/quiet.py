"""Ray and RLlib without their start-up noise: what they say in every run is dropped, all other warnings stay.

Nothing here touches Ray's token authentication. A Ray of our own gets a token as any other does, in
``~/.ray/auth_token``; a cluster asks for what its own environment (``RAY_AUTH_MODE``) says.
"""

from __future__ import annotations

import logging
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil

from rayground.errors import InputError

if TYPE_CHECKING:
    from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

ANSWER_WITHIN_S = 5.0
GRACE_S = 1.0

_NOISE = {
    "ray._private.authentication.authentication_token_setup": (
        "Token authentication is enabled",
        "Generated new authentication token",
    ),
    "ray._private.worker": (
        "Started a local Ray instance",
        "Using address",
        "Connecting to existing Ray cluster",
        "Connected to Ray cluster",
    ),
    "ray.rllib.algorithms.algorithm_config": ("You are running ",),
    "ray.rllib.algorithms.sac.sac": ("You are running ",),
    "ray._common.deprecation": ("DeprecationWarning: `RLModule(config=",),
    "ray.train.torch.config": ("Setting up process group",),
    "ray.tune.trainable.trainable": ("Trainable.setup took",),
    "ray.tune.utils.util": ("Install gputil",),
}
"""How the messages that every run would show begin, by logger."""


class _DropNoise(logging.Filter):
    """Drops a logger's records that begin in a known way. Levels would drop what matters, and RLlib sets them anew."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether the record stays."""
        return not record.getMessage().startswith(_NOISE[record.name])


def after_import() -> None:
    """Drops the noise of this process; call it once in each: the main one, runners, learners and trials.

    It works before and after Ray is imported, and twice is as good as once.
    """
    for name in _NOISE:
        logger = logging.getLogger(name)
        if not any(isinstance(known, _DropNoise) for known in logger.filters):
            logger.addFilter(_DropNoise())
    warnings.filterwarnings("ignore", message=".*Overriding environment rllib-")
    # Arrays that come from another process are read-only, and are only read.
    warnings.filterwarnings("ignore", message="The given NumPy array is not writable")


def init_ray(num_cpus: int | None = None) -> bool:
    """Starts a Ray for this run, or joins the cluster that ``RAY_ADDRESS`` or a ``ray start`` on this machine gives.

    Ray sets a handler for SIGTERM here: set your own afterwards.

    Args:
        num_cpus: Cores that a Ray of our own hands out; None: those of the machine. A cluster has its own number.

    Returns:
        Whether a Ray was started; False if one was joined, or this process had one.

    Raises:
        InputError: If the cluster does not answer.
    """
    import ray

    after_import()
    if ray.is_initialized():
        return False
    address = _cluster_address()
    if address is None:
        with _sessions_of_their_own():
            ray.init(address="local", num_cpus=num_cpus, include_dashboard=False)
        return True
    _check_answers(address)
    try:
        ray.init()
    except (ConnectionError, ValueError) as error:
        raise InputError(f"{_told(address)}, got: {error}") from None
    return False


@contextmanager
def _sessions_of_their_own() -> Iterator[None]:
    """While it lasts, the processes that Ray starts get a session of their own.

    A signal to all processes of a terminal or of ``timeout`` would end Ray otherwise, and Ray this process, before
    there is a last checkpoint. They still end when this process does.
    """
    from ray._private import services

    popen = services.ConsolePopen
    services.ConsolePopen = partial(popen, start_new_session=True)
    try:
        yield
    finally:
        services.ConsolePopen = popen


def joins_cluster() -> bool:
    """Returns whether :func:`init_ray` will join a cluster, and not start a Ray of our own."""
    return _cluster_address() is not None


def _cluster_address() -> str | None:
    """What ``ray.init()`` would look for: the variable's word, or what ``ray start`` leaves in Ray's folder."""
    from ray._private.utils import read_ray_address

    told = os.environ.get("RAY_ADDRESS", "")
    return None if told == "local" else told if told not in ("", "auto") else read_ray_address() or told or None


def _check_answers(address: str) -> None:
    """Asks first: Ray itself goes on trying for minutes, and says so in many lines."""
    host, _, port = address.rpartition(":")
    if "://" in address or (address != "auto" and not port.isdigit()):
        raise InputError(f"{_told(address)}, as HOST:PORT, auto or local")
    try:
        if address != "auto":
            socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_WITHIN_S).close()
    except OSError as error:
        raise InputError(f"{_told(address)}, got: {error.strerror or error}") from None


def _told(address: str) -> str:
    if os.environ.get("RAY_ADDRESS"):
        return f"RAY_ADDRESS={address}: expected a running Ray cluster (RAY_ADDRESS=local starts a Ray here)"
    return f"{address}: expected the Ray that `ray start` began on this machine (`ray stop` forgets it)"


def shutdown_ray() -> None:
    """Ends a Ray of our own and waits until its processes are gone; leaves a cluster as it is."""
    import ray

    started = _of_own_raylet()
    if ray.is_initialized():
        ray.shutdown(wait_for_processes=True)
    # Those that were still starting when their raylet ended do not notice that it did.
    _, left = psutil.wait_procs(started, timeout=GRACE_S)
    for process in left:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=GRACE_S)


def _of_own_raylet() -> list[psutil.Process]:
    """What a raylet that this process started has started: runners, trials, agents."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if child.name() == "raylet":
                found += child.children(recursive=True)
    return found


def needs_ray(config: AlgorithmConfig) -> bool:
    """Returns whether an algorithm has runners or learners outside of this process, or RLlib asks Ray for its GPU."""
    remote = config.num_env_runners or config.num_learners or config.evaluation_num_env_runners
    return bool(remote or config.num_gpus_per_learner)


@contextmanager
def config_by_value() -> Iterator[None]:
    """While it lasts (around ``config.build_algo()``), RLlib hands its config to runners itself, not by reference.

    RLlib puts the config into Ray's object store even if there are no remote runners, and that alone starts Ray. With
    remote runners, Ray complains that a runner whose arguments are in the store cannot always be restarted.
    """
    import ray

    put = ray.put
    ray.put = _itself
    try:
        yield
    finally:
        ray.put = put


def _itself(value: Any) -> Any:
    return value
