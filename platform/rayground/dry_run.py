"""What ``--dry-run`` prints: the settings, the sizes, and what would be written."""

from __future__ import annotations

import json
from pathlib import Path

from ray.rllib.core import DEFAULT_MODULE_ID

from rayground import checks
from rayground.budget import free_memory, human_bytes
from rayground.experiment import Experiment
from rayground.results.files import readable
from rayground.rollouts.environments import env_name, make_single_env
from rayground.run import settings_of
from rayground.settings import settings_tree


def describe(experiment: Experiment, storage: str | Path, num_seeds: int) -> str:
    """Checks the environment and builds the module, but nothing else.

    Args:
        experiment: Validated, with its seed.
        storage: Where run folders would go.
        num_seeds: How many runs there would be.

    Raises:
        InputError: If environment or settings are wrong.
    """
    config = experiment.config
    checks.check_env(lambda: make_single_env(config), env_name(config))
    env = make_single_env(config)
    spaces = (
        getattr(env, "single_observation_space", env.observation_space),
        getattr(env, "single_action_space", env.action_space),
    )
    env.close()
    module = config.get_rl_module_spec(spaces={DEFAULT_MODULE_ID: spaces}).build()
    parameters = sum(parameter.numel() for parameter in module.parameters())
    lines = [
        json.dumps(readable(settings_of(experiment, settings_tree(config))), indent=2, sort_keys=True),
        f"module: {type(module).__name__}, {parameters:,} parameters",
    ]
    if hasattr(config, "replay"):
        size = config.replay.num_bytes(*spaces)
        lines.append(
            f"replay: {config.replay.capacity:,} transitions in {human_bytes(size)} "
            f"({human_bytes(free_memory())} of memory are free)"
        )
    runs = "one run" if num_seeds == 1 else f"{num_seeds} runs, each in a folder seed_<k> of its own"
    folder = Path(storage).expanduser().absolute() / f"{experiment.name}_<time>"
    lines.append(
        f"would write {runs}: {folder}/ with experiment.json, params.json, progress.csv, result.json, "
        "TensorBoard events and checkpoints/"
    )
    return "\n".join(lines)
