"""A noisy Q-module: it explores by its noise alone, evaluates without, and learns with three independent draws."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from custom_models.actor_critic_module import actor_critic_mlp
from custom_models.nets import noisy_layers
from custom_models.q_module import QModule, dueling_cnn, dueling_mlp, is_noisy, plain_cnn, plain_mlp
from rayground import DQNConfig
from rayground.errors import InputError
from rayground.preflight import preflight
from rayground.rollouts.fast import forward_of

torch.set_num_threads(1)
BOX, FRAMES = gym.spaces.Box(-1.0, 1.0, (4,)), gym.spaces.Box(0, 255, (1, 36, 36), np.uint8)
SPECS = [
    (BOX, dueling_mlp(noisy=True)),
    (BOX, plain_mlp(noisy=True)),
    (FRAMES, dueling_cnn(noisy=True, head_hidden=16)),
    (FRAMES, plain_cnn(noisy=True)),
]


def build(space: gym.Space, spec: RLModuleSpec, inference_only: bool = False) -> QModule:
    config = {"epsilon": 1.0, "double_q": True} | spec.model_config
    torch.manual_seed(0)
    return RLModuleSpec(QModule, space, gym.spaces.Discrete(5), inference_only, model_config=config).build()


def some(space: gym.Space, rows: int) -> torch.Tensor:
    space.seed(0)
    return torch.as_tensor(np.stack([space.sample() for _ in range(rows)]))


@pytest.mark.parametrize(("space", "spec"), SPECS)
@pytest.mark.parametrize("inference_only", [True, False])
def test_exploring_is_greedy_under_new_noise_each_time_and_evaluation_has_none(space, spec, inference_only):
    module, batch = build(space, spec, inference_only), {"obs": some(space, 20)}
    with torch.no_grad():
        for layer in noisy_layers(module):
            layer.weight_sigma.mul_(20)
    explore, evaluate = forward_of(module, explore=True), forward_of(module, explore=False)
    torch.manual_seed(3)
    found = [explore(batch, t=0)["actions"] for _ in range(8)]
    torch.manual_seed(3)
    module.net.train()
    expected = [module.net(batch["obs"]).argmax(1) for _ in range(8)]
    module.net.eval()
    assert torch.equal(torch.stack(found), torch.stack(expected))
    assert len({tuple(actions.tolist()) for actions in found}) > 4
    before = torch.get_rng_state()
    greedy = module.net(batch["obs"]).argmax(1)
    assert torch.equal(evaluate(batch)["actions"], greedy)
    assert torch.equal(module.forward_inference(batch)["actions"], greedy)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("space", "spec"), SPECS)
def test_without_sigma_it_never_explores_whatever_epsilon_is(space, spec):
    module, batch = build(space, spec), {"obs": some(space, 200)}
    for layer in noisy_layers(module):
        torch.nn.init.zeros_(layer.weight_sigma)
        torch.nn.init.zeros_(layer.bias_sigma)
    greedy = module.forward_inference(batch)["actions"]
    assert torch.equal(module.forward_exploration(batch, t=0)["actions"], greedy)
    assert module.epsilon(0) == 0.0


def test_illegal_actions_are_never_taken():
    module = build(BOX, dueling_mlp(noisy=True))
    batch = {"obs": some(BOX, 50), "action_mask": torch.tensor([[False, True, False, True, False]]).expand(50, -1)}
    assert set(torch.cat([module.forward_exploration(batch)["actions"] for _ in range(20)]).tolist()) == {1, 3}


def test_modes_are_left_as_they_were():
    module, batch = build(BOX, dueling_mlp(noisy=True, head_hidden=8)), {"obs": some(BOX, 2)}
    for mode in (True, False):
        module.train(mode)
        module.forward_exploration(batch, t=0)
        forward = module._forward_exploration
        forward(batch, t=0)
        assert {part.training for part in module.modules()} == {mode}


@pytest.mark.parametrize(("space", "spec"), SPECS)
def test_learning_draws_noise_for_the_net_the_target_and_the_choice_of_the_next_action(space, spec):
    module = build(space, spec)
    module.make_target_networks()
    obs = some(space, 3)
    torch.manual_seed(3)
    out = module.forward_train({"obs": obs, "new_obs": obs})
    torch.manual_seed(3)
    assert torch.equal(out["qf_preds"], module.net(obs))
    assert torch.equal(out["qf_target_next_preds"], module.target_net(obs))
    assert torch.equal(out["qf_next_preds"], module.net(obs))
    assert (out["qf_target_next_preds"] != module.target_net.eval()(obs)).any()
    first, second, third = (out[key] for key in ("qf_preds", "qf_target_next_preds", "qf_next_preds"))
    assert (first != second).any() and (second != third).any() and (first != third).any()  # noqa: PT018


def test_which_modules_are_noisy():
    assert [is_noisy(build(space, spec)) for space, spec in SPECS] == [True] * 4
    assert not is_noisy(build(BOX, dueling_mlp()))
    critic = RLModuleSpec(observation_space=BOX, action_space=gym.spaces.Discrete(2))
    critic.module_class, critic.model_config = (
        getattr(actor_critic_mlp(), key) for key in ("module_class", "model_config")
    )
    assert not is_noisy(critic.build())


def cartpole(**settings) -> DQNConfig:
    return DQNConfig().environment("CartPole-v1").training(**settings)


def module_of(config: DQNConfig) -> QModule:
    config.validate()
    return preflight(config).module


def test_dqn_makes_its_default_net_noisy():
    [layer] = noisy_layers(module_of(cartpole(noisy=True, sigma0=0.25)))
    assert layer.weight_sigma[0, 0].item() == pytest.approx(0.25 / 256**0.5)
    assert not is_noisy(module_of(cartpole()))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (cartpole(noisy=True, epsilon=0.1), "epsilon=0.1 has no effect on a noisy net, which explores by its noise"),
        (
            cartpole(epsilon=[[0, 1.0], [9, 0.1]]).rl_module(rl_module_spec=plain_mlp(noisy=True)),
            "epsilon=.* no effect",
        ),
        (cartpole(noisy=True).rl_module(rl_module_spec=plain_mlp()), "noisy=True has no effect beside rl_module_spec"),
        (cartpole(sigma0=0.4).rl_module(rl_module_spec=plain_mlp()), "sigma0=0.4 has no effect beside rl_module_spec"),
        (cartpole(sigma0=0.4), "sigma0=0.4 has no effect without noisy=True: leave it out"),
        (cartpole(noisy=True, sigma0=-0.4), "sigma0: expected .*at least 0.*-0.4"),
        (cartpole(noisy="yes"), "noisy: expected True or False, got 'yes'"),
    ],
)
def test_what_has_no_effect_is_refused_in_one_line(config, message):
    with pytest.raises(InputError, match=message) as caught:
        module_of(config)
    assert "\n" not in str(caught.value)


def test_the_default_epsilon_in_other_words_is_no_mistake():
    assert is_noisy(module_of(cartpole(noisy=True, epsilon=[[0, 1.0], [10_000, 0.05]])))
