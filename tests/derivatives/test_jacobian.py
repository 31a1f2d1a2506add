"""The Jacobian object: indexing, products and dense blocks, against sums and differences written out in NumPy."""

from __future__ import annotations

import copy
import math
import pickle
import re
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast
from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.testing import check_derivatives

rng = np.random.default_rng(7)
SHAPES = [
    ((3, 4), (3, 4)),
    ((3, 4), (4,)),
    ((3, 1), (1, 4)),
    ((), (3, 4)),
    ((3, 1), ()),
    ((2, 3, 4), (3, 1)),
    ((1, 1), (5,)),
    ((1,), (1, 1)),
    ((), ()),
    ((0, 4), (4,)),
]


@differentiable_broadcast
def product(x, y):
    return x * math.sin(y)


@differentiable_broadcast
def several(x, y, n):
    """Two float outputs, one structurally independent of y, and one output that is an integer."""
    return x * y, math.exp(x), int(x) + n


@differentiable_broadcast
def packed(x):
    return (2 * x * x,)


def pair(shapes: tuple[tuple[int, ...], ...]) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(rng.uniform(0.5, 1.5, shape)) for shape in shapes)


def differences(function: Any, arrays: tuple[np.ndarray, ...], position: int) -> np.ndarray:
    """∂ of the flattened result in every element of one argument, by central differences: (result, argument)."""
    columns = []
    for place in range(arrays[position].size):
        step = np.zeros(arrays[position].size)
        step[place] = 1e-6
        step = step.reshape(arrays[position].shape)
        up, down = ([a + sign * step if i == position else a for i, a in enumerate(arrays)] for sign in (1, -1))
        columns.append((np.asarray(function(*up)) - np.asarray(function(*down))).ravel() / 2e-6)
    result = np.asarray(function(*arrays))
    return np.stack(columns, axis=1) if columns else np.zeros((result.size, 0))


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_dense_pullback_and_pushforward_against_finite_differences(shapes: tuple[tuple[int, ...], ...]) -> None:
    arrays = pair(shapes)
    value, jacobian = product.value_and_jacobian(*arrays)
    shape = np.broadcast_shapes(*shapes)
    assert np.shape(value) == jacobian.shape == shape
    cotangent = rng.normal(size=shape)
    tangents = tuple(rng.normal(size=array.shape) for array in arrays)
    pulled, pushed = jacobian.pullback(cotangent), jacobian.pushforward(*tangents)
    total = np.zeros(shape)
    for position, name in enumerate("xy"):
        dense = jacobian.dense(0, name)
        assert dense.shape == (math.prod(shape), arrays[position].size)
        np.testing.assert_allclose(dense, differences(product, arrays, position), atol=1e-8)
        wanted = np.einsum("kj,k->j", dense, cotangent.ravel()).reshape(arrays[position].shape)
        assert pulled[position].shape == arrays[position].shape
        np.testing.assert_allclose(pulled[position], wanted, atol=1e-12)
        total = total + np.einsum("kj,j->k", dense, tangents[position].ravel()).reshape(shape)
    assert np.shape(pushed) == shape
    np.testing.assert_allclose(pushed, total, atol=1e-12)
    # The two are adjoint to each other.
    inner = sum(np.vdot(p, t) for p, t in zip(pulled, tangents, strict=True))
    np.testing.assert_allclose(np.vdot(cotangent, pushed), inner, atol=1e-10)


def test_indexing_one_output() -> None:
    x, y = pair(((3, 4), (4,)))
    _, jacobian = product.value_and_jacobian(x, y)
    for key in ("x", 0, -2, np.int64(0), (0, "x"), (0, 0), (-1, -2)):
        np.testing.assert_allclose(jacobian[key], np.broadcast_to(np.sin(y), (3, 4)))
    for key in ("y", 1, -1, (0, "y"), (0, 1)):
        np.testing.assert_allclose(jacobian[key], x * np.cos(y))
    assert jacobian["x"] is jacobian[0]
    assert list(jacobian) == ["x", "y"] == list(jacobian.wrt)
    assert len(jacobian) == 2
    assert jacobian.outputs == 1


def test_indexing_several_outputs() -> None:
    x, y = pair(((3, 1), (4,)))
    _, jacobian = several.value_and_jacobian(x, y, 2)
    assert jacobian.wrt == ("x", "y")
    assert jacobian.outputs == 3
    blocks = jacobian["x"]
    assert isinstance(blocks, tuple)
    assert len(blocks) == 3
    full = np.zeros((3, 4))
    wanted = {
        (0, "x"): full + y,
        (0, "y"): full + x,
        (1, "x"): full + np.exp(x),
        (1, "y"): full,
        (2, "x"): full,
        (2, "y"): full,
    }
    for (output, name), block in wanted.items():
        np.testing.assert_allclose(jacobian[output, name], block)
        np.testing.assert_allclose(jacobian[output - 3, name], block)
        np.testing.assert_allclose(jacobian[output, "xy".index(name)], block)
        assert jacobian[name][output] is jacobian[output, name]
        assert jacobian[output, name].dtype == np.float64


def test_products_over_several_outputs() -> None:
    x, y = pair(((3, 1), (4,)))
    _, jacobian = several.value_and_jacobian(x, y, 2)
    cotangents = tuple(rng.normal(size=(3, 4)) for _ in range(3))
    dx, dy = jacobian.pullback(*cotangents)
    np.testing.assert_allclose(dx, (cotangents[0] * y + cotangents[1] * np.exp(x)).sum(1, keepdims=True))
    np.testing.assert_allclose(dy, (cotangents[0] * x).sum(0))
    tx, ty = rng.normal(size=(3, 1)), rng.normal(size=4)
    first, second, third = jacobian.pushforward(tx, ty)
    np.testing.assert_allclose(first, y * tx + x * ty)
    np.testing.assert_allclose(second, np.broadcast_to(np.exp(x) * tx, (3, 4)))
    np.testing.assert_allclose(third, np.zeros((3, 4)))
    np.testing.assert_allclose(jacobian.dense(1, "y"), np.zeros((12, 4)))


def test_a_tuple_of_one_stays_a_tuple() -> None:
    (value,), jacobian = packed.value_and_jacobian(np.array([1.0, 2.0]))
    assert value.tolist() == [2.0, 8.0]
    (block,) = jacobian["x"]
    assert block.tolist() == jacobian[0, "x"].tolist() == [4.0, 8.0]
    (pushed,) = jacobian.pushforward(np.array([1.0, 10.0]))
    assert pushed.tolist() == [4.0, 80.0]


def test_the_text_of_a_jacobian() -> None:
    x = np.ones((2, 3))
    assert repr(product.jacobian(x, x)) == "<Jacobian of 1 output in (x, y), shape (2, 3)>"
    assert repr(several.jacobian(x, x, 1, wrt="y")) == "<Jacobian of 3 outputs in (y), shape (2, 3)>"
    assert repr(product.jacobian(1.0, 2.0)) == "<Jacobian of 1 output in (x, y), shape ()>"
    assert repr(product.jacobian(x, x, wrt=())) == "<Jacobian of 1 output in (), shape (2, 3)>"


def test_a_jacobian_in_nothing() -> None:
    jacobian = product.jacobian(np.ones(3), np.ones(3), wrt=())
    assert jacobian.wrt == ()
    assert len(jacobian) == 0
    assert jacobian.shape == (3,)
    assert jacobian.pullback(np.ones(3)) == ()
    np.testing.assert_array_equal(jacobian.pushforward(), np.zeros(3))


def test_only_integers_are_nothing_to_differentiate_in() -> None:
    value, jacobian = product.value_and_jacobian(np.arange(3), np.arange(3))
    assert jacobian.wrt == ()
    np.testing.assert_allclose(value, np.arange(3) * np.sin(np.arange(3)))


BAD_KEYS: list[tuple[Any, str]] = [
    ("z", r"\(x, y\), not in 'z'"),
    (2, "not in 2"),
    (-3, "not in -3"),
    (None, "not in None"),
    (1.0, "not in 1.0"),
    (True, "not in True"),
    (["x"], r"not in \['x'\]"),
    (np.array([0, 1]), "not in array"),
    (slice(None), "not in slice"),
    ((1, "x"), "no output 1; the function has 1"),
    ((-2, "x"), "no output -2"),
    (("x", 0), "no output 'x'"),
    ((0, "z"), "not in 'z'"),
    ((0, 0, 0), r"\[output, argument\]"),
    ((), r"\[output, argument\]"),
]


@pytest.mark.parametrize(("key", "words"), BAD_KEYS, ids=str)
def test_a_bad_index_says_what_there_is(key: Any, words: str) -> None:
    jacobian = product.jacobian(np.ones(3), np.ones(3))
    with pytest.raises(ArgumentError, match=words):
        jacobian[key]


def test_bad_products() -> None:
    jacobian = product.jacobian(np.ones((3, 4)), np.ones(4))
    ones = np.ones((3, 4))
    with pytest.raises(ArgumentError, match="2 tangents are needed, for x, y; got 1"):
        jacobian.pushforward(ones)
    with pytest.raises(ArgumentError, match=r"1 cotangent.* got 2"):
        jacobian.pullback(ones, ones)
    with pytest.raises(ShapeError, match=r"\(3, 4\), not \(4,\)"):
        jacobian.pullback(np.ones(4))
    with pytest.raises(ShapeError):
        jacobian.pushforward(np.ones(5), ones)
    with pytest.raises(ShapeError):
        jacobian.pushforward(np.ones((2, 3, 4)), ones)
    with pytest.raises(ArgumentError, match="not in 'z'"):
        jacobian.dense(0, "z")
    with pytest.raises(ArgumentError, match="no output 3"):
        jacobian.dense(3, "x")


def test_scalars_pull_back_to_scalars() -> None:
    value, jacobian = product.value_and_jacobian(2.0, 0.5)
    dx, dy = jacobian.pullback(1.0)
    np.testing.assert_allclose([value, dx, dy], [2 * math.sin(0.5), math.sin(0.5), 2 * math.cos(0.5)])
    assert jacobian.dense(0, "x").shape == (1, 1)


def test_float32_products_stay_float32() -> None:
    x, y = (array.astype(np.float32) for array in pair(((3, 4), (4,))))
    jacobian = product.jacobian(x, y)
    assert jacobian["x"].dtype == np.float32
    assert {array.dtype for array in jacobian.pullback(np.ones((3, 4), np.float32))} == {np.dtype(np.float32)}
    assert jacobian.pushforward(x, y).dtype == np.float32
    assert jacobian.dense(0, "y").dtype == np.float32


@pytest.mark.parametrize("transport", [copy.copy, copy.deepcopy, lambda j: pickle.loads(pickle.dumps(j))])
def test_a_jacobian_can_be_copied_and_pickled(transport: Any) -> None:
    jacobian = several.jacobian(np.ones((3, 1)), np.ones(4), 2)
    twin = transport(jacobian)
    assert repr(twin) == repr(jacobian)
    np.testing.assert_array_equal(twin[1, "x"], jacobian[1, "x"])


@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_the_partials_of_a_quotient_share_a_division(backend):
    @differentiable_broadcast(backend=backend)
    def quotient(a, b):
        return a / b

    a, b = np.meshgrid([0.0, -0.0, 3.0, -7.5, 1e-300, 1e300, np.inf], [0.3, -4.0, 0.0, -0.0, 1e-160, 1e160, -np.inf])
    with np.errstate(all="ignore"):
        value, jacobian = quotient.value_and_jacobian(a, b)
        np.testing.assert_array_equal(value, a / b)
        np.testing.assert_array_equal(jacobian["a"], 1 / b)
        np.testing.assert_allclose(jacobian["b"], -(a / b / b), rtol=1e-15)
    code = [line.partition("  # ")[0] for line in quotient.inspect_source(a, b).splitlines()]
    assert sum(line.count(" / ") for line in code) == 1
    assert sum("divided(" in line for line in code) == 1


def test_partials_whose_sum_is_zero_are_absent() -> None:
    f = differentiable_broadcast(backend="python")(lambda x, y: ((x + y) * 2.0 - x * 2.0) * math.exp(y))
    # exp(800) is infinite, and zero times infinity would not be a number.
    assert f.jacobian(np.array([1.0]), np.array([800.0]))["x"] == 0


def test_an_absent_partial_is_not_multiplied_by_a_pole_in_the_first_iteration() -> None:
    def f(x, y):
        s = 1.0
        for _ in range(2):
            s = s / y + x
        return s

    # ds/dx is 1 after the first iteration, in which 1.0 / 0.0 has none, and 1 / 0 + 1 after the second.
    assert differentiable_broadcast(backend="python")(f).jacobian(np.array([1.0]), np.array([0.0]))["x"] == math.inf


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_as_an_array_it_is_the_blocks_side_by_side(shapes: tuple[tuple[int, ...], ...]) -> None:
    x, y = pair(shapes)
    value, jacobian = product.value_and_jacobian(x, y)
    wanted = np.stack(np.broadcast_arrays(np.sin(y) + 0 * x, x * np.cos(y)), axis=-1)
    assert wanted.shape == (*np.shape(value), 2)
    for found in (np.asarray(jacobian), np.array(jacobian), jacobian.stacked()):
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, wanted, rtol=1e-14)
    _, jacobian = several.value_and_jacobian(x, y, 2)
    zero = 0 * (x + y)
    rows = [[y + zero, x + zero], [np.exp(x) + zero, zero], [zero, zero]]
    wanted = np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)
    assert wanted.shape == (*np.shape(value), 3, 2)
    np.testing.assert_allclose(np.asarray(jacobian), wanted, rtol=1e-14)
    for output in range(3):
        np.testing.assert_allclose(jacobian.stacked(output), wanted[..., output, :], rtol=1e-14)


def test_as_an_array_a_hessian_is_a_matrix_for_each_element() -> None:
    x, y = np.array([0.5, 1.0, 2.0]), np.array(0.25)
    wanted = np.empty((3, 2, 2))
    wanted[:, 0, 0], wanted[:, 1, 1] = 0, -x * np.sin(y)
    wanted[:, 0, 1] = wanted[:, 1, 0] = np.cos(y)
    np.testing.assert_allclose(np.asarray(product.hessian(x, y)), wanted, rtol=1e-14)
    hessian = several.hessian(x, y, 2)
    outputs = np.zeros((3, 3, 2, 2))
    outputs[:, 0, 0, 1] = outputs[:, 0, 1, 0] = 1
    outputs[:, 1, 0, 0] = np.exp(x)
    np.testing.assert_allclose(np.asarray(hessian), outputs, rtol=1e-14)
    np.testing.assert_allclose(np.asarray(packed.hessian(x)), np.full((3, 1, 1, 1), 4.0), rtol=1e-14)


def test_as_an_array_it_has_an_axis_for_the_outputs_where_it_returns_a_structure() -> None:
    x = np.array([1.0, 3.0])
    _, jacobian = packed.value_and_jacobian(x)
    assert np.asarray(jacobian).tolist() == [[[4.0]], [[12.0]]]
    assert jacobian.stacked().tolist() == [[4.0], [12.0]]


@pytest.mark.parametrize("products", ["jacobian", "hessian"])
def test_as_an_array_it_takes_numpys_keywords(products: str) -> None:
    x, y = np.array([0.5, 1.0], np.float32), np.float32(0.25)
    found = getattr(product, products)(x, y)
    plain = np.asarray(found)
    assert plain.dtype == np.float32
    wide = np.asarray(found, dtype=np.float64)
    assert wide.dtype == np.float64
    assert (wide == plain).all()
    assert np.array(found, dtype="float16").dtype == np.float16
    copied = np.array(found, copy=True)
    copied[...] = 7
    assert (np.asarray(found) == plain).all()
    assert (found.stacked() == plain).all()
    with pytest.raises(ValueError, match="copy"):
        np.asarray(found, copy=False)
    assert np.sum(found) == np.sum(plain)


def test_as_an_array_without_arguments_it_is_empty() -> None:
    x = np.ones((3, 4))
    assert np.asarray(product.jacobian(x, 1.0, wrt=())).shape == (3, 4, 0)
    assert np.asarray(product.hessian(x, 1.0, wrt=())).shape == (3, 4, 0, 0)
    assert np.asarray(several.jacobian(x, 1.0, 2, wrt=())).shape == (3, 4, 3, 0)


def test_what_is_on_a_gpu_is_not_fetched_in_silence() -> None:
    for found in map(copy.deepcopy, (product.jacobian(np.ones(3), 2.0), product.hessian(1.0, 2.0))):
        found._results.module = "cupy"
        with pytest.raises(ArgumentError, match=r"are on a GPU; write cupy\.asnumpy"):
            np.asarray(found)


WEIGHTS = np.arange(3)
FLOATS = np.arange(3.0)


@differentiable_broadcast
def counted(x, n):
    return x * x * n


@differentiable_broadcast
def capturing(x):
    return x * WEIGHTS + FLOATS


ADVICE = {
    "int64": (np.arange(3), "n is of dtype int64, which carries no derivative; pass n.astype('float64')"),
    "bool": (np.array([True, False, True]), "n is of dtype bool, which carries no derivative; pass n.astype"),
    "a scalar": (np.uint8(3), "n is of dtype uint8, which carries no derivative; pass n.astype('float64')"),
    "a number": (3, "n is an int, which carries no derivative; pass float(n)"),
    "a truth": (True, "n is a bool, which carries no derivative; pass float(n)"),
}
ASKED: dict[str, Any] = {
    "name": lambda x, n: counted.jacobian(x, n)["n"],
    "output and name": lambda x, n: counted.jacobian(x, n)[0, "n"],
    "position": lambda x, n: counted.jacobian(x, n)[1],
    "dense": lambda x, n: counted.jacobian(x, n).dense(0, "n"),
    "pushforward": lambda x, n: counted.jacobian(x, n).pushforward(x, x),
    "hessian": lambda x, n: counted.hessian(x, n)["x", "n"],
    "nothing": lambda _, n: counted.jacobian(n, n)["n"],
    "wrt": lambda x, n: counted.jacobian(x, n, wrt="n"),
    "wrt by position": lambda x, n: counted.jacobian(x, n, wrt=1),
    "partial": lambda x, n: counted.partial("n")(x, n),
    "tangent": lambda x, n: counted.jvp((x, n), {"n": 1.0}),
    "gradient": lambda x, n: counted.vjp(x, n, wrt="n"),
    "product": lambda x, n: counted.hvp((x, n), (1.0, None), wrt="n"),
    "check": lambda _, n: check_derivatives(counted, n, n),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("kind", ADVICE)
def test_an_argument_without_a_derivative_is_said_to_have_none_for_its_dtype(kind: str, asked: str) -> None:
    value, words = ADVICE[kind]
    with pytest.raises(ArgumentError, match=re.escape(words)):
        ASKED[asked](np.ones(3), value)


def test_what_is_advised_gives_the_derivative() -> None:
    x, n = np.array([1.0, 2.0, 3.0]), np.arange(3)
    assert counted.jacobian(x, n.astype("float64"))["n"].tolist() == [1.0, 4.0, 9.0]
    assert counted.jacobian(x, float(n[1]))["n"].tolist() == [1.0, 4.0, 9.0]
    with pytest.raises(ArgumentError, match=re.escape("not in 'n': for n give wrt=('x', 'n')")):
        counted.jacobian(x, x, wrt="x")["n"]
    with pytest.raises(ArgumentError, match=re.escape("not in 'FLOATS': for FLOATS give wrt=('x', 'FLOATS')")):
        capturing.jacobian(x)["FLOATS"]
    assert capturing.jacobian(x, wrt=("x", "FLOATS"))["FLOATS"].tolist() == [1.0] * 3
    with pytest.raises(ArgumentError, match=r"WEIGHTS is of dtype int64, .*pass WEIGHTS\.astype"):
        capturing.jacobian(x)["WEIGHTS"]
    with pytest.raises(ArgumentError, match=r"is in \(x\), not in 'z'$"):
        product.jacobian(x, 1.0, wrt="x")["z"]


def test_a_jacobian_to_write_to_is_in_the_arguments_of_the_call() -> None:
    """The numbers of another argument were written to its blocks, where their count was the same."""
    x, y = np.arange(3.0), np.ones(3)
    product = differentiable_broadcast(lambda x, y: x * x * y * y)
    in_cores = differentiable_broadcast(signature="(n),(n)->(n)")(lambda x, y: x * x * y * y)
    for function, options in ((product, {}), (product, {"out": "matrix"}), (in_cores, {})):
        out = function.value_and_jacobian(x, y, wrt="x", **options)
        before = out[1]["x"].copy()
        with pytest.raises(ArgumentError, match=r"the Jacobian in out= is in \(x\), and that of this call is in \(y\)"):
            function.value_and_jacobian(x + 1, y, wrt="y", out=out)
        np.testing.assert_array_equal(out[1]["x"], before)
        np.testing.assert_array_equal(function.value_and_jacobian(x + 1, y, wrt=0, out=out)[0], (x + 1) ** 2)


def test_names_are_read_as_pythons_parser_reads_them():
    """A keyboard's sign of micro is another character than the Greek letter that the parser makes of it."""
    function = differentiable_broadcast(lambda µ, table: µ * table[0], whole="table")
    micro, greek = "\u00b5", "\u03bc"
    jacobian = function.jacobian(np.array([2.0]), np.array([3.0]), wrt=micro)
    assert jacobian.wrt == (greek,)
    assert micro in jacobian and greek in jacobian
    np.testing.assert_array_equal(jacobian[micro], [3.0])
    np.testing.assert_array_equal(function.partial(micro)(2.0, np.array([3.0])), 3.0)
    vectors = differentiable_broadcast(lambda µ: µ[0] * µ[1], signature="(2)->()")
    np.testing.assert_array_equal(vectors.jacobian(np.array([2.0, 3.0]), wrt=micro)[micro], [3.0, 2.0])
