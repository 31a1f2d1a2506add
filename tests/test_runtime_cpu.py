"""The CPU backend: every operation against mpmath and IEEE's special values, 16-bit storage, vector code, threads."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from types import SimpleNamespace

import ml_dtypes
import mpmath
import numpy as np
import pytest

from dualbcast.abi import KernelSource, Layout
from dualbcast.errors import BackendError
from dualbcast.runtime import cache, cpu

UNARY = [
    *("sqrt", "cbrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos"),
    *("atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "tgamma", "floor", "ceil"),
    *("trunc", "rint", "fabs"),
]
BINARY = ["atan2", "hypot", "pow", "fmod", "copysign", "nextafter"]
# Without a vector version, in glibc's libmvec or in LLVM.
SCALAR = {"lgamma", "tgamma", "fmod"}
EXACT = {"sqrt", "floor", "ceil", "trunc", "rint", "fabs", "fmod", "copysign", "nextafter"}
DTYPES = ("float32", "float64")


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def source_of(
    body: str, dtype: str, inputs: dict[str, str], outputs: dict[str, str], prelude: str = ""
) -> KernelSource:
    """A rank-1 kernel: `body` is the element function's, `inputs` and `outputs` name the pointers and their dtypes."""
    pointers = ", ".join([*inputs, *outputs])
    text = f"{prelude}\ndef element(k, {pointers}):\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n\n"
    text += (
        f"def kernel(start, stop, n0, {pointers}):\n    for e in range(start, stop):\n        element(e, {pointers})\n"
    )
    helpers = tuple(re.findall(r"^def (\w+)", prelude, re.MULTILINE))
    layout = Layout(1, ("1",), (0,) * (len(inputs) + len(outputs)))
    storage = tuple(inputs.values()), tuple(outputs.values())
    return KernelSource(text, (*helpers, "element"), "kernel", dtype, *storage, layout)


def operation(name: str, dtype: str) -> KernelSource:
    names = ("x", "y")[: 2 if name in BINARY else 1]
    loads = ", ".join(f"{x}[k]" for x in names)
    return source_of(f"out[k] = {name}({loads})", dtype, dict.fromkeys(names, dtype), {"out": dtype})


def run(source: KernelSource, *inputs: np.ndarray, fastmath: bool = False, threads: int = 1) -> list[np.ndarray]:
    kernel = cpu.compile_kernel(source, fastmath)
    storage = {"bool": np.uint8, "float16": np.uint16, "bfloat16": np.uint16}
    outputs = [np.full(inputs[0].shape, 7, storage.get(name, name)) for name in source.outputs]
    for array, name in zip(inputs, source.inputs, strict=True):
        assert array.flags.c_contiguous
        assert array.dtype.itemsize == np.dtype(storage.get(name, name)).itemsize
    pointers = [array.ctypes.data for array in (*inputs, *outputs)]
    cpu.launch(kernel, inputs[0].size, (inputs[0].size,), pointers, threads)
    return outputs


def vector_calls(llvm: str) -> set[str]:
    return set(re.findall(r"call [^\n]*@(_ZGV\w+)\(", llvm))


# --- mathematics ------------------------------------------------------------------------------------------------------

ROUND = {"floor": mpmath.floor, "ceil": mpmath.ceil, "rint": mpmath.nint, "fabs": mpmath.fabs}


def exactly(name: str, *arguments: float) -> mpmath.mpf:
    """The value of an operation at finite arguments, to some 100 digits."""
    x, *rest = (mpmath.mpf(argument) for argument in arguments)
    match name:
        case "cbrt":
            return mpmath.sign(x) * mpmath.cbrt(abs(x))
        case "exp2":
            return mpmath.mpf(2) ** x
        case "log2":
            return mpmath.log(x) / mpmath.log(2)
        case "log10":
            return mpmath.log(x) / mpmath.log(10)
        case "trunc":
            return mpmath.sign(x) * mpmath.floor(abs(x))
        case "erfc" if abs(x) > 40:  # below any float64; mpmath overflows
            return mpmath.mpf(1 - mpmath.sign(x))
        case "lgamma":
            return mpmath.log(abs(mpmath.gamma(x))) if x < 0 else mpmath.loggamma(x)
        case "tgamma":
            return mpmath.gamma(x)
        case "fmod":
            # Long division keeps every bit; mpmath's own would round the quotient.
            numerator, denominator = (int(abs(value) * mpmath.mpf(2) ** 1100) for value in (x, *rest))
            return mpmath.sign(x) * mpmath.mpf(numerator % denominator) / mpmath.mpf(2) ** 1100
        case "pow":
            return mpmath.power(x, rest[0])
    named = ROUND.get(name) or getattr(mpmath, name)
    return named(x, *rest)


def units_off(got: np.floating, exact: mpmath.mpf) -> float:
    """The error of `got` in units of the last place of `exact`; what overflows counts as the power of two beyond."""
    info = np.finfo(got.dtype)
    last = mpmath.mpf(float(info.smallest_subnormal))
    if exact != 0:
        exponent = int(mpmath.floor(mpmath.log(abs(exact), 2)))
        exponent = min(exponent, int(info.maxexp) - 1)
        last = max(last, mpmath.mpf(2) ** (exponent - int(info.nmant)))
    beyond = mpmath.mpf(2) ** int(info.maxexp)
    value = mpmath.sign(float(got)) * beyond if np.isinf(got) else mpmath.mpf(float(got))
    exact = max(min(exact, beyond), -beyond)
    return float(abs(value - exact) / last)


DOMAINS = {
    "sqrt": (0, 1e30), "log": (0, 1e30), "log2": (0, 1e30), "log10": (0, 1e30), "log1p": (-1, 1e30),
    "asin": (-1, 1), "acos": (-1, 1), "atanh": (-1, 1), "acosh": (1, 1e30), "lgamma": (-20, 200), "tgamma": (-20, 36),
}  # fmt: skip


def samples(name: str, dtype: str, seed: int) -> np.ndarray:
    """Ordinary numbers, and all magnitudes from subnormal to the largest, within the domain of `name`."""
    random = np.random.default_rng(seed)
    info = np.finfo(dtype)
    exponents = random.uniform(np.log2(float(info.tiny)) - 10, float(info.maxexp) - 0.01, 150)
    magnitudes = np.exp2(exponents) * random.choice([-1, 1], 150)
    near_one = 1 + random.choice([-1, 1], 40) * 2.0 ** -random.uniform(1, info.nmant, 40)
    ordinary = np.concatenate([random.normal(0, scale, 100) for scale in (0.1, 1, 10, 100)])
    thresholds = np.array(
        [88.7, 88.8, -87.4, -103.9, 709.7, 709.8, -708.5, -745.1, 128, -149, 1024, -1074, 26.5, 10.05]
    )
    values = np.concatenate([magnitudes, near_one, ordinary, thresholds]).astype(dtype)
    low, high = DOMAINS.get(name, (-np.inf, np.inf))
    values = values[(values > low) & (values < high)]
    if name in ("lgamma", "tgamma"):  # Away from the poles, and from where lgamma crosses zero left of them.
        values = values[(values > 0) | (np.abs(values - np.rint(values)) > 0.1) & (np.abs(values) > 1e-30)]
    return values


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY + BINARY)
def test_an_operation_is_accurate(name, dtype):
    x = samples(name, dtype, 1)
    arguments = [x]
    if name in BINARY:
        y = np.random.default_rng(2).permutation(samples(name, dtype, 3))[: x.size]
        if name == "pow":
            x = arguments[0] = np.where(y == np.rint(y), x, np.abs(x))
            y = np.where(np.abs(y) < 1e6, y, np.asarray(3, dtype))  # mpmath writes out the digits of the power
        if name == "fmod":
            y = np.where(np.abs(y) < np.asarray(1e-30, dtype), np.asarray(0.7, dtype), y)
        arguments.append(y)
    (out,) = run(operation(name, dtype), *arguments)
    assert out.dtype == dtype
    if name == "nextafter":
        np.testing.assert_array_equal(out, np.nextafter(*arguments))
        return
    if name == "copysign":
        np.testing.assert_array_equal(out, np.where(np.signbit(y), -np.abs(x), np.abs(x)))
        return
    # glibc's manual gives up to 5 for lgamma and 9 for tgamma, libmvec's documents 4; half is the rounding.
    limit = 0.5 if name in EXACT else {"lgamma": 8, "tgamma": 10}.get(name, 4)
    with mpmath.workprec(400):
        errors = [
            units_off(got, exactly(name, *map(float, values))) for got, *values in zip(out, *arguments, strict=True)
        ]
    worst = int(np.argmax(errors))
    assert errors[worst] <= limit, (
        f"{name}({[float(a[worst]) for a in arguments]}) = {out[worst]!r}, {errors[worst]} off"
    )


INF, NAN = np.inf, np.nan
# C's Annex F, for what NumPy has no ufunc for. lgamma and tgamma at the negative integers: poles.
ANNEX_F = {
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN)],
    "erfc": [(0.0, 1.0), (-0.0, 1.0), (INF, 0.0), (-INF, 2.0), (NAN, NAN)],
    "lgamma": [(0.0, INF), (-0.0, INF), (1.0, 0.0), (2.0, 0.0), (-1.0, INF), (INF, INF), (-INF, INF), (NAN, NAN)],
    "tgamma": [(0.0, INF), (-0.0, -INF), (1.0, 1.0), (3.0, 2.0), (-1.0, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)],
}
NUMPY_NAMES = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
    "atan2": "arctan2", "pow": "power",
}  # fmt: skip


def assert_same_special_values(name: str, got: np.ndarray, expected: np.ndarray, *arguments: np.ndarray) -> None:
    """NaN, infinities, zeros and all signs are the same; other values are within four units in the last place."""
    with np.errstate(over="ignore", invalid="ignore"):
        expected = expected.astype(got.dtype)
        ordinary = np.isfinite(expected) & (expected != 0)
        units = 0 if name in EXACT else 4
        close = (got == expected) | ordinary & (np.abs(got - expected) <= units * np.spacing(np.abs(expected)))
    same = np.isnan(got) & np.isnan(expected) | close & (np.signbit(got) == np.signbit(expected))
    wrong = np.flatnonzero(~same)
    assert not wrong.size, [(*(float(a[i]) for a in arguments), float(got[i]), float(expected[i])) for i in wrong[:5]]


def edges(dtype: str) -> np.ndarray:
    info = np.finfo(dtype)
    positive = [0, INF, NAN, info.smallest_subnormal, info.tiny, info.max, info.eps, 0.5, 1, 1 + info.eps, 1.5, 2, 3]
    return np.array([*positive, *(-value for value in positive)], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_special_values_are_those_of_ieee_754(name, dtype):
    if name in ANNEX_F:
        points, expected = np.array(ANNEX_F[name], dtype).T
    else:
        points = edges(dtype)
        if dtype == "float64" and name in ("sin", "cos", "tan"):
            points = points[~(np.abs(points) == np.finfo(dtype).max)]  # tested against mpmath above
        with np.errstate(all="ignore"):
            expected = getattr(np, NUMPY_NAMES.get(name, name))(points.astype(np.float64))
            if name == "exp2":
                expected = np.exp2(points)
    # One vector of each, then all mixed, then the scalar end of the loop.
    order = np.concatenate([np.repeat(np.arange(points.size), 64), np.tile(np.arange(points.size), 9), [0, 1, 2]])
    (got,) = run(operation(name, dtype), points[order])
    assert_same_special_values(name, got, expected[order], points[order])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_special_values_of_two_arguments_are_those_of_ieee_754(name, dtype):
    pairs = np.array(list(itertools.product(edges(dtype), repeat=2)), dtype)
    x, y = (np.concatenate([np.repeat(column, 64), column]) for column in pairs.T)
    with np.errstate(all="ignore"):
        wide = np.longdouble if name in ("hypot", "pow") else dtype
        expected = getattr(np, NUMPY_NAMES.get(name, name))(x.astype(wide), y.astype(wide))
    (got,) = run(operation(name, dtype), np.ascontiguousarray(x), np.ascontiguousarray(y))
    assert_same_special_values(name, got, expected, x, y)


@pytest.mark.parametrize("name", UNARY + BINARY)
def test_loops_call_vector_mathematics_where_the_library_has_it(name):
    llvm = cpu.compile_kernel(operation(name, "float32"), False).llvm()
    assert bool(re.search(r"<\d+ x float>", llvm)) == (name not in SCALAR or name == "fmod")
    library = name not in SCALAR | EXACT and cpu._has_libmvec()
    assert bool(vector_calls(llvm)) == library


def test_without_libmvec_the_calls_are_scalar():
    from dualbcast.runtime import cpu_numba

    built = cpu_numba.build(operation("tanh", "float32"), False, "kernel.py", vector=False)
    assert "@tanhf" in built.llvm
    assert "_ZGV" not in built.llvm


def test_arithmetic_is_not_contracted_unless_asked():
    source = source_of("out[k] = x[k] * x[k] - y[k]", "float32", {"x": "float32", "y": "float32"}, {"out": "float32"})
    x = np.random.default_rng(0).standard_normal(1000, dtype=np.float32)
    assert not run(source, x, x * x)[0].any()
    # A fused multiply-add leaves the rounding error of the product: the flags reach LLVM.
    assert "contract" in cpu.compile_kernel(source, True).llvm()


def test_the_sign_of_zero_is_kept():
    prelude = "zero = float32(0.0)"
    source = source_of("out[k] = x[k] + zero", "float32", {"x": "float32"}, {"out": "float32"}, prelude)
    assert not np.signbit(run(source, np.array([-0.0] * 40, np.float32))[0]).any()


def test_fastmath_keeps_nan_and_infinity():
    body = """
        v = x[k]
        if v != v:
            y = float32(1.0)
        elif v - v != v - v:
            y = float32(2.0)
        else:
            y = v / float32(3.0)
        out[k] = y
    """
    x = np.tile(np.array([np.nan, np.inf, -np.inf, 6.0], np.float32), 20)
    (out,) = run(source_of(body, "float32", {"x": "float32"}, {"out": "float32"}), x, fastmath=True)
    np.testing.assert_allclose(out, np.tile(np.array([1, 2, 2, 2], np.float32), 20), rtol=1e-6)


# --- storage ----------------------------------------------------------------------------------------------------------

SIXTEEN_BITS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
# How float16 is converted: in hardware where there is any, and by integers.
WAYS = [("float16", True), ("float16", False), ("bfloat16", True)]


@pytest.fixture(params=WAYS, ids=["float16", "float16-integers", "bfloat16"])
def sixteen(request, monkeypatch, tmp_path):
    from dualbcast.runtime import cpu_math

    name, hardware = request.param
    if not hardware:
        monkeypatch.setattr(cpu_math, "_converts_half", lambda: False)
        monkeypatch.setattr(cpu, "_kernels", {})
        monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path))
    return name


def test_every_16_bit_pattern_loads(sixteen):
    patterns = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    source = source_of(f"out[k] = load_{sixteen}(x, k)", "float32", {"x": sixteen}, {"out": "float32"})
    (got,) = run(source, patterns)
    expected = patterns.view(SIXTEEN_BITS[sixteen]).astype(np.float32)
    nan = np.isnan(expected)
    assert np.isnan(got[nan]).all()
    np.testing.assert_array_equal(got[~nan].view(np.uint32), expected[~nan].view(np.uint32))
    assert re.search(r"store <\d+ x (float|i32)>", cpu.compile_kernel(source, False).llvm())


def test_stores_round_to_nearest_even(sixteen):
    random = np.random.default_rng(0)
    kind = SIXTEEN_BITS[sixteen]
    exact = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(kind).astype(np.float32)
    finite = np.sort(exact[np.isfinite(exact)].astype(np.float64))
    with np.errstate(over="ignore"):
        ties = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)  # exact: one more bit than the format has
        beside = [np.nextafter(ties, np.float32(sign * np.inf)) for sign in (-1, 1)]
    bits = random.integers(0, 1 << 32, 1 << 17, dtype=np.uint64).astype(np.uint32).view(np.float32)
    halves = np.exp2(random.uniform(-30, 17, 1 << 16)).astype(np.float32) * random.choice([-1, 1], 1 << 16)
    limits = np.array([65504, 65519.996, 65520, 65536, np.inf, -np.inf, np.nan, 2.0**-25, 2.0**-24], np.float32)
    x = np.concatenate([exact, ties, *beside, bits, halves.astype(np.float32), limits, -limits])
    source = source_of(f"store_{sixteen}(out, k, x[k])", "float32", {"x": "float32"}, {"out": sixteen})
    (got,) = run(source, x)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = x.astype(kind)
    nan = np.isnan(x)
    assert np.isnan(got[nan].view(kind).astype(np.float32)).all()
    np.testing.assert_array_equal(got[~nan], expected[~nan].view(np.uint16))
    assert re.search(r"store <\d+ x (i16|half)>", cpu.compile_kernel(source, False).llvm())


def test_bool_and_integer_storage():
    body = """
        b = p[k] != 0
        if b and i[k] % int64(3) == int64(1):
            y = i[k] // int64(2) + (i[k] << int64(1))
        else:
            y = -i[k]
        out[k] = y
        flag[k] = uint8(not b)
    """
    source = source_of(body, "float32", {"p": "bool", "i": "int64"}, {"out": "int64", "flag": "bool"})
    p = np.arange(100, dtype=np.uint8) % 2
    i = np.arange(-50, 50, dtype=np.int64)
    out, flag = run(source, p, i)
    np.testing.assert_array_equal(out, np.where((p != 0) & (i % 3 == 1), i // 2 + (i << 1), -i))
    np.testing.assert_array_equal(flag, 1 - p)


# --- loops ------------------------------------------------------------------------------------------------------------

PRELUDE = """
f32_0 = float32(0.0)
f32_1 = float32(1.0)

def sigmoid(x):
    return f32_1 / (f32_1 + exp(-x))
"""
# The HM-LSTM update with control per row, its value and four partials, over rank 2: rows of n1, one z and zb for each.
CELL_UPDATE = (
    PRELUDE
    + """
def element(k, k_z, c, f, i, g, z, zb, out, out_c, out_f, out_i, out_g):
    if z[k_z] == f32_1:
        s = sigmoid(i[k])
        t = tanh(g[k])
        y = s * t
        y_c = f32_0
        y_f = f32_0
        y_i = s * (f32_1 - s) * t
        y_g = s * (f32_1 - t * t)
    elif zb[k_z] == f32_0:
        y = c[k]
        y_c = f32_1
        y_f = f32_0
        y_i = f32_0
        y_g = f32_0
    else:
        s = sigmoid(f[k])
        q = sigmoid(i[k])
        t = tanh(g[k])
        y = s * c[k] + q * t
        y_c = s
        y_f = s * (f32_1 - s) * c[k]
        y_i = q * (f32_1 - q) * t
        y_g = q * (f32_1 - t * t)
    out[k] = y
    out_c[k] = y_c
    out_f[k] = y_f
    out_i[k] = y_i
    out_g[k] = y_g

def kernel(start, stop, n0, n1, s0_z, c, f, i, g, z, zb, out, out_c, out_f, out_i, out_g):
    e = start
    while e < stop:
        r1 = e // n1
        first = e - r1 * n1
        last = min(n1, first + stop - e)
        b = r1 * n1
        b_z = r1 * s0_z
        for j in range(first, last):
            element(b + j, b_z, c, f, i, g, z, zb, out, out_c, out_f, out_i, out_g)
        e += last - first
"""
)
CELL = KernelSource(
    CELL_UPDATE,
    ("sigmoid", "element"),
    "kernel",
    "float32",
    ("float32",) * 6,
    ("float32",) * 5,
    Layout(2, ("11", "s0"), (0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0)),
)


def cell_arguments(rows: int, columns: int) -> list[np.ndarray]:
    random = np.random.default_rng(4)
    gates = [random.standard_normal((rows, columns), dtype=np.float32) for _ in range(4)]
    # Every other one belongs to the control: a stride of two.
    return [*gates, *(random.integers(0, 2, 2 * rows).astype(np.float32) for _ in range(2))]


def cell_run(arguments: list[np.ndarray], threads: int = 1, pieces: list[int] | None = None) -> np.ndarray:
    rows, columns = arguments[0].shape
    out = np.full((5, rows, columns), np.nan, np.float32)
    pointers = [array.ctypes.data for array in (*arguments, *out)]
    kernel = cpu.compile_kernel(CELL, False)
    if pieces is None:
        cpu.launch(kernel, rows * columns, (rows, columns, 2), pointers, threads)
    else:
        for start, stop in itertools.pairwise(pieces):
            kernel(start, stop, (rows, columns, 2), pointers)
    return out


def cell_expected(arguments: list[np.ndarray]) -> np.ndarray:
    """The update and its partials by hand, in float64."""
    c, f, i, g = (array.astype(np.float64) for array in arguments[:4])
    z, zb = (array[::2, None] for array in arguments[4:])
    s, q, t = 1 / (1 + np.exp(-f)), 1 / (1 + np.exp(-i)), np.tanh(g)
    zero, one = np.zeros_like(c), np.ones_like(c)
    flush = [q * t, zero, zero, q * (1 - q) * t, q * (1 - t**2)]
    copy = [c, one, zero, zero, zero]
    update = [s * c + q * t, s, s * (1 - s) * c, q * (1 - q) * t, q * (1 - t**2)]
    return np.array([np.where(z == 1, a, np.where(zb == 0, b, u)) for a, b, u in zip(flush, copy, update, strict=True)])


@pytest.mark.parametrize("shape", [(1, 1), (37, 53), (5, 300), (300, 5), (3, 16)])
def test_rows_with_their_own_control(shape):
    arguments = cell_arguments(*shape)
    np.testing.assert_allclose(cell_run(arguments), cell_expected(arguments), rtol=2e-6, atol=1e-6)


def test_control_by_rows_leaves_the_inner_loop():
    llvm = cpu.compile_kernel(CELL, False).llvm()
    # Three loops without a branch in them: no masked access, and vector stores.
    assert "masked" not in llvm
    assert re.search(r"store <\d+ x float>", llvm)
    if cpu._has_libmvec():
        assert {name[-4:] for name in vector_calls(llvm)} == {"expf", "anhf"}


def test_control_by_elements_becomes_selects():
    body = """
        if c[k] != 0:
            y = tanh(x[k])
        elif x[k] > one:
            y = log(x[k])
        else:
            y = one
        out[k] = y
    """
    storage = {"c": "bool", "x": "float32"}
    source = source_of(body, "float32", storage, {"out": "float32"}, "one = float32(1.0)")
    x = np.random.default_rng(5).normal(1, 3, 1001).astype(np.float32)
    c = np.arange(1001, dtype=np.uint8) % 2
    (out,) = run(source, c, x)
    with np.errstate(invalid="ignore"):
        expected = np.where(c != 0, np.tanh(x.astype(float)), np.where(x > 1, np.log(x.astype(float)), 1))
    np.testing.assert_allclose(out, expected, rtol=5e-7)
    llvm = cpu.compile_kernel(source, False).llvm()
    assert {name[-4:] for name in vector_calls(llvm)} == ({"anhf", "logf"} if cpu._has_libmvec() else set())


def test_any_partition_covers_each_element_once():
    arguments = cell_arguments(3, 7)
    whole = cell_run(arguments)
    for start, stop in itertools.combinations_with_replacement(range(22), 2):
        part = cell_run(arguments, pieces=[start, stop]).reshape(5, 21)
        assert np.isnan(part[:, :start]).all()
        assert np.isnan(part[:, stop:]).all()
        np.testing.assert_allclose(part[:, start:stop], whole.reshape(5, 21)[:, start:stop], rtol=1e-6, atol=1e-7)


def product_of_tanh(arity: int) -> KernelSource:
    """y = tanh(x0)·tanh(x1)·… and its partials, from products of those before and those after."""
    names = [f"x{n}" for n in range(arity)]
    lines = [f"t{n} = tanh(x{n}[k])" for n in range(arity)] + ["p0 = one", f"s{arity} = one"]
    lines += [f"p{n + 1} = p{n} * t{n}" for n in range(arity)]
    lines += [f"s{n} = s{n + 1} * t{n}" for n in reversed(range(arity))]
    lines += [f"out[k] = p{arity}"] + [f"out_x{n}[k] = p{n} * s{n + 1} * (one - t{n} * t{n})" for n in range(arity)]
    outputs = ["out", *(f"out_{name}" for name in names)]
    return source_of(
        "\n".join(lines),
        "float32",
        dict.fromkeys(names, "float32"),
        dict.fromkeys(outputs, "float32"),
        "one = float32(1.0)",
    )


def test_many_pointers_do_not_stop_the_vectoriser():
    arity = 16
    inputs = [np.random.default_rng(n).normal(0, 3, 1003).astype(np.float32) for n in range(arity)]
    source = product_of_tanh(arity)
    value, *partials = run(source, *inputs)
    t = np.tanh(np.array(inputs, np.float64))
    np.testing.assert_allclose(value, t.prod(0), rtol=3e-5)
    for n, partial in enumerate(partials):
        others = np.delete(t, n, 0).prod(0)
        np.testing.assert_allclose(partial, others * (1 - t[n] ** 2), rtol=2e-4, atol=1e-7)
    llvm = cpu.compile_kernel(source, False).llvm()
    assert len(re.findall(r"store <\d+ x float>", llvm)) >= arity + 1
    assert bool(vector_calls(llvm)) == cpu._has_libmvec()


# --- compiling and caching --------------------------------------------------------------------------------------------

DOUBLE = source_of("out[k] = x[k] + tanh(x[k])", "float64", {"x": "float64"}, {"out": "float64"})


def renamed(source: KernelSource, comment: str) -> KernelSource:
    """The same kernel with other text, that no cache has seen."""
    return dataclasses.replace(source, text=f"# {comment}\n{source.text}")


def test_code_can_be_read():
    kernel = cpu.compile_kernel(DOUBLE, False)
    assert "define" in kernel.llvm()
    assert "double" in kernel.llvm()
    assert re.search(r"\bret", kernel.asm())


def test_one_kernel_for_each_source_and_flag():
    kernel = cpu.compile_kernel(DOUBLE, False)
    assert cpu.compile_kernel(dataclasses.replace(DOUBLE), False) is kernel
    assert cpu.compile_kernel(DOUBLE, True) is not kernel


def test_threads_compile_one_kernel(monkeypatch):
    built = []
    build = cpu._build
    monkeypatch.setattr(cpu, "_build", lambda *arguments: built.append(arguments) or build(*arguments))
    source, kernels = renamed(DOUBLE, "threads"), []
    workers = [threading.Thread(target=lambda: kernels.append(cpu.compile_kernel(source, False))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(built) == 1
    assert len(kernels) == 4
    assert len(set(map(id, kernels))) == 1


def test_the_text_is_a_file():
    source = renamed(DOUBLE, "a file")
    cpu.compile_kernel(source, False)
    texts = [path.read_text() for path in cache.directory().rglob("*.py")]
    assert source.text in texts


def test_text_that_numba_refuses_is_an_error_that_names_the_file():
    source = source_of("out[k] = x[k] + 'a'", "float64", {"x": "float64"}, {"out": "float64"})
    with pytest.raises(BackendError, match=r"element.*\.py") as caught:
        cpu.compile_kernel(source, False)
    assert caught.value.__cause__ is not None


def test_numba_switched_off_is_said(monkeypatch):
    from numba.core import config

    monkeypatch.setattr(config, "DISABLE_JIT", 1)
    with pytest.raises(BackendError, match="NUMBA_DISABLE_JIT"):
        cpu.compile_kernel(renamed(DOUBLE, "switched off"), False)


def test_an_error_in_a_kernel_is_not_lost():
    body = """
        n = 0
        for j in range(0, 10, m[k]):
            n += j
        out[k] = n
    """
    source = source_of(body, "float64", {"m": "int64"}, {"out": "int64"})
    np.testing.assert_array_equal(run(source, np.array([1, 5, 20]))[0], [45, 5, 0])
    with pytest.raises(BackendError, match="element"):
        run(source, np.array([1, 0]))


def test_without_a_cache_directory_kernels_compile(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path / "file"))
    (out,) = run(renamed(DOUBLE, "nowhere"), np.array([0.0, 1.0]))
    np.testing.assert_allclose(out, [0.0, 1 + np.tanh(1.0)])


SECOND = """
import sys
import numpy as np
from dualbcast.abi import KernelSource, Layout
from dualbcast.runtime import cpu
assert "llvmlite" not in sys.modules and "numba" not in sys.modules
source = eval(sys.argv[1])
x, out = np.linspace(-2, 2, 1001), np.zeros(1001)
for _ in range(2):
    cpu.launch(cpu.compile_kernel(source, False), 1001, (1001,), (x.ctypes.data, out.ctypes.data))
np.testing.assert_allclose(out, x + np.tanh(x), rtol=1e-15)
print("numba" in sys.modules)
"""


def second_process(source: KernelSource) -> str:
    command = [sys.executable, "-c", SECOND, repr(source)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_second_process_needs_no_numba(monkeypatch, tmp_path):
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path))
    assert second_process(DOUBLE) == "True"
    assert second_process(DOUBLE) == "False"
    # A damaged entry: compiled anew, and right.
    (entry,) = tmp_path.rglob("*.bin")
    data = entry.read_bytes()
    entry.write_bytes(data[:-40] + bytes(40))
    assert second_process(DOUBLE) == "True"
    assert second_process(DOUBLE) == "False"


def test_the_key_covers_source_flags_and_machine(monkeypatch):
    keys = {cpu._key(DOUBLE, False), cpu._key(DOUBLE, True), cpu._key(renamed(DOUBLE, "x"), False)}
    keys.add(cpu._key(dataclasses.replace(DOUBLE, inputs=("float32",)), False))
    keys.add(cpu._key(dataclasses.replace(DOUBLE, layout=Layout(1, ("s",), (0, 0))), False))
    monkeypatch.setattr(cpu, "_environment", lambda: "another machine")
    keys.add(cpu._key(DOUBLE, False))
    assert len(keys) == 6


# --- threads ----------------------------------------------------------------------------------------------------------


class Recorder:
    """Stands for a kernel: takes its time, and notes which thread ran which range."""

    def __init__(self, rank: int = 1, seconds: float = 2e-3, fail_at: int | None = None) -> None:
        self.source = SimpleNamespace(layout=SimpleNamespace(rank=rank))
        self.seconds, self.fail_at = seconds, fail_at
        self.calls: list[tuple[int, int, int]] = []

    def __call__(self, start, stop, _ints, _pointers):
        self.calls.append((start, stop, threading.get_ident()))
        if self.seconds:
            time.sleep(self.seconds)
        if self.fail_at is not None and start <= self.fail_at < stop:
            raise BackendError("failed in a range")

    def covered(self) -> list[int]:
        return [index for start, stop, _ in sorted(self.calls) for index in range(start, stop)]


POINTERS = [0] * 1000  # So many that a launch thinks of threads from 512 elements on.


def test_ranges_cover_all_and_threads_share_them(monkeypatch):
    monkeypatch.setattr(cpu, "_allowed_cpus", lambda: 4)
    monkeypatch.setattr(cpu, "_pool", None)
    for ints in ((10_000,), (100, 100), (10, 1000)):
        recorder = Recorder(len(ints))
        cpu.launch(recorder, 10_000, ints, POINTERS, threads=4)
        assert recorder.covered() == list(range(10_000))
        assert len({thread for *_, thread in recorder.calls}) >= 2
        assert all(start % ints[-1] % 256 == 0 for start, *_ in recorder.calls)


@pytest.mark.parametrize("total", [0, 1, 511, 512, 513, 769, 1023])
def test_every_total_is_covered(total):
    recorder = Recorder(seconds=1e-4)
    cpu.launch(recorder, total, (total,), POINTERS, threads=3)
    assert recorder.covered() == list(range(total))


def test_little_work_stays_on_this_thread():
    recorder = Recorder(seconds=0)
    cpu.launch(recorder, 2000, (2000,), POINTERS, threads=8)
    assert {thread for *_, thread in recorder.calls} == {threading.get_ident()}
    one = Recorder()
    cpu.launch(one, 2000, (2000,), POINTERS, threads=1)
    assert one.calls == [(0, 2000, threading.get_ident())]


@pytest.mark.parametrize("fail_at", [0, 700, 5000, 9999])
def test_an_error_in_any_range_is_raised_after_the_others_end(fail_at):
    recorder = Recorder(fail_at=fail_at)
    with pytest.raises(BackendError, match="failed in a range"):
        cpu.launch(recorder, 10_000, (10_000,), POINTERS, threads=3)
    calls = len(recorder.calls)
    time.sleep(0.01)
    assert len(recorder.calls) == calls
    # The pool still works.
    recorder = Recorder()
    cpu.launch(recorder, 10_000, (10_000,), POINTERS, threads=3)
    assert recorder.covered() == list(range(10_000))


def test_concurrent_callers():
    recorders = [Recorder() for _ in range(8)]
    callers = [
        threading.Thread(target=cpu.launch, args=(recorder, 5000, (5000,), POINTERS, 3)) for recorder in recorders
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(30)
    assert all(recorder.covered() == list(range(5000)) for recorder in recorders)


@pytest.mark.parametrize("shape", [(700, 1000), (3, 200_001), (100_000, 7)])
def test_the_number_of_threads_does_not_change_a_bit(monkeypatch, shape):
    monkeypatch.setattr(cpu, "_WORTH_A_THREAD", 0)
    monkeypatch.setattr(cpu, "_WORTH_A_RANGE", 1)
    arguments = cell_arguments(*shape)
    alone = cell_run(arguments)
    for threads in (2, 3, 7):
        np.testing.assert_array_equal(cell_run(arguments, threads).view(np.uint32), alone.view(np.uint32))


def test_the_environment_sets_the_number_of_threads(monkeypatch):
    monkeypatch.setenv("DUALBCAST_NUM_THREADS", "3")
    assert cpu.default_threads() == 3
    for wrong in ("0", "-1", "many", "1.5", ""):
        monkeypatch.setenv("DUALBCAST_NUM_THREADS", wrong)
        with pytest.raises(BackendError, match="DUALBCAST_NUM_THREADS"):
            cpu.default_threads()
    monkeypatch.delenv("DUALBCAST_NUM_THREADS")
    assert 1 <= cpu.default_threads() <= (os.cpu_count() or 1)


def test_the_lock_of_the_interpreter_is_released():
    kernel = cpu.compile_kernel(operation("lgamma", "float64"), False)
    x = np.random.default_rng(0).uniform(1, 50, 3_000_000)
    out, began, ticks = np.empty_like(x), threading.Event(), []

    def tick() -> None:
        while not began.is_set():
            ticks.append(time.perf_counter())
            time.sleep(1e-3)

    ticker = threading.Thread(target=tick)
    ticker.start()
    start = time.perf_counter()
    kernel(0, x.size, (x.size,), (x.ctypes.data, out.ctypes.data))
    stop = time.perf_counter()
    began.set()
    ticker.join()
    assert sum(start < moment < stop for moment in ticks) >= 3


FORK = """
import os, sys
import numpy as np
from dualbcast.abi import KernelSource, Layout
from dualbcast.runtime import cpu
cpu._WORTH_A_THREAD = 0
kernel = cpu.compile_kernel(eval(sys.argv[1]), False)
x = np.linspace(-2, 2, 1_000_000)
def check():
    out = np.zeros_like(x)
    cpu.launch(kernel, x.size, (x.size,), (x.ctypes.data, out.ctypes.data), 2)
    np.testing.assert_allclose(out, x + np.tanh(x), rtol=1e-15)
    assert cpu._pool is not None
check()
child = os.fork()
if child == 0:
    assert cpu._pool is None
    check()
    os._exit(0)
check()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_launches_work_after_a_fork():
    command = [sys.executable, "-W", "ignore", "-c", FORK, repr(DOUBLE)]
    subprocess.run(command, check=True, timeout=60)
