"""The order of statements for vector registers: what is first, and that no value depends on it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from corpus import CORPUS, Case
from ir_invariants import verify
from models import product_of_tanh, product_of_tanh_by_hand
from run_ir import dual, execute

from dualbcast import differentiable_broadcast
from dualbcast.codegen.llvm.rows import WHOLE
from dualbcast.frontend.lower import lower
from dualbcast.ir.nodes import Assign, Op
from dualbcast.ir.simplification import simplify
from dualbcast.passes.arithmetic import schedule_calls
from dualbcast.passes.if_conversion import convert_ifs
from dualbcast.passes.inlining import drop_custom_derivatives

EVERY = pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)


@EVERY
def test_every_bit_stays(case: Case) -> None:
    columns = list(zip(*case.points, strict=True))
    function = drop_custom_derivatives(simplify(dual(case)))
    for version in (function, convert_ifs(function, set())):
        for found, wanted in zip(
            execute(verify(schedule_calls(version)), columns), execute(version, columns), strict=True
        ):
            np.testing.assert_array_equal(found, wanted, strict=True)
            np.testing.assert_array_equal(np.signbit(found.astype(float)), np.signbit(wanted.astype(float)))


def names_of(function: Any, *kinds: Any) -> list[str]:
    """The operations of a function's body in order."""
    body = schedule_calls(simplify(lower(function, kinds).function)).body
    return [stmt.value.name for stmt in body if isinstance(stmt, Assign) and isinstance(stmt.value, Op)]


def test_calls_come_first_with_what_leads_to_them() -> None:
    def function(x: float, y: float) -> float:
        a = math.exp(x)
        b = a * y + 1
        c = math.sin(x / y)
        d = b - c
        return math.cos(d) + b * y  # its argument needs all that is before it

    assert names_of(function, "float", "float") == ["exp", "mul", "add", "div", "sin", "sub", "cos", "mul", "add"]

    def other(x: float, y: float) -> float:
        a = math.exp(x)
        b = a * y + 1
        c = math.sin(x / y)
        return b - c

    assert names_of(other, "float", "float") == ["exp", "div", "sin", "mul", "add", "sub"]

    def single(x: float, y: float) -> float:
        return x * y + math.exp(x - y)

    assert names_of(single, "float", "float") == ["mul", "sub", "exp", "add"]


def test_a_variable_that_is_assigned_again_keeps_its_turn() -> None:
    def function(x: float, n: int) -> float:
        total = 1.0
        for k in range(n):
            before = total
            total = math.exp(x) * total
            total = total + math.sin(before) * k
        return total

    f = schedule_calls(simplify(lower(function, ("float", "int")).function))
    points = [(0.5, 4), (-1.0, 7), (2.0, 0)]
    found = execute(verify(f), list(zip(*points, strict=True)))
    np.testing.assert_allclose(found[0], [function(*point) for point in points], rtol=1e-14)


@pytest.mark.parametrize("arity", [5, 16])
def test_all_partials_of_a_product(arity: int) -> None:
    xs = np.random.default_rng(5).normal(size=(arity, 333))
    value, jacobian = differentiable_broadcast(backend="cpu")(product_of_tanh).value_and_jacobian(*xs)
    wanted, partials = product_of_tanh_by_hand(*xs)
    np.testing.assert_allclose(value, wanted, rtol=1e-12)
    for at, partial in enumerate(partials):
        np.testing.assert_allclose(jacobian[at], partial, rtol=1e-11)


def test_few_vectors_go_through_memory() -> None:
    """Of the sixteen factors' partials nothing is carried from call to call."""
    from dualbcast.codegen.llvm import target

    f = differentiable_broadcast(backend="cpu")(product_of_tanh)
    assembly = f.inspect_asm(*["float32"] * 16).partition(f"{WHOLE}:")[2].partition(".size")[0].splitlines()
    if not target.has_libmvec() or not any("zmm" in line for line in assembly):
        pytest.skip("no libmvec, or no vectors of 512 bits")
    assert sum("zmm" in line and "(%rsp)" in line for line in assembly) < 100  # 322 without an order
