"""The one way of all element-wise arithmetic on Variables: operators, ufuncs, casts, choices, and BroadcastFunctions.

What is computed here, and when, is no business of the rest of the graph, which calls `apply` and reads `.value`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dualbcast.api import BroadcastFunction, differentiable_broadcast
from dualbcast.errors import ArgumentError, DTypeError
from dualbcast.graph.containers import leaves, rebuild
from dualbcast.graph.node import STATE, Node, Primitive, Pulled, constant, is_float, namespace, run
from dualbcast.graph.variable import Variable

__all__ = ["apply", "astype", "clip", "sum_to", "where"]


def apply(operation: str | np.ufunc | BroadcastFunction, *inputs: Any, **options: Any) -> Any:
    """Apply an element-wise operation to Variables, arrays and numbers, which broadcast together.

    Parameters
    ----------
    operation : str, ufunc or BroadcastFunction
        A name is that of a ufunc of NumPy's, "where" or "astype".
    *inputs
        One Variable at least.
    **options
        The named arguments of a BroadcastFunction; `dtype` of "astype".

    Returns
    -------
    Variable, or what the BroadcastFunction returns with Variables for its numbers
    """
    if isinstance(operation, BroadcastFunction):
        return _call(operation, inputs, options)
    if isinstance(operation, str):
        known = _BY_HAND.get(operation)
        if known is not None:
            return run(known, inputs, **options)
        operation = getattr(np, operation)
    return run(_of_ufunc(operation), inputs)


def where(condition: Any, x: Any, y: Any) -> Variable:
    """`x` where the condition holds, else `y`: `numpy.where`.

    Both are computed everywhere, and a derivative that is not finite on the side not taken gives NaN; the `if` of a
    BroadcastFunction does neither.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(lambda v: np.sum(graph.where(v > 2, v * v, 1.0)))(np.array([1.0, 3.0]))
    array([0., 6.])
    """
    if isinstance(condition, Variable) and condition.tracked:
        condition = condition != 0
    return _first(apply("where", condition, x, y), condition, x, y)


def clip(x: Any, min: Any = None, max: Any = None) -> Variable:
    """`x` moved into [min, max]; either may be None."""
    found = constant(x)
    if min is not None:
        found = apply("maximum", found, min)
    return found if max is None else apply("minimum", found, max)


def astype(x: Any, dtype: Any) -> Variable:
    """`x` in another dtype; to an integer dtype it loses its derivative, as `int()` does."""
    made: Variable = apply("astype", constant(x), dtype=np.dtype(dtype))
    return made


def _first(found: Any, *inputs: Any) -> Variable:  # noqa: ARG001
    made: Variable = found
    return made


def sum_to(x: Variable, shape: tuple[int, ...]) -> Variable:
    """Sum over the axes along which an array of `shape` was broadcast."""
    if x.shape == shape:
        return x
    extra = x.ndim - len(shape)
    axes = (*range(extra), *(extra + axis for axis, size in enumerate(shape) if size == 1 != x.shape[extra + axis]))
    total = reductions.sum(x, axis=axes) if axes else x
    return shapes.reshape(total, shape)


# --- with rules of their own --------------------------------------------------------------------------------------------


def _spread(node: Node, found: Sequence[Variable | None], wanted: tuple[bool, ...]) -> Pulled:
    """Cotangents of the broadcast shape, summed to the shapes of the inputs that they are for."""
    return [
        sum_to(each, value.shape) if is_wanted and each is not None else None
        for each, value, is_wanted in zip(found, node.inputs, wanted, strict=True)
    ]


def _pull_add(node: Node, cotangents: tuple[Variable | None, ...], wanted: tuple[bool, ...]) -> Pulled:
    return _spread(node, (cotangents[0], cotangents[0]), wanted)


def _pull_subtract(node: Node, cotangents: tuple[Variable | None, ...], wanted: tuple[bool, ...]) -> Pulled:
    c = cotangents[0]
    return _spread(node, (c, apply("negative", c) if wanted[1] else None), wanted)


def _pull_multiply(node: Node, cotangents: tuple[Variable | None, ...], wanted: tuple[bool, ...]) -> Pulled:
    c, (x, y) = cotangents[0], node.inputs
    found = (apply("multiply", c, y) if wanted[0] else None, apply("multiply", c, x) if wanted[1] else None)
    return _spread(node, found, wanted)


def _pull_divide(node: Node, cotangents: tuple[Variable | None, ...], wanted: tuple[bool, ...]) -> Pulled:
    c, (x, y) = cotangents[0], node.inputs
    quotient = apply("divide", c, y)
    slope = None
    if wanted[1]:
        slope = apply("negative", apply("multiply", quotient, apply("divide", x, y)))
    return _spread(node, (quotient, slope), wanted)


def _pull_negative(node: Node, cotangents: tuple[Variable | None, ...], wanted: tuple[bool, ...]) -> Pulled:
    return _spread(node, (apply("negative", cotangents[0]),), wanted)


def _pull_power(node: Node, cotangents: tuple[Variable | None, ...], wanted: tuple[bool, ...]) -> Pulled:
    base, exponent = node.inputs
    if isinstance(exponent, Variable) or np.ndim(exponent):
        return _pull_function(_scalar(np.power), node, cotangents, wanted)
    if exponent == 0:
        return (None, None)
    # A whole exponent stays one, so that a negative base has all its derivatives.
    slope = base if exponent == 2 else apply("power", base, exponent - 1) if exponent != 1 else None
    found = cotangents[0] if slope is None else apply("multiply", cotangents[0], apply("multiply", slope, exponent))
    return _spread(node, (found, None), wanted)


def _pull_where(node: Node, cotangents: tuple[Variable | None, ...], wanted: tuple[bool, ...]) -> Pulled:
    c, condition = cotangents[0], node.inputs[0]
    left = apply("where", condition, c, 0.0) if wanted[1] else None
    right = apply("where", condition, 0.0, c) if wanted[2] else None
    return _spread(node, (None, left, right), wanted)


def _pull_astype(node: Node, cotangents: tuple[Variable | None, ...], wanted: tuple[bool, ...]) -> Pulled:  # noqa: ARG001
    return (apply("astype", cotangents[0], dtype=node.inputs[0].dtype),)


def _where(condition: Any, x: Any, y: Any) -> Any:
    # By the library of the first array: all three may be arrays, or only one of them.
    return namespace(condition, x, y).where(condition, x, y)


def _astype(array: Any, dtype: Any) -> Any:
    return array.astype(dtype)


_BY_HAND = {
    "add": Primitive("add", np.add, _pull_add),
    "subtract": Primitive("subtract", np.subtract, _pull_subtract),
    "multiply": Primitive("multiply", np.multiply, _pull_multiply),
    "divide": Primitive("divide", np.divide, _pull_divide),
    "negative": Primitive("negative", np.negative, _pull_negative),
    "power": Primitive("power", np.power, _pull_power),
    "where": Primitive("where", _where, _pull_where),
    "astype": Primitive("astype", _astype, _pull_astype),
}

# Their derivative is zero wherever it exists.
_STEPS = {"ceil", "fix", "floor", "floor_divide", "rint", "sign", "trunc"}


# --- with the derivative of a BroadcastFunction -------------------------------------------------------------------------


@functools.cache
def _of_ufunc(ufunc: np.ufunc) -> Primitive:
    """The primitive of a ufunc, whose partials are those that its rule gives to kernels."""
    name = ufunc.__name__
    by_hand = _BY_HAND.get(name)
    if by_hand is not None and getattr(np, name, None) is ufunc:
        return by_hand
    if ufunc.nout != 1 or ufunc.signature is not None:
        raise ArgumentError(f"{name} does not work on Variables: it is not a function of single numbers to one number")

    def pull(node: Node, cotangents: tuple[Variable | None, ...], wanted: tuple[bool, ...]) -> Pulled:
        return _pull_function(_scalar(ufunc), node, cotangents, wanted)

    if name in _STEPS:
        return Primitive(name, ufunc, _pull_nothing)
    if getattr(np, name, None) is not ufunc:
        # One without a rule is an error where it is used, and not where the derivative is taken.
        _scalar(ufunc).inspect_ir(*["float64"] * ufunc.nin)
    return Primitive(name, ufunc, pull)


def _pull_nothing(node: Node, cotangents: tuple[Variable | None, ...], wanted: tuple[bool, ...]) -> Pulled:  # noqa: ARG001
    return (None,) * len(node.inputs)


@functools.cache
def _scalar(ufunc: np.ufunc) -> BroadcastFunction:
    """The ufunc as a scalar function, for its derivatives."""
    if ufunc.nin == 1:
        return differentiable_broadcast(lambda x: ufunc(x))
    if ufunc.nin == 2:
        return differentiable_broadcast(lambda x, y: ufunc(x, y))
    return differentiable_broadcast(lambda *args: ufunc(*args))


def _call(function: BroadcastFunction, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Call a BroadcastFunction on Variables."""
    if named.pop("out", None) is not None:
        raise ArgumentError(f"{function!r}: out= cannot be used with Variables, which do not change")
    inputs = (*args, *named.values())
    found = run(_CALL, inputs, function=function, names=tuple(named), shape=[None])
    return found


def _pull_function(
    function: BroadcastFunction, node: Node, cotangents: tuple[Variable | None, ...], wanted: tuple[bool, ...]
) -> Pulled:
    raise NotImplementedError


_CALL = Primitive("call", lambda *x: x, _pull_nothing)

# At the end, because these work on Variables by way of this module.
import dualbcast.graph.reductions as reductions  # noqa: E402
import dualbcast.graph.shapes as shapes  # noqa: E402
