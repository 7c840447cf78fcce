"""The learners of an algorithm as one: in its own process, or in processes of their own that average their gradients.

An algorithm has one ``learner``: what :func:`make_learner` gives. With ``num_learners=0`` that is the learner itself,
so a call costs nothing more; with 1 or more it is :class:`RemoteLearners`, which has the same methods. Remote learners
hold the same weights, moments, counters and generators at all times, because each averages its gradients with the
others' before every step (``gradient_step``) and because nothing in them depends on their rank. So whatever a learner
holds is read from the first of them and loaded into all.

A learner class says how several share an update, with two static methods:

``shard(batch, n) -> list[batch]``
    Cuts what ``learn`` takes into n parts of the same size, in order. The mean over the parts' losses must be the loss
    of the whole, so that the mean of the gradients is the gradient of the whole.
``merge(results) -> result``
    Puts together what the n calls of ``learn`` returned, in the order of the parts, as one call for the whole batch
    would have returned it.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import ray
import torch
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.learner_group import LearnerGroup
from ray.rllib.core.rl_module.apis import TargetNetworkAPI
from ray.rllib.core.rl_module.rl_module import RLModule

from rayground.errors import InputError, RunError, one_line
from rayground.learners.lean import Arrays, LeanTorchLearner
from rayground.rollouts.moments import Moments
from rayground.schedules import as_schedule

logger = logging.getLogger("rayground")

GRACE_S = 5.0
"""Seconds that the other learners have to fail too, once one has: the first to be heard is not always the cause."""
TORCH_RNG = "torch_rng"

Call = str | Callable[..., Any]
"""A method of a learner by name, or a function that takes the learner first."""


class LearnerFailed(RunError):
    """A learner in a process of its own died or raised.

    Attributes:
        traceback: Its own traceback; "" of one that died.
    """

    def __init__(self, line: str, traceback: str = "") -> None:
        super().__init__(line)
        self.traceback = traceback


def make_learner(group: LearnerGroup, config: AlgorithmConfig) -> LeanTorchLearner | RemoteLearners:
    """The one learner, or the remote ones, of a group that RLlib has built.

    Raises:
        InputError: If a learner is to have a GPU, but its process sees none: RLlib would go on with the CPU.
    """
    learner = RemoteLearners(group, config) if group.is_remote else group._learner
    devices = learner.devices if isinstance(learner, RemoteLearners) else [str(learner.device)]
    for index, device in enumerate(devices):
        if config.num_gpus_per_learner > 0 and not device.startswith("cuda"):
            raise InputError(
                f"num_gpus_per_learner={config.num_gpus_per_learner:g}: expected a CUDA device for learner {index}, "
                f"got {device}: torch {torch.__version__} must see a GPU where that learner runs"
            )
    return learner


def why_learners_fail(error: Exception) -> str | None:
    """Says in one line why remote learners could not be built, if that is what ``error`` tells."""
    if isinstance(error, RayTaskError):
        cause = error.cause
        return str(cause) if isinstance(cause, InputError) else f"a learner could not be built: {one_line(cause)}"
    if isinstance(error, RayActorError):
        last = [line.strip() for line in str(error).splitlines() if line.strip()][-1]
        return f"a learner could not be built: {last}; what it needs must be installed where it runs"
    return None


class Group(LearnerGroup):
    """RLlib's group of learners, whose processes end at once.

    RLlib's own would first wait for a learner that waits for another that is gone; and one that could not be built
    would, when Python forgets it, start a new Ray to end its processes in.
    """

    def shutdown(self) -> None:
        """Ends the learners' processes."""
        if self.is_remote:
            self._backend_executor.shutdown(graceful_termination=False)

    def __del__(self) -> None:
        """Leaves it to Ray, which ends processes that nobody can reach any more."""


class RemoteLearners:
    """Learners in processes of their own, each of which learns from its share of every batch.

    Attributes:
        devices: Where each learner computes, such as ``cuda:0``.
        optimizer_name: As :class:`LeanTorchLearner` has it.
    """

    def __init__(self, group: LearnerGroup, config: AlgorithmConfig) -> None:
        """Takes over the actors of a built group, and gives all of them the weights of the first."""
        self._learner_class = config.learner_class
        self._actors = list(group._workers)
        self.devices: list[str] = self._on_all(_device)
        self._module = _module_like_theirs(group)
        self.optimizer_name: str = self._from_first(_optimizer_name)
        self._lr = as_schedule(config.lr, "lr")
        self.load_module_arrays(self.module_arrays())

    def learn(self, batch: Any, *args: Any) -> Any:
        """What one learner's ``learn(batch, *args)`` would do and return; each does it with a share of the batch.

        Raises:
            RunError: If a learner raised or died. The weights must not be used any more then.
        """
        self._stale = True
        shards = self._learner_class.shard(batch, len(self._actors))
        futures = [actor.learn.remote(shard, *args) for actor, shard in zip(self._actors, shards, strict=True)]
        return self._learner_class.merge(self._results(futures))

    def apply_array(self, gradient_P: np.ndarray, env_steps: int) -> dict[str, float]:
        """Lets every learner take the same step with a gradient ``[P]`` from elsewhere; see ``A3CLearner``."""
        self._stale = True
        return self._on_all("apply_array", gradient_P, env_steps)[0]

    def values(self, obs: np.ndarray) -> np.ndarray:
        """Values ``[M]`` of observations ``[M, ...]``, each learner's share computed by it."""
        parts = zip(self._actors, np.array_split(obs, len(self._actors)), strict=True)
        return np.concatenate(self._results([actor.values.remote(part) for actor, part in parts]))

    def move_norms(self, observed: Moments) -> None:
        """Lets the :class:`RunningNorm` layers of every learner know what has been observed since the last call."""
        self._stale = True
        self._on_all("move_norms", observed)

    @property
    def policy_module(self) -> RLModule:
        """A module of this process, with the learners' weights."""
        if self._stale:
            self.module_arrays()
        return self._module

    def module_arrays(self) -> Arrays:
        """All parameters and buffers of the module by name, target networks included."""
        self._load_own(self._from_first("module_arrays"))
        return {name: value.numpy() for name, value in self._module.state_dict().items()}

    def load_module_arrays(self, arrays: Arrays) -> None:
        """Loads what :meth:`module_arrays` gave into all learners.

        Raises:
            CheckpointError: If names or shapes differ from the module's.
        """
        self._on_all("load_module_arrays", ray.put(arrays))
        self._load_own(arrays)

    def optimizer_arrays(self) -> Arrays:
        """The optimizer's moments and step counts."""
        return self._from_first("optimizer_arrays")

    def load_optimizer_arrays(self, arrays: Arrays, optimizer_name: str) -> None:
        """Loads what :meth:`optimizer_arrays` gave into all learners; those of another optimizer are left out."""
        if optimizer_name != self.optimizer_name:  # said once, not by each learner
            logger.warning("the optimizer was %s and is %s: it starts anew", optimizer_name, self.optimizer_name)
            arrays = {}
        self._on_all("load_optimizer_arrays", ray.put(arrays), self.optimizer_name)

    def extra_state(self) -> dict[str, Any]:
        """What else the learners hold, as JSON; the state of torch's generator in their processes is with it."""
        return self._from_first(_extra_state)

    def load_extra_state(self, state: dict[str, Any]) -> None:
        """Loads what :meth:`extra_state` gave, here or from a learner in the algorithm's process, into all learners."""
        self._on_all(_load_extra_state, state)

    def learning_rate(self, env_steps: int) -> float:
        """The learning rate that a gradient step at ``env_steps`` uses."""
        return self._lr(env_steps)

    def use_settings(self, config: AlgorithmConfig) -> None:
        """Takes over the settings that may change while training."""
        self._lr = as_schedule(config.lr, "lr")
        self._on_all("use_settings", config)

    def _load_own(self, arrays: Arrays) -> None:
        self._module.load_state_dict({name: torch.as_tensor(array) for name, array in arrays.items()})
        self._stale = False

    def _from_first(self, call: Call) -> Any:
        return self._results([_sent(self._actors[0], call)])[0]

    def _on_all(self, call: Call, *args: Any) -> list[Any]:
        return self._results([_sent(actor, call, *args) for actor in self._actors])

    def _results(self, futures: Sequence[Any]) -> list[Any]:
        """What calls to the first learners gave. Waits for any: one that failed leaves the others waiting for it."""
        waiting = {future: index for index, future in enumerate(futures)}
        results: dict[int, Any] = {}
        failures: dict[int, RayError] = {}
        while waiting:
            ready, _ = ray.wait(list(waiting), timeout=GRACE_S if failures else None)
            for future in ready:
                index = waiting.pop(future)
                try:
                    results[index] = ray.get(future)
                except RayError as error:
                    failures[index] = error
            if not ready:
                break
        if failures:
            raise _cause(failures) from None
        return [results[index] for index in range(len(futures))]


def _cause(failures: dict[int, RayError]) -> Exception:
    """What went wrong first: a dead learner breaks the connection of the others, and they raise for it."""
    died = sorted(index for index, error in failures.items() if isinstance(error, RayActorError))
    if died:
        return LearnerFailed(
            f"learner {died[0]} died: its process was killed (out of memory?) or crashed; "
            "go on from the last checkpoint with --resume"
        )
    causes = {index: getattr(error, "cause", error) for index, error in sorted(failures.items())}
    told = [cause for cause in causes.values() if isinstance(cause, RunError | InputError)]
    if told:  # a loss that is not finite spoils the gradients of all: it says more than they do
        return max(told, key=lambda cause: "the loss" in str(cause))
    index, cause = next(iter(causes.items()))
    return LearnerFailed(f"learner {index} raised {one_line(cause)}", traceback=str(failures[index]))


def _module_like_theirs(group: LearnerGroup) -> RLModule:
    module = group._module_spec.build()[DEFAULT_MODULE_ID]
    if isinstance(module, TargetNetworkAPI):
        module.make_target_networks()
    return module


def _sent(actor: Any, call: Call, *args: Any) -> Any:
    """Asks for a call, without RLlib's ``apply()``: after an exception, that ends the process and hides it."""
    return getattr(actor, call).remote(*args) if isinstance(call, str) else actor.__ray_call__.remote(call, *args)


# What runs in a learner's process.


def _device(learner: LeanTorchLearner) -> str:
    return str(learner.device)


def _optimizer_name(learner: LeanTorchLearner) -> str:
    return learner.optimizer_name


def _extra_state(learner: LeanTorchLearner) -> dict[str, Any]:
    return learner.extra_state() | {TORCH_RNG: base64.b64encode(torch.get_rng_state().numpy().tobytes()).decode()}


def _load_extra_state(learner: LeanTorchLearner, state: dict[str, Any]) -> None:
    learner.load_extra_state(state)
    if TORCH_RNG in state:
        torch.set_rng_state(torch.frombuffer(bytearray(base64.b64decode(state[TORCH_RNG])), dtype=torch.uint8))
