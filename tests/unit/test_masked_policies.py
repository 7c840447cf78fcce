"""Policies that are told which actions are legal, in training and exported; and what an actor-critic learns of them."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from random_rollouts import random_rollout
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from strict import NUM_ACTIONS, Strict
from tiny_learners import call, ppo_batch, ppo_learner
from torch import Tensor, nn

from custom_models.actor_critic_module import actor_critic_mlp
from custom_models.q_module import dueling_mlp, plain_mlp, q_module
from rayground import DQNConfig, PPOConfig, policy_file
from rayground.errors import InputError
from rayground.learners.a2c import batch_of
from rayground.policies import TrainedPolicy

OBS, ACTIONS = Strict().observation_space, gym.spaces.Discrete(NUM_ACTIONS)
rng = np.random.default_rng(0)
MASKS = rng.random((60, NUM_ACTIONS)) < 0.4
MASKS[np.arange(60), rng.integers(0, NUM_ACTIONS, 60)] = True
SEEN = np.stack([rng.integers(0, 5, 60), rng.integers(1, 50, 60)], axis=1).astype(np.float32)


class Deaf(nn.Module):
    """A net of one's own that takes no mask."""

    def __init__(self, observation_space: gym.Space, action_space: gym.Space) -> None:
        super().__init__()
        self.values = nn.Linear(2, 4)

    def forward(self, obs: Tensor) -> Tensor:
        return self.values(obs)


class Contrary(Deaf):
    """One that takes masks, and turns its values around then."""

    def forward(self, obs: Tensor, action_mask: Tensor | None = None) -> Tensor:
        if action_mask is None:
            return self.values(obs)
        return (-self.values(obs)).masked_fill(~action_mask, -torch.inf)


SPECS = {
    "dueling": dueling_mlp(hidden=[8]),
    "plain": plain_mlp(hidden=[8]),
    "noisy": dueling_mlp(hidden=[8], noisy=True),
    "own net": q_module(Deaf),
    "own net with masks": q_module(Contrary),
    "actor-critic": actor_critic_mlp(hidden=[8]),
}


def policy(kind: str) -> TrainedPolicy:
    spec, config = SPECS[kind], (PPOConfig() if kind == "actor-critic" else DQNConfig()).with_action_masks()
    torch.manual_seed(3)
    model_config = {"epsilon": 0.5, "double_q": True} | spec.model_config
    return TrainedPolicy(RLModuleSpec(spec.module_class, OBS, ACTIONS, model_config=model_config).build(), config)


def best(kind: str, made: TrainedPolicy) -> np.ndarray:
    """By hand: the best legal actions."""
    obs = torch.tensor(SEEN)
    net = made.model.net.eval()
    with torch.no_grad():
        values = (net.policy if kind == "actor-critic" else net)(obs).numpy()
    values = -values if kind == "own net with masks" else values
    return np.where(MASKS, values, -np.inf).argmax(axis=1)


@pytest.mark.parametrize("kind", SPECS)
def test_the_best_legal_action_is_taken_by_the_policy_and_by_its_export(kind: str, tmp_path: Path) -> None:
    made = policy(kind)
    expected = best(kind, made)
    assert len(set(expected)) > 1
    singly = zip(SEEN, MASKS, strict=True)
    assert [made.compute_single_action(obs, action_mask=mask) for obs, mask in singly] == expected.tolist()
    made.export(tmp_path / "policy")
    exported = policy_file.load(tmp_path / "policy", nets=[Deaf, Contrary])
    assert exported.action_masks
    assert exported.compute_actions(SEEN, action_mask=MASKS).tolist() == expected.tolist()
    assert exported.compute_actions(SEEN, action_mask=MASKS.astype(np.int8)).tolist() == expected.tolist()
    assert exported.compute_single_action(SEEN[0], action_mask=MASKS[0]) == expected[0]
    assert len(exported.evaluate(Strict(), episodes=5)) == 5  # which raises where something illegal is done


@pytest.mark.parametrize("kind", ["dueling", "noisy", "actor-critic"])
def test_explored_actions_are_legal(kind: str, tmp_path: Path) -> None:
    made = policy(kind)
    for obs, mask in zip(SEEN, MASKS, strict=True):
        assert mask[made.compute_single_action(obs, explore=True, action_mask=mask)]
    if kind == "actor-critic":
        exported = policy_file.load(made.export(tmp_path / "policy"))
        assert np.take_along_axis(MASKS, exported.compute_actions(SEEN, True, MASKS)[:, None], 1).all()


@pytest.mark.parametrize(
    ("mask", "told"),
    [
        (None, r"^action_mask: expected the legal actions, info\['action_mask'\], which the policy needs$"),
        (np.zeros(4, np.int8), "got one that allows nothing$"),
        (np.ones(3, np.bool_), r"got bool \[3\]$"),
        (np.ones(4), r"got float64 \[4\]$"),
        (True, r"expected a mask \[A\] for each of 1 observations, got bool \[1\]$"),
    ],
)
def test_a_missing_or_wrong_mask_is_one_line(mask: Any, told: str, tmp_path: Path) -> None:
    made = policy("dueling")
    exported = policy_file.load(made.export(tmp_path / "policy"))
    for acting in (made, exported):
        with pytest.raises(InputError, match=told) as error:
            acting.compute_single_action(SEEN[0], action_mask=mask)
        assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="for each of 60 observations"):
        exported.compute_actions(SEEN, action_mask=MASKS[:59])
    with pytest.raises(InputError, match="which the policy needs"):
        exported.evaluate(Strict(silent=True), episodes=1)


def test_masks_are_taken_where_none_are_needed_but_not_where_they_mean_nothing(tmp_path: Path) -> None:
    spec = dueling_mlp(hidden=[8])
    module = RLModuleSpec(spec.module_class, OBS, ACTIONS, model_config={"double_q": True} | spec.model_config).build()
    exported = policy_file.load(TrainedPolicy(module, DQNConfig()).export(tmp_path / "policy"))
    assert not exported.action_masks
    assert exported.compute_actions(SEEN).shape == (60,)
    assert np.take_along_axis(MASKS, exported.compute_actions(SEEN, action_mask=MASKS)[:, None], 1).all()
    spec, box = actor_critic_mlp(hidden=[8]), gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    continuous = TrainedPolicy(
        RLModuleSpec(spec.module_class, OBS, box, model_config=spec.model_config).build(), PPOConfig()
    )
    with pytest.raises(InputError, match=r"expected none, for an action space that is not Discrete, got bool \[1, 2\]"):
        continuous.compute_single_action(SEEN[0], action_mask=np.ones(2, np.bool_))


@pytest.mark.parametrize("compiled", [False, True])
def test_an_actor_critic_learns_nothing_about_illegal_actions(compiled: bool) -> None:
    """The logit of an action that was never legal gets no gradient; those of the others do."""
    batch = ppo_batch()
    mask = np.ones((32, 4), np.bool_)
    mask[:, 2] = False
    batch["actions"] = np.where(batch["actions"] == 2, 3, batch["actions"])
    batch["action_dist_inputs"] = np.where(mask, batch["action_dist_inputs"], -np.inf).astype(np.float32)
    made = ppo_learner(optimizer="sgd", lr=0.1, entropy_coeff=0.01, use_kl_loss=True, masked=True, compiled=compiled)
    head = made.policy_module.net.policy_head.bias
    before = head.detach().clone()
    learned = made.learn(batch | {"action_mask": mask}, call(entropy=0.01))
    moved = (head.detach() != before).tolist()
    assert moved == [True, True, False, True]
    assert all(np.isfinite(value) for value in learned.values())


def test_an_actor_critic_is_told_what_was_legal_where_it_acted() -> None:
    """Rows that hold no transition are copies of another, its mask too."""
    rollouts = [random_rollout(20, 3, seed)[0] for seed in (1, 2)]
    for seed, rollout in enumerate(rollouts):
        rollout.action_masks = np.random.default_rng(seed).random((21, 3, 4)) < 0.5
    batch = batch_of(rollouts, lambda obs: np.zeros(len(obs), np.float32), 0.9, 0.95)
    rows = [(r.obs[t, i], r.action_masks[t, i], r.valid[t, i]) for r in rollouts for t in range(20) for i in range(3)]
    known = {obs.tobytes(): mask.tolist() for obs, mask, valid in rows if valid}
    assert 0 < len(known) < 120
    assert [mask.tolist() for mask in batch["action_mask"]] == [known[obs.tobytes()] for obs in batch["obs"]]
