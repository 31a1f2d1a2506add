"""The functions of the CPU backend are off by at most 4 units in the last place, but for those listed with a reason."""

from __future__ import annotations

from pathlib import Path

import accuracy
import numpy as np
import pytest
from accuracy import CASES, PAIRS, computed_by
from suites import sampled

from dualbcast.codegen import mathlib

DTYPES = ("float32", "float64")
NAMES = [*CASES, *PAIRS]


def limit(name: str, dtype: str) -> float:
    return (CASES.get(name) or PAIRS[name]).limits[DTYPES.index(dtype)]


def arguments(name: str, dtype: str, count: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    if name in PAIRS:
        return accuracy.pairs(name, dtype, count, seed)
    if dtype == "float64" and name in accuracy.MPMATH_ONLY:
        count //= 8
    return (accuracy.points(CASES[name], dtype, count, seed),)


WAYS = {
    "inlined": {},
    "without tables": {"in_tables": False},
    "library": {"inlined": False},
}


@pytest.mark.parametrize("way", sampled(WAYS, 2))
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sample_is_accurate(dtype: str, way: str) -> None:
    with computed_by(**WAYS[way]):
        found = {
            name: accuracy.worst(name, accuracy.compiled(name, dtype), arguments(name, dtype, 2000)) for name in NAMES
        }
    wrong = {name: (worst.error, worst.at) for name, worst in found.items() if not worst.error <= limit(name, dtype)}
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_many_millions_of_points_are_accurate(name: str, dtype: str) -> None:
    """As this machine computes them; other ways are tested by the sample."""
    with computed_by():
        found = accuracy.thorough(name, dtype)
    assert found.error <= limit(name, dtype), found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", mathlib.FUNCTIONS)
def test_what_is_inlined_gives_the_same_bits_wherever_it_is(name: str, dtype: str) -> None:
    if not mathlib.has_fma():
        pytest.skip("the processor has no fused multiply-add")
    points = arguments(name, dtype, 20_000)
    with computed_by():
        function = accuracy.compiled(name, dtype)
        whole = function(*points)
        # One element is the scalar end of a loop; and where a vector begins changes with the start.
        shifted = np.concatenate([function(*(x[part] for x in points)) for part in (slice(7), slice(7, None))])
        alone = np.array([function(*(x[k : k + 1] for x in points))[0] for k in range(0, whole.size, 97)], dtype)
    assert whole.tobytes() == shifted.tobytes()
    assert whole[::97].tobytes() == alone.tobytes()


def test_the_page_has_every_function_and_no_error_beyond_its_limit() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "accuracy.md").read_text(encoding="utf-8")
    found = set()
    for line in text.partition("## Derivatives")[0].splitlines():
        if line.startswith("| `"):
            name, *errors = (cell.strip(" `") for cell in line.split("|")[1:4])
            found.add(name)
            assert all(float(e) <= limit(name, dtype) + 0.005 for e, dtype in zip(errors, DTYPES, strict=True)), line
            if max(map(float, errors)) > 4:
                reason = (CASES.get(name) or PAIRS[name]).reason
                assert reason
                assert reason in line
    assert found == set(NAMES), "run: python docs/generate_accuracy.py"
