"""Policies of every action space: the same actions in training's terms, by TrainedPolicy and by its export."""

import subprocess
import sys
import textwrap

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.utils.spaces.space_utils import clip_action, unsquash_action
from torch import nn

from custom_models.actor_critic_module import actor_critic_mlp
from custom_models.nets import PlainMLP, running_norms
from rayground import policy_file
from rayground.distributions import sampler_over
from rayground.errors import InputError
from rayground.policies import TrainedPolicy
from rayground.rollouts.runner import ArrayEnvRunner
from rayground.spaces import actions_for_env

BOX = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
TWO = gym.spaces.Discrete(2)
PAIR = gym.spaces.MultiDiscrete([2, 3])
SKEWED = gym.spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 10.0]))
OPEN = gym.spaces.Box(np.array([-np.inf, 0.0]), np.array([np.inf, 1.0]), dtype=np.float64)


def trained(action_space, observation_space=BOX, normalize=True, clip=False, inference_only=False) -> TrainedPolicy:
    """A policy with a running norm that has seen something, and outputs of some size."""
    spec = actor_critic_mlp(
        hidden=(8,), normalize_observations=isinstance(observation_space, gym.spaces.Box), log_std_init=-1.0
    )
    torch.manual_seed(1)
    module = RLModuleSpec(
        spec.module_class, observation_space, action_space, inference_only, model_config=spec.model_config
    ).build()
    nn.init.normal_(module.net.policy_head.weight, std=2.0)
    for norm in running_norms(module):
        norm.update(50, np.full(norm.mean.shape, 0.3), np.full(norm.mean.shape, 4.0))
    config = PPOConfig().env_runners(explore=True)
    config.normalize_actions, config.clip_actions = normalize, clip
    return TrainedPolicy(module, config)


def by_rllib(policy: TrainedPolicy, obs: np.ndarray, normalize: bool, clip: bool) -> np.ndarray:
    """The greedy actions as RLlib's own module-to-env connectors compute them."""
    module, space = policy.model, policy.model.action_space
    inputs = module.forward_inference({"obs": torch.as_tensor(obs)})["action_dist_inputs"]
    actions = module.get_inference_action_dist_cls().from_logits(inputs).to_deterministic().sample().numpy()
    if normalize:
        return np.stack([unsquash_action(action, space) for action in actions])
    return np.stack([clip_action(action, space) for action in actions]) if clip else actions


def observations(space: gym.Space, number: int) -> np.ndarray:
    space.seed(3)
    return np.stack([space.sample() for _ in range(number)])


@pytest.mark.parametrize("space", [TWO, PAIR, SKEWED, OPEN])
@pytest.mark.parametrize(("normalize", "clip"), [(True, False), (True, True), (False, True), (False, False)])
def test_exported_actions_are_those_of_training(tmp_path, space, normalize, clip):
    policy, obs = trained(space, normalize=normalize, clip=clip), observations(BOX, 40)
    exported = policy_file.load(policy.export(tmp_path / "policy"))
    expected = by_rllib(policy, obs, normalize, clip)
    assert len(np.unique(expected, axis=0)) > 1
    actions = exported.compute_actions(obs)
    np.testing.assert_array_equal(actions, expected.astype(space.dtype))
    assert (actions.dtype, actions.shape) == (space.dtype, (40, *space.shape))
    for i in range(5):
        for single in (exported.compute_single_action(obs[i]), policy.compute_single_action(obs[i])):
            np.testing.assert_allclose(single, actions[i], rtol=1e-5)  # sums of a batch of one are rounded otherwise
            assert isinstance(single, int if space is TWO else np.ndarray)


@pytest.mark.parametrize(
    "space",
    [TWO, gym.spaces.MultiDiscrete([2, 3], start=[1, 0]), gym.spaces.MultiBinary([2, 2]), gym.spaces.Box(0.0, 1.0, ())],
)
def test_exports_observe_every_simple_space(tmp_path, space):
    policy, obs = trained(PAIR, space), observations(space, 10)
    exported = policy_file.load(policy.export(tmp_path / "policy"))
    assert exported.compute_actions(obs).tolist() == by_rllib(policy, obs, True, False).tolist()


def test_an_export_holds_what_acts_and_nothing_else(tmp_path):
    files = []
    for inference_only in (False, True):
        path = trained(SKEWED, inference_only=inference_only).export(tmp_path / str(inference_only))
        files.append({name.split(".")[0] for name in policy_file.load(path).model.state_dict()})
    assert files == [{"encoder", "policy_torso", "policy_head", "log_std"}] * 2


def test_arrays_of_more_dimensions(tmp_path):
    space = gym.spaces.Box(0.0, 4.0, (2, 2))
    exported = policy_file.load(trained(space).export(tmp_path / "policy"))
    obs = observations(BOX, 3)
    with torch.no_grad():
        means = exported.model.policy(torch.as_tensor(obs))[:, :4].reshape(3, 2, 2).numpy()
    np.testing.assert_allclose(exported.compute_actions(obs), np.clip(2.0 + 2.0 * means, 0.0, 4.0), rtol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([SKEWED, OPEN, TWO, PAIR]), st.booleans(), st.booleans(), st.integers(0, 2**31 - 1))
def test_actions_for_env_is_rllibs(space, normalize, clip, seed):
    rng = np.random.default_rng(seed)
    is_box = isinstance(space, gym.spaces.Box)
    policys = rng.normal(size=(5, 2), scale=2.0).astype(np.float32) if is_box else np.stack([space.sample()] * 5)
    if normalize:
        expected = np.stack([unsquash_action(action, space) for action in policys])
    else:
        expected = np.stack([clip_action(action, space) for action in policys]) if clip else policys
    before = policys.copy()
    result = actions_for_env(space, normalize=normalize, clip=clip)(policys)
    np.testing.assert_array_equal(result, expected.astype(space.dtype))
    assert result.dtype == space.dtype
    result += 1
    np.testing.assert_array_equal(policys, before)


def test_actions_of_half_precision_are_stretched_and_clipped_too():
    space = gym.spaces.Box(-2.0, 2.0, (2,), np.float16)
    policys = np.array([[0.5, -3.0]], np.float32)
    for how, expected in (
        ({"normalize": True, "clip": False}, [1.0, -2.0]),
        ({"normalize": False, "clip": True}, [0.5, -2.0]),
    ):
        actions = actions_for_env(space, **how)(policys)
        assert actions.tolist() == [expected]
        assert space.contains(actions[0])


def test_samples_follow_the_distribution(tmp_path):
    policy = trained(PAIR)
    exported = policy_file.load(policy.export(tmp_path / "policy"))
    obs = observations(BOX, 1)
    probabilities = torch.softmax(exported.model.policy(torch.as_tensor(obs))[0, 2:], 0).detach().numpy()
    torch.manual_seed(0)
    actions = exported.compute_actions(np.repeat(obs, 4000, axis=0), explore=True)
    shares = np.bincount(actions[:, 1], minlength=3) / 4000
    np.testing.assert_allclose(shares, probabilities, atol=0.04)  # 5 standard deviations at most
    singles = [policy.compute_single_action(obs[0], explore=True) for _ in range(400)]
    np.testing.assert_allclose(np.bincount(np.array(singles)[:, 1], minlength=3) / 400, probabilities, atol=0.125)


def test_gaussian_samples_have_mean_and_spread():
    torch.manual_seed(0)
    sampler, inputs = sampler_over(SKEWED), np.float32([[1.0, -2.0, 0.0, -1.0]]).repeat(20_000, axis=0)
    samples = torch.from_numpy(sampler.act(inputs, sampler.noise(1, *inputs.shape)[0]))
    torch.testing.assert_close(samples.mean(dim=0), torch.tensor([1.0, -2.0]), atol=0.04, rtol=0)
    torch.testing.assert_close(
        samples.std(dim=0), torch.tensor([1.0, np.exp(-1.0)], dtype=torch.float32), atol=0.03, rtol=0
    )


class Push(gym.Env):
    """Five steps from a fixed start; every action changes what is seen next, and is the reward."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = SKEWED

    def __init__(self, config=None):
        pass

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.steps = np.array([0.5, -0.5]), 0
        return self.state.copy(), {}

    def step(self, action):
        assert action.dtype == np.float32
        assert action in SKEWED
        self.steps += 1
        self.state = np.sin(self.state + action)
        return self.state.copy(), float(action.sum()), False, self.steps == 5, {}


@pytest.mark.parametrize("normalize", [True, False])
def test_an_export_plays_as_evaluation_does(tmp_path, normalize):
    spec = actor_critic_mlp(hidden=(8,), normalize_observations=True)
    config = PPOConfig().environment(Push).rl_module(rl_module_spec=spec).env_runners(num_env_runners=0)
    config.normalize_actions, config.clip_actions = normalize, True
    runner = ArrayEnvRunner(config=config, worker_index=0, num_workers=0)
    nn.init.normal_(runner.module.net.policy_head.weight, std=2.0)
    running_norms(runner.module)[0].update(9, np.array([0.2, -0.3]), np.array([0.5, 0.1]))
    [record] = runner.evaluate(1, seed=0)
    exported = policy_file.load(TrainedPolicy(runner.module, config).export(tmp_path / "policy"))
    assert exported.evaluate(Push(), episodes=1) == pytest.approx([record.episode_return], rel=1e-5)


def test_it_runs_where_ray_cannot_be_imported(tmp_path):
    policy = trained(SKEWED)
    policy.export(tmp_path / "policy")
    obs = observations(BOX, 20)
    np.save(tmp_path / "obs.npy", obs)
    script = """
        import sys
        sys.modules["ray"] = None
        import gymnasium as gym, numpy as np
        from rayground import policy_file
        policy = policy_file.load("policy")
        np.savez("out.npz", greedy=policy.compute_actions(np.load("obs.npy")))
        sample = policy.compute_single_action(np.load("obs.npy")[0], explore=True)
        assert sample in policy.action_space, sample
        assert not [name for name in sys.modules if name.startswith("ray.")]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path, check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["greedy"], by_rllib(policy, obs, True, False))


def test_pendulum_is_played_in_plain_gymnasium(tmp_path):
    with gym.make("Pendulum-v1") as env:
        exported = policy_file.load(trained(env.action_space, env.observation_space).export(tmp_path / "policy"))
    [episode_return] = exported.evaluate("Pendulum-v1", episodes=1)
    assert -2000.0 < episode_return < 0.0


def test_action_values_need_a_discrete_space():
    net = PlainMLP(BOX, TWO)
    with pytest.raises(InputError, match="policy: PlainMLP needs a Discrete action space, got MultiDiscrete"):
        policy_file.Policy(net, BOX, PAIR)


def test_a_policy_trained_through_connectors_is_not_exported(tmp_path):
    config = PPOConfig().env_runners(env_to_module_connector=lambda *_: [])
    policy = TrainedPolicy(trained(TWO).model, config)
    with pytest.raises(InputError, match="trained through env_to_module_connector, and an exported policy holds no"):
        policy.export(tmp_path / "policy")
    assert not (tmp_path / "policy").exists()
