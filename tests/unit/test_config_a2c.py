"""A2C's and A3C's settings: what is misspelt, out of range or without effect is an error of one line."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule

from custom_models.actor_critic_module import ActorCriticModule
from rayground import A2CConfig, A3CConfig
from rayground.algorithms.a2c import A2C
from rayground.algorithms.a3c import A3C
from rayground.errors import InputError
from rayground.learners.a2c import A2CLearner, A3CLearner
from rayground.preflight import preflight
from rayground.rollouts.gradients import GradientRunner
from rayground.rollouts.runner import ArrayEnvRunner
from rayground.schedules import Cosine

BOTH = [A2CConfig, A3CConfig]


def made(config_class: type = A3CConfig, runners: int = 0, learners: int = 0, **settings: Any) -> Any:
    """With what ``training()`` takes as it does, and attributes for all else."""
    config = config_class().environment("CartPole-v1")
    config.env_runners(num_env_runners=runners).learners(num_learners=learners)
    attributes = settings.pop("attributes", {})
    config.training(**settings)
    for name, value in attributes.items():
        setattr(config, name, value)
    return config


def refused(config: Any) -> str:
    with pytest.raises(InputError) as error:
        config.validate()
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(("config_class", "length"), [(A2CConfig, 5), (A3CConfig, 20)])
def test_the_defaults_are_the_papers(config_class: type, length: int) -> None:
    config = made(config_class)
    config.validate()
    names = ("lr", "gamma", "lambda_", "entropy_coeff", "vf_loss_coeff", "grad_clip", "grad_clip_by")
    assert {name: getattr(config, name) for name in names} == {
        "lr": 7e-4, "gamma": 0.99, "lambda_": 1.0, "entropy_coeff": 0.01, "vf_loss_coeff": 0.5, "grad_clip": 0.5,
        "grad_clip_by": "global_norm",
    }  # fmt: skip
    assert config.optimizer == {"type": "rmsprop", "alpha": 0.99, "eps": 1e-5}
    assert config.rollout_fragment_length == length
    spec = config.get_default_rl_module_spec()
    assert spec.module_class is ActorCriticModule
    assert spec.model_config["net_kwargs"]["shared"] is False


def test_what_a3c_adds_and_replaces() -> None:
    config = made()
    assert (config.parallelism, config.entropy_coeff_per_worker) == ("gradient", None)
    assert (config.env_runner_cls, config.learner_class) == (GradientRunner, A3CLearner)
    plain = made(A2CConfig)
    assert (plain.env_runner_cls, plain.learner_class) == (ArrayEnvRunner, A2CLearner)
    assert (config.algo_class, plain.algo_class) == (A3C, A2C)
    assert config.training(parallelism="data").parallelism == "data"


@pytest.mark.parametrize(
    ("config_class", "runners", "envs", "length", "size"),
    [(A2CConfig, 0, 8, 5, 40), (A2CConfig, 3, 4, 7, 84), (A3CConfig, 0, 1, 20, 20), (A3CConfig, 8, 2, 20, 40)],
)
def test_a_batch_is_what_comes_at_once(config_class: type, runners: int, envs: int, length: int, size: int) -> None:
    config = made(config_class, runners)
    config.env_runners(num_envs_per_env_runner=envs, rollout_fragment_length=length)
    assert config.total_train_batch_size == size
    config.validate()


@pytest.mark.parametrize("config_class", BOTH)
@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("entropy_coef", "training(): no setting 'entropy_coef'; did you mean 'entropy_coeff'?"),
        ("vf_coef", "training(): no setting 'vf_coef'; did you mean 'vf_loss_coeff'?"),
        ("lamda", "training(): no setting 'lamda'; did you mean 'lambda_'?"),
        ("max_grad_norm", "training(): no setting 'max_grad_norm'; did you mean 'grad_clip'?"),
    ],
)
def test_an_unknown_setting_names_the_closest(config_class: type, key: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        made(config_class).training(**{key: 0.1})
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("key", "hint"), [("paralelism", "parallelism"), ("entropy_coeff_per_workers", "entropy_coeff_per_worker")]
)
def test_what_only_a3c_knows(key: str, hint: str) -> None:
    with pytest.raises(InputError) as error:
        made().training(**{key: "data"})
    assert str(error.value) == f"training(): no setting '{key}'; did you mean '{hint}'?"
    with pytest.raises(InputError, match=rf"^training\(\): no setting '{hint}'"):
        made(A2CConfig).training(**{hint: "data"})


@pytest.mark.parametrize("config_class", BOTH)
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lambda_": 1.5}, "lambda_: expected a finite number from 0 to 1, got 1.5"),
        ({"lambda_": -0.1}, "lambda_: expected a finite number from 0 to 1, got -0.1"),
        ({"lambda_": None}, "lambda_: expected a finite number from 0 to 1, got None"),
        ({"vf_loss_coeff": -1}, "vf_loss_coeff: expected a finite number of at least 0, got -1"),
        ({"vf_loss_coeff": math.nan}, "vf_loss_coeff: expected a finite number of at least 0, got nan"),
        ({"entropy_coeff": -0.1}, "entropy_coeff: expected values of at least 0, got -0.1 at env step 0"),
        (
            {"entropy_coeff": [[0, 0.1], [50, -1]]},
            "entropy_coeff: expected values of at least 0, got -1.0 at env step 50",
        ),
        (
            {"entropy_coeff": [[5, 0.1]]},
            "entropy_coeff: expected points that start at env step 0 and ascend, got [[5, 0.1]]",
        ),
        ({"grad_clip": 0}, "grad_clip: expected a finite number above 0, or None, got 0"),
        (
            {"optimizer": {"type": "rmsprop", "alfa": 0.99}},
            "optimizer: rmsprop has no argument 'alfa'; did you mean 'alpha'? (the rate is the setting lr)",
        ),
        ({"optimizer": "rmspropp"}, "optimizer: expected one of adam, rmsprop, sgd, got 'rmspropp'; did you mean "),
        (
            {"attributes": {"rollout_fragment_length": "auto"}},
            "rollout_fragment_length: expected a whole number of at least 1, got 'auto'",
        ),
        (
            {"attributes": {"rollout_fragment_length": 0}},
            "rollout_fragment_length: expected a whole number of at least 1, got 0",
        ),
        (
            {"attributes": {"rollout_fragment_length": 2.5}},
            "rollout_fragment_length: expected a whole number of at least 1, got 2.5",
        ),
    ],
)
def test_a_value_that_cannot_be(config_class: type, settings: dict[str, Any], message: str) -> None:
    assert refused(made(config_class, **settings)).startswith(message)


@pytest.mark.parametrize("config_class", BOTH)
@pytest.mark.parametrize(
    ("key", "value"),
    [("minibatch_size", 16), ("num_epochs", 2), ("batch_mode", "complete_episodes"), ("explore", False)],
)
def test_a_setting_without_effect(config_class: type, key: str, value: Any) -> None:
    config = made(config_class, attributes={key: value})
    assert refused(config).startswith(f"{key}={value!r} is not supported by {config.algo_class.__name__}")


@pytest.mark.parametrize("config_class", BOTH)
@pytest.mark.parametrize(("key", "size"), [("train_batch_size", 32), ("train_batch_size_per_learner", 64)])
def test_a_batchs_size_is_refused_with_what_to_set_instead(config_class: type, key: str, size: int) -> None:
    """Also RLlib's own default."""
    config = made(config_class)
    with pytest.raises(InputError) as error:
        config.training(**{key: size}).validate()
    assert str(error.value) == (
        f"{key}={size} is not supported by {config.algo_class.__name__}: set rollout_fragment_length (vector steps of "
        "a runner), of which its batches are made"
    )


def test_only_a2c_has_a_graph_for_its_update() -> None:
    assert refused(made(attributes={"torch_compile_learner": True})) == (
        "torch_compile_learner=True is not supported by A3C: runners may compute its gradients; PPO, A2C and DQN can "
        "compile their updates"
    )
    made(A2CConfig, attributes={"torch_compile_learner": True}).validate()


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("gradients", "'gradients'; did you mean 'gradient'?"),
        ("Data", "'Data'; did you mean 'data'?"),
        ("async", "'async'"),
        (None, "None"),
    ],
)
def test_forms_of_parallelism(given: Any, found: str) -> None:
    assert refused(made(parallelism=given)) == f"parallelism: expected one of gradient, data, got {found}"


@pytest.mark.parametrize("learners", [1, 2])
def test_gradients_need_the_main_process_to_apply_them(learners: int) -> None:
    assert refused(made(runners=2, learners=learners)) == (
        f"num_learners={learners}: with parallelism='gradient' the runners compute the gradients, and the main process "
        "applies them: set num_learners=0, or parallelism='data'"
    )
    made(runners=2, learners=learners, parallelism="data").validate()


@pytest.mark.parametrize(
    ("config_class", "settings", "size"), [(A2CConfig, {}, 10), (A3CConfig, {"parallelism": "data"}, 20)]
)
def test_learners_share_a_batch_equally(config_class: type, settings: dict[str, Any], size: int) -> None:
    message = refused(made(config_class, runners=2, learners=3, **settings))
    assert message.startswith("rollout_fragment_length: ")
    assert message.endswith(f": expected batches that num_learners=3 learners can share equally, got {size} rows")


A_LIST = "expected a list of 2, one per runner, or None"
POINTS = "expected a number, [[env_steps, value], ...] or a schedule of rayground.schedules"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"entropy_coeff_per_worker": 0.1}, f"{A_LIST}, got 0.1"),
        ({"entropy_coeff_per_worker": "ab"}, f"{A_LIST}, got 'ab'"),
        ({"entropy_coeff_per_worker": []}, f"{A_LIST}, got []"),
        ({"entropy_coeff_per_worker": [0.1]}, f"{A_LIST}, got [0.1]"),
        (
            {"entropy_coeff_per_worker": (0.1, 0.2, 0.3)},
            f"{A_LIST}, got (0.1, 0.2, 0.3)",
        ),
        (
            {"entropy_coeff_per_worker": {0: 0.1, 1: 0.2}},
            f"{A_LIST}, got {{0: 0.1, 1: 0.2}}",
        ),
        ({"entropy_coeff_per_worker": [0.1, "x"]}, f"[1]: {POINTS}, got 'x'"),
        ({"entropy_coeff_per_worker": [-1, 0.1]}, "[0]: expected values of at least 0, got -1.0 at env step 0"),
        ({"entropy_coeff_per_worker": [0.1, None]}, f"[1]: {POINTS}, got None"),
    ],
)
def test_an_entropy_coefficient_for_each_runner(settings: dict[str, Any], message: str) -> None:
    separator = "" if message.startswith("[") else ": "
    assert refused(made(runners=2, **settings)) == f"entropy_coeff_per_worker{separator}{message}"


def test_entropy_coefficients_for_each_and_for_all() -> None:
    assert made(entropy_coeff=0.02, entropy_coeff_per_worker=[0.5]).entropy_coeff_of(1) == 0.5
    config = made(runners=2, entropy_coeff_per_worker=[0.1, schedule := Cosine(0.1, over=50)])
    config.validate()
    assert [config.entropy_coeff_of(runner) for runner in (1, 2)] == [0.1, schedule]
    assert made(entropy_coeff_per_worker=[0.3]).entropy_coeff_of(0) == 0.3
    assert [made(runners=2, entropy_coeff=0.2).entropy_coeff_of(runner) for runner in (0, 1, 2)] == [0.2] * 3
    for coefficients, explores in (([0.0, 0.0], False), ([0, 0.1], True), ([0.0, [[0, 0.0], [9, 0.1]]], True)):
        assert made(runners=2, entropy_coeff_per_worker=coefficients).explores_by_entropy is explores
    assert [made(entropy_coeff=coeff).explores_by_entropy for coeff in (0.0, 0, 0.1)] == [False, False, True]


def test_entropy_coefficients_for_each_runner_are_no_matter_of_evaluation() -> None:
    config = made(runners=2, entropy_coeff_per_worker=[0.0, 0.1]).evaluation(evaluation_interval=1)
    config.validate()
    config.get_evaluation_config_object().validate()  # as RLlib does


@pytest.mark.parametrize(
    ("config_class", "attributes", "message"),
    [
        (A2CConfig, {"_learner_class": int}, "learner_class: expected A2CLearner or a subclass, got <class 'int'>"),
        (A3CConfig, {"_learner_class": A2CLearner}, "learner_class: expected A3CLearner or a subclass, got <class "),
        (A3CConfig, {"env_runner_cls": ArrayEnvRunner}, "env_runner_cls: expected GradientRunner or a subclass, got <"),
        (A3CConfig, {"env_runner_cls": "x"}, "env_runner_cls: expected GradientRunner or a subclass, got 'x': leave"),
        (A2CConfig, {"env_runner_cls": "x"}, "env_runner_cls: expected ArrayEnvRunner or a subclass, got 'x': leave"),
    ],
)
def test_classes_of_another_kind(config_class: type, attributes: dict[str, Any], message: str) -> None:
    assert refused(made(config_class, attributes=attributes)).startswith(message)


class NoValues(TorchRLModule):
    """Acts, but has no value function."""

    def setup(self) -> None:
        self.layer = torch.nn.Linear(4, 2)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {Columns.ACTION_DIST_INPUTS: self.layer(batch[Columns.OBS])}


@pytest.mark.parametrize("config_class", BOTH)
def test_a_module_without_a_value_function_is_refused_before_training(config_class: type) -> None:
    config = made(config_class).rl_module(rl_module_spec=RLModuleSpec(NoValues))
    config.validate()
    with pytest.raises(InputError) as error:
        preflight(config)
    assert str(error.value) == (
        "module NoValues: base classes: expected RLlib's ValueFunctionAPI, which an actor-critic algorithm needs, got "
        "TorchRLModule"
    )


@pytest.mark.parametrize("config_class", BOTH)
def test_schedules_are_kept_and_an_update_goes_by_where_they_stand(config_class: type) -> None:
    schedules = {"entropy_coeff": [[0, 0.3], [100, 0.1]], "lr": Cosine(1e-3, over=50)}
    config = made(config_class, **schedules, vf_loss_coeff=0.25)
    config.validate()
    assert {key: getattr(config, key) for key in schedules} == schedules
    algorithm: Any = SimpleNamespace(env_steps=50, config=config)
    settings = A2C.update_settings(algorithm, config.entropy_coeff)
    assert (settings.env_steps, settings.vf_loss_coeff) == (50, 0.25)
    assert settings.entropy_coeff == pytest.approx(0.2)
    assert A2C.update_settings(algorithm, 0.7).entropy_coeff == 0.7


@pytest.mark.parametrize("config_class", BOTH)
def test_the_default_net_is_what_model_config_says(config_class: type) -> None:
    config = made(config_class).rl_module(model_config={"fcnet_hiddens": [8, 4], "vf_share_layers": True})
    kwargs = config.get_default_rl_module_spec().model_config["net_kwargs"]
    assert (kwargs["hidden"], kwargs["shared"], kwargs["activation"]) == ([8, 4], True, "tanh")
