"""Files that an environment's settings name, where the user stands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig


def name_files_absolutely(config: AlgorithmConfig) -> None:
    """Makes relative paths in ``env_config``, and in that of ``evaluation_config``, absolute.

    Remote runners, trials of Tune and a later ``--resume`` stand in other folders. A path is a text that ends in a
    suffix, such as ``prices.csv``, and names a file that is here; all other texts stay.

    Args:
        config: Not frozen; changed in place.
    """
    config.env_config = _absolute(config.env_config)
    for_evaluation = config.evaluation_config
    if isinstance(for_evaluation, Mapping) and isinstance(for_evaluation.get("env_config"), Mapping):
        config.evaluation_config = {**for_evaluation, "env_config": _absolute(for_evaluation["env_config"])}


def _absolute(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: str(Path(value).resolve()) if _is_file(value) else value for key, value in settings.items()}


def _is_file(value: Any) -> bool:
    return isinstance(value, str) and bool(Path(value).suffix) and Path(value).is_file()
