"""Action masks in rollouts: against masks made by hand, the fast path against the slow one, and wrong masks."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from counting import Identity, config, sample
from ray.rllib.algorithms.dqn import DQNConfig as RLlibDQNConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from strict import NUM_ACTIONS, Strict, StrictVector, legal_at, make_strict

from custom_models.actor_critic_module import actor_critic_mlp
from rayground import PPOConfig, checks
from rayground.action_masks import LegalActions, legal_sample
from rayground.errors import InputError, RunError
from rayground.rollouts.failures import RunnerFailure
from rayground.rollouts.fast import FastSampling
from rayground.rollouts.rollout import Rollout, concatenate
from rayground.rollouts.runner import ArrayEnvRunner
from rayground.rollouts.slow import SlowSampling

EXPECTED = r"expected bool or int8 \[4\], true or 1 for legal actions, of which there is one at least, got "
ALL, NONE = np.ones(NUM_ACTIONS, np.bool_), np.zeros(NUM_ACTIONS, np.bool_)
ROWS = ("obs", "action_masks", "actions", "rewards", "terminated", "truncated", "valid")


def strict_runner(
    *, slow: bool = False, mode: str = "sync", envs: int = 3, epsilon: float = 1.0, seed: int = 0, **env_config: Any
) -> ArrayEnvRunner:
    made = config(make_strict, envs=envs, epsilon=epsilon, **env_config)
    made.env_runners(gym_env_vectorize_mode=mode)
    if slow:
        made.env_runners(env_to_module_connector=lambda env, spaces, device: Identity())
    torch.manual_seed(seed)
    return ArrayEnvRunner(config=made, worker_index=0)


def assert_masks_are_right(rollout: Rollout, at_a_cut: np.ndarray | None = None) -> None:
    """By hand: the masks of what is observed, but all actions where an episode terminated; and none is illegal."""
    assert rollout.action_masks is not None
    assert rollout.action_masks.dtype == np.bool_
    for t in range(len(rollout.obs)):
        for i in range(rollout.obs.shape[1]):
            expected = legal_at(*rollout.obs[t, i].astype(int).tolist())
            if t and rollout.terminated[t - 1, i]:
                expected = ALL
            if t and rollout.truncated[t - 1, i] and at_a_cut is not None:
                expected = at_a_cut
            assert rollout.action_masks[t, i].tolist() == expected.tolist()
            if t < len(rollout.valid) and rollout.valid[t, i]:
                assert expected[rollout.actions[t, i]]


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.parametrize(
    "how",
    [
        {"mode": "sync"},
        {"mode": "sync", "cut": True, "dtype": "int8"},
        {"mode": "vector_entry_point"},
        {"mode": "vector_entry_point", "presence": False, "cut": True},
        {"slow": True},
        {"slow": True, "mode": "vector_entry_point", "presence": False, "dtype": "uint8"},
    ],
)
def test_masks_are_those_of_what_is_observed_and_nothing_illegal_is_done(how: dict, epsilon: float) -> None:
    made = strict_runner(epsilon=epsilon, **how)
    assert isinstance(made.sampling, SlowSampling if how.get("slow") else FastSampling)
    parts = [sample(made, num_steps) for num_steps in (40, 1, 23)]
    assert np.array_equal(parts[0].action_masks[-1], parts[1].action_masks[0])  # type: ignore[index]
    whole = concatenate(parts)
    assert_masks_are_right(whole)
    assert whole.num_env_steps > 150
    without = sum(getattr(whole, name).nbytes for name in ROWS if name != "action_masks")
    assert whole.nbytes == without + 65 * 3 * 4 + sum(values.nbytes for values in whole.extras.values())
    assert [record.length for record in made.evaluate(7, seed=3)] == [5] * 7  # type: ignore[union-attr]


def test_every_legal_action_is_explored() -> None:
    rollout = sample(strict_runner(), 400)
    legal = rollout.action_masks[:-1][rollout.valid]
    taken = rollout.actions[rollout.valid]
    two = legal.sum(axis=1) == 2
    first = taken[two] == legal[two].argmax(axis=1)
    assert abs(first.mean() - 0.5) < 4 * 0.5 / np.sqrt(two.sum())


def test_masks_come_out_of_processes_too() -> None:
    assert_masks_are_right(sample(strict_runner(mode="async", envs=2), 12))


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_the_slow_path_has_the_masks_of_the_fast_one(cut: bool, epsilon: float) -> None:
    fast, slow = (strict_runner(slow=slow, cut=cut, epsilon=epsilon) for slow in (False, True))
    slow.module.load_state_dict(fast.module.state_dict())
    for num_steps in (13, 1, 20):
        torch.manual_seed(num_steps)
        a = sample(fast, num_steps)
        torch.manual_seed(num_steps)
        b = sample(slow, num_steps)
        for name in ROWS:
            assert np.array_equal(getattr(a, name), getattr(b, name)), name
            assert getattr(a, name).dtype == getattr(b, name).dtype
    assert fast.evaluate(4, seed=1) == slow.evaluate(4, seed=1)


class Watches(RLlibCallback):
    def on_episode_end(self, **kwargs: Any) -> None:
        pass


def test_callbacks_that_get_infos_as_lists_change_nothing() -> None:
    made = config(make_strict)
    made.callbacks(Watches)
    assert_masks_are_right(sample(ArrayEnvRunner(config=made, worker_index=0), 20))


@pytest.mark.parametrize("slow", [False, True])
def test_a_snapshot_has_the_masks_in_force(slow: bool) -> None:
    made = strict_runner(slow=slow)
    sample(made, 7)
    data = made.get_episodes()
    torch.manual_seed(1)
    expected = sample(made, 30)
    other = strict_runner(slow=slow)  # it never was reset
    other.module.load_state_dict(made.module.state_dict())
    assert data is not None
    assert other.set_episodes(data)
    torch.manual_seed(1)
    again = sample(other, 30)
    assert all(np.array_equal(getattr(expected, name), getattr(again, name)) for name in ROWS)
    assert_masks_are_right(again)


@pytest.mark.parametrize("slow", [False, True])
def test_masks_change_nothing_where_nothing_is_done(slow: bool) -> None:
    """Whatever comes where an episode terminated, and no legal action at all where it was cut."""
    for mask in (None, NONE, np.zeros(2), [True]):
        assert_masks_are_right(sample(strict_runner(slow=slow, told={5: mask}), 14))
    assert_masks_are_right(sample(strict_runner(slow=slow, told={5: NONE}, cut=True), 14), at_a_cut=NONE)


FAULTS: list[tuple[Any, str]] = [
    (None, "none"),
    (NONE, "one that allows nothing"),
    (np.ones(4, np.float32), r"float32 \[4\]"),
    (np.ones(5, np.int8), r"int8 \[5\]"),
    (np.array([1, 0, 2, 0], np.int8), r"the values \[0, 1, 2\]"),
    ([True, True, True, True], "list"),
    (np.bool_(True), r"bool \[\]"),
]


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize(("mask", "got"), FAULTS)
def test_a_wrong_mask_ends_sampling_in_one_line(slow: bool, mask: Any, got: str) -> None:
    made = strict_runner(slow=slow, told={3: mask}, envs=1)
    assert isinstance(made.sample_arrays(2, 0), Rollout)
    failure = made.sample_arrays(1, 2)
    assert isinstance(failure, RunnerFailure)
    with pytest.raises(RunError, match="^runner 0: raised RunError: action_mask: " + EXPECTED + got):
        raise RunError(failure)
    assert "\n" not in str(failure)
    assert isinstance(strict_runner(slow=slow, told={3: mask}, envs=1).evaluate(1, seed=0), RunnerFailure)


def test_the_sub_environment_is_named() -> None:
    legal = LegalActions(gym.spaces.Discrete(4), 3)
    legal.reset({"action_mask": np.ones((3, 4), np.int8), "_action_mask": np.ones(3, np.bool_)})
    no = np.zeros(3, np.bool_)
    for there, masks in (([1, 1, 0], np.ones((3, 4), np.bool_)), ([1, 1, 1], np.array([ALL, ALL, NONE]))):
        infos = {"action_mask": masks, "_action_mask": np.array(there, np.bool_)}
        with pytest.raises(RunError, match=r"^action_mask of sub-environment 2: expected"):
            legal.step(infos, no, no)
    with pytest.raises(RunError, match=r"^action_mask: expected one for each of 3 sub-environments, got bool \[4\]"):
        legal.step({"action_mask": ALL}, no, no)
    with pytest.raises(RunError, match=r"of sub-environment 0: .*got none"):
        legal.step({}, no, no)
    with pytest.raises(RunError, match=r"of sub-environment 1: .*got none"):
        legal.step([{"action_mask": ALL}, {}, {"action_mask": ALL}], no, no)


def test_the_first_reset_decides() -> None:
    without = strict_runner(told={0: None}, length=1)
    assert without.sampling._legal.masks is None
    failure = without.sample_arrays(2, 0)  # and so something illegal is done
    assert isinstance(failure, RunnerFailure)
    made = config(lambda context: Strict(silent=True), envs=2).with_action_masks()
    failure = ArrayEnvRunner(config=made, worker_index=0).sample_arrays(2, 0)
    assert "action_mask of sub-environment 0: expected" in str(failure)
    assert sample(ArrayEnvRunner(config=config("CartPole-v1"), worker_index=0), 3).action_masks is None


def test_masks_mean_nothing_where_actions_are_not_discrete_and_to_rllibs_own_algorithms() -> None:
    infos = {"action_mask": np.ones((2, 4), np.bool_)}
    for space, given in ((gym.spaces.MultiDiscrete([2, 2]), None), (gym.spaces.Discrete(4), False)):
        legal = LegalActions(space, 2, given)
        legal.reset(infos)
        assert legal.masks is None
    stock = RLlibDQNConfig().environment(make_strict).env_runners(num_envs_per_env_runner=2)
    stock.training(epsilon=0.0).rl_module(rl_module_spec=config(make_strict).rl_module_spec)
    assert ArrayEnvRunner(config=stock, worker_index=0).legal_actions()._given is False


@pytest.mark.parametrize("slow", [False, True])
def test_a_policy_with_probabilities_keeps_to_the_masks(slow: bool) -> None:
    """Log-probabilities are those among the legal actions; where none is legal, after a cut, they are numbers too."""
    how = {"cut": True, "told": {5: NONE}}
    made = PPOConfig().environment(make_strict, env_config=how).env_runners(num_envs_per_env_runner=3)
    made.rl_module(rl_module_spec=actor_critic_mlp(hidden=[8])).debugging(seed=0)
    if slow:
        made.env_runners(env_to_module_connector=lambda env, spaces, device: Identity())
    made.validate()
    runner = ArrayEnvRunner(config=made, worker_index=0)
    rollout = sample(runner, 30)
    assert_masks_are_right(rollout, at_a_cut=NONE)
    assert np.isfinite(rollout.extras["action_logp"]).all()
    valid = rollout.valid
    logits = runner.module.net.policy(torch.tensor(rollout.obs[:-1][valid])).detach().numpy()
    odds = np.exp(logits.astype(np.float64)) * rollout.action_masks[:-1][valid]
    taken = np.take_along_axis(odds, rollout.actions[valid][:, None], 1)[:, 0] / odds.sum(axis=1)
    np.testing.assert_allclose(rollout.extras["action_logp"][valid], np.log(taken), rtol=0, atol=1e-5)
    assert isinstance(runner.evaluate(4, seed=0), list)


def test_environments_are_checked_with_legal_actions_only() -> None:
    for length in range(1, 5):
        how = {"length": length}
        assert checks.check_env(lambda how=how: Strict(**how), "Strict")
        assert checks.check_env(lambda how=how: Strict(**how, cut=True, dtype="int8"), "Strict")
        assert checks.check_env(lambda how=how: StrictVector(3, **how), "Strict")
    assert checks.says_what_is_legal(Strict, "Strict")
    assert checks.says_what_is_legal(lambda: StrictVector(2), "Strict")
    assert checks.check_env(lambda: gym.make("Taxi-v3"), "Taxi-v3")
    for env_id in ("CartPole-v1", "Pendulum-v1"):
        assert not checks.check_env(lambda env_id=env_id: gym.make(env_id), env_id)
        assert not checks.says_what_is_legal(lambda env_id=env_id: gym.make(env_id), env_id)


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(("mask", "got"), FAULTS)
def test_a_wrong_mask_is_found_before_training(at: int, mask: Any, got: str) -> None:
    if (at, got) == (0, "none"):
        return  # it gives no masks, then
    with pytest.raises(InputError, match="^environment mine: action_mask: " + EXPECTED + got):
        checks.check_env(lambda: Strict(told={at: mask}), "mine")


def test_a_vector_environments_wrong_mask_is_found_too() -> None:
    with pytest.raises(
        InputError, match=r"^vector environment mine: action_mask of sub-environment 0: .*allows nothing"
    ):
        checks.check_env(lambda: StrictVector(2, told={1: NONE}), "mine")


def test_samples_are_legal() -> None:
    masks = np.array([[False, True, False], [True, False, True]])
    several = gym.spaces.MultiDiscrete([3, 3])
    drawn = np.array([legal_sample(several, masks) for _ in range(50)])
    assert set(drawn[:, 0]) == {1}
    assert set(drawn[:, 1]) == {0, 2}
    assert {int(legal_sample(gym.spaces.Discrete(3), masks[1])) for _ in range(50)} == {0, 2}


class Without(gym.Wrapper):
    """Takes the masks out of the infos."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict]:
        return super().reset(**kwargs)[0], {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        return *super().step(action)[:4], {}  # type: ignore[return-value]


def test_a_wrapper_may_take_the_masks_out() -> None:
    assert not checks.check_env(lambda: Without(gym.make("Taxi-v3")), "Taxi")

    class Wrong(Strict):
        def step(self, action: int) -> Any:
            self.count += 1
            return self._observed()[0], 0.0, False, False, {}

    assert not checks.check_env(lambda: Without(Wrong(told={0: np.ones(3)})), "mine")
