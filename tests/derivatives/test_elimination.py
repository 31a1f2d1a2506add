"""Partials from the outputs back: where they are found so, that they are the same, and what stays forward."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from corpus import CORPUS, Case
from ir_invariants import verify
from models import cell_update
from run_ir import execute
from run_ir import lowered as lowered_case

from dualbcast import differentiable_broadcast
from dualbcast.autodiff.differentiate import dualize
from dualbcast.autodiff.eliminate import is_shorter, operations_each_way
from dualbcast.cli import checking
from dualbcast.frontend.lower import lower
from dualbcast.ir.nodes import Function
from dualbcast.ir.simplification import simplify
from dualbcast.program.explain import operations
from dualbcast.program.products import make_product


def lowered(function: Any, arity: int) -> Function:
    return lower(function, ["float"] * arity).function


def count(function: Function) -> int:
    return sum(operations(function).values())


# --- where ------------------------------------------------------------------------------------------------------------


def price(spot: float, strike: float, rate: float, volatility: float, time: float) -> float:
    spread = volatility * math.sqrt(time)
    d = (math.log(spot / strike) + rate * time) / spread + spread / 2
    return spot * math.erfc(-d) - strike * math.exp(-rate * time) * math.erfc(spread - d)


@pytest.mark.parametrize("arity", [8, 16, 32])
def test_a_product_takes_operations_for_each_factor_and_not_for_each_two(arity: int) -> None:
    """Its factors come from branches, as the experiment of the paper has them."""
    function = lowered(checking.product, arity)
    assert is_shorter(function)
    forward, back = (count(simplify(dualize(function, range(arity), reverse=back).function)) for back in (False, True))
    assert back < 10 * arity
    assert forward > arity * arity / 2


def test_what_is_counted_is_what_there_is_to_do() -> None:
    """The estimate is right about which is shorter, for functions where one is so by a quarter."""
    cell, stress = (lambda *x: cell_update(*x)), (lambda a, b, c: (a * b, b * c, c * a, a + b))
    for function, arity in ((price, 5), (checking.product, 8), (cell, 6), (stress, 3)):
        f = lowered(function, arity)
        forward, back = (count(simplify(dualize(f, range(arity), reverse=back).function)) for back in (False, True))
        assert is_shorter(f) == (back < forward), function


def test_a_gpu_has_the_partials_forward() -> None:
    """More values are alive at a time on the way back, and registers are what it has few of."""
    product = make_product(lowered(checking.product, 16), "value_and_jacobian", range(16))
    assert count(product.forward) > 1.5 * count(product.function)
    assert [output.name for output in product.forward.outputs] == [output.name for output in product.function.outputs]
    call = differentiable_broadcast(checking.product)._inspected(["float32"] * 16, None, "value_and_jacobian")
    cuda, cpu = (call.spec.source(call.plan.geometry.layout, target).text for target in ("cuda", "cpu"))
    assert cuda.count(" * ") > 1.5 * cpu.count(" * ")


# --- what -------------------------------------------------------------------------------------------------------------


def judge(function: Any, points: Any, backend: str, rtol: float) -> None:
    """Partials beside mpmath's differences of the same function, which must be written for it."""
    f = differentiable_broadcast(backend=backend)(function)
    _, jacobian = f.value_and_jacobian(*points)
    assert operations_each_way(lowered(function, len(points))) is not None
    for at in range(len(points)):
        for row in range(len(points[0])):
            point = [float(column[row]) for column in points]

            def along(x: Any, at: int = at, point: Any = point) -> Any:
                return exactly(function, [*point[:at], x, *point[at + 1 :]])

            np.testing.assert_allclose(
                jacobian[0, at][row], float(mpmath.diff(along, point[at])), rtol=rtol, atol=1e-13
            )


def exactly(function: Any, arguments: Any) -> Any:
    """A function of numbers, computed by mpmath."""
    names = {**function.__globals__, "math": mpmath}
    return type(function)(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)(
        *arguments
    )


def gated(a: float, b: float, c: float, d: float, e: float, f: float) -> float:
    """Branches in a chain: each reads what one before it has made."""
    u = a * b + c
    v = math.sin(u) * d if u > 0.3 else u * d * e
    w = v * e + u
    x = math.exp(w) if v > 0 else 1 / (1 + w * w)
    return x * f + math.cos(v) * w


def counted(a: float, b: float, c: float, d: float, e: float, f: float) -> float:
    """A loop in a branch in the middle."""
    u = a * b * c + d
    if u > 0.4:
        v = u * d
        while v > 0.2:
            v = v * math.sin(u)
    else:
        v = u + d
    return math.exp(v * f) * u * a + b * e


@pytest.mark.parametrize("backend", ["python", "cpu"])
@pytest.mark.parametrize("function", [price, gated, counted], ids=lambda function: function.__name__)
@pytest.mark.usefixtures("nothing_kept")
def test_partials(function: Any, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is shorter or not."""
    monkeypatch.setattr("dualbcast.autodiff.eliminate.is_shorter", lambda _: True)
    random = np.random.default_rng(5)
    arity = function.__code__.co_argcount
    judge(function, random.uniform(0.2, 1.4, (arity, 24)), backend, 1e-11)


EVERY = pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)


@EVERY
def test_both_ways_give_the_same(case: Case) -> None:
    """Of all that can be found so, shorter or not, also where partials are infinite or nan."""
    function = lowered_case(case)
    if operations_each_way(function) is None:
        pytest.skip("stays forward")
    columns = list(zip(*case.points, strict=True))
    found = []
    for back in (False, True):
        dual = dualize(function, case.floats, reverse=back)
        both = verify(simplify(verify(dual.function)))
        names = [output.name for output in function.outputs] + [dual.partials[place] for place in sorted(dual.partials)]
        values = dict(zip([output.name for output in both.outputs], execute(both, columns), strict=True))
        found.append((sorted(dual.partials), [values[name] for name in names]))
    (forward, wanted), (back_, given) = found
    assert forward == back_
    for one, other in zip(given, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


# --- what stays forward -----------------------------------------------------------------------------------------------


def skipped(a: float, b: float, c: float, d: float) -> float:
    """At a = b = 0 the root's slope is infinite, and the value does not depend on it."""
    u = math.sqrt(a * b)
    v = u * c if d > 0 else c
    return v * d * c


def chosen(a: float, b: float, c: float, d: float) -> float:
    return np.where(d > 0, math.sqrt(a * b) * c, c) * d * c


def repeated(a: float, b: float, c: float, d: float) -> float:
    u = a * b
    for _ in range(4):
        u = math.sin(u * c) + d
    return u


def returned(a: float, b: float, c: float, d: float) -> float:
    """What is made on one path only, and read on that only."""
    for x in (a, b):
        if x * c > 1:
            found = math.sin(x * d)
            break
    else:
        found = c
    return found * c


@pytest.mark.parametrize("function", [skipped, chosen, repeated, returned], ids=lambda function: function.__name__)
def test_what_stays_forward(function: Any) -> None:
    assert operations_each_way(lowered(function, 4)) is None


@pytest.mark.parametrize("backend", ["python", "cpu"])
@pytest.mark.parametrize("function", [skipped, chosen], ids=lambda function: function.__name__)
def test_what_is_not_there_is_not_multiplied_by_infinity(function: Any, backend: str) -> None:
    f = differentiable_broadcast(backend=backend)(function)
    _, jacobian = f.value_and_jacobian(np.zeros(2), np.zeros(2), np.full(2, 3.0), np.full(2, -2.0))
    np.testing.assert_array_equal([jacobian[at] for at in range(4)], [[0, 0], [0, 0], [-12, -12], [9, 9]])


def root_of_a_side(a: float, b: float, c: float, d: float, e: float) -> float:
    u = a * b * c * d * e
    side = b / c if a > 0 else d
    w = u * e + e
    z = w * w * u
    return z * math.exp(z) + b + c + d + math.sqrt(side)


@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_a_side_that_is_not_taken_is_not_multiplied_by_infinity(backend: str) -> None:
    """In reverse mode: the cotangent of the side is infinite where the root is 0."""
    assert is_shorter(lowered(root_of_a_side, 5))
    f = differentiable_broadcast(backend=backend)(root_of_a_side)
    _, jacobian = f.value_and_jacobian(*np.array([[-1.0], [2.0], [5.0], [0.0], [0.0]]))
    assert [jacobian[at].tolist() for at in range(5)] == [[0.0], [1.0], [1.0], [math.inf], [0.0]]


def test_partials_in_some_parameters_have_the_same_bits() -> None:
    f = differentiable_broadcast(backend="cpu")(price)
    x = np.random.default_rng(0).uniform(0.5, 1.5, (5, 40))
    _, whole = f.value_and_jacobian(*x)
    for name in ("spot", "volatility"):
        _, some = f.value_and_jacobian(*x, wrt=name)
        np.testing.assert_array_equal(some[name], whole[name])
