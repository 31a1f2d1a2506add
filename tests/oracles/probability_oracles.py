"""Exact values of error, gamma and beta functions and of distributions, for `rule_oracles` and `range_oracles`.

Closed forms in mpmath; none is from the code under test.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import scipy.special

inf, nan, pi = math.inf, math.nan, math.pi
ANY = None
NAN = mp.mpf("nan")


# --- the error function and the normal distribution ----------------------------------------------------------------


def _scaled_tail(x: Any) -> tuple[Any, Any, Any]:
    """exp(x * x) * erfc(x) and two derivatives; from 30 on by the derivatives of DLMF 7.12.1."""
    if x < 30:
        value = mp.exp(x * x) * (mp.erfc(x) if x > -100 else 2)
        slope = 2 * x * value - 2 / mp.sqrt(mp.pi)
        return value, slope, 2 * value + 2 * x * slope
    totals = [mp.mpf(0)] * 3
    term = 1 / (x * mp.sqrt(mp.pi))
    for n in range(60):
        k = 2 * n + 1
        totals = [total + term * scale for total, scale in zip(totals, (1, -k / x, k * (k + 1) / x / x), strict=True)]
        term *= -k / (2 * x * x)
    return totals[0], totals[1], totals[2]


def _log_ndtr(x: Any) -> tuple[Any, Any, Any]:
    if x > 0:
        tail = mp.erfc(x / mp.sqrt(2)) / 2 if x < 1000 else mp.exp(-x * x / 2) / (x * mp.sqrt(2 * mp.pi))
        slope = mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi) / (1 - tail)
        return -tail if tail < mp.mpf(2) ** -300 else mp.log1p(-tail), slope, -slope * (x + slope)
    t = -x / mp.sqrt(2)
    value, change, _ = _scaled_tail(t)
    slope = mp.sqrt(2 / mp.pi) / value
    return mp.log(value / 2) - x * x / 2, slope, slope * change / (value * mp.sqrt(2))


def _ndtri_exp(y: Any) -> tuple[Any, Any, Any]:
    """By Newton's method on the tail that is smaller."""
    if y > -0.7:
        tail = -y if abs(y) < mp.mpf(2) ** -250 else -mp.expm1(y)
        x = mp.sqrt(-2 * mp.log(tail))
        for _ in range(100):
            above = mp.erfc(x / mp.sqrt(2)) / 2
            step = mp.log(above / tail) * above * mp.sqrt(2 * mp.pi) * mp.exp(x * x / 2)
            x += step
            if abs(step) <= abs(x) * mp.mpf(10) ** -40:
                break
    else:
        x = -mp.sqrt(-2 * y)
        for _ in range(100):
            value, slope, _ = _log_ndtr(x)
            step = (value - y) / slope
            x -= step
            if abs(step) <= abs(x) * mp.mpf(10) ** -40:
                break
    _, slope, curvature = _log_ndtr(x)
    return x, 1 / slope, -curvature / slope**3


def _erfcinv(y: Any) -> tuple[Any, Any, Any]:
    if y == 1:
        return mp.mpf(0), -mp.sqrt(mp.pi) / 2, mp.mpf(0)
    value, slope, curvature = _ndtri_exp(mp.log(y / 2))
    # x = -z / sqrt(2), where log(ndtr(z)) = log(y / 2).
    root = -mp.sqrt(2)
    return value / root, slope / y / root, (curvature - slope) / y / y / root


def _dawsn(x: Any) -> tuple[Any, Any, Any]:
    if x < 0:
        value, slope, curvature = _dawsn(-x)
        return -value, slope, -curvature
    if x < 30:
        value = mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * (mp.erfi(x) if x > mp.mpf(2) ** -250 else 2 * x / mp.sqrt(mp.pi))
        slope = 1 - 2 * x * value
        return value, slope, -2 * value - 2 * x * slope
    totals = [mp.mpf(0)] * 3
    term = 1 / (2 * x)
    for n in range(60):
        k = 2 * n + 1
        parts = (1, -k / x, k * (k + 1) / x / x)
        totals = [total + term * part for total, part in zip(totals, parts, strict=True)]
        term *= k / (2 * x * x)
    return totals[0], totals[1], totals[2]


def _erfi(x: Any) -> tuple[Any, Any, Any]:
    slope = 2 / mp.sqrt(mp.pi) * mp.exp(x * x)
    return slope * _dawsn(x)[0], slope, 2 * x * slope


# --- gamma and beta functions ----------------------------------------------------------------------------------------


def lower_gamma(a: Any, x: Any) -> Any:
    """The regularised lower incomplete gamma function, DLMF 8.5.1 and 13.2.2."""
    return x**a * mp.exp(-x) / mp.gamma(a + 1) * mp.hyp1f1(1, a + 1, x)


def upper_gamma(a: Any, x: Any) -> Any:
    with mp.extradps(40):
        return +(1 - lower_gamma(a, x))


def lower_beta(a: Any, b: Any, x: Any) -> Any:
    """The regularised incomplete beta function, DLMF 8.17.8."""
    return x**a * (1 - x) ** b / (a * mp.beta(a, b)) * mp.hyp2f1(a + b, 1, a + 1, x)


def inverse_in_last(of: Callable[..., Any], slope: Callable[..., Any], start: Callable[..., Any]) -> Callable[..., Any]:
    """The inverse of a function in its last argument, by Newton's method from SciPy's result."""

    def inverse(*args: Any) -> Any:
        *parameters, p = args
        x = mp.mpf(float(start(*map(float, args))))
        for _ in range(4):
            x += (p - of(*parameters, x)) / slope(*parameters, x)
        return x

    return inverse


def _gamma_density(a: Any, x: Any) -> Any:
    return x ** (a - 1) * mp.exp(-x) / mp.gamma(a)


def _beta_density(a: Any, b: Any, x: Any) -> Any:
    return x ** (a - 1) * (1 - x) ** (b - 1) / mp.beta(a, b)


# --- for the table of rules: values, and what holds at edges ---------------------------------------------------------

VALUES: dict[str, Callable[..., Any]] = {
    "erfcx": lambda x: mp.exp(x * x) * mp.erfc(x),
    "erfcinv": lambda y: mp.erfinv(1 - y),
    "erfi": mp.erfi,
    "dawsn": lambda x: mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x),
    "log_ndtr": lambda x: mp.log1p(-mp.erfc(x / mp.sqrt(2)) / 2) if x > 0 else mp.log(mp.erfc(-x / mp.sqrt(2)) / 2),
    "ndtri_exp": lambda y: _ndtri_exp(mp.mpf(y))[0],
    "stirling_ratio": lambda a: mp.gamma(a + 1) * (mp.e / a) ** a,
    "log_stirling_ratio": lambda a: mp.loggamma(a + 1) + a - a * mp.log(a),
    "digamma_rest": lambda a: mp.digamma(a + 1) - mp.log(a),
    "poisson_term": lambda a, x: x**a * mp.exp(-x) / mp.gamma(a + 1),
    "rgamma": mp.rgamma,
    "beta": mp.beta,
    "betaln": lambda a, b: mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b),
    "poch": mp.rf,
    "binom": mp.binomial,
    "gammainc": lower_gamma,
    "gammaincc": upper_gamma,
    "gammaincinv": inverse_in_last(lower_gamma, _gamma_density, scipy.special.gammaincinv),
    "gammainccinv": inverse_in_last(upper_gamma, lambda a, x: -_gamma_density(a, x), scipy.special.gammainccinv),
    "betainc": lower_beta,
    "betaincc": lambda a, b, x: lower_beta(b, a, 1 - x),
    "betaincinv": inverse_in_last(lower_beta, _beta_density, scipy.special.betaincinv),
    "betainccinv": inverse_in_last(
        lambda a, b, x: lower_beta(b, a, 1 - x), lambda a, b, x: -_beta_density(a, b, x), scipy.special.betainccinv
    ),
}
# The rows that `range_grid` leaves to test_gamma_and_beta.py, since they have several parameters or are factors.
PARAMETRIC = {*VALUES} - {"erfcx", "erfcinv", "erfi", "dawsn", "log_ndtr", "ndtri_exp"} | {"beta_term"}
# Derivatives of those that sum up many terms have some more roundings; near its zeros betaln is a difference.
ROUNDINGS: dict[str, float] = {
    **dict.fromkeys(("gammainc", "gammaincc", "betainc", "betaincc"), 24.0),
    **dict.fromkeys(("gammaincinv", "gammainccinv", "betaincinv", "betainccinv"), 64.0),
}
GRANTED: dict[str, tuple[float, float, float]] = {
    "digamma_rest": (4.0, 1.0, 1.0),
    "stirling_ratio": (0.0, 32.0, 32.0),
    "log_stirling_ratio": (4.0, 4.0, 4.0),
    "betaln": (8.0, 0.0, 0.0),
    "dawsn": (0.0, 4.0, 4.0),
}
_EULER = 0.5772156649015329
EDGES: dict[str, Any] = {
    "erfcx": (
        ((0.0,), 1.0, (-2 / math.sqrt(pi),)),
        ((inf,), 0.0, (0.0,)),
        ((-inf,), inf, (-inf,)),
        ((nan,), nan, (nan,)),
        ((1e10,), 1e-10 / math.sqrt(pi), (-1e-20 / math.sqrt(pi),)),
    ),
    "erfcinv": (
        ((1.0,), 0.0, (-math.sqrt(pi) / 2,)),
        ((0.0,), inf, (-inf,)),
        ((2.0,), -inf, (-inf,)),
        ((-0.5,), nan, (nan,)),
        ((2.5,), nan, (nan,)),
    ),
    "erfi": (((0.0,), 0.0, (2 / math.sqrt(pi),)), ((-0.0,), -0.0, (2 / math.sqrt(pi),)), ((-inf,), -inf, (inf,))),
    "dawsn": (((0.0,), 0.0, (1.0,)), ((-0.0,), -0.0, (1.0,)), ((inf,), 0.0, (ANY,)), ((-1e10,), -5e-11, (-5e-21,))),
    "log_ndtr": (
        ((0.0,), -math.log(2.0), (math.sqrt(2 / pi),)),
        ((inf,), ANY, (0.0,)),
        ((-inf,), -inf, (inf,)),
        ((-1e10,), -5e19, (1e10,)),
        ((nan,), nan, (nan,)),
    ),
    "ndtri_exp": (
        ((0.0,), inf, (inf,)),
        ((-inf,), -inf, (0.0,)),
        ((0.5,), nan, (nan,)),
        ((-5e19,), -1e10, (1e-10,)),
    ),
    "stirling_ratio": (((0.0,), 1.0, (inf,)), ((1.0,), math.e, (math.e * (1 - _EULER),)), ((nan,), nan, (nan,))),
    "log_stirling_ratio": (((0.0,), 0.0, (inf,)), ((1.0,), 1.0, (1 - _EULER,)), ((inf,), inf, (0.0,))),
    "digamma_rest": (((0.0,), inf, (-inf,)), ((1.0,), 1 - _EULER, (pi**2 / 6 - 2,)), ((inf,), 0.0, (ANY,))),
    "poisson_term": (
        ((0.0, 1.0), math.exp(-1.0), (ANY, -math.exp(-1.0))),
        ((1.0, 0.0), 0.0, (0.0, 1.0)),
        ((2.0, 1000.0), 0.0, (0.0, 0.0)),
        ((nan, 1.0), nan, (nan, nan)),
    ),
    "rgamma": (
        ((0.0,), 0.0, (1.0,)),
        ((-1.0,), 0.0, (-1.0,)),
        ((-4.0,), 0.0, (24.0,)),
        ((inf,), 0.0, (0.0,)),
        ((1000.0,), 0.0, (0.0,)),
        ((nan,), nan, (nan,)),
    ),
    "beta": (((1.0, 1.0), 1.0, (-1.0, -1.0)), ((0.0, 1.0), inf, (ANY, ANY)), ((nan, 1.0), nan, (nan, nan))),
    "betaln": (((1.0, 1.0), ANY, (-1.0, -1.0)), ((0.0, 1.0), inf, (ANY, ANY)), ((1.0, nan), nan, (nan, nan))),
    "poch": (((3.0, 0.0), 1.0, (0.0, 1.5 - _EULER)), ((0.0, 2.0), 0.0, (ANY, ANY)), ((nan, 2.0), nan, (nan, nan))),
    "binom": (
        ((5.0, 0.0), 1.0, (0.0, 137 / 60)),
        ((5.0, 5.0), 1.0, (137 / 60, -137 / 60)),
        ((0.0, 0.0), 1.0, (0.0, 0.0)),
        ((5.0, 7.0), 0.0, (ANY, ANY)),
        ((5.0, nan), nan, (nan, nan)),
    ),
    "gammainc": (
        ((2.0, 0.0), 0.0, (0.0, 0.0)),
        ((1.0, 0.0), 0.0, (0.0, 1.0)),
        ((0.5, 0.0), 0.0, (0.0, inf)),
        ((2.0, inf), 1.0, (0.0, 0.0)),
        ((0.0, 1.0), 1.0, (-0.21938393439552026, 0.0)),
        ((0.0, 0.0), nan, (ANY, ANY)),
        ((-1.0, 1.0), nan, (nan, nan)),
        ((1.0, -1.0), nan, (nan, nan)),
        ((1e6, 1e3), 0.0, (0.0, 0.0)),
    ),
    "gammaincc": (
        ((2.0, 0.0), 1.0, (0.0, 0.0)),
        ((1.0, 0.0), 1.0, (0.0, -1.0)),
        ((2.0, inf), 0.0, (0.0, 0.0)),
        ((0.0, 1.0), 0.0, (0.21938393439552026, 0.0)),
        ((1.0, -1.0), nan, (nan, nan)),
        ((1e3, 1e6), 0.0, (0.0, 0.0)),
    ),
    "gammaincinv": (
        ((2.0, 0.0), 0.0, (ANY, inf)),
        ((1.0, 0.0), 0.0, (ANY, 1.0)),
        ((2.0, 1.0), inf, (ANY, inf)),
        ((2.0, 1.5), nan, (nan, nan)),
        ((-1.0, 0.5), nan, (nan, nan)),
    ),
    "gammainccinv": (
        ((2.0, 1.0), 0.0, (ANY, -inf)),
        ((2.0, 0.0), inf, (ANY, -inf)),
        ((2.0, -0.5), nan, (nan, nan)),
    ),
    "betainc": (
        ((2.0, 3.0, 0.0), 0.0, (0.0, 0.0, 0.0)),
        ((1.0, 3.0, 0.0), 0.0, (0.0, 0.0, 3.0)),
        ((0.5, 3.0, 0.0), 0.0, (0.0, 0.0, inf)),
        ((2.0, 3.0, 1.0), 1.0, (0.0, 0.0, 0.0)),
        ((2.0, 3.0, 1.5), nan, (nan, nan, nan)),
        ((-2.0, 3.0, 0.5), nan, (nan, nan, nan)),
    ),
    "betaincc": (
        ((2.0, 3.0, 0.0), 1.0, (0.0, 0.0, 0.0)),
        ((2.0, 3.0, 1.0), 0.0, (0.0, 0.0, 0.0)),
        ((2.0, nan, 0.5), nan, (nan, nan, nan)),
    ),
    "betaincinv": (
        ((2.0, 3.0, 0.0), 0.0, (ANY, ANY, inf)),
        ((2.0, 3.0, 1.0), 1.0, (ANY, ANY, inf)),
        ((2.0, 3.0, -1.0), nan, (nan, nan, nan)),
    ),
    "betainccinv": (
        ((2.0, 3.0, 1.0), 0.0, (ANY, ANY, -inf)),
        ((2.0, 3.0, 0.0), 1.0, (ANY, ANY, -inf)),
        ((0.0, 3.0, 0.5), nan, (nan, nan, nan)),
    ),
}

# --- over the whole range: the text, the exact results, and arguments to look around -------------------------------

Unary = tuple[str, Callable[[Any], Any], tuple[float, ...]]


def _within(inside: Callable[[Any], bool], of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Outside the domain the value is NaN."""
    return lambda x: of(x) if inside(x) else (NAN, ANY, ANY)


UNARY: dict[str, Unary] = {
    "erfcx": ("dualbcast.special.erfcx(x)", _scaled_tail, (4.0, -9.3, -26.6)),
    "erfcinv": ("dualbcast.special.erfcinv(x)", _within(lambda y: 0 < y < 2, _erfcinv), (0.15, 1.0, 1.85, 2.0)),
    "erfi": ("dualbcast.special.erfi(x)", _erfi, (6.0, 9.3, 26.6)),
    "dawsn": ("dualbcast.special.dawsn(x)", _dawsn, (0.9241388730, 1.5019752682, 6.0)),
    "log_ndtr": ("dualbcast.special.log_ndtr(x)", _log_ndtr, (-1.0, 8.3, 14.2, 38.5)),
    "ndtri_exp": (
        "dualbcast.special.ndtri_exp(x)",
        _within(lambda y: y < 0, _ndtri_exp),
        (-0.078, -0.6931471805599453, -2.6, -600.0),
    ),
}
# Conventions at zeros, infinities and ends of domains, as in `range_ends`.
AT: dict[str, dict[float | str, tuple[float | None, ...]]] = {
    "erfcinv": {"+0": (inf, -inf, inf), "-0": (inf, -inf, inf), 2.0: (-inf, -inf, -inf)},
    "ndtri_exp": {"+0": (inf, inf, ANY), "-0": (inf, inf, ANY)},
}
