"""The runner that computes gradients, against a learner that gets what another has sampled; no Ray is started."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from counting import Identity, make_counting
from ray.rllib.core import DEFAULT_MODULE_ID

from custom_models.actor_critic_module import actor_critic_mlp
from rayground import A3CConfig
from rayground.learners.a2c import A2CSettings, A3CLearner, batch_of
from rayground.learners.advantages import value_sums
from rayground.rollouts.failures import RunnerFailure
from rayground.rollouts.gradients import GradientRunner, RolloutGradient
from rayground.rollouts.moments import Moments
from rayground.rollouts.rollout import Rollout
from rayground.rollouts.runner import ArrayEnvRunner
from rayground.rollouts.slow import SlowSampling
from rayground.seeding import get_rng_state, seed_everything

SETTINGS = A2CSettings(env_steps=30, entropy_coeff=0.2, vf_loss_coeff=0.7)


def config(
    *, norm: bool = False, learner_class: type = A3CLearner, entropy: float = 0.01, form: Any = "gradient", **env: Any
) -> A3CConfig:
    made = A3CConfig().environment(make_counting, env_config=env).env_runners(num_envs_per_env_runner=2)
    made.rl_module(rl_module_spec=actor_critic_mlp(hidden=[8], shared=True, normalize_observations=norm))
    made.training(gamma=0.9, lambda_=0.8, entropy_coeff=entropy, parallelism=form).learners(learner_class=learner_class)
    made.debugging(seed=5).validate()
    return made


def runner(runner_class: type = GradientRunner, **kwargs: Any) -> Any:
    return runner_class(config=config(**kwargs), worker_index=0)


def learner(made: ArrayEnvRunner) -> A3CLearner:
    built = made.config.build_learner(spaces=made.get_spaces())
    assert isinstance(built, A3CLearner)
    return built


def random_weights(made: A3CLearner, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    draw = {name: rng.normal(0, 0.5, value.shape) for name, value in made.module_arrays().items()}
    return {name: np.abs(draw[name]).astype(value.dtype) for name, value in made.module_arrays().items()}


def gradient(made: GradientRunner, weights: dict[str, np.ndarray], steps: int = 7, **call: Any) -> RolloutGradient:
    call = {"env_steps": 0, "settings": SETTINGS} | call
    found = made.sample_gradient(steps, weights=weights, **call)
    assert isinstance(found, RolloutGradient), found.traceback
    return found


@pytest.mark.parametrize("norm", [False, True])
def test_it_gives_what_a_learner_would_from_the_same_steps(norm: bool) -> None:
    """Three calls with weights of their own, on which steps and gradient depend; the last starts new episodes."""
    ours, plain = runner(norm=norm), runner(ArrayEnvRunner, norm=norm)
    central, seen = learner(plain), []
    for call in range(3):
        weights = random_weights(central, call)
        settings = A2CSettings(env_steps=0, entropy_coeff=0.1 * call, vf_loss_coeff=0.5 + call)
        how = {"env_steps": 14 * call, "reset": call == 2}
        seed_everything(call)
        found = gradient(ours, weights, settings=settings, **how)
        seed_everything(call)
        rollout = plain.sample_arrays(7, weights=weights, **how)
        central.load_module_arrays(weights)
        batch = batch_of([rollout], central.values, 0.9, 0.8)
        stats = central.gradient_of(batch, settings)
        np.testing.assert_array_equal(found.gradient, central.gradient_P.numpy())
        assert found.stats == stats
        np.testing.assert_array_equal(found.value_sums, value_sums(batch))
        assert found.value_sums[0] == rollout.num_env_steps
        assert stats.keys() == {"policy_loss", "vf_loss", "entropy", "loss"}
        assert (found.num_env_steps, found.episodes, found.wrong) == (rollout.num_env_steps, rollout.episodes, None)
        moments = rollout.moments() if norm else Moments()
        assert found.moments().count == moments.count == (rollout.num_env_steps if norm else 0)
        np.testing.assert_array_equal(found.moments().mean, moments.mean)
        np.testing.assert_array_equal(found.moments().var, moments.var)
        assert np.abs(found.gradient).max() > 0.1
        assert found.gradient.dtype == np.float32
        assert found.nbytes == 4 * sum(p.numel() for p in central.module[DEFAULT_MODULE_ID].parameters())
        seen.append(found.gradient)
    assert not np.array_equal(seen[0], seen[1])  # the earlier was not overwritten


def test_for_a_learner_elsewhere_it_sends_no_more_than_that_needs() -> None:
    ours, plain = runner(form="data"), runner(ArrayEnvRunner)
    plain.keeps_extras = True
    assert not hasattr(ours, "_learner")
    weights = random_weights(learner(plain), 0)
    seed_everything(1)
    sent = ours.sample_arrays(6, 0, weights=weights)
    seed_everything(1)
    whole = plain.sample_arrays(6, 0, weights=weights)
    assert whole.extras
    assert sent.extras == {}
    assert sent.nbytes == whole.nbytes - sum(array.nbytes for array in whole.extras.values())
    for name in ("obs", "actions", "rewards", "terminated", "truncated", "valid"):
        np.testing.assert_array_equal(getattr(sent, name), getattr(whole, name), err_msg=name)


@pytest.mark.parametrize("slow", [False, True])
def test_rllibs_hook_is_told_what_the_policy_computed_though_the_rollout_does_not_hold_it(slow: bool) -> None:
    told: list[dict[str, Any]] = []
    made = config(form="data").callbacks(
        on_sample_end=lambda samples, **_: told.extend(episode.extra_model_outputs for episode in samples)
    )
    if slow:
        made.env_runners(env_to_module_connector=lambda env, spaces, device: Identity())
    ours = GradientRunner(config=made, worker_index=0)
    assert isinstance(ours.sampling, SlowSampling) == slow
    rollout = ours.sample_arrays(6, 0)
    assert isinstance(rollout, Rollout)
    assert rollout.extras == {}
    assert told
    assert all({"action_dist_inputs", "action_logp"} <= outputs.keys() for outputs in told)


def test_making_its_learner_and_learning_draw_nothing() -> None:
    """Beside the actions, that is: whoever samples alone draws as much."""
    made, plain = runner(), runner(ArrayEnvRunner)
    weights = random_weights(learner(plain), 0)
    states = []
    for draws in (
        lambda: made._make_learner() and gradient(made, weights),
        lambda: plain.sample_arrays(7, 0, weights=weights),
    ):
        seed_everything(3)
        draws()
        states.append(get_rng_state())
    (values, arrays), (expected_values, expected_arrays) = states
    assert values == expected_values
    for name, words in expected_arrays.items():
        np.testing.assert_array_equal(arrays[name], words, err_msg=name)


def test_learning_is_part_of_the_time_that_it_took() -> None:
    ours = runner()
    seconds = gradient(ours, random_weights(learner(ours), 0)).seconds
    assert seconds.keys() == {"env", "inference", "learn", "total"}
    assert 0 < seconds["learn"] < seconds["total"]
    assert sum(seconds[part] for part in ("env", "inference", "learn")) <= seconds["total"]


def test_where_environments_only_reset_themselves_there_is_no_gradient() -> None:
    ours = runner(length=1)
    weights = random_weights(learner(ours), 0)
    assert gradient(ours, weights, steps=1).num_env_steps == 2
    found = gradient(ours, weights, steps=1)
    assert (found.num_env_steps, found.stats) == (0, {})
    assert not found.value_sums.any()
    assert not found.gradient.any()


class Raises(A3CLearner):
    def compute_loss_for_module(self, **kwargs: Any) -> torch.Tensor:
        raise ArithmeticError("no loss today")


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"fail_at": 3}, "the environment raised ZeroDivisionError: the wheel came off (counting.py:"),
        ({"learner_class": Raises}, "raised ArithmeticError: no loss today (test_gradient_runner.py:"),
    ],
)
def test_what_raises_is_handed_back(settings: dict[str, Any], error: str) -> None:
    ours = runner(**settings)
    weights = random_weights(learner(ours), 0)
    failure = ours.sample_gradient(5, 0, weights=weights, settings=SETTINGS)
    assert isinstance(failure, RunnerFailure)
    assert failure.runner == 0
    assert failure.error.startswith(error)
    assert error.split("raised ")[1].split(":")[0] in failure.traceback
    if "fail_at" in settings:
        assert isinstance(ours.sample_arrays(5, 0, weights=weights), RunnerFailure)
    else:
        rollout = ours.sample_arrays(2, 0, weights=weights)
        assert isinstance(rollout, Rollout)
        assert rollout.fresh


def test_a_reward_that_is_not_finite_is_told() -> None:
    ours = runner()
    weights = random_weights(learner(ours), 0)
    step = ours.sampling._step
    ours.sampling._step = lambda *args: (np.array([1.0, np.inf]), *step(*args)[1:])
    assert gradient(ours, weights).not_finite() == "runner 0: the reward of sub-environment 1 is inf"


def test_an_entropy_coefficient_that_rises_from_0_while_training_counts() -> None:
    """The driver's learner is told of a setting that changes; a runner's goes by the settings of each call."""
    found = []
    for entropy in (0.0, 0.01):  # what the config said when the runner was made
        ours = runner(entropy=entropy)
        weights = random_weights(learner(ours), 0)
        seed_everything(0)
        found.append(gradient(ours, weights).gradient)
    np.testing.assert_array_equal(found[0], found[1])
