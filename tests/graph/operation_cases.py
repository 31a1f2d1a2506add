"""What is asserted of every operation: its value is NumPy's, its derivatives to second order are those of differences,
and where JAX has it, JAX's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from differences import along, slopes

from dualbcast import graph

Array = Any
Check = Callable[["Case"], None]


@dataclass
class Case:
    """An operation on Variables, the same in NumPy alone, and the shapes of the arguments (or arguments)."""

    name: str
    function: Callable[..., Any]
    reference: Callable[..., Any]
    shapes: tuple[Any, ...]
    positive: bool = False

    def arguments(self) -> list[Array]:
        random = np.random.default_rng(len(self.name))
        low = 0.3 if self.positive else -1.5
        return [
            random.uniform(low, 1.5, shape) if isinstance(shape, tuple) else np.array(shape, float)
            for shape in self.shapes
        ]


def complex_case(name: str, text: str, shapes: tuple[Any, ...], **constants: Any) -> Case:
    """The case of an expression in the complex arrays z = a + 1j b and w = x + 1j d, of these shapes, as a function of
    the four real ones to the parts of its value."""
    first, second = shapes
    code = f"lambda a, b, x, d: (z := a + 1j * b, w := x + 1j * d, u := {text}) and np.stack([u.real, u.imag])"
    function = eval(code, {"np": np, **constants})
    return Case(name, function, function, (first, first, second, second))


def weighted(function: Callable[..., Any], weights: Array) -> Callable[..., Any]:
    """A number that depends on all that a function gives, not linearly."""
    return lambda *args: np.sum(weights * (function(*args) + function(*args) ** 2))


def weights_for(array: Array) -> Array:
    return np.random.default_rng(5).uniform(0.5, 1.5, np.shape(array))


def check_value(case: Case) -> None:
    args = case.arguments()
    expected = case.reference(*args)
    found = case.function(*map(graph.Variable, args))
    assert isinstance(found, graph.Variable)
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found.value, expected, rtol=1e-13, atol=1e-14)


def check_gradient(case: Case) -> None:
    args = case.arguments()
    weights = weights_for(case.reference(*args))
    expected = slopes(weighted(case.reference, weights), args)
    found = graph.grad(weighted(case.function, weights), wrt=tuple(range(len(args))))(*args)
    for each, slope in zip(found, expected, strict=True):
        assert type(each) in (np.ndarray, np.float64)
        np.testing.assert_allclose(each, slope, rtol=1e-9, atol=1e-9)


def check_second_derivatives(case: Case) -> None:
    """The derivative of the gradient along random tangents: by reverse over reverse, and by its own jvp."""
    args = case.arguments()
    random = np.random.default_rng(7)
    tangents = [random.uniform(-1, 1, arg.shape) for arg in args]
    weights = weights_for(case.reference(*args))
    wrt = tuple(range(len(args)))
    gradient = graph.grad(weighted(case.function, weights), wrt=wrt)

    def inner_product(*inputs: Any) -> Any:
        return sum(np.sum(each * tangent) for each, tangent in zip(gradient(*inputs), tangents, strict=True))

    expected = along(lambda *inputs: list(gradient(*inputs)), args, tangents)
    for found in (graph.grad(inner_product, wrt=wrt)(*args), graph.jvp(gradient, args, tangents)[1]):
        for each, product in zip(found, expected, strict=True):
            np.testing.assert_allclose(each, product, rtol=1e-8, atol=1e-8)


def check_jvp(case: Case) -> None:
    args = case.arguments()
    random = np.random.default_rng(8)
    tangents = [random.uniform(-1, 1, arg.shape) for arg in args]
    value, tangent = graph.jvp(case.function, args, tangents)
    np.testing.assert_allclose(value, case.reference(*args), rtol=1e-13, atol=1e-14)
    assert np.shape(tangent) == np.shape(value)
    np.testing.assert_allclose(tangent, along(case.reference, args, tangents), rtol=1e-9, atol=1e-9)


CHECKS = (check_value, check_gradient, check_second_derivatives, check_jvp)
TO_SECOND_ORDER = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))


def to_second_order(cases: Sequence[Case], every: int) -> pytest.MarkDecorator:
    """Each case with each check; second derivatives, which take longest, in the default suite for one of `every`."""
    rows = [
        pytest.param(
            case,
            check,
            id=f"{check.__name__.removeprefix('check_')}-{case.name}",
            marks=[pytest.mark.slow] * (check is check_second_derivatives and at % every != 0),
        )
        for check in CHECKS
        for at, case in enumerate(cases)
    ]
    return pytest.mark.parametrize(("case", "check"), rows)


def check_float32(case: Case) -> None:
    args = [arg.astype(np.float32) for arg in case.arguments()]
    assert case.function(*map(graph.Variable, args)).dtype == np.float32
    found = graph.grad(lambda *inputs: np.sum(case.function(*inputs) ** 2), wrt=tuple(range(len(args))))(*args)
    assert [each.dtype for each in found] == [np.float32] * len(args)


def check_against_jax(case: Case, tolerance: float = 1e-9) -> None:
    """Value, gradient and second derivatives, where the case is written in functions that `jax.numpy` has, too."""
    import jax_derivatives

    args = case.arguments()
    random = np.random.default_rng(7)
    tangents = tuple(random.uniform(-1, 1, arg.shape) for arg in args)
    weights = weights_for(case.reference(*args))
    peer = jax_derivatives.in_jax(case.function)

    def number(*inputs: Any) -> Any:
        value = peer(*inputs)
        return (weights * (value + value**2)).sum()

    expected, slopes, seconds = jax_derivatives.to_second_order(number, args, tangents)
    ours = weighted(case.function, weights)
    found, gradient = graph.value_and_grad(ours, tuple(range(len(args))))(*args)
    products = graph.hvp(ours, args, tangents)
    for one, other in zip((found, *gradient, *products), (expected, *slopes, *seconds), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * (1 + np.abs(other).max(initial=0)))
