"""The contract of arrays between rollouts, replay and learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from rayground.rollouts.moments import Moments


@dataclass(slots=True)
class EpisodeRecord:
    """What is kept of one finished episode.

    Attributes:
        episode_return: Undiscounted sum of rewards.
        length: Number of env steps.
        custom: The numbers that callbacks put into ``episode.custom_data``, by name.
    """

    episode_return: float
    length: int
    custom: dict[str, float] = field(default_factory=dict)


class Sampled(Protocol):
    """What the driver counts of what a runner hands back."""

    @property
    def num_env_steps(self) -> int:
        """The number of transitions."""
        ...

    episodes: list[EpisodeRecord]
    runner: int
    seconds: dict[str, float]

    def not_finite(self) -> str | None:
        """The first reward or observation that is not finite, in words; None if all are."""
        ...

    def moments(self) -> Moments:
        """Moments of the observations that were acted on."""
        ...


@dataclass(slots=True)
class Rollout:
    """T vector steps of the N sub-environments of one runner, time first.

    Sub-environments reset themselves one step after an episode's last step (Gymnasium's NEXT_STEP autoreset), so
    row ``t`` after a last step holds no transition: ``valid[t]`` is False, ``obs[t]`` is the final observation of
    the old episode and ``obs[t + 1]`` the first of the new one. Wherever ``valid`` is True,
    ``(obs[t], actions[t], rewards[t], obs[t + 1], terminated[t], truncated[t])`` is one transition.

    Attributes:
        obs: ``[T + 1, N, ...]`` observations.
        actions: ``[T, N, ...]`` the policy's actions, as in RLlib's episodes: those of a Box space (float32) are
            normalized or clipped on the way to the environment.
        rewards: ``[T, N]`` float32 rewards.
        terminated: ``[T, N]`` bool: the task ended, nothing follows.
        truncated: ``[T, N]`` bool: the episode was cut (time limit), its value goes on.
        valid: ``[T, N]`` bool: the row is a transition.
        action_masks: ``[T + 1, N, A]`` bool: the actions that are legal at ``obs``: all of them where an episode
            terminated, perhaps none where it was truncated; None if the environments do not say.
        extras: What the policy computed beside the actions, each ``[T, N, ...]``: for a distribution
            ``action_dist_inputs`` ``[T, N, D]`` and ``action_logp`` ``[T, N]``. Empty if the algorithm reads none.
        episodes: The episodes that ended within these T steps.
        runner: Index of the runner: 0 in this process, 1 and up remote.
        fresh: The environments were reset right before ``obs[0]``: it does not continue an earlier fragment.
        seconds: What the call took in all (``total``), and of that on environments (``env``: reset and step) and on
            the policy (``inference``: the module, its distribution and conversions).
    """

    obs: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray
    action_masks: np.ndarray | None = None
    extras: dict[str, np.ndarray] = field(default_factory=dict)
    episodes: list[EpisodeRecord] = field(default_factory=list)
    runner: int = 0
    fresh: bool = False
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def num_env_steps(self) -> int:
        """The number of transitions: rows in which an environment reset itself do not count."""
        return int(np.count_nonzero(self.valid))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        columns = (self.obs, self.actions, self.rewards, self.terminated, self.truncated, self.valid)
        masks = [] if self.action_masks is None else [self.action_masks]
        return sum(array.nbytes for array in (*columns, *masks, *self.extras.values()))

    def moments(self) -> Moments:
        """Moments of the observations that were acted on."""
        moments = Moments()
        moments.add(self.obs[:-1][self.valid])
        return moments

    def not_finite(self) -> str | None:
        """The first reward or observation that is not finite, in words with its sub-environment; None if all are."""
        for what, values in (("reward", self.rewards), ("observation", self.obs)):
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                at = tuple(np.argwhere(~np.isfinite(values))[0])
                place = f" at {[int(i) for i in at[2:]]}" if at[2:] else ""
                return f"runner {self.runner}: the {what} of sub-environment {at[1]} is {values[at]}{place}"
        return None


def concatenate(rollouts: Sequence[Rollout]) -> Rollout:
    """Joins rollouts of one runner, of which each continues the one before, into one."""
    first = rollouts[0]
    if len(rollouts) == 1:
        return first
    columns = ("actions", "rewards", "terminated", "truncated", "valid")
    moments = ("obs",) if first.action_masks is None else ("obs", "action_masks")
    parts = {name: [getattr(rollout, name) for rollout in rollouts] for name in moments}
    return Rollout(
        **{name: np.concatenate([part[:-1] for part in of] + [of[-1][-1:]]) for name, of in parts.items()},
        **{name: np.concatenate([getattr(rollout, name) for rollout in rollouts]) for name in columns},
        extras={name: np.concatenate([rollout.extras[name] for rollout in rollouts]) for name in first.extras},
        episodes=[record for rollout in rollouts for record in rollout.episodes],
        runner=first.runner,
        fresh=first.fresh,
        seconds={part: sum(rollout.seconds[part] for rollout in rollouts) for part in first.seconds},
    )
