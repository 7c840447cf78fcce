"""Torch's optimizers, from a config value, run over one vector of parameters; and clipping."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.rmsprop import rmsprop
from torch.optim.sgd import sgd

from rayground.errors import InputError, closest
from rayground.learners.flat import FlatParameters

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}

MomentVectors = dict[str, Tensor]
ParamGroup = dict[str, Any]

_HOW_TORCH_COMPUTES = {"foreach", "fused", "capturable", "differentiable"}
"""Arguments without a say in what is computed; how, is chosen here."""


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
    known = inspect.signature(_OPTIMIZERS[name]).parameters.keys() - {"params", "lr"} - _HOW_TORCH_COMPUTES
    for option in options:
        if option not in known:
            raise InputError(
                f"optimizer: {name} has no argument {option!r}{closest(option, known)} (the rate is the setting lr)"
            )
    return _OPTIMIZERS[name], options


def describe_optimizer(optimizer: torch.optim.Optimizer) -> str:
    """Returns a text that is the same for the same optimizer at any rate, such as ``SGD(momentum=0.9, ...)``."""
    options = {key: value for key, value in optimizer.defaults.items() if key not in {"lr"} | _HOW_TORCH_COMPUTES}
    arguments = ", ".join(f"{name}={option!r}" for name, option in sorted(options.items()))
    return f"{type(optimizer).__name__}({arguments})"


def make_optimizer(parameters: Iterable[torch.nn.Parameter], value: Any, lr: float) -> torch.optim.Optimizer:
    """Builds the optimizer that ``value`` describes."""
    optimizer_class, options = parse_optimizer(value)
    return optimizer_class(parameters, lr=lr, **options)


def scheduled_groups(optimizer: torch.optim.Optimizer) -> list[ParamGroup]:
    """The parameter groups that begin with the optimizer's own rate, which follow the schedule; others keep theirs."""
    return [group for group in optimizer.param_groups if group["lr"] == optimizer.defaults["lr"]]


class Stepper(Protocol):
    """Applies gradients ``[P]`` with an optimizer of torch's."""

    def step(self, gradient_P: Tensor, rate: float | Tensor) -> None:
        """Applies one gradient with a learning rate."""

    def load(self, moments: dict[torch.nn.Parameter, dict[str, Tensor]]) -> None:
        """Replaces all moments; parameters that are not named start anew."""


def stepper_of(optimizer: torch.optim.Optimizer, flat: FlatParameters) -> Stepper:
    """Returns what steps ``optimizer``: over the vector if it is a plain one of ours, by its own ``step`` otherwise."""
    groups = optimizer.param_groups
    is_plain = type(optimizer) in _FUNCTIONS and len(groups) == 1 and not groups[0].get("differentiable")
    return FlatStepper(optimizer, flat) if is_plain else OwnStepper(optimizer, flat)


class FlatStepper:
    """Runs Adam, RMSprop or SGD through torch's functional form on one vector instead of on each parameter.

    The optimizer's ``state`` shows the moments of each parameter, as if it had stepped itself. SGD's momentum starts
    at zero.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, flat: FlatParameters) -> None:
        self._vector, self._group = flat.vector, optimizer.param_groups[0]
        self._function = _FUNCTIONS[type(optimizer)]
        self._step = torch.zeros((), device=flat.vector.device)
        self._moments = {name: torch.zeros_like(flat.vector) for name in _moment_names(self._group)}
        self._state = optimizer.state
        views = {name: flat.views(vector) for name, vector in self._moments.items()}
        for i, parameter in enumerate(flat.parameters):
            self._state[parameter] = {"step": self._step} | {name: views[name][i] for name in views}

    @torch.no_grad()
    def step(self, gradient_P: Tensor, rate: float | Tensor) -> None:
        """Applies one gradient with a learning rate."""
        self._function(self._vector, gradient_P, self._moments, self._step, rate, self._group)

    @torch.no_grad()
    def load(self, moments: dict[torch.nn.Parameter, dict[str, Tensor]]) -> None:
        """Replaces all moments; parameters that are not named start anew."""
        self._step.zero_()
        for vector in self._moments.values():
            vector.zero_()
        for parameter, values in moments.items():
            for name, value in values.items():
                self._state[parameter][name].copy_(value)


class OwnStepper:
    """Steps any optimizer of torch's, such as one with a rate for each group, by itself, at the rates in its groups."""

    def __init__(self, optimizer: torch.optim.Optimizer, flat: FlatParameters) -> None:
        self._optimizer, self._flat = optimizer, flat

    def step(self, gradient_P: Tensor, rate: float | Tensor) -> None:
        """Applies one gradient; ``rate`` is in the groups that follow it already."""
        for parameter, gradient in zip(self._flat.parameters, self._flat.views(gradient_P), strict=True):
            parameter.grad = gradient
        self._optimizer.step()

    def load(self, moments: dict[torch.nn.Parameter, dict[str, Tensor]]) -> None:
        """Replaces all moments; parameters that are not named start anew."""
        self._optimizer.state.clear()
        self._optimizer.state.update({parameter: dict(values) for parameter, values in moments.items()})


def _moment_names(group: ParamGroup) -> list[str]:
    """Names of the vectors that an optimizer with these options keeps, as torch calls them."""
    if "betas" in group:
        return ["exp_avg", "exp_avg_sq"] + ["max_exp_avg_sq"] * group["amsgrad"]
    momentum = ["momentum_buffer"] * (group["momentum"] > 0)
    return (["square_avg"] + ["grad_avg"] * group["centered"] if "alpha" in group else []) + momentum


def _listed(moments: MomentVectors, name: str) -> list[Tensor]:
    return [moments[name]] if name in moments else []


def _adam(
    vector: Tensor, gradient: Tensor, moments: MomentVectors, step: Tensor, rate: float | Tensor, group: ParamGroup
) -> None:
    average, square, largest = (_listed(moments, name) for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"))
    beta1, beta2 = group["betas"]
    settings: dict[str, Any] = {"lr": rate, "beta1": beta1, "beta2": beta2} | _same(
        group, "weight_decay", "eps", "maximize", "amsgrad"
    )
    decoupled = group["decoupled_weight_decay"]
    if torch.compiler.is_compiling():  # a graph fuses it with all the rest
        adam(
            [vector],
            [gradient],
            average,
            square,
            largest,
            [step],
            foreach=False,
            capturable=True,
            decoupled_weight_decay=decoupled,
            **settings,
        )
    else:  # the kernel of torch's fused Adam, without what torch does around it, which takes longer
        kernel: Any = torch._fused_adamw_ if decoupled else torch._fused_adam_
        step += 1
        kernel([vector], [gradient], average, square, largest, [step], **settings)


def _rmsprop(
    vector: Tensor, gradient: Tensor, moments: MomentVectors, step: Tensor, rate: float | Tensor, group: ParamGroup
) -> None:
    rmsprop(
        [vector],
        [gradient],
        _listed(moments, "square_avg"),
        _listed(moments, "grad_avg"),
        _listed(moments, "momentum_buffer"),
        [step],
        foreach=False,
        capturable=torch.compiler.is_compiling(),
        lr=rate,  # type: ignore[arg-type]  # a graph takes a tensor
        **_same(group, "alpha", "eps", "weight_decay", "momentum", "centered", "maximize"),
    )


def _sgd(
    vector: Tensor, gradient: Tensor, moments: MomentVectors, step: Tensor, rate: float | Tensor, group: ParamGroup
) -> None:
    step += 1
    sgd(
        [vector],
        [gradient],
        [moments.get("momentum_buffer")],
        foreach=False,
        lr=rate,  # type: ignore[arg-type]  # a graph takes a tensor
        **_same(group, "weight_decay", "momentum", "dampening", "nesterov", "maximize"),
    )


def _same(group: ParamGroup, *names: str) -> dict[str, Any]:
    return {name: group[name] for name in names}


_FUNCTIONS: dict[type, Callable[[Tensor, Tensor, MomentVectors, Tensor, float | Tensor, ParamGroup], None]] = {
    torch.optim.Adam: _adam,
    torch.optim.RMSprop: _rmsprop,
    torch.optim.SGD: _sgd,
}


def clipped(gradient_P: Tensor, norm: Tensor, limit: float | Tensor | None, by: str, flat: FlatParameters) -> Tensor:
    """Clips a gradient as RLlib's ``grad_clip`` and ``grad_clip_by`` say; all zeros if it is not finite.

    No number is read back from the device.

    Args:
        gradient_P: The gradient ``[P]``; it may be overwritten.
        norm: Its norm (scalar).
        limit: The bound, None for no clipping.
        by: ``"global_norm"``, ``"norm"`` (each tensor on its own) or ``"value"`` (each element).
        flat: What it is the gradient of.
    """
    if limit is not None and by == "global_norm":
        # A norm of inf gives inf * 0 and 0 * 0, one of NaN gives NaN everywhere: in both nothing remains.
        scaled = gradient_P.mul_((limit / norm).clamp(max=1.0))
        return torch.nan_to_num_(scaled, nan=0.0, posinf=0.0, neginf=0.0)
    if limit is not None and by == "value":
        gradient_P = gradient_P.clamp(-limit, limit)  # type: ignore[arg-type]  # both of one kind
    elif limit is not None:
        norms = [limit / (view.norm() + 1e-6) for view in flat.views(gradient_P)]
        parts = zip(flat.views(gradient_P), norms, strict=True)
        gradient_P = torch.cat([(view * factor.clamp(max=1.0)).reshape(-1) for view, factor in parts])
    return torch.nan_to_num_(gradient_P.mul_(norm * 0 + 1), nan=0.0, posinf=0.0, neginf=0.0)
