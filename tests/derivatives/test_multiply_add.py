"""Products and sums of derivatives as one operation: which are, that values are not, and what such operations give."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from cpu_kernels import run, source_of

from dualbcast import derivative, differentiable_broadcast
from dualbcast.codegen import mathlib
from dualbcast.frontend.lower import lower
from dualbcast.ir.compose import Step, compose
from dualbcast.ir.nodes import FUSED, Function
from dualbcast.ir.traversal import operations_of
from dualbcast.program.derived_functions import pullback_of, pushforward_of
from dualbcast.program.products import make_product

RANDOM = np.random.default_rng(0)


def wave(x: float, y: float) -> float:
    return math.sin(x * y) * x - y * y * math.exp(x)


def fused(function: Function) -> list[str]:
    return sorted(op.name for op in operations_of(function) if op.name in FUSED)


def product(function: Any, which: Any = "value_and_jacobian", arity: int = 2) -> Any:
    lowered = lower(function, ["float"] * arity).function
    return make_product(lowered, which, range(arity))


# --- the operations ---------------------------------------------------------------------------------------------------

EXACTLY = {
    "muladd": lambda a, b, c: a * b + c,
    "mulsub": lambda a, b, c: a * b - c,
    "submul": lambda a, b, c: c - a * b,
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FUSED)
def test_they_round_once_or_as_they_are_written(name: str, dtype: str) -> None:
    """By fractions; of numbers of which most digits cancel."""
    a, b = RANDOM.uniform(-2, 2, (2, 500)).astype(dtype)
    c = (a * b * RANDOM.choice([-1, 1, 1.5], 500)).astype(dtype)
    source = source_of(f"out[k] = {name}(a[k], b[k], c[k])", dtype, dict.fromkeys("abc", dtype), {"out": dtype})
    (found,) = run(source, a, b, c)
    exact = [EXACTLY[name](*map(Fraction, map(float, each))) for each in zip(a, b, c, strict=True)]
    once = np.array([float(value) for value in exact]).astype(dtype)  # float64 to float32: rounded twice, rarely
    twice = EXACTLY[name](a, b, c)
    assert np.all((np.abs(found - once) <= np.spacing(np.abs(once))) | (found == twice))
    if mathlib.has_fma():
        assert np.mean(found == once) > 0.99
        assert np.any(found != twice)


# --- what is fused ----------------------------------------------------------------------------------------------------


def test_sums_of_derivatives_are_fused_and_those_of_values_are_not() -> None:
    both = product(wave)
    assert fused(both.function) == ["muladd", "submul"]
    assert fused(product(wave, "value").function) == []


def test_a_gpu_is_left_to_fuse_as_it_likes() -> None:
    assert fused(product(wave).forward) == []
    text = differentiable_broadcast(wave).inspect_source("float32", "float32", product="value_and_jacobian")
    assert re.search("muladd|submul", text)


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_values_are_what_they_are_without_derivatives(name: str) -> None:
    f = differentiable_broadcast(wave)
    x, y = RANDOM.uniform(-3, 3, (2, 1000)).astype(name)
    np.testing.assert_array_equal(f.value_and_jacobian(x, y)[0], f(x, y))


def test_what_a_slope_is_made_of_is_rounded_as_the_value() -> None:
    """Else the root of an exact zero had the slope of a number next to it, or of a negative one."""

    def leg(x: float, y: float) -> float:
        return math.sqrt(x * x - y * y)

    x = RANDOM.uniform(1, 2, 1000)
    slopes = differentiable_broadcast(leg).jacobian(x, x)
    np.testing.assert_array_equal(slopes["x"], np.full(1000, math.inf))
    np.testing.assert_array_equal(slopes["y"], np.full(1000, -math.inf))

    def pole(x: float, y: float) -> float:
        return math.log1p(x * y)

    at_the_pole = x * (-1 / x) == -1
    found = differentiable_broadcast(pole).jacobian(x, -1 / x)["x"][at_the_pole]
    np.testing.assert_array_equal(found, np.full(np.sum(at_the_pole), -math.inf))


def test_a_value_written_as_a_derivative_is_rounded_as_written() -> None:
    """The sum stands in the text twice: once for a partial, and once for a value, which comes later."""

    def both(x: float, y: float) -> tuple[float, float]:
        product = math.sin(x) * x * y
        return product, math.sin(x) + x * math.cos(x)

    f = differentiable_broadcast(both)
    x, y = RANDOM.uniform(-3, 3, (2, 1000))
    values, jacobian = f.value_and_jacobian(x, y)
    np.testing.assert_array_equal(values[1], f(x, y)[1])
    np.testing.assert_allclose(jacobian[0, "x"], y * values[1], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("function", [wave, lambda x, y: math.exp(x * y) / (x * x + y) * math.tanh(x - y * y)])
def test_bits_do_not_depend_on_what_else_is_asked_for(function: Any) -> None:
    f = differentiable_broadcast(function)
    x, y = RANDOM.uniform(0.5, 3, (2, 1000))
    _, whole = f.value_and_jacobian(x, y)
    for count in (1, 2):
        for wrt in combinations("xy", count):
            for name in wrt:
                np.testing.assert_array_equal(f.jacobian(x, y, wrt=wrt)[name], whole[name])


def test_loops_of_sums_and_products_alone_are_left() -> None:
    """There each turn waits for the one before, and for two operations that are one longer than for two."""

    def arithmetic(x: float, y: float) -> float:
        for _ in range(20):
            x = x * y * (1 - x)
        return x * y

    def calling(x: float, y: float) -> float:
        for _ in range(20):
            x = x * y * math.cos(x)
        return x

    assert len(fused(product(arithmetic).function)) == 1  # after the loop
    assert len(fused(product(calling).function)) > 1


# --- derivatives of other kinds ---------------------------------------------------------------------------------------


def test_pullbacks_and_tangents_are_fused_too_and_so_are_compositions_of_them() -> None:
    function = lower(wave, ["float", "float"]).function
    back, forth = pullback_of(function, (0, 1), values=True), pushforward_of(function, (0, 1))
    for each in (back, forth):
        assert fused(each) == []  # it may be differentiated again
        assert fused(make_product(each, "value", ()).function)
        assert fused(make_product(each, "value", ()).forward) == []
    names = {name for stmt in function.body for name in [stmt.target.name]}
    assert names.isdisjoint(back.derived) and names.isdisjoint(forth.derived)
    twice = compose("f", ["float"] * 3, [Step(back, (0, 1, 2)), Step(back, (4, 1, 2))], [6, 7, 8])
    assert len(fused(make_product(twice, "value", ()).function)) > 1


def test_derivatives_inside_a_function_are_fused() -> None:
    def greeks(x: float, y: float) -> tuple[float, float]:
        return wave(x, y), derivative(wave)(x, y)

    assert fused(product(greeks, "value").function)
    f = differentiable_broadcast(greeks)
    x, y = RANDOM.uniform(-3, 3, (2, 1000))
    value, slope = f(x, y)
    np.testing.assert_array_equal(value, differentiable_broadcast(wave)(x, y))
    np.testing.assert_allclose(slope, np.cos(x * y) * y * x + np.sin(x * y) - y * y * np.exp(x), rtol=1e-12, atol=1e-12)
