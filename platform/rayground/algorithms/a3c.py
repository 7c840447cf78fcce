"""A3C: a policy gradient from runners that never wait for each other, an update for whatever has come."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import perf_counter
from typing import Any, Literal, cast, get_args

import numpy as np
from ray.rllib.algorithms.algorithm_config import NotProvided

from rayground import checkpoints
from rayground.algorithms import state
from rayground.algorithms.a2c import A2C, A2CConfig
from rayground.algorithms.by_name import register
from rayground.algorithms.deliveries import Deliveries
from rayground.errors import InputError, RunError, closest
from rayground.learners.a2c import A3CLearner
from rayground.learners.advantages import value_sums
from rayground.policies import TrainedPolicy
from rayground.rollouts.gradients import GradientRunner, RolloutGradient
from rayground.rollouts.rollout import Rollout
from rayground.schedules import as_schedule

logger = logging.getLogger("rayground")

Parallelism = Literal["gradient", "data"]
ARRIVED = "arrived.pkl"
MAX_DROPPED_IN_A_ROW = 100


class A3CConfig(A2CConfig):
    """A3C's settings: A2C's, and how runners and learner share the work.

    Each runner's ``rollout_fragment_length`` vector steps (20 unless set: a call to another process costs more than a
    few steps) make one update. The work of several runners comes in the order in which they are done, so that a seed
    does not repeat a run; with ``num_env_runners`` 0 or 1 it does.
    """

    supported = A2CConfig.supported - {"torch_compile_learner"} | {"entropy_coeff_per_worker", "parallelism"}

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or A3C)
        self.env_runner_cls = GradientRunner
        self.rollout_fragment_length = 20
        self.parallelism: Parallelism = "gradient"
        self.entropy_coeff_per_worker: Sequence[Any] | None = None

    def training(
        self,
        *,
        parallelism: Parallelism = NotProvided,
        entropy_coeff_per_worker: Sequence[Any] | None = NotProvided,
        **kwargs: Any,
    ) -> A3CConfig:
        """A2C's ``training()`` with two more settings.

        Args:
            parallelism: ``"gradient"``: every runner computes gradients with its own copy of the weights, and the
                driver applies them (the paper's form). ``"data"``: the runners send what they sampled, and the
                learner computes the gradients.
            entropy_coeff_per_worker: A number or a schedule for each runner; it replaces ``entropy_coeff``.
            **kwargs: A2C's settings.
        """
        super().training(**kwargs)
        if parallelism is not NotProvided:
            self.parallelism = parallelism
        if entropy_coeff_per_worker is not NotProvided:
            self.entropy_coeff_per_worker = entropy_coeff_per_worker
        return self

    def validate(self) -> None:
        """Checks A3C's own settings after A2C's."""
        super().validate()
        if self.parallelism not in (forms := get_args(Parallelism)):
            hint = closest(str(self.parallelism), forms)
            raise InputError(f"parallelism: expected one of {', '.join(forms)}, got {self.parallelism!r}{hint}")
        self._check_entropy_per_worker()

    def _check_batch(self) -> None:
        if self.parallelism == "gradient" and self.num_learners:
            raise InputError(
                f"num_learners={self.num_learners}: with parallelism='gradient' the runners compute the gradients, and "
                "the main process applies them: set num_learners=0, or parallelism='data'"
            )
        super()._check_batch()

    def _check_entropy_per_worker(self) -> None:
        given, workers = self.entropy_coeff_per_worker, max(1, self.num_env_runners)
        if given is None or self.in_evaluation:  # which has no runners
            return
        if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != workers:
            raise InputError(
                f"entropy_coeff_per_worker: expected a list of {workers}, one per runner, or None, got {given!r}"
            )
        for index, value in enumerate(given):
            as_schedule(value, f"entropy_coeff_per_worker[{index}]", 0)

    @property
    def total_train_batch_size(self) -> int:
        """Rows of one runner's fragment, which is a batch."""
        return self.rollout_fragment_length * self.num_envs_per_env_runner

    @property
    def sends_observations(self) -> bool:
        """Runners that send gradients keep what they have observed."""
        return self.parallelism == "data"

    @property
    def explores_by_entropy(self) -> bool:
        """Whether entropy is part of the loss."""
        given = self.entropy_coeff_per_worker
        return super().explores_by_entropy if given is None else any(value != 0.0 for value in given)

    def entropy_coeff_of(self, runner: int) -> Any:
        """The weight of the entropy, a number or a schedule, for what a runner (1 and up; 0 the local one) samples."""
        given = self.entropy_coeff_per_worker
        return self.entropy_coeff if given is None else given[min(max(0, runner - 1), len(given) - 1)]

    def get_default_learner_class(self) -> type[A3CLearner]:
        """Our lean learner."""
        return A3CLearner


class A3C(A2C):
    """Asynchronous advantage actor-critic (Mnih et al. 2016, https://arxiv.org/abs/1602.01783), with processes.

    Attributes:
        updates: Gradients applied so far; the weights' version.
        dropped: Gradients so far that were not finite.
    """

    config: A3CConfig

    @classmethod
    def get_default_config(cls) -> A3CConfig:
        """The config class that belongs to this algorithm."""
        return A3CConfig()

    def setup(self, config: A3CConfig) -> None:
        """Builds runners and learner (RLlib)."""
        super().setup(config)
        if config.entropy_coeff_per_worker is not None:
            self.changeable = tuple(name for name in self.changeable if name != "entropy_coeff")
        self.dropped = self._dropped_in_a_row = 0
        self._versions: dict[int, int] = {}
        self._to_reset: set[int] = set()
        self._arrived: list[tuple[int, Rollout | RolloutGradient]] = []
        self._deliveries = Deliveries()
        self._told: list[dict[str, Any]] = []

    def training_step(self) -> None:
        """One iteration: updates as work comes in, until ``min_sample_timesteps_per_iteration`` env steps."""
        start, goal, since, goes_on = self.env_steps, self.env_steps_goal(), perf_counter(), True
        while goes_on:
            if not self._arrived:  # else there is work enough, and there would be ever more
                for runner in self.runners.idle():  # the one that delivered last; all of them in the beginning
                    self.ask(runner)
            work = self.next_work()
            if work is not None:
                version, sampled = work
                self.count(sampled)
                with self.learning():
                    self.learn_from(sampled, staleness=self.updates - version)
            goes_on = self.env_steps < goal and not self.ends_early(start, work)
        self._deliveries.seconds += perf_counter() - since
        self._say_dropped()
        self.log_iteration()

    def ask(self, runner: int) -> None:
        """Sends a runner the newest weights, and asks it to work with them."""
        with self.clock("sync"):
            if self._has_runner_hooks:  # while it has nothing else to do
                self._told += self.runners.get_metrics([runner])
            self.move_norms()
            if self._reset_next:
                self._to_reset, self._reset_next = set(self.runners.indices), False
            weights = self.learner.module_arrays()
            call: dict[str, Any] = {"num_steps": self.config.rollout_fragment_length, "env_steps": self.env_steps}
            call |= {"weights": weights, "reset": runner in self._to_reset}
            if self.config.parallelism == "gradient":
                settings = self.update_settings(self.config.entropy_coeff_of(runner))
                self.runners.ask(runner, "sample_gradient", settings=settings, **call)
            else:
                self.runners.ask(runner, "sample_arrays", **call)
            self._to_reset.discard(runner)
            self._versions[runner] = self.updates
            if runner:
                self._deliveries.bytes_down += sum(array.nbytes for array in weights.values())

    def next_work(self) -> tuple[int, Rollout | RolloutGradient] | None:
        """Waits for whoever is done first; None if nobody was for a while, or the runner died.

        Returns:
            The version of the weights that the work was done with, and what came.
        """
        if self._arrived:
            return self._arrived.pop(0)
        with self.waiting():
            sampled = self.runners.first_answer()
        return None if sampled is None else (self._versions[sampled.runner], sampled)

    def learn_from(self, sampled: Rollout | RolloutGradient, staleness: int) -> None:
        """Applies a gradient, or first computes it; one that is not finite is dropped.

        Args:
            sampled: What a runner delivered.
            staleness: How many updates old the weights were that it did so with.

        Raises:
            RunError: If too many in a row were dropped: nothing is learnt any more.
        """
        if sampled.num_env_steps < max(1, self.config.num_learners):
            return
        if isinstance(sampled, Rollout):
            learned, batch = self.learn([sampled], self.config.entropy_coeff_of(sampled.runner))
            sums = value_sums(batch)
        else:
            applied = cast(A3CLearner, self.learner).apply_array(sampled.gradient, self.env_steps)
            learned, sums = sampled.stats | applied, sampled.value_sums
        is_dropped = learned.pop("dropped") > 0
        self._deliveries.add(sampled.runner, sampled.nbytes if sampled.runner else 0, staleness, is_dropped)
        if is_dropped:
            self._drop()
            return
        self.updates += 1
        self._dropped_in_a_row = 0
        self._learned.append(learned)
        self._value_sums.merge(sums)

    def _drop(self) -> None:
        self.dropped += 1
        self._dropped_in_a_row += 1
        if self._dropped_in_a_row >= MAX_DROPPED_IN_A_ROW:
            raise RunError(
                f"at env step {self.env_steps} the last {self._dropped_in_a_row} gradients were not finite: nothing is "
                "learnt any more. Lower lr, set grad_clip, or look into the loss"
            )

    def _say_dropped(self) -> None:
        if self._deliveries.dropped:
            who = ", ".join(f"runner {runner}: {count}" for runner, count in sorted(self._deliveries.dropped.items()))
            total = self._deliveries.dropped.total()
            logger.warning("dropped %d updates whose gradient was not finite (%s); %d so far", total, who, self.dropped)

    def runner_metrics(self) -> list[dict[str, Any]]:
        """What callbacks on the runners have logged, of each until its last delivery: nobody is waited for."""
        told, self._told = self._told + self.runners.get_metrics(self.runners.idle()), []
        return told

    def metrics_of_iteration(self) -> dict[str, float]:
        """A2C's numbers, and those of the work that came in; ``docs/metrics.md`` explains them."""
        row = super().metrics_of_iteration() | {"learner/updates_dropped": self.dropped}
        row |= self._deliveries.row(self.runners.indices)
        self._deliveries = Deliveries()
        return row

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Waits for the work that the runners are at, and keeps it too: a resumed run goes on with it."""
        answers, failure = self.runners.all_answers()
        self._arrived += [(self._versions[sampled.runner], sampled) for sampled in answers]
        if failure is not None:
            logger.warning("the checkpoint lacks what a runner was at: %s", failure)
        super().save_checkpoint(checkpoint_dir)

    def _take_weights(self, policy: TrainedPolicy) -> None:
        """Nothing is learnt from what other weights have sampled."""
        self._give_up_work()
        super()._take_weights(policy)

    def _give_up_work(self) -> None:
        self.runners.forget()
        self._arrived.clear()
        self._to_reset.clear()

    def extra_state(self) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
        """Counters."""
        extra, arrays = super().extra_state()
        return extra | {"dropped": self.dropped}, arrays

    def extra_blobs(self) -> dict[str, bytes]:
        """The work that has come in, and is not learnt from yet."""
        return {ARRIVED: checkpoints.dump_pickle(self._arrived)}

    def load_extra_state(self, extra: dict[str, Any], checkpoint: Any) -> None:
        """Restores what :meth:`extra_state` and :meth:`extra_blobs` gave."""
        super().load_extra_state(extra, checkpoint)
        self.dropped, self._dropped_in_a_row = extra["dropped"], 0
        self._give_up_work()
        if checkpoint.state["environment"] == state.environment(self.own_config):
            self._arrived += checkpoints.load_pickle(checkpoint.blob(ARRIVED), checkpoint.path)


register(A3C)
