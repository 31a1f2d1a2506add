"""Reductions over axes, and what is made of them: sum, mean, max, min, prod, var, cumsum, logsumexp, softmax."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dualbcast.api.function import differentiable_broadcast
from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.graph.lazy import LIMITS
from dualbcast.graph.shapes import axes_of, axis_of, broadcast_to, concat, flip, moveaxis, reshape, size_of
from dualbcast.graph.tape import STATE, Node, Primitive, Pulled, as_array, constant, is_float, namespace, run
from dualbcast.graph.variable import Variable

__all__ = [
    "cumsum",
    "cumulative_sum",
    "log_softmax",
    "logsumexp",
    "max",
    "mean",
    "min",
    "prod",
    "softmax",
    "std",
    "sum",
    "var",
]

Axis = int | tuple[int, ...] | None
Cotangents = tuple[Variable | None, ...]


def _aligned(reduced: Any, node: Node) -> Variable:
    """An array of a reduction's shape, with axes of length 1 where it has none: so it broadcasts with the input."""
    return reshape(reduced, _kept(node.inputs[0].shape, node.static["axes"]))


def _kept(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([1 if axis in axes else size for axis, size in enumerate(shape)])


def _left(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([size for axis, size in enumerate(shape) if axis not in axes])


# Elements from which a kernel takes less time than NumPy's passes over the array, a softmax of 512 by 1024 0.7 ms and
# not 0.9; but one of 40 by 40 would take 140 µs and not 9. Of half precision, where NumPy is slow, an eighth.
_MANY = 1 << 17


def _is_for_kernels(array: Any) -> bool:
    """Whether it is large, and kernels read and write it: nothing longer than float64, or of the other byte order."""
    dtype = array.dtype
    many = _MANY // 8 if dtype.itemsize == 2 else _MANY
    return bool(array.size >= many and is_float(dtype) and dtype.itemsize <= 8 and dtype.isnative)


# --- sums -------------------------------------------------------------------------------------------------------------


def _sum(array: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """What is large is summed by a kernel, on all threads and in float64."""
    if not isinstance(array, np.ndarray) or not _is_for_kernels(array):
        return array.sum(axis=axes, keepdims=keepdims)
    total = region.total(Variable._of(array, False), _kept(array.shape, axes)).array
    return total if keepdims else total.reshape(_left(array.shape, axes))


def _pull_sum(node: Node, cotangents: Cotangents, wanted: tuple[bool, ...]) -> Pulled:  # noqa: ARG001
    given, shape = cotangents[0], node.inputs[0].shape
    assert given is not None
    if math.prod(shape) < LIMITS.elements and not STATE.is_recording and type(given.array) is np.ndarray:
        # A small array of its own takes less time than a view, and to what reads it looks like any other.
        spread = np.empty(shape, given.dtype)
        spread[...] = given.array.reshape(_kept(shape, node.static["axes"]))
        return (Variable._of(spread, False),)
    return (broadcast_to(_aligned(given, node), shape),)


_SUM = Primitive("sum", _sum, _pull_sum)


def sum(x: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Variable:
    """The sum over axes, by default all.

    Parameters
    ----------
    x : Variable or array
    axis : int or tuple of int, optional
    dtype : dtype, optional
        Converts to it first.
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
        x = elementwise.astype(x, dtype)
    axes = axes_of(axis, x.ndim, "sum")
    if x._value is None and is_float(x.dtype):
        # What waits is summed by the kernel that computes it.
        total = region.total(x, _kept(x.shape, axes))
        return total if keepdims else reshape(total, _left(x.shape, axes))
    made: Variable = run(_SUM, (x,), axes=axes, keepdims=keepdims)
    return made


def mean(x: Any, axis: Axis = None, keepdims: bool = False) -> Variable:
    """The mean over axes, by default all."""
    x = _floating(x)
    axes = axes_of(axis, x.ndim, "mean")
    total = sum(_wide(x), axis=axes, keepdims=keepdims)
    return elementwise.astype(elementwise.apply("divide", total, float(size_of(x.shape, axes))), x.dtype)


def var(x: Any, axis: Axis = None, correction: float = 0, keepdims: bool = False) -> Variable:
    """The variance over axes, by default all.

    Parameters
    ----------
    x : Variable or array
    axis : int or tuple of int, optional
    correction : float
        The sum of squares is divided by the number of elements less this: 1 for the unbiased estimate.
    keepdims : bool
        Keep the axes, with length 1.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(lambda v: graph.var(v, correction=1))(np.array([1.0, 2.0, 6.0]))
    array([-2., -1.,  3.])
    """
    x = _floating(x)
    axes = axes_of(axis, x.ndim, "var")
    wide = _wide(x)
    deviation = elementwise.apply("subtract", wide, mean(wide, axis=axes, keepdims=True))
    total = sum(elementwise.apply("multiply", deviation, deviation), axis=axes, keepdims=keepdims)
    count = size_of(x.shape, axes) - correction
    return elementwise.astype(elementwise.apply("divide", total, float(count if count > 0 else 0)), x.dtype)


def std(x: Any, axis: Axis = None, correction: float = 0, keepdims: bool = False) -> Variable:
    """The standard deviation over axes, by default all; where it is zero, it has no derivative (NaN comes out)."""
    made: Variable = elementwise.apply("sqrt", var(x, axis=axis, correction=correction, keepdims=keepdims))
    return made


def _cumsum(array: Any, axis: int) -> Any:
    return array.cumsum(axis=axis)


def _pull_cumsum(node: Node, cotangents: Cotangents, wanted: tuple[bool, ...]) -> Pulled:  # noqa: ARG001
    axis = node.static["axis"]
    return (flip(cumsum(flip(cotangents[0], axis), axis), axis),)


_CUMSUM = Primitive("cumsum", _cumsum, _pull_cumsum)


def cumsum(x: Any, axis: int | None = None) -> Variable:
    """The sums of the elements up to each along an axis; without one, along the flattened array."""
    x = constant(x)
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    made: Variable = run(_CUMSUM, (x,), axis=axis_of(axis, x.ndim, "cumsum"))
    return made


def cumulative_sum(x: Any, axis: int | None = None) -> Variable:
    """`cumsum` by the name and meaning of the array API standard: an array of several dimensions needs an axis."""
    x = constant(x)
    if axis is None and x.ndim != 1:
        raise ArgumentError(f"cumulative_sum of an array of shape {x.shape} needs axis=")
    return cumsum(x, axis=0 if axis is None else axis)


# --- the greatest and the least ---------------------------------------------------------------------------------------


def _extreme(name: str) -> Any:
    def forward(array: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
        return getattr(array, name)(axis=axes, keepdims=keepdims)

    return forward


@differentiable_broadcast
def _is_extreme(x: Any, y: Any) -> Any:
    return 1.0 if x == y or (x != x and y != y) else 0.0


@differentiable_broadcast
def _share(cotangent: Any, x: Any, y: Any, count: Any) -> Any:
    return cotangent / count if x == y or (x != x and y != y) else 0.0


def _pull_extreme(node: Node, cotangents: Cotangents, wanted: tuple[bool, ...]) -> Pulled:  # noqa: ARG001
    """Equal elements share evenly; which elements are greatest does not change, and neither does their count."""
    x = Variable(node.inputs[0], tracked=False)
    y = Variable(_aligned(Variable(node.output(), tracked=False), node), tracked=False)
    count = sum(_wide(elementwise.apply(_is_extreme, x, y)), axis=node.static["axes"], keepdims=True)
    return (elementwise.apply(_share, _aligned(cotangents[0], node), x, y, count),)


_MAX = Primitive("max", _extreme("max"), _pull_extreme, keeps=True)
_MIN = Primitive("min", _extreme("min"), _pull_extreme, keeps=True)


def max(x: Any, axis: Axis = None, keepdims: bool = False) -> Variable:
    """The greatest element along axes, by default all. Where several are, the cotangent is shared evenly among them.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(graph.max)(np.array([1.0, 3.0, 3.0]))
    array([0. , 0.5, 0.5])
    """
    x = constant(x)
    made: Variable = run(_MAX, (x,), axes=axes_of(axis, x.ndim, "max"), keepdims=keepdims)
    return made


def min(x: Any, axis: Axis = None, keepdims: bool = False) -> Variable:
    """The least element along axes, by default all. Where several are, the cotangent is shared evenly among them."""
    x = constant(x)
    made: Variable = run(_MIN, (x,), axes=axes_of(axis, x.ndim, "min"), keepdims=keepdims)
    return made


# --- products ---------------------------------------------------------------------------------------------------------


def prod(x: Any, axis: Axis = None, keepdims: bool = False) -> Variable:
    """The product over axes, by default all.

    It is multiplied in pairs, so all its derivatives are right where factors are zero.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(graph.prod)(np.array([2.0, 0.0, 3.0]))
    array([0., 6., 0.])
    """
    x = constant(x)
    axes = axes_of(axis, x.ndim, "prod")
    shape = _left(x.shape, axes)
    result = _kept(x.shape, axes) if keepdims else shape
    if not is_float(x.dtype):
        return Variable._of(as_array(x.array.prod(axis=axes, keepdims=keepdims)), False)
    # The axes in one, at the front.
    factors = reshape(moveaxis(x, axes, tuple(range(len(axes)))), (size_of(x.shape, axes), *shape))
    while factors.shape[0] > 1:
        half = factors.shape[0] // 2
        pairs = elementwise.apply("multiply", factors[:half], factors[half : 2 * half])
        factors = concat([pairs, factors[2 * half :]]) if factors.shape[0] % 2 else pairs
    if factors.shape[0] == 0:
        return Variable._of(namespace(x).ones(result, dtype=x.dtype), False)
    return reshape(factors, result)


# --- exponentials -----------------------------------------------------------------------------------------------------


def _logsumexp(array: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    xp = namespace(array)
    greatest = array.max(axis=axes, keepdims=True)
    # Where the greatest is infinite the difference is to be so, too, and not NaN.
    greatest = xp.where(xp.isfinite(greatest), greatest, xp.zeros_like(greatest))
    with np.errstate(divide="ignore", over="ignore"):
        found = xp.log(sum(_powers(array, greatest), axis=axes, keepdims=True).array) + greatest
    return found if keepdims else found.reshape(_left(array.shape, axes))


def _powers(array: Any, greatest: Any) -> Variable:
    """The exponentials of arrays without their greatest elements: constants, to be summed as they are computed."""
    if not _is_for_kernels(array):
        return Variable._of(as_array(namespace(array).exp(array - greatest)), False)
    found: Variable = elementwise.apply(
        "exp", elementwise.apply("subtract", Variable._of(array, False), Variable._of(as_array(greatest), False))
    )
    return found


def _pull_logsumexp(node: Node, cotangents: Cotangents, wanted: tuple[bool, ...]) -> Pulled:  # noqa: ARG001
    total = _aligned(node.output(), node)
    # Where all terms are zero, no element has a share; inf - inf would be NaN.
    total = elementwise.where(Variable._of(as_array(total.array == -np.inf), False), 0.0, total)
    shares = elementwise.apply("exp", elementwise.apply("subtract", node.inputs[0], total))
    return (elementwise.apply("multiply", _aligned(cotangents[0], node), shares),)


_LOGSUMEXP = Primitive("logsumexp", _logsumexp, _pull_logsumexp, keeps=True)


def logsumexp(x: Any, axis: Axis = None, keepdims: bool = False) -> Variable:
    """log(sum(exp(x))) over axes, by default all, without overflow.

    Elements of -inf count as nothing; where there are no others, the result is -inf with a derivative of zero.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> value, slope = graph.value_and_grad(graph.logsumexp)(np.array([1000.0, 1000.0, -np.inf]))
    >>> print(value.round(4), slope)
    1000.6931 [0.5 0.5 0. ]
    """
    x = _floating(x)
    axes = axes_of(axis, x.ndim, "logsumexp")
    if size_of(x.shape, axes) == 0:
        raise ShapeError(f"logsumexp over no elements, of an array of shape {x.shape}")
    made: Variable = run(_LOGSUMEXP, (x,), axes=axes, keepdims=keepdims)
    return made


def _softmax(array: Any, axes: tuple[int, ...]) -> Any:
    powers = _powers(array, array.max(axis=axes, keepdims=True))
    total = sum(powers, axis=axes, keepdims=True)
    if not _is_for_kernels(array):
        return powers.array / total.array
    return elementwise.apply("divide", powers, total).array


def _pull_softmax(node: Node, cotangents: Cotangents, wanted: tuple[bool, ...]) -> Pulled:  # noqa: ARG001
    y = node.output()
    weighted = elementwise.apply("multiply", cotangents[0], y)
    total = sum(weighted, axis=node.static["axes"], keepdims=True)
    return (elementwise.apply("subtract", weighted, elementwise.apply("multiply", y, total)),)


_SOFTMAX = Primitive("softmax", _softmax, _pull_softmax, keeps=True)


def softmax(x: Any, axis: Axis = -1) -> Variable:
    """exp(x) / sum(exp(x)) along axes, without overflow; where all elements are -inf it is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.softmax(np.array([1000.0, 1000.0, -np.inf]))
    Variable([0.5, 0.5, 0. ])
    """
    x = _floating(x)
    axes = axes_of(axis, x.ndim, "softmax")
    made: Variable = run(_SOFTMAX, (x,), axes=axes) if x.size else x
    return made


def log_softmax(x: Any, axis: Axis = -1) -> Variable:
    """The logarithm of `softmax`, without the loss of small numbers."""
    x = _floating(x)
    made: Variable = elementwise.apply("subtract", x, logsumexp(x, axis=axis, keepdims=True))
    return made


def _floating(x: Any) -> Variable:
    """Integers and bools become float64, as in NumPy."""
    x = constant(x)
    return x if is_float(x.dtype) else elementwise.astype(x, np.float64)


def _wide(x: Variable) -> Variable:
    """Half precision is summed in float32, where NumPy does so, too: 65504 is the greatest float16."""
    return elementwise.astype(x, np.float32) if x.dtype.itemsize == 2 else x


# At the end, because it works on Variables by way of this module.
import dualbcast.graph.elementwise as elementwise  # noqa: E402
import dualbcast.graph.fused_region as region  # noqa: E402
