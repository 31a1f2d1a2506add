"""Outputs that are sums: every broadcast pattern, exact where the terms are exact, the same bits on any thread count.

Terms are small integers where equality is asked for: their sums are exact in float64, in any order. Elsewhere the sums
are those of `math.fsum`, of terms that NumPy computes.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cpu_kernels import from_library, library_calls
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import finished
from sums import DTYPES, F2, F4, F8, Shape, X, fsum, integers, patterns, reduced, shifted_products

from dualbcast import differentiable_broadcast, num_threads
from dualbcast.codegen.llvm.rows import WHOLE
from dualbcast.errors import ArgumentError
from dualbcast.ir.nodes import Assign, Const, Function, Op, Output, Var
from dualbcast.kernel_spec import TILE
from dualbcast.program.pipeline import kernel_program, kernel_source
from dualbcast.runtime import interpreter
from dualbcast.runtime.arguments import Operands, classify, storage_name
from dualbcast.runtime.cpu import kernel as cpu_kernel
from dualbcast.runtime.cpu import policy, thread_pool
from dualbcast.runtime.cpu.thread_pool import Work
from dualbcast.runtime.iteration_space import form_of, lay_out
from dualbcast.runtime.launch_plan import Plan, plan
from dualbcast.runtime.reduction_blocks import least_of

BACKENDS = pytest.mark.parametrize("backend", ["python", "cpu"])
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def unary(*names: str) -> Function:
    """Output number i is x, after the i-th function."""
    body = [
        Assign(Var(f"t{i}", "float"), Op(name, (X,), "float") if name else Op("add", (X, Const(0.0, "float")), "float"))
        for i, name in enumerate(names)
    ]
    return Function(
        "unary", (X,), tuple(body), tuple(Output(f"out{i}", assign.target) for i, assign in enumerate(body))
    )


def arguments(function: Function, call: Plan, dtypes: list[Any]) -> tuple[Any, ...]:
    """Those of `kernel_program` and `kernel_source`."""
    signature, stored = call.operands.signature, [storage_name(dtype) for dtype in dtypes]
    return function, call.geometry.layout, signature.compute, signature.storages, stored


def execute(function: Function, call: Plan, dtypes: list[Any], backend: str, threads: int = 1) -> tuple[Any, ...]:
    if call.geometry.total:
        given = arguments(function, call, dtypes)
        if backend == "cpu":
            kernel = cpu_kernel.compile_kernel(kernel_program(*given), False)
            cpu_kernel.launch(
                kernel,
                call.geometry.total,
                call.geometry.ints,
                call.pointers,
                threads,
                call.geometry.packing,
                call.geometry.split,
            )
        else:
            arrays = (*call.operands.arrays, *call.targets)
            kernel = interpreter.PythonKernel(kernel_source(*given, "python"))
            kernel.launch(call.geometry.total, call.geometry.ints, arrays, call.geometry.split)
    return finished(call)


def named(*arrays: Any) -> Operands:
    return classify(arrays, tuple("xyz"[: len(arrays)]))


def sums(
    function: Function,
    arrays: tuple[Any, ...],
    shapes: tuple[Shape | None, ...],
    backend: str,
    dtype: Any = None,
    threads: int = 1,
) -> tuple[Any, ...]:
    """What the kernel makes of the arrays; the outputs have the dtype of the first unless one is given."""
    dtypes = [arrays[0].dtype if dtype is None else dtype] * len(shapes)
    found = execute(
        function,
        plan(named(*arrays), dtypes, None, shapes, is_interpreted=backend == "python"),
        dtypes,
        backend,
        threads,
    )
    whole = np.broadcast_shapes(*(array.shape for array in arrays))
    for result, shape in zip(found, shapes, strict=True):
        assert result.shape == (whole if shape is None else shape)
        assert result.dtype == dtypes[0]
    return found


def check_exactly(
    arrays: tuple[Any, ...], shapes: list[Shape], backend: str, dtype: Any = None, threads: int = 1
) -> None:
    """Sums of every shape beside two outputs that are not summed, exact."""
    wanted: tuple[Shape | None, ...] = (None, *shapes, None)
    found = sums(shifted_products(len(wanted)), arrays, wanted, backend, dtype, threads)
    product = arrays[0].astype(np.int64) * arrays[1].astype(np.int64)
    for i, (result, shape) in enumerate(zip(found, wanted, strict=True)):
        terms = product + i
        expected = terms if shape is None else reduced(terms, shape)
        np.testing.assert_array_equal(result, expected.astype(np.float64).astype(result.dtype), err_msg=f"{shape}")


# --- patterns, layouts, sizes ----------------------------------------------------------------------------------------


def count_of_parts(call: Plan) -> int:
    """The number of blocks, or of panels of short rows."""
    geometry = call.geometry
    assert geometry.split is not None
    if geometry.split.blocks:
        return len(geometry.split.blocks)
    assert geometry.packing is not None
    return len(geometry.packing.table())


@BACKENDS
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(5,), (4, 3), (3, 4, 2), (2, 3, 2, 3)])
def test_every_pattern_in_one_kernel(shape, dtype, backend):
    arrays = integers(shape, dtype), integers(shape[-1:], dtype, 1)
    check_exactly(arrays, patterns(shape), backend)


@BACKENDS
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4)])
def test_each_pattern_alone(shape, backend):
    """Alone a pattern coalesces further than among others."""
    arrays = integers(shape, F4), integers(shape, F4, 1)
    for pattern in patterns(shape):
        check_exactly(arrays, [pattern], backend)


VIEWS = {
    "transposed": lambda a: a.transpose(2, 1, 0),
    "reversed": lambda a: a[::-1, :, ::-1],
    "every other": lambda a: np.repeat(np.repeat(a, 2, 0), 3, 2)[::2, :, ::3],
    "swapped inside": lambda a: np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2),
    "read-only, stride 0": lambda a: np.broadcast_to(a[:, :1], a.shape),
}


@BACKENDS
@pytest.mark.parametrize("name", VIEWS)
def test_layouts_of_inputs(name, backend):
    view = VIEWS[name](integers((3, 5, 4), F4))
    check_exactly((view, integers(view.shape[1:], F4, 1)), patterns(view.shape), backend)
    check_exactly((view, VIEWS["reversed"](integers(view.shape, F4, 2))), patterns(view.shape), backend)


@BACKENDS
@pytest.mark.parametrize(
    "shape", [(), (0,), (1,), (1, 1), (7,), (3, 0), (0, 3), (5, 1), (1, 5), (TILE - 1,), (TILE + 1,), (2, 2 * TILE + 3)]
)
def test_sizes(shape, backend):
    check_exactly((integers(shape, F4), integers(shape, F4, 1)), patterns(shape), backend)


@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
@pytest.mark.parametrize("shape", [(1031, 3), (3, 9 * TILE + 5), (100_003,), (257, 521), (3, 130, 257), (130_000, 2)])
def test_sizes_beyond_tiles_panels_and_blocks(shape, dtype):
    check_exactly((integers(shape, dtype), integers(shape[-1:], dtype, 1)), patterns(shape), "cpu", threads=2)
    check_exactly((integers(shape[::-1], dtype).T, integers(shape, dtype, 1)), patterns(shape), "cpu", threads=2)


def test_arrays_and_sums_of_their_own_dtypes():
    """A kernel in float64 may give sums in float16, one in float32 sums in float64."""
    x, y = integers((6, 5), F4), integers((5,), F8, 1)
    for dtype in DTYPES:
        check_exactly((x, y), patterns((6, 5)), "cpu", dtype)
    check_exactly((x, integers((5,), F4, 1)), patterns((6, 5)), "cpu", F8)


def test_terms_of_a_half_are_not_rounded():
    """3000 squares, each nearly half a last place above a float16: rounded at the end alone."""
    x = np.full(3000, 1 + 22 / 1024, F2)
    (total,) = sums(shifted_products(1), (x, x), ((),), "cpu")
    square = (1 + 22 / 1024) ** 2
    assert total == F2.type(3000 * square)
    assert total != F2.type(3000 * float(F2.type(square)))


def test_sums_beside_out():
    x = np.arange(6.0).reshape(2, 3)
    y = np.ones(3)
    dtypes, shapes = [F8] * 2, (None, (3,))
    function = shifted_products(2)
    given = np.empty((2, 3))
    call = plan(named(x, y), dtypes, (given, None), shapes)
    value, total = execute(function, call, dtypes, "cpu")
    assert value is given
    np.testing.assert_array_equal(given, [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(total, [5, 7, 9])
    # Over an input, and reversed: through a temporary.
    call = plan(named(x, y), dtypes, (x[::-1], None), shapes)
    _, total = execute(function, call, dtypes, "cpu")
    np.testing.assert_array_equal(x, [[3, 4, 5], [0, 1, 2]])
    np.testing.assert_array_equal(total, [5, 7, 9])
    with pytest.raises(ArgumentError, match="summed"):
        plan(named(x, y), dtypes, (None, np.empty(3)), shapes)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_patterns(data):
    """On the python backend, which compiles nothing."""
    shape = tuple(data.draw(st.lists(st.integers(0, 5), max_size=4)))
    arrays = []
    for seed in range(2):
        own = tuple(length if data.draw(st.booleans()) else 1 for length in shape)
        axes = data.draw(st.permutations(range(len(shape))))
        array = integers(tuple(own[axis] for axis in axes), F4, seed).transpose(np.argsort(axes).tolist())
        array = array[tuple(slice(None, None, data.draw(st.sampled_from([1, -1]))) for _ in shape)]
        arrays.append(array)
    whole = np.broadcast_shapes(*(array.shape for array in arrays))
    check_exactly(tuple(arrays), data.draw(st.lists(st.sampled_from(patterns(whole)), max_size=4)), "python")


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=3), st.data())
def test_random_sizes(shape, data):
    """On the cpu, with few layouts, since each is a kernel."""
    pattern = data.draw(st.sampled_from([p for p in patterns(tuple(shape)) if len(p) == len(shape)]))
    size = math.prod(shape)
    shape = [*shape[:-1], max(1, shape[-1] * 300_000 // size)] if size > 300_000 else shape
    pattern = tuple(1 if length == 1 else own for length, own in zip(pattern, shape, strict=True))
    arrays = integers(tuple(shape), F4), integers(tuple(shape), F4, 1)
    check_exactly(arrays, [pattern], "cpu", threads=2)


# --- precision, infinities -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
@pytest.mark.parametrize("shape", [(300_001,), (700, 300), (9, 40_000), (40_000, 9)])
def test_real_terms(shape, dtype):
    """The terms are the inputs themselves, so that all of the error is that of the summation."""
    x = np.random.default_rng(3).lognormal(0, 2, shape).astype(dtype)
    wanted = patterns(shape)
    for result, pattern in zip(sums(unary(*[""] * len(wanted)), (x,), tuple(wanted), "cpu"), wanted, strict=True):
        expected = fsum(x.astype(np.float64), pattern)
        # All terms are positive: a float64 sum is wrong by what a tile's lanes lose, far below an ulp of float32.
        bound = 0.5001 if dtype == F4 else 8
        assert (abs(result.astype(np.float64) - expected) <= bound * np.spacing(expected.astype(dtype))).all()


@pytest.mark.parametrize("columns", [40, 3])
@BACKENDS
def test_sums_of_float64_are_compensated(backend, columns):
    """Between the rows, and between blocks or panels: 10^16 and -10^16 with eighths between them, which float64 would
    lose."""
    rows = 50 if backend == "python" else 8000
    x = np.full((rows, columns), 0.125)
    x[0], x[-1] = 1e16, -1e16
    row, total = sums(unary("", ""), (x,), ((columns,), ()), backend)
    np.testing.assert_array_equal(row, np.full(columns, (rows - 2) / 8))
    assert total == columns * (rows - 2) / 8
    if backend == "cpu":
        assert count_of_parts(plan(named(x), [F8], None, ((columns,),))) > 5


@BACKENDS
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_infinities_and_nan(dtype, backend):
    x = np.ones((6, 4), dtype)
    x[1, 0], x[1, 1], x[4, 1], x[2, 2] = np.inf, np.inf, -np.inf, np.nan
    row, column, total = sums(unary("", "", ""), (x,), ((4,), (6, 1), ()), backend)
    np.testing.assert_array_equal(row.astype(float), [np.inf, np.nan, np.nan, 6])
    np.testing.assert_array_equal(column[:, 0].astype(float), [4, np.inf, np.nan, 4, -np.inf, 4])
    assert np.isnan(total)
    x[4, 1], x[2, 2] = 1, 1
    assert sums(unary(""), (x,), ((),), backend)[0] == np.inf


@pytest.mark.parametrize("shape", [(3 << 16,), (320, 300)])
def test_infinities_in_one_of_many_blocks(shape):
    x = np.ones(shape)
    x.flat[12345] = -np.inf
    assert sums(unary(""), (x,), ((),), "cpu")[0] == -np.inf
    row = sums(unary(""), (x.reshape(-1, 64),), ((64,),), "cpu")[0]
    np.testing.assert_array_equal(row, np.where(np.arange(64) == 12345 % 64, -np.inf, x.size // 64))


@pytest.mark.parametrize("dtype", [F2, F4], ids=str)
def test_a_sum_beyond_the_dtype_is_infinite_without_a_warning(dtype):
    x = np.full((3, 4), np.finfo(dtype).max)
    np.testing.assert_array_equal(sums(unary(""), (x,), ((4,),), "cpu")[0], np.full(4, np.inf))
    # It may pass through what the dtype does not hold.
    x[1] = -x[0]
    np.testing.assert_array_equal(sums(unary(""), (x,), ((4,),), "cpu")[0], x[0])


@pytest.mark.slow
def test_hundred_million_terms():
    """Ones and noise in float32, summed for an argument that is a scalar."""
    x = 1 + np.random.default_rng(9).standard_normal(10**8, np.float32) / 4
    y = np.float32(1)
    call = [sums(shifted_products(1), (x, np.asarray(y)), ((),), "cpu", threads=threads)[0] for threads in (1, 2)]
    expected = math.fsum(math.fsum(part) for part in np.array_split(x, 1000))
    assert abs(float(call[0]) - expected) <= 2 * np.spacing(np.float32(expected))
    assert call[0] == call[1]


# --- rows that are long along another axis than the last -----------------------------------------------------------


@BACKENDS
@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((12, 1, 3), (1, 130, 3)),  # pairs of points
        ((12, 130, 1), (130, 3)),
        ((2, 9, 1, 3), (2, 1, 110, 3)),
        ((1400, 1), (1, 3)),
        ((5, 1, 31), (1, 100, 31)),
        ((200, 1, 3), (1, 16, 3)),
    ],
)
def test_sums_of_what_no_input_has_in_full(first, second, dtype, backend):
    x, y = integers(first, dtype), integers(second, dtype, 1)
    shape = np.broadcast_shapes(first, second)
    assert plan(named(x, y), [dtype], None, ((*shape[:-1], 1),)).geometry.sizes[-1] == shape[-2]
    wanted = [own for own in patterns(shape) if math.prod(own) < math.prod(shape)]
    product = x.astype(np.int64) * y.astype(np.int64)
    found = sums(shifted_products(len(wanted)), (x, y), tuple(wanted), backend)
    for i, (result, own) in enumerate(zip(found, wanted, strict=True)):
        np.testing.assert_array_equal(result, reduced(product + i, own), err_msg=f"{own}")


def test_rows_stay_short_where_an_input_or_an_output_has_all_axes():
    x, y, full = (np.zeros(shape) for shape in ((12, 1, 3), (130, 3), (12, 130, 3)))
    pairs, rows = (12, 130, 1), (12, 1, 3)
    for arrays, shapes in (((x, full), (pairs,)), ((x, y), (None, pairs)), ((x, y), (rows, full.shape))):
        order = plan(named(*arrays), [F8] * len(shapes), None, shapes).geometry.order
        assert order is None, shapes
    assert plan(named(x, y), [F8], None, (pairs,)).geometry.order == (0, 2, 1)


@pytest.mark.parametrize(("columns", "length"), [(24, 24), (32, 8), (300, 32)])
def test_rows_that_are_not_very_short_stay_so_unless_sums_are_over_columns(columns, length):
    x, y = np.zeros((100, 1, length)), np.zeros((columns, length))
    for shapes in (((100, columns, 1),), ((columns, length),), ((100, 1, 1), (columns, 1))):
        assert plan(named(x, y), [F8] * len(shapes), None, shapes).geometry.order is None
    for shapes in (((100, 1, length),), ((columns, length), (length,))):
        assert plan(named(x, y), [F8] * len(shapes), None, shapes).geometry.order == (0, 2, 1)


# --- the size of blocks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("work", "least"), [(0.0, 1 << 15), (1.0, 1 << 15), (256.0, 1 << 15), (257.0, 1 << 14), (7e3, 1 << 10), (1e9, TILE)]
)
def test_blocks_of_what_takes_long_have_fewer_elements(work, least):
    assert least_of(work) == least
    x = np.ones(1 << 17)
    split = plan(named(x), [F8], None, ((),), work).geometry.split
    assert split is not None
    assert len(split.blocks) == min(64, x.size // least)


@differentiable_broadcast
def long_way(x: float, y: float) -> float:
    for _ in range(200):
        x = math.sin(x) * y + 0.3
    return x


def test_sums_of_few_elements_that_take_long_are_shared(monkeypatch):
    monkeypatch.setattr(policy, "THREAD_NS", 0)
    x, bar = np.random.default_rng(9).uniform(-1, 1, (2, 10_000))
    ran = []
    share = thread_pool.share
    monkeypatch.setattr(thread_pool, "share", lambda work, threads: (ran.append(work.count), share(work, threads))[1])
    (_, (each, whole)), others = long_way.value_and_vjp((x, np.float64(0.7)), bar), []
    for threads in (1, 3):
        with num_threads(threads):
            others.append(long_way.value_and_vjp((x, np.float64(0.7)), bar)[1])
    assert max(ran) >= 8
    np.testing.assert_array_equal([own[1] for own in others], whole)
    # The derivatives, of the recurrence as it stands, in plain Python.
    state, dx, dy = x.copy(), np.ones_like(x), np.zeros_like(x)
    for _ in range(200):
        slope = 0.7 * np.cos(state)
        state, dx, dy = np.sin(state) * 0.7 + 0.3, slope * dx, slope * dy + np.sin(state)
    np.testing.assert_allclose(each, bar * dx, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(whole, math.fsum(bar * dy), rtol=1e-12)


# --- the same bits, whatever runs the blocks ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
@pytest.mark.parametrize("shape", [(500_009,), (900, 700), (3, 150_001), (150_001, 3), (70, 80, 90)])
def test_threads_do_not_change_a_bit(shape, dtype, monkeypatch):
    monkeypatch.setattr(policy, "THREAD_NS", 0)
    x = np.random.default_rng(6).standard_normal(shape).astype(dtype)
    y = np.random.default_rng(7).standard_normal(shape[-1]).astype(dtype)
    wanted = (None, *patterns(shape))
    function = shifted_products(len(wanted))
    assert count_of_parts(plan(named(x, y), [dtype] * len(wanted), None, wanted)) > 4
    first = sums(function, (x, y), wanted, "cpu", threads=1)
    for threads in (2, 5):
        for a, b in zip(first, sums(function, (x, y), wanted, "cpu", threads=threads), strict=True):
            np.testing.assert_array_equal(a, b)
    run = thread_pool.run

    def backwards(work: Work, _threads: int) -> float:
        arguments = work.arguments.reshape(work.count, -1)[::-1].reshape(-1)
        return run(replace(work, arguments=arguments))

    monkeypatch.setattr(thread_pool, "run", backwards)
    for a, b in zip(first, sums(function, (x, y), wanted, "cpu", threads=2), strict=True):
        np.testing.assert_array_equal(a, b)


def test_threads_do_not_change_a_bit_of_pairs(monkeypatch):
    monkeypatch.setattr(policy, "THREAD_NS", 0)
    random = np.random.default_rng(8)
    x, y = random.standard_normal((500, 1, 3)), random.standard_normal((400, 3))
    wanted = ((500, 400, 1), (500, 1, 3), (400, 3), ())
    function = shifted_products(len(wanted))
    first = sums(function, (x, y), wanted, "cpu", threads=1)
    for threads in (2, 5):
        for a, b in zip(first, sums(function, (x, y), wanted, "cpu", threads=threads), strict=True):
            np.testing.assert_array_equal(a, b)


@given(st.lists(st.integers(2, 3000), min_size=1, max_size=4), st.data())
def test_blocks(lengths, data):
    """They cover the space once, follow from sizes alone, and their copies take no more memory than a few arrays."""
    shape = tuple(lengths)
    whole = np.broadcast_to(np.float32(0), shape)  # walked in C order, never touched
    wanted = tuple(data.draw(st.lists(st.sampled_from(patterns(shape)), min_size=1, max_size=5)))
    call = lay_out((form_of(whole),), (None,) * len(wanted), ("x",), wanted)
    parts = call.split
    if parts is None:
        assert all(math.prod(pattern) == math.prod(shape) for pattern in wanted)
        return
    if call.packing is not None:  # short rows, of which each panel has sums
        panels = call.packing.table()
        starts, stops = panels[:, 0], panels[:, 0] + panels[:, 2] * panels[:, 3]
        assert starts[0] == 0 and stops[-1] == call.total and (starts[1:] == stops[:-1]).all()
        for s, pattern in zip(parts.sums, wanted, strict=True):
            if s is not None:
                assert s.size == math.prod(pattern) and s.copies in (1, len(panels))
                assert s.copies * s.size <= call.total
        return
    (cut,) = {
        dimension
        for block in parts.blocks
        for dimension, size in enumerate(call.sizes)
        if block.ints[dimension] != size
    } or {0}
    assert sum(block.ints[cut] for block in parts.blocks) == call.sizes[cut]
    assert all(block.ints[cut] > 0 for block in parts.blocks)
    assert len(parts.blocks) <= 64
    if cut == call.layout.rank - 1:
        assert all(block.ints[cut] % TILE == 0 for block in parts.blocks[:-1])
    for s, pattern in zip(parts.sums, wanted, strict=True):
        if s is not None:
            assert s.size == math.prod(pattern)
            assert s.copies in (1, len(parts.blocks))
            assert s.copies * s.size <= call.total
    if call.total >= 64 << 15 and max(call.sizes[:-1], default=0) >= 16:
        assert len(parts.blocks) >= 16


def test_blocks_where_they_cost_least():
    """Of sums along rows there is a copy for each block, unless the rows are cut."""
    tall = np.broadcast_to(np.float32(0), (100_000, 100))
    wide = np.broadcast_to(np.float32(0), (20, 500_000))
    for array in (tall, wide):
        parts = plan(named(array), [F4] * 2, None, (array.shape[1:], (array.shape[0], 1))).geometry.split
        along, down = parts.sums
        assert (along.copies == 1) == (array is wide)
        assert (down.copies == 1) == (array is tall)
        assert len(parts.blocks) == 64


# --- the code --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "kind"), [(F4, "float"), (F8, "double")], ids=str)
def test_the_loops_are_vectorised(dtype, kind):
    x = np.ones((8, 3000), dtype)
    call = plan(named(x), [dtype] * 4, None, (None, (3000,), (8, 1), ()))
    program = kernel_program(*arguments(unary("tanh", "tanh", "tanh", "tanh"), call, [dtype] * 4))
    llvm = cpu_kernel.compile_kernel(program, False).llvm()
    # Of the loop over a row what takes whole vectors, where it is apart.
    whole = llvm[llvm.find(f"@{WHOLE}(") + 1 :]
    whole = whole[whole.find(f"@{WHOLE}(") :]
    assert "@llvm.masked." not in whole.partition("\n}")[0]
    assert re.search(rf"store <\d+ x {kind}>", whole)
    assert re.search(r"fadd <\d+ x double>", llvm)  # a row of terms to a row of sums
    assert re.search(r"fadd reassoc <\d+ x double>", llvm)  # the sum of a row
    assert library_calls(llvm) == from_library("tanh")


@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
def test_sums_over_rows_stay_in_registers(dtype):
    """Where all outputs are sums of float64; no loop over terms is left. In float32 that is no faster."""
    x = np.ones((8, 3000), dtype)
    call = plan(named(x), [dtype] * 2, None, ((8, 1), ()))
    llvm = cpu_kernel.compile_kernel(kernel_program(*arguments(unary("tanh", "sin"), call, [dtype] * 2)), False).llvm()
    whole = llvm[llvm.find(f"@{WHOLE}(") + 1 :]
    whole = whole[whole.find(f"@{WHOLE}(") :].partition("\n}")[0]
    is_in_registers = len(re.findall(r"phi <\d+ x double>", whole)) >= 2 and "fadd reassoc" not in llvm
    assert is_in_registers == (dtype == F8)


def test_terms_of_many_sums_stay_small():
    x = np.ones((4, 3), np.float64)
    wanted = ((3,),) * 9
    call = plan(named(x, x), [F8] * 9, None, wanted)
    program = kernel_program(*arguments(shifted_products(9), call, [F8] * 9))
    llvm = cpu_kernel.compile_kernel(program, False).llvm()
    assert llvm.count("= alloca [128 x double]") == 9
    assert "[1024 x double]" not in llvm
    check_exactly((integers((7, 1500), F8), integers((7, 1500), F8, 1)), [(1500,), (7, 1), ()] * 3, "cpu")
