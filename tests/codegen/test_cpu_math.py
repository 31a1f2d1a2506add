"""Every operation of the CPU backend against mpmath and against IEEE's special values."""

from __future__ import annotations

import functools
import itertools
import re

import mpmath
import numpy as np
import pytest
from accuracy import units_off
from cpu_kernels import Kernel, compiled, from_library, is_inlined, library_calls, run, run_afresh
from cpu_kernels import source_of as source_of_elements

from dualbcast.codegen import mathlib
from dualbcast.codegen.llvm import build as llvm_build
from dualbcast.codegen.llvm import target
from dualbcast.codegen.mathlib import primitives

UNARY = [
    *("sqrt", "cbrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos"),
    *("atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "tgamma", "floor", "ceil"),
    *("trunc", "rint", "fabs"),
]
BINARY = ["atan2", "hypot", "pow", "fmod", "copysign", "nextafter"]
EXACT = {"sqrt", "floor", "ceil", "trunc", "rint", "fabs", "fmod", "copysign", "nextafter"}
DTYPES = ("float32", "float64")
source_of = functools.partial(source_of_elements, vectors=2)


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def operation(name: str, dtype: str) -> Kernel:
    names = ("x", "y")[: 2 if name in BINARY else 1]
    loads = ", ".join(f"{x}[k]" for x in names)
    return source_of(f"out[k] = {name}({loads})", dtype, dict.fromkeys(names, dtype), {"out": dtype})


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
    # glibc's manual gives up to 5 for lgamma and 9 for tgamma; half is the rounding.
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


def nearest_to_multiples(digits: int) -> list[mpmath.mpf]:
    """Numbers of at most so many binary digits that are nearest to multiples of pi / 2, by continued fractions."""
    found = []
    for exponent in range(-digits, 0, 3):
        rest, before, numerator = mpmath.ldexp(mpmath.pi / 2, -exponent), 0, 1
        while numerator < 2**digits:
            found.append(mpmath.ldexp(numerator, exponent))
            whole = int(rest)
            before, numerator, rest = numerator, whole * numerator + before, 1 / (rest - whole)
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_the_last_digits_of_pi_count_near_its_multiples(name, dtype):
    random = np.random.default_rng(6)
    turns = np.concatenate([np.arange(1, 65), *(random.integers(1, 2**bits, 40) for bits in range(7, 41))])
    with mpmath.workprec(400):
        zeros = [int(turn) * mpmath.pi / 2 for turn in turns] + nearest_to_multiples(np.finfo(dtype).nmant)
        zeros = np.array(list(map(float, zeros))).astype(dtype)
        zeros = zeros[zeros < 2**40]  # beyond, glibc's scalar sin is up to seven units off at such places
        x = np.concatenate([zeros, np.nextafter(zeros, 0, dtype=dtype), -zeros])
        (out,) = run(operation(name, dtype), x)
        errors = [units_off(got, exactly(name, float(value))) for got, value in zip(out, x, strict=True)]
    worst = int(np.argmax(errors))
    assert errors[worst] <= (2 if is_inlined(name) else 4), (float(x[worst]), out[worst], errors[worst])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_one_large_number_of_a_vector_changes_no_other(name, dtype):
    if not is_inlined(name):
        pytest.skip("the library's vectors are its own matter")
    x = samples(name, dtype, 4)
    small = x[np.abs(x) < 1e4]
    (expected,) = run(operation(name, dtype), small)
    large = np.array([1e15, -1e22, np.finfo(dtype).max, INF, -INF, NAN], dtype)
    alone = np.concatenate([run(operation(name, dtype), large[k : k + 1])[0] for k in range(large.size)])
    with mpmath.workprec(1400):
        assert max(units_off(alone[k], exactly(name, float(large[k]))) for k in range(3)) <= 1
    assert np.isnan(alone[3:]).all()
    for place in range(0, small.size, 5):
        mixed, k = small.copy(), place % large.size
        mixed[place] = large[k]
        (out,) = run(operation(name, dtype), mixed)
        np.testing.assert_array_equal(out, np.concatenate([expected[:place], alone[k : k + 1], expected[place + 1 :]]))


# Where an angle is nearer to another line, its function takes another branch, or the library's takes over.
SLOPES = (0.0, 2.0**-60, 0.25, 0.5, 1.0, 2.0, 4.0, 2.0**30, 2.0**60)


def around(values, dtype, count=9):
    """Numbers of both signs with their neighbours."""
    found = np.array(values, dtype)
    for toward in (np.inf, -np.inf):
        near = np.array(values, dtype)
        for _ in range(count):
            near = np.nextafter(near, np.asarray(toward, dtype))
            found = np.concatenate([found, near])
    return np.unique(np.concatenate([found, -found]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["asin", "acos", "atan"])
def test_angles_are_accurate_where_the_way_of_computing_changes(name, dtype):
    x = around((0.0, 0.25, 0.5, 0.7071, 0.95, 1.0) if name != "atan" else SLOPES, dtype)
    x = x[np.abs(x) <= 1] if name != "atan" else x
    (out,) = run(operation(name, dtype), x)
    limit = {"asin": 2.1, "acos": 1.3, "atan": 1.6}[name]
    with mpmath.workprec(400):
        assert max(units_off(got, exactly(name, float(value))) for got, value in zip(out, x, strict=True)) <= limit
    if name != "acos":
        np.testing.assert_array_equal(np.signbit(out), np.signbit(x))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_angle_of_any_two_sides_is_accurate(dtype):
    info = np.finfo(dtype)
    smallest, largest = float(info.smallest_subnormal), float(info.max)
    slopes = around(SLOPES[:-1], dtype, count=2)
    # Sides from subnormal to the largest numbers, which the library computes.
    sizes = np.array([smallest * 40, info.tiny, 4 * info.tiny, 1e-20, 0.3, 1.0, 1e15, largest / 8, largest / 2], dtype)
    with np.errstate(over="ignore"):
        y, x = (each.ravel() for each in np.broadcast_arrays(slopes[:, None] * sizes, sizes))
    x = np.concatenate([x, -x])
    y = np.concatenate([y, y])
    given = np.isfinite(y)
    y, x = y[given], x[given]
    (out,) = run(operation("atan2", dtype), y, x)
    with mpmath.workprec(400):
        sides = zip(np.abs(out), np.abs(y), x, strict=True)  # mpmath's zeros have no sign
        errors = [units_off(got, mpmath.atan2(float(b), float(a))) for got, b, a in sides]
    worst = int(np.argmax(errors))
    assert errors[worst] <= 1.6, (y[worst], x[worst], out[worst])
    np.testing.assert_array_equal(np.signbit(out), np.signbit(y))


@pytest.mark.parametrize("dtype", DTYPES)
def test_erfc_ends_in_subnormal_numbers_and_zero(dtype):
    info = np.finfo(dtype)
    x = np.linspace(*((9.0, 10.5) if dtype == "float32" else (26.0, 28.0)), 2000).astype(dtype)
    x = np.concatenate([x, np.array([40, 1e3, 1e18, info.max, INF], dtype)])
    (out,) = run(operation("erfc", dtype), x)
    with mpmath.workprec(200):
        errors = [units_off(got, exactly("erfc", float(value))) for got, value in zip(out[:-1], x[:-1], strict=True)]
    assert max(errors) <= 4, float(x[int(np.argmax(errors))])
    assert ((out > 0) & (out < info.tiny)).any()
    assert not out[-5:].any()
    (mirrored,) = run(operation("erfc", dtype), -x)
    assert (mirrored == 2).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_log_of_subnormal_numbers_and_of_powers_of_two(dtype):
    info = np.finfo(dtype)
    powers = np.exp2(np.arange(int(info.minexp) - int(info.nmant), int(info.maxexp), dtype=np.float64)).astype(dtype)
    x = np.concatenate([powers, np.nextafter(powers, 0, dtype=dtype)[1:], np.nextafter(powers, INF, dtype=dtype)])
    (out,) = run(operation("log", dtype), x)
    with mpmath.workprec(200):
        errors = [units_off(got, mpmath.log(float(value))) for got, value in zip(out, x, strict=True)]
    assert max(errors) <= (1 if is_inlined("log") else 4), float(x[int(np.argmax(errors))])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [0, 3])
def test_a_remainder_is_exact(dtype, length):
    """NumPy's is the C library's: at multiples and their neighbours, large and small quotients, and what is special.

    Whole vectors, and what is left of a row, are computed in different ways where there is no fused multiply-add.
    """
    random, info = np.random.default_rng(0), np.finfo(dtype)
    by = random.normal(0, 3, 20_000).astype(dtype)
    multiples = (random.integers(-(2**12), 2**12, by.size) * by).astype(dtype)
    many = (random.integers(0, 2 ** (info.nmant + 2), by.size) * by).astype(dtype)
    subnormal = random.integers(0, 2**12, by.size).astype(dtype) * info.smallest_subnormal
    scales = 2.0 ** random.uniform(-40, 40, by.size)
    special = np.array([0, 1, 3, 0.5, np.inf, np.nan, info.tiny, info.smallest_subnormal, info.max, 2.0**info.nmant])
    special = np.concatenate([special, -special]).astype(dtype)
    pairs = [
        *((np.nextafter(multiples, np.asarray(to, dtype)), by) for to in (-np.inf, np.inf)),
        *((multiples, by), (many, by), (subnormal, subnormal[::-1]), (by, multiples)),
        ((by * scales).astype(dtype), by[::-1]),
        (np.repeat(special, special.size), np.tile(special, special.size)),
    ]
    x, y = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    x, y = x[: x.size // 64 * 64 + length], y[: x.size // 64 * 64 + length]
    (found,) = run(operation("fmod", dtype), x, y)
    with np.errstate(all="ignore"):
        wanted = np.fmod(x, y)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found[wanted == 0]), np.signbit(wanted[wanted == 0]))


@pytest.mark.usefixtures("without_fma")
def test_a_remainder_without_fused_multiply_add():
    x = np.linspace(-9, 9, 77)
    (found,) = run(operation("fmod", "float64"), x, np.full(77, 1.25))
    np.testing.assert_array_equal(found, np.fmod(x, 1.25))


# Those whose rare arguments the C library takes.
WITH_LIBRARY = {"sin", "cos", "tan", "lgamma"}


@pytest.mark.parametrize("name", sorted(set(target.FUNCTIONS) - {"fmod"} - WITH_LIBRARY))
def test_loops_of_vectors_call_no_library(name):
    llvm = compiled(operation(name, "float32")).llvm()
    assert re.search(r"<\d+ x float>", llvm)
    assert library_calls(llvm) == from_library(name)


@pytest.fixture
def without_fma(monkeypatch):
    """As on a processor without fused multiply-add."""
    monkeypatch.setattr(mathlib, "has_fma", lambda: False)
    mathlib.names.cache_clear()
    yield
    mathlib.names.cache_clear()


@pytest.mark.usefixtures("without_fma")
@pytest.mark.parametrize("name", mathlib.FUNCTIONS)
def test_without_fused_multiply_add_functions_are_the_librarys(name):
    built = llvm_build.build(operation(name, "float32").program, False)
    assert library_calls(built.llvm) == {name}
    assert "fma" not in built.llvm


def test_arithmetic_is_not_contracted_unless_asked():
    source = source_of("out[k] = x[k] * x[k] - y[k]", "float32", {"x": "float32", "y": "float32"}, {"out": "float32"})
    x = np.random.default_rng(0).standard_normal(1000, dtype=np.float32)
    assert not run(source, x, x * x)[0].any()
    # A fused multiply-add leaves the rounding error of the product: the flags reach LLVM.
    assert "contract" in compiled(source, fastmath=True).llvm()


def test_the_sign_of_zero_is_kept():
    prelude = "zero = float32(0.0)"
    source = source_of("out[k] = x[k] + zero", "float32", {"x": "float32"}, {"out": "float32"}, prelude)
    assert not np.signbit(run(source, np.array([-0.0] * 40, np.float32))[0]).any()


def test_fastmath_keeps_nan_and_infinity():
    body = """
        v = x[k]
        if v != v:
            y = one
        elif v - v != v - v:
            y = two
        else:
            y = v / three
        out[k] = y
    """
    x = np.tile(np.array([np.nan, np.inf, -np.inf, 6.0], np.float32), 20)
    prelude = "one = float32(1.0)\ntwo = float32(2.0)\nthree = float32(3.0)"
    (out,) = run(source_of(body, "float32", {"x": "float32"}, {"out": "float32"}, prelude), x, fastmath=True)
    np.testing.assert_allclose(out, np.tile(np.array([1, 2, 2, 2], np.float32), 20), rtol=1e-6)


@pytest.mark.skipif(not primitives.has_scaling(), reason="no instruction for it")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["exp", "erfc", "sigmoid"])
def test_scaling_by_an_instruction_gives_the_bits_of_two_steps(name, dtype, monkeypatch):
    info, extreme = np.finfo(dtype), {"float32": 110, "float64": 760}[dtype]
    random = np.random.default_rng(7)
    x = [samples("exp", dtype, 8), edges(dtype), random.uniform(-extreme, extreme, 3000), random.uniform(-30, 30, 1000)]
    x = np.concatenate(x).astype(dtype)[:-1]  # the last of an odd number is no vector's
    body = "out[k] = exp(-fabs(x[k]))" if name == "sigmoid" else f"out[k] = {name}(x[k])"
    source = source_of(body, dtype, {"x": dtype}, {"out": dtype})
    found = []
    for is_one in (True, False):
        monkeypatch.setattr(primitives, "has_scaling", lambda is_one=is_one: is_one)
        (out,), asm = run_afresh(source, x)
        assert ("vscalef" in asm) == is_one
        assert "call" not in re.findall(r"^\t(\w+)", asm, re.MULTILINE)
        found.append(out)
    same = (found[0].view(f"u{info.dtype.itemsize}") == found[1].view(f"u{info.dtype.itemsize}")) | np.isnan(x)
    assert same.all(), x[~same][:5]
    assert (np.isnan(found[0]) == np.isnan(x)).all()
    assert ((found[0] > 0) & (found[0] < info.tiny)).any()
