"""Arguments that are known when a kernel is compiled: a default or a static argument comes in, the number that it is or
its part of a key goes out.
"""

from __future__ import annotations

import enum
from dataclasses import fields, is_dataclass
from types import MethodType, NoneType
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError, a_or_an
from dualbcast.runtime.arguments import array_kind


def is_operand(value: Any) -> bool:
    """Whether a default is a number or an array."""
    if isinstance(value, enum.Enum):
        return False
    numbers = bool | int | float | np.bool_ | np.integer | np.floating
    return isinstance(value, numbers) or array_kind(value) is not None


def plain_number(value: Any) -> Any:
    """A NumPy scalar as the Python number it is, which a kernel is compiled with; anything else as it is."""
    if isinstance(value, np.longdouble):
        return float(value)
    return value.item() if isinstance(value, np.bool_ | np.integer | np.floating) else value


def static_key(value: Any, name: str) -> Any:
    """The key of a static argument. Equal keys make the same kernel: those of 1, 1.0 and True differ."""
    if array_kind(value) is not None:
        raise ArgumentError(f"{name} is static, and an array cannot be: leave it out of static=, or pass a tuple")
    try:
        hash(value)
    except TypeError:
        instead = "tuple(…)" if isinstance(value, list) else "a tuple, a string or a frozen dataclass"
        raise ArgumentError(
            f"{name} is static, and {a_or_an(type(value).__name__)} cannot be: it can change unseen. Pass {instead}."
        ) from None
    return _typed(value)


def _typed(value: Any) -> Any:
    kind = type(value)
    if isinstance(value, bool | int | float | complex | np.generic) and not isinstance(value, enum.Enum):
        return kind, repr(value)  # which tells 0.0 from -0.0, and says that nan is nan
    if isinstance(value, tuple):
        return kind, *map(_typed, value)
    if kind is frozenset:
        return kind, frozenset(map(_typed, value))
    if is_dataclass(kind) and kind.__dataclass_params__.frozen and kind.__dataclass_params__.eq:  # type: ignore[attr-defined]
        # All fields, also those that its == leaves out.
        return kind, *(_typed(getattr(value, field.name)) for field in fields(kind))
    if isinstance(value, str | bytes | NoneType | MethodType) or getattr(kind, "__eq__") is object.__eq__:  # noqa: B009
        return kind, value
    # Objects that their own == calls equal can make different kernels. Methods are equal only if their objects are one.
    return kind, MethodType(_typed, value)
