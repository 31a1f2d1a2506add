"""Reshape, broadcast and sum: operations that are each other's pullbacks.

Comes in: a Variable or array, with a shape or axes. Goes out: a Variable of the other shape.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from dualbcast.errors import ShapeError
from dualbcast.graph.arrays import is_float, namespace
from dualbcast.graph.fused_region import total
from dualbcast.graph.lazy import LIMITS
from dualbcast.graph.operations.elementwise import astype
from dualbcast.graph.primitives import IndexingError, constant, run
from dualbcast.graph.tape import STATE, Node, unary
from dualbcast.graph.variable import Axis, Variable, registered

# --- shapes and axes --------------------------------------------------------------------------------------------------


def as_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """A shape, which may be given as its only length."""
    # NumPy's integers are no ints, and have no length either.
    if isinstance(shape, tuple) or isinstance(shape, Sequence):  # noqa: SIM101 (the second question takes long)
        return tuple(map(operator.index, shape))
    return (operator.index(shape),)


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


def reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """A shape after a reduction that drops its axes."""
    return tuple([length for axis, length in enumerate(shape) if axis not in axes])


# --- reshape and broadcast --------------------------------------------------------------------------------------------


_RESHAPE = unary(
    "reshape",
    lambda array, shape: array.reshape(shape),
    lambda node, cotangent: reshape(cotangent, node.inputs[0].shape),
)
_BROADCAST = unary(
    "broadcast_to",
    lambda array, shape: namespace(array).broadcast_to(array, shape),
    lambda node, cotangent: sum_to(cotangent, node.inputs[0].shape),
)


@registered
def reshape(x: Any, shape: int | Sequence[int]) -> Variable:
    """The elements of `x` in the same order in another shape; one length may be -1."""
    x, lengths = constant(x), as_shape(shape)
    return x if lengths == x.shape else run(_RESHAPE, (x,), shape=lengths)


def broadcast_to(x: Any, shape: int | Sequence[int]) -> Variable:
    """`x` broadcast to a shape."""
    x, lengths = constant(x), as_shape(shape)
    return x if lengths == x.shape else run(_BROADCAST, (x,), shape=lengths)


# --- sums -------------------------------------------------------------------------------------------------------------


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
    return sums if keepdims else sums.reshape(reduced_shape(array.shape, axes))


def _pullback_of_sum(node: Node, cotangent: Variable) -> Variable:
    shape = node.inputs[0].shape
    aligned = keepdims_shape(shape, node.static["axes"])
    if math.prod(shape) < LIMITS.elements and not STATE.is_recording and type(cotangent.array) is np.ndarray:
        # A small array of its own takes less time than a view, and later operations read it like any other.
        spread = np.empty(shape, cotangent.dtype)
        spread[...] = cotangent.array.reshape(aligned)
        return Variable._of(spread, False)
    return broadcast_to(reshape(cotangent, aligned), shape)


_SUM = unary("sum", _sum, _pullback_of_sum)


@registered
def sum(x: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Variable:
    """The sum over axes, by default all.

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
        return sums if keepdims else reshape(sums, reduced_shape(x.shape, axes))
    return run(_SUM, (x,), axes=axes, keepdims=keepdims)


def sum_to(x: Variable, shape: tuple[int, ...]) -> Variable:
    """The sum over the axes along which an array of `shape` was broadcast."""
    if x.shape == shape:
        return x
    extra = x.ndim - len(shape)
    axes = (*range(extra), *(extra + axis for axis, size in enumerate(shape) if size == 1 != x.shape[extra + axis]))
    return reshape(sum(x, axis=axes) if axes else x, shape)
