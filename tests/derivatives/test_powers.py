"""Powers of which one of the two numbers is known: computed by what is faster than pow, with the values of pow."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from suites import sampled

from dualbcast import differentiable_broadcast
from dualbcast.frontend.lower import lower

INF, NAN = math.inf, math.nan
# What C's pow, and so Python, gives for (x, p), NaN where Python's answer is a complex number.
POINTS = (0.0, -0.0, INF, -INF, -2.0, NAN, 4.0)
SPECIAL = {
    0.5: (0.0, 0.0, INF, INF, NAN, NAN, 2.0),
    -0.5: (INF, INF, 0.0, 0.0, NAN, NAN, 0.5),
    1.5: (0.0, 0.0, INF, INF, NAN, NAN, 8.0),
    -1.5: (INF, INF, 0.0, 0.0, NAN, NAN, 0.125),
}
SPELLINGS: dict[str, Callable[[float], Callable[[Any], Any]]] = {
    "**": lambda p: lambda x: x**p,
    "pow": lambda p: lambda x: pow(x, p),
    "math.pow": lambda p: lambda x: math.pow(x, p),
    "numpy.power": lambda p: lambda x: np.power(x, p),
    "numpy.float_power": lambda p: lambda x: np.float_power(x, p),
    "operator.pow": lambda p: lambda x: operator.pow(x, p),
}


def units_off(got: np.ndarray[Any, Any], x: np.ndarray[Any, Any], p: float, factor: float = 1.0) -> float:
    """The largest error in units of the last place, where the result is neither 0 nor infinite."""
    with mpmath.workprec(150):
        exact = [factor * mpmath.mpf(float(each)) ** mpmath.mpf(p) for each in x]
        last = np.spacing(np.abs(got)).astype(float)
        return max(float(abs(float(g) - e) / u) for g, e, u in zip(got, exact, last, strict=True))


def code(text: str) -> str:
    """Without the user's lines."""
    return "\n".join(line.partition("#")[0] for line in text.splitlines())


@pytest.mark.parametrize("backend", ["python", "cpu"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("exponent", SPECIAL)
def test_special_values_are_those_of_pow(exponent: float, dtype: Any, backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(SPELLINGS["**"](exponent))
    x, wanted = np.array(POINTS, dtype), np.array(SPECIAL[exponent], dtype)
    for got in (f(x), np.array([f(each) for each in x])):
        np.testing.assert_array_equal(got, wanted)
        assert not np.signbit(got[~np.isnan(got)]).any()
    zeros = np.array([0.0, -0.0], dtype)
    slope, curvature = f.jacobian(zeros)["x"], f.hessian(zeros)["x", "x"]
    assert slope.tolist() == [{0.5: INF, 1.5: 0.0}.get(exponent, -INF)] * 2
    assert curvature.tolist() == [-INF if exponent == 0.5 else INF] * 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("exponent", SPECIAL)
def test_powers_are_accurate(exponent: float, dtype: Any) -> None:
    """From where results are subnormal to where they overflow, and around 1."""
    info = np.finfo(dtype)
    draw = np.random.default_rng(3)
    low, high = (math.log10(float(each)) for each in (info.smallest_subnormal * 4, info.max / 4))
    x = np.concatenate([10 ** draw.uniform(low, high, 2000), draw.uniform(0.5, 4, 2000)]).astype(dtype)
    value, jacobian = differentiable_broadcast(SPELLINGS["**"](exponent)).value_and_jacobian(x)
    for got, power, factor in ((value, exponent, 1.0), (jacobian["x"], exponent - 1, exponent)):
        with np.errstate(all="ignore"):
            wide = factor * x.astype(np.longdouble) ** power
        there = np.isfinite(got) & (got != 0)
        # Where it is not there it is beyond the format.
        assert (np.abs(wide[np.isinf(got)]) > info.max / 1.001).all()
        assert (np.abs(wide[got == 0]) < info.smallest_subnormal).all()
        assert units_off(got[there], x[there], power, factor) < (2 if power == exponent else 4)


@pytest.mark.parametrize("exponent", SPECIAL)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_spelling_calls_pow(spelling: str, exponent: float) -> None:
    f = differentiable_broadcast(SPELLINGS[spelling](exponent))
    for product in ("value_and_jacobian", "hessian"):
        assert "pow(" not in code(f.inspect_source("float64", product=product))
    np.testing.assert_allclose(f(np.array([0.25, 3.0])), np.power([0.25, 3.0], exponent), rtol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_powers_of_two(dtype: Any) -> None:
    """They are exact for whole numbers, also where they are subnormal."""
    f = differentiable_broadcast(lambda x: (2.0**x, 2**x, math.pow(2, x)))
    assert "pow(" not in code(f.inspect_source(dtype))
    info = np.finfo(dtype)
    whole = np.arange(info.minexp - info.nmant - 5, info.maxexp + 2)
    with np.errstate(over="ignore"):
        wanted = np.ldexp(dtype(1), whole)
    for got in f(whole.astype(dtype)):
        np.testing.assert_array_equal(got, wanted)
    x = np.array([0.5, -3.25, 10.0], dtype)
    value, jacobian = f.value_and_jacobian(x)
    exact = [mpmath.mpf(2) ** float(each) for each in x]
    np.testing.assert_allclose(value[0], np.array(exact, float), rtol=4 * info.eps)
    np.testing.assert_allclose(jacobian[0, "x"], np.array([e * mpmath.log(2) for e in exact], float), rtol=4 * info.eps)
    special = f(np.array([NAN, INF, -INF, 0.0, -0.0], dtype))[0]
    np.testing.assert_array_equal(special, [NAN, INF, 0.0, 1.0, 1.0])


def test_powers_of_ten_are_exact_for_small_whole_numbers() -> None:
    """The C library's exp10 has 1000.0000000000001 for 3."""
    for dtype, most in ((np.float32, 10), (np.float64, 22)):
        whole = np.arange(most + 1)
        got = differentiable_broadcast(lambda x: 10.0**x)(whole.astype(dtype))
        assert [int(each) for each in got] == [10 ** int(n) for n in whole]


def every_exponent(dtype: Any) -> np.ndarray[Any, Any]:
    """Numbers of both signs with every exponent of a format, subnormals among them."""
    info = np.finfo(dtype)
    exponents = np.arange(info.minexp - info.nmant, info.maxexp)
    draw = np.random.default_rng(5)
    with np.errstate(under="ignore"):
        x = np.concatenate([np.ldexp(dtype(1), exponents), np.ldexp(draw.uniform(1, 2, len(exponents)), exponents)])
    return np.concatenate([x, -x]).astype(dtype)


@pytest.mark.parametrize("backend", ["python", "cpu"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", sampled(range(1, 9), 2))
def test_inverse_powers_over_the_whole_range(count: int, dtype: Any, backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(lambda x: x**-count)
    x, info = every_exponent(dtype), np.finfo(dtype)
    if backend == "python":
        x = x[::7]
    value, jacobian, hessian = f.value_jacobian_and_hessian(x)
    factors = (1, -count, count * (count + 1))
    for order, (got, factor) in enumerate(zip((value, jacobian["x"], hessian["x", "x"]), factors, strict=True)):
        exact = [factor * Fraction(float(each)) ** (-count - order) for each in x]
        for each, result, wanted in zip(x, got, exact, strict=True):
            # A result that is subnormal may be zero, and one within rounding of the largest number infinite.
            unit = Fraction(float(info.eps)) * abs(wanted)
            if abs(wanted) > Fraction(float(info.max)) * (1 - 16 * Fraction(float(info.eps))):
                assert np.isinf(result) or abs(Fraction(float(result)) - wanted) < 8 * unit, each
                assert (result > 0) == (wanted > 0), each
            elif abs(wanted) >= Fraction(float(info.smallest_normal)):
                assert np.isfinite(result), each
                assert abs(Fraction(float(result)) - wanted) <= (count + 6) * unit / 2, (each, order)
            else:
                assert abs(result) <= info.smallest_normal, (each, order)
                assert result == 0 or (result > 0) == (wanted > 0), (each, order)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", range(1, 9))
def test_inverse_powers_at_zero_and_infinity(count: int, dtype: Any) -> None:
    """Values and slopes are the limits from the side that the sign of the zero says."""
    x = np.array([0.0, -0.0, INF, -INF, NAN], dtype)
    value, jacobian, hessian = differentiable_broadcast(lambda x: x**-count).value_jacobian_and_hessian(x)
    odd, even = [INF, -INF, 0.0, 0.0, NAN], [INF, INF, 0.0, 0.0, NAN]
    np.testing.assert_array_equal(value, odd if count % 2 else even)
    np.testing.assert_array_equal(jacobian["x"], [-each for each in (even if count % 2 else odd)])
    np.testing.assert_array_equal(hessian["x", "x"], odd if count % 2 else even)


def test_an_inverse_power_guards_nothing_of_its_own() -> None:
    """Its partials are the library's, so a warm call looks at nothing for them."""
    with_power, without = differentiable_broadcast(lambda x: x**-3), differentiable_broadcast(lambda x: x * x)
    guards = [lower(f.__wrapped__, ("float",)).guards for f in (with_power, without)]
    assert len(guards[0]) == len(guards[1])
