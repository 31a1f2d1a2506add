"""Derivatives inside the language: a scalar function, or plain Python, calls them to differentiate another function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from dualbcast.api.function import BroadcastFunction
from dualbcast.api.static_arguments import is_operand
from dualbcast.errors import ArgumentError, CompileError, a_or_an, entry_point
from dualbcast.foreign_objects import is_variable
from dualbcast.frontend.derivative_calls import (
    DerivativeOf,
    called_with,
    differentiate_by,
    find_argument,
    parameter_names,
    take_derivative,
)
from dualbcast.frontend.values import Operator, Static
from dualbcast.ir.nodes import Function, Names
from dualbcast.rules.guards import Capture
from dualbcast.runtime.arguments import beside, no_derivative


class Derivative(DerivativeOf):
    """A derivative of a scalar function, to be called with that function's arguments.

    `derivative`, `gradient` and the like return it. A kernel that calls it has it compiled in. In plain Python it takes
    numbers and gives Python numbers, or takes arrays and broadcasts over them; of Variables the graph records it.
    """

    def __init__(self, function: Callable[..., Any], operator: Operator) -> None:
        super().__init__(function, operator)
        name = getattr(function, "__name__", type(function).__name__)
        self.__name__ = self.__qualname__ = f"{operator.name}({name})"
        self._compiled: dict[tuple[str, ...], BroadcastFunction] = {}

    def __repr__(self) -> str:
        return f"<{self.__name__}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Derivative, (self.function, self.operator)

    @entry_point
    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """The derivative at these arguments.

        Raises
        ------
        CompileError
            The function cannot be compiled.
        ArgumentError, ShapeError, DTypeError
            The arguments do not fit, or there is no derivative in them.
        """
        known = {name: value for name, value in named.items() if not is_operand(value)}
        if known and self.operator.wrt is not None:
            rest = {name: value for name, value in named.items() if name not in known}
            return Derivative(functools.partial(self.function, **known), self.operator)(*args, **rest)
        names, given = tuple(named), tuple(self._operands(args, named))
        compiled = self._compiled.get(names)
        if compiled is None:
            compiled = self._compiled[names] = BroadcastFunction(functools.partial(called_with, self, names))
        try:
            specialisation, values = compiled._dispatch.find(given, {}, None)
            if any(map(is_variable, values)):
                return compiled(*given)  # the graph records the call, and differentiates it
            with beside(values):
                call = specialisation.prepare("value", values)
        except CompileError as error:
            # The error points at a line of this package only where the user's call is wrong, not their function.
            own = called_with.__code__.co_filename
            if error.filename == own:
                instead = f"\nWrite instead: {error.hint}" if error.hint else ""
                raise ArgumentError(f"in {self.__name__}: {error.message}{instead}") from None
            calls = tuple((name, where) for name, where in error.calls if where.filename != own)
            raise CompileError(error.message, error.location, error.hint, calls) from None
        specialisation.speak(values)
        if call.plan.geometry.shape != () or not all(isinstance(value, bool | int | float) for value in given):
            with beside(values):
                return call.results.value(call.run())
        call.interpret("plain", keep=False)
        return call.spec.product.structure.pack([value.item() for value in call.plan.written()])

    def _operands(self, args: tuple[Any, ...], named: dict[str, Any]) -> Iterable[Any]:
        """The arguments in order; integers among those that are differentiated in become floats."""
        given: dict[int | str, Any] = dict(enumerate(args))
        given.update(named)
        labels = {at: f"{at if isinstance(at, str) else f'argument {at + 1}'} of {self.__name__}" for at in given}
        for at, value in given.items():
            if not is_operand(value):
                kind = a_or_an(type(value).__name__)
                raise ArgumentError(
                    f"{labels[at]} is {kind}, and must be a number or an array. Let a lambda take it "
                    "from outside, or pass it by name, with wrt= for the others"
                )
        wanted: list[int | str | None] = [*given]
        if self.operator.wrt is not None:
            names = parameter_names(Static(self.function))
            wanted = [find_argument(item, names, len(args), named) for item in self.operator.items]
        for place in [place for place in wanted if place is not None]:
            value = given[place]
            token: Any = bool if isinstance(value, bool) else getattr(value, "dtype", float)
            if np.dtype(token).kind in "biu":
                raise ArgumentError(f"{no_derivative(labels[place], token)}, or leave it out of wrt")
            if isinstance(value, int):
                given[place] = float(value)
        return given.values()


@entry_point
def derivative(function: Callable[..., Any], /, *, wrt: int | str = 0) -> Derivative:
    """The derivative of a scalar function, as a function of the same arguments.

    It may be called in plain Python, and in a scalar function, whose kernel then contains it and differentiates it.

    Parameters
    ----------
    function : callable
        Anything that a kernel could call: a function, also one defined inside the kernel, a lambda, a function of
        `math`, a `functools.partial`, a decorated function, another derivative. Names that it captures are
        constants for this derivative.
    wrt : int or str
        The argument to differentiate in, by position or name; the first if not given.

    Returns
    -------
    Derivative
        Its result has the structure of the function's result, with derivatives in place of numbers. The derivatives of
        integers and bools are 0. The argument in `wrt` must be a float; an integer that is known when the kernel is
        compiled counts as a float here.

    Examples
    --------
    >>> import math
    >>> import numpy as np
    >>> import dualbcast
    >>> from dualbcast import derivative, differentiable_broadcast
    >>> @differentiable_broadcast
    ... def cube_root(a):
    ...     def f(x):
    ...         return x**3 - a
    ...     x = 1.0
    ...     for _ in range(20):
    ...         x = x - f(x) / derivative(f)(x)
    ...     return x
    >>> y, J = cube_root.value_and_jacobian(np.array([8.0, 27.0]))
    >>> y.round(12), (3 * y**2 * J["a"]).round(12)
    (array([2., 3.]), array([1., 1.]))

    In plain Python, and of a derivative:

    >>> derivative(math.sin)(0.0)
    1.0
    >>> derivative(derivative(lambda x: x**3))(2.0)
    12.0
    """
    return _derivative("derivative", function, wrt)


@entry_point
def value_and_derivative(function: Callable[..., Any], /, *, wrt: int | str = 0) -> Derivative:
    """The pair of a scalar function's value and its derivative; see `derivative`.

    Examples
    --------
    >>> from dualbcast import value_and_derivative
    >>> value_and_derivative(lambda x: x * x)(3.0)
    (9.0, 6.0)
    """
    return _derivative("value_and_derivative", function, wrt)


@entry_point
def gradient(function: Callable[..., Any], /, *, wrt: int | str | Sequence[int | str] | None = None) -> Derivative:
    """The partial derivatives of a scalar function, as a function of the same arguments.

    Parameters
    ----------
    function : callable
        As in `derivative`.
    wrt : int, str, or sequence of them, optional
        The arguments to differentiate in, by position or name; by default all of the call, which must all be floats.

    Returns
    -------
    Derivative
        Its result is the tuple of partial derivatives; if `wrt` is one position or name, that derivative alone.

    Examples
    --------
    >>> from dualbcast import gradient
    >>> gradient(lambda x, y: x * x * y)(3.0, 2.0)
    (12.0, 9.0)
    >>> gradient(lambda x, y: x * x * y, wrt="y")(3.0, 2.0)
    9.0
    """
    return _derivative("gradient", function, wrt)


@entry_point
def value_and_gradient(
    function: Callable[..., Any], /, *, wrt: int | str | Sequence[int | str] | None = None
) -> Derivative:
    """The pair of a scalar function's value and its gradient; see `gradient`.

    Examples
    --------
    >>> from dualbcast import value_and_gradient
    >>> value_and_gradient(lambda x, y: x * x * y)(3.0, 2.0)
    (18.0, (12.0, 9.0))
    """
    return _derivative("value_and_gradient", function, wrt)


def _derivative(name: str, function: Any, wrt: Any) -> Derivative:
    if not callable(function):
        kind = type(function).__name__
        raise ArgumentError(f"{name}() takes a function, not {a_or_an(kind)}; its arguments come later: {name}(g)(x)")
    is_several = isinstance(wrt, Sequence) and not isinstance(wrt, str)
    items = tuple([int(item) if isinstance(item, np.integer) else item for item in (wrt if is_several else [wrt])])
    return Derivative(function, Operator(name, items if is_several else items[0]))


def _with_partials(function: Function, names: Names, has_value: bool) -> tuple[Function, Sequence[Capture]]:
    # Only programs that take derivatives inside the language need it when they are lowered.
    from dualbcast.program.derived_functions import with_partials

    return with_partials(function, names, has_value=has_value)


differentiate_by(_with_partials)
for _function, _default in ((derivative, 0), (value_and_derivative, 0), (gradient, None), (value_and_gradient, None)):
    take_derivative(_function, _default)
