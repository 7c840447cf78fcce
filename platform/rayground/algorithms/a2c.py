"""A2C: a policy gradient from all runners in step, one update on what they have just sampled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ray.rllib.algorithms.algorithm_config import NotProvided
from ray.rllib.utils.typing import LearningRateOrSchedule

from rayground.algorithms.actor_critic import ActorCritic, ActorCriticConfig
from rayground.algorithms.by_name import register
from rayground.algorithms.supported import HINTS
from rayground.errors import InputError
from rayground.learners.a2c import A2CLearner, A2CSettings, batch_of
from rayground.learners.advantages import ValueSums
from rayground.learners.lean import Arrays
from rayground.rollouts.rollout import Rollout
from rayground.schedules import as_schedule


class A2CConfig(ActorCriticConfig):
    """A2C's settings, those that RLlib's own A2C had, while there was one, among them.

    ``rollout_fragment_length`` vector steps of every runner are a batch. The defaults are those of the paper (Mnih et
    al. 2016, https://arxiv.org/abs/1602.01783) and of Stable-Baselines3: 5 steps, their n-step returns
    (``lambda_=1``; less is GAE), and RMSprop.
    """

    reads_extras = False
    supported = ActorCriticConfig.supported - {"train_batch_size"}

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or A2C)
        self.lr = 7e-4
        self.optimizer = {"type": "rmsprop", "alpha": 0.99, "eps": 1e-5}
        self.rollout_fragment_length = 5
        self.lambda_ = 1.0
        self.entropy_coeff = 0.01
        self.vf_loss_coeff = 0.5
        self.grad_clip = 0.5
        self.min_sample_timesteps_per_iteration = 1_000

    def training(
        self,
        *,
        lambda_: float = NotProvided,
        entropy_coeff: LearningRateOrSchedule = NotProvided,
        vf_loss_coeff: float = NotProvided,
        **kwargs: Any,
    ) -> A2CConfig:
        """RLlib's ``training()`` with the settings of an actor-critic.

        Args:
            lambda_: Weight of longer returns in GAE; 1 for n-step returns.
            entropy_coeff: Weight of the entropy in the loss: a number or a schedule over env steps.
            vf_loss_coeff: Weight of the value loss.
            **kwargs: RLlib's settings.
        """
        if "train_batch_size" in kwargs:  # RLlib's default among the values, which would pass as none given
            what = f"train_batch_size={kwargs['train_batch_size']!r}"
            raise InputError(f"{what} is not supported by {self.algo_class.__name__}: {HINTS['train_batch_size']}")
        given = {"lambda_": lambda_, "entropy_coeff": entropy_coeff, "vf_loss_coeff": vf_loss_coeff}
        super().training(**kwargs)
        for name, value in given.items():
            if value is not NotProvided:
                setattr(self, name, value)
        return self

    @property
    def total_train_batch_size(self) -> int:
        """Rows of a batch: those in which an environment resets itself are among them."""
        return self.rollout_fragment_length * self.num_envs_per_env_runner * max(1, self.num_env_runners)

    @property
    def explores_by_entropy(self) -> bool:
        """Whether entropy is part of the loss."""
        return self.entropy_coeff != 0.0

    def get_default_learner_class(self) -> type[A2CLearner]:
        """Our lean learner."""
        return A2CLearner

    def _check_batch(self) -> None:
        if self.rollout_fragment_length == "auto":
            raise InputError("rollout_fragment_length: expected a whole number of at least 1, got 'auto'")
        if self._train_batch_size_per_learner is not None:
            raise InputError(
                f"train_batch_size_per_learner={self._train_batch_size_per_learner} is not supported by "
                f"{self.algo_class.__name__}: {HINTS['train_batch_size']}"
            )
        if self.total_train_batch_size % max(1, self.num_learners):
            raise InputError(
                f"rollout_fragment_length: expected batches that num_learners={self.num_learners} learners can share "
                f"equally, got {self.total_train_batch_size} rows"
            )


class A2C(ActorCritic):
    """Advantage actor-critic, synchronous (Mnih et al. 2016, https://arxiv.org/abs/1602.01783): act, judge, learn."""

    config: A2CConfig
    changeable: tuple[str, ...] = ("lr", "grad_clip", "entropy_coeff", "vf_loss_coeff")

    @classmethod
    def get_default_config(cls) -> A2CConfig:
        """The config class that belongs to this algorithm."""
        return A2CConfig()

    def setup(self, config: A2CConfig) -> None:
        """Builds runners and learner (RLlib)."""
        super().setup(config)
        self._value_sums = ValueSums()

    def training_step(self) -> None:
        """One iteration: updates until ``min_sample_timesteps_per_iteration`` env steps, one at least."""
        start, goal, goes_on = self.env_steps, self.env_steps_goal(), True
        while goes_on:
            rollouts = self.sample(self.config.rollout_fragment_length)
            if any(rollout.num_env_steps for rollout in rollouts):
                with self.learning():
                    learned, batch = self.learn(rollouts, self.config.entropy_coeff)
                self._learned.append(learned)
                self._value_sums.add(batch)
                self.updates += 1
                self.sync_weights()
            goes_on = self.env_steps < goal and not self.ends_early(start, rollouts)
        self.log_iteration()

    def learn(self, rollouts: Sequence[Rollout], entropy_coeff: Any) -> tuple[dict[str, float], Arrays]:
        """Judges what was sampled by the values as they are, and takes a step.

        Args:
            rollouts: With one transition at least.
            entropy_coeff: A number or a schedule over env steps.

        Returns:
            What the learner gave, and the batch that it had.
        """
        batch = batch_of(rollouts, self.learner.values, self.config.gamma, self.config.lambda_)
        return self.learner.learn(batch, self.update_settings(entropy_coeff)), batch

    def update_settings(self, entropy_coeff: Any) -> A2CSettings:
        """What the next update goes by.

        Args:
            entropy_coeff: A number or a schedule over env steps.
        """
        return A2CSettings(
            env_steps=self.env_steps,
            entropy_coeff=as_schedule(entropy_coeff, "entropy_coeff")(self.env_steps),
            vf_loss_coeff=self.config.vf_loss_coeff,
        )

    def metrics_of_iteration(self) -> dict[str, float]:
        """The learner's numbers, as ``docs/metrics.md`` explains them."""
        row = super().metrics_of_iteration() | self._value_sums.row()
        self._value_sums = ValueSums()
        return row


register(A2C)
