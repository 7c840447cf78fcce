"""Learners of small modules and batches for them, ours and RLlib's stock ones; no Ray is started."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from custom_models.actor_critic_module import actor_critic_mlp, distribution_class
from custom_models.q_module import dueling_mlp
from rayground import A2CConfig, A3CConfig, DQNConfig, PPOConfig
from rayground.algorithms.config import ArrayConfig
from rayground.learners.a2c import A2CLearner, A2CSettings, A3CLearner
from rayground.learners.advantages import ADVANTAGES, VALUE_TARGETS, WEIGHTS
from rayground.learners.dqn import DQNLearner
from rayground.learners.ppo import PPOLearner, UpdateSettings
from rayground.replay import Batch, SlottedReplay

OBS = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
DISCRETE = gym.spaces.Discrete(4)
SPACES = {
    "discrete": DISCRETE,
    "multi": gym.spaces.MultiDiscrete([3, 2]),
    "box": gym.spaces.Box(-2.0, 2.0, (2,), np.float32),
}


def dist_inputs(space: gym.Space, rows: int, seed: int) -> torch.Tensor:
    """Inputs ``[rows, D]`` of the space's distribution, one for each row."""
    torch.manual_seed(seed)
    sizes = {gym.spaces.Discrete: lambda: space.n, gym.spaces.MultiDiscrete: lambda: space.nvec.sum()}
    return 1.5 * torch.randn(rows, int(sizes.get(type(space), lambda: 2 * space.shape[0])()))


def dqn_learner(
    learner_class: type = DQNLearner,
    spec: RLModuleSpec | None = None,
    compiled: bool = False,
    masked: bool = False,
    **settings: Any,
) -> Any:
    config = (
        DQNConfig()
        .environment("CartPole-v1")
        .training(**{"grad_clip": None, "replay": SlottedReplay(prioritized=True)} | settings)
        .debugging(seed=0)
    )
    config.framework(torch_compile_learner=compiled)
    return _built(config.with_action_masks() if masked else config, learner_class, spec or dueling_mlp([16]), DISCRETE)


def ppo_learner(
    learner_class: type = PPOLearner,
    space: gym.Space = DISCRETE,
    spec: RLModuleSpec | None = None,
    compiled: bool = False,
    masked: bool = False,
    **settings: Any,
) -> Any:
    """With one epoch of one minibatch of 32 rows, if nothing else is given."""
    whole = {"grad_clip": None, "num_epochs": 1, "train_batch_size": 32, "minibatch_size": 32} | settings
    config = PPOConfig().environment("CartPole-v1").training(**whole).debugging(seed=0)
    config.framework(torch_compile_learner=compiled)
    config = config.with_action_masks() if masked else config
    return _built(config, learner_class, spec or actor_critic_mlp(hidden=[16]), space)


def a2c_learner(
    learner_class: type = A2CLearner,
    space: gym.Space = DISCRETE,
    spec: RLModuleSpec | None = None,
    compiled: bool = False,
    **settings: Any,
) -> Any:
    """With batches of 32 rows, and the settings of A3C for its learner."""
    config = A3CConfig() if issubclass(learner_class, A3CLearner) else A2CConfig()
    config.environment("CartPole-v1").training(**{"grad_clip": None} | settings).debugging(seed=0)
    config.env_runners(rollout_fragment_length=8, num_envs_per_env_runner=4)
    config.framework(torch_compile_learner=compiled)
    return _built(config, learner_class, spec or actor_critic_mlp(hidden=[16], shared=True), space)


def _built(config: ArrayConfig, learner_class: type, spec: RLModuleSpec, space: gym.Space) -> Any:
    config.validate()
    spec.observation_space, spec.action_space = OBS, space
    spec.model_config = {**config.model_config, **spec.model_config}
    torch.manual_seed(0)
    made = learner_class(config=config, module_spec=MultiRLModuleSpec(rl_module_specs={DEFAULT_MODULE_ID: spec}))
    made.build()
    return made


class _PlainOptimizer:
    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        parameters = self.get_parameters(self._module[module_id])  # type: ignore[attr-defined]
        optimizer = torch.optim.SGD(parameters, lr=0.5)
        self.register_optimizer(module_id=module_id, optimizer=optimizer, params=parameters)  # type: ignore[attr-defined]


class StockDQN(_PlainOptimizer, DQNTorchLearner):
    """RLlib's stock learner; only its loss is used."""


class StockPPO(_PlainOptimizer, PPOTorchLearner):
    """RLlib's stock learner; only its loss is used."""


def stock_loss(made: Any, batch: dict[str, Any]) -> torch.Tensor:
    fwd_out = made.module[DEFAULT_MODULE_ID].forward_train(batch)
    return made.compute_loss_for_module(module_id=DEFAULT_MODULE_ID, config=made.config, batch=batch, fwd_out=fwd_out)


def dqn_batch(minibatches: int = 1, size: int = 8, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    shape = (minibatches, size)
    return Batch(
        obs=rng.uniform(-1, 1, (*shape, 3)).astype(np.float32),
        actions=rng.integers(0, 4, shape),
        rewards=rng.normal(size=shape).astype(np.float32),
        next_obs=rng.uniform(-1, 1, (*shape, 3)).astype(np.float32),
        discounts=(0.9**3 * rng.integers(0, 2, shape)).astype(np.float32),
        weights=rng.uniform(0.1, 1, shape).astype(np.float32),
        indices=np.arange(minibatches * size).reshape(shape),
    )


def ppo_batch(space: gym.Space = DISCRETE, rows: int = 32, seed: int = 0) -> dict[str, np.ndarray]:
    """As a policy of its own, which is not the learner's, would have sampled it."""
    rng = np.random.default_rng(seed)
    inputs = dist_inputs(space, rows, seed)
    distribution = distribution_class(space).from_logits(inputs)
    actions = distribution.sample()
    return {
        Columns.OBS: rng.uniform(-1, 1, (rows, 3)).astype(np.float32),
        Columns.ACTIONS: actions.numpy(),
        Columns.ACTION_LOGP: distribution.logp(actions).numpy(),
        Columns.ACTION_DIST_INPUTS: inputs.numpy(),
        ADVANTAGES: rng.normal(0.5, 2.0, rows).astype(np.float32),
        VALUE_TARGETS: rng.normal(0.0, 3.0, rows).astype(np.float32),
    }


def a2c_batch(space: gym.Space = DISCRETE, rows: int = 32, seed: int = 0) -> dict[str, np.ndarray]:
    """With some rows that hold no transition."""
    batch = ppo_batch(space, rows, seed)
    valid = np.random.default_rng(seed).random(rows) < 0.8
    weight = np.where(valid, rows / valid.sum(), 0.0).astype(np.float32)
    return {name: batch[name] for name in (Columns.OBS, Columns.ACTIONS, ADVANTAGES, VALUE_TARGETS)} | {WEIGHTS: weight}


def a2c_call(env_steps: int = 77, entropy: float = 0.0, vf: float = 0.5) -> A2CSettings:
    return A2CSettings(env_steps=env_steps, entropy_coeff=entropy, vf_loss_coeff=vf)


def call(
    env_steps: int = 77, seed: int = 0, clip: float = 0.3, entropy: float = 0.0, kl: float = 0.2
) -> UpdateSettings:
    return UpdateSettings(env_steps=env_steps, seed=seed, clip=clip, entropy_coeff=entropy, kl_coeff=kl)


def weights(made: Any) -> dict[str, np.ndarray]:
    return {name: value.copy() for name, value in made.module_arrays().items()}


def assert_equal_weights(a: dict[str, np.ndarray], b: dict[str, np.ndarray], atol: float = 0.0) -> None:
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=0, atol=atol, err_msg=name)
