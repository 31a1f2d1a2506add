"""Comparison of results with a reference, in units in the last place, or with central differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from dualbcast.cli.measure import Device
from dualbcast.cli.models import product_reference
from dualbcast.errors import DualbcastError

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

    Parameters
    ----------
    device : Device
        Where the arrays are.
    xs : sequence of 2-d arrays
    value : array
    jacobian : Jacobian

    Returns
    -------
    error, tolerance : float
        The largest error and the largest that is allowed, in ulps of the result's dtype.

    Raises
    ------
    CheckError
        If an error exceeds the tolerance.
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
    """The result of a check by central differences.

    Attributes
    ----------
    error : float or None
        The largest relative error; None if no number could be compared.
    compared, skipped : int
        How many numbers were compared, and how many were left out.
    """

    error: float | None
    compared: int
    skipped: int


def check_by_differences(
    exact: Callable[..., Any], device: Device, xs: Sequence[Any], value: Any, jacobian: Any, elements: int = 32
) -> DifferenceCheck:
    """Check any function's value and partials on a few elements against float64 values and central differences.

    Numbers are compared relative to the largest reference of their kind on those elements. A place where the two
    one-sided differences disagree (a kink or a jump close by), or where a reference is not finite, is skipped.

    Parameters
    ----------
    exact : callable
        The same function, computing in float64 on NumPy arrays by an independent backend.
    device : Device
    xs : sequence of 2-d arrays
    value : array or tuple of arrays
    jacobian : Jacobian
    elements : int
        How many elements to look at.

    Raises
    ------
    CheckError
        If the relative error exceeds 1e-3 plus two ulp of the dtype.
    """
    values = value if isinstance(value, tuple) else (value,)
    tolerance = 1e-3 + 2 * float(_finfo(xs[0].dtype).eps)
    generator = np.random.default_rng(7)
    where = tuple(generator.integers(0, size, elements) for size in values[0].shape)
    on_device = tuple(device.xp.asarray(index) for index in where)

    def picked(array: Any) -> NDArray[np.float64]:
        return device.host(array[on_device]).astype(np.float64)

    def outputs(points: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
        result = exact(*points)
        return [np.asarray(y) for y in (result if isinstance(result, tuple) else (result,))]

    points = [picked(x) for x in xs]
    centre = outputs(points)
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

    for i, (result, reference) in enumerate(zip(values, centre, strict=True)):
        compare(f"output {i}", picked(result), reference, np.isfinite(reference))
    for j, x in enumerate(points):
        step = np.cbrt(np.finfo(np.float64).eps) * np.maximum(1, np.abs(x))
        up = outputs([*points[:j], x + step, *points[j + 1 :]])
        down = outputs([*points[:j], x - step, *points[j + 1 :]])
        for i, (high, low, middle) in enumerate(zip(up, down, centre, strict=True)):
            slope = (high - low) / (2 * step)
            bend = np.abs((high - middle) - (middle - low)) / step
            smooth = bend <= 1e-2 * np.max(np.abs(slope), initial=0, where=np.isfinite(slope))
            entry = jacobian[i, j] if len(values) > 1 else jacobian[j]
            compare(f"the partial of output {i} in argument {j}", picked(entry), slope, smooth)
    return DifferenceCheck(worst if compared else None, compared, skipped)
