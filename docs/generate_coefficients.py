"""Prints the coefficients in the files of dualbcast/codegen/mathlib/, and those in
dualbcast/special/, and what error they leave: python docs/generate_coefficients.py

Least squares of the relative error, at Chebyshev's points and 70 digits. A quotient P / Q is found by weighting the
linear problem P - y * Q with the Q before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mpmath
import numpy as np

Number = mpmath.mpf
Real = Callable[[Number], Number]
mpmath.mp.dps = 70


def chebyshev(low: float, high: float, count: int, way: Real = lambda x: x, back: Real = lambda x: x) -> list[Number]:
    """Chebyshev's points of an interval, as they lie after the change of variable `way`."""
    low, high = way(Number(low)), way(Number(high))
    middle, half = (low + high) / 2, (high - low) / 2
    return [back(middle + half * mpmath.cos(mpmath.pi * (k + 0.5) / count)) for k in range(count)]


def value(coefficients: Sequence[Number], x: Number) -> Number:
    return mpmath.polyval(list(coefficients)[::-1], x)


def fit(
    of: Real, points: list[Number], above: int, below: int = 0, weight: Real | None = None, first: Number | None = None
) -> tuple[list[Number], list[Number]]:
    """P and Q, of these degrees, with P / Q close to `of`; Q begins with 1, and P with `first` if that is given.

    The error is relative, unless it has a `weight`.
    """
    values = [of(x) for x in points]
    weights = [1 / y if weight is None else weight(x) for x, y in zip(points, values, strict=True)]
    scale = max(map(abs, points))
    start = 0 if first is None else 1
    top, bottom = [Number(0)], [Number(1)]
    for _ in range(6 if below else 1):
        rows, right = [], []
        for x, y, w in zip(points, values, weights, strict=True):
            w = w / value(bottom, x)
            powers = [w * (x / scale) ** k for k in range(max(above, below) + 1)]
            rows.append([*powers[start : above + 1], *(-y * power for power in powers[1 : below + 1])])
            right.append(w * y - (w * first if first is not None else 0))
        matrix = mpmath.matrix(rows)
        found = list(mpmath.lu_solve(matrix.T * matrix, matrix.T * mpmath.matrix(right)))
        count = above + 1 - start
        top = [*([first] * start), *(c / scale ** (k + start) for k, c in enumerate(found[:count]))]
        bottom = [Number(1), *(c / scale ** (k + 1) for k, c in enumerate(found[count:]))]
    return top, bottom


def show(name: str, dtype: type[np.floating], *parts: tuple[str, list[Number]], error: Number) -> None:
    """Print coefficients rounded to a format, and the error as a power of two."""
    print(f"# {name}, {dtype.__name__}: leaves out 2**{float(mpmath.log(error, 2)):.1f}")
    for label, coefficients in parts:
        print(f"{label}=({', '.join(repr(float(dtype(float(c)))) for c in coefficients)},),")


def tail(x: Number) -> Number:
    """S in erfc(x) = exp(-x * x) * (1 + S) / (1 + 2 * x)."""
    return mpmath.exp(x * x) * mpmath.erfc(x) * (1 + 2 * x) - 1


def complementary(dtype: type[np.floating], largest: float, degree: int) -> None:
    """The tail of erfc as a quotient, without the first coefficients, 0 and 1; it is smooth in 1 / (x + 4)."""
    points = chebyshev(0, largest, 16 * degree, lambda x: 1 / (x + 4), lambda r: 1 / r - 4)
    above, below = fit(tail, points, degree, degree, weight=lambda x: 1 / (1 + tail(x)), first=Number(0))
    error = max(abs((value(above, x) / value(below, x) - tail(x)) / (1 + tail(x))) for x in points)
    show("erfc", dtype, ("above", above[1:]), ("below", below[1:]), error=error)


def error_function(dtype: type[np.floating], largest: float, degree: int) -> None:
    """-log(erfc(x)) / x without its value at 0, divided by x, as a quotient; the error is relative to erf."""
    slope = 2 / mpmath.sqrt(mpmath.pi)

    def of(x: Number) -> Number:
        return (-mpmath.log(mpmath.erfc(x)) / x - slope) / x

    def weight(x: Number) -> Number:
        return x * x * mpmath.erfc(x) / mpmath.erf(x)

    points = chebyshev(1e-6, largest, 30 * degree)
    top, bottom = fit(of, points, degree, degree, weight=weight)
    error = max(abs((value(top, x) / value(bottom, x) - of(x)) * weight(x)) for x in points)
    show("erf", dtype, ("erf_above", top), ("erf_below", bottom[1:]), error=error)


def cube_root(dtype: type[np.floating], degree: int) -> None:
    """The cube root as a polynomial, which a step of Halley's makes better."""
    points = chebyshev(mpmath.sqrt(0.5), mpmath.sqrt(2), 16 * degree)
    top, _ = fit(mpmath.cbrt, points, degree)
    error = max(abs(value(top, x) / mpmath.cbrt(x) - 1) for x in points)
    show("cbrt", dtype, ("cube_root", top), error=error)


def logarithm(dtype: type[np.floating], degree: int) -> None:
    """(log(1 + f) - f + f**2 / 2) / f**3 as a polynomial; the error is relative to the logarithm."""

    def of(f: Number) -> Number:
        return (mpmath.log(1 + f) - f + f * f / 2) / f**3

    def weight(f: Number) -> Number:
        return f**3 / mpmath.log(1 + f)

    points = chebyshev(mpmath.sqrt(0.5) - 1, mpmath.sqrt(2) - 1, 16 * degree)
    top, _ = fit(of, points, degree, weight=weight)
    error = max(abs((value(top, f) - of(f)) * weight(f)) for f in points)
    show("log", dtype, ("logarithm", top), error=error)


def arc(function: Real, dtype: type[np.floating], degree: int) -> None:
    """(f(x) - x) / x**3 as a polynomial in x**2, for the inverse f of a circular function and abs(x) <= 1/2; the error
    is relative to the function."""

    def of(z: Number) -> Number:
        x = mpmath.sqrt(z)
        return (function(x) - x) / x**3

    def weight(z: Number) -> Number:
        return z**1.5 / function(mpmath.sqrt(z))

    points = chebyshev(1e-12, 0.25, 16 * degree)
    top, _ = fit(of, points, degree, weight=weight)
    error = max(abs((value(top, z) - of(z)) * weight(z)) for z in points)
    show(function.__name__, dtype, ("arc", top), error=error)


def binary_tail(z: Number) -> Number:
    """P in log2((1 + s) / (1 - s)) = s * (C + D * s**2 + s**4 * P(s**2)), where C is 2 / log(2) and D a third of it."""
    s = mpmath.sqrt(z)
    return 2 * (mpmath.atanh(s) - s - s**3 / 3) / (mpmath.log(2) * s**5)


def powers() -> None:
    """log2 and exp2 in float64: L and E, with errors for powers in float32, and P, C and D for those in float64."""
    low, high = mpmath.sqrt(0.5) - 1, mpmath.sqrt(2) - 1
    points = chebyshev(low, high, 16 * 12)
    top, _ = fit(lambda f: mpmath.log(1 + f) / f / mpmath.log(2), points, 12)
    error = max(abs(f * value(top, f) * mpmath.log(2) / mpmath.log(1 + f) - 1) for f in points)
    show("log2", np.float64, ("_LOGARITHM", top), error=error)
    points = chebyshev(-0.5, 0.5, 16 * 5)
    top, _ = fit(lambda r: (2**r - 1) / r, points, 5, weight=abs)
    error = max(abs((1 + r * value(top, r)) / 2**r - 1) for r in points)
    show("exp2", np.float64, ("_EXPONENTIAL", top), error=error)
    points = chebyshev(1e-9, low**2 / (2 + low) ** 2, 16 * 7)
    top, _ = fit(binary_tail, points, 7, weight=lambda _: Number(1))
    error = max(abs((value(top, z) - binary_tail(z)) * z * z * mpmath.log(2) / 2) for z in points)
    show("log2", np.float64, ("_TAIL", top), error=error)
    for label, factor in (("_FIRST", 2 / mpmath.log(2)), ("_SECOND", 2 / (3 * mpmath.log(2)))):
        print(f"{label}, {label}_LOW = {float(factor)}, {float(factor - Number(float(factor)))}")


def beside_tables() -> None:
    """The short polynomials of exponentials, logarithms and powers, for what is left where tables have the rest."""

    def found(
        name: str, label: str, of: Real, reach: float, degree: int, to_relative: Real, weight: Real | None = None
    ) -> None:
        """Print a polynomial for abs(x) up to `reach`; `to_relative` leads from its error to that of the function."""
        points = chebyshev(-reach, reach, 128)
        top, _ = fit(of, points, degree, weight=weight or to_relative)
        error = max(abs((value(top, x) - of(x)) * to_relative(x)) for x in points)
        show(name, np.float64, (label, top), error=error)

    def exponential(r: Number) -> Number:
        return (mpmath.exp(r) - 1 - r) / r**2

    def logarithm(z: Number) -> Number:
        return (mpmath.log(1 + z) - z + z * z / 2) / z**3

    def of_power(z: Number) -> Number:
        return mpmath.log(1 + z) / z / mpmath.log(2)

    # As far from 1 as numbers are after the multiplication with that of their cell.
    reach = 0.032555
    half_step = float(mpmath.log(2)) / 32
    found("expm1", "_SHORT", exponential, half_step, 5, lambda r: r**2 / mpmath.expm1(r), lambda r: r)
    found("exp2", "_SHORT_EXPONENTIAL", lambda r: (2**r - 1) / r, 1 / 32, 2, lambda r: r)
    for label, degree in (("_SHORT", 7), ("_SHORT_TAIL", 8)):
        found("log", label, logarithm, reach, degree, lambda z: z**3 / mpmath.log(1 + z))
    found("log2", "_SHORT_LOGARITHM", of_power, reach, 5, lambda z: 1 / of_power(z))


def gamma_near(d: Number) -> Number:
    """lgamma(1 + d) / (d * (d - 1)), which is 1/2 + S."""
    for zero, slope in ((0, mpmath.euler), (1, 1 - mpmath.euler)):
        if abs(d - zero) < Number(10) ** -30:
            return slope
    return mpmath.loggamma(1 + d) / (d * (d - 1))


def gamma_far(z: Number) -> Number:
    """W in lgamma(x) = (x - 1/2) * log(x) - x + log(2 * pi) / 2 + W(1 / x**2) / x."""
    x = 1 / mpmath.sqrt(z)
    return x * (mpmath.loggamma(x) - (x - Number(0.5)) * mpmath.log(x) + x - mpmath.log(2 * mpmath.pi) / 2)


def gamma(dtype: type[np.floating], above: int, below: int) -> None:
    """The logarithm of the gamma function between 1 and 3: S as a quotient."""
    points = chebyshev(0, 2, 16 * above)
    top, bottom = fit(lambda d: gamma_near(d) - 0.5, points, above, below, weight=lambda d: 1 / gamma_near(d))
    error = max(abs((value(top, d) / value(bottom, d) + 0.5) / gamma_near(d) - 1) for d in points)
    show("lgamma", dtype, ("above", top), ("below", bottom), error=error)


def reciprocal(t: Number) -> Number:
    """R in 1 / gamma(2 + t) = 1 + t * R(t)."""
    return mpmath.euler - 1 if abs(t) < Number(10) ** -25 else (1 / mpmath.gamma(2 + t) - 1) / t


def long_logarithm(z: Number) -> Number:
    """L in log((1 + s) / (1 - s)) = 2 * s + s**3 * L(s**2)."""
    s = mpmath.sqrt(z)
    return 2 * (mpmath.atanh(s) - s) / s**3


def sine(z: Number) -> Number:
    """S in sin(pi * r) / pi = r + r**3 * S(r**2)."""
    r = mpmath.sqrt(z)
    return (mpmath.sin(mpmath.pi * r) / mpmath.pi - r) / r**3


def factorial(dtype: type[np.floating], first: float, around: int, far: int, log: int, last: int) -> None:
    """The gamma function: R, W beyond `first`, L and S as polynomials. Errors of W and L are absolute."""

    def polynomial(label: str, of: Real, points: list[Number], degree: int, weight: Real) -> None:
        top, _ = fit(of, points, degree, weight=weight)
        error = max(abs((value(top, x) - of(x)) * weight(x)) for x in points)
        show("tgamma", dtype, (label, top), error=error)

    polynomial(
        "around",
        reciprocal,
        chebyshev(-0.5, 0.5, 16 * around),
        around,
        lambda t: (t or Number(1)) * mpmath.gamma(2 + t),
    )
    polynomial("far", gamma_far, chebyshev(1e-12, 1 / Number(first) ** 2, 16 * far), far, mpmath.sqrt)
    largest = (mpmath.sqrt(2) - 1) ** 4
    polynomial("log", long_logarithm, chebyshev(1e-12, largest, 16 * log), log, lambda z: z**1.5 + Number(10) ** -12)
    polynomial(
        "sine",
        sine,
        chebyshev(1e-12, 0.25, 16 * last),
        last,
        lambda z: mpmath.pi * z**1.5 / mpmath.sin(mpmath.pi * mpmath.sqrt(z)),
    )


def scaled_tail(x: Number, order: int) -> Number:
    """The derivative of this order of exp(x * x) * erfc(x), which is not negative when its sign is left out."""
    if x < 40:
        value = mpmath.exp(x * x) * mpmath.erfc(x)
        slope = 2 / mpmath.sqrt(mpmath.pi) - 2 * x * value
        return (value, slope, 2 * value - 2 * x * slope)[order]
    # The derivatives of the asymptotic series, DLMF 7.12.1.
    total, term = Number(0), 1 / (x * mpmath.sqrt(mpmath.pi))
    for n in range(200):
        total += term * mpmath.rf(2 * n + 1, order) / x**order
        term *= -(2 * n + 1) / (2 * x * x)
    return total


def scaled_error_function(order: int, degree: int) -> None:
    """P(q) in P(q) / (1 + 2 * x)**(order + 1), the derivative of exp(x * x) * erfc(x), by q = (x - 4) / (x + 4).

    For the function itself 1 + x / (x + 4) * P(q), which is 1 at 0.
    """

    def of(q: Number) -> Number:
        x = 4 * (1 + q) / (1 - q)
        scaled = (1 + 2 * x) ** (order + 1) * scaled_tail(x, order)
        return scaled if order else (scaled - 1) * (x + 4) / x

    points = chebyshev(-1, 1, 4 * degree)
    top, _ = fit(of, points, degree, weight=None if order else lambda _: Number(1))
    error = max(abs(value(top, q) / of(q) - 1) if order else abs(value(top, q) - of(q)) for q in points)
    show("erfcx", np.float64, (f"derivative {order}, highest power first", top[::-1]), error=error)


def uniform_series(count: int, length: int) -> list[list[Number]]:
    """The Taylor series in eta of the functions c_k of DLMF 8.12.10 for k up to `count`, by the recurrence 8.12.11."""
    # m(eta), where eta**2 / 2 = m - log(1 + m), from m * m' = eta * (1 + m).
    m = [Number(0), Number(1)]
    for n in range(2, length + 2):
        m.append(m[n - 1] / (n + 1) - sum(m[i] * m[n + 1 - i] for i in range(2, n)) / 2)
    inverse = [Number(1)]  # eta / m(eta)
    for n in range(1, length):
        inverse.append(-sum(m[i + 1] * inverse[n - i] for i in range(1, n + 1)))
    # The coefficients of exp(Stirling's series).
    logarithm = [Number(0)] * (count + 1)
    for k in range(1, count // 2 + 2):
        if 2 * k - 1 <= count:
            logarithm[2 * k - 1] = mpmath.bernoulli(2 * k) / (2 * k * (2 * k - 1))
    stirling = [Number(1)]
    for n in range(1, count + 1):
        stirling.append(sum(k * logarithm[k] * stirling[n - k] for k in range(1, n + 1)) / n)
    series = [inverse[1:]]
    for k in range(1, count + 1):
        last = series[-1]
        series.append([(n + 2) * last[n + 2] + (-1) ** k * stirling[k] * inverse[n + 1] for n in range(len(last) - 2)])
    return series


def incomplete_gamma() -> None:
    """UNIFORM, polynomials for c_k where x is within 0.4 * a of a, and LOG_GAMMA; the errors are absolute.

    That of c_k counts 20**-k times, as the expansion begins at a = 20.
    """
    degrees = (13, 12, 10, 10, 9, 8, 6, 6, 5, 3, 2)
    for k, series in enumerate(uniform_series(len(degrees) - 1, 70)):

        def of(eta: Number, series: list[Number] = series) -> Number:
            return value(series[:45], eta)

        points = chebyshev(-0.472, 0.358, 8 * (degrees[k] + 2))
        top, _ = fit(of, points, degrees[k], weight=lambda _: Number(1))
        error = max(abs(value(top, eta) - of(eta)) for eta in points) / Number(20) ** k
        show("gammainc", np.float64, (f"c_{k}, highest power first", top[::-1]), error=error)

    def scaled(h: Number) -> Number:
        return mpmath.loggamma(1.5 + h) / (0.5 + h)

    points = chebyshev(-0.5, 0.5, 160)
    top, _ = fit(scaled, points, 20, weight=lambda _: Number(1))
    error = max(abs(value(top, h) - scaled(h)) for h in points)
    show("gammaincc", np.float64, ("LOG_GAMMA, highest power first", top[::-1]), error=error)


def dawson_integral(x: Number) -> Number:
    if x < 30:
        return mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(-x * x) * mpmath.erfi(x)
    # DLMF 7.12.1, of the imaginary argument.
    return sum(mpmath.fac2(2 * n - 1) / (2 * x) / (2 * x * x) ** n for n in range(200))


def dawson() -> None:
    """Dawson's integral over x as a quotient in x**2 up to 36, and (2 * x * it - 1) * x**2 by 1 / x**2 beyond."""

    def core(z: Number) -> Number:
        return dawson_integral(mpmath.sqrt(z)) / mpmath.sqrt(z)

    def tail(w: Number) -> Number:
        x = 1 / mpmath.sqrt(w)
        return (2 * x * dawson_integral(x) - 1) / w

    points = chebyshev(0, 36, 150)
    above, below = fit(core, points, 15, 15)
    error = max(abs(value(above, z) / value(below, z) / core(z) - 1) for z in points)
    show("dawsn", np.float64, ("above, highest power first", above[::-1]), ("below", below[::-1]), error=error)
    points = chebyshev(1e-6, Number(1) / 36, 150)
    top, _ = fit(tail, points, 15)
    error = max(abs(value(top, w) / tail(w) - 1) for w in points)
    show("dawsn", np.float64, ("tail, highest power first", top[::-1]), error=error)


if __name__ == "__main__":
    dawson()
    incomplete_gamma()
    for order, degree in enumerate((25, 28, 30)):
        scaled_error_function(order, degree)
    factorial(np.float32, 3.5, 6, 2, 2, 3)
    factorial(np.float64, 5.5, 13, 6, 7, 7)
    gamma(np.float32, 4, 3)
    gamma(np.float64, 8, 7)
    complementary(np.float32, 10.19, 5)
    complementary(np.float64, 27.3, 11)
    error_function(np.float32, 3.95, 3)
    error_function(np.float64, 5.95, 7)
    cube_root(np.float32, 2)
    cube_root(np.float64, 5)
    logarithm(np.float32, 7)
    logarithm(np.float64, 18)
    beside_tables()
    for dtype, degrees in ((np.float32, (4, 4)), (np.float64, (11, 12))):
        arc(mpmath.atan, dtype, degrees[0])
        arc(mpmath.asin, dtype, degrees[1])
    powers()
