"""Looks through a callable: the Python function behind it, and the arguments that the callable has for that."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import Parameter
from types import FunctionType, MethodType
from typing import Any

from dualbcast.errors import ArgumentError
from dualbcast.frontend.derivative_calls import DerivativeOf, called_with

BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A function with some of its arguments.

    Attributes
    ----------
    function : function
        The Python function; the callable itself where there is none behind it.
    fixed : tuple
        The arguments before those of a call: the object of a method, those of a `functools.partial`.
    preset : dict
        Arguments by name, which a call may replace.
    static : frozenset of str
        The parameters that a BroadcastFunction on the way takes as static.
    """

    function: FunctionType
    fixed: tuple[Any, ...] = ()
    preset: dict[str, Any] = field(default_factory=dict)
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
