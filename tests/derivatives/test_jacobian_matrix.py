"""The Jacobian as a mapping and as a matrix: dense, sparse, an operator, and written by the kernel as one array."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from corpus import CORPUS, Case
from suites import sampled

from dualbcast import differentiable_broadcast
from dualbcast.errors import ArgumentError, DTypeError, ShapeError

rng = np.random.default_rng(3)
SHAPES = [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((), (5,)), ((3, 1), ()), ((), ()), ((0, 4), (4,))]


class Pair(NamedTuple):
    large: float
    small: float


@differentiable_broadcast
def product(x, y):
    return x * math.sin(y)


@differentiable_broadcast
def several(x, y, n):
    """A block that is a structural zero, one that is constant, and an output that is an integer."""
    return Pair(x * y + n, 3 * x), int(x) + n


@differentiable_broadcast
def line(t, slope, offset):
    return slope * t + offset


def arrays_of(shapes: tuple[tuple[int, ...], ...]) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(rng.uniform(0.5, 1.5, shape)) for shape in shapes)


def by_hand(jacobian: Any) -> np.ndarray:
    """The matrix, block by block."""
    rows = []
    for output in range(jacobian.outputs):
        empty = np.empty((math.prod(jacobian.shape), 0))
        rows.append(np.column_stack([empty, *[np.ravel(jacobian[output, name]) for name in jacobian.wrt]]))
    return np.concatenate(rows)


# --- a mapping --------------------------------------------------------------------------------------------------------


def test_a_jacobian_is_a_mapping_by_argument() -> None:
    jacobian = product.jacobian(*arrays_of(((3,), (3,))))
    assert isinstance(jacobian, Mapping)
    assert list(jacobian) == list(jacobian.keys()) == ["x", "y"]
    assert len(jacobian) == 2
    for (name, block), same in zip(jacobian.items(), jacobian.values(), strict=True):
        assert block is same is jacobian[name]
    assert jacobian.get("x") is jacobian["x"]
    assert jacobian.get("z") is None
    assert jacobian.get((0, "y")) is jacobian[0, "y"]
    assert jacobian.get("z", 7) == 7
    assert dict(jacobian)["y"] is jacobian["y"]
    assert {**jacobian}.keys() == {"x", "y"}


def test_only_names_are_in_it() -> None:
    jacobian = product.jacobian(*arrays_of(((3,), (3,))))
    assert "x" in jacobian
    for other in ("z", 0, (0, "x"), None, ["x"], np.array([0, 1])):
        assert other not in jacobian


MISSING = {
    "jacobian": ["z", 2, (1, "x"), (0, "z"), (0, 0, 0), ["x"], None],
    "hessian": ["x", ("x", "z"), (1, "x", "x"), (0, 0, 0, 0)],
}


@pytest.mark.parametrize(
    ("method", "key"), [(method, key) for method, keys in MISSING.items() for key in keys], ids=str
)
def test_a_missing_key_is_a_key_error_with_the_same_message(method: str, key: Any) -> None:
    found = getattr(product, method)(1.0, 2.0)
    with pytest.raises(KeyError) as as_key:
        found[key]
    with pytest.raises(ArgumentError) as as_argument:
        found[key]
    assert str(as_key.value) == str(as_argument.value)
    assert not str(as_key.value).startswith(("'", '"'))


def test_the_blocks_of_structures_are_structures() -> None:
    jacobian = several.jacobian(*arrays_of(((3,), (3,))), 2)
    pair, third = dict(jacobian.items())["x"]
    assert isinstance(pair, Pair)
    assert third is jacobian[2, "x"]


def test_equality_is_one_truth() -> None:
    x, y = arrays_of(((3, 4), (4,)))
    jacobian, equal = product.jacobian(x, y), product.jacobian(x, y)
    assert (jacobian == equal) is True
    assert (jacobian != equal) is False
    assert jacobian == copy.copy(equal)
    assert jacobian != product.jacobian(x, y + 1)
    assert jacobian != product.jacobian(x, y, wrt="x")
    assert jacobian != product.jacobian(x[:1], y)
    assert jacobian != dict(jacobian)
    assert dict(jacobian) != jacobian
    assert jacobian != 3
    assert product.jacobian(np.nan, np.nan) != product.jacobian(np.nan, np.nan)
    assert several.jacobian(x, y, 1) == several.jacobian(x, y, 2)
    assert product.jacobian(x, y, wrt=()) == product.jacobian(x, y, wrt=())
    with pytest.raises(TypeError, match="unhashable"):
        hash(jacobian)


# --- a dense matrix ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("out", [None, "matrix"])
def test_the_matrix_has_a_row_for_each_element_and_a_column_for_each_argument(shapes: Any, out: Any) -> None:
    x, y = arrays_of(shapes)
    value, jacobian = product.value_and_jacobian(x, y, out=out)
    wanted = np.stack(np.broadcast_arrays(np.sin(y) + 0 * x, x * np.cos(y)), axis=-1).reshape(-1, 2)
    np.testing.assert_allclose(jacobian.matrix(), wanted, rtol=1e-14)
    np.testing.assert_array_equal(jacobian.T, jacobian.matrix().T)
    np.testing.assert_array_equal(value, product(x, y))
    assert type(value) is type(product(x, y))
    value, jacobian = several.value_and_jacobian(x, y, 2, out=out)
    ones, zero = np.ones(np.shape(product(x, y))), np.zeros(np.shape(product(x, y)))
    blocks = [[y + zero, x + zero], [3 * ones, zero], [zero, zero]]
    wanted = np.concatenate([np.stack([np.ravel(block) for block in row], axis=-1) for row in blocks])
    assert jacobian.matrix().shape == wanted.shape == (np.ravel(value[0].large).size * 3, 2)
    np.testing.assert_allclose(jacobian.matrix(), wanted, rtol=1e-14)
    for output, row in enumerate(blocks):
        for name, block in zip("xy", row, strict=True):
            np.testing.assert_allclose(jacobian[output, name], block, rtol=1e-14)
    assert value[1].dtype == several(x, y, 2)[1].dtype == np.int64
    for found, plain in zip((*value[0], value[1]), (*several(x, y, 2)[0], several(x, y, 2)[1]), strict=True):
        np.testing.assert_array_equal(found, plain)


def test_the_rows_are_in_the_order_of_ravel() -> None:
    def both(x, y):
        return x * y, x + y * y

    f = differentiable_broadcast(both)
    x, y = arrays_of(((3, 1), (4,)))
    step = 1e-6
    changed = (np.ravel(f(x + step, y)) - np.ravel(f(x - step, y))) / (2 * step)
    np.testing.assert_allclose(f.jacobian(x, y).matrix()[:, 0], changed, rtol=1e-8)


def test_the_kernel_writes_the_matrix_itself() -> None:
    t = np.linspace(0, 1, 1000)
    for _ in range(3):  # by the slow path, and by the fast one
        _, jacobian = line.value_and_jacobian(t, 2.0, 0.5, wrt=("t", "slope", "offset"), out="matrix")
        matrix = jacobian.matrix()
        assert matrix is jacobian.matrix()
        assert matrix.flags.f_contiguous
        for name in ("t", "slope"):
            assert np.shares_memory(matrix, jacobian[name])
        np.testing.assert_array_equal(matrix, np.stack([np.full(1000, 2.0), t, np.ones(1000)], axis=-1))
    assert not np.shares_memory(*[line.jacobian(t, 2.0, 0.5).matrix() for _ in range(2)])
    _, other = line.value_and_jacobian(t, 2.0, 0.5, out="matrix")
    assert not np.shares_memory(other.matrix(), matrix)


@pytest.mark.parametrize("order", ["C", "F", "every second", "reversed"])
def test_a_matrix_can_be_given(order: str) -> None:
    t = np.linspace(0, 1, 100)
    given = {
        "C": np.empty((100, 2)),
        "F": np.empty((2, 100)).T,
        "every second": np.empty((200, 4))[::2, 1::2],
        "reversed": np.empty((100, 2))[::-1, ::-1],
    }[order]
    value = np.empty(100)
    for slope in (2.0, 3.0, 4.0):
        given[...] = np.nan
        found, jacobian = line.value_and_jacobian(t, slope, 0.5, wrt=("slope", "offset"), out=(value, given))
        assert found is value
        assert jacobian.matrix() is given
        np.testing.assert_allclose(value, slope * t + 0.5)
        np.testing.assert_array_equal(given, np.stack([t, np.ones(100)], axis=-1))
        # The pair can be given in turn.
        given[...] = np.nan
        again, second = line.value_and_jacobian(t, slope, 0.5, wrt=("slope", "offset"), out=(found, jacobian))
        assert again is value
        assert second.matrix() is given
        np.testing.assert_array_equal(given, np.stack([t, np.ones(100)], axis=-1))


def test_a_matrix_may_overlap_an_argument() -> None:
    whole = rng.uniform(1, 2, (50, 2))
    x, y = whole[:, 0], whole[:, 1]
    wanted = np.stack([np.sin(y), x * np.cos(y)], axis=-1)
    value, _ = product.value_and_jacobian(x, y, out=(np.empty(50), whole))
    np.testing.assert_allclose(whole, wanted, rtol=1e-14)
    assert value.shape == (50,)


def test_constants_are_those_of_the_call() -> None:
    """A captured number that changes changes a constant block, also in arrays that are used again."""
    surroundings = SimpleNamespace(scale=3.0)

    @differentiable_broadcast
    def scaled(x, y):
        return surroundings.scale * x + y * y

    x = np.arange(4.0)
    value, jacobian = scaled.value_and_jacobian(x, x, out="matrix")
    assert jacobian.matrix()[:, 0].tolist() == [3.0] * 4
    surroundings.scale = 5.0
    _, again = scaled.value_and_jacobian(x, x, out=(value, jacobian))
    assert again.matrix() is jacobian.matrix()
    assert again.matrix()[:, 0].tolist() == again["x"].tolist() == [5.0] * 4


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_dtypes_and_backends(dtype: str, backend: str) -> None:
    f = differentiable_broadcast(product.__wrapped__, backend=backend)
    x, y = (array.astype(dtype) for array in arrays_of(((3, 1), (4,))))
    value, jacobian = f.value_and_jacobian(x, y, out="matrix")
    plain_value, plain = f.value_and_jacobian(x, y)
    assert value.dtype == jacobian.matrix().dtype == plain.matrix().dtype == np.dtype(dtype)
    np.testing.assert_array_equal(value, plain_value)
    np.testing.assert_array_equal(jacobian.matrix(), by_hand(plain))


def test_large_matrices_and_memory_orders() -> None:
    x = np.asfortranarray(rng.uniform(1, 2, (300, 400)))
    y = rng.uniform(1, 2, (300, 400))
    _, jacobian = product.value_and_jacobian(x, y, out="matrix")
    np.testing.assert_allclose(jacobian.matrix(), np.stack([np.sin(y).ravel(), (x * np.cos(y)).ravel()], axis=-1))
    np.testing.assert_array_equal(jacobian.matrix(), product.jacobian(x, y).matrix())


def test_with_a_limit_of_iterations_the_matrix_is_a_copy() -> None:
    @differentiable_broadcast(max_iterations=60)
    def root(a):
        u = a
        while abs(u * u - a) > 1e-12 * a:
            u = (u + a / u) / 2
        return u

    a = np.array([2.25, 4.0, 9.0])
    _, jacobian = root.value_and_jacobian(a, out="matrix")
    np.testing.assert_allclose(jacobian.matrix(), [[1 / 3], [0.25], [1 / 6]], rtol=1e-6)
    np.testing.assert_array_equal(jacobian.matrix()[:, 0], root.jacobian(a)["a"])


@pytest.mark.parametrize("transport", [copy.copy, copy.deepcopy, lambda j: pickle.loads(pickle.dumps(j))])
def test_a_copy_has_blocks_of_its_own(transport: Any) -> None:
    x, y = arrays_of(((3, 1), (4,)))
    value, jacobian = several.value_and_jacobian(x, y, 2, out="matrix")
    twin = transport(jacobian)
    assert twin == jacobian
    # The copy can be written to, and its matrix is then that of the new blocks.
    _, written = several.value_and_jacobian(2 * x, y, 2, out=(value, twin))
    np.testing.assert_array_equal(written.matrix(), several.jacobian(2 * x, y, 2).matrix())
    np.testing.assert_array_equal(twin.matrix(), by_hand(twin))
    np.testing.assert_array_equal(twin.matrix(), written.matrix())


@pytest.mark.parametrize("case", sampled(CORPUS, 3), ids=lambda case: case.name)
def test_the_corpus_gives_the_same_matrix_in_both_ways(case: Case) -> None:
    f = differentiable_broadcast(case.function)
    arrays = tuple(np.array(column) for column in zip(*case.points, strict=True))
    value, jacobian = f.value_and_jacobian(*arrays, out="matrix")
    plain_value, plain = f.value_and_jacobian(*arrays)
    np.testing.assert_array_equal(jacobian.matrix(), by_hand(plain))
    np.testing.assert_array_equal(plain.matrix(), by_hand(plain))
    leaves = plain.structure.flatten
    for one, other in zip(leaves(value), leaves(plain_value), strict=True):
        np.testing.assert_array_equal(one, other)


BAD_OUT: dict[str, tuple[Any, type[Exception], str]] = {
    "a word": ("rows", ArgumentError, "pair .value, Jacobian.*'matrix'"),
    "an array alone": (np.empty((3, 2)), ArgumentError, "must be the pair"),
    "a list": ((np.empty(3), [[1.0, 2.0]]), ArgumentError, "second of the pair is a list"),
    "another shape": ((np.empty(3), np.empty((2, 3))), ShapeError, r"has shape \(2, 3\); it must be \(3, 2\): a row"),
    "another dtype": ((np.empty(3), np.empty((3, 2), np.float32)), DTypeError, "float32; it must be float64"),
    "read-only": ((np.empty(3), np.broadcast_to(1.0, (3, 2))), ArgumentError, "read-only"),
}


@pytest.mark.parametrize("case", BAD_OUT)
def test_what_cannot_be_written_to_is_one_error(case: str) -> None:
    out, error, words = BAD_OUT[case]
    with pytest.raises(error, match=words):
        product.value_and_jacobian(np.ones(3), np.ones(3), out=out)


def test_value_and_matrix_must_not_share_memory() -> None:
    given = np.empty((3, 2))
    with pytest.raises(ArgumentError, match="share memory"):
        product.value_and_jacobian(np.ones(3), np.ones(3), out=(given[:, 0], given))


# --- products with vectors --------------------------------------------------------------------------------------------


def test_a_product_is_that_of_the_matrix() -> None:
    jacobian = several.jacobian(*arrays_of(((3, 1), (4,))), 2)
    vector, columns = rng.normal(size=2), rng.normal(size=(2, 5))
    np.testing.assert_allclose(jacobian @ vector, by_hand(jacobian) @ vector)
    np.testing.assert_allclose(jacobian @ [1.0, 2.0], by_hand(jacobian) @ [1.0, 2.0])
    np.testing.assert_allclose(jacobian @ columns, by_hand(jacobian) @ columns)
    weights = rng.normal(size=36)
    np.testing.assert_allclose(jacobian.T @ weights, weights @ by_hand(jacobian))
    pushed = product.jacobian(*arrays_of(((3, 1), (4,))))
    np.testing.assert_allclose(pushed @ vector, np.ravel(pushed.pushforward(*vector)))


@pytest.mark.parametrize("vector", [[1.0], np.ones(3), 2.0, np.ones((3, 2)), np.ones((2, 2, 2))])
def test_a_product_with_another_number_of_tangents_is_refused(vector: Any) -> None:
    jacobian = product.jacobian(np.ones(3), np.ones(3))
    with pytest.raises(ShapeError, match=r"a number for each of the arguments \(x, y\).*J\.pushforward"):
        jacobian @ vector


# --- all elements -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_the_sparse_matrix_and_the_operator_are_the_dense_blocks_side_by_side(shapes: Any) -> None:
    pytest.importorskip("scipy.sparse")
    x, y = arrays_of(shapes)
    for jacobian in (product.jacobian(x, y), several.jacobian(x, y, 2), several.jacobian(x, y, 2, wrt="y")):
        wanted = np.block(
            [[jacobian.dense(output, name) for name in jacobian.wrt] for output in range(jacobian.outputs)]
        )
        found, operator = jacobian.sparse(), jacobian.linear_operator()
        assert found.shape == operator.shape == wanted.shape
        assert found.has_canonical_format
        np.testing.assert_array_equal(found.toarray(), wanted)
        right, left = rng.normal(size=wanted.shape[1]), rng.normal(size=wanted.shape[0])
        np.testing.assert_allclose(operator.matvec(right), wanted @ right, atol=1e-13)
        np.testing.assert_allclose(operator.rmatvec(left), left @ wanted, atol=1e-13)
        np.testing.assert_allclose(operator @ np.eye(wanted.shape[1]), wanted, atol=1e-13)


def test_blocks_that_are_zero_everywhere_have_no_entries() -> None:
    pytest.importorskip("scipy.sparse")
    x, y = arrays_of(((3, 1), (4,)))
    assert several.jacobian(x, y, 2).sparse().nnz == 12 * 3
    assert several.jacobian(x, y, 2, wrt=()).sparse().shape == (36, 0)


def test_the_sparse_matrix_is_the_users_own() -> None:
    pytest.importorskip("scipy.sparse")
    jacobian = product.jacobian(*arrays_of(((3,), (3,))))
    first = jacobian.sparse()
    wanted = first.toarray()
    first.data[:] = 0
    first.eliminate_zeros()
    np.testing.assert_array_equal(jacobian.sparse().toarray(), wanted)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_small_floats_are_float32_in_a_sparse_matrix(dtype: str) -> None:
    pytest.importorskip("scipy.sparse")
    x, y = (array.astype(dtype) for array in arrays_of(((3, 1), (4,))))
    jacobian = product.jacobian(x, y)
    assert jacobian.sparse().dtype == jacobian.linear_operator().dtype == np.float32
    np.testing.assert_array_equal(jacobian.sparse().toarray()[:, :3], jacobian.dense(0, "x").astype(np.float32))


def test_what_is_on_a_gpu_is_not_fetched_in_silence() -> None:
    jacobian = copy.deepcopy(product.jacobian(np.ones(3), 2.0))
    jacobian._results.module = "cupy"
    for convert in (jacobian.sparse, jacobian.linear_operator):
        with pytest.raises(ArgumentError, match=r"are on a GPU; write cupy\.asnumpy"):
            convert()


# --- other libraries' arrays ------------------------------------------------------------------------------------------


def foreign(kind: str) -> tuple[Any, Any]:
    values = rng.uniform(1, 2, (2, 4))
    if kind == "pandas":
        return tuple(pytest.importorskip("pandas").Series(row) for row in values)
    if kind == "xarray":
        return tuple(pytest.importorskip("xarray").DataArray(row, dims="t") for row in values)
    return tuple(np.ma.array(row, mask=[False, True, False, False]) for row in values)


@pytest.mark.parametrize("kind", ["masked", "pandas", "xarray"])
def test_matrices_of_other_libraries_arrays(kind: str) -> None:
    x, y = foreign(kind)
    for f in (product, differentiable_broadcast(lambda x, y: (x * y, x + 2 * y))):
        jacobian, plain = f.jacobian(x, y), f.jacobian(np.asarray(x), np.asarray(y))
        found = jacobian.matrix()
        assert found.shape == plain.matrix().shape
        keep = ~np.ma.getmaskarray(found)
        assert keep.all() != (kind == "masked")
        np.testing.assert_array_equal(np.asarray(found)[keep], plain.matrix()[keep])
        for convert in (jacobian.sparse, jacobian.linear_operator, lambda j=jacobian: j.dense(0, "x")):
            with pytest.raises(ArgumentError, match="are for arrays of NumPy's and CuPy's"):
                convert()
        with pytest.raises(ArgumentError, match="out= takes arrays of NumPy's"):
            f.value_and_jacobian(x, y, out="matrix")
