"""The inverses in x of the regularised incomplete beta function and its complement, in the language of scalar
functions."""

from __future__ import annotations

import math

from dualbcast.special.exponentials import sigmoid
from dualbcast.special.normal import quantile
from dualbcast.special.probability.beta_functions import betaln
from dualbcast.special.probability.incomplete_beta import beta_term, fraction


def betaincinv(a: float, b: float, p: float) -> float:
    """The x with betainc(a, b, x) = p.

    Parameters
    ----------
    a, b : float
        Positive; else the result is NaN.
    p : float
        In [0, 1]; else the result is NaN.

    Returns
    -------
    float
        As accurate as `betainc` determines it.

    Examples
    --------
    >>> betaincinv(2.0, 3.0, 0.0), betaincinv(2.0, 3.0, 1.0)
    (0.0, 1.0)
    >>> round(betaincinv(3.0, 1.0, 0.125), 12)
    0.5
    """
    return inverse_of_beta(a, b, p, 1.0 - p)


def betainccinv(a: float, b: float, q: float) -> float:
    """The x with betaincc(a, b, x) = q.

    Parameters
    ----------
    a, b : float
        Positive; else the result is NaN.
    q : float
        In [0, 1]; else the result is NaN.

    Returns
    -------
    float
        As accurate as `betaincc` determines it.

    Examples
    --------
    >>> betainccinv(2.0, 3.0, 1.0), betainccinv(2.0, 3.0, 0.0)
    (0.0, 1.0)
    >>> round(betainccinv(1.0, 3.0, 0.125), 12)
    0.5
    """
    return inverse_of_beta(a, b, 1.0 - q, q)


def inverse_of_beta(a: float, b: float, p: float, q: float) -> float:
    """The x with the probability p below it and q above.

    The side of the smaller probability is made the lower one. Newton's method finds log(x / (1 - x)), of which the
    logarithm of that probability is a concave function; a step that leaves the bracket is replaced by a bisection.
    """
    if not (a > 0 and b > 0 and p >= 0 and q >= 0 and a < math.inf and b < math.inf):
        return math.nan
    if p == 0:
        return 0.0
    if q == 0:
        return 1.0
    low, high, goal, rest = (a, b, p, q) if p <= q else (b, a, q, p)
    logarithm = betaln(low, high)
    # The first term of either end's series is a bound.
    left = (math.log(goal) + math.log(low) + logarithm) / low
    right = -(math.log(rest) + math.log(high) + logarithm) / high
    logit = min(max(first_logit(low, high, goal), left), right)
    left, right = left - 0.01 * abs(left), right + 0.01 * abs(right)
    x, y = sigmoid(logit), sigmoid(-logit)
    step, count = 1.0, 0
    while abs(step) * math.sqrt(1.0 + low) > 1e-9 and count < 40:
        term = beta_term(low, high, x, y)
        if high * x <= low * y:
            value = term * fraction(low, high, x, y)
        else:
            value = 1.0 - term * (low / high) * fraction(high, low, y, x)
        left, right = (logit, right) if value < goal else (left, logit)
        step = math.log(goal / value) * value / (low * term) if value > 0 else math.inf
        if left <= logit + step <= right:
            logit = logit + step
            grown = x * math.exp(step)
            x, y = grown / (grown + y), y / (grown + y)
        else:
            step = 0.5 * (left + right) - logit
            logit = logit + step
            x, y = sigmoid(logit), sigmoid(-logit)
        count = count + 1
    return x if p <= q else y


def first_logit(a: float, b: float, p: float) -> float:
    """The logit to begin with, which is that of a normal distribution."""
    middle = digamma_about(a) - digamma_about(b)
    return middle + math.sqrt(trigamma_about(a) + trigamma_about(b)) * quantile(p - 0.5, p)


def digamma_about(a: float) -> float:
    """Roughly digamma(a)."""
    return math.log(a + 1.0) - 0.5 / (a + 1.0) - 1.0 / a


def trigamma_about(a: float) -> float:
    """Roughly the derivative of digamma."""
    return 1.0 / (a * a) + 1.0 / (a + 0.5)
