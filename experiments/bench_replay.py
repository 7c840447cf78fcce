"""Replay buffers filled with CartPole: bytes a transition, and microseconds of sampling and adding.

Ours against RLlib's, Stable-Baselines3's and cpprb's, uniform and prioritized apart. All store the same random play
of 8 environments, again and again until they are full, and are sampled over the whole of it. Bytes are what a process
of its own grows by. Times are medians of rounds in turn. RLlib's buffers, one Python object an episode, are filled to
an eighth of the others, which flatters their times; they take whole episodes, the others vector steps of 8.
"""

import importlib.util
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import tyro

from rayground import bench
from rayground.replay import SlottedReplay
from rayground.rollouts.rollout import Rollout

ENVS, SMALL = 8, 50_000
UNIFORM = ("rayground", "rllib", "sb3", "cpprb")
PRIORITIZED = ("rayground prioritized", "rllib prioritized", "cpprb prioritized")
MODULES = {"sb3": "stable_baselines3", "cpprb": "cpprb", "cpprb prioritized": "cpprb"}
TITLES = {
    "bytes": "bytes a transition, by process memory, capacity {:,}",
    "sample": "microseconds a sample of 32, capacity {:,}",
    "sample_8": "microseconds a sample of 32, 8 of them drawn in one call, capacity {:,}",
    "add_small": f"microseconds a transition added in vector steps of 8, capacity {SMALL:,}",
    "add_large": "the same, capacity {:,}",
}


@dataclass(frozen=True)
class Args:
    """Flags of the benchmark."""

    transitions: int = 2_000_000
    """Capacity of the large buffers."""
    rounds: int = 7
    """Rounds, each of them every buffer once."""
    quick: bool = False
    """A tenth of the transitions and three rounds."""
    json: Path | None = None
    """Where to write the numbers."""


@dataclass(frozen=True)
class Buffer:
    """The calls that are measured: store a piece, draw so many minibatches of 32 at once, count what is stored."""

    add: Callable[[Any], Any]
    sample: Callable[[int], Any]
    size: Callable[[], int]


def play(steps: int = 4096) -> Rollout:
    """Random play of CartPole."""
    envs = gym.make_vec("CartPole-v1", num_envs=ENVS, vectorization_mode="vector_entry_point")
    envs.action_space.seed(0)
    all_obs, over, columns = [envs.reset(seed=0)[0].copy()], np.zeros(ENVS, bool), []
    for _ in range(steps):
        actions = envs.action_space.sample()
        obs, rewards, terminated, truncated, _ = envs.step(actions)
        columns.append((actions, rewards.astype(np.float32), terminated, truncated, ~over))
        over = terminated | truncated
        all_obs.append(obs.copy())
    actions, rewards, terminated, truncated, valid = map(np.array, zip(*columns, strict=True))
    return Rollout(np.array(all_obs), actions, rewards, terminated, truncated, valid)


def pieces_of(w: Rollout, name: str, steps: int) -> Iterator[tuple[int, Any]]:
    """The play without end, in pieces as this buffer takes them; before each the number of its transitions."""
    if name.startswith("rllib"):
        return episodes(w)
    columns = w.actions, w.rewards, w.terminated, w.truncated, w.valid
    if name.startswith("rayground"):
        cuts = [slice(start, start + steps) for start in range(0, len(w.rewards), steps)]
        fragments = [Rollout(w.obs[c.start : c.stop + 1], *[x[c] for x in columns]) for c in cuts]  # type: ignore[arg-type]
        return cycle([(fragment.num_env_steps, fragment) for fragment in fragments])
    rows = [x[w.valid] for x in (w.obs[:-1], w.obs[1:], *columns[:3])]
    return cycle([(ENVS, [x[i : i + ENVS] for x in rows]) for i in range(0, len(rows[0]) - ENVS + 1, ENVS)])


def episodes(w: Rollout) -> Iterator[tuple[int, Any]]:
    """Episodes as RLlib's objects, new ones each time: it takes an id only once."""
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode

    whole = []
    for lane in range(ENVS):
        ends = np.flatnonzero((w.terminated | w.truncated)[:, lane])
        whole += [(before + 2, end + 1, lane) for before, end in zip((-2, *ends), ends, strict=False)]
    for start, stop, lane in cycle(whole):
        steps, obs = slice(start, stop), list(w.obs[start : stop + 1, lane])
        columns = {"actions": list(w.actions[steps, lane]), "rewards": w.rewards[steps, lane].tolist()}
        flags = {"terminated": bool(w.terminated[stop - 1, lane]), "truncated": bool(w.truncated[stop - 1, lane])}
        yield stop - start, SingleAgentEpisode(observations=obs, **columns, **flags, len_lookback_buffer=0)


def empty(name: str, capacity: int) -> Buffer:
    """Makes a buffer."""
    spaces: Any = (gym.spaces.Box(-np.inf, np.inf, (4,)), gym.spaces.Discrete(2))
    prioritized = name.endswith("prioritized")
    if name.startswith("rayground"):
        ours = SlottedReplay(capacity, prioritized).build(*spaces, num_lanes=ENVS, n_step=1, gamma=0.99, seed=0)
        return Buffer(ours.add, partial(ours.sample, 32), ours.__len__)
    if name.startswith("rllib"):
        from ray.rllib.utils.replay_buffers import EpisodeReplayBuffer, PrioritizedEpisodeReplayBuffer

        stock = (PrioritizedEpisodeReplayBuffer if prioritized else EpisodeReplayBuffer)(capacity)
        draw = partial(stock.sample, n_step=1, gamma=0.99, sample_episodes=True)  # as RLlib's DQN does
        return Buffer(stock.add, lambda k: draw(32 * k), stock.get_num_timesteps)
    if name == "sb3":
        from stable_baselines3.common.buffers import ReplayBuffer

        sb3: Any = ReplayBuffer(capacity, spaces[0], spaces[1], device="cpu", n_envs=ENVS)
        return Buffer(lambda p: sb3.add(*p, [{}] * ENVS), lambda k: sb3.sample(32 * k), lambda: sb3.size() * ENVS)
    import cpprb

    small, names = {"dtype": np.uint8}, ("obs", "next_obs", "act", "rew", "done")
    fields = {"obs": {"shape": 4}, "next_obs": {"shape": 4}, "act": small, "rew": {}, "done": small}
    rb = (cpprb.PrioritizedReplayBuffer if prioritized else cpprb.ReplayBuffer)(capacity, fields)
    return Buffer(lambda p: rb.add(**dict(zip(names, p, strict=True))), lambda k: rb.sample(32 * k), rb.get_stored_size)


def full(buffer: Buffer, pieces: Iterator[tuple[int, Any]]) -> Buffer:
    """Adds until the buffer has stopped growing."""
    largest = since = 0
    while since < 50:
        buffer.add(next(pieces)[1])
        largest, since = (size, 0) if (size := buffer.size()) > largest else (largest, since + 1)
    return buffer


def bytes_each(name: str, capacity: int) -> float:
    """What this process grows by, a transition; whatever is not the buffer is there before, a small buffer too."""
    pieces = pieces_of(play(256), name, steps=64)
    small = full(empty(name, 1000), pieces)
    small.sample(1)
    before = bench.resident_bytes()
    buffer = full(empty(name, capacity), pieces)
    return (bench.resident_bytes() - before) / buffer.size()


def time_add(buffer: Buffer, pieces: Iterator[tuple[int, Any]], calls: int = 300) -> float:
    """Microseconds per transition."""
    taken = list(islice(pieces, calls))
    started = time.perf_counter()
    for _, piece in taken:
        buffer.add(piece)
    return 1e6 * (time.perf_counter() - started) / sum(count for count, _ in taken)


def works(sizes: dict[str, int]) -> dict[str, Callable[[], float]]:
    """Fills the buffers, in both sizes, and returns what times them, named ``measure/buffer``."""
    rollout, work = play(), dict[str, Callable[[], float]]()
    for name, size in sizes.items():
        large, small = (full(empty(name, s), pieces_of(rollout, name, steps=64)) for s in (size, SMALL))
        work[f"sample/{name}"] = partial(bench.microseconds, partial(large.sample, 1), calls=300)
        work[f"sample_8/{name}"] = partial(bench.microseconds, partial(large.sample, 8), calls=100, units=8)
        for suffix, steps in (("", 1), ("_64", 64)) if name.startswith("rayground") else (("", 1),):
            for kind, buffer in (("add_small", small), ("add_large", large)):
                if not (kind == "add_large" and name.startswith("rllib")):  # minutes for a few hundred
                    work[f"{kind}{suffix}/{name}"] = partial(time_add, buffer, pieces_of(rollout, name, steps))
    return work


def main() -> None:
    """Runs the benchmark."""
    args = tyro.cli(Args, description=__doc__)
    capacity, rounds = (args.transitions // 10, 3) if args.quick else (args.transitions, args.rounds)
    if missing := [name for name, module in MODULES.items() if importlib.util.find_spec(module) is None]:
        print(f"left out: {', '.join(missing)}; to have them: pip install -e '.[bench]'")
    sizes = {n: capacity // 8 if n.startswith("rllib") else capacity for n in UNIFORM + PRIORITIZED if n not in missing}
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        numbers = {f"bytes/{name}": [pool.apply(bytes_each, (name, size))] for name, size in sizes.items()}
    numbers |= bench.take_turns(works(sizes), rounds)
    better: dict[str, float] = {}
    for (measure, title), kind in product(TITLES.items(), (UNIFORM, PRIORITIZED)):
        shown = {name: numbers[f"{measure}/{name}"] for name in kind if f"{measure}/{name}" in numbers}
        against = bench.print_table(title.format(capacity), shown, kind[0], higher_is_better=False)
        better |= {f"{measure}/{name}": ratio for name, ratio in against.items()}
    middle = bench.medians(numbers)
    kinds = ("", "vector steps of 8"), ("_64", "fragments of 64 x 8")
    for (suffix, pieces), name in product(kinds, (UNIFORM[0], PRIORITIZED[0])):
        growth = middle[f"add_large{suffix}/{name}"] / middle[f"add_small{suffix}/{name}"]
        better[f"add_large_over_small{suffix}/{name}"] = growth
        print(f"adding {pieces} at {capacity:,} costs {growth:.2f} times what it costs at {SMALL:,}: {name}")
    bench.write_json(args.json, better, numbers=middle, capacity=capacity, rounds=rounds)


if __name__ == "__main__":
    main()
