"""What tests of the replay buffer fill it with."""

import gymnasium as gym
import numpy as np

from rayground.replay import SlottedReplayBuffer, Transition
from rayground.rollouts.rollout import Rollout

CARTPOLE = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32), gym.spaces.Discrete(2)
NUMBERS = gym.spaces.Discrete(100_000), gym.spaces.Discrete(2)


def walk(buffer: SlottedReplayBuffer, steps: int, *, ends_every: int = 0, start: int = 0, lane: int = 0) -> None:
    """Pushes steps from observation ``start`` to ``start + steps``; each reward is its observation's number."""
    for i in range(start, start + steps):
        end = bool(ends_every and (i + 1) % ends_every == 0)
        buffer.push(Transition(i, i % 2, float(i), i + 1, end, False), lane)
        if end:
            buffer.cut([lane])  # so that the last observation keeps a slot of its own


def rollouts(num: int, steps: int, num_envs: int, mean_length: int = 22):
    """Fragments as a runner gives them from CartPole-like environments."""
    rng = np.random.default_rng(0)
    obs, over = rng.standard_normal((num_envs, 4), np.float32), np.zeros(num_envs, bool)
    for _ in range(num):
        all_obs, ends, valid = [obs], [], []
        for _ in range(steps):
            valid.append(~over)
            over = (rng.random(num_envs) < 1 / mean_length) & ~over
            ends.append(over)
            obs = rng.standard_normal((num_envs, 4), np.float32)
            all_obs.append(obs)
        shape = (steps, num_envs)
        actions, rewards = rng.integers(0, 2, shape), np.ones(shape, np.float32)
        yield Rollout(np.array(all_obs), actions, rewards, np.array(ends), np.zeros(shape, bool), np.array(valid))
