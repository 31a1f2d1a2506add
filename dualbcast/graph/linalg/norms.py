"""Norms of vectors and matrices.

Comes in: Variables or arrays, with axes. Goes out: Variables of their norms, and of the ratios of norms that `cond` is,
as by `numpy.linalg`.
"""

from __future__ import annotations

import math
from typing import Any

from dualbcast.api.function import differentiable_broadcast
from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.graph import reductions, shapes
from dualbcast.graph.arrays import is_complex
from dualbcast.graph.elementwise import apply, call, floating
from dualbcast.graph.linalg.singular_values import svd
from dualbcast.graph.linalg.solving import inv
from dualbcast.graph.primitives import constant
from dualbcast.graph.variable import Axis, Variable


@differentiable_broadcast
def _root(total: Any, order: Any) -> Any:
    if total == 0.0:
        return 0.0
    return math.sqrt(total) if order == 2.0 else total ** (1.0 / order)


def norm(x: Any, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Variable:
    """The norm of vectors or matrices: `numpy.linalg.norm`.

    The derivative at a vector of zeros is zero, as that of `hypot` and of `abs`.

    Parameters
    ----------
    x : Variable or array
        Without `axis`, a vector or a matrix; without `ord`, of any dimensions, and flattened.
    ord : number, inf, -inf, "fro" or "nuc", optional
        By default the root of the sum of squares. Of vectors, every order but zero; of matrices 1, 2, inf, their
        negatives, "fro" and "nuc".
    axis : int or pair of int, optional
        The axis of the vectors, or those of the rows and columns of the matrices.
    keepdims : bool
        Keep the axes, with length 1.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(np.linalg.norm)(np.array([3.0, 4.0]))
    array([0.6, 0.8])
    """
    x = floating(x)
    axes = shapes.axes_of(axis, x.ndim, "norm")
    if axis is None and ord is None:
        return _of_vectors(x, 2, axes, keepdims)
    if len(axes) == 1:
        return _of_vectors(x, ord, axes, keepdims)
    if len(axes) != 2:
        raise ShapeError(f"norm of an array of shape {x.shape} needs axis=: that of vectors, or two of matrices")
    return _of_matrices(x, ord, axes, keepdims)


def vector_norm(x: Any, /, *, axis: Axis = None, keepdims: bool = False, ord: Any = 2) -> Variable:
    """The norm of all elements along axes, by default all: `numpy.linalg.vector_norm`."""
    x = floating(x)
    return _of_vectors(x, ord, shapes.axes_of(axis, x.ndim, "vector_norm"), keepdims)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Variable:
    """The norm of the matrices in the last two axes: `numpy.linalg.matrix_norm`."""
    return norm(x, ord, (-2, -1), keepdims)


def cond(x: Any, p: Any = None) -> Variable:
    """The condition numbers of matrices, by a norm and by default the spectral one: `numpy.linalg.cond`."""
    x = constant(x)
    if p in (None, 2, -2):
        s = svd(x, compute_uv=False)
        ratio: Variable = s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
        return ratio
    return norm(x, p, (-2, -1)) * norm(inv(x), p, (-2, -1))


def _of_vectors(x: Variable, order: Any, axes: tuple[int, ...], keepdims: bool) -> Variable:
    if isinstance(order, str) or order == 0:
        raise ArgumentError(f"norm of vectors: there is no derivative of the order {order!r}")
    order = 2.0 if order is None else float(order)
    sizes = apply("absolute", x) if order != 2 or is_complex(x) else x
    if math.isinf(order):
        return (reductions.max if order > 0 else reductions.min)(sizes, axis=axes, keepdims=keepdims)
    total = shapes.sum(sizes if order == 1 else apply("power", sizes, order), axis=axes, keepdims=keepdims)
    root: Variable = total if order == 1 else call(_root, (total, order), "norm")
    return root


def _of_matrices(x: Variable, order: Any, axes: tuple[int, ...], keepdims: bool) -> Variable:
    if order in (None, "fro", "f"):
        return _of_vectors(x, 2, axes, keepdims)
    matrices = shapes.moveaxis(x, axes, (-2, -1))
    if order in (2, -2, "nuc"):
        sizes = svd(matrices, compute_uv=False)
    elif order in (1, -1, math.inf, -math.inf):
        sizes = shapes.sum(apply("absolute", matrices), axis=-2 if abs(order) == 1 else -1)
    else:
        raise ArgumentError(f"norm of matrices: there is no order {order!r}")
    reduction = shapes.sum if order == "nuc" else reductions.max if order > 0 else reductions.min
    result = reduction(sizes, axis=-1)
    return shapes.reshape(result, shapes.keepdims_shape(x.shape, axes)) if keepdims else result
