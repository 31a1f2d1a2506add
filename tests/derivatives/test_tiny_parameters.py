"""Incomplete gamma and beta functions, and the distributions made of them, with parameters down to 1e-10: values and
slopes to all digits, against sums of positive terms by mpmath."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from dualbcast import differentiable_broadcast, special

PARAMETERS = (1e-10, 1e-6, 1e-3, 0.3, 0.9, 12.0, 150.0)
Parts = tuple[Any, Any]


def below(a: Any, x: Any) -> Any:
    """The lower incomplete gamma function, regularised."""
    return mp.exp(a * mp.log(x) - x - mp.loggamma(a + 1)) * mp.hyp1f1(1, a + 1, x)


def gamma_parts(a: Any, x: Any) -> Parts:
    lower = below(a, x)
    return lower, 1 - lower


def beta_parts(a: Any, b: Any, x: Any, y: Any = None) -> Parts:
    """The incomplete beta function and its complement, regularised; y is 1 - x."""
    y = 1 - x if y is None else y
    if x > y:
        return beta_parts(b, a, y, x)[::-1]
    scale = a * mp.log(x) + b * mp.log(y) - mp.log(a) - mp.loggamma(a) - mp.loggamma(b) + mp.loggamma(a + b)
    lower = mp.exp(scale) * mp.hyp2f1(a + b, 1, a + 1, x)
    return lower, 1 - lower


def f_parts(x: Any, dfn: Any, dfd: Any) -> Parts:
    whole = dfn * x + dfd
    return beta_parts(dfn / 2, dfd / 2, dfn * x / whole, dfd / whole)


def t_parts(x: Any, df: Any) -> Parts:
    tail = beta_parts(df / 2, mp.mpf(0.5), df / (df + x * x), x * x / (df + x * x))[0] / 2
    return (1 - tail, tail) if x > 0 else (tail, 1 - tail)


TINY = (1e-10, 1e-6, 1e-3, 0.5)
# The lower and the upper function, the exact values of both, and points.
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Parts], list[tuple[float, ...]]]] = {
    "gamma": (
        lambda a, x: special.gammainc(a, x),
        lambda a, x: special.gammaincc(a, x),
        gamma_parts,
        [*product((1e-10, 1e-6, 1e-3, 0.3, 0.9), (1e-100, 1e-15, 1e-4, 0.3, 1.05, 1.2, 20.0))],
    ),
    "beta": (
        lambda a, b, x: special.betainc(a, b, x),
        lambda a, b, x: special.betaincc(a, b, x),
        beta_parts,
        [
            (a, b, x)
            for a, b in product(PARAMETERS, PARAMETERS)
            for x in (1e-100, 1e-15, 3.3e-8, 1e-4, 0.009, 0.011, 0.3, 0.7, 0.99, 1 - 1e-6, 1 - 1e-12)
            if min(a, b) <= 0.3
        ],
    ),
    "chi2": (
        lambda x, df: stats.chi2.cdf(x, df),
        lambda x, df: stats.chi2.sf(x, df),
        lambda x, df: gamma_parts(df / 2, x / 2),
        [*product((1e-15, 1e-3, 1.0, 20.0), TINY)],
    ),
    "f": (
        lambda x, dfn, dfd: stats.f.cdf(x, dfn, dfd),
        lambda x, dfn, dfd: stats.f.sf(x, dfn, dfd),
        f_parts,
        [(1000.0, 1e-8, 300.0), *product((1e-12, 0.3, 1000.0), TINY, (1e-10, 1e-3, 0.5, 300.0))],
    ),
    "t": (
        lambda x, df: stats.t.cdf(x, df),
        lambda x, df: stats.t.sf(x, df),
        t_parts,
        [*product((-1e4, -0.1, 1e-8, 20.0), TINY)],
    ),
    "beta distribution": (
        lambda x, a, b: stats.beta.cdf(x, a, b),
        lambda x, a, b: stats.beta.sf(x, a, b),
        lambda x, a, b: beta_parts(a, b, x),
        [*product((1e-12, 1e-4, 0.6, 0.999999), TINY, (1e-10, 0.5, 7.0))],
    ),
}


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_values_and_slopes(name: str, every: int) -> None:
    """`f.sf(1000, 1e-8, 300)` was 5 % too small: a continued fraction ended after 3,000 of some 50,000 terms."""
    lower, upper, parts, points = CASES[name]
    points = points[::every]
    columns = [np.array(column) for column in zip(*points, strict=True)]
    with mp.workdps(240):
        exact = [[mp.mpf(each) for each in point] for point in points]
        steps = [[abs(each) * mp.mpf(10) ** -40 for each in point] for point in exact]
        values = [parts(*point) for point in exact]
        slopes = []
        for at in range(len(columns)):
            ends = [
                [parts(*[each + sign * step[at] * (k == at) for k, each in enumerate(point)]) for sign in (1, -1)]
                for point, step in zip(exact, steps, strict=True)
            ]
            slopes.append(
                [(above[0] - under[0]) / (2 * step[at]) for (above, under), step in zip(ends, steps, strict=True)]
            )
    for side, function in enumerate((lower, upper)):
        found, jacobian = differentiable_broadcast(function).value_and_jacobian(*columns)
        np.testing.assert_allclose(found, [float(value[side]) for value in values], rtol=2e-13, atol=1e-290)
        for block, wanted in zip(jacobian.values(), slopes, strict=True):
            signed = np.array([float(slope) for slope in wanted]) * (1 - 2 * side)
            np.testing.assert_allclose(block, signed, rtol=2e-12, atol=1e-290)
