"""What the CPU backend loads and stores: float16 and bfloat16 to the bit, bool and integers."""

from __future__ import annotations

import itertools
import re

import ml_dtypes
import numpy as np
import pytest
from cpu_kernels import compiled, run, source_of

from dualbcast.runtime.cpu import kernel as cpu_kernel


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


SIXTEEN_BITS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
# How float16 is converted: in hardware where there is any, and by integers.
WAYS = [("float16", True), ("float16", False), ("bfloat16", True)]


@pytest.fixture(params=WAYS, ids=["float16", "float16-integers", "bfloat16"])
def sixteen(request, monkeypatch, tmp_path):
    from dualbcast.codegen import mathlib

    name, hardware = request.param
    if not hardware:
        monkeypatch.setattr(mathlib, "converts_in_hardware", lambda: False)
        monkeypatch.setattr(cpu_kernel, "_kernels", {})
        monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path))
    return name


def test_every_16_bit_pattern_loads(sixteen):
    patterns = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    source = source_of(f"out[k] = load_{sixteen}(x, k)", "float32", {"x": sixteen}, {"out": "float32"}, vectors=2)
    (got,) = run(source, patterns)
    expected = patterns.view(SIXTEEN_BITS[sixteen]).astype(np.float32)
    nan = np.isnan(expected)
    assert np.isnan(got[nan]).all()
    np.testing.assert_array_equal(got[~nan].view(np.uint32), expected[~nan].view(np.uint32))
    assert re.search(r"store <\d+ x (float|i32)>", compiled(source).llvm())


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
    source = source_of(f"store_{sixteen}(out, k, x[k])", "float32", {"x": "float32"}, {"out": sixteen}, vectors=2)
    (got,) = run(source, x)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = x.astype(kind)
    nan = np.isnan(x)
    assert np.isnan(got[nan].view(kind).astype(np.float32)).all()
    np.testing.assert_array_equal(got[~nan], expected[~nan].view(np.uint16))
    assert re.search(r"store <\d+ x (i16|half)>", compiled(source).llvm())


def test_bool_and_integer_storage():
    body = """
        b = p[k] != 0
        if b & (i[k] % int64(3) == int64(1)):
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


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "stored", ["int8", "uint16", "int64", *[pytest.param(name, marks=SLOW) for name in ("uint8", "int16", "int32")]]
)
def test_integers_of_all_sizes_divided_by_constants(stored: str):
    """As vectors and one by one: what LLVM makes of a division depends on how many bits a number can have."""
    n = np.arange(-130, 130).astype(stored)
    for factor, by, sign, vectors in itertools.product((3, -3), (-2, 2, -4, 8, 3, -5), ("//", "%"), (4, 0)):
        body = f"out[k] = n[k] * {factor} {sign} {by}"
        source = source_of(body, "float64", {"n": stored}, {"out": "int64"}, vectors=vectors)
        (found,) = run(source, n)
        product = n.astype(np.int64) * factor
        np.testing.assert_array_equal(found, product // by if sign == "//" else product % by, f"{factor} {sign} {by}")


def test_the_lowest_integer_by_powers_of_2():
    n = np.array([-(2**63), 1 - 2**63, 2**63 - 1, 2**62, -1, 0, 1])
    for by, sign in itertools.product((2, -2, -4, 2**62, -(2**62), -1, 3), ("//", "%")):
        (found,) = run(source_of(f"out[k] = n[k] {sign} {by}", "float64", {"n": "int64"}, {"out": "int64"}), n)
        exact = [int(each) // by if sign == "//" else int(each) % by for each in n]
        wrapped = [(each + 2**63) % 2**64 - 2**63 for each in exact]  # only that of the lowest by -1 is too large
        assert found.tolist() == wrapped, (by, sign)
