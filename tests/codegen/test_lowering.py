"""The CPU's lowering to LLVM, of IR that is read from texts: what Python computes by the texts on NumPy's numbers."""

from __future__ import annotations

import itertools
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cells import Cell
from corpus import CORPUS, Case
from cpu_kernels import Kernel, forget, run, run_program, source_of
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import binding
from random_texts import Writer
from texts import Arrays, assert_same_bits, by_numba, by_python, suits_numba, with_wrapping_literals

from dualbcast import differentiable_broadcast
from dualbcast.codegen.llvm import build

DTYPES = ("float32", "float64")
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
# Those whose numbers are all int64s, which is what kernels compute with.
SIGNED = INTEGERS[:-1]
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


# --- operations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sign", ["+", "-", "*", "/"])
def test_arithmetic_of_floats(sign: str, dtype: str) -> None:
    x, y = pairs(floats(dtype), dtype)
    body = f"out[k] = x[k] {sign} y[k]\nother[k] = -x[k] {sign} y[k]\nz = x[k]\nz {sign}= y[k]\nthird[k] = z"
    check(body, {"x": x, "y": y}, dict.fromkeys(["out", "other", "third"], dtype), dtype=dtype)


COMPARISONS = ["<", "<=", ">", ">=", "==", "!="]


@pytest.mark.parametrize("dtype", [*DTYPES, *SIGNED])
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
        same[k] = uint8((p == q) & (True != False))
        count[k] = int64(p) + int64(q)
        part[k] = float64(p) - float64(not q)
    """
    x, y = pairs(floats("float64"), "float64")
    small = dict.fromkeys(["both", "some", "other", "no", "same"], "uint8")
    check(body, {"x": x, "y": y}, small | {"count": "int64", "part": "float64"}, "one = float64(1)")


def test_select_takes_one_of_two_and_nothing_of_the_other() -> None:
    body = """
        p = x[k] < y[k]
        out[k] = select(p, x[k], x[k] / y[k] * zero)
        which[k] = select(p, int64(3), i64_5)
        flag[k] = uint8(select(p, p, not p))
    """
    x, y = pairs(floats("float64"), "float64")
    prelude = "zero = float64(0)\ni64_5 = int64(5)"
    outputs = {"out": "float64", "which": "int64", "flag": "uint8"}
    source = kernel(body, {"x": x, "y": y}, outputs, prelude)
    found = run(source, x, y)
    less = x < y
    with np.errstate(all="ignore"):
        wanted = [np.where(less, x, x / y * 0), np.where(less, 3, 5), np.ones(x.size, np.uint8)]
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
@pytest.mark.parametrize("source", SIGNED)
def test_every_conversion(source: str, target: str) -> None:
    x = numbers(source, target)
    (found,) = run(kernel("out[k] = x[k]", {"x": x}, {"out": target}), x)
    with np.errstate(over="ignore"):
        assert_same_bits([found], [x.astype(target)])


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", DTYPES)
def test_a_float_loses_its_fraction(source: str, target: str) -> None:
    x = numbers(source, target)
    if target == "uint64":
        x = x[x < 2.0**63]
    (found,) = run(kernel("out[k] = int64(x[k])", {"x": x}, {"out": target}, dtype=source), x)
    assert_same_bits([found], [x.astype(np.int64).astype(target)])


@pytest.mark.parametrize("target", [*DTYPES, *INTEGERS])
def test_a_bool_is_one_or_zero(target: str) -> None:
    check(
        "out[k] = x[k] > c",
        {"x": np.arange(5.0)},
        {"out": target},
        "c = float64(2)",
    )


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_storage_in_16_bits(kind: str) -> None:
    held = np.dtype(ml_dtypes.bfloat16) if kind == "bfloat16" else np.dtype(kind)
    random = np.random.default_rng(1)
    x, y = random.normal(0, 100, (2, 999)).astype(held)
    body = f"""
        z = load_{kind}(x, k) * load_{kind}(y, k)
        if z > zero:
            store_{kind}(out, k, z)
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
    "a parameter is a variable": """
        out[k] = bumped(x[k], 3)
        count[k] = i[k]
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
def twice(x):
    return x + x

def power(x, n):
    y = x
    for a in range(n):
        y = twice(y) * x
    return y

def less(x, y):
    return x < y

"""
    body = """
        out[k] = power(x[k], 2)
        count[k] = power(i[k], 1) + int64(less(i[k], 5)) + int64(less(x[k], x[k] + x[k]))
    """
    inputs = {"x": np.linspace(-3, 3, 777), "i": np.arange(777) - 400}
    check(body, inputs, {"out": "float64", "count": "int64"}, prelude)


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


def random_kernel(data: st.DataObject) -> Kernel:
    writer = Writer(data)
    for line in ["a = i[k]", "b = 2", "u = x[k]", "v = f64_2", "p = a > b"]:
        writer.line(0, line)
    writer.line(0, "out[k] = f64_0")
    writer.block(["a", "b", "u", "v"], 0, False)
    for line in ["out[k] += u", "other[k] = v", "count[k] = a * 3 + b", "flag[k] = uint8(p)"]:
        writer.line(0, line)
    outputs = {"out": "float64", "other": "float64", "count": "int64", "flag": "uint8"}
    prelude = "f64_2 = float64(2.5)\nf64_0 = float64(0.0)\ni64_7 = int64(7)\n"
    return kernel("\n".join(writer.lines), POINTS, outputs, prelude)


def run_alone(source: Kernel, points: dict[str, Any] = POINTS) -> Arrays:
    """As `run`, without a trace of the kernel."""
    try:
        return run(source, *points.values())
    finally:
        forget(source)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_texts(data: st.DataObject) -> None:
    source = random_kernel(data)
    assert_same_bits(run_alone(source), by_python(with_wrapping_literals(source), *POINTS.values()))


# --- Numba, which compiles the same texts ----------------------------------------------------------------------------


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
    layout = call.plan.geometry.layout
    source = call.spec.source(layout, "cpu")
    if not suits_numba(source):
        pytest.skip("it calls functions of which each library has its own")
    inputs = [array.view(np.uint8) if array.dtype == bool else array for array in call.plan.operands.arrays]
    assert_same_bits(run_program(call.spec.program(layout), *inputs), by_numba(source, *inputs))


# --- the module ------------------------------------------------------------------------------------------------------

PRELUDE = """
one = float64(1)

def helped(x):
    return x * x + one
"""


def parts(fastmath: bool) -> dict[str, str]:
    """The functions of a module before it is optimised, by their names."""
    source = kernel("out[k] = helped(x[k]) + sqrt(x[k])", {"x": np.ones(3)}, {"out": "float64"}, PRELUDE)
    module = str(build._module(source.program, fastmath, ()))
    binding.parse_assembly(module).verify()
    return {
        found[1]: found[0] for found in re.finditer(r'^define [^@]*@"(\w+)".*?^}', module, re.DOTALL | re.MULTILINE)
    }


@pytest.mark.parametrize("fastmath", [False, True])
def test_functions_take_liberties_if_they_may(fastmath: bool) -> None:
    found = parts(fastmath)
    assert set(found) == {"dualbcast_kernel", "helped_float"}
    for text in found.values():
        operations = [each for each in re.findall(r"(?:fmul|fadd|call) .*", text) if "float" not in each]
        assert operations
        assert all(("contract" in each and "nsz" in each) == fastmath for each in operations)


def test_the_entry_is_called_from_outside_and_helpers_are_parts_of_it() -> None:
    found = parts(False)
    assert found["dualbcast_kernel"].startswith("define i32 @")
    assert found["dualbcast_kernel"].count("noalias") == 2
    assert "ret i32 0" in found["dualbcast_kernel"]
    assert found["helped_float"].startswith("define internal double @")
    assert "alwaysinline" in found["helped_float"]
    assert all('"stackrealign"' in text and "nounwind" in text for text in found.values())
