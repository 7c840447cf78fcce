"""Storage of the replay buffer: one ring of slots per environment, in flat columns.

One lane belongs to one environment of one runner, so that the next slot of a lane is the next step of the same
episode, and each observation is stored once. A slot holds a transition (its observation, action, reward and flags;
the next observation is the next slot's), or an observation alone (flags 0): the last one of an episode, or the one
that waits at the head of the lane until its continuation comes.

Slots are numbered by tickets. Position p of lane l has ticket ``p * num_lanes + l`` and lives in row ``ticket %
num_rows`` of the columns. Positions only grow, so that a ticket never means two transitions; the next step of any
ticket is ``ticket + num_lanes``, in memory too, with one wrap-around for all lanes; and the rows in use are always
the first ones.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rayground.errors import CheckpointError, InputError
from rayground.replay.columns import Column
from rayground.replay.transition import Transition

_COLUMNS = ("obs", "actions", "rewards", "flags")
VALID, TERMINATED, TRUNCATED = np.uint8(1), np.uint8(2), np.uint8(4)


class Lanes:
    """Rings of slots side by side.

    Attributes:
        obs: Observations, ``[rows, ...]``.
        actions: Actions, ``[rows, ...]``.
        rewards: float32 ``[rows]``.
        flags: uint8 ``[rows]``: 0 without a transition, else VALID with TERMINATED or TRUNCATED added.
        heads: int64 ``[lanes]``: ticket of the slot that is written next.
        waiting: bool ``[lanes]``: the head slot already holds the observation that comes next.
        num_used: Rows that have been in use.
        size: Transitions stored.
    """

    __slots__ = (
        "_modulus",
        "_stride",
        "action_column",
        "actions",
        "flags",
        "heads",
        "num_lanes",
        "num_rows",
        "num_used",
        "obs",
        "obs_column",
        "rewards",
        "size",
        "waiting",
    )

    def __init__(self, num_lanes: int, capacity: int, obs_column: Column, action_column: Column):
        """Makes empty lanes that hold at most ``capacity`` transitions together."""
        self.num_lanes, self.num_rows = num_lanes, num_rows(num_lanes, capacity)
        self.obs_column, self.action_column = obs_column, action_column
        self.obs, self.actions = obs_column.empty(self.num_rows), action_column.empty(self.num_rows)
        self.rewards, self.flags = np.zeros(self.num_rows, np.float32), np.zeros(self.num_rows, np.uint8)
        self.heads, self.waiting = np.arange(num_lanes), np.zeros(num_lanes, np.bool_)
        self.num_used = self.size = 0
        # NumPy takes an array without dimensions in half the time that it takes a Python int.
        self._stride, self._modulus = np.array(num_lanes), np.array(self.num_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the columns."""
        return self.obs.nbytes + self.actions.nbytes + self.rewards.nbytes + self.flags.nbytes

    def check(self, first_lane: int, obs: np.ndarray, actions: np.ndarray) -> None:
        """Checks the shapes of what :meth:`write` is to write.

        Raises:
            InputError: If they are not those of the spaces, or there are fewer lanes.
        """
        num_steps, num = actions.shape[:2]
        if not 0 <= first_lane <= self.num_lanes - num:
            raise InputError(
                f"replay: expected lanes from 0 to {self.num_lanes - 1}, one for each environment, got {first_lane} to "
                f"{first_lane + num - 1}"
            )
        for name, got, expected in (
            ("observations", obs.shape, (num_steps + 1, num, *self.obs_column.shape)),
            ("actions", actions.shape, (num_steps, num, *self.action_column.shape)),
        ):
            if got != expected:
                raise InputError(f"replay: expected {name} of shape {expected}, as the space says, got {got}")

    def write(
        self,
        first_lane: int,
        obs: np.ndarray,
        actions: np.ndarray,
        rewards: np.ndarray,
        flags: np.ndarray,
        fresh: bool,
    ) -> np.ndarray:
        """Writes T steps of N neighbouring lanes; the arrays are in the stored dtypes.

        Where ``obs[0]`` is not the observation that waits in the lane, the episode there was cut: its last
        observation stays and the new steps start behind it. Of a fragment longer than a lane the end is kept.

        Args:
            first_lane: The first of the N lanes.
            obs: ``[T + 1, N, ...]``, of which the last one waits for what follows.
            actions: ``[T, N, ...]``.
            rewards: ``[T, N]``.
            flags: ``[T, N]``, 0 where the row is no transition.
            fresh: Cut all N lanes, whatever waits in them.

        Returns:
            The rows written, int64 ``[T + 1, N]``; the last ones hold no transition.
        """
        num_steps, num = flags.shape
        lanes = slice(first_lane, first_lane + num)
        heads = self.heads[lanes]
        self._cut_unless_continued(heads, self.waiting[lanes], obs[0], fresh)
        if (surplus := num_steps - self.num_rows // self.num_lanes + 1) > 0:
            obs, actions, rewards, flags = (a[surplus:] for a in (obs, actions, rewards, flags))
            heads += surplus * self.num_lanes
            num_steps -= surplus
        steps = np.arange(0, (num_steps + 1) * self.num_lanes, self.num_lanes)
        rows = self.rows(heads + steps[:, None])
        self.size += int(np.count_nonzero(flags)) - int(np.count_nonzero(self.flags[rows]))
        written, last = rows[:-1], rows[-1]
        self.obs[rows] = obs
        self.actions[written] = actions
        self.rewards[written] = rewards
        self.flags[written] = flags
        self.flags[last] = 0
        heads += num_steps * self.num_lanes
        self.waiting[lanes] = True
        if self.num_used < self.num_rows:
            slots = min(int(heads.max()) // self.num_lanes + 1, self.num_rows // self.num_lanes)
            self.num_used = max(self.num_used, slots * self.num_lanes)
        return rows

    def cut(self, lanes: slice | list[int]) -> None:
        """Ends the episodes that run in these lanes: what comes next does not continue them."""
        self.heads[lanes] += self.num_lanes * self.waiting[lanes]
        self.waiting[lanes] = False

    def tickets(self, rows: np.ndarray) -> np.ndarray:
        """The tickets of transitions in these rows: of all that share a row, the newest one before the head."""
        newest = self.heads - self._stride
        if self.num_lanes > 1:
            newest = newest.take(rows % self._stride)
        return newest - (newest - rows) % self._modulus

    def rows(self, tickets: np.ndarray) -> np.ndarray:
        """The rows in which tickets live."""
        return tickets % self._modulus

    def next_obs(self, rows: np.ndarray | np.integer) -> np.ndarray:
        """The observations behind transitions: those of the next slots."""
        return self.obs_column.to_given(self.obs.take(rows + self._stride, axis=0, mode="wrap"))

    def is_stored(self, tickets: np.ndarray) -> np.ndarray:
        """Which of these tickets, once given out, have not been overwritten since."""
        oldest = self.heads + self.num_lanes * self.waiting - self.num_rows
        return tickets >= oldest.take(tickets % self._stride)

    def rows_in_order(self, lane: int) -> np.ndarray:
        """The rows of a lane that hold transitions, oldest first."""
        head, waiting = int(self.heads[lane]), int(self.waiting[lane])
        oldest = max(lane, head + self.num_lanes * waiting - self.num_rows)
        rows = self.rows(np.arange(oldest, head, self.num_lanes))
        return rows[self.flags[rows] != 0]

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Draws rows that hold transitions, all with the same probability and with replacement.

        Rows in use are drawn, and those without a transition dropped: exactly uniform, and needs no list of them. Some
        more are drawn than are needed on average, so that a second try (from scratch, which keeps it exact) is rare.
        """
        wanted = math.prod(shape)
        share, num_used = self.size / self.num_used, np.array(float(self.num_used))
        tries = int((wanted + 4.0 * math.sqrt(wanted * (1.0 - share)) + 2.0) / share)
        while True:
            # Faster than rng.integers; a double has 53 random bits, so no row is preferred that one could measure.
            rows = (rng.random(tries) * num_used).astype(np.int64)
            rows = rows.take(self.flags.take(rows).nonzero()[0])
            if len(rows) >= wanted:
                return rows[:wanted].reshape(shape)

    def read(self, row: np.integer) -> Transition:
        """Copies the transition that a row holds."""
        flags = int(self.flags[row])
        return Transition(
            obs=self.obs_column.to_given(self.obs[row].copy()),
            action=self.action_column.to_given(self.actions[row].copy()),
            reward=float(self.rewards[row]),
            next_obs=self.next_obs(row),
            terminated=bool(flags & TERMINATED),
            truncated=bool(flags & TRUNCATED),
        )

    def get_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Values that JSON holds exactly, and copies of the rows in use."""
        values: dict[str, Any] = {"heads": self.heads.tolist(), "waiting": self.waiting.tolist()}
        return values, {name: getattr(self, name)[: self.num_used].copy() for name in _COLUMNS}

    def check_state(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Checks what :meth:`set_state` is to take over.

        Raises:
            CheckpointError: If it does not fit into these lanes, or is not whole.
        """
        used = len(arrays.get("flags", ()))
        for name in _COLUMNS:
            own, got = getattr(self, name), arrays.get(name)
            if got is None or got.dtype != own.dtype or got.shape != (used, *own.shape[1:]) or used > len(own):
                raise CheckpointError(f"replay: expected {name} as this buffer stores them, got damaged ones or none")
        if not len(values.get("heads", ())) == len(values.get("waiting", ())) == self.num_lanes:
            raise CheckpointError(f"replay: expected write positions of {self.num_lanes} lanes, got others or none")

    def set_state(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Takes over what :meth:`get_state` gave and :meth:`check_state` passed, in place of what these lanes hold."""
        used = len(arrays["flags"])
        for name in _COLUMNS:
            getattr(self, name)[:used] = arrays[name]
        self.flags[used:] = 0
        self.heads[:], self.waiting[:] = values["heads"], values["waiting"]
        self.num_used, self.size = used, int(np.count_nonzero(self.flags))

    def _cut_unless_continued(self, heads: np.ndarray, waiting: np.ndarray, obs: np.ndarray, fresh: bool) -> None:
        held = self.obs.take(self.rows(heads), axis=0)
        if not fresh and held.tobytes() == obs.tobytes():
            return
        same = [not fresh and a.tobytes() == b.tobytes() for a, b in zip(held, obs, strict=True)]
        cut = waiting & ~np.array(same)
        heads += self.num_lanes * cut
        waiting &= ~cut


def num_rows(num_lanes: int, capacity: int) -> int:
    """Rows for ``capacity`` transitions: a slot more in each lane, for the observation that waits there."""
    return (capacity // num_lanes + 1) * num_lanes
