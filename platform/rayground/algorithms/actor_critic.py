"""What the algorithms with a policy and a value function share: PPO, A2C and A3C."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec

from custom_models.actor_critic_module import actor_critic_cnn, actor_critic_mlp
from rayground import module_checks
from rayground.algorithms.base import ArrayAlgorithm
from rayground.algorithms.config import ArrayConfig
from rayground.algorithms.default_net import net_settings
from rayground.algorithms.limits import Number
from rayground.algorithms.supported import NUMBERS, SUPPORTED
from rayground.errors import InputError
from rayground.schedules import as_schedule


class ActorCriticConfig(ArrayConfig):
    """Base of the configs of actor-critic algorithms."""

    supported = SUPPORTED | frozenset(
        {"clip_actions", "entropy_coeff", "lambda_", "normalize_actions", "vf_loss_coeff"}
    )
    numbers = {**NUMBERS, "lambda_": Number(0, 1), "vf_loss_coeff": Number(0)}

    entropy_coeff: Any
    lambda_: float
    vf_loss_coeff: float
    rollout_fragment_length: Any

    def validate(self) -> None:
        """Checks what actor-critic algorithms add to the settings that all algorithms share."""
        super().validate()
        if self.clip_actions and self.normalize_actions:
            raise InputError(
                "clip_actions=True has no effect beside normalize_actions=True, which keeps actions within the bounds: "
                "set normalize_actions=False"
            )
        as_schedule(self.entropy_coeff, "entropy_coeff", 0)

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """The MLPs that ``model_config`` (``fcnet_hiddens``, ``fcnet_activation``, ``vf_share_layers``) describes."""
        own = net_settings(self, {"fcnet_hiddens": [256, 256], "fcnet_activation": "tanh", "vf_share_layers": False})
        return actor_critic_mlp(
            hidden=own["fcnet_hiddens"], activation=own["fcnet_activation"], shared=own["vf_share_layers"]
        )

    def default_image_spec(self) -> RLModuleSpec:
        """Policy and value on the Nature DQN's torso."""
        return actor_critic_cnn()

    def check_module(self, module: RLModule, observation_space: gym.Space, action_space: gym.Space) -> None:
        """The inputs of an action distribution, and a value."""
        module_checks.check_actor_critic_module(module, observation_space, action_space, action_masks=self.action_masks)


class ActorCritic(ArrayAlgorithm):
    """Base of the algorithms: counts updates, and keeps what the learner gives for each until a result is due.

    Attributes:
        updates: Gradient steps so far.
    """

    def setup(self, config: ActorCriticConfig) -> None:
        """Builds runners and learner (RLlib)."""
        super().setup(config)
        self.updates = 0
        self._learned: list[dict[str, float]] = []

    def metrics_of_iteration(self) -> dict[str, float]:
        """Updates, learning rate, and means of what the learner gave for each update since the last call."""
        learned, self._learned = self._learned, []
        row = {"learner/updates": self.updates, "learner/lr": self.learner.learning_rate(self.env_steps)}
        return row | {
            f"learner/{name}": float(np.mean([one[name] for one in learned]))
            for name in (learned[0] if learned else ())
        }

    def extra_state(self) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
        """The number of updates."""
        return {"updates": self.updates}, {}

    def load_extra_state(self, extra: dict[str, Any], checkpoint: Any) -> None:
        """Restores what :meth:`extra_state` gave."""
        self.updates = extra["updates"]
