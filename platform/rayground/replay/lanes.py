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
from rayground.replay.observations import DenseObservations, Observations, observations
from rayground.replay.transition import Transition

_COLUMNS = ("actions", "rewards", "flags")
VALID, TERMINATED, TRUNCATED = np.uint8(1), np.uint8(2), np.uint8(4)


class Lanes:
    """Rings of slots side by side.

    Attributes:
        obs: Observations, one a row.
        masks: Which actions are legal there, one a row; None if the environments do not say.
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
        "mask_column",
        "masks",
        "num_lanes",
        "num_rows",
        "num_used",
        "obs",
        "obs_column",
        "rewards",
        "size",
        "waiting",
    )

    def __init__(
        self,
        num_lanes: int,
        capacity: int,
        obs_column: Column,
        action_column: Column,
        mask_column: Column | None = None,
    ):
        """Makes empty lanes that hold at most ``capacity`` transitions together."""
        self.num_lanes, self.num_rows = num_lanes, num_rows(num_lanes, capacity)
        self.obs_column, self.action_column, self.mask_column = obs_column, action_column, mask_column
        self.obs = observations(obs_column, num_lanes, self.num_rows)
        self.masks = DenseObservations(mask_column, self.num_rows, "action_masks") if mask_column else None
        self.actions = action_column.empty(self.num_rows)
        self.rewards, self.flags = np.zeros(self.num_rows, np.float32), np.zeros(self.num_rows, np.uint8)
        self.heads, self.waiting = np.arange(num_lanes), np.zeros(num_lanes, np.bool_)
        self.num_used = self.size = 0
        # NumPy takes an array without dimensions in half the time that it takes a Python int.
        self._stride, self._modulus = np.array(num_lanes), np.array(self.num_rows)

    @property
    def nbytes(self) -> int:
        """Bytes in use."""
        row = sum(column.itemsize * math.prod(column.shape[1:]) for column in (self.actions, self.rewards, self.flags))
        return self.num_used * row + sum(store.nbytes(self.num_used) for store in self._stores())

    def check(self, first_lane: int, obs: np.ndarray, actions: np.ndarray, masks: np.ndarray | None) -> None:
        """Checks the shapes of what :meth:`write` is to write.

        Raises:
            InputError: If they are not those of the spaces, there are fewer lanes, or masks that nobody expects.
        """
        num_steps, num = actions.shape[:2]
        if not 0 <= first_lane <= self.num_lanes - num:
            raise InputError(
                f"replay: expected lanes from 0 to {self.num_lanes - 1}, one for each environment, got {first_lane} to "
                f"{first_lane + num - 1}"
            )
        moments, mask_column = (num_steps + 1, num), self.mask_column
        for name, got, expected in (
            ("observations", obs.shape, (*moments, *self.obs_column.shape)),
            ("actions", actions.shape, (num_steps, num, *self.action_column.shape)),
            ("action masks", masks if masks is None else masks.shape, mask_column and (*moments, *mask_column.shape)),
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
        masks: np.ndarray | None,
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
            masks: ``[T + 1, N, A]`` legal actions; None where the lanes hold none.
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
            masks = masks if masks is None else masks[surplus:]
            heads += surplus * self.num_lanes
            num_steps -= surplus
        steps = np.arange(0, (num_steps + 1) * self.num_lanes, self.num_lanes)
        rows = self.rows(heads + steps[:, None])
        self.size += int(np.count_nonzero(flags)) - int(np.count_nonzero(self.flags[rows]))
        written, last = rows[:-1], rows[-1]
        self.obs.write(rows, obs)
        if self.masks and masks is not None:
            self.masks.write(rows, masks)
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

    def next_rows(self, rows: np.ndarray | np.integer) -> np.ndarray:
        """The rows of the next slots of the same lanes."""
        return self.rows(rows + self._stride)

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
        obs, next_obs = self.obs.take(np.stack([row, self.next_rows(row)]))
        return Transition(
            obs=obs,
            action=self.action_column.to_given(self.actions[row].copy()),
            reward=float(self.rewards[row]),
            next_obs=next_obs,
            terminated=bool(flags & TERMINATED),
            truncated=bool(flags & TRUNCATED),
        )

    def get_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Values that JSON holds exactly, and copies of the rows in use."""
        values: dict[str, Any] = {"heads": self.heads.tolist(), "waiting": self.waiting.tolist()}
        arrays = {name: getattr(self, name)[: self.num_used].copy() for name in _COLUMNS}
        for store in self._stores():
            arrays |= store.get_state(self.num_used)
        return values, arrays

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
        for store in self._stores():
            store.check_state(arrays, used)
        if not len(values.get("heads", ())) == len(values.get("waiting", ())) == self.num_lanes:
            raise CheckpointError(f"replay: expected write positions of {self.num_lanes} lanes, got others or none")

    def set_state(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Takes over what :meth:`get_state` gave and :meth:`check_state` passed, in place of what these lanes hold."""
        used = len(arrays["flags"])
        for name in _COLUMNS:
            getattr(self, name)[:used] = arrays[name]
        for store in self._stores():
            store.set_state(arrays)
        self.flags[used:] = 0
        self.heads[:], self.waiting[:] = values["heads"], values["waiting"]
        self.num_used, self.size = used, int(np.count_nonzero(self.flags))

    def _cut_unless_continued(self, heads: np.ndarray, waiting: np.ndarray, obs: np.ndarray, fresh: bool) -> None:
        cut = waiting if fresh else waiting & ~self.obs.equal(self.rows(heads), obs)
        heads += self.num_lanes * cut
        waiting &= ~cut

    def _stores(self) -> list[Observations]:
        return [self.obs, self.masks] if self.masks else [self.obs]


def num_rows(num_lanes: int, capacity: int) -> int:
    """Rows for ``capacity`` transitions: a slot more in each lane, for the observation that waits there."""
    return (capacity // num_lanes + 1) * num_lanes
