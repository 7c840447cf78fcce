"""What the configs of all our algorithms share: nothing is ignored, nothing is misspelt in silence."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, cast

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from rayground.errors import InputError, closest
from rayground.learners.optimizers import parse_optimizer
from rayground.rollouts.episodes import overrides
from rayground.rollouts.runner import ArrayEnvRunner
from rayground.schedules import as_schedule

SUPPORTED = frozenset(
    {
        "action_space",
        "algo_class",
        "callbacks_class",
        "callbacks_on_algorithm_init",
        "callbacks_on_checkpoint_loaded",
        "callbacks_on_environment_created",
        "callbacks_on_episode_end",
        "callbacks_on_episode_start",
        "callbacks_on_evaluate_end",
        "callbacks_on_evaluate_start",
        "callbacks_on_train_result",
        "custom_resources_per_env_runner",
        "disable_env_checking",
        "env",
        "env_config",
        "env_runner_cls",
        "evaluation_config",
        "evaluation_duration",
        "evaluation_interval",
        "evaluation_sample_timeout_s",
        "gamma",
        "grad_clip",
        "grad_clip_by",
        "gym_env_vectorize_mode",
        "in_evaluation",
        "log_level",
        "log_sys_usage",
        "lr",
        "max_num_env_runner_restarts",
        "metrics_num_episodes_for_smoothing",
        "min_sample_timesteps_per_iteration",
        "model_config",
        "num_cpus_for_main_process",
        "num_cpus_per_env_runner",
        "num_env_runners",
        "num_envs_per_env_runner",
        "observation_space",
        "optimizer",
        "policies",
        "restart_failed_env_runners",
        "restart_failed_sub_environments",
        "rollout_fragment_length",
        "sample_timeout_s",
        "seed",
        "train_batch_size",
    }
)
"""Settings that every algorithm of ours obeys; each adds its own. Others must keep their default value."""

_RLLIBS_OWN = frozenset({"class", "simple_optimizer"})
"""What RLlib itself puts into a config: the one when it is made from a state, the other when it is validated."""

RANGES: Mapping[str, tuple[float, float]] = {
    "evaluation_duration": (1, math.inf),
    "evaluation_interval": (0, math.inf),
    "evaluation_sample_timeout_s": (0, math.inf),
    "gamma": (0, 1),
    "max_num_env_runner_restarts": (0, math.inf),
    "metrics_num_episodes_for_smoothing": (1, math.inf),
    "min_sample_timesteps_per_iteration": (0, math.inf),
    "num_cpus_for_main_process": (0, math.inf),
    "num_cpus_per_env_runner": (0, math.inf),
    "num_env_runners": (0, math.inf),
    "num_envs_per_env_runner": (1, math.inf),
    "sample_timeout_s": (0, math.inf),
    "total_train_batch_size": (1, math.inf),
}
"""The smallest and the largest value of what is a number (or None) in every algorithm of ours; each adds its own."""

_HINTS = {
    "num_learners": "leave it at 0: the learner runs in the main process",
    "evaluation_num_env_runners": "leave it at 0: evaluation runs in the main process",
    "evaluation_duration_unit": "evaluation counts episodes",
    "callbacks_on_episode_step": "put what you need into on_episode_end: the episode there holds every step",
    "callbacks_on_sample_end": "use on_episode_end or on_train_result",
    "adam_epsilon": "use optimizer={'type': 'adam', 'eps': ...}",
    "noisy": "use epsilon",
    "num_atoms": "only expected values are learned",
    "training_intensity": "use replay_ratio, the number of updates per env step",
    "replay_buffer_config": "use replay=SlottedReplay(...)",
    "batch_mode": "rollouts are always cut at rollout_fragment_length",
    "exploration_config": "use epsilon",
}


class ArrayConfig(AlgorithmConfig):
    """Base of our configs: RLlib's builder, with the array runner, and an error for every setting without effect."""

    supported: ClassVar[frozenset[str]] = SUPPORTED
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = RANGES
    seed: Any
    lr: Any

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class)
        self.env_runner_cls = ArrayEnvRunner
        self.num_env_runners = 0
        self.optimizer: Any = "adam"
        self.restart_failed_env_runners = True
        self.max_num_env_runner_restarts = 3
        self.evaluation_duration = 10
        self.log_sys_usage = False
        self.log_level = "ERROR"
        self._dont_auto_sync_env_runner_states = True  # weights travel with each call, counters are ours

    def training(self, *, optimizer: str | Mapping[str, Any] | None = None, **kwargs: Any) -> ArrayConfig:
        """RLlib's ``training()`` with an optimizer that counts.

        Args:
            optimizer: ``"adam"``, ``"rmsprop"``, ``"sgd"``, or ``{"type": "rmsprop", "alpha": 0.95}`` with torch's
                argument names.
            **kwargs: RLlib's settings; ``lr`` also takes a schedule of ``rayground.schedules``.

        Raises:
            InputError: For a setting that does not exist; the closest right one is named.
        """
        if optimizer is not None:
            self.optimizer = optimizer
        for key in kwargs:
            if key not in _known(type(self)) and key not in ("train_batch_size_per_learner", "learner_class"):
                raise InputError(f"training(): no setting {key!r}{closest(key, _known(type(self)))}")
        try:
            super().training(**kwargs)
        except TypeError as error:  # a setting of another builder method
            raise InputError(
                f"{error}: set it with the builder method that has it".removeprefix("AlgorithmConfig.")
            ) from None
        return self

    def update_from_dict(self, config_dict: Mapping[str, Any]) -> ArrayConfig:
        """RLlib's ``update_from_dict()``, without its silence about names that do not exist.

        Raises:
            InputError: For such a name.
        """
        for key in config_dict:
            if key not in _known(type(self)) and self._translate_special_keys(key, warn_deprecated=False) == key:
                raise InputError(f"no setting {key!r} in {type(self).__name__}{closest(key, _known(type(self)))}")
        super().update_from_dict(dict(config_dict))
        return self

    def validate(self) -> None:
        """Checks everything that can be checked without an environment.

        Raises:
            InputError: For the first setting that is unknown, unsupported or out of range.
        """
        if self.seed is None:
            self.seed = secrets.randbits(31)
        for key in vars(self):
            if key not in _known(type(self)):
                raise InputError(f"no setting {key!r} in {type(self).__name__}{closest(key, _known(type(self)))}")
        if not self.in_evaluation:
            self._check_supported()
            self._check_ranges()
            self._check_callbacks()
        parse_optimizer(self.optimizer)
        try:
            super().validate()
        except InputError:
            raise
        except ValueError as error:
            raise InputError(str(error).split("\nTo suppress")[0].replace("\n", " ")) from None

    def _validate_new_api_stack_settings(self) -> None:
        """RLlib knows piecewise learning rates only, so it gets to see ours as the number they start with."""
        lr, self.lr = self.lr, as_schedule(self.lr, "lr", 0)(0)
        try:
            super()._validate_new_api_stack_settings()
        finally:
            self.lr = lr

    def _check_supported(self) -> None:
        if self.is_multi_agent:
            raise InputError(f"multi_agent() is not supported by {self.algo_class.__name__}: it trains one policy")
        defaults = _defaults(cast(Callable[[], ArrayConfig], type(self)))
        for key, value in vars(self).items():
            if key in self.supported or key in _RLLIBS_OWN or key.startswith("_") or _same(value, defaults[key]):
                continue
            hint = f": {_HINTS[key]}" if key in _HINTS else f"; its default is {defaults[key]!r}"
            raise InputError(f"{key}={value!r} is not supported by {self.algo_class.__name__}{hint}")
        for key in ("_env_to_module_connector", "_module_to_env_connector", "_learner_connector"):
            if getattr(self, key) is not None:
                raise InputError(
                    f"{key[1:]} is not supported by {self.algo_class.__name__}: "
                    "observations go to the module as arrays; put the conversion into an environment wrapper or the net"
                )

    def _check_ranges(self) -> None:
        for key, (low, high) in self.ranges.items():
            value = getattr(self, key)
            if isinstance(value, (int, float)) and not low <= value <= high:
                expected = f"at least {low:g}" if high == math.inf else f"a number from {low:g} to {high:g}"
                raise InputError(f"{key.removeprefix('total_')}: expected {expected}, got {value!r}")
        if self.grad_clip is not None and not self.grad_clip > 0:
            raise InputError(f"grad_clip: expected a number above 0, or None, got {self.grad_clip!r}")
        if self.grad_clip_by not in (ways := ("global_norm", "norm", "value")):
            hint = closest(str(self.grad_clip_by), ways)
            raise InputError(f"grad_clip_by: expected one of {', '.join(ways)}, got {self.grad_clip_by!r}{hint}")

    def _check_callbacks(self) -> None:
        for hook in ("on_episode_created", "on_episode_step", "on_sample_end"):
            if overrides(self, hook):
                raise InputError(
                    f"{hook} is not supported: environments are stepped as arrays; "
                    "use on_episode_start or on_episode_end, where the episode holds every step"
                )


@cache
def _defaults(config_class: Callable[[], ArrayConfig]) -> dict[str, Any]:
    return dict(vars(config_class()))


def _known(config_class: Callable[[], ArrayConfig]) -> frozenset[str]:
    return frozenset(_defaults(config_class)) | _RLLIBS_OWN


def _same(a: Any, b: Any) -> bool:
    try:
        return bool(a is b or a == b)
    except ValueError:
        return False
