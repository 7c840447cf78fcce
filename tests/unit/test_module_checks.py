"""The checks of modules: whose fault, which key, what was expected, what came."""

import re

import gymnasium as gym
import numpy as np
import pytest
import torch
from ray.rllib.core.distribution.torch.torch_distribution import TorchSquashedGaussian
from ray.rllib.core.rl_module.apis import QNetAPI, TargetNetworkAPI, ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn

from custom_models.actor_critic_module import ActorCriticModule, actor_critic_mlp
from custom_models.q_module import QModule, dueling_mlp
from rayground.errors import InputError
from rayground.module_checks import check_actor_critic_module, check_q_module

BOX = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
TWO = gym.spaces.Discrete(2)
NAN = float("nan")


class Altered(QModule):
    """A module whose outputs are altered: ``{method: function of the result}``."""

    alter = {}

    def compute_q_values(self, batch):
        return self.alter.get("compute_q_values", lambda r: r)(super().compute_q_values(batch))

    def forward_target(self, batch):
        return self.alter.get("forward_target", lambda r: r)(super().forward_target(batch))

    def _forward_inference(self, batch, **kwargs):
        return self.alter.get("inference", lambda r: r)({"actions": torch.zeros(2, dtype=torch.int64)})

    def _forward_exploration(self, batch, t=None, **kwargs):
        return self.alter.get("exploration", lambda r: r)({"actions": torch.zeros(2, dtype=torch.int64)})


def build_q(module_class=QModule, inference_only=False, **alter):
    config = {"epsilon": 0.5, "double_q": True} | dueling_mlp(hidden=(8,)).model_config
    cls = type(module_class.__name__, (module_class,), {"alter": alter}) if alter else module_class
    return RLModuleSpec(cls, BOX, TWO, inference_only=inference_only, model_config=config).build()


class NoQ(TorchRLModule):
    """Lacks every API."""


class NoTarget(TorchRLModule, QNetAPI):
    """Lacks the target network."""

    def compute_q_values(self, batch):
        return {}


class Broken(NoTarget, TargetNetworkAPI):
    """Raises in its forward pass."""

    def compute_q_values(self, batch):
        return {"qf_preds": torch.zeros(2, 3) @ torch.zeros(2, 3)}

    def make_target_networks(self):
        pass

    def get_target_network_pairs(self):
        return []

    def forward_target(self, batch):
        return {}


def q_of(shape, dtype=torch.float32):
    return lambda _: {"qf_preds": torch.zeros(shape, dtype=dtype)}


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (build_q(NoQ), "NoQ: base classes: expected RLlib's QNetAPI, which DQN needs, got TorchRLModule"),
        (
            build_q(NoTarget),
            "NoTarget: base classes: expected RLlib's TargetNetworkAPI, which DQN needs, got TorchRLModule, QNetAPI",
        ),
        (build_q(Broken), "Broken: compute_q_values raised RuntimeError: mat1 and mat2 shapes"),
        (
            build_q(Altered, compute_q_values=lambda r: {"q": r["qf_preds"]}),
            "Altered: compute_q_values: expected a dict with the key 'qf_preds', got the keys ['q']",
        ),
        (
            build_q(Altered, compute_q_values=lambda r: r["qf_preds"]),
            "Altered: compute_q_values: expected a dict with the key 'qf_preds', got float32 [2, 2]",
        ),
        (
            build_q(Altered, compute_q_values=q_of((2, 3))),
            "Altered: compute_q_values['qf_preds']: expected float32 [2, 2], got float32 [2, 3]",
        ),
        (
            build_q(Altered, forward_target=q_of((2, 2), torch.float64)),
            "Altered: forward_target['qf_preds']: expected float32 [2, 2], got float64 [2, 2]",
        ),
        (
            build_q(Altered, inference=lambda r: {"actions": torch.zeros(2, 1, dtype=torch.int64)}),
            "Altered: forward_inference['actions']: expected int64 [2], got int64 [2, 1]",
        ),
        (
            build_q(Altered, exploration=lambda r: {}),
            "Altered: forward_exploration: expected a dict with the key 'actions', got the keys []",
        ),
        (
            build_q(
                Altered, compute_q_values=lambda r: {"qf_preds": r["qf_preds"].index_fill(1, torch.tensor(1), NAN)}
            ),
            "Altered: compute_q_values['qf_preds'] at [0, 1]: expected a number, got nan",
        ),
    ],
)
def test_a_bad_q_module_is_one_line(module, message):
    with pytest.raises(InputError, match=f"^module {re.escape(message)}") as caught:
        check_q_module(module, BOX, TWO)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("inference_only", [True, False])
def test_a_good_q_module_passes_and_is_left_as_it_was(inference_only):
    module = build_q(inference_only=inference_only)
    if not inference_only:
        module.make_target_networks()
        with torch.no_grad():
            next(module.target_net.parameters()).add_(1.0)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    random_state = torch.get_rng_state()
    check_q_module(module, BOX, TWO)
    after = module.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert torch.equal(random_state, torch.get_rng_state())


class Critic(ActorCriticModule):
    """A module whose outputs are altered: ``{method: function of the result}``."""

    alter = {}

    def _forward(self, batch, **kwargs):
        return self.alter.get("acting", lambda r: r)(super()._forward(batch))

    def _forward_train(self, batch, **kwargs):
        return self.alter.get("train", lambda r: r)(super()._forward_train(batch))

    def compute_values(self, batch, embeddings=None):
        return self.alter.get("compute_values", lambda r: r)(super().compute_values(batch))

    def get_train_action_dist_cls(self):
        return self.alter.get("dist", lambda r: r)(super().get_train_action_dist_cls())


def critic(action_space=TWO, observation_space=BOX, inference_only=False, **alter):
    cls = type("Critic", (Critic,), {"alter": alter})
    config = actor_critic_mlp(hidden=(8,), shared=True).model_config
    return RLModuleSpec(cls, observation_space, action_space, inference_only, model_config=config).build()


class NoValues(TorchRLModule):
    """Lacks the value function."""


class Own(TorchRLModule, ValueFunctionAPI):
    """A good module from scratch: one layer, values from embeddings."""

    def setup(self):
        self.layer = nn.Linear(4, 5)

    def _forward(self, batch, **kwargs):
        features = self.layer(batch["obs"])
        return {"action_dist_inputs": features[:, :2], "embeddings": features[:, 2:]}

    def compute_values(self, batch, embeddings=None):
        embeddings = self._forward(batch)["embeddings"] if embeddings is None else embeddings
        return embeddings.sum(dim=1)


class OneColumn(Own):
    """Squeezes its values only where it computes the embeddings itself."""

    def compute_values(self, batch, embeddings=None):
        return super().compute_values(batch) if embeddings is None else embeddings.sum(dim=1, keepdim=True)


class Remembering(Own):
    """Has a memory."""

    def get_initial_state(self):
        return {"h": np.zeros(3, np.float32)}


class InPlace(Own):
    """Writes into what it is given."""

    def _forward(self, batch, **kwargs):
        batch["obs"].sub_(1.0)
        return super()._forward(batch)


class Frozen(Own):
    """Has nothing to train."""

    def setup(self):
        super().setup()
        self.requires_grad_(False)


def own(module_class, action_space=TWO):
    return RLModuleSpec(module_class, BOX, action_space, model_config={}).build()


def inputs_of(shape, dtype=torch.float32):
    return lambda _: {"action_dist_inputs": torch.zeros(shape, dtype=dtype)}


def failing(_):
    raise RuntimeError("the net\nis out of order")


PAIR = gym.spaces.MultiDiscrete([2, 3])
TORQUE = gym.spaces.Box(-2.0, 2.0, (3,))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            own(NoValues),
            "NoValues: base classes: expected RLlib's ValueFunctionAPI, which an actor-critic algorithm needs, "
            "got TorchRLModule",
        ),
        (
            critic(acting=lambda r: {"logits": r["action_dist_inputs"]}),
            "Critic: forward_inference: expected a dict with the key 'action_dist_inputs', got the keys ['logits']",
        ),
        (
            critic(acting=inputs_of((2, 3))),
            "Critic: forward_inference['action_dist_inputs']: expected float32 [2, 2], got float32 [2, 3]",
        ),
        (
            critic(PAIR, acting=inputs_of((2, 2))),
            "Critic: forward_inference['action_dist_inputs']: expected float32 [2, 5], got float32 [2, 2]",
        ),
        (
            critic(TORQUE, train=inputs_of((2, 3))),
            "Critic: forward_train['action_dist_inputs']: expected float32 [2, 6], got float32 [2, 3]",
        ),
        (
            critic(train=inputs_of((2, 2), torch.float64)),
            "Critic: forward_train['action_dist_inputs']: expected float32 [2, 2], got float64 [2, 2]",
        ),
        (
            critic(acting=lambda r: {k: v.index_fill(0, torch.tensor(1), NAN) for k, v in r.items()}),
            "Critic: forward_inference['action_dist_inputs'] at [1, 0]: expected a number, got nan",
        ),
        (
            critic(train=lambda r: r | {"vf_preds": r["vf_preds"][:, None]}),
            "Critic: forward_train['vf_preds']: expected float32 [2], got float32 [2, 1]",
        ),
        (
            critic(compute_values=lambda r: r[:, None]),
            "Critic: compute_values: expected float32 [2], got float32 [2, 1]",
        ),
        (critic(compute_values=lambda r: r * NAN), "Critic: compute_values at [0]: expected a number, got nan"),
        (critic(compute_values=lambda r: {"vf": r}), "Critic: compute_values: expected float32 [2], got dict"),
        (critic(train=failing), "Critic: forward_train raised RuntimeError: the net"),
        (
            critic(TORQUE, dist=lambda _: TorchSquashedGaussian),
            "Critic: get_train_action_dist_cls().entropy raised ValueError",
        ),
        (
            own(Own, PAIR),
            "Own: get_inference_action_dist_cls raised ValueError: Default action distribution",
        ),
        (
            own(Remembering),
            "Remembering: get_initial_state(): expected no memory (such as an LSTM's), which an actor-critic algorithm "
            "does not carry, got h",
        ),
        (
            own(InPlace),
            "InPlace: forward passes: expected observations left as they are, got others: an operation is in place",
        ),
        (own(Frozen), "Frozen: parameters(): expected some that are trained (requires_grad), got none"),
        (own(OneColumn), "OneColumn: compute_values(embeddings=...): expected float32 [2], got float32 [2, 1]"),
    ],
)
def test_a_bad_actor_critic_module_is_one_line(module, message):
    with pytest.raises(InputError, match=f"^module {re.escape(message)}") as caught:
        check_actor_critic_module(module, module.observation_space, module.action_space)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("action_space", [TWO, PAIR, TORQUE, gym.spaces.Box(-1.0, 1.0, (2, 2))])
@pytest.mark.parametrize("inference_only", [True, False])
def test_a_good_actor_critic_module_passes_and_is_left_as_it_was(action_space, inference_only):
    space = gym.spaces.Box(-1.0, 1.0, (4,), np.float64)
    module = critic(action_space, space, inference_only)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    random_state = torch.get_rng_state()
    check_actor_critic_module(module, space, action_space)
    torch.testing.assert_close(dict(module.state_dict()), before)
    assert torch.equal(random_state, torch.get_rng_state())
    assert module.training is not inference_only


def test_a_good_module_of_ones_own_passes():
    check_actor_critic_module(own(Own), BOX, TWO)


class Unmasked(QModule):
    """Heeds no mask in one of its methods."""

    deaf = ""

    def _q_values(self, net, batch):
        return super()._q_values(net, batch if self.deaf != "everywhere" else {"obs": batch["obs"]})

    def _forward_exploration(self, batch, t=None, **kwargs):
        return super()._forward_exploration(batch if self.deaf != "exploring" else {"obs": batch["obs"]}, t=t)

    def _forward_train(self, batch, **kwargs):
        heard = {name: batch[name] for name in ("obs", "new_obs")} if self.deaf == "training" else batch
        return super()._forward_train(heard)


@pytest.mark.parametrize(
    ("deaf", "told"),
    [
        ("everywhere", r"forward_inference['actions']"),
        ("exploring", r"forward_exploration['actions']"),
        ("training", r"the best of forward_train['qf_next_preds']"),
    ],
)
def test_a_q_module_that_does_something_illegal_is_refused(deaf, told):
    module = build_q(type("Mine", (Unmasked,), {"deaf": deaf}))
    check_q_module(module, BOX, TWO)
    start = re.escape(
        f"module Mine: {told}, with an action_mask, which the environment's infos hold: expected the only"
    )
    with pytest.raises(InputError, match=rf"^{start} legal action [01], got [01]$"):
        check_q_module(module, BOX, TWO, action_masks=True)


@pytest.mark.parametrize("inference_only", [False, True])
def test_our_modules_keep_to_masks(inference_only):
    check_q_module(build_q(inference_only=inference_only), BOX, TWO, action_masks=True)
    spec = actor_critic_mlp(hidden=(8,))
    module = RLModuleSpec(ActorCriticModule, BOX, TWO, inference_only, model_config=spec.model_config).build()
    check_actor_critic_module(module, BOX, TWO, action_masks=True)


@pytest.mark.parametrize("phase", ["inference", "exploration", "train"])
def test_an_actor_critic_module_that_does_something_illegal_is_refused(phase):
    def deaf(self, batch, **kwargs):
        return getattr(ActorCriticModule, f"_forward_{phase}")(self, {"obs": batch["obs"]})

    module_class = type("Mine", (ActorCriticModule,), {f"_forward_{phase}": deaf})
    module = RLModuleSpec(module_class, BOX, TWO, model_config=actor_critic_mlp(hidden=(8,)).model_config).build()
    check_actor_critic_module(module, BOX, TWO)
    with pytest.raises(InputError, match=f"^module Mine: the likeliest action of forward_{phase}, with an action_mask"):
        check_actor_critic_module(module, BOX, TWO, action_masks=True)
