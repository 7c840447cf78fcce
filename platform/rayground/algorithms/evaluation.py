"""A greedy evaluation, which leaves training as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ray.rllib.callbacks.utils import make_callback
from ray.rllib.utils.metrics import (
    ENV_RESET_TIMER,
    ENV_RUNNER_RESULTS,
    ENV_STEP_TIMER,
    ENV_TO_MODULE_CONNECTOR,
    ENV_TO_MODULE_SUM_EPISODES_LENGTH_IN,
    ENV_TO_MODULE_SUM_EPISODES_LENGTH_OUT,
    MODULE_TO_ENV_CONNECTOR,
)
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from rayground.algorithms.headline import EpisodeWindow
from rayground.rollouts.failures import RunnerFailure
from rayground.rollouts.group import EnvironmentCrash
from rayground.rollouts.rollout import EpisodeRecord
from rayground.seeding import rng_state_kept

if TYPE_CHECKING:
    from rayground.algorithms.base import ArrayAlgorithm

_HEADLINE = ("episode_return_", "episode_len_", "custom/")
"""The headline metrics that an evaluation has too."""

_RLLIBS = {
    ENV_RESET_TIMER,
    ENV_STEP_TIMER,
    ENV_TO_MODULE_CONNECTOR,
    ENV_TO_MODULE_SUM_EPISODES_LENGTH_IN,
    ENV_TO_MODULE_SUM_EPISODES_LENGTH_OUT,
    MODULE_TO_ENV_CONNECTOR,
}
"""What RLlib's own runner logs on the slow path: times, which no evaluation is about."""


def evaluate(algorithm: ArrayAlgorithm) -> dict[str, Any]:
    """Plays exactly ``evaluation_duration`` greedy episodes, from the same starts each time; calls the hooks.

    Args:
        algorithm: Whose policy plays, in its ``evaluation_runner``.

    Returns:
        ``env_runners/episode_return_mean`` and friends, in RLlib's nesting; None if it was interrupted.

    Raises:
        EnvironmentCrash: If the environment raised.
    """
    config, callbacks = algorithm.config, algorithm.callbacks
    hooks = {"algorithm": algorithm, "metrics_logger": algorithm.metrics}
    make_callback("on_evaluate_start", callbacks, config.callbacks_on_evaluate_start, kwargs=hooks)
    records = _play(algorithm)
    window = EpisodeWindow(len(records))
    window.extend(records)
    headline = {key: value for key, value in window.headline().items() if key.startswith(_HEADLINE)}
    logged = MetricsLogger(root=True)  # by callbacks, with RLlib's own logger
    logged.aggregate([algorithm.evaluation_runner.get_metrics()])
    by_callbacks = {name: value for name, value in logged.compile().items() if name not in _RLLIBS}
    results = {ENV_RUNNER_RESULTS: by_callbacks | headline | {"num_episodes": len(records)}}
    hooks |= {"evaluation_metrics": results}
    make_callback("on_evaluate_end", callbacks, config.callbacks_on_evaluate_end, kwargs=hooks)
    return results


def _play(algorithm: ArrayAlgorithm) -> list[EpisodeRecord]:
    """The episodes, or none after an interruption: the first to end are the short ones, and would mislead."""
    config = algorithm.config
    with rng_state_kept():  # training goes the same way, however often it is evaluated; making the runner draws too
        records = algorithm.evaluation_runner.evaluate(
            config.evaluation_duration,
            seed=algorithm.seed_for("evaluation"),
            weights=algorithm.learner.module_arrays(),
            timeout_s=config.evaluation_sample_timeout_s,
            interruption=algorithm.interruption,
        )
    if isinstance(records, RunnerFailure):
        if not algorithm.interruption():
            raise EnvironmentCrash(records)
        return []
    return records if len(records) == config.evaluation_duration else []
