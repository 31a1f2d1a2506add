"""Exact results for Bessel functions, elliptic and other integrals and their kin: `rule_oracles` and `range_oracles`
take them in.

Closed forms in mpmath, with asymptotic series where mpmath would need as many digits as the argument has, and power
series where closed forms cancel. Nothing here comes from the code under test.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import mpmath as mp

__all__ = ["EDGES", "ENDS", "FORMS", "GRANTED", "VALUES"]

inf, nan, pi = math.inf, math.nan, math.pi
ANY = None
NAN = mp.mpf("nan")
TINY = mp.mpf(2) ** -60
Exact = Callable[[Any], Any]


# --- ways to compute -----------------------------------------------------------------------------------------------


def _series(*coefficients: Any) -> Exact:
    """A power series with its derivatives, for arguments below `TINY`."""

    def of(x: Any) -> Any:
        terms = [mp.mpf(c) if not callable(c) else c() for c in coefficients]
        return (
            sum(c * x**k for k, c in enumerate(terms)),
            sum(k * c * x ** (k - 1) for k, c in enumerate(terms) if k),
            sum(k * (k - 1) * c * x ** (k - 2) for k, c in enumerate(terms) if k > 1),
        )

    return of


def _near_zero(series: Exact, of: Exact) -> Exact:
    return lambda x: series(x) if abs(x) < TINY else of(x)


def _positive(of: Exact, below: Any = (NAN, ANY, ANY)) -> Exact:
    return lambda x: of(x) if x > 0 else below


def _of_order(n: int, x: Any, sign: int) -> tuple[Any, Any]:
    """The functions of both kinds of orders 0 and 1, by power series (9.1.12, 9.1.13, 9.6.12, 9.6.13)."""
    return _both_orders(x, sign, mp.mp.prec)[n]


@lru_cache(16)
def _both_orders(x: Any, sign: int, precision: int) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    with mp.workprec(precision + 3 * int(x) + 60):
        q = sign * x * x / 4
        term, first, harmonic, zeroth, other, k = mp.mpf(1), mp.mpf(0), mp.mpf(0), mp.mpf(1), mp.mpf(0), 0
        while k < 20 or abs(term) * (k + harmonic) > mp.mpf(2) ** -(mp.mp.prec + 20):
            k += 1
            term = term * q / (k * k)
            harmonic += mp.mpf(1) / k
            zeroth += term
            first += k * term
            other += harmonic * term
        first = sign * 2 * first / x  # the derivative of the series, and its sign
        log = mp.log(x / 2) + mp.euler
        if sign > 0:
            second = other - log * zeroth
            return (zeroth, second), (first, (1 / x - first * second) / zeroth)
        second = 2 / mp.pi * (log * zeroth - other)
        return (zeroth, second), (first, (first * second - 2 / (mp.pi * x)) / zeroth)


def _terms(n: int, x: Any) -> list[Any]:
    """The terms a_k / x**k of the asymptotic series of Bessel functions (9.2.5 and 9.7.1)."""
    term, found, k = mp.mpf(1), [mp.mpf(1)], 0
    while abs(term) > mp.mpf(2) ** -300 and k < 400:
        k += 1
        term = term * (4 * n * n - (2 * k - 1) ** 2) / (8 * k * x)
        found.append(term)
    return found


def _jy(n: int, x: Any) -> tuple[Any, Any]:
    """J_n and Y_n of a positive number; Y_n of higher orders, which no test takes from here, only where x is large."""
    if x < 300:
        return _of_order(n, x, -1) if n < 2 else (mp.besselj(n, x), mp.nan)
    terms = _terms(n, x)
    p = sum((-1) ** (k // 2) * t for k, t in enumerate(terms) if k % 2 == 0)
    q = sum((-1) ** (k // 2) * t for k, t in enumerate(terms) if k % 2)
    with mp.workprec(mp.mp.prec + max(0, int(mp.log(x, 2))) + 20):
        angle = x - (2 * n + 1) * mp.pi / 4
        cosine, sine = mp.cos(angle), mp.sin(angle)
    scale = mp.sqrt(2 / (mp.pi * x))
    return scale * (p * cosine - q * sine), scale * (p * sine + q * cosine)


def _ie(n: int, x: Any) -> Any:
    """exp(-x) * I_n(x) of a positive number."""
    if x < 300:
        return mp.exp(-x) * (_of_order(n, x, 1)[0] if n < 2 else mp.besseli(n, x))
    return sum((-1) ** k * t for k, t in enumerate(_terms(n, x))) / mp.sqrt(2 * mp.pi * x)


def _ke(n: int, x: Any) -> Any:
    """exp(x) * K_n(x) of a positive number."""
    if x < 300:
        return mp.exp(x) * _of_order(n, x, 1)[1]
    return sum(_terms(n, x)) * mp.sqrt(mp.pi / (2 * x))


def _grown(x: Any, of: Any) -> Any:
    """exp(x) times a number, beyond all formats where x is large."""
    return mp.exp(min(x, mp.mpf(20000))) * of


def _shrunk(x: Any, of: Any) -> Any:
    return mp.exp(-min(x, mp.mpf(20000))) * of


# --- Bessel functions: each in a positive x, given the functions of orders 0 and 1 -----------------------------------


def _odd(of: Exact) -> Exact:
    def both(x: Any) -> Any:
        value, slope, curvature = of(abs(x))
        return (value, slope, curvature) if x > 0 else (-value, slope, -curvature)

    return both


def _even(of: Exact) -> Exact:
    def both(x: Any) -> Any:
        value, slope, curvature = of(abs(x))
        return (value, slope, curvature) if x > 0 else (value, -slope, curvature)

    return both


def _j0(x: Any) -> Any:
    zeroth, first = _jy(0, x)[0], _jy(1, x)[0]
    return zeroth, -first, first / x - zeroth


def _j1(x: Any) -> Any:
    zeroth, first = _jy(0, x)[0], _jy(1, x)[0]
    return first, zeroth - first / x, 2 * first / x**2 - zeroth / x - first


def _small_y(x: Any) -> tuple[Any, Any]:
    log = mp.log(x / 2) + mp.euler
    return 2 / mp.pi * log, -2 / (mp.pi * x) + x / mp.pi * (log - mp.mpf(1) / 2)


def _y0(x: Any) -> Any:
    zeroth, first = _small_y(x) if x < TINY else (_jy(0, x)[1], _jy(1, x)[1])
    return zeroth, -first, first / x - zeroth


def _y1(x: Any) -> Any:
    zeroth, first = _small_y(x) if x < TINY else (_jy(0, x)[1], _jy(1, x)[1])
    return first, zeroth - first / x, 2 * first / x**2 - zeroth / x - first


def _decaying(n: int, x: Any, alternate: int, scale: Any) -> Any:
    """A scaled function beyond 300 with its derivatives, those of the terms of its asymptotic series."""
    found = [mp.mpf(0)] * 3
    for k, term in enumerate(_terms(n, x)):
        power, size = -(k + mp.mpf(1) / 2), alternate**k * term
        found = [found[0] + size, found[1] + power * size, found[2] + power * (power - 1) * size]
    return tuple(scale * part / x**order for order, part in enumerate(found))


def _i0e(x: Any) -> Any:
    if x > 300:
        return _decaying(0, x, -1, 1 / mp.sqrt(2 * mp.pi * x))
    zeroth, first = _ie(0, x), _ie(1, x)
    return zeroth, first - zeroth, 2 * zeroth - 2 * first - first / x


def _i1e(x: Any) -> Any:
    if x > 300:
        return _decaying(1, x, -1, 1 / mp.sqrt(2 * mp.pi * x))
    zeroth, first = _ie(0, x), _ie(1, x)
    return first, zeroth - first - first / x, 2 * first + 2 * first / x + 2 * first / x**2 - 2 * zeroth - zeroth / x


def _i0(x: Any) -> Any:
    zeroth, first = _ie(0, x), _ie(1, x)
    return tuple(_grown(x, part) for part in (zeroth, first, zeroth - first / x))


def _i1(x: Any) -> Any:
    zeroth, first = _ie(0, x), _ie(1, x)
    return tuple(_grown(x, part) for part in (first, zeroth - first / x, first + 2 * first / x**2 - zeroth / x))


def _scaled_k(x: Any) -> tuple[Any, Any]:
    if x < TINY:
        log = mp.log(x / 2) + mp.euler
        return -log * (1 + x), (1 / x + x / 2 * (log - mp.mpf(1) / 2)) * (1 + x + x * x / 2)
    return _ke(0, x), _ke(1, x)


def _k0e(x: Any) -> Any:
    if x > 300:
        return _decaying(0, x, 1, mp.sqrt(mp.pi / (2 * x)))
    zeroth, first = _scaled_k(x)
    return zeroth, zeroth - first, 2 * zeroth - 2 * first + first / x


def _k1e(x: Any) -> Any:
    if x > 300:
        return _decaying(1, x, 1, mp.sqrt(mp.pi / (2 * x)))
    zeroth, first = _scaled_k(x)
    return first, first - zeroth - first / x, 2 * first - 2 * first / x + 2 * first / x**2 - 2 * zeroth + zeroth / x


def _k0(x: Any) -> Any:
    zeroth, first = _scaled_k(x)
    return tuple(_shrunk(x, part) for part in (zeroth, -first, zeroth + first / x))


def _k1(x: Any) -> Any:
    zeroth, first = _scaled_k(x)
    return tuple(_shrunk(x, part) for part in (first, -zeroth - first / x, first + 2 * first / x**2 + zeroth / x))


# --- elliptic integrals --------------------------------------------------------------------------------------------


def _ellipk(m: Any) -> Any:
    if m > 1:
        return NAN, ANY, ANY
    if abs(m) < mp.mpf(2) ** -60:
        return tuple(mp.pi / 2 * part for part in _series(1, "0.25", mp.mpf(9) / 64, mp.mpf(25) / 256)(m))
    n = 1 - m
    k, e = mp.ellipk(m), mp.ellipe(m)
    slope = (e - n * k) / (2 * m * n)
    # From the differential equation m * n * K'' + (1 - 2 * m) * K' - K / 4 = 0.
    return k, slope, (k / 4 - (1 - 2 * m) * slope) / (m * n)


def _ellipe(m: Any) -> Any:
    if m > 1:
        return NAN, ANY, ANY
    if abs(m) < mp.mpf(2) ** -60:
        return tuple(mp.pi / 2 * part for part in _series(1, "-0.25", -mp.mpf(3) / 64, -mp.mpf(5) / 256)(m))
    k, e = mp.ellipk(m), mp.ellipe(m)
    slope = (e - k) / (2 * m)
    return e, slope, -(e / 4 + (1 - m) * slope) / (m * (1 - m))


def _ellipkm1(p: Any) -> Any:
    if p < 0:
        return NAN, ANY, ANY
    if p < mp.mpf(2) ** -90:
        log = mp.log(16 / p) / 2
        return log + p / 4 * (log - 1), -1 / (2 * p), 1 / (2 * p * p)
    value, slope, curvature = _ellipk(1 - p)
    return value, -slope, curvature


# --- integrals -----------------------------------------------------------------------------------------------------


def _exp1(x: Any) -> Any:
    if x > 20000:
        return mp.mpf(0), mp.mpf(0), mp.mpf(0)
    decay = mp.exp(-x)
    return mp.e1(x), -decay / x, decay / x + decay / x**2


def _expi(x: Any) -> Any:
    if abs(x) > 20000:
        return (mp.mpf(2) ** 20000,) * 3 if x > 0 else (mp.mpf(0),) * 3
    growth = mp.exp(x)
    return mp.ei(x), growth / x, growth / x - growth / x**2


def _spence(x: Any) -> Any:
    if x < 0:
        return NAN, ANY, ANY
    log = mp.log(x)
    if x > 1e6:  # inversion, and the series of the dilogarithm
        small = sum((-1) ** k * (mp.mpf(1) / (x - 1)) ** k / mp.mpf(k) ** 2 for k in range(1, 20))
        value = -(mp.pi**2) / 6 - mp.log(x - 1) ** 2 / 2 - small
    else:
        value = mp.polylog(2, 1 - x).real
    if x == 1:
        return mp.mpf(0), mp.mpf(-1), mp.mpf(1) / 2
    slope = log / (1 - x)
    curvature = (1 / x + slope) / (1 - x)
    if abs(x - 1) < TINY:
        slope, curvature = -1 + (x - 1) / 2, mp.mpf(1) / 2 - 2 * (x - 1) / 3
    return value, slope, curvature


def _trigonometric(x: Any) -> tuple[Any, Any]:
    with mp.workprec(mp.mp.prec + max(0, int(mp.log(x, 2))) + 20):
        return mp.cos(x), mp.sin(x)


def _fg(x: Any) -> tuple[Any, Any]:
    """The functions f and g of the sine and cosine integrals, for large numbers."""
    f = sum((-1) ** k * mp.factorial(2 * k) / x ** (2 * k) for k in range(60)) / x
    return f, sum((-1) ** k * mp.factorial(2 * k + 1) / x ** (2 * k) for k in range(60)) / x**2


def _si(x: Any) -> Any:
    cosine, sine = _trigonometric(x)
    if x > 200:
        f, g = _fg(x)
        value = mp.pi / 2 - f * cosine - g * sine
    else:
        value = mp.si(x)
    return value, sine / x, (cosine - sine / x) / x


def _ci(x: Any) -> Any:
    cosine, sine = _trigonometric(x)
    if x > 200:
        f, g = _fg(x)
        value = f * sine - g * cosine
    else:
        value = mp.log(x) + mp.euler if x < mp.mpf(2) ** -200 else mp.ci(x)
    return value, cosine / x, (-sine - cosine / x) / x


def _shi(x: Any) -> Any:
    if x > 20000:
        return (mp.mpf(2) ** 20000,) * 3
    sinh, cosh = mp.sinh(x), mp.cosh(x)
    return mp.shi(x), sinh / x, (cosh - sinh / x) / x


def _chi(x: Any) -> Any:
    if x > 20000:
        return (mp.mpf(2) ** 20000,) * 3
    sinh, cosh = mp.sinh(x), mp.cosh(x)
    value = mp.log(x) + mp.euler if x < mp.mpf(2) ** -200 else mp.chi(x)
    return value, cosh / x, (sinh - cosh / x) / x


def _fresnel(part: int) -> Exact:
    def of(x: Any) -> Any:
        with mp.workprec(mp.mp.prec + 2 * max(0, int(mp.log(x, 2))) + 20):
            angle = mp.fmod(x * x, 4) * mp.pi / 2
            cosine, sine = mp.cos(angle), mp.sin(angle)
        if x < 30:
            value = (mp.fresnels, mp.fresnelc)[part](x)
        else:
            z = mp.pi * x * x
            f = sum((-1) ** k * mp.fac2(4 * k - 1) / z ** (2 * k) for k in range(40)) / (mp.pi * x)
            g = sum((-1) ** k * mp.fac2(4 * k + 1) / z ** (2 * k + 1) for k in range(40)) / (mp.pi * x)
            half = mp.mpf(1) / 2
            value = half - f * cosine - g * sine if part == 0 else half + f * sine - g * cosine
        slopes = (sine, mp.pi * x * cosine) if part == 0 else (cosine, -mp.pi * x * sine)
        return value, *slopes

    return of


# --- elementary functions ------------------------------------------------------------------------------------------


def _exprel(x: Any) -> Any:
    if x > 20000:
        return (mp.mpf(2) ** 20000,) * 3
    growth = mp.exp(x) if x > -20000 else mp.mpf(0)
    value = (growth - 1) / x
    slope = (growth - value) / x
    return value, slope, (growth - 2 * slope) / x


def _cosm1(x: Any) -> Any:
    cosine, sine = _trigonometric(abs(x))
    return -2 * _trigonometric(abs(x) / 2)[1] ** 2, -mp.sign(x) * sine, -cosine


def _degrees(name: str) -> Exact:
    def of(x: Any) -> Any:
        with mp.workprec(mp.mp.prec + max(0, int(mp.log(abs(x), 2))) + 20):
            turn = mp.sign(x) * mp.fmod(abs(x), 360) / 180
            cosine, sine = mp.cospi(turn), mp.sinpi(turn)
        rate = mp.pi / 180
        if name == "sindg":
            return sine, rate * cosine, -(rate**2) * sine
        if name == "cosdg":
            return cosine, -rate * sine, -(rate**2) * cosine
        if (cosine if name == "tandg" else sine) == 0:
            return mp.inf, ANY, ANY
        value = sine / cosine if name == "tandg" else cosine / sine
        slope = rate * (1 + value**2)
        return value, slope if name == "tandg" else -slope, 2 * rate * value * slope

    return of


def _entr(x: Any) -> Any:
    return -x * mp.log(x), -1 - mp.log(x), -1 / x


def _omega(x: Any) -> Any:
    if x < -20000:
        return (mp.mpf(0),) * 3
    w = mp.lambertw(mp.exp(x)).real if x < 1000 else x - mp.log(x)
    for _ in range(12):  # Newton's method, for numbers of which the exponential has too many digits
        w = w - (w + mp.log(w) - x) / (1 + 1 / w)
    return w, w / (1 + w), w / (1 + w) ** 3


def _lambert(k: int) -> Exact:
    def of(x: Any) -> Any:
        if x < -mp.exp(-1):
            return NAN, ANY, ANY
        w = mp.lambertw(x, k).real
        slope = w / (x * (1 + w))
        return w, slope, -(slope**2) * (w + 2) / (1 + w)

    return of


def _order(
    of: Callable[[int, Any], Any], slopes: Callable[..., Any], scaled: tuple[int, Any] | None = None
) -> Callable[[int], Exact]:
    """A function of a whole order with its derivatives, from those of the neighbours."""

    def at(n: int) -> Exact:
        def exact(x: Any) -> Any:
            if scaled is not None and x > 300:
                alternate, scale = scaled
                return _decaying(n, x, alternate, scale() / mp.sqrt(x))
            first = slopes(lambda k: of(k, x), n)
            second = slopes(lambda k: slopes(lambda i: of(i, x), k), n)
            return of(n, x), first, second

        return exact

    return at


def _any_j(n: int, x: Any) -> Any:
    size = _jy(abs(n), abs(x))[0] if abs(x) > TINY else (abs(x) / 2) ** abs(n) / mp.factorial(abs(n))
    return size * (-1 if n % 2 and (n < 0) != (x < 0) else 1)


def _any_y(n: int, x: Any) -> Any:
    below, value = _y0(x)[0], _y1(x)[0]
    if n in (0, -1):
        return below if n == 0 else -value
    for k in range(1, abs(n)):
        below, value = value, 2 * k / x * value - below
    return value * (-1 if n < 0 and n % 2 else 1)


def _any_ie(n: int, x: Any) -> Any:
    size = _ie(abs(n), abs(x)) if abs(x) > TINY else (abs(x) / 2) ** abs(n) / mp.factorial(abs(n))
    return size * (-1 if n % 2 and x < 0 else 1)


def _any_ke(n: int, x: Any) -> Any:
    below, value = _scaled_k(x)
    for k in range(1, abs(n)):
        below, value = value, 2 * k / x * value + below
    return below if n == 0 else value


def _any_e(n: int, x: Any) -> Any:
    if n <= 0:
        value = mp.exp(-x) / x
        for k in range(1, 1 - n):
            value = (mp.exp(-x) + k * value) / x
        return value
    if x > 300:  # 5.1.51
        total, term = mp.mpf(0), mp.mpf(1)
        for k in range(80):
            total += term
            term = -term * (n + k) / x
        return mp.exp(-x) / x * total
    value = mp.e1(x)
    for k in range(1, n):
        value = (mp.exp(-x) - x * value) / k
    return value


_half = mp.mpf(1) / 2
_differences: Callable[..., Any] = lambda of, n: (of(n - 1) - of(n + 1)) / 2  # noqa: E731
_sums: Callable[..., Any] = lambda of, n: (of(n - 1) + of(n + 1)) / 2  # noqa: E731


def _scaled_by(kernel: Callable[[int], Exact], grown: bool) -> Callable[[int], Exact]:
    return lambda n: lambda x: tuple((_grown if grown else _shrunk)(abs(x), part) for part in kernel(n)(x))


_jn = _order(_any_j, _differences)
_yn = _order(_any_y, _differences)
_iv = _scaled_by(_order(_any_ie, _sums), True)
_kv = _scaled_by(_order(_any_ke, lambda of, n: -_sums(of, n)), False)
_ive_positive = _order(_any_ie, lambda of, n: _sums(of, n) - of(n), (-1, lambda: 1 / mp.sqrt(2 * mp.pi)))
_kve = _order(_any_ke, lambda of, n: of(n) - _sums(of, n), (1, lambda: mp.sqrt(mp.pi / 2)))
_expn = _order(_any_e, lambda of, n: -of(n - 1))


def _ive(n: int) -> Exact:
    return (_odd if n % 2 else _even)(_ive_positive(n))


_e = 0.36787944117144233
_SERIES: dict[str, Exact] = {
    "j0": _series(1, 0, "-0.25"),
    "j1": _series(0, "0.5", 0, "-0.0625"),
    "i0": _series(1, 0, "0.25"),
    "i1": _series(0, "0.5", 0, "0.0625"),
    "i0e": _series(1, -1, "0.75", -mp.mpf(5) / 12),
    "i1e": _series(0, "0.5", "-0.5", mp.mpf(5) / 16),
    "si": _series(0, 1, 0, -mp.mpf(1) / 18),
    "shi": _series(0, 1, 0, mp.mpf(1) / 18),
    "exprel": _series(1, "0.5", mp.mpf(1) / 6, mp.mpf(1) / 24),
    "cosm1": _series(0, 0, "-0.5", 0, mp.mpf(1) / 24),
    "fresnel_s": _series(0, 0, 0, lambda: mp.pi / 6),
    "fresnel_c": _series(0, 1, 0, 0, 0, lambda: -(mp.pi**2) / 40),
    "w_zero": _series(0, 1, -1, "1.5", -mp.mpf(8) / 3),
}

# Name: spelling, exact results of numbers that are not zero, and places to look around.
_UNARY: dict[str, tuple[str, Exact, tuple[float, ...]]] = {
    "j0": ("scipy.special.j0(x)", _even(_near_zero(_SERIES["j0"], _j0)), (5.0, 2.404825557695773, 5.520078110286311)),
    "j1": ("scipy.special.j1(x)", _odd(_near_zero(_SERIES["j1"], _j1)), (5.0, 3.8317059702075125, 2.0, 1.84118378)),
    "y0": ("scipy.special.y0(x)", _positive(_y0), (5.0, 0.8935769662791675)),
    "y1": ("scipy.special.y1(x)", _positive(_y1), (5.0, 2.197141326031017)),
    "i0": ("scipy.special.i0(x)", _even(_near_zero(_SERIES["i0"], _i0)), (8.0, 91.9, 713.0)),
    "i1": ("scipy.special.i1(x)", _odd(_near_zero(_SERIES["i1"], _i1)), (8.0, 2.0, 91.9, 713.0)),
    "i0e": ("scipy.special.i0e(x)", _even(_near_zero(_SERIES["i0e"], _i0e)), (8.0,)),
    "i1e": ("scipy.special.i1e(x)", _odd(_near_zero(_SERIES["i1e"], _i1e)), (8.0, 2.0, 1.5451372)),
    "k0": ("scipy.special.k0(x)", _positive(_k0), (1.0, 85.0, 101.0, 705.0, 742.0)),
    "k1": ("scipy.special.k1(x)", _positive(_k1), (1.0, 85.0, 101.0, 705.0, 742.0)),
    "k0e": ("scipy.special.k0e(x)", _positive(_k0e), (1.0,)),
    "k1e": ("scipy.special.k1e(x)", _positive(_k1e), (1.0,)),
    "ellipk": ("scipy.special.ellipk(x)", _ellipk, (1.0, 0.3, -0.3)),
    "ellipkm1": ("scipy.special.ellipkm1(x)", _ellipkm1, (1.0, 0.7, 1.3)),
    "ellipe": ("scipy.special.ellipe(x)", _ellipe, (1.0, 0.3, -0.3)),
    "exp1": ("scipy.special.exp1(x)", _positive(_exp1), (1.0, 83.0, 99.0, 701.0, 738.0)),
    "expi": ("scipy.special.expi(x)", _expi, (0.37250741078136663, 6.0, 12.0, 30.0, 93.0, 716.0, -701.0)),
    "spence": ("scipy.special.spence(x)", _spence, (1.0, 0.5, 2.0)),
    "si": ("dualbcast.special.si(x)", _odd(_near_zero(_SERIES["si"], _si)), (4.0, 0.9, pi)),
    "ci": ("dualbcast.special.ci(x)", _positive(_ci), (4.0, 0.6165054856207162)),
    "shi": ("dualbcast.special.shi(x)", _odd(_near_zero(_SERIES["shi"], _shi)), (6.0, 1.0, 20.0, 93.0, 716.0)),
    "chi": ("dualbcast.special.chi(x)", _positive(_chi), (6.0, 20.0, 0.5238225713898644, 93.0, 716.0)),
    "fresnel_s": ("dualbcast.special.fresnel_s(x)", _odd(_near_zero(_SERIES["fresnel_s"], _fresnel(0))), (1.6, 1.0)),
    "fresnel_c": ("dualbcast.special.fresnel_c(x)", _odd(_near_zero(_SERIES["fresnel_c"], _fresnel(1))), (1.6, 1.0)),
    "exprel": ("scipy.special.exprel(x)", _near_zero(_SERIES["exprel"], _exprel), (2.0, -2.0, 80.0, 716.0)),
    "cosm1": ("scipy.special.cosm1(x)", _near_zero(_SERIES["cosm1"], _cosm1), (pi, 2 * pi)),
    "sindg": ("scipy.special.sindg(x)", _degrees("sindg"), (30.0, 90.0, 180.0, 360.0)),
    "cosdg": ("scipy.special.cosdg(x)", _degrees("cosdg"), (60.0, 90.0, 180.0, 360.0)),
    "tandg": ("scipy.special.tandg(x)", _degrees("tandg"), (45.0, 90.0, 180.0)),
    "cotdg": ("scipy.special.cotdg(x)", _degrees("cotdg"), (45.0, 90.0, 180.0)),
    "entr": ("scipy.special.entr(x)", _positive(_entr, (-mp.inf, ANY, ANY)), (1.0, _e)),
    "wrightomega": ("scipy.special.wrightomega(x)", _omega, (1.0, 0.0, -80.0, -700.0)),
    "w_zero": ("dualbcast.special.lambertw(x)", _near_zero(_SERIES["w_zero"], _lambert(0)), (-_e, -0.32, 0.1)),
    "w_minus_one": (
        "dualbcast.special.lambertw(x, -1)",
        lambda x: _lambert(-1)(x) if x < 0 else (NAN, ANY, ANY),
        (-_e, -0.32, -0.2, -0.1),
    ),
    "jn 2": ("scipy.special.jv(2, x)", _jn(2), (2.0, 5.0, 5.135622301840683)),
    "yn 2": ("scipy.special.yv(2, x)", _positive(_yn(2)), (5.0,)),
    "iv 2": ("scipy.special.iv(2, x)", _iv(2), (32.0, 92.0, 713.0)),
    "ive 2": ("scipy.special.ive(2, x)", _ive(2), (32.0,)),
    "kv 2": ("scipy.special.kn(2, x)", _positive(_kv(2)), (1.0, 85.0, 101.0, 705.0, 742.0)),
    "kve 2": ("scipy.special.kve(2, x)", _positive(_kve(2)), (1.0,)),
    "expn 2": ("scipy.special.expn(2, x)", _positive(lambda x: _shrunk_e(x)), (1.0, 83.0, 99.0, 701.0, 738.0)),
}


def _shrunk_e(x: Any) -> Any:
    return _expn(2)(x) if x < 20000 else (mp.mpf(0),) * 3


_OUTSIDE = (nan, ANY, ANY)
# At zeros and infinities: a limit or a convention.
ENDS: dict[str, dict[float | str, tuple[float | None, ...]]] = {
    "j0": {"+0": (1.0, 0.0, -0.5), "-0": (1.0, 0.0, -0.5), inf: (0.0, ANY, ANY), -inf: (0.0, ANY, ANY)},
    "j1": {"+0": (0.0, 0.5, 0.0), "-0": (-0.0, 0.5, 0.0), inf: (0.0, ANY, ANY), -inf: (-0.0, ANY, ANY)},
    "jn 2": {"+0": (0.0, 0.0, 0.25), "-0": (0.0, 0.0, 0.25), inf: (0.0, ANY, ANY), -inf: (0.0, ANY, ANY)},
    "i0": {"+0": (1.0, 0.0, 0.5), "-0": (1.0, 0.0, 0.5), inf: (inf, inf, ANY), -inf: (inf, -inf, ANY)},
    "i1": {"+0": (0.0, 0.5, 0.0), "-0": (-0.0, 0.5, 0.0), inf: (inf, inf, inf), -inf: (-inf, inf, -inf)},
    "iv 2": {"+0": (0.0, 0.0, 0.25), "-0": (0.0, 0.0, 0.25), inf: (inf, ANY, ANY), -inf: (inf, ANY, ANY)},
    "i0e": {"+0": (1.0, 0.0, ANY), "-0": (1.0, 0.0, ANY), inf: (0.0, ANY, ANY), -inf: (0.0, ANY, ANY)},
    "i1e": {"+0": (0.0, 0.5, ANY), "-0": (-0.0, 0.5, ANY), inf: (0.0, ANY, ANY), -inf: (-0.0, ANY, ANY)},
    "ive 2": {"+0": (0.0, 0.0, 0.25), "-0": (0.0, 0.0, 0.25), inf: (0.0, ANY, ANY), -inf: (0.0, ANY, ANY)},
    **{
        name: {"+0": (low, -low, ANY), "-0": (low, ANY, ANY), inf: (high, ANY, ANY), -inf: _OUTSIDE}
        for name, low, high in (
            *(("y0", -inf, 0.0), ("y1", -inf, 0.0), ("yn 2", -inf, 0.0), ("exp1", inf, 0.0)),
            *(("k0", inf, 0.0), ("k1", inf, 0.0), ("kv 2", inf, 0.0), ("kve 2", inf, 0.0)),
            *(("k0e", inf, 0.0), ("k1e", inf, 0.0), ("ci", -inf, 0.0), ("chi", -inf, inf)),
        )
    },
    "expn 2": {"+0": (1.0, -inf, ANY), "-0": (1.0, ANY, ANY), inf: (0.0, ANY, ANY), -inf: _OUTSIDE},
    "expi": {"+0": (-inf, inf, ANY), "-0": (-inf, ANY, ANY), inf: (inf, inf, ANY), -inf: (-0.0, ANY, ANY)},
    "ellipk": {
        1.0: (inf, inf, inf),
        "+0": (pi / 2, pi / 8, 9 * pi / 64),
        "-0": (pi / 2, pi / 8, 9 * pi / 64),
        inf: _OUTSIDE,
        -inf: (0.0, ANY, ANY),
    },
    "ellipe": {
        1.0: (1.0, -inf, -inf),
        "+0": (pi / 2, -pi / 8, -3 * pi / 64),
        "-0": (pi / 2, -pi / 8, -3 * pi / 64),
        inf: _OUTSIDE,
        -inf: (inf, ANY, ANY),
    },
    "ellipkm1": {"+0": (inf, -inf, inf), "-0": (inf, ANY, ANY), inf: (0.0, ANY, ANY), -inf: _OUTSIDE},
    "spence": {"+0": (pi * pi / 6, -inf, ANY), "-0": (pi * pi / 6, ANY, ANY), inf: (-inf, ANY, ANY), -inf: _OUTSIDE},
    "si": {"+0": (0.0, 1.0, 0.0), "-0": (-0.0, 1.0, 0.0), inf: (pi / 2, ANY, ANY), -inf: (-pi / 2, ANY, ANY)},
    "shi": {"+0": (0.0, 1.0, 0.0), "-0": (-0.0, 1.0, 0.0), inf: (inf, inf, ANY), -inf: (-inf, inf, ANY)},
    "fresnel_s": {"+0": (0.0, 0.0, 0.0), "-0": (-0.0, 0.0, 0.0), inf: (0.5, ANY, ANY), -inf: (-0.5, ANY, ANY)},
    "fresnel_c": {"+0": (0.0, 1.0, 0.0), "-0": (-0.0, 1.0, 0.0), inf: (0.5, ANY, ANY), -inf: (-0.5, ANY, ANY)},
    "exprel": {"+0": (1.0, 0.5, 1 / 3), "-0": (1.0, 0.5, 1 / 3), inf: (inf, ANY, ANY), -inf: (0.0, ANY, ANY)},
    "cosm1": {"+0": (ANY, 0.0, -1.0), "-0": (ANY, 0.0, -1.0), inf: (nan, ANY, ANY), -inf: (nan, ANY, ANY)},
    **{name: {inf: (nan, ANY, ANY), -inf: (nan, ANY, ANY)} for name in ("sindg", "cosdg", "tandg")},
    "cotdg": {"+0": (inf, ANY, ANY), "-0": (inf, ANY, ANY), inf: (nan, ANY, ANY), -inf: (nan, ANY, ANY)},
    "entr": {"+0": (0.0, inf, -inf), "-0": (0.0, ANY, ANY), inf: (-inf, -inf, ANY), -inf: (-inf, ANY, ANY)},
    "wrightomega": {inf: (inf, 1.0, ANY), -inf: (0.0, 0.0, 0.0)},
    "w_zero": {"+0": (0.0, 1.0, -2.0), "-0": (-0.0, 1.0, -2.0), inf: (inf, 0.0, ANY), -inf: _OUTSIDE},
    "w_minus_one": {"+0": (-inf, ANY, ANY), "-0": (-inf, ANY, ANY), inf: _OUTSIDE, -inf: _OUTSIDE},
}

FORMS = _UNARY

# --- for the table of rules ------------------------------------------------------------------------------------------

VALUES: dict[str, Callable[..., Any]] = {
    "j0": lambda x: mp.besselj(0, x),
    "j1": lambda x: mp.besselj(1, x),
    "jn": lambda n, x: mp.besselj(int(n), x),
    "y0": lambda x: _jy(0, x)[1],
    "y1": lambda x: _jy(1, x)[1],
    "yn": lambda n, x: _any_y(int(n), x),
    "i0": lambda x: mp.besseli(0, x),
    "i1": lambda x: mp.besseli(1, x),
    "iv": lambda n, x: mp.besseli(int(n), x),
    "i0e": lambda x: mp.exp(-abs(x)) * mp.besseli(0, x),
    "i1e": lambda x: mp.exp(-abs(x)) * mp.besseli(1, x),
    "ive": lambda n, x: mp.exp(-abs(x)) * mp.besseli(int(n), x),
    "k0": lambda x: mp.exp(-x) * _ke(0, x),
    "k1": lambda x: mp.exp(-x) * _ke(1, x),
    "kv": lambda n, x: mp.exp(-x) * _any_ke(int(n), x),
    "k0e": lambda x: _ke(0, x),
    "k1e": lambda x: _ke(1, x),
    "kve": lambda n, x: _any_ke(int(n), x),
    "ellipk": mp.ellipk,
    "ellipkm1": lambda p: mp.ellipk(1 - p),
    "ellipe": mp.ellipe,
    "exp1": mp.e1,
    "expi": mp.ei,
    "expn": lambda n, x: _any_e(int(n), x),
    "spence": lambda x: mp.polylog(2, 1 - x).real,
    "si": mp.si,
    "ci": mp.ci,
    "shi": mp.shi,
    "chi": mp.chi,
    "fresnel_s": mp.fresnels,
    "fresnel_c": mp.fresnelc,
    "exprel": lambda x: mp.expm1(x) / x,
    "cosm1": lambda x: mp.cos(x) - 1,
    "sindg": lambda x: mp.sinpi(x / 180),
    "cosdg": lambda x: mp.cospi(x / 180),
    "tandg": lambda x: mp.sinpi(x / 180) / mp.cospi(x / 180),
    "cotdg": lambda x: mp.cospi(x / 180) / mp.sinpi(x / 180),
    "entr": lambda x: -x * mp.log(x),
    "wrightomega": lambda x: mp.lambertw(mp.exp(x)).real,
    "w_zero": lambda x: mp.lambertw(x).real,
    "w_minus_one": lambda x: mp.lambertw(x, -1).real,
}

# The terms of the derivative of exp(-x) * I_n(x) are larger than it is.
GRANTED = {"ive": (0.0, 1.0, 2.0)}

_Edge = tuple[tuple[float, ...], float | None, tuple[float | None, ...]]


def _edges(name: str) -> tuple[_Edge, ...]:
    """The values and slopes at zeros and infinities, for a function of one argument."""
    places = {"+0": 0.0, "-0": -0.0}
    ends = ENDS.get(name, {})
    found = [((places.get(at, at),), value, (slope,)) for at, (value, slope, _) in ends.items()]  # type: ignore[call-overload]
    return (*found, ((nan,), nan, (ANY,)))


EDGES: dict[str, tuple[_Edge, ...]] = {name: _edges(name) for name in VALUES if name in _UNARY}
for _name, _points in {
    "jn": (((0, 0.0), 1.0, (0.0, 0.0)), ((3, 0.0), 0.0, (0.0, 0.0)), ((-1, 1.0), -0.44005058574493355, (0.0, ANY))),
    "yn": (((2, 0.0), -inf, (0.0, ANY)), ((2, -1.0), nan, (0.0, ANY))),
    "iv": (((0, 0.0), 1.0, (0.0, 0.0)), ((-2, 1.0), 0.13574766976703829, (0.0, ANY))),
    "ive": (((3, 0.0), 0.0, (0.0, 0.0)), ((2, inf), 0.0, (0.0, ANY))),
    "kv": (((2, 0.0), inf, (0.0, ANY)), ((2, inf), 0.0, (0.0, ANY))),
    "kve": (((2, -1.0), nan, (0.0, ANY)), ((2, inf), 0.0, (0.0, ANY))),
    "expn": (((3, 0.0), 0.5, (0.0, -1.0)), ((2, inf), 0.0, (0.0, ANY)), ((2, -1.0), nan, (0.0, ANY))),
}.items():
    EDGES[_name] = (*_points, ((1, nan), nan, (0.0, ANY)))
