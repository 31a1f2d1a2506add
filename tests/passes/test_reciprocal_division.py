"""Several divisions by one number: which are shared, and the bits of what becomes of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ir_invariants import verify

from dualbcast import differentiable_broadcast
from dualbcast.codegen import mathlib
from dualbcast.frontend.lower import lower
from dualbcast.ir.nodes import Assign, Block, Op
from dualbcast.ir.simplification import simplify
from dualbcast.ir.traversal import statements
from dualbcast.passes.arithmetic import share_reciprocals
from dualbcast.runtime.cpu import kernel as cpu_kernel


def texts(function: Any, *kinds: Any) -> list[str]:
    """The divisions of a function's body in order, and those by multiplication."""
    body: Block = verify(share_reciprocals(simplify(lower(function, kinds).function))).body
    operations = [stmt.value for stmt in statements(body) if isinstance(stmt, Assign) and isinstance(stmt.value, Op)]
    return [op.name for op in operations if op.name in ("div", "divided")]


def test_one_division_is_left_for_each_divisor() -> None:
    assert texts(lambda a, b, c: a / b + c / b, "float", "float", "float") == ["div", "divided", "divided"]
    assert texts(lambda a, b: a / b + 1.0 / b, "float", "float") == ["div", "divided"]
    assert texts(lambda a, b, c: a / b + a / c, "float", "float", "float") == ["div", "div"]


def test_no_division_is_left_by_constants() -> None:
    assert texts(lambda a, b: a / 3.0 + b / -3.0, "float", "float") == ["divided", "divided"]
    # LLVM multiplies by the others.
    assert texts(lambda a: a / 4.0 + a / -0.5 + a / 0.0 + a / math.inf + a / math.nan, "float") == ["div"] * 5
    assert texts(lambda a: 3.0 / a, "float") == ["div"]


def test_a_divisor_that_changes_is_another() -> None:
    def function(a: float, b: float) -> float:
        total = a
        for _ in range(3):
            total = total + a / b + 1.0 / b
            b = b + 1.0 if b > a else b * 2.0
        return total

    assert "divided" not in texts(function, "float", "float")


def test_the_reciprocal_is_not_taken_from_another_path() -> None:
    def function(a: float, b: float) -> float:
        if a > 0:
            return 1.0 / b
        return a / b

    assert texts(function, "float", "float") == ["div", "div"]


# --- bits -------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["divides", "multiplies"])
def divider(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Processors that divide fast, and those that do not, whichever this is."""
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cpu_kernel, "_kernels", {})
    monkeypatch.setattr(mathlib, "divides_fast", lambda: request.param == "divides")
    mathlib.names.cache_clear()
    yield
    mathlib.names.cache_clear()


def quotients(a: float, b: float) -> tuple[float, ...]:
    return a / b, 1.0 / b, 3.0 / b


def judge(a: Any, b: Any) -> None:
    """Bits as NumPy's, of every NaN alike."""
    with np.errstate(all="ignore"):
        wanted = (a / b, 1.0 / b, 3.0 / b)
    for found, exact in zip(differentiable_broadcast(backend="cpu")(quotients)(a, b), wanted, strict=True):
        same = (found.view(np.uint64) == exact.view(np.uint64)) | (np.isnan(found) & np.isnan(exact))
        assert same.all(), (a[~same][:3], b[~same][:3])


def test_it_is_done() -> None:
    f = differentiable_broadcast(backend="cpu")(quotients)
    assert f.inspect_source("float64", "float64", product="value").count("divided(") == 2
    # Divisions of float32 are faster.
    assert "divided(" not in f.inspect_source("float32", "float32", product="value")


@pytest.mark.usefixtures("divider")
def test_what_a_processor_does(request: pytest.FixtureRequest) -> None:
    if not mathlib.has_fma():
        pytest.skip("all are divisions")
    code = differentiable_broadcast(backend="cpu")(quotients).inspect_llvm("float64", "float64", product="value")
    whole = next(part for part in code.split("\ndefine ") if " fdiv " in part)
    # One under a condition for each of two; or all three.
    assert len(re.findall(r" fdiv (?!.*rare)", whole)) == 3
    assert ("rare" in whole) == ("multiplies" in request.node.name)


@pytest.mark.usefixtures("divider")
def test_any_bits() -> None:
    random = np.random.default_rng(0)
    a, b = random.integers(0, 2**64, (2, 300_000), np.uint64).view(np.float64)
    judge(a, b)
    # Exponents that just are, and just are not, ordinary.
    for low, high in ((-490, -480), (530, 545), (-1075, -1015), (1015, 1024)):
        some = np.ldexp(random.uniform(1, 2, 100_000), random.integers(low, high, 100_000))
        every = np.ldexp(random.uniform(1, 2, 100_000), random.integers(-1074, 1024, 100_000))
        judge(some, every)
        judge(every, some)


def special_values() -> Any:
    tiny, least, most = np.finfo(float).tiny, np.finfo(float).smallest_subnormal, np.finfo(float).max
    values = [0.0, 1.0, 3.0, tiny, least, 7 * tiny, most, math.inf, math.nan, 1e-160, 1e160, 1e300]
    return np.array([sign * value for value in values for sign in (1, -1)])


@pytest.mark.usefixtures("divider")
def test_special_values() -> None:
    special = special_values()
    judge(np.repeat(special, special.size), np.tile(special, special.size))


@pytest.mark.usefixtures("divider")
@pytest.mark.parametrize("divisor", [3.0, -10.0, math.sqrt(2.0), math.nextafter(2.0, 0.0), 7e-200, -1e300, 3e-310])
def test_constants(divisor: float) -> None:
    random = np.random.default_rng(0)
    any_bits = random.integers(0, 2**64, 100_000, np.uint64).view(np.float64)
    a = np.concatenate([special_values(), any_bits, divisor * random.uniform(-2, 2, 100_000)])
    with np.errstate(all="ignore"):
        exact = a / divisor
    found = differentiable_broadcast(backend="cpu")(lambda a: a / divisor)(a)
    same = (found.view(np.uint64) == exact.view(np.uint64)) | (np.isnan(found) & np.isnan(exact))
    assert same.all(), a[~same][:3]


@pytest.mark.usefixtures("divider")
@pytest.mark.parametrize("seed", range(3))
def test_quotients_next_to_the_middle_between_two_numbers(seed: int) -> None:
    """The hardest to round: 2**(s + 1) * a is an odd multiple of b and a little more, or less."""
    random = np.random.default_rng(seed)
    pairs: list[tuple[int, int]] = []
    for _ in range(4000):
        # Of the last of these the significand is next to 2, where the reciprocal is rounded most.
        b = int(random.integers(2**52, 2**53)) if seed < 2 else 2**53 - int(random.integers(1, 10**6))
        b |= 1
        for shift in (53, 54):
            inverse = pow(2**shift, -1, b)
            for rest in (-3, -2, -1, 1, 2, 3):
                a = rest * inverse % b
                if a >= 2**52 and (a * 2**shift - rest) // b % 2:
                    pairs.append((a, b))
    assert len(pairs) > 5000
    a, b = np.array(pairs, float).T
    judge(a, b)


@pytest.mark.parametrize("places", range(2, 8))
def test_the_remainder_corrects_every_quotient(places: int) -> None:
    """Of all numbers of so many places, in rational arithmetic: what the correction rests on."""

    def rounded(x: Fraction) -> Fraction:
        if x == 0:
            return x
        exponent = math.frexp(x)[1] - places
        return round(x / Fraction(2) ** exponent) * Fraction(2) ** exponent

    numbers = range(2 ** (places - 1), 2**places)
    for b in numbers:
        reciprocal = rounded(Fraction(1, b))
        for a in numbers:
            q = rounded(a * reciprocal)
            rest = rounded(a - q * b)
            assert rounded(q + rest * reciprocal) == rounded(Fraction(a, b))


@pytest.mark.parametrize(("dtype", "least"), [("float64", 5.6e-309), ("float32", 2.95e-39)])
def test_slopes_are_exact_for_all_divisors_with_a_reciprocal(dtype: Any, least: float) -> None:
    """Below that the slope is that of a divisor of zero, as docs/guides/language.md says."""
    f = differentiable_broadcast(lambda a, b: a / b)
    tiny = float(np.finfo(dtype).smallest_subnormal)
    a = np.array([0.0, 3 * tiny, 0.0, 1.0], dtype)
    b = np.array([least, least, least / 2, least / 2], dtype)
    jacobian = f.jacobian(a, b)
    exact = [-Fraction(float(x)) / Fraction(float(y)) ** 2 for x, y in zip(a[:2], b[:2], strict=True)]
    np.testing.assert_allclose(jacobian["b"][:2], np.array(exact, float).astype(dtype), rtol=4 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(jacobian["b"][2:], [math.nan, -math.inf])
    np.testing.assert_array_equal(jacobian["a"][2:], [math.inf, math.inf])
