"""The default module of every algorithm: layers for vectors, convolutions for images, and who is told what."""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

from custom_models.actor_critic_module import actor_critic_cnn, actor_critic_mlp
from custom_models.q_module import dueling_cnn, dueling_mlp
from rayground import A2CConfig, A3CConfig, DQNConfig, PPOConfig
from rayground.errors import InputError
from rayground.preflight import preflight

FRAMES = gym.spaces.Box(0, 255, (2, 40, 36), np.uint8)
ACTOR_CRITICS = (PPOConfig, A2CConfig, A3CConfig)


class Still(gym.Env[np.ndarray, np.int64]):
    """Frames that never change."""

    action_space = gym.spaces.Discrete(3)

    def __init__(self, space: gym.Space = FRAMES) -> None:
        self.observation_space = space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.ones(self.observation_space.shape, self.observation_space.dtype), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.ones(self.observation_space.shape, self.observation_space.dtype), 0.0, False, False, {}


gym.register("rayground-tests/Still-v0", Still)


def made(config_class: Any, **model_config: Any) -> Any:
    config = config_class().environment("rayground-tests/Still-v0").rl_module(model_config=model_config)
    return config.training(replay=replace(config.replay, capacity=100)) if config_class is DQNConfig else config


def net_of(config: Any) -> Any:
    config.validate()
    return preflight(config).module.net


@pytest.mark.parametrize(
    ("config_class", "settings", "name"),
    [
        (DQNConfig, {}, "DuelingCNN"),
        (DQNConfig, {"dueling": False}, "PlainCNN"),
        *((config_class, {}, "ActorCriticCNN") for config_class in ACTOR_CRITICS),
    ],
)
def test_images_get_a_cnn(config_class: Any, settings: dict[str, Any], name: str) -> None:
    config = made(config_class).training(**settings)
    assert type(net_of(config)).__name__ == name
    spec = config.get_multi_rl_module_spec(spaces={"default_policy": (FRAMES, Still.action_space)})
    assert spec.rl_module_specs["default_policy"].model_config["net"].__name__ == name
    vectors = config.get_rl_module_spec(spaces={"default_policy": (gym.spaces.Box(0, 1, (3,)), Still.action_space)})
    assert vectors.model_config["net"].__name__.endswith("MLP")


def test_the_default_cnn_is_noisy_where_dqn_is_to_be() -> None:
    net = net_of(made(DQNConfig).training(noisy=True, sigma0=0.25))
    layer = net.head.streams.value_hidden
    assert layer.weight_sigma[0, 0].item() == pytest.approx(0.25 / layer.in_features**0.5)


@pytest.mark.parametrize("config_class", [DQNConfig, *ACTOR_CRITICS])
def test_layers_beside_images_are_refused(config_class: Any) -> None:
    with pytest.raises(InputError, match=r"^model_config=\{'fcnet_hiddens': \[8\]\} has no effect on images.*a CNN"):
        net_of(made(config_class, fcnet_hiddens=[8]))
    assert net_of(made(config_class).rl_module(model_config=DefaultModelConfig()))


@pytest.mark.parametrize(
    ("config_class", "spec", "env", "message"),
    [
        (DQNConfig, dueling_mlp(), "rayground-tests/Still-v0", "expected vectors, got a uint8 .*take .*dueling_cnn"),
        (PPOConfig, actor_critic_mlp(), "rayground-tests/Still-v0", "expected vectors, got a uint8 .*actor_critic_cnn"),
        (DQNConfig, dueling_cnn(), "CartPole-v1", r"a uint8 Box \[C, H, W\] .*got a float32 Box \[4\]: take an MLP"),
        (PPOConfig, actor_critic_cnn(), "CartPole-v1", r"a uint8 Box .*got a float32 Box \[4\]: take an MLP"),
    ],
)
def test_a_net_for_other_observations_is_one_line_before_training(config_class, spec, env, message) -> None:
    config = made(config_class).environment(env).rl_module(rl_module_spec=spec)
    with pytest.raises(InputError, match=message) as caught:
        net_of(config)
    assert "\n" not in str(caught.value)
