"""Primitives applied to Variables.

Comes in: a primitive, Variables, arrays and numbers. Goes out: Variables with their values, and a node on the tape
where a derivative may be asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any

import numpy as np

from dualbcast.adapters import is_lazy
from dualbcast.errors import ArgumentError, DTypeError, DualbcastError, ShapeError
from dualbcast.foreign_objects import called, has_own_arithmetic, instead, refused_argument
from dualbcast.graph.arrays import as_array, is_float, lazy_adapter, map_leaves, namespace
from dualbcast.graph.batched import Batched, batched, level_of
from dualbcast.graph.complex_numbers.variable import ComplexVariable, of_parts
from dualbcast.graph.frozen import ABANDONED
from dualbcast.graph.recording import fresh_constant, performed
from dualbcast.graph.tape import STATE, Node, Primitive, observe, unary
from dualbcast.graph.variable import OPERATIONS, Variable, registered


class IndexingError(ShapeError, IndexError):
    """An index does not fit the Variable that it is used on."""


# Primitives other than ufuncs that work on lazy arrays.
_FOR_LAZY = {
    *("alias", "astype", "where", "sum", "matmul"),
    *("reshape", "expand_dims", "broadcast_to", "transpose", "swapaxes", "moveaxis"),
}


class MatrixError(DualbcastError, np.linalg.LinAlgError):
    """A matrix is singular, or not square, or has no decomposition of the kind."""


# The errors of NumPy that refuse arrays, and those of this package in their place.
_ERRORS = {
    np.linalg.LinAlgError: MatrixError,
    IndexError: IndexingError,
    ValueError: ShapeError,
    TypeError: DTypeError,
}


def run(primitive: Primitive, inputs: tuple[Any, ...], **static: Any) -> Variable:
    """Apply a primitive: compute its output, and record a node where a derivative may be asked for."""
    if ComplexVariable in [type(each) for each in inputs]:
        return of_parts(run, primitive, inputs, static)  # type: ignore[no-any-return]
    if STATE.batches and level_of(inputs):
        return OPERATIONS["run_batched"](run, primitive, inputs, static)
    values = _values(primitive, inputs)
    array = _computed(primitive, values, static, as_array)
    is_tracked = STATE.is_recording and bool(tracked_positions(inputs))
    output = Variable._of(array, is_tracked and is_float(array.dtype))
    # Only an operation of one array may return a view.
    is_view = array is values[0] or getattr(array, "base", None) is not None
    if len(inputs) == 1 and isinstance(inputs[0], Variable) and is_view:
        output.frozen = inputs[0].frozen
    if is_tracked:
        record(primitive, inputs, static, (output,))
    return output


def run_several(primitive: Primitive, inputs: tuple[Any, ...], **static: Any) -> tuple[Variable, ...]:
    """As `run`, for a primitive that gives several new arrays."""
    if ComplexVariable in [type(each) for each in inputs]:
        return of_parts(run_several, primitive, inputs, static)  # type: ignore[no-any-return]
    if STATE.batches and level_of(inputs):
        return OPERATIONS["run_batched"](run_several, primitive, inputs, static)  # type: ignore[return-value]
    arrays = _computed(primitive, _values(primitive, inputs), static, _as_arrays)
    is_tracked = STATE.is_recording and bool(tracked_positions(inputs))
    outputs = tuple([Variable._of(array, is_tracked and is_float(array.dtype)) for array in arrays])
    if is_tracked:
        record(primitive, inputs, static, outputs)
    return outputs


def _values(primitive: Primitive, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arrays that a primitive is applied to."""
    observe(inputs)
    values = arrays_of(inputs)
    if not (primitive.name in _FOR_LAZY or isinstance(primitive.forward, np.ufunc)) and lazy_adapter(values):
        raise ArgumentError(
            f"{primitive.name} does not work on Variables of Dask arrays, as calls of BroadcastFunctions, element-wise "
            "operations, sums, means and matrix products do. Write it by these; or outside of the graph by dask.array, "
            "if no derivative goes through it"
        )
    return values


def _computed(primitive: Primitive, values: tuple[Any, ...], static: dict[str, Any], made: Callable[..., Any]) -> Any:
    """What a primitive gives for arrays, `made` into an array or several."""
    try:
        if STATE.recorder is None:
            return made(primitive.forward(*values, **static))
        return performed(_forward(primitive.forward, made), *values, **static)
    except ShapeError as error:
        raise ShapeError(f"{primitive.name}: {error}") from None
    except DualbcastError:
        raise
    except (IndexError, ValueError, TypeError) as error:
        shapes = [f"{value.dtype}{list(value.shape)}" for value in values if hasattr(value, "shape")]
        subject = f"{primitive.name} of {', '.join(shapes)}" if shapes else primitive.name
        # NumPy's AxisError is both an IndexError and a ValueError.
        own = next(own for numpys, own in _ERRORS.items() if isinstance(error, numpys))
        raise own(f"{subject}: {error}") from None


def _as_arrays(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(map(as_array, values))


@cache
def _forward(function: Callable[..., Any], made: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays that gives an array, also where NumPy's gives a number; or several arrays."""

    @wraps(function)
    def forward(*values: Any, **static: Any) -> Any:
        return made(function(*values, **static))

    return forward


def record(primitive: Primitive, inputs: tuple[Any, ...], static: dict[str, Any], outputs: Sequence[Variable]) -> None:
    """Give outputs the node that they come from."""
    node = Node(primitive, inputs, static, outputs)
    for index, output in enumerate(outputs):
        if output.tracked:
            output.node, output.index = node, index


def output_of(node: Node, index: int = 0) -> Variable:
    """An output of a node that saves it."""
    if isinstance(node.saved[index], Variable):  # the node of `complex_numbers.primitives`
        return node.saved[index]  # type: ignore[no-any-return]
    output = Variable._of(node.saved[index], True, node)
    output.index = index
    return output


def tracked_positions(inputs: Sequence[Any]) -> tuple[int, ...]:
    """The positions of the inputs that carry a derivative."""
    return tuple([at for at, each in enumerate(inputs) if isinstance(each, Variable) and each.tracked])


def arrays_of(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The inputs with the array of each Variable in its place."""
    if ABANDONED:
        for each in inputs:
            if isinstance(each, Variable) and each.frozen is not None:
                each.frozen.check()
    return tuple([each.array if isinstance(each, Variable) else each for each in inputs])


def constant(value: Any) -> Variable:
    """The argument of an operation as a Variable: itself, or a new one that carries no derivative."""
    return value if isinstance(value, Variable) else Variable(value, tracked=False)


@registered
def zeros(like: Variable) -> Variable:
    """The cotangent of a Variable that nothing depends on."""
    if isinstance(like, Batched):
        return batched(zeros(like.inner), like.level)
    return Variable._of(fresh_constant(namespace(like).zeros(like.shape, dtype=like.dtype)), False)


def probe(like: Variable) -> Variable:
    """Zeros to differentiate in."""
    return batched(probe(like.inner), like.level) if isinstance(like, Batched) else Variable(zeros(like))


_ALIAS = unary("alias", lambda array: array, lambda _node, cotangent: cotangent)


def alias(name: str, leaf: Any) -> Variable:
    """A new Variable to differentiate in, which depends on the argument if that is a Variable, too."""
    _require_derivative(name, leaf)
    if STATE.batches:
        return OPERATIONS["alias_batched"](_alias, leaf, STATE.batches)
    return _alias(leaf)


def _alias(leaf: Any) -> Variable:
    observe((leaf,))
    if isinstance(leaf, Variable) and leaf.tracked and STATE.is_recording:
        return run(_ALIAS, (leaf,))
    return Variable(leaf)


def _require_derivative(name: str, leaf: Any) -> None:
    """Refuse an argument to differentiate in that is no array or number of a float dtype."""
    if has_own_arithmetic(leaf) and not is_lazy(leaf):
        raise refused_argument(leaf, name)
    if not isinstance(leaf, Variable | float) and not isinstance(getattr(leaf, "dtype", None), np.dtype):
        hint = "Pass a float: 3.0 and not 3." if isinstance(leaf, int) else instead(leaf, name)
        if not hint and type(leaf).__module__ != "builtins":
            hint = "Pass an array or a float; or register its class with optree.register_pytree_node."
        raise DTypeError(
            f"there is no derivative in {name}, which is {called(leaf)}. {hint or 'Pass an array or a float.'}"
        )
    if not is_float(leaf.dtype if hasattr(leaf, "dtype") else np.dtype(float)):
        raise DTypeError(
            f"there is no derivative in {name}: its dtype is {leaf.dtype}, and integers and bools carry none. Pass "
            ".astype('float64'); or leave it out of wrt"
        )


def stop_gradient(x: Any) -> Any:
    """The value of a Variable, or of those in a container, as a constant.

    Examples
    --------
    >>> from dualbcast import graph
    >>> graph.grad(lambda x: x * graph.stop_gradient(x))(3.0)
    np.float64(3.0)
    """

    def stopped(path: str, leaf: Any) -> Any:
        if isinstance(leaf, Batched):
            return batched(stopped(path, leaf.inner), leaf.level)
        if isinstance(leaf, Variable):
            return Variable(leaf, tracked=False)
        if has_own_arithmetic(leaf) or (isinstance(leaf, np.ndarray) and leaf.dtype.hasobject):
            # Variables inside would go on carrying derivatives.
            raise refused_argument(leaf, path)
        return leaf

    return map_leaves(stopped, x, "x")
