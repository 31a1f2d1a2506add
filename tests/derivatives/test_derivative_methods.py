"""jvp, vjp, Hessians and products with them: broadcasting, dtypes, ways of calling, nesting, and every error.

Expected values are derivatives by hand in NumPy, or in mpmath; `test_products` has the whole corpus.
"""

from __future__ import annotations

import copy
import itertools
import math
import pickle
import re
import threading
from dataclasses import dataclass
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np
import pytest
from models import cell_update, cell_update_by_hand
from suites import sampled

import dualbcast
from dualbcast import differentiable_broadcast
from dualbcast.errors import ArgumentError, CompileError, DTypeError, ShapeError

Array = Any
draw = np.random.default_rng(11)


@differentiable_broadcast(backend="python")
def wave(x, y):
    return x * x * math.sin(y)


def wave_by_hand(x: Array, y: Array) -> tuple[Array, list[Array], list[list[Array]]]:
    """Value, gradient, and second derivatives."""
    x, y = np.broadcast_arrays(x, y)
    s, c = np.sin(y), np.cos(y)
    return x * x * s, [2 * x * s, x * x * c], [[2 * s, 2 * x * c], [2 * x * c, -x * x * s]]


def summed(array: Array, shape: tuple[int, ...]) -> Array:
    """The sum over what an argument of a shape does not span, by matching every element with its own."""
    total = np.zeros(math.prod(shape))
    at = np.broadcast_to(np.arange(math.prod(shape)).reshape(shape), np.shape(array))
    np.add.at(total, at.ravel(), np.asarray(array, float).ravel())
    return total.reshape(shape)


# --- broadcasting ----------------------------------------------------------------------------------------------------

SHAPES = [
    ((3, 4), (3, 4)),
    ((3, 4), (4,)),
    ((3, 4), (1, 4)),
    ((3, 1), (1, 4)),
    ((3, 1), (3, 4)),
    ((), (3, 4)),
    ((3, 1), ()),
    ((2, 3, 4), (3, 1)),
    ((2, 1, 4), (3, 1)),
    ((1, 1), (5,)),
    ((1,), (1, 1)),
    ((), ()),
    ((0, 4), (4,)),
    ((0, 4), (1, 1)),
    ((3, 0), ()),
    ((2, 1, 1, 3), (1, 4, 1, 1)),
]


def array_of(shape: tuple[int, ...], how: str = "C") -> Array:
    made = np.asarray(draw.uniform(0.5, 1.5, shape))
    if not shape or how == "C":
        return made
    if how == "T":
        return np.asarray(made, order="F")
    if how == "spread":
        return np.repeat(made, 2, axis=-1)[..., ::2]
    turned = tuple(slice(None, None, -1) for _ in shape)
    return np.ascontiguousarray(made[turned])[turned]


def check_products(function: Any, x: Array, y: Array) -> None:
    shape = np.broadcast_shapes(x.shape, y.shape)
    value, gradient, second = wave_by_hand(x, y)
    tangents = [array_of(x.shape, "T"), array_of(y.shape, "reversed")]
    found, tangent = function.jvp((x, y), tangents)
    assert np.shape(found) == np.shape(tangent) == shape
    np.testing.assert_allclose(found, value, rtol=1e-14)
    np.testing.assert_allclose(tangent, gradient[0] * tangents[0] + gradient[1] * tangents[1], rtol=1e-13)

    cotangent = array_of(shape, "T")
    found, pullback = function.vjp(x, y)
    np.testing.assert_allclose(found, value, rtol=1e-14)
    assert pullback.shape == shape
    assert pullback.wrt == ("x", "y")
    for got, partial, each in zip(pullback(cotangent), gradient, (x, y), strict=True):
        assert np.shape(got) == each.shape
        np.testing.assert_allclose(got, summed(partial * cotangent, each.shape), rtol=1e-13, atol=1e-13)
    found, gradients = function.value_and_vjp((x, y), cotangent)
    assert np.shape(found) == shape
    np.testing.assert_allclose(found, value, rtol=1e-14)
    for got, partial, each in zip(gradients, gradient, (x, y), strict=True):
        assert np.shape(got) == each.shape
        np.testing.assert_allclose(got, summed(partial * cotangent, each.shape), rtol=1e-13, atol=1e-13)

    hessian = function.hessian(x, y)
    for i, j in itertools.product(range(2), repeat=2):
        assert np.shape(hessian[i, j]) == shape
        np.testing.assert_allclose(hessian[i, j], second[i][j], rtol=1e-13)
    product = function.hvp((x, y), tangents)
    for i, name in enumerate("xy"):
        wanted = second[i][0] * tangents[0] + second[i][1] * tangents[1]
        np.testing.assert_allclose(product[name], np.broadcast_to(wanted, shape), rtol=1e-13)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_broadcasting(shapes: tuple[tuple[int, ...], ...]) -> None:
    check_products(wave, *map(array_of, shapes))


@pytest.mark.parametrize("how", ["T", "reversed", "spread"])
@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((3, 1), (4,)), ((2, 3, 4), (3, 1))], ids=str)
def test_any_strides(shapes: tuple[tuple[int, ...], ...], how: str) -> None:
    check_products(wave, array_of(shapes[0], how), array_of(shapes[1], how))
    check_products(wave, array_of(shapes[0], how), array_of(shapes[1]))


@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((), (3,))], ids=str)
def test_broadcasting_on_the_cpu(shapes: tuple[tuple[int, ...], ...]) -> None:
    check_products(differentiable_broadcast(wave.__wrapped__), *map(array_of, shapes))


def test_tangents_broadcast_to_their_arguments() -> None:
    x, y = array_of((2, 3)), array_of((3,))
    _, gradient, second = wave_by_hand(x, y)
    _, tangent = wave.jvp((x, y), (2.0, None))
    np.testing.assert_allclose(tangent, 2 * gradient[0], rtol=1e-14)
    column = np.array([[1.0], [-1.0]])
    _, tangent = wave.jvp((x, y), (column, np.float32(0.5)))
    np.testing.assert_allclose(tangent, column * gradient[0] + 0.5 * gradient[1], rtol=1e-14)
    product = wave.hvp((x, y), {"y": np.array([3])}, wrt="x")
    assert product.wrt == ("x",)
    np.testing.assert_allclose(product["x"], 3 * second[0][1], rtol=1e-14)


def test_empty_arrays_give_zeros_of_the_argument() -> None:
    x, y = np.ones((1, 4)), np.ones((0, 1))
    value, pullback = wave.vjp(x, y)
    assert value.shape == (0, 4)
    dx, dy = pullback(np.ones((0, 4)))
    assert dx.tolist() == [[0.0] * 4]
    assert dy.shape == (0, 1)
    assert wave.hessian(x, y)["x", "y"].shape == (0, 4)
    assert wave.hessian(x, y).stacked().shape == (0, 4, 2, 2)


# --- dtypes ----------------------------------------------------------------------------------------------------------

FLOATS = ["float16", "bfloat16", "float32", "float64"]
MIXED = [pair for pair in itertools.product(FLOATS, repeat=2) if set(pair) != {"float16", "bfloat16"}]


def named(name: str) -> Any:
    if name == "bfloat16":
        return np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    return np.dtype(name)


@pytest.mark.parametrize("dtypes", MIXED, ids="-".join)
def test_gradients_have_the_dtype_of_their_argument(dtypes: tuple[str, str]) -> None:
    kinds = [named(name) for name in dtypes]
    x, y = (array_of(shape).astype(kind) for shape, kind in zip([(3, 4), (4,)], kinds, strict=True))
    result = np.result_type(*kinds)
    eps = max(float(np.finfo(kind).eps) if kind.kind == "f" else 2.0**-7 for kind in kinds)
    _, gradient, second = wave_by_hand(x.astype(float), y.astype(float))
    value, pullback = wave.vjp(x, y)
    assert value.dtype == result
    cotangent = np.linspace(-1, 1, 12).reshape(3, 4)
    for got, partial, each in zip(pullback(cotangent), gradient, (x, y), strict=True):
        assert got.dtype == each.dtype
        assert got.shape == each.shape
        np.testing.assert_allclose(
            got.astype(float), summed(partial * cotangent, each.shape), rtol=8 * eps, atol=8 * eps
        )
    value, tangent = wave.jvp((x, y), (np.ones((3, 4)), 1))
    assert value.dtype == tangent.dtype == result
    np.testing.assert_allclose(tangent.astype(float), gradient[0] + gradient[1], rtol=4 * eps)
    block = wave.hessian(x, y)["x", "y"]
    assert block.dtype == result
    np.testing.assert_allclose(block.astype(float), second[0][1], rtol=4 * eps)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_python_numbers_get_scalars_of_the_result(dtype: str) -> None:
    x = np.ones(3, dtype)
    _, pullback = wave.vjp(x, 0.5)
    dx, dy = pullback(np.ones(3))
    assert dx.dtype == dy.dtype == dtype
    assert isinstance(dy, np.generic)
    np.testing.assert_allclose(float(dy), 3 * math.cos(0.5), rtol=4 * np.finfo(dtype).eps)
    value, tangent = wave.jvp((x, 0.5), (None, 1.0))
    assert value.dtype == tangent.dtype == dtype


def test_scalars_all_through() -> None:
    value, pullback = wave.vjp(3.0, 0.5)
    assert isinstance(value, np.float64)
    dx, dy = pullback(2.0)
    assert (type(dx), type(dy)) == (np.float64, np.float64)
    np.testing.assert_allclose([dx, dy], [12 * math.sin(0.5), 18 * math.cos(0.5)])
    value, tangent = wave.jvp((3.0, 0.5), (1.0, None))
    assert isinstance(tangent, np.float64)
    assert wave.hessian(3.0, 0.5).stacked().shape == (2, 2)


def test_uint64_is_a_float_and_so_is_its_gradient() -> None:
    x, y = np.array([1, 2], np.uint64), np.array([0.5, 1.0])
    _, pullback = wave.vjp(x, y)
    dx, _ = pullback(np.array([0.25, 0.25]))
    assert dx.dtype == np.float64
    np.testing.assert_allclose(dx, 0.25 * 2 * np.array([1, 2]) * np.sin(y))
    _, tangent = wave.jvp((x, y), (0.25, None))
    np.testing.assert_allclose(tangent, 0.25 * 2 * np.array([1, 2]) * np.sin(y))


def test_gradients_are_in_the_byte_order_of_the_machine() -> None:
    x, y = np.array([1.0, 2.0], ">f8"), np.array([0.5, 1.0], ">f4")
    _, pullback = wave.vjp(x, y)
    dx, dy = pullback(np.array([1.0, 1.0], ">f8"))
    assert (dx.dtype, dy.dtype) == (np.dtype(np.float64), np.dtype(np.float32))
    np.testing.assert_allclose(dx, 2 * np.array([1.0, 2.0]) * np.sin([0.5, 1.0]))
    np.testing.assert_allclose(dy, np.array([1.0, 4.0]) * np.cos([0.5, 1.0]), rtol=1e-6)
    _, tangent = wave.jvp((x, y), (np.array([1.0, 2.0], ">f8"), None))
    np.testing.assert_allclose(tangent, 2 * np.array([1.0, 4.0]) * np.sin([0.5, 1.0]))


# --- ways of calling -------------------------------------------------------------------------------------------------

WEIGHTS = np.array([1.0, 2.0, 3.0])


@differentiable_broadcast(backend="python")
def weighted(x, n, flag, *, scale=2.0):
    """x³·n·scale·WEIGHTS, or x."""
    return scale * x * x * x * n * WEIGHTS if flag else x


def test_integers_and_bools_beside_and_captured_arrays() -> None:
    x, n, flag = np.array([[1.0], [2.0]]), np.array([1, 2, 3]), np.array([True, True, False])
    value, pullback = weighted.vjp(x, n, flag, wrt=("x", "WEIGHTS"))
    np.testing.assert_allclose(value, np.where(flag, 2 * x**3 * n * WEIGHTS, x))
    dx, dw = pullback(np.ones((2, 3)))
    np.testing.assert_allclose(dx, np.where(flag, 6 * x**2 * n * WEIGHTS, 1).sum(1, keepdims=True))
    np.testing.assert_allclose(dw, np.where(flag, 2 * x**3 * n, 0).sum(0))
    _, tangent = weighted.jvp((x, n, flag), {"WEIGHTS": np.array([1.0, 0.0, 0.0]), "x": 1.0})
    wanted = np.where(flag, 6 * x**2 * n * WEIGHTS + 2 * x**3 * n * np.array([1.0, 0, 0]), 1)
    np.testing.assert_allclose(tangent, wanted)
    hessian = weighted.hessian(x, n, flag, wrt=("WEIGHTS", "x"))
    np.testing.assert_allclose(hessian["x", "WEIGHTS"], np.where(flag, 6 * x**2 * n, 0))
    np.testing.assert_allclose(hessian["WEIGHTS", "WEIGHTS"], np.zeros((2, 3)))
    np.testing.assert_allclose(hessian["x", "x"], np.where(flag, 12 * x * n * WEIGHTS, 0))


def test_default_numbers_are_arguments_where_they_are_differentiated_in() -> None:
    x = np.array([1.0, 2.0, 3.0])
    _, pullback = weighted.vjp(x, 1, True, wrt=("scale", "x"))
    ds, dx = pullback(np.ones(3))
    np.testing.assert_allclose(ds, (x**3 * WEIGHTS).sum())
    np.testing.assert_allclose(dx, 6 * x**2 * WEIGHTS)
    _, tangent = weighted.jvp((x, 1, True), {"scale": 1.0})
    np.testing.assert_allclose(tangent, x**3 * WEIGHTS)
    # Only the gradient's arguments name the default here.
    product = weighted.hvp((x, 1, True), {"x": 1.0}, wrt=("scale", "x"))
    np.testing.assert_allclose(product["scale"], 3 * x**2 * WEIGHTS)
    np.testing.assert_allclose(product["x"], 12 * x * WEIGHTS)
    np.testing.assert_allclose(weighted.partial("scale")(x, 1, True), x**3 * WEIGHTS)
    np.testing.assert_allclose(weighted.partial("x").partial("scale")(x, 1, True), 3 * x**2 * WEIGHTS)
    np.testing.assert_allclose(weighted.partial("scale").jacobian(x, 1, True, wrt="x")["x"], 3 * x**2 * WEIGHTS)


@differentiable_broadcast(backend="python", static="power")
def polynomial(x, /, *coefficients, power=1):
    total = 0.0
    for coefficient in coefficients:
        total = total * x + coefficient
    return total**power


def test_starred_keyword_and_static_arguments() -> None:
    x, a, b = np.array([2.0, 3.0]), np.array([1.0, 4.0]), 5.0
    _, pullback = polynomial.vjp(x, a, b, power=2)
    assert pullback.wrt == ("x", "coefficients_0", "coefficients_1")
    value = a * x + b
    dx, da, db = pullback(np.array([1.0, 1.0]))
    np.testing.assert_allclose(dx, 2 * value * a)
    np.testing.assert_allclose(da, 2 * value * x)
    np.testing.assert_allclose(db, (2 * value).sum())
    _, pullback = polynomial.vjp(x, a, b, power=2, wrt="coefficients")
    assert pullback.wrt == ("coefficients_0", "coefficients_1")
    _, tangent = polynomial.jvp((x, a, b), (None, 1.0, None), power=2)
    np.testing.assert_allclose(tangent, 2 * value * x)
    np.testing.assert_allclose(polynomial.hessian(x, a, b, power=2)["coefficients_1", 0], 2 * a)
    np.testing.assert_allclose(polynomial.partial("coefficients_0")(x, a, b, power=2), 2 * value * x)
    np.testing.assert_allclose(polynomial.partial(-2)(x, a, b, power=1), [1.0, 1.0])
    _, tangent = weighted.jvp((), {"x": 1.0}, x=np.ones(3), n=2, flag=True)
    np.testing.assert_allclose(tangent, 12 * WEIGHTS)


def test_parameters_named_as_those_of_the_products() -> None:
    @differentiable_broadcast(backend="python")
    def f(primals, *, tangents, self_):
        return primals * tangents * self_

    x = np.array([2.0, 3.0])
    assert f.jvp((x,), {"tangents": 1.0}, tangents=x, self_=1.0)[1].tolist() == [2.0, 3.0]
    assert f.jvp((), {"primals": 1.0}, primals=x, tangents=5.0, self_=1.0)[1].tolist() == [5.0, 5.0]
    assert f.hvp((x,), {"self_": 1.0}, wrt="primals", tangents=x, self_=1.0)["primals"].tolist() == [2.0, 3.0]


# --- several outputs -------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    product: float
    whole: int


@dataclass
class Report:
    pair: Pair
    rest: tuple[float, float, bool]


@differentiable_broadcast(backend="python")
def report(x, y):
    """A product, an integer, a constant, a structural zero in x, a bool."""
    return Report(Pair(x * y, int(x) + 1), (1.5, y * y, x > y))


def test_several_outputs() -> None:
    x, y = np.array([1.5, 2.5]), np.array([[2.0], [3.0]])
    value, tangent = report.jvp((x, y), (np.array([1.0, 2.0]), None))
    assert isinstance(value, Report)
    assert isinstance(tangent.pair, Pair)
    np.testing.assert_allclose(value.pair.product, x * y)
    assert value.pair.whole.dtype == np.int64
    assert value.rest[2].dtype == np.bool_
    np.testing.assert_allclose(value.rest[0], np.full((2, 2), 1.5))
    np.testing.assert_allclose(tangent.pair.product, np.array([1.0, 2.0]) * y)
    for zero in (tangent.pair.whole, *tangent.rest):
        assert zero.dtype == np.float64
        np.testing.assert_array_equal(zero, np.zeros((2, 2)))

    value, pullback = report.vjp(x, y)
    a, c, d = (draw.normal(size=(2, 2)) for _ in range(3))
    for given in ((a, None, c, d, None), (Report(Pair(a, None), (c, d, None)),), ((a, None, c, d, None),)):
        dx, dy = pullback(*given)
        np.testing.assert_allclose(dx, (a * y).sum(0))
        np.testing.assert_allclose(dy, (a * x + d * 2 * y).sum(1, keepdims=True))
    hessian = report.hessian(x, y)
    assert hessian.labels == ("pair.product", "pair.whole", "rest.0", "rest.1", "rest.2")
    blocks = hessian["x", "y"]
    assert isinstance(blocks, Report)
    for label, second in {"pair.product": 1.0, "pair.whole": 0.0, "rest.0": 0.0, "rest.1": 0.0, "rest.2": 0.0}.items():
        np.testing.assert_array_equal(hessian[label, "x", "y"], np.full((2, 2), second))
        assert hessian[label, "y", "x"] is hessian[label, "x", "y"]
    np.testing.assert_array_equal(hessian["rest.1", "y", "y"], np.full((2, 2), 2.0))
    partial = report.partial("y")(x, y)
    assert isinstance(partial, Report)
    np.testing.assert_allclose(partial.pair.product, np.broadcast_to(x, (2, 2)))
    np.testing.assert_allclose(partial.rest[1], np.broadcast_to(2 * y, (2, 2)))
    for zero in (partial.pair.whole, partial.rest[0], partial.rest[2]):
        np.testing.assert_array_equal(zero, np.zeros((2, 2)))


@differentiable_broadcast(backend="python")
def constants(x):
    return 7, 2**62 + 1, True, 2.5, int(x)


def test_constant_outputs_keep_their_dtype_and_their_digits() -> None:
    value, tangent = constants.jvp((np.array([1.5, 2.5]),), (np.array([1.0, 1.0]),))
    plain = constants(np.array([1.5, 2.5]))
    for found, wanted in zip(value, plain, strict=True):
        np.testing.assert_array_equal(found, wanted, strict=True)
    assert value[1].tolist() == [2**62 + 1] * 2
    assert [each.tolist() for each in tangent] == [[0.0, 0.0]] * 5
    _, pullback = constants.vjp(np.array([1.5, 2.5]))
    assert [each.tolist() for each in pullback(None, None, None, np.ones(2), None)] == [[0.0, 0.0]]
    assert constants.hessian(np.ones(2))[3, "x", "x"].tolist() == [0.0, 0.0]


def test_what_no_output_depends_on_has_zeros_of_its_shape() -> None:
    @differentiable_broadcast(backend="python")
    def first(x, unused):  # noqa: ARG001
        return 3 * x

    _, pullback = first.vjp(np.ones((2, 3)), np.ones((2, 1), np.float32))
    dx, du = pullback(np.ones((2, 3)))
    assert dx.tolist() == [[3.0] * 3] * 2
    assert du.tolist() == [[0.0]] * 2
    assert du.dtype == np.float32
    assert first.partial("unused")(np.ones(2), 1.0).tolist() == [0.0, 0.0]

    @differentiable_broadcast(backend="python")
    def branching(x, unused):
        return 2 * x if x > unused else x

    _, pullback = branching.vjp(np.array([1.0, 3.0]), np.full(2, 2.0))
    assert [each.tolist() for each in pullback(np.ones(2))] == [[1.0, 2.0], [0.0, 0.0]]
    assert branching.explain("float64", "float64", product="vjp").outputs == ("x_bar",)
    assert first.vjp(np.ones(2), 1.0, wrt=())[1](np.ones(2)) == ()


# --- the cell update of an HM-LSTM -----------------------------------------------------------------------------------

N = 5
PATTERNS = [(N, N), (N, 1), (1, N), (N,), ()]


def cell_inputs(c: tuple[int, ...], z: tuple[int, ...], zb: tuple[int, ...]) -> list[Array]:
    made = np.random.default_rng(len(c) + 10 * len(z))
    flags = [np.asarray(made.integers(0, 2, shape), np.float64) for shape in (z, zb)]
    return [np.asarray(made.normal(size=c)), *(made.normal(size=(N, N)) for _ in range(3)), *flags]


cells = {backend: differentiable_broadcast(backend=backend)(cell_update) for backend in ("python", "cpu")}
CELLS = [
    pytest.param(c, z, backend, marks=[pytest.mark.slow] * (backend == "cpu" and c != (N, N)), id=f"{c}-{z}-{backend}")
    for c, z, backend in itertools.product(PATTERNS, PATTERNS, cells)
]


@pytest.mark.parametrize(("c", "z", "backend"), CELLS)
def test_the_pullback_of_a_cell_update(c: tuple[int, ...], z: tuple[int, ...], backend: str) -> None:
    cell = cells[backend]
    for zb in (z, (N, 1)):
        arrays = cell_inputs(c, z, zb)
        cotangent = draw.normal(size=(N, N))
        value, partials = cell_update_by_hand(*arrays)
        found, pullback = cell.vjp(*arrays, wrt=("c", "f", "i", "g"))
        np.testing.assert_allclose(found, value, rtol=1e-13, atol=1e-15)
        for got, name, array in zip(pullback(cotangent), pullback.wrt, arrays, strict=False):
            terms = partials[name] * cotangent
            wanted, size = summed(terms, array.shape), summed(np.abs(terms), array.shape)
            assert got.shape == array.shape
            assert np.all(np.abs(got - wanted) <= 1e-14 * (1 + size)), name


@pytest.mark.parametrize("c", PATTERNS, ids=str)
@pytest.mark.parametrize("z", sampled(PATTERNS, 2), ids=str)
def test_the_pullback_of_a_cell_update_against_jax(c: tuple[int, ...], z: tuple[int, ...]) -> None:
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    numpy, sigmoid = jax.numpy, jax.nn.sigmoid

    def update(c: Array, f: Array, i: Array, g: Array, z: Array, zb: Array) -> Array:
        both = sigmoid(f) * c + sigmoid(i) * numpy.tanh(g)
        return numpy.where(z == 1, sigmoid(i) * numpy.tanh(g), numpy.where(zb == 0, c, both))

    arrays = cell_inputs(c, z, z)
    cotangent = draw.normal(size=(N, N))
    wanted, back = jax.vjp(lambda *gates: update(*gates, *arrays[4:]), *arrays[:4])
    found, pullback = cells["cpu"].vjp(*arrays, wrt=("c", "f", "i", "g"))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    for got, exact in zip(pullback(cotangent), back(cotangent), strict=True):
        exact = np.asarray(exact)
        assert np.linalg.norm(got - exact) <= 1e-12 * max(np.linalg.norm(exact), 1.0)


# --- third order, by nesting -----------------------------------------------------------------------------------------


def bell(x, y):
    return math.exp(x * y) * math.sin(x) + x**4 * y**3


def exact(orders: tuple[int, int], x: float, y: float) -> float:
    with mp.workdps(50):
        made = mp.diff(lambda a, b: mp.exp(a * b) * mp.sin(a) + a**4 * b**3, (mp.mpf(x), mp.mpf(y)), orders)
        return float(made)


@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_third_order_by_nesting(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(bell)
    xs, ys = np.array([0.5, -1.25, 2.0]), np.array([1.5, 0.25, -0.75])

    def third(orders: tuple[int, int]) -> Array:
        return np.array([exact(orders, x, y) for x, y in zip(xs, ys, strict=True)])

    hessian = f.partial("x").partial("y").hessian(xs, ys)
    for key, orders in {("x", "x"): (3, 1), ("x", "y"): (2, 2), ("y", "y"): (1, 3)}.items():
        np.testing.assert_allclose(hessian[key], third(orders), rtol=1e-12)
    tangents = np.array([1.0, 2.0, -1.0]), np.array([0.5, -1.0, 3.0])
    product = f.partial("x").hvp((xs, ys), tangents)
    np.testing.assert_allclose(product["x"], third((3, 0)) * tangents[0] + third((2, 1)) * tangents[1], rtol=1e-12)
    np.testing.assert_allclose(product["y"], third((2, 1)) * tangents[0] + third((1, 2)) * tangents[1], rtol=1e-12)
    _, pullback = f.partial("y").partial("y").vjp(xs, ys)
    dx, dy = pullback(tangents[0])
    np.testing.assert_allclose(dx, third((1, 2)) * tangents[0], rtol=1e-12)
    np.testing.assert_allclose(dy, third((0, 3)) * tangents[0], rtol=1e-12)
    thrice = f.partial("x").partial("x").partial("x")
    np.testing.assert_allclose(thrice(xs, ys), third((3, 0)), rtol=1e-12)
    _, tangent = thrice.jvp((xs, ys), (None, tangents[1]))
    np.testing.assert_allclose(tangent, third((3, 1)) * tangents[1], rtol=1e-12)


# --- names that look like generated ones -----------------------------------------------------------------------------


def test_names_that_look_like_those_of_derivatives() -> None:
    @differentiable_broadcast(backend="python")
    def f(x, x_dx, x_dot, out_bar, s_dx):
        s = x * x_dx
        s_dx_dx = s * x_dot
        s_dot, out_dx, out_dot, out_dx_dx = s * 2, s_dx * s, x_dot * x_dot, out_bar * x
        return s_dx_dx * out_bar + s_dot * out_dx, out_dot * out_dx_dx

    point = [1.5, -0.5, 2.0, 0.75, 1.25]
    args = [np.array([value]) for value in point]

    def plain(x: Any, x_dx: Any, x_dot: Any, out_bar: Any, s_dx: Any) -> tuple[Any, Any]:
        s = x * x_dx
        return s * x_dot * out_bar + 2 * s * s_dx * s, x_dot * x_dot * out_bar * x

    def slope(output: int, *orders: int) -> float:
        with mp.workdps(40):
            return float(mp.diff(lambda *values: plain(*values)[output], tuple(map(mp.mpf, point)), orders))

    unit = np.eye(5, dtype=int)
    _, tangent = f.jvp(args, [np.array([float(at + 1)]) for at in range(5)])
    _, pullback = f.vjp(*args)
    pulled = pullback(np.array([2.0]), np.array([-3.0]))
    hessian = f.hessian(*args)
    product = f.hvp(args, [np.array([float(at + 1)]) for at in range(5)])
    gradients = [[slope(output, *unit[i]) for i in range(5)] for output in (0, 1)]
    seconds = [[[slope(output, *(unit[i] + unit[j])) for j in range(5)] for i in range(5)] for output in (0, 1)]
    for output in (0, 1):
        np.testing.assert_allclose(tangent[output], [np.dot(gradients[output], range(1, 6))], rtol=1e-13)
        np.testing.assert_allclose(hessian.stacked(output)[0], seconds[output], rtol=1e-12, atol=1e-12)
        for i in range(5):
            wanted = np.dot(seconds[output][i], range(1, 6))
            np.testing.assert_allclose(product[output, i], [wanted], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.ravel(pulled), 2 * np.array(gradients[0]) - 3 * np.array(gradients[1]), rtol=1e-13)
    for i, j in itertools.product(range(5), repeat=2):
        twice = f.partial(i).partial(j)(*args)
        np.testing.assert_allclose(np.ravel(twice), [seconds[0][i][j], seconds[1][i][j]], rtol=1e-12, atol=1e-12)


def test_levels_of_products_are_kept_apart() -> None:
    """x · d/dy (x + y) = x, whose derivative in x is 1: the textbook case, with a product inside each level."""

    @differentiable_broadcast(backend="python")
    def f(x, y):
        return x * x * y * y

    x, y = np.array([3.0]), np.array([5.0])
    outer = f.partial("y").partial("x")
    assert outer(x, y).tolist() == [60.0]
    _, tangent = outer.jvp((x, y), (np.array([1.0]), np.array([1.0])))
    assert tangent.tolist() == [4 * 5.0 + 4 * 3.0]
    _, pullback = outer.vjp(x, y)
    assert [each.tolist() for each in pullback(np.array([10.0]))] == [[200.0], [120.0]]
    assert outer.hvp((x, y), (1.0, 0.0))["y"].tolist() == [4.0]


def test_captured_arrays_named_as_tangents() -> None:
    x_dot, out_bar = np.array([2.0, 3.0]), np.array([5.0, 7.0])

    @differentiable_broadcast(backend="python")
    def f(x):
        return x * x * x_dot + out_bar * x

    x = np.array([1.0, 10.0])
    assert f.jvp((x,), (np.array([1.0, 2.0]),))[1].tolist() == [9.0, 134.0]
    assert f.hvp((x,), (1.0,), wrt=("x", "x_dot"))["x_dot"].tolist() == [2.0, 20.0]
    assert f.hvp((x,), (1.0,))["x"].tolist() == [4.0, 6.0]
    assert [each.tolist() for each in f.vjp(x, wrt=("out_bar", "x_dot"))[1](np.ones(2))] == [[1.0, 10.0], [1.0, 100.0]]


def test_no_output_is_active() -> None:
    @differentiable_broadcast(backend="python")
    def f(x):
        return int(x), x > 1

    x = np.array([0.5, 2.5])
    value, tangent = f.jvp((x,), (np.ones(2),))
    assert [each.tolist() for each in value] == [[0, 2], [False, True]]
    assert [each.tolist() for each in tangent] == [[0.0, 0.0]] * 2
    assert [each.tolist() for each in f.vjp(x)[1](None, None)] == [[0.0, 0.0]]
    assert f.hvp((x,), (1.0,))[0, "x"].tolist() == [0.0, 0.0]
    assert f.hessian(x).stacked(1).tolist() == [[[0.0]], [[0.0]]]
    assert f.hessian(x, wrt=()).stacked().shape == (2, 0, 0)


# --- rules of users, and where differentiation ends ------------------------------------------------------------------


def cubed_slope(x):
    return 3.0 * x * x


def cubed(x):
    return x * x * x


@dualbcast.custom_partials(lambda x, y: (3.0 * x * x,))  # noqa: ARG005
def cubed_slope_of(x):
    return x * x * x


dualbcast.rule("cubed_in_tests", lambda x, y: (cubed_slope(x),), function=cubed)  # noqa: ARG005


@dualbcast.custom_partials(lambda x, k, y: (k * y, 0))  # noqa: ARG005
def straight(x, k):
    """Its value does not follow from its partials, which are k·y in x."""
    return math.floor(x) + 0 * k


@dualbcast.not_differentiable
def level(x):
    return int(4 * x)


def test_rules_and_custom_partials_at_second_order() -> None:
    x, k = np.array([1.5, -2.25]), 3.0
    for function in (cubed, cubed_slope_of):
        f = differentiable_broadcast(backend="python")(lambda x, g=function: g(x) * x)
        np.testing.assert_allclose(f.hessian(x)["x", "x"], 12 * x**2, rtol=1e-14)
        np.testing.assert_allclose(f.partial("x").partial("x").partial("x")(x), 24 * x, rtol=1e-14)
        np.testing.assert_allclose(f.vjp(x)[1](np.array([2.0, 2.0]))[0], 8 * x**3, rtol=1e-14)
    f = differentiable_broadcast(backend="python")(straight)
    value = np.floor(x)
    np.testing.assert_allclose(f.jvp((x, k), (1.0, None))[1], k * value)
    # The partial is k·y, and y has the partials it was given: (k·y)' = k·(k·y) in x, and y in k.
    hessian = f.hessian(x, k)
    np.testing.assert_allclose(hessian["x", "x"], k * k * value)
    np.testing.assert_allclose(hessian["x", "k"], value)
    np.testing.assert_allclose(f.partial("x").partial("k")(x, k), value)
    np.testing.assert_allclose(f.partial("k").partial("x")(x, k), [0.0, 0.0])


def test_what_is_not_differentiable() -> None:
    f = differentiable_broadcast(backend="python")(lambda x, y: y * y * level(x))
    x, y = np.array([0.3, 0.6]), 10.0
    assert f.hessian(x, y, wrt="y")["y", "y"].tolist() == [2.0, 4.0]
    assert f.vjp(x, y, wrt="y")[1](np.ones(2))[0] == 60.0
    assert f.jvp((x, y), (None, 1.0))[1].tolist() == [20.0, 40.0]
    assert f.partial("y")(x, y).tolist() == [20.0, 40.0]
    message = r"level\(\) is marked as not differentiable, and its derivative is needed here"
    for run in (
        lambda: f.hessian(x, y),
        lambda: f.vjp(x, y),
        lambda: f.jvp((x, y), (1.0, None)),
        lambda: f.hvp((x, y), (1.0, None)),
        lambda: f.hvp((x, y), (None, 1.0), wrt="x"),
        lambda: f.partial("x")(x, y),
        lambda: f.partial("y").partial("x")(x, y),
        lambda: f.partial("y").jacobian(x, y),
    ):
        with pytest.raises(CompileError, match=message) as caught:
            run()
        assert caught.value.location.filename == __file__


def test_stop_derivative() -> None:
    f = differentiable_broadcast(backend="python")(lambda x: x * x * dualbcast.stop_derivative(x))
    x = np.array([2.0, 3.0])
    assert f.jvp((x,), (1.0,))[1].tolist() == [8.0, 18.0]
    assert f.vjp(x)[1](np.ones(2))[0].tolist() == [8.0, 18.0]
    assert f.hessian(x)["x", "x"].tolist() == [4.0, 6.0]
    assert f.partial("x").partial("x").partial("x")(x).tolist() == [0.0, 0.0]


def test_rules_that_capture_what_changes() -> None:
    class Holder:
        k = 2.0

    holder = Holder()

    @dualbcast.custom_partials(lambda x, y: (holder.k * y,))  # noqa: ARG005
    def growing(x):
        return x

    f = differentiable_broadcast(backend="python")(lambda x: growing(x))
    x = np.array([1.0, 2.0])
    second = f.partial("x").partial("x")
    assert second(x).tolist() == [4.0, 8.0]
    _, pullback = f.vjp(x)
    holder.k = 3.0
    assert second(x).tolist() == [9.0, 18.0]
    assert f.hessian(x)["x", "x"].tolist() == [9.0, 18.0]
    assert pullback(np.ones(2))[0].tolist() == [2.0, 4.0]  # what was captured when the value was computed


# --- loops, and slopes that are infinite -----------------------------------------------------------------------------


def test_loops_whose_length_depends_on_data() -> None:
    @differentiable_broadcast
    def grown(x, limit):
        steps = 0
        while x < limit:
            x = x * x
            steps += 1
        return x, steps

    x, limit = np.array([1.5, 1.5, 1.5, 3.0]), np.array([2.0, 10.0, 100.0, 2.0])
    powers = np.array([2.0, 8.0, 16.0, 1.0])
    value, tangent = grown.jvp((x, limit), (1.0, 1.0))
    np.testing.assert_allclose(value[0], x**powers)
    assert value[1].tolist() == [1, 3, 4, 0]
    np.testing.assert_allclose(tangent[0], powers * x ** (powers - 1), rtol=1e-14)
    hessian = grown.hessian(x, limit)
    np.testing.assert_allclose(hessian[0, "x", "x"], powers * (powers - 1) * x ** (powers - 2), rtol=1e-14, atol=1e-14)
    assert hessian[0, "x", "limit"].tolist() == [0.0] * 4
    dx, dlimit = grown.vjp(x, limit)[1](np.ones(4), None)
    np.testing.assert_allclose(dx, powers * x ** (powers - 1), rtol=1e-14)
    assert dlimit.tolist() == [0.0] * 4
    third = grown.partial("x").partial("x").partial("x")(x, limit)[0]
    np.testing.assert_allclose(third, powers * (powers - 1) * (powers - 2) * x ** (powers - 3), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_an_infinite_slope_on_a_path_that_does_not_depend(backend: Any) -> None:
    """Where s is 0 it does not depend on x, so the infinite slope of log, sqrt or a power at s counts for nothing."""

    @differentiable_broadcast(backend=backend)
    def f(x, y):
        s = x * x if x > 0 else 0.0
        return math.sqrt(s) * y, s**1.5 + x * y, math.log(s) + x * x * y, y / s + x * x * x

    x, y = np.array([-1.0, 2.0]), np.array([3.0, 3.0])
    first = {  # ∂x, ∂y
        0: ([0.0, 3.0], [0.0, 2.0]),
        1: ([3.0, 3 * 4.0 + 3], [-1.0, 2.0]),
        2: ([-6.0, 1.0 + 12], [1.0, 4.0]),
        3: ([3.0, -2 * 3 / 8 + 12], [math.inf, 0.25]),
    }
    second = {  # ∂x∂x, ∂x∂y, ∂y∂y
        0: ([0.0, 0.0], [0.0, 1.0], [0.0, 0.0]),
        1: ([0.0, 12.0], [1.0, 1.0], [0.0, 0.0]),
        2: ([6.0, -0.5 + 6], [-2.0, 4.0], [0.0, 0.0]),
        3: ([-6.0, 6 * 3 / 16 + 12], [0.0, -0.25], [0.0, 0.0]),
    }
    value, jacobian, hessian = f.value_jacobian_and_hessian(x, y)
    twice = f.partial("x").partial("x")(x, y)
    _, tangent = f.jvp((x, y), (1.0, None))
    product = f.hvp((x, y), (1.0, None), wrt=("x", "y"))
    _, pullback = f.vjp(x, y, wrt="x")
    for output in range(4):
        np.testing.assert_allclose(jacobian[output, "x"], first[output][0], rtol=1e-13)
        np.testing.assert_allclose(jacobian[output, "y"], first[output][1], rtol=1e-13)
        np.testing.assert_allclose(tangent[output], first[output][0], rtol=1e-13)
        for key, wanted in zip(("xx", "xy", "yy"), second[output], strict=True):
            np.testing.assert_allclose(
                hessian[output, key[0], key[1]], wanted, rtol=1e-13, atol=1e-13, err_msg=f"{output} {key}"
            )
        np.testing.assert_allclose(twice[output], second[output][0], rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(product[output, "x"], second[output][0], rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(product[output, "y"], second[output][1], rtol=1e-13, atol=1e-13)
    cotangents = [np.full(2, weight) for weight in (1.0, 2.0, 4.0, 8.0)]
    wanted = sum(weight * np.array(first[output][0]) for output, weight in enumerate((1.0, 2.0, 4.0, 8.0)))
    np.testing.assert_allclose(pullback(*cotangents)[0], wanted, rtol=1e-13)
    assert np.isneginf(value[2][0])


@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_an_infinite_slope_behind_a_tangent_that_ends_on_one_path(backend: Any) -> None:
    """The slope of s is constant on one path: its own derivative is absent there, and never 0 · inf."""

    @differentiable_broadcast(backend=backend)
    def f(x, n):
        s = 0.0
        for i in range(n):
            s = s + x * x if i % 2 else s + x
        return s**1.5, (math.sqrt(s) if s > 0 else 0.0) + s * s

    x, n = np.array([0.0, 4.0, 4.0]), np.array([1, 1, 2])
    hessian = f.hessian(x, n)
    # s = x: 0.75/√x, and -x^-1.5/4 + 2; s = x + x²: by the chain rule.
    s, d, e = 20.0, 9.0, 2.0
    np.testing.assert_allclose(
        hessian[0, "x", "x"], [math.inf, 0.375, 0.75 * s**-0.5 * d * d + 1.5 * s**0.5 * e], rtol=1e-13
    )
    np.testing.assert_allclose(
        hessian[1, "x", "x"],
        [2.0, -(4.0**-1.5) / 4 + 2, -0.25 * s**-1.5 * d * d + 0.5 * s**-0.5 * e + 2 * (d * d + s * e)],
        rtol=1e-13,
    )
    np.testing.assert_allclose(f.partial("x").partial("x")(x, n)[0], hessian[0, "x", "x"], rtol=1e-13)
    product = f.hvp((x, n), {"x": 1.0})
    np.testing.assert_allclose(product[1, "x"], hessian[1, "x", "x"], rtol=1e-13)


@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_what_is_infinite_does_not_reach_what_a_path_does_not_depend_on(backend: Any) -> None:
    @differentiable_broadcast(backend=backend)
    def chosen(a, b, c, n):
        y, z = c * c, a * b
        if n == 0:
            y = a * a
        elif n == 1:
            y, z = b, 2.0
        else:
            for _ in range(n - 2):
                y = y * b
        return y, z

    n = np.array([0, 1, 2, 3])
    a, b, c = (np.full(4, value) for value in (2.0, 3.0, 5.0))
    for bad in (math.inf, math.nan):
        _, pullback = chosen.vjp(a, b, c, n)
        da, db, dc = pullback(np.full(4, bad), np.ones(4))
        np.testing.assert_array_equal(da, [bad, 0.0, 3.0, 3.0])
        np.testing.assert_array_equal(db, [2.0, bad, 2.0, bad])
        np.testing.assert_array_equal(dc, [0.0, 0.0, bad, bad])
        da, db, dc = pullback(np.ones(4), np.full(4, bad))
        np.testing.assert_array_equal(da, [bad, 0.0, bad, bad])
        np.testing.assert_array_equal(db, [bad, 1.0, bad, bad])
        np.testing.assert_array_equal(dc, [0.0, 0.0, 10.0, 30.0])
        tangents = np.array([bad, bad, 1.0, 1.0]), np.array([1.0, 1.0, bad, 1.0]), np.array([bad, bad, 1.0, bad])
        _, (dy, dz) = chosen.jvp((a, b, c, n), (*tangents, None))
        np.testing.assert_array_equal(dy, [bad, 1.0, 10.0, bad])
        np.testing.assert_array_equal(dz, [bad, 0.0, bad, 5.0])
        # The summed gradient of what few elements depend on is that of those.
        _, pullback = chosen.vjp(a, b, 5.0, n, wrt="c")
        assert pullback(np.array([bad, bad, 1.0, 1.0]), np.ones(4))[0] == 10.0 + 30.0


def test_powers_at_zero() -> None:
    f = differentiable_broadcast(backend="python")(lambda x, p: x**p)
    hessian = f.hessian(np.zeros(3), np.array([1.0, 2.0, 3.0]))
    # p(p - 1)·x^(p-2), x^(p-1)·(1 + p·log x), x^p·log²x, and their limits at 0.
    assert hessian["x", "x"].tolist() == [0.0, 2.0, 0.0]
    assert hessian["x", "p"].tolist()[1:] == [0.0, 0.0]
    assert hessian["p", "p"].tolist() == [0.0, 0.0, 0.0]


# --- pullbacks are kept and shared -----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_value_and_vjp_of_outputs_of_all_kinds(backend: str) -> None:
    @differentiable_broadcast(backend=backend)
    def several(x, y, count):
        if x > y:
            return x * y, True, (count + 1, x)
        return y * y, False, (count, 2.0)

    x, y = np.array([[1.0, 3.0, -1.0]]), np.array([[2.0], [-4.0]])
    count = np.arange(3)
    first, last = array_of((2, 3)), array_of((2, 3))
    found, gradients = several.value_and_vjp((x, y, count), (first, None, (None, last)), wrt=("y", "x"))
    product, is_above, (more, chosen) = found
    above = x > y
    np.testing.assert_array_equal(product, np.where(above, x * y, y * y))
    np.testing.assert_array_equal(is_above, above, strict=True)
    np.testing.assert_array_equal(more, count + above, strict=True)
    np.testing.assert_array_equal(chosen, np.where(above, x, 2.0))
    in_y, in_x = np.where(above, x, 2 * y) * first, np.where(above, y, 0.0) * first + np.where(above, 1.0, 0.0) * last
    np.testing.assert_allclose(gradients[0], in_y.sum(1, keepdims=True), rtol=1e-14)
    np.testing.assert_allclose(gradients[1], in_x.sum(0, keepdims=True), rtol=1e-14)


@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_value_and_vjp_keep_the_dtypes_of_the_arguments(dtype: str) -> None:
    x, y = np.array([1.5, 2.0], dtype), 0.25
    value, (in_x, in_y) = differentiable_broadcast(wave.__wrapped__).value_and_vjp((x, y), np.ones(2, dtype))
    assert (value.dtype, in_x.dtype, in_y.dtype) == (np.dtype(dtype),) * 3
    assert np.shape(in_y) == ()
    epsilon = 4 * float(np.finfo(dtype).eps)
    wide = x.astype(float)
    np.testing.assert_allclose(value, wide**2 * math.sin(y), rtol=epsilon)
    np.testing.assert_allclose(in_x, 2 * wide * math.sin(y), rtol=epsilon)
    np.testing.assert_allclose(in_y, np.sum(wide**2) * math.cos(y), rtol=epsilon)


def test_value_and_vjp_is_one_kernel_and_can_be_explained() -> None:
    f = differentiable_broadcast(wave.__wrapped__)
    text = f.inspect_source("float64", "float64", product="value_and_vjp")
    code = "\n".join(line.partition("#")[0] for line in text.splitlines())
    assert len(re.findall(r"\b(?:sin|cos)\(", code)) == 2
    assert f.explain(np.ones(8), np.ones(8), product="value_and_vjp").bytes_written == 3 * 64


def test_bad_cotangents_of_value_and_vjp() -> None:
    x = np.ones((2, 3))
    with pytest.raises(
        ShapeError, match=re.escape("the cotangent has shape (3,); it must have that of the output, (2, 3)")
    ):
        wave.value_and_vjp((x, 1.0), np.ones(3))
    with pytest.raises(ShapeError, match=re.escape("(4, 2, 3); it must have")):
        wave.value_and_vjp((x, 1.0), np.ones((4, 2, 3)))
    with pytest.raises(ArgumentError, match="the cotangent is None"):
        wave.value_and_vjp((x, 1.0), None)
    with pytest.raises(ArgumentError, match="the primals are a tuple"):
        wave.value_and_vjp(x, np.ones((2, 3)))
    with pytest.raises(ShapeError, match="broadcast"):
        wave.value_and_vjp((x, np.ones(2)), np.ones((2, 3)))


def test_a_pullback_may_be_called_again_and_by_several_threads() -> None:
    f = differentiable_broadcast(wave.__wrapped__)
    x, y = array_of((64, 64)), array_of((64,))
    _, gradient, _ = wave_by_hand(x, y)
    _, pullback = f.vjp(x, y)
    given = [draw.normal(size=(64, 64)) for _ in range(16)]
    found: list[Any] = [None] * len(given)
    start = threading.Barrier(4)

    def work(first: int) -> None:
        start.wait()
        for at in range(first, len(given), 4):
            found[at] = pullback(given[at])

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for cotangent, (dx, dy) in zip(given, found, strict=True):
        np.testing.assert_allclose(dx, gradient[0] * cotangent, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(dy, (gradient[1] * cotangent).sum(0), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("transport", [copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_a_hessian_can_be_copied_and_pickled(transport: Any) -> None:
    hessian = report.hessian(np.ones((3, 1)), np.ones(4))
    twin = transport(hessian)
    assert repr(twin) == repr(hessian)
    np.testing.assert_array_equal(twin["rest.1", "y", "y"], np.full((3, 4), 2.0))
    assert isinstance(twin["x", "y"], Report)


@pytest.mark.gpu
def test_products_on_a_gpu() -> None:
    import cupy

    f = differentiable_broadcast(wave.__wrapped__)
    x, y = array_of((3, 4)), array_of((4,))
    _, gradient, second = wave_by_hand(x, y)
    on_device = cupy.asarray(x), cupy.asarray(y)
    _, tangent = f.jvp(on_device, (2.0, np.float64(1.0)))
    np.testing.assert_allclose(cupy.asnumpy(tangent), 2 * gradient[0] + gradient[1], rtol=1e-13)
    _, pullback = f.vjp(*on_device)
    cotangent = draw.normal(size=(3, 4))
    for got, partial, each in zip(pullback(cupy.asarray(cotangent)), gradient, (x, y), strict=True):
        assert isinstance(got, cupy.ndarray)
        np.testing.assert_allclose(cupy.asnumpy(got), summed(partial * cotangent, each.shape), rtol=1e-12, atol=1e-13)
    hessian = f.hessian(*on_device)
    np.testing.assert_allclose(cupy.asnumpy(hessian["x", "y"]), second[0][1], rtol=1e-13)
    assert hessian.stacked().shape == (3, 4, 2, 2)
    product = f.hvp(on_device, {"x": cupy.ones(4)})
    np.testing.assert_allclose(cupy.asnumpy(product["x"]), np.broadcast_to(second[0][0], (3, 4)), rtol=1e-13)
    np.testing.assert_allclose(cupy.asnumpy(f.partial("x")(*on_device)), gradient[0], rtol=1e-13)
    with pytest.raises(ArgumentError, match="a call works on one kind"):
        pullback(cotangent)


def test_the_text_of_products() -> None:
    x = np.ones((2, 3))
    assert repr(wave.vjp(x, 1.0)[1]) == "<Pullback of wave to (x, y), shape (2, 3)>"
    assert repr(wave.hessian(x, 1.0)) == "<Hessian of 1 output in (x, y), shape (2, 3)>"
    assert repr(wave.hvp((x, 1.0), (1.0, None))) == "<Jacobian of 1 output in (x), shape (2, 3)>"


# --- errors ----------------------------------------------------------------------------------------------------------

X, Y = np.ones((2, 3)), np.ones(3)


def no_complex(name: str, what: str) -> str:
    it = "it" if " " in name else name
    return f"{name} {what}, which is not supported. Pass {it}.real and {it}.imag as two arguments."


def no_set(name: str) -> str:
    return f"{name} is a set, not an array or a number. Pass a NumPy array, a CuPy array, a float, an int or a bool."


TX, CT = "the tangent of x", "the cotangent"
PRIMALS = "the primals are a tuple with one for each argument: f.jvp((x, y), (x_tangent, y_tangent))"
TANGENTS = "the tangents are a tuple with one for each of the primals, or None where one is zero"
NOTHING = "no argument has a tangent; give at least one"
ONCE = "a tangent is for one argument, and an argument has one tangent; name each argument once"
INTEGER = "y is an int, which carries no derivative; pass float(y), or leave it out"
ONE = "partial takes the name or the position of one argument, not "
HESSIAN = "a Hessian is indexed by [argument, argument] or [output, argument, argument], not 'x'"
PRODUCT = (
    "product='gradient' is none of value, jacobian, value_and_jacobian, hessian, value_jacobian_and_hessian, "
    "jvp, vjp, value_and_vjp, hvp, sum, sum_and_gradient, sum_gradient_and_hessian, normal_equations"
)
WRONG: list[tuple[Any, type[Exception], str]] = [
    (lambda f: f.jvp(X, (X,)), ArgumentError, PRIMALS),
    (lambda f: f.hvp(X, (X,)), ArgumentError, PRIMALS),
    (lambda f: f.jvp((X, Y), (X,)), ArgumentError, TANGENTS),
    (lambda f: f.jvp((X, Y), X), ArgumentError, TANGENTS),
    (lambda f: f.hvp((X, Y), X), ArgumentError, TANGENTS),
    (lambda f: f.jvp((X, Y), (None, None)), ArgumentError, NOTHING),
    (lambda f: f.hvp((X, Y), (None, None)), ArgumentError, NOTHING),
    (lambda f: f.jvp((X, Y), {}), ArgumentError, NOTHING),
    (lambda f: f.jvp((X, Y), {"x": None}), ArgumentError, NOTHING),
    (lambda f: f.jvp((X, Y), {"x": X, 0: X}), ArgumentError, ONCE),
    (lambda f: f.jvp((X, Y), {"z": X}), ArgumentError, "wrt='z' is no argument of this call; they are x, y"),
    (lambda f: f.jvp((X,), (X,)), ArgumentError, "<lambda>(x, y) lacks a value for y"),
    (
        lambda f: f.jvp((X, Y), (Y[:2], None)),
        ShapeError,
        "the tangent of x has shape (2,), which does not broadcast to that of the argument, (2, 3)",
    ),
    (
        lambda f: f.hvp((X, Y), (None, X)),
        ShapeError,
        "the tangent of y has shape (2, 3), which does not broadcast to that of the argument, (3,)",
    ),
    (lambda f: f.jvp((X, Y), ({1.0}, None)), ArgumentError, no_set(TX)),
    (lambda f: f.jvp((X, Y), (1j, None)), DTypeError, no_complex(TX, "is a complex number")),
    (lambda f: f.jvp((X, Y), (X * 1j, None)), DTypeError, no_complex(TX, "has dtype complex128")),
    (lambda f: f.jvp((X, 2), (None, 1.0)), ArgumentError, INTEGER),
    (lambda f: f.vjp(X, 2, wrt="y"), ArgumentError, INTEGER),
    (lambda f: f.hessian(X, 2, wrt="y"), ArgumentError, INTEGER),
    (lambda f: f.hvp((X, 2), (1.0, None), wrt="y"), ArgumentError, INTEGER),
    (
        lambda f: f.hvp((X, Y), (1.0, None), wrt="z"),
        ArgumentError,
        "wrt='z' is no argument of this call; they are x, y",
    ),
    (lambda f: f.pullback(), ArgumentError, "1 cotangents are needed, one for each output; got 0"),
    (lambda f: f.pullback(X, X), ArgumentError, "1 cotangents are needed, one for each output; got 2"),
    (lambda f: f.pullback(None), ArgumentError, "the cotangent is None; give zeros where it is zero"),
    (
        lambda f: f.pullback(Y),
        ShapeError,
        "the cotangent has shape (3,); it must have that of the output, (2, 3)",
    ),
    (lambda f: f.pullback(1.0), ShapeError, "the cotangent has shape (); it must have that of the output, (2, 3)"),
    (lambda f: f.pullback(X * 1j), DTypeError, no_complex(CT, "has dtype complex128")),
    (lambda f: f.pullback({1.0}), ArgumentError, no_set(CT)),
    (lambda f: f.partial(True), ArgumentError, f"{ONE}True"),
    (lambda f: f.partial(("x", "y")), ArgumentError, f"{ONE}('x', 'y')"),
    (lambda f: f.partial(None), ArgumentError, f"{ONE}None"),
    (lambda f: f.partial("z")(X, Y), ArgumentError, "wrt='z' is no argument of this call; they are x, y"),
    (lambda f: f.partial(2)(X, Y), ArgumentError, "wrt=2 is no argument of this call; they are x, y"),
    (lambda f: f.kept["x"], ArgumentError, HESSIAN),
    (lambda f: f.kept["x", "z"], ArgumentError, "this Hessian is in (x, y), not in 'z'"),
    (lambda f: f.kept[1, "x", "y"], ArgumentError, "there is no output 1; the function has 1"),
    (lambda f: f.kept.stacked(1), ArgumentError, "there is no output 1; the function has 1"),
    (lambda f: f.explain(X, Y, product="gradient"), ArgumentError, PRODUCT),
]


@pytest.mark.parametrize(("run", "kind", "message"), WRONG)
def test_errors(run: Any, kind: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f: Any = differentiable_broadcast(backend="python")(lambda x, y: x * y)
    f.pullback = f.vjp(X, Y)[1]
    f.kept = f.hessian(X, Y)
    monkeypatch.setattr("dualbcast.program.element.Call.run", lambda call: pytest.fail(f"{call.spec.title} has run"))
    with pytest.raises(kind) as caught:
        run(f)
    assert str(caught.value) == message


def test_errors_with_several_outputs() -> None:
    _, pullback = report.vjp(X, X)
    with pytest.raises(ArgumentError, match=r"^5 cotangents are needed, one for each output; got 2$"):
        pullback(X, X)
    with pytest.raises(ArgumentError, match=r"^the cotangent of output 2 is None; give zeros where it is zero$"):
        pullback(X, None, None, X, None)
    with pytest.raises(
        ShapeError, match=r"^the cotangent of output 3 has shape \(3,\); it must have that of the output, \(2, 3\)$"
    ):
        pullback(X, None, X, Y, None)
    with pytest.raises(ArgumentError, match=r"^the cotangent must be a Report of 2"):
        pullback((X, X, X))
