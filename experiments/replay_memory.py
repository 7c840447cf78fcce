"""What a stored transition costs: bytes, the time to read one attribute of it, and the time to make a batch of 32.

Kinds of Python objects in a list, and replay buffers, each in a process of its own filled with random play of CartPole
and of Pong (84x84, 4 frames stacked). Bytes are what the process grows by, all told. Objects share observations: the
next one of a transition is the first one of the next. "sb3 light" is its buffer with optimize_memory_usage. Prints a
table; writes replay_memory.csv and replay_memory.png into a folder.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import tyro
from matplotlib.figure import Figure

from rayground import bench
from rayground.cli import guarded
from rayground.stores import OBJECTS, measure

BUFFERS = ("rayground", "rllib", "sb3", "sb3 light")
TITLES = {"bytes": "bytes a transition", "read_ns": "ns to read a reward", "batch_us": "us a batch of 32"}


@dataclass(frozen=True)
class Args:
    """Flags of the table."""

    transitions: int = 100_000
    """Transitions of CartPole, and of Pong in our buffer; where stacks are stored whole, a tenth of them."""
    folder: Path = Path("replay_memory")
    """Where to write the table and the chart."""


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draws the bytes of both tasks as bars, on a logarithmic scale."""
    figure = Figure(figsize=(11, 4), dpi=120, layout="constrained")
    tasks = table.groupby("task", sort=False)
    for panel, (task, rows) in zip(figure.subplots(1, len(tasks), sharey=True), tasks, strict=True):
        bars = panel.barh(rows["store"], rows["bytes"])
        panel.bar_label(bars, fmt="{:,.0f}", padding=3)
        panel.set(xscale="log", xlabel=f"bytes a transition of {task}")
        panel.margins(x=0.2)
        panel.invert_yaxis()
    figure.savefig(path)


def main() -> int:
    """Measures, prints and draws."""
    args = tyro.cli(Args, description=__doc__)
    bench.require("stable_baselines3")
    rows = []
    for task in ("cartpole", "pong"):
        for store in (*OBJECTS, *BUFFERS):
            is_large = task == "pong" and store != "rayground"
            count = args.transitions // 10 if is_large else args.transitions
            rows.append({"task": task, "store": store, **bench.in_new_process(measure, store, task, count)})
    table = pd.DataFrame(rows)
    args.folder.mkdir(parents=True, exist_ok=True)
    table.to_csv(args.folder / "replay_memory.csv", index=False)
    print(table.rename(columns=TITLES).to_string(index=False, float_format="{:,.1f}".format))
    draw(table, args.folder / "replay_memory.png")
    print(f"written to {args.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
