"""Functions and operators with their exact values, slopes and curvatures, for arguments of any size.

Closed forms in mpmath, written here by hand; none is from the code under test. They hold for finite numbers that are
not zero; `range_ends` has the rest.
"""

# ruff: noqa: ARG005

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath as mp
import probability_oracles as probability
import transcendental_oracles

__all__ = ["ANY", "FORMS", "NAN", "P27", "PRECISION", "THIRD", "Form", "normal_quantile"]

pi = math.pi
ANY = None  # nothing is promised there
PRECISION = 240
NAN = mp.mpf("nan")


@dataclass(frozen=True)
class Form:
    """A function in `x` or in `x` and `y`, and what is exact: its value, then its slopes, then its curvatures.

    The curvatures of two arguments are those in x and x, x and y, y and y. `near` are arguments to look around, `whole`
    the positions of arguments that are whole numbers.
    """

    name: str
    text: str
    exact: Callable[..., Sequence[Any]]
    near: tuple[float, ...] = ()
    arity: int = 1
    whole: tuple[int, ...] = ()


def _outside(count: int = 3) -> tuple[Any, ...]:
    """Outside the domain the value is NaN, and slopes may be any number: log'(-1) is -1, as in PyTorch and JAX."""
    return (NAN, *[ANY] * (count - 1))


def _within(inside: Callable[..., bool], of: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: of(*args) if inside(*args) else _outside(3 if len(args) == 1 else 6)


# --- one argument --------------------------------------------------------------------------------------------------


def _power(p: Any) -> Callable[[Any], Any]:
    """x ** p with a constant p."""
    p = mp.mpf(p)

    def of(x: Any) -> Any:
        if x < 0 and p != int(p):
            return NAN, NAN, NAN
        size = mp.exp(p * mp.log(abs(x)))
        value = -size if x < 0 and int(p) % 2 else size
        return value, p * value / x, p * (p - 1) * value / x / x

    return of


def _cbrt(x: Any) -> Any:
    root = mp.sign(x) * mp.cbrt(abs(x))
    return root, 1 / (3 * root * root), -2 / (9 * root * root * x)


def _exponential(base: Any) -> Callable[[Any], Any]:
    def of(x: Any) -> Any:
        rate = mp.log(base) if base is not None else mp.mpf(1)
        value = mp.exp(x * rate)
        return value, rate * value, rate * rate * value

    return of


def _logarithm(base: Any) -> Callable[[Any], Any]:
    def of(x: Any) -> Any:
        rate = mp.log(base) if base is not None else mp.mpf(1)
        return mp.log(x) / rate, 1 / (x * rate), -1 / (x * x * rate)

    return _within(lambda x: x > 0, of)


def _expm1(x: Any) -> Any:
    value = x + x * x / 2 if abs(x) < mp.mpf(2) ** -250 else (mp.mpf(-1) if x < -1e4 else mp.expm1(x))
    return value, mp.exp(x), mp.exp(x)


def _log1p(x: Any) -> Any:
    value = x - x * x / 2 if abs(x) < mp.mpf(2) ** -250 else mp.log1p(x)
    return value, 1 / (1 + x), -1 / (1 + x) ** 2


def _logistic(x: Any) -> tuple[Any, Any, Any]:
    decay = mp.exp(-abs(x))
    slope = decay / (1 + decay) ** 2
    return (decay if x < 0 else mp.mpf(1)) / (1 + decay), slope, -slope * _tanh(x / 2)[0]


def _log_of_sum(d: Any) -> Any:
    """log(1 + exp(-d)) for d > 0."""
    decay = mp.exp(-d)
    return decay if decay < mp.mpf(2) ** -300 else mp.log1p(decay)


def _softplus(x: Any) -> Any:
    value, slope, _ = _logistic(x)
    return max(x, mp.mpf(0)) + _log_of_sum(abs(x)), value, slope


def _log_sigmoid(x: Any) -> Any:
    value, slope, _ = _logistic(-x)
    return min(x, mp.mpf(0)) - _log_of_sum(abs(x)), value, -slope


def _logit(x: Any) -> Any:
    return mp.log(x) - mp.log1p(-x), 1 / (x * (1 - x)), (2 * x - 1) / (x * (1 - x)) ** 2


def _tanh(x: Any) -> tuple[Any, Any, Any]:
    decay = mp.exp(-2 * abs(x))
    value = mp.sign(x) * (abs(x) if abs(x) < mp.mpf(2) ** -250 else -mp.expm1(-2 * abs(x)) / (1 + decay))
    slope = 4 * decay / (1 + decay) ** 2
    return value, slope, -2 * value * slope


def _sinh(x: Any) -> Any:
    value = x if abs(x) < mp.mpf(2) ** -250 else mp.sinh(x)
    return value, mp.cosh(x), value


def _cosh(x: Any) -> Any:
    slope, value, _ = _sinh(x)
    return value, slope, value


def _tan(x: Any) -> Any:
    value = mp.tan(x)
    return value, 1 + value * value, 2 * value * (1 + value * value)


def _asin(x: Any) -> Any:
    square = (1 - x) * (1 + x)
    return mp.asin(x), 1 / mp.sqrt(square), x / square / mp.sqrt(square)


def _acos(x: Any) -> Any:
    _, slope, curvature = _asin(x)
    return mp.acos(x), -slope, -curvature


def _atan(x: Any) -> Any:
    return mp.atan(x), 1 / (1 + x * x), -2 * x / (1 + x * x) ** 2


def _asinh(x: Any) -> Any:
    root = mp.sqrt(1 + x * x)
    value = x if abs(x) < mp.mpf(2) ** -250 else mp.sign(x) * mp.log1p(abs(x) + x * x / (1 + root))
    return value, 1 / root, -x / root**3


def _acosh(x: Any) -> Any:
    square = (x - 1) * (x + 1)
    return mp.acosh(x), 1 / mp.sqrt(square), -x / square / mp.sqrt(square)


def _atanh(x: Any) -> Any:
    square = (1 - x) * (1 + x)
    value = x if abs(x) < mp.mpf(2) ** -250 else (mp.log1p(x) - mp.log1p(-x)) / 2
    return value, 1 / square, 2 * x / square**2


def _sinc(x: Any) -> Any:
    t = mp.pi * x
    if abs(x) < 1e-15:
        return 1 - t * t / 6, mp.pi * (-t / 3 + t**3 / 30), mp.pi**2 * (-mp.mpf(1) / 3 + t * t / 10)
    value = mp.sinpi(x) / t
    slope = (mp.cospi(x) - value) / x
    return value, slope, -(mp.pi**2) * value - 2 * slope / x


def _erf(x: Any) -> Any:
    slope = 2 / mp.sqrt(mp.pi) * mp.exp(-x * x)
    value = 2 / mp.sqrt(mp.pi) * x if abs(x) < mp.mpf(2) ** -250 else (mp.sign(x) if abs(x) > 100 else mp.erf(x))
    return value, slope, -2 * x * slope


def _erfc(x: Any) -> Any:
    _, slope, curvature = _erf(x)
    far = mp.exp(-x * x) / (x * mp.sqrt(mp.pi)) if x > 100 else mp.mpf(2)
    return far if abs(x) > 100 else mp.erfc(x), -slope, -curvature


def _ndtr(x: Any) -> Any:
    slope = mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)
    far = slope / -x if x < -100 else mp.mpf(1)
    return far if abs(x) > 100 else mp.erfc(-x / mp.sqrt(2)) / 2, slope, -x * slope


def _ndtri(p: Any) -> Any:
    value = normal_quantile(p)
    slope = mp.sqrt(2 * mp.pi) * mp.exp(value * value / 2)
    return value, slope, value * slope * slope


def normal_quantile(p: Any) -> Any:
    """The normal quantile, by Newton's method on the logarithm of the smaller tail."""
    if p > 0.5:
        return -normal_quantile(1 - p)
    x = -mp.sqrt(-2 * mp.log(2 * p)) if p < 0.5 else mp.mpf(0)
    for _ in range(200):
        below = mp.erfc(-x / mp.sqrt(2)) / 2
        step = mp.log(below / p) * below * mp.sqrt(2 * mp.pi) * mp.exp(x * x / 2)
        x -= step
        if abs(step) <= abs(x) * mp.mpf(10) ** -30:
            break
    return x


def _erfinv(x: Any) -> Any:
    value = mp.sqrt(mp.pi) / 2 * x if abs(x) < mp.mpf(2) ** -130 else mp.erfinv(x)
    slope = mp.sqrt(mp.pi) / 2 * mp.exp(value * value)
    return value, slope, 2 * value * slope * slope


def _psi(n: int, x: Any) -> Any:
    """The n-th derivative of digamma."""
    if abs(x) < mp.mpf(2) ** -400:  # the pole alone
        return (-1) ** (n + 1) * mp.factorial(n) / x ** (n + 1)
    if x > mp.mpf(2) ** 400:
        return mp.log(x) if n == 0 else (-1) ** (n + 1) * mp.factorial(n - 1) / x**n
    if x < 0:
        reflected = (-1) ** n * mp.psi(n, 1 - x)
        cot = mp.cospi(x) / mp.sinpi(x)
        square = 1 + cot * cot
        derivative = (
            mp.pi * cot,
            -(mp.pi**2) * square,
            2 * mp.pi**3 * cot * square,
            -2 * mp.pi**4 * square * (square + 2 * cot * cot),
            8 * mp.pi**5 * cot * square * (2 * square + cot * cot),
            -8 * mp.pi**6 * square * (2 * square * square + 11 * square * cot * cot + 2 * cot**4),
        )[n]
        return reflected - derivative
    return mp.psi(n, x)


def _is_pole(x: Any) -> bool:
    return bool(x <= 0 and x == mp.floor(x))


def _lgamma(x: Any) -> Any:
    if _is_pole(x):
        return mp.inf, NAN, ANY
    if abs(x) < mp.mpf(2) ** -400:
        value = -mp.log(abs(x))
    elif x < 0:
        value = mp.log(mp.pi / abs(mp.sinpi(x))) - mp.loggamma(1 - x)
    else:
        value = mp.loggamma(x)
    return value, _psi(0, x), _psi(1, x)


def _tgamma(x: Any) -> Any:
    if _is_pole(x):
        return NAN, NAN, NAN
    if abs(x) < mp.mpf(2) ** -400:
        return 1 / x, -1 / x**2, 2 / x**3
    value = mp.gamma(x)
    first, second = _psi(0, x), _psi(1, x)
    return value, value * first, value * (first * first + second)


def _digamma(x: Any) -> Any:
    return (NAN, mp.inf, ANY) if _is_pole(x) else (_psi(0, x), _psi(1, x), _psi(2, x))


def _polygamma(n: int) -> Callable[[Any], Any]:
    return lambda x: (ANY, ANY, ANY) if _is_pole(x) else (_psi(n, x), _psi(n + 1, x), _psi(n + 2, x))


def _steps(of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: (of(x), mp.mpf(0), mp.mpf(0))


def _linear(factor: Callable[[], Any]) -> Callable[[Any], Any]:
    return lambda x: (factor() * x, factor(), mp.mpf(0))


# --- two arguments -------------------------------------------------------------------------------------------------


def _pow(x: Any, p: Any) -> Any:
    if x < 0:
        if p != mp.floor(p):
            return _outside(6)
        size, odd = mp.exp(p * mp.log(-x)), int(p) % 2
        value = -size if odd else size
        # There is no slope in p; where the value is 0 it is taken to be that.
        none = NAN if size > 1e-30 else ANY
        return value, p * value / x, none, p * (p - 1) * value / x / x, ANY, none
    log = mp.log(x)
    value = mp.exp(p * log)
    curvatures = p * (p - 1) * value / x / x, value / x * (1 + p * log), value * log * log
    return value, p * value / x, value * log, *curvatures


def _hypot(a: Any, b: Any) -> Any:
    h = mp.sqrt(a * a + b * b)
    return h, a / h, b / h, b * b / h**3, -a * b / h**3, a * a / h**3


def _atan2(a: Any, b: Any) -> Any:
    square = a * a + b * b
    cross = 2 * a * b / square**2
    return mp.atan2(a, b), b / square, -a / square, -cross, (a - b) * (a + b) / square**2, cross


def _logaddexp(a: Any, b: Any, rate: Any = 1) -> Any:
    rate = mp.mpf(rate)
    first, slope, _ = _logistic(rate * (a - b))
    second = _logistic(rate * (b - a))[0]
    value = max(a, b) + _log_of_sum(rate * abs(a - b)) / rate
    return value, first, second, rate * slope, -rate * slope, rate * slope


def _xlogy(a: Any, b: Any) -> Any:
    return a * mp.log(b), mp.log(b), a / b, mp.mpf(0), 1 / b, -a / b / b


def _xlog1py(a: Any, b: Any) -> Any:
    log = _log1p(b)[0]
    return a * log, log, a / (1 + b), mp.mpf(0), 1 / (1 + b), -a / (1 + b) ** 2


def _rational(x: Any) -> Fraction:
    sign, mantissa, exponent, _ = mp.mpf(x)._mpf_
    size = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    return -size if sign else size


def _real(x: Fraction) -> Any:
    """A rational number to all digits that matter."""
    return mp.mpf(x.numerator) / mp.mpf(x.denominator)


def _divided(whole: Callable[[Fraction], int]) -> Callable[[Any, Any], Any]:
    """The remainder and its slopes, for a way to round the quotient."""

    def of(a: Any, b: Any) -> Any:
        over, under = _rational(a), _rational(b)
        quotient = whole(over / under)
        zeros = (mp.mpf(0),) * 3
        return _real(over - under * quotient), mp.mpf(1), mp.mpf(-quotient), *zeros

    return of


def _floor_divide(a: Any, b: Any) -> Any:
    return mp.mpf(math.floor(_rational(a) / _rational(b))), *[mp.mpf(0)] * 5


def _picked(first: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    """The argument that a choice takes, with a slope of 1 in that."""
    one, zero = mp.mpf(1), mp.mpf(0)
    return lambda a, b: (a, one, zero, zero, zero, zero) if first(a, b) else (b, zero, one, zero, zero, zero)


def _constant(*slopes: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: (*(slope(a, b) for slope in slopes), *[mp.mpf(0)] * 3)


def _product(a: Any, b: Any) -> Any:
    return a * b, b, a, mp.mpf(0), mp.mpf(1), mp.mpf(0)


def _quotient(a: Any, b: Any) -> Any:
    return a / b, 1 / b, -a / b / b, mp.mpf(0), -1 / b / b, 2 * a / b / b / b


def _ldexp(x: Any, n: Any) -> Any:
    scale = mp.ldexp(mp.mpf(1), int(n))
    return x * scale, scale, *[mp.mpf(0)] * 4


# --- the table -----------------------------------------------------------------------------------------------------

_positive = lambda x: x > 0  # noqa: E731
_unit = lambda x: -1 < x < 1  # noqa: E731

# Constants that float32 holds too, because a float32 kernel rounds what it is given.
THIRD, P27 = 0.3333333432674408, 2.700000047683716
UNARY: dict[str, tuple[str, Callable[[Any], Any], tuple[float, ...]]] = {
    "sqrt": ("math.sqrt(x)", _power(0.5), ()),
    "cbrt": ("math.cbrt(x)", _cbrt, ()),
    "exp": ("math.exp(x)", _exponential(None), (88.72, -87.33, -103.97, 709.78, -708.4, -745.1)),
    "exp2": ("numpy.exp2(x)", _exponential(2), (128.0, -126.0, -149.0, 1024.0, -1022.0, -1074.0)),
    "expm1": ("math.expm1(x)", _expm1, (0.35, -0.35, 88.72, 709.78, -37.0)),
    "log": ("math.log(x)", _logarithm(None), (1.0,)),
    "log2": ("math.log2(x)", _logarithm(2), (1.0,)),
    "log10": ("math.log10(x)", _logarithm(10), (1.0,)),
    "log1p": ("math.log1p(x)", _within(lambda x: x > -1, _log1p), (-1.0, 0.414)),
    "root": ("x ** 0.5", _power(0.5), ()),
    "inverse_root": ("x ** -0.5", _power(-0.5), ()),
    "root_cubed": ("x ** 1.5", _power(1.5), ()),
    "inverse_root_cubed": ("x ** -1.5", _power(-1.5), ()),
    "sigmoid": ("dualbcast.special.sigmoid(x)", _logistic, (17.0, 37.0, 88.7, 104.0, 709.8, 745.0, -88.7, -745.0)),
    "softplus": ("dualbcast.special.softplus(x)", _softplus, (17.0, 37.0, -88.7, -104.0, -709.8, -745.0, 745.0)),
    "log_sigmoid": ("dualbcast.special.log_sigmoid(x)", _log_sigmoid, (17.0, 37.0, 88.7, 104.0, 709.8, 745.0)),
    "logit": ("dualbcast.special.logit(x)", _within(lambda x: 0 < x < 1, _logit), (0.5, 1.0)),
    "sin": ("math.sin(x)", lambda x: (mp.sin(x), mp.cos(x), -mp.sin(x)), (pi, pi / 2)),
    "cos": ("math.cos(x)", lambda x: (mp.cos(x), -mp.sin(x), -mp.cos(x)), (pi, pi / 2)),
    "tan": ("math.tan(x)", _tan, (pi, pi / 2)),
    "asin": ("math.asin(x)", _within(_unit, _asin), (1.0, -1.0, 0.5)),
    "acos": ("math.acos(x)", _within(_unit, _acos), (1.0, -1.0, 0.5)),
    "atan": ("math.atan(x)", _atan, (1.0,)),
    "sinh": ("math.sinh(x)", _sinh, (89.0, 710.47)),
    "cosh": ("math.cosh(x)", _cosh, (89.0, 710.47)),
    "tanh": ("math.tanh(x)", _tanh, (9.0, 19.0, 44.0, 52.0, 354.0, 372.0)),
    "asinh": ("math.asinh(x)", _asinh, (1.0,)),
    "acosh": ("math.acosh(x)", lambda x: _acosh(x) if x > 1 else (NAN, NAN, NAN), (1.0, 2.0)),
    "atanh": ("math.atanh(x)", _within(_unit, _atanh), (1.0, -1.0, 0.5)),
    "sinc": ("numpy.sinc(x)", _sinc, (1.0, 2.0, 0.31831, 1.4303)),
    "erf": ("math.erf(x)", _erf, (0.84, 1.25, 4.0, 9.3, 10.1, 26.5, 27.2)),
    "erfc": ("math.erfc(x)", _erfc, (0.84, 1.25, 4.0, 9.3, 10.1, 26.5, 27.2)),
    "erfinv": ("dualbcast.special.erfinv(x)", _within(_unit, _erfinv), (0.85, 1.0, -1.0)),
    "ndtr": ("dualbcast.special.ndtr(x)", _ndtr, (1.15, 5.6, 8.3, 13.0, 14.2, 37.5, 38.5)),
    "ndtri": ("dualbcast.special.ndtri(x)", _within(lambda p: 0 < p < 1, _ndtri), (0.5, 0.075, 0.925, 1.0)),
    "lgamma": ("math.lgamma(x)", _lgamma, (1.0, 2.0, 1.4616321449683622, 10.0, -0.5, -2.457)),
    "tgamma": ("math.gamma(x)", _tgamma, (1.0, 2.0, 1.4616321449683622, 34.0, 171.6, -0.5, -40.0, -170.5)),
    "digamma": ("dualbcast.special.digamma(x)", _digamma, (1.0, 1.4616321449683622, 10.0, -0.5)),
    "fabs": ("math.fabs(x)", lambda x: (abs(x), mp.sign(x), mp.mpf(0)), ()),
    "sign": ("numpy.sign(x)", _steps(mp.sign), ()),
    "floor": ("numpy.floor(x)", _steps(mp.floor), (1.0, 2.5)),
    "ceil": ("numpy.ceil(x)", _steps(mp.ceil), (1.0, 2.5)),
    "trunc": ("numpy.trunc(x)", _steps(lambda x: mp.floor(x) if x > 0 else mp.ceil(x)), (1.0, 2.5)),
    "rint": ("numpy.rint(x)", _steps(mp.nint), (1.0, 2.5, 0.5, 1.5)),
    **probability.UNARY,
    # --- spellings that are no rows of their own
    "abs": ("abs(x)", lambda x: (abs(x), mp.sign(x), mp.mpf(0)), ()),
    "negative": ("-x", _linear(lambda: mp.mpf(-1)), ()),
    "square": ("numpy.square(x)", lambda x: (x * x, 2 * x, mp.mpf(2)), ()),
    "reciprocal": ("numpy.reciprocal(x)", _power(-1), ()),
    "exp10": ("scipy.special.exp10(x)", _exponential(10), (38.5, 308.25, -323.0)),
    "radians": ("math.radians(x)", _linear(lambda: mp.pi / 180), ()),
    "degrees": ("math.degrees(x)", _linear(lambda: 180 / mp.pi), ()),
    "2 ** x": ("2 ** x", _exponential(2), (128.0, 1024.0, -1074.0)),
    "0.3125 ** x": ("0.3125 ** x", _exponential(mp.mpf(0.3125)), ()),
    "clip": ("numpy.clip(x, -1.5, 2.5)", lambda x: _clip(x), (-1.5, 2.5)),
    "max with a number": ("max(x, 0.5)", lambda x: _either(x, x >= 0.5), (0.5,)),
    "min with a number": ("min(x, 0.5)", lambda x: _either(x, x <= 0.5), (0.5,)),
    **{f"x ** {p}": (f"x ** {p}", _power(p), ()) for p in range(-8, 9) if p},
    **{f"x ** {p:.4g}": (f"x ** {p!r}", _power(p), ()) for p in (THIRD, P27, -P27, 2.5, 9.0, -9.0, 12.25)},
    **{f"polygamma {n}": (f"scipy.special.polygamma({n}, x)", _polygamma(n), (1.0, -0.5)) for n in range(4)},
    # --- chains, in which slopes and their constants meet
    "4 exp(-x / 2)": ("4.0 * math.exp(-0.5 * x)", lambda x: _scaled(_exponential(None), 4, mp.mpf(-0.5), x), ()),
    "log(2**-60 exp(x))": (
        "math.log(2.0**-60 * math.exp(x))",
        lambda x: (x - 60 * mp.log(2), mp.mpf(1), ANY) if abs(x) < 40 else (ANY, ANY, ANY),
        (41.588830833596715,),
    ),
}


def _clip(x: Any) -> Any:
    inside = -1.5 <= x <= 2.5
    return min(max(x, mp.mpf(-1.5)), mp.mpf(2.5)), mp.mpf(int(inside)), mp.mpf(0)


def _either(x: Any, taken: bool) -> Any:
    return x if taken else mp.mpf(0.5), mp.mpf(int(taken)), mp.mpf(0)


def _scaled(of: Callable[[Any], Any], outer: Any, inner: Any, x: Any) -> Any:
    value, slope, curvature = of(inner * x)
    scaled = (outer, outer * inner, outer * inner * inner)
    return tuple(
        part if part is ANY else scale * part for scale, part in zip(scaled, (value, slope, curvature), strict=True)
    )


_ZERO = lambda a, b: mp.mpf(0)  # noqa: E731
_ONE = lambda a, b: mp.mpf(1)  # noqa: E731
BINARY: dict[str, tuple[str, Callable[[Any, Any], Any], tuple[float, ...]]] = {
    "pow": ("math.pow(x, y)", _pow, (1.0, 2.0, 3.0, -1.0, 0.5)),
    "x ** y": ("x ** y", _pow, (1.0, 2.0, 3.0, -1.0, 0.5)),
    "hypot": ("math.hypot(x, y)", _hypot, ()),
    "atan2": ("math.atan2(x, y)", _atan2, ()),
    "logaddexp": ("numpy.logaddexp(x, y)", _logaddexp, (-0.7, 37.0, 700.0)),
    "logaddexp2": ("numpy.logaddexp2(x, y)", lambda a, b: _logaddexp(a, b, mp.log(2)), (-1.0, 53.0, 1000.0)),
    "xlogy": ("dualbcast.special.xlogy(x, y)", _within(lambda a, b: b > 0, _xlogy), (1.0,)),
    "xlog1py": ("dualbcast.special.xlog1py(x, y)", _within(lambda a, b: b > -1, _xlog1py), (-1.0,)),
    "copysign": (
        "math.copysign(x, y)",
        lambda a, b: (abs(a) * mp.sign(b), mp.sign(a) * mp.sign(b), *[mp.mpf(0)] * 4),
        (),
    ),
    "nextafter": ("math.nextafter(x, y)", lambda a, b: (ANY, mp.mpf(1), *[mp.mpf(0)] * 4), ()),
    "heaviside": ("numpy.heaviside(x, y)", lambda a, b: (mp.mpf(int(a > 0)), *[mp.mpf(0)] * 5), ()),
    "fmod": ("math.fmod(x, y)", _divided(math.trunc), (2.5,)),
    "modulo": ("x % y", _divided(math.floor), (2.5,)),
    "ieee_remainder": ("math.remainder(x, y)", _divided(round), (2.5,)),
    "floor_divide": ("x // y", _floor_divide, (2.5,)),
    "maximum": ("numpy.maximum(x, y)", _picked(lambda a, b: a >= b), ()),
    "minimum": ("numpy.minimum(x, y)", _picked(lambda a, b: a <= b), ()),
    "fmax": ("numpy.fmax(x, y)", _picked(lambda a, b: a >= b), ()),
    "fmin": ("numpy.fmin(x, y)", _picked(lambda a, b: a <= b), ()),
    "x + y": ("x + y", _constant(lambda a, b: a + b, _ONE, _ONE), ()),
    "x - y": ("x - y", _constant(lambda a, b: a - b, _ONE, lambda a, b: mp.mpf(-1)), ()),
    "x * y": ("x * y", _product, ()),
    "x / y": ("x / y", _quotient, ()),
}

FORMS: dict[str, Form] = {
    **{name: Form(name, text, of, near) for name, (text, of, near) in transcendental_oracles.FORMS.items()},
    **{name: Form(name, text, of, near) for name, (text, of, near) in UNARY.items()},
    **{name: Form(name, text, of, near, 2) for name, (text, of, near) in BINARY.items()},
    "ldexp": Form("ldexp", "math.ldexp(x, y)", _ldexp, (), 2, (1,)),
}
