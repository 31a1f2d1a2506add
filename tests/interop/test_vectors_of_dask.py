"""Dask arrays as arguments of functions with a signature, chunked along cores too, against the calls on NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from suites import sampled

from dualbcast import ArgumentError, differentiable_broadcast, graph

da = pytest.importorskip("dask.array")
dask = pytest.importorskip("dask")


@differentiable_broadcast(signature="(3),(3,3),()->(3,3),()")
def stretched(v: Any, m: Any, s: float) -> Any:
    return np.outer(v, v) @ m * s, v @ v


@differentiable_broadcast(signature="(n),(n)->()")
def residual(x: Any, p: Any) -> float:
    return x @ p - 1.0


class Arrays(NamedTuple):
    v: Any
    w: Any
    m: Any
    s: Any


DRAW = np.random.default_rng(0)
PLAIN = Arrays(*[DRAW.random(shape) for shape in ((7, 3), (7, 3), (7, 3, 3), (7,))])
V = PLAIN.v
LAZY = Arrays(*[da.from_array(*each) for each in zip(PLAIN, ((2, 3), (3, 2), (3, 3, 1), 4), strict=True)])


def check(call: Callable[[Arrays], Any]) -> None:
    """A call gives lazy arrays, which have the numbers of the same call on NumPy's."""
    found, wanted = leaves(call(LAZY)), leaves(call(PLAIN))
    assert len(found) == len(wanted) > 0
    for ours, theirs in zip(found, wanted, strict=True):
        assert isinstance(ours, da.Array) or not np.shape(theirs)
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-13)


def leaves(value: Any) -> list[Any]:
    return [leaf for each in value for leaf in leaves(each)] if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("argument", ["v", "m", "s"])
@pytest.mark.parametrize("output", sampled([0, 1], 2))
def test_blocks(output: int, argument: str) -> None:
    check(lambda a: stretched.value_and_jacobian(a.v, a.m, a.s)[1][output, argument])
    check(lambda a: stretched.hessian(a.v, a.m, a.s)[output, "v", argument])
    check(lambda a: stretched.hvp((a.v, a.m, a.s), {"v": a.w}, wrt=argument)[output, argument])


def test_values_tangents_and_cotangents() -> None:
    check(lambda a: stretched(a.v, a.m, a.s))
    check(lambda a: stretched(a.v, np.eye(3), 2.0))
    check(lambda a: stretched(V, a.m, a.s))
    check(lambda a: stretched.jvp((a.v, a.m, a.s), {"v": a.w, "s": a.s}))
    check(lambda a: stretched.value_and_vjp((a.v, a.m, a.s), (a.m, a.s)))
    check(lambda a: stretched.vjp(a.v, np.eye(3), 2.0)[1]((a.m, a.s)))


def test_sums() -> None:
    v, p = LAZY[0], np.array([0.5, 1.0, -0.25])
    lazy, eager = (residual.normal_equations(array, p, wrt="p") for array in (v, V))
    for ours, theirs in zip(lazy, eager, strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-13)
    np.testing.assert_allclose(lazy[1], V.T @ (V @ p - 1), rtol=1e-13)
    gradient = residual.sum(v, p, wrt="p", order=1).gradient["p"]
    np.testing.assert_allclose(np.asarray(gradient), V.sum(axis=0), rtol=1e-13)


def test_lengths_that_are_not_known() -> None:
    some = V[:, 0] > 0.3
    found = residual(LAZY[0][da.from_array(some, chunks=2)], np.ones(3))
    np.testing.assert_allclose(found.compute(), V[some].sum(axis=1) - 1, rtol=1e-13)


def test_what_is_refused() -> None:
    with pytest.raises(ArgumentError, match="indexing does not work on Variables of Dask arrays"):
        graph.value_and_grad(lambda v: residual(v, np.ones(3)).sum())(LAZY[0])
    xr = pytest.importorskip("xarray")
    for _ in range(2):  # it was taken where an earlier call had had these shapes
        residual(V, V)
        with pytest.raises(ArgumentError, match="x has core dimensions, and is an xarray"):
            residual(xr.DataArray(V), V)
