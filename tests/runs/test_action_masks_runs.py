"""Action masks in whole runs, on GridWorld with walls that nobody may walk into: every algorithm keeps to them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from conftest import Build, Command, RunHere
from ray.rllib.connectors.connector_v2 import ConnectorV2
from snapshots import differing, everything, only_run, train

from custom_models.actor_critic_module import actor_critic_mlp
from custom_models.q_module import QModule, dueling_mlp
from envs.gridworld import GridWorld
from rayground import A2CConfig, A3CConfig, DQNConfig, Experiment, PPOConfig, SlottedReplay, Stop, policy_file
from rayground.algorithms.config import ArrayConfig
from rayground.rollouts.rollout import Rollout

ROWS = ("S.P", ".#.", "..G")


class Walled(GridWorld):
    """Raises where a move is illegal; from its ``fails_at``-th step on, it gives no mask."""

    def __init__(self, context: Any) -> None:
        super().__init__(ROWS)
        self._steps, self._fails_at = 0, context.get("fails_at")

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if not self._map.legal[self._cell, action]:
            raise AssertionError(f"{action} is illegal in cell {self._cell}")
        self._steps += 1
        *result, info = super().step(action)
        return *result, {} if self._steps == self._fails_at else info  # type: ignore[return-value]


class Identity(ConnectorV2):
    def __call__(self, *, batch: Any, **kwargs: Any) -> Any:
        return batch


class Limited(gym.wrappers.TimeLimit):
    def __init__(self, context: Any) -> None:
        super().__init__(Walled(context), 12)


def on_walls(config: ArrayConfig, fragment: Any = "auto", **training: Any) -> Any:
    config.environment(Limited).env_runners(num_envs_per_env_runner=3, rollout_fragment_length=fragment)
    config.training(**training).evaluation(evaluation_interval=0, evaluation_duration=4)
    spec = dueling_mlp(hidden=[8]) if isinstance(config, DQNConfig) else actor_critic_mlp(hidden=[8])
    if not config._rl_module_spec:
        config.rl_module(rl_module_spec=spec)
    return config.reporting(metrics_num_episodes_for_smoothing=5, min_sample_timesteps_per_iteration=100)


def dqn(**more: Any) -> DQNConfig:
    usual = {"n_step": 3, "num_steps_sampled_before_learning_starts": 50, "train_batch_size_per_learner": 16}
    replay = SlottedReplay(capacity=200, prioritized=True)
    return on_walls(DQNConfig(), **usual, replay=replay, replay_ratio=0.5, target_network_update_freq=30, **more)


def counted(algorithm: Any) -> list[Rollout]:
    """The rollouts that come from here on."""
    rollouts: list[Rollout] = []
    count = algorithm.count
    algorithm.count = lambda rollout: (rollouts.append(rollout), count(rollout))[1]
    return rollouts


ALGORITHMS: dict[str, Callable[[], ArrayConfig]] = {
    "DQN that only explores": lambda: dqn(epsilon=1.0),
    "greedy DQN": lambda: dqn(epsilon=0.0),
    "noisy DQN": lambda: dqn().rl_module(rl_module_spec=dueling_mlp(hidden=[8], noisy=True)),
    "PPO": lambda: on_walls(PPOConfig(), train_batch_size=60, minibatch_size=20, num_epochs=2, entropy_coeff=0.01),
    "A2C": lambda: on_walls(A2CConfig(), 5, entropy_coeff=0.01),
    "A3C": lambda: on_walls(A3CConfig(), 5, parallelism="gradient"),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_nothing_illegal_is_ever_done(build: Build, name: str, tmp_path: Path) -> None:
    algorithm = build(config=ALGORITHMS[name]())
    rows = train(algorithm, 3)
    assert all(
        np.isfinite(value) for key, value in rows[-1].items() if key.startswith("learner/") and value is not None
    )
    assert algorithm.evaluate()["env_runners"]["num_episodes"] == 4
    policy, legal, cells = algorithm.get_policy(), GridWorld(ROWS)._map.legal, np.eye(9, dtype=np.float32)
    for cell in np.flatnonzero(legal.any(axis=1)).tolist():
        for explore in (False, True):
            action = policy.compute_single_action(cells[cell], explore, legal[cell])
            assert legal[cell, action]
            assert legal[cell, algorithm.compute_single_action(cells[cell], explore=explore, action_mask=legal[cell])]
    exported = policy_file.load(policy.export(tmp_path / "policy"))
    assert len(exported.evaluate(Limited({}), episodes=3)) == 3


def test_updates_learn_from_the_masks(build: Build) -> None:
    """Of what was observed in the cells that are shown, and of what was reached n steps later."""
    algorithm = build(config=dqn())
    batches = []
    learn = algorithm.learner.learn
    algorithm.learner.learn = lambda batch, steps: (batches.append(batch), learn(batch, steps))[1]
    train(algorithm, 3)
    legal = GridWorld(ROWS)._map.legal
    for batch in batches:
        taken = np.take_along_axis(batch.action_masks, batch.actions[..., None], -1)
        assert taken.all()
        assert np.array_equal(batch.action_masks, legal[batch.obs.argmax(axis=-1)])
        goes_on = batch.discounts > 0
        assert np.array_equal(batch.next_action_masks[goes_on], legal[batch.next_obs.argmax(axis=-1)][goes_on])
        assert batch.next_action_masks[~goes_on].all()
    assert any((batch.discounts == 0).any() for batch in batches)


def test_unchecked_environments_have_masks_too(build: Build) -> None:
    algorithm = build(config=dqn(epsilon=1.0).environment(Limited, disable_env_checking=True))
    train(algorithm)
    assert algorithm.replay.has_action_masks


@pytest.mark.parametrize("slow", [False, True])
def test_it_goes_on_bit_for_bit(build: Build, tmp_path: Path, slow: bool) -> None:
    def change(config: Any) -> None:
        if slow:
            config.env_runners(env_to_module_connector=lambda env, spaces, device: Identity())

    never_saved = build(config=dqn(), change=change)
    rows = train(never_saved, 4)[2:]
    went_on = everything(never_saved) | {"time": None}
    original = build(config=dqn(), change=change)
    train(original, 2)
    original.save(tmp_path / "ck")
    fresh = build(config=dqn(), change=change, seed=99)
    fresh.restore(tmp_path / "ck")
    assert train(fresh, 2) == rows
    assert differing(went_on, everything(fresh) | {"time": None}) == []


@pytest.mark.usefixtures("one_ray")
def test_masks_come_from_remote_runners_too(build: Build) -> None:
    config = dqn(epsilon=1.0).environment("envs:rayground/GridWorld-v0").env_runners(num_env_runners=1)
    algorithm = build(config=config)
    rollouts = counted(algorithm)
    train(algorithm, 2)
    for rollout in rollouts:
        legal = np.take_along_axis(rollout.action_masks[:-1], rollout.actions[..., None], -1)[..., 0]
        assert legal[rollout.valid].all()
    assert sum(rollout.num_env_steps for rollout in rollouts) == algorithm.env_steps >= 200


def test_a_mask_that_goes_missing_ends_the_run_in_one_line(run_here: RunHere, tmp_path: Path) -> None:
    config = dqn().environment(Limited, env_config={"fails_at": 40})
    done = run_here(
        "--seed", 1, "--storage-path", tmp_path, experiment=Experiment("tiny_dqn", config, Stop(env_steps=500))
    )
    assert done.code == 1
    told = r"runner 0: raised RunError: action_mask of sub-environment \d: expected bool or int8 \[4\], .*, got none"
    assert re.search(told, done.stderr), done.stderr


class Deaf(QModule):
    def _q_values(self, net: Any, batch: dict[str, Any]) -> Any:
        return super()._q_values(net, {"obs": batch["obs"]})


def test_a_module_that_heeds_no_masks_is_refused_before_training(run_here: RunHere, tmp_path: Path) -> None:
    spec = dueling_mlp(hidden=[8])
    spec.module_class = Deaf
    experiment = Experiment("tiny_dqn", dqn().rl_module(rl_module_spec=spec), Stop(env_steps=500))
    done = run_here("--seed", 1, "--storage-path", tmp_path, experiment=experiment)
    assert done.code == 2
    assert (
        "module Deaf: forward_inference['actions'], with an action_mask, which the environment's infos" in done.stderr
    )
    assert not list(tmp_path.iterdir())


def test_masks_cost_nothing_where_there_are_none(build: Build) -> None:
    algorithm = build()
    rollouts = counted(algorithm)
    train(algorithm)
    assert not algorithm.config.action_masks
    assert not algorithm.replay.has_action_masks
    assert all(rollout.action_masks is None for rollout in rollouts)
    assert algorithm.replay.sample(4).action_masks is None


def test_dqn_gridworld_learns_the_best_way_and_its_export_walks_it(command: Command) -> None:
    done = command("experiments.dqn_gridworld", "--seed", 1)
    assert done.code == 0, done.stderr
    assert re.search(r"stopped: episode_return_mean 0\.64 >= 0\.639", done.stdout), done.stdout
    done = command("rayground", "export", only_run(command.results), "--to", command.home / "policy")
    assert done.code == 0, done.stderr
    policy = policy_file.load(command.home / "policy")
    assert policy.action_masks
    assert policy.evaluate(gym.make("envs:rayground/GridWorld-v0"), episodes=2) == pytest.approx([0.64, 0.64])
