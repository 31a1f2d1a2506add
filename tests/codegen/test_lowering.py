"""The CPU backend's lowering of texts to LLVM: each construct means what it means in Python on NumPy's numbers."""

from __future__ import annotations

import itertools
import re
import textwrap
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cells import Cell
from corpus import CORPUS, Case
from cpu_kernels import run, source_of
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import binding, ir
from random_texts import Writer
from texts import Arrays, assert_same_bits, by_numba, by_python, suits_numba, with_wrapping_literals

from dualbcast import differentiable_broadcast
from dualbcast.codegen import mathlib
from dualbcast.codegen.llvm.build import lower
from dualbcast.codegen.llvm.unit import Unit
from dualbcast.errors import BackendError
from dualbcast.kernel_spec import KernelSource
from dualbcast.runtime.cpu import kernel as cpu_kernel

DTYPES = ("float32", "float64")
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
LOWEST, HIGHEST = -(2**63), 2**63 - 1
Named = dict[str, np.ndarray[Any, Any]]


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def kernel(body: str, inputs: Named, outputs: dict[str, str], prelude: str = "", dtype: str = "float64") -> Any:
    return source_of(body, dtype, {name: array.dtype.name for name, array in inputs.items()}, outputs, prelude)


def check(body: str, inputs: Named, outputs: dict[str, str], prelude: str = "", dtype: str = "float64") -> Arrays:
    """The body's outputs, which are what Python gives."""
    source = kernel(body, inputs, outputs, prelude, dtype)
    found = run(source, *inputs.values())
    assert_same_bits(found, by_python(source, *inputs.values()))
    return found


def pairs(values: Any, dtype: str, rest: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """All pairs, and then some: vectors, and the end of a row that does not fill one."""
    both = np.array(list(itertools.product(np.array(values, dtype), repeat=2)))
    both = np.concatenate([both, both[:rest]])
    return np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])


def floats(dtype: str) -> list[float]:
    info = np.finfo(dtype)
    small = [0.0, info.smallest_subnormal, info.tiny, 0.1, 0.5, 1.0, 1 + info.eps, 1.5, 3.0, 1e10, info.max, np.inf]
    return [*map(float, small), *(-float(value) for value in small), np.nan]


WHOLE = [*range(-9, 10), 63, 64, -64, 2**31, 2**32 + 1, 2**53 + 1, LOWEST, LOWEST + 1, HIGHEST, HIGHEST - 1]


# --- constants -------------------------------------------------------------------------------------------------------

LITERALS = [
    "0.1",
    "-0.1",
    "0.0",
    "-0.0",
    "1",
    "-3",
    "5e-324",
    "1e-45",
    "1e-50",
    "1e300",
    "-1e39",
    "1.7976931348623157e308",
]
LITERALS += ["16777217", "0.1000000014901161", '"inf"', '"-inf"', '"nan"']


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("literal", LITERALS)
def test_a_constant_is_numpys(literal: str, dtype: str) -> None:
    check("out[k] = c + x[k]", {"x": np.array([-0.0, 0.0], dtype)}, {"out": dtype}, f"c = {dtype}({literal})", dtype)


@pytest.mark.parametrize("value", [0, 1, -1, LOWEST, HIGHEST, 2**53 + 1])
def test_an_integer_constant_is_exact(value: int) -> None:
    (named, written) = check(
        f"out[k] = c\nother[k] = {value}",
        {"x": np.zeros(3)},
        {"out": "int64", "other": "int64"},
        f"c = int64({value})",
    )
    assert named.tolist() == written.tolist() == [value] * 3


def test_constants_are_of_their_types() -> None:
    prelude = "one = uint8(255)\nfew = int32(-5)\nhalf = float32(0.1)"
    found = check(
        "out[k] = half\nother[k] = one + few\nflag[k] = uint8(True)",
        {"x": np.zeros(3)},
        {"out": "float64", "other": "int64", "flag": "uint8"},
        prelude,
    )
    assert [each[0] for each in found] == [float(np.float32(0.1)), 250, 1]


# --- operations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sign", ["+", "-", "*", "/"])
def test_arithmetic_of_floats(sign: str, dtype: str) -> None:
    x, y = pairs(floats(dtype), dtype)
    body = f"out[k] = x[k] {sign} y[k]\nother[k] = -x[k] {sign} y[k]\nz = x[k]\nz {sign}= y[k]\nthird[k] = z"
    check(body, {"x": x, "y": y}, dict.fromkeys(["out", "other", "third"], dtype), dtype=dtype)


@pytest.mark.parametrize("sign", ["+", "-", "*", "/"])
def test_float32_and_float64_together_are_float64(sign: str) -> None:
    x, y = pairs(floats("float32"), "float32")
    wide = y.astype(np.float64) * 1.1
    body = f"out[k] = x[k] {sign} y[k]\nother[k] = y[k] {sign} x[k]\nflag[k] = uint8(x[k] < y[k])"
    check(body, {"x": x, "y": wide}, {"out": "float64", "other": "float64", "flag": "uint8"})


COMPARISONS = ["<", "<=", ">", ">=", "==", "!="]


@pytest.mark.parametrize("dtype", [*DTYPES, *INTEGERS])
def test_comparisons(dtype: str) -> None:
    values = floats(dtype) if dtype in DTYPES else [*range(5), np.iinfo(dtype).min, np.iinfo(dtype).max, 100]
    x, y = pairs(values, dtype)
    outputs = [f"o{n}" for n in range(len(COMPARISONS))]
    body = "\n".join(f"{o}[k] = uint8(x[k] {sign} y[k])" for o, sign in zip(outputs, COMPARISONS, strict=True))
    check(body, {"x": x, "y": y}, dict.fromkeys(outputs, "uint8"))


@pytest.mark.parametrize("sign", ["+", "-", "*", "//", "%", "&", "|", "^"])
def test_arithmetic_of_integers(sign: str) -> None:
    """With all signs, by 0, and of the lowest number by -1."""
    i, j = pairs(WHOLE, "int64")
    body = f"out[k] = i[k] {sign} j[k]\nz = j[k]\nz {sign}= i[k]\nother[k] = z"
    out, _ = check(body, {"i": i, "j": j}, {"out": "int64", "other": "int64"})
    by_nothing = j == 0
    if sign in ("//", "%"):
        assert not out[by_nothing].any()
        safe = ~by_nothing & ~((i == LOWEST) & (j == -1))
        wanted = [
            eval(f"a {sign} b", {"a": a, "b": b}) for a, b in zip(i[safe].tolist(), j[safe].tolist(), strict=True)
        ]
        assert out[safe].tolist() == wanted
        assert set(out[(i == LOWEST) & (j == -1)]) == ({LOWEST} if sign == "//" else {0})


@pytest.mark.parametrize("divisor", [1, -1, 2, -2, 3, -7, 10, 2**32, LOWEST, HIGHEST])
def test_division_by_a_constant(divisor: int) -> None:
    body = "out[k] = i[k] // c\nother[k] = i[k] % c"
    check(body, {"i": np.array(WHOLE)}, {"out": "int64", "other": "int64"}, f"c = int64({divisor})")


def test_shifts() -> None:
    i, j = (each.reshape(-1).copy() for each in np.meshgrid(np.array(WHOLE), np.arange(64)))
    check("out[k] = i[k] << j[k]\nother[k] = i[k] >> j[k]", {"i": i, "j": j}, {"out": "int64", "other": "int64"})


def test_signs_of_integers() -> None:
    body = "out[k] = -i[k]\nother[k] = ~i[k]\nthird[k] = min(i[k], -3)"
    check(body, {"i": np.array(WHOLE)}, dict.fromkeys(["out", "other", "third"], "int64"))


def test_bools() -> None:
    body = """
        p = x[k] < y[k]
        q = y[k] > one
        both[k] = uint8(p & q)
        some[k] = uint8(p | q)
        other[k] = uint8(p ^ q)
        no[k] = uint8(not p)
        less[k] = uint8(p < q)
        same[k] = uint8((p == q) & (True != False))
        count[k] = int64(p) + int64(q)
        part[k] = float64(p) - float64(not q)
        more[k] = p + int64(1)
    """
    x, y = pairs(floats("float64"), "float64")
    small = dict.fromkeys(["both", "some", "other", "no", "less", "same"], "uint8")
    check(body, {"x": x, "y": y}, small | {"count": "int64", "part": "float64", "more": "int64"}, "one = float64(1)")


def test_select_takes_one_of_two_and_nothing_of_the_other() -> None:
    body = """
        p = x[k] < y[k]
        out[k] = select(p, x[k], x[k] / y[k] * zero)
        which[k] = select(p, int64(3), i64_5)
        flag[k] = uint8(select(p, p, not p))
        wide[k] = select(p, half, y[k])
    """
    x, y = pairs(floats("float64"), "float64")
    prelude = "zero = float64(0)\nhalf = float32(0.1)\ni64_5 = int64(5)"
    outputs = {"out": "float64", "which": "int64", "flag": "uint8", "wide": "float64"}
    source = kernel(body, {"x": x, "y": y}, outputs, prelude)
    found = run(source, x, y)
    less = x < y
    with np.errstate(all="ignore"):
        wanted = [np.where(less, x, x / y * 0), np.where(less, 3, 5), np.ones(x.size, np.uint8)]
    wanted.append(np.where(less, np.float64(np.float32(0.1)), y))
    assert_same_bits(found, wanted)


# --- conversions -----------------------------------------------------------------------------------------------------


def numbers(source: str, target: str) -> np.ndarray[Any, Any]:
    """Numbers of one type that another has a meaning for."""
    if source in DTYPES:
        values = np.array(floats(source), source)
        if target in DTYPES:
            return values
        info = np.iinfo(target)
        high = np.nextafter(np.array(info.max, source), 0, dtype=source)  # of 64 bits, the largest is no float
        some = np.array([0.0, -0.0, 0.5, 0.999, 1.5, 99.9, -0.9, -1.5, -99.5, high, float(info.min)], source)
        return some[(some <= info.max) & (some > info.min - 1.0)]
    info = np.iinfo(source)
    values = [
        0,
        1,
        2,
        100,
        info.max,
        info.max - 1,
        info.max // 2 + 1,
        info.min,
        info.min // 2,
        2**24 + 1,
        2**53 + 1,
        -1,
    ]
    return np.array([value for value in values if info.min <= value <= info.max], source)


@pytest.mark.parametrize("target", [*DTYPES, *INTEGERS])
@pytest.mark.parametrize("source", [*DTYPES, *INTEGERS])
def test_every_conversion(source: str, target: str) -> None:
    x = numbers(source, target)
    body = f"out[k] = x[k]\nother[k] = {target}(x[k])"
    found = run(kernel(body, {"x": x}, {"out": target, "other": target}), x)
    with np.errstate(over="ignore"):
        assert_same_bits(found, [x.astype(target)] * 2)


@pytest.mark.parametrize("source", [*DTYPES, *INTEGERS])
def test_all_but_zero_is_true(source: str) -> None:
    x = numbers(source, "float64")
    (found,) = run(kernel("out[k] = uint8(bool(x[k]))", {"x": x}, {"out": "uint8"}), x)
    np.testing.assert_array_equal(found, x.astype(bool))


@pytest.mark.parametrize("target", [*DTYPES, *INTEGERS])
def test_a_bool_is_one_or_zero(target: str) -> None:
    check(
        "out[k] = x[k] > c\nother[k] = " + f"{target}(x[k] > c)",
        {"x": np.arange(5.0)},
        dict.fromkeys(["out", "other"], target),
        "c = float64(2)",
    )


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_storage_in_16_bits(kind: str) -> None:
    held = np.dtype(ml_dtypes.bfloat16) if kind == "bfloat16" else np.dtype(kind)
    random = np.random.default_rng(1)
    x, y = random.normal(0, 100, (2, 999)).astype(held)
    body = f"""
        at = k
        z = load_{kind}(x, at) * load_{kind}(y, k)
        if z > zero:
            store_{kind}(out, at, z)
        else:
            store_{kind}(out, k, -z)
    """
    source = source_of(body, "float32", {"x": kind, "y": kind}, {"out": kind}, "zero = float32(0)")
    (found,) = run(source, x.view(np.uint16), y.view(np.uint16))
    with np.errstate(over="ignore"):  # to infinity, as it should
        wanted = np.abs(x.astype(np.float32) * y.astype(np.float32)).astype(held)
    np.testing.assert_array_equal(found, wanted.view(np.uint16))


# --- statements ------------------------------------------------------------------------------------------------------

FLOW = {
    "elif": """
        n = i[k]
        if n < 0:
            y = c1
        elif n == 0:
            y = x[k]
        elif n < 3:
            y = x[k] * c2
            n = n * 10
        else:
            pass
            y = -x[k]
        out[k] = y
        count[k] = n
    """,
    "conditional expressions": """
        n = i[k]
        y = (x[k] if n > 0 else c1) if n != 2 else -x[k]
        out[k] = y + (c2 if n > 1 else c1)
        count[k] = n // m[k] if m[k] != 0 else n if n > 0 else -1
    """,
    "a side is not computed": """
        n = i[k]
        count[k] = i[abs_(n) % 2] if n > 0 else n
        out[k] = c1
    """,
    "nested loops": """
        n = 0
        y = c1
        for a in range(i[k]):
            if a == 5:
                break
            for b in range(a):
                if b == 2:
                    continue
                n += a * b + 1
                while n > 20:
                    n -= 7
                    if n == 15:
                        break
                else_ = n
                y = y * c2 - x[k]
        out[k] = y
        count[k] = n
    """,
    "while True": """
        n = i[k]
        y = x[k]
        while True:
            n -= 1
            if n % 3 == 1:
                continue
            y = y / c2
            if n < 0:
                break
        out[k] = y
        count[k] = n
    """,
    "a loop within both sides of a branch": """
        y = x[k]
        n = m[k]
        if i[k] > 2:
            for a in range(i[k]):
                y += c1
                n = a
        else:
            while n < 3:
                y = y * c2
                n += 1
        out[k] = y
        count[k] = n
    """,
    "ranges": """
        n = 0
        y = c1
        for a in range(i[k], m[k]):
            n = n * 3 + a
        for a in range(m[k], i[k], -1):
            n = n * 3 + a
        for a in range(7, i[k], -2):
            n = n * 5 - a
        for a in range(m[k], 9, 4):
            n = n * 5 - a
        out[k] = y
        count[k] = n
    """,
    "long steps": """
        n = 0
        for a in range(i[k], 12 * m[k], 7):
            n = n * 3 + a
            y = float64(a)
        out[k] = float64(n)
        count[k] = n
    """,
    "the target after its loop": """
        a = -1
        for a in range(i[k]):
            if a * a > 9:
                break
        b = m[k]
        for b in range(5, i[k], -2):
            pass
        out[k] = float64(a)
        count[k] = a * 100 + b
    """,
    "the target is assigned within": """
        n = 0
        for a in range(i[k]):
            a = a * a
            n += a
        out[k] = c1
        count[k] = n
    """,
    "bounds are found once": """
        stop = i[k]
        n = 0
        for a in range(stop):
            stop += 1
            n += stop * a
        out[k] = c1
        count[k] = n + stop
    """,
    "read in the next turn": """
        n = 1
        before = 0
        for a in range(i[k]):
            now = n + before
            before = n
            n = now
            if a % 2 == 0:
                last = now * 2
            else:
                last = now
            n += last % 3
        out[k] = float64(before)
        count[k] = n
    """,
    "assigned in a branch and read after it": """
        if i[k] > 2:
            only = i[k] * 2
        n = 3
        if i[k] > 2:
            n = only
        out[k] = c2
        count[k] = n
    """,
    "elements change in place": """
        out[k] = x[k]
        out[k] += c2
        out[k] *= x[k]
        out[k] /= c2
        out[k] -= c1
        count[k] = i[k]
        count[k] //= 2
        count[k] <<= 3
        count[k] |= 1
        count[k] %= 7
        count[k] ^= m[k]
    """,
    "scratch": """
        terms = scratch(float64, 8)
        seen = scratch(uint8, 8)
        kept = scratch(int64, 8)
        for a in range(8):
            terms[a] = x[k] * float64(a)
            seen[a] = a % 2 == 0
            kept[a] = i[k] - a
        n = 0
        y = c1
        for a in range(7, -1, -1):
            kept[a] += n
            if seen[a] != 0:
                n += kept[a]
                y = y * c2 + terms[a]
        out[k] = y
        count[k] = n
    """,
    "terms on the stack": """
        terms = scratch(float64, 16)
        for a in range(16):
            terms[a] = x[k] + float64(a)
        y = c1
        for a in range(16):
            y = y + terms[a] * c2
        out[k] = y
        count[k] = 0
    """,
    "a parameter is a variable": """
        first = k
        k = k + 0
        out[k] = bumped(x[k], 3)
        count[k] = first
    """,
}
HELPERS = """
c1 = float64(0.5)
c2 = float64(1.25)

def abs_(n):
    return n if n >= 0 else -n

def bumped(y, n):
    while n > 0:
        y = y + c2
        n -= 1
    return y

"""


@pytest.mark.parametrize("name", FLOW)
def test_control_flow(name: str) -> None:
    i, m = pairs(range(-3, 10), "int64")
    x = np.random.default_rng(3).normal(size=i.size)
    check(FLOW[name], {"x": x, "i": i, "m": m}, {"out": "float64", "count": "int64"}, HELPERS)


def test_functions_take_several_types() -> None:
    prelude = """
one = float32(1)

def twice(x):
    return x + x

def power(x, n):
    y = x
    for a in range(n):
        y = twice(y) * x
    return y

def less(x, y):
    return x < y

def put(p, k, value):
    if less(value, value + value):
        p[k] = value
    else:
        p[k] = -value

"""
    body = """
        small = power(x[k], 2)
        put(out, k, small)
        put(other, k, power(y[k], 3))
        put(count, k, power(i[k], 1) + int64(less(small, one)))
    """
    inputs = {"x": np.linspace(-3, 3, 777, dtype=np.float32), "y": np.linspace(2, -5, 777), "i": np.arange(777) - 400}
    outputs = {"out": "float32", "other": "float64", "count": "int64"}
    check(body, inputs, outputs, prelude, "float32")


STEPS = [(0, 5, 2), (0, 6, 2), (5, -1, -1), (-3, -9, -3), (3, 3, -1), (9, 2, 1), (2, 9, -1), (HIGHEST - 3, HIGHEST, 1)]
STEPS += [(HIGHEST - 5, HIGHEST, 2), (LOWEST + 5, LOWEST, -2), (LOWEST + 5, LOWEST, LOWEST), (0, HIGHEST, HIGHEST)]
# More turns than an int64 counts.
STEPS += [
    (5, LOWEST, -1),
    (HIGHEST, LOWEST, -1),
    (LOWEST, HIGHEST, 2),
    (LOWEST, HIGHEST, 1),
    (LOWEST, HIGHEST, HIGHEST),
]


@pytest.mark.parametrize("step", sorted({step for *_, step in STEPS}))
def test_a_range_of_any_bounds_begins_and_ends_as_pythons(step: int) -> None:
    body = f"""
        n = 0
        last = 0
        for a in range(first[k], end[k], {step}):
            n += 1
            last = a
            if n == 5:
                break
        turns[k] = n
        at[k] = last
    """
    start, stop = np.array([bounds[:2] for bounds in STEPS]).T.copy()
    turns, at = check(body, {"first": start, "end": stop}, {"turns": "int64", "at": "int64"})
    for n, last, (low, high, _) in zip(turns.tolist(), at.tolist(), STEPS, strict=True):
        first = list(itertools.islice(range(low, high, step), 5))
        assert (n, last) == (len(first), first[-1] if first else 0)


def test_a_sum_of_terms() -> None:
    terms = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    body = "out[k] = sum_terms(x, k)"
    (found,) = run(kernel(body, {"x": terms}, {"out": "float64"}), terms)
    np.testing.assert_allclose(found, np.cumsum(terms.astype(float)) - terms, rtol=1e-12, atol=1e-12)


TYPES = [
    "bool",
    *INTEGERS,
    *DTYPES,
    "select",
    "min",
    "range",
    "scratch",
    "sum_terms",
    "quotient",
    "exp",
]


@pytest.mark.parametrize("name", TYPES)
def test_a_users_function_may_have_any_name(name: str) -> None:
    function = Cell(f"def {name}(x, y):\n    return math.exp(x) * y if x > 0 else x\n").names[name]
    found = differentiable_broadcast(backend="cpu")(function)(np.array([-1.0, 2.0]), 3.0)
    np.testing.assert_allclose(found, [-1.0, np.exp(2.0) * 3], rtol=1e-15)


# --- random texts ----------------------------------------------------------------------------------------------------


LEFT, RIGHT = pairs([-5, -1, 0, 1, 2, 3, 6, HIGHEST], "int64")
POINTS = {"x": np.random.default_rng(5).normal(0, 2, LEFT.size), "i": LEFT, "m": RIGHT}
POINTS["x"][::9] = np.resize([np.nan, np.inf, -np.inf, 0.0, -0.0], POINTS["x"][::9].size)


def random_kernel(data: st.DataObject) -> KernelSource:
    writer = Writer(data)
    for line in ["a = i[k]", "b = 2", "u = x[k]", "v = f64_2", "p = a > b", "terms = scratch(float64, 4)"]:
        writer.line(0, line)
    for at in range(4):
        writer.line(0, f"terms[{at}] = f64_2")
    writer.line(0, "out[k] = f64_0")
    writer.block(["a", "b", "u", "v"], 0, False)
    for line in ["out[k] += u", "other[k] = v", "count[k] = a * 3 + b", "flag[k] = uint8(p)"]:
        writer.line(0, line)
    outputs = {"out": "float64", "other": "float64", "count": "int64", "flag": "uint8"}
    prelude = "f64_2 = float64(2.5)\nf64_0 = float64(0.0)\ni64_7 = int64(7)\n"
    return kernel("\n".join(writer.lines), POINTS, outputs, prelude)


def run_alone(source: KernelSource, points: dict[str, Any] = POINTS) -> Arrays:
    """As `run`, without a trace of the kernel."""
    try:
        return run(source, *points.values())
    finally:
        cpu_kernel._kernels.pop(cpu_kernel._key(source.identity, False), None)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_texts(data: st.DataObject) -> None:
    source = random_kernel(data)
    assert_same_bits(run_alone(source), by_python(with_wrapping_literals(source), *POINTS.values()))


# --- Numba, which compiles the same texts ----------------------------------------------------------------------------


# Numba takes integers for ones that do not overflow, and `a + a < 2` for `a < 1`.
MODEST = {name: values if name == "x" else np.clip(values, -9, 9) for name, values in POINTS.items()}


@pytest.mark.parametrize("count", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_random_texts_by_numba(count: int) -> None:
    pytest.importorskip("numba")

    @settings(max_examples=count, deadline=None, derandomize=True)
    @given(st.data())
    def compare(data: st.DataObject) -> None:
        source = random_kernel(data)
        assert_same_bits(run_alone(source, MODEST), by_numba(source, *MODEST.values()))

    compare()


# The rest are slow: Numba takes a second or more for each.
OFTEN = {"bits": "float64", "conversions": "float32", "break_and_continue": "float32", "casts": "float64"}


@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        pytest.param(
            case, dtype, id=f"{case.name}-{dtype}", marks=[] if OFTEN.get(case.name) == dtype else pytest.mark.slow
        )
        for case, dtype in itertools.product(CORPUS, DTYPES)
    ],
)
def test_the_corpus_by_numba(case: Case, dtype: str) -> None:
    pytest.importorskip("numba")
    kinds = {float: dtype, int: np.int16, bool: np.bool_}
    arrays = [np.resize(np.array(column, kinds[type(column[0])]), 65) for column in zip(*case.points, strict=True)]
    call = differentiable_broadcast(backend="cpu")(case.function)._inspected(tuple(arrays), None, "value_and_jacobian")
    source = call.spec.source(call.plan.geometry.layout, "cpu")
    if not suits_numba(source):
        pytest.skip("it calls functions of which each library has its own")
    inputs = [array.view(np.uint8) if array.dtype == bool else array for array in call.plan.operands.arrays]
    assert_same_bits(run(source, *inputs), by_numba(source, *inputs))


# --- what is refused -------------------------------------------------------------------------------------------------

MODULE = {
    "import math": (SyntaxError, "a kernel has no such statement: import math"),
    "x = 5": (SyntaxError, "a kernel has no such statement: x = 5"),
    "'text'": (SyntaxError, "a kernel has no such statement"),
}
BODIES = {
    # statements
    "return x[k]\nout[k] = x[k]": (SyntaxError, "a kernel has no such statement: return"),
    "a, b = x[k], x[k]": (SyntaxError, "a kernel has no such expression"),
    "del k": (SyntaxError, "a kernel has no such statement: del k"),
    "x[k]": (SyntaxError, "a kernel has no such statement"),
    "for a in range(3):\n    pass\nelse:\n    pass": (SyntaxError, "a kernel has no such statement: for a"),
    "while k < 0:\n    pass\nelse:\n    pass": (SyntaxError, "a kernel has no such statement: while"),
    "for a in x:\n    pass": (SyntaxError, "a kernel has no such loop: for x"),
    "for a in scratch(int64, 3):\n    pass": (SyntaxError, "a kernel has no such loop"),
    # expressions
    "out[k] = 1.5": (SyntaxError, "a kernel has no such expression: 1.5"),
    "out[k] = 'text'": (SyntaxError, "a kernel has no such expression: 'text'"),
    "out[k] = x[k] if k > 0 and k < 3 else x[k]": (SyntaxError, "a kernel has no such expression: k > 0 and k < 3"),
    "out[k] = 0 < k < 3": (SyntaxError, "a kernel has no such expression: 0 < k < 3"),
    "out[k] = [k]": (SyntaxError, r"a kernel has no such expression: \[k\]"),
    # types
    "a = k\na = x[k]": (TypeError, "the variable a is of type int64, and is given a value of type float64"),
    "k = x[k]": (TypeError, "the variable k is of type int64"),
    "a = x[k]\nfor a in range(3):\n    pass": (TypeError, "the variable a is of type float64"),
    "for a in range(3, 9, k):\n    pass": (TypeError, "the step of a range is a number other than 0, and not k"),
    "for a in range(3, 9, 0):\n    pass": (TypeError, "the step of a range is a number other than 0, and not 0"),
    "if k:\n    pass": (TypeError, "a test of type int64: k"),
    "while x[k]:\n    pass": (TypeError, "a test of type float64"),
    "out[k] = k[0]": (TypeError, "k is of type int64, and has no elements"),
    "out[x] = x[k]": (TypeError, r"a pointer is no int64"),
    "out[k] = not k": (TypeError, "no Not of type int64"),
    "out[k] = ~x[k]": (TypeError, "no Invert of type float64"),
    "out[k] = -(k > 0)": (TypeError, "no USub of type bool"),
    "out[k] = k if k > 0 else x[k]": (TypeError, "one of two values is of type int64, the other of type float64"),
    "out[k] = k / k": (TypeError, "no Div of type int64"),
    "out[k] = x[k] % x[k]": (TypeError, "no Mod of type float64"),
    "out[k] = x[k] ** x[k]": (TypeError, "no Pow of type float64"),
    "out[k] = x[k] & x[k]": (TypeError, "no BitAnd of type float64"),
    "out[k] = (k > 0) + (k > 1)": (TypeError, "no Add of type bool"),
    "out[k] = (k > 0) << (k > 1)": (TypeError, "no LShift of type bool"),
    "out[k] = x[k] + k": (TypeError, "one operand is of type float64, the other of type int64"),
    "out[k] = x[k] < (k > 0)": (TypeError, "one operand is of type float64, the other of type bool"),
    "out[k] = x + 1": (TypeError, r"one operand is of type \*float64"),
    "out[k] = select(k > 0, x[k], k)": (TypeError, "one operand is of type float64"),
    "out[k] = sqrt(k)": (TypeError, "no sqrt of int64"),
    "out[k] = copysign(x[k], float32(x[k]))": (TypeError, "no copysign of float64, float32"),
    "p = x\np = out\nout[k] = p[k]": (TypeError, "p is more than one pointer"),
    # names
    "out[k] = later": (NameError, "nothing is called later, or not yet"),
    "if k > 0:\n    out[k] = a\na = x[k]": (NameError, "nothing is called a, or not yet"),
    "out[k] = nothing(k)": (NameError, "nothing is called nothing"),
    "nothing(k)": (NameError, "nothing is called nothing"),
}


def lowered(text: str, liberties: dict[str, Any] | None = None, attributes: tuple[str, ...] = ()) -> str:
    """The module of a text whose entry is `kernel(k, x, out)`, which LLVM has found in order."""
    module = ir.Module("test")
    names = mathlib.names(False)
    unit = Unit(module, text, names, "", liberties or {}, attributes)
    lower(unit, "kernel", ["int64", "*float64", "*float64"])
    found = binding.parse_assembly(str(module))
    found.verify()
    return str(module)


@pytest.mark.parametrize("text", MODULE)
def test_what_a_text_does_not_have(text: str) -> None:
    kind, message = MODULE[text]
    with pytest.raises(kind, match=message):
        lowered(f"{text}\ndef kernel(k, x, out):\n    out[k] = x[k]\n")


@pytest.mark.parametrize("body", BODIES)
def test_what_is_refused(body: str) -> None:
    kind, message = BODIES[body]
    with pytest.raises(kind, match=message) as caught:
        lowered(f"def kernel(k, x, out):\n{textwrap.indent(body, '    ')}\n    pass\n")
    assert type(caught.value) is kind
    # To a user it is a fault of ours.
    with pytest.raises(BackendError, match=message):
        cpu_kernel.compile_kernel(source_of(body + "\npass", "float64", {"x": "float64"}, {"out": "float64"}), False)


def test_what_llvm_refuses_is_a_fault_of_ours() -> None:
    source = source_of("out[k] = select(k, x[k], x[k])", "float64", {"x": "float64"}, {"out": "float64"})
    with pytest.raises(BackendError, match=r"LLVM cannot compile(?s:.)*RuntimeError: LLVM IR parsing error"):
        cpu_kernel.compile_kernel(source, False)


# --- the module ------------------------------------------------------------------------------------------------------

TEXT = """
one = float64(1)

def strict(x):
    return x * x + one

def free(x):
    return x * x - sqrt(x)

def kernel(k, x, out):
    out[k] = strict(x[k]) + free(x[k])
"""


def parts(module: str) -> dict[str, str]:
    """A module's functions by their names."""
    return {
        found[1]: found[0] for found in re.finditer(r'^define [^@]*@"(\w+)".*?^}', module, re.DOTALL | re.MULTILINE)
    }


def test_only_the_functions_named_take_liberties() -> None:
    found = parts(lowered(TEXT, {"free": ("contract", "nsz")}))
    assert set(found) == {"dualbcast_kernel", "strict", "free"}
    for name, text in found.items():
        operations = re.findall(r"(?:fmul|fadd|fsub|call) .*", text)
        operations = [each for each in operations if "call" not in each or "llvm." in each]
        assert operations
        assert all(("contract" in each and "nsz" in each) == (name == "free") for each in operations)


def test_the_entry_is_called_from_outside_and_the_others_are_parts_of_it() -> None:
    found = parts(lowered(TEXT, attributes=('"stackrealign"',)))
    assert found["dualbcast_kernel"].startswith("define i32 @")
    assert found["dualbcast_kernel"].count("noalias") == 2
    assert "ret i32 0" in found["dualbcast_kernel"]
    for name in ("strict", "free"):
        assert found[name].startswith("define internal double @")
        assert "alwaysinline" in found[name]
        assert "noalias" not in found[name]
    assert all('"stackrealign"' in text and "nounwind" in text for text in found.values())
