"""Helpers with loops in place of their calls: the same numbers, in vectors."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from ir_invariants import verify

from dualbcast import differentiable_broadcast, special
from dualbcast.frontend.lower import lower
from dualbcast.ir.nodes import Op
from dualbcast.ir.simplification import simplify
from dualbcast.ir.traversal import expressions, statements
from dualbcast.passes.inlining import inline_helpers
from dualbcast.passes.vector_analysis import fits_vectors
from dualbcast.program import pipeline

X = np.concatenate(
    [
        np.linspace(-7.3, 25.0, 301),
        [0.0, -0.0, -1.0, -2.0, 1e-300, -1e-300, 1e300, -1e300, math.inf, -math.inf, math.nan, 10.0, 9.999999],
    ]
)
Y = np.random.default_rng(0).permutation(X)


def twice(x: float, y: float) -> float:
    return special.digamma(x) - 2.0 * special.digamma(y) + special.digamma(0.25)


def in_a_branch(x: float, y: float) -> float:
    if x > y:
        return special.digamma(x) * y
    return y


def in_a_loop(x: float, y: float) -> float:
    total = y
    for k in range(3):
        total = total + special.digamma(x + k)
    return total


def of_higher_order(x: float, y: float) -> float:
    return special.polygamma(2, x) + special.polygamma(0, y)


FUNCTIONS = (twice, in_a_branch, in_a_loop, of_higher_order)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_call_with_a_loop_is_left(function: Callable[..., float]) -> None:
    found = inline_helpers(simplify(lower(function, ["float", "float"]).function))
    called = {expr.name for stmt in statements(found.body) for expr in expressions(stmt) if isinstance(expr, Op)} | {
        output.value.name for output in found.outputs if isinstance(output.value, Op)
    }
    assert not called & {"digamma", "polygamma"}
    verify(found)


def test_what_has_no_such_call_is_left_as_it_is() -> None:
    function = simplify(lower(lambda x: special.sigmoid(x) + math.lgamma(x), ["float"]).function)
    assert inline_helpers(function) is function


@pytest.mark.parametrize("function", [twice, in_a_branch, in_a_loop])
def test_elements_are_vectors(function: Callable[..., float]) -> None:
    converted = pipeline.run(pipeline.for_vectors(set()), simplify(lower(function, ["float", "float"]).function))
    assert fits_vectors(converted, set())


@pytest.mark.parametrize("function", FUNCTIONS)
def test_values_are_those_of_python(function: Callable[..., float]) -> None:
    found = differentiable_broadcast(function)(X, Y)
    wanted = np.array([function(x, y) for x, y in zip(X.tolist(), Y.tolist(), strict=True)])
    np.testing.assert_array_equal(found[~np.isfinite(wanted)], wanted[~np.isfinite(wanted)])
    with np.errstate(invalid="ignore"):
        # What is next to a pole has its tangent's error.
        near = [(z <= 0) & (np.abs(z - np.rint(z)) < 1e-3) for z in (X, Y)]
        terms = np.abs(found) + np.abs(Y) + 1
    at = np.isfinite(wanted) & ~near[0] & ~near[1]
    assert np.all(np.abs(found[at] - wanted[at]) <= 1e-12 * terms[at])


def test_derivatives_of_densities() -> None:
    def density(x: float, a: float) -> float:
        return (a - 1.0) * math.log(x) - x - math.lgamma(a)

    x, a = np.meshgrid(np.linspace(0.1, 5, 17), np.linspace(0.2, 30, 23))
    value, jacobian = differentiable_broadcast(density).value_and_jacobian(x, a)
    for at in np.ndindex(*x.shape):
        exact = mpmath.log(x[at]) - mpmath.digamma(a[at])
        assert abs(jacobian["a"][at] - exact) <= 1e-14 * max(1, abs(exact), abs(math.log(x[at])))
        exact = (a[at] - 1) * mpmath.log(x[at]) - x[at] - mpmath.loggamma(a[at])
        assert abs(value[at] - exact) <= 1e-14 * max(1.0, abs(float(exact)), x[at])
