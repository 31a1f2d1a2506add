"""Loops inside each other: however deep, they stay vectors, are right, and are looked at a few times."""

from __future__ import annotations

import linecache
import math
from typing import Any

import numpy as np
import pytest
from suites import sampled

from dualbcast import differentiable_broadcast
from dualbcast.frontend.lower import lower
from dualbcast.ir.nodes import Function, Op, Var, While
from dualbcast.ir.simplification import simplify
from dualbcast.ir.traversal import operations_of, statements
from dualbcast.passes import arithmetic
from dualbcast.passes.masked_loops import mask_loops
from dualbcast.program import pipeline

FORMS = ("for", "while", "break")
LENGTHS = ((6,), (3, 4), (2, 3, 5), (2, 2, 3, 2), (2, 1, 3, 2, 2), (2, 2, 2, 2, 2, 2))
X, Y = (axis.ravel() for axis in np.meshgrid(np.linspace(-1.5, 2.0, 13), np.linspace(0.3, 1.7, 7)))

AFFINE = "s = s * 0.75 + x * y"
CURVED = "s = s * 0.9 + 0.1 * x * y / (1.0 + s * s)"


def nest(lengths: tuple[int, ...], form: str, line: str, after: str = "") -> Any:
    """A function with loops of these lengths inside each other around a line, and a line after each of the loops."""
    lines, depth = ["def f(x, y):", "    s = x", "    total = 0.0"], 1
    for at, length in enumerate(lengths):
        indent = "    " * depth
        head = {
            "for": [f"for i{at} in range({length}):"],
            "while": [f"i{at} = 0", f"while i{at} < {length}:", f"    i{at} = i{at} + 1"],
            "break": [f"i{at} = 0", "while True:", f"    if i{at} == {length}:", "        break", f"    i{at} += 1"],
        }[form]
        lines += [indent + each for each in head]
        depth += 1
    lines.append("    " * depth + line)
    for level in range(depth - 1, 0, -1) if after else ():
        lines.append("    " * level + after)
    text = "\n".join([*lines, "    return s + total"]) + "\n"
    name = f"<nest {lengths} {form} {line} {after}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"math": math}
    exec(compile(text, name, "exec"), scope)
    return scope["f"]


def source(function: Any, *arrays: Any, product: str = "value_and_jacobian") -> Any:
    call = differentiable_broadcast(function)._inspected(arrays, None, product)
    return call.spec.program(call.plan.geometry.layout).spec


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lengths", sampled(LENGTHS, 2), ids=str)
@pytest.mark.parametrize("line", [AFFINE, CURVED], ids=["affine", "curved"])
def test_they_stay_vectors(lengths: tuple[int, ...], form: str, line: str) -> None:
    """However deep, and also where numbers that are the same for all elements make long chains."""
    for after in ("", "total += 0.5 * s"):
        for product in ("value", "value_and_jacobian", "value_jacobian_and_hessian"):
            assert source(nest(lengths, form, line, after), X, Y, product=product).vectors
    with_helper = nest(lengths, form, "s = step(s, x * y)")
    with_helper.__globals__["step"] = nest((3,), form, line)
    assert source(with_helper, X, Y).vectors


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_they_are_right(lengths: tuple[int, ...], form: str, dtype: Any) -> None:
    """After n turns of s = q * s + x * y, s is q**n * x + (1 - q**n) / (1 - q) * x * y."""
    x, y = X.astype(dtype), Y.astype(dtype)
    turns = math.prod(lengths)
    decay, gain = 0.75**turns, (1 - 0.75**turns) / 0.25
    value, jacobian = differentiable_broadcast(nest(lengths, form, AFFINE), backend="cpu").value_and_jacobian(x, y)
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    allowed = 4 * turns * float(np.finfo(dtype).eps)
    for found, wanted in (
        (value, decay * wide_x + gain * wide_x * wide_y),
        (jacobian["x"], decay + gain * wide_y),
        (jacobian["y"], gain * wide_x),
    ):
        assert np.asarray(found).dtype == dtype
        np.testing.assert_allclose(found, wanted, rtol=allowed, atol=allowed)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_what_follows_each_loop_is_right(lengths: tuple[int, ...], form: str) -> None:
    """Against Python's own run of the function and central differences of that."""
    function = nest(lengths, form, CURVED, "total = total * 0.5 + s")
    value, jacobian = differentiable_broadcast(function, backend="cpu").value_and_jacobian(X, Y)
    wanted = np.array([function(x, y) for x, y in zip(X, Y, strict=True)])
    np.testing.assert_allclose(value, wanted, rtol=1e-13)
    step = 2.0**-17
    for name, dx, dy in (("x", step, 0.0), ("y", 0.0, step)):
        slopes = [(function(x + dx, y + dy) - function(x - dx, y - dy)) / (2 * step) for x, y in zip(X, Y, strict=True)]
        np.testing.assert_allclose(jacobian[name], slopes, rtol=1e-8, atol=1e-8)


# --- loops that all elements share ------------------------------------------------------------------------------------


def shared(
    function: Any, kinds: tuple[Any, ...] = ("float", "float"), steady: frozenset[str] = frozenset()
) -> Function:
    return mask_loops(simplify(lower(function, kinds).function), set(steady))


def masks(function: Function) -> list[Op]:
    """The selects that keep floats of elements that have left a loop."""
    return [op for op in operations_of(function) if op.name == "select" and op.kind == "float"]


@pytest.mark.parametrize("form", ["while", "break"])
def test_elements_that_leave_together_are_not_kept_from_changing(form: str) -> None:
    function = shared(nest((3, 4, 5), form, CURVED))
    loops = [stmt for stmt in statements(function.body) if isinstance(stmt, While)]
    assert len(loops) == 3
    assert all(loop.masked for loop in loops)
    if form == "while":
        assert not masks(function)


def test_elements_that_leave_alone_are() -> None:
    def apart(x: float, y: float) -> float:
        i = 0
        while i < 5:
            i += 1
            while abs(x) < 3.0 and y > 0.0:
                x = x * 1.5 + 0.125
            x = x * 0.5
        return x

    def by_data(x: float, n: int) -> float:
        i = 0
        while i < n:
            i += 1
            x = x * 0.5 + 1.0
        return x

    assert masks(shared(apart))
    assert masks(shared(by_data, ("float", "int")))
    assert not masks(shared(by_data, ("float", "int"), frozenset({"n"})))
    y = np.linspace(-1.0, 1.0, X.size)
    np.testing.assert_array_equal(
        differentiable_broadcast(apart, backend="cpu")(X, y), [apart(*each) for each in zip(X, y, strict=True)]
    )
    n = np.arange(X.size) % 7
    for counts in (n, np.int64(4)):
        wanted = [by_data(x, int(k)) for x, k in zip(X, np.broadcast_to(counts, X.shape), strict=True)]
        np.testing.assert_array_equal(differentiable_broadcast(by_data, backend="cpu")(X, counts), wanted)


@pytest.mark.parametrize("way", ["continue", "break", "return"])
def test_jumps_that_all_take_at_once(way: str) -> None:
    def continues(x: float, y: float) -> float:
        i, s = 0, x
        while i < 6:
            i += 1
            if i % 2 == 0:
                continue
            j = 0
            while j < i:
                j += 1
                s = s * 0.5 + y
        return s

    def breaks(x: float, y: float) -> float:
        i, s = 0, x
        while True:
            i += 1
            s = s * 0.5 + y * i
            if i == 4:
                break
            if s > 1.5:
                s = s - 1.0
        return s

    def returns(x: float, y: float) -> float:
        i, s = 0, x
        while i < 9:
            i += 1
            if i == 5:
                return s
            s = s * 0.5 + y if s > 0.2 else s + y * y
        return -s

    function = {"continue": continues, "break": breaks, "return": returns}[way]
    assert source(function, X, Y).vectors
    value, jacobian = differentiable_broadcast(function, backend="cpu").value_and_jacobian(X, Y)
    np.testing.assert_array_equal(value, [function(x, y) for x, y in zip(X, Y, strict=True)])
    step = 2.0**-20
    slopes = [(function(x + step, y) - function(x - step, y)) / (2 * step) for x, y in zip(X, Y, strict=True)]
    np.testing.assert_allclose(jacobian["x"], slopes, rtol=1e-7, atol=1e-8)


# --- what the compiler takes ------------------------------------------------------------------------------------------


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, run: Any) -> int:
    """How often a function of a module is called."""
    calls, known = 0, getattr(module, name)

    def counting(*args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        return known(*args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(module, name, counting)
        run()
    return calls


@pytest.mark.parametrize("form", FORMS)
def test_deep_loops_are_looked_at_a_few_times(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Each loop more takes as many steps as the one before, or a few more; not several times as many."""
    weighed = []
    for depth in (4, 8, 16):
        function = simplify(lower(nest((2,) * depth, form, CURVED), ("float", "float")).function)
        made = pipeline.run(pipeline.for_vectors(set()), function)
        weighed.append(
            counted(
                monkeypatch,
                arithmetic,
                "cost_of_operation",
                lambda made=made: arithmetic.vectors_to_interleave(made, 4, 4),
            )
        )
    assert weighed[2] <= 6 * weighed[1] <= 36 * weighed[0]


def test_what_a_loop_carries_is_what_is_alive() -> None:
    """Registers are counted where most variables are needed from turn to turn."""
    from dualbcast.ir.traversal import most_carried

    def inner(x: float, y: float) -> float:
        a, b = x, y
        for _ in range(3):
            for _ in range(4):
                t = a * b
                a, b = b + t, a - t  # two, and t is of one turn
        return a + b

    def around(x: float, y: float) -> float:
        a, total = x, 0.0
        for _ in range(3):
            for _ in range(4):
                a = a * y + 1.0
            total += a  # waits while the inner loop runs
        return total

    def chosen(x: float, y: float) -> float:
        a = x
        for k in range(5):
            if k > 2:
                u = a * y
                a = u + u * u
        return a

    for function, count in ((inner, 2), (around, 2), (chosen, 1)):
        assert most_carried(simplify(lower(function, ("float", "float")).function)) == count
    flat = simplify(lower(lambda x, y: x * y, ("float", "float")).function)
    assert most_carried(flat) == 0
    assert not any(isinstance(leaf, Var) for leaf in flat.body)
