"""Fusion: how many kernels run, that results do not depend on it, and derivatives in what a kernel has swallowed."""

from __future__ import annotations

import gc
import itertools
import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from differences import slopes

from dualbcast import custom_partials, differentiable_broadcast, graph
from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.graph.lazy import Limits
from dualbcast.program.element import Call
from dualbcast.program.explain import operations
from dualbcast.program.products import make_product
from dualbcast.runtime.cpu.kernel import CpuFastPath

SHAPE = (40, 50)
RANDOM = np.random.default_rng(5)
A, B, C, D = RANDOM.uniform(0.2, 1.5, (4, *SHAPE))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every launch, of whatever product: a count that does not rest on the graph's own."""
    found: list[Any] = []
    run = Call.run

    def counted(self: Call) -> Any:
        found.append(self)
        return run(self)

    monkeypatch.setattr(Call, "run", counted)
    # No call may go the short way, which earlier ones of its form have left.
    monkeypatch.setattr(CpuFastPath, "run", lambda *_: None)
    return found


def sigmoid(v: Any) -> Any:
    return 1 / (1 + np.exp(-v))


def cell(f: Any, c: Any, i: Any, g: Any) -> Any:
    return sigmoid(f) * c + sigmoid(i) * np.tanh(g)


# --- how many kernels -------------------------------------------------------------------------------------------------


def test_plain_operators_are_one_kernel_forward_and_one_backward(runs: list[Any]) -> None:
    variables = [graph.Variable(array) for array in (A, B, C, D)]
    y = cell(*variables)
    assert not runs
    explained = graph.explain(y)
    assert [row.phase for row in explained.kernels()] == ["forward", "backward"]
    assert not runs  # looking is not computing
    value = y.value
    assert len(runs) == 1
    y, pullback = graph.vjp(cell, A, B, C, D)
    assert len(runs) == 2
    found = pullback(np.ones(SHAPE))
    assert len(runs) == 3
    s, t, u = sigmoid(A), sigmoid(C), np.tanh(D)
    np.testing.assert_allclose(value, s * B + t * u, rtol=1e-14)
    wanted = [s * (1 - s) * B, s, t * (1 - t) * u, t * (1 - u * u)]
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13)


def test_a_loss_is_summed_by_the_kernel_that_computes_it(runs: list[Any]) -> None:
    x = graph.Variable(A)
    gradient = graph.grad(np.sum((x * x - 1) ** 2), x)
    assert len(runs) == 2
    np.testing.assert_allclose(gradient, 4 * A * (A * A - 1), rtol=1e-13)


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1), -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_sums_over_axes(axis: Any, keepdims: bool, runs: list[Any]) -> None:
    x = graph.Variable(A)
    y = np.sum(np.sin(x) * B, axis=axis, keepdims=keepdims)
    np.testing.assert_allclose(y.value, np.sum(np.sin(A) * B, axis=axis, keepdims=keepdims), rtol=1e-13)
    assert y.shape == np.sum(A, axis=axis, keepdims=keepdims).shape
    assert len(runs) == 1
    np.testing.assert_allclose(graph.grad(np.sum(y * y), x), 2 * np.cos(A) * B * np.broadcast_to(
        np.sum(np.sin(A) * B, axis=axis, keepdims=True), SHAPE
    ), rtol=1e-12)  # fmt: skip


def test_equal_cotangents_are_computed_once_and_what_is_handed_on_is_not() -> None:
    arrays, bar = (A, B, C, D[:1]), np.cos(A)
    with graph.launches() as kernels:
        value, pullback = graph.vjp(lambda a, b, c, d: (a - b - c + 2 * a) * 0.5 - d, *arrays)
        found = pullback(bar)
    assert [(kernel.reads, kernel.writes) for kernel in kernels[1:]] == [(7, 3)]  # with 2 and 0.5
    np.testing.assert_allclose(value, (3 * A - B - C) * 0.5 - D[:1], atol=1e-14)
    wanted = (1.5 * bar, -0.5 * bar, -0.5 * bar, -bar.sum(axis=0, keepdims=True))
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)
    assert not np.shares_memory(found[1], found[2])
    with graph.launches() as kernels:
        pullback = graph.vjp(lambda a, b: a + b, A, B)[1]
        found = pullback(bar)
    assert len(kernels) == 1
    for got in found:
        np.testing.assert_array_equal(got, bar)
    assert not np.shares_memory(*found) and not any(np.shares_memory(got, bar) for got in found)
    # Of another dtype, or broadcast, a cotangent is not handed on.
    (narrow, wide) = graph.vjp(lambda a, b: a + b, A.astype(np.float32), B)[1](bar)
    np.testing.assert_array_equal(narrow, bar.astype(np.float32))
    np.testing.assert_array_equal(wide, bar)
    np.testing.assert_array_equal(graph.grad(lambda a: np.sum(a + B))(A), np.ones(SHAPE))


def test_tangents_are_arrays_of_their_own() -> None:
    for f in (lambda a: a, lambda a: a + 1, lambda a: (a + 1, a - 1)):
        tangent = np.sin(A)
        _, found = graph.jvp(f, (A,), (tangent,))
        found = found if isinstance(found, tuple) else (found,)
        for got in found:
            np.testing.assert_array_equal(got, tangent)
        assert not any(np.shares_memory(a, b) for a, b in itertools.combinations((tangent, *found), 2))


def test_a_value_between_matrix_products_is_one_kernel(runs: list[Any]) -> None:
    def f(w: Any) -> Any:
        hidden = np.tanh(B @ w.T + 0.5) * 2 - 1
        return np.sum(hidden @ C)

    gradient = graph.grad(f)(A)
    pre = B @ A.T + 0.5
    wanted = (2 * (1 - np.tanh(pre) ** 2) * C.sum(axis=1)).T @ B
    np.testing.assert_allclose(gradient, wanted, rtol=1e-12)
    assert len(runs) == 2


def test_the_product_of_a_column_and_a_row_is_part_of_a_kernel(runs: list[Any]) -> None:
    weights, bar = np.linspace(-1, 1, 50), np.cos(A[:, 0])

    def f(x: Any) -> Any:
        return np.tanh(x) @ weights

    value, pullback = graph.vjp(f, A)
    (found,) = pullback(bar)
    np.testing.assert_allclose(value, np.tanh(A) @ weights, rtol=1e-12)
    np.testing.assert_allclose(found, bar[:, None] * weights * (1 - np.tanh(A) ** 2), rtol=1e-12)
    assert len(runs) == 2
    for left, right in (((3, 1), (1, 4)), ((2, 3, 1), (1, 4)), ((5, 1), (2, 1, 4)), ((1,), (1, 4)), ((3, 1), (1,))):
        a, b = np.random.default_rng(1).uniform(-1, 1, left), np.random.default_rng(2).uniform(-1, 1, right)
        np.testing.assert_allclose(graph.matmul(a, b).value, a @ b, rtol=1e-15)
        found = graph.grad(lambda a, b: np.sum(np.sin(a @ b)), wrt=(0, 1))(a, b)
        for got, want in zip(found, slopes(lambda a, b: np.sum(np.sin(a @ b)), (a, b)), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-10)
    with pytest.raises(ShapeError):
        graph.matmul(np.ones((2, 3, 1)), np.ones((4, 1, 5)))
    # Kernels do not read them; NumPy does.
    long = graph.matmul(np.arange(3, dtype=np.longdouble).reshape(3, 1), np.array([[2, 3]]))
    assert long.dtype == np.longdouble
    np.testing.assert_array_equal(long.value, [[0, 0], [2, 3], [4, 6]])


def test_without_fusion_each_operation_runs_where_it_is_written(runs: list[Any]) -> None:
    with graph.fusion(False):
        x = graph.Variable(A)
        y = np.sin(x) * x + 1
        assert len(runs) == 3
    together = np.sin(graph.Variable(A)) * graph.Variable(A) + 1
    np.testing.assert_allclose(y.value, together.value, rtol=1e-15)


def test_small_arrays_do_not_wait(runs: list[Any]) -> None:
    x = graph.Variable(np.ones(Limits.elements - 1))
    assert (x * 2).source is None or (x * 2)._value is not None
    runs.clear()
    y = graph.Variable(np.ones(Limits.elements)) * 2
    assert not runs
    assert y.value[0] == 2


def test_shared_subexpressions_are_computed_once() -> None:
    x = graph.Variable(A)
    s = np.exp(x)
    y = s * s + s
    with graph.launches() as kernels:
        y.value  # noqa: B018
    assert len(kernels) == 1
    element = y.node.static["region"].element
    assert operations(make_product(element.function, "value", ()).function)["exp"] == 1


def test_what_is_asked_for_later_is_an_output_the_next_time(runs: list[Any]) -> None:
    def step(factor: float) -> tuple[Any, Any]:
        x = graph.Variable(A * factor)
        inner = np.sqrt(x) * 3
        outer = np.cos(inner) - inner
        np.testing.assert_allclose(outer.value, np.cos(3 * np.sqrt(A * factor)) - 3 * np.sqrt(A * factor), rtol=1e-13)
        np.testing.assert_allclose(inner.value, 3 * np.sqrt(A * factor), rtol=1e-14)
        return x, inner

    step(1.0)
    assert len(runs) == 2
    runs.clear()
    x, inner = step(1.5)
    assert len(runs) == 1
    np.testing.assert_allclose(graph.grad(np.sum(inner), x), 1.5 / np.sqrt(A * 1.5), rtol=1e-13)


def test_limits_part_an_expression(runs: list[Any]) -> None:
    variables = [graph.Variable(A + k) for k in range(Limits.arrays + 10)]
    total = variables[0] * 1
    for each in variables[1:]:
        total = total + np.sin(each) * 0.5
    wanted = A + sum(np.sin(A + k) * 0.5 for k in range(1, Limits.arrays + 10))
    np.testing.assert_allclose(total.value, wanted, rtol=1e-13)
    assert 2 <= len(runs) <= 4
    for call in runs:
        assert len(call.plan.operands.arrays) <= Limits.arrays + Limits.arrays  # numbers count as arguments, too
    for each, gradient in zip(variables, graph.grad(np.sum(total), variables), strict=True):
        wanted = np.ones(SHAPE) if each is variables[0] else 0.5 * np.cos(each.value)
        np.testing.assert_allclose(gradient, wanted, rtol=1e-13)


def test_what_was_computed_in_the_meantime_counts_no_more(monkeypatch: pytest.MonkeyPatch, runs: list[Any]) -> None:
    x = graph.Variable(A)
    inner = np.sin(x)
    outer = inner * 2.0
    np.testing.assert_allclose(inner.value, np.sin(A), rtol=1e-13)
    # Room for two operations: of the three that `total` is made of one has been computed.
    monkeypatch.setattr(Limits, "statements", 2 * outer.source.expression.element.length)  # type: ignore[union-attr]
    total = outer + 1.0
    np.testing.assert_allclose(total.value, 2 * np.sin(A) + 1, rtol=1e-13)
    assert len(runs) == 2
    np.testing.assert_allclose(graph.grad(np.sum(total), x), 2 * np.cos(A), rtol=1e-13)


def test_a_very_long_chain_does_not_recurse() -> None:
    x = graph.Variable(A)
    y = x
    for _ in range(5000):
        y = y * 0.999
    np.testing.assert_allclose(y.value, A * 0.999**5000, rtol=1e-10)
    np.testing.assert_allclose(graph.grad(np.sum(y), x), np.full(SHAPE, 0.999**5000), rtol=1e-10)


# --- the same results -------------------------------------------------------------------------------------------------


@differentiable_broadcast
def branching(x, y):
    if x > 0.8:
        return x * y, math.sin(x)
    return y * y, x


@custom_partials(lambda x, y: (10.0,))  # noqa: ARG005
def stepped(x):
    return 1.0 if x > 0.5 else 0.0


straight_through = differentiable_broadcast(lambda x: stepped(x))


def two_layers(x: Any, w: Any) -> Any:
    a, b = branching(x, w * 2)
    return np.sum(
        (a + straight_through(b)) * np.where(a > b, a, b * b) + (np.maximum(a, b) - x.sum(axis=1, keepdims=True))
    )


def doubly_broadcast(x: Any, w: Any) -> Any:
    row, column = x[:1] * 2, w[:, :1] + 1
    return np.sum((np.exp(-row) * column + np.log(column)) ** 2 / (row + x))


def mixed(x: Any, w: Any) -> Any:
    single = graph.astype(x, np.float32) * np.float32(2) + 1
    return np.sum(graph.astype(single, np.float64) * w + np.floor(w * 3) * x + (w > 1) * x)


@pytest.mark.parametrize("function", [two_layers, doubly_broadcast, mixed])
def test_fused_or_not_the_results_are_the_same(function: Callable[..., Any]) -> None:
    found = []
    for on in (True, False):
        with graph.fusion(on):
            first = graph.value_and_grad(function, (0, 1))(A, B)
            second = graph.grad(lambda x: np.sum(graph.grad(function)(x, B) * C))(A)
            found.append((*first[1], first[0], second))
    for together, apart in zip(*found, strict=True):
        np.testing.assert_allclose(together, apart, rtol=2e-12, atol=1e-12)


def test_the_gradient_against_differences() -> None:
    def plain(x: Any, w: Any) -> Any:
        row, column = x[:1] * 2, w[:, :1] + 1
        return np.sum((np.exp(-row) * column + np.log(column)) ** 2 / (row + x))

    gradient = graph.grad(doubly_broadcast, (0, 1))(A, B)
    for k, direction in enumerate((C, D)):
        h = 1e-6
        moved = [(A + s * h * direction, B) if k == 0 else (A, B + s * h * direction) for s in (1, -1)]
        slope = (plain(*moved[0]) - plain(*moved[1])) / (2 * h)
        np.testing.assert_allclose(np.sum(gradient[k] * direction), slope, rtol=1e-7)


def test_dtypes_are_numpys() -> None:
    single, count = A.astype(np.float32), np.arange(50)
    for make in (
        lambda v, _: v * 2 + 1,
        lambda v, n: v * n,
        lambda v, _: v * np.float64(2) + v,
        lambda v, _: (v * 2) * A,
        lambda v, n: np.where(n > 3, v, v * 2),
        lambda v, _: (v * 2) > 1,
        lambda v, n: np.sqrt(v) ** 2 * (n % 2),
    ):
        found, wanted = make(graph.Variable(single), graph.Variable(count)), make(single, count)
        assert found.dtype == wanted.dtype
        assert found.value.dtype == wanted.dtype
        np.testing.assert_allclose(found.value, wanted, rtol=3e-7 if wanted.dtype == np.float32 else 1e-14)


def test_arithmetic_in_single_precision_stays_in_it_where_double_follows() -> None:
    x = graph.Variable(np.full(2000, 1e30, np.float32))
    with np.errstate(over="ignore"):
        y = (x * x) * np.full(2000, 1e-30)  # overflows in float32, as NumPy's own does
    assert np.all(np.isinf(y.value))


def test_a_constant_cuts_the_derivative_inside_an_expression() -> None:
    x = graph.Variable(A)
    np.testing.assert_allclose(graph.grad(np.sum(graph.stop_gradient(x * 3) * x), x), 3 * A, rtol=1e-14)
    with graph.no_grad():
        inner = x * 3
    np.testing.assert_allclose(graph.grad(np.sum(inner * x), x), 3 * A, rtol=1e-14)
    # Also where the way that counts goes through the same Variable.
    with graph.no_grad():
        inner = np.sin(x)
    np.testing.assert_allclose(graph.grad(np.sum(inner * np.sin(x)), x), np.sin(A) * np.cos(A), rtol=1e-13)


# --- derivatives in what a kernel has swallowed -----------------------------------------------------------------------


@pytest.mark.parametrize("read", ["never", "before", "after"])
def test_the_gradient_in_an_inner_value(read: str) -> None:
    x = graph.Variable(A)
    h = x * 3
    if read == "before":
        h.value  # noqa: B018
    k = np.sin(h)
    loss = np.sum(k * h)
    if read == "after":
        h.value  # noqa: B018
    of_h, of_x, of_k = graph.grad(loss, [h, x, k])
    inner = 3 * A
    np.testing.assert_allclose(of_h, np.sin(inner) + inner * np.cos(inner), rtol=1e-12)
    np.testing.assert_allclose(of_x, 3 * (np.sin(inner) + inner * np.cos(inner)), rtol=1e-12)
    np.testing.assert_allclose(of_k, inner, rtol=1e-13)
    # And again, of the same graph, in the argument alone.
    np.testing.assert_allclose(graph.grad(loss, x), of_x, rtol=1e-13)


def test_the_gradient_in_an_inner_value_that_is_an_output_too() -> None:
    for _ in range(3):  # the second time it is an output of the kernel
        x = graph.Variable(A)
        h = np.exp(x) * 0.5
        y = h * h + x
        y.value, h.value  # noqa: B018
        of_h, of_x = graph.grad(np.sum(y), [h, x])
        np.testing.assert_allclose(of_h, 2 * h.value, rtol=1e-13)
        np.testing.assert_allclose(of_x, 2 * h.value * h.value + 1, rtol=1e-13)


def test_the_gradient_in_one_of_several_outputs() -> None:
    x = graph.Variable(A)
    product, angle = branching(x, 2.0)
    loss = np.sum(product * angle)
    of_product, of_angle = graph.grad(loss, [product, angle])
    np.testing.assert_allclose(of_product, np.where(A > 0.8, np.sin(A), A), rtol=1e-14)
    np.testing.assert_allclose(of_angle, np.where(A > 0.8, 2 * A, 4.0), rtol=1e-14)


def test_a_gradient_in_an_inner_value_is_differentiated_again() -> None:
    x = graph.Variable(A)
    h = np.sin(x)
    slope = graph.grad(np.sum(h**3), h, record=True)
    np.testing.assert_allclose(graph.grad(np.sum(slope), x), 6 * np.sin(A) * np.cos(A), rtol=1e-12)


# --- policy -----------------------------------------------------------------------------------------------------------


def expensive(x: Any) -> Any:
    total = x
    for _ in range(8):
        total = total + np.tanh(np.exp(-total) * x)
    return total


@pytest.mark.parametrize("function", [expensive, cell])
def test_kept_or_computed_again_the_gradient_is_the_same(function: Callable[..., Any]) -> None:
    arrays = (A, B, C, D) if function is cell else (A,)
    found = {}
    for mode in ("cache", "recompute", "auto"):
        with graph.jacobian_policy(mode), graph.launches() as kernels:
            found[mode] = graph.grad(
                lambda *args: np.sum(function(*args) ** 2 @ np.eye(50)), tuple(range(len(arrays)))
            )(*arrays)
        assert ("value_and_jacobian" in [kernel.product for kernel in kernels]) >= (mode == "cache")
        assert ("value_and_jacobian" in [kernel.product for kernel in kernels]) <= (mode != "recompute")
    for mode in ("recompute", "auto"):
        for kept, again in zip(found["cache"], found[mode], strict=True):
            np.testing.assert_allclose(kept, again, rtol=1e-12)


def test_a_kept_jacobian_is_no_constant_to_a_second_derivative() -> None:
    with graph.jacobian_policy("cache"):
        second = graph.grad(lambda x: np.sum(graph.grad(lambda y: np.sum(np.sin(y) ** 2))(x)))(A)
    np.testing.assert_allclose(second, 2 * np.cos(2 * A), rtol=1e-12, atol=1e-13)


def test_a_function_may_say_that_its_jacobian_is_kept() -> None:
    for mode, product in (("cache", "value_and_jacobian"), ("recompute", "value")):
        f = differentiable_broadcast(lambda x: math.sin(x) * x, jacobian=mode)
        with graph.launches() as kernels:
            graph.grad(np.sum(f(graph.Variable(A)) @ B.T), graph.Variable(A))
        assert [kernel.product for kernel in kernels][:1] == [product]
    with pytest.raises(ArgumentError, match="is no policy; choose auto, cache or recompute"):
        differentiable_broadcast(lambda x: x, jacobian="never")
    with pytest.raises(ArgumentError, match="is no policy"), graph.jacobian_policy("never"):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize(
    ("function", "count", "keeps"),
    [
        (lambda x, y, z: x * y + z, 3, False),  # it only moves memory
        (lambda x, w, b: np.tanh(x * w + b), 3, False),
        (cell, 4, True),
        (lambda *xs: math.prod(np.tanh(x) for x in xs), 8, True),
    ],
)
def test_the_choice_follows_from_the_function_alone(function: Callable[..., Any], count: int, keeps: bool) -> None:
    arrays = [np.full((1024, 1024), 0.5, np.float32) for _ in range(count)]
    with graph.launches() as kernels:
        graph.vjp(function, *arrays)
    assert [kernel.product == "value_and_jacobian" for kernel in kernels] == [keeps]


def test_a_jacobian_larger_than_the_memory_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dualbcast.graph.checkpoint_policy.total_memory", lambda: 1 << 24)
    arrays = [np.full((1000, 1000), 0.5, np.float32) for _ in range(4)]
    y = cell(*map(graph.Variable, arrays))
    y.value  # noqa: B018
    assert "more than 25% of the memory" in " ".join(str(graph.explain(y)).split())


def test_without_memory_for_it_the_jacobian_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Call.run

    def exhausted(self: Call) -> Any:
        if any(len(place) == 2 for place in self.spec.product.blocks):
            raise MemoryError
        return run(self)

    monkeypatch.setattr(Call, "run", exhausted)
    x = graph.Variable(A)
    with graph.jacobian_policy("cache"):
        y = np.sin(x) * x
        y.value  # noqa: B018
        assert "no memory" in str(graph.explain(y))
        gradient = graph.grad(np.sum(y), x)
    np.testing.assert_allclose(gradient, np.cos(A) * A + np.sin(A), rtol=1e-13)


def test_explain_counts_bytes() -> None:
    n = A.size * 8
    x, w = graph.Variable(A), graph.Variable(B[:1])
    y = np.exp(x) * w
    for _ in range(2):  # before and after it has been computed
        forward, backward = graph.explain(y).rows
        assert (forward.bytes_read, forward.bytes_written) == (n + 50 * 8, n)
        # Inputs and the cotangent are read, the gradients written: no Jacobian moves.
        assert (backward.bytes_read, backward.bytes_written) == (n + 50 * 8 + n, n + 50 * 8)
        y.value  # noqa: B018
    with graph.jacobian_policy("cache"):
        y = np.exp(x) * w
        y.value  # noqa: B018
        forward, backward = graph.explain(y).rows
    assert forward.bytes_written == n + 2 * n
    assert backward.bytes_read == 2 * n + n
    assert "keeps its Jacobian" in forward.note
    with pytest.raises(ArgumentError, match="takes a Variable, not an ndarray"):
        graph.explain(A)  # type: ignore[arg-type]


# --- memory -----------------------------------------------------------------------------------------------------------


def test_nothing_that_waits_is_kept_when_it_is_dropped() -> None:
    gc.collect()
    gc.disable()
    try:
        x = graph.Variable(A.copy())
        array = weakref.ref(x)
        y = np.sin(x) * 2 + x
        del x
        assert array() is not None
        del y
        assert array() is None
        x = graph.Variable(A.copy())
        with graph.no_grad():
            y = np.sin(x) * 2
            y.value  # noqa: B018
        array = weakref.ref(x)
        del x
        assert array() is None
    finally:
        gc.enable()
