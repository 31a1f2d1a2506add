"""Compiled functions: when they are replayed and when not, and what they give."""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from dualbcast import ArgumentError, derivative, differentiable_broadcast, graph

X = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])
W = np.array([[0.5, 1.0], [-1.0, 0.25], [2.0, -0.5]])
OFFSET = np.array([0.1, 0.2])
FACTOR = 2.0


def loss(x: Any, w: Any) -> Any:
    return np.sum(np.tanh(x @ w + OFFSET) * FACTOR)


def exact(x: Any, w: Any, offset: Any = OFFSET, factor: float = FACTOR) -> tuple[Any, Any]:
    """The loss and its gradient in x, by NumPy alone."""
    y = np.tanh(x @ w + offset)
    return np.sum(y * factor), ((1 - y * y) * factor) @ w.T


def is_replayed(compiled: Any, *args: Any) -> bool:
    """Whether the call with these arguments runs a program."""
    before = sum(form.runs for form in compiled._forms.values())
    compiled(*args)
    return bool(sum(form.runs for form in compiled._forms.values()) > before)


def warm(compiled: Any, *args: Any) -> Any:
    for _ in range(3):
        compiled(*args)
    return compiled


def test_value_and_gradient() -> None:
    compiled = graph.compile(graph.value_and_grad(loss))
    for scale in (1.0, 0.5, -1.0, 2.0, 0.0):
        value, gradient = compiled(X * scale, W)
        expected, slope = exact(X * scale, W)
        np.testing.assert_allclose(value, expected, rtol=1e-13)
        np.testing.assert_allclose(gradient, slope, rtol=1e-12, atol=1e-15)
    assert compiled.explain() == "1 form of arguments: replayed, 3 times"


@pytest.mark.parametrize("count", [10, 100_000])  # a large array is not copied, so its Variable has it
def test_one_array_in_two_places(count: int) -> None:
    draw = np.random.default_rng(0)
    a, b = draw.random(count), draw.random(count) + 1.0
    of_arguments = warm(graph.compile(lambda x, y: np.sum(np.tanh(x) * y * y)), a, a)
    of_captured = warm(graph.compile(lambda x: np.sum(np.tanh(x) * a[:10].sum() * 0.1)), a)
    for x, y in ((a, b), (b, b), (b, a), (a, a)):
        assert is_replayed(of_arguments, x, y)
        np.testing.assert_allclose(of_arguments(x, y), np.sum(np.tanh(x) * y * y), rtol=1e-12)
        np.testing.assert_allclose(of_captured(x), np.sum(np.tanh(x)) * a[:10].sum() * 0.1, rtol=1e-12)


def test_a_captured_array_that_is_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = warm(graph.compile(graph.value_and_grad(loss)), X, W)
    assert is_replayed(compiled, X, W)
    try:
        OFFSET[0] = 3.0
        np.testing.assert_allclose(compiled(X, W)[1], exact(X, W)[1], rtol=1e-12)
    finally:
        OFFSET[0] = 0.1
    monkeypatch.setattr(f"{__name__}.OFFSET", np.array([5.0, 6.0]))
    np.testing.assert_allclose(compiled(X, W)[1], exact(X, W, np.array([5.0, 6.0]))[1], rtol=1e-12)


def test_a_captured_number_that_is_rebound(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = warm(graph.compile(graph.grad(loss)), X, W)
    monkeypatch.setattr(f"{__name__}.FACTOR", -3.0)
    np.testing.assert_allclose(compiled(X, W), exact(X, W, factor=-3.0)[1], rtol=1e-12)


def test_shapes_dtypes_layouts_and_numbers_are_forms_of_their_own() -> None:
    compiled = graph.compile(graph.grad(lambda x, k: np.sum(np.sin(x) * k)))
    for _ in range(4):
        for x in (X, X[:1], X.T, X.astype(np.float32), np.repeat(X, 2, axis=0)[::2]):
            for k in (2.0, 3.0, 3, True, -0.0):
                found = compiled(x, k)
                assert found.dtype == x.dtype
                np.testing.assert_allclose(found, np.cos(x) * k, rtol=1e-6)


def test_an_argument_given_twice_is_two_arguments() -> None:
    large = np.linspace(0.0, 1.0, 3000)
    compiled = warm(graph.compile(graph.grad(lambda a, b: np.sum(a * b * b))), large, large)
    np.testing.assert_allclose(compiled(large, large + 1.0), (large + 1.0) ** 2, rtol=1e-13)


def test_results_that_do_not_depend_on_the_arguments() -> None:
    compiled = warm(graph.compile(graph.grad(lambda x, _: 2.0 * np.sum(x), (0, 1))), X, W)
    assert is_replayed(compiled, X, W)
    for _ in range(2):
        by_x, by_y = compiled(X, W)
        np.testing.assert_array_equal(by_x, np.full_like(X, 2.0))
        np.testing.assert_array_equal(by_y, np.zeros_like(W))
        by_x[...] = by_y[...] = 5.0  # they are the user's own


def test_least_squares_while_the_rank_stays() -> None:
    def step(a: Any, b: Any) -> Any:
        x, residuals, rank, _ = np.linalg.lstsq(a, b)
        return (np.sum(x**2), residuals) if rank == 2 else rank

    a, b = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]), np.array([1.0, 2.0, 4.0])
    compiled = warm(graph.compile(step), a, b)
    assert is_replayed(compiled, a, b)
    for scale in (2.0, 3.0):
        assert is_replayed(compiled, scale * a, b)
        for one, other in zip(compiled(scale * a, b), step(graph.Variable(scale * a), b), strict=True):
            np.testing.assert_allclose(one, other.value, rtol=1e-13)
    singular = np.ones((3, 2))
    for _ in range(4):
        assert compiled(singular, b) == 1
    assert not is_replayed(compiled, a, b)
    np.testing.assert_allclose(compiled(a, b)[1], np.linalg.lstsq(a, b)[1], rtol=1e-12)


class Pair(NamedTuple):
    first: Any
    second: Any


def test_containers_come_back() -> None:
    def step(p: Any, rate: Any) -> Any:
        gradient = graph.grad(lambda q: np.sum(q["w"].first ** 2) + q["b"] * 3.0)(p)
        return {
            "w": Pair(p["w"].first - rate * gradient["w"].first, None),
            "b": [p["b"] - rate * gradient["b"]],
        }, "done"

    compiled = graph.compile(step)
    for scale in range(5):
        p = {"w": Pair(X * scale, None), "b": np.float64(scale)}
        result, word = compiled(p, np.float64(0.5))
        assert word == "done"
        assert isinstance(result["w"], Pair)
        np.testing.assert_allclose(result["w"].first, np.zeros_like(X), atol=1e-15)
        assert result["b"] == [scale - 1.5]
    assert "replayed" in compiled.explain()


def test_floats_in_which_a_derivative_is_taken_are_arrays() -> None:
    compiled = graph.compile(graph.grad(lambda x: x * x * x))
    assert [compiled(float(at)) for at in range(5)] == [3.0 * at * at for at in range(5)]
    assert len(compiled._forms) == 1
    for transformed in (graph.hessian(lambda x: x**4), graph.jacobian(lambda x: 4 * x**3)):
        compiled = graph.compile(transformed)
        assert [compiled(float(at)) for at in range(5)] == [12.0 * at * at for at in range(5)]
        assert compiled.explain() == "1 form of arguments: replayed, 3 times"


def test_results_are_the_callers() -> None:
    compiled = warm(graph.compile(graph.value_and_grad(loss)), X, W)
    first = compiled(X, W)[1]
    kept = first.copy()
    second = compiled(X * 2, W)[1]
    second[...] = 7.0
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_allclose(compiled(X, W)[1], kept)


COUNTS: list[int] = []


def counting(x: Any) -> Any:
    COUNTS.append(1)
    return np.sum(x * len(COUNTS))


RANDOM = np.random.default_rng(0)
READS: dict[str, tuple[Callable[..., Any], str]] = {
    "condition": (lambda x: np.sum(x * 2.0) if np.sum(x) > 0 else np.sum(x), "a condition"),
    "item": (lambda x: np.sum(x * np.sum(x).item()), "a conversion"),
    "value": (lambda x: np.sum(x * x.value), ".value"),
    "array": (lambda x: np.sum(x * x.array), ".array"),
    "argmax": (lambda x: x[np.argmax(x, axis=0)].sum(), "np.argmax"),
    "mask": (lambda x: np.sum(x[x > 0]), "a mask"),
    "generator": (lambda x: np.sum(x * RANDOM.uniform()), "Generator"),
    "module": (lambda x: np.sum(x * np.random.uniform()), "numpy.random"),
    "print": (lambda x: (print(end=""), np.sum(x * x))[1], "print"),
    "side effect": (counting, "changes something"),
}


@pytest.mark.parametrize("name", READS)
def test_what_cannot_be_replayed(name: str) -> None:
    function, reason = READS[name]
    compiled = warm(graph.compile(graph.grad(function)), X)
    assert not is_replayed(compiled, -X)
    assert reason in compiled.explain()


@pytest.mark.parametrize(
    ("function", "first", "second"),
    [
        (lambda x, axis: np.flip(x, axis), 0, 1),
        (lambda x, axis: np.roll(x, 1, axis), 0, 1),
        (lambda x, axis: np.moveaxis(x, axis, 0), 0, 1),
        (lambda x, axis: np.expand_dims(x, axis), 0, 1),
        (lambda x, cut: np.linalg.pinv(x, cut), 1e-9, 0.9),
        (lambda x, cut: np.linalg.lstsq(x, np.ones(3), cut)[0], 1e-9, 0.9),
    ],
)
def test_options_that_are_arguments(function: Callable[..., Any], first: float, second: float) -> None:
    square = np.array([[3.0, 1.0, 0.0], [0.5, -1.0, 2.0], [1.5, 0.25, 0.1]])
    compiled = warm(graph.compile(function), square, np.array(first))
    np.testing.assert_allclose(compiled(square, np.array(second)), function(square, second), rtol=1e-12, atol=1e-14)


def test_a_large_captured_array_is_refused() -> None:
    large = np.ones((400, 400))
    compiled = warm(graph.compile(graph.grad(lambda x: np.sum(x * large[0, 0]))), X)
    assert "is an array of 1,280,000 bytes" in compiled.explain()


def test_a_condition_is_asked_each_time() -> None:
    compiled = warm(graph.compile(graph.grad(READS["condition"][0])), X)
    np.testing.assert_array_equal(compiled(X), np.full_like(X, 2.0))
    np.testing.assert_array_equal(compiled(-X), np.ones_like(X))


def test_captured_broadcast_functions() -> None:
    scope: dict[str, Any] = {"k": 2.0}
    box = types.SimpleNamespace(k=2.0)

    @differentiable_broadcast
    def scaled(x: Any) -> Any:
        return x * x * box.k

    compiled = warm(graph.compile(graph.grad(lambda x: np.sum(scaled(x)) * scope["k"])), X)
    assert is_replayed(compiled, X)
    for box.k, scope["k"] in ((3.0, 2.0), (3.0, 5.0)):
        np.testing.assert_allclose(compiled(X), 2 * X * box.k * scope["k"], rtol=1e-13)
    slope = derivative(lambda x: x * x * box.k)
    context = contextlib.nullcontext(np.array([1.0, 0.0]))

    def step(x: Any) -> Any:
        with context as factors:
            return sloped(x) * factors[0]

    sloped = differentiable_broadcast(lambda x: slope(x))
    compiled = warm(graph.compile(step), X)
    assert is_replayed(compiled, X)
    for box.k, context.enter_result[0] in ((2.0, 1.0), (2.0, 4.0)):
        np.testing.assert_allclose(compiled(X), 2 * X * box.k * context.enter_result[0], rtol=1e-13)


def test_inside_other_transformations_it_is_the_function_itself() -> None:
    compiled = warm(graph.compile(lambda x: np.sum(x * x * x)), X)
    assert is_replayed(compiled, X)
    np.testing.assert_allclose(graph.grad(compiled)(X), 3 * X * X, rtol=1e-13)
    np.testing.assert_allclose(graph.grad(lambda x: np.sum(graph.grad(compiled)(x)))(X), 6 * X, rtol=1e-13)
    v = graph.Variable(X)
    np.testing.assert_allclose(graph.grad(compiled(v), v), 3 * X * X, rtol=1e-13)


def test_captured_variables_keep_their_derivatives() -> None:
    v = graph.Variable(np.array([1.0, 2.0]))
    compiled = graph.compile(lambda x: np.sum(x * v))
    for scale in range(1, 5):
        x = np.array([3.0, 4.0]) * scale
        np.testing.assert_array_equal(graph.grad(compiled(x), v), x)


def test_kernels_are_listed() -> None:
    compiled = warm(graph.compile(graph.grad(loss)), X, W)
    with graph.launches() as kernels:
        compiled(X, W)
    assert kernels
    assert is_replayed(compiled, X, W)


def test_errors_are_those_of_the_function() -> None:
    compiled = warm(graph.compile(graph.grad(lambda x, at: np.sum(x[at] ** 2))), X, np.array([0, 1]))
    assert is_replayed(compiled, X, np.array([1, 1]))
    with pytest.raises(IndexError):
        compiled(X, np.array([0, 5]))
    np.testing.assert_array_equal(compiled(X, np.array([1, 1])), np.array([0 * X[0], 4 * X[1]]))
    with pytest.raises(ArgumentError, match="compile takes a function"):
        graph.compile(3)  # type: ignore[arg-type]


def test_threads() -> None:
    compiled = warm(graph.compile(graph.value_and_grad(loss)), X, W)
    wrong: list[Any] = []

    def work(scale: float) -> None:
        expected, slope = exact(X * scale, W)
        for _ in range(200):
            value, gradient = compiled(X * scale, W)
            if not (np.allclose(value, expected, rtol=1e-12) and np.allclose(gradient, slope, rtol=1e-12)):
                wrong.append(scale)

    threads = [threading.Thread(target=work, args=(scale,)) for scale in (0.5, 1.0, 1.5, 2.0)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_parts_of_an_array_go_back_into_one() -> None:
    """Cotangents of parts are added in place, also where the first of them is a constant."""

    def function(x: Any) -> Any:
        return np.sum(x[0]) + np.sum(np.sin(x[1]) * x[0]) + np.sum(x[:, 1] ** 3)

    compiled = graph.compile(graph.grad(function))
    for scale in (1.0, 2.0, 3.0, 0.5, 4.0):
        x = X * scale
        expected = np.stack([1 + np.sin(x[1]), np.cos(x[1]) * x[0]])
        expected[:, 1] += 3 * x[:, 1] ** 2
        np.testing.assert_allclose(compiled(x), expected, rtol=1e-13)
    assert "3 times" in compiled.explain()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1), (7, 2), (16, 8), (3, 50), (300, 5)])
def test_sums_over_broadcast_axes(shape: tuple[int, int], dtype: str) -> None:
    random = np.random.default_rng(1)
    row, column = random.uniform(-1, 1, shape[1]).astype(dtype), random.uniform(-1, 1, (shape[0], 1)).astype(dtype)
    plain = graph.grad(lambda b, c: np.sum(np.sin(b * c) * b), wrt=(0, 1))
    compiled = graph.compile(plain)
    for scale in range(1, 6):
        k = np.asarray(scale, dtype)
        for found, wanted in zip(compiled(row * k, column), plain(row * k, column), strict=True):
            np.testing.assert_array_equal(found, wanted)
    assert "3 times" in compiled.explain()


def test_methods_can_be_compiled() -> None:
    class Model:
        def __init__(self) -> None:
            self.scale = 2.0

        @graph.compile
        def slope(self, x: Any) -> Any:
            return graph.grad(lambda v: np.sum(v * v) * self.scale)(x)

    model = Model()
    for model.scale in (2.0, 2.0, 2.0, 3.0, 3.0, 3.0):
        np.testing.assert_allclose(model.slope(X), 2 * X * model.scale)


TIMES = np.linspace(0.0, 1.0, 5000)


def decay(p: Any) -> Any:
    return np.sum((p[0] * np.exp(-p[1] * TIMES) - 1.0) ** 2)


def powers(x: Any) -> Any:
    return np.sin(x) * np.sum(x**3)


@pytest.mark.parametrize(
    "transformed",
    [
        graph.jacobian(powers),
        graph.jacobian(lambda x: np.outer(x, np.cos(x))),  # few arguments: in forward mode
        graph.jacobian(graph.grad(lambda x: np.prod(powers(x)))),
        graph.hessian(lambda x: np.sum(powers(x)) ** 2),
        graph.hessian(lambda x: decay(x) * x[0]),  # one kernel for the sum
        lambda x: graph.jacobian(lambda y: graph.grad(decay)(y) * x)(x),
        lambda x: graph.hvp(decay, (x,), (x,)),
        lambda x: graph.jvp(powers, (x,), (x,)),
    ],
)
def test_transformations_are_replayed(transformed: Any) -> None:
    compiled = warm(graph.compile(transformed), np.array([0.5, 0.25]))
    for scale in (1.0, -2.0, 0.5):
        x = np.array([0.75, 1.5]) * scale
        assert is_replayed(compiled, x)
        for found, expected in zip(arrays_of(compiled(x)), arrays_of(transformed(x)), strict=True):
            np.testing.assert_array_equal(found, expected)


def arrays_of(result: Any) -> list[Any]:
    return [each for part in result for each in arrays_of(part)] if isinstance(result, tuple) else [result]
