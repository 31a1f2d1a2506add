"""Ratios of gamma functions by Stirling's formula, in the language of scalar functions: they neither overflow nor lose
the digits that differences of logarithms would.
"""

from __future__ import annotations

import math

from dualbcast.special.exponentials import xlogy
from dualbcast.special.gamma import digamma, polygamma
from dualbcast.special.polynomials import polynomial

# The coefficients B_2k / (2k (2k - 1)) of Stirling's series, DLMF 5.11.1, from k = 7 down to 1.
_STIRLING = (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
# B_2k / 2k of the series of digamma, DLMF 5.11.2, from k = 7 down to 1, times x**(-2k), and nothing.
_DIGAMMA = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12, 0.0)
# B_2k from k = 7 down to 1.
_BERNOULLI = (7 / 6, -691 / 2730, 5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6)
# 1 / (2k + 3), of the series of atanh, from k = 15 down to 0.
_ATANH = tuple(1 / (2 * k + 3) for k in range(15, -1, -1))


def underflows(term: float) -> bool:
    """Whether a number is so near the smallest ones that a quotient of it would have few digits."""
    return term * 2.0**-53 == 0


def factorial(a: float) -> float:
    """gamma(a + 1) for a >= 0, without the rounding of the sum where it would cost many units."""
    value = math.gamma(a if a >= 1 else a + 1.0)
    return a * value if a >= 1 else value


def stirling_error(a: float) -> float:
    """log(gamma(a)) - (a - 1/2) * log(a) + a - log(2 * pi) / 2 for a >= 10."""
    u = 1.0 / a
    return u * polynomial(u * u, _STIRLING)


def deviance_ratio(m: float) -> float:
    """(m - log1p(m)) / m**2 for m in [-1/2, 1/2]; it is smooth, and 1/2 at 0."""
    inverse = 1.0 / (2.0 + m)
    t = m * inverse
    return (1.0 - 2.0 * t * inverse * polynomial(t * t, _ATANH)) * inverse


def deviance(a: float, x: float, surplus: float) -> float:
    """x - a - a * log(x / a), which is not negative, and keeps its digits where `surplus`, x - a, is small."""
    m = surplus / a
    if abs(m) <= 0.5:
        return a * m * m * deviance_ratio(m)
    return surplus - a * math.log(x / a)


def poisson_term(a: float, x: float) -> float:
    """x**a * exp(-x) / gamma(a + 1) for finite a, x >= 0, Poisson's probability of a at mean x.

    The form for large a is that of C. Loader, "Fast and accurate computation of binomial probabilities" (2000): only
    the rounding of the exponent is magnified.
    """
    if a < 10:
        half = math.exp(-0.5 * x)  # exp(-x) may underflow
        return math.pow(min(x, 2000.0), a) * half * half / factorial(a)
    if x == 0:
        return 0.0
    return math.exp(-deviance(a, x, x - a) - stirling_error(a)) / math.sqrt(2.0 * math.pi * a)


def stirling_ratio(a: float) -> float:
    """gamma(a + 1) / (a / e)**a for a >= 0."""
    if a < 10:
        return factorial(a) * math.exp(a) * math.pow(a, -a)
    return math.sqrt(2.0 * math.pi * a) * math.exp(stirling_error(a))


def log_stirling_ratio(a: float) -> float:
    """The logarithm of `stirling_ratio`."""
    if a < 10:
        return math.lgamma(a + 1.0) + a - xlogy(a, a)
    return 0.5 * math.log(2.0 * math.pi * a) + stirling_error(a)


def powers(a: float, b: float, x: float, y: float, surplus: float) -> float:
    """(n * x / a)**a * (n * y / b)**b for n = a + b, x + y = 1 and surplus = b * x - a * y, which is n * x - a."""
    n = a + b
    result, exponent = 1.0, 0.0
    if a < 10:
        result = 1.0 if a == 0 else math.pow(n * x / a, a)
    else:
        exponent = -deviance(a, n * x, surplus) if b >= 10 else log_power(a, n * x, surplus)
    if b < 10:
        result = result * (1.0 if b == 0 else math.pow(n * y / b, b))
    else:
        exponent = exponent + (-deviance(b, n * y, -surplus) if a >= 10 else log_power(b, n * y, -surplus))
    return result * math.exp(exponent)


def log_power(a: float, x: float, surplus: float) -> float:
    """a * log(x / a), where x - a is `surplus`."""
    return a * (math.log1p(surplus / a) if abs(surplus) < 0.5 * a else math.log(x / a))


def divided_difference(x: float, y: float, coefficients: tuple[float, ...]) -> tuple[float, float]:
    """A polynomial at x, and the difference of its values at x and y divided by x - y, also where this is 0."""
    value, divided = 0.0, 0.0
    for coefficient in coefficients:
        divided = divided * y + value
        value = value * x + coefficient
    return value, divided


def log_gamma_rise(a: float, b: float) -> float:
    """(log(gamma(a + b)) - log(gamma(a))) / b for a, b > 0, to all digits, also where b is tiny."""
    total, n = 0.0, a + b
    while a < 10:
        total = total - math.log1p(b / a)
        a = a + 1.0
        n = n + 1.0
    u, v = 1.0 / a, 1.0 / n
    # Of Stirling's series, which is odd.
    value, divided = divided_difference(u * u, v * v, _STIRLING)
    rest = u * v * (value + v * (u + v) * divided)
    return (total + (n - 0.5) * math.log1p(b / a)) / b + math.log(a) - 1.0 - rest


def digamma_gap(a: float, b: float) -> float:
    """digamma(a + b) - digamma(a) for a and a + b > 0, to all digits."""
    return digamma_gap_less(a, b, 0.0)


def digamma_gap_rest(a: float, b: float) -> float:
    """digamma(a + b) - digamma(a) - log(1 + b / a) for a and a + b > 0; for large parameters all digits are left."""
    return digamma_gap_less(a, b, math.log1p(b / a))


def digamma_gap_less(a: float, b: float, logarithm: float) -> float:
    """digamma(a + b) - digamma(a), less the logarithm."""
    total, n = 0.0, a + b
    while a < 10 or n < 10:
        total = total + b / (a * n)
        a = a + 1.0
        n = n + 1.0
    u, v = 1.0 / a, 1.0 / n
    _, divided = divided_difference(u * u, v * v, _DIGAMMA)
    return total + (math.log1p(b / a) - logarithm) + b * u * v * (0.5 + (u + v) * divided)


def trigamma_gap(a: float, b: float) -> float:
    """trigamma(a + b) - trigamma(a), the slope of `digamma_gap` in a, to all digits."""
    total, n = 0.0, a + b
    while a < 10 or n < 10:
        total = total - b / (a * n) * (1.0 / a + 1.0 / n)
        a = a + 1.0
        n = n + 1.0
    u, v = 1.0 / a, 1.0 / n
    # The series is odd: a power of u, and one in its square with a divided difference.
    value, divided = divided_difference(u * u, v * v, (*_BERNOULLI, 0.0))
    return total - b * u * v * (1.0 + value + (u + v) * (0.5 + v * divided))


def digamma_rest(a: float) -> float:
    """digamma(a + 1) - log(a) for a > 0."""
    if a < 10:
        return digamma(a + 1.0) - math.log(a)
    u = 1.0 / a
    return u * (0.5 - u * polynomial(u * u, _DIGAMMA[:-1]))


def digamma_rest_slope(a: float) -> float:
    """The slope of `digamma_rest`."""
    if a < 10:
        return polygamma(1, a + 1.0) - 1.0 / a
    u = 1.0 / a
    return u * u * (u * polynomial(u * u, _BERNOULLI) - 0.5)
