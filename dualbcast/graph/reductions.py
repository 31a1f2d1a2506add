"""Reductions over axes: mean, var, max, min, prod, cumsum, logsumexp, softmax.

Comes in: a Variable or array, with axes. Goes out: a Variable with one element for all elements along these axes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualbcast.api.function import differentiable_broadcast
from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.graph import shapes
from dualbcast.graph.arrays import as_array, is_complex, is_inexact, namespace
from dualbcast.graph.elementwise import apply, astype, call, floating, where
from dualbcast.graph.primitives import constant, output_of, run
from dualbcast.graph.recording import fresh_constant
from dualbcast.graph.tape import Node, Primitive, unary
from dualbcast.graph.variable import Axis, Variable, method


def _aligned(reduced: Any, node: Node) -> Variable:
    """The result of a reduction with its axes kept at length 1, so that it broadcasts with the input."""
    return shapes.reshape(reduced, shapes.keepdims_shape(node.inputs[0].shape, node.static["axis"]))


@method
def mean(x: Any, axis: Axis = None, keepdims: bool = False) -> Variable:
    """The mean over axes, by default all."""
    x = floating(x)
    axes = shapes.axes_of(axis, x.ndim, "mean")
    total = shapes.sum(_wide(x), axis=axes, keepdims=keepdims)
    return astype(apply("divide", total, float(shapes.size_of(x.shape, axes))), x.dtype)


@method
def var(
    x: Any, axis: Axis = None, correction: float = 0, keepdims: bool = False, ddof: float | None = None
) -> Variable:
    """The variance over axes, by default all.

    Parameters
    ----------
    x : Variable or array
    axis : int or tuple of int, optional
    correction : float
        The sum of squares is divided by the number of elements less this: 1 for the unbiased estimate.
    keepdims : bool
        Keep the axes, with length 1.
    ddof : float, optional
        NumPy's other name for the correction.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(lambda v: graph.var(v, correction=1))(np.array([1.0, 2.0, 6.0]))
    array([-2., -1.,  3.])
    """
    x = floating(x)
    axes = shapes.axes_of(axis, x.ndim, "var")
    wide = _wide(x)
    deviation = apply("subtract", wide, mean(wide, axis=axes, keepdims=True))
    deviation = apply("absolute", deviation) if is_complex(x) else deviation
    total = shapes.sum(apply("multiply", deviation, deviation), axis=axes, keepdims=keepdims)
    correction = correction if ddof is None else ddof
    count = shapes.size_of(x.shape, axes) - correction
    return astype(apply("divide", total, float(count if count > 0 else 0)), x.real.dtype)


@method
def std(
    x: Any, axis: Axis = None, correction: float = 0, keepdims: bool = False, ddof: float | None = None
) -> Variable:
    """The standard deviation over axes, by default all; see `var`. Where it is zero, its derivative is NaN."""
    return apply("sqrt", var(x, axis, correction, keepdims, ddof))


def _pullback_of_cumsum(node: Node, cotangent: Variable) -> Variable:
    axis = node.static["axis"]
    return shapes.flip(cumsum(shapes.flip(cotangent, axis), axis), axis)


_CUMSUM = unary("cumsum", lambda array, axis: array.cumsum(axis=axis), _pullback_of_cumsum, is_linear=True)


@method
def cumsum(x: Any, axis: int | None = None) -> Variable:
    """Running sums along an axis; without one, along the flattened array."""
    x = constant(x)
    if axis is None:
        x, axis = shapes.reshape(x, (-1,)), 0
    return run(_CUMSUM, (x,), axis=shapes.axis_of(axis, x.ndim, "cumsum"))


def cumulative_sum(x: Any, axis: int | None = None) -> Variable:
    """`cumsum` by the name and meaning of the array API standard: an array of several dimensions needs an axis."""
    x = constant(x)
    if axis is None and x.ndim != 1:
        raise ArgumentError(f"cumulative_sum of an array of shape {x.shape} needs axis=")
    return cumsum(x, axis=0 if axis is None else axis)


@differentiable_broadcast
def _share(cotangent: Any, x: Any, y: Any, count: Any) -> Any:
    return cotangent / count if x == y or (x != x and y != y) else 0.0


def _pullback_of_extreme(node: Node, cotangent: Variable) -> Any:
    """Equal elements share evenly; which elements are greatest does not change, and neither does their count."""
    x = Variable(node.inputs[0], tracked=False)
    y = Variable(_aligned(Variable(output_of(node), tracked=False), node), tracked=False)
    count = shapes.sum(_wide(call(_share, (1.0, x, y, 1.0))), axis=node.static["axis"], keepdims=True)
    return call(_share, (_aligned(cotangent, node), x, y, count))


_MAX = unary("max", lambda array, **named: array.max(**named), _pullback_of_extreme, saves_outputs=True)
_MIN = unary("min", lambda array, **named: array.min(**named), _pullback_of_extreme, saves_outputs=True)


@method
def max(x: Any, axis: Axis = None, keepdims: bool = False) -> Variable:
    """The greatest element along axes, by default all. Equal greatest elements share the cotangent evenly.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(graph.max)(np.array([1.0, 3.0, 3.0]))
    array([0. , 0.5, 0.5])
    """
    x = constant(x)
    return run(_MAX, (x,), axis=shapes.axes_of(axis, x.ndim, "max"), keepdims=keepdims)


@method
def min(x: Any, axis: Axis = None, keepdims: bool = False) -> Variable:
    """The least element along axes, by default all. Equal least elements share the cotangent evenly."""
    x = constant(x)
    return run(_MIN, (x,), axis=shapes.axes_of(axis, x.ndim, "min"), keepdims=keepdims)


# Of integers; without a derivative.
_PROD = Primitive("prod", lambda array, **named: array.prod(**named), None)


@method
def prod(x: Any, axis: Axis = None, keepdims: bool = False) -> Variable:
    """The product over axes, by default all.

    Factors are multiplied in pairs, so all derivatives are right where factors are zero.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(graph.prod)(np.array([2.0, 0.0, 3.0]))
    array([0., 6., 0.])
    """
    x = constant(x)
    axes = shapes.axes_of(axis, x.ndim, "prod")
    if not is_inexact(x.dtype):
        return run(_PROD, (x,), axis=axes, keepdims=keepdims)
    # All axes become one, at the front.
    front = shapes.moveaxis(x, axes, tuple(range(len(axes))))
    factors = shapes.reshape(front, (shapes.size_of(x.shape, axes), *front.shape[len(axes) :]))
    result = shapes.keepdims_shape(x.shape, axes) if keepdims else factors.shape[1:]
    while factors.shape[0] > 1:
        half = factors.shape[0] // 2
        pairs = apply("multiply", factors[:half], factors[half : 2 * half])
        factors = shapes.concat([pairs, factors[2 * half :]]) if factors.shape[0] % 2 else pairs
    if factors.shape[0] == 0:
        return Variable._of(fresh_constant(namespace(x).ones(result, dtype=x.dtype)), False)
    return shapes.reshape(factors, result)


def _logsumexp(array: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    xp = namespace(array)
    greatest = array.max(axis=axis, keepdims=True)
    # Where the greatest is infinite, the difference must be infinite, too, and not NaN.
    greatest = xp.where(xp.isfinite(greatest), greatest, xp.zeros_like(greatest))
    with np.errstate(divide="ignore", over="ignore"):
        result = xp.log(shapes.sum(_powers(array, greatest), axis=axis, keepdims=True).array) + greatest
    return result if keepdims else result.squeeze(axis)


def _powers(array: Any, greatest: Any) -> Variable:
    """The exponentials of an array less its greatest elements. The kernel that computes many of them can sum them."""
    if not shapes.is_for_kernels(array):
        return Variable._of(as_array(namespace(array).exp(array - greatest)), False)
    return apply("exp", apply("subtract", Variable._of(array, False), Variable._of(as_array(greatest), False)))


_EQUAL = Primitive("equal", np.equal, None)


def _pullback_of_logsumexp(node: Node, cotangent: Variable) -> Variable:
    total = _aligned(output_of(node), node)
    # Where all terms are zero, no element has a share; inf - inf would be NaN.
    total = where(run(_EQUAL, (total.array, -np.inf)), 0.0, total)
    shares = apply("exp", apply("subtract", node.inputs[0], total))
    return apply("multiply", _aligned(cotangent, node), shares)


_LOGSUMEXP = unary("logsumexp", _logsumexp, _pullback_of_logsumexp, saves_outputs=True)


def logsumexp(x: Any, axis: Axis = None, keepdims: bool = False) -> Variable:
    """log(sum(exp(x))) over axes, by default all, without overflow.

    Elements of -inf add nothing to the sum. If all elements are -inf, the result is -inf with a derivative of zero.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> value, slope = graph.value_and_grad(graph.logsumexp)(np.array([1000.0, 1000.0, -np.inf]))
    >>> print(value.round(4), slope)
    1000.6931 [0.5 0.5 0. ]
    """
    x = floating(x)
    axes = shapes.axes_of(axis, x.ndim, "logsumexp")
    if shapes.size_of(x.shape, axes) == 0:
        raise ShapeError(f"logsumexp over no elements, of an array of shape {x.shape}")
    return run(_LOGSUMEXP, (x,), axis=axes, keepdims=keepdims)


def _softmax(array: Any, axis: tuple[int, ...]) -> Any:
    powers = _powers(array, array.max(axis=axis, keepdims=True))
    total = shapes.sum(powers, axis=axis, keepdims=True)
    return apply("divide", powers, total).array if shapes.is_for_kernels(array) else powers.array / total.array


def _pullback_of_softmax(node: Node, cotangent: Variable) -> Variable:
    y = output_of(node)
    weighted = apply("multiply", cotangent, y)
    total = shapes.sum(weighted, axis=node.static["axis"], keepdims=True)
    return apply("subtract", weighted, apply("multiply", y, total))


_SOFTMAX = unary("softmax", _softmax, _pullback_of_softmax, saves_outputs=True)


def softmax(x: Any, axis: Axis = -1) -> Variable:
    """exp(x) / sum(exp(x)) along axes, without overflow. If all elements are -inf, it is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.softmax(np.array([1000.0, 1000.0, -np.inf]))
    Variable([0.5, 0.5, 0. ])
    """
    x = floating(x)
    axes = shapes.axes_of(axis, x.ndim, "softmax")
    return run(_SOFTMAX, (x,), axis=axes) if x.size else x


def log_softmax(x: Any, axis: Axis = -1) -> Variable:
    """The logarithm of `softmax`, also accurate where `softmax` underflows."""
    x = floating(x)
    return apply("subtract", x, logsumexp(x, axis=axis, keepdims=True))


def _wide(x: Variable) -> Variable:
    """Half precision becomes float32 before it is summed, as in NumPy: the greatest float16 is 65504."""
    return astype(x, np.float32) if x.dtype.itemsize == 2 else x
