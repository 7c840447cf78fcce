"""Which settings an RLlib config has, which of them matter, and what type each takes."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
from collections.abc import Sequence
from typing import Any

from ray._common.deprecation import DEPRECATED_VALUE
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from rayground.errors import InputError, closest
from rayground.values import PLAIN, holds_data, without_none

BATCH_SIZE = "train_batch_size_per_learner"
"""A property of RLlib's; all other settings are plain attributes."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BUILDERS = _words(
    "environment env_runners learners training evaluation rl_module fault_tolerance reporting debugging checkpointing "
    "framework resources offline_data multi_agent"
)

_OLD_STACK = _words(
    """
    actions_in_input_normalized before_learn_on_batch checkpoint_trainable_policies_only clip_rewards
    compress_observations count_steps_by create_env_on_local_worker eager_max_retraces eager_tracing
    enable_tf1_exec_eagerly entropy_coeff_schedule exploration_config export_native_model_files fake_sampler
    keep_per_episode_custom_metrics local_tf_session_args lr_schedule metrics_episode_collection_timeout_s model
    num_gpus observation_filter observation_fn off_policy_estimation_methods ope_split_batch_by_episode optimizer
    postprocess_inputs preprocessor_pref remote_env_batch_wait_ms remote_worker_envs replay_sequence_length
    sample_collector sampler_perf_stats_ema_coef shuffle_buffer_size simple_optimizer
    sync_filters_on_rollout_workers_timeout_s tf_session_args update_worker_filter_stats use_worker_filter_stats
    """
)
"""Only RLlib's old API stack reads these."""

_INTERNAL = _words(
    """
    algo_class enable_env_runner_and_connector_v2 enable_rl_module_and_learner env_runner_cls framework_str
    in_evaluation policies policies_to_train stats_cls_lookup
    """
)

_OTHER_KINDS = ("input_", "output", "offline_", "prelearner_", "policy_", "policies", "dataset_", "extra_python_")
"""Beginnings of settings for offline data and many agents, which a run on one environment does not list."""

_ELSEWHERE = {
    "seed": "use --seed",
    "callbacks": "they are code of the experiment",
    "env": "the experiment chooses the environment; what that takes is set by env_config.KEY",
    "rl_module_spec": "it is code of the experiment; what the model takes is set by model_config.KEY",
}


def check_settable(config: AlgorithmConfig, name: str) -> None:
    """Raises unless the command line can change the setting.

    Raises:
        InputError: If there is no such setting (it names the closest), or it is set elsewhere, made by code, or read
            by RLlib's old API stack only.
    """
    if name in _ELSEWHERE:
        raise InputError(f"{name} cannot be changed by --set: {_ELSEWHERE[name]}")
    is_known = name == BATCH_SIZE or name in _public(config)
    if not is_known and name not in _builder_hints(config.__class__):
        settable = [known for known in listed(config) if not _is_code(config, known)]
        near = among(name, [*settable, BATCH_SIZE, "model_config"])
        raise InputError(f"{type(config).__name__} has no setting {name!r}{near}")
    if not is_known or _is_code(config, name):
        raise InputError(f"{name} cannot be changed by --set: it is code of the experiment")
    if name in _OLD_STACK and name not in _supported(config):
        raise InputError(f"{name} cannot be changed by --set: only RLlib's old API stack reads it")
    if name == "train_batch_size" and getattr(config, attribute_of(BATCH_SIZE)) is not None:
        raise InputError(f"{name} cannot be changed by --set: the experiment sets {BATCH_SIZE}, which counts instead")


def listed(config: AlgorithmConfig) -> list[str]:
    """Returns the names of the settings that matter: those that the config says it supports, if it does."""
    supported = _supported(config)
    if supported:
        return [name for name in _public(config) if name in supported - _INTERNAL]
    left_out = _OLD_STACK | _INTERNAL
    return [name for name in _public(config) if name not in left_out and not name.startswith(_OTHER_KINDS)]


def type_of(config: AlgorithmConfig, name: str) -> Any:
    """Returns the type of a setting, as a hint.

    It is what the builder method that takes it says, or its value's type (RLlib's hints are narrower than its own
    defaults here and there). RLlib's hints allow None everywhere; here it is allowed where a default is None.
    """
    attribute = attribute_of(name)
    values = [getattr(config, attribute)]
    values += [vars(default).get(attribute, values[0]) for default in _defaults(config)]
    hint = _builder_hints(config.__class__).get(name)
    if hint is None and values == [None] * 3:
        return Any
    hints = [type(value) for value in values if hint is None or type(value) in PLAIN]
    if hint is not None:
        hints.insert(0, without_none(hint))
    if name.startswith(("num_cpus_", "num_gpus_")):
        hints.append(float)
    return functools.reduce(operator.or_, hints)


def attribute_of(name: str) -> str:
    """Returns the attribute of a config that holds a setting."""
    return f"_{name}" if name == BATCH_SIZE else name


def among(name: str, known: Sequence[str]) -> str:
    """Returns a hint: the closest of the known names, or all of them if they are few."""
    return closest(name, known) or (f"; it has {', '.join(known)}" if 0 < len(known) <= 12 else "")


def _public(config: AlgorithmConfig) -> list[str]:
    """All settings but private ones and those that RLlib marks as deprecated by a default of -1."""
    defaults = vars(_defaults(config)[0])
    deprecated = {name for name, value in defaults.items() if type(value) is int and value == DEPRECATED_VALUE}
    return [name for name in vars(config) if not name.startswith("_") and name not in deprecated]


def _supported(config: AlgorithmConfig) -> frozenset[str]:
    return getattr(config, "supported", frozenset())


def _is_code(config: AlgorithmConfig, name: str) -> bool:
    if name in _INTERNAL or name.startswith("callbacks_"):
        return True
    has_fields = dataclasses.is_dataclass(getattr(config, attribute_of(name)))
    return not has_fields and not holds_data(type_of(config, name))


def _defaults(config: AlgorithmConfig) -> tuple[AlgorithmConfig, AlgorithmConfig]:
    """A config of the same class that nobody has touched, and RLlib's base config."""
    return _untouched(config.__class__), _untouched(AlgorithmConfig)


@functools.cache
def _untouched(kind: Any) -> AlgorithmConfig:
    return kind()


@functools.cache
def _builder_hints(kind: Any) -> dict[str, Any]:
    """What the parameters of the builder methods are annotated with, a subclass's word over its base's."""
    hints: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        for method in (vars(base)[name] for name in _BUILDERS if name in vars(base)):
            for parameter in inspect.signature(method).parameters.values():
                hint = _evaluated(parameter.annotation, method.__globals__)
                if hint is not parameter.empty:
                    hints[parameter.name] = hint
    return hints


def _evaluated(annotation: Any, names: dict[str, Any]) -> Any:
    """Annotations are texts in modules with postponed ones; what they import for type checkers only stays unknown."""
    try:
        return eval(annotation, names) if isinstance(annotation, str) else annotation
    except NameError:
        return inspect.Parameter.empty
