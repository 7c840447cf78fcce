"""An exported policy: ``policy.safetensors`` (weights) and ``policy.json`` (everything else), no code, no Ray.

The loader builds the net from a class that it knows (``custom_models.nets``) or that the caller hands in, never from
a name in the file alone, and reads weights as plain tensors: loading a policy from a stranger runs nothing of theirs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from custom_models.nets import ACTION_MASK, NETS, drop_value
from rayground import exported, spaces
from rayground.action_masks import asked_masks
from rayground.distributions import sampler_over
from rayground.errors import InputError, closest

FORMAT = 3
POLICY = "policy"
WEIGHTS_FILE, JSON_FILE = exported.weights_file(POLICY), exported.json_file(POLICY)


def policy_outputs(net: nn.Module) -> Callable[[Tensor], Tensor]:
    """What a net is asked for actions: the ``policy`` of an actor-critic net ``[B, D]``, else all of it, ``[B, A]``."""
    return getattr(net, "policy", net)


class Policy:
    """A policy that acts.

    Attributes:
        model: The net, in evaluation mode; see ``custom_models.nets``.
        observation_space: What it observes.
        action_space: What it answers: Discrete, and with an actor-critic net MultiDiscrete or Box.
        info: What was noted at export: environment, env steps, the run.
        action_masks: Whether it was trained where environments say which actions are legal, and must be told.
    """

    def __init__(
        self,
        model: nn.Module,
        observation_space: gym.Space,
        action_space: gym.Space,
        info: dict[str, Any] | None = None,
        *,
        normalize_actions: bool = True,
        clip_actions: bool = False,
        action_masks: bool = False,
    ) -> None:
        """Wraps a net; how its actions go to the environment is by default as RLlib does it, see ``actions_for_env``.

        Raises:
            InputError: If the net gives no such actions.
        """
        self._is_distribution = hasattr(model, "policy")
        kinds = (gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.Box)[: 3 if self._is_distribution else 1]
        if not isinstance(action_space, kinds):
            expected = " or ".join(space_class.__name__ for space_class in kinds)
            raise InputError(f"policy: {type(model).__name__} needs a {expected} action space, got {action_space}")
        self.model = model.eval()
        self.observation_space = observation_space
        self.action_space = action_space
        self.info = info or {}
        self.action_masks = action_masks
        self._takes_mask = not self._is_distribution and ACTION_MASK in inspect.signature(model.forward).parameters
        self._sampler = sampler_over(action_space)
        self._for_env = spaces.actions_for_env(action_space, normalize=normalize_actions, clip=clip_actions)

    def compute_actions(self, obs: Any, explore: bool = False, action_mask: Any = None) -> np.ndarray:
        """Returns actions for the environment: the best ones, or samples of the policy.

        Args:
            obs: ``[B, *observation_space.shape]``.
            explore: Sample them, with torch's generator.
            action_mask: ``[B, A]`` bool or int8, the legal ones: those are taken then, and no others. Needed where
                :attr:`action_masks` says so.

        Returns:
            ``[B, *action_space.shape]``, in the dtype of the action space.

        Raises:
            InputError: If shape or number type is not what the policy observes, ``explore`` is set for action
                values, which are no distribution, or the masks are missing or wrong.
        """
        if explore and not self._is_distribution:
            raise InputError("explore=True: an exported Q-network acts greedily, exploration stays with training")
        array = spaces.as_batch(obs, self.observation_space)
        masks = asked_masks(action_mask, self.action_space, len(array), needed=self.action_masks)
        outputs = self._outputs(array, masks)
        noise = self._sampler.noise(1, *outputs.shape)[0] if explore else None
        return self._for_env(self._sampler.act(outputs, noise))

    def _outputs(self, obs: np.ndarray, masks: np.ndarray | None) -> np.ndarray:
        """What the net answers ``[B, D]``, -inf where an action is illegal."""
        with torch.inference_mode():
            if masks is None or not self._takes_mask:
                outputs = policy_outputs(self.model)(torch.tensor(obs)).numpy()
                return outputs if masks is None else np.where(masks, outputs, -np.inf)
            return self.model(torch.tensor(obs), action_mask=torch.tensor(masks)).numpy()

    def compute_single_action(self, obs: Any, explore: bool = False, action_mask: Any = None) -> int | np.ndarray:
        """Returns the action for one observation ``[*observation_space.shape]``, the best one or a sample.

        Args:
            obs: The observation.
            explore: As for :meth:`compute_actions`.
            action_mask: The legal actions ``[A]``, as :meth:`compute_actions` wants them for several observations.

        Raises:
            InputError: As :meth:`compute_actions`.
        """
        given = None if action_mask is None else np.asarray(action_mask)[None]
        action = self.compute_actions(np.asarray(obs)[None], explore, given)[0]
        return int(action) if isinstance(self.action_space, gym.spaces.Discrete) else action

    def evaluate(self, env: gym.Env | str, episodes: int = 100, seed: int = 0) -> list[float]:
        """Plays whole episodes greedily in plain Gymnasium.

        Args:
            env: An environment, or the id of one. Its episodes must end.
            episodes: How many.
            seed: Seed of the first reset; the following episodes go on from it.

        Returns:
            The undiscounted return of each episode.

        Raises:
            InputError: If the environment's spaces are not the policy's.
        """
        if isinstance(env, str):
            with gym.make(env) as made:
                return self.evaluate(made, episodes, seed)
        for key, own in (("observation", self.observation_space), ("action", self.action_space)):
            given = getattr(env, f"{key}_space")
            if given != own:
                raise InputError(f"evaluate: {key} space: the policy expects {own}, the environment has {given}")
        with one_thread():
            return [self._episode(env, seed if i == 0 else None) for i in range(episodes)]

    def _episode(self, env: gym.Env, seed: int | None) -> float:
        obs, info = env.reset(seed=seed)
        episode_return, ended = 0.0, False
        while not ended:
            mask = info.get(ACTION_MASK) if self.action_masks else None
            obs, reward, terminated, truncated, info = env.step(self.compute_single_action(obs, action_mask=mask))
            episode_return += float(reward)
            ended = terminated or truncated
        return episode_return


@contextmanager
def one_thread() -> Iterator[None]:
    """One observation at a time is too little for several threads: they wait for each other, 15 times as long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def save(
    folder: str | Path,
    net: nn.Module,
    *,
    net_kwargs: dict[str, Any],
    observation_space: gym.Space,
    action_space: gym.Space,
    normalize_actions: bool,
    clip_actions: bool,
    action_masks: bool,
    info: dict[str, Any],
) -> Path:
    """Writes a policy: whole or not at all, and only if it can be loaded again.

    Args:
        folder: A folder that does not exist yet, or is empty.
        net: The net, built as ``type(net)(observation_space, action_space, **net_kwargs)``; what only its value
            needs is left out.
        net_kwargs: Its keyword arguments; they are written as JSON.
        observation_space: What it observes.
        action_space: What it answers.
        normalize_actions: What it was trained with, ``config.normalize_actions``; see ``spaces.actions_for_env``.
        clip_actions: Likewise, ``config.clip_actions``.
        action_masks: Whether it was trained where environments say which actions are legal.
        info: What to note beside the weights, as JSON.

    Returns:
        The folder, absolute.

    Raises:
        InputError: If the folder holds something, something cannot be written as JSON, or what was written does not
            load (``net_kwargs`` that are not those the net was built with).
    """
    description = {
        "format": FORMAT,
        "net": {"class": type(net).__name__, "kwargs": net_kwargs},
        "observation_space": spaces.to_json(observation_space),
        "action_space": spaces.to_json(action_space),
        "normalize_actions": normalize_actions,
        "clip_actions": clip_actions,
        "action_masks": action_masks,
        "info": info,
    }
    return exported.write(
        folder, POLICY, description, _acting_state(net), lambda written: load(written, nets=[type(net)])
    )


def load(folder: str | Path, nets: Sequence[type[nn.Module]] = ()) -> Policy:
    """Loads a policy that :func:`save` wrote.

    Args:
        folder: The folder; relative paths and ``~`` are fine.
        nets: Net classes of one's own that the policy may have been made with; ours are known.

    Raises:
        InputError: If the folder holds no whole policy, or one whose net is not known or does not fit its weights.
    """
    path = exported.absolute(folder)
    description = exported.read_description(path, POLICY, FORMAT)
    try:
        name, kwargs = description["net"]["class"], description["net"]["kwargs"]
        observation_space = spaces.from_json(description["observation_space"])
        action_space = spaces.from_json(description["action_space"])
        actions = {key: bool(description[key]) for key in ("normalize_actions", "clip_actions", "action_masks")}
        info = description["info"]
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path / JSON_FILE} is damaged: {type(error).__name__}: {error}") from error
    known = {net.__name__: net for net in (*NETS, *nets)}
    if name not in known:
        raise InputError(
            f"{path}: its net {name!r} is not one of custom_models.nets: "
            f"hand its class in, load(folder, nets=[{name}]){closest(name, known)}"
        )
    try:
        net = known[name](observation_space, action_space, **kwargs)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {name} cannot be built from {kwargs}: {error}") from error
    drop_value(net)
    exported.load_weights(net, path, POLICY)
    return Policy(net, observation_space, action_space, info, **actions)


def _acting_state(net: nn.Module) -> dict[str, Tensor]:
    """The state of what acts: of an actor-critic net all but what ``value_only`` names."""
    left_out = tuple(f"{name}." for name in getattr(net, "value_only", ()))
    return {name: value for name, value in net.state_dict().items() if not name.startswith(left_out)}
