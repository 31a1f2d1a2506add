"""Calls of the corpus: compiled functions, their arguments, and the values and partials that the oracles expect."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from corpus import Case
from oracles import Result, differentiate

from dualbcast import differentiable_broadcast

SMALL = {"float64": np.int64, "float32": np.int16}  # int64 beside float32 would compute in float64


def arrays(case: Case, dtype: str, order: Any = slice(None)) -> list[np.ndarray[Any, Any]]:
    """The points as one array for each argument."""
    kinds = {float: dtype, int: SMALL[dtype], bool: np.bool_}
    return [np.array(column, kinds[type(column[0])])[order] for column in zip(*case.points, strict=True)]


@cache
def compiled(case: Case, backend: str) -> Any:
    return differentiable_broadcast(backend=backend)(case.function)


@cache
def expected(case: Case, dtype: str) -> tuple[Result, ...]:
    """The oracle's answer at each point, rounded to the dtype first."""
    rounded = [
        tuple(float(np.dtype(dtype).type(arg)) if isinstance(arg, float) else arg for arg in point)
        for point in case.points
    ]
    return tuple(differentiate(case.function, point, case.floats) for point in rounded)
