"""Settings of an algorithm's config by name: changed from the command line, listed as plain data, compared."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from rayground.config_keys import BATCH_SIZE, among, attribute_of, check_settable, listed, type_of
from rayground.errors import InputError
from rayground.values import describe, fit, holds_data, parse_value

Change = tuple[Any, Any]
"""A value before and after."""


def apply_overrides(config: AlgorithmConfig, pairs: Sequence[str]) -> dict[str, Change]:
    """Changes settings of a config in place, as ``--set KEY=VALUE`` asks.

    A key is a setting (``lr``), a field of a dataclass (``replay.capacity``), or a key of a dict
    (``env_config.length``, ``model_config.fcnet_hiddens``, ``evaluation_config.env_config``). Whether the settings make
    sense together is for the config's ``validate()`` to say.

    Args:
        config: A config that is not frozen.
        pairs: Such as ``lr=1e-4``, ``epsilon=[[0, 1.0], [10000, 0.05]]``.

    Returns:
        The old and the new value of each key, in order.

    Raises:
        InputError: For a pair without ``=``, a key that is unknown (it names the closest), that comes twice or cannot
            be set this way, or a value of the wrong type (it says what was expected).
    """
    changes: dict[str, Change] = {}
    for pair in pairs:
        key, equals, text = (part.strip() for part in pair.partition("="))
        if not equals or not key:
            raise InputError(f"--set: expected KEY=VALUE, got {pair!r}")
        if key in changes:
            raise InputError(f"{key}: expected once, got it twice")
        changes[key] = _override(config, key, parse_value(text, key))
    return changes


def settings_tree(config: AlgorithmConfig) -> dict[str, Any]:
    """Returns the settings that matter as nested dicts, lists, texts and numbers.

    Classes and functions become their import paths, dataclasses dicts with the name of their class as ``class``. What
    no algorithm on RLlib's new API stack reads is left out.
    """
    tree: dict[str, Any] = {"algorithm": _plain(config.algo_class)}
    for name in listed(config):
        value = getattr(config, name)
        if value is not None or not name.startswith("callbacks_"):
            tree[name] = _plain(value)
    if getattr(config, attribute_of(BATCH_SIZE)) is not None:
        tree.pop("train_batch_size", None)
        tree[BATCH_SIZE] = config.train_batch_size_per_learner
    tree["model_config"] = _plain(config._model_config)
    if config._rl_module_spec is not None:
        tree["rl_module_spec"] = _plain(config._rl_module_spec)
    return tree


def _override(config: AlgorithmConfig, key: str, value: Any) -> Change:
    name, *path = key.split(".")
    if name == "model_config":
        return _override_model_config(config, key, path, value)
    check_settable(config, name)
    old = getattr(config, attribute_of(name))
    hint = type_of(config, name)
    if name == "evaluation_config" and path:
        check_settable(config, path[0])
        old, inner = {path[0]: getattr(config, path[0])} | (old or {}), type_of(config, path[0])
        new = {**old, path[0]: _put(old[path[0]], path[1:], value, key, inner)}
    else:
        new = _put(old, path, value, key, hint)
    setattr(config, attribute_of(name), new)
    return _at(old, path), _at(new, path)


def _override_model_config(config: AlgorithmConfig, key: str, path: list[str], value: Any) -> Change:
    """The model's settings are those of the experiment's own spec if it brings one, otherwise RLlib's."""
    spec = config._rl_module_spec
    is_own = isinstance(spec, RLModuleSpec) and bool(spec.model_config)
    old = spec.model_config if is_own else config._model_config
    if path and isinstance(old, dict):
        defaults = () if is_own else [field.name for field in dataclasses.fields(DefaultModelConfig)]
        if path[0] not in (known := [*old, *defaults]):
            raise InputError(f"{key}: the model has no setting {path[0]!r}{among(path[0], known)}")
    new = _put(old, path, value, key, dict)
    if is_own:
        config._rl_module_spec = dataclasses.replace(spec, model_config=new)
    else:
        config._model_config = new
    return _at(old, path), _at(new, path)


def _put(old: Any, path: list[str], value: Any, key: str, hint: Any) -> Any:
    """Returns a copy of ``old`` with ``value`` at ``path``; ``hint`` is the type of what is replaced here."""
    if not path:
        if holds_data(hint):
            return fit(value, hint, key)
        raise InputError(f"{key}: expected {describe(hint)}, which only code can make{_fields_hint(old, key)}")
    name, *rest = path
    if _is_record(old):
        names = [field.name for field in dataclasses.fields(old) if field.init]
        if name not in names:
            raise InputError(f"{key}: {type(old).__name__} has no setting {name!r}{among(name, names)}")
        inner = get_type_hints(type(old), include_extras=True)[name]
        return _replaced(old, name, _put(getattr(old, name), rest, value, key, inner), key)
    if not isinstance(old, Mapping):
        raise InputError(f"{key}: expected a setting with settings inside before .{name}, got {old!r}")
    inside = old.get(name, {} if rest else None)
    return {**old, name: _put(inside, rest, value, key, _like(inside))}


def _replaced(old: Any, name: str, value: Any, key: str) -> Any:
    try:
        return dataclasses.replace(old, **{name: value})
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"{key}: {error}") from None


def _like(value: Any) -> Any:
    """What may stand in the place of a value in a dict, where no hint says it: a number for a number and so on."""
    kinds = [bool] if isinstance(value, bool) else [int | float, str, list, dict]
    unknown = Any if value is None else type(value)
    return next((kind | None for kind in kinds if isinstance(value, kind)), unknown)


def _at(value: Any, path: list[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return value


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _fields_hint(value: Any, key: str) -> str:
    names = [field.name for field in dataclasses.fields(value) if field.init] if _is_record(value) else []
    return f"; its settings are {', '.join(f'{key}.{name}' for name in names)}" if names else ""


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, RLModuleSpec):
        return {"module_class": _plain(value.module_class), "model_config": _plain(value.model_config)}
    if _is_record(value):
        fields = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"class": type(value).__name__} | fields
    if isinstance(value, gym.Space):
        return str(value)
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"
