"""Rows as vectors, whatever their length: the same bits in every place, nothing beyond the end, on each processor."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_kernels import Kernel, compiled, forget, run, source_of
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import binding
from models import cell_update, product_of_tanh, product_of_tanh_by_hand
from random_texts import Straight
from texts import assert_same_bits, by_python, with_wrapping_literals

from dualbcast import differentiable_broadcast, graph
from dualbcast.codegen.llvm.rows import EDGE, WHOLE
from dualbcast.kernel_spec import Layout
from dualbcast.runtime.cpu import kernel as cpu_kernel

FEATURES = binding.get_host_cpu_features()


def powers(x: float, y: float) -> float:
    """With branches for rare arguments."""
    return math.pow(x, y) + math.atan2(x, y)


def guarded(x: float, y: float) -> float:
    if x > y:
        return math.sqrt(x - y)
    return math.log(1 + y) / y


def rounds(x: float, y: float) -> float:
    """In lockstep."""
    for _ in range(60):
        step = (x - 0.3 * y * math.sin(x) - 1.0) / (1.0 - 0.3 * y * math.cos(x))
        x -= step
        if abs(step) < 1e-5:
            break
    return x


def above(x: float, y: float) -> bool:
    """Its output has elements of one byte."""
    return x > y


FUNCTIONS = (powers, guarded, rounds)
DTYPES = (np.float64, np.float32, np.float16)


def pair(n: int, dtype: Any) -> tuple[Any, Any]:
    random = np.random.default_rng(n)
    return random.uniform(0.1, 0.9, n).astype(dtype), random.uniform(0.1, 0.9, n).astype(dtype)


def results(function: Any, *arrays: Any) -> list[Any]:
    value, jacobian = function.value_and_jacobian(*arrays)
    return [value, *(jacobian[name] for name in jacobian)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_element_does_not_depend_on_its_place(function: Callable[..., float], dtype: Any) -> None:
    broadcast = differentiable_broadcast(function)
    x, y = pair(100, dtype)
    whole = results(broadcast, x, y)
    for n in (*range(1, 20), 31, 33, 47, 64, 65, 99):
        for first in (0, 1):
            for part, every in zip(results(broadcast, x[first : n + first], y[first : n + first]), whole, strict=True):
                np.testing.assert_array_equal(part, every[first : n + first])


@pytest.mark.parametrize("length", [1, 3, 7, 8, 15, 16, 17, 40])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_short_rows(function: Callable[..., float], length: int) -> None:
    """With an argument that is the same for all rows, one that is the same within each, and one with gaps."""
    broadcast = differentiable_broadcast(function)
    flat = differentiable_broadcast(function)
    x = pair(13 * length, np.float64)[0].reshape(13, length)
    gaps = np.ascontiguousarray(np.stack([x, x], axis=-1))[..., 0]
    for y in (x[0], x[:, :1], gaps[::-1, ::-1]):
        wanted = results(flat, *(np.ascontiguousarray(each).ravel() for each in np.broadcast_arrays(x, y)))
        for found, expected in zip(results(broadcast, x, y), wanted, strict=True):
            # What is computed once for a row is not computed as a vector, and the C library has other bits for that.
            rtol = 1e-15 if function is powers else 0
            np.testing.assert_allclose(found.ravel(), expected, rtol=rtol)


@pytest.mark.parametrize("offset", [0, 1, 5, 15])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", [guarded, rounds, above])
def test_long_rows_begin_at_a_line(function: Callable[..., float], dtype: Any, offset: int) -> None:
    """Wherever the output begins."""
    broadcast = differentiable_broadcast(function)
    for rows, columns in ((1, 1000), (3, 333), (5, 129)):
        x = pair(rows * columns, dtype)[0].reshape(rows, columns)
        y = x[0].copy()
        wanted = np.stack([broadcast(row, y) for row in x])
        memory = np.zeros(x.size + 64, wanted.dtype)
        out = memory[offset : offset + x.size].reshape(x.shape)
        broadcast(x, y, out=out)
        np.testing.assert_array_equal(out, wanted)
        assert not memory[:offset].any()
        assert not memory[offset + x.size :].any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", [*FUNCTIONS, above])
def test_outputs_with_gaps_are_written_from_vectors(function: Callable[..., float], dtype: Any) -> None:
    """To the bits that outputs without gaps have, and nothing between."""
    broadcast = differentiable_broadcast(function)
    for n in (1, 5, 16, 33, 200):
        x, y = pair(n, dtype)
        wanted = broadcast(x, y)
        for step in (2, 3, -2):
            memory = np.full((2, n * abs(step)), 7, wanted.dtype)
            for out, first in ((memory[0, ::step], x), (memory[:, ::step], np.stack([x, x]))):
                broadcast(first, y, out=out)
                np.testing.assert_array_equal(out, np.broadcast_to(wanted, out.shape))
            out[...] = 7
            assert (memory == np.asarray(7, wanted.dtype)).all()
    assert all(f"@{WHOLE}(" in kernel.llvm() for kernel in [*cpu_kernel._kernels.values()][-3:])


def test_a_power_that_is_the_same_for_a_row_before_one_that_is_not() -> None:
    """The function of the C library for vectors is known from the first."""

    def powers_of_powers(x: float, y: float) -> float:
        exponent = y**1.3
        return abs(x**exponent - 2)

    x, y = np.linspace(1, 2, 200, dtype="f4").reshape(4, 50), np.array([[0.5], [1], [2], [3]], "f4")
    found = differentiable_broadcast(backend="cpu")(powers_of_powers)(x, y)
    np.testing.assert_allclose(found, abs(x.astype(float) ** (y.astype(float) ** 1.3) - 2), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("length", [1, 5, 16, 23])
def test_sums_of_short_rows(length: int) -> None:
    x, w = pair(31 * length, np.float64)[0].reshape(31, length), pair(length, np.float64)[1]

    def loss(x: Any, w: Any) -> Any:
        return np.sum(np.tanh(x * w))

    found = graph.grad(loss, wrt=1)(x, w)
    np.testing.assert_allclose(found, (x / np.cosh(x * w) ** 2).sum(0), rtol=1e-14)


@pytest.mark.skipif(sys.platform != "linux", reason="protects a page of memory")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_nothing_beyond_the_end_is_touched(function: Callable[..., float], dtype: Any) -> None:
    """The arrays end where memory does."""
    page, size = mmap.PAGESIZE, np.dtype(dtype).itemsize
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    arrays, kept = [], []
    for _ in range(3):
        memory = mmap.mmap(-1, 2 * page)
        block = np.frombuffer(memory, np.uint8)
        assert mprotect(block.ctypes.data + page, page, 0) == 0
        arrays.append(block[:page].view(dtype))
        kept.append(memory)
    broadcast = differentiable_broadcast(function)
    for n in (1, 2, 5, 8, 13, 16, 27, page // size):
        x, y, output = (array[-n:] for array in arrays)
        x[:], y[:] = pair(n, dtype)
        for each in (broadcast, broadcast.partial("y")):
            arrays[2][:] = 7
            wanted = each(x, y)
            each(x, y, out=output)
            np.testing.assert_array_equal(output, wanted)
            assert (arrays[2][:-n] == 7).all()
        np.testing.assert_allclose(float(broadcast.sum(x, y)), np.sum(broadcast(x, y), dtype=float), rtol=1e-3)


def test_whole_vectors_have_no_masks() -> None:
    c = np.ones((4, 40), np.float32)
    call = differentiable_broadcast(cell_update)
    call.value_and_jacobian(c, c, c, c, c[:, :1], c[:, :1], wrt=("c", "f", "i", "g"))
    text = call.inspect_llvm(c, c, c, c, c[:, :1], c[:, :1], wrt=("c", "f", "i", "g"))
    functions = re.findall(r"^define .*?^}", text, re.MULTILINE | re.DOTALL)
    edge, whole = (next(each for each in functions if f"@{name}(" in each.splitlines()[0]) for name in (EDGE, WHOLE))
    assert len(re.findall(r"@llvm\.masked\.load", edge)) == 4
    assert len(re.findall(r"@llvm\.masked\.store", edge)) == 5
    assert "@llvm.masked." not in whole
    # Of three branches, each a loop of its own.
    assert len(re.findall(r"= load <\d+ x float>", whole)) == 2 + 1 + 4
    assert len(re.findall(r"store <\d+ x float>", whole)) == 3 * 5
    assert "float, ptr %z" not in whole.partition("phi")[2]


# --- random texts ----------------------------------------------------------------------------------------------------

SIZE = 77
POINTS = {
    "x": np.random.default_rng(5).normal(0, 2, SIZE),
    "i": np.resize([-5, -1, 0, 1, 2, 3, 6, 2**63 - 1], SIZE),
    "m": np.resize([3, 0, -1, 2**63 - 1, 1, 7, -5], SIZE),
    "r": np.full(SIZE, 2.75),
    "n": np.full(SIZE, 3),
}
POINTS["x"][::9] = np.resize([np.nan, np.inf, -np.inf, 0.0, -0.0], POINTS["x"][::9].size)
OUTPUTS = {"out": "float64", "other": "float64", "count": "int64", "flag": "uint8"}
PRELUDE = "f64_2 = float64(2.5)\nf64_0 = float64(0.0)\ni64_7 = int64(7)\n"


def straight(body: str, vectors: int) -> Kernel:
    """A kernel of rank 1, of whose arguments two are the same for all elements."""
    inputs = {name: array.dtype.name for name, array in POINTS.items()}
    layout = Layout(1, ("1", "0"), (0, 0, 0, 1, 1, 0, 0, 0, 0))
    return source_of(body, "float64", inputs, OUTPUTS, PRELUDE, vectors, layout)


@pytest.mark.parametrize("count", [40, pytest.param(300, marks=pytest.mark.slow)])
def test_random_texts(count: int) -> None:
    @settings(max_examples=count, deadline=None)
    @given(st.data(), st.sampled_from([1, 2, 4]))
    def compare(data: st.DataObject, vectors: int) -> None:
        writer = Straight(data)
        for line in ["a = i[k]", "b = n[0]", "u = x[k]", "v = r[0]", "p = a > 2", "w = v > f64_0"]:
            writer.line(0, line)
        writer.block(["a", "b", "u", "v"], 0, False)
        for line in ["out[k] = u", "other[k] = v", "count[k] = a * 3 + b", "flag[k] = uint8(p)"]:
            writer.line(0, line)
        source = straight("\n".join(writer.lines), vectors)
        found = run(source, *POINTS.values())
        assert f"@{WHOLE}(" in compiled(source).llvm()
        forget(source)
        assert_same_bits(found, by_python(with_wrapping_literals(source), *POINTS.values()))

    compare()


def test_both_sides_of_a_branch_may_give_a_name_the_same_value() -> None:
    """The branch inside is the same for all elements, so that it stays one, inside one that is not."""
    body = """
    u = x[k]
    v = r[0]
    p = i[k] > 2
    if p:
        if n[0] > 2:
            v = u
            t = u
        else:
            v = u
            t = u
        v = v + t
    out[k] = u
    other[k] = v
    count[k] = i[k]
    flag[k] = uint8(p)
    """
    source = straight(body, 1)
    assert_same_bits(run(source, *POINTS.values()), by_python(source, *POINTS.values()))


def test_what_is_the_same_for_a_row_is_computed_before_the_loop() -> None:
    body = """
    s = sqrt(r[0])
    p = m[k] > 0
    u = x[k]
    if n[0] > 2:
        t = s * u
    else:
        t = s + u
    if (n[0] & 1) == 1:
        t = t * t
    v = s
    if r[0] > f64_2:
        v = s + f64_2
    out[k] = t
    other[k] = v
    count[k] = i[k]
    flag[k] = uint8(p)
    """
    source = straight(body, 1)
    found = run(source, *POINTS.values())
    assert_same_bits(found, by_python(source, *POINTS.values()))
    text = compiled(source).llvm()
    whole = next(each for each in text.split("\ndefine ") if f"@{WHOLE}(" in each.splitlines()[0]).partition("\n}")[0]
    loops = [block for block in re.split(r"^\S+:", whole, flags=re.MULTILINE) if "store <" in block]
    # Two branches; the third has nothing of the elements in it.
    assert len(loops) == 4
    for loop in loops:
        assert re.search(r"br i1 .*", loop)
        assert "sqrt" not in loop
        assert "fcmp" not in loop
        assert "load double" not in loop
    assert whole.count("@llvm.sqrt.f64(") == 1


def test_many_branches_that_are_the_same_for_a_row() -> None:
    """Some make loops of their own, the others stay in the loop."""
    tests = [f"if (n[0] >> {place}) & 1 == 0:\n    u = u * f64_2\nelse:\n    u = u + r[0]" for place in range(12)]
    text = "\n".join(test.replace("(n[0] >> ", "((n[0] >> ").replace(" & 1 ==", " & 1) ==") for test in tests)
    body = f"u = x[k]\n{text}\nout[k] = u\nother[k] = x[k]\ncount[k] = i[k]\nflag[k] = uint8(m[k] > n[0])"
    source = straight(body, 1)
    assert_same_bits(run(source, *POINTS.values()), by_python(source, *POINTS.values()))
    text = compiled(source).llvm()
    whole = next(each for each in text.split("\ndefine ") if f"@{WHOLE}(" in each.splitlines()[0]).partition("\n}")[0]
    assert 2 <= len(re.findall(r"store <\d+ x double>", whole)) // 2 <= 16


OTHER = """
import sys
import llvmlite.binding as llvm
import numpy as np
name, lost = sys.argv[1], sys.argv[2].split(",")
features = llvm.get_host_cpu_features()
for feature in features:
    if feature.startswith(tuple(lost)):
        features[feature] = False
llvm.get_host_cpu_features, llvm.get_host_cpu_name = lambda: features, lambda: name
from dualbcast import differentiable_broadcast
from dualbcast.errors import BackendError
from dualbcast.runtime.cpu import kernel as cpu
import test_row_vectors as own

for function in (*own.FUNCTIONS, own.cell_update):
    for dtype in own.DTYPES:
        broadcast = differentiable_broadcast(function)
        plain = differentiable_broadcast(function, backend="python")
        for n in (1, 3, 8, 21, 100):
            x, y = own.pair(n, dtype)
            given = (x, y) if function is not own.cell_update else (x, y, x, y, np.round(x), np.round(y))
            for found, wanted in zip(own.results(broadcast, *given), own.results(plain, *given)):
                error = np.finfo(dtype).eps
                np.testing.assert_allclose(found, wanted, rtol=50 * error, atol=50 * error)
for function in own.FUNCTIONS:
    broadcast, plain = (differentiable_broadcast(function, backend=name) for name in ("cpu", "python"))
    for n in (1, 3, 8, 21, 40):
        x, y = np.stack([own.pair(n, np.float64)[0]] * 3), own.pair(3, np.float64)[1][:, None]
        found, wanted = (each.sum(x, y, wrt="y", order=1) for each in (broadcast, plain))
        np.testing.assert_allclose(found.value, wanted.value, rtol=1e-13)
        np.testing.assert_allclose(found.gradient["y"], wanted.gradient["y"], rtol=1e-13)
widths = {
    int(width)
    for kernel in cpu._kernels.values()
    for width in own.re.findall(r"@llvm.masked.store.v(\\d+)f(?:32|64)", kernel.llvm())
}
print(*sorted(widths))
"""


@pytest.mark.skipif(not FEATURES.get("avx512f"), reason="cannot run what other processors do")
@pytest.mark.parametrize(
    ("name", "lost", "widths"),
    [("haswell", "avx512,avx10", "8 16"), ("nehalem", "avx,fma,f16c,vaes,vpclmul", "4 8")],
    ids=["AVX2", "SSE"],
)
def test_other_processors(name: str, lost: str, widths: str, tmp_path: Path) -> None:
    """Their kernels, which run here as well: of shorter vectors, two side by side at most."""
    (tmp_path / "program.py").write_text(OTHER, encoding="utf-8")
    command = [sys.executable, str(tmp_path / "program.py"), name, lost]
    # The package beside these tests, and not one that may be installed.
    here, tests, project = Path(__file__).parents[:3]
    folders = os.pathsep.join(map(str, (project, tests / "oracles", here)))
    environment = {"PYTHONPATH": folders, "DUALBCAST_CACHE_DIR": str(tmp_path / "cache")}

    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == widths


@pytest.mark.parametrize("arity", [5, 16])
def test_all_partials_of_a_product(arity: int) -> None:
    xs = np.random.default_rng(5).normal(size=(arity, 333))
    value, jacobian = differentiable_broadcast(backend="cpu")(product_of_tanh).value_and_jacobian(*xs)
    wanted, partials = product_of_tanh_by_hand(*xs)
    np.testing.assert_allclose(value, wanted, rtol=1e-12)
    for at, partial in enumerate(partials):
        np.testing.assert_allclose(jacobian[at], partial, rtol=1e-11)


def test_few_vectors_go_through_memory() -> None:
    """Of the sixteen factors' partials nothing is carried from call to call."""
    f = differentiable_broadcast(backend="cpu")(product_of_tanh)
    assembly = f.inspect_asm(*["float32"] * 16).partition(f"{WHOLE}:")[2].partition(".size")[0].splitlines()
    if not any("zmm" in line for line in assembly):
        pytest.skip("no vectors of 512 bits")
    assert sum("zmm" in line and "(%rsp)" in line for line in assembly) < 100
