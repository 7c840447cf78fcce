"""What goes into the replay buffer and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(slots=True, weakref_slot=True)
class Transition:
    """One env step: the row that people push into a buffer and read back from it.

    A subclass that is decorated with ``@dataclass(slots=True)`` too adds slots and never gets a ``__dict__``.

    Attributes:
        obs: The observation before the step.
        action: The action taken.
        reward: The reward of this one step.
        next_obs: The observation after the step.
        terminated: The task ended, nothing follows.
        truncated: The episode was cut (time limit), its value goes on.
    """

    obs: Any
    action: Any
    reward: float
    next_obs: Any
    terminated: bool
    truncated: bool


@dataclass(slots=True)
class Batch:
    """Sampled transitions: ``[B, ...]`` arrays, or ``[K, B, ...]`` where K minibatches were drawn in one call.

    Attributes:
        obs: Observations, in the dtype of the space (float64 as float32).
        actions: The actions taken there, in the dtype of the space.
        rewards: float32 sums of up to n rewards, discounted by gamma per step: fewer at the end of an episode
            or of what is stored.
        next_obs: The observations after those m <= n steps.
        discounts: float32 factors for the value of ``next_obs``: ``gamma ** m``, or 0 where the episode
            terminated within the m steps (a truncated one bootstraps).
        weights: float32 importance weights in (0, 1]; ones from a uniform buffer.
        indices: int64 tickets for ``update_priorities``: a ticket stays with its transition, so that one which was
            overwritten in the meantime is never mistaken for its successor. A uniform buffer, which has no priorities
            to update, saves the time and gives the rows in memory.
        action_masks: bool ``[B, A]``: the actions that were legal at ``obs``; None if the environments do not say.
        next_action_masks: The same at ``next_obs``.
    """

    obs: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_obs: np.ndarray
    discounts: np.ndarray
    weights: np.ndarray
    indices: np.ndarray
    action_masks: np.ndarray | None = None
    next_action_masks: np.ndarray | None = None
