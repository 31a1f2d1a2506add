"""Objects of classes that a user has registered with optree are containers, in every transformation."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dualbcast import graph
from dualbcast.errors import ArgumentError, DTypeError

optree = pytest.importorskip("optree")


class Layer:
    """Weights, perhaps a bias, and the name of an activation, which is no leaf."""

    def __init__(self, weights: Any, bias: Any, activation: str) -> None:
        self.weights, self.bias, self.activation = weights, bias, activation

    def __call__(self, x: Any) -> Any:
        y = x @ self.weights
        y = y if self.bias is None else y + self.bias
        return getattr(np, self.activation)(y)


optree.register_pytree_node(
    Layer,
    lambda layer: ((layer.weights, layer.bias), layer.activation, ("weights", "bias")),
    lambda activation, parts: Layer(*parts, activation),
    path_entry_type=optree.GetAttrEntry,
    namespace="dualbcast",
)


@optree.dataclasses.dataclass(namespace="dualbcast")
class Scaled:
    """A dataclass whose exponent is registered as a constant."""

    base: Any
    power: int = optree.dataclasses.field(pytree_node=False, default=2)


@dataclass
class Plain:
    inside: Any


def make(registered: bool = True, namespace: str = "dualbcast") -> Any:
    """A class of its own with one part."""

    class Box:
        def __init__(self, inside: Any) -> None:
            self.inside = inside

    if registered:
        where = optree.registry.__GLOBAL_NAMESPACE if namespace == "" else namespace
        optree.register_pytree_node(
            Box, lambda box: ((box.inside,), None), lambda _, parts: Box(*parts), namespace=where
        )
    return Box


X = np.array([[0.5, -1.0], [2.0, 0.25], [-0.75, 1.5]])


def layers() -> dict[str, Any]:
    return {
        "first": Layer(np.array([[0.1, 0.2, -0.3], [0.4, -0.5, 0.6]]), np.array([0.1, 0.0, -0.2]), "tanh"),
        "last": [Layer(np.array([[1.0], [-2.0], [0.5]]), None, "sin")],
    }


def loss(model: dict[str, Any], x: Any) -> Any:
    return np.mean(model["last"][0](model["first"](x)) ** 2)


def test_a_gradient_is_of_the_same_class_and_equals_differences() -> None:
    gradient = graph.grad(loss)(layers(), X)
    assert (type(gradient["first"]), gradient["first"].activation) == (Layer, "tanh")
    assert (type(gradient["last"][0]), gradient["last"][0].bias) == (Layer, None)
    step = 1e-5
    for found, part in (
        (gradient["first"].weights, lambda model: model["first"].weights),
        (gradient["first"].bias, lambda model: model["first"].bias),
        (gradient["last"][0].weights, lambda model: model["last"][0].weights),
    ):
        for at in np.ndindex(found.shape):
            sides = []
            for sign in (1, -1):
                moved = layers()
                part(moved)[at] += sign * step
                sides.append(float(loss(moved, X)))
            np.testing.assert_allclose(found[at], (sides[0] - sides[1]) / (2 * step), rtol=1e-7, atol=1e-9)
        assert np.all(found != 0)


def test_what_is_registered_as_constant_stays() -> None:
    gradient = graph.grad(lambda s: np.sum(s.base**s.power))(Scaled(np.array([2.0, 3.0]), 3))
    assert (type(gradient), gradient.power) == (Scaled, 3)
    np.testing.assert_allclose(gradient.base, [12.0, 27.0])


@pytest.mark.parametrize("namespace", ["", "dualbcast"])
def test_both_namespaces(namespace: str) -> None:
    box = make(namespace=namespace)
    found = graph.grad(lambda b: np.sum(b.inside**2))(box(np.array([1.0, 2.0])))
    assert type(found) is box
    np.testing.assert_array_equal(found.inside, [2.0, 4.0])


def test_another_namespace_does_not_count() -> None:
    with pytest.raises(DTypeError, match=r"which is a .*Box. .*register its class with optree\.register_pytree_node"):
        graph.grad(lambda b: np.sum(b.inside))(make(namespace="elsewhere")(np.ones(2)))


def test_a_class_may_be_registered_after_it_was_refused() -> None:
    box = make(registered=False)
    gradient = graph.grad(lambda b: np.sum(b.inside))
    with pytest.raises(DTypeError, match="register its class"):
        gradient(box(np.ones(2)))
    optree.register_pytree_node(box, lambda b: ((b.inside,), None), lambda _, parts: box(*parts), namespace="dualbcast")
    np.testing.assert_array_equal(gradient(box(np.ones(2))).inside, [1.0, 1.0])


def test_vjp_and_jvp_give_objects_of_the_class() -> None:
    def scaled(layer: Layer) -> Layer:
        return Layer(layer.weights * 3, np.sin(layer.bias), layer.activation)

    given = Layer(np.array([1.0, 2.0]), np.array(0.5), "tanh")
    value, pullback = graph.vjp(scaled, given)
    np.testing.assert_array_equal(value.weights, [3.0, 6.0])
    (pulled,) = pullback(Layer(np.array([1.0, 10.0]), np.array(1.0), "tanh"))
    np.testing.assert_allclose(pulled.weights, [3.0, 30.0])
    np.testing.assert_allclose(pulled.bias, np.cos(0.5))
    _, tangent = graph.jvp(scaled, (given,), (Layer(np.array([0.0, 1.0]), np.array(2.0), "tanh"),))
    np.testing.assert_allclose(tangent.weights, [0.0, 3.0])
    np.testing.assert_allclose(tangent.bias, 2 * np.cos(0.5))


def test_nested_transformations_and_checkpoints() -> None:
    def energy(box: Plain) -> Any:
        return np.sum(graph.checkpoint(lambda layer: np.exp(layer.weights) * layer.bias)(box.inside["a"]))

    point = Plain({"a": Layer(np.array([0.0, 1.0]), np.array([2.0, 3.0]), "tanh")})
    first = graph.grad(energy)(point).inside["a"]
    np.testing.assert_allclose(first.weights, np.exp([0.0, 1.0]) * [2.0, 3.0])
    second = graph.grad(lambda box: np.sum(graph.grad(energy)(box).inside["a"].weights))(point).inside["a"]
    np.testing.assert_allclose(second.weights, np.exp([0.0, 1.0]) * [2.0, 3.0])
    np.testing.assert_allclose(second.bias, np.exp([0.0, 1.0]))


def test_gradients_of_a_number_that_was_computed() -> None:
    layer = Layer(graph.Variable([1.0, 2.0]), graph.Variable(3.0), "tanh")
    gradient = graph.grad(np.sum(layer.weights) * layer.bias, layer)
    np.testing.assert_array_equal(gradient.weights, [3.0, 3.0])
    assert gradient.bias == 3.0
    with pytest.raises(ArgumentError, match=r"^\.bias is no Variable but of type float"):
        graph.grad(layer.bias * 2, Layer(layer.weights, 1.0, "tanh"))


def test_stopped_gradients_inside() -> None:
    gradient = graph.grad(lambda layer: np.sum(graph.stop_gradient(layer).weights * layer.weights))
    np.testing.assert_array_equal(gradient(Layer(np.array([2.0, 5.0]), None, "tanh")).weights, [2.0, 5.0])


def test_an_error_says_where_in_the_object() -> None:
    with pytest.raises(DTypeError, match=r"in argument 0\['last'\]\[0\]\.weights: its dtype is int64"):
        graph.grad(loss)(layers() | {"last": [Layer(np.array([1, 2]), None, "sin")]}, X)
    with pytest.raises(DTypeError, match=r"in argument 0\[<flat index 0>\]"):
        graph.grad(lambda b: b.inside)(make()("text"))


def test_a_result_with_a_foreign_object_inside_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"returns an object of type object in result\.bias"):
        graph.vjp(lambda x: Layer(x, object(), "tanh"), np.ones(2))


def test_containers_that_optree_opens_by_itself_are_as_without_it() -> None:
    from collections import deque

    with pytest.raises(DTypeError, match=r"collections\.deque"):
        graph.grad(lambda d: d[0])(deque([1.0]))


def test_without_it_nothing_imports_it() -> None:
    script = (
        "import sys, numpy as np\nfrom dualbcast import graph\n"
        "print(graph.grad(lambda p: np.sum(p['w'] ** 2))({'w': np.ones(2)}), 'optree' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "{'w': array([2., 2.])} False\n"
