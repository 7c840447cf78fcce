"""Which actions are legal, as environments say it in their infos: ``info["action_mask"]``, Gymnasium's convention.

An environment with a Discrete action space says so from its first reset on, or not at all: with every observation comes
a mask ``[A]`` of bools, or of integers 0 and 1 (int8 in Gymnasium), which allows one action at least. Only where an
episode ends, and nothing is done any more, it may allow none; and where one terminates, any will do, or none at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import gymnasium as gym
import numpy as np

from custom_models.nets import ACTION_MASK
from rayground.errors import InputError, RunError
from rayground.space_checks import kind

Infos = Mapping[str, Any] | list[dict[str, Any]]
"""What a vector environment tells: a dict of arrays as it gives it itself, or one dict per sub-environment."""


def gives_masks(infos: Infos, action_space: gym.Space) -> bool:
    """Whether an environment says which actions are legal.

    Args:
        infos: Those of a reset.
        action_space: That of one environment.
    """
    told = infos if isinstance(infos, list) else [infos]
    gives_some = any(isinstance(info, Mapping) and ACTION_MASK in info for info in told)
    return gives_some and isinstance(action_space, gym.spaces.Discrete)


def legal_sample(action_space: gym.Space, masks: np.ndarray | None) -> Any:
    """Samples an action, or one for each environment of a batch.

    Args:
        action_space: A Discrete space with a mask ``[A]``, that of a batch of N with masks ``[N, A]``; any without.
        masks: Bool; None if all actions are legal.
    """
    if masks is None:
        return action_space.sample()
    given = masks.astype(np.int8)  # as Gymnasium wants it
    return action_space.sample(given if isinstance(action_space, gym.spaces.Discrete) else tuple(given))


def expected_mask(action_space: gym.Space) -> str:
    """What a mask should be, in words."""
    return f"bool or int8 [{_num_actions(action_space)}], true or 1 for legal actions, of which there is one at least"


def asked_masks(masks: Any, action_space: gym.Space, num: int, *, needed: bool) -> np.ndarray | None:
    """The masks that come with observations which a policy is asked about.

    Args:
        masks: ``[B, A]``; None if none came.
        action_space: The policy's.
        num: B.
        needed: Whether it was trained on masks.

    Returns:
        ``[B, A]`` bool; None if none came.

    Raises:
        InputError: If they are needed and did not come, are wrong, allow nothing, or mean nothing in this space.
    """
    if masks is None:
        if needed:
            raise InputError(
                f"{ACTION_MASK}: expected the legal actions, info[{ACTION_MASK!r}], which the policy needs"
            )
        return None
    if not isinstance(action_space, gym.spaces.Discrete):
        raise InputError(f"{ACTION_MASK}: expected none, for an action space that is not Discrete, got {kind(masks)}")
    array = np.asarray(masks)
    if array.ndim != 2 or len(array) != num:
        raise InputError(f"{ACTION_MASK}: expected a mask [A] for each of {num} observations, got {kind(array)}")
    for mask in array:
        if wrong := mask_fault(mask, action_space):
            raise InputError(f"{ACTION_MASK}: expected {expected_mask(action_space)}, got {wrong}")
    return array.astype(np.bool_)


def mask_fault(mask: Any, action_space: gym.Space, *, may_be_empty: bool = False) -> str | None:
    """What is wrong with the mask of one environment: what came, in words; None if nothing is.

    Args:
        mask: The mask; None if none came.
        action_space: That of the environment.
        may_be_empty: Whether it need not allow anything.
    """
    if mask is None:
        return "none"
    if not (isinstance(mask, np.ndarray) and mask.dtype.kind in "biu" and mask.shape == (_num_actions(action_space),)):
        return kind(mask)
    if not _is_binary(mask):
        return f"the values {np.unique(mask).tolist()}"
    return None if may_be_empty or mask.any() else "one that allows nothing"


class LegalActions:
    """The legal actions of the N sub-environments of a runner, step by step.

    Attributes:
        masks: ``[N, A]`` bool, those of the last observations; None if the environments do not say. All are true where
            an episode terminated: it makes no difference there, and a mean over legal actions stays a number.
    """

    def __init__(self, action_space: gym.Space, num_envs: int, given: bool | None = None) -> None:
        """Knows none yet.

        Args:
            action_space: That of one environment.
            num_envs: N.
            given: Whether there are masks; None if the first reset is to decide that.
        """
        self.masks: np.ndarray | None = None
        self._space, self._given = action_space, given
        self._no_N = np.zeros(num_envs, np.bool_)

    def reset(self, infos: Infos) -> None:
        """Takes what came with a reset of all environments.

        Raises:
            RunError: As :meth:`step`.
        """
        if self._given is None:
            self._given = gives_masks(infos, self._space)
        self.masks = self._read(infos, self._no_N, self._no_N) if self._given else None

    def step(self, infos: Infos, terminated_N: np.ndarray, truncated_N: np.ndarray) -> None:
        """Takes what came with a vector step.

        Raises:
            RunError: If a mask is missing or wrong, or allows nothing where the episode goes on.
        """
        if self.masks is not None:
            self.masks = self._read(infos, terminated_N, truncated_N)

    def resume(self, masks: np.ndarray | None) -> None:
        """Goes on with masks that an earlier process had."""
        self.masks, self._given = masks, masks is not None

    def to_act_by(self, ended_N: np.ndarray) -> np.ndarray | None:
        """The masks ``[N, A]``, with all actions legal where an episode has ended: some answer must come there too."""
        return None if self.masks is None else self.masks | ended_N[:, None]

    def _read(self, infos: Infos, terminated_N: np.ndarray, truncated_N: np.ndarray) -> np.ndarray:
        masks = infos.get(ACTION_MASK) if isinstance(infos, Mapping) else None
        whole = (len(self._no_N), _num_actions(self._space))
        if isinstance(masks, np.ndarray) and masks.shape == whole and masks.dtype.kind in "biu" and _is_binary(masks):
            there_N = infos.get(f"_{ACTION_MASK}", True)  # type: ignore[union-attr]
            if (masks.any(axis=1) & there_N | terminated_N).all():
                return masks.astype(np.bool_) | terminated_N[:, None]
        rows = zip(self._rows(infos), terminated_N.tolist(), truncated_N.tolist(), strict=True)
        return np.stack([self._row(i, *row) for i, row in enumerate(rows)])

    def _rows(self, infos: Infos) -> list[Any]:
        """The mask of each environment, or None."""
        if not isinstance(infos, Mapping):
            return [info.get(ACTION_MASK) for info in infos]
        num_envs, masks = len(self._no_N), infos.get(ACTION_MASK)
        if masks is None:
            return [None] * num_envs
        if np.ndim(masks) == 0 or len(masks) != num_envs:
            raise RunError(f"{ACTION_MASK}: expected one for each of {num_envs} sub-environments, got {kind(masks)}")
        there_N = infos.get(f"_{ACTION_MASK}", ~self._no_N)
        return [mask if there else None for mask, there in zip(masks, there_N, strict=True)]

    def _row(self, env_index: int, mask: Any, terminated: bool, truncated: bool) -> np.ndarray:
        if terminated:
            return np.ones(_num_actions(self._space), np.bool_)
        if wrong := mask_fault(mask, self._space, may_be_empty=truncated):
            where = f" of sub-environment {env_index}" if len(self._no_N) > 1 else ""
            raise RunError(f"{ACTION_MASK}{where}: expected {expected_mask(self._space)}, got {wrong}")
        return mask.astype(np.bool_)


def _is_binary(masks: np.ndarray) -> bool:
    return masks.dtype.kind == "b" or bool(((masks == 0) | (masks == 1)).all())


def _num_actions(action_space: gym.Space) -> int:
    return int(cast(gym.spaces.Discrete, action_space).n)
