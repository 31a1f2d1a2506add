"""All element-wise arithmetic on Variables: operators, ufuncs, casts, choices, and BroadcastFunctions.

Comes in: an operation, with Variables, arrays and numbers that broadcast together. Goes out: Variables, which may wait
for their values until `.array` is read.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dualbcast.api.dispatch import Specialisation
from dualbcast.api.function import BroadcastFunction
from dualbcast.errors import ShapeError
from dualbcast.graph.arrays import is_float, namespace
from dualbcast.graph.fused_region import defer
from dualbcast.graph.operations.scalar_functions import ScalarOperation, fixed_power, operation
from dualbcast.graph.primitives import arrays_of, constant, run
from dualbcast.graph.tape import STATE, Primitive, observe, unary
from dualbcast.graph.variable import OPERATIONS, Variable, registered

__all__ = ["apply", "astype", "call", "call_bound", "clip", "where"]

# The ufuncs behind the operators of Python.
_OPERATORS = (
    *("add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "negative", "absolute", "invert"),
    *("bitwise_and", "bitwise_or", "bitwise_xor"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
)
# Python's numbers, which an element function takes as they are.
_NUMBERS = (bool, int, float)


def apply(name: str | np.ufunc, *inputs: Any) -> Variable:
    """Apply an element-wise operation to Variables, arrays and numbers, which broadcast together.

    It goes by the name of a ufunc of NumPy's, or "where"; or it is a ufunc of any library.
    """
    applied = operation(name)
    if applied.scalar is None or not any(is_float(each.dtype) for each in inputs if hasattr(each, "dtype")):
        return _ended(applied, inputs)
    if applied.ends and not any(isinstance(each, Variable) and each._value is None for each in inputs):
        return _ended(applied, inputs)
    scalar = applied.scalar
    if applied.name == "power":
        fixed = fixed_power(inputs[1])
        if fixed is not None:
            scalar, inputs = fixed, inputs[:1]
    output: Variable = call(scalar, inputs, applied.name)
    return output


OPERATIONS.update({name: functools.partial(apply, name) for name in _OPERATORS})


@registered
def where(condition: Any, x: Any, y: Any) -> Variable:
    """`x` where the condition holds, else `y`: `numpy.where`.

    Both sides are computed in each element, and the cotangent of the side that is not chosen is zero. Where the
    derivative of that side is not finite, the product with zero is NaN. The `if` of a BroadcastFunction computes one
    side only.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(lambda v: np.sum(graph.where(v > 2, v * v, 1.0)))(np.array([1.0, 3.0]))
    array([0., 6.])
    """
    return apply("where", condition, x, y)


@registered
def clip(x: Any, min: Any = None, max: Any = None) -> Variable:
    """`x` moved into [min, max]; either may be None."""
    x = constant(x)
    if min is not None:
        x = apply("maximum", x, min)
    return x if max is None else apply("minimum", x, max)


@registered
def astype(x: Any, dtype: Any) -> Variable:
    """`x` in another dtype; in an integer dtype it has no derivative, as `int()` has none."""
    x, dtype = constant(x), np.dtype(dtype)
    return x if x.dtype == dtype else run(_ASTYPE, (x,), dtype=dtype)


# --- element functions ------------------------------------------------------------------------------------------------


def call(function: BroadcastFunction, args: tuple[Any, ...], name: str = "") -> Any:
    """Call a BroadcastFunction on Variables, arrays and numbers; messages call it `name`, or by its own name.

    It returns a Variable, or what the function returns with Variables for its numbers.
    """
    # The call is bound as for arrays, but the values are the Variables themselves, captured ones too.
    specialisation, values = function._dispatch.find(args, {}, None)
    return call_bound(specialisation, values, name or function.__name__)


@registered
def call_bound(specialisation: Specialisation, values: tuple[Any, ...], name: str) -> Any:
    """Call a function of which the specialisation is known, for the values of its parameters; see `call`."""
    inputs = tuple([each if isinstance(each, Variable) else _operand(each, values) for each in values])
    observe(inputs)
    element, result = specialisation.element, specialisation.signature.result_dtype
    shapes = [each.shape for each in inputs if isinstance(each, Variable)]
    try:
        # `numpy.broadcast_shapes` takes as long as the rest of this function.
        shape = shapes[0] if len({*shapes}) == 1 else np.broadcast_shapes(*shapes)
    except ValueError:
        described = ", ".join(
            f"{parameter} {each.shape}"
            for parameter, each in zip(element.names, inputs, strict=True)
            if isinstance(each, Variable)
        )
        raise ShapeError(f"{name}: the shapes do not broadcast together: {described}") from None
    return element.function.structure.pack(defer(element, inputs, shape, result, specialisation.dtypes))


def _operand(value: Any, beside: tuple[Any, ...]) -> Any:
    """An argument of an element function as a number of Python or a Variable; `beside` has all arguments.

    The dtype of a number of Python does not count. NumPy's numbers become arrays of the library of the other arguments.
    """
    if type(value) in _NUMBERS:
        return value
    if isinstance(value, np.generic):
        value = namespace(*[each for each in beside if not isinstance(each, np.generic)]).asarray(value)
    return Variable(value, tracked=False)


def _ended(applied: ScalarOperation, inputs: tuple[Any, ...]) -> Variable:
    """An operation where differentiation ends: only the values take part."""
    if STATE.observer is not None:
        observe([each if isinstance(each, Variable) else _operand(each, inputs) for each in inputs])
    return run(Primitive(applied.name, applied.compute, None), arrays_of(inputs))


_ASTYPE = unary(
    "astype",
    lambda array, dtype: array.astype(dtype),
    lambda node, cotangent: astype(cotangent, node.inputs[0].dtype),
)
