"""Looks through a callable: the Python function behind it, and the arguments that are known before a call's arrays.

These are the arguments that the callable has for its function, and those that a call gives for static parameters.
"""

from __future__ import annotations

import enum
import inspect
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from inspect import Parameter
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError, a_or_an
from dualbcast.frontend.derivative_calls import DerivativeOf, called_with
from dualbcast.runtime.arguments import array_kind

BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A function with some of its arguments."""

    # The Python function; the callable itself where there is none behind it.
    function: FunctionType
    # The arguments before those of a call: the object of a method, those of a `functools.partial`.
    fixed: tuple[Any, ...] = ()
    # Arguments by name, which a call may replace.
    preset: dict[str, Any] = field(default_factory=dict)
    # The parameters that a BroadcastFunction on the way takes as static.
    static: frozenset[str] = frozenset()

    def given(self, args: tuple[Any, ...], named: dict[str, Any]) -> Subject:
        """With more arguments."""
        return replace(self, fixed=(*self.fixed, *args), preset={**self.preset, **named})

    def parameters(self) -> dict[str, Parameter]:
        """The parameters of the function's own code, whatever its `__wrapped__` and `__signature__` say."""
        function = self.function
        bare = FunctionType(function.__code__, {}, function.__name__, function.__defaults__, function.__closure__)
        bare.__kwdefaults__ = function.__kwdefaults__
        bare.__annotations__ = function.__annotations__
        parameters = dict(inspect.signature(bare).parameters)
        for name in self.preset:
            if name not in parameters or parameters[name].kind is Parameter.POSITIONAL_ONLY:
                raise ArgumentError(f"{function.__name__}() has no parameter {name} for the functools.partial to fill")
        kinds = [each.kind for each in parameters.values()]
        accepted = sum(kind in BY_POSITION for kind in kinds)
        if len(self.fixed) > accepted and Parameter.VAR_POSITIONAL not in kinds:
            raise ArgumentError(
                f"{function.__name__}() takes {accepted} arguments by position, and {len(self.fixed)} are fixed already"
            )
        return parameters

    def defaults(self) -> dict[str, Any]:
        """The values of parameters that a caller may leave out."""
        parameters = self.parameters().items()
        return {name: each.default for name, each in parameters if each.default is not each.empty} | self.preset

    def signature(self) -> inspect.Signature:
        """The parameters that are left to a caller: none that is fixed; from the first preset one on by name only."""
        left: list[Parameter] = []
        by_name = False
        for place, parameter in enumerate(self.parameters().values()):
            if parameter.kind in BY_POSITION and place < len(self.fixed):
                continue
            by_name |= parameter.name in self.preset
            if by_name and parameter.kind is Parameter.VAR_POSITIONAL:
                continue
            if by_name and parameter.kind is Parameter.POSITIONAL_OR_KEYWORD:
                parameter = parameter.replace(kind=Parameter.KEYWORD_ONLY)
            left.append(parameter.replace(default=self.preset.get(parameter.name, parameter.default)))
        return inspect.Signature(left)


def find_subject(thing: Any) -> Subject:
    """Look through methods, `functools.partial`, objects with `__call__`, Numba's dispatchers and BroadcastFunctions.

    A function with `__wrapped__` is itself the function, since it may do more than the one that it wraps.
    """
    if isinstance(thing, FunctionType):
        return Subject(thing)
    if isinstance(thing, MethodType):
        return find_subject(thing.__func__).given((thing.__self__,), {})
    if isinstance(thing, partial):
        return find_subject(thing.func).given(thing.args, thing.keywords)
    if isinstance(thing, staticmethod):
        return find_subject(thing.__func__)
    if isinstance(thing, DerivativeOf):
        assert isinstance(called_with, FunctionType)
        return Subject(called_with, (thing, ()))
    decorated = _of_broadcast_function(thing)
    if decorated is not None:
        return decorated
    python_function = getattr(thing, "py_func", None)  # Numba's dispatchers
    if isinstance(python_function, FunctionType):
        return Subject(python_function)
    if not isinstance(thing, type):
        call = getattr(type(thing), "__call__", None)  # noqa: B004 (the function is wanted, not whether there is one)
        if isinstance(call, FunctionType) or _of_broadcast_function(call) is not None:
            return find_subject(call).given((thing,), {})
    return Subject(thing)


def _of_broadcast_function(thing: Any) -> Subject | None:
    binder: Any = getattr(thing, "_binder", None)
    subject = getattr(binder, "subject", None)
    if getattr(thing, "_partials", ()):
        raise ArgumentError(
            f"{thing!r} cannot be decorated by way of another object; decorate first, then take .partial"
        )
    return replace(subject, static=binder.static) if isinstance(subject, Subject) else None


# --- static arguments -------------------------------------------------------------------------------------------------


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
    if isinstance(value, str | bytes | MethodType) or getattr(kind, "__eq__") is object.__eq__:  # noqa: B009
        return kind, value
    return kind, _Identity(value)


class _Identity:
    """Equal only for the same object: objects that their own == calls equal can make different kernels."""

    def __init__(self, value: Any) -> None:
        self._value = value  # a reference, so that no other object gets its id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)
