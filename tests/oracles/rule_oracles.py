"""Independent values for the rule table: each function in mpmath, and what holds at edge points.

Nothing here comes from the code under test. Partial derivatives are mpmath's numerical ones at 50 digits; edge
points follow IEEE 754 where a limit exists, and else the conventions that the documentation states.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import mpmath as mp
import probability_oracles as probability
import transcendental_oracles

mp.mp.dps = 50

inf, nan, pi = math.inf, math.nan, math.pi
ANY = None  # in EDGES: nothing is promised there

Edge = tuple[tuple[float, ...], float | None, tuple[float | None, ...]]


def _modulo(a: Any, b: Any) -> Any:
    return a - b * mp.floor(a / b)


def _truncated(x: Any) -> Any:
    return mp.floor(x) if x >= 0 else mp.ceil(x)


# The value of every row's function, by the row's name.
VALUES: dict[str, Callable[..., Any]] = {
    **transcendental_oracles.VALUES,
    "sqrt": mp.sqrt,
    "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "exp": mp.exp,
    "exp2": lambda x: mp.mpf(2) ** x,
    "expm1": mp.expm1,
    "log": mp.log,
    "log2": lambda x: mp.log(x) / mp.log(2),
    "log10": lambda x: mp.log(x) / mp.log(10),
    "log1p": mp.log1p,
    "root": lambda x: x ** mp.mpf("0.5"),
    "inverse_root": lambda x: x ** mp.mpf("-0.5"),
    "root_cubed": lambda x: x ** mp.mpf("1.5"),
    "inverse_root_cubed": lambda x: x ** mp.mpf("-1.5"),
    "pow": lambda x, p: x**p,
    "divided_power": lambda x, _, y: y / x,  # whatever y is, as long as it has all digits
    "hypot": lambda a, b: mp.sqrt(a * a + b * b),
    "cosine": lambda a, b: a / mp.sqrt(a * a + b * b),
    "sine": lambda a, b: b / mp.sqrt(a * a + b * b),
    "over_length": lambda t, a, b: t / mp.sqrt(a * a + b * b),
    "logaddexp": lambda a, b: mp.log(mp.exp(a) + mp.exp(b)),
    "logaddexp2": lambda a, b: mp.log(mp.mpf(2) ** a + mp.mpf(2) ** b) / mp.log(2),
    "xlogy": lambda a, b: a * mp.log(b),
    "xlog1py": lambda a, b: a * mp.log1p(b),
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "softplus": lambda x: mp.log1p(mp.exp(x)),
    "log_sigmoid": lambda x: -mp.log1p(mp.exp(-x)),
    "logit": lambda x: mp.log(x) - mp.log1p(-x),
    "sin": mp.sin,
    "cos": mp.cos,
    "tan": mp.tan,
    "asin": mp.asin,
    "acos": mp.acos,
    "atan": mp.atan,
    "atan2": mp.atan2,
    "sinh": mp.sinh,
    "cosh": mp.cosh,
    "tanh": mp.tanh,
    "asinh": mp.asinh,
    "acosh": mp.acosh,
    "atanh": mp.atanh,
    "sinc": mp.sincpi,
    "erf": mp.erf,
    "erfc": mp.erfc,
    "erfinv": mp.erfinv,
    "ndtr": mp.ncdf,
    "ndtri": lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1),
    "lgamma": mp.loggamma,
    "tgamma": mp.gamma,
    "digamma": mp.digamma,
    "polygamma": lambda n, x: mp.psi(int(n), x),
    "fabs": abs,
    "copysign": lambda a, b: abs(a) if b > 0 else -abs(a),
    "nextafter": lambda a, b: a + 0 * b,  # to within a rounding
    "sign": mp.sign,
    "floor": mp.floor,
    "ceil": mp.ceil,
    "trunc": _truncated,
    "rint": mp.nint,
    "heaviside": lambda x, middle: mp.mpf(x > 0) if x != 0 else middle,
    "ldexp": lambda x, n: x * mp.mpf(2) ** int(n),
    "fmod": lambda a, b: a - b * _truncated(a / b),
    "modulo": _modulo,
    "ieee_remainder": lambda a, b: a - b * mp.nint(a / b),
    "floor_divide": lambda a, b: mp.floor(a / b),
    **probability.VALUES,
    # Aliases: no rows, but the same promise.
    "square": lambda x: x * x,
    "reciprocal": lambda x: 1 / x,
    "exp10": lambda x: mp.mpf(10) ** x,
    "radians": mp.radians,
    "degrees": mp.degrees,
    "maximum": max,
    "minimum": min,
    "fmax": max,
    "fmin": min,
    "clip": lambda x, low, high: min(max(x, low), high),
}

# Where the numerical aliases are tested, which have no row to say it, and the spelling to test them by.
_REAL = (-20.0, 20.0)
ALIASES: dict[str, tuple[str, tuple[tuple[float, float], ...]]] = {
    "square": ("numpy.square", (_REAL,)),
    "reciprocal": ("numpy.reciprocal", ((0.1, 20.0),)),
    "exp10": ("scipy.special.exp10", ((-10.0, 10.0),)),
    "radians": ("math.radians", (_REAL,)),
    "degrees": ("math.degrees", (_REAL,)),
    "maximum": ("numpy.maximum", (_REAL, _REAL)),
    "minimum": ("numpy.minimum", (_REAL, _REAL)),
    "fmax": ("numpy.fmax", (_REAL, _REAL)),
    "fmin": ("numpy.fmin", (_REAL, _REAL)),
    "clip": ("numpy.clip", (_REAL, (-10.0, 0.0), (0.5, 10.0))),
}

# Absolute errors granted on top, in roundings of 1, to (the value, first partials, second partials). The partials of
# tanh and sigmoid lose digits by decision, because the exact forms cost a second transcendental function, and with them
# the second partials of all functions whose partial is sigmoid. The C library's lgamma loses digits between its zeros.
GRANTED: dict[str, tuple[float, float, float]] = {
    "tanh": (0.0, 2.0, 4.0),
    "sigmoid": (0.0, 1.0, 1.0),
    "softplus": (0.0, 0.0, 1.0),
    "log_sigmoid": (0.0, 0.0, 1.0),
    "logaddexp": (0.0, 0.0, 1.0),
    "logaddexp2": (0.0, 0.0, 1.0),
    "lgamma": (4.0, 0.0, 0.0),
    **probability.GRANTED,
    **transcendental_oracles.GRANTED,
}

# How many roundings values and partials may take: a vector function's 4 units in the last place and a few operations.
DEFAULT_ROUNDINGS = 8.0
ROUNDINGS: dict[str, float] = {**probability.ROUNDINGS}


@cache
def value(name: str, point: tuple[float, ...]) -> Any:
    """The function at a point."""
    return VALUES[name](*map(mp.mpf, point))


@cache
def derivative(name: str, point: tuple[float, ...], orders: tuple[int, ...]) -> Any:
    """A partial derivative of the function, `orders[i]` times in argument i."""
    if not any(orders):
        return value(name, point)
    return mp.diff(VALUES[name], tuple(map(mp.mpf, point)), orders)


ACOSH_1E30 = math.log(2e30)

# (arguments, value, partials); what a partial is at a kink is a decision, and is repeated in the row.
EDGES: dict[str, tuple[Edge, ...]] = {
    **probability.EDGES,
    **transcendental_oracles.EDGES,
    "sqrt": (
        ((0.0,), 0.0, (inf,)),
        ((-0.0,), -0.0, (-inf,)),
        ((inf,), inf, (0.0,)),
        ((-1.0,), nan, (nan,)),
        ((1e-30,), 1e-15, (5e14,)),
        ((1e30,), 1e15, (5e-16,)),
    ),
    "cbrt": (
        ((0.0,), 0.0, (inf,)),
        ((-8.0,), -2.0, (1 / 12,)),
        ((inf,), inf, (0.0,)),
        ((-inf,), -inf, (0.0,)),
        ((1e-30,), 1e-10, (1e20 / 3,)),
    ),
    "exp": (((-inf,), 0.0, (0.0,)), ((inf,), inf, (inf,)), ((-1000.0,), 0.0, (0.0,)), ((1000.0,), inf, (inf,))),
    "exp2": (((-inf,), 0.0, (0.0,)), ((inf,), inf, (inf,)), ((-2000.0,), 0.0, (0.0,)), ((2000.0,), inf, (inf,))),
    "expm1": (
        ((-inf,), -1.0, (0.0,)),
        ((inf,), inf, (inf,)),
        ((1e-30,), 1e-30, (1.0,)),
        ((-0.0,), -0.0, (1.0,)),
        ((-64.0,), -1.0, (1.6038108905486378e-28,)),
    ),
    "log": (
        ((0.0,), -inf, (inf,)),
        ((inf,), inf, (0.0,)),
        ((-1.0,), nan, (ANY,)),
        ((1e-30,), -69.07755278982137, (1e30,)),
    ),
    "log2": (((0.0,), -inf, (inf,)), ((inf,), inf, (0.0,)), ((-1.0,), nan, (ANY,)), ((2.0**100,), 100.0, (ANY,))),
    "log10": (((0.0,), -inf, (inf,)), ((inf,), inf, (0.0,)), ((-1.0,), nan, (ANY,)), ((1e10,), 10.0, (ANY,))),
    "log1p": (
        ((-1.0,), -inf, (inf,)),
        ((inf,), inf, (0.0,)),
        ((-2.0,), nan, (ANY,)),
        ((1e-30,), 1e-30, (1.0,)),
        ((-0.0,), -0.0, (1.0,)),
    ),
    "pow": (
        ((0.0, 0.0), 1.0, (0.0, -inf)),
        ((0.0, 2.0), 0.0, (0.0, 0.0)),
        ((0.0, 1.0), 0.0, (1.0, 0.0)),
        ((0.0, 0.5), 0.0, (inf, 0.0)),
        ((0.0, -1.0), inf, (-inf, -inf)),
        ((-2.0, 3.0), -8.0, (12.0, nan)),
        ((-2.0, 0.0), 1.0, (0.0, nan)),
        ((-2.0, 0.5), nan, (nan, nan)),
        ((3.0, 0.0), 1.0, (0.0, math.log(3.0))),
        ((inf, 2.0), inf, (inf, inf)),
        ((inf, -1.0), 0.0, (0.0, 0.0)),
        ((2.0, -inf), 0.0, (ANY, 0.0)),
        ((nan, 0.0), 1.0, (ANY, nan)),
        ((1e-30, 0.0), 1.0, (0.0, -69.07755278982137)),
    ),
    "divided_power": (
        ((0.0, 3.0, 0.0), 0.0, (ANY, 0.0, ANY)),
        ((0.0, 1.0, 0.0), 1.0, (ANY, 0.0, ANY)),
        ((0.0, 0.5, 0.0), inf, (ANY, 0.0, ANY)),
        ((-2.0, 3.0, -8.0), 4.0, (ANY, 0.0, ANY)),
        ((inf, 0.0, 1.0), 0.0, (ANY, 0.0, ANY)),
        ((inf, 2.0, inf), inf, (ANY, 0.0, ANY)),
        ((2.0**-100, 2.0, 0.0), 2.0**-100, (ANY, 0.0, ANY)),  # where y underflows, in float32
        ((2.0**100, 2.0, inf), 2.0**100, (ANY, 0.0, ANY)),
    ),
    "root": (
        ((0.0,), 0.0, (inf,)),
        ((-0.0,), 0.0, (inf,)),
        ((inf,), inf, (0.0,)),
        ((-inf,), inf, (ANY,)),
        ((-2.0,), nan, (nan,)),
        ((1e-30,), 1e-15, (5e14,)),
    ),
    "inverse_root": (
        ((0.0,), inf, (-inf,)),
        ((-0.0,), inf, (-inf,)),
        ((inf,), 0.0, (0.0,)),
        ((-inf,), 0.0, (ANY,)),
        ((-2.0,), nan, (nan,)),
        ((1e30,), 1e-15, (ANY,)),
    ),
    "root_cubed": (
        ((0.0,), 0.0, (0.0,)),
        ((-0.0,), 0.0, (0.0,)),
        ((inf,), inf, (inf,)),
        ((-inf,), inf, (ANY,)),
        ((-2.0,), nan, (nan,)),
        ((1e20,), 1e30, (1.5e10,)),
    ),
    "inverse_root_cubed": (
        ((0.0,), inf, (-inf,)),
        ((-0.0,), inf, (-inf,)),
        ((inf,), 0.0, (0.0,)),
        ((-inf,), 0.0, (ANY,)),
        ((-2.0,), nan, (nan,)),
        ((1e-20,), 1e30, (ANY,)),
    ),
    "hypot": (
        ((0.0, 0.0), 0.0, (0.0, 0.0)),
        ((0.0, -2.0), 2.0, (0.0, -1.0)),
        ((3e30, 4e30), 5e30, (0.6, 0.8)),
        ((3e-30, 4e-30), 5e-30, (0.6, 0.8)),
        ((inf, 1.0), inf, (ANY, 0.0)),
        ((inf, nan), inf, (ANY, ANY)),
    ),
    "cosine": (
        ((3e30, 4e30), 0.6, (ANY, ANY)),
        ((-3e-30, 4e-30), -0.6, (ANY, ANY)),
        ((inf, 1.0), 1.0, (0.0, ANY)),
        ((1.0, -inf), 0.0, (ANY, ANY)),
        ((2.0, 0.0), 1.0, (0.0, 0.0)),
        ((nan, 1.0), nan, (nan, nan)),
    ),
    "sine": (
        ((3e30, 4e30), 0.8, (ANY, ANY)),
        ((3e-30, -4e-30), -0.8, (ANY, ANY)),
        ((inf, 1.0), 0.0, (ANY, ANY)),
        ((1.0, -inf), -1.0, (ANY, 0.0)),
        ((0.0, 2.0), 1.0, (0.0, 0.0)),
        ((1.0, nan), nan, (nan, nan)),
    ),
    "over_length": (
        ((1e30, 3e30, 4e30), 0.2, (ANY, ANY, ANY)),
        ((1e-30, 3e-30, -4e-30), 0.2, (ANY, ANY, ANY)),
        ((1.0, inf, 1.0), 0.0, (0.0, 0.0, ANY)),
        ((1.0, 0.0, 0.0), inf, (inf, ANY, ANY)),
        ((nan, 1.0, 1.0), nan, (ANY, nan, nan)),
    ),
    "logaddexp": (
        ((-inf, -inf), -inf, (0.5, 0.5)),
        ((inf, inf), inf, (0.5, 0.5)),
        ((inf, -inf), inf, (1.0, 0.0)),
        ((1.5, -inf), 1.5, (1.0, 0.0)),
        ((1000.0, 1000.0), 1000.0 + math.log(2.0), (0.5, 0.5)),
        ((nan, 0.0), nan, (nan, nan)),
        ((0.0, nan), nan, (nan, nan)),
    ),
    "logaddexp2": (
        ((-inf, -inf), -inf, (0.5, 0.5)),
        ((inf, inf), inf, (0.5, 0.5)),
        ((inf, -inf), inf, (1.0, 0.0)),
        ((2000.0, 2000.0), 2001.0, (0.5, 0.5)),
        ((0.0, nan), nan, (nan, nan)),
    ),
    "xlogy": (
        ((0.0, 0.0), 0.0, (-inf, 0.0)),
        ((0.0, 2.0), 0.0, (math.log(2.0), 0.0)),
        ((0.0, nan), nan, (nan, nan)),
        ((2.0, 0.0), -inf, (-inf, inf)),
        ((2.0, -1.0), nan, (nan, ANY)),
    ),
    "xlog1py": (
        ((0.0, -1.0), 0.0, (-inf, 0.0)),
        ((0.0, 1.0), 0.0, (math.log(2.0), 0.0)),
        ((0.0, nan), nan, (nan, nan)),
        ((2.0, 1e-30), 2e-30, (1e-30, 2.0)),
    ),
    "sigmoid": (
        ((0.0,), 0.5, (0.25,)),
        ((inf,), 1.0, (0.0,)),
        ((-inf,), 0.0, (0.0,)),
        ((1000.0,), 1.0, (0.0,)),
        ((-1000.0,), 0.0, (0.0,)),
        ((-64.0,), 1.6038108905486378e-28, (1.6038108905486378e-28,)),
    ),
    "softplus": (
        ((inf,), inf, (1.0,)),
        ((-inf,), 0.0, (0.0,)),
        ((1000.0,), 1000.0, (1.0,)),
        ((-64.0,), 1.6038108905486378e-28, (1.6038108905486378e-28,)),
    ),
    "log_sigmoid": (
        ((inf,), ANY, (0.0,)),
        ((-inf,), -inf, (1.0,)),
        ((-1000.0,), -1000.0, (1.0,)),
        ((64.0,), -1.6038108905486378e-28, (1.6038108905486378e-28,)),
    ),
    "logit": (
        ((0.0,), -inf, (inf,)),
        ((1.0,), inf, (inf,)),
        ((0.5,), 0.0, (4.0,)),
        ((2.0,), nan, (ANY,)),
        ((1e-30,), -69.07755278982137, (1e30,)),
    ),
    "sin": (((0.0,), 0.0, (1.0,)), ((-0.0,), -0.0, (1.0,)), ((inf,), nan, (nan,)), ((1e-30,), 1e-30, (1.0,))),
    "cos": (((0.0,), 1.0, (0.0,)), ((-inf,), nan, (nan,)), ((1e-30,), 1.0, (-1e-30,))),
    "tan": (((0.0,), 0.0, (1.0,)), ((-0.0,), -0.0, (1.0,)), ((inf,), nan, (nan,)), ((1e-30,), 1e-30, (1.0,))),
    "asin": (((1.0,), pi / 2, (inf,)), ((-1.0,), -pi / 2, (inf,)), ((2.0,), nan, (nan,)), ((-0.0,), -0.0, (1.0,))),
    "acos": (((1.0,), 0.0, (-inf,)), ((-1.0,), pi, (-inf,)), ((-2.0,), nan, (nan,)), ((0.0,), pi / 2, (-1.0,))),
    "atan": (
        ((inf,), pi / 2, (0.0,)),
        ((-inf,), -pi / 2, (0.0,)),
        ((1e30,), pi / 2, (1e-60,)),
        ((-0.0,), -0.0, (1.0,)),
    ),
    "atan2": (
        ((0.0, 0.0), 0.0, (nan, nan)),
        ((1.0, 0.0), pi / 2, (0.0, -1.0)),
        ((0.0, 1.0), 0.0, (1.0, 0.0)),
        ((0.0, -1.0), pi, (-1.0, 0.0)),
        ((-0.0, -1.0), -pi, (-1.0, 0.0)),
        ((1e30, 1e30), pi / 4, (5e-31, -5e-31)),
        ((1e-30, 1e-30), pi / 4, (5e29, -5e29)),
        ((inf, 1.0), pi / 2, (0.0, ANY)),
        ((inf, -inf), 3 * pi / 4, (ANY, ANY)),
    ),
    "sinh": (((inf,), inf, (inf,)), ((-inf,), -inf, (inf,)), ((-0.0,), -0.0, (1.0,)), ((1e-30,), 1e-30, (1.0,))),
    "cosh": (((inf,), inf, (inf,)), ((-inf,), inf, (-inf,)), ((0.0,), 1.0, (0.0,)), ((1e-30,), 1.0, (1e-30,))),
    "tanh": (
        ((inf,), 1.0, (0.0,)),
        ((-inf,), -1.0, (0.0,)),
        ((1000.0,), 1.0, (0.0,)),
        ((-0.0,), -0.0, (1.0,)),
        ((1e-30,), 1e-30, (1.0,)),
    ),
    "asinh": (((inf,), inf, (0.0,)), ((-inf,), -inf, (0.0,)), ((-0.0,), -0.0, (1.0,)), ((1e30,), ACOSH_1E30, (1e-30,))),
    "acosh": (
        ((1.0,), 0.0, (inf,)),
        ((inf,), inf, (0.0,)),
        ((0.5,), nan, (nan,)),
        ((-2.0,), nan, (nan,)),
        ((1e30,), ACOSH_1E30, (1e-30,)),
    ),
    "atanh": (((1.0,), inf, (inf,)), ((-1.0,), -inf, (inf,)), ((2.0,), nan, (ANY,)), ((-0.0,), -0.0, (1.0,))),
    "sinc": (
        ((0.0,), 1.0, (0.0,)),
        ((1e-30,), 1.0, (-(pi**2) / 3 * 1e-30,)),
        ((-1e-3,), 0.9999983550667449, (0.0032898648867278965,)),
        ((inf,), nan, (ANY,)),
    ),
    "erf": (
        ((inf,), 1.0, (0.0,)),
        ((-inf,), -1.0, (0.0,)),
        ((-0.0,), -0.0, (2 / math.sqrt(pi),)),
        ((30.0,), 1.0, (0.0,)),
    ),
    "erfc": (
        ((inf,), 0.0, (0.0,)),
        ((-inf,), 2.0, (0.0,)),
        ((0.0,), 1.0, (-2 / math.sqrt(pi),)),
        ((-30.0,), 2.0, (0.0,)),
    ),
    "erfinv": (
        ((0.0,), 0.0, (math.sqrt(pi) / 2,)),
        ((-0.0,), -0.0, (math.sqrt(pi) / 2,)),
        ((1.0,), inf, (inf,)),
        ((-1.0,), -inf, (inf,)),
        ((-2.0,), nan, (nan,)),
    ),
    "ndtr": (
        ((inf,), 1.0, (0.0,)),
        ((-inf,), 0.0, (0.0,)),
        ((0.0,), 0.5, (1 / math.sqrt(2 * pi),)),
        ((nan,), nan, (nan,)),
    ),
    "ndtri": (
        ((0.5,), 0.0, (math.sqrt(2 * pi),)),
        ((0.0,), -inf, (inf,)),
        ((1.0,), inf, (inf,)),
        ((-0.5,), nan, (nan,)),
        ((1.5,), nan, (nan,)),
    ),
    "lgamma": (
        ((1.0,), 0.0, (-0.5772156649015329,)),
        ((0.0,), inf, (-inf,)),
        ((-1.0,), inf, (nan,)),
        ((inf,), inf, (inf,)),
        ((-0.25,), 1.589575312551186, (2.9141391202135276,)),
    ),
    "tgamma": (
        ((1.0,), 1.0, (-0.5772156649015329,)),
        ((0.0,), inf, (-inf,)),
        ((-1.0,), nan, (nan,)),
        ((inf,), inf, (inf,)),
        ((-0.25,), -4.901666809860711, (-14.28413900486734,)),
    ),
    "digamma": (
        ((0.0,), -inf, (inf,)),
        ((-0.0,), inf, (inf,)),
        ((-1.0,), nan, (inf,)),
        ((inf,), inf, (0.0,)),
        ((-inf,), nan, (nan,)),
        ((-0.25,), 2.9141391202135276, (18.541879647671607,)),
        ((1e-15,), -1e15, (1e30,)),
        ((1e30,), 69.07755278982137, (1e-30,)),
    ),
    "polygamma": (
        ((0, 1.0), -0.5772156649015329, (0.0, pi**2 / 6)),
        ((1, 0.0), inf, (0.0, -inf)),
        ((2, inf), -0.0, (0.0, 0.0)),
        ((1, -0.5), 8.934802200544679, (0.0, -0.82879664423432)),
        ((3, nan), nan, (0.0, nan)),
    ),
    "fabs": (((0.0,), 0.0, (0.0,)), ((-0.0,), 0.0, (0.0,)), ((-inf,), inf, (-1.0,)), ((-1e-30,), 1e-30, (-1.0,))),
    "copysign": (
        ((0.0, 1.0), 0.0, (0.0, 0.0)),
        ((0.0, -1.0), -0.0, (0.0, 0.0)),
        ((2.0, -0.0), -2.0, (-1.0, 0.0)),
        ((inf, -1.0), -inf, (-1.0, 0.0)),
        ((nan, 1.0), nan, (nan, 0.0)),
    ),
    "nextafter": (((1.0, 1.0), 1.0, (1.0, 0.0)), ((inf, inf), inf, (1.0, 0.0)), ((nan, 0.0), nan, (1.0, 0.0))),
    "sign": (((0.0,), 0.0, (0.0,)), ((-0.0,), 0.0, (0.0,)), ((-inf,), -1.0, (0.0,)), ((1e-30,), 1.0, (0.0,))),
    "floor": (
        ((1.0,), 1.0, (0.0,)),
        ((-0.0,), -0.0, (0.0,)),
        ((-0.5,), -1.0, (0.0,)),
        ((inf,), inf, (0.0,)),
        ((1e30,), 1e30, (0.0,)),
    ),
    "ceil": (
        ((1.0,), 1.0, (0.0,)),
        ((-0.5,), -0.0, (0.0,)),
        ((0.5,), 1.0, (0.0,)),
        ((-inf,), -inf, (0.0,)),
        ((1e30,), 1e30, (0.0,)),
    ),
    "trunc": (
        ((1.0,), 1.0, (0.0,)),
        ((-0.5,), -0.0, (0.0,)),
        ((1.9,), 1.0, (0.0,)),
        ((inf,), inf, (0.0,)),
        ((-1e30,), -1e30, (0.0,)),
    ),
    "rint": (((0.5,), 0.0, (0.0,)), ((1.5,), 2.0, (0.0,)), ((-0.4,), -0.0, (0.0,)), ((inf,), inf, (0.0,))),
    "heaviside": (
        ((0.0, 0.5), 0.5, (0.0, 1.0)),
        ((-0.0, 0.5), 0.5, (0.0, 1.0)),
        ((-1e-30, 0.5), 0.0, (0.0, 0.0)),
        ((nan, 0.5), nan, (0.0, 0.0)),
        ((0.0, nan), nan, (0.0, 1.0)),
    ),
    "ldexp": (
        ((1.0, 100), 2.0**100, (2.0**100, 0.0)),
        ((1e-30, 120), 1e-30 * 2.0**120, (2.0**120, 0.0)),
        ((inf, -3), inf, (0.125, 0.0)),
        ((-0.0, 5), -0.0, (32.0, 0.0)),
    ),
    "fmod": (
        ((5.0, 3.0), 2.0, (1.0, -1.0)),
        ((-5.0, 3.0), -2.0, (1.0, 1.0)),
        ((-6.0, 3.0), -0.0, (1.0, 2.0)),
        ((5.0, inf), 5.0, (1.0, 0.0)),
        ((5.0, 0.0), nan, (1.0, ANY)),
        ((inf, 2.0), nan, (1.0, ANY)),
    ),
    "modulo": (
        ((-1.0, 3.0), 2.0, (1.0, 1.0)),
        ((1.0, -3.0), -2.0, (1.0, 1.0)),
        ((6.0, -3.0), -0.0, (1.0, 2.0)),
        ((-6.0, 3.0), 0.0, (1.0, 2.0)),
        ((5.0, inf), 5.0, (1.0, 0.0)),
        ((-1.0, inf), inf, (1.0, ANY)),
        ((5.0, 0.0), nan, (1.0, ANY)),
    ),
    "ieee_remainder": (
        ((5.0, 2.0), 1.0, (1.0, -2.0)),
        ((7.0, 2.0), -1.0, (1.0, -4.0)),
        ((-5.0, 3.0), 1.0, (1.0, 2.0)),
        ((6.0, -3.0), 0.0, (1.0, 2.0)),
        ((5.0, inf), 5.0, (1.0, 0.0)),
        ((5.0, 0.0), nan, (1.0, ANY)),
    ),
    "floor_divide": (
        ((-1.0, 3.0), -1.0, (0.0, 0.0)),
        ((6.0, -3.0), -2.0, (0.0, 0.0)),
        ((0.0, -3.0), -0.0, (0.0, 0.0)),
        ((1.0, 0.0), inf, (0.0, 0.0)),
        ((0.0, 0.0), nan, (0.0, 0.0)),
        ((-1.0, inf), -1.0, (0.0, 0.0)),
        ((1e30, 1.0), 1e30, (0.0, 0.0)),
        ((nan, 1.0), nan, (0.0, 0.0)),
    ),
    "square": (((0.0,), 0.0, (0.0,)), ((-inf,), inf, (-inf,))),
    "reciprocal": (((0.0,), inf, (-inf,)), ((-0.0,), -inf, (-inf,)), ((inf,), 0.0, (0.0,))),
    "exp10": (((0.0,), 1.0, (math.log(10.0),)), ((-inf,), 0.0, (0.0,)), ((400.0,), inf, (inf,))),
    "radians": (((180.0,), pi, (pi / 180,)), ((-0.0,), -0.0, (pi / 180,))),
    "degrees": (((pi,), 180.0, (180 / pi,)), ((inf,), inf, (180 / pi,))),
    "maximum": (
        ((1.0, 1.0), 1.0, (1.0, 0.0)),
        ((nan, 1.0), nan, (1.0, 0.0)),
        ((1.0, nan), nan, (0.0, 1.0)),
        ((-inf, inf), inf, (0.0, 1.0)),
    ),
    "minimum": (
        ((1.0, 1.0), 1.0, (1.0, 0.0)),
        ((nan, 1.0), nan, (1.0, 0.0)),
        ((1.0, nan), nan, (0.0, 1.0)),
        ((-inf, inf), -inf, (1.0, 0.0)),
    ),
    "fmax": (
        ((1.0, 1.0), 1.0, (1.0, 0.0)),
        ((nan, 1.0), 1.0, (0.0, 1.0)),
        ((1.0, nan), 1.0, (1.0, 0.0)),
        ((nan, nan), nan, (ANY, ANY)),
    ),
    "fmin": (
        ((1.0, 1.0), 1.0, (1.0, 0.0)),
        ((nan, 1.0), 1.0, (0.0, 1.0)),
        ((1.0, nan), 1.0, (1.0, 0.0)),
        ((nan, nan), nan, (ANY, ANY)),
    ),
    "clip": (
        ((0.0, 0.0, 1.0), 0.0, (1.0, 0.0, 0.0)),
        ((1.0, 0.0, 1.0), 1.0, (1.0, 0.0, 0.0)),
        ((nan, 0.0, 1.0), nan, (1.0, 0.0, 0.0)),
        ((inf, 0.0, 1.0), 1.0, (0.0, 0.0, 1.0)),
    ),
}
