"""Order: sort, median, quantile, percentile.

Comes in: a Variable or array, with axes. Goes out: a Variable of its elements in ascending order, or of those at
fractions of the way, as by NumPy. The derivative is that of the elements which stand there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.graph import shapes
from dualbcast.graph.arrays import namespace
from dualbcast.graph.elementwise import apply, astype, floating, where
from dualbcast.graph.indexing import take_along_axis
from dualbcast.graph.primitives import constant, run
from dualbcast.graph.tape import Primitive
from dualbcast.graph.variable import Axis, Variable

_ARGSORT = Primitive("sort", lambda array, axis: namespace(array).argsort(array, axis=axis, stable=True), None)


def sort(a: Any, axis: int | None = -1) -> Variable:
    """The elements in ascending order along an axis; without one, of the flattened array: `numpy.sort`.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(lambda v: np.sum(np.sort(v) * np.array([1.0, 2.0, 4.0])))(np.array([0.5, 3.0, 0.1]))
    array([2., 4., 1.])
    """
    x = constant(a)
    if axis is None:
        x, axis = shapes.reshape(x, (-1,)), 0
    at = shapes.axis_of(axis, x.ndim, "sort")
    return take_along_axis(x, run(_ARGSORT, (x,), axis=at), at)


def quantile(a: Any, q: Any, axis: Axis = None, *, method: str = "linear", keepdims: bool = False) -> Variable:
    """The elements at fractions of the way in ascending order: `numpy.quantile`.

    Parameters
    ----------
    a : Variable or array
    q : number or array of numbers from 0 to 1
        They carry no derivative.
    axis : int or tuple of int, optional
    method : str
        How a fraction becomes a position; the names are NumPy's.
    keepdims : bool
        Keep the axes, with length 1.

    Returns
    -------
    Variable
        Its first axes are those of `q`.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(lambda v: np.quantile(v, 0.75))(np.array([3.0, 0.0, 1.0])).round(3)
    array([0.5, 0. , 0.5])
    """
    given = constant(a)
    x = floating(given)
    axes = shapes.axes_of(axis, x.ndim, "quantile")
    count = shapes.size_of(x.shape, axes)
    if count == 0:
        raise ShapeError(f"there are no quantiles of no elements; the array has shape {x.shape}")
    q = q if type(q) in (int, float) else np.asarray(q)
    try:
        # The quantiles of the positions are the positions of the quantiles.
        at = np.quantile(np.arange(float(count)), q, method=method)  # type: ignore[call-overload]
    except ValueError as error:
        raise ArgumentError(f"quantile: {error}") from None
    last = tuple(range(x.ndim - len(axes), x.ndim))
    rest = [size for axis, size in enumerate(x.shape) if axis not in axes]
    ordered = sort(shapes.reshape(shapes.moveaxis(x, axes, last), (*rest, count)))
    # Fractions with a dtype may widen the result; and some methods give the elements themselves, integers too.
    dtype = np.quantile(np.zeros(1, given.dtype), q, method=method).dtype  # type: ignore[call-overload]
    below = np.floor(at).astype(int)
    share = x.namespace.asarray((at - below).astype(np.result_type(x.dtype, dtype)))
    lower, upper = ordered[..., below], ordered[..., np.ceil(at).astype(int)]
    # Both may be infinite, and then their difference is no number.
    result = where(share == 0, lower, lower + (upper - lower) * share)
    greatest = shapes.reshape(ordered[..., -1], (*rest, *[1] * at.ndim))
    result = astype(where(apply("isnan", greatest), greatest, result), dtype)
    result = shapes.moveaxis(result, tuple(range(len(rest), result.ndim)), tuple(range(at.ndim)))
    return shapes.reshape(result, (*at.shape, *shapes.keepdims_shape(x.shape, axes))) if keepdims else result


def percentile(a: Any, q: Any, axis: Axis = None, *, method: str = "linear", keepdims: bool = False) -> Variable:
    """As `quantile`, with percents in the place of fractions: `numpy.percentile`."""
    fraction = q / 100 if type(q) in (int, float) else np.true_divide(q, 100)
    return quantile(a, fraction, axis, method=method, keepdims=keepdims)


def median(a: Any, axis: Axis = None, *, keepdims: bool = False) -> Variable:
    """The element in the middle, or the mean of the two there: `numpy.median`; see `quantile`."""
    return quantile(a, 0.5, axis, keepdims=keepdims)
