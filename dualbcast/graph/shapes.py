"""Shapes: reshape, broadcast and sum, which are each other's pullbacks; transpose, flip, repeat, join and split.

Comes in: Variables or arrays, with shapes or axes. Goes out: Variables of the same elements in another shape or order,
of some of them, or of their sums.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.graph.arrays import is_float, namespace
from dualbcast.graph.elementwise import astype
from dualbcast.graph.fused_region import total
from dualbcast.graph.lazy import Limits
from dualbcast.graph.primitives import IndexingError, constant, run
from dualbcast.graph.recording import performed
from dualbcast.graph.tape import STATE, Cotangents, Node, Primitive, unary
from dualbcast.graph.variable import Axis, Variable, method, registered


def as_shape(shape: Any) -> tuple[int, ...]:
    """A shape, which may be given as its only length."""
    # NumPy's integers are no ints, and have no length either.
    if isinstance(shape, tuple) or isinstance(shape, Sequence):  # noqa: SIM101 (the second question takes long)
        return tuple(map(operator.index, shape))
    return tuple(map(operator.index, shape)) if np.ndim(shape) else (operator.index(shape),)


def axis_of(axis: Any, ndim: int, name: str) -> int:
    """An axis counted from the front."""
    position = operator.index(axis)
    if not -ndim <= position < ndim:
        raise IndexingError(f"{name}: there is no axis {position} in an array of {ndim} dimensions")
    return position % ndim


def axes_of(axis: Any, ndim: int, name: str) -> tuple[int, ...]:
    """The axes of an argument `axis`, of which none may be named twice; without it, all."""
    if axis is None:
        return tuple(range(ndim))
    axes = tuple([axis_of(each, ndim, name) for each in (axis if isinstance(axis, tuple | list) else (axis,))])
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name}: axis={axis} names an axis twice")
    return axes


def size_of(shape: Sequence[int], axes: Sequence[int]) -> int:
    """How many elements there are along these axes together."""
    return math.prod(shape[axis] for axis in axes)


def keepdims_shape(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """A shape after a reduction that keeps its axes, with length 1."""
    return tuple([1 if axis in axes else length for axis, length in enumerate(shape)])


def _reshaping(name: str, forward: Callable[..., Any]) -> Primitive:
    """A primitive whose result has the same elements in the same order."""
    return unary(name, forward, lambda node, cotangent: reshape(cotangent, node.inputs[0].shape), is_linear=True)


_RESHAPE = _reshaping("reshape", lambda array, shape: array.reshape(shape))
_EXPAND_DIMS = _reshaping("expand_dims", np.expand_dims)
_BROADCAST = unary(
    "broadcast_to",
    lambda array, shape: namespace(array).broadcast_to(array, shape),
    lambda node, cotangent: sum_to(cotangent, node.inputs[0].shape),
    is_linear=True,
)


@registered
def reshape(x: Any, shape: int | Sequence[int], order: str = "C") -> Variable:
    """The same elements in the same order in another shape; one length may be -1.

    The order is that of rows, or that of columns if it is "F".
    """
    if order == "F":
        return transpose(reshape(transpose(x), as_shape(shape)[::-1]))
    if order != "C":
        raise ArgumentError(f"a Variable has no order in memory, so that order={order!r} means nothing; give C or F")
    x, lengths = constant(x), as_shape(shape)
    return x if lengths == x.shape else run(_RESHAPE, (x,), shape=lengths)


@registered
def broadcast_to(x: Any, shape: int | Sequence[int]) -> Variable:
    """`x` broadcast to a shape."""
    x, lengths = constant(x), as_shape(shape)
    return x if lengths == x.shape else run(_BROADCAST, (x,), shape=lengths)


# Kernels reduce arrays of so many elements; NumPy is faster for smaller ones. An eighth is enough for half precision,
# in which NumPy is slow. See docs/decisions/061-thresholds-of-the-graph.md.
KERNEL_ELEMENTS = 1 << 17


def is_for_kernels(array: Any) -> bool:
    """Whether an array is large, and of a dtype that kernels read: no longer than float64, in the native byte order."""
    dtype = array.dtype
    many = KERNEL_ELEMENTS // 8 if dtype.itemsize == 2 else KERNEL_ELEMENTS
    return bool(array.size >= many and is_float(dtype) and dtype.itemsize <= 8 and dtype.isnative)


def _sum(array: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The sum; a kernel computes it for large arrays, on all threads and in float64."""
    if not isinstance(array, np.ndarray) or not is_for_kernels(array):
        return array.sum(axis=axes, keepdims=keepdims)
    sums = total(Variable._of(array, False), keepdims_shape(array.shape, axes)).array
    return sums if keepdims else sums.squeeze(axes)


def spread(array: Any, aligned: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """An array of a shape, to which another one broadcasts if it is reshaped, with memory of its own."""
    result = np.empty(shape, array.dtype)
    result[...] = array.reshape(aligned)
    return result


def _pullback_of_sum(node: Node, cotangent: Variable) -> Variable:
    shape = node.inputs[0].shape
    aligned = keepdims_shape(shape, node.static["axes"])
    if math.prod(shape) < Limits.elements and not STATE.is_recording and type(cotangent.array) is np.ndarray:
        # A small array of its own takes less time than a view, and later operations read it like any other.
        return Variable._of(performed(spread, cotangent.array, aligned=aligned, shape=shape), False)
    return broadcast_to(reshape(cotangent, aligned), shape)


SUM = unary("sum", _sum, _pullback_of_sum, is_linear=True)


@method
def sum(x: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Variable:
    """The sum over axes, by default over all.

    Parameters
    ----------
    x : Variable or array
    axis : int or tuple of int, optional
    dtype : dtype, optional
        The elements are converted to it before they are added.
    keepdims : bool
        Keep the axes, with length 1.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(lambda v: graph.sum(v * v))(np.array([1.0, 2.0]))
    array([2., 4.])
    """
    x = constant(x)
    if dtype is not None:
        x = astype(x, dtype)
    axes = axes_of(axis, x.ndim, "sum")
    if x._value is None and is_float(x.dtype):
        # The kernel that computes the elements adds them up, too.
        sums = total(x, keepdims_shape(x.shape, axes))
        return sums if keepdims else squeeze(sums, axes)
    return run(SUM, (x,), axes=axes, keepdims=keepdims)


def sum_to(x: Variable, shape: tuple[int, ...]) -> Variable:
    """The sum over the axes along which an array of `shape` was broadcast."""
    if x.shape == shape:
        return x
    extra = x.ndim - len(shape)
    axes = (*range(extra), *(extra + axis for axis, size in enumerate(shape) if size == 1 != x.shape[extra + axis]))
    return reshape(sum(x, axis=axes) if axes else x, shape)


@cache
def _rearrangement(function: Callable[..., Any]) -> Primitive:
    """The primitive of a function of NumPy's that undoes itself, if it is called with other arguments `back`."""
    return unary(
        function.__name__,
        lambda array, args, back: function(array, *args),  # noqa: ARG005
        lambda node, cotangent: _rearranged(function, cotangent, node.static["back"], node.static["args"]),
        is_linear=True,
    )


def _rearranged(function: Callable[..., Any], x: Any, args: tuple[Any, ...], back: tuple[Any, ...]) -> Variable:
    return run(_rearrangement(function), (constant(x),), args=args, back=back)


def permute_dims(x: Any, axes: Sequence[int]) -> Variable:
    """`x` with its axes in another order."""
    x = constant(x)
    order = axes_of(tuple(axes), x.ndim, "permute_dims")
    return _rearranged(np.transpose, x, (order,), (sorted(range(len(order)), key=order.__getitem__),))


@registered
def transpose(x: Any, axes: Sequence[int] | None = None) -> Variable:
    """`x` with its axes in another order, by default in reverse: `numpy.transpose`."""
    return _rearranged(np.transpose, x, (), ()) if axes is None else permute_dims(x, axes)


@registered
def matrix_transpose(x: Any) -> Variable:
    """The transposes of the matrices in the last two axes."""
    return swapaxes(x, -2, -1)


@method
def swapaxes(x: Any, axis1: int, axis2: int) -> Variable:
    """`x` with two axes exchanged."""
    return _rearranged(np.swapaxes, x, (axis1, axis2), (axis1, axis2))


def moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Variable:
    """`x` with some axes at other positions; the other axes keep their order."""
    return _rearranged(np.moveaxis, x, (source, destination), (destination, source))


def flip(x: Any, axis: int | Sequence[int] | None = None) -> Variable:
    """`x` in reverse order along these axes, by default all."""
    return _rearranged(np.flip, x, (axis,), (axis,))


def roll(x: Any, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Variable:
    """`x` with its elements moved along axes; elements that leave at one end enter at the other."""
    places = np.asarray(shift)
    return _rearranged(np.roll, x, (places.tolist(), axis), ((-places).tolist(), axis))


def expand_dims(x: Any, axis: int | Sequence[int] = 0) -> Variable:
    """`x` with axes of length 1 at these positions of the result."""
    return run(_EXPAND_DIMS, (constant(x),), axis=axis)


@method
def squeeze(x: Any, axis: int | Sequence[int] | None = None) -> Variable:
    """`x` without these axes, which must be of length 1; by default without all axes of length 1."""
    x = constant(x)
    dropped = [at for at, size in enumerate(x.shape) if size == 1] if axis is None else axes_of(axis, x.ndim, "squeeze")
    if any(x.shape[at] != 1 for at in dropped):
        raise ShapeError(f"squeeze: axis={axis} of an array of shape {x.shape} is not of length 1")
    return reshape(x, tuple(size for at, size in enumerate(x.shape) if at not in dropped))


def broadcast_arrays(*arrays: Any) -> tuple[Variable, ...]:
    """All arrays broadcast to their common shape."""
    inputs = [constant(each) for each in arrays]
    shape = namespace(*inputs).broadcast_shapes(*(each.shape for each in inputs))
    return tuple(broadcast_to(each, shape) for each in inputs)


@method
def repeat(x: Any, repeats: int | Sequence[int], axis: int | None = None) -> Variable:
    """`x` with each element repeated along an axis, so many times each or all as often; by default along the only axis
    of the flattened array."""
    x = constant(x)
    if axis is None:
        return repeat(reshape(x, (-1,)), repeats, 0)
    at = axis_of(axis, x.ndim, "repeat")
    if np.ndim(repeats):
        places: Variable = x[(*(slice(None),) * at, np.repeat(np.arange(x.shape[at]), repeats))]
        return places
    times = operator.index(repeats)  # type: ignore[arg-type]
    shape = (*x.shape[: at + 1], times, *x.shape[at + 1 :])
    result = (*x.shape[:at], x.shape[at] * shape[at + 1], *x.shape[at + 1 :])
    return reshape(broadcast_to(expand_dims(x, at + 1), shape), result)


def tile(x: Any, repetitions: int | Sequence[int]) -> Variable:
    """`x` as a whole repeated along its axes: `numpy.tile`."""
    x = constant(x)
    times = as_shape(repetitions)
    ndim = max(len(times), x.ndim)
    times = (1,) * (ndim - len(times)) + times
    lengths = (1,) * (ndim - x.ndim) + x.shape
    apart = reshape(x, tuple(size for length in lengths for size in (1, length)))
    spread = broadcast_to(apart, tuple(size for pair in zip(times, lengths, strict=True) for size in pair))
    return reshape(spread, tuple(map(operator.mul, times, lengths)))


def _pullback_of_concat(node: Node, cotangents: Cotangents, _wanted: tuple[bool, ...]) -> Cotangents:
    axis = node.static["axis"]
    ends = itertools.accumulate(each.shape[axis] for each in node.inputs[:-1])
    return split(cotangents[0], list(ends), axis)


_CONCAT = Primitive(
    "concat",
    lambda *arrays, axis: namespace(*arrays).concatenate(arrays, axis=axis),
    _pullback_of_concat,
    linear_in="all",
)


def concat(arrays: Sequence[Any], axis: int | None = 0) -> Variable:
    """Arrays joined along an axis; with `axis=None` they are flattened first."""
    inputs = [constant(each) for each in arrays]
    if not inputs:
        raise ArgumentError("concat needs one array at least")
    if axis is None:
        inputs, axis = [reshape(each, (-1,)) for each in inputs], 0
    return run(_CONCAT, tuple(inputs), axis=axis_of(axis, inputs[0].ndim, "concat"))


def stack(arrays: Sequence[Any], axis: int = 0) -> Variable:
    """Arrays of one shape joined along a new axis."""
    inputs = [constant(each) for each in arrays]
    if any(each.shape != inputs[0].shape for each in inputs):
        raise ShapeError(f"stack: the shapes differ: {', '.join(str(each.shape) for each in inputs)}")
    return concat([expand_dims(each, axis) for each in inputs], axis)


def split(x: Any, indices_or_sections: int | Sequence[int], axis: int = 0) -> tuple[Variable, ...]:
    """The parts of `x` along an axis: so many equal parts, or the parts between these positions: `numpy.split`."""
    x = constant(x)
    at = axis_of(axis, x.ndim, "split")
    length, cuts = x.shape[at], indices_or_sections
    if isinstance(cuts, int | np.integer):
        if cuts < 1 or length % cuts:
            raise ShapeError(f"split: an axis of length {length} cannot be cut into {cuts} equal parts")
        cuts = [length // cuts * part for part in range(1, cuts)]
    return tuple(x[(slice(None),) * at + (slice(*ends),)] for ends in itertools.pairwise([0, *cuts, length]))


@registered
def unstack(x: Any, axis: int = 0) -> tuple[Variable, ...]:
    """The elements of `x` along an axis, each an array without that axis."""
    x = constant(x)
    at = axis_of(axis, x.ndim, "unstack")
    return tuple(x[(slice(None),) * at + (index,)] for index in range(x.shape[at]))
