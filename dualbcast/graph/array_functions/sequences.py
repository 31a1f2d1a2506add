"""Samples along an axis: diff, gradient, cumprod, trapezoid, convolve, correlate, interp, polyval, sinc.

Comes in: Variables or arrays. Goes out: Variables, as by NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualbcast.api.function import differentiable_broadcast
from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.graph import shapes
from dualbcast.graph.arrays import is_inexact, namespace
from dualbcast.graph.elementwise import apply, astype, call, floating, where
from dualbcast.graph.primitives import constant, run
from dualbcast.graph.tape import Cotangents, Node, Primitive
from dualbcast.graph.variable import Variable, method


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Variable:
    """The differences of neighbours along an axis, taken n times: `numpy.diff`."""
    x = constant(a)
    at = shapes.axis_of(axis, x.ndim, "diff")
    if n < 0:
        raise ArgumentError(f"diff: n={n} is negative")
    ends = [None if each is None else _beside(x, each) for each in (prepend, append)]
    first, last = (
        shapes.broadcast_to(end, shapes.keepdims_shape(x.shape, (at,))) if end is not None and end.ndim == 0 else end
        for end in ends
    )
    if n and not first is last is None:
        x = shapes.concat([each for each in (first, x, last) if each is not None], at)
    before = (slice(None),) * at
    difference = "not_equal" if x.dtype == np.bool_ else "subtract"
    for _ in range(n):
        x = apply(difference, x[(*before, slice(1, None))], x[(*before, slice(-1))])
    return x


def gradient(f: Any, *spacing: Any, axis: int | Sequence[int] | None = None, edge_order: int = 1) -> Any:
    """The derivative of samples along axes, by differences: `numpy.gradient`.

    Parameters
    ----------
    f : Variable or array
    *spacing : number or array
        One number for all axes, by default 1; or for each axis a number, or the places of the samples.
    axis : int or sequence of int, optional
        By default all axes.
    edge_order : {1, 2}
        Of how many differences the derivative at both ends is made.

    Returns
    -------
    Variable or tuple of Variable
        One for each axis.
    """
    x = constant(f)
    axes = shapes.axes_of(tuple(axis) if isinstance(axis, Sequence) else axis, x.ndim, "gradient")
    steps = spacing or (1.0,)
    steps = steps * len(axes) if len(steps) == 1 else steps
    if len(steps) != len(axes) or edge_order not in (1, 2):
        raise ArgumentError(f"gradient: {len(steps)} distances for {len(axes)} axes, and edge_order={edge_order}")
    found = tuple([_slopes(x, at, step, edge_order) for at, step in zip(axes, steps, strict=True)])
    return found[0] if len(found) == 1 else found


def _slopes(x: Variable, axis: int, step: Any, edge_order: int) -> Variable:
    y, count = shapes.moveaxis(floating(x), axis, -1), x.shape[axis]
    if count <= edge_order:
        raise ShapeError(f"gradient along an axis of length {count}, which must be {edge_order + 1} at least")
    places = _beside(x, step)
    if places.ndim and places.shape != (count,):
        raise ShapeError(f"gradient: {places.shape} places for an axis of length {count}")
    dx = astype(diff(places) if places.ndim else shapes.broadcast_to(places, (count - 1,)), y.dtype)
    rise = diff(y) / dx
    first, last, p, q = rise[..., :1], rise[..., -1:], dx[:-1], dx[1:]
    # The derivative of the parabola through three points, in the middle.
    middle = (rise[..., :-1] * q + rise[..., 1:] * p) / (p + q)
    if edge_order == 2:
        first, last = 2.0 * first - middle[..., :1], 2.0 * last - middle[..., -1:]
    return shapes.moveaxis(shapes.concat([first, middle, last], -1), -1, axis)


def _beside(x: Variable, value: Any) -> Variable:
    """A number or array as a Variable of the array library of `x`."""
    return value if isinstance(value, Variable) else constant(x.namespace.asarray(value))


_CUMPROD = Primitive("cumprod", lambda array, axis: array.cumprod(axis=axis), None)


@method
def cumprod(x: Any, axis: int | None = None) -> Variable:
    """Running products along an axis; without one, along the flattened array.

    All derivatives are right where factors are zero.
    """
    x = constant(x)
    if axis is None:
        x, axis = shapes.reshape(x, (-1,)), 0
    at = shapes.axis_of(axis, x.ndim, "cumprod")
    if not is_inexact(x.dtype):
        return run(_CUMPROD, (x,), axis=at)
    products, reach = shapes.moveaxis(x, at, 0), 1
    # Each product reaches twice as far back every time.
    while reach < products.shape[0]:
        further = apply("multiply", products[reach:], products[:-reach])
        products, reach = shapes.concat([products[:reach], further]), 2 * reach
    return shapes.moveaxis(products, 0, at)


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Variable:
    """The integral along an axis by the trapezoidal rule: `numpy.trapezoid`."""
    y = constant(y)
    at = shapes.axis_of(axis, y.ndim, "trapezoid")
    if x is not None:
        x = constant(x)
        dx = diff(x, axis=axis) if x.ndim != 1 else shapes.reshape(diff(x), (-1, *[1] * (y.ndim - at - 1)))
    before = (slice(None),) * at
    return shapes.sum(dx * (y[(*before, slice(1, None))] + y[(*before, slice(-1))]) / 2.0, axis=axis)


def _pullback_of_convolve(node: Node, cotangents: Cotangents, wanted: tuple[bool, ...]) -> Cotangents:
    a, v = node.inputs

    def pulled(this: Variable, other: Variable) -> Variable:
        return run(_CONVOLVE, (cotangents[0], shapes.flip(other)))[other.size - 1 : other.size - 1 + this.size]

    return pulled(a, v) if wanted[0] else None, pulled(v, a) if wanted[1] else None


_CONVOLVE = Primitive("convolve", lambda a, v: namespace(a, v).convolve(a, v), _pullback_of_convolve, linear_in="each")


def _convolved(a: Any, v: Any, mode: str, same: bool, name: str) -> Variable:
    """A convolution, of which the part that is "same" begins later, or else earlier, if there is no middle."""
    a, v = constant(a), constant(v)
    if a.ndim != 1 or v.ndim != 1 or not a.size or not v.size:
        raise ShapeError(f"{name} is of two sequences that are not empty; the shapes are {a.shape} and {v.shape}")
    shorter, longer = sorted([a.size, v.size])
    starts = {"full": 0, "same": shorter // 2 if same else (shorter - 1) // 2, "valid": shorter - 1}
    if mode not in starts:
        raise ArgumentError(f"{name} has the modes {', '.join(starts)}, not {mode!r}")
    length = {"full": longer + shorter - 1, "same": longer, "valid": longer - shorter + 1}[mode]
    return run(_CONVOLVE, (a, v))[starts[mode] : starts[mode] + length]


def convolve(a: Any, v: Any, mode: str = "full") -> Variable:
    """The convolution of two sequences: `numpy.convolve`.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(lambda v: np.convolve(np.array([1.0, 2.0, 4.0]), v)[1])(np.array([0.5, 0.25]))
    array([2., 1.])
    """
    return _convolved(a, v, mode, False, "convolve")


def correlate(a: Any, v: Any, mode: str = "valid") -> Variable:
    """The cross-correlation of two sequences: `numpy.correlate`."""
    a, v = constant(a), constant(v)
    return _convolved(a, shapes.flip(v).conj(), mode, v.size > a.size, "correlate")


def _below(xp: Any, x: Any) -> Any:
    return namespace(xp, x).clip(namespace(xp, x).searchsorted(xp, x, side="right") - 1, 0, max(xp.size - 2, 0))


# For each number the last of sorted points that is not greater, but not the last of all.
BELOW = Primitive("interp", _below, None)


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: float | None = None) -> Variable:
    """The line through points (xp, fp) at x: `numpy.interp`.

    At a point the derivative in `x` is that of the piece after it, and at the last point that of the last piece. Beyond
    the points it is zero. (With `tables.interp` in a kernel it is zero at the last point, too.)

    Parameters
    ----------
    x : Variable or array
    xp : Variable or array
        Of shape (n,). In ascending order, unless there is a period.
    fp : Variable or array
        Of shape (n,).
    left, right : number or Variable, optional
        The values before the first point and after the last, by default theirs.
    period : number, optional
        The points come again after it.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> xp, fp = np.array([0.0, 1.0, 3.0]), np.array([0.0, 2.0, 0.0])
    >>> graph.grad(lambda x, fp: np.interp(x, xp, fp), wrt=(0, 1))(2.5, fp)
    (np.float64(-1.0), array([0.  , 0.25, 0.75]))
    """
    x, xp, fp = map(floating, (x, xp, fp))
    if xp.ndim != 1 or fp.shape != xp.shape or not xp.size:
        raise ShapeError(f"interp: the points are of two sequences of one length, not {xp.shape} and {fp.shape}")
    if period is not None:
        x, xp = apply("remainder", x, period), apply("remainder", xp, period)
        order = run(_SORTED, (xp,))
        xp, fp, left, right = xp[order], fp[order], None, None
        xp = shapes.concat([xp[-1:] - period, xp, xp[:1] + period])
        fp = shapes.concat([fp[-1:], fp, fp[:1]])
    below = run(BELOW, (xp, x))
    above = apply("minimum", apply("add", below, 1), xp.size - 1)
    x0, gap, y0, y1 = xp[below], xp[above] - xp[below], fp[below], fp[above]
    is_jump = apply("equal", gap, 0.0)
    inside = where(is_jump, y1, y0 + (y1 - y0) / where(is_jump, 1.0, gap) * (x - x0))
    outside = where(apply("less", x, xp[0]), fp[0] if left is None else left, inside)
    return where(apply("greater", x, xp[-1]), fp[-1] if right is None else right, outside)


_SORTED = Primitive("interp", lambda array: namespace(array).argsort(array, stable=True), None)


def polyval(p: Any, x: Any) -> Variable:
    """The polynomial with these coefficients, the highest first, at x, by Horner's rule: `numpy.polyval`."""
    is_list = isinstance(p, list | tuple) and any(isinstance(each, Variable) for each in p)
    coefficients = p if is_list or isinstance(p, Variable) else np.asarray(p)
    x = constant(x)
    value = apply("multiply", x, 0)
    for each in coefficients:
        value = apply("add", apply("multiply", value, x), each)
    return value


@differentiable_broadcast
def _sinc(x: Any) -> Any:
    return np.sinc(x)


def sinc(x: Any) -> Variable:
    """sin(pi * x) / (pi * x) of each element, 1 at 0: `numpy.sinc`."""
    value: Variable = call(_sinc, (constant(x),), "sinc")
    return value
