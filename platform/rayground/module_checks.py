"""What is checked of a module before training: that it has the API that the algorithm needs, and keeps its contract.

RLlib finds out in the middle of training, by a bare KeyError or a shape that does not broadcast, or never.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.algorithms.dqn.dqn_learner import QF_NEXT_PREDS, QF_TARGET_NEXT_PREDS
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchMultiCategorical
from ray.rllib.core.rl_module.apis import QNetAPI, TargetNetworkAPI, ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModule

from custom_models.q_module import ACTION_MASK, NEXT_ACTION_MASK
from rayground.checks import Subject
from rayground.space_checks import kind

BATCH = 2
"""Observations that a module is tried on."""
MASKED_BATCH = 64
"""The same with masks: enough that nobody keeps to them by chance."""


def check_q_module(
    module: RLModule, observation_space: gym.Space, action_space: gym.Space, *, action_masks: bool = False
) -> None:
    """Checks that a module gives what DQN reads, on two sampled observations; the module is left as it was.

    Args:
        module: Any RLModule, built.
        observation_space: What it observes.
        action_space: What it answers.
        action_masks: Whether the environment says which actions are legal: the module must keep to them then.

    Raises:
        InputError: If it lacks an API of RLlib that DQN needs, gives a wrong key, shape or dtype, or NaN, or does
            something illegal.
    """
    subject = Subject(f"module {type(module).__name__}")
    _check_kind(module, (QNetAPI, TargetNetworkAPI), "DQN", subject)
    values = _Output("qf_preds", (BATCH, int(cast(gym.spaces.Discrete, action_space).n)))
    choices = _Output(Columns.ACTIONS, (BATCH,), "int64")
    with _tried(module, observation_space, subject) as (twin, batch):
        values.check(subject, twin.compute_q_values, batch)
        if not twin.inference_only:
            subject.call("make_target_networks", None, twin.make_target_networks)
            values.check(subject, twin.forward_target, batch)
            _check_parameters(twin, subject)
        choices.check(subject, twin.forward_inference, batch)
        choices.check(subject, twin.forward_exploration, batch, t=0)
        if action_masks:
            _check_legal_values(twin, batch, values.shape[1], subject)


def check_actor_critic_module(
    module: RLModule, observation_space: gym.Space, action_space: gym.Space, *, action_masks: bool = False
) -> None:
    """Checks that a module gives what PPO and its kind read, on two sampled observations; it is left as it was.

    Args:
        module: Any RLModule, built.
        observation_space: What it observes.
        action_space: What it answers: Discrete, MultiDiscrete or Box.
        action_masks: Whether the environment says which actions are legal: the module must keep to them then.

    Raises:
        InputError: If it has no value function by RLlib's API, no distribution whose actions fit the space, gives a
            wrong key, shape or dtype, or NaN, or does something illegal.
    """
    subject = Subject(f"module {type(module).__name__}")
    _check_kind(module, (ValueFunctionAPI,), "an actor-critic algorithm", subject)
    with _tried(module, observation_space, subject) as (twin, batch):
        greedy = _Phase("inference", twin, action_space, subject)
        greedy.check_actions(greedy.distribution(batch).to_deterministic())
        exploring = _Phase("exploration", twin, action_space, subject)
        actions = exploring.check_actions(exploring.distribution(batch, t=0))
        exploring.check_numbers("logp", actions)
        if not twin.inference_only:
            training = _Phase("train", twin, action_space, subject)
            training.distribution(batch)
            training.check_numbers("logp", actions)
            training.check_numbers("entropy")
            _check_values(twin, batch, subject)
            _check_parameters(twin, subject)
        if action_masks:
            _check_legal_distributions(twin, batch, int(cast(gym.spaces.Discrete, action_space).n), subject)


def _check_legal_values(module: Any, batch: dict[str, Any], num_actions: int, subject: Subject) -> None:
    """Checks that a Q-module acts on, and bootstraps from, legal actions only."""
    masked, only_B = _one_legal(batch, num_actions)
    for forward, kwargs in ((module.forward_inference, {}), (module.forward_exploration, {"t": 0})):
        actions_B = subject.call(forward.__name__, None, forward, masked, **kwargs)[Columns.ACTIONS]
        _check_legal(f"{forward.__name__}[{Columns.ACTIONS!r}]", actions_B, only_B, subject)
    if module.inference_only:
        return
    train = {Columns.OBS: masked[Columns.OBS], Columns.NEXT_OBS: masked[Columns.OBS]}
    train |= {ACTION_MASK: masked[ACTION_MASK], NEXT_ACTION_MASK: masked[ACTION_MASK]}
    output = subject.call("forward_train", None, module.forward_train, train)
    for key in (QF_NEXT_PREDS, QF_TARGET_NEXT_PREDS):
        if key in output:
            _check_legal(f"the best of forward_train[{key!r}]", output[key].argmax(dim=1), only_B, subject)


def _check_legal_distributions(module: Any, batch: dict[str, Any], num_actions: int, subject: Subject) -> None:
    """Checks that only legal actions have a probability in each phase of an actor-critic module."""
    masked, only_B = _one_legal(batch, num_actions)
    for phase in ("inference", "exploration") if module.inference_only else ("inference", "exploration", "train"):
        forward = getattr(module, f"forward_{phase}")
        output = subject.call(forward.__name__, None, forward, masked, **({"t": 0} if phase == "exploration" else {}))
        distribution = getattr(module, f"get_{phase}_action_dist_cls")().from_logits(output[Columns.ACTION_DIST_INPUTS])
        every = torch.arange(num_actions, device=only_B.device)
        logp_AB = torch.stack([distribution.logp(action.expand(len(only_B))) for action in every])
        _check_legal(f"the likeliest action of {forward.__name__}", logp_AB.argmax(dim=0), only_B, subject)


def _one_legal(batch: dict[str, Any], num_actions: int) -> tuple[dict[str, Any], torch.Tensor]:
    """A larger batch with masks that each allow one action, others for the same observation, and these ``[B]``."""
    obs = batch[Columns.OBS].repeat_interleave(MASKED_BATCH // BATCH, dim=0)
    only_B = torch.arange(len(obs), device=obs.device) % num_actions
    return {Columns.OBS: obs, ACTION_MASK: torch.eye(num_actions, device=obs.device)[only_B].bool()}, only_B


def _check_legal(what: str, actions_B: torch.Tensor, only_B: torch.Tensor, subject: Subject) -> None:
    illegal = (actions_B != only_B).nonzero().flatten().tolist()
    if illegal:
        i = illegal[0]
        mask = f"with an {ACTION_MASK}, which the environment's infos hold"
        subject.fail(f"{what}, {mask}", f"the only legal action {only_B[i]}", str(actions_B[i].item()))


def _check_kind(module: RLModule, apis: Sequence[type], needed_by: str, subject: Subject) -> None:
    """Checks for APIs and parameters that are there, and a memory that is not."""
    for api in apis:
        if not isinstance(module, api):
            bases = ", ".join(base.__name__ for base in type(module).__bases__)
            subject.fail("base classes", f"RLlib's {api.__name__}, which {needed_by} needs", bases)
    if module.is_stateful():
        state = ", ".join(map(str, module.get_initial_state()))
        subject.fail("get_initial_state()", f"no memory (such as an LSTM's), which {needed_by} does not carry", state)


@contextmanager
def _tried(module: RLModule, observation_space: gym.Space, subject: Subject) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Gives a copy of the module and a batch of sampled observations, as a runner would hand them to it.

    The module may not write into them: a runner's are the very ones that are learnt from.
    """
    twin, space = copy.deepcopy(module), copy.deepcopy(observation_space)
    space.seed(0)
    device = next((parameter.device for parameter in twin.parameters()), torch.device("cpu"))
    obs = np.stack([space.sample() for _ in range(BATCH)])
    obs = obs.astype(np.float32) if obs.dtype == np.float64 else obs
    with torch.no_grad(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        batch = {Columns.OBS: torch.tensor(obs).to(device)}
        yield twin, batch
    if not np.array_equal(batch[Columns.OBS].cpu().numpy(), obs):
        subject.fail(
            "forward passes", "observations left as they are", "others: an operation is in place, such as x -= 1"
        )


@dataclass(frozen=True)
class _Output:
    """What a forward pass must give under one key."""

    key: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    def check(
        self, subject: Subject, forward: Callable[..., Any], batch: dict[str, Any], **kwargs: Any
    ) -> torch.Tensor:
        result = subject.call(forward.__name__, None, forward, batch, **kwargs)
        if not isinstance(result, dict) or self.key not in result:
            got = f"the keys {sorted(result)}" if isinstance(result, dict) else kind(result)
            subject.fail(forward.__name__, f"a dict with the key {self.key!r}", got)
        _check_tensor(result[self.key], self.shape, self.dtype, f"{forward.__name__}[{self.key!r}]", subject)
        return result[self.key]


class _Phase:
    """One of RLlib's three phases of an actor-critic module: inference, exploration, train."""

    def __init__(self, name: str, module: Any, action_space: gym.Space, subject: Subject) -> None:
        self._forward = getattr(module, f"forward_{name}")
        self._find_class = getattr(module, f"get_{name}_action_dist_cls")
        self._name = f"{self._find_class.__name__}()"
        self._action_space, self._subject = action_space, subject
        self._distribution: Any = None

    def distribution(self, batch: dict[str, Any], **kwargs: Any) -> Any:
        """The distribution of the forward pass for ``batch``."""
        cls = self._subject.call(self._find_class.__name__, None, self._find_class)
        inputs = _Output(Columns.ACTION_DIST_INPUTS, (BATCH, self._num_inputs(cls)))
        output = inputs.check(self._subject, self._forward, batch, **kwargs)
        self._distribution = self._subject.call(f"{self._name}.from_logits", None, cls.from_logits, output)
        return self._distribution

    def _num_inputs(self, distribution_class: Any) -> int:
        space = self._action_space
        # What RLlib's get_partial_dist_cls() makes cannot be asked for it.
        if isinstance(space, gym.spaces.MultiDiscrete) and issubclass(distribution_class, TorchMultiCategorical):
            return int(space.nvec.sum())
        required = distribution_class.required_input_dim
        return self._subject.call(f"{self._name}.required_input_dim", None, required, space)

    def check_actions(self, distribution: Any) -> torch.Tensor:
        """Samples actions and checks that they can be the space's."""
        actions = self._subject.call(f"{self._name}.sample", None, distribution.sample)
        space = self._action_space
        shape = (BATCH,) if isinstance(space, gym.spaces.Discrete) else (BATCH, math.prod(space.shape or ()))
        dtype = "float32" if isinstance(space, gym.spaces.Box) else "int64"
        _check_tensor(actions, shape, dtype, f"{self._name}.sample()", self._subject)
        return actions

    def check_numbers(self, method: str, *args: Any) -> None:
        """Checks that a method of the distribution gives one number for each row of the batch."""
        what = f"{self._name}.{method}"
        numbers = self._subject.call(what, None, getattr(self._distribution, method), *args)
        _check_tensor(numbers, (BATCH,), "float32", f"{what}()", self._subject)


def _check_parameters(module: Any, subject: Subject) -> None:
    if not any(parameter.requires_grad for parameter in module.parameters()):
        subject.fail("parameters()", "some that are trained (requires_grad)", "none")


def _check_values(module: Any, batch: dict[str, Any], subject: Subject) -> None:
    """Checks the values: computed by themselves, given by the forward pass, computed from what that gives."""
    values = subject.call("compute_values", None, module.compute_values, batch)
    _check_tensor(values, (BATCH,), "float32", "compute_values", subject)
    output = module.forward_train(batch)
    if Columns.VF_PREDS in output:
        what = f"forward_train[{Columns.VF_PREDS!r}]"
        _check_tensor(output[Columns.VF_PREDS], (BATCH,), "float32", what, subject)
    if Columns.EMBEDDINGS in output:
        embeddings = output[Columns.EMBEDDINGS]
        values = subject.call("compute_values", None, module.compute_values, batch, embeddings=embeddings)
        _check_tensor(values, (BATCH,), "float32", "compute_values(embeddings=...)", subject)


def _check_tensor(value: Any, shape: tuple[int, ...], dtype: str, what: str, subject: Subject) -> None:
    """Checks dtype and shape, and that there is no NaN; infinite numbers may mean something (illegal actions)."""
    expected, got = f"{dtype} {list(shape)}", kind(value)
    if expected != got:
        subject.fail(what, expected, got)
    if torch.isnan(value).any():
        at = torch.isnan(value).nonzero()[0].tolist()
        subject.fail(f"{what} at {at}", "a number", "nan")
