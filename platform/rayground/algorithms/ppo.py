"""PPO: a clipped policy gradient from fresh rollouts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from ray.rllib.algorithms.algorithm_config import NotProvided
from ray.rllib.algorithms.ppo import PPOConfig as RLlibPPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.utils.typing import LearningRateOrSchedule

from rayground.algorithms.actor_critic import ActorCritic, ActorCriticConfig
from rayground.algorithms.config import shown_as
from rayground.algorithms.limits import Number
from rayground.errors import InputError
from rayground.learners.advantages import judged
from rayground.learners.lean import Arrays
from rayground.learners.ppo import PPOLearner, UpdateSettings
from rayground.rollouts.rollout import Rollout
from rayground.schedules import as_schedule


class PPOConfig(ActorCriticConfig, RLlibPPOConfig):
    """RLlib's PPOConfig; ``clip_param`` and ``entropy_coeff`` also take schedules, as ``lr`` does.

    ``train_batch_size`` rows are sampled for each update; rows in which an environment resets itself hold no
    transition and are left out. Advantages are normalized within each minibatch.
    """

    supported = ActorCriticConfig.supported | frozenset(
        {"clip_param", "kl_coeff", "kl_target", "minibatch_size", "num_epochs", "use_kl_loss", "vf_clip_param"}
    )
    numbers = {
        **ActorCriticConfig.numbers,
        "kl_coeff": Number(0),
        "kl_target": Number(0, above=True),
        "minibatch_size": Number(2, whole=True),
        "num_epochs": Number(1, whole=True),
    }

    clip_param: Any

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or PPO)

    def training(
        self,
        *,
        clip_param: LearningRateOrSchedule = NotProvided,
        entropy_coeff: LearningRateOrSchedule = NotProvided,
        **kwargs: Any,
    ) -> PPOConfig:
        """RLlib's ``training()`` with two more schedules.

        Args:
            clip_param: How far the ratio of probabilities may leave 1: a number or a schedule over env steps.
            entropy_coeff: Weight of the entropy in the loss: a number or a schedule over env steps.
            **kwargs: RLlib's settings.
        """
        super().training(clip_param=clip_param, entropy_coeff=entropy_coeff, **kwargs)
        return self

    def validate(self) -> None:
        """Checks PPO's own settings after those that actor-critic algorithms share."""
        super().validate()
        as_schedule(self.clip_param, "clip_param", 0)
        if self.vf_clip_param != math.inf:
            Number(0, above=True).check(self.vf_clip_param, "vf_clip_param (inf for none)")
        rows, envs = self.total_train_batch_size, self.num_envs_per_env_runner * max(1, self.num_env_runners)
        if rows < envs:
            raise InputError(
                f"train_batch_size: expected at least one step of each of the {envs} environments, got {rows}"
            )

    def _validate_by_rllib(self) -> None:
        """RLlib knows piecewise entropy coefficients only, and wants fragments that fill a batch exactly."""
        with shown_as(self, entropy_coeff=0.0, rollout_fragment_length="auto"):
            super()._validate_by_rllib()

    def get_rollout_fragment_length(self, worker_index: int = 0) -> int:
        """Vector steps of each runner in one call; "auto" is as many as fill a batch."""
        if self.rollout_fragment_length != "auto":
            return self.rollout_fragment_length
        return math.ceil(self.total_train_batch_size / (self.num_envs_per_env_runner * max(1, self.num_env_runners)))

    def get_default_learner_class(self) -> type[PPOLearner]:
        """Our lean learner."""
        return PPOLearner


class PPO(ActorCritic):
    """Proximal policy optimization (Schulman et al. 2017, https://arxiv.org/abs/1707.06347): act, judge, learn."""

    _name = "rayground.PPO"
    """What Tune calls it: "PPO" is RLlib's own, and stays so."""
    changeable = ("lr", "grad_clip", "clip_param", "entropy_coeff", "kl_target", "vf_clip_param", "vf_loss_coeff")

    @classmethod
    def get_default_config(cls) -> PPOConfig:
        """The config class that belongs to this algorithm."""
        return PPOConfig()

    def setup(self, config: PPOConfig) -> None:
        """Builds runners and learner (RLlib)."""
        super().setup(config)
        self.batches = 0
        self.kl_coeff = config.kl_coeff

    def training_step(self) -> None:
        """One iteration: batches until ``min_sample_timesteps_per_iteration`` env steps, one at least."""
        start, goal, goes_on = self.env_steps, self.env_steps_goal(), True
        while goes_on:
            rollouts = self.sample_batch()
            if rollouts:
                with self.learning():
                    self.learn(_joined([self.judge(rollout) for rollout in rollouts]))
                self.sync_weights()
            goes_on = self.env_steps < goal and not self.ends_early(start, rollouts)
        self.log_iteration()

    def sample_batch(self) -> list[Rollout]:
        """Takes the steps of a batch with the policy as it is; fewer where an interruption has ended environments."""
        length = self.config.get_rollout_fragment_length()
        rollouts: list[Rollout] = []
        while not self._is_batch(rollouts):
            rollouts += (found := self.sample(length))
            if not found and self.interruption():
                break
        return rollouts

    def _is_batch(self, rollouts: list[Rollout]) -> bool:
        """Whether there are rows enough; where all environments reset themselves at once, they hold no transition."""
        num_rows = sum(rollout.valid.size for rollout in rollouts)
        num_transitions = sum(rollout.num_env_steps for rollout in rollouts)
        return num_rows >= self.config.total_train_batch_size and num_transitions >= max(1, self.config.num_learners)

    def judge(self, rollout: Rollout) -> Arrays:
        """The transitions of a rollout as flat columns ``[L, ...]``, with advantages and value targets."""
        columns = judged(rollout, self.learner.values, self.config.gamma, self.config.lambda_)
        for name in (Columns.ACTION_LOGP, Columns.ACTION_DIST_INPUTS):
            columns[name] = rollout.extras[name]
        return {name: column[rollout.valid] for name, column in columns.items()}

    def learn(self, batch: Arrays) -> None:
        """Takes several epochs over a batch, then adapts the coefficient of the divergence as RLlib does."""
        settings = UpdateSettings(
            env_steps=self.env_steps,
            seed=self.seed_for("minibatches", self.batches),
            clip=as_schedule(self.config.clip_param, "clip_param")(self.env_steps),
            entropy_coeff=as_schedule(self.config.entropy_coeff, "entropy_coeff")(self.env_steps),
            kl_coeff=self.kl_coeff,
        )
        learned = self.learner.learn(batch, settings)
        self.batches += 1
        self.updates += int(learned.pop("updates"))
        if self.config.use_kl_loss:
            target = self.config.kl_target
            self.kl_coeff *= 1.5 if learned["kl"] > 2.0 * target else 0.5 if learned["kl"] < 0.5 * target else 1.0
        self._learned.append(learned)

    def metrics_of_iteration(self) -> dict[str, float]:
        """The learner's numbers, as ``docs/metrics.md`` explains them."""
        return super().metrics_of_iteration() | {"learner/kl_coeff": self.kl_coeff}

    def extra_state(self) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
        """Counters, by one of which the order of minibatches goes, and the coefficient of the divergence."""
        extra, arrays = super().extra_state()
        return extra | {"batches": self.batches, "kl_coeff": self.kl_coeff}, arrays

    def load_extra_state(self, extra: dict[str, Any], checkpoint: Any) -> None:
        """Restores what :meth:`extra_state` gave."""
        super().load_extra_state(extra, checkpoint)
        self.batches, self.kl_coeff = extra["batches"], extra["kl_coeff"]


def _joined(parts: list[Arrays]) -> Arrays:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
