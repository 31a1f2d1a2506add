"""What a row of the table of traps is, and what dualbcast gives in it.

A row is a function, whose docstring says what goes wrong, and for each point the value and the partial derivatives in
the float arguments. The first point is the trap; the others are ordinary and keep an answer from being right by chance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dualbcast import differentiable_broadcast

__all__ = ["TRAPS", "Found", "Trap", "broadcast", "ours", "trap"]

Point = tuple[Any, ...]
Row = dict[Point, tuple[float, tuple[float, ...]]]


@dataclass
class Found:
    """What a library gives: a value for each point, and for each the partial derivatives."""

    values: list[float]
    partials: list[list[float]]


@dataclass(frozen=True)
class Trap:
    """One row.

    Attributes
    ----------
    group : str
        The table that the row is in.
    function : function
    row : dict
        For each point the value and the partials; all that float32 and float64 hold exactly is written as a number.
    conventions : tuple of tuple
        Other partials at the first point that may be defended: no derivative exists there.
    dtypes : tuple of str
        The float dtypes in which the row is a test.
    integer : dtype
        Of the arguments that are integers.
    run : function, optional
        Of the backend and the dtype; runs the row where calling the function on the points is not the point.
    waits : str
        Why the row is not right yet, if so.
    """

    group: str
    function: Callable[..., Any]
    row: Row
    conventions: tuple[tuple[float, ...], ...] = ()
    dtypes: tuple[str, ...] = ("float64", "float32")
    integer: Any = np.int16
    run: Callable[[str, str], Found] | None = None
    waits: str = ""
    points: tuple[Point, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", tuple(self.row))

    @property
    def name(self) -> str:
        return self.function.__name__

    def columns(self, dtype: str, repeat: int = 1) -> list[np.ndarray[Any, Any]]:
        """The points as one array for each argument, the whole list `repeat` times."""
        kinds = {float: dtype, int: self.integer}
        columns = zip(*self.points, strict=True)
        return [np.tile(np.array(column, kinds[type(column[0])]), repeat) for column in columns]

    @property
    def floats(self) -> tuple[int, ...]:
        """The positions of the float arguments."""
        return tuple(at for at, arg in enumerate(self.points[0]) if isinstance(arg, float))


TRAPS: list[Trap] = []


def trap(group: str, row: Row, **options: Any) -> Callable[[Any], Any]:
    """Add a row to a table."""

    def add(function: Any) -> Any:
        TRAPS.append(Trap(group, function, row, **options))
        return function

    return add


def broadcast(function: Any, backend: str) -> Any:
    return differentiable_broadcast(backend=backend)(function)


def ours(trap: Trap, backend: str, dtype: str, repeat: int = 1) -> Found:
    """What dualbcast gives at the points of a row, the whole list `repeat` times."""
    if trap.run is not None:
        return trap.run(backend, dtype)
    value, jacobian = broadcast(trap.function, backend).value_and_jacobian(*trap.columns(dtype, repeat))
    assert value.dtype == dtype
    return Found(value.tolist(), np.stack([jacobian[name] for name in jacobian.wrt], axis=1).tolist())
