"""Calls on Dask arrays: lazy, one kernel for each chunk, and the numbers of the same call on NumPy's arrays."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import models
import numpy as np
import pytest
from corpus import CORPUS, Case
from corpus_calls import arrays
from fake_cupy import FakeCuPy, cupy  # noqa: F401
from suites import sampled

import dualbcast
from dualbcast import differentiable_broadcast
from dualbcast.errors import (
    ArgumentError,
    BackendError,
    CompileError,
    DTypeError,
    IterationError,
    Location,
    MissingDependencyError,
    ShapeError,
)

pytest.importorskip("dask.array")
import dask
import dask.array
import dask.array.utils
from dask.base import tokenize

from dualbcast.interop.dask_arrays import ChunkCall, DaskAdapter, portable
from dualbcast.ir.traversal import operations_of

da: Any = dask.array
RANDOM = np.random.default_rng(7)
# Rows and columns, and what is broadcast along them.
X, ROW, COLUMN = RANDOM.normal(size=(20, 13)), RANDOM.normal(size=13), RANDOM.normal(size=(20, 1))


@differentiable_broadcast
def scaled(x, w):
    if x > 0:
        return math.tanh(x * w)
    return w * x * x


@differentiable_broadcast
def several(x, w, b):
    """Two floats, an integer, and a float that does not depend on x."""
    y = math.tanh(x * w + b)
    return y, 2.0 * y * x, 1 if x > b else 0, 3.0 * b


def same(found: Any, wanted: Any, rtol: float = 1e-13) -> None:
    """One array, by Dask's own checker: values, dtype, shape, chunks, and that the graph is well made."""
    assert isinstance(found, da.Array)
    # A kernel's last bits may differ with the place of an element in a row.
    dask.array.utils.assert_eq(found, wanted, rtol=rtol, atol=rtol)


def of(array: Any, chunks: Any) -> Any:
    return da.from_array(array, chunks=chunks)


class Reads:
    """A Dask array whose chunks are counted when they are read."""

    def __init__(self, array: np.ndarray, chunks: Any) -> None:
        self.count = 0

        def block(ready: np.ndarray) -> np.ndarray:
            self.count += 1
            return ready

        self.array = of(array, chunks).map_blocks(block, dtype=array.dtype, meta=np.empty((0,) * array.ndim))


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of elements of each kernel that runs."""
    ran: list[int] = []
    run = ChunkCall.__call__

    def counted(self: ChunkCall, *values: Any) -> Any:
        ran.append(math.prod(np.broadcast_shapes(*map(np.shape, values))))
        return run(self, *values)

    monkeypatch.setattr(ChunkCall, "__call__", counted)
    with dask.config.set(scheduler="synchronous"):
        yield ran


# --- the corpus -------------------------------------------------------------------------------------------------------


ROWS = [(case, ("float64", "float32")[at % 2]) for at, case in enumerate(CORPUS)]


@pytest.mark.parametrize("row", sampled(ROWS, 21), ids=lambda row: f"{row[0].name}-{row[1]}")
def test_every_function_of_the_corpus_gives_the_numbers_of_numpys_call(row: tuple[Case, str]) -> None:
    case, dtype = row
    function = differentiable_broadcast(case.function)
    whole = [np.resize(array, (4, 3)) for array in arrays(case, dtype)]
    chunked = [of(array, (3, 2)) for array in whole]
    rtol = {"float64": 1e-12, "float32": 1e-4}[dtype]
    names, count = function.jacobian(*whole).wrt, function.jacobian(*whole).outputs
    value, jacobian = function.value_and_jacobian(*chunked)
    wanted, blocks = function.value_and_jacobian(*whole)
    structure = jacobian.structure
    pairs = [*zip(structure.flatten(value), structure.flatten(wanted), strict=True)]
    pairs += [(jacobian[output, name], blocks[output, name]) for output in range(count) for name in names]
    if names:
        cotangents = [RANDOM.normal(size=(4, 3)) for _ in range(count)]
        pullback, wanted_pullback = function.vjp(*chunked)[1], function.vjp(*whole)[1]
        pairs += zip(pullback(*cotangents), wanted_pullback(*cotangents), strict=True)
        tangents = {name: RANDOM.normal(size=(4, 3)) for name in names}
        pushed, wanted_pushed = function.jvp(chunked, tangents)[1], function.jvp(whole, tangents)[1]
        pairs += zip(structure.flatten(pushed), structure.flatten(wanted_pushed), strict=True)
    with dask.config.set(scheduler="synchronous"):
        for found, expected in pairs:
            same(found, expected, rtol)


# --- laziness ---------------------------------------------------------------------------------------------------------


def products(x: Any, w: Any, b: Any, one: Any, half: Any) -> Iterator[Any]:
    """The outputs of all products, with two cotangents that are the same number everywhere."""
    yield from several(x, w, b)
    value, jacobian = several.value_and_jacobian(x, w, b)
    yield from (*value, *[jacobian[i, name] for i in range(4) for name in ("x", "w", "b")])
    yield from [several.jacobian(x, w, b)[i, "x"] for i in range(4)]
    yield from [part for parts in several.jvp((x, w, b), (x, None, 1.0)) for part in parts]
    value, pullback = several.vjp(x, w, b)
    yield from (*value, *pullback(one, x, None, half))
    value, gradients = several.value_and_vjp((x, w, b), (one, x, None, half))
    yield from (*value, *gradients)
    value, jacobian, hessian = several.value_jacobian_and_hessian(x, w, b)
    yield from (*value, *[hessian[i, p, q] for i in range(4) for p in ("x", "w") for q in ("x", "b")])
    yield from [several.hvp((x, w, b), (x, None, None), wrt=("x", "w", "b"))[1, name] for name in ("x", "w", "b")]
    yield from (jacobian.stacked(1), hessian.stacked(0), jacobian.pushforward(x, w, b)[0])
    yield from jacobian.pullback(x, x, x, x)
    yield scaled.partial("w")(x, w)


def test_nothing_is_computed_at_a_call_and_all_is_known_of_the_results(kernels: list[int]) -> None:
    reads = Reads(X, (6, 5))
    found = list(products(reads.array, ROW, COLUMN, 1.0, 0.5))
    assert reads.count == 0 and kernels == []
    wanted = list(products(X, ROW, COLUMN, np.ones(X.shape), np.full(X.shape, 0.5)))
    assert len(found) == len(wanted)
    for lazy, array in zip(found, wanted, strict=True):
        assert isinstance(lazy, da.Array) and type(lazy._meta) is np.ndarray
        assert (lazy.shape, lazy.dtype, lazy._meta.dtype) == (array.shape, array.dtype, array.dtype)
        if array.shape == X.shape:
            assert lazy.chunks == reads.array.chunks
        same(lazy, array, 1e-12)
    assert reads.count > 0


def test_errors_come_at_the_call() -> None:
    x = of(X, 5)
    with pytest.raises(ShapeError, match=r"do not broadcast together: x \(20, 13\), w \(12,\)"):
        scaled(x, np.ones(12))
    with pytest.raises(DTypeError, match="x has dtype object, which is not supported"):
        scaled(x.astype(object), ROW)
    with pytest.raises(ArgumentError, match=r"x has chunks of type numpy\.MaskedArray.* Pass x\.map_blocks"):
        scaled(da.ma.masked_array(x, x > 0), ROW)
    with pytest.raises(ArgumentError, match=r"out= takes arrays of NumPy's and CuPy's.*Dask"):
        scaled(x, ROW, out=X)
    with pytest.raises(BackendError, match="cuda backend cannot use NumPy arrays"):
        differentiable_broadcast(lambda x: x, backend="cuda")(x)
    with pytest.raises(ShapeError, match=r"cotangent has shape \(13,\); it must have that of the output, \(20, 13\)"):
        scaled.vjp(x, ROW)[1](ROW)
    with pytest.raises(ShapeError, match=r"tangent of w has shape \(20, 13\)"):
        scaled.jvp((x, ROW), (None, x))
    with pytest.raises(ArgumentError, match=r"x is a dask\.array\.Array and w is a pandas\.Series"):
        scaled(x, pytest.importorskip("pandas").Series(ROW))


def test_explain_is_of_the_kernel_of_the_largest_chunk() -> None:
    assert scaled.explain(of(X, (6, 5)), ROW, product="value").shape == (6, 5)
    with pytest.raises(ShapeError, match=r"Call x.compute_chunk_sizes\(\) first"):
        scaled.explain(of(X, (6, 5))[of(X[:, 0], 6) > 0], 2.0)


# --- one kernel a chunk -----------------------------------------------------------------------------------------------


def test_a_chunk_is_read_once_and_one_kernel_gives_all_outputs_of_it(kernels: list[int]) -> None:
    reads = Reads(X, (6, 5))
    (y, z, n, s), jacobian = several.value_and_jacobian(reads.array, ROW, COLUMN)
    outputs = [y, z, n, s, *[jacobian[i, name] for i in range(4) for name in ("x", "w", "b")]]
    dask.compute(*outputs)
    assert reads.count == len(kernels) == 4 * 3
    assert sum(kernels) == X.size
    kernels.clear()
    dask.compute(jacobian[0, "x"].sum())  # one output alone
    assert len(kernels) == 4 * 3
    kernels.clear()
    dask.compute(y[:6, 5:7])  # chunks that are not needed are not computed
    assert kernels == [6 * 5]


def test_value_and_gradient_of_a_sum_take_one_pass(kernels: list[int]) -> None:
    reads, w = Reads(X, (6, 5)), np.array(0.7)
    value, (gradient,) = scaled.value_and_vjp((reads.array, w), 1.0, wrt="w")
    total, slope = dask.compute(value.sum(), gradient)
    assert reads.count == len(kernels) == 4 * 3
    step = 1e-6
    assert total == pytest.approx(scaled(X, w).sum(), rel=1e-14)
    differences = (scaled(X, w + step).sum() - scaled(X, w - step).sum()) / (2 * step)
    assert slope == pytest.approx(differences, rel=1e-8)


def test_a_cotangent_that_depends_on_the_value_reads_chunks_once_too() -> None:
    reads = Reads(X, (6, 5))
    with dask.config.set(scheduler="synchronous"):
        value, pullback = scaled.vjp(reads.array, ROW, wrt="w")
        loss, (gradient,) = dask.compute((value * value).sum(), pullback(2 * value))
    assert reads.count == 4 * 3
    y, jacobian = scaled.value_and_jacobian(X, ROW)
    assert loss == pytest.approx((y * y).sum())
    np.testing.assert_allclose(gradient, (2 * y * jacobian["w"]).sum(axis=0), rtol=1e-12)


def layers(array: Any) -> set[str]:
    return {name.rpartition("-")[0] for name in array.__dask_graph__().layers}


def test_broadcast_arguments_are_read_as_they_are() -> None:
    row, column, number = Reads(ROW, 5), Reads(COLUMN, (6, 1)), of(np.array(2.0), ())
    y = several(of(X, (6, 5)), row.array, column.array * number)[0]
    assert not any("rechunk" in name or "broadcast" in name for name in layers(y))
    same(y, several(X, ROW, COLUMN * 2)[0])


CHUNKS: dict[str, tuple[Any, Any]] = {
    "other": ((6, 5), (7, 13)),
    "whole": ((20, 13), (3, 2)),
    "ragged": (((1, 19), (5, 4, 4)), ((10, 10), (13,))),
}


@pytest.mark.parametrize("chunks", CHUNKS)
def test_arrays_of_other_chunks_are_unified_as_dasks_operations_do(chunks: str) -> None:
    x, w = (of(each, own) for each, own in zip((X, 2 * X), CHUNKS[chunks], strict=True))
    y = scaled(x, w)
    assert y.chunks == (x + w).chunks
    same(y, scaled(X, 2 * X))
    same(scaled.vjp(x, w)[1](x)[1], scaled.vjp(X, 2 * X)[1](X)[1])


def test_numpys_arrays_and_numbers_stand_beside_dasks() -> None:
    x, single = of(X, (6, 5)), X.astype(np.float32)
    for w in (X, ROW, COLUMN, np.array(1.5), np.float32(1.5), np.float64(1.5), 1.5, 2, True, [1.5] * 13):
        same(scaled(x, w), scaled(X, w))
        same(scaled(of(single, 6), w), scaled(single, w), 1e-6)
    y = scaled(x, 2 * X)
    assert y.chunks == x.chunks
    # NumPy's array is cut to the chunks, so that no task gets all of it.
    graph = y.__dask_graph__()
    pieces = [piece for name in graph.layers if name.startswith("array-") for piece in graph.layers[name].values()]
    assert sorted(each.size for each in pieces if type(each) is np.ndarray) == sorted(
        2 * [rows * columns for rows in x.chunks[0] for columns in x.chunks[1]]
    )
    changed = X.copy()
    y = scaled(x, changed)
    changed[:] = np.nan
    same(y, scaled(X, X))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", ">f8", "int32", "bool"])
def test_dtypes_are_those_of_numpys_call(dtype: str) -> None:
    if dtype == "bfloat16":
        import ml_dtypes

        array = X.astype(ml_dtypes.bfloat16)
    else:
        array = X.astype(dtype)
    x = of(array, (6, 5))
    y, wanted = scaled(x, 2.0), scaled(array, 2.0)
    assert y.dtype == wanted.dtype and y.compute().dtype == wanted.dtype
    np.testing.assert_allclose(y.compute().astype(float), wanted.astype(float), rtol=1e-3)
    if array.dtype.kind in "fV":
        (g,), (w,) = (
            scaled.vjp(x, 2.0, wrt="w")[1](1.0),
            scaled.vjp(array, 2.0, wrt="w")[1](np.ones(X.shape, array.dtype)),
        )
        assert g.dtype == np.asarray(w).dtype and g.compute().dtype == g.dtype
        np.testing.assert_allclose(float(g.compute()), float(w), rtol=2e-2 if array.dtype.itemsize == 2 else 1e-5)


def test_arrays_of_no_dimension_and_of_no_element() -> None:
    number, empty = np.array(0.3), np.ones((0, 13))
    same(scaled(of(number, ()), 2.0), scaled(0.3, 2.0))
    same(scaled.vjp(of(number, ()), of(number, ()))[1](1.0)[0], scaled.vjp(number, number)[1](np.array(1.0))[0])
    x = of(empty, (5, 5))
    same(scaled(x, ROW), scaled(empty, ROW))
    found, wanted = scaled.vjp(x, ROW)[1](1.0), scaled.vjp(empty, ROW)[1](empty)
    same(found[0], wanted[0])
    same(found[1], wanted[1])
    same(scaled.value_and_jacobian(x, 1.0)[1]["w"], empty)


def test_lengths_that_are_not_known() -> None:
    chosen = X[:, 0] > 0
    x = of(X, (6, 5))[of(X[:, 0], 6) > 0]
    assert math.isnan(x.shape[0])
    known = X[chosen]
    jacobian, wanted_jacobian = scaled.jacobian(x, ROW), scaled.jacobian(known, ROW)
    for found, wanted in [
        (scaled(x, ROW), scaled(known, ROW)),
        (scaled(x, x), scaled(known, known)),
        (scaled(x, 2.0), scaled(known, 2.0)),
        (jacobian["w"], wanted_jacobian["w"]),
        (jacobian.pushforward(x, 1.0), wanted_jacobian.pushforward(known, 1.0)),
        (scaled.jvp((x, ROW), (x, None))[1], scaled.jvp((known, ROW), (known, None))[1]),
        *zip(scaled.vjp(x, ROW)[1](x), scaled.vjp(known, ROW)[1](known), strict=True),
    ]:
        same(found, wanted, 1e-12)
    with pytest.raises(ShapeError, match="unknown"):
        scaled(x, of(X[:, 1:2], (10, 1))[of(X[:, 0], 10) > 0])
    # One element is broadcast, which the graph does not know: the sum would have the wrong shape.
    one = of(X[:1], (1, 13))[of(np.array([True]), 1)]
    whole = of(X, (20, 13))[of(np.ones(20, bool), 20)]
    with pytest.raises(ShapeError, match=r"a chunk of w has shape \(1, 13\) .* compute_chunk_sizes"):
        scaled.vjp(whole, one)[1](1.0)[1].compute()


# --- sums -------------------------------------------------------------------------------------------------------------


def test_sums_are_trees() -> None:
    long = RANDOM.normal(size=(64, 5))
    x, w = of(long, (1, 5)), np.arange(1.0, 6.0)
    for argument in (w, w[None], np.array(2.0), of(w, 2)):
        (cotangent,) = scaled.vjp(x, argument, wrt="w")[1](x)
        graph = cotangent.__dask_graph__()
        most = max(len(keys) for keys in graph.get_all_dependencies().values())
        assert most <= 8  # and not 64
        (wanted,) = scaled.vjp(long, np.asarray(argument), wrt="w")[1](long)
        same(cotangent, wanted)
    with dask.config.set({"split_every": 2}):
        (cotangent,) = scaled.vjp(x, w, wrt="w")[1](x)
        assert sum("sum-aggregate" in name or "sum-partial" in name for name in cotangent.__dask_graph__().layers) >= 5


def test_sums_have_the_same_bits_however_tasks_run() -> None:
    long = RANDOM.normal(size=(500, 40)).astype(np.float32)
    x, w = of(long, (7, 11)), RANDOM.normal(size=40).astype(np.float32)
    (cotangent,) = scaled.vjp(x, w, wrt="w")[1](1.0)
    first = cotangent.compute(scheduler="synchronous").tobytes()
    for _ in range(10):
        assert cotangent.compute(scheduler="threads", num_workers=4).tobytes() == first
    jacobian = scaled.jacobian(long.astype(float), w.astype(float))
    np.testing.assert_allclose(cotangent, jacobian["w"].sum(axis=0), rtol=1e-4, atol=1e-4)


def test_arrays_of_xarray_with_chunks() -> None:
    xr = pytest.importorskip("xarray")
    x = xr.DataArray(of(X, (6, 5)), dims=("t", "s"), coords={"t": np.arange(20.0)})
    w = xr.DataArray(ROW, dims="s")
    value, jacobian = scaled.value_and_jacobian(x, w)
    wanted, blocks = scaled.value_and_jacobian(X, ROW)
    pulled = scaled.vjp(x, w)[1](xr.ones_like(value))
    assert value.coords["t"].size == 20 and value.chunks == x.chunks
    same(value.data, wanted)
    same(jacobian["w"].data, blocks["w"])
    assert pulled[1].dims == ("s",)
    same(pulled[1].data, blocks["w"].sum(axis=0), 1e-12)


def test_a_sum_without_several_chunks_takes_no_further_task() -> None:
    (cotangent,) = scaled.vjp(of(X, (20, 5)), ROW, wrt="w")[1](1.0)
    assert not any("sum" in name for name in layers(cotangent))


# --- the function travels ---------------------------------------------------------------------------------------------


def element_of(function: Any, *values: Any) -> Any:
    return function._dispatch.find(values, {}, None)[0].element


def test_an_element_function_is_small_in_a_pickle_and_made_once() -> None:
    cell = differentiable_broadcast(models.cell_update)
    element = element_of(cell, *[X] * 6).derive("value_and_pullback", (0, 1, 2, 3))
    element.parts((*[X] * 6, X))  # it has kernels now, which stay behind
    content = pickle.dumps(portable(element))
    assert len(content) < 4000
    travelled = pickle.loads(content)
    assert travelled is pickle.loads(content)
    for found, wanted in zip(travelled.parts((*[X] * 6, X)), element.parts((*[X] * 6, X)), strict=True):
        np.testing.assert_array_equal(found, wanted)


KEYS = """
import numpy as np, dask.array as da, math
from dualbcast import differentiable_broadcast
scale, weights = 2.0, np.arange(3.0)
@differentiable_broadcast
def f(x, w):
    return scale * x * w * weights
x = da.from_array(np.ones((4, 3)), chunks=2)
def keys():
    value, J = f.value_and_jacobian(x, 3.0)
    return [value.name, J["x"].name, f.vjp(x, 3.0)[1](1.0)[1].name]
first = keys()
assert keys() == first
print(*first)
scale = 3.0
assert not set(keys()) & set(first)
scale = 2.0
assert keys() == first
weights[1] = 7.0
assert not set(keys()) & set(first)
"""


def test_the_same_call_has_the_same_key_in_every_process(tmp_path: Path) -> None:
    script = tmp_path / "keys.py"
    script.write_text(KEYS)
    environment = {**os.environ, "PYTHONPATH": str(Path(dualbcast.__file__).parents[1])}
    options: dict[str, Any] = {"env": environment, "capture_output": True, "text": True, "check": False}
    runs = [subprocess.run([sys.executable, str(script)], **options) for _ in range(2)]
    assert [run.returncode for run in runs] == [0, 0], runs[0].stderr
    assert runs[0].stdout == runs[1].stdout != ""


def test_another_function_has_another_key() -> None:
    x = of(X, 5)
    calls: list[Callable[[], Any]] = [
        lambda: differentiable_broadcast(lambda x: x * 2.0)(x),
        lambda: differentiable_broadcast(lambda x: x * 3.0)(x),
        lambda: differentiable_broadcast(lambda x: x * 2.0, fastmath=True)(x),
        lambda: differentiable_broadcast(lambda x: x * 2.0)(x.astype(np.float32)),
        lambda: differentiable_broadcast(lambda x, y: x * y)(x, 2.0),
        lambda: differentiable_broadcast(lambda x, y: x * y)(x, 3.0),
        lambda: differentiable_broadcast(lambda x, y: x * y)(x, np.float32(3.0)),
        lambda: differentiable_broadcast(lambda x, y: x * y).vjp(x, 3.0)[1](1.0)[0],
        lambda: differentiable_broadcast(lambda x, y: x * y).vjp(x, 3.0)[1](1.0)[1],
    ]
    names = [call().name for call in calls]
    assert len({*names}) == len(names)
    assert [call().name for call in calls] == names
    assert tokenize(calls[0]()) == tokenize(calls[0]())


def test_sums_over_different_axes_have_different_keys() -> None:
    element = element_of(several, X, ROW, COLUMN)
    dtypes = tuple([each.dtype for each in several(X, ROW, COLUMN)])
    rows, columns = (
        DaskAdapter().parts(element, (of(X, (6, 5)), ROW, COLUMN), dtypes, (shape, shape, None, shape))
        for shape in ((20, 1), (1, 13))
    )
    found = dask.compute(rows[0], rows[1], columns[0], columns[1])
    y, z, *_ = several(X, ROW, COLUMN)
    wanted = [each.sum(axis=axis, keepdims=True) for axis in (1, 0) for each in (y, z)]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def bent(x, width):
    for _ in range(2):
        width = width * 1.5
    return math.sqrt(x * x + width * width)


@pytest.fixture
def own_rules() -> Any:
    """A function of a user's rule, with partials that are not those of its body, and of custom partials."""
    dualbcast.rule("bent", lambda x, width, y: (7.0 * x, 0.0 * width + 0.0 * y), function=bent)
    straight = dualbcast.custom_partials(lambda x, y: (5.0 + 0.0 * x * y,))(lambda x: 1.0 if x > 0.5 else 0.0)

    @differentiable_broadcast
    def f(x, w):
        return bent(x, 1.0) * w + straight(x)

    return f


def check_own_rules(f: Any, **scheduler: Any) -> None:
    x = of(X, (10, 13))
    value, (gradient, total) = f.value_and_vjp((x, 2.0), 1.0)
    value, gradient, total = dask.compute(value, gradient, total, **scheduler)
    np.testing.assert_allclose(value, 2.0 * np.sqrt(X * X + 2.25**2) + (X > 0.5), rtol=1e-13)
    np.testing.assert_allclose(gradient, 14.0 * X + 5.0, rtol=1e-13)
    assert total == pytest.approx(np.sqrt(X * X + 2.25**2).sum())


def test_users_rules_and_custom_partials_hold_in_chunks(own_rules: Any) -> None:
    check_own_rules(own_rules, scheduler="synchronous")
    pullback = element_of(own_rules, X, 2.0).derive("pullback", (0, 1))
    assert any("#" in op.name for op in operations_of(pullback.function))
    assert not any("#" in op.name for op in operations_of(portable(pullback).function))


def test_users_rules_hold_in_a_process_that_does_not_have_them(own_rules: Any) -> None:
    check_own_rules(own_rules, scheduler="processes", num_workers=1)


def test_errors_are_the_same_after_a_pickle() -> None:
    where = Location(__file__, 1, 0, 1, 3)
    for error in (
        IterationError("f", 3, (1, 2), 4, where),
        CompileError("no", where, "yes", (("g", where),)),
        MissingDependencyError("a", "b", "c"),
        ShapeError("shape"),
    ):
        error.add_note("a note")
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)
        assert again.args == error.args and again.__notes__ == ["a note"]


def newton(x):
    while abs(x * x - 2.0) > 1e-9:
        x = x - 0.01 * (x * x - 2.0)
    return x


def test_an_error_of_a_kernel_comes_from_another_process() -> None:
    f = differentiable_broadcast(newton, max_iterations=50)
    y = f(of(np.full(10, 1.0), 5))
    with pytest.raises(IterationError, match="max_iterations=50") as caught:
        y.compute(scheduler="processes", num_workers=1)
    assert caught.value.index == (0,) and caught.value.count == 5
    assert "The index counts from the beginning of a chunk." in caught.value.__notes__


# --- threads and devices ----------------------------------------------------------------------------------------------


def test_kernels_of_chunks_run_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    from dualbcast.program.element import Element

    seen: list[int] = []
    run = Element.parts
    monkeypatch.setattr(
        Element, "parts", lambda self, *rest: seen.append(dualbcast.get_num_threads()) or run(self, *rest)
    )
    y = scaled(of(X, (6, 5)), ROW)
    seen.clear()
    with dualbcast.num_threads(2):
        y.compute(scheduler="synchronous")
        assert dualbcast.get_num_threads() == 2
    assert seen == [1] * 12


def test_many_threads_give_the_same_bits() -> None:
    long = RANDOM.normal(size=(300, 50))
    outputs = several.value_and_vjp((of(long, (10, 50)), 2.0, 1.0), (1.0, 1.0, None, 1.0))
    flat = [*outputs[0], *outputs[1]]
    wanted = [each.tobytes() for each in dask.compute(*flat, scheduler="synchronous")]
    for _ in range(5):
        found = dask.compute(*flat, scheduler="threads", num_workers=8)
        assert [each.tobytes() for each in found] == wanted


@pytest.mark.cuda_compilers
def test_chunks_on_a_gpu(cupy: FakeCuPy) -> None:  # noqa: F811
    """With CuPy's stand-in, whose kernels do nothing: which are launched, and on what."""
    array = cupy.ndarray(X.shape)
    array[:] = X
    x = da.from_array(array, chunks=(10, 13), asarray=False)
    value, jacobian = scaled.value_and_jacobian(x, 2.0)
    assert type(value._meta) is cupy.ndarray and value.chunks == x.chunks
    assert cupy.launches == []
    chunks = dask.compute(*value.blocks.ravel(), *jacobian["w"].blocks.ravel(), scheduler="synchronous")
    assert {type(chunk) for chunk in chunks} == {cupy.ndarray}
    assert len(cupy.launches) == 2
    with pytest.raises(ArgumentError, match=r"NumPy array and .* is a CuPy array"):
        scaled(x, ROW)
