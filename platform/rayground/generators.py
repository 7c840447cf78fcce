"""The trained generator of an algorithm, in the place of a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from rayground import generator_file
from rayground.policies import TrainedPolicy


class TrainedGenerator(TrainedPolicy):
    """What ``algo.get_policy()`` gives of an image GAN: it acts at random, and exports the generator."""

    loader: ClassVar[str] = "rayground.generator_file.load"

    def export(self, folder: str | Path, info: dict[str, Any] | None = None) -> Path:
        """Writes ``generator.safetensors`` and ``generator.json``, which run without Ray.

        Args:
            folder: A new or empty folder.
            info: What to note beside the weights: environment, env steps, the run.

        Raises:
            InputError: If the folder holds something.
        """
        kwargs = self._module.model_config["net_kwargs"]
        return generator_file.save(folder, self._module.net.generator, net_kwargs=kwargs, info=info or {})
