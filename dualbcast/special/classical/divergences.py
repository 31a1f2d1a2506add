"""Entropy, relative entropy, and Huber's losses, in the language of scalar functions."""

from __future__ import annotations

import math

from dualbcast.arithmetic import isinf
from dualbcast.special.classical.power_transforms import atanh_series


def entr(x: float) -> float:
    """The term -x * log(x) of an entropy, 0 at 0, and -inf for negative numbers.

    Examples
    --------
    >>> entr(0.0), entr(1.0), entr(-1.0)
    (0.0, -0.0, -inf)
    """
    if x <= 0:
        return 0.0 if x == 0 else -math.inf
    return -x * math.log(x)


def rel_entr(x: float, y: float) -> float:
    """The term x * log(x / y) of a relative entropy; 0 where x is 0 and y is not negative, else inf outside x, y > 0.

    Examples
    --------
    >>> rel_entr(1.0, 1.0), rel_entr(0.0, 0.0), rel_entr(1.0, 0.0)
    (0.0, 0.0, inf)
    """
    if x > 0 and y > 0:
        return x * log_ratio(x, y)
    return outside(x, y)


def kl_div(x: float, y: float) -> float:
    """The term x * log(x / y) - x + y of a Kullback-Leibler divergence, which is never negative.

    It is y where x is 0 and y is not negative, else inf outside x, y > 0. It does not cancel where x is near y.

    Examples
    --------
    >>> kl_div(1.0, 1.0), kl_div(0.0, 2.0), kl_div(1.0, 0.0)
    (0.0, 2.0, inf)
    """
    if x > 0 and y > 0:
        s = (x - y) / (x + y)
        if abs(s) > 0.25:
            return x * log_ratio(x, y) - x + y
        # With x / y = (1 + s) / (1 - s) this is 2 * y / (1 - s) * ((1 + s) * atanh(s) - s), and y / (1 - s) a mean.
        return (x + y) * (s * s * (1.0 + (1.0 + s) * s * atanh_series(s * s)))
    return y if x == 0 and y >= 0 else outside(x, y)


def outside(x: float, y: float) -> float:
    """The value of `rel_entr` outside the domain of its formula."""
    if x != x or y != y:
        return math.nan
    return 0.0 if x == 0 and y >= 0 else math.inf


def log_ratio(x: float, y: float) -> float:
    """log(x / y) of positive numbers, also where they are close, and where the quotient overflows."""
    if 0.5 * y < x < 2.0 * y:
        return math.log1p((x - y) / y)
    return math.log(x) - math.log(y) if x / y > 1e30 or x / y < 1e-30 else math.log(x / y)


def huber(delta: float, r: float) -> float:
    """Huber's loss: r**2 / 2 up to delta, and beyond its tangent; inf for a negative delta.

    Examples
    --------
    >>> huber(1.0, 0.5), huber(1.0, -3.0)
    (0.125, 2.5)
    """
    if delta < 0:
        return math.inf
    return 0.5 * r * r if abs(r) <= delta else delta * (abs(r) - 0.5 * delta)


def pseudo_huber(delta: float, r: float) -> float:
    """The smooth loss delta**2 * (sqrt(1 + (r / delta)**2) - 1), without cancellation; inf for a negative delta.

    Examples
    --------
    >>> pseudo_huber(1.0, 0.0), round(pseudo_huber(1.0, math.sqrt(3.0)), 12)
    (0.0, 1.0)
    """
    if delta <= 0:
        return 0.0 if delta == 0 else math.inf
    u = r / delta
    if isinf(u) or r == 0:
        return delta * abs(r) if r != 0 else 0.0
    return delta * r * (u / (1.0 + math.hypot(1.0, u)))


def share_gained(x: float, y: float) -> float:
    """1 - x / y, without cancellation: the derivative of `kl_div` in y."""
    return (y - x) / y


def pseudo_huber_slope(delta: float, r: float) -> float:
    """The derivative of `pseudo_huber` in r."""
    return 0.0 if delta == 0 else r / math.hypot(1.0, r / delta)


def pseudo_huber_width_slope(delta: float, r: float) -> float:
    """The derivative of `pseudo_huber` in delta."""
    if delta == 0:
        return 0.0
    u = r / delta
    root = math.hypot(1.0, u)
    share = u / (1.0 + root)
    return r * (u / root) * (share * share)


def pseudo_huber_curvatures(delta: float, r: float) -> tuple[float, float, float]:
    """The second derivatives of `pseudo_huber`, in delta and delta, delta and r, r and r."""
    u = r / delta
    root = math.hypot(1.0, u)
    ratio, share, inverse = u / root, u / (1.0 + root), 1.0 / root
    return -(ratio * ratio) * (share * share) * (2.0 + inverse), ratio * ratio * ratio, inverse * inverse * inverse
