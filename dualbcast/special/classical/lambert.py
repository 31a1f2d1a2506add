"""Lambert's W function and Wright's omega function of real arguments, in the language of scalar functions."""

from __future__ import annotations

import math

from dualbcast.arithmetic import isinf
from dualbcast.special.classical import coefficients as table
from dualbcast.special.exponentials import softplus
from dualbcast.special.polynomials import polynomial

# 1 / e in three parts: the first has 24 bits, and the second as many as make a double of both.
INVERSE_E = (0.3678794503211975, -9.149755175741348e-09, -1.2428753672788363e-17)
TWO_E = 2.0 * math.e


def lambertw(x: float, k: int = 0) -> float:
    """A real branch of Lambert's W function, the w with w * exp(w) = x.

    `scipy.special.lambertw` gives complex numbers, so it is no spelling of this function.

    Parameters
    ----------
    x : float
        At least -1/e, else the result is NaN. For the branch -1 it is negative, or 0, where the result is -inf.
    k : int
        The branch: 0 for w >= -1, and -1 for w <= -1.

    Returns
    -------
    float
        To a few units in the last place.

    Notes
    -----
    Around -1/e a polynomial in sqrt(2 * (e * x + 1)) (R. M. Corless et al., "On the Lambert W function", *Advances in
    Computational Mathematics* 5 (1996) 329-359, section 4); else Halley's method from the estimate of R. Iacono and
    J. P. Boyd, "New approximations to the principal real-valued branch of the Lambert W-function", *Advances in
    Computational Mathematics* 43 (2017) 1403-1436, or for the branch -1 from logarithms.

    Examples
    --------
    >>> lambertw(0.0), round(lambertw(1.0), 12), round(lambertw(-0.1, -1), 12)
    (0.0, 0.56714329041, -3.577152063957)
    """
    return w_minus_one(x) if k == -1 else w_zero(x) if k == 0 else math.nan


def w_zero(x: float) -> float:
    """The branch of `lambertw` from -1 on."""
    p = from_branch_point(x)
    if p < 0.5:
        return p * polynomial(2.0 * p, table.LAMBERT) - 1.0
    if x == math.inf:
        return math.inf
    log = math.log1p(x)
    w = log * (1.0 - math.log1p(log) / (2.0 + log))
    if x < 0:  # the estimate is for numbers that are not; p is at most 1.415 here
        w = p * (1.0 - p * (1.0 / 3 - p * (11.0 / 72 - p * (43.0 / 540 - p * 0.02)))) - 1.0
    return halley(x, halley(x, halley(x, w)))


def w_minus_one(x: float) -> float:
    """The branch of `lambertw` up to -1."""
    p = from_branch_point(x)
    if x >= 0 or not p >= 0:
        return -math.inf if x == 0 else math.nan
    if p < 0.5:
        return -p * polynomial(-2.0 * p, table.LAMBERT) - 1.0
    log = math.log(-x)
    more = math.log(-log)
    w = log - more + more / log
    if p < 0.9:
        w = -1.0 - p * (1.0 + p * (1.0 / 3 + p * (11.0 / 72 + p * (43.0 / 540 + p * (769.0 / 17280)))))
    return halley(x, halley(x, halley(x, w)))


def from_branch_point(x: float) -> float:
    """sqrt(2 * (e * x + 1)), NaN below -1/e."""
    high, middle, low = INVERSE_E
    return math.sqrt(TWO_E * (((x + high) + middle) + low))


def halley(x: float, w: float) -> float:
    """A step of Halley's method for w - x * exp(-w)."""
    half = math.exp(-0.5 * w)
    other = x * half * half
    excess = w - other
    slope = 1.0 + other
    return w - excess / (slope + 0.5 * excess * other / slope)


def wrightomega(x: float) -> float:
    """Wright's omega function of real numbers, the w with w + log(w) = x, that is `lambertw(exp(x))`.

    Examples
    --------
    >>> round(wrightomega(0.0), 12), wrightomega(1.0), wrightomega(-math.inf)
    (0.56714329041, 1.0, 0.0)
    """
    if isinf(x):
        return 0.0 if x < 0 else math.inf
    log = softplus(x)
    w = log * (1.0 - math.log1p(log) / (2.0 + log))
    # The rounding of x - w would show in an exponential much smaller than 1.
    factor, rest = (math.exp(x), 0.0) if x < 1 else (1.0, x)
    for _ in range(3):
        other = factor * math.exp(rest - w)
        excess = w - other
        slope = 1.0 + other
        w = w - excess / (slope + 0.5 * excess * other / slope)
    return w


def w_slope(x: float, w: float) -> float:
    """The derivative of `lambertw` at x, where a branch has the value w."""
    excess = above_branch_point(x, w)
    if isinf(w):
        return 0.0 if w > 0 else -math.inf
    # Where w is large, so is what its rounding does to the exponential.
    return math.exp(-w) / excess if abs(x) < 0.1 and w > -1 else w / excess / x


def w_curvature(x: float, w: float, slope: float) -> float:
    """The derivative of `w_slope` in x."""
    return 0.0 if slope == 0 else -(slope * slope) * ((w + 2.0) / above_branch_point(x, w))


def above_branch_point(x: float, w: float) -> float:
    """1 + w, without cancellation where w is near -1."""
    p = from_branch_point(x)
    if p < 0.5:
        signed = p if w > -1 else -p
        return signed * polynomial(2.0 * signed, table.LAMBERT)
    return 1.0 + w


def omega_slope(w: float) -> float:
    """The derivative of `wrightomega` where it is w."""
    return 1.0 if isinf(w) else w / (1.0 + w)
