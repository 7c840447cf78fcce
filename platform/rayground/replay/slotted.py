"""The replay buffer as a config value: ``.training(replay=SlottedReplay(capacity=50_000, prioritized=True))``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import gymnasium as gym
import numpy as np

from rayground.errors import InputError
from rayground.replay import observations
from rayground.replay.buffer import SlottedReplayBuffer
from rayground.replay.columns import Column
from rayground.replay.lanes import num_rows
from rayground.replay.sumtree import SumTree
from rayground.replay.transition import Batch, Transition
from rayground.schedules import Schedule, as_schedule

__all__ = ["Batch", "SlottedReplay", "SlottedReplayBuffer", "Transition"]


@dataclass(frozen=True)
class SlottedReplay:
    """What the replay buffer is to be.

    Attributes:
        capacity: The most transitions to hold, all environments together.
        prioritized: Draw by TD error (Schaul et al. 2016, https://arxiv.org/abs/1511.05952) rather than uniformly.
        alpha: How much priorities count, from 0 (not at all) to 1.
        beta: How much of the bias that priorities bring is corrected, 0 to 1: a number, ``[[env_steps, value], ...]``
            or a schedule of ``rayground.schedules``, by env steps.
        priority_epsilon: Added to each absolute TD error, so that no transition is never drawn again.
    """

    capacity: int = 50_000
    prioritized: bool = False
    alpha: float = 0.6
    beta: float | Sequence[Sequence[float]] | Schedule = 0.4
    priority_epsilon: float = 1e-6

    def __post_init__(self) -> None:
        """Checks the fields.

        Raises:
            InputError: If one of them is of the wrong type, out of its range, or has no effect without ``prioritized``.
        """
        if not _is_number(self.capacity, int) or self.capacity < 1:
            raise InputError(f"replay.capacity: expected a whole number of transitions above 0, got {self.capacity!r}")
        if not isinstance(self.prioritized, bool):
            raise InputError(f"replay.prioritized: expected True or False, got {self.prioritized!r}")
        if not _is_number(self.alpha) or not 0 <= self.alpha <= 1:
            raise InputError(f"replay.alpha: expected a number from 0 to 1, got {self.alpha!r}")
        if not _is_number(self.priority_epsilon) or not 0 < self.priority_epsilon < float("inf"):
            raise InputError(f"replay.priority_epsilon: expected a number above 0, got {self.priority_epsilon!r}")
        as_schedule(self.beta, "replay.beta", 0, 1)
        for field in fields(self):
            value = getattr(self, field.name)
            if not self.prioritized and field.name in _FOR_PRIORITIES and value != field.default:
                raise InputError(f"replay.{field.name}: {value!r} has no effect without prioritized=True: add that")

    def build(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        num_lanes: int,
        n_step: int,
        gamma: float,
        action_masks: bool = False,
        seed: int | np.random.SeedSequence,
    ) -> SlottedReplayBuffer:
        """Makes the buffer; arguments as for :class:`SlottedReplayBuffer`, errors too."""
        return SlottedReplayBuffer(
            self.capacity,
            observation_space,
            action_space,
            num_lanes=num_lanes,
            n_step=n_step,
            gamma=gamma,
            prioritized=self.prioritized,
            alpha=self.alpha,
            priority_epsilon=self.priority_epsilon,
            action_masks=action_masks,
            seed=seed,
        )

    def num_bytes(
        self, observation_space: gym.Space, action_space: gym.Space, num_lanes: int = 1, *, action_masks: bool = False
    ) -> int:
        """Bytes that a full buffer takes; of frames, which shrink as they do, a careful estimate.

        Another number of lanes makes a difference of a slot a lane. Arguments as for :class:`SlottedReplayBuffer`.

        Raises:
            InputError: If a space is of a kind that the buffer does not hold.
        """
        rows = num_rows(num_lanes, self.capacity)
        obs = observations.num_bytes(Column.of(observation_space, "observation"), num_lanes, rows)
        masks = observations.num_bytes(Column.of_masks(action_space), num_lanes, rows) if action_masks else 0
        # float32 reward and uint8 flags beside what the spaces need.
        others = rows * (Column.of(action_space, "action").nbytes + 5)
        return obs + masks + others + self.prioritized * SumTree.num_bytes(rows)


_FOR_PRIORITIES = ("alpha", "beta", "priority_epsilon")


def _is_number(value: object, kind: type = float) -> bool:
    kinds = (int, np.integer) if kind is int else (int, float, np.integer, np.floating)
    return isinstance(value, kinds) and not isinstance(value, bool)
