"""Learning curves over seeds: the plot beside the table of ``report.py``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rayground.errors import InputError
from rayground.results.report import AXES, Row, Runs, spread, to_goal, window

GRID_POINTS = 400


@dataclass(frozen=True)
class Curve:
    """The learning curves of several seeds as one.

    Attributes:
        x: ``[K]``: env steps, episodes or seconds.
        median: ``[K]``: of the mean returns.
        low: ``[K]``: first quartile.
        high: ``[K]``: third quartile.
    """

    x: np.ndarray
    median: np.ndarray
    low: np.ndarray
    high: np.ndarray


def curve(runs: Iterable[Sequence[Row]], axis: str) -> Curve:
    """Brings the mean returns of several runs onto common places, linearly between two results.

    It begins where the last of the runs has finished an episode. A run that has ended, solved or not, keeps its last
    mean until the longest has ended too: without that, the quick ones would drop out of the median.

    Args:
        runs: Of one contestant.
        axis: One of :data:`AXES`.

    Raises:
        InputError: If a run has finished no episode.
    """
    ended = [[row for row in rows if row["episode_return_mean"] is not None] for rows in runs]
    if not all(ended):
        raise InputError("curve: expected runs in which an episode ended, got one without; give it more env steps")
    places = [np.array([(row[axis], row["episode_return_mean"]) for row in rows], float).T for rows in ended]
    x = np.linspace(max(xs[0] for xs, _ in places), max(xs[-1] for xs, _ in places), GRID_POINTS)
    returns = np.stack([np.interp(x, xs, means) for xs, means in places])
    low, median, high = np.quantile(returns, (0.25, 0.5, 0.75), axis=0)
    return Curve(x, median, low, high)


def plot(runs: Runs, goal: float, path: Path) -> None:
    """Draws the learning curves of all contestants as PNG: against episodes, env steps and seconds.

    Lines are medians over the seeds, bands their quartiles (:func:`curve`); a dot is the median of when the seeds
    reached the goal, and is missing if too few did.

    Args:
        runs: What is compared.
        goal: Mean return, drawn as a line.
        path: Where to write the picture.

    Raises:
        InputError: If a run has finished no episode.
    """
    from matplotlib.figure import Figure  # half a second that a run does not need; without pyplot it draws with Agg
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=(15, 5), dpi=120, layout="constrained")
    panels = figure.subplots(1, len(AXES), sharey=True)
    for panel, (axis, name) in zip(panels, AXES.items(), strict=True):
        for index, (contestant, seeds) in enumerate(runs.items()):
            one, color = curve(seeds.values(), axis), f"C{index}"
            panel.plot(one.x, one.median, color=color, label=contestant)
            panel.fill_between(one.x, one.low, one.high, color=color, alpha=0.2, linewidth=0)
            there = spread([to_goal(axis, goal)(rows) for rows in seeds.values()]).median
            if math.isfinite(there):
                panel.plot(there, goal, "o", color=color, markeredgecolor="white", zorder=3)
        panel.axhline(goal, color="grey", linestyle=":", linewidth=1)
        panel.set(xlabel=name, xlim=(0, None))
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        panel.grid(alpha=0.3)
    panels[0].set_ylabel(f"mean return of {window(runs)} episodes")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(runs))
    figure.suptitle(_CAPTION.format(goal=goal), fontsize=10)
    figure.savefig(path)


_CAPTION = (
    "Lines: median over the seeds; bands: quartiles; a run that has ended keeps its last value. "
    "Dots: median of reaching {goal:g}."
)
