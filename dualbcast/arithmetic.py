"""Arithmetic beyond the operators: remainders, signs, kinds of numbers, choices, roots and units of angles.

The functions are written in the language of scalar functions. In a kernel they follow IEEE 754, as those of `special`.
"""

from __future__ import annotations

import math

__all__ = [
    "clip",
    "degrees",
    "floor_divide",
    "fmax",
    "fmin",
    "frexp",
    "heaviside",
    "ieee_remainder",
    "inverse_root",
    "inverse_root_cubed",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "ldexp",
    "maximum",
    "minimum",
    "modf",
    "modulo",
    "nan_to_num",
    "radians",
    "reciprocal",
    "root",
    "root_cubed",
    "sign",
    "signbit",
    "square",
    "where",
]


def __dir__() -> list[str]:
    """The public names, for completion at the prompt."""
    return __all__


DEGREE = math.pi / 180.0


# --- division and floating-point numbers ---------------------------------------------------------------------------


def modulo(x: float, y: float) -> float:
    """The remainder of x by y with the sign of y: Python's `%`, `numpy.mod`.

    Examples
    --------
    >>> modulo(-1.0, 3.0), modulo(1.0, -3.0)
    (2.0, -2.0)
    """
    rest = math.fmod(x, y)
    if rest == 0:
        return math.copysign(rest, y)
    return rest + y if (rest < 0 and y > 0) or (rest > 0 and y < 0) else rest


def floor_divide(x: float, y: float) -> float:
    """The largest whole number that is not above x / y: Python's `//`, `numpy.floor_divide`.

    Examples
    --------
    >>> floor_divide(-1.0, 3.0), floor_divide(7.5, 2.0)
    (-1.0, 3.0)
    """
    if y == 0:
        return x / y
    rest = math.fmod(x, y)
    # Without the remainder the quotient is a whole number but for its rounding.
    quotient = (x - rest) / y
    if (rest < 0 and y > 0) or (rest > 0 and y < 0):
        quotient = quotient - 1.0
    if quotient == 0:
        return math.copysign(0.0, x / y)
    below = float(math.floor(quotient))
    return below + 1.0 if quotient - below > 0.5 else below


def ieee_remainder(x: float, y: float) -> float:
    """x - n * y for the whole number n nearest to x / y (the even one of two), exact: `math.remainder`.

    Examples
    --------
    >>> ieee_remainder(5.0, 3.0), ieee_remainder(5.0, 2.0)
    (-1.0, 1.0)
    """
    size = abs(y)
    rest = math.fmod(abs(x), size)
    nearest = rest if rest < size - rest else rest - size
    if rest == size - rest:
        # Halfway. abs(x) - rest is n * size; if n is odd, half of that leaves `rest` over once more.
        nearest = rest - 2.0 * math.fmod(0.5 * (abs(x) - rest), size)
    return math.copysign(1.0, x) * nearest


def ldexp(x: float, n: int) -> float:
    """x * 2**n, with the power in three parts so that none overflows before the product does.

    Examples
    --------
    >>> ldexp(0.75, 4)
    12.0
    """
    if x == 0 or not isfinite(x):
        return x
    third = n // 3
    power = math.exp2(third)
    return x * power * power * math.exp2(n - 2 * third)


def frexp(x: float) -> tuple[float, int]:
    """x as `m * 2**n` with 0.5 <= abs(m) < 1: the pair (m, n); (x, 0) for zeros, infinities and NaN.

    Examples
    --------
    >>> frexp(6.0), frexp(-0.25)
    ((0.75, 3), (-0.5, -1))
    """
    if x == 0 or not isfinite(x):
        return x, 0
    n = math.floor(math.log2(abs(x))) + 1
    m = ldexp(x, -n)
    # Near a power of two the logarithm may have been rounded up or down to the next whole number.
    if abs(m) >= 1:
        return 0.5 * m, n + 1
    if abs(m) < 0.5:
        return 2 * m, n - 1
    return m, n


def modf(x: float) -> tuple[float, float]:
    """The fractional and the integral part of x, both with the sign of x.

    Examples
    --------
    >>> modf(-2.5), modf(3.0)
    ((-0.5, -2.0), (0.0, 3.0))
    """
    if isinf(x):
        return math.copysign(0.0, x), x
    whole = float(math.trunc(x)) if x == x else x
    return math.fmod(x, 1.0), math.copysign(whole, x)


def sign(x: float) -> float:
    """-1, 0 or 1 by the sign of x; NaN stays NaN."""
    if x > 0:
        return 1.0
    if x < 0:
        return -1.0
    return 0.0 if x == 0 else x


def heaviside(x: float, middle: float) -> float:
    """0 for negative x, 1 for positive x, `middle` at 0; NaN stays NaN."""
    if x > 0:
        return 1.0
    if x < 0:
        return 0.0
    return middle if x == 0 else x


def isnan(x: float) -> bool:
    """Whether x is NaN."""
    return x != x


def isinf(x: float) -> bool:
    """Whether x is an infinity of either sign."""
    return abs(x) == math.inf


def isfinite(x: float) -> bool:
    """Whether x is neither NaN nor an infinity."""
    return x - x == 0


def isclose(a: float, b: float, *, rel_tol: float = 1e-09, abs_tol: float = 0.0) -> bool:
    """Whether two numbers differ by no more than `rel_tol` of the larger one, or by no more than `abs_tol`.

    Examples
    --------
    >>> isclose(1.0, 1.0 + 1e-12), isclose(1.0, 1.01), isclose(1.0, 1.01, rel_tol=0.1)
    (True, False, True)
    """
    if a == b:
        return True
    if isinf(a) or isinf(b):
        return False
    gap = abs(b - a)
    return gap <= abs(rel_tol * b) or gap <= abs(rel_tol * a) or gap <= abs_tol


def signbit(x: float) -> bool:
    """Whether x is negative, -0.0 included."""
    return math.copysign(1.0, x) < 0


# --- choices: the derivative is that of the argument taken, the first of equal ones --------------------------------


def maximum(x: float, y: float) -> float:
    """The larger of two numbers; NaN if either is.

    Examples
    --------
    >>> maximum(1.0, 2.0), maximum(math.nan, 2.0)
    (2.0, nan)
    """
    return x if x >= y or isnan(x) else y


def minimum(x: float, y: float) -> float:
    """The smaller of two numbers; NaN if either is."""
    return x if x <= y or isnan(x) else y


def fmax(x: float, y: float) -> float:
    """The larger of two numbers, or the other one if one of them is NaN.

    Examples
    --------
    >>> fmax(math.nan, 2.0)
    2.0
    """
    return x if x >= y or isnan(y) else y


def fmin(x: float, y: float) -> float:
    """The smaller of two numbers, or the other one if one of them is NaN."""
    return x if x <= y or isnan(y) else y


def clip(x: float, low: float | None, high: float | None) -> float:
    """x limited to [low, high], of which either may be None; at the ends the derivative is still that of x."""
    above = x if low is None else maximum(x, low)
    return above if high is None else minimum(above, high)


def nan_to_num(
    x: float,
    copy: bool = True,  # noqa: ARG001 (of arrays of NumPy's)
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
) -> float:
    """x where it is finite, and else one of these numbers; for None the largest one, or the lowest, of the dtype.

    Examples
    --------
    >>> nan_to_num(math.nan, nan=2.0), nan_to_num(-math.inf, neginf=-9.0)
    (2.0, -9.0)
    """
    if isnan(x):
        return nan
    if posinf is not None and x == math.inf:
        return posinf
    if neginf is not None and x == -math.inf:
        return neginf
    return math.nextafter(math.copysign(math.inf, x), 0.0) if isinf(x) else x


def where(condition: bool, x: float, y: float) -> float:
    """x if the condition holds, else y."""
    return x if condition else y


# --- powers and angles ---------------------------------------------------------------------------------------------


def square(x: float) -> float:
    """x * x."""
    return x * x


def reciprocal(x: float) -> float:
    """1 / x."""
    return 1.0 / x


def root(x: float) -> float:
    """x**0.5, which is 0.0 for -0.0 and inf for -inf, where a square root is -0.0 and NaN."""
    return math.inf if x == -math.inf else math.sqrt(x + 0.0)


def inverse_root(x: float) -> float:
    """x**-0.5."""
    return 1.0 / root(x)


def root_cubed(x: float) -> float:
    """x**1.5."""
    return abs(x) * root(x)


def inverse_root_cubed(x: float) -> float:
    """x**-1.5; by two divisions, since x * root(x) overflows long before its reciprocal is 0."""
    return 1.0 / root(x) / abs(x)


def radians(x: float) -> float:
    """Degrees to radians."""
    return x * DEGREE


def degrees(x: float) -> float:
    """Radians to degrees."""
    return x / DEGREE
