"""Nesting levels: one application of a transformation, inside others or not.

Comes in: the arguments and results of a differentiated function. Goes out: aliases of the arguments, in which the
function is differentiated, and results in the form in which the caller of the transformation gets them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dualbcast.errors import DTypeError
from dualbcast.foreign_objects import (
    called,
    has_own_arithmetic,
    instead,
    is_plain,
    refused_argument,
    refused_result,
)
from dualbcast.graph.arrays import is_array, is_float, is_read_only, leaves, map_leaves
from dualbcast.graph.backward import backward
from dualbcast.graph.primitives import alias, stop_gradient, zeros
from dualbcast.graph.tape import STATE, setting
from dualbcast.graph.variable import Variable


class Level:
    """One application of a transformation to arguments.

    Attributes
    ----------
    is_inner : bool
        Whether results are Variables: some argument is one, or this is inside another transformation.
    record : bool
        Whether the backward pass is recorded, for derivatives from outside.
    aliases : list of Variable
        The Variables with respect to which the function is differentiated. Each stands for one array of the arguments,
        in this application only.
    """

    def __init__(self, arguments: Any, is_inner: bool = False) -> None:
        has_variables = True in [isinstance(each, Variable) for each in leaves(arguments)]
        self.is_inner = is_inner or STATE.depth > 0 or has_variables
        self.record = self.is_inner and STATE.is_recording
        self.aliases: list[Variable] = []

    def also(self, arguments: Any) -> Level:
        """The level of a later part of the application, which has more arguments."""
        later = Level(arguments, self.is_inner)
        later.aliases = self.aliases
        return later

    def enter(self, tree: Any, name: str) -> Any:
        """A container like an argument, with an alias in place of each array."""
        aliases = map_leaves(_alias, tree, name)
        self.aliases.extend(leaves(aliases))
        return aliases

    def leave(self, tree: Any) -> Any:
        """A container as the caller gets it: of arrays, or of Variables that depend on no more than they should."""
        return map_leaves(lambda _, leaf: self._result(leaf) if isinstance(leaf, Variable) else leaf, tree)

    def _result(self, leaf: Variable) -> Any:
        if self.is_inner:
            return leaf if self.record else stop_gradient(leaf)
        # A pullback may still need an array of the graph, so it is read-only. A user's own array must not be a result.
        return _scalar_or_array(leaf.value if leaf.frozen is None else leaf.array.copy())

    def gradients(self, heads: list[tuple[Variable, Variable]]) -> list[Any]:
        """The cotangents of the aliases, from outputs with their cotangents."""
        owned = {id(cotangent.array) for _, cotangent in heads}
        cotangents = backward(heads, self.aliases, self.record)
        return self.own([or_zeros(each, alias) for each, alias in zip(cotangents, self.aliases, strict=True)], owned)

    def own(self, derivatives: list[Variable], owned: set[int]) -> list[Any]:
        """Derivatives as the caller gets them; `owned` has the ids of the arrays that the caller has already."""
        if self.is_inner:
            return [self._result(each) for each in derivatives]
        return [own_array(each, owned) for each in derivatives]


def evaluate(function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
    """Call the function that is differentiated, and record its operations."""
    with setting(is_recording=True, depth=STATE.depth + 1):
        return function(*args, **named)


def own_array(gradient: Variable, owned: set[int]) -> Any:
    """A gradient as an array that the user may change: no view, and no array that has been given to anybody."""
    array = gradient.array
    # The base of a view is an array. The base of an array with memory of the pool is its lease, which nobody else has.
    if gradient.frozen is not None or is_array(array.base) or id(array) in owned or is_read_only(array):
        array = array.copy()
    owned.add(id(array))
    return _scalar_or_array(array)


def _scalar_or_array(array: Any) -> Any:
    """The array, or a scalar if it has no dimensions: NumPy's functions return the same."""
    return array[()] if array.ndim == 0 else array


def _alias(name: str, leaf: Any) -> Variable:
    if has_own_arithmetic(leaf):
        raise refused_argument(leaf, name)
    if not isinstance(leaf, Variable | float) and not isinstance(getattr(leaf, "dtype", None), np.dtype):
        hint = "Pass a float: 3.0 and not 3." if isinstance(leaf, int) else instead(leaf, name)
        raise DTypeError(
            f"there is no derivative in {name}, which is {called(leaf)}. {hint or 'Pass an array or a float.'}"
        )
    if not is_float(leaf.dtype if hasattr(leaf, "dtype") else np.dtype(float)):
        raise DTypeError(
            f"there is no derivative in {name}: its dtype is {leaf.dtype}, and integers and bools carry none. Pass "
            ".astype('float64'); or leave it out of wrt"
        )
    return alias(leaf)


def is_tracked(value: Any) -> bool:
    """Whether a result is a Variable that carries a derivative."""
    return isinstance(value, Variable) and value.tracked


def or_zeros(derivative: Variable | None, like: Any) -> Variable:
    """A cotangent or tangent, or zeros like a value if there is none."""
    if derivative is not None:
        return derivative
    return zeros(like if isinstance(like, Variable) else Variable(like))


def check_results(result: Any, name: str) -> None:
    """Refuse a result that is no container of Variables, arrays, numbers and texts; `name` is the function's."""

    def check(path: str, leaf: Any) -> None:
        if not (isinstance(leaf, Variable) or is_plain(leaf) or type(leaf) in (str, bytes)):
            raise refused_result(leaf, name, path)

    map_leaves(check, result, "result")


def name_of(function: Any) -> str:
    """The name of a function in messages."""
    return f"{getattr(function, '__name__', repr(function))}()"
