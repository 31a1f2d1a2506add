"""Arrays of pandas, xarray and Dask, and masked arrays, beside whole arrays and as whole arrays; `index` along them."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

from dualbcast import ArgumentError, BoundsError, ShapeError, differentiable_broadcast, graph
from dualbcast.tables import index

X = np.array([0.5, 3.25, 1.75, 2.125, 0.0])
TABLE = np.array([0.9, -0.4, 1.3, 0.25, -0.75])
GRID = np.arange(12.0).reshape(4, 3)[::-1]
NAMES = ("masked", "pandas", "xarray", "dask", "dask in xarray")


@differentiable_broadcast(whole="table")
def looked_up(x: float, scale: float, table: Any) -> tuple[float, int]:
    i = int(x)
    return table[i] * math.exp(-scale * x * table[i + 1]), i


@differentiable_broadcast(whole="grid")
def of_grid(i: int, j: int, grid: Any) -> float:
    return grid[i, j]


# The value and its slopes in x and in the scale, by NumPy.
PLACES = X.astype(int)
RATES = TABLE[PLACES + 1]
VALUE = TABLE[PLACES] * np.exp(-1.5 * X * RATES)
SLOPES = {"x": -1.5 * RATES * VALUE, "scale": -X * RATES * VALUE}


def made(name: str, array: np.ndarray) -> Any:
    """An array of the library."""
    match name:
        case "masked":
            return np.ma.array(array)
        case "pandas":
            return pytest.importorskip("pandas").Series(array, index=[f"row {at}" for at in range(len(array))])
        case "dask":
            return pytest.importorskip("dask.array").from_array(array, chunks=2)
    labelled = pytest.importorskip("xarray").DataArray(array, dims=[f"d{at}" for at in range(array.ndim)])
    if name == "xarray":
        return labelled
    pytest.importorskip("dask.array")
    return labelled.chunk(2)


def close(found: Any, wanted: np.ndarray, kind: Any = None) -> None:
    assert kind is None or isinstance(found, type(kind))
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_products(name: str) -> None:
    x = made(name, X)
    value, place = looked_up(x, 1.5, TABLE)
    close(value, VALUE, x)
    np.testing.assert_array_equal(np.asarray(place), PLACES)
    (value, _), jacobian = looked_up.value_and_jacobian(x, 1.5, TABLE)
    close(value, VALUE, x)
    for argument, slope in SLOPES.items():
        close(jacobian[0, argument], slope, x)
    close(looked_up.hessian(x, 1.5, TABLE)[0, "x", "scale"], -RATES * VALUE * (1 - 1.5 * X * RATES), x)
    (_, _), (tangent, _) = looked_up.jvp((x, 1.5, TABLE), {"x": x})
    close(tangent, SLOPES["x"] * X, x)
    close(looked_up.hvp((x, 1.5, TABLE), {"scale": 1.0}, wrt="x")[0, "x"], -RATES * VALUE * (1 - 1.5 * X * RATES), x)
    for of_x, of_scale in (
        looked_up.vjp(x, 1.5, TABLE)[1]((x, None)),
        looked_up.value_and_vjp((x, 1.5, TABLE), (x, None))[1],
    ):
        close(of_x, SLOPES["x"] * X, x)
        close(of_scale, np.asarray((SLOPES["scale"] * X).sum()))
    sums = looked_up.sum(x, 1.5, TABLE, order=1)
    close(sums.value[0], np.asarray(VALUE.sum()))
    close(sums.gradient[0, "scale"], np.asarray(SLOPES["scale"].sum()))
    close(looked_up.partial("x")(x, 1.5, TABLE)[0], SLOPES["x"], x)


@pytest.mark.parametrize("name", NAMES)
def test_whole_arrays_of_the_library(name: str) -> None:
    x, table = made(name, X), made(name, TABLE)
    close(looked_up(x, 1.5, table)[0], VALUE, x)
    close(looked_up(x, scale=1.5, table=table)[0], VALUE, x)
    found = looked_up(X, 1.5, table)[0]
    assert type(found) is np.ndarray
    close(found, VALUE)
    empty = made(name, X[:0])
    assert looked_up(empty, 1.5, table)[0].shape == (0,)
    with pytest.raises(ArgumentError, match=r"the cotangent of table, which is whole, is for calls on arrays of NumPy"):
        looked_up.vjp(x, 1.5, table, wrt="table")[1]((x, None))
    with pytest.raises(ArgumentError, match="take them by vjp"):
        looked_up.value_and_jacobian(x, 1.5, table, wrt="table")


@pytest.mark.parametrize("name", NAMES)
def test_layouts_and_bounds(name: str) -> None:
    i = made(name, np.array([0, 3, 1, 2]))
    close(of_grid(i, 2, GRID), GRID[[0, 3, 1, 2], 2])
    if name != "pandas":
        close(of_grid(i, 2, made(name, GRID)), GRID[[0, 3, 1, 2], 2])
    with pytest.raises(BoundsError, match=r"for the element at index \(1,\)"):
        np.asarray(of_grid(i + 1, 2, GRID))


def test_numbers_below_a_mask_are_no_places() -> None:
    i = np.ma.masked_less([2, -999, 1], 0)
    found = of_grid(i, 0, GRID)
    np.testing.assert_array_equal(found.filled(-1), [GRID[2, 0], -1, GRID[1, 0]])
    assert of_grid(np.ma.masked_all(2, np.int64), 0, GRID).mask.all()
    with pytest.raises(ArgumentError, match=r"grid is whole, and has masked elements; pass grid.filled"):
        of_grid(i, 0, np.ma.masked_less(GRID, 1))


def test_tables_go_to_other_processes() -> None:
    """A whole array reaches a kernel by its first element, and a copy of that alone would read other memory."""
    da = pytest.importorskip("dask.array")
    lazy = looked_up(da.from_array(X, chunks=2), 1.5, TABLE)[0]
    close(pickle.loads(pickle.dumps(lazy)), VALUE)
    assert lazy.name == looked_up(da.from_array(X, chunks=2), 1.5, TABLE.copy())[0].name
    assert lazy.name != looked_up(da.from_array(X, chunks=2), 1.5, 2 * TABLE)[0].name


def test_the_graph_of_dask_arrays() -> None:
    da = pytest.importorskip("dask.array")
    x = da.from_array(X, chunks=2)
    value, slope = graph.value_and_grad(lambda x: looked_up(x, 1.5, TABLE)[0].sum())(x)
    close(value, np.asarray(VALUE.sum()))
    close(slope, SLOPES["x"])


def test_index_counts_along_named_dimensions() -> None:
    """It took the dimensions of all arguments for the same one."""
    xr = pytest.importorskip("xarray")
    function = differentiable_broadcast(lambda x, y: 10.0 * index(0) + index(1) + 0.0 * (x + y))
    x = xr.DataArray(np.ones(2), dims="a")
    for length in (2, 3):
        found = function(x, xr.DataArray(np.ones(length), dims="b"))
        assert found.dims == ("a", "b")
        np.testing.assert_array_equal(found, 10.0 * np.arange(2)[:, None] + np.arange(length))
    da = pytest.importorskip("dask.array")
    unknown = da.from_array(X, chunks=2)
    with pytest.raises(ShapeError, match="whose length is not known yet"):
        differentiable_broadcast(lambda x: x + index(0))(unknown[unknown > 1])
