"""Functions whose outputs are summed, the shapes of sums, and the sums of NumPy and `math.fsum`."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np

from dualbcast.ir.nodes import Assign, Const, Function, Op, Output, Var

BF16 = np.dtype(ml_dtypes.bfloat16)


F2, F4, F8 = (np.dtype(name) for name in ("float16", "float32", "float64"))


DTYPES = [F2, BF16, F4, F8]


Shape = tuple[int, ...]


# Output number i is x·y + i, the product alone first.
X, Y = Var("x", "float"), Var("y", "float")


def shifted_products(count: int) -> Function:
    product = Assign(Var("p", "float"), Op("mul", (X, Y), "float"))
    body = [
        Assign(Var(f"t{i}", "float"), Op("add", (product.target, Const(float(i), "float")), "float"))
        for i in range(count)
    ]
    outputs = [Output(f"out{i}", assign.target) for i, assign in enumerate(body)]
    return Function("shifted", (X, Y), (product, *body), tuple(outputs))


def patterns(shape: Shape) -> list[Shape]:
    """Every shape that broadcasts to `shape`, those with fewer axes too."""
    found = [tuple(lengths) for lengths in itertools.product(*({1, length} for length in shape))]
    return list(dict.fromkeys(found + [p[1:] for p in found if p[:1] == (1,)] + [()]))


def integers(shape: Shape, dtype: Any, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(dtype)


def reduced(terms: np.ndarray[Any, Any], shape: Shape) -> np.ndarray[Any, Any]:
    """The sum of integers over the axes that `shape` does not span."""
    full = (1,) * (terms.ndim - len(shape)) + shape
    axes = tuple(axis for axis, length in enumerate(full) if length == 1)
    return terms.astype(np.int64).sum(axis=axes).reshape(shape)


def fsum(terms: np.ndarray[Any, Any], shape: Shape) -> np.ndarray[Any, Any]:
    """Correctly rounded sums of float64 over the axes that `shape` does not span."""
    full = (1,) * (terms.ndim - len(shape)) + shape
    axes = [axis for axis, length in enumerate(full) if length > 1 or terms.shape[axis] == 1]
    rest = [axis for axis in range(terms.ndim) if axis not in axes]
    rows = terms.transpose(*axes, *rest).reshape(math.prod(full), -1)
    return np.array([math.fsum(row) for row in rows.tolist()]).reshape(shape)
