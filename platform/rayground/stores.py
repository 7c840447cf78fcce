"""What transitions can be kept in, ours and others', and the random play that it is filled with: for benchmarks.

Imports what a buffer needs only where it is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from rayground import bench
from rayground.replay import SlottedReplay, Transition
from rayground.rollouts.rollout import Rollout

ENVS = 8
_FIELDS = ("obs", "action", "reward", "next_obs", "terminated", "truncated")


class _WithDict:
    def __init__(self, *values: Any) -> None:
        self.obs, self.action, self.reward, self.next_obs, self.terminated, self.truncated = values


class _WithSlots:
    __slots__ = _FIELDS

    def __init__(self, *values: Any) -> None:
        self.obs, self.action, self.reward, self.next_obs, self.terminated, self.truncated = values


class _Named(NamedTuple):
    obs: Any
    action: Any
    reward: Any
    next_obs: Any
    terminated: Any
    truncated: Any


OBJECTS: dict[str, Callable[..., Any]] = {
    "__dict__": _WithDict,
    "__slots__": _WithSlots,
    "@dataclass(slots=True)": Transition,
    "NamedTuple": _Named,
}
"""Kinds of Python objects, one a transition."""


@dataclass(frozen=True)
class Buffer:
    """The calls that are measured.

    Attributes:
        add: Stores a piece: what :func:`pieces` gives.
        sample: Draws so many minibatches of 32 at once.
        size: Counts the transitions stored.
        reward: Reads the reward of one of them.
    """

    add: Callable[[Any], Any]
    sample: Callable[[int], Any]
    size: Callable[[], int]
    reward: Callable[[int], Any]


def cartpole() -> Any:
    """Eight CartPoles."""
    return gym.make_vec("CartPole-v1", num_envs=ENVS, vectorization_mode="vector_entry_point")


def atari(game: str) -> Any:
    """Eight games of Atari: 84x84, 4 frames stacked."""
    from ale_py.vector_env import AtariVectorEnv

    return AtariVectorEnv(game, num_envs=ENVS)


def spaces_of(envs: Any) -> tuple[gym.Space, gym.Space]:
    """What one of the environments observes and takes."""
    return envs.single_observation_space, envs.single_action_space


def play(envs: Any) -> Iterator[Rollout]:
    """Random play without end, a vector step each."""
    rng, over = np.random.default_rng(0), np.zeros(ENVS, bool)
    obs = envs.reset(seed=0)[0].copy()
    while True:
        actions = rng.integers(envs.single_action_space.n, size=ENVS)
        next_obs, rewards, terminated, truncated, _ = envs.step(actions)
        yield Rollout(
            obs=np.stack([obs, next_obs]),
            actions=actions[None],
            rewards=np.array(rewards, np.float32)[None],
            terminated=np.array(terminated)[None],
            truncated=np.array(truncated)[None],
            valid=~over[None],
        )
        obs, over = next_obs.copy(), terminated | truncated


def rows(steps: Iterator[Rollout]) -> Iterator[tuple[Any, ...]]:
    """Observations, next ones, actions, rewards, ends, ``[8, ...]`` each; steps in which one resets are left out."""
    for step in steps:
        if step.valid.all():
            ends = (step.terminated | step.truncated)[0]
            yield step.obs[0], step.obs[1], step.actions[0], step.rewards[0], ends


def episodes(steps: Iterator[Rollout]) -> Iterator[Any]:
    """Episodes as RLlib's objects, at most 100 steps a piece, as its runners hand them out."""
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode

    pieces: list[list[Rollout]] = [[] for _ in range(ENVS)]
    for step in steps:
        for lane, piece in enumerate(pieces):
            if step.valid[0, lane]:
                piece.append(step)
            ended = bool(piece) and bool((piece[-1].terminated | piece[-1].truncated)[0, lane])
            if ended or len(piece) == 100:
                yield SingleAgentEpisode(
                    observations=[piece[0].obs[0, lane].copy(), *(s.obs[1, lane].copy() for s in piece)],
                    actions=[s.actions[0, lane] for s in piece],
                    rewards=[float(s.rewards[0, lane]) for s in piece],
                    terminated=bool(piece[-1].terminated[0, lane]),
                    truncated=bool(piece[-1].truncated[0, lane]),
                    len_lookback_buffer=0,
                )
                piece.clear()


def pieces(name: str, steps: Iterator[Rollout]) -> Iterator[Any]:
    """The steps as a buffer of this name takes them."""
    if name.startswith("rayground"):
        return steps
    return episodes(steps) if name.startswith("rllib") else rows(steps)


def empty(name: str, capacity: int, observation_space: gym.Space, action_space: gym.Space) -> Buffer:
    """Makes a buffer.

    Args:
        name: ``rayground``, ``rllib`` or ``cpprb``, also with ``prioritized`` behind it; ``sb3``, or ``sb3 light`` (its
            ``optimize_memory_usage``); one of :data:`OBJECTS`, in a list.
        capacity: Transitions.
        observation_space: Of one environment.
        action_space: The same.
    """
    if name in OBJECTS:
        return _objects(OBJECTS[name])
    prioritized = name.endswith("prioritized")
    spaces = observation_space, action_space
    if name.startswith("rayground"):
        ours = SlottedReplay(capacity, prioritized).build(*spaces, num_lanes=ENVS, n_step=1, gamma=0.99, seed=0)
        return Buffer(ours.add, partial(ours.sample, 32), ours.__len__, lambda i: ours[i].reward)
    if name.startswith("rllib"):
        from ray.rllib.utils.replay_buffers import EpisodeReplayBuffer, PrioritizedEpisodeReplayBuffer

        stock = (PrioritizedEpisodeReplayBuffer if prioritized else EpisodeReplayBuffer)(capacity)
        draw = partial(stock.sample, n_step=1, gamma=0.99, sample_episodes=True)  # as RLlib's DQN does
        return Buffer(
            stock.add,
            lambda k: draw(32 * k),
            stock.get_num_timesteps,
            lambda i: stock.episodes[i % len(stock.episodes)].get_rewards(0),
        )
    if name.startswith("sb3"):
        from stable_baselines3.common.buffers import ReplayBuffer

        light: Any = {"optimize_memory_usage": True, "handle_timeout_termination": False} if "light" in name else {}
        sb3: Any = ReplayBuffer(capacity, *spaces, device="cpu", n_envs=ENVS, **light)
        return Buffer(
            lambda p: sb3.add(*p, [{}] * ENVS),
            lambda k: sb3.sample(32 * k),
            lambda: sb3.size() * ENVS,
            lambda i: sb3.rewards[i // ENVS, i % ENVS],
        )
    import cpprb

    small, names = {"dtype": np.uint8}, ("obs", "next_obs", "act", "rew", "done")
    fields = {"obs": {"shape": 4}, "next_obs": {"shape": 4}, "act": small, "rew": {}, "done": small}
    rb = (cpprb.PrioritizedReplayBuffer if prioritized else cpprb.ReplayBuffer)(capacity, fields)
    return Buffer(
        lambda p: rb.add(**dict(zip(names, p, strict=True))),
        lambda k: rb.sample(32 * k),
        rb.get_stored_size,
        lambda i: rb.get_all_transitions()["rew"][i],
    )


def _objects(kind: Callable[..., Any]) -> Buffer:
    """A list of objects; as in most code, the next observation of one is the very array that the next begins with."""
    stored: list[Any] = []
    newest: list[Any] = [None] * ENVS
    rng = np.random.default_rng(0)

    def add(row: tuple[Any, ...]) -> None:
        for lane, (obs, next_obs, action, reward, terminated) in enumerate(zip(*row, strict=True)):
            before = newest[lane]
            before = before if before is not None and np.array_equal(before, obs) else obs.copy()
            newest[lane] = next_obs.copy()
            stored.append(kind(before, int(action), float(reward), newest[lane], bool(terminated), False))

    def sample(count: int) -> list[np.ndarray]:
        chosen = [stored[i] for i in rng.integers(len(stored), size=32 * count)]
        return [np.stack([getattr(one, name) for one in chosen]) for name in _FIELDS]

    return Buffer(add, sample, stored.__len__, lambda i: stored[i].reward)


def measure(name: str, task: str, transitions: int) -> dict[str, float]:
    """Fills a buffer with random play, in a process in which nothing else is measured.

    Args:
        name: As in :func:`empty`.
        task: ``cartpole``, or a game of Atari.
        transitions: The capacity; nine tenths of it are filled.

    Returns:
        ``transitions`` stored, ``bytes`` each (what this process grew by), ``add_us`` (microseconds to add one), and
        ``read_ns`` (nanoseconds to read the reward of one) and ``batch_us`` (to draw a minibatch of 32), medians.
    """
    envs = cartpole() if task == "cartpole" else atari(task)
    taken = pieces(name, play(envs))
    small = empty(name, 1000, *spaces_of(envs))
    while small.size() < 500:
        small.add(next(taken))
    small.sample(1)
    before, add_s = bench.resident_bytes(), 0.0
    buffer = empty(name, transitions, *spaces_of(envs))
    while buffer.size() < 0.9 * transitions:  # none has dropped anything by then
        piece = next(taken)
        started = time.perf_counter()
        buffer.add(piece)
        add_s += time.perf_counter() - started
    size = buffer.size()
    grown = bench.resident_bytes() - before
    indices = np.random.default_rng(1).integers(size, size=200).tolist()
    turns = {
        "read_ns": lambda: 1000 * bench.microseconds(lambda: [buffer.reward(i) for i in indices], 1, units=200),
        "batch_us": lambda: bench.microseconds(lambda: buffer.sample(1), 20),
    }
    medians = bench.medians(bench.take_turns(turns, 7))
    return {"transitions": size, "bytes": grown / size, "add_us": 1e6 * add_s / size, **medians}
