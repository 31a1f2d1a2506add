"""The loops of `codegen.loops`, each compiled and called by itself, against NumPy."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dualbcast.codegen.loops import packing, places_of, thread_pool
from dualbcast.codegen.loops.calls import write_call, write_scatter_add
from dualbcast.runtime.cpu.loader import compiled

WORDS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}


def function(write: Callable[..., Any], name: str, *parameters: Any, optimise: bool = True) -> Callable[..., int]:
    """A function of integers and of arrays, whose addresses it takes."""
    return at_address(compiled(name, write, *parameters, optimise=optimise))


def at_address(address: int) -> Callable[..., int]:
    def call(*given: Any) -> int:
        numbers = [each.ctypes.data if isinstance(each, np.ndarray) else int(each) for each in given]
        return int(ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(numbers))(address)(*numbers))

    return call


def status(number: int) -> int:
    """The lower half of a result, which is all that a function of 32 bits gives."""
    return ctypes.c_int32(number).value


def integers(shape: Any, dtype: str) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 250, shape).astype(dtype)


# --- the language ----------------------------------------------------------------------------------------------------


def write_arithmetic(module: Any) -> Any:
    f = module.function("arithmetic", ["int64", "int64", "*int64"])
    a, b, to = f.parameters
    numbers = [a + b, a - b, a * b, a // b, 100 // b, a % b, a & b, a | b, a << 3, a >> 3, a.at_most(b)]
    numbers += [test.choose(a, b) for test in (a < b, a > b, a == b, a != b)]
    for at, number in enumerate(numbers):
        to[at] = number
    f.return_()
    return f


@pytest.mark.parametrize(("a", "b"), [(40, 7), (7, 40), (9, 9)])
def test_operators_are_those_of_python(a: int, b: int) -> None:
    found = np.zeros(15, np.int64)
    function(write_arithmetic, "arithmetic")(a, b, found)
    wanted = [a + b, a - b, a * b, a // b, 100 // b, a % b, a & b, a | b, a << 3, a >> 3, min(a, b)]
    assert found.tolist() == wanted + [a if test else b for test in (a < b, a > b, a == b, a != b)]


def write_collatz(module: Any) -> Any:
    """How many steps it takes to 1."""
    f = module.function("collatz", ["int64"], "int64")
    number, steps = f.variable(f.parameters[0]), f.variable(0)
    with f.loop() as leave:
        with f.if_(number.value == 1):
            leave()
        steps.value = steps.value + 1
        with f.if_else(number.value % 2 == 0) as (even, odd):
            with even:
                number.value = number.value // 2
            with odd:
                number.value = number.value * 3 + 1
        with f.if_(steps.value == 1000):
            f.return_(-1)
    f.return_(steps.value)
    return f


@pytest.mark.parametrize("optimise", [False, True])
def test_loops_and_branches(optimise: bool) -> None:
    collatz = function(write_collatz, "collatz", optimise=optimise)
    assert [collatz(number) for number in (1, 6, 27, 0)] == [0, 8, 111, -1]


def write_triangle(module: Any) -> Any:
    """How many pairs a nest of loops has, one of which may have none."""
    f = module.function("triangle", ["int64", "int64"], "int64")
    count, step = f.parameters
    pairs = f.variable(0)
    with f.range(0, count, step) as i, f.range(0, i):
        pairs.value = pairs.value + 1
    f.return_(pairs.value)
    return f


def test_nested_ranges() -> None:
    triangle = function(write_triangle, "triangle")
    for count, step in ((0, 1), (-3, 1), (1, 1), (10, 1), (10, 3)):
        assert triangle(count, step) == sum(range(0, count, step))


def test_a_function_is_told_from_those_of_other_parameters() -> None:
    parameters = [(size, pitch) for size in (4, 8) for pitch in (40, 48)]
    found = [compiled(f"pack{size}", packing.write_pack, size, pitch) for size, pitch in parameters * 2]
    assert found[:4] == found[4:]
    assert len(set(found)) == 4


def test_arrays_lie_one_after_the_other_at_lines_of_the_cache() -> None:
    assert places_of([100, 8, 64]) == [0, 128, 192, 256]


# --- tiles -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("rows", [1, 8, 13])
@pytest.mark.parametrize("columns", [1, 7, 8, 9, 40])
def test_pack(size: int, rows: int, columns: int) -> None:
    pitch, dtype = 48, WORDS[size]
    pack = function(packing.write_pack, f"pack{size}", size, pitch)
    wide = integers((rows, 5 * columns), dtype)
    views = [np.asfortranarray(wide[:, :columns]), wide[:, :columns][:, ::-1], wide[::-1, ::2]]
    views += [wide[:, :: step or 1] for step in (1, 2, 3, 4, 5)]
    views += [np.broadcast_to(wide[:1], wide.shape), np.broadcast_to(wide[:, :1], wide.shape)]
    for view in views:
        source = view[:, :columns]
        tile = np.full((rows, pitch), 251, dtype)
        pack(tile, source, rows, columns, *source.strides)
        np.testing.assert_array_equal(tile[:, :columns], source)
        assert (tile[:, columns:] == 251).all()


@pytest.mark.parametrize("itemsizes", [(8,), (4,), (2, 8)])
def test_gather_runs_a_kernel_row_by_row(itemsizes: tuple[int, ...]) -> None:
    """A kernel that copies, of transposed inputs, each to its output, in a panel from element 1000 on."""
    rows, columns, count = 21, 150, len(itemsizes)
    kernel = compiled("copies", packing.write_copies, itemsizes)
    gather = function(packing.write_gather, "gather", 0, 2 * count, tuple(range(count)), itemsizes, (rows, 64))
    sources = [integers((columns, rows), WORDS[size]).T for size in itemsizes]
    outputs = [np.zeros(1000 + 200 * rows, WORDS[size]) for size in itemsizes]
    strides = [stride for source in sources for stride in source.strides]
    memory = np.empty(packing.tile_places(itemsizes, (rows, 64))[-1], np.uint8)
    assert status(gather(kernel, 1000, 200, rows, columns, *strides, *sources, *outputs, memory)) == 0
    for source, output in zip(sources, outputs, strict=True):
        wanted = np.zeros((rows, 200), source.dtype)
        wanted[:, :columns] = source
        np.testing.assert_array_equal(output[1000:].reshape(rows, 200), wanted)
        assert not output[:1000].any()


@pytest.mark.parametrize("which", ["gather", "join"])
def test_a_status_ends_the_loop(which: str) -> None:
    calls: list[tuple[int, int]] = []

    @ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * 3)
    def kernel(start: int, stop: int, _pointer: int) -> int:
        calls.append((start, stop))
        return 7 if len(calls) == 2 else 0

    address = ctypes.cast(kernel, ctypes.c_void_p).value
    source = np.zeros((400, 8))
    if which == "gather":
        loop = function(packing.write_gather, "gather", 0, 1, (0,), (8,), (10, 64))
        numbers = [100, 8, 10, 8, *source.strides]
        wanted = [(100, 108), (108, 116)]
    else:
        loop = function(packing.write_join, "join", 0, 1, (0,), (8,), ())
        numbers = [100, 400, 400, 8, 0, *source.strides]
        wanted = [(100, 100 + 2048), (100 + 2048, 100 + 3200)]
    assert status(loop(address, *numbers, source, np.empty(1 << 15, np.uint8))) == 7
    assert calls == wanted


@pytest.mark.parametrize("sizes", [(1,), (8, 2)])
def test_copies(sizes: tuple[int, ...]) -> None:
    sources = [integers(100, WORDS[size]) for size in sizes]
    outputs = [np.zeros_like(source) for source in sources]
    function(packing.write_copies, "copies", sizes)(10, 90, *sources, *outputs)
    for source, output in zip(sources, outputs, strict=True):
        np.testing.assert_array_equal(output[10:90], source[10:90])
        assert not output[:10].any() and not output[90:].any()


# --- short rows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("columns", [1, 3, 8, 9, 32])
def test_lay_and_spread(size: int, columns: int) -> None:
    dtype, planes, plane = WORDS[size], 4, 5
    lay = function(packing.write_lay, f"lay{size}", size)
    full = integers((planes, 2 * plane, 2 * columns), dtype)[:, ::2]
    sources = [full[..., :columns], full[..., ::2], full[::-1, ::-1, columns - 1 :: -1][..., :columns]]
    sources += [
        np.broadcast_to(full[..., :1], (planes, plane, columns)),
        np.broadcast_to(full[:, :1, :columns], (planes, plane, columns)),
    ]
    for source in sources:
        for first, count in ((0, planes * plane), (3, 1), (3, 9)):
            laid = np.full(count * columns + 8, 251, dtype)
            lay(laid, source, first, count, columns, plane, *source.strides)
            wanted = source.reshape(-1, columns)[first : first + count]
            np.testing.assert_array_equal(laid[:-8].reshape(count, columns), wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [1, 3, 8, 11, 32])
def test_sums_of_terms(columns: int, dtype: str) -> None:
    """Of terms that cancel: those of float64 as if they were added exactly."""
    size, rows, random = np.dtype(dtype).itemsize, 300, np.random.default_rng(0)
    terms = np.zeros(rows * columns + 8, dtype)
    matrix = terms[:-8].reshape(rows, columns)
    matrix[...] = random.standard_normal(matrix.shape) * 10.0 ** random.integers(
        -9, 9 if size == 8 else -5, matrix.shape
    )
    most = 1 if size == 8 else 64

    def check(found: Any, wanted: Any) -> None:
        np.testing.assert_array_max_ulp(np.asarray(found), np.asarray(wanted), most)

    of_rows = np.zeros(rows)
    function(packing.write_add_columns, f"add_columns{size}", size)(of_rows, terms, rows, columns)
    check(of_rows, [math.fsum(row) for row in matrix.astype(float)])
    totals = np.zeros(2 * packing.SHORT)
    add_rows = function(packing.write_add_rows, f"add_rows{size}", size)
    for first in range(0, rows, 100):
        add_rows(totals, terms[first * columns :], 100, columns)
    sums, lost = totals.reshape(2, -1)[:, :columns]
    check(sums + lost, [math.fsum(column) for column in matrix.T.astype(float)])


@pytest.mark.parametrize("over", ["rows", "columns"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_join_runs_a_kernel_on_long_rows_and_adds_terms(over: str, dtype: str) -> None:
    """A kernel that copies, from an input with gaps to an output and from another to terms of a sum."""
    size, rows, columns = np.dtype(dtype).itemsize, 1700, 3
    join = function(packing.write_join, "join", 0, 4, (0, 1), (size, size), ((3, over, size),))
    first = integers((rows, 2 * columns), dtype)[:, ::2]
    second = np.broadcast_to(integers((rows, 1), dtype), (rows, columns))
    output = np.zeros(50 + rows * columns, dtype)
    axis = {"rows": 0, "columns": 1}[over]
    wanted = second.sum(axis, dtype=float)
    sums, lost = np.zeros(wanted.shape), np.zeros(wanted.shape)
    strides = [0, *first.strides, 0, *second.strides]
    rest = [lost] if size == 8 else []
    kernel = compiled("copies", packing.write_copies, (size, size))
    bounds = [50, rows, rows, columns]
    given = [first, second, output, sums, *rest]
    memory = np.empty(packing.piece_places((size, size), ((3, over, size),))[-1], np.uint8)
    assert status(join(kernel, *bounds, *strides, *given, memory)) == 0
    np.testing.assert_array_equal(output[50:].reshape(rows, columns), first)
    assert not output[:50].any()
    np.testing.assert_array_equal(sums, wanted)
    assert not lost.any()


# --- sums at places --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "is_compensated"), [("float32", False), ("float64", False), ("float64", True)])
def test_scatter_add(dtype: str, is_compensated: bool) -> None:
    random = np.random.default_rng(0)
    rows, places = random.standard_normal((500, 5)).astype(dtype), random.integers(0, 9, 500)
    sums, lost = np.zeros((2, 9, 5))
    function(write_scatter_add, "scatter_add", dtype, is_compensated)(sums, lost, rows, places, *rows.shape)
    wanted = np.zeros((9, 5))
    np.add.at(wanted, places, rows.astype(float))
    if not is_compensated:
        np.testing.assert_array_equal(sums, wanted)
    exact = [[math.fsum(column) for column in rows[places == at].T.astype(float)] for at in range(9)]
    np.testing.assert_allclose(sums + lost, exact, rtol=1e-15 if is_compensated else 1e-13, atol=1e-14)
    assert lost.any() == is_compensated


# --- places and pieces -----------------------------------------------------------------------------------------------


NOT_OURS, STOPPED = -1000, 2


class Launches:
    """A pool's state, its functions, and what pieces it ran."""

    def __init__(self) -> None:
        self.state = np.zeros(thread_pool.STATE_SIZE, np.uint8)
        self.pieces: list[int] = []
        # How far on the memory is that pieces work in, whose address is the last argument.
        self.fail_at, self.memory = -1, 0
        self.kernel = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_int64)(self.run)
        self.poll = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda _: -1)
        parameters = thread_pool.write_pool, 10, NOT_OURS, STOPPED, "poll"
        elsewhere = (("poll", ctypes.cast(self.poll, ctypes.c_void_p).value or 0),)
        self.post, self.finish, self.attend = (
            at_address(compiled(name, *parameters, elsewhere=elsewhere)) for name in ("post", "finish", "attend")
        )
        self.arguments = np.array([[at, at * at] for at in range(20)])

    def run(self, at: int, square: int) -> int:
        assert square == at * at + self.memory
        self.pieces.append(at)
        return 7 if at == self.fail_at else 0

    def begin(self, count: int, helpers: int, token: int, room: int = 0) -> int:
        call = compiled("call", write_call, 2)
        address = ctypes.cast(self.kernel, ctypes.c_void_p).value
        return status(self.post(self.state, call, address, self.arguments, 16, room, count, helpers, token))

    def number(self, name: str) -> int:
        return int(self.state[thread_pool.OFFSETS[name] :][:8].view(np.int64)[0])


def test_a_launch_runs_each_piece_once() -> None:
    launches = Launches()
    for token, count in enumerate((20, 1, 13), 1):
        launches.pieces.clear()
        assert launches.begin(count, 0, token) == 1
        # Another launch cannot have the pool, nor end this one.
        assert launches.begin(5, 0, 99) == 0
        assert launches.finish(launches.state, 99) == NOT_OURS
        assert launches.finish(launches.state, token) == count
        assert launches.pieces == list(range(count))
        assert launches.number("owner") == 0
        assert launches.number("cursor") == token << 32


def test_a_piece_that_fails_stops_the_others() -> None:
    launches = Launches()
    launches.fail_at = 3
    assert launches.begin(20, 0, 1) == 1
    assert launches.finish(launches.state, 1) == -7
    assert launches.pieces == [0, 1, 2, 3]
    launches.fail_at = -1
    assert launches.begin(5, 0, 2) == 1
    assert launches.finish(launches.state, 2) == 5


def test_a_helper_takes_a_place_and_leaves_when_there_is_no_work() -> None:
    launches = Launches()
    assert status(launches.attend(launches.state, 30)) == 0
    assert launches.begin(6, 0, 1) == 1
    launches.attend(launches.state, 30)
    assert launches.pieces == []  # There was no place for it.
    launches.finish(launches.state, 1)
    launches.pieces.clear()
    assert launches.begin(6, 1, 2, 1000) == 1
    launches.memory = 1000
    launches.attend(launches.state, 30)
    assert launches.pieces == list(range(6))
    assert launches.finish(launches.state, 2) == 0
    assert launches.number("watchers") == 0


def test_a_launch_that_waits_is_stopped_where_a_signal_says_so() -> None:
    """The last piece is another thread's, which never ends it; at the poll's word the launch fails, and goes on
    waiting, since that thread still uses its arrays."""
    launches = Launches()

    def end(_units: int) -> int:
        launches.state[thread_pool.OFFSETS["done"] :][:8].view(np.int64)[0] += 1
        return -1

    launches = Launches()
    assert launches.begin(4, 0, 1) == 1
    launches.state[:8].view(np.int64)[0] -= 1  # It is drawn.
    poll = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(end)
    parameters = thread_pool.write_pool, 10, NOT_OURS, STOPPED, "poll"
    address = ctypes.cast(poll, ctypes.c_void_p).value or 0
    finish = at_address(compiled("finish", *parameters, elsewhere=(("poll", address),)))
    assert finish(launches.state, 1) == -STOPPED
    assert launches.pieces == [1, 2, 3]
