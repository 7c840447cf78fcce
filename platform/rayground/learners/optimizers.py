"""Torch optimizers from a config value, and clipping that tells when a gradient is not finite."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn.utils import clip_grad_value_, clip_grads_with_norm_, get_total_norm

from rayground.errors import InputError, closest

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}


def parse_optimizer(value: Any) -> tuple[Callable[..., torch.optim.Optimizer], dict[str, Any]]:
    """Reads ``"rmsprop"`` or ``{"type": "rmsprop", "alpha": 0.95}`` (torch's own argument names).

    Raises:
        InputError: If the type or one of its arguments is unknown.
    """
    options = {"type": value} if isinstance(value, str) else dict(value)
    name = options.pop("type", "adam")
    if name not in _OPTIMIZERS:
        raise InputError(
            f"optimizer: expected one of {', '.join(_OPTIMIZERS)}, got {name!r}{closest(str(name), _OPTIMIZERS)}"
        )
    known = inspect.signature(_OPTIMIZERS[name]).parameters.keys() - {"params", "lr"}
    for option in options:
        if option not in known:
            raise InputError(
                f"optimizer: {name} has no argument {option!r}{closest(option, known)} (the rate is the setting lr)"
            )
    return _OPTIMIZERS[name], options


def describe_optimizer(value: Any) -> str:
    """Returns a text that is the same for the same optimizer, such as ``RMSprop(alpha=0.95)``."""
    optimizer_class, options = parse_optimizer(value)
    arguments = ", ".join(f"{name}={option!r}" for name, option in sorted(options.items()))
    return f"{optimizer_class.__name__}({arguments})"


def make_optimizer(parameters: Iterable[torch.nn.Parameter], value: Any, lr: float) -> torch.optim.Optimizer:
    """Builds the optimizer that ``value`` describes; Adam and SGD in torch's fused form."""
    optimizer_class, options = parse_optimizer(value)
    if "fused" in inspect.signature(optimizer_class).parameters:
        options.setdefault("fused", True)
    return optimizer_class(parameters, lr=lr, **options)


def clip_gradients(parameters: list[torch.nn.Parameter], limit: float | None, by: str) -> torch.Tensor:
    """Clips gradients in place as RLlib's ``grad_clip`` and ``grad_clip_by`` say.

    Args:
        parameters: Those with a gradient.
        limit: The bound, None for no clipping.
        by: ``"global_norm"``, ``"norm"`` (each tensor on its own) or ``"value"`` (each element).

    Returns:
        The global norm before clipping (scalar): not finite if any gradient is not.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    total_norm = get_total_norm(gradients)
    if limit is None:
        return total_norm
    if by == "global_norm":
        clip_grads_with_norm_(parameters, limit, total_norm)
    elif by == "value":
        clip_grad_value_(parameters, limit)
    else:
        for parameter in parameters:
            torch.nn.utils.clip_grad_norm_(parameter, limit)
    return total_norm
