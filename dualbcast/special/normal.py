"""The standard normal distribution in the language of scalar functions: its integral, the inverse, its
density, and the inverse of the error function.
"""

from __future__ import annotations

import math

import numpy as np

SQRT2 = math.sqrt(2.0)
SQRT_HALF = math.sqrt(0.5)
DENSITY_AT_ZERO = 1.0 / math.sqrt(2.0 * math.pi)


def ndtr(x: float) -> float:
    """The probability that a standard normal number is at most x: `scipy.stats.norm.cdf(x)`.

    Parameters
    ----------
    x : float
        Any number.

    Returns
    -------
    float
        In [0, 1], to a few units in the last place, also where it is tiny.

    Examples
    --------
    >>> ndtr(0.0), ndtr(-math.inf), ndtr(math.inf)
    (0.5, 0.0, 1.0)
    """
    size = min(abs(x), 40.0)
    t = SQRT_HALF * size
    # The rounding of t alone would cost hundreds of units: erfc changes as exp(-t * t). So it is corrected by what
    # t * t has too much. The squares of multiples of 1/64 are exact.
    head = float(np.rint(64.0 * size)) / 64.0
    head_t = float(np.rint(64.0 * t)) / 64.0
    rest = (t - head_t) * (t + head_t) - 0.5 * ((size - head) * (size + head))
    excess = (head_t * head_t - 0.5 * (head * head)) + rest
    tail = 0.5 * math.erfc(t)
    tail = tail + tail * excess
    return tail if x < 0 else 1.0 - tail


def density(x: float) -> float:
    """The density exp(-x * x / 2) / sqrt(2 pi), to a few units; the rounding of x * x alone would cost hundreds."""
    square, lost = exact_square(min(abs(x), 40.0))
    return DENSITY_AT_ZERO * (math.exp(-0.5 * square) * (1.0 - 0.5 * lost))


def exact_square(x: float) -> tuple[float, float]:
    """The square of a number from 0 to 40 or so, and what its rounding has lost."""
    # The square of a multiple of 1/16 is exact, and so is the rounding error of its sum with the rest.
    head = float(np.rint(16.0 * x)) / 16.0
    rest = (x - head) * (x + head)
    square = head * head + rest
    return square, (head * head - square) + rest


def ndtri(p: float) -> float:
    """The x for which `ndtr(x)` is p: `scipy.stats.norm.ppf(p)`.

    Parameters
    ----------
    p : float
        In [0, 1]; the ends give infinities, and other numbers NaN.

    Returns
    -------
    float
        To a few units in the last place.

    Notes
    -----
    M. J. Wichura, "Algorithm AS 241: The percentage points of the normal distribution", *Applied Statistics* 37 (1988)
    477-484, routine PPND16.

    Examples
    --------
    >>> ndtri(0.5), ndtri(1.0)
    (0.0, inf)
    >>> round(ndtri(0.975), 12)
    1.95996398454
    """
    return quantile(p - 0.5, min(p, 1.0 - p))


def quantile(q: float, tail: float, depth: float = 0.0) -> float:
    """`ndtri` of 1/2 + q, where the smaller of the probabilities on both sides is `tail` * exp(-`depth`)."""
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        top = 33430.575583588128105 + r * 2509.0809287301226727
        top = 45921.953931549871457 + r * (67265.770927008700853 + r * top)
        top = 1971.5909503065514427 + r * (13731.693765509461125 + r * top)
        top = 3.3871328727963666080 + r * (133.14166789178437745 + r * top)
        bottom = 28729.085735721942674 + r * 5226.4952788528545610
        bottom = 21213.794301586595867 + r * (39307.895800092710610 + r * bottom)
        bottom = 687.18700749205790830 + r * (5394.1960214247511077 + r * bottom)
        bottom = 1.0 + r * (42.313330701600911252 + r * bottom)
        return q * top / bottom
    if tail == 0:
        return math.copysign(math.inf, q)
    if not tail > 0:
        return math.nan
    return math.copysign(quantile_of_tail(math.sqrt(depth - math.log(tail))), q)


def quantile_of_tail(r: float) -> float:
    """The x from which on the normal distribution has the probability exp(-r * r), for r from 1.6 to 27."""
    if r <= 5:
        r = r - 1.6
        top = 2.27238449892691845833e-2 + r * 7.74545014278341407640e-4
        top = 1.27045825245236838258 + r * (2.41780725177450611770e-1 + r * top)
        top = 5.76949722146069140550 + r * (3.64784832476320460504 + r * top)
        top = 1.42343711074968357734 + r * (4.63033784615654529590 + r * top)
        bottom = 5.47593808499534494600e-4 + r * 1.05075007164441684324e-9
        bottom = 1.48103976427480074590e-1 + r * (1.51986665636164571966e-2 + r * bottom)
        bottom = 1.67638483018380384940 + r * (6.89767334985100004550e-1 + r * bottom)
        bottom = 1.0 + r * (2.05319162663775882187 + r * bottom)
    else:
        r = r - 5.0
        top = 2.71155556874348757815e-5 + r * 2.01033439929228813265e-7
        top = 2.65321895265761230930e-2 + r * (1.24266094738807843860e-3 + r * top)
        top = 1.78482653991729133580 + r * (2.96560571828504891230e-1 + r * top)
        top = 6.65790464350110377720 + r * (5.46378491116411436990 + r * top)
        bottom = 1.42151175831644588870e-7 + r * 2.04426310338993978564e-15
        bottom = 7.86869131145613259100e-4 + r * (1.84631831751005468180e-5 + r * bottom)
        bottom = 1.36929880922735805310e-1 + r * (1.48753612908506148525e-2 + r * bottom)
        bottom = 1.0 + r * (5.99832206555887937690e-1 + r * bottom)
    return top / bottom


def erfinv(x: float) -> float:
    """The inverse of the error function.

    Parameters
    ----------
    x : float
        In [-1, 1]; the ends give infinities, and other numbers outside give NaN.

    Returns
    -------
    float
        y with erf(y) = x, to a few units in the last place.

    Notes
    -----
    The normal quantile at (1 + x) / 2, divided by the square root of 2; see `ndtri`.

    Examples
    --------
    >>> erfinv(0.0), erfinv(1.0)
    (0.0, inf)
    >>> round(math.erf(erfinv(0.3)), 15)
    0.3
    """
    q = 0.5 * x
    return quantile(q, 0.5 - abs(q)) / SQRT2
