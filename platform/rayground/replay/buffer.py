"""The slotted replay buffer."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from rayground.errors import CheckpointError, InputError, RunError
from rayground.replay.columns import Column
from rayground.replay.lanes import TERMINATED, TRUNCATED, VALID, Lanes
from rayground.replay.nstep import NStep
from rayground.replay.priorities import Priorities
from rayground.replay.transition import Batch, Transition
from rayground.rollouts.rollout import Rollout


class SlottedReplayBuffer:
    """Transitions of many environments in preallocated columns, drawn uniformly or by priority.

    Each environment has a lane of ``capacity // num_lanes`` slots and one more. A lane stores each observation once;
    the last observation of an episode takes a slot of its own, so that a full buffer of short episodes holds somewhat
    fewer than ``capacity`` transitions, and never more. Memory is taken as the buffer fills.
    """

    def __init__(
        self,
        capacity: int,
        observation_space: gym.Space,
        action_space: gym.Space,
        *,
        num_lanes: int = 1,
        n_step: int = 1,
        gamma: float = 0.99,
        prioritized: bool = False,
        alpha: float = 0.6,
        priority_epsilon: float = 1e-6,
        action_masks: bool = False,
        seed: int | np.random.SeedSequence = 0,
    ):
        """Makes an empty buffer.

        Args:
            capacity: The most transitions to hold, all lanes together.
            observation_space: A Box, Discrete, MultiDiscrete or MultiBinary space of one environment.
            action_space: The same.
            num_lanes: Environments of all runners together.
            n_step: Rewards of up to so many env steps are summed up in a sample.
            gamma: Discount per env step.
            prioritized: Draw in proportion to ``(|td_error| + priority_epsilon) ** alpha`` (Schaul et al. 2016,
                https://arxiv.org/abs/1511.05952); otherwise all with the same probability.
            alpha: How much priorities count, 0 to 1; only if ``prioritized``.
            priority_epsilon: Keeps transitions without TD error in play; only if ``prioritized``.
            action_masks: Whether the environments say which actions are legal; only if these are Discrete.
            seed: Seed of the buffer's own random numbers.

        Raises:
            InputError: If there is no slot for each lane, no step to take, or a space of another kind.
        """
        if n_step < 1:
            raise InputError(f"replay: expected n_step of at least 1, got {n_step}")
        if not 1 <= num_lanes <= capacity:
            raise InputError(
                f"replay: expected a capacity of at least one transition for each of {num_lanes} environments, "
                f"got {capacity}"
            )
        self.capacity = capacity
        columns = Column.of(observation_space, "observation"), Column.of(action_space, "action")
        self._lanes = Lanes(num_lanes, capacity, *columns, Column.of_masks(action_space) if action_masks else None)
        self._priorities = Priorities(self._lanes.num_rows, alpha, priority_epsilon) if prioritized else None
        self._rng = np.random.default_rng(seed)
        self._n_step = NStep(self._lanes, n_step, gamma)
        self._sampled = np.empty(0, np.int64)
        self._order: np.ndarray | None = None  # the rows of __getitem__, until something is stored

    @property
    def prioritized(self) -> bool:
        """Whether transitions are drawn by priority."""
        return self._priorities is not None

    @property
    def has_action_masks(self) -> bool:
        """Whether the buffer holds which actions are legal."""
        return self._lanes.masks is not None

    @property
    def n_step(self) -> int:
        """Env steps of rewards that a sample sums up at most."""
        return self._n_step.n_step

    @property
    def num_lanes(self) -> int:
        """Environments that the buffer holds transitions of."""
        return self._lanes.num_lanes

    @property
    def nbytes(self) -> int:
        """Bytes in use: they grow as the buffer fills."""
        priorities = self._priorities.nbytes if self._priorities else 0
        return self._lanes.nbytes + priorities * self._lanes.num_used // self._lanes.num_rows

    @property
    def share_used(self) -> float:
        """The share of the slots that have been in use, 0 to 1."""
        return self._lanes.num_used / self._lanes.num_rows

    def __len__(self) -> int:
        """Transitions stored."""
        return self._lanes.size

    def __getitem__(self, index: int) -> Transition:
        """Reads a transition: those of lane 0 come first, in each lane the oldest first.

        The first one after a change looks through the flags of the whole buffer: for looking at it, not for training.

        Raises:
            IndexError: If there are fewer.
        """
        index, size = operator.index(index), len(self)
        if not -size <= index < size:
            raise IndexError(f"replay: expected an index below {size}, the transitions stored, got {index}")
        return self._lanes.read(self._rows_in_order()[index])

    def __iter__(self) -> Iterator[Transition]:
        """Reads all transitions, in the order of ``__getitem__``."""
        return map(self._lanes.read, self._rows_in_order())

    def _rows_in_order(self) -> np.ndarray:
        if self._order is None:
            self._order = np.concatenate([self._lanes.rows_in_order(lane) for lane in range(self.num_lanes)])
        return self._order

    def add(self, rollout: Rollout, first_lane: int = 0) -> int:
        """Stores a rollout of N environments in lanes ``first_lane`` to ``first_lane + N - 1``.

        It continues what is in these lanes, unless it is fresh or its first observation is another than the one that
        came last: then the episode that ran there is cut. New transitions get the largest priority so far.

        Args:
            rollout: T vector steps; rows that are not valid store nothing but their observation.
            first_lane: The lane of the rollout's first environment.

        Returns:
            The number of transitions stored: fewer than the rollout's only if it is longer than a lane.

        Raises:
            InputError: If the arrays do not have the shapes of the spaces, or there are fewer lanes.
            RunError: If an integer observation lies outside of its space.
        """
        lanes = self._lanes
        lanes.check(first_lane, rollout.obs, rollout.actions, rollout.action_masks)
        flags = (TERMINATED * rollout.terminated + TRUNCATED * rollout.truncated + VALID) * rollout.valid
        rows = lanes.write(
            first_lane,
            lanes.obs_column.to_stored(rollout.obs),
            # Where an environment reset itself the action is void: it need not lie in the space.
            rollout.actions.astype(lanes.action_column.stored, copy=False),
            rollout.rewards,
            flags,
            rollout.action_masks,
            rollout.fresh,
        )
        self._order = None
        valid = lanes.flags[rows] != 0
        if self._priorities:
            self._priorities.renew(rows, valid)
        return int(np.count_nonzero(valid))

    def push(self, transition: Transition, lane: int = 0) -> None:
        """Stores one transition, which continues the lane if its ``obs`` is the ``next_obs`` of the one before.

        Args:
            transition: Values of the spaces.
            lane: Which environment it comes from.

        Raises:
            InputError: If a value does not have the shape of its space, or there are fewer lanes.
            RunError: If an integer observation lies outside of its space.
        """
        t = transition
        self.add(
            Rollout(
                obs=np.stack([np.asarray(t.obs), np.asarray(t.next_obs)])[:, None],
                actions=np.asarray(t.action)[None, None],
                rewards=np.array([[t.reward]], np.float32),
                terminated=np.array([[t.terminated]], np.bool_),
                truncated=np.array([[t.truncated]], np.bool_),
                valid=np.ones((1, 1), np.bool_),
            ),
            first_lane=lane,
        )

    def cut(self, lanes: Sequence[int] | None = None) -> None:
        """Ends the episodes that run in these lanes (None: in all), because their environments were reset.

        Their transitions stay, and bootstrap from the last observation there is.
        """
        self._lanes.cut(slice(None) if lanes is None else list(lanes))

    def sample(self, batch_size: int, num_batches: int | None = None, beta: float = 0.4) -> Batch:
        """Draws transitions with replacement.

        All with the same probability, or in proportion to their priorities (:meth:`Priorities.draw`).

        Args:
            batch_size: Transitions in a minibatch.
            num_batches: Draw so many minibatches in this call, which costs far less than as many calls.
            beta: How much of the bias is corrected by the weights, 0 to 1. Without priorities there is no bias.

        Returns:
            ``[B, ...]`` arrays, or ``[K, B, ...]`` with ``num_batches``; all of them copies.

        Raises:
            RunError: If the buffer is empty.
        """
        if not len(self):
            raise RunError("replay: expected at least one stored transition to sample from, got an empty buffer")
        lanes, shape = self._lanes, (batch_size,) if num_batches is None else (num_batches, batch_size)
        if self._priorities:
            rows, weights = self._priorities.draw(shape, beta, self._rng)
            indices = lanes.tickets(rows)
        else:
            rows = indices = lanes.draw(shape, self._rng)
            weights = np.empty(shape, np.float32)
            weights.fill(1.0)
        rewards, discounts, last = self._n_step.follow(rows)
        self._sampled = rows
        both = np.stack((rows, lanes.next_rows(last)))
        obs, next_obs = lanes.obs.take(both)
        masks, next_masks = lanes.masks.take(both) if lanes.masks else (None, None)
        return Batch(
            obs=obs,
            actions=lanes.action_column.to_given(lanes.actions.take(rows, axis=0)),
            rewards=rewards,
            next_obs=next_obs,
            discounts=discounts,
            weights=weights,
            indices=indices,
            action_masks=masks,
            next_action_masks=next_masks,
        )

    def update_priorities(self, indices: np.ndarray, td_errors: np.ndarray) -> None:
        """Sets priorities after a gradient step; a uniform buffer has none, and nothing happens.

        Args:
            indices: ``Batch.indices``; those of transitions that were overwritten since are left out.
            td_errors: As many TD errors; their sign does not count. Where an index comes twice the last one holds.

        Raises:
            InputError: If there are not as many TD errors as indices.
            RunError: If a TD error is not finite.
        """
        if not self._priorities:
            return
        tickets, errors = np.ravel(indices), np.ravel(td_errors)
        if tickets.shape != errors.shape:
            raise InputError(f"update_priorities: expected {len(tickets)} TD errors, one an index, got {len(errors)}")
        stored = self._lanes.is_stored(tickets)
        if not stored.all():
            tickets, errors = tickets[stored], errors[stored]
        self._priorities.update(self._lanes.rows(tickets), errors)

    def metrics(self) -> dict[str, float]:
        """Numbers to log.

        Returns:
            ``size`` (transitions stored), ``fill`` (their share of the capacity), ``bytes`` (memory in use),
            ``sample_age_mean`` (env steps of all lanes since the transitions of the last sample; only after one), and
            if prioritized ``priority_mean``, ``priority_max`` and ``priority_spread`` (standard deviation by mean).
        """
        lanes, size = self._lanes, len(self)
        values = {
            "size": float(size),
            "fill": size / self.capacity,
            "bytes": float(self.nbytes),
        }
        if self._sampled.size:
            heads = lanes.heads.take(self._sampled % lanes.num_lanes)
            values["sample_age_mean"] = float((heads - lanes.tickets(self._sampled)).mean())
        if self._priorities and size:
            values |= self._priorities.metrics(size)
        return values

    def get_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What a checkpoint keeps: contents, priorities, write positions and random numbers.

        Returns:
            Values that JSON holds exactly, and arrays (copies) of the rows in use.
        """
        values, arrays = self._lanes.get_state()
        values |= {**self._settings(), "rng": self._rng.bit_generator.state}
        if self._priorities:
            values["priorities"], arrays["priorities"] = self._priorities.get_state(self._lanes.num_used)
        return values, arrays

    def set_state(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Takes over what :meth:`get_state` gave, in place of everything that is in this buffer.

        With another ``alpha`` the priorities are converted.

        Raises:
            CheckpointError: If it comes from a buffer with other spaces, capacity, lanes or kind of sampling, or is
                incomplete; this buffer is then unchanged.
        """
        for name, expected in self._settings().items():
            if values.get(name) != expected:
                raise CheckpointError(
                    f"replay: expected a checkpoint with {name}={expected}, got {values.get(name)}: resume with the "
                    "settings of the run"
                )
        if not isinstance(values.get("rng"), dict):
            raise CheckpointError("replay: expected the state of the random numbers, got none")
        self._lanes.check_state(values, arrays)
        if self._priorities:
            self._priorities.set_state(values.get("priorities"), arrays.get("priorities"), arrays["flags"])
        self._lanes.set_state(values, arrays)
        self._rng.bit_generator.state = values["rng"]
        self._sampled, self._order = np.empty(0, np.int64), None

    def _settings(self) -> dict[str, Any]:
        lanes = self._lanes
        columns = {"observations": lanes.obs_column, "actions": lanes.action_column, "action_masks": lanes.mask_column}
        return {
            "capacity": self.capacity,
            "num_lanes": self.num_lanes,
            "prioritized": self.prioritized,
            **{name: f"{column.stored}{list(column.shape)}" for name, column in columns.items() if column},
        }
