"""The RLModule: exploration, schedules, target network, and RLlib's stock DQN around it."""

import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from torch import nn

from custom_models.nets import DuelingMLP, PlainMLP, running_norms
from custom_models.q_module import QModule, dueling_mlp, plain_mlp, q_module

BOX = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
NEG_INF = float("-inf")


def build(spec: RLModuleSpec, actions: int = 3, inference_only: bool = False, **model_config) -> QModule:
    """Builds the module as RLlib does: spaces filled in, the algorithm's own settings below the spec's."""
    defaults = {"epsilon": 1.0, "double_q": True, "num_atoms": 1, "dueling": True}
    return RLModuleSpec(
        module_class=spec.module_class,
        observation_space=BOX,
        action_space=gym.spaces.Discrete(actions),
        inference_only=inference_only,
        model_config=defaults | model_config | spec.model_config,
    ).build()


def zero_head(module: QModule) -> QModule:
    """Sets the head to zero: every Q is exactly 0."""
    for parameter in module.net.head.parameters():
        nn.init.zeros_(parameter)
    return module


def explore_counts(module: QModule, batch: dict, t: int = 0, rounds: int = 50) -> np.ndarray:
    """Returns how often each action came, over all rows."""
    torch.manual_seed(0)
    actions = [module.forward_exploration(batch, t=t)["actions"] for _ in range(rounds)]
    return np.bincount(torch.cat(actions).numpy(), minlength=module.action_space.n)


class FixedQ(nn.Module):
    """A net of one's own: the same action values for every observation, no mask of its own."""

    def __init__(self, observation_space, action_space, values):
        super().__init__()
        self.values = nn.Parameter(torch.tensor(values))

    def forward(self, obs):
        return self.values.expand(obs.shape[0], -1)


@pytest.mark.parametrize("spec", [dueling_mlp(), plain_mlp()])
def test_a_zero_head_explores_every_action(spec):
    counts = explore_counts(zero_head(build(spec)), {"obs": torch.zeros(60, 4)})
    assert counts.sum() == 3000
    assert np.abs(counts - 1000).max() < 130  # 5 standard deviations of a binomial with n = 3000, p = 1/3


def test_an_action_whose_q_is_zero_is_explored():
    module = build(q_module(FixedQ, values=[1.0, 0.0, -1.0]))
    counts = explore_counts(module, {"obs": torch.zeros(60, 4)})
    assert np.abs(counts - 1000).max() < 130


@pytest.mark.parametrize("spec", [dueling_mlp(), q_module(FixedQ, values=[5.0, 0.0, 0.0])])
def test_illegal_actions_are_never_taken(spec):
    module = build(spec)
    mask = torch.tensor([[False, True, True]]).expand(60, 3)
    batch = {"obs": torch.zeros(60, 4), "action_mask": mask}
    counts = explore_counts(module, batch)
    assert counts[0] == 0
    assert np.abs(counts[1:] - 1500).max() < 140
    assert (module.compute_q_values(batch)["qf_preds"][:, 0] == NEG_INF).all()
    assert (module.forward_inference(batch)["actions"] > 0).all()


def test_a_dueling_net_leaves_illegal_actions_out_of_the_mean():
    module = build(dueling_mlp())
    obs, mask = torch.randn(5, 4), torch.tensor([[True, False, True]]).expand(5, 3)
    q = module.compute_q_values({"obs": obs, "action_mask": mask})["qf_preds"]
    torch.testing.assert_close(q, module.net(obs, mask))


def test_epsilon_is_linear_between_points_and_constant_after():
    module = build(dueling_mlp(), epsilon=[[0, 1.0], [1000, 0.5], [2000, 0.1]])
    values = [module.epsilon(t) for t in (0, 500, 1000, 1500, 2000, 10**9)]
    assert values == pytest.approx([1.0, 0.75, 0.5, 0.3, 0.1, 0.1])
    assert build(dueling_mlp(), epsilon=0.2).epsilon(10**9) == 0.2
    assert build(dueling_mlp(), epsilon=lambda t: 1.0 / (1 + t)).epsilon(3) == 0.25


def test_epsilon_is_the_share_of_exploration():
    module = build(q_module(FixedQ, values=[0.0, 1.0]), actions=2, epsilon=[[0, 1.0], [1000, 0.0]])
    batch = {"obs": torch.zeros(60, 4)}
    half = explore_counts(module, batch, t=500)
    assert half[0] == pytest.approx(750, abs=120)  # epsilon 0.5, half of it on action 0
    assert explore_counts(module, batch, t=1000)[0] == 0


def test_exploration_repeats_with_torchs_seed_and_keeps_no_gradients():
    module = build(dueling_mlp())
    draws = []
    for _ in range(2):
        torch.manual_seed(3)
        draws.append(module.forward_exploration({"obs": torch.zeros(20, 4)}, t=0)["actions"])
    assert torch.equal(*draws)
    assert not module.forward_inference({"obs": torch.zeros(2, 4)})["actions"].requires_grad


def test_inference_is_greedy():
    module = build(q_module(FixedQ, values=[0.0, 2.0, 1.0]))
    assert module.forward_inference({"obs": torch.zeros(4, 4)})["actions"].tolist() == [1, 1, 1, 1]


def test_target_network_starts_equal_and_is_not_trained():
    module = build(dueling_mlp())
    module.make_target_networks()
    obs = torch.randn(6, 4)
    torch.testing.assert_close(module.forward_target({"obs": obs}), module.compute_q_values({"obs": obs}))
    [(net, target)] = module.get_target_network_pairs()
    assert net is module.net
    assert not any(p.requires_grad for p in target.parameters())
    with torch.no_grad():
        next(module.net.parameters()).add_(1.0)
    assert not torch.equal(
        module.forward_target({"obs": obs})["qf_preds"], module.compute_q_values({"obs": obs})["qf_preds"]
    )


def test_the_target_network_sees_observations_as_the_net_does():
    module = build(dueling_mlp(normalize_observations=True))
    module.make_target_networks()
    norms = running_norms(module)
    assert len(norms) == 2
    for norm in norms:
        norm.update(3, np.full(4, 1 / 3), np.full(4, 0.7))
    batch = {"obs": torch.randn(6, 4)}
    torch.testing.assert_close(module.forward_target(batch), module.compute_q_values(batch), rtol=0, atol=0)
    state = module.get_state()
    assert [state[f"{net}.torso.encoder.norm.mean"].tolist() for net in ("net", "target_net")] == [[1 / 3] * 4] * 2


@pytest.mark.parametrize("double_q", [True, False])
def test_forward_train_gives_what_the_learner_reads(double_q):
    module = build(dueling_mlp(), double_q=double_q)
    module.make_target_networks()
    with torch.no_grad():
        next(module.target_net.parameters()).add_(1.0)
    batch = {"obs": torch.randn(6, 4), "new_obs": torch.randn(6, 4)}
    out = module.forward_train(batch)
    expected = {"qf_preds": module.net(batch["obs"]), "qf_target_next_preds": module.target_net(batch["new_obs"])}
    if double_q:
        expected["qf_next_preds"] = module.net(batch["new_obs"])
    assert out.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(out[key], value)
    assert [key for key, value in out.items() if value.requires_grad] == ["qf_preds"]


def test_forward_train_masks_the_next_actions_too():
    module = build(dueling_mlp())
    module.make_target_networks()
    mask, next_mask = torch.tensor([[True, True, False]]), torch.tensor([[False, True, True]])
    batch = {"obs": torch.randn(1, 4), "new_obs": torch.randn(1, 4)}
    out = module.forward_train(batch | {"action_mask": mask, "next_action_mask": next_mask})
    illegal = {key: (value == NEG_INF).tolist() for key, value in out.items()}
    first, last = [[True, False, False]], [[False, False, True]]
    assert illegal == {"qf_preds": last, "qf_target_next_preds": first, "qf_next_preds": first}


def test_a_runner_gets_the_net_without_the_target():
    learner, runner = build(dueling_mlp()), build(dueling_mlp(), inference_only=True)
    learner.make_target_networks()
    state = learner.get_state(inference_only=True)
    assert state.keys() == {f"net.{key}" for key in learner.net.state_dict()}
    runner.set_state(state)
    obs = torch.randn(5, 4)
    torch.testing.assert_close(runner.net(obs), learner.net(obs))
    assert not runner.training


def test_modes_switch_for_all_submodules():
    module = build(dueling_mlp())
    assert all(not m.training for m in module.eval().modules())
    assert all(m.training for m in module.train().modules())


def test_spec_survives_rllibs_copies_pickles_and_checkpoints(tmp_path):
    spec = dueling_mlp(hidden=(8,))
    module = build(pickle.loads(pickle.dumps(spec)))
    again = RLModuleSpec.from_dict(RLModuleSpec.from_module(module).to_dict())
    assert again.model_config["net"] is DuelingMLP
    module.save_to_path(tmp_path / "module")
    restored = RLModule.from_checkpoint(tmp_path / "module")
    obs = torch.randn(5, 4)
    torch.testing.assert_close(restored.net(obs), module.net(obs))


def test_a_spec_takes_no_random_numbers():
    before = torch.get_rng_state()
    dueling_mlp()
    assert torch.equal(before, torch.get_rng_state())


def test_arguments_of_the_net_go_through_json():
    config = q_module(DuelingMLP, hidden=(8, 4), head_hidden=16).model_config
    assert config == {"net": DuelingMLP, "net_kwargs": {"hidden": [8, 4], "head_hidden": 16}}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: q_module(PlainMLP, hiden=(8,)), "unexpected keyword argument 'hiden'; did you mean 'hidden'"),
        (lambda: q_module(PlainMLP, hidden=torch.zeros(2)), "PlainMLP: expected arguments that .* JSON"),
        (lambda: dueling_mlp(head_hidden=0), "head's hidden layer: expected a positive int, got 0"),
        (lambda: plain_mlp(activation="rely"), "did you mean 'relu'"),
        (lambda: q_module("PlainMLP"), "expected a torch.nn.Module class, got 'PlainMLP'"),
        (lambda: build(q_module(FixedQ, values=[0.0]), num_atoms=51), "num_atoms=1"),
        (lambda: build(dueling_mlp(), epsilon=[[0, 1.0], [0, 0.5]]), "ascending"),
        (lambda: build(dueling_mlp(), epsilon=1.5), "between 0 and 1, got 1.5"),
        (lambda: build(RLModuleSpec(QModule, model_config={})), "names no net"),
        (lambda: build(dueling_mlp(), epsilon=None).forward_exploration({}, t=0), r"model_config\['epsilon'\]"),
        (lambda: build(dueling_mlp()).forward_exploration({"obs": torch.zeros(1, 4)}), "needs t, the env steps"),
    ],
)
def test_bad_settings_are_one_line(make, message):
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


class AttributeMissing(nn.Module):
    """A net with a bug in its constructor."""

    def __init__(self, observation_space, action_space):
        super().__init__()
        self.layer = nn.Linear(observation_space.sape[0], 2)


def test_an_attribute_error_in_a_net_is_not_hidden():
    with pytest.raises(RuntimeError, match=r"AttributeMissing could not be built: .* 'sape'"):
        build(q_module(AttributeMissing))
