"""A setting that does not exist, or has no effect, is an error: by builder, by dict, by attribute."""

import pickle
from typing import Any

import pytest
from ray.rllib.callbacks.callbacks import RLlibCallback

from callbacks import ReturnThreshold
from rayground import DQNConfig, SlottedReplay
from rayground.errors import InputError
from rayground.schedules import Cosine


def config() -> DQNConfig:
    return DQNConfig().environment("CartPole-v1")


class CountsSteps(RLlibCallback):
    def on_episode_step(self, **kwargs: Any) -> None:
        raise AssertionError


UNSUPPORTED = {
    "noisy": True,
    "num_atoms": 51,
    "training_intensity": 4.0,
    "num_learners": 2,
    "batch_mode": "complete_episodes",
    "replay_buffer_config": {"type": "EpisodeReplayBuffer", "capacity": 1_000},
    "adam_epsilon": 1e-3,
    "evaluation_num_env_runners": 1,
    "explore": False,
    "clip_rewards": True,
}


@pytest.mark.parametrize("key", UNSUPPORTED)
def test_a_setting_without_effect_is_an_error(key: str) -> None:
    made = config()
    setattr(made, key, UNSUPPORTED[key])
    with pytest.raises(InputError, match=rf"{key}=.* is not supported by DQN"):
        made.validate()


@pytest.mark.parametrize("key", ["noisy", "num_atoms", "training_intensity"])
def test_also_through_a_dict(key: str) -> None:
    made = config().update_from_dict({key: UNSUPPORTED[key]})
    with pytest.raises(InputError, match=f"{key}=.* is not supported"):
        made.validate()


@pytest.mark.parametrize(
    "misspell",
    [
        lambda made: made.training(gama=0.9),
        lambda made: made.update_from_dict({"gama": 0.9}),
        lambda made: (setattr(made, "gama", 0.9), made.validate()),
    ],
)
def test_an_unknown_setting_names_the_closest(misspell: Any) -> None:
    with pytest.raises(InputError, match=r"no setting 'gama'.*did you mean 'gamma'"):
        misspell(config())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": "fast"}, "lr: expected a number"),
        ({"lr": [[5, 1e-3]]}, "lr: expected points that start at env step 0"),
        ({"optimizer": "adamw"}, "optimizer: expected one of adam, rmsprop, sgd, got 'adamw'; did you mean 'adam'"),
        ({"optimizer": {"type": "sgd", "momentun": 0.9}}, "sgd has no argument 'momentun'; did you mean 'momentum'"),
        ({"replay": {"capacity": 100}}, "replay: expected SlottedReplay"),
        ({"replay_ratio": 0}, "replay_ratio: expected a number above 0"),
        ({"n_step": 0}, "n_step: expected a number above 0"),
        ({"td_error_loss_fn": "l1"}, "td_error_loss_fn"),
    ],
)
def test_a_value_that_cannot_be_is_an_error(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        config().training(**settings).validate()


def test_per_step_callbacks_and_connectors_are_errors() -> None:
    with pytest.raises(InputError, match="on_episode_step is not supported"):
        config().callbacks(CountsSteps).validate()
    with pytest.raises(InputError, match="env_to_module_connector is not supported"):
        config().env_runners(env_to_module_connector=lambda *_: []).validate()
    with pytest.raises(InputError, match="on_episode_step"):
        config().callbacks(on_episode_step=print).validate()


def test_a_setting_of_another_builder_method_is_said_to_be_one() -> None:
    with pytest.raises(InputError, match=r"^training\(\) got an unexpected keyword argument 'rollout_fragment_length'"):
        config().training(rollout_fragment_length=4)


def test_model_config_of_the_default_module() -> None:
    made = config().rl_module(model_config={"fcnet_hidden": [64]})
    with pytest.raises(InputError, match=r"fcnet_hidden.*did you mean 'fcnet_hiddens'"):
        made.get_default_rl_module_spec()


def test_valid_settings_pass_and_survive_a_pickle_and_a_state() -> None:
    made = config().training(
        lr=Cosine(1e-3, 10_000), optimizer={"type": "rmsprop", "alpha": 0.95}, replay=SlottedReplay(capacity=123)
    )
    made.callbacks([ReturnThreshold(10.0, stop=True)])
    made.validate()
    again = pickle.loads(pickle.dumps(made.copy()))
    again.validate()
    assert (again.lr, again.replay.capacity) == (Cosine(1e-3, 10_000), 123)
    from_state = DQNConfig.from_state(made.get_state())
    from_state.validate()
    assert from_state.optimizer == {"type": "rmsprop", "alpha": 0.95}


def test_a_run_always_has_a_seed() -> None:
    made = config()
    made.validate()
    assert isinstance(made.seed, int)
