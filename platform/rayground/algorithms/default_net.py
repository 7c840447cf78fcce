"""The net of an algorithm whose user gave no ``rl_module_spec``: layers for vectors, convolutions for images."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from custom_models.nets.encoder import is_image
from rayground.errors import InputError, closest


def net_settings(config: AlgorithmConfig, defaults: dict[str, Any]) -> dict[str, Any]:
    """The settings of the default net for vectors: ``defaults``, with what ``model_config`` changes in them.

    Raises:
        InputError: If ``model_config`` has any other setting.
    """
    given = _given(config)
    for key in given:
        if key not in defaults:
            raise InputError(
                f"model_config: {key!r} is not supported{closest(key, defaults)}; "
                f"known are {', '.join(defaults)}, or give rl_module_spec"
            )
    return defaults | given


def fitted(spec: RLModuleSpec, config: AlgorithmConfig, for_images: Callable[[], RLModuleSpec]) -> RLModuleSpec:
    """The spec of a module that is about to be built, with a net for images in it if it is to see those.

    Args:
        spec: With its spaces; changed where the config names no module of the user's.
        config: Whose it is.
        for_images: Makes the default spec for images.

    Raises:
        InputError: If ``model_config`` describes a net, and images come.
    """
    if config._rl_module_spec is not None or not is_image(spec.observation_space):
        return spec
    if given := _given(config):
        raise InputError(
            f"model_config={given!r} has no effect on images, for which the default net is a CNN: leave it out, "
            "or give rl_module_spec"
        )
    spec.model_config = spec.model_config | for_images().model_config
    return spec


def _given(config: AlgorithmConfig) -> dict[str, Any]:
    given: Any = config._model_config
    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        usual = dataclasses.asdict(type(given)())
        return {key: value for key, value in dataclasses.asdict(given).items() if value != usual[key]}
    return dict(given)
