"""Averages, and sums of what is a number: average, nansum, nanmean.

Comes in: a Variable or array, with axes. Goes out: a Variable of sums, as by NumPy.
"""

from __future__ import annotations

from typing import Any

from dualbcast.errors import ShapeError
from dualbcast.graph import shapes
from dualbcast.graph.arrays import is_inexact
from dualbcast.graph.elementwise import apply, astype, where
from dualbcast.graph.primitives import constant
from dualbcast.graph.reductions import mean
from dualbcast.graph.variable import Axis, Variable


def average(a: Any, axis: Axis = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False) -> Any:
    """The mean with weights: `numpy.average`.

    Parameters
    ----------
    a : Variable or array
    axis : int or tuple of int, optional
    weights : Variable or array, optional
        Of the shape of `a`, or of its lengths along the axes. By default all weights are one.
    returned : bool
        Whether the sums of the weights are given as well.
    keepdims : bool
        Keep the axes, with length 1.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(lambda w: np.average(np.array([1.0, 4.0]), weights=w))(np.array([1.0, 2.0])).round(3)
    array([-0.667,  0.333])
    """
    x = constant(a)
    axes = shapes.axes_of(axis, x.ndim, "average")
    if weights is None:
        found = mean(x, axis=axes, keepdims=keepdims)
        count = x.namespace.full(found.shape, shapes.size_of(x.shape, axes), dtype=found.dtype)
        return (found, constant(count)) if returned else found
    w = constant(weights)
    if w.shape != x.shape:
        if w.shape != tuple([x.shape[at] for at in axes]) or axis is None:
            raise ShapeError(f"average: weights of shape {w.shape} for an array of shape {x.shape} and axis={axis}")
        order = sorted(range(len(axes)), key=axes.__getitem__)
        w = shapes.permute_dims(w, order)
        w = shapes.reshape(w, [size if at in axes else 1 for at, size in enumerate(x.shape)])
    total = shapes.sum(w, axis=axes, keepdims=keepdims)
    found = shapes.sum(apply("multiply", x, w), axis=axes, keepdims=keepdims) / total
    return (found, shapes.broadcast_to(total, found.shape)) if returned else found


def nansum(a: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Variable:
    """The sum over axes, by default all, of the elements that are not NaN: `numpy.nansum`."""
    x = constant(a)
    return shapes.sum(where(apply("isnan", x), 0, x), axis=axis, dtype=dtype, keepdims=keepdims)


def nanmean(a: Any, axis: Axis = None, *, keepdims: bool = False) -> Variable:
    """The mean over axes, by default all, of the elements that are not NaN: `numpy.nanmean`."""
    x = constant(a)
    numbers = where(apply("isnan", x), 0.0, 1.0)
    count: Variable = shapes.sum(numbers, axis=axis, keepdims=keepdims)
    quotient: Variable = apply("divide", nansum(x, axis, keepdims=keepdims), count)
    return astype(quotient, x.dtype) if is_inexact(x.dtype) else quotient
