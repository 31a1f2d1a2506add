"""The one way of all element-wise arithmetic on Variables: operators, ufuncs, casts, choices, and BroadcastFunctions.

What is computed here, and when, is no business of the rest of the graph, which calls `apply` and reads `.array`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualbcast.api.dispatch import Specialisation
from dualbcast.api.function import BroadcastFunction
from dualbcast.errors import ShapeError
from dualbcast.graph.operations import Operation, power
from dualbcast.graph.operations import operation as find_operation
from dualbcast.graph.tape import STATE, Node, Primitive, Pulled, arrays_of, constant, is_float, namespace, observe, run
from dualbcast.graph.variable import Variable

__all__ = ["apply", "astype", "clip", "record", "sum_to", "where"]


def apply(operation: str | np.ufunc | BroadcastFunction, *inputs: Any, **named: Any) -> Any:
    """Apply an element-wise operation to Variables, arrays and numbers, which broadcast together.

    Parameters
    ----------
    operation : str, ufunc or BroadcastFunction
        A name is that of a ufunc of NumPy's, "where" or "astype".
    *inputs
        The arguments.
    **named
        The named arguments of a BroadcastFunction; `dtype` of "astype".

    Returns
    -------
    Variable, or what the BroadcastFunction returns with Variables for its numbers
    """
    if operation == "astype":
        return _cast(inputs[0], named["dtype"])
    if isinstance(operation, BroadcastFunction):
        return _call(operation, inputs, named)
    found = find_operation(operation)
    if found.scalar is None or not any(is_float(each.dtype) for each in inputs if hasattr(each, "dtype")):
        return _ended(found, inputs)
    if found.ends and not any(isinstance(each, Variable) and each._value is None for each in inputs):
        return _ended(found, inputs)
    if found.name == "power":
        fixed = power(inputs[1])
        if fixed is not None:
            return _call(fixed, inputs[:1], {}, "power")
    return _call(found.scalar, inputs, {}, found.name)


def where(condition: Any, x: Any, y: Any) -> Variable:
    """`x` where the condition holds, else `y`: `numpy.where`.

    The side that is not taken gets no cotangent, but has been computed: where its own derivative is not finite, NaN
    comes out. The `if` of a BroadcastFunction does not have that trouble.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(lambda v: np.sum(graph.where(v > 2, v * v, 1.0)))(np.array([1.0, 3.0]))
    array([0., 6.])
    """
    made: Variable = apply("where", condition, x, y)
    return made


def clip(x: Any, min: Any = None, max: Any = None) -> Variable:
    """`x` moved into [min, max]; either may be None."""
    found = constant(x)
    if min is not None:
        found = apply("maximum", found, min)
    return found if max is None else apply("minimum", found, max)


def astype(x: Any, dtype: Any) -> Variable:
    """`x` in another dtype; in an integer dtype it has no derivative, as `int()` has none."""
    made: Variable = apply("astype", constant(x), dtype=np.dtype(dtype))
    return made


def sum_to(x: Variable, shape: tuple[int, ...]) -> Variable:
    """Sum over the axes along which an array of `shape` was broadcast."""
    if x.shape == shape:
        return x
    extra = x.ndim - len(shape)
    axes = (*range(extra), *(extra + axis for axis, size in enumerate(shape) if size == 1 != x.shape[extra + axis]))
    return shapes.reshape(reductions.sum(x, axis=axes) if axes else x, shape)


# Those of Python: an element function takes them as they are.
_NUMBERS = (bool, int, float)

# --- element functions ------------------------------------------------------------------------------------------------


def _call(function: BroadcastFunction, args: tuple[Any, ...], named: dict[str, Any], name: str = "") -> Any:
    """Apply a BroadcastFunction."""
    # It binds as it does for arrays; the values are the Variables themselves, captured ones too.
    found, values = function._dispatch.find(args, named, None)
    return record(found, values, name or function.__name__)


def record(found: Specialisation, values: tuple[Any, ...], name: str) -> Any:
    """Apply a function that is bound, and is called `name` in messages, to the values of its parameters."""
    inputs = tuple([each if isinstance(each, Variable) else _operand(each, values) for each in values])
    observe(inputs)
    element, result = found.element, found.signature.result_dtype
    spans = [each.shape for each in inputs if isinstance(each, Variable)]
    try:
        # NumPy's function takes as long as all else here.
        shape = spans[0] if len({*spans}) == 1 else np.broadcast_shapes(*spans)
    except ValueError:
        shapes = ", ".join(
            f"{parameter} {each.shape}"
            for parameter, each in zip(element.names, inputs, strict=True)
            if isinstance(each, Variable)
        )
        raise ShapeError(f"{name}: the shapes do not broadcast together: {shapes}") from None
    return element.function.structure.pack(regions.defer(element, inputs, shape, result, found.dtypes))


def _operand(value: Any, beside: tuple[Any, ...]) -> Any:
    """An argument of an element function, of which `beside` are all: Python's numbers are weak, all else counts with
    its dtype; NumPy's numbers become arrays of the library that the others are of."""
    if type(value) in _NUMBERS:
        return value
    if isinstance(value, np.generic):
        value = namespace(*[each for each in beside if not isinstance(each, np.generic)]).asarray(value)
    return Variable(value, tracked=False)


def _ended(found: Operation, inputs: tuple[Any, ...]) -> Any:
    """An operation where differentiation ends: the values alone take part."""
    if STATE.observer is not None:
        observe([each if isinstance(each, Variable) else _operand(each, inputs) for each in inputs])
    values = arrays_of(inputs)
    return run(Primitive(found.name, found.compute, _ends), values)


def _ends(node: Node, cotangents: tuple[Variable | None, ...], wanted: tuple[bool, ...]) -> Pulled:  # noqa: ARG001
    """Differentiation ends here: nothing goes back."""
    return (None,) * len(node.inputs)


# --- casts ------------------------------------------------------------------------------------------------------------


def _cast(x: Variable, dtype: Any) -> Variable:
    if x.dtype == dtype:
        return x
    made: Variable = run(_ASTYPE if is_float(dtype) else _TO_INTEGERS, (x,), dtype=dtype)
    return made


def _convert(array: Any, dtype: Any) -> Any:
    return array.astype(dtype)


def _pull_cast(node: Node, cotangents: tuple[Variable | None, ...], wanted: tuple[bool, ...]) -> Pulled:  # noqa: ARG001
    return (apply("astype", cotangents[0], dtype=node.inputs[0].dtype),)


_ASTYPE = Primitive("astype", _convert, _pull_cast)
_TO_INTEGERS = Primitive("astype", _convert, _ends)

# At the end, because these work on Variables by way of this module.
import dualbcast.graph.fused_region as regions  # noqa: E402
import dualbcast.graph.reductions as reductions  # noqa: E402
import dualbcast.graph.shapes as shapes  # noqa: E402
