"""Values as text: what a user writes after ``KEY=``, and whether it fits what is expected there."""

from __future__ import annotations

import collections.abc
import functools
import operator
import re
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml

from rayground.errors import InputError, closest

PLAIN = (bool, int, float, str, type(None))


class _Loader(yaml.SafeLoader):
    """YAML 1.2's scalars. In YAML 1.1, PyYAML's own, ``on`` is true, ``1e-4`` a text and ``1:30`` the number 90."""

    yaml_implicit_resolvers: dict[str, Any] = {}


_EXPONENT = r"[eE][-+]?[0-9]+"
for _tag, _pattern in {
    "null": r"null|None|~",
    "bool": r"true|True|false|False",
    "int": r"[-+]?(0|[1-9][0-9_]*)",
    "float": rf"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)({_EXPONENT})?|[-+]?[0-9]+{_EXPONENT}|[-+]?\.?inf|\.?nan",
}.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})$"), None)
_Loader.add_constructor("tag:yaml.org,2002:float", lambda _, node: float(re.sub(r"\.(?=inf|nan)", "", node.value)))


def parse_value(text: str, key: str) -> Any:
    """Reads a number, true or false, null, a text, ``[1, 2]`` or ``{a: 1}``.

    Args:
        text: What the user wrote.
        key: What it is for, for the error.

    Raises:
        InputError: If it is empty or cannot be read.
    """
    if not text.strip():
        raise InputError(f"{key}: expected a value after '=', got nothing; an empty text is ''")
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError:
        raise InputError(f"{key}: expected a number, a text, [1, 2] or {{a: 1}}, got {text!r}") from None


def fit(value: Any, hint: Any, key: str) -> Any:
    """Returns ``value`` as ``hint`` wants it: a whole number as a float, a list as a tuple.

    Args:
        value: As ``parse_value`` gave it.
        hint: A type hint.
        key: What it is for, for the error.

    Raises:
        InputError: If it is of another type; says what was expected and what came.
    """
    if isinstance(value, str) and _choices(hint) and value not in _choices(hint):
        raise InputError(f"{key}: expected {describe(hint)}, got {value!r}{closest(value, _choices(hint))}")
    try:
        return _fit(value, hint)
    except _Misfit:
        raise InputError(f"{key}: expected {describe(hint)}, got {value!r}") from None


def describe(hint: Any) -> str:
    """Returns a type hint in a user's words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return describe(arguments[0])
    if origin in (Union, types.UnionType):
        parts = [part for part in arguments if not (part is int and float in arguments)]
        return " or ".join(dict.fromkeys(describe(part) for part in sorted(parts, key=lambda part: part is type(None))))
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if _is_list(origin or hint):
        is_plain = bool(arguments) and arguments[0] in PLAIN
        return f"[{describe(arguments[0])}, ...]" if is_plain else "[[...], ...]" if arguments else "[...]"
    if _is_dict(origin or hint):
        return "{...}"
    return _WORDS.get(hint, getattr(hint, "__name__", str(hint)))


_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    type(None): "null",
    Any: "a value",
}


def holds_data(hint: Any) -> bool:
    """Returns whether a user can write a value of the type; classes, functions and objects only code can make."""
    if get_origin(hint) in (Union, types.UnionType, Annotated):
        return any(holds_data(part) for part in get_args(hint) if part is not type(None))
    kind = get_origin(hint) or hint
    return kind in (*PLAIN, Any, Literal) or _is_list(kind) or _is_dict(kind)


def without_none(hint: Any) -> Any:
    """Returns a type hint without the None that it allows."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    return functools.reduce(operator.or_, (part for part in get_args(hint) if part is not type(None)))


class _Misfit(Exception):
    """The value is of another type."""


def _fit(value: Any, hint: Any) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _fit(value, arguments[0])
    if origin in (Union, types.UnionType):
        return _fit_one_of(value, arguments)
    if origin is Literal:
        return _if(value in arguments, value)
    if _is_list(origin or hint):
        return _fit_list(value, origin or hint, arguments)
    if _is_dict(origin or hint):
        return _if(isinstance(value, dict), value)
    if hint is Any:
        return value
    if hint is float and type(value) is int:
        return float(value)
    return _if(hint in PLAIN and type(value) is hint, value)


def _fit_one_of(value: Any, hints: tuple[Any, ...]) -> Any:
    """The hint of just the value's type first, so that 1 stays whole where both are allowed."""
    for hint in sorted(hints, key=lambda hint: hint is not type(value)):
        try:
            return _fit(value, hint)
        except _Misfit:
            continue
    raise _Misfit


def _fit_list(value: Any, kind: Any, arguments: tuple[Any, ...]) -> Any:
    values = _if(isinstance(value, list), value)
    if kind is tuple and arguments and arguments[-1] is not Ellipsis:
        _if(len(values) == len(arguments), None)
        return tuple(_fit(item, hint) for item, hint in zip(values, arguments, strict=True))
    fitted = [_fit(item, arguments[0]) if arguments else item for item in values]
    return tuple(fitted) if kind is tuple else fitted


def _if(right: bool, value: Any) -> Any:
    if not right:
        raise _Misfit
    return value


def _is_list(kind: Any) -> bool:
    return kind in (list, tuple, collections.abc.Sequence)


def _is_dict(kind: Any) -> bool:
    return kind in (dict, collections.abc.Mapping)


def _choices(hint: Any) -> tuple[str, ...]:
    if get_origin(hint) is Literal:
        return get_args(hint)
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else ()
    return next((get_args(part) for part in parts if get_origin(part) is Literal), ())
