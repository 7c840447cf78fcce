"""PPO's settings: what is misspelt, out of range or without effect is an error of one line."""

from typing import Any

import numpy as np
import pytest
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner

from custom_models.actor_critic_module import ActorCriticModule
from rayground import PPOConfig
from rayground.errors import InputError
from rayground.learners.ppo import PPOLearner
from rayground.schedules import Cosine


def config() -> PPOConfig:
    return PPOConfig().environment("CartPole-v1")


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("clip_parm", "; did you mean 'clip_param'"),
        ("entropy_coef", "; did you mean 'entropy_coeff'"),
        ("max_grad_norm", "; did you mean 'grad_clip'"),
        ("num_sgd_epochs", "; did you mean 'num_epochs'"),
    ],
)
def test_an_unknown_setting_names_the_closest(key: str, hint: str) -> None:
    with pytest.raises(InputError, match=rf"^training\(\): no setting '{key}'{hint}"):
        config().training(**{key: 0.1})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("use_critic", False),
        ("use_gae", False),
        ("shuffle_batch_per_epoch", False),
        ("batch_mode", "complete_episodes"),
        ("explore", False),
        ("entropy_coeff_schedule", [[0, 0.1], [10, 0.0]]),
    ],
)
def test_a_setting_without_effect_is_an_error(key: str, value: Any) -> None:
    made = config()
    setattr(made, key, value)
    with pytest.raises(InputError, match=rf"^{key}=.* is not supported by PPO"):
        made.validate()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"minibatch_size": 128, "train_batch_size": 64}, "minibatch_size"),
        ({"minibatch_size": 1}, "minibatch_size: expected a whole number of at least 2, got 1"),
        ({"minibatch_size": 12.5}, "minibatch_size: expected a whole number"),
        ({"num_epochs": 0}, "num_epochs: expected a whole number of at least 1, got 0"),
        ({"clip_param": -0.1}, r"clip_param: expected values of at least 0, got -0\.1 at env step 0"),
        ({"clip_param": [[0, 0.3], [100, -0.1]]}, r"clip_param: expected values of at least 0, got -0\.1"),
        ({"clip_param": Cosine(0.3, over=100, final=-0.1)}, "clip_param: expected values of at least 0"),
        ({"clip_param": None}, "clip_param: expected a number"),
        ({"entropy_coeff": [[5, 0.1]]}, "entropy_coeff: expected points that start at env step 0"),
        ({"entropy_coeff": -1}, "entropy_coeff: expected values of at least 0"),
        ({"kl_target": 0}, "kl_target: expected a finite number above 0, got 0"),
        ({"kl_coeff": -1}, "kl_coeff: expected a finite number of at least 0"),
        ({"lambda_": 1.5}, r"lambda_: expected a finite number from 0 to 1, got 1\.5"),
        ({"vf_clip_param": 0}, r"vf_clip_param \(inf for none\): expected a finite number above 0, got 0"),
        ({"vf_clip_param": None}, r"vf_clip_param \(inf for none\): expected a finite number above 0, got None"),
        ({"vf_clip_param": np.nan}, r"vf_clip_param \(inf for none\): expected a finite number above 0, got nan"),
        ({"vf_clip_param": True}, r"vf_clip_param \(inf for none\): expected a finite number above 0, got True"),
        ({"vf_loss_coeff": "x"}, "vf_loss_coeff: expected a finite number"),
        ({"use_kl_loss": 1}, "use_kl_loss: expected True or False, got 1"),
        ({"learner_class": PPOTorchLearner}, "learner_class: expected PPOLearner or a subclass"),
    ],
)
def test_a_value_that_cannot_be_is_an_error_of_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        config().training(**settings).validate()
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


class Ignored(PPOLearner):
    """Overrides a hook that RLlib's learner would call."""

    def postprocess_gradients(self, gradients_dict: Any) -> Any:
        return gradients_dict


def test_a_learner_with_a_hook_that_is_never_called_is_an_error() -> None:
    with pytest.raises(InputError, match=r"Ignored\.postprocess_gradients would never be called: override"):
        config().learners(learner_class=Ignored).validate()


def test_clipping_beside_normalizing_is_an_error() -> None:
    made = config()
    made.clip_actions = True
    with pytest.raises(InputError, match="clip_actions=True has no effect beside normalize_actions=True"):
        made.validate()
    made.normalize_actions = False
    made.validate()


def test_a_batch_needs_a_step_of_every_environment() -> None:
    made = config().env_runners(num_env_runners=2, num_envs_per_env_runner=40).training(train_batch_size=64)
    with pytest.raises(InputError, match="at least one step of each of the 80 environments, got 64"):
        made.training(minibatch_size=32).validate()


@pytest.mark.parametrize(
    ("runners", "envs", "batch", "length"), [(0, 8, 2_048, 256), (2, 4, 2_048, 256), (0, 3, 100, 34), (4, 1, 6, 2)]
)
def test_fragments_fill_a_batch(runners: int, envs: int, batch: int, length: int) -> None:
    made = config().env_runners(num_env_runners=runners, num_envs_per_env_runner=envs)
    made.training(train_batch_size=batch, minibatch_size=2)
    made.validate()
    assert made.get_rollout_fragment_length() == length
    made.env_runners(rollout_fragment_length=7)
    made.validate()
    assert made.get_rollout_fragment_length() == 7


def test_schedules_are_kept_by_validation() -> None:
    schedules = {"clip_param": [[0, 0.3], [100, 0.1]], "entropy_coeff": Cosine(0.1, over=50), "lr": [[0, 1e-3]]}
    made = config().training(**schedules)
    made.validate()
    assert {key: getattr(made, key) for key in schedules} == schedules


def test_the_default_net_is_what_model_config_says() -> None:
    made = config().rl_module(model_config={"fcnet_hiddens": [8, 4], "vf_share_layers": True})
    spec = made.get_default_rl_module_spec()
    assert spec.module_class is ActorCriticModule
    assert spec.model_config["net_kwargs"]["hidden"] == [8, 4]
    assert spec.model_config["net_kwargs"]["shared"] is True
    assert spec.model_config["net_kwargs"]["activation"] == "tanh"
    with pytest.raises(InputError, match=r"model_config: 'fcnet_hidden' .*did you mean 'fcnet_hiddens'"):
        config().rl_module(model_config={"fcnet_hidden": [8]}).get_default_rl_module_spec()
