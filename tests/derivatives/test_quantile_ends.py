"""Second derivatives of quantiles at the probabilities 0 and 1: limits of those that mpmath finds close to the ends."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from suites import sampled

from dualbcast import differentiable_broadcast, special


class Family(NamedTuple):
    """The quantile with the probability last; at either end the probability beyond x, and about where it is p."""

    quantile: Callable[..., Any]
    parameters: list[tuple[float, ...]]
    low: Callable[..., Any]
    low_start: Callable[..., Any]
    high: Callable[..., Any]
    high_start: Callable[..., Any]


def below(a: Any, b: Any, x: Any, y: Any) -> Any:
    """The incomplete beta function, regularised, for small x = 1 - y."""
    scale = a * mp.log(x) + b * mp.log(y) - mp.log(a) - mp.log(mp.beta(a, b))
    return mp.exp(scale) * mp.hyp2f1(a + b, 1, a + 1, x)


def root(a: Any, b: Any, p: Any) -> Any:
    return (p * a * mp.beta(a, b)) ** (1 / a)


def f_low(m: Any, n: Any, z: Any) -> Any:
    return below(m / 2, n / 2, m * z / (m * z + n), n / (m * z + n))


def f_high(m: Any, n: Any, z: Any) -> Any:
    return below(n / 2, m / 2, n / (m * z + n), m * z / (m * z + n))


def t_high(df: Any, t: Any) -> Any:
    return below(df / 2, mp.mpf(0.5), df / (df + t * t), t * t / (df + t * t)) / 2


FAMILIES = {
    "gamma": Family(
        lambda a, q: stats.gamma.ppf(q, a),
        [(0.3,), (0.5,), (0.75,), (1.0,), (2.0,), (4.5,)],
        lambda a, x: mp.exp(a * mp.log(x) - x - mp.loggamma(a + 1)) * mp.hyp1f1(1, a + 1, x),
        lambda a, p: (p * mp.gamma(a + 1)) ** (1 / a),
        lambda a, x: mp.gammainc(a, x, mp.inf) / mp.gamma(a),
        lambda a, p: -mp.log(p) + (a - 1) * mp.log(-mp.log(p)) - mp.loggamma(a),
    ),
    "beta": Family(
        lambda a, b, q: special.betaincinv(a, b, q),
        [(0.3, 2.0), (0.5, 0.5), (0.75, 3.0), (1.0, 1.0), (1.0, 3.0), (2.0, 1.0), (3.0, 0.5), (2.0, 0.3)],
        lambda a, b, x: below(a, b, x, 1 - x),
        root,
        lambda a, b, x: below(b, a, 1 - x, x),
        lambda a, b, p: 1 - root(b, a, p),
    ),
    "f": Family(
        lambda m, n, q: stats.f.ppf(q, m, n),
        [(0.5, 0.5), (1.0, 1.0), (1.5, 3.0), (2.0, 3.0), (2.0, 2.0), (3.0, 2.0), (5.0, 1.5), (7.0, 4.0), (0.2, 1.0)],
        f_low,
        lambda m, n, p: n / m * root(m / 2, n / 2, p),
        f_high,
        lambda m, n, p: n / m / root(n / 2, m / 2, p),
    ),
    "t": Family(
        lambda df, q: stats.t.ppf(q, df),
        [(0.5,), (1.0,), (2.0,), (7.5,)],
        lambda df, t: t_high(df, -t),
        lambda df, p: -mp.sqrt(df / root(df / 2, mp.mpf(0.5), 2 * p)),
        t_high,
        lambda df, p: mp.sqrt(df / root(df / 2, mp.mpf(0.5), 2 * p)),
    ),
    "weibull_min": Family(
        lambda c, q: stats.weibull_min.ppf(q, c),
        [(0.3,), (0.5,), (0.75,), (1.0,), (2.0,)],
        lambda c, x: -mp.expm1(-(x**c)),
        lambda c, p: p ** (1 / c),
        lambda c, x: mp.exp(-(x**c)),
        lambda c, p: (-mp.log(p)) ** (1 / c),
    ),
    "rayleigh": Family(
        lambda q: stats.rayleigh.ppf(q),
        [()],
        lambda x: -mp.expm1(-x * x / 2),
        lambda p: mp.sqrt(2 * p),
        lambda x: mp.exp(-x * x / 2),
        lambda p: mp.sqrt(-2 * mp.log(p)),
    ),
}


def second_derivatives(tail: Any, parameters: Any, x: Any, sign: int, unit: Any) -> dict[tuple[int, int], Any]:
    """Those of the quantile x in the parameters and then the probability, of which `tail` is `sign` times a function,
    by implicit differentiation. `unit` is the length on which the tail changes."""
    point = [*parameters, x]
    steps = [*[each * mp.mpf(10) ** -75 for each in parameters], unit * mp.mpf(10) ** -75]
    last, memory = len(parameters), {}

    def at(*shifts: int) -> Any:
        if shifts not in memory:
            moved = zip(point, shifts, steps, strict=True)
            memory[shifts] = tail(*[each + count * step for each, count, step in moved])
        return memory[shifts]

    def shift(*moved: tuple[int, int]) -> tuple[int, ...]:
        return tuple(sum(by for k, by in moved if k == at) for at in range(last + 1))

    first = [(at(*shift((k, 1))) - at(*shift((k, -1)))) / (2 * steps[k]) for k in range(last + 1)]
    second = {}
    for i, j in combinations_with_replacement(range(last + 1), 2):
        signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
        total = sum(u * v * at(*shift((i, u), (j, v))) for u, v in signs)
        second[i, j] = second[j, i] = total / (4 * steps[i] * steps[j])
    slopes = [-each / first[last] for each in first[:last]] + [sign / first[last]]
    found = {}
    for i, j in combinations_with_replacement(range(last + 1), 2):
        total = second[last, last] * slopes[i] * slopes[j]
        total += (second[i, j] if j < last else 0) + (second[i, last] * slopes[j] if i < last else 0)
        total += second[j, last] * slopes[i] if j < last else 0
        found[i, j] = -total / first[last]
    return found


@pytest.mark.parametrize("at", sampled(range(3), 3))
@pytest.mark.parametrize("family", sampled(FAMILIES, 2))
def test_second_derivatives_at_the_ends(family: str, at: int) -> None:
    """Those of `t.ppf`, `gamma.ppf` and `beta.ppf` were NaN, and those of `f.ppf` 0 where they are infinite."""
    quantile, parameters, *ends = FAMILIES[family]
    function = differentiable_broadcast(quantile)
    for each in parameters[at::3]:
        for q, (tail, start) in zip((0.0, 1.0), (ends[:2], ends[2:]), strict=True):
            near, nearer = ({}, {})
            for found, power in ((near, 30), (nearer, 60)):
                with mp.workdps(320):
                    exact, p = [mp.mpf(value) for value in each], mp.mpf(10) ** -power
                    x = start(*exact, p)
                    for _ in range(20):  # Newton's method, on the logarithm
                        unit = min(abs(x), abs(1 - x)) if family == "beta" else abs(x)
                        step = unit * mp.mpf(10) ** -100
                        slope = (mp.log(tail(*exact, x + step)) - mp.log(tail(*exact, x - step))) / (2 * step)
                        moved = (mp.log(tail(*exact, x)) - mp.log(p)) / slope
                        x -= moved
                        if abs(moved) < unit * mp.mpf(10) ** -200:
                            break
                    found.update(second_derivatives(tail, exact, x, 1 - 2 * int(q), unit))
            names = [*function.jacobian(*each, q)]
            hessian = function.hessian(*each, q)
            for (i, j), limit in nearer.items():
                before, value = near[i, j], float(hessian[names[i], names[j]])
                assert value == float(hessian[names[j], names[i]])
                case = f"{family}{each} at {q}, {names[i]} and {names[j]}: {value}, and {mp.nstr(limit, 5)} near it"
                if np.isinf(value):
                    assert abs(limit) > 1.2 * abs(before) and abs(limit) > 20, case
                    assert (limit > 0) == (value > 0), case
                elif value == 0:
                    assert abs(limit) < 1e-10, case
                else:
                    assert abs(limit / value - 1) < 0.2, case


def test_the_logarithm_of_a_density_at_infinity() -> None:
    """`weibull_min.logpdf(inf)` was NaN; its slope in x is -c * x**(c - 1), and that in c is -inf."""
    function = differentiable_broadcast(lambda x, c: stats.weibull_min.logpdf(x, c))
    value, jacobian = function.value_and_jacobian(np.inf, np.array([0.5, 1.0, 2.0]))
    assert value.tolist() == [-np.inf] * 3
    assert jacobian["x"].tolist() == [0.0, -1.0, -np.inf]
    assert jacobian["c"].tolist() == [-np.inf] * 3
