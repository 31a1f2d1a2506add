"""The function of the paper's arity experiment, as a user would write it, and its reference in float64 NumPy.

The reference shares no formula with the derivative rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import tanh

import numpy as np
from numpy.typing import NDArray

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

    With t = tanh(g(x)) and s = sign of g's slope, the j-th partial is s_j / cosh(x_j)² ∏_{k≠j} t_k.

    Parameters
    ----------
    xs : sequence of float64 arrays of one shape

    Returns
    -------
    value : float64 array
    partials, others : lists of float64 arrays, one an argument
        `others[j]` is |∏_{k≠j} t_k|: the scale on which an error of the j-th partial is judged.
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
