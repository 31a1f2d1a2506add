"""The functions of the CPU backend are off by at most 4 units in the last place, but for those listed with a reason."""

from __future__ import annotations

import accuracy
import numpy as np
import pytest
from accuracy import CASES, PAIRS, computed_by

DTYPES = ("float32", "float64")
NAMES = [*CASES, *PAIRS]


def limit(name: str, dtype: str) -> float:
    return (CASES.get(name) or PAIRS[name]).limits[DTYPES.index(dtype)]


def arguments(name: str, dtype: str, count: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    if name in PAIRS:
        return accuracy.pairs(name, dtype, count, seed)
    return (accuracy.points(CASES[name], dtype, count, seed),)


WAYS = {
    "vectors": {"vectors": True},
    "alone": {"vectors": False},
    "libmvec": {"vectors": True, "inlined": False},
    "libm": {"vectors": False, "inlined": False},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sample_is_accurate(dtype: str, way: str) -> None:
    with computed_by(**WAYS[way]):
        found = {
            name: accuracy.worst(name, accuracy.compiled(name, dtype), arguments(name, dtype, 4000)) for name in NAMES
        }
    wrong = {name: (worst.error, worst.at) for name, worst in found.items() if not worst.error <= limit(name, dtype)}
    assert not wrong
