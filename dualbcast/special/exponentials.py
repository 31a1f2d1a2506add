"""Exponentials and logarithms in the language of scalar functions, in forms that neither overflow nor cancel."""

from __future__ import annotations

import math

from dualbcast.arithmetic import isinf, isnan, maximum

LN2 = math.log(2.0)


def sigmoid(x: float) -> float:
    """The logistic function 1 / (1 + exp(-x)), in a form that never overflows.

    Examples
    --------
    >>> sigmoid(0.0), sigmoid(-1000.0), sigmoid(1000.0)
    (0.5, 0.0, 1.0)
    """
    decay = math.exp(-abs(x))
    return (decay if x < 0 else 1.0) / (1.0 + decay)


def softplus(x: float) -> float:
    """log(1 + exp(x)), the integral of `sigmoid`; as max(x, 0) + log1p(exp(-abs(x))), which cancels nowhere.

    Examples
    --------
    >>> softplus(-1000.0), softplus(1000.0)
    (0.0, 1000.0)
    """
    return (0.0 if x < 0 else x) + math.log1p(math.exp(-abs(x)))


def log_sigmoid(x: float) -> float:
    """log(sigmoid(x)) = -softplus(-x).

    Examples
    --------
    >>> log_sigmoid(-1000.0)
    -1000.0
    """
    return (0.0 if x > 0 else x) - math.log1p(math.exp(-abs(x)))


def logit(x: float) -> float:
    """log(x / (1 - x)) for x in [0, 1], the inverse of `sigmoid`.

    Examples
    --------
    >>> logit(0.5)
    0.0
    """
    return math.log(x / (1.0 - x))


def logaddexp(x: float, y: float) -> float:
    """log(exp(x) + exp(y)), with the larger exponential factored out.

    Examples
    --------
    >>> logaddexp(1000.0, -math.inf)
    1000.0
    """
    return maximum(x, y) + math.log1p(math.exp(-abs(gap(x, y))))


def logaddexp2(x: float, y: float) -> float:
    """log2(2**x + 2**y), with the larger power factored out."""
    return maximum(x, y) + math.log1p(math.exp2(-abs(gap(x, y)))) / LN2


def gap(x: float, y: float) -> float:
    """x - y, but 0 for equal infinities, such as the logarithms of two masked terms."""
    return 0.0 if x == y and isinf(x) else x - y


def exp10(x: float) -> float:
    """10**x."""
    return math.pow(10.0, x)


def xlogy(x: float, y: float) -> float:
    """x * log(y), and 0 where x is 0 (unless y is NaN).

    Examples
    --------
    >>> xlogy(0.0, 0.0), xlogy(2.0, 1.0)
    (0.0, 0.0)
    """
    return 0.0 if x == 0 and not isnan(y) else x * math.log(y)


def xlog1py(x: float, y: float) -> float:
    """x * log1p(y), and 0 where x is 0 (unless y is NaN)."""
    return 0.0 if x == 0 and not isnan(y) else x * math.log1p(y)


def exp_over(x: float) -> float:
    """exp(x) / x, which overflows only where it does itself."""
    if x > 1500:
        return math.inf
    half = math.exp(0.5 * x)
    return half / x * half
