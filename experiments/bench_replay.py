"""Replay buffers filled with CartPole: bytes a transition, and microseconds of sampling and adding.

Ours against RLlib's, Stable-Baselines3's and cpprb's, uniform and prioritized apart. All store the same random play
of 8 environments, again and again until they are full, and are sampled over the whole of it. Bytes are what a process
of its own grows by. Times are medians of rounds in turn. RLlib's buffers, one Python object an episode, are filled to
an eighth of the others, which flatters their times; they take whole episodes, the others vector steps of 8.
"""

import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import tyro

from rayground import bench, stores
from rayground.rollouts.rollout import Rollout, concatenate
from rayground.stores import ENVS

SMALL = 50_000
SPACES = stores.spaces_of(stores.cartpole())
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


def pieces_of(recorded: list[Rollout], name: str, steps: int) -> Iterator[tuple[int, Any]]:
    """The play without end, in pieces as this buffer takes them; before each the number of its transitions."""
    if name.startswith("rllib"):  # it takes an episode only once
        return ((len(episode), episode) for episode in stores.pieces(name, cycle(recorded)))
    fragments = [concatenate(recorded[start : start + steps]) for start in range(0, len(recorded), steps)]
    if name.startswith("rayground"):
        return cycle([(fragment.num_env_steps, fragment) for fragment in fragments])
    return cycle([(ENVS, row) for row in stores.pieces(name, iter(recorded))])


def full(buffer: stores.Buffer, pieces: Iterator[tuple[int, Any]]) -> stores.Buffer:
    """Adds until the buffer has stopped growing."""
    largest = since = 0
    while since < 50:
        buffer.add(next(pieces)[1])
        largest, since = (size, 0) if (size := buffer.size()) > largest else (largest, since + 1)
    return buffer


def record(vector_steps: int) -> list[Rollout]:
    """Random play of CartPole."""
    return list(islice(stores.play(stores.cartpole()), vector_steps))


def bytes_each(name: str, capacity: int) -> float:
    """What this process grows by, a transition; whatever is not the buffer is there before, a small buffer too."""
    pieces = pieces_of(record(256), name, steps=64)
    small = full(stores.empty(name, 1000, *SPACES), pieces)
    small.sample(1)
    before = bench.resident_bytes()
    buffer = full(stores.empty(name, capacity, *SPACES), pieces)
    return (bench.resident_bytes() - before) / buffer.size()


def time_add(buffer: stores.Buffer, pieces: Iterator[tuple[int, Any]], calls: int = 300) -> float:
    """Microseconds per transition."""
    taken = list(islice(pieces, calls))
    started = time.perf_counter()
    for _, piece in taken:
        buffer.add(piece)
    return 1e6 * (time.perf_counter() - started) / sum(count for count, _ in taken)


def works(sizes: dict[str, int]) -> dict[str, Callable[[], float]]:
    """Fills the buffers, in both sizes, and returns what times them, named ``measure/buffer``."""
    recorded, work = record(4096), dict[str, Callable[[], float]]()
    for name, size in sizes.items():
        large, small = (
            full(stores.empty(name, s, *SPACES), pieces_of(recorded, name, steps=64)) for s in (size, SMALL)
        )
        work[f"sample/{name}"] = partial(bench.microseconds, partial(large.sample, 1), calls=300)
        work[f"sample_8/{name}"] = partial(bench.microseconds, partial(large.sample, 8), calls=100, units=8)
        for suffix, steps in (("", 1), ("_64", 64)) if name.startswith("rayground") else (("", 1),):
            for kind, buffer in (("add_small", small), ("add_large", large)):
                if not (kind == "add_large" and name.startswith("rllib")):  # minutes for a few hundred
                    work[f"{kind}{suffix}/{name}"] = partial(time_add, buffer, pieces_of(recorded, name, steps))
    return work


def main() -> None:
    """Runs the benchmark."""
    args = tyro.cli(Args, description=__doc__)
    capacity, rounds = (args.transitions // 10, 3) if args.quick else (args.transitions, args.rounds)
    if missing := [name for name, module in MODULES.items() if importlib.util.find_spec(module) is None]:
        print(f"left out: {', '.join(missing)}; to have them: pip install -e '.[bench]'")
    sizes = {n: capacity // 8 if n.startswith("rllib") else capacity for n in UNIFORM + PRIORITIZED if n not in missing}
    numbers = {f"bytes/{name}": [bench.in_new_process(bytes_each, name, size)] for name, size in sizes.items()}
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
