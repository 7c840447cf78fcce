"""The runner that learns from what it samples: gradients leave it, and not the steps that they are made of."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from custom_models.nets.normalizer import running_norms
from rayground.learners.a2c import A2CSettings, A3CLearner, batch_of
from rayground.learners.advantages import value_sums
from rayground.rollouts.failures import RunnerFailure
from rayground.rollouts.moments import Moments
from rayground.rollouts.rollout import EpisodeRecord, Rollout
from rayground.rollouts.runner import ArrayEnvRunner, Weights, copy_weights
from rayground.seeding import rng_state_kept


@dataclass(slots=True)
class RolloutGradient:
    """What a runner has learnt from a rollout, and what the driver has to know of that.

    Attributes:
        gradient: ``[P]`` float32 gradient of the loss, zeros if there was no transition.
        stats: The losses and the entropy.
        value_sums: How well the values explained their targets, as :func:`value_sums` gives it.
        num_env_steps: Transitions.
        wrong: The first reward or observation that was not finite, in words; None if all were.
        observed: Moments of the observations, for a module that normalizes them.
        episodes: As in :class:`Rollout`.
        runner: As in :class:`Rollout`.
        seconds: As in :class:`Rollout`, and ``learn``: judging and the gradient.
    """

    gradient: np.ndarray
    stats: dict[str, float]
    value_sums: np.ndarray
    num_env_steps: int
    wrong: str | None
    observed: Moments
    episodes: list[EpisodeRecord]
    runner: int
    seconds: dict[str, float]

    @property
    def nbytes(self) -> int:
        """Bytes of the gradient."""
        return self.gradient.nbytes

    def not_finite(self) -> str | None:
        """The first reward or observation that is not finite, in words with its sub-environment; None if all are."""
        return self.wrong

    def moments(self) -> Moments:
        """Moments of the observations."""
        return self.observed


class GradientRunner(ArrayEnvRunner):
    """An array runner that, parallel in gradients, has a learner of its own, which never takes a step.

    The learner's weights come with each call.
    """

    def __init__(self, *, config: AlgorithmConfig, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        if self.env is not None and config.parallelism == "gradient" and not config.in_evaluation:
            self._learner = self._make_learner()
            self._learner_parameters = dict(self._learner.policy_module.state_dict())

    def sample_gradient(
        self, num_steps: int, env_steps: int, *, weights: Weights, settings: A2CSettings, reset: bool = False
    ) -> RolloutGradient | RunnerFailure:
        """Takes ``num_steps`` exploring vector steps, and computes the gradient of their loss.

        Args:
            num_steps: T, vector steps of all N sub-environments.
            env_steps: Env steps that all runners together have handed out before this call.
            weights: All parameters and buffers of the learner's module by name.
            settings: What the loss goes by.
            reset: Start new episodes first, seeded by ``env_steps``.

        Returns:
            The gradient, or what went wrong.
        """
        rollout = self.sample_arrays(num_steps, env_steps, weights=weights, reset=reset)
        if isinstance(rollout, RunnerFailure):
            return rollout
        try:
            return self._gradient(rollout, weights, settings)
        except Exception as error:
            return self._failure(error)

    def _gradient(self, rollout: Rollout, weights: Weights, settings: A2CSettings) -> RolloutGradient:
        started, learner, sums = perf_counter(), self._learner, np.zeros(5)
        copy_weights(weights, self._learner_parameters)
        gradient, stats = np.zeros(learner.flat.vector.shape, np.float32), {}
        wrong = rollout.not_finite()
        if rollout.num_env_steps and not wrong:  # which ends the run, with nothing else said
            batch = batch_of([rollout], learner.values, self.config.gamma, self.config.lambda_)
            sums = value_sums(batch)
            stats = learner.gradient_of(batch, settings)
            gradient = learner.gradient_P.cpu().numpy().copy()
        learn_s = perf_counter() - started
        seconds = rollout.seconds | {"learn": learn_s, "total": rollout.seconds["total"] + learn_s}
        return RolloutGradient(
            gradient=gradient,
            stats=stats,
            value_sums=sums,
            num_env_steps=rollout.num_env_steps,
            wrong=wrong,
            observed=rollout.moments() if running_norms(learner.policy_module) else Moments(),
            episodes=rollout.episodes,
            runner=rollout.runner,
            seconds=seconds,
        )

    def _make_learner(self) -> A3CLearner:
        """The algorithm's learner, where the runner is: on its GPU if it has a share of one."""
        config = self.config.copy(copy_frozen=False)
        config.num_learners, config.num_gpus_per_learner = 0, self.config.num_gpus_per_env_runner
        with rng_state_kept():  # that of a runner's process goes the way that it goes without a learner
            return config.build_learner(spaces=self.get_spaces())
