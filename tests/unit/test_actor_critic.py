"""The actor-critic net and its module: values by hand, first weights, distributions, what a runner holds."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from ray.rllib.core.distribution.torch.torch_distribution import TorchCategorical, TorchDiagGaussian
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from torch import nn

from custom_models.actor_critic_module import (
    ActorCriticModule,
    actor_critic_cnn,
    actor_critic_mlp,
    actor_critic_module,
    distribution_class,
)
from custom_models.nets import ActorCriticCNN, ActorCriticMLP, PlainMLP, drop_value, running_norms

BOX = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
TWO = gym.spaces.Discrete(2)
PAIR = gym.spaces.MultiDiscrete([2, 3])
TORQUE = gym.spaces.Box(-2.0, 2.0, (2,))
FRAMES = gym.spaces.Box(0, 255, (2, 40, 36), np.uint8)


def set_layer(layer, weight, bias):
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        layer.bias.copy_(torch.tensor(bias))


def by_hand(action_space, shared) -> ActorCriticMLP:
    """Policy features relu(x), value features relu(-x) or the policy's; heads of small whole numbers."""
    net = ActorCriticMLP(BOX, action_space, hidden=(2,), activation="relu", shared=shared, log_std_init=-0.5)
    set_layer(net.policy_torso[0], [[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0])
    rows = net.policy_head.out_features
    set_layer(net.policy_head, [[float(i), 1.0] for i in range(rows)], [0.5] * rows)
    if not shared:
        set_layer(net.value_torso[0], [[-1.0, 0.0], [0.0, -1.0]], [0.0, 0.0])
    set_layer(net.value_head, [[1.0, 2.0]], [3.0])
    return net


@pytest.mark.parametrize(
    ("action_space", "policy"),
    [
        (TWO, [[0.5, 3.5]]),
        (PAIR, [[0.5, 3.5, 6.5, 9.5, 12.5]]),
        (TORQUE, [[0.5, 3.5, -0.5, -0.5]]),
        (gym.spaces.Box(-1.0, 1.0, (1, 2)), [[0.5, 3.5, -0.5, -0.5]]),
    ],
)
@pytest.mark.parametrize(("shared", "value"), [(False, [11.0]), (True, [6.0])])
def test_outputs_by_hand(action_space, policy, shared, value):
    net, obs = by_hand(action_space, shared), torch.tensor([[3.0, -4.0]])
    # relu([3, -4]) = [3, 0]; relu([-3, 4]) = [0, 4]
    torch.testing.assert_close(net.policy(obs), torch.tensor(policy))
    torch.testing.assert_close(net.value(obs), torch.tensor(value))
    torch.testing.assert_close(net(obs), (torch.tensor(policy), torch.tensor(value)))


def test_first_weights_are_orthogonal_with_their_gains():
    net = ActorCriticMLP(gym.spaces.Box(-1.0, 1.0, (5,)), PAIR, hidden=(8, 8))
    gains = {"policy_torso.0": 2**0.5, "policy_torso.1": 2**0.5, "policy_head": 0.01}
    gains |= {"value_torso.0": 2**0.5, "value_torso.1": 2**0.5, "value_head": 1.0}
    layers = {name: layer for name, layer in net.named_modules() if isinstance(layer, nn.Linear)}
    assert layers.keys() == gains.keys()
    for name, layer in layers.items():
        rows, columns = layer.weight.shape
        gram = layer.weight @ layer.weight.T if rows <= columns else layer.weight.T @ layer.weight
        torch.testing.assert_close(gram, gains[name] ** 2 * torch.eye(len(gram)), rtol=1e-5, atol=1e-5)
        assert not layer.bias.any()


def test_the_cnns_first_weights_are_orthogonal_with_their_gains():
    net = ActorCriticCNN(FRAMES, PAIR)
    gains = {f"torso.convolutions.{i}": 2**0.5 for i in (0, 2, 4)}
    gains |= {"torso.linear": 2**0.5, "policy_head": 0.01, "value_head": 1.0}
    layers = {name: layer for name, layer in net.named_modules() if isinstance(layer, nn.Linear | nn.Conv2d)}
    assert layers.keys() == gains.keys()
    for name, layer in layers.items():
        weight = layer.weight.flatten(1)
        rows, columns = weight.shape
        gram = weight @ weight.T if rows <= columns else weight.T @ weight
        torch.testing.assert_close(gram, gains[name] ** 2 * torch.eye(len(gram)), rtol=1e-5, atol=1e-5)
        assert not layer.bias.any()


@pytest.mark.parametrize(("action_space", "outputs"), [(TWO, 2), (PAIR, 5), (TORQUE, 4)])
def test_the_cnn_has_two_heads_on_one_torso(action_space, outputs):
    net = ActorCriticCNN(FRAMES, action_space, log_std_init=-0.5)
    obs = torch.as_tensor(np.stack([FRAMES.sample() for _ in range(3)]))
    features = net.torso(obs)
    means = net.policy_head(features)
    expected = means if net.log_std is None else torch.cat([means, torch.full((3, 2), -0.5)], 1)
    assert expected.shape == (3, outputs)
    torch.testing.assert_close(net.policy(obs), expected)
    torch.testing.assert_close(net.value(obs), net.value_head(features)[:, 0])
    torch.testing.assert_close(net(obs), (net.policy(obs), net.value(obs)))
    drop_value(net)
    assert {name.split(".")[0] for name in net.state_dict()} - {"log_std"} == {"torso", "policy_head"}
    torch.testing.assert_close(net.policy(obs), expected)


def test_the_policys_spread_does_not_depend_on_the_observation_but_is_learned():
    net = ActorCriticMLP(BOX, TORQUE, hidden=(4,), log_std_init=0.25)
    outputs = net.policy(torch.randn(6, 2))
    assert (outputs[:, 2:] == 0.25).all()
    outputs[:, 2:].sum().backward()
    assert net.log_std.grad.tolist() == [6.0, 6.0]


@pytest.mark.parametrize("shared", [False, True])
def test_without_its_value_a_net_acts_the_same(shared):
    net, obs = by_hand(TWO, shared), torch.randn(4, 2)
    expected = net.policy(obs)
    drop_value(net)
    drop_value(net)
    assert torch.equal(net.policy(obs), expected)
    assert {name.split(".")[0] for name in net.state_dict()} == {"policy_torso", "policy_head"}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ActorCriticMLP(BOX, gym.spaces.MultiBinary(2)), "Discrete or MultiDiscrete that starts at 0, or a"),
        (lambda: ActorCriticMLP(BOX, gym.spaces.Discrete(2, start=1)), r"starts at 0, .*got Discrete\(2, start=1\)"),
        (lambda: ActorCriticMLP(BOX, gym.spaces.MultiDiscrete([2, 2], start=[0, 1])), "got MultiDiscrete"),
        (lambda: ActorCriticMLP(BOX, gym.spaces.Box(0, 9, (2,), np.int64)), "a Box of floats, got Box"),
        (lambda: actor_critic_mlp(hidden=64), r"hidden: expected a sequence of positive ints such as \(256,\), got 64"),
        (lambda: actor_critic_mlp(activation="tan"), "did you mean 'tanh'"),
        (lambda: actor_critic_mlp(shared=1), "shared: expected True or False, got 1"),
        (lambda: actor_critic_mlp(normalize_observations="yes"), "expected True or False, got 'yes'"),
        (lambda: actor_critic_mlp(log_std_init=float("nan")), "log_std_init: expected a finite number, got nan"),
        (lambda: actor_critic_cnn("1"), "log_std_init: expected a finite number, got '1'"),
        (lambda: ActorCriticCNN(BOX, TWO), r"expected a uint8 Box \[C, H, W\] .* got a float32 Box \[2\]: take an MLP"),
        (
            lambda: ActorCriticMLP(FRAMES, TWO),
            r"expected vectors, got a uint8 Box \[2, 40, 36\]: .*actor_critic_cnn\(\)",
        ),
        (lambda: actor_critic_module(ActorCriticMLP, hiden=(8,)), "did you mean 'hidden'"),
        (lambda: actor_critic_module(PlainMLP), r"PlainMLP: expected a net with policy\(obs\) and value\(obs\)"),
        (lambda: distribution_class(gym.spaces.MultiBinary(2)), "expected Discrete, MultiDiscrete or Box, got Multi"),
    ],
)
def test_bad_arguments_are_one_line(build, message):
    with pytest.raises(ValueError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)


SPACES = [
    gym.spaces.Box(-1.0, 1.0, (2,)),
    gym.spaces.Box(0, 255, (2, 3), np.uint8),
    gym.spaces.Discrete(3, start=2),
    gym.spaces.MultiDiscrete([2, 3], start=[1, 0]),
    gym.spaces.MultiBinary(3),
]


@pytest.mark.parametrize(
    ("space", "method"), [(SPACES[0], "policy"), (SPACES[0], "value"), *((space, "forward") for space in SPACES)]
)
def test_the_net_is_one_graph(space, method):
    net = ActorCriticMLP(space, TORQUE, hidden=(8,), normalize_observations=isinstance(space, gym.spaces.Box))
    obs = torch.as_tensor(np.stack([space.sample() for _ in range(4)]))
    torch._dynamo.reset()
    compiled = torch.compile(getattr(net, method), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(obs), getattr(net, method)(obs))


def build(spec: RLModuleSpec, action_space=TWO, observation_space=BOX, inference_only=False) -> ActorCriticModule:
    return RLModuleSpec(
        spec.module_class, observation_space, action_space, inference_only, model_config=spec.model_config
    ).build()


def batch_of(*rows) -> dict[str, torch.Tensor]:
    return {"obs": torch.tensor(rows, dtype=torch.float32)}


def test_forward_passes_give_what_rllib_reads():
    module, batch = build(actor_critic_mlp()), batch_of([0.5, -1.0], [0.0, 2.0])
    out = module.forward_train(batch)
    assert out.keys() == {"action_dist_inputs", "vf_preds"}
    torch.testing.assert_close(out["action_dist_inputs"], module.net.policy(batch["obs"]))
    torch.testing.assert_close(out["vf_preds"], module.compute_values(batch))
    assert out["vf_preds"].shape == (2,)
    assert all(value.requires_grad for value in out.values())
    for forward in (module.forward_inference, module.forward_exploration):
        acting = forward(batch)
        assert acting.keys() == {"action_dist_inputs"}
        torch.testing.assert_close(acting["action_dist_inputs"], out["action_dist_inputs"])
        assert not acting["action_dist_inputs"].requires_grad


def test_distributions_are_rllibs():
    assert build(actor_critic_mlp()).get_exploration_action_dist_cls() is TorchCategorical
    module = build(actor_critic_mlp(), TORQUE)
    assert module.get_train_action_dist_cls() is TorchDiagGaussian
    pair = build(actor_critic_mlp(), PAIR).get_inference_action_dist_cls()
    distribution = pair.from_logits(torch.tensor([[0.0, 1.0, 2.0, 0.0, 1.0]]))
    assert distribution.to_deterministic().sample().tolist() == [[1, 0]]
    expected = (
        torch.log_softmax(torch.tensor([0.0, 1.0]), 0)[0] + torch.log_softmax(torch.tensor([2.0, 0.0, 1.0]), 0)[2]
    )
    torch.testing.assert_close(distribution.logp(torch.tensor([[0, 2]])), expected[None])


@pytest.mark.parametrize("shared", [False, True])
def test_a_runner_gets_the_policy_without_the_value(shared):
    spec = actor_critic_mlp(hidden=(8,), shared=shared, normalize_observations=True)
    learner, runner = build(spec, TORQUE), build(spec, TORQUE, inference_only=True)
    running_norms(learner)[0].update(3, np.array([1 / 3, 2 / 3]), np.array([0.1, 0.7]))
    state = learner.get_state(inference_only=True)
    assert state.keys() == runner.state_dict().keys()
    assert not any(name.startswith("net.value") for name in state)
    runner.set_state(state)
    batch = batch_of([0.5, -1.0])
    own = learner.forward_inference(batch)["action_dist_inputs"]
    assert torch.equal(runner.forward_inference(batch)["action_dist_inputs"], own)
    assert runner.net.encoder.norm.mean.tolist() == [1 / 3, 2 / 3]
    assert not runner.training
    with pytest.raises(ValueError, match=r"the state lacks net\.policy_head\.bias"):
        runner.set_state({name: value for name, value in state.items() if name != "net.policy_head.bias"})


def test_it_survives_rllibs_checkpoints(tmp_path):
    module = build(actor_critic_mlp(normalize_observations=True), PAIR)
    running_norms(module)[0].update(3, np.array([1 / 3, 2 / 3]), np.array([0.1, 0.7]))
    module.save_to_path(tmp_path / "module")
    restored = RLModule.from_checkpoint(tmp_path / "module")
    torch.testing.assert_close(dict(restored.state_dict()), dict(module.state_dict()), rtol=0, atol=0)


class Own(nn.Module):
    """A net of one's own, without ``value_only``."""

    def __init__(self, observation_space, action_space, width):
        super().__init__()
        self.layer = nn.Linear(2, width + 1)

    def forward(self, obs):
        outputs = self.layer(obs)
        return outputs[:, 1:], outputs[:, 0]

    def policy(self, obs):
        return self(obs)[0]

    def value(self, obs):
        return self(obs)[1]


def test_a_net_of_ones_own():
    module = build(actor_critic_module(Own, width=2))
    runner = build(actor_critic_module(Own, width=2), inference_only=True)
    runner.set_state(module.get_state(inference_only=True))
    batch = batch_of([1.0, 2.0])
    own = module.forward_train(batch)["action_dist_inputs"]
    assert torch.equal(runner.forward_exploration(batch)["action_dist_inputs"], own)
