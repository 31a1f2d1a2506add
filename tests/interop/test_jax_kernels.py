"""The handler that XLA calls: launches in pieces on several threads, sums, shapes of all kinds, errors."""

# ruff: noqa: E402 (imports follow `importorskip`)

from __future__ import annotations

import ctypes
import itertools
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp
from jax_calls import cell
from xla_frame import Frame

import dualbcast
from dualbcast import differentiable_broadcast
from dualbcast.codegen.loops.xla import API, FRAME, METADATA
from dualbcast.interop import xla
from dualbcast.interop.jax_adapter import JaxAdapter
from dualbcast.kernel_spec import TILE
from dualbcast.runtime.reduction_blocks import WORK

RANDOM = np.random.default_rng(1)


@differentiable_broadcast
def product(x: float, y: float, z: float) -> float:
    return x * y + math.sin(z) * x if z > 0 else x * z


def product_slopes(x: Any, y: Any, z: Any, bar: Any) -> list[Any]:
    """The cotangents by NumPy, in float64 or wider."""
    positive = z > 0
    partials = [
        np.where(positive, y + np.sin(z), z) + 0 * x,
        np.where(positive, x, 0) + 0 * y,
        np.where(positive, np.cos(z) * x, x) + 0 * y,
    ]
    return [_summed(partial * bar, np.shape(each)) for partial, each in zip(partials, (x, y, z), strict=True)]


def _summed(array: Any, shape: tuple[int, ...]) -> Any:
    extra = array.ndim - len(shape)
    axes = (*range(extra), *[extra + at for at, n in enumerate(shape) if n == 1 != array.shape[extra + at]])
    return array.sum(axis=axes).reshape(shape)


# With sums over rows, columns, all; short rows, which are joined; long ones, which are cut; empty ones.
SHAPES: list[tuple[tuple[int, ...], ...]] = [
    ((), (), ()),
    ((1,), (1, 1), ()),
    ((5,), (), (5,)),
    ((4, 1), (3,), (4, 3)),
    ((300, 1), (400,), ()),
    ((300, 400), (400,), (300, 1)),
    ((3000, 7), (7,), (3000, 1)),
    ((5000, 3), (3,), ()),
    ((5000, 3), (5000, 1), (3,)),
    ((4096, 16), (16,), (4096, 1)),
    ((100, 30, 5), (30, 1), (100, 1, 1)),
    ((50, 40, 30), (40, 1), (30,)),
    ((40, 1, 3), (60, 1), (3,)),
    ((2, 3, 4, 5), (1, 3, 1, 5), (4, 1)),
    ((64, 1, 32), (64, 64, 1), (1, 64, 32)),
    ((1, 70000), (3, 1), ()),
    ((70000,), (2, 70000), (2, 1)),
    ((200000,), (), ()),
    ((100, 100), (100, 1), (1, 100)),
    ((0,), (), (1,)),
    ((3, 0), (3, 1), (0,)),
    ((0, 4), (4,), ()),
    ((2000, 2, 8), (2, 1), (2000, 1, 8)),
    ((9, 8000), (1, 8000), (9, 1)),
    ((), (64, 1, 8), (64, 64, 8)),  # the second one is broadcast by XLA
    ((10, 1, 1, 4), (), (10, 8, 50, 4)),
]


@pytest.mark.parametrize("x64", [pytest.param(False, marks=pytest.mark.slow), True], ids=["float32", "float64"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_values_and_sums_are_right_for_all_shapes(shapes: tuple[tuple[int, ...], ...], x64: bool) -> None:
    dtype = np.float64 if x64 else np.float32
    arrays = [np.asarray(RANDOM.standard_normal(shape), dtype) for shape in shapes]
    space = np.broadcast_shapes(*shapes)
    bar = np.asarray(RANDOM.standard_normal(space), dtype)
    exact = [array.astype(np.longdouble) for array in (*arrays, bar)]
    with jax.enable_x64(x64):
        value, pullback = jax.vjp(product, *map(jnp.asarray, arrays))
        found = pullback(jnp.asarray(bar))
    assert value.shape == space
    np.testing.assert_allclose(value, _value(*exact[:3]), **_close(dtype))
    wanted = product_slopes(*exact)
    terms = [
        _summed(np.abs(np.broadcast_to(partial, space)), np.shape(array))
        for partial, array in zip(_terms(*exact), arrays, strict=True)
    ]
    for mine, its, size, array in zip(found, wanted, terms, arrays, strict=True):
        assert mine.dtype == dtype
        assert mine.shape == array.shape
        # Sums are of float64, which loses nothing that float32 could hold, or compensated.
        np.testing.assert_array_less(
            np.abs(np.asarray(mine, np.longdouble) - its), 4 * np.finfo(dtype).eps * (size + 1e-30) + 1e-300
        )


def _value(x: Any, y: Any, z: Any) -> Any:
    return np.where(z > 0, x * y + np.sin(z) * x, x * z)


def _terms(x: Any, y: Any, z: Any, bar: Any) -> list[Any]:
    """The sizes of the terms of each sum."""
    return [
        (np.abs(y) + 1 + np.abs(z)) * np.abs(bar) + 0 * x,
        np.abs(x) * np.abs(bar) + 0 * z,
        np.abs(x) * np.abs(bar) + 0 * y,
    ]


def _close(dtype: Any) -> dict[str, float]:
    return {"rtol": 16 * float(np.finfo(dtype).eps), "atol": 16 * float(np.finfo(dtype).eps)}


def test_sums_of_float64_are_compensated() -> None:
    """A plain sum in float64 would lose the ones. Those in one tile of a row with a large number are lost here, too, as
    they are without JAX."""
    scaled = differentiable_broadcast(lambda x, y: x * y)
    bar = np.ones(1 << 18)
    bar[0], bar[-1] = 1e17, -1e17
    with jax.enable_x64(True):
        slope = jax.jit(jax.grad(lambda y: jnp.sum(scaled(bar, y))))(1.0)
    assert abs(float(slope) - (1 << 18)) <= 2 * TILE
    (alone,) = scaled.vjp(bar, np.float64(1), wrt=("y",))[1](np.ones(1 << 18))
    assert float(slope) == alone


THREADS = """
import sys, hashlib
import numpy as np, jax, jax.numpy as jnp
sys.path[:0] = {paths!r}
from jax_calls import cell, kepler
random = np.random.default_rng(0)
c, f, i, g = random.standard_normal((4, 700, 900)).astype(np.float32)
z, zb = (random.random((2, 700, 1)) > 0.5).astype(np.float32)
def loss(*args):
    return jnp.sum(cell(*args) ** 2) + jnp.sum(kepler(c[:50], 0.3 + 0 * args[4][:50]))
value = jax.jit(cell)(c, f, i, g, z, zb)
slopes = jax.jit(jax.grad(lambda f, i, row: jnp.sum(cell(c, f, i, g + row, z, zb) ** 2), (0, 1, 2)))(f, i, g[0])
joined = jax.jit(jax.grad(lambda a, b: jnp.sum(jnp.sin(cell(a, b, b, a, 0.0, 1.0))), (0, 1)))(
    jnp.asarray(c.reshape(-1, 3)), jnp.asarray(f.reshape(-1, 3)[0]))
digest = hashlib.sha256()
for each in jax.tree.leaves((value, slopes[:2], joined)):
    digest.update(np.asarray(each).tobytes())
print(digest.hexdigest())
"""


def test_results_do_not_depend_on_the_number_of_threads(tmp_path: Any) -> None:
    program = tmp_path / "program.py"
    program.write_text(THREADS.format(paths=sys.path))
    found = set()
    for flags in ("--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1", ""):
        environment = os.environ | {"XLA_FLAGS": flags, "NPROC": "1" if flags else "8"}
        finished = subprocess.run(
            [sys.executable, program], capture_output=True, text=True, env=environment, check=False
        )
        assert finished.returncode == 0, finished.stderr
        found.add(finished.stdout)
    assert len(found) == 1


def test_large_calls_are_in_pieces_and_small_ones_are_not() -> None:
    assert _pieces((WORK // 2,)) == 1
    assert _pieces((16 * WORK,)) > 4
    assert _pieces((16, WORK)) > 4


def _pieces(shape: tuple[int, ...]) -> int:
    x = jnp.ones(shape, jnp.float32)
    before = set(xla.table().launches)
    differentiable_broadcast(lambda x: x * x + len(shape))(x)
    (name,) = set(xla.table().launches) - before
    numbers = (ctypes.c_int64 * len(xla.LAUNCH)).from_address(xla.table().launches[name])
    return numbers[xla.LAUNCH["count"]]


def test_threads_call_at_once() -> None:
    x = jnp.asarray(RANDOM.standard_normal((400, 500)), jnp.float32)
    call = jax.jit(jax.value_and_grad(lambda x: jnp.sum(cell(x, x, x, x, 0.0, 1.0))))
    wanted = call(x)
    wrong = []

    def work() -> None:
        for _ in range(20):
            value, slope = call(x)
            if value != wanted[0] or not bool(jnp.all(slope == wanted[1])):
                wrong.append(value)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_many_launches_are_found() -> None:
    """More than the first table has room for."""
    table = xla.Table()
    random = np.random.default_rng(3)
    names = [int(name) for name in random.integers(-(2**63), 2**63 - 1, 3000)] + [0, -1, 256, 512, 1024]
    for name in names:
        table.add(name, [name & 0xFFFF])
    memory = table.memory
    for name in names:
        slot = name & (table.slots - 1)
        while memory[1 + 2 * slot] != name or not memory[2 + 2 * slot]:
            assert memory[2 + 2 * slot], "the search ends before the name"
            slot = (slot + 1) & (table.slots - 1)
        assert ctypes.c_int64.from_address(int(memory[2 + 2 * slot])).value == name & 0xFFFF


def test_launches_whose_names_begin_at_one_slot_are_found() -> None:
    ran = []
    names = [(at << 44) + 7 for at in range(1, 6)]
    kernels = []
    for name in names:

        @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)
        def kernel(_: int, name: int = name) -> int:
            ran.append(name)
            return 0

        kernels.append(kernel)
        values = {
            "caller": xla.compiled("call", xla.write_call, 1),
            "function": ctypes.cast(kernel, ctypes.c_void_p).value,
            "count": 1,
            "length": 1,
            "rows": xla.kept(np.zeros((1, 1), np.int64)),
            "pointers": 1,
            "arguments": 1,
            "sources": xla.kept(np.zeros(1, np.int64)),
        }
        xla.table().add(name, [values.get(each, 0) or 0 for each in xla.LAUNCH])
    for name in reversed(names):
        assert Frame([np.ones(1)], [], name).run() == 0
    assert ran == names[::-1]
    assert Frame([np.ones(1)], [], (9 << 44) + 7).run() != 0


def test_sums_of_a_number_count_its_terms() -> None:
    two = differentiable_broadcast(lambda x, y: 2.0)  # noqa: ARG005
    x, y = jnp.ones((4, 1)), jnp.ones(3)
    element = two._dispatch.find((x, y), {}, None)[0].element
    (total,) = JaxAdapter().apply(element, (x, y), (np.dtype(np.float32),), (0,))
    np.testing.assert_array_equal(total, np.full((4, 1), 6.0))


def test_an_unknown_launch_is_an_error() -> None:
    jax.block_until_ready(cell(jnp.ones(3), 1.0, 1.0, 1.0, 1.0, 1.0))
    call = jax.ffi.ffi_call("dualbcast_1", jax.ShapeDtypeStruct((3,), np.float32))
    with pytest.raises(Exception, match="this process has not prepared"):
        jax.block_until_ready(call(jnp.ones(3), launch=np.int64(12345)))


# --- a call frame of our own ------------------------------------------------------------------------------------------


def _launch_of(function: Callable[..., Any], *arrays: Any) -> tuple[int, list[Any]]:
    """The name of the launch that adds up the last argument's cotangents, and arrays for its results."""
    specialisation, _ = function._dispatch.find(arrays, {}, None)
    element = specialisation.element.derive("pullback", (1,))
    forms = tuple([(array.shape, array.dtype) for array in (*arrays, arrays[0])])
    prepared = xla.prepare(element, forms, (arrays[1].dtype,), (arrays[1].shape,), "float32")
    assert prepared.launch is not None
    return prepared.launch.name, [np.full(each.shape, np.nan, each.dtype) for each in prepared.launch.results]


@pytest.mark.parametrize(("threads", "refuses"), [(0, False), (1, False), (4, True), (4, False)])
def test_the_handler_shares_pieces_with_whoever_comes(threads: int, refuses: bool) -> None:
    scaled = differentiable_broadcast(lambda x, y: x * y)
    x, y = np.ones((9, WORK), np.float32), np.ones((1, WORK), np.float32)
    name, (result,) = _launch_of(scaled, x, y)
    frame = Frame([x, y, x], [result], name, threads=threads, refuses=refuses)
    assert frame.run() == 0
    np.testing.assert_array_equal(np.ravel(result), 9)
    assert not frame.errors
    assert frame.destroyed == ([5] if threads == 0 else [6] * 3 if refuses else [])
    assert len(frame.scheduled) == (3 if threads == 4 and not refuses else 0)
    # All has been done when these begin, as it may be with XLA's threads; the last one frees the state.
    result[...] = 0
    for task, state in frame.scheduled:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(task)(state)
    np.testing.assert_array_equal(result, 0)


def test_the_handler_answers_which_version_it_has() -> None:
    frame = Frame([], [], 0, threads=1, refuses=False)
    metadata = frame.bytes(48)
    ctypes.memset(metadata, 0xFF, 48)
    extension = frame.table([24, 1, 0, ctypes.addressof(metadata)])
    other = frame.table([24, 9, ctypes.addressof(extension)])
    frame.put(frame.frame, FRAME["extension"], ctypes.addressof(other))
    ctypes.c_int32.from_address(frame_api(frame) + API["minor"]).value = 7
    assert frame.run() == 0
    fields = [ctypes.c_int32.from_address(ctypes.addressof(metadata) + METADATA[name]).value for name in METADATA]
    assert fields == [0, 7, 0]


def frame_api(frame: Frame) -> int:
    return ctypes.c_int64.from_address(ctypes.addressof(frame.frame) + FRAME["api"]).value


def test_the_handler_makes_an_error_of_an_unknown_launch() -> None:
    frame = Frame([], [], 99, threads=1, refuses=False)
    assert frame.run() == 1001
    ((text, code),) = frame.errors
    assert b"not prepared" in text
    assert code == 9


def test_the_handler_makes_an_error_of_a_kernel_that_fails() -> None:
    """No piece runs after one that has failed, and the state is freed."""
    ran = []

    @ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * 2)
    def kernel(start: int, pointer: int) -> int:
        ran.append((start, pointer))
        return 2 if start == 1 else 0

    argument = np.ones(1)
    rows, sources = np.array([[0, 0], [1, 8], [2, 16]], np.int64), np.zeros(1, np.int64)
    values = {
        "caller": xla.compiled("call", xla.write_call, 2),
        "function": ctypes.cast(kernel, ctypes.c_void_p).value,
        "count": 3,
        "length": 2,
        "rows": rows.ctypes.data,
        "pointers": 1,
        "arguments": 1,
        "sources": sources.ctypes.data,
    }
    xla.table().add(4321, [values.get(name, 0) or 0 for name in xla.LAUNCH])
    frame = Frame([argument], [], 4321, threads=1, refuses=False)
    assert frame.run() == 1001
    assert ran == [(0, argument.ctypes.data), (1, argument.ctypes.data + 8)]
    assert frame.errors == [(b"a kernel of dualbcast failed", 13)]


def test_a_thread_that_was_cancelled_runs_what_xla_has_for_it() -> None:
    """`cancel` is for launches of our own. Kernels for XLA ask nobody, so that they need no lock."""

    @differentiable_broadcast
    def long(x: float) -> float:
        n = 0
        while n < 100_000:
            x = x * 0.999999 + 1e-9
            n += 1
        return x

    x = jnp.linspace(0, 1, 64)
    wanted = long(np.asarray(x))
    dualbcast.cancel()
    np.testing.assert_allclose(jax.jit(long)(x), wanted, rtol=1e-5)


def test_threads_of_xla_share_the_pieces() -> None:
    """The kernel is Python's here, so that it can note who runs it."""
    runners, pieces = set(), []

    @ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * 3)
    def kernel(start: int, x: int, y: int) -> int:
        runners.add(threading.get_native_id())
        pieces.append((start, x != y))
        time.sleep(0.05)
        return 0

    rows = np.array([[at, 0, 0] for at in range(8)], np.int64)
    sources = np.arange(2, dtype=np.int64)
    values = {
        "caller": xla.compiled("call", xla.write_call, 3),
        "function": ctypes.cast(kernel, ctypes.c_void_p).value,
        "count": 8,
        "length": 3,
        "rows": rows.ctypes.data,
        "pointers": 2,
        "arguments": 1,
        "sources": sources.ctypes.data,
    }
    xla.table().add(8765, [values.get(name, 0) or 0 for name in xla.LAUNCH])
    jax.block_until_ready(cell(jnp.ones(3), 1.0, 1.0, 1.0, 1.0, 1.0))  # the handler is registered
    call = jax.ffi.ffi_call("dualbcast_1", jax.ShapeDtypeStruct((3,), np.float32))
    jax.block_until_ready(jax.jit(lambda x: call(x, launch=np.int64(8765)))(jnp.ones(3)))
    assert sorted(pieces) == [(at, True) for at in range(8)]
    assert len(runners) > 1 or len(os.sched_getaffinity(0)) == 1


def test_offsets_are_those_of_the_header_that_jaxlib_has() -> None:
    """They are counted from the declarations, as C's rules lay them out."""
    header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text(encoding="utf-8")
    assert "#define XLA_FFI_API_MAJOR 0" in header
    frame = _layout(header, "XLA_FFI_CallFrame")
    inner = {name: _layout(header, f"XLA_FFI_{name.capitalize()}") for name in ("args", "rets", "attrs")}
    assert {
        "extension": frame["extension_start"],
        "api": frame["api"],
        "context": frame["ctx"],
        **{name: frame[name] + inner[name][name] for name in inner},
    } == FRAME
    assert _layout(header, "XLA_FFI_Buffer")["data"] == 24
    functions = header[header.index("struct XLA_FFI_Api {") :]
    names = [line.split("(")[1].split(")")[0] for line in functions.splitlines() if "_STRUCT_FIELD(XLA" in line]
    first = 16 + 24 + 8  # after the sizes, the version and the internal interface
    places = {name: first + 8 * at for at, name in enumerate(names)}
    assert API["error_create"] == places["XLA_FFI_Error_Create"]
    assert API["error_destroy"] == places["XLA_FFI_Error_Destroy"]
    assert API["schedule"] == places["XLA_FFI_ThreadPool_Schedule"]
    assert API["num_threads"] == places["XLA_FFI_ThreadPool_NumThreads"]


# The bytes of the types of fields by value; all others are pointers or of eight bytes.
_SIZES = {
    "XLA_FFI_ExecutionStage": 4,
    "XLA_FFI_DataType": 4,
    "XLA_FFI_Args": 40,
    "XLA_FFI_Rets": 40,
    "XLA_FFI_Attrs": 48,
}


def _layout(header: str, structure: str) -> dict[str, int]:
    body = header[header.index(f"struct {structure} {{") :].split("{", 1)[1].split("};")[0]
    places, end = {}, 0
    for line in body.splitlines():
        declaration = line.split("//")[0].strip().rstrip(";")
        if not declaration:
            continue
        kind, name = declaration.rsplit(" ", 1)
        size = 8 if "*" in kind else _SIZES.get(kind, 8)
        align = min(size, 8)
        end = -(-end // align) * align
        places[name] = end
        end += size
    return places


def test_no_python_runs_in_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    call = jax.jit(lambda x: product(x, x, x))
    x = jnp.ones(1000)
    jax.block_until_ready(call(x))

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("Python code ran")

    monkeypatch.setattr(xla, "prepare", refuse)
    monkeypatch.setattr("dualbcast.program.element.Element.parts", refuse)
    np.testing.assert_allclose(call(x), product(np.ones(1), np.ones(1), np.ones(1))[0], rtol=1e-6)


def test_bfloat16_and_float16_are_stored_and_summed() -> None:
    for dtype, kept in itertools.product((jnp.bfloat16, jnp.float16), ((6, 50), (3000, 5))):
        x = jnp.asarray(RANDOM.standard_normal(kept), dtype)
        y = jnp.asarray(RANDOM.standard_normal((1, kept[1])), dtype)
        found = jax.grad(lambda x, y: jnp.sum(product(x, y, 0.5).astype(jnp.float32)), (0, 1))(x, y)
        assert [each.dtype for each in found] == [dtype, dtype]
        exact = np.asarray(x, np.float64).sum(axis=0, keepdims=True)
        np.testing.assert_allclose(np.asarray(found[1], np.float64), exact, rtol=float(jnp.finfo(dtype).eps), atol=1e-6)
