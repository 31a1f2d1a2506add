"""The inverses in x of the regularised incomplete gamma functions, in the language of scalar functions."""

from __future__ import annotations

import math

from dualbcast.special.normal import quantile
from dualbcast.special.probability.incomplete_gamma import gammainc, gammaincc
from dualbcast.special.probability.stirling import poisson_term


def gammaincinv(a: float, p: float) -> float:
    """The x with gammainc(a, x) = p.

    Parameters
    ----------
    a : float
        Positive; else the result is NaN.
    p : float
        In [0, 1]; else the result is NaN.

    Returns
    -------
    float
        As accurate as `gammainc` determines it.

    Examples
    --------
    >>> gammaincinv(3.0, 0.0), gammaincinv(3.0, 1.0)
    (0.0, inf)
    >>> round(gammaincinv(1.0, 0.5), 12) == round(math.log(2.0), 12)
    True
    """
    return inverse_of_gamma(a, p, 1.0 - p)


def gammainccinv(a: float, q: float) -> float:
    """The x with gammaincc(a, x) = q.

    Parameters
    ----------
    a : float
        Positive; else the result is NaN.
    q : float
        In [0, 1]; else the result is NaN.

    Returns
    -------
    float
        As accurate as `gammaincc` determines it.

    Examples
    --------
    >>> gammainccinv(3.0, 1.0), gammainccinv(3.0, 0.0)
    (0.0, inf)
    >>> round(gammainccinv(1.0, 1e-100) / math.log(1e100), 12)
    1.0
    """
    return inverse_of_gamma(a, 1.0 - q, q)


def inverse_of_gamma(a: float, p: float, q: float) -> float:
    """The x with the probability p below it and q above, by Newton's method on the logarithm of the smaller one.

    The logarithm of p is almost linear in log(x), that of q for large x almost linear in x.
    """
    if not (a > 0 and p >= 0 and q >= 0 and a < math.inf):
        return math.nan
    if p == 0:
        return 0.0
    if q == 0:
        return math.inf
    goal = min(p, q)
    x = first_guess(a, p, q)
    step, count = 1.0, 0
    while x > 0 and abs(step) * math.sqrt(1.0 + a) > 1e-9 and count < 15:
        tail = gammainc(a, x) if p < q else gammaincc(a, x)
        # Where the tail underflows, x is too far out.
        step = math.log(goal / tail) * tail / (a * poisson_term(a, x)) if tail > 0 else 0.5
        step = step if p < q else -step
        x = x * (math.exp(min(max(step, -3.0), 3.0)) if p < q or x < 1 else max(1.0 + step, 0.1))
        count = count + 1
    return x


def first_guess(a: float, p: float, q: float) -> float:
    """The x to begin with: by Wilson's and Hilferty's cube, or by the first term of the sum for small x."""
    small = math.exp((math.log(p) + math.lgamma(a + 1.0)) / a)
    if a > 1:
        far = -math.log(q) - math.lgamma(a)
        if far > 2.0 * a + 20.0:
            return far + (a - 1.0) * math.log(far)
        cube = 1.0 - 1.0 / (9.0 * a) + quantile(p - 0.5 if p < q else 0.5 - q, min(p, q)) / (3.0 * math.sqrt(a))
        return a * cube * cube * cube if cube > 0.3 else small
    bulk = 1.0 - a * (0.253 + 0.12 * a)
    return small if p < bulk else 1.0 - math.log(q / (1.0 - bulk))
