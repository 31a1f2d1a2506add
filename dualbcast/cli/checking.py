"""The function of the paper's arity experiment, its reference, and the checks of results before they are timed.

Results are compared with a reference in float64, in units in the last place, or with finite differences. The reference
shares no formula with the derivative rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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


def product_reference(xs: Sequence[Array]) -> tuple[Array, Array, Array]:
    """The product, its partials, and for each partial the size of the product of the other factors.

    With t = tanh(g(x)) and s = sign of g's slope, the j-th partial is s_j / cosh(x_j)² ∏_{k≠j} t_k. The last result has
    |∏_{k≠j} t_k|: the scale on which an error of the j-th partial is judged.
    """
    points = np.asarray(xs)
    signs = np.where(points > 0.5, 1.0, -1.0)
    factors, ones = np.tanh(signs * points), np.ones_like(points[:1])
    before = np.concatenate([ones, factors]).cumprod(axis=0)
    after = np.concatenate([ones, factors[:0:-1]]).cumprod(axis=0)[::-1]
    others = before[:-1] * after
    return before[-1], signs / np.cosh(points) ** 2 * others, np.abs(others)


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


def judge(
    name: str, result: NDArray[Any], reference: NDArray[np.float64], scale: NDArray[np.float64], tolerance: float
) -> float:
    """The largest |result - reference| in ulps: in units of eps · scale, eps that of the result's dtype.

    Raises CheckError if it exceeds the tolerance.
    """
    info = _finfo(result.dtype)
    unit = float(info.eps) * scale + float(info.smallest_subnormal)
    error = float(np.max(np.abs(result.astype(np.float64) - reference) / unit))
    if not error <= tolerance:  # written so that NaN fails
        raise CheckError(f"Wrong result: {name} is off by {error:.3g} ulp of its scale, more than {tolerance:.3g}.")
    return error


def check_product(device: Device, xs: Sequence[Any], value: Any, jacobian: Any) -> tuple[float, float]:
    """Check ∏ tanh(g(x)) and its partials over all elements.

    The scale of the value is its own size, that of a partial the product of the *other* factors, since 1 - t² is
    computed with an absolute error. A tanh is good to 4 ulp and a product to half a one, and 1 - t² to 9 ulp of 1, so
    N factors are held to 5 (N + 1) ulp; twice that in float64, the reference's own precision. float16 and bfloat16
    results are computed in float32 and rounded once: one ulp is added to the float32 bound in their units.

    Returns the largest error and its bound, in ulps of the result's dtype; raises CheckError if the bound is exceeded.
    """
    tolerance = 5.0 * (len(xs) + 1)
    if value.dtype == np.float64:
        tolerance *= 2
    elif value.dtype != np.float32:
        tolerance = 1 + tolerance * float(np.finfo(np.float32).eps) / float(_finfo(value.dtype).eps)
    worst = 0.0
    for rows in row_blocks(value.shape):
        exact, partials, others = product_reference([device.host(x[rows]).astype(np.float64) for x in xs])
        judged = [("the value", value, exact, np.abs(exact))]
        for j, (partial, other) in enumerate(zip(partials, others, strict=True)):
            judged.append((f"the partial in argument {j}", jacobian[j], partial, other))
        for name, result, reference, scale in judged:
            error = judge(f"{name} (arity {len(xs)})", device.host(result[rows]), reference, scale, tolerance)
            worst = max(worst, error)
    return worst, tolerance


def check_by_differences(
    exact: Callable[..., Any], device: Device, xs: Sequence[Any], value: Any, jacobian: Any, elements: int = 32
) -> dict[str, Any]:
    """Check any function's value and partials on a few elements against float64 values and central differences.

    The values are those of `exact`: the same function, computing in float64 on NumPy arrays by an independent backend.
    Numbers are compared relative to the largest reference of their kind on those elements. They are skipped where a
    reference is not finite, and where the differences do not converge: at a kink or a jump. Returns the largest
    relative error, None if no number could be compared, and how many were compared and skipped. Raises CheckError if
    the error exceeds 1e-3 plus two ulp of the dtype.
    """
    values = value if isinstance(value, tuple) else (value,)
    tolerance = 1e-3 + 2 * float(_finfo(xs[0].dtype).eps)
    generator = np.random.default_rng(7)
    places = tuple(device.xp.asarray(generator.integers(0, size, elements)) for size in values[0].shape)

    def picked(array: Any) -> NDArray[np.float64]:
        return device.host(array[places]).astype(np.float64)

    def outputs(position: int, moved: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        result = exact(*points[:position], moved, *points[position + 1 :])
        return [np.asarray(y) for y in (result if isinstance(result, tuple) else (result,))]

    points = [picked(x) for x in xs]
    judged = [(f"output {i}", picked(values[i]), exactly) for i, exactly in enumerate(outputs(0, points[0]))]
    usable = [np.isfinite(exactly) for _, _, exactly in judged]
    for j, x in enumerate(points):
        for i, (slope, _, converges) in enumerate(slopes(outputs, j, x)):
            entry = jacobian[i, j] if len(values) > 1 else jacobian[j]
            judged.append((f"the partial of output {i} in argument {j}", picked(entry), slope))
            usable.append(converges & np.isfinite(slope))
    worst = 0.0
    for (name, result, reference), which in zip(judged, usable, strict=True):
        scale = np.max(np.abs(reference[which]), initial=float(np.finfo(np.float32).tiny))
        error = float(np.max(np.abs(result[which] - reference[which]), initial=0.0) / scale)
        if not error <= tolerance:
            raise CheckError(f"Wrong result: {name} differs by {error:.3g} (relative), more than {tolerance:.3g}.")
        worst = max(worst, error)
    compared = int(np.count_nonzero(usable))
    return {
        "error_relative": worst if compared else None,
        "compared": compared,
        "skipped": elements * len(judged) - compared,
    }
