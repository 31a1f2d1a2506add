"""Signatures of core dimensions: shapes, layouts and dtypes of arrays, captured arrays, products, and errors."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualbcast import ArgumentError, BlockKeyError, ShapeError, differentiable_broadcast, graph


@differentiable_broadcast(signature="(3),(3,2),()->(2),()")
def both(v, M, s):  # noqa: N803
    return s * (v @ M), np.sin(v[0]) * s


def reference(v: Any, M: Any, s: Any) -> tuple[Any, Any]:  # noqa: N803
    """`both` by NumPy."""
    v, M, s = spread(v, M, s)  # noqa: N806
    return s[..., None] * np.einsum("...i,...ij->...j", v, M), np.sin(v[..., 0]) * s


def spread(v: Any, M: Any, s: Any) -> tuple[Any, Any, Any]:  # noqa: N803
    """The arguments in float64, with the axes before the cores broadcast."""
    shape = np.broadcast_shapes(v.shape[:-1], M.shape[:-2], np.shape(s))
    given = np.broadcast_to(v, (*shape, 3)), np.broadcast_to(M, (*shape, 3, 2)), np.broadcast_to(s, shape)
    return given[0].astype(float), given[1].astype(float), given[2].astype(float)


def jacobians(v: Any, M: Any, s: Any) -> dict[tuple[int, str], Any]:  # noqa: N803
    """The blocks of its Jacobian by NumPy, of the shape before the cores."""
    v, M, s = spread(v, M, s)  # noqa: N806
    shape, zero = s.shape, np.zeros(s.shape)
    return {
        (0, "v"): s[..., None, None] * np.swapaxes(M, -1, -2),
        (0, "M"): s[..., None, None, None] * np.einsum("...i,jk->...jik", v, np.eye(2)),
        (0, "s"): np.einsum("...i,...ij->...j", v, M),
        (1, "v"): np.stack([np.cos(v[..., 0]) * s, zero, zero], axis=-1),
        (1, "M"): np.zeros((*shape, 3, 2)),
        (1, "s"): np.sin(v[..., 0]),
    }


# --- shapes and layouts ----------------------------------------------------------------------------------------------

LENGTHS = st.sampled_from([0, 1, 2, 3, 7])


def laid(array: Any, way: str) -> Any:
    """The same numbers, laid out otherwise in memory."""
    if not array.ndim:
        return array
    match way:
        case "F":
            return np.asfortranarray(array)
        case "columns":  # each element of a core is contiguous
            return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, -1, 0)), 0, -1)
        case "backwards":
            return np.ascontiguousarray(array[(slice(None, None, -1),) * array.ndim])[
                (slice(None, None, -1),) * array.ndim
            ]
        case "strided":
            wide = np.zeros([2 * length for length in array.shape], array.dtype)
            wide[tuple([slice(None, None, 2)] * array.ndim)] = array
            return wide[tuple([slice(None, None, 2)] * array.ndim)]
        case "unaligned":
            memory = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
            memory[...] = array
            return memory
        case "read-only":
            array = array.copy()
            array.flags.writeable = False
    return array


@st.composite
def arguments(draw: Any) -> list[Any]:
    # One axis may be longer than a vector; three of them would take seconds an example.
    whole = (*draw(st.lists(LENGTHS, max_size=2)), *draw(st.sampled_from([(), (7,), (70,)])))
    random = np.random.default_rng(draw(st.integers(0, 9)))
    given = []
    for core in ((3,), (3, 2), ()):
        rest = whole[draw(st.integers(0, len(whole))) :]
        rest = tuple(1 if draw(st.booleans()) else length for length in rest)
        array = random.standard_normal((*rest, *core)).astype(draw(st.sampled_from(["float64", "float32"])))
        given.append(
            laid(array, draw(st.sampled_from(["C", "F", "columns", "backwards", "strided", "unaligned", "read-only"])))
        )
    return given


@settings(max_examples=30, deadline=None)
@given(arguments())
def test_any_shapes_and_layouts(given: list[Any]):
    both.value_and_jacobian(*given), both(*given)
    value, jacobian = both.value_and_jacobian(*given)  # by addresses, where those say it all
    dtype = np.result_type(*given)
    close = {"rtol": 1e-12, "atol": 1e-12} if dtype == np.float64 else {"rtol": 3e-6, "atol": 3e-6}
    for found, again, wanted in zip(value, both(*given), reference(*given), strict=True):
        assert found.shape == again.shape == wanted.shape
        assert found.dtype == dtype
        np.testing.assert_allclose(found, wanted, **close)
        np.testing.assert_allclose(again, wanted, **close)
    for (output, name), wanted in jacobians(*given).items():
        block = jacobian[output, name]
        assert block.shape == wanted.shape
        np.testing.assert_allclose(block, wanted, **close)
    v_tangents = [np.ones_like(each) for each in given]
    _, tangents = both.jvp(given, v_tangents)
    cotangents = [np.ones(each.shape, dtype) for each in value]
    pulled = both.vjp(*given)[1](*cotangents)
    for each, found in zip(given, pulled, strict=True):
        assert found.shape == each.shape
        assert found.dtype == each.dtype
    # ⟨cotangent, J tangent⟩ = ⟨Jᵀ cotangent, tangent⟩, whatever was broadcast, but for rounding to the arrays' dtypes.
    left = sum(float(np.sum(each, dtype=float)) for each in tangents)
    right = sum(float(np.sum(each, dtype=float)) for each in pulled)
    scale = sum(float(np.sum(np.abs(each), dtype=float)) for each in (*tangents, *pulled))
    coarsest = max(np.finfo(each.dtype).eps for each in given)
    assert abs(left - right) <= 10 * coarsest * scale


def direct_calls(function: Any) -> list[Any]:
    return [each for each in function._dispatch.direct.values() if each]


def test_later_calls_take_addresses_alone():
    """And so they do with other arrays of the same forms, for each product and on several threads."""
    function = differentiable_broadcast(signature="(3),(3,2),()->(2),()")(both.__wrapped__)
    for n in (5, 100_000):
        for seed in range(3):
            random = np.random.default_rng(seed)
            given = random.normal(size=(n, 3)), random.normal(size=(n, 3, 2)), random.normal(size=n)
            if n > 5:  # else so many elements are packed
                given = laid(given[0], "columns"), np.asfortranarray(given[1]), given[2]
            value, jacobian = function.value_and_jacobian(*given)
            alone, again = function.jacobian(*given), function(*given)
            for found, other, wanted in zip(value, again, reference(*given), strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
                np.testing.assert_allclose(other, wanted, rtol=1e-12, atol=1e-12)
            for place, wanted in jacobians(*given).items():
                np.testing.assert_allclose(jacobian[place], wanted, rtol=1e-12, atol=1e-12)
                np.testing.assert_allclose(alone[place], wanted, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(jacobian.matrix(), alone.matrix())
            tangents = [np.ones_like(each) for each in given]
            for found, wanted in zip(jacobian.pushforward(*tangents), function.jvp(given, tangents)[1], strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    assert len(direct_calls(function)) == 6


FACTOR = 2.0


def test_a_call_by_addresses_sees_that_a_name_has_another_value(monkeypatch: pytest.MonkeyPatch):
    function = differentiable_broadcast(signature="(2)->(2)")(lambda v: FACTOR * v)
    x = np.ones((4, 2))
    assert [function(x)[0, 0] for _ in range(3)] == [2.0] * 3
    assert direct_calls(function)
    monkeypatch.setattr(f"{__name__}.FACTOR", 3.0)
    assert [function(x)[0, 0] for _ in range(3)] == [3.0] * 3


def test_misaligned_arrays_of_known_forms_are_read_as_well():
    function = differentiable_broadcast(signature="(2)->()")(lambda v: v[0] * v[1])
    x = np.arange(8.0).reshape(4, 2)
    memory = np.zeros(x.nbytes + 1, np.uint8)
    shifted = memory[1:].view(np.float64).reshape(4, 2)
    shifted[...] = x
    for array in (x, x, shifted, shifted, x):
        np.testing.assert_array_equal(function(array), x[:, 0] * x[:, 1])


def test_what_takes_more_than_addresses_goes_the_long_way():
    weights = np.array([1.0, 0.0])
    captured = differentiable_broadcast(signature="(2)->()")(lambda v: v @ weights)
    checked = differentiable_broadcast(signature="(2)->()", check="nan")(lambda v: v[0] * v[1])
    table = differentiable_broadcast(signature="(2)->()", whole="t")(lambda v, t: v[0] * t[1])
    slow = differentiable_broadcast(signature="(2)->()", backend="python")(lambda v: v[0] * v[1])
    x = np.ones((4, 2))
    for _ in range(3):
        assert captured(x).tolist() == checked(x).tolist() == table(x, np.ones(3)).tolist() == slow(x).tolist()
    weights += 1.0
    assert captured(x)[0] == 3.0
    assert not any(map(direct_calls, (captured, checked, table, slow)))


def test_inputs_are_read_where_they_lie():
    """Arrays of structures and of columns are read without a copy: the kernel is given their addresses."""
    v, s = np.zeros((5, 3)), np.ones(5)
    for array in (v, np.asfortranarray(v)):
        form, values = both._dispatch.binder.bind((array, np.zeros((3, 2)), s), {}, None)
        assert form.names[:3] == ("v[0]", "v[1]", "v[2]")
        assert all(np.shares_memory(value, array) for value in values[:3])


def test_single_results_are_scalars():
    product, sine = both(np.ones(3), np.ones((3, 2)), 2.0)
    assert isinstance(product, np.ndarray)
    assert product.shape == (2,)
    assert isinstance(sine, np.float64)


def test_lists_are_arrays():
    product, _ = both([1.0, 2.0, 3.0], [[1.0, 0.0]] * 3, 2)
    np.testing.assert_allclose(product, [12.0, 0.0])


def test_dtypes():
    dot = differentiable_broadcast(signature="(n),(n)->(),(n),()")(lambda a, b: (a @ b, a > b, 1))
    integers = np.arange(6).reshape(2, 3)
    total, flags, one = dot(integers, integers[::-1])
    assert (total.dtype, flags.dtype, one.dtype) == (np.int64, np.bool_, np.int64)
    np.testing.assert_array_equal(total, [14, 14])
    np.testing.assert_array_equal(flags, integers > integers[::-1])
    half = dot(np.ones((2, 3), np.float16), np.ones(3, np.float16))[0]
    assert half.dtype == np.float16


def test_blocks_are_views_of_one_array():
    value, jacobian = both.value_and_jacobian(np.ones((4, 3)), np.ones((3, 2)), 1.0)
    assert np.shares_memory(jacobian[0, "v"], jacobian.matrix())
    assert jacobian.matrix().shape == (3 * 4, 10)
    # The rows are the elements of the first output, core by core, and then those of the next.
    np.testing.assert_array_equal(jacobian.matrix()[:4, 0], jacobian[0, "v"][:, 0, 0])
    np.testing.assert_array_equal(jacobian.matrix()[4:8, 1], jacobian[0, "v"][:, 1, 1])
    assert repr(jacobian) == "<CoreJacobian of 2 outputs in (v(3,), M(3, 2), s), shape (4,)>"
    assert list(jacobian) == ["v", "M", "s"]
    assert [np.shape(each) for each in jacobian["M"]] == [(4, 2, 3, 2), (4, 3, 2)]
    np.testing.assert_array_equal(jacobian[-1, 2], jacobian[1, "s"])
    tangents = np.ones((4, 3)), np.zeros((3, 2)), 0.0
    pushed = jacobian.pushforward(*tangents)
    np.testing.assert_allclose(pushed[0], np.full((4, 2), 3.0))
    np.testing.assert_allclose(jacobian.pullback(*value)[2], [12 * 2 * 3.0 + 4 * math.sin(1) ** 2])
    with pytest.raises(BlockKeyError, match=r"is in \(v, M, s\), not in 'w'"):
        jacobian["w"]


def test_blocks_of_which_all_or_some_elements_are_constant():
    @differentiable_broadcast(signature="(3,3),(3)->(3),(3)")
    def moved(M, v):  # noqa: N803
        return M @ v, 2 * v + 1

    rng = np.random.default_rng(3)
    M, v = rng.normal(size=(5, 3, 3)), rng.normal(size=(5, 3))  # noqa: N806
    value, jacobian = moved.value_and_jacobian(M, v)
    eye = np.eye(3)
    wanted = {
        (0, "M"): eye[:, :, None] * v[:, None, None, :],
        (0, "v"): M,
        (1, "M"): np.zeros((5, 3, 3, 3)),
        (1, "v"): np.broadcast_to(2 * eye, (5, 3, 3)),
    }
    for key, block in wanted.items():
        np.testing.assert_array_equal(jacobian[key], block)
        np.testing.assert_array_equal(moved.jacobian(M, v)[key], block)
    # What is the same for all elements of the result is not stored for each.
    assert jacobian[1, "v"].strides[0] == 0
    assert not jacobian[1, "v"].flags.writeable
    assert jacobian[0, "M"].flags.writeable
    rows = [np.concatenate([wanted[k, name].reshape(5, 3, -1) for name in "Mv"], axis=2) for k in (0, 1)]
    np.testing.assert_array_equal(jacobian.matrix(), np.concatenate(rows, axis=1).transpose(1, 0, 2).reshape(30, 12))
    found = moved.value_and_jacobian(M + 1, v, out=(value, jacobian))[1]
    np.testing.assert_array_equal(found[0, "v"], M + 1)
    np.testing.assert_array_equal(found[0, "M"], wanted[0, "M"])


def test_rows_of_a_block_may_be_constant():
    @differentiable_broadcast(signature="(2)->(3),(2)")
    def some(v):
        return np.array([1.0, v[0] * v[1], 3 * v[1]]), np.array([v[1], 2.0])

    v = np.random.default_rng(7).normal(size=(4000, 2))
    zero, one = np.zeros(4000), np.ones(4000)
    rows = [(zero, zero), (v[:, 1], v[:, 0]), (zero, 3 * one)]
    for _ in range(3):  # memory that is used again has other numbers
        jacobian = some.jacobian(v)
        np.testing.assert_array_equal(jacobian[0, "v"], np.moveaxis(np.array(rows), -1, 0))
        np.testing.assert_array_equal(jacobian[1, "v"], np.broadcast_to([[0.0, 1.0], [0.0, 0.0]], (4000, 2, 2)))
        jacobian[0, "v"][...] = -1.0


def test_the_pair_of_a_product_with_hessian_is_written_to():
    given = np.ones((4, 3)), np.ones((3, 2)), np.arange(4.0)
    value, jacobian, _ = both.value_jacobian_and_hessian(*given)
    other = np.full((4, 3), 2.0), np.full((3, 2), 0.5), np.arange(4.0) + 1
    found, written = both.value_and_jacobian(*other, out=(value, jacobian))
    wanted = both.value_and_jacobian(*other)
    assert found[0] is value[0]
    for name in ("v", "M", "s"):
        for ours, theirs in zip(written[name], wanted[1][name], strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("shape", [(1001,), (4096,), (33, 31), (2, 1, 1024)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_begin_at_cache_lines(shape: tuple[int, ...], dtype: type):
    rng = np.random.default_rng(4)
    given = [rng.normal(size=(*shape, *core)).astype(dtype) for core in [(3,), (3, 2), ()]]
    given[0] = np.ascontiguousarray(np.moveaxis(given[0], -1, 0)).transpose((*range(1, len(shape) + 1), 0))
    _, jacobian = both.value_and_jacobian(*given)
    _, few = both.value_and_jacobian(*[np.asarray(x).reshape(-1, *x.shape[len(shape) :])[:5] for x in given])
    block = jacobian[0, "M"]
    steps = [step for step, length in zip(block.strides[len(shape) :], (2, 3, 2), strict=True) if length > 1]
    assert all(step % 64 == 0 for step in steps)
    assert np.gcd.reduce([step // 64 for step in steps]) % 2 == 1
    for name in jacobian:
        for all_of_it, part in zip(jacobian[name], few[name], strict=True):
            np.testing.assert_array_equal(all_of_it.reshape(-1, *part.shape[1:])[:5], part)
    matrix = jacobian.matrix()
    np.testing.assert_array_equal(matrix[: block[..., 0, 0, 0].size, 3], block[..., 0, 0, 0].ravel())
    np.testing.assert_array_equal(matrix[: block[..., 0, 0, 0].size, 0], jacobian[0, "v"][..., 0, 0].ravel())


def test_pickled_blocks():
    given = np.ones((400, 3)), np.ones((3, 2)), np.arange(400.0)
    for _ in range(2):
        jacobian, hessian = both.jacobian(*given), both.hessian(*given)
    copies = pickle.loads(pickle.dumps((jacobian, hessian)))
    for name in ("v", "M", "s"):
        np.testing.assert_array_equal(copies[0][0, name], jacobian[0, name])
        np.testing.assert_array_equal(copies[1][0, name, "s"], hessian[0, name, "s"])
    np.testing.assert_array_equal(copies[0].matrix(), jacobian.matrix())


def test_wrt():
    given = np.ones((4, 3)), np.ones((3, 2)), 1.0
    jacobian = both.jacobian(*given, wrt=("s", "v"))
    assert jacobian.wrt == ("s", "v")
    assert jacobian[0, "v"].shape == (4, 2, 3)
    one = both.jacobian(*given, wrt="v[1]")
    np.testing.assert_array_equal(one[0, "v[1]"], jacobian[0, "v"][..., 1])
    np.testing.assert_array_equal(both.partial("v[1]")(*given)[0], jacobian[0, "v"][..., 1])
    with pytest.raises(ArgumentError, match="wrt='w' is no argument"):
        both.jacobian(*given, wrt="w")


def test_out():
    given = np.ones((4, 3)), np.ones((3, 2)), np.arange(4.0)
    wanted = both(*given)
    out = np.zeros((4, 2)), np.zeros(4)
    returned = both(*given, out=out)
    assert all(found is each for found, each in zip(returned, out, strict=True))
    for found, each in zip(out, wanted, strict=True):
        np.testing.assert_array_equal(found, each)
    double = differentiable_broadcast(signature="(n)->(n)")(lambda v: v[::-1] * 2)
    v = np.arange(12.0).reshape(4, 3)
    expected = v[:, ::-1] * 2
    np.testing.assert_array_equal(double(v, out=v), expected)  # over its own argument
    with pytest.raises(ShapeError, match=r"out= of output 0 has shape \(4, 3\), and its last axes must be \(2,\)"):
        both(*given, out=(np.zeros((4, 3)), np.zeros(4)))


# --- captured arrays, options, methods -------------------------------------------------------------------------------

WEIGHTS = np.array([1.0, 2.0, 3.0])


@differentiable_broadcast(signature="()->()")
def polynomial(x):
    return sum(WEIGHTS[at] * x**at for at in range(len(WEIGHTS)))


@differentiable_broadcast
def of_elements(x):
    return WEIGHTS[0] + WEIGHTS[-1] * x


def test_captured_arrays_are_arrays(monkeypatch: pytest.MonkeyPatch):
    x = np.linspace(0.0, 1.0, 4)
    np.testing.assert_allclose(polynomial(x), 1 + 2 * x + 3 * x**2)
    block = polynomial.jacobian(x, wrt="WEIGHTS")["WEIGHTS"]
    np.testing.assert_allclose(block, np.stack([x**0, x, x**2], axis=-1))
    monkeypatch.setitem(globals(), "WEIGHTS", np.array([5.0, 1.0]))  # of another length
    np.testing.assert_allclose(polynomial(x), 5 + x)
    monkeypatch.setitem(globals(), "WEIGHTS", np.array([0.0, 1.0]))
    np.testing.assert_allclose(polynomial(x), x)


def test_elements_of_captured_arrays_without_a_signature():
    x = np.linspace(0.0, 1.0, 4)
    value, jacobian = of_elements.value_and_jacobian(x, wrt="WEIGHTS")
    np.testing.assert_allclose(value, 1 + 3 * x)
    assert jacobian.wrt == ("WEIGHTS[0]", "WEIGHTS[1]", "WEIGHTS[2]")
    np.testing.assert_allclose(np.asarray(jacobian), np.stack([x**0, 0 * x, x], axis=-1))


class Rotor:
    def __init__(self) -> None:
        self.axis = np.array([0.0, 0.0, 1.0])

    @differentiable_broadcast(signature="(3)->(3)")
    def velocity(self, r):
        return np.cross(self.axis, r)


def test_empty_arrays():
    total = differentiable_broadcast(signature="(n),()->()")(lambda v, x: np.sum(v) + x)
    assert total(np.ones((0, 3)), 1.0).shape == (0,)
    assert total.jacobian(np.ones((4, 0, 3)), 1.0)["v"].shape == (4, 0, 3)
    with pytest.raises(ShapeError, match=r"shape \(2, 0\): a core has an element at least"):
        total(np.ones((2, 0)), 1.0)


def test_methods_static_parameters_and_spread_arguments():
    np.testing.assert_array_equal(Rotor().velocity(np.array([1.0, 0.0, 0.0])), [0.0, 1.0, 0.0])

    @differentiable_broadcast(signature="(n),()->()", static="power")
    def moment(v, scale, power=2):
        return np.sum(v**power) * scale

    assert moment(np.array([1.0, 2.0]), 1.0) == 5.0
    assert moment(np.array([1.0, 2.0]), scale=2.0, power=3) == 18.0

    @differentiable_broadcast(signature="(2),(2),(2)->(2)")
    def total(*vectors):
        return sum([v[0] for v in vectors]), vectors[-1][1]

    v = np.arange(8.0).reshape(4, 2)
    np.testing.assert_array_equal(total(v, v, v), np.stack([3 * v[:, 0], v[:, 1]], axis=-1))
    with pytest.raises(ArgumentError, match="is for 3 arguments"):
        total(v, v)


def test_it_can_be_pickled_and_decorated_again():
    again = pickle.loads(pickle.dumps(polynomial))
    assert again(2.0) == polynomial(2.0)
    made = differentiable_broadcast.from_source("lambda v: v[0] * v[1]", signature="(2)->()")
    np.testing.assert_allclose(pickle.loads(pickle.dumps(made))(np.array([2.0, 3.0])), 6.0)


def test_limited_iterations_still_give_cores():
    @differentiable_broadcast(signature="(2)->(2)", max_iterations=50)
    def halved(v):
        while np.max(v) > 1.0:
            v = v / 2.0
        return v

    value, jacobian = halved.value_and_jacobian(np.array([[3.0, 1.0], [0.5, 8.0]]))
    np.testing.assert_array_equal(value, [[0.75, 0.25], [0.0625, 1.0]])
    np.testing.assert_array_equal(jacobian["v"], np.array([0.25, 0.125])[:, None, None] * np.eye(2))


def test_sums():
    @differentiable_broadcast(signature="(2),()->()")
    def line(p, x):
        return p[0] + p[1] * x * x * p[1]

    x = np.linspace(0.0, 1.0, 11)
    total = line.sum(np.array([1.0, 2.0]), x, wrt="p", order=2)
    assert total.value == pytest.approx(11 + 4 * np.sum(x * x))
    np.testing.assert_allclose(total.gradient["p"], [11.0, 4 * np.sum(x * x)])
    np.testing.assert_allclose(total.hessian["p", "p"], [[0.0, 0.0], [0.0, 2 * np.sum(x * x)]])
    rotated = differentiable_broadcast(signature="(2),()->(2)")(lambda v, s: v[::-1] * s)
    np.testing.assert_allclose(rotated.sum(np.array([1.0, 2.0]), x), [2 * x.sum(), x.sum()])


@differentiable_broadcast(signature="(3),(2),(2)->(2)")
def misfit(p, x, y):
    return np.array([p[0] * np.exp(-p[1] * x[0]) + p[2] - y[0], p[0] * x[1] - y[1] * p[2]])


@pytest.mark.parametrize("weighted", [None, (50, 2), (2,), (1, 2)])
def test_normal_equations(weighted: tuple[int, ...] | None):
    rng = np.random.default_rng(5)
    p, x, y = rng.random(3), rng.normal(size=(50, 2)), rng.normal(size=(50, 2))
    weights = None if weighted is None else rng.random(weighted)
    r = np.stack([p[0] * np.exp(-p[1] * x[:, 0]) + p[2] - y[:, 0], p[0] * x[:, 1] - y[:, 1] * p[2]], axis=-1)
    e = np.exp(-p[1] * x[:, 0])
    zero, one = np.zeros(50), np.ones(50)
    rows = [np.stack([e, -p[0] * x[:, 0] * e, one], axis=-1), np.stack([x[:, 1], zero, -y[:, 1]], axis=-1)]
    J, w = np.stack(rows, axis=1), np.ones((50, 2)) if weights is None else np.broadcast_to(weights, (50, 2))  # noqa: N806
    squares, gradient, matrix = misfit.normal_equations(p, x, y, wrt="p", weights=weights)
    np.testing.assert_allclose(squares, np.sum(w * r * r), rtol=1e-13)
    np.testing.assert_allclose(gradient["p"], np.einsum("ni,ni,nij->j", w, r, J), rtol=1e-12)
    np.testing.assert_allclose(matrix["p", "p"], np.einsum("ni,nij,nik->jk", w, J, J), rtol=1e-13)
    np.testing.assert_array_equal(np.asarray(gradient), gradient["p"])
    np.testing.assert_array_equal(np.asarray(matrix), matrix["p", "p"])


def test_a_system_of_normal_equations_for_each_row():
    rng = np.random.default_rng(6)
    p, x, y = rng.random((4, 1, 3)), rng.normal(size=(4, 50, 2)), rng.normal(size=(50, 2))
    squares, gradient, matrix = misfit.normal_equations(p, x, y, wrt="p")
    assert (squares.shape, gradient["p"].shape, matrix["p", "p"].shape) == ((4, 1), (4, 1, 3), (4, 1, 3, 3))
    assert np.asarray(matrix).shape == (4, 1, 3, 3)
    for row in range(4):
        one = misfit.normal_equations(p[row, 0], x[row], y, wrt="p")
        np.testing.assert_allclose(matrix["p", "p"][row, 0], one.matrix["p", "p"], rtol=1e-13)
        np.testing.assert_allclose(gradient["p"][row, 0], one.gradient["p"], rtol=1e-12)
    with pytest.raises(ShapeError, match=r"weights has shape \(50,\), and its last axes must be \(2,\)"):
        misfit.normal_equations(p, x, y, wrt="p", weights=np.ones(50))


def test_hessians_are_views_of_one_array():
    @differentiable_broadcast(signature="(3,3),(3)->(),(2)")
    def energy(F, v):  # noqa: N803
        return np.linalg.det(F) * v[0] * v[1], np.array([v @ v, F[0, 1] + F[1, 0] ** 3])

    rng = np.random.default_rng(10)
    F, v = np.eye(3) + 0.1 * rng.normal(size=(700, 3, 3)), rng.normal(size=(700, 3))  # noqa: N806
    for _ in range(3):  # by the views of the elements, and then by addresses
        _, jacobian, hessian = energy.value_jacobian_and_hessian(F, v)
        hessian[0, "F", "v"][...] *= 1.0
    inverse, det, w = np.linalg.inv(F), np.linalg.det(F), v[:, 0] * v[:, 1]
    cofactors = det[:, None, None] * inverse.transpose(0, 2, 1)
    np.testing.assert_allclose(jacobian[0, "F"], w[:, None, None] * cofactors, rtol=1e-12, atol=1e-14)
    pairs = np.einsum("nij,nkl->nijkl", cofactors, cofactors) / det[:, None, None, None, None]
    second = pairs - pairs.transpose(0, 1, 4, 3, 2)  # ∂²det/∂F∂F
    np.testing.assert_allclose(hessian[0, "F", "F"], w[:, None, None, None, None] * second, rtol=1e-11, atol=1e-13)
    np.testing.assert_array_equal(hessian[0, "F", "v"], hessian[0, "v", "F"].transpose(0, 2, 3, 1))
    squares = np.broadcast_to(np.array([2 * np.eye(3), np.zeros((3, 3))]), (700, 2, 3, 3))
    np.testing.assert_array_equal(hessian[1, "v", "v"], squares)
    cubic = np.zeros((700, 2, 3, 3, 3, 3))
    cubic[:, 1, 1, 0, 1, 0] = 6 * F[:, 1, 0]
    np.testing.assert_allclose(hessian[1, "F", "F"], cubic, rtol=1e-15)
    assert np.shares_memory(hessian[0, "F", "F"], hessian[0, "F", "F"])
    assert hessian[1, "v", "v"].strides[0] == 0
    alone = energy.hessian(F, v)
    whole = np.asarray(alone)
    assert whole.shape == (700, 3, 12, 12)
    np.testing.assert_array_equal(whole, whole.transpose(0, 1, 3, 2))
    np.testing.assert_array_equal(whole[:, 0, :9, :9].reshape(700, 3, 3, 3, 3), hessian[0, "F", "F"])
    np.testing.assert_array_equal(whole[:, 1, 9:, 9:], hessian[1, "v", "v"][:, 0])
    np.testing.assert_array_equal(alone[1, "F", "F"], hessian[1, "F", "F"])


def test_blocks_as_one_array():
    length = differentiable_broadcast(signature="(2)->()")(lambda v: np.linalg.norm(v))
    v = np.random.default_rng(11).normal(size=(5, 2))
    for _ in range(2):
        assert np.asarray(length.hessian(v)).shape == (5, 2, 2)
        assert np.asarray(length.jacobian(v), np.float32).shape == (5, 2)
    with pytest.raises(ValueError, match="copy=False"):
        np.array(length.jacobian(v), copy=False)
    given = np.ones((4, 3)), np.ones((3, 2)), np.arange(4.0)
    jacobian, hessian = both.jacobian(*given), both.hessian(*given)
    whole = np.asarray(jacobian)
    assert whole.shape == (4, 3, 10)
    np.testing.assert_array_equal(whole[:, :2, 3:9].reshape(4, 2, 3, 2), jacobian[0, "M"])
    second = np.asarray(hessian)
    assert second.shape == (4, 3, 10, 10)
    np.testing.assert_array_equal(second[:, :2, 3:9, 9].reshape(4, 2, 3, 2), hessian[0, "M", "s"])
    np.testing.assert_array_equal(second[:, :2, 9, 3:9].reshape(4, 2, 3, 2), hessian[0, "s", "M"])


def test_products_with_hessians():
    @differentiable_broadcast(signature="(2)->()")
    def energy(v):
        return v[0] ** 2 * v[1]

    v = np.array([[1.0, 2.0], [3.0, 4.0]])
    product = energy.hvp((v,), (np.array([1.0, 0.0]),))["v"]
    np.testing.assert_allclose(product, np.stack([2 * v[:, 1], 2 * v[:, 0]], axis=-1))
    value, jacobian, hessian = energy.value_jacobian_and_hessian(v)
    np.testing.assert_allclose(value, [2.0, 36.0])
    np.testing.assert_allclose(jacobian["v"], [[4.0, 1.0], [24.0, 9.0]])
    np.testing.assert_allclose(hessian["v", "v"][0], [[4.0, 2.0], [2.0, 0.0]])


@pytest.mark.parametrize("shapes", [((700,), (700,)), ((700,), ()), ((), ()), ((1, 30), (20, 1))])
@pytest.mark.parametrize("wrt", ["mvs", "m", "vs"])
def test_later_products_with_hessians(shapes: tuple[tuple[int, ...], tuple[int, ...]], wrt: str):
    @differentiable_broadcast(signature="(2,2),(2),()->(2),()")
    def mixed(m, v, s):
        w = np.linalg.inv(m) @ v
        return np.array([w[0] * s, v[1] * 3.0]), s * s * m[0][1] + v @ v

    rng, batches = np.random.default_rng(13), (shapes[0], shapes[1], shapes[0])
    cores, columns = ((2, 2), (2,), ()), {"m": [0, 1, 2, 3], "v": [4, 5], "s": [6]}

    def drawn() -> list[Any]:
        return [rng.normal(size=(*batch, *core)) for batch, core in zip(batches, cores, strict=True)]

    m, v, s = drawn()
    primals = m + 3.0 * np.eye(2), v, s
    hessian, shape = np.asarray(mixed.hessian(*primals)), np.broadcast_shapes(*shapes)
    for _ in range(3):
        tangents = drawn()
        flat = [
            np.broadcast_to(x.reshape(*batch, -1), (*shape, x.size // math.prod(batch)))
            for x, batch in zip(tangents, batches, strict=True)
        ]
        product = mixed.hvp(primals, tangents, wrt=tuple(wrt))
        expected = np.einsum("...oij,...j->...oi", hessian, np.concatenate(flat, axis=-1))
        chosen = [column for name in wrt for column in columns[name]]
        np.testing.assert_allclose(np.asarray(product), expected[..., chosen], rtol=1e-12, atol=1e-12)
        assert product[0, wrt[0]].shape == (*shape, 2, *cores["mvs".index(wrt[0])])


@pytest.mark.parametrize("shapes", [((700,), (700,), (700,)), ((700,), (), (1,)), ((), (), ()), ((40, 30),) * 3])
@pytest.mark.parametrize("layout", ["C", "F", "columns"])
def test_later_calls_with_tangents_and_cotangents(shapes: tuple[tuple[int, ...], ...], layout: str):
    rng = np.random.default_rng(12)

    def laid_out(shape: tuple[int, ...], core: tuple[int, ...]) -> Any:
        array = rng.normal(size=(*shape, *core))
        if layout == "columns":
            axes = range(-len(core), 0)
            return np.moveaxis(np.array(np.moveaxis(array, axes, range(len(core))), order="C"), range(len(core)), axes)
        return np.asarray(array, order=layout)  # type: ignore[call-overload]

    cores = [(3,), (3, 2), ()]
    primals, tangents = ([laid_out(*each) for each in zip(shapes, cores, strict=True)] for _ in range(2))
    shape = np.broadcast_shapes(*shapes)
    cotangents = laid_out(shape, (2,)), laid_out(shape, ())
    value, jacobian = both.value_and_jacobian(*primals)
    blocks = [np.asarray(jacobian)[..., :3], np.asarray(jacobian)[..., 3:9], np.asarray(jacobian)[..., 9:]]
    flat = [
        np.reshape(x, (*np.shape(x)[: np.ndim(x) - len(core)], -1)) for x, core in zip(tangents, cores, strict=True)
    ]
    pushed = sum(np.einsum("...ij,...j->...i", block, x) for block, x in zip(blocks, flat, strict=True))
    both_cotangents = np.concatenate([cotangents[0], np.asarray(cotangents[1])[..., None]], axis=-1)
    pulled = []
    for block, x, core in zip(blocks, primals, cores, strict=True):
        whole = np.einsum("...ij,...i->...j", block, both_cotangents)
        batch = np.shape(x)[: np.ndim(x) - len(core)]
        axes = tuple(
            at
            for at in range(len(shape))
            if (1,) * (len(shape) - len(batch)) + batch != shape
            and (at < len(shape) - len(batch) or batch[at - len(shape) + len(batch)] != shape[at])
        )
        pulled.append(whole.sum(axis=axes).reshape(np.shape(x)))
    first = None
    for _ in range(3):
        primal, tangent = both.jvp(primals, tangents)
        np.testing.assert_array_equal(primal[0], value[0])
        np.testing.assert_allclose(tangent[0], pushed[..., :2], rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(tangent[1], pushed[..., 2], rtol=1e-12, atol=1e-13)
        returned, pullback = both.vjp(*primals)
        again, found = both.value_and_vjp(tuple(primals), cotangents)
        for ours in (found, pullback(*cotangents), pullback(cotangents)):
            for x, wanted in zip(ours, pulled, strict=True):
                assert np.shape(x) == wanted.shape
                np.testing.assert_allclose(x, wanted, rtol=1e-11, atol=1e-12)
        np.testing.assert_array_equal(again[0], returned[0])
        # Results of earlier calls stay as they are.
        first = first or (found[0], found[0].copy())
        np.testing.assert_array_equal(*first)


def test_variables_of_the_graph():
    given = [np.random.default_rng(1).standard_normal(shape) for shape in ((4, 3), (3, 2))]

    def loss(v: Any, M: Any) -> Any:  # noqa: N803
        product, sine = both(v, M, 2.0)
        return (product**2).sum() + sine.sum()

    gradients = graph.vjp(loss, *given)[1](1.0)
    product = reference(*given, 2.0)[0]
    wanted_v = 4 * product @ given[1].T
    wanted_v[:, 0] += 2 * np.cos(given[0][:, 0])
    np.testing.assert_allclose(gradients[0], wanted_v, rtol=1e-12)
    np.testing.assert_allclose(gradients[1], 4 * given[0].T @ product, rtol=1e-12)


def test_tensors():
    torch = pytest.importorskip("torch")
    v, M = torch.randn(4, 3, dtype=torch.float64, requires_grad=True), torch.randn(3, 2, dtype=torch.float64)  # noqa: N806
    product, sine = both(v, M, 2.0)
    assert product.shape == (4, 2)
    (product.sum() + sine.sum()).backward()
    wanted = 2 * M.sum(1).repeat(4, 1)
    wanted[:, 0] += 2 * torch.cos(v[:, 0].detach())
    np.testing.assert_allclose(v.grad, wanted, rtol=1e-12)
    assert both.jacobian(v.detach(), M, 2.0)[0, "v"].shape == (4, 2, 3)


def test_arrays_of_jax():
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    v, M = jax.numpy.arange(12.0).reshape(4, 3), jax.numpy.ones((3, 2))  # noqa: N806
    compiled = jax.jit(lambda v, M: both(v, M, 2.0)[0].sum())  # noqa: N803
    np.testing.assert_allclose(jax.grad(compiled)(v, M), np.full((4, 3), 4.0))
