"""DQN: double Q-learning from a slotted replay buffer."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.dqn import DQNConfig as RLlibDQNConfig
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec

from custom_models import q_module
from custom_models.nets.noisy import SIGMA0
from custom_models.q_module import is_noisy
from rayground.algorithms.base import ArrayAlgorithm
from rayground.algorithms.config import ArrayConfig, shown_as
from rayground.algorithms.default_net import net_settings
from rayground.algorithms.limits import Number
from rayground.algorithms.supported import NUMBERS, SUPPORTED
from rayground.errors import InputError
from rayground.learners.dqn import DQNLearner
from rayground.module_checks import check_q_module
from rayground.preflight import check_growth, check_replay
from rayground.replay import SlottedReplay, SlottedReplayBuffer
from rayground.replay.ratio import UpdateClock
from rayground.schedules import as_schedule

MAX_UPDATES_AT_ONCE = 64
"""Minibatches drawn in one call: more gains nothing, and priorities are at most that many updates old."""


class DQNConfig(ArrayConfig, RLlibDQNConfig):
    """RLlib's DQNConfig, with a replay buffer that is a value and a replay ratio that is kept exactly.

    ``n_step``, ``double_q``, ``dueling``, ``noisy``, ``sigma0``, ``epsilon``, ``tau``, ``target_network_update_freq``
    (env steps), ``td_error_loss_fn``, ``num_steps_sampled_before_learning_starts`` and the rest mean what they mean in
    RLlib. ``noisy=True`` turns epsilon off.
    """

    action_spaces = (gym.spaces.Discrete,)
    supported = SUPPORTED | frozenset(
        {
            "double_q",
            "dueling",
            "epsilon",
            "n_step",
            "noisy",
            "num_steps_sampled_before_learning_starts",
            "replay",
            "replay_ratio",
            "sigma0",
            "store_buffer_in_checkpoints",
            "target_network_update_freq",
            "tau",
            "td_error_loss_fn",
        }
    )

    numbers = {
        **NUMBERS,
        "n_step": Number(1, whole=True),
        "num_steps_sampled_before_learning_starts": Number(1, whole=True),
        "replay_ratio": Number(0, above=True),
        "sigma0": Number(0),
        "target_network_update_freq": Number(1, whole=True),
        "tau": Number(0, 1, above=True),
    }

    n_step: Any

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or DQN)
        self.replay = SlottedReplay()
        self.replay_ratio = 1.0
        self.store_buffer_in_checkpoints = True

    def training(
        self, *, replay: SlottedReplay | None = None, replay_ratio: float | None = None, **kwargs: Any
    ) -> DQNConfig:
        """RLlib's ``training()`` for DQN, with replay settings of our own.

        Args:
            replay: What the replay buffer is to be.
            replay_ratio: Updates (gradient steps on one minibatch) per env step.
            **kwargs: RLlib's settings.
        """
        if replay is not None:
            self.replay = replay
        if replay_ratio is not None:
            self.replay_ratio = replay_ratio
        super().training(**kwargs)
        return self

    def validate(self) -> None:
        """Checks DQN's own settings after those that all algorithms share."""
        super().validate()
        as_schedule(self.epsilon, "epsilon", 0, 1)
        if not isinstance(self.replay, SlottedReplay):
            raise InputError(f"replay: expected SlottedReplay(capacity=...), got {self.replay!r}")
        self._check_spec()

    def _check_spec(self) -> None:
        spec = self._rl_module_spec
        if spec is None:
            return
        for key, usual in (("dueling", True), ("noisy", False), ("sigma0", SIGMA0)):
            if (value := getattr(self, key)) != usual:
                raise InputError(
                    f"{key}={value!r} has no effect beside rl_module_spec, which chooses the net: leave it out"
                )
        if self._model_config and spec.model_config:
            raise InputError(
                f"model_config={self._model_config!r} has no effect beside an rl_module_spec that has its own: "
                "put it there"
            )

    def _validate_by_rllib(self) -> None:
        """RLlib wants fragments of at least ``n_step``; our replay's lanes go on from one fragment to the next."""
        with shown_as(self, n_step=1):
            super()._validate_by_rllib()

    def get_rollout_fragment_length(self, worker_index: int = 0) -> int:
        """Vector steps between two updates of the policy; "auto" is 1, and 8 with remote runners.

        Asking a remote runner costs more than a step: with fragments of 1, runners are slower than none.
        """
        if self.rollout_fragment_length != "auto":
            return self.rollout_fragment_length
        return 8 if self.num_env_runners else 1

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """The MLP of ``dueling``, ``noisy`` and ``model_config`` (``fcnet_hiddens``, ``fcnet_activation``)."""
        own = net_settings(self, {"fcnet_hiddens": [256], "fcnet_activation": "relu"})
        make = q_module.dueling_mlp if self.dueling else q_module.plain_mlp
        layers = {"hidden": own["fcnet_hiddens"], "activation": own["fcnet_activation"]}
        return make(**layers, noisy=self.noisy, sigma0=self.sigma0)

    def default_image_spec(self) -> RLModuleSpec:
        """The CNN that ``dueling`` and ``noisy`` describe."""
        make = q_module.dueling_cnn if self.dueling else q_module.plain_cnn
        return make(noisy=self.noisy, sigma0=self.sigma0)

    def check_module(self, module: RLModule, observation_space: gym.Space, action_space: gym.Space) -> None:
        """Q-values of every action, an online and a target network; and one way to explore, not two."""
        check_q_module(module, observation_space, action_space, action_masks=self.action_masks)
        usual = RLlibDQNConfig().epsilon
        if is_noisy(module) and as_schedule(self.epsilon, "epsilon") != as_schedule(usual, "epsilon"):
            raise InputError(
                f"epsilon={self.epsilon!r} has no effect on a noisy net, which explores by its noise: leave it out"
            )

    def get_default_learner_class(self) -> type[DQNLearner]:
        """Our lean learner."""
        return DQNLearner


class DQN(ArrayAlgorithm):
    """Deep Q-network (Mnih et al. 2015, https://doi.org/10.1038/nature14236): act, store, learn."""

    _name = "rayground.DQN"
    """What Tune calls it: "DQN" is RLlib's own, and stays so."""
    changeable = ("lr", "grad_clip", "tau", "target_network_update_freq", "replay_ratio")

    @classmethod
    def get_default_config(cls) -> DQNConfig:
        """The config class that belongs to this algorithm."""
        return DQNConfig()

    def setup(self, config: DQNConfig) -> None:
        """Builds runners and learner (RLlib), the replay buffer, and the clock of the updates."""
        super().setup(config)
        self._replay_bytes = check_replay(self.config, self.observation_space, self.action_space)
        self.replay = self._empty_replay()
        self.updates = UpdateClock(config.replay_ratio, config.num_steps_sampled_before_learning_starts)
        self._beta = as_schedule(config.replay.beta, "replay.beta")
        self._epsilon = as_schedule(0.0 if is_noisy(self.learner.policy_module) else config.epsilon, "epsilon")
        self._learned: list[tuple[int, dict[str, float]]] = []

    def _empty_replay(self) -> SlottedReplayBuffer:
        return self.config.replay.build(
            self.observation_space,
            self.action_space,
            num_lanes=self.runners.num_envs,
            n_step=self.config.n_step,
            gamma=self.config.gamma,
            action_masks=self.config.action_masks,
            seed=self.seed_for("replay"),
        )

    def training_step(self) -> None:
        """One iteration of ``min_sample_timesteps_per_iteration`` env steps: act, store, learn.

        Remote runners take their next steps while what they took before is stored and learnt from: their policy is
        then older by one more fragment, and nothing else differs. None of them is at work when an iteration ends.
        """
        start, goal = self.env_steps, self.env_steps_goal()
        num_steps, goes_on = self.config.get_rollout_fragment_length(), True
        self.request(num_steps)
        while goes_on:
            rollouts = self.collect()
            goes_on = self.env_steps < goal and not self.ends_early(start, rollouts)
            if goes_on:
                self.request(num_steps)
            with self.clock("replay"):
                for rollout in rollouts:
                    self.replay.add(rollout, first_lane=self.first_lane(rollout))
            self.learn()
        check_growth(self.replay, self._replay_bytes)
        self.log_iteration()

    def learn(self) -> None:
        """Does the updates that are due."""
        due = self.updates.due(self.env_steps)
        if due <= 0:
            return
        self.move_norms()  # replayed observations are of any age: the newest statistics fit them best
        while due > 0:
            count = min(due, MAX_UPDATES_AT_ONCE)
            with self.clock("replay"):
                batch = self.replay.sample(
                    self.config.total_train_batch_size, num_batches=count, beta=self._beta(self.env_steps)
                )
                with self.learning():
                    td_errors, means = self.learner.learn(batch, self.updates.next(count))
                self.replay.update_priorities(batch.indices, td_errors)
            self._learned.append((count, means))
            due -= count
        self.sync_weights()

    def metrics_of_iteration(self) -> dict[str, float | None]:
        """Learner, exploration and replay, as ``docs/metrics.md`` explains them."""
        row: dict[str, float | None] = {
            "learner/updates": self.updates.updates,
            "learner/replay_ratio": self.updates.measured_ratio(self.env_steps),
            "learner/target_updates": self.learner.extra_state()["num_target_updates"],
            "learner/lr": self.learner.learning_rate(self.env_steps),
            "explore/epsilon": self._epsilon(self.env_steps),
        }
        counts = np.array([count for count, _ in self._learned])
        for name in self._learned[0][1] if self._learned else ():
            values = np.array([means[name] for _, means in self._learned])
            row[f"learner/{name}"] = float(np.average(values, weights=counts))
        self._learned.clear()
        return row | {f"replay/{name}": value for name, value in self.replay.metrics().items()}

    def apply_settings(self) -> None:
        """Takes over a setting that has changed."""
        super().apply_settings()
        self.updates.change(self.config.replay_ratio, self.env_steps)

    def extra_state(self) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
        """Replay contents and update counters."""
        state: dict[str, Any] = {"updates": self.updates.get_state()}
        if not self.config.store_buffer_in_checkpoints:
            return state, {}
        replay_state, replay_arrays = self.replay.get_state()
        return state | {"replay": replay_state}, {"replay": replay_arrays}

    def load_extra_state(self, state: dict[str, Any], checkpoint: Any) -> None:
        """Restores what :meth:`extra_state` gave; changed settings hold from here on.

        Without replay contents, learning waits as it does at the start: a few transitions would be learnt by heart.
        """
        warm_up = self.config.num_steps_sampled_before_learning_starts
        self.updates = UpdateClock(**state["updates"])
        self.updates.change(self.config.replay_ratio, self.env_steps)
        if "replay" in state:
            self.replay.set_state(state["replay"], checkpoint.arrays("replay"))
            if self.updates.updates == 0:
                self.updates.anchor_env_steps = warm_up
        else:
            self.replay = self._empty_replay()
            self.updates.wait(self.env_steps, warm_up)
