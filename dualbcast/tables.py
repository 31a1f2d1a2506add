"""Look-up of tabulated data in the language of scalar functions: the tables are whole arrays.

The functions take numbers and arrays. In plain Python they work on NumPy's arrays, and in a kernel on parameters that
the decorator is told of by ``whole=``. Each has derivatives in the numbers and, as cotangents, in the tables.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError

__all__ = [
    "bilinear",
    "cubic_hermite",
    "cubic_spline",
    "index",
    "interp",
    "natural_spline",
    "searchsorted",
    "trilinear",
]


def __dir__() -> list[str]:
    """The public names, for completion at the prompt."""
    return __all__


def index(axis: int) -> int:
    """The place of the element that is being computed, along an axis of the result.

    Parameters
    ----------
    axis : int
        Which axis of the shape that the arguments broadcast to; negative ones count from the last.

    Returns
    -------
    int
        It has no derivative.

    Raises
    ------
    ValueError
        The function runs in plain Python, where there is no result that it is an element of.

    Examples
    --------
    A difference of neighbours, with the last element as its own neighbour:

    >>> import numpy as np
    >>> from dualbcast import differentiable_broadcast
    >>> @differentiable_broadcast(whole="line")
    ... def step(u, line):
    ...     return line[min(index(0) + 1, len(line) - 1)] - u
    >>> u = np.array([1.0, 4.0, 9.0])
    >>> step(u, u)
    array([3., 5., 0.])
    """
    raise ValueError(f"index({axis}) is the place of an element, which only a kernel knows")


def searchsorted(a: Any, v: float, side: str = "left") -> int:
    """The place among sorted numbers where a number belongs: `numpy.searchsorted`.

    Parameters
    ----------
    a : array of shape (n,)
        Sorted numbers.
    v : float
        The number to place. NaN comes after all.
    side : {"left", "right"}
        Whether it comes before or after those that are equal.

    Returns
    -------
    int
        From 0 to n. It has no derivative.

    Examples
    --------
    >>> import numpy as np
    >>> searchsorted(np.array([1.0, 2.0, 2.0, 5.0]), 2.0), searchsorted(np.array([1.0, 2.0, 2.0, 5.0]), 2.0, "right")
    (1, 3)
    """
    if side != "left" and side != "right":
        raise ValueError("searchsorted: side is 'left' or 'right'")
    place, length = 0, len(a)
    # As many steps for all numbers: vectors take them side by side.
    while length > 0:
        half = (length + 1) >> 1
        found = np.take(a, place + half - 1, mode="clip")
        is_after = found < v if side == "left" else found <= v
        # A NaN is after every number.
        place = place + half if is_after or v != v else place
        length = length - half
    return min(place, len(a))


def _interval(x: float, xp: Any) -> int:
    """The last i below len(xp) - 1 with xp[i] <= x, or 0."""
    return max(min(searchsorted(xp, x, "right") - 1, len(xp) - 2), 0)


def interp(x: float, xp: Any, fp: Any, left: float | None = None, right: float | None = None) -> float:
    """Linear interpolation between the points of a table: `numpy.interp`.

    Parameters
    ----------
    x : float
        Where to interpolate.
    xp : array of shape (n,)
        The places of the points, which increase.
    fp : array of shape (n,)
        The values there.
    left, right : float, optional
        The values below xp[0] and above xp[-1]; by default fp[0] and fp[-1].

    Returns
    -------
    float
        At a point the derivative in x is that of the interval after it; at the last point and outside of the table it
        is 0. NaN where xp and fp have different lengths.

    Examples
    --------
    >>> import numpy as np
    >>> float(interp(1.5, np.array([0.0, 1.0, 3.0]), np.array([10.0, 20.0, 40.0])))
    25.0
    """
    if len(fp) != len(xp):
        return math.nan
    i = _interval(x, xp)
    begin, end = _ends(xp, i)
    low, high = _ends(fp, i)
    if x < begin:
        return float(low) if left is None else left
    if x >= end and i >= len(xp) - 2:
        return float(high) if right is None or x == end else right
    slope = (high - low) / (end - begin)
    value = low + slope * (x - begin)
    # From the other end where the first is infinite.
    return float(value if value == value else high + slope * (x - end))


def cubic_hermite(x: float, xp: Any, fp: Any, slopes: Any) -> float:
    """Interpolation by cubic polynomials with given values and slopes at the points of a table.

    Parameters
    ----------
    x : float
        Where to interpolate; beyond the table the polynomials at its ends go on.
    xp, fp, slopes : array of shape (n,), n > 1
        The places of the points, which increase, the values and the derivatives there.

    Returns
    -------
    float
        `scipy.interpolate.CubicHermiteSpline(xp, fp, slopes)(x)`. NaN where the arrays have different lengths.

    Examples
    --------
    >>> import numpy as np
    >>> xp = np.array([0.0, 1.0, 2.0])
    >>> float(cubic_hermite(1.5, xp, xp**3, 3 * xp**2))
    3.375
    """
    if len(fp) != len(xp) or len(slopes) != len(xp):
        return math.nan
    i = _interval(x, xp)
    begin, end = _ends(xp, i)
    low, high = _ends(fp, i)
    width = end - begin
    t = (x - begin) / width
    slope, next_slope = _ends(slopes, i)
    first, last = slope * width, next_slope * width
    rise = high - low
    return float(low + t * (first + t * ((3.0 * rise - 2.0 * first - last) + t * (first + last - 2.0 * rise))))


def natural_spline(xp: Any, fp: Any) -> Any:
    """The second derivatives of the natural cubic spline through the points of a table, for `cubic_spline`.

    It is a function of arrays, to be called once for a table and not in a kernel.

    Parameters
    ----------
    xp : array of shape (n,), n > 1
        The places of the points, which increase.
    fp : array of shape (n,)
        The values there.

    Returns
    -------
    array of shape (n,)
        The solution of the tridiagonal system that makes the slopes of neighbouring cubics equal, with 0 at the ends.

    Raises
    ------
    ArgumentError
        The arrays are no vectors of one length, or of complex numbers or text, or xp does not increase.

    Examples
    --------
    >>> import numpy as np
    >>> natural_spline(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 0.0]))
    array([ 0., -3.,  0.])
    """
    xp, fp = np.asarray(xp), np.asarray(fp)
    if any(array.dtype.kind in "cSU" for array in (xp, fp)):
        raise ArgumentError("natural_spline takes real numbers; complex ones have a spline for each part")
    xp, fp = xp.astype(float), fp.astype(float)
    if xp.ndim != 1 or xp.shape != fp.shape or len(xp) < 2:
        raise ArgumentError(
            f"natural_spline takes the places and values of two points or more, in arrays of one length; these have "
            f"shapes {xp.shape} and {fp.shape}"
        )
    widths, count = np.diff(xp), len(xp)
    if not np.all(widths > 0):
        raise ArgumentError("the places of a spline's points increase, and these do not; sort xp and fp by xp")
    slopes = np.diff(fp) / widths
    # The forward sweep and the back substitution of Gaussian elimination, whose pivots never vanish.
    above, second = np.zeros(count), np.zeros(count)
    for i in range(1, count - 1):
        pivot = 2.0 * (widths[i - 1] + widths[i]) - widths[i - 1] * above[i - 1]
        above[i] = widths[i] / pivot
        second[i] = (6.0 * (slopes[i] - slopes[i - 1]) - widths[i - 1] * second[i - 1]) / pivot
    for i in range(count - 2, 0, -1):
        second[i] -= above[i] * second[i + 1]
    return second


def cubic_spline(x: float, xp: Any, fp: Any, second: Any) -> float:
    """A cubic spline, given its values and second derivatives at the points of a table.

    Parameters
    ----------
    x : float
        Where to interpolate; beyond the table the polynomials at its ends go on.
    xp, fp, second : array of shape (n,), n > 1
        The places of the points, which increase, and the values and second derivatives there, such as those that
        `natural_spline` gives.

    Returns
    -------
    float
        `scipy.interpolate.CubicSpline(xp, fp, bc_type="natural")(x)` for those. NaN where the arrays have different
        lengths.

    Examples
    --------
    >>> import numpy as np
    >>> xp, fp = np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 0.0])
    >>> float(cubic_spline(0.5, xp, fp, natural_spline(xp, fp)))
    0.6875
    """
    if len(fp) != len(xp) or len(second) != len(xp):
        return math.nan
    i = _interval(x, xp)
    begin, end = _ends(xp, i)
    low, high = _ends(fp, i)
    bend, next_bend = _ends(second, i)
    width = end - begin
    t = x - begin
    slope = (high - low) / width - width * (2.0 * bend + next_bend) / 6.0
    return float(low + t * (slope + t * (0.5 * bend + t * ((next_bend - bend) / (6.0 * width)))))


def bilinear(x: float, y: float, xp: Any, yp: Any, fp: Any) -> float:
    """Interpolation in a table of two variables, linear in each; outside of the table it goes on as at its edge.

    Parameters
    ----------
    x, y : float
        Where to interpolate.
    xp : array of shape (m,), m > 1
        The places along the first axis, which increase.
    yp : array of shape (n,), n > 1
        The places along the second axis, which increase.
    fp : array of shape (m, n)
        The values.

    Returns
    -------
    float
        Inside of the table ``scipy.interpolate.RegularGridInterpolator((xp, yp), fp)((x, y))``. NaN where fp has
        another shape.

    Examples
    --------
    >>> import numpy as np
    >>> xp, yp = np.array([0.0, 1.0]), np.array([0.0, 2.0])
    >>> float(bilinear(0.5, 1.0, xp, yp, np.array([[0.0, 2.0], [4.0, 6.0]])))
    3.0
    """
    if fp.shape != (len(xp), len(yp)):
        return math.nan
    i, s = _share(x, xp)
    j, t = _share(y, yp)
    return _between(_at_row(fp, i, j, t), _at_row(fp, i + 1, j, t), s)


def trilinear(x: float, y: float, z: float, xp: Any, yp: Any, zp: Any, fp: Any) -> float:
    """Interpolation in a table of three variables, linear in each; outside of the table it goes on as at its edge.

    Parameters
    ----------
    x, y, z : float
        Where to interpolate.
    xp, yp, zp : array of shapes (l,), (m,) and (n,), each longer than 1
        The places along the axes, which increase.
    fp : array of shape (l, m, n)
        The values.

    Returns
    -------
    float
        NaN where fp has another shape.

    Examples
    --------
    >>> import numpy as np
    >>> axis = np.array([0.0, 1.0])
    >>> float(trilinear(0.5, 0.0, 1.0, axis, axis, axis, np.arange(8.0).reshape(2, 2, 2)))
    3.0
    """
    if fp.shape != (len(xp), len(yp), len(zp)):
        return math.nan
    i, r = _share(x, xp)
    j, s = _share(y, yp)
    k, t = _share(z, zp)
    low, high = np.take(fp, i, axis=0, mode="clip"), np.take(fp, i + 1, axis=0, mode="clip")
    first = _between(_at_row(low, j, k, t), _at_row(low, j + 1, k, t), s)
    last = _between(_at_row(high, j, k, t), _at_row(high, j + 1, k, t), s)
    return _between(first, last, r)


def _ends(points: Any, i: int) -> tuple[Any, Any]:
    """What is given for the ends of an interval."""
    return np.take(points, i, mode="clip"), np.take(points, i + 1, mode="clip")


def _share(x: float, xp: Any) -> tuple[int, float]:
    """The interval that x is in, and how far through it, from 0 to 1."""
    i = _interval(x, xp)
    begin, end = _ends(xp, i)
    share = (x - begin) / (end - begin)
    return i, 0.0 if share < 0 else 1.0 if share > 1 else share


def _at_row(fp: Any, i: int, j: int, t: float) -> float:
    """The value between two neighbours of a row."""
    row = np.take(fp, i, axis=0, mode="clip")
    left, right = _ends(row, j)
    return _between(left, right, t)


def _between(low: Any, high: Any, t: float) -> float:
    return float(low + (high - low) * t)
