"""Vectors and matrices: plasticity with 3 by 3 stresses, a camera, a step of a rigid body, dihedral angles, four linear
equations and principal strains, each the value and all derivatives, float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import systems
import vector_references as references

SYSTEMS = ("dualbcast", "drjit", "jax", "warp")


@systems.turns(SYSTEMS)
@pytest.mark.parametrize("n", [10**4, 10**5])
@pytest.mark.parametrize("case", references.CORES)
def bench_vectors(benchmark: Any, case: str, n: int, turn: int, system: str) -> None:
    """A block for each output and argument; Dr.Jit's is a list of columns, Warp's a row for each component."""
    if (system, case, n) == ("jax", "equations", 10**5):
        pytest.skip("jax: its solvers of many small systems wait for each other on two cores, and never return")
    host = references.arguments(case, n)
    group = f"{case.replace('_', ' ')}, value and Jacobian, 10^{len(str(n)) - 1} points"
    systems.compare(benchmark, group, system, case, host, _checker(case, host, system), turn=turn, prefix="vectors")


def _checker(case: str, host: list[Any], system: str) -> Callable[[list[Any]], None]:
    few = slice(0, 2000)
    values, rows = references.expected(case, [x[few] for x in host])
    count = len(values[0])
    wanted = [y.reshape(count, -1) for y in values]
    if systems.load(system, "vectors").ROWS:
        for value, row in zip(values, rows, strict=True):
            size = value[0].size
            blocks = [block.reshape(count, size, -1) for block in row]
            wanted += [block[:, at] for at in range(size) for block in blocks]
    else:
        wanted += [block.reshape(count, -1) for row in rows for block in row]
    whole = np.concatenate(wanted, axis=1)

    def check(found: list[Any]) -> None:
        given = np.concatenate([np.asarray(x)[few].reshape(count, -1) for x in found], axis=1)
        assert given.shape == whole.shape
        np.testing.assert_allclose(given, whole, rtol=0, atol=1e-11 * np.max(np.abs(whole)))

    return check
