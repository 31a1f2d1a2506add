"""Writes dualbcast/special/classical/coefficients.py, and prints what error each polynomial or quotient leaves:
python docs/generate_special_coefficients.py

Each is a polynomial or a quotient of two. They are found by least squares of the relative error, as in
`generate_coefficients`. The functions come from mpmath.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import mpmath
from generate_coefficients import Number, Real, chebyshev, fit, value

TARGET = Path(__file__).parents[1] / "dualbcast" / "special" / "classical" / "coefficients.py"
pi, sqrt, exp, log = mpmath.pi, mpmath.sqrt, mpmath.exp, mpmath.log


def besselj(n: int) -> Real:
    """J_n(x) / (x**n * (q - z1**2) * (q - z2**2)) as a function of q = x**2, with the first two positive zeros."""
    first, second = (mpmath.besseljzero(n, k) ** 2 for k in (1, 2))
    return lambda q: mpmath.besselj(n, sqrt(q)) / (sqrt(q) ** n * (q - first) * (q - second))


def bessely(n: int) -> Real:
    """What Y_n(x) / x**n has beside (2 / pi) * (log(x) * J_n(x) - n / x), as a function of q = x**2."""

    def of(q: Number) -> Number:
        x = sqrt(q)
        return (mpmath.bessely(n, x) - 2 / pi * (log(x) * mpmath.besselj(n, x) - n / x)) / x**n

    return of


def hankel(n: int, part: int) -> Real:
    """P and x * Q as functions of w = (5 / x)**2, in J_n(x) = sqrt(2 / (pi * x)) * (P * cos(chi) - Q * sin(chi)).

    Here chi is x - (2 * n + 1) * pi / 4 (Abramowitz and Stegun 9.2.5 to 9.2.10).
    """

    def of(w: Number) -> Number:
        x = 5 / sqrt(w)
        chi = x - (2 * n + 1) * pi / 4
        j, y = (sqrt(pi * x / 2) * function(n, x) for function in (mpmath.besselj, mpmath.bessely))
        if part == 0:
            return j * mpmath.cos(chi) + y * mpmath.sin(chi)
        return x * (y * mpmath.cos(chi) - j * mpmath.sin(chi))

    return of


def besselk(n: int) -> Real:
    """What K_n(x) / x**n has beside n / x and the logarithm times I_n(x), as a function of q = x**2."""

    def of(q: Number) -> Number:
        x = sqrt(q)
        return (mpmath.besselk(n, x) - Number(n) / x - (-1) ** (n + 1) * log(x) * mpmath.besseli(n, x)) / x**n

    return of


def scaled_i(n: int, v: Number) -> Number:
    """sqrt(x) * exp(-x) * I_n(x) for x = 8 / v."""
    x = 8 / v
    return sqrt(x) * exp(-x) * mpmath.besseli(n, x)


def scaled_k(n: int, v: Number) -> Number:
    """sqrt(x) * exp(x) * K_n(x) for x = 1 / v."""
    x = 1 / v
    return sqrt(x) * exp(x) * mpmath.besselk(n, x)


def auxiliary(part: int) -> Real:
    """x * f(x) and x**2 * g(x) of the sine and cosine integrals as functions of w = (4 / x)**2 (5.2.6 and 5.2.7)."""

    def of(w: Number) -> Number:
        x = 4 / sqrt(w)
        c, s = mpmath.ci(x), mpmath.si(x) - pi / 2
        if part == 0:
            return x * (c * mpmath.sin(x) - s * mpmath.cos(x))
        return -x * x * (c * mpmath.cos(x) + s * mpmath.sin(x))

    return of


def fresnel_auxiliary(part: int) -> Real:
    """x * f(x) and x**3 * g(x) of Fresnel's integrals as functions of w = (1.6 / x)**4 (7.3.5 and 7.3.6)."""

    def of(w: Number) -> Number:
        x = Number(1.6) / mpmath.root(w, 4)
        c, s = Number(0.5) - mpmath.fresnelc(x), Number(0.5) - mpmath.fresnels(x)
        cosine, sine = mpmath.cos(pi * x * x / 2), mpmath.sin(pi * x * x / 2)
        return x * (s * cosine - c * sine) if part == 0 else x**3 * (c * cosine + s * sine)

    return of


def rising(first: float) -> Real:
    """x * exp(-x) * Ei(x) as a function of v = first / x."""
    return lambda v: first / v * exp(-first / v) * mpmath.ei(first / v)


def lambert(p: Number) -> Number:
    """(1 + W(x)) / p for p = sqrt(2 * (e * x + 1)), or minus that on the branch -1."""
    x = (p * p / 2 - 1) / mpmath.e
    return Number(1) if p == 0 else (1 + mpmath.lambertw(x, 0 if p > 0 else -1).real) / p


# Name: function, ends of the interval, degrees above and below the line. Where the interval is around 0, or is named
# here, t is -1 and 1 at its ends; else it is 0 and 1 at 0 and at the upper end, where coefficients of one sign add up.
CENTRED = ("J0_NEAR", "J1_NEAR", "Y0_NEAR", "Y1_NEAR", "I0_FAR", "I1_FAR", "I_GAP_FAR", "EI_MIDDLE")
CENTRED += ("SI_NEAR", "CI_NEAR", "FRESNEL_S", "FRESNEL_C", "LAMBERT")
FITS: dict[str, tuple[Real, float, float, int, int]] = {
    "J0_NEAR": (besselj(0), 0, 25, 11, 0),
    "J1_NEAR": (besselj(1), 0, 25, 11, 0),
    "Y0_NEAR": (bessely(0), 0, 25, 13, 0),
    "Y1_NEAR": (bessely(1), 0, 25, 13, 0),
    "P0_FAR": (hankel(0, 0), 0, 1, 6, 6),
    "Q0_FAR": (hankel(0, 1), 0, 1, 7, 7),
    "P1_FAR": (hankel(1, 0), 0, 1, 6, 6),
    "Q1_FAR": (hankel(1, 1), 0, 1, 7, 7),
    "I0_NEAR": (lambda q: mpmath.besseli(0, sqrt(q)), 0, 64, 15, 0),
    "I1_NEAR": (lambda q: mpmath.besseli(1, sqrt(q)) / sqrt(q), 0, 64, 15, 0),
    "I0_FAR": (lambda v: scaled_i(0, v), 0, 1, 23, 0),
    "I1_FAR": (lambda v: scaled_i(1, v), 0, 1, 23, 0),
    "I_GAP_NEAR": (lambda x: exp(-x) * (mpmath.besseli(0, x) - mpmath.besseli(1, x)), 0, 8, 11, 11),
    "I_GAP_FAR": (lambda v: (scaled_i(0, v) - scaled_i(1, v)) * 8 / v, 0, 1, 28, 0),
    "K0_NEAR": (besselk(0), 0, 1, 7, 0),
    "K1_NEAR": (besselk(1), 0, 1, 7, 0),
    "K0_FAR": (lambda v: scaled_k(0, v), 0, 1, 8, 8),
    "K1_FAR": (lambda v: scaled_k(1, v), 0, 1, 8, 8),
    "K_GAP_FAR": (lambda v: (scaled_k(1, v) - scaled_k(0, v)) / v, 0, 1, 9, 9),
    "E1_NEAR": (lambda x: mpmath.e1(x) + log(x), 0, 1, 12, 0),
    "E1_FAR": (lambda v: exp(1 / v) / v * mpmath.e1(1 / v), 0, 1, 10, 10),
    "EI_NEAR": (lambda x: (mpmath.ei(x) - log(x) - mpmath.euler) / x, 0, 12, 36, 0),
    "EI_MIDDLE": (rising(12), 0.4, 1, 20, 0),
    "EI_FAR": (rising(30), 0, 1, 18, 0),
    "SI_NEAR": (lambda q: mpmath.si(sqrt(q)) / sqrt(q), 0, 16, 10, 0),
    "CI_NEAR": (lambda q: (mpmath.ci(sqrt(q)) - log(q) / 2 - mpmath.euler) / q, 0, 16, 10, 0),
    "SHI_NEAR": (lambda q: mpmath.shi(sqrt(q)) / sqrt(q), 0, 36, 12, 0),
    "CHI_NEAR": (lambda q: (mpmath.chi(sqrt(q)) - log(q) / 2 - mpmath.euler) / q, 0, 36, 12, 0),
    "F_FAR": (auxiliary(0), 0, 1, 10, 10),
    "G_FAR": (auxiliary(1), 0, 1, 11, 11),
    "FRESNEL_S": (lambda w: mpmath.fresnels(mpmath.root(w, 4)) / mpmath.root(w, 4) ** 3, 0, 1.6**4, 11, 0),
    "FRESNEL_C": (lambda w: mpmath.fresnelc(mpmath.root(w, 4)) / mpmath.root(w, 4), 0, 1.6**4, 11, 0),
    "FRESNEL_F": (fresnel_auxiliary(0), 0, 1, 10, 10),
    "FRESNEL_G": (fresnel_auxiliary(1), 0, 1, 10, 10),
    "LAMBERT": (lambert, -0.5, 0.5, 22, 0),
}


def quotient(
    of: Real, low: float, high: float, above: int, below: int, centred: bool
) -> tuple[list[Number], list[Number], Number]:
    """A fit in t, and the error it leaves."""
    middle = (Number(low) + Number(high)) / 2 if centred else Number(0)
    half = Number(high) - middle
    points = chebyshev((Number(low) - middle) / half, 1, 6 * (above + below + 2))
    known = {t: of(middle + half * t) for t in points}
    top, bottom = fit(known.__getitem__, points, above, below)
    return top, bottom, max(abs(value(top, t) / value(bottom, t) / known[t] - 1) for t in points)


def elliptic(of: Real, power: int, degree: int) -> tuple[list[Number], list[Number], Number]:
    """P and Q in n for `of` n from 0 to 1, as P - n**power * log(n) * Q, and the error they leave."""
    points = [(1 + t) / 2 for t in chebyshev(-1, 1, 16 * degree)]
    points += [p * p / 4 for p in points]
    values = [of(n) for n in points]
    rows = []
    for n, y in zip(points, values, strict=True):
        powers = [n**k / y for k in range(degree + 1)]
        rows.append([*powers, *(-(n**power) * log(n) * p for p in powers)])
    matrix = mpmath.matrix(rows)
    found = list(mpmath.lu_solve(matrix.T * matrix, matrix.T * mpmath.matrix([1] * len(points))))
    top, rest = found[: degree + 1], found[degree + 1 :]
    error = max(
        abs((value(top, n) - n**power * log(n) * value(rest, n)) / y - 1) for n, y in zip(points, values, strict=True)
    )
    return top, rest, error


def legendre(part: int) -> Real:
    """The integrals of cos(t)**2 and sin(t)**2 over sqrt(1 - m * sin(t)**2) to pi / 2, as functions of n = 1 - m."""

    def of(n: Number) -> Number:
        m = 1 - n
        k, e = mpmath.ellipk(m), mpmath.ellipe(m)
        return (e - n * k) / m if part == 0 else (k - e) / m

    return of


def written(name: str, coefficients: Sequence[Number]) -> str:
    """A constant, with the coefficient of the highest power first."""
    numbers = " ".join(f"{float(c)!r}," for c in reversed(coefficients))
    return f"{name} = (\n{textwrap.fill(numbers, 118, initial_indent='    ', subsequent_indent='    ')}\n)"


def tables(names: Sequence[str]) -> Iterator[str]:
    """The constants, of which the errors are printed."""
    for name, (of, low, high, above, below) in FITS.items():
        if names and name not in names:
            continue
        top, bottom, error = quotient(of, low, high, above, below, name in CENTRED)
        yield written(name, top)
        if below:
            yield written(f"{name}_BELOW", bottom)
        print(f"{name}: leaves out 2**{float(log(error, 2)):.1f}", flush=True)
    for part, name in enumerate(("LEGENDRE_B", "LEGENDRE_D")):
        if names and name not in names:
            continue
        top, rest, error = elliptic(legendre(part), 1 - part, 11)
        yield written(name, top)
        yield written(f"{name}_LOG", rest)
        print(f"{name}: leaves out 2**{float(log(error, 2)):.1f}", flush=True)


HEAD = '''\
"""Coefficients of polynomials, the highest power first: docs/generate_special_coefficients.py writes and explains them.

`NAME_BELOW` is the denominator of the quotient `NAME`, and `NAME_LOG` is multiplied by a logarithm.
"""

# fmt: off

'''

if __name__ == "__main__":
    lines = list(tables(sys.argv[1:]))
    if not sys.argv[1:]:
        TARGET.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
