"""The graph of the model in TensorBoard."""

from __future__ import annotations

import contextlib
import copy
import io
import warnings
from typing import Any

import torch
from ray.rllib.callbacks.callbacks import RLlibCallback

from callbacks.observations import as_tensor


class ModelGraph(RLlibCallback):
    """Shows the graph of the module's ``net``, traced on one observation, once in a run.

    >>> config.callbacks([ModelGraph])
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_shown = False

    def check(self, module: Any) -> None:
        """Traces the net.

        Raises:
            ValueError: If there is none, or torch cannot trace it.
        """
        graph_of(module)

    def on_train_result(self, *, algorithm: Any, result: dict[str, Any], **kwargs: Any) -> None:
        """Hands the graph over with the first result."""
        if not self.is_shown:
            result.setdefault("tensorboard", {})["graph"] = graph_of(algorithm.get_policy().model)
            self.is_shown = True

    def get_state(self) -> dict[str, Any]:
        """For the checkpoint."""
        return {"is_shown": self.is_shown}

    def set_state(self, state: dict[str, Any]) -> None:
        """From the checkpoint."""
        self.is_shown = state["is_shown"]


def graph_of(module: Any) -> bytes:
    """Returns TensorBoard's ``GraphDef`` of a module's net; the module is left as it was.

    Raises:
        ValueError: If it has no net, or torch cannot trace that.
    """
    from torch.utils.tensorboard._pytorch_graph import graph  # what SummaryWriter.add_graph() draws with

    if not isinstance(getattr(module, "net", None), torch.nn.Module):
        raise ValueError(f"expected a module with a torch module .net to draw, got {type(module).__name__} without one")
    net, space = copy.deepcopy(module.net).cpu(), copy.deepcopy(module.observation_space)
    space.seed(0)
    observation = as_tensor(space.sample()[None], torch.device("cpu"))
    said = contextlib.redirect_stdout(io.StringIO())
    with said, warnings.catch_warnings(), torch.random.fork_rng(devices=[]), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            definition, _ = graph(net, (observation,))
        except Exception as error:
            reason = next(iter(str(error).splitlines()), "")
            raise ValueError(
                f"expected a net that torch.jit.trace can follow, but {type(net).__name__} raised "
                f"{type(error).__name__}: {reason}"
            ) from error
    return definition.SerializeToString()
