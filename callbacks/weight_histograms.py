"""Histograms of the weights in TensorBoard."""

from __future__ import annotations

from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback


class WeightHistograms(RLlibCallback):
    """Shows the values of every trained parameter in each result, as ``weights/<parameter>``.

    >>> config.callbacks([WeightHistograms])
    """

    def on_train_result(self, *, algorithm: Any, result: dict[str, Any], **kwargs: Any) -> None:
        """Takes the weights as the learner has them now."""
        shown = result.setdefault("tensorboard", {})
        for name, parameter in algorithm.get_policy().model.named_parameters():
            if parameter.requires_grad:
                shown[f"weights/{name}"] = parameter.detach().cpu().numpy().flatten()
