"""A setting that does not exist, or has no effect, is an error: by builder, by dict, by attribute."""

import pickle
from typing import Any

import pytest
from gymnasium.spaces import Box, Dict, Discrete
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.connectors.env_to_module import MeanStdFilter
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES

from callbacks import ReturnThreshold
from custom_models.q_module import plain_mlp
from rayground import DQNConfig, SlottedReplay
from rayground.errors import InputError
from rayground.schedules import Cosine


def config() -> DQNConfig:
    return DQNConfig().environment("CartPole-v1")


class Replaced(RLlibCallback):
    def on_env_runners_recreated(self, **kwargs: Any) -> None:
        raise AssertionError


class CountsSteps(RLlibCallback):
    def on_episode_step(self, **kwargs: Any) -> None:
        raise AssertionError


UNSUPPORTED = {
    "num_atoms": 51,
    "training_intensity": 4.0,
    "batch_mode": "complete_episodes",
    "replay_buffer_config": {"type": "EpisodeReplayBuffer", "capacity": 1_000},
    "adam_epsilon": 1e-3,
    "evaluation_num_env_runners": 1,
    "explore": False,
    "observation_space": Discrete(2),
    "action_space": Discrete(2),
}


@pytest.mark.parametrize("key", UNSUPPORTED)
def test_a_setting_without_effect_is_an_error(key: str) -> None:
    made = config()
    setattr(made, key, UNSUPPORTED[key])
    with pytest.raises(InputError, match=rf"{key}=.* is not supported by DQN"):
        made.validate()


@pytest.mark.parametrize("key", ["num_atoms", "training_intensity"])
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
        ({"replay_ratio": 0}, "replay_ratio: expected a finite number above 0"),
        ({"n_step": 0}, "n_step: expected a whole number of at least 1"),
        ({"td_error_loss_fn": "l1"}, "td_error_loss_fn"),
    ],
)
def test_a_value_that_cannot_be_is_an_error(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        config().training(**settings).validate()


def test_hooks_that_would_never_be_called_and_learner_connectors_are_errors() -> None:
    with pytest.raises(InputError, match="on_env_runners_recreated is not supported: it would never be called"):
        config().callbacks(Replaced).validate()
    with pytest.raises(InputError, match="learner_connector is not supported by DQN: it learns from arrays"):
        config().training(learner_connector=lambda *_: []).validate()


def test_per_step_callbacks_and_connectors_of_runners_are_fine() -> None:
    config().callbacks(CountsSteps).env_runners(env_to_module_connector=lambda *_: []).validate()
    config().callbacks(on_episode_step=print, on_sample_end=print, on_episode_created=print).validate()


def test_a_connector_that_keeps_a_state_is_an_error() -> None:
    spaces = {INPUT_ENV_SINGLE_SPACES: (Box(-1.0, 1.0, (2,)), Discrete(2))}
    made = config().env_runners(env_to_module_connector=lambda env, spaces, device: MeanStdFilter())
    with pytest.raises(InputError, match="env_to_module_connector: MeanStdFilter keeps a state, which is not supp"):
        made.build_env_to_module_connector(spaces=spaces)


def test_dict_observations_are_flattened_unless_a_connector_deals_with_them() -> None:
    spaces = {INPUT_ENV_SINGLE_SPACES: (Dict(a=Box(-1.0, 1.0, (2,)), b=Discrete(3)), Discrete(2))}
    assert config().build_env_to_module_connector(spaces=spaces).observation_space.shape == (5,)
    own = config().env_runners(env_to_module_connector=lambda env, spaces, device: [])
    assert isinstance(own.build_env_to_module_connector(spaces=spaces).observation_space, Dict)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[
            (key, 2.5)
            for key in ("n_step", "target_network_update_freq", "train_batch_size", "num_envs_per_env_runner")
        ],
        ("metrics_num_episodes_for_smoothing", 2.5),
        ("n_step", True),
        ("n_step", (1, 3)),
        ("gamma", "x"),
        ("gamma", None),
        ("double_q", "no"),
        ("seed", "x"),
        ("seed", -1),
        ("replay_ratio", float("inf")),
        ("optimizer", 5),
        ("grad_clip", "x"),
        ("rollout_fragment_length", 0),
        ("rollout_fragment_length", "long"),
        ("gym_env_vectorize_mode", "snc"),
        ("epsilon", Cosine(1.0, 100, final=-0.1)),
        ("lr", Cosine(1e-3, 100, final=-1e-4)),
    ],
)
def test_a_value_of_a_wrong_type_or_size_is_an_error(key: str, value: Any) -> None:
    made = config()
    setattr(made, key, value)
    with pytest.raises(InputError, match=rf"^{key}: expected"):
        made.validate()


def test_a_learner_class_that_cannot_do_it_is_an_error() -> None:
    with pytest.raises(InputError, match="learner_class: expected DQNLearner or a subclass"):
        config().training(learner_class=DQNTorchLearner).validate()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gamma": 0.5}, "evaluation_config: 'gamma' has no effect on evaluation"),
        ({"env_confg": {}}, "evaluation_config: 'env_confg' .*did you mean 'env_config'"),
        ({"explore": True}, "evaluation_config: explore=True is not supported"),
        ({"num_envs_per_env_runner": 0}, r"evaluation_config\.num_envs_per_env_runner: expected a whole number"),
        ({"gym_env_vectorize_mode": "asinc"}, r"evaluation_config\.gym_env_vectorize_mode: .*did you mean 'async'"),
    ],
)
def test_evaluation_changes_what_it_reads_only(changes: dict[str, Any], message: str) -> None:
    config().evaluation(evaluation_config={"env_config": {}, "num_envs_per_env_runner": 2}).validate()
    with pytest.raises(InputError, match=message):
        config().evaluation(evaluation_config=changes).validate()


def test_a_net_of_the_experiments_own_leaves_no_say_to_dueling_and_model_config() -> None:
    def made() -> DQNConfig:
        return config().rl_module(rl_module_spec=plain_mlp(hidden=[8]))

    made().validate()
    with pytest.raises(InputError, match="dueling=False has no effect beside rl_module_spec"):
        made().training(dueling=False).validate()
    with pytest.raises(InputError, match=r"model_config=.*fcnet_hiddens.* has no effect beside"):
        made().rl_module(model_config={"fcnet_hiddens": [8]}).validate()


def test_fragments_may_be_shorter_than_n_step() -> None:
    made = config().training(n_step=3).env_runners(rollout_fragment_length=1)
    made.validate()
    assert (made.n_step, made.get_rollout_fragment_length()) == (3, 1)


@pytest.mark.parametrize(("runners", "given", "length"), [(0, "auto", 1), (2, "auto", 8), (2, 3, 3)])
def test_remote_runners_are_asked_for_several_steps_at_once(runners: int, given: Any, length: int) -> None:
    made = config().env_runners(num_env_runners=runners, rollout_fragment_length=given)
    assert made.get_rollout_fragment_length() == length


def test_a_hook_that_is_never_called_is_an_error() -> None:
    with pytest.raises(InputError, match="on_env_runners_recreated is not supported: it would never be called"):
        config().callbacks([ReturnThreshold(1.0, stop=True), Replaced]).validate()


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_gpus_per_learner": 1.5}, "num_gpus_per_learner: expected a finite number from 0 to 1, got 1.5"),
        ({"num_gpus_per_learner": 2}, "num_gpus_per_learner: expected a finite number from 0 to 1, got 2"),
        ({"num_env_runners": 1, "num_gpus_per_env_runner": -1}, "num_gpus_per_env_runner: expected a finite number"),
        ({"num_gpus_per_env_runner": 0.5}, "num_gpus_per_env_runner=0.5 has no effect: with num_env_runners=0"),
        ({"num_cpus_per_learner": 2}, "num_cpus_per_learner=2 has no effect: with num_learners=0"),
        ({"num_cpus_per_learner": "all", "num_learners": 1}, "num_cpus_per_learner: expected a finite number"),
        ({"local_gpu_idx": 1}, "local_gpu_idx=1 has no effect: only the main process"),
        ({"local_gpu_idx": 1, "num_gpus_per_learner": 1, "num_learners": 1}, "local_gpu_idx=1 has no effect"),
        ({"num_learners": 1.5}, "num_learners: expected a whole number"),
        ({"num_learners": 3}, "train_batch_size: expected a multiple of num_learners=3, got 32"),
        ({"torch_compile_learner": "yes"}, "torch_compile_learner: expected True or False"),
        ({"torch_compile_learner_dynamo_mode": "max-autotune"}, "torch_compile_learner_dynamo_mode=.* not supported"),
    ],
)
def test_settings_of_processes_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    made = config()
    for key, value in changes.items():
        setattr(made, key, value)
    with pytest.raises(InputError, match=f"^{message}"):
        made.validate()


def test_the_batch_of_all_learners_is_the_sum_of_theirs() -> None:
    made = config().learners(num_learners=3, num_gpus_per_learner=0.5).training(train_batch_size_per_learner=7)
    made.validate()
    assert made.total_train_batch_size == 21
