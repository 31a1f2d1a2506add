"""Derivatives that are a convention: ours and those of PyTorch and JAX, and the table of docs/guides/derivatives.md."""

from __future__ import annotations

import importlib
import math
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from dualbcast import differentiable_broadcast, graph

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "derivatives.md"
# The versions that the table says; what others do may differ.
VERSIONS = {"torch": "2.13", "jax": "0.10"}
INF, NAN = math.inf, math.nan

Call = Callable[..., Any]
Slopes = tuple[float, ...]


class Row(NamedTuple):
    """A function at a point: how each library writes it, and the gradient that each gives."""

    function: str
    point: Slopes
    scalar: Call
    array: Call | None
    torch: Call
    jax: Call
    ours: Slopes
    theirs: Slopes
    jaxs: Slopes


def root_of_squares(*xs: float) -> float:
    return math.sqrt(sum(x * x for x in xs))


def deviation(*xs: float) -> float:
    mean = sum(xs) / len(xs)
    return math.sqrt(sum((x - mean) ** 2 for x in xs) / len(xs))


ROOT = (
    root_of_squares,
    lambda x: np.sqrt(np.sum(x * x)),
    lambda torch, *x: torch.sqrt(sum(each * each for each in x)),
    lambda jnp, *x: jnp.sqrt(sum(each * each for each in x)),
)
DEVIATION = (
    deviation,
    lambda x: np.std(x),
    lambda torch, *x: torch.std(torch.stack(x), correction=0),
    lambda jnp, *x: jnp.std(jnp.stack(x)),
)
HYPOT = (lambda a, b: math.hypot(a, b), None, lambda torch, a, b: torch.hypot(a, b), lambda jnp, a, b: jnp.hypot(a, b))
MOD = (lambda a, b: a % b, None, lambda torch, a, b: torch.remainder(a, b), lambda jnp, a, b: jnp.remainder(a, b))
FMOD = (lambda a, b: math.fmod(a, b), None, lambda torch, a, b: torch.fmod(a, b), lambda jnp, a, b: jnp.fmod(a, b))
SUM = (
    lambda a, b: np.logaddexp(a, b),
    None,
    lambda torch, a, b: torch.logaddexp(a, b),
    lambda jnp, a, b: jnp.logaddexp(a, b),
)
ROWS = [
    Row("sqrt(sum(x²))", (0.0, 0.0), *ROOT, (NAN, NAN), (NAN, NAN), (NAN, NAN)),
    Row("hypot(a, b)", (0.0, 0.0), *HYPOT, (0.0, 0.0), (NAN, NAN), (0.5, 0.5)),
    Row("std(x)", (2.0, 2.0), *DEVIATION, (NAN, NAN), (0.0, 0.0), (NAN, NAN)),
    Row("a % b", (6.0, 3.0), *MOD, (1.0, -2.0), (1.0, -2.0), (1.0, -2.0)),
    Row("a % b", (2.5, 0.0), *MOD, (1.0, NAN), (1.0, -INF), (1.0, -INF)),
    Row("a % b", (2.5, INF), *MOD, (1.0, 0.0), (1.0, 0.0), (1.0, 0.0)),
    Row("a % b", (-2.5, INF), *MOD, (1.0, NAN), (1.0, 1.0), (1.0, 1.0)),
    Row("fmod(a, b)", (2.5, 0.0), *FMOD, (1.0, NAN), (1.0, -INF), (1.0, -INF)),
    Row("fmod(a, b)", (2.5, INF), *FMOD, (1.0, 0.0), (1.0, 0.0), (1.0, 0.0)),
    Row("fmod(a, b)", (-2.5, INF), *FMOD, (1.0, 0.0), (1.0, 0.0), (1.0, 0.0)),
    Row("logaddexp(a, b)", (INF, INF), *SUM, (0.5, 0.5), (NAN, NAN), (1.0, 1.0)),
    Row("logaddexp(a, b)", (-INF, -INF), *SUM, (0.5, 0.5), (NAN, NAN), (NAN, NAN)),
    Row("logaddexp(a, b)", (INF, 1.0), *SUM, (1.0, 0.0), (1.0, 0.0), (1.0, math.e)),
]
NAMED = [pytest.param(row, id=f"{row.function} at {row.point}") for row in ROWS]


def same(found: Any, wanted: Slopes) -> None:
    np.testing.assert_array_equal(np.asarray(found, float), wanted)  # nan is nan, and -0 is 0


@pytest.mark.parametrize("backend", ["python", "cpu"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("row", NAMED)
def test_ours(row: Row, dtype: str, backend: str) -> None:
    point = [np.array([each], dtype) for each in row.point]
    jacobian = differentiable_broadcast(backend=backend)(row.scalar).jacobian(*point)
    same([jacobian[at][0] for at in range(len(point))], row.ours)


@pytest.mark.parametrize("row", [each for each in NAMED if each.values[0].array])  # type: ignore[attr-defined]
def test_ours_in_the_graph(row: Row) -> None:
    assert row.array is not None
    with np.errstate(all="ignore"):
        same(graph.grad(row.array)(np.array(row.point)), row.ours)


def peer(name: str) -> Any:
    module = pytest.importorskip(name)
    if not module.__version__.startswith(VERSIONS[name] + "."):
        pytest.skip(f"the table is of {name} {VERSIONS[name]}")
    return module


@pytest.mark.parametrize("row", NAMED)
def test_pytorch(row: Row) -> None:
    torch = peer("torch")
    point = [torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in row.point]
    with warnings.catch_warnings(action="ignore"):
        row.torch(torch, *point).backward()
    same([each.grad for each in point], row.theirs)


@pytest.mark.parametrize("row", NAMED)
def test_jax(row: Row) -> None:
    jax = peer("jax")
    jnp = importlib.import_module("jax.numpy")
    point = [jnp.float32(each) for each in row.point]
    slopes = jax.grad(lambda *x: row.jax(jnp, *x), argnums=tuple(range(len(point))))(*point)
    np.testing.assert_allclose(np.asarray(slopes), row.jaxs, rtol=1e-6)


def shown(slopes: Slopes) -> str:
    return ", ".join(f"{slope:g}" for slope in slopes)


def test_the_page_has_this_table() -> None:
    table = "".join(
        f"| `{row.function}` | {shown(row.point)} | {shown(row.ours)} | {shown(row.theirs)} | {shown(row.jaxs)} |\n"
        for row in ROWS
    )
    text = PAGE.read_text(encoding="utf-8")
    assert table in text, table
    found = re.search(r"PyTorch (\S+) and JAX (\S+) give", text)
    assert found
    assert found.groups() == (VERSIONS["torch"], VERSIONS["jax"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", [math.hypot, math.atan2])
@pytest.mark.parametrize("other", [0.0, -0.0, 1e-300, 1.0, -INF])
def test_slopes_beside_nan_are_nan(function: Call, other: float, dtype: str) -> None:
    compiled = differentiable_broadcast(lambda a, b: function(a, b))
    # So many that vectors are computed, too.
    nan, number = np.full(37, NAN, dtype), np.full(37, other, dtype)
    for point in ((nan, number), (number, nan)):
        jacobian = compiled.jacobian(*point)
        for name in "ab":
            assert np.isnan(jacobian[name]).all()
