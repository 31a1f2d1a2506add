"""The function of the paper's arity experiment, its reference, and the checks of results before they are timed.

Results are compared with a reference in float64, in units in the last place, or with finite differences. The reference
shares no formula with the derivative rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import tanh
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from dualbcast.cli.measure import Device
from dualbcast.errors import DualbcastError
from dualbcast.testing import slopes

Array = NDArray[np.float64]


def reflect(x: float) -> float:
    """g(x): x above one half, -x elsewhere."""
    return x if x > 0.5 else -x


def product(*xs: float) -> float:
    """∏ tanh(g(x)) over all arguments."""
    y = 1.0
    for x in xs:
        y = y * tanh(reflect(x))
    return y


def product_reference(xs: Sequence[Array]) -> tuple[Array, list[Array], list[Array]]:
    """The product, its partials, and for each partial the size of the product of the other factors.

    With t = tanh(g(x)) and s = sign of g's slope, the j-th partial is s_j / cosh(x_j)² ∏_{k≠j} t_k. The last result has
    |∏_{k≠j} t_k|: the scale on which an error of the j-th partial is judged.
    """
    slopes = [np.where(x > 0.5, 1.0, -1.0) for x in xs]
    factors = [np.tanh(slope * x) for slope, x in zip(slopes, xs, strict=True)]
    before = [np.ones_like(xs[0])]  # before[j] = t_0 … t_{j-1}
    for factor in factors:
        before.append(before[-1] * factor)
    after = np.ones_like(xs[0])  # t_{j+1} … t_{N-1}
    partials, others = [], []
    for x, slope, factor, left in zip(xs[::-1], slopes[::-1], factors[::-1], before[-2::-1], strict=True):
        rest = left * after
        partials.append(slope / np.cosh(x) ** 2 * rest)
        others.append(np.abs(rest))
        after = after * factor
    return before[-1], partials[::-1], others[::-1]


# Elements compared at a time: the float64 references need many times the memory of the float32 results.
BLOCK_ELEMENTS = 1 << 18


class CheckError(DualbcastError):
    """A computed value or partial is further from its reference than the stated tolerance."""


def _finfo(dtype: Any) -> Any:
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # unlike NumPy's, it knows bfloat16


def row_blocks(shape: tuple[int, ...]) -> Iterator[slice]:
    """The rows of a 2-d array in blocks of at most BLOCK_ELEMENTS elements, or of one row where that has more."""
    rows = max(1, BLOCK_ELEMENTS // max(1, shape[1]))
    for start in range(0, shape[0], rows):
        yield slice(start, start + rows)


def distance(result: NDArray[Any], reference: NDArray[np.float64], scale: NDArray[np.float64]) -> float:
    """The largest |result - reference| in units of eps · scale, eps that of the result's dtype; NaN if one is NaN."""
    info = _finfo(result.dtype)
    unit = float(info.eps) * scale + float(info.smallest_subnormal)
    return float(np.max(np.abs(result.astype(np.float64) - reference) / unit))


def require(name: str, error: float, tolerance: float) -> None:
    """Raise CheckError if the error, in ulps, exceeds the tolerance."""
    if not error <= tolerance:  # written so that NaN fails
        raise CheckError(f"Wrong result: {name} is off by {error:.3g} ulp of its scale, more than {tolerance:.3g}.")


def check_product(device: Device, xs: Sequence[Any], value: Any, jacobian: Any) -> tuple[float, float]:
    """Check ∏ tanh(g(x)) and its partials over all elements.

    The scale of the value is its own size, that of a partial the product of the *other* factors, since 1 - t² is
    computed with an absolute error. A tanh is good to 4 ulp and a product to half a one, and 1 - t² to 9 ulp of 1, so
    N factors are held to 5 (N + 1) ulp; twice that in float64, the reference's own precision. float16 and bfloat16
    results are computed in float32 and rounded once: one ulp is added to the float32 bound in their units.

    Returns the largest error and the largest that is allowed, in ulps of the result's dtype; raises CheckError if an
    error exceeds it.
    """
    tolerance = 5.0 * (len(xs) + 1)
    eps = float(_finfo(value.dtype).eps)
    if value.dtype == np.float64:
        tolerance *= 2
    elif value.dtype != np.float32:
        tolerance = 1 + tolerance * float(np.finfo(np.float32).eps) / eps
    worst = 0.0
    for rows in row_blocks(value.shape):
        exact, partials, others = product_reference([device.host(x[rows]).astype(np.float64) for x in xs])
        errors = {"the value": distance(device.host(value[rows]), exact, np.abs(exact))}
        for j, (partial, other) in enumerate(zip(partials, others, strict=True)):
            errors[f"the partial in argument {j}"] = distance(device.host(jacobian[j][rows]), partial, other)
        for name, error in errors.items():
            require(f"{name} (arity {len(xs)})", error, tolerance)
        worst = max(worst, *errors.values())
    return worst, tolerance


@dataclass(frozen=True, slots=True)
class DifferenceCheck:
    """The result of a check by differences."""

    error: float | None  # the largest relative error; None if no number could be compared
    compared: int  # numbers
    skipped: int


def check_by_differences(
    exact: Callable[..., Any], device: Device, xs: Sequence[Any], value: Any, jacobian: Any, elements: int = 32
) -> DifferenceCheck:
    """Check any function's value and partials on a few elements against float64 values and central differences.

    The values are those of `exact`: the same function, computing in float64 on NumPy arrays by an independent backend.
    Numbers are compared relative to the largest reference of their kind on those elements. They are skipped where a
    reference is not finite, and where the differences do not converge: at a kink or a jump. Raises CheckError if the
    relative error exceeds 1e-3 plus two ulp of the dtype.
    """
    values = value if isinstance(value, tuple) else (value,)
    tolerance = 1e-3 + 2 * float(_finfo(xs[0].dtype).eps)
    generator = np.random.default_rng(7)
    where = tuple(generator.integers(0, size, elements) for size in values[0].shape)
    on_device = tuple(device.xp.asarray(index) for index in where)

    def picked(array: Any) -> NDArray[np.float64]:
        return device.host(array[on_device]).astype(np.float64)

    points = [picked(x) for x in xs]

    def outputs(position: int, moved: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        result = exact(*points[:position], moved, *points[position + 1 :])
        return [np.asarray(y) for y in (result if isinstance(result, tuple) else (result,))]

    worst, compared, skipped = 0.0, 0, 0

    def compare(name: str, result: NDArray[np.float64], reference: NDArray[np.float64], good: NDArray[Any]) -> None:
        nonlocal worst, compared, skipped
        good = good & np.isfinite(reference)
        skipped += int(np.count_nonzero(~good))
        if not good.any():
            return
        compared += int(np.count_nonzero(good))
        scale = max(float(np.max(np.abs(reference[good]))), float(np.finfo(np.float32).tiny))
        error = float(np.max(np.abs(result[good] - reference[good]))) / scale
        if not error <= tolerance:
            raise CheckError(f"Wrong result: {name} differs by {error:.3g} (relative), more than {tolerance:.3g}.")
        worst = max(worst, error)

    for i, (result, reference) in enumerate(zip(values, outputs(0, points[0]), strict=True)):
        compare(f"output {i}", picked(result), reference, np.isfinite(reference))
    for j, x in enumerate(points):
        for i, (slope, _, converges) in enumerate(slopes(outputs, j, x)):
            entry = jacobian[i, j] if len(values) > 1 else jacobian[j]
            compare(f"the partial of output {i} in argument {j}", picked(entry), slope, converges)
    return DifferenceCheck(worst if compared else None, compared, skipped)
