"""The same derivatives as PyTorch and JAX give, where they are installed; also where a choice has to be made."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from operation_cases import Case, weighted, weights_for
from suites import sampled
from test_arrays import SAME

from dualbcast import differentiable_broadcast, graph

INF = np.inf


def gradients(function: Any, args: list[Any]) -> tuple[list[Any], list[Any]]:
    """The gradient, and its derivative along the arguments themselves plus one."""
    wrt = tuple(range(len(args)))
    gradient = graph.grad(function, wrt=wrt)
    return list(gradient(*args)), list(graph.jvp(gradient, args, [arg + 1 for arg in args])[1])


def same(found: list[Any], expected: list[Any]) -> None:
    for each, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(each, np.asarray(other), rtol=1e-10, atol=1e-11)


# --- JAX --------------------------------------------------------------------------------------------------------------

# What JAX does not do; differences have tested it.
NOT_IN_JAX = {"split at positions that overlap"}
IN_JAX = [row for row in SAME if row[0] not in NOT_IN_JAX]


@pytest.mark.parametrize("row", sampled(IN_JAX, 3), ids=lambda row: row[0])
def test_as_in_jax(row: tuple[str, Any, tuple[Any, ...]]) -> None:
    pytest.importorskip("jax")
    import jax_derivatives

    name, function, shapes = row
    case = Case(name, function, function, shapes)
    args = case.arguments()
    weights = weights_for(function(*args))
    peer = jax_derivatives.in_jax(function)
    if "list" in name:  # JAX takes no lists for indices
        peer = lambda x: x[np.array([0, 0, 1])]  # noqa: E731

    def loss(*inputs: Any) -> Any:
        result = peer(*inputs)
        return (weights * (result + result**2)).sum()

    first, second = gradients(weighted(function, weights), args)
    _, gradient, seconds = jax_derivatives.to_second_order(loss, args, [arg + 1 for arg in args])
    same(first, gradient)
    same(second, seconds)


@pytest.mark.parametrize("name", ["max", "min"])
def test_ties_are_shared_as_in_jax(name: str) -> None:
    jax = pytest.importorskip("jax")
    x = np.array([[1.0, 3.0, 3.0, 1.0], [2.0, 2.0, 2.0, 2.0]])
    expected = jax.grad(lambda v: getattr(v, name)(axis=1).sum())(x)
    np.testing.assert_allclose(graph.grad(lambda v: np.sum(getattr(v, name)(axis=1)))(x), np.asarray(expected))


# --- PyTorch ----------------------------------------------------------------------------------------------------------

X = np.array([[0.5, -1.5, 2.0], [1.0, 0.25, -0.75]])
S = np.array([[0.5, -1.5], [1.0, 0.25]])
PLACES = np.array([[0, 2], [1, 1]])

PAIRS: dict[str, tuple[Any, Any, tuple[Any, ...]]] = {
    "matmul": (lambda a, b: a @ b, lambda _, a, b: a @ b, (X, X.T)),
    "matmul of batches": (lambda a, b: a @ b, lambda _, a, b: a @ b, (np.stack([S, 2 * S])[:, None], X)),
    "einsum": (
        lambda a, b: np.einsum("ij,ik->jk", a, b), lambda torch, a, b: torch.einsum("ij,ik->jk", a, b), (X, S),
    ),
    "prod with zeros": (
        lambda x: np.prod(x, axis=1), lambda torch, x: torch.prod(x, 1),
        (np.array([[2.0, 0.0, 3.0], [0.0, 0.0, 5.0]]),),
    ),
    "var": (lambda x: np.var(x, axis=0, ddof=1), lambda torch, x: torch.var(x, 0), (X,)),
    "cumsum": (lambda x: np.cumsum(x, axis=1), lambda torch, x: torch.cumsum(x, 1), (X,)),
    "logsumexp": (lambda x: graph.logsumexp(x, axis=1), lambda torch, x: torch.logsumexp(x, 1), (1000 * X,)),
    "logsumexp with -inf": (
        lambda x: graph.logsumexp(x, axis=1), lambda torch, x: torch.logsumexp(x, 1),
        (np.array([[-INF, 1.0, 2.0], [0.0, -INF, -INF]]),),
    ),
    "softmax": (lambda x: graph.softmax(x, axis=0), lambda torch, x: torch.softmax(x, 0), (X,)),
    "softmax with -inf": (
        lambda x: graph.softmax(x), lambda torch, x: torch.softmax(x, -1), (np.array([[-INF, 1.0, 2.0]]),),
    ),
    "log_softmax": (lambda x: graph.log_softmax(x), lambda torch, x: torch.log_softmax(x, -1), (100 * X,)),
    "max": (lambda x: np.max(x, axis=1), lambda torch, x: torch.amax(x, 1), (np.array([[1.0, 3, 3], [2, 2, 2]]),)),
    "gather": (
        lambda x: np.take_along_axis(x, PLACES, axis=1),
        lambda torch, x: torch.gather(x, 1, torch.as_tensor(PLACES)), (X,),
    ),
    "indices": (lambda x: x[PLACES[1], PLACES], lambda _, x: x[PLACES[1], PLACES], (np.arange(9.0).reshape(3, 3),)),
    "flip": (lambda x: np.flip(x, 1), lambda torch, x: torch.flip(x, (1,)), (X,)),
    "where": (lambda x: np.where(x > 0, x, 2 * x), lambda torch, x: torch.where(x > 0, x, 2 * x), (X,)),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda torch, x: torch.sigmoid(x), (X,)),
    "power": (lambda x, y: abs(x) ** y, lambda torch, x, y: torch.abs(x) ** y, (X, X + 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_as_in_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs, args = PAIRS[name]
    tensors = [torch.tensor(arg, dtype=torch.float64, requires_grad=True) for arg in args]
    result = theirs(torch, *tensors)
    weights = weights_for(result.detach().numpy())
    loss = (torch.as_tensor(weights) * (result + result**2)).sum()
    slopes = torch.autograd.grad(loss, tensors, create_graph=True)
    finite = [np.where(np.isfinite(arg), arg + 1, 0.0) for arg in args]
    product = sum((slope * torch.as_tensor(each)).sum() for slope, each in zip(slopes, finite, strict=True))
    products = torch.autograd.grad(product, tensors)
    gradient = graph.grad(weighted(ours, weights), wrt=tuple(range(len(args))))
    same(list(gradient(*args)), [slope.detach().numpy() for slope in slopes])
    same(list(graph.jvp(gradient, args, finite)[1]), [each.numpy() for each in products])


@differentiable_broadcast
def activation(x, slope):
    """A branch in each element: what a network's author writes."""
    if x > 0:
        return x / (1 + slope * x)
    return math.tanh(x)


@pytest.mark.parametrize("rows", [pytest.param(5, marks=pytest.mark.slow), 80], ids=["one by one", "fused"])
def test_the_gradient_of_the_gradient_of_a_network(rows: int) -> None:
    """Two layers with a BroadcastFunction between: how the squared length of the gradient changes with the weights."""
    random = np.random.default_rng(rows)
    x, y = random.normal(size=(rows, 6)), random.normal(size=(rows, 3))
    weights = [random.normal(size=(6, 20)), random.normal(size=(20, 3)), random.uniform(0.5, 1.5, 20)]

    def loss(library: Any, act: Any, w: Any, v: Any, slope: Any) -> Any:
        hidden = act(x @ w, slope)
        return library.mean((act(hidden @ v, 0.7) - y) ** 2)

    def length(library: Any, grad: Any, act: Any) -> Any:
        def squared(*arguments: Any) -> Any:
            gradients = grad(lambda *inner: loss(library, act, *inner), (0, 1, 2))(*arguments)
            return sum(library.sum(each * each) for each in gradients)

        return squared

    found = graph.grad(length(np, graph.grad, activation), (0, 1, 2))(*weights)
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    numpy = jax.numpy

    def act(h: Any, slope: Any) -> Any:
        return numpy.where(h > 0, h / (1 + slope * abs(h)), numpy.tanh(h))

    wanted = jax.grad(length(numpy, lambda f, wrt: jax.grad(f, wrt), act), (0, 1, 2))(*weights)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
