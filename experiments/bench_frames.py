"""The replay buffer filled with frames of Atari: bytes a transition, microseconds of sampling and adding.

Random play of 8 environments of each game, 84x84, 4 frames stacked, each game in a process of its own. Bytes are what
the process grows by, all told. A minibatch is 32 transitions: 64 stacks, unpacked. Stable-Baselines3's buffer, in its
light form, holds a tenth of the transitions of the first game.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from rayground import bench
from rayground.cli import guarded
from rayground.stores import measure

GAMES = ("pong", "breakout", "qbert", "space_invaders", "seaquest", "beam_rider")
SB3 = "sb3 light"


@dataclass(frozen=True)
class Args:
    """Flags of the benchmark."""

    transitions: int = 100_000
    """Transitions in the buffer."""
    games: tuple[str, ...] = GAMES
    """Games to play."""
    json: Path | None = None
    """Where to write the numbers."""


def main() -> int:
    """Runs the benchmark."""
    args = tyro.cli(Args, description=__doc__)
    bench.require("stable_baselines3")
    capacity = args.transitions * 10 // 9 + 1  # of which nine tenths are filled
    taken = {game: bench.in_new_process(measure, bench.OURS, game, capacity) for game in args.games}
    light = bench.in_new_process(measure, SB3, args.games[0], capacity // 10)
    print(f"{'game':<16}{'transitions':>12}{'bytes each':>12}{'frames added/s':>16}{'us a batch of 32':>18}")
    for game, numbers in {**taken, f"{SB3}, {args.games[0]}": light}.items():
        rate = 1e6 / numbers["add_us"]
        print(
            f"{game:<16}{numbers['transitions']:>12,}{numbers['bytes']:>12,.1f}{rate:>16,.0f}{numbers['batch_us']:>18,.0f}"
        )
    print(f"mean of {len(taken)} games: {sum(numbers['bytes'] for numbers in taken.values()) / len(taken):,.1f} bytes")
    first = taken[args.games[0]]
    better = {f"{measure}/{SB3}": light[measure] / first[measure] for measure in ("bytes", "batch_us", "add_us")}
    for name, ratio in better.items():
        print(f"{name}: {bench.OURS} is {ratio:.2f} times better")
    bench.write_json(args.json, better, games=taken, sb3=light)
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
