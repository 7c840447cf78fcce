"""Which settings of runners' and learners' processes go together."""

from __future__ import annotations

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from rayground.algorithms.limits import Number
from rayground.errors import InputError

_WITHOUT_EFFECT = {
    "num_cpus_per_learner": "with num_learners=0 the main process learns, and num_cpus_for_main_process counts",
    "local_gpu_idx": "only the main process chooses its GPU by it (num_learners=0, num_gpus_per_learner above 0)",
    "num_gpus_per_env_runner": "with num_env_runners=0 the main process steps the environments, on its CPU",
}


def check_processes(config: AlgorithmConfig) -> None:
    """Checks settings of runners and learners against each other; each alone is in its range.

    Raises:
        InputError: For one that has no effect beside the others.
    """
    remote = config.num_learners > 0
    if config.num_cpus_per_learner != "auto":
        Number(0).check(config.num_cpus_per_learner, "num_cpus_per_learner")
    is_idle = {
        "num_cpus_per_learner": not remote and config.num_cpus_per_learner != "auto",
        "local_gpu_idx": config.local_gpu_idx > 0 and (remote or not config.num_gpus_per_learner),
        "num_gpus_per_env_runner": config.num_gpus_per_env_runner > 0 and not config.num_env_runners,
    }
    for key, reason in _WITHOUT_EFFECT.items():
        if is_idle[key]:
            raise InputError(f"{key}={getattr(config, key)!r} has no effect: {reason}")
