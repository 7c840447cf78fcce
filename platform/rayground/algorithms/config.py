"""What the configs of all our algorithms share: nothing is ignored, nothing is misspelt in silence."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from textwrap import shorten
from typing import Any, ClassVar, cast

import gymnasium as gym
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec

from rayground import quiet
from rayground.algorithms.connectors import completed
from rayground.algorithms.default_net import fitted
from rayground.algorithms.limits import Number
from rayground.algorithms.processes import check_processes
from rayground.algorithms.supported import EVALUATION, FIRED, HINTS, NEVER_CALLED, NUMBERS, RLLIBS_OWN, SUPPORTED
from rayground.errors import InputError, closest
from rayground.learners.group import Group
from rayground.learners.optimizers import parse_optimizer
from rayground.policies import TrainedPolicy
from rayground.rollouts.callbacks import overrides
from rayground.rollouts.runner import ArrayEnvRunner
from rayground.schedules import as_schedule
from rayground.space_checks import ACTIONS


class ArrayConfig(AlgorithmConfig):
    """Base of our configs: RLlib's builder, with the array runner, and an error for every setting without effect.

    Attributes:
        reads_extras: Whether the loss reads what the policy computed when it acted, such as log-probabilities.
        learns_to_act: Whether returns say how good a checkpoint is; where not, the last one is taken for the best.
        policy_class: What ``get_policy()`` gives, and ``rayground export`` exports.
    """

    reads_extras: ClassVar[bool] = True
    learns_to_act: ClassVar[bool] = True
    policy_class: ClassVar[type[TrainedPolicy]] = TrainedPolicy
    supported: ClassVar[frozenset[str]] = SUPPORTED
    action_spaces: ClassVar[tuple[type[gym.Space], ...]] = ACTIONS
    numbers: ClassVar[Mapping[str, Number]] = NUMBERS
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
        self._action_masks = False
        self._of_rayground = True  # :class:`ArrayEnvRunner` refuses a config of RLlib's that was filled with ours

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
            if key not in _known(type(self)) and key not in (
                "train_batch_size_per_learner",
                "learner_class",
                "learner_connector",
            ):
                raise InputError(f"training(): no setting {key!r}{closest(key, _known(type(self)))}")
        try:
            super().training(**kwargs)
        except TypeError as error:  # a setting of another builder method
            raise InputError(
                f"{error}: set it with the builder method that has it".removeprefix("AlgorithmConfig.")
            ) from None
        return self

    @property
    def action_masks(self) -> bool:
        """Whether the environment says which actions are legal; see :mod:`rayground.action_masks`."""
        return self._action_masks

    def with_action_masks(self) -> ArrayConfig:
        """A copy, not frozen, for an environment that says which actions are legal; an algorithm finds out itself."""
        config = self.copy(copy_frozen=False)
        config._action_masks = True
        return config

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
        quiet.after_import()
        if self.seed is None:
            self.seed = secrets.randbits(31)
        for key in vars(self):
            if key not in _known(type(self)):
                raise InputError(f"no setting {key!r} in {type(self).__name__}{closest(key, _known(type(self)))}")
        if not self.in_evaluation:
            self._check_supported()
            self._check_values()
            check_processes(self)
            self._check_batch()
            self._check_evaluation()
            self._check_callbacks()
        parse_optimizer(self.optimizer)
        try:
            self._validate_by_rllib()
        except InputError:
            raise
        except ValueError as error:
            raise InputError(str(error).split("\nTo suppress")[0].replace("\n", " ")) from None

    def _validate_by_rllib(self) -> None:
        super().validate()

    def default_image_spec(self) -> RLModuleSpec:
        """The default module for images; :meth:`get_default_rl_module_spec` gives that for all other observations."""
        raise NotImplementedError

    def get_rl_module_spec(self, *args: Any, **kwargs: Any) -> RLModuleSpec:
        """RLlib's, whose default fits the observations."""
        return fitted(super().get_rl_module_spec(*args, **kwargs), self, self.default_image_spec)

    def get_multi_rl_module_spec(self, **kwargs: Any) -> MultiRLModuleSpec:
        """RLlib's, whose default fits the observations."""
        spec = super().get_multi_rl_module_spec(**kwargs)
        for single in spec.rl_module_specs.values():
            fitted(single, self, self.default_image_spec)
        return spec

    def build_learner_group(self, *, rl_module_spec: Any, placement_group: Any = None, **_: Any) -> Group:
        """RLlib's group of learners, in our variant that ends at once."""
        return Group(config=self.copy(), module_spec=rl_module_spec, placement_group=placement_group)

    def build_env_to_module_connector(self, env: Any = None, spaces: Any = None, device: Any = None) -> ConnectorV2:
        """RLlib's connectors; Dict and Tuple observations are flattened, unless a connector of the user's is there.

        Raises:
            InputError: If a connector keeps a state.
        """
        pipeline = super().build_env_to_module_connector(env, spaces, device)
        return completed(pipeline, has_own=self._env_to_module_connector is not None)

    @property
    def sends_observations(self) -> bool:
        """Whether what the runners have observed comes to the main process."""
        return True

    def check_module(self, module: RLModule, observation_space: gym.Space, action_space: gym.Space) -> None:
        """Checks that a built module gives what the algorithm reads; each algorithm says what that is.

        Raises:
            InputError: If it does not.
        """

    def _validate_new_api_stack_settings(self) -> None:
        """RLlib knows piecewise learning rates only, so it gets to see ours as the number they start with."""
        with shown_as(self, lr=as_schedule(self.lr, "lr", 0)(0)):
            super()._validate_new_api_stack_settings()

    def _check_supported(self) -> None:
        if self.is_multi_agent:
            raise InputError(f"multi_agent() is not supported by {self.algo_class.__name__}: it trains one policy")
        defaults = _defaults(cast(Callable[[], ArrayConfig], type(self)))
        for key, value in vars(self).items():
            if key in self.supported or key in RLLIBS_OWN or key.startswith("_") or _same(value, defaults[key]):
                continue
            hint = f": {HINTS[key]}" if key in HINTS else f"; its default is {defaults[key]!r}"
            given = shorten(repr(value), 60, placeholder=" ...")
            raise InputError(f"{key}={given} is not supported by {self.algo_class.__name__}{hint}")
        if self._learner_connector is not None:
            raise InputError(
                f"learner_connector is not supported by {self.algo_class.__name__}: it learns from arrays of what the "
                "module saw and did; put the conversion into env_to_module_connector, or into the net"
            )

    def _check_values(self) -> None:
        for key, number in self.numbers.items():
            number.check(getattr(self, key), key)
        for key, default in _defaults(cast(Callable[[], ArrayConfig], type(self))).items():
            if (
                key in self.supported
                and isinstance(default, bool)
                and not isinstance(value := getattr(self, key), bool)
            ):
                raise InputError(f"{key}: expected True or False, got {value!r}")
        if self.rollout_fragment_length != "auto":
            Number(1, whole=True).check(self.rollout_fragment_length, "rollout_fragment_length")
        if not isinstance(self.clip_rewards, bool | None):
            Number(0, above=True).check(self.clip_rewards, "clip_rewards")
        _check_vectorize_mode(self.gym_env_vectorize_mode, "gym_env_vectorize_mode")
        if self.grad_clip_by not in (ways := ("global_norm", "norm", "value")):
            hint = closest(str(self.grad_clip_by), ways)
            raise InputError(f"grad_clip_by: expected one of {', '.join(ways)}, got {self.grad_clip_by!r}{hint}")
        if not isinstance(self.optimizer, (str, Mapping)):
            raise InputError(f"optimizer: expected a name or {{'type': name, ...}}, got {self.optimizer!r}")
        self._check_classes()

    def _check_classes(self) -> None:
        runner = _defaults(cast(Callable[[], ArrayConfig], type(self)))["env_runner_cls"]
        if not (isinstance(self.env_runner_cls, type) and issubclass(self.env_runner_cls, runner)):
            raise InputError(
                f"env_runner_cls: expected {runner.__name__} or a subclass, got {self.env_runner_cls!r}: leave it out"
            )
        needed = self.get_default_learner_class()
        if not (isinstance(self.learner_class, type) and issubclass(self.learner_class, needed)):
            raise InputError(
                f"learner_class: expected {needed.__name__} or a subclass, got {self.learner_class!r}: leave it out"
            )
        for hook in NEVER_CALLED:
            if getattr(self.learner_class, hook) is not getattr(needed, hook):
                raise InputError(
                    f"learner_class: {self.learner_class.__name__}.{hook} would never be called: "
                    "override compute_loss_for_module or configure_optimizers_for_module"
                )

    def _check_batch(self) -> None:
        """Checks that learners can share a batch equally."""
        if self._train_batch_size_per_learner is None and self.train_batch_size % max(1, self.num_learners):
            raise InputError(
                f"train_batch_size: expected a multiple of num_learners={self.num_learners}, "
                f"got {self.train_batch_size}; or give train_batch_size_per_learner"
            )

    def _check_evaluation(self) -> None:
        given = {} if self.evaluation_config is None else self.evaluation_config
        if not isinstance(given, Mapping):
            raise InputError(f"evaluation_config: expected a dict of what is different, got {type(given).__name__}")
        for key, value in given.items():
            if key == "explore":
                if value is not False:
                    raise InputError(f"evaluation_config: explore={value!r} is not supported: evaluation is greedy")
            elif key not in EVALUATION:
                raise InputError(
                    f"evaluation_config: {key!r} has no effect on evaluation{closest(key, EVALUATION)}; "
                    f"{', '.join(EVALUATION)} have"
                )
        if "num_envs_per_env_runner" in given:
            self.numbers["num_envs_per_env_runner"].check(
                given["num_envs_per_env_runner"], "evaluation_config.num_envs_per_env_runner"
            )
        if "gym_env_vectorize_mode" in given:
            _check_vectorize_mode(given["gym_env_vectorize_mode"], "evaluation_config.gym_env_vectorize_mode")

    def _check_callbacks(self) -> None:
        for hook in dir(RLlibCallback):
            if hook.startswith("on_") and hook not in FIRED and overrides(self, hook):
                raise InputError(f"{hook} is not supported: it would never be called")


@contextmanager
def shown_as(config: ArrayConfig, **settings: Any) -> Iterator[None]:
    """Shows other settings to RLlib's own checks, which refuse some that ours allow; afterwards all are as before."""
    own = {name: getattr(config, name) for name in settings}
    for name, value in settings.items():
        setattr(config, name, value)
    try:
        yield
    finally:
        for name, value in own.items():
            setattr(config, name, value)


@cache
def _defaults(config_class: Callable[[], ArrayConfig]) -> dict[str, Any]:
    return dict(vars(config_class()))


def _check_vectorize_mode(value: Any, key: str) -> None:
    try:
        gym.VectorizeMode(value)
    except ValueError:
        modes = [mode.value for mode in gym.VectorizeMode]
        hint = closest(str(value), modes)
        raise InputError(f"{key}: expected one of {', '.join(modes)}, got {value!r}{hint}") from None


def _known(config_class: Callable[[], ArrayConfig]) -> frozenset[str]:
    return frozenset(_defaults(config_class)) | RLLIBS_OWN


def _same(a: Any, b: Any) -> bool:
    try:
        return bool(a is b or a == b)
    except ValueError:
        return False
