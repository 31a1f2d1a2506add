"""Loops that are differentiated in their own variables or in the sources: partials are those of differences, or derived
by hand.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import oracles
import pytest
from forced_ways import WAYS, forced
from ir_invariants import verify_single_assignment
from ir_text import parse
from run_ir import execute
from suites import sampled

from dualbcast import differentiable_broadcast
from dualbcast.frontend.lower import lower
from dualbcast.ir.nodes import Function
from dualbcast.ir.simplification import simplify
from dualbcast.ir.traversal import operations_of
from dualbcast.program.derived_functions import jacobian_of

HOW = pytest.mark.parametrize(("backend", "way"), [*(("python", way) for way in WAYS), ("cpu", "natural")])


def floats(function: Any) -> Function:
    return lower(function, ("float",) * function.__code__.co_argcount).function


# --- partials ---------------------------------------------------------------------------------------------------------


def oscillator(x: float, v: float, damping: float) -> float:
    for _ in range(30):
        v += 0.05 * (damping * (1 - x * x) * v - x)
        x += 0.05 * v
    return x


def pendulum(angle: float, speed: float, length: float, friction: float) -> tuple[float, float]:
    """By Runge and Kutta's method."""

    def force(angle: float, speed: float) -> float:
        return -9.81 / length * math.sin(angle) - friction * speed * abs(speed)

    h = 0.02
    for _ in range(25):
        a = force(angle, speed)
        b = force(angle + h / 2 * speed, speed + h / 2 * a)
        c = force(angle + h / 2 * (speed + h / 2 * a), speed + h / 2 * b)
        d = force(angle + h * (speed + h / 2 * b), speed + h * c)
        angle += h * (speed + h * (a + b + c) / 6)
        speed += h * (a + 2 * b + 2 * c + d) / 6
    return angle, speed


def predators(prey: float, hunters: float, births: float, deaths: float) -> float:
    """With a branch in each iteration, and until the prey is few."""
    turns = 0
    while prey > 0.05 and turns < 40:
        eaten = prey * hunters / (1 + prey)
        if hunters > prey:
            eaten = eaten * (0.5 + 0.5 * math.exp(prey - hunters))
        grown = births * prey
        prey, hunters = prey + 0.1 * (grown - eaten), hunters + 0.1 * (eaten - deaths * hunters)
        turns += 1
    return prey + 2 * hunters


def swapped(a: float, b: float, c: float) -> float:
    for k in range(7):
        a, b, c = b * c, a + 0.1 * c, math.sin(a) + 0.01 * k
    return a - b + c


def exchanged(a: float, b: float, c: float, d: float) -> tuple[float, float]:
    """Variables that only change places, beside others that are computed from them."""
    for k in range(5):
        a, b, c = b, c, a
        d = d * a + (b if k > 2 else math.sin(c))
        if d > a:
            a, b = b, a
    return a * d + 2 * b, b - c * d


def kept_from_the_iteration_before(x: float, y: float) -> float:
    last = y
    for _ in range(6):
        now = 0.5 * x * last + math.cos(last)
        before, last = last, now
        x = x + 0.1 * before * now
    return x * last + before


def one_value_under_several_names(x: float, y: float, z: float) -> float:
    last = best = x
    for _ in range(4):
        z = z - 0.25 * x
        last = z
        y = y * z
        best = y
        x = math.sin(z * y)
    return z + y * best + x * last


def one_value_under_several_names_in_a_branch(x: float, y: float, z: float) -> float:
    u, v = x, y
    for _ in range(5):
        if z > 2.0:
            u = z * y
            v = u
        else:
            u = math.sin(z)
            v = u
        z = z - 0.1 * u * v
    return u * v + z * x


def read_before_it_changes(x: float, y: float, z: float) -> tuple[float, float]:
    """Partials are made of s and e, which get other values in the loop inside before the partials are multiplied."""
    s, e = x * y, z
    for _ in range(3):
        t = s * e
        u = math.sin(t) * e
        for j in range(2):
            e = e * 0.5 + j * y
        s = t * e + s * u
    return s * e, t * u * e


def narrow(a: float, b: float, c: float, d: float, e: float, f: float) -> float:
    """Of six arguments, the loop and the branch in it read two values."""
    u, v = a * b + c * math.sin(d), d * e - f
    for _ in range(4):
        if u > v:
            w = u * v
            u = math.cos(w) + u
        else:
            v = v + 0.3 * u * u
            w = v
        v = 0.5 * v * w
    return u * v + a


def returned_early(x: float, y: float, z: float) -> float:
    """From the inner of two loops."""
    s = x
    for i in range(4):
        t = 1.0 + i * y
        for j in range(3):
            t = t * s
            if t > 2.5 + 0.1 * j:
                return t * z + s
            if t < -1:
                break
        else:
            s = s + 0.1 * t
        s = s * 1.1
    return s * y


def named_in_the_test(x: float, y: float) -> float:
    """The test assigns what is read after the loop."""
    n = 1
    while (t := x * n + y * y) < 4.0:
        x = x * (1 + 0.1 * y)
        n += 1
    return t * x


LOOPS = [
    *(oscillator, pendulum, predators, swapped, exchanged, kept_from_the_iteration_before),
    *(one_value_under_several_names, one_value_under_several_names_in_a_branch, read_before_it_changes),
    *(narrow, returned_early, named_in_the_test),
]
EVERY = pytest.mark.parametrize("function", LOOPS, ids=lambda function: function.__name__)
HALF = pytest.mark.parametrize("function", sampled(LOOPS, 2), ids=lambda function: function.__name__)


def points_of(function: Any, count: int) -> Any:
    return np.random.default_rng(7).uniform(0.4, 1.4, (function.__code__.co_argcount, count))


@HOW
@HALF
def test_partials_against_differences(function: Any, backend: str, way: str) -> None:
    arity, points = function.__code__.co_argcount, points_of(function, 9)
    with forced(way):
        value, jacobian = differentiable_broadcast(backend=backend)(function).value_and_jacobian(*points)
    values = value if isinstance(value, tuple) else (value,)
    for row, point in enumerate(points.T):
        plain = oracles.numbers_of(function(*map(float, point)))
        np.testing.assert_allclose([each[row] for each in values], plain, rtol=1e-12)
        slopes = oracles.finite_differences(function, [*map(float, point)], range(arity))
        for output, at in itertools.product(range(len(values)), range(arity)):
            np.testing.assert_allclose(jacobian[output, at][row], slopes[output][at], rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("way", WAYS)
@HALF
def test_second_partials_against_differences(function: Any, way: str) -> None:
    """The derivatives of a loop's variables are variables of the loop, which are differentiated again."""
    if function in (oscillator, pendulum) and way not in ("natural", "in variables"):
        pytest.skip("takes long")
    arity, points = function.__code__.co_argcount, points_of(function, 2)
    names = function.__code__.co_varnames[:arity]
    with forced(way):
        hessian = differentiable_broadcast(backend="python")(function).hessian(*points)
    for row, point in enumerate(points.T):
        seconds = oracles.second_derivatives(function, [*map(float, point)], range(arity))
        for output, wanted in enumerate(seconds):
            for (p, q), slope in wanted.items():
                place = (names[p], names[q]) if len(seconds) == 1 else (output, names[p], names[q])
                np.testing.assert_allclose(hessian[place][row], slope, rtol=1e-8, atol=1e-9)


def multiplications_of(function: Any) -> dict[str, int]:
    """Those of values and partials, in each way."""
    counts, f = {}, floats(function)
    for way in WAYS:
        with forced(way):
            both = simplify(jacobian_of(f, range(len(f.params))).function)
        counts[way] = sum(op.name == "mul" for op in operations_of(both))
    return counts


def test_an_iteration_is_eliminated_as_a_whole() -> None:
    """An oscillator takes the products of one by hand: three for each direction, those of two slopes, the value's."""
    assert multiplications_of(oscillator)["natural"] <= 19 < multiplications_of(oscillator)["forward"]
    assert multiplications_of(pendulum)["natural"] < multiplications_of(pendulum)["forward"]


def test_a_loop_is_differentiated_in_its_variables_where_these_are_fewer() -> None:
    counts = multiplications_of(narrow)
    assert counts["natural"] <= counts["in variables"] < 0.7 * counts["in the sources"]


def test_a_direction_goes_through_a_loop_as_one() -> None:
    f = differentiable_broadcast(backend="python")(oscillator)
    start = [np.random.default_rng(2).uniform(0.5, 1.5, 33) for _ in range(3)]
    _, tangent = f.jvp(start, [np.ones(33), np.zeros(33), np.zeros(33)])
    np.testing.assert_allclose(tangent, f.value_and_jacobian(*start)[1]["x"], rtol=1e-12)


# --- loops that the front end does not write --------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_variable_of_the_test_that_is_read_after_the_loop(way: str) -> None:
    """t = s y is assigned once, before the test. After n iterations s is x yⁿ, so that t is x yⁿ⁺¹ ≥ 5."""
    function = verify_single_assignment(
        parse("""
        function f(x: float, y: float)
            s: float = x
            while:
                t: float = mul(s, y)
                %: bool = lt(t, 5.0)
            test %:
                u: float = t
                s: float = u
            v: float = mul(t, x)
            output out = v
        """)
    )
    x, y = np.array([[1.0, 6.0, 0.5], [2.0, 3.0, 1.5]])
    n = np.array([next(n for n in range(9) if a * b ** (n + 1) >= 5) for a, b in zip(x, y, strict=True)])
    with forced(way):
        dual = jacobian_of(function, (0, 1))
    for f in (verify_single_assignment(dual.function), verify_single_assignment(simplify(dual.function))):
        value, in_x, in_y = execute(f, [x, y])
        np.testing.assert_allclose(value, x * x * y ** (n + 1), rtol=1e-14)
        np.testing.assert_allclose(in_x, 2 * x * y ** (n + 1), rtol=1e-14)
        np.testing.assert_allclose(in_y, x * x * (n + 1) * y**n, rtol=1e-14)


# --- presence ---------------------------------------------------------------------------------------------------------


@HOW
def test_an_absent_zero_stays_zero_where_a_slope_is_infinite(backend: str, way: str) -> None:
    """What the root is of does not depend on y before the second iteration, and its slope is infinite in the first."""

    def f(x: float, y: float, z: float) -> float:
        s, t = x, 0.0
        for k in range(2):
            t = t + math.sqrt(s) * z
            s = s * z + y * y * (k + 1)
        return t

    x, y, z = np.array([[0.0, 2.0], [1.5, 0.5], [1.0, 3.0]])
    with forced(way):
        jacobian = differentiable_broadcast(backend=backend)(f).jacobian(x, y, z)
    # t = z √x + z √(x z + y²)
    np.testing.assert_allclose(jacobian["y"], z * y / np.sqrt(x * z + y * y))
