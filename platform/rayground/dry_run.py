"""What ``--dry-run`` prints: the settings, the sizes, and what would be written."""

from __future__ import annotations

import json
from pathlib import Path

from rayground.budget import free_memory, human_bytes
from rayground.experiment import Experiment
from rayground.preflight import preflight
from rayground.results.files import readable
from rayground.run import settings_of
from rayground.settings import settings_tree


def describe(experiment: Experiment, storage: str | Path, num_seeds: int) -> str:
    """Checks what a run would start with, but starts none.

    Args:
        experiment: Validated, with its seed.
        storage: Where run folders would go.
        num_seeds: How many runs there would be.

    Raises:
        InputError: If environment, module or sizes are wrong.
    """
    config = experiment.config
    found = preflight(config)
    parameters = sum(parameter.numel() for parameter in found.module.parameters())
    lines = [
        json.dumps(readable(settings_of(experiment, settings_tree(config))), indent=2, sort_keys=True),
        f"module: {type(found.module).__name__}, {parameters:,} parameters",
    ]
    if found.replay_bytes:
        lines.append(
            f"replay: {config.replay.capacity:,} transitions in {human_bytes(found.replay_bytes)} "
            f"({human_bytes(free_memory())} of memory are free)"
        )
    runs = "one run" if num_seeds == 1 else f"{num_seeds} runs, each in a folder seed_<k> of its own"
    folder = Path(storage).expanduser().absolute() / f"{experiment.name}_<time>"
    lines.append(
        f"would write {runs}: {folder}/ with experiment.json, params.json, progress.csv, result.json, "
        "TensorBoard events and checkpoints/"
    )
    return "\n".join(lines)
