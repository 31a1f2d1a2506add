"""Loops that several elements take together: the values, the derivatives, and where it is done."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from corpus import CORPUS, Case
from cpu_kernels import vectors
from ir_invariants import verify
from models import eccentric_anomaly
from run_ir import dual, execute
from suites import sampled

from dualbcast import differentiable_broadcast, special
from dualbcast.codegen import mathlib
from dualbcast.codegen.llvm.build import _lanes
from dualbcast.codegen.llvm.rows import WHOLE
from dualbcast.frontend.lower import lower
from dualbcast.ir.nodes import Break, Continue, For, If, While
from dualbcast.ir.simplification import simplify
from dualbcast.ir.traversal import statements
from dualbcast.passes.inlining import drop_custom_derivatives
from dualbcast.passes.masked_loops import mask_loops
from dualbcast.passes.vector_analysis import fits_vectors
from dualbcast.program import pipeline

EVERY = pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)


@EVERY
def test_the_function_is_the_same_for_an_element(case: Case) -> None:
    """Nothing reads a name that has no value, loops are of two kinds, and an element has its results."""
    function = drop_custom_derivatives(simplify(dual(case)))
    found = mask_loops(function, set())
    if found is None:
        return
    verify(found)
    assert all(stmt.masked for stmt in statements(found.body) if isinstance(stmt, While))
    assert not any(isinstance(stmt, Break | Continue) for stmt in statements(found.body))
    columns = [list(column) for column in zip(*case.points, strict=True)]
    for ours, theirs in zip(execute(found, columns), execute(function, columns), strict=True):
        np.testing.assert_array_equal(ours, theirs)


# --- programs ---------------------------------------------------------------------------------------------------------


def newton(x: float, y: float) -> float:
    """The root of y² + x², by Newton's method."""
    root = abs(x) + 1.0
    step, turns = 1.0, 0
    while abs(step) > 1e-9 * root and turns < 60:
        step = 0.5 * (root - (x * x + y * y) / root)
        root -= step
        turns += 1
    return root


def leaves_early(x: float, y: float) -> float:
    total = 0.0
    for k in range(20):
        if total > 5 * y:
            break
        if k % 3 == 1 and x < 0:
            continue
        total += math.exp(x / (k + 1))
        if total > 50:
            total = -total
            break
        y = y * 0.9
    return total * y


def swaps(x: float, y: float) -> float:
    a, b, n = x, y, 0
    while n < 7 and b > 0.01:
        a, b = b, math.sin(a) * b
        n += 1
    return a + 2 * b + n


def counts(x: float, y: float) -> tuple[float, int, bool]:
    n = int(abs(4 * y))
    seen = False
    total = 1.0
    for k in range(n):
        total = total * math.cos(x * k)
        if total < 0:
            seen = True
            last = k
    else:
        last = n
    return total, last, seen


def two_loops(x: float, y: float) -> float:
    scale = math.exp(-x * x)
    s = 0.0
    while s < abs(y):
        s += math.sqrt(scale) + 0.3
    if s > 1:
        s = s / scale
    t = s
    for _ in range(30):
        t = t - (t * t - s) / (2 * t + 1e-3)
        if abs(t * t - s) < 1e-8:
            break
    return t + s * x


def backwards(x: float, y: float) -> float:
    s = 0.0
    for k in range(9, 0, -2):
        s = s + math.sin(k * x)
        if s > y:
            break
    return s


def never(x: float, y: float) -> float:
    while x < -1e300:
        x = math.exp(x) + y
    return x * y


def guarded(x: float, y: float) -> float:
    """For elements that have left the logarithm is of something negative."""
    n = 0
    while x > 0.5:
        x = x - math.log(x) - 0.7 if x > 2 else x - 0.6
        n += 1
    return x * y + n


def cheap(x: float, y: float) -> float:
    for _ in range(int(abs(2 * y))):
        x = x * x / 4 - 0.5
    return x


def nested(x: float, y: float) -> float:
    """Each of the loops ends where the element says, and the inner one goes on counting from turn to turn."""
    total, inner = 0.0, 0
    for k in range(int(abs(y)) + 1):
        step = x
        while abs(step) > 0.2 and inner < 11:
            step = 0.5 * step + 0.01 * k
            inner += 1
        total += step * y
        if total > 20:
            break
    return total + inner


def of_equal_steps(x: float, y: float) -> float:
    """Time goes on for all; how often the equation of a step is looked at differs, and so does where it ends."""
    for k in range(6):
        a, b = x, 0.1 * k
        for _ in range(9):
            a, b = x + 0.1 * math.sin(a) * y, a
            if abs(a - b) < 1e-6:
                break
        x = a
    return x


def loops_in_a_branch(x: float, y: float) -> float:
    if x > 1:
        s = 1.0
        while s < x:  # would never end where x is infinite, but nobody comes here then
            s = s * 1.5
        return s * y
    if x < -1:
        for k in range(4):
            y = y - x / (k + 2)
        return y
    return x * y


def a_polynomial_in_each_turn(x: float, y: float) -> float:
    root = y
    while True:
        value, slope, power = 0.0, 0.0, 1.0
        for k in range(4):
            slope = slope * root + value
            value = value * root + power
            power = power * x / (k + 1)
        step = value / (slope + 3)
        root -= step
        if not abs(step) > 1e-3 * (1 + abs(root)) or abs(root) > 50:
            break
    return root


def exchanged_in_turns(x: float, y: float) -> float:
    a, b, c = x, y, 1.0
    for _ in range(5):
        for _ in range(3):
            a, b, c = b, c, a
        if a > b:
            a, b = b, a
            continue
        c = c + 0.25
    return a + 2 * b + 3 * c


def leaves_both(x: float, y: float) -> float:
    for i in range(4):
        for j in range(5):
            if i * j > abs(x) + abs(y):
                return x + i + 10.0 * j
            if j * y > 4:
                break
            x = x + 0.3
        else:
            x = x - y
    return x


PROGRAMS = [
    *(newton, leaves_early, swaps, counts, two_loops, backwards, never, guarded, cheap, nested, of_equal_steps),
    *(loops_in_a_branch, a_polynomial_in_each_turn, exchanged_in_turns, leaves_both),
]
each = pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
some = pytest.mark.parametrize("function", sampled(PROGRAMS, 2), ids=lambda function: function.__name__)


def points(size: int = 0) -> tuple[Any, Any]:
    x, y = (axis.ravel() for axis in np.meshgrid(np.linspace(-2.3, 7.1, 11), np.linspace(-3.2, 3.1, 9)))
    return (x, y) if not size else (np.resize(x, size), np.resize(y, size))


def runs_together(function: Any, *arrays: Any) -> bool:
    return vectors(function, *arrays) > 0


@each
def test_all_of_these_are_run_together(function: Any) -> None:
    assert runs_together(function, *points())


def results(function: Any, x: Any, y: Any, backend: str) -> list[Any]:
    value, jacobian = differentiable_broadcast(backend=backend)(function).value_and_jacobian(x, y)
    if not isinstance(value, tuple):
        return [value, jacobian["x"], jacobian["y"]]
    return [*value, jacobian[0, "x"], jacobian[0, "y"]]


@each
@pytest.mark.parametrize("size", [0, 1, 16, 17, 40])
def test_like_one_after_the_other(function: Any, size: int) -> None:
    x, y = points(size)
    for found, wanted in zip(results(function, x, y, "cpu"), results(function, x, y, "python"), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-13)
    values = results(function, x, y, "cpu")
    plain = [function(float(a), float(b)) for a, b in zip(x, y, strict=True)]
    firsts = [row[0] if isinstance(row, tuple) else row for row in plain]
    np.testing.assert_allclose(values[0], firsts, rtol=1e-11, atol=1e-13)


@some
def test_float32_and_other_layouts(function: Any) -> None:
    x, y = np.linspace(-2.2, 6.9, 7), np.linspace(-3.1, 3, 43)
    grid = np.ascontiguousarray(np.broadcast_arrays(x[:, None], y)[1])
    for a, b in ((x[:, None], y), (y, x[:, None]), (x[::-2, None], y[::3]), (grid.T, x), (x[:, None], grid), (0.7, y)):
        for found, wanted in zip(results(function, a, b, "cpu"), results(function, a, b, "python"), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-13)
    single = differentiable_broadcast(backend="cpu")(function)(x.astype("f4")[:, None], y.astype("f4"))
    first = single[0] if isinstance(single, tuple) else single
    assert first.dtype == np.float32


@each
def test_tangents_pullbacks_and_threads(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = points(70_000)
    weights = np.linspace(-1, 1, x.size)
    monkeypatch.setenv("DUALBCAST_NUM_THREADS", "1")
    f = differentiable_broadcast(backend="cpu")(function)
    once = results(function, x, y, "cpu")
    tangent = f.jvp((x, y), (weights, 2 * weights))[1]
    first = tangent[0] if isinstance(tangent, tuple) else tangent
    np.testing.assert_allclose(first, once[-2] * weights + once[-1] * 2 * weights, rtol=1e-9, atol=1e-11)
    monkeypatch.setenv("DUALBCAST_NUM_THREADS", "2")
    for found, wanted in zip(results(function, x, y, "cpu"), once, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_keplers_equation() -> None:
    mean, eccentricity = (axis.ravel() for axis in np.meshgrid(np.linspace(0.1, 6, 50), np.linspace(0, 0.9, 20)))
    f = differentiable_broadcast(backend="cpu")(eccentric_anomaly)
    anomaly, jacobian = f.value_and_jacobian(mean, eccentricity)
    np.testing.assert_allclose(anomaly - eccentricity * np.sin(anomaly), mean, rtol=1e-12)
    slope = 1 - eccentricity * np.cos(anomaly)
    np.testing.assert_allclose(jacobian["mean"], 1 / slope, rtol=1e-10)
    np.testing.assert_allclose(jacobian["eccentricity"], np.sin(anomaly) / slope, rtol=1e-10, atol=1e-12)
    assert [line.partition("→")[2].split()[0] for line in f.explain(mean, eccentricity).branches] == [
        "vectors",
        "select",
    ]


@pytest.mark.parametrize("function", [newton, eccentric_anomaly], ids=lambda function: function.__name__)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_element_has_the_same_bits_alone_and_in_a_group(function: Any, dtype: str) -> None:
    if not mathlib.has_fma():
        pytest.skip("sin and cos are the C library's")
    random = np.random.default_rng(3)
    x, y = (random.uniform(0.1, high, 77).astype(dtype) for high in (3.0, 0.5))
    f = differentiable_broadcast(backend="cpu")(function)
    value, jacobian = f.value_and_jacobian(x, y)
    whole = [value, jacobian[0], jacobian[1]]
    for start, stop in ((0, 1), (5, 6), (3, 36), (40, 77), (70, 77)):
        value, jacobian = f.value_and_jacobian(x[start:stop], y[start:stop])
        for found, wanted in zip((value, jacobian[0], jacobian[1]), whole, strict=True):
            np.testing.assert_array_equal(found, wanted[start:stop])


def test_variables_of_a_group_are_in_registers() -> None:
    """Nothing is left of the arrays that hold them in the text."""
    f = differentiable_broadcast(backend="cpu")(eccentric_anomaly)
    code = f.inspect_llvm("float64", "float64")
    if f"@{WHOLE}(" not in code:
        pytest.skip("no registers for as many vectors")
    whole = next(each for each in code.split("\ndefine ") if f"@{WHOLE}(" in each.splitlines()[0]).partition("\n}")[0]
    assert "alloca" not in whole
    turn = next(block for block in re.split(r"\n(?=\S+:)", whole) if "= phi <" in block)
    # The turns are counted once for all; beside them there is what is left until the loop asks whether to go on.
    assert turn.count("= phi i64") == 2
    carried = re.findall(r"= phi <(\d+) x (\w+)>", turn)
    # A value, two partials, and who is still in it.
    call = f._inspected(("float64", "float64"), None, "value_and_jacobian")
    length, side_by_side = _lanes(call.spec.program(call.plan.geometry.layout).spec)
    lanes = str(length * side_by_side)
    assert sorted(carried) == [(lanes, "double")] * 3 + [(lanes, "i1")]


# --- where it is not done ---------------------------------------------------------------------------------------------


def test_what_stays_a_loop_for_each_element() -> None:
    def divides(x: float, n: int) -> float:  # the division of integers must not run for elements that have left
        while n > 1:
            x = math.exp(-x)
            n = 100 // n - 3
        return x

    def unvectorised(x: float, n: int) -> float:
        for _ in range(n):
            x = special.digamma(abs(x) + 1)
        return x

    for function in (divides, unvectorised):
        whole = simplify(lower(function, ("float", "int")).function)
        assert mask_loops(whole, set()) is whole


def test_loops_that_all_go_through_as_often_stay_loops() -> None:
    def f(x: float, n: int) -> float:
        for k in range(5):
            x = math.sin(k * x)
            for _ in range(n):
                x = 0.5 * x if x > 0.1 else x + 0.01
        return x

    function = simplify(lower(f, ("float", "int")).function)
    assert mask_loops(function, {"n"}) is function
    found = pipeline.run(pipeline.for_vectors({"n"}), function)
    assert fits_vectors(found, {"n"})
    assert sum(isinstance(stmt, For) for stmt in statements(found.body)) == 2
    assert not any(isinstance(stmt, If) for stmt in statements(found.body))
    # Where each element has its own n, only the loop over that ends with the last of them.
    found = pipeline.run(pipeline.for_vectors(set()), function)
    assert fits_vectors(found, set())
    assert [type(stmt) for stmt in statements(found.body) if isinstance(stmt, For | While)] == [For, While]
    x, n = np.linspace(-2, 2, 41), np.arange(41) % 7
    for arrays in ((x, 3), (x, n), (x[:, None], n)):
        assert vectors(f, *arrays)
        (value, jacobian), (wanted, slopes) = (
            differentiable_broadcast(f, backend=backend).value_and_jacobian(*arrays) for backend in ("cpu", "python")
        )
        np.testing.assert_allclose(value, wanted, rtol=1e-13)
        np.testing.assert_allclose(jacobian["x"], slopes["x"], rtol=1e-12)


def test_an_orbit_in_equal_steps() -> None:
    """Two bodies by leapfrog, against the same in NumPy, and partials against complex steps."""

    def leapfrog(x: Any, y: Any, u: Any, v: Any) -> Any:
        for _ in range(40):
            cube = (x * x + y * y) ** 1.5
            u, v = u - 0.005 * x / cube, v - 0.005 * y / cube
            x, y = x + 0.01 * u, y + 0.01 * v
            cube = (x * x + y * y) ** 1.5
            u, v = u - 0.005 * x / cube, v - 0.005 * y / cube
        return x

    random = np.random.default_rng(4)
    start = [random.uniform(low, high, 83) for low, high in ((0.8, 1.2), (-0.1, 0.1), (-0.1, 0.1), (0.8, 1.2))]
    value, jacobian = differentiable_broadcast(backend="cpu")(leapfrog).value_and_jacobian(*start)
    np.testing.assert_allclose(value, leapfrog(*start), rtol=1e-13)
    for position, name in enumerate("xyuv"):
        moved = [each.astype(complex) for each in start]
        moved[position] += 1e-100j
        np.testing.assert_allclose(jacobian[name], leapfrog(*moved).imag / 1e-100, rtol=1e-11, atol=1e-13)


@some
def test_sums_of_loops(function: Any) -> None:
    """The cotangent of an argument that spans nothing, or rows only, is a sum over what elements give."""
    x, y = points()[0], np.linspace(-3.1, 3, 5)[:, None]
    for arrays in ((x, 1.5), (x, y), (x[:, None, None], y)):
        pulled = []
        for backend in ("cpu", "python"):
            outputs, pullback = differentiable_broadcast(backend=backend)(function).vjp(*arrays)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            pulled.append(pullback(*[np.ones_like(each) if each.dtype == float else None for each in outputs]))
        for ours, theirs in zip(*pulled, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-11)


def test_a_library_function_of_vectors_and_then_of_a_number() -> None:
    """The number is the same for the group; its function offers versions that are declared already."""

    def f(x: float) -> float:
        turns = 0
        while turns < 2 and x < (abs(x) + 0.5) ** 1.5:
            turns += 1
            x = math.sin(0.75)
        return x

    x = np.linspace(-2, 2, 41)
    (value, jacobian), (wanted, slopes) = (
        differentiable_broadcast(f, backend=backend).value_and_jacobian(x) for backend in ("cpu", "python")
    )
    np.testing.assert_allclose(value, wanted, rtol=1e-15)
    np.testing.assert_array_equal(jacobian["x"], slopes["x"])


def test_what_differs_before_the_loop_and_not_in_it() -> None:
    """Who goes on depends on the element at first, and after a turn nobody does."""

    def f(x: float, y: float) -> float:
        i = 0
        while x > 0:
            i += 1
            if i > 2:
                break
            if x**0 < 2.0:
                return x * y
        return y

    x, y = np.linspace(-2, 2, 41), np.linspace(1, 3, 41)
    (value, jacobian), (wanted, slopes) = (
        differentiable_broadcast(f, backend=backend).value_and_jacobian(x, y) for backend in ("cpu", "python")
    )
    np.testing.assert_array_equal(value, wanted)
    np.testing.assert_array_equal(value, np.where(x > 0, x * y, y))
    for name in "xy":
        np.testing.assert_array_equal(jacobian[name], slopes[name])


def breaks_by_row(x: float, n: float) -> float:
    is_long, s = n > 3.0, 0.0
    for k in range(6):
        if x > 0.5:
            s -= 0.25
            if is_long:
                break
        s += x * (k + 1)
    return s


def breaks_a_while_by_row(x: float, n: float) -> float:
    is_long, s, k = n > 3.0, 0.0, 0
    while k < n:
        k += 1
        if x > 0.5:
            s -= 0.25
            if is_long:
                break
        s += x * k
    return s


@pytest.mark.parametrize("function", [breaks_by_row, breaks_a_while_by_row])
def test_a_uniform_condition_inside_a_varying_one_lets_elements_leave_one_by_one(function: Any) -> None:
    x, n = np.random.default_rng(0).random((4, 37)), np.float64([[2], [3], [4], [9]])
    value, jacobian = differentiable_broadcast(function, backend="cpu").value_and_jacobian(x, n)
    wanted = np.vectorize(function)(x, n)
    np.testing.assert_allclose(value, wanted, rtol=1e-15)
    step = 2.0**-20
    differences = np.vectorize(function)(x + step, n) - np.vectorize(function)(x - step, n)
    away = abs(x - 0.5) > 2 * step
    np.testing.assert_allclose(jacobian["x"][away], differences[away] / (2 * step), rtol=1e-8, atol=1e-9)
