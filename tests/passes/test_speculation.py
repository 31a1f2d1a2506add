"""Branches that stay: a side runs for vectors with an element that takes it, and changes nothing for the others."""

from __future__ import annotations

import ctypes
import itertools
import math
import platform
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bits import same_bits
from corpus import CORPUS, Case
from ir_invariants import verify
from run_ir import dual, execute, lowered
from suites import sampled

from dualbcast import differentiable_broadcast, graph, set_num_threads
from dualbcast.codegen.llvm.rows import WHOLE
from dualbcast.ir.nodes import If
from dualbcast.ir.simplification import simplify
from dualbcast.ir.traversal import statements
from dualbcast.passes import if_conversion, vector_analysis
from dualbcast.passes.if_conversion import branch_choices, convert_ifs
from dualbcast.passes.inlining import drop_custom_derivatives
from dualbcast.program.results import Jacobian
from dualbcast.runtime.cpu import kernel as cpu_kernel

STEPS = tuple(range(1, 9))
NUMBERS = tuple(range(120))
INF, NAN = math.inf, math.nan


# --- the pass ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("least", [-1.0, 15.0])
@pytest.mark.parametrize("case", sampled(CORPUS, 2), ids=lambda case: case.name)
def test_values_and_partials_keep_every_bit(case: Case, least: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an `if` for each side, and with short sides for all."""
    monkeypatch.setattr(vector_analysis, "LEAST_SAVING", least)
    monkeypatch.setattr(if_conversion, "skipping_saves", lambda *_: True)
    columns = list(zip(*case.points, strict=True))
    for function in (drop_custom_derivatives(simplify(lowered(case))), drop_custom_derivatives(simplify(dual(case)))):
        found, choices = convert_ifs(function, set()), branch_choices(function, set())
        for one, other in zip(execute(verify(found), columns), execute(function, columns), strict=True):
            same_bits(one, other)
        if all("takes it" in choice.reason for choice in choices):
            assert not any(isinstance(stmt, If) and stmt.orelse for stmt in statements(found.body))


# --- kernels ----------------------------------------------------------------------------------------------------------


def one_side(x: float, y: float, c: float) -> float:
    if c < 0.5:
        return x + y
    s = y
    for k in STEPS:
        s = math.sin(k * x + s) * abs(s) ** 1.3
    return s


def two_sides(x: float, y: float, c: float) -> tuple[float, float]:
    s, t = x, y
    if c < 0.5:
        for k in STEPS:
            s, t = math.sin(k * y + s), s + 0.1 * t
    else:
        for k in STEPS:
            s, t = math.exp(-s * s) * k + t, s
    return s, t


def nested(x: float, y: float, c: float) -> tuple[float, float]:
    r, u = x * y, 1.0
    if c > 0.2:
        r = math.tanh(x) ** 2.5
        if c > 0.7:
            for k in STEPS:
                r = r + math.exp(-k * r * y)
            u = r
        elif y > 0.5:
            u = math.sin(math.exp(y)) * math.log(x + c)
        r = r * u
    elif y > 0.3:
        r = math.cos(math.exp(x * y)) ** 1.5 if x > 0.5 else math.erf(x)
    return r + x, u


def loops(x: float, y: float, c: float) -> float:
    e = x
    if c < 0.5:
        total = 0.0
        for k in range(20):
            total = total + math.sin(k * x) * y
            if total > 3:
                total = total - math.exp(y)
        return total
    while abs(e - y * math.sin(e) - x) > 1e-5:
        e = e - (e - y * math.sin(e) - x) / (1 - y * math.cos(e))
        if e > 1e6:
            break
    return e * math.exp(e)


def in_a_loop(x: float, y: float, c: float) -> float:
    for k in range(4):
        if c * k > 0.6:
            x = math.sin(math.exp(-x) + k) ** 2 * math.atan2(y, 1 + x)
        y = y + 0.1 * x
    return x * y


def guarded(x: float, y: float, c: float) -> float:
    """What is not taken is NaN or infinite, and so are its derivatives."""
    z = x - 0.5
    if c < 0.5:
        return z
    return math.log(c - 0.5) * math.sqrt(c - 0.5) ** y / (c - 0.5) + math.acos(1 / c) * math.exp(800.0 * (1 - c))


def whole_numbers(x: float, y: float, c: float) -> float:
    n = int(4 * c)
    if n > 0:
        return x * (17 // n) + math.exp(math.sin(y)) * (23 % n) + y // n
    return x


FUNCTIONS = [one_side, two_sides, nested, loops, in_a_loop, guarded, whole_numbers]
EACH = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)


def patterns(n: int) -> dict[str, Any]:
    random = np.random.default_rng(n)
    runs = np.repeat(random.random(n // 40 + 1), 40)[:n]
    last = np.zeros(n)
    last[-1] = 1.0
    return {
        "nobody": np.zeros(n),
        "few": np.where(random.random(n) < 0.02, 0.9, 0.1),
        "any": random.random(n),
        "runs": runs,
        "the last": last,
        "all": np.ones(n),
    }


def operands(n: int, dtype: Any = float) -> tuple[Any, Any]:
    x, y = np.random.default_rng(7).uniform(0.1, 0.9, (2, n))
    return x.astype(dtype), y.astype(dtype)


def close(found: Any, wanted: Any, rtol: float = 1e-11, atol: float = 1e-11) -> None:
    for one, other in zip(flat(found), flat(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def flat(found: Any) -> list[Any]:
    """The arrays of what a product returns."""
    match found:
        case Jacobian():
            return [array for name in found for array in flat(found[name])]
        case tuple() | list():
            return [array for part in found for array in flat(part)]
    return [found]


@pytest.mark.parametrize("function", sampled(FUNCTIONS, 2), ids=lambda function: function.__name__)
def test_every_product_is_that_of_the_branches(function: Callable[..., Any]) -> None:
    """The `python` backend runs the branches as they stand."""
    n = 203
    x, y = operands(n)
    ours, plain = (differentiable_broadcast(backend=backend, wrt=("x", "y"))(function) for backend in ("cpu", "python"))
    for c in patterns(n).values():
        with np.errstate(all="ignore"):
            close(ours.value_and_jacobian(x, y, c), plain.value_and_jacobian(x, y, c))
            ups = np.ones(n) if isinstance(plain(x, y, c), np.ndarray) else (np.ones(n), x)
            close(ours.vjp(x, y, c)[1](ups), plain.vjp(x, y, c)[1](ups))
            close(ours.vjp(x, y[:1], c)[1](ups), plain.vjp(x, y[:1], c)[1](ups))  # a sum over all
            close(ours.jvp((x, y, c), (y, x, c)), plain.jvp((x, y, c), (y, x, c)))
            if isinstance(ups, np.ndarray):
                of_ours, of_plain = ours.hessian(x, y, c), plain.hessian(x, y, c)
                for pair in itertools.product("xy", repeat=2):
                    close(of_ours[pair], of_plain[pair], 1e-9, 1e-9)


@EACH
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_bits_do_not_depend_on_neighbours_or_threads(function: Callable[..., Any], dtype: str) -> None:
    n = 5000
    x, y = operands(n, dtype)
    f = differentiable_broadcast(wrt=("x", "y"))(function)
    order = np.random.default_rng(1).permutation(n)
    for c in patterns(n).values():
        c = c.astype(dtype)
        found = flat(f.value_and_jacobian(x, y, c))
        shuffled = flat(f.value_and_jacobian(x[order], y[order], c[order]))
        for one, other in zip(found, shuffled, strict=True):
            np.testing.assert_array_equal(one[order], other)
        part = flat(f.value_and_jacobian(x[11:40], y[11:40], c[11:40]))
        for one, other in zip(found, part, strict=True):
            np.testing.assert_array_equal(one[11:40], other)
        try:
            set_num_threads(2)
            for one, other in zip(found, flat(f.value_and_jacobian(x, y, c)), strict=True):
                np.testing.assert_array_equal(one, other)
        finally:
            set_num_threads(None)


def test_what_is_not_taken_leaves_no_trace() -> None:
    """At x = 0 and where c - 0.5 is negative or zero, with neighbours that take the other side, and alone."""
    f = differentiable_broadcast(wrt=("x", "y", "c"))(guarded)
    for other in (0.1, 1.5):
        c = np.full(100, 0.1)
        c[::7] = other
        c[1::7] = 0.4999
        x, y = operands(100)
        value, jacobian = f.value_and_jacobian(x, y, c)
        first = c < 0.5
        np.testing.assert_array_equal(value[first], x[first] - 0.5)
        for name, partial in (("x", 1.0), ("y", 0.0), ("c", 0.0)):
            np.testing.assert_array_equal(jacobian[name][first], partial)
        hessian = f.hessian(x, y, c)
        for one, another in itertools.product("xyc", repeat=2):
            np.testing.assert_array_equal(hessian[one, another][first], 0.0)


def test_a_sum_takes_nothing_from_sides_that_are_not_taken() -> None:
    f = differentiable_broadcast(backend="cpu")(guarded)
    c, (x, y) = np.full(1000, 0.2), operands(1000)
    _, back = f.vjp(x, y[:1], c)
    gx, gy, gc = back(np.ones(1000))
    np.testing.assert_array_equal(gx, 1.0)
    assert gy.tolist() == [0.0]
    np.testing.assert_array_equal(gc, 0.0)


def test_sums_of_the_graph() -> None:
    x, y = operands(999)
    c = patterns(999)["few"]
    f, plain = (differentiable_broadcast(backend=backend)(one_side) for backend in ("cpu", "python"))
    found = graph.grad(lambda w: np.sum(f(x, w, c)))(y[:1])
    _, back = plain.vjp(x, y[:1], c)
    np.testing.assert_allclose(found, back(np.ones(999))[1], rtol=1e-11)


# --- machine code -----------------------------------------------------------------------------------------------------


def divides(x: float, y: float, c: float, z: float) -> float:
    """A side that divides by zero, which the processor keeps in mind; so do the others."""
    if c < 0.5:
        return x
    s = y
    for k in STEPS:
        s = math.sin(k * x + s)
    return s + x / z


def divides_in_a_loop(x: float, y: float, c: float, z: float) -> float:
    s = y
    if c >= 0.5:
        for k in range(30):
            s = math.sin(k * x + s) + x / z
    return s


def divides_below(x: float, y: float, c: float, z: float) -> float:
    if x > 0:
        s = math.exp(math.sin(x)) ** y
        if c >= 0.5:
            s = (s + math.exp(-x) ** y + math.atan(s) ** 1.1) / z
        return s
    return math.tanh(x) ** y


def divides_or_not(x: float, y: float, c: float, z: float) -> float:
    """Both sides take long."""
    if c >= 0.5:
        return math.sin(math.exp(x)) ** y + x / z
    return math.cos(math.log(x)) ** y


READS_FLAGS = pytest.mark.skipif(
    not sys.platform.startswith("linux") or platform.machine() != "x86_64", reason="asks the C library for flags"
)
PRODUCTS = pytest.mark.parametrize("product", ["value", "jacobian", "pullback"])


def divides_by_zero(function: Callable[..., float], product: str, *arguments: Any) -> bool:
    """Whether a launch of a product divides by zero; the processor says so."""
    libm, divided = ctypes.CDLL("libm.so.6"), 4
    f = differentiable_broadcast(wrt=("x", "y"))(function)
    calls = {
        "value": lambda: f(*arguments),
        "jacobian": lambda: f.value_and_jacobian(*arguments),
        "pullback": lambda: f.vjp(*arguments)[1](arguments[0]),
    }
    try:
        set_num_threads(1)
        with np.errstate(all="ignore"):
            calls[product]()
            libm.feclearexcept(divided)
            calls[product]()
            return bool(libm.fetestexcept(divided))
    finally:
        libm.feclearexcept(divided)
        set_num_threads(None)


@READS_FLAGS
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("function", [divides, divides_in_a_loop, divides_below, divides_or_not])
@PRODUCTS
def test_a_side_does_not_run_where_no_element_takes_it(
    function: Callable[..., float], dtype: str, product: str
) -> None:
    n = 1003
    x, y = operands(n, dtype)
    z = np.zeros(n, dtype)
    assert not divides_by_zero(function, product, x, y, np.zeros(n, dtype), z)
    for place in (0, 500, n - 1):
        c = np.zeros(n, dtype)
        c[place] = 1
        assert divides_by_zero(function, product, x, y, c, z)


@READS_FLAGS
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@PRODUCTS
def test_a_side_inside_another_does_not_run_for_elements_that_reach_neither(dtype: str, product: str) -> None:
    """The inner condition holds for the elements of a vector that do not take the outer side."""
    n = 1003
    x, y = operands(n, dtype)
    x = np.abs(x)
    x[::2] *= -1
    assert not divides_by_zero(divides_below, product, x, y, np.array(x < 0, dtype), np.zeros(n, dtype))


def test_calls_are_behind_a_jump() -> None:
    """From where the loop over whole vectors begins its end is reached without a call of the C library."""
    f = differentiable_broadcast(backend="cpu", wrt=("x", "y"))(one_side)
    c, (x, y) = np.zeros(100), operands(100)
    f.value_and_jacobian(x, y, c)
    text = [*cpu_kernel._kernels.values()][-1].llvm()
    whole = next(part for part in text.split("\ndefine ") if f"@{WHOLE}(" in part.splitlines()[0]).partition("\n}")[0]
    blocks = dict(re.findall(r"^\"?([\w.]+)\"?:[^\n]*\n((?:  .*\n?)*)", whole, re.MULTILINE))
    calls = {name for name, body in blocks.items() if re.search(r"call .*(pow|sin)", body)}
    assert calls
    pending = [next(iter(blocks))]
    reached: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in reached | calls:
            reached.add(name)
            pending += re.findall(r'label %"?([\w.]+)', blocks[name].splitlines()[-1])
    assert any("ret void" in blocks[name] for name in reached)
    assert any("store <" in blocks[name] for name in reached)


def test_explain_says_what_the_kernel_does() -> None:
    given = [np.ones(10)] * 3
    text = str(differentiable_broadcast(one_side).explain(*given))
    assert "if c < 0.5:  →  branch (the longer side runs for vectors with an element that takes it)" in text
    text = str(differentiable_broadcast(two_sides).explain(*given))
    assert "if c < 0.5:  →  branch (each side runs for vectors with an element that takes it)" in text
    text = str(differentiable_broadcast(loops).explain(*given))
    assert "if c < 0.5:  →  branch (each side runs for vectors with an element that takes it)" in text
    assert "for k in range(20):  →  vectors (all elements have as many iterations)" in text
    assert "e - y * math.sin(e) - x) > 1e-5:  →  vectors (elements leave the masked loop one by one)" in text


def test_many_cases() -> None:
    """One in the other they are deeper than Python's parser goes."""

    def cases(x: float, c: float) -> float:
        for k in NUMBERS:
            if c == k:
                return (2 + math.sin(k + math.exp(x))) ** 1.5 + k
        return x

    x = operands(500)[0]
    c = np.random.default_rng(0).integers(-5, 125, 500).astype(float)
    wanted = np.where((c >= 0) & (c < 120), (2 + np.sin(c + np.exp(x))) ** 1.5 + c, x)
    np.testing.assert_allclose(differentiable_broadcast(cases)(x, c), wanted, rtol=1e-12)


def test_what_is_the_same_for_a_row_is_computed_before_a_side() -> None:
    def f(x: float, p: float, c: float) -> float:
        if c < 0.5:
            return x
        return math.sin(math.exp(x)) ** x + math.erfc(p) * math.exp(p * p)

    x, _ = operands(100)
    c = patterns(100)["any"]
    text = differentiable_broadcast(f).inspect_source(x, 0.3, c, product="value")
    assert text.index("= erfc(p") < text.index("if not") < text.index("pow(sin(")
    wanted = np.where(c < 0.5, x, np.sin(np.exp(x)) ** x + math.erfc(0.3) * math.exp(0.09))
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(differentiable_broadcast(f)(x, 0.3, c), wanted, rtol=1e-13)
