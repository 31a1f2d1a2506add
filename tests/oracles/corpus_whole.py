"""Functions that read whole arrays, with tables and ranges of numbers; plain Python runs them on NumPy's arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dualbcast import tables


@dataclass(eq=False)
class WholeCase:
    """A function, the ranges of its first arguments, and the whole arrays that it takes by name after these.

    `smooth` says whether derivatives exist at random points; of `tracked` arrays cotangents are taken.
    """

    function: Callable[..., Any]
    ranges: tuple[tuple[float, float], ...]
    arrays: dict[str, Any]
    tracked: tuple[str, ...] = ()
    integers: tuple[int, ...] = ()
    whole: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.whole = tuple(self.arrays)

    @property
    def name(self) -> str:
        return self.function.__name__

    def numbers(self, count: int, dtype: Any = np.float64) -> list[Any]:
        random = np.random.default_rng(len(self.name))
        drawn = [random.uniform(low, high, count) for low, high in self.ranges]
        return [x.astype(np.int8) if at in self.integers else x.astype(dtype) for at, x in enumerate(drawn)]

    def tables(self, dtype: Any = np.float64) -> dict[str, Any]:
        return {name: x.astype(dtype) if x.dtype.kind == "f" else x for name, x in self.arrays.items()}


WHOLE: list[WholeCase] = []
RANDOM = np.random.default_rng(0)
KNOTS = np.array([-1.0, -0.3, 0.1, 0.25, 1.0, 1.7, 2.0, 3.5])
VALUES = RANDOM.uniform(0.5, 2.0, 8)
GRID = RANDOM.uniform(-1.0, 1.0, (5, 7))
CUBE = RANDOM.uniform(-1.0, 1.0, (3, 4, 5))


def whole_case(
    *ranges: tuple[float, float], tracked: tuple[str, ...] = (), integers: tuple[int, ...] = (), **arrays: Any
):
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        WHOLE.append(WholeCase(function, ranges, arrays, tracked, integers))
        return function

    return add


@whole_case((0.0, 6.9), table=VALUES, tracked=("table",))
def linear_by_hand(x, table):
    i = int(x)
    t = x - i
    return table[i] * (1.0 - t) + table[i + 1] * t


@whole_case((-8.0, 7.9), (-2.0, 2.0), table=VALUES, tracked=("table",))
def negative_indices(place, x, table):
    return table[math.floor(place)] * x


@whole_case((0.0, 4.9), (0.0, 6.9), grid=GRID, tracked=("grid",))
def element_of_a_matrix(a, b, grid):
    return math.sin(grid[int(a), int(b)]) * a


@whole_case((0.0, 4.9), (0.0, 6.9), grid=GRID, tracked=("grid",))
def row_of_a_matrix(a, b, grid):
    row = grid[int(a)]
    return row[int(b)] * row[0] + len(row) + grid.shape[0] + grid.size * a


@whole_case((-3.0, 9.0), (-9.0, 12.0), grid=GRID, tracked=("grid",))
def clipped_and_wrapped(a, b, grid):
    row = np.take(grid, math.floor(a), axis=0, mode="clip")
    return np.take(row, math.floor(b), mode="wrap") * a + b


@whole_case((-0.9, 0.9), coefficients=np.array([1.0, -2.0, 0.5, 3.0]), tracked=("coefficients",))
def polynomial(x, coefficients):
    total = 0.0
    for k in range(len(coefficients)):
        total = total * x + coefficients[-1 - k]
    return total


@whole_case(
    (0.1, 2.0), weights=np.array([0.2, 0.3, 0.5]), nodes=np.array([0.1, 0.5, 0.9]), tracked=("weights", "nodes")
)
def quadrature(x, weights, nodes):
    total = 0.0
    for k in range(3):
        total += weights[k] * math.exp(-x * nodes[k])
    return total


@whole_case((0.1, 2.0), (-1.0, 1.0), table=VALUES, tracked=("table",))
def read_in_a_branch(x, y, table):
    if y > 0:
        return table[2] * x
    if y > -0.5:
        return x / table[int(3 * x)]
    return y


@whole_case((0.0, 6.9), order=np.array([3, 1, 0, 7, 5, 2, 4, 6], np.int8), table=VALUES, tracked=("table",))
def indirect(x, order, table):
    return table[order[int(x)]] ** 2 * x


@whole_case((0.2, 3.0), flags=np.array([True, False, True]), table=VALUES, tracked=("table",))
def bools_and_floats(x, flags, table):
    return table[0] * x if flags[int(x) % 3] else table[1] - x


@whole_case((-2.0, 4.0), xp=KNOTS, fp=VALUES, tracked=("xp", "fp"))
def interpolated(x, xp, fp):
    return np.interp(x, xp, fp) * x


@whole_case((-2.0, 4.0), xp=KNOTS, fp=VALUES, tracked=("fp",))
def interpolated_with_ends(x, xp, fp):
    return tables.interp(x, xp, fp, left=-1.0, right=5.0)


@whole_case((-2.0, 4.0), xp=KNOTS)
def counted(x, xp):
    return np.searchsorted(xp, x) + 10 * tables.searchsorted(xp, x, "right") + 0.0 * x


@whole_case((-1.0, 3.5), xp=KNOTS, fp=VALUES, slopes=np.cos(KNOTS), tracked=("fp", "slopes"))
def hermite(x, xp, fp, slopes):
    return tables.cubic_hermite(x, xp, fp, slopes)


@whole_case((-1.0, 3.5), xp=KNOTS, fp=VALUES, second=np.sin(KNOTS), tracked=("xp", "fp", "second"))
def spline(x, xp, fp, second):
    return tables.cubic_spline(x, xp, fp, second)


@whole_case((-0.5, 4.5), (-1.5, 7.5), xp=np.arange(5.0), yp=np.arange(7.0) * 1.1, fp=GRID, tracked=("fp",))
def on_a_plane(x, y, xp, yp, fp):
    return tables.bilinear(x, y, xp, yp, fp)


@whole_case(
    (0.0, 2.0),
    (0.0, 3.0),
    (0.0, 4.0),
    xp=np.arange(3.0),
    yp=np.arange(4.0),
    zp=np.arange(5.0),
    fp=CUBE,
    tracked=("fp",),
)
def in_a_cube(x, y, z, xp, yp, zp, fp):
    return tables.trilinear(x, y, z, xp, yp, zp, fp)


@whole_case((0.0, 7.9), (0.5, 1.5), table=VALUES, tracked=("table",))
def walk_until_small(start, x, table):
    place, total = int(start), x
    while total > 0.3:
        total = total * table[place % len(table)] * 0.4
        place += 1
    return total


@whole_case((0.0, 3.9), (0.0, 3.9), integers=(0, 1), grid=GRID, tracked=("grid",))
def of_integers(i, j, grid):
    return grid[i, j] + 0.5 * grid[j][i] if i < j else grid[i + 1, j]


@whole_case((-1.0, 1.0), table=VALUES, tracked=("table",))
def two_outputs(x, table):
    return table[1] * x, math.exp(table[0] * x)
