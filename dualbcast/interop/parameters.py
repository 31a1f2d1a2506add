"""A scalar function as SciPy's solvers call it: its unknown arguments are the elements of one vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any

import numpy as np

from dualbcast.api.function import BroadcastFunction, differentiable_broadcast
from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.program.outputs import Shape


class Arguments:
    """A function with data, and what its other arguments are in a vector `x`."""

    def __init__(
        self,
        function: Callable[..., Any],
        data: Mapping[str, Any],
        parameters: Sequence[str] | None,
        shapes: Mapping[str, int | Shape],
    ) -> None:
        self.function = broadcast_function(function)
        self.label = f"{self.function.__name__}()"
        self.parameters = parameters_of(self.function, data, parameters)
        if unknown := [name for name in shapes if name not in self.parameters]:
            raise ArgumentError(f"shapes= has {', '.join(unknown)}, which {self.label} has not as a parameter")
        self.shapes: tuple[Shape, ...] = tuple([shape_of(shapes.get(name, ())) for name in self.parameters])
        sizes = list(map(math.prod, self.shapes))
        self.size = sum(sizes)
        self._begins = [sum(sizes[:at]) for at in range(len(sizes))]
        # Copies, so that the derivatives that a solver asks for are always those of the values that it has got.
        static = self.function._binder.static
        self._data = {name: value if name in static else np.array(value) for name, value in data.items()}
        # By position where possible: that is the fastest way of a call.
        given = {*self.parameters, *data}
        self._positional: list[str] = []
        for name, parameter in self.function.__signature__.parameters.items():
            if parameter.kind is Parameter.KEYWORD_ONLY or name not in given:
                break
            self._positional.append(name)
        self._named = [name for name in (*self.parameters, *data) if name not in self._positional]

    def of(self, x: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the function at `x`, those by position and those by name."""
        values = {**self._data, **dict(zip(self.parameters, self.split(x), strict=True))}
        return tuple([values[name] for name in self._positional]), {name: values[name] for name in self._named}

    def split(self, x: Any) -> list[Any]:
        """The parameters of which a vector has the elements."""
        x = real_numbers(x, "x")
        if x.shape != (self.size,):
            names = ", ".join(self.parameters)
            raise ShapeError(f"x has shape {x.shape}; it must be ({self.size},), for the parameters ({names})")
        return [
            x[begin : begin + math.prod(shape)].reshape(shape) if shape else x[begin]
            for begin, shape in zip(self._begins, self.shapes, strict=True)
        ]

    def places(self) -> list[Any]:
        """For each parameter the positions of its elements in a vector: an array of its shape."""
        return [
            np.arange(begin, begin + math.prod(shape)).reshape(shape)
            for begin, shape in zip(self._begins, self.shapes, strict=True)
        ]


def real_numbers(given: Any, name: str) -> Any:
    """An array of float64; raises ArgumentError where the imaginary parts of numbers would be lost, or for text."""
    array = np.asarray(given)
    if array.dtype.kind == "c":
        raise ArgumentError(
            f"{name} has complex numbers, of which the imaginary parts would be lost; give real ones, and derivatives "
            "by jac= in place of jac='cs'"
        )
    if array.dtype.kind in "SU":
        raise ArgumentError(f"{name} has text; give numbers")
    return array.astype(np.float64, copy=False)


def shape_of(given: int | Shape) -> Shape:
    """A shape, of which one length may stand for itself."""
    return (given,) if isinstance(given, int) else tuple(given)


def broadcast_function(function: Callable[..., Any]) -> BroadcastFunction:
    """The function itself, or decorated if it is an ordinary one."""
    return function if isinstance(function, BroadcastFunction) else differentiable_broadcast(function)


def parameters_of(
    function: BroadcastFunction, data: Mapping[str, Any], wanted: Sequence[str] | None
) -> tuple[str, ...]:
    """The names of the unknowns: those that are wanted, or all arguments that are not known otherwise."""
    label, parameters = f"{function.__name__}()", function.__signature__.parameters
    if not isinstance(data, Mapping):
        raise ArgumentError('data= is a mapping from names of arguments to arrays: {"t": t}')
    if spread := [p.name for p in parameters.values() if p.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)]:
        raise ArgumentError(f"{label} takes *{spread[0]}; give a function whose arguments all have names")
    if unknown := [name for name in (*data, *(wanted or ())) if name not in parameters]:
        raise ArgumentError(f"{label} has no argument {', '.join(unknown)}; it has {', '.join(parameters)}")
    if wanted is None:
        wanted = [p.name for p in parameters.values() if p.name not in data and p.default is Parameter.empty]
    if both := [name for name in wanted if name in data]:
        raise ArgumentError(f"{', '.join(both)} cannot be both a parameter and in data=")
    missing = [p.name for p in parameters.values() if p.default is Parameter.empty and p.name not in {*wanted, *data}]
    if missing:
        raise ArgumentError(f"{label} needs {', '.join(missing)}; give it in data=, or name it in parameters=")
    return tuple(wanted)


class LastPoint:
    """The derivatives at the point that a function was called with last. They are given away once, because solvers may
    write to the arrays that they get."""

    def __init__(self) -> None:
        self._entry: tuple[bytes, Any, Any] | None = None

    def keep(self, point: Any, derivatives: Any, data: Any = None) -> None:
        """Remember the derivatives at a point for this object as data."""
        self._entry = real_numbers(point, "x").tobytes(), data, derivatives

    def take(self, point: Any, data: Any = None) -> Any:
        """The derivatives, if they were kept for this point and this object, and nobody has taken them; else None."""
        entry, self._entry = self._entry, None
        if entry is not None and entry[1] is data and entry[0] == real_numbers(point, "x").tobytes():
            return entry[2]
        return None
