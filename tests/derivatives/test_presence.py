"""What a path does not depend on: its derivative is zero there, whatever it is multiplied by.

The oracle is dual numbers that have no tangent where there is none, through the user's own function in Python.
"""

# ruff: noqa: ARG001

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import oracles
import pytest
from forced_ways import WAYS, forced
from suites import sampled

from dualbcast import differentiable_broadcast

INF = math.inf
# x takes part where it is positive; what is made of z is infinite where z is.
POINTS = [*itertools.product((-1.0, 2.0), (0.5, INF, -INF), (0, 1, 3))]


def product(x, z, n):
    scale = x if x > 0 else 1.0
    return math.exp(z) * scale


def behind_a_division(x, z, n):
    scale = 1.0
    if x > 0:
        scale = x
    return 1.0 / (1.0 + math.exp(z) * scale)


def beside_a_term_that_depends(x, z, n):
    scale = x if x > 0 else 1.0
    return math.exp(z) * scale + 3 * x


def chain(x, z, n):
    scale = x if x > 0 else 1.0
    return math.exp(scale * z) * 2.0 + z


def bounded(x, z, n):
    scale = x * x if x > 0 else 0.5
    return math.tanh(scale * math.exp(z)) + x, math.exp(-(scale * z) * z), math.sin(scale) * math.exp(z)


def sum_of_two(x, z, n):
    first, second = (x, 1.0) if x > 0 else (1.0, x)
    return math.exp(z) * first + math.exp(z) * second


def power_of_a_difference(x, z, n):
    scale = 1.0
    if x > 0:
        scale = x
    return (scale * math.exp(z) - 1.0) ** 2.0 - x


def after_a_loop(x, z, n):
    total = 1.0
    for _ in range(n):
        total = total * x
    return math.exp(z) * total, math.exp(z) * total + x


def chosen_in_a_loop(x, z, n):
    scale, total = 1.0, 0.0
    for _ in range(n):
        if x > 0:
            scale = scale + x
        total = total + scale * math.exp(z)
    return total, total + x


def chosen_before_a_loop(x, z, n):
    scale = x if x > 0 else 1.0
    v, total = x, 0.0
    for _ in range(3):
        v = v + 0.1 * total
        total = total + scale * math.exp(z) + v
    return total, v


def continued(x, z, n):
    scale, total = 1.0, 0.0
    for _ in range(n):
        if x < 0:
            total = total + scale * math.exp(z)
            continue
        scale = x
        total = total + x
    return total + x


def handed_on(x, z, n):
    scale = last = z
    for _ in range(n):
        scale = scale * math.exp(z)
        last = scale
        scale = scale + (x if x > 0 else 0.0)
    return last + x, scale


def left_by_continue(x, z, n):
    scale, last = 1.0, 1.0
    for _ in range(3):
        if n > 1:
            continue
        last = scale
        if x < 0:
            continue
        scale = scale * x
    return math.exp(z) * scale, math.exp(z) * last


def delayed(x, z, n):
    first = second = third = 1.0
    for _ in range(2):
        first, second, third = x, first, second
    return math.exp(z) * third, math.exp(z) * second, (math.exp(z) - third) * first


def left_by_break(x, z, n):
    scale = 1.0
    for k in range(4):
        if k > n:
            scale = scale * x
            break
        if x < 0 and k > 1:
            break
    return math.exp(z) * scale


def of_several_choices(x, z, n):
    if n > 2:
        a, b = x, 1.0
    elif x > 0:
        a, b = 1.0, x
    else:
        a = b = 2.0
    slope = math.exp(z)
    return a * slope, b * slope, a * b * slope, (a + b) * slope, a * slope - b * slope


def negated(x, z, n):
    scale = -x if x > 0 else 1.0
    rest = 2.0 - scale
    return rest * math.exp(z), math.exp(z) * (1.0 - rest), -scale * math.exp(z)


def returned_from_two_loops(x, z, n):
    scale = 1.0
    for i in range(3):
        for j in range(2):
            if i + j > n:
                return scale * math.exp(z)
            if j > 0 and x > 0:
                scale = scale * x
    return scale + z


FUNCTIONS = [
    product,
    behind_a_division,
    beside_a_term_that_depends,
    chain,
    bounded,
    sum_of_two,
    power_of_a_difference,
    after_a_loop,
    chosen_in_a_loop,
    chosen_before_a_loop,
    continued,
    handed_on,
    left_by_continue,
    delayed,
    left_by_break,
    of_several_choices,
    negated,
    returned_from_two_loops,
]


def wanted(function: Callable[..., Any]) -> np.ndarray[Any, Any]:
    """The derivatives, output by output and in x and z."""
    slopes = []
    with np.errstate(all="ignore"):
        for point in POINTS:
            slopes.append([[each[at] for at in (0, 1)] for each in oracles.differentiate(function, point, (0, 1))[1]])
    return np.moveaxis(np.array(slopes), 0, -1)


@pytest.mark.parametrize(("backend", "way"), [*(("python", way) for way in WAYS), ("cpu", "natural")])
@pytest.mark.parametrize("function", sampled(FUNCTIONS, 2), ids=lambda function: function.__name__)
def test_no_product_multiplies_what_is_absent(function: Any, backend: Any, way: str) -> None:
    x, z, n = map(np.array, zip(*POINTS, strict=True))
    slopes = wanted(function)
    with forced(way):
        f = differentiable_broadcast(backend=backend)(function)
        jacobian = f.jacobian(x, z, n)
        for output, at in np.ndindex(slopes.shape[:2]):
            name, right = "xz"[at], slopes[output, at]
            found = {
                "jacobian": jacobian[output, name],
                "alone": f.jacobian(x, z, n, wrt=name)[output, name],
                "partial": np.atleast_2d(f.partial(name)(x, z, n))[output],
                "jvp": np.atleast_2d(f.jvp((x, z, n), {name: 1.0})[1])[output],
            }
            if len(slopes) == 1:
                found["vjp"] = f.vjp(x, z, n, wrt=name)[1](np.ones(len(x)))[0]
            # Infinities that depend may be NaN in the oracle.
            there = ~np.isnan(right)
            for way_, got in found.items():
                got = np.broadcast_to(got, x.shape)[there]
                # The slope of tanh, 1 - y * y, is right to a rounding of 1.
                np.testing.assert_allclose(got, right[there], rtol=1e-13, atol=1e-15, err_msg=f"{way_} {output} {name}")


@pytest.mark.parametrize(("backend", "way"), [*(("python", way) for way in WAYS), ("cpu", "natural")])
def test_second_derivatives_of_what_is_absent_are_zero(backend: Any, way: str) -> None:
    with forced(way):
        check_second_derivatives(backend)


def check_second_derivatives(backend: Any) -> None:
    x, z = np.array([-1.0, -1.0, 2.0]), np.array([INF, 800.0, 0.0])
    f = differentiable_broadcast(backend=backend)(lambda x, z: product(x, z, 0) * 2.0)
    hessian = f.hessian(x, z)
    assert hessian["x", "x"].tolist() == [0.0, 0.0, 0.0]
    assert hessian["x", "z"].tolist() == [0.0, 0.0, 2.0]
    assert f.partial("x").partial("z")(x, z).tolist() == [0.0, 0.0, 2.0]
    assert f.partial("z").partial("x")(x, z).tolist() == [0.0, 0.0, 2.0]
    assert f.hvp((x, z), {"z": 1.0}, wrt="x")["x"].tolist() == [0.0, 0.0, 2.0]


@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_the_number_that_is_not_chosen_has_no_derivative(backend: Any) -> None:
    """The slope of the root is infinite at 0, which only one of the two numbers is."""
    for function in (lambda x, y: math.sqrt(min(x, y)), lambda x, y: math.sqrt(sorted((x, y))[0])):
        jacobian = differentiable_broadcast(backend=backend)(function).jacobian(np.array([2.0]), np.zeros(1))
        assert (jacobian["x"].tolist(), jacobian["y"].tolist()) == ([0.0], [INF])


def test_zeros_that_depend_are_numbers() -> None:
    """The derivative of x² is 0 at 0, and 0 · inf is NaN: nobody knows what it is."""
    f = differentiable_broadcast(lambda x, z: math.exp(z) * (x * x))
    assert np.isnan(f.jacobian(np.zeros(1), np.full(1, 800.0))["x"]).all()


def test_the_first_iterations_of_a_loop_ask_nothing() -> None:
    """In a loop whose every iteration depends, on all paths, a flag would say in each what is so from the second on."""

    def integrated(v, damping):
        x = 1.0
        for _ in range(50):
            v = v + 0.02 * (damping * (1 - x * x) * v - x)
            x = x + 0.02 * v
        return x + v

    text = differentiable_broadcast(integrated).inspect_source("float64", "float64")
    assert "select" not in text
    assert "_there" not in text


def test_after_a_loop_that_has_an_iteration_nothing_is_asked() -> None:
    def mapped(x, y):
        for _ in range(20):
            x = x * y * (1 - x)
        return x * y

    def searched(x, y):
        while x < 20:
            x = x * y * (1 + x)
        return x * y

    assert "select" not in differentiable_broadcast(mapped).inspect_source("float64", "float64")
    x, y = np.array([30.0, 3.0]), np.array([INF, 3.0])
    # The first element takes no iteration: the derivative in y is x.
    np.testing.assert_allclose(differentiable_broadcast(searched).jacobian(x, y)["y"], [30.0, 36 + 3 * 12.0])
