"""Arrays put together: pad, block, triu, tril, select, cross, kron.

Comes in: Variables or arrays. Goes out: Variables of their elements in other places, or of products of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.graph import shapes
from dualbcast.graph.elementwise import apply, where
from dualbcast.graph.indexing import take
from dualbcast.graph.primitives import constant
from dualbcast.graph.variable import Variable


def tril(m: Any, k: int = 0) -> Variable:
    """The lower triangles of matrices, with zeros above the k-th diagonal: `numpy.tril`."""
    m = constant(m)
    if m.ndim < 2:
        raise ShapeError(f"tril and triu are of matrices; this has shape {m.shape}")
    return where(m.namespace.tri(*m.shape[-2:], k, dtype=bool), m, _zero_of(m))


def triu(m: Any, k: int = 0) -> Variable:
    """The upper triangles of matrices, with zeros below the k-th diagonal: `numpy.triu`."""
    m = constant(m)
    if m.ndim < 2:
        raise ShapeError(f"tril and triu are of matrices; this has shape {m.shape}")
    return where(m.namespace.tri(*m.shape[-2:], k - 1, dtype=bool), _zero_of(m), m)


def _zero_of(m: Variable) -> int:
    """A zero that does not widen the dtype: 0 would make integers of bools."""
    return False if m.dtype.kind == "b" else 0


# Modes of `pad` in which each element of the result is one of the array.
_COPYING = ("edge", "reflect", "symmetric", "wrap")


def pad(array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0, **options: Any) -> Variable:
    """An array with more elements around it: `numpy.pad`.

    Parameters
    ----------
    array : Variable or array
    pad_width : int, pair of int, or a pair for each axis; or a dict of these by axis
        How many elements are put before and after.
    mode : {"constant", "edge", "reflect", "symmetric", "wrap"}
        Which they are.
    constant_values : number, pair, or a pair for each axis
        The values before and after, for the mode "constant". They carry no derivative.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(lambda v: np.sum(np.pad(v, 2, mode="edge")))(np.array([1.0, 2.0, 3.0]))
    array([3., 1., 3.])
    """
    x = constant(array)
    if options or mode not in ("constant", *_COPYING):
        raise ArgumentError(f"pad of a Variable has the modes constant, {', '.join(_COPYING)}; no {options or mode}")
    if isinstance(pad_width, dict):
        by_axis = {shapes.axis_of(axis, x.ndim, "pad"): width for axis, width in pad_width.items()}
        pad_width = [by_axis.get(axis, 0) for axis in range(x.ndim)]
        pad_width = [each if isinstance(each, Sequence) else (each, each) for each in pad_width]
    widths = np.broadcast_to(np.asarray(pad_width, dtype=int), (x.ndim, 2)).tolist()
    values = np.broadcast_to(np.asarray(constant_values), (x.ndim, 2))
    for axis, (width, ends) in enumerate(zip(widths, values, strict=True)):
        if width == [0, 0]:
            continue
        if mode != "constant":
            x = take(x, np.pad(np.arange(x.shape[axis]), width, mode=mode), axis)  # type: ignore[call-overload]
            continue
        sides = [
            np.full((*x.shape[:axis], count, *x.shape[axis + 1 :]), end, x.dtype)
            for count, end in zip(width, ends, strict=True)
        ]
        x = shapes.concat([x.namespace.asarray(sides[0]), x, x.namespace.asarray(sides[1])], axis)
    return x


def block(arrays: Any) -> Variable:
    """An array put together from nested lists of blocks, the innermost along the last axis: `numpy.block`."""

    def depth_of(part: Any) -> int:
        return 1 + max(map(depth_of, part), default=0) if isinstance(part, list) else 0

    def parts_of(part: Any) -> list[Variable]:
        return [leaf for each in part for leaf in parts_of(each)] if isinstance(part, list) else [constant(part)]

    depth = depth_of(arrays)
    ndim = max(depth, *[each.ndim for each in parts_of(arrays)])

    def joined(part: Any, axis: int) -> Variable:
        if isinstance(part, list):
            return shapes.concat([joined(each, axis + 1) for each in part], axis)
        x = constant(part)
        return shapes.reshape(x, (1,) * (ndim - x.ndim) + x.shape)

    return joined(arrays, ndim - depth)


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Variable:
    """For each element the choice of the first condition that holds there: `numpy.select`. See `where`."""
    if len(condlist) != len(choicelist) or not condlist:
        raise ArgumentError(f"select of {len(condlist)} conditions and {len(choicelist)} choices")
    result = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        result = where(condition, choice, result)
    return constant(result)


def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Variable:
    """The cross products of vectors of three components: `numpy.cross`."""
    a, b = constant(a), constant(b)
    axisa, axisb, axisc = (axisa, axisb, axisc) if axis is None else (axis, axis, axis)
    a, b = shapes.moveaxis(a, axisa, -1), shapes.moveaxis(b, axisb, -1)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise ShapeError(f"cross is of vectors of three components; the shapes are {a.shape} and {b.shape}")
    (a0, a1, a2), (b0, b1, b2) = ([each[..., at] for at in range(3)] for each in (a, b))
    return shapes.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], axisc)


def kron(a: Any, b: Any) -> Variable:
    """The Kronecker product, of any dimensions: `numpy.kron`."""
    a, b = constant(a), constant(b)
    ndim = max(a.ndim, b.ndim)
    left, right = ((1,) * (ndim - each.ndim) + each.shape for each in (a, b))
    blocks = shapes.reshape(a, [size for length in left for size in (length, 1)])
    inside = shapes.reshape(b, [size for length in right for size in (1, length)])
    product = apply("multiply", blocks, inside)
    return shapes.reshape(product, [m * n for m, n in zip(left, right, strict=True)])
