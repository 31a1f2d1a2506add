"""The two scalar functions that the commands run, as a user would write them, and their references in float64 NumPy.

Both are from Revels, Besard, Churavy, De Sutter and Vielma, "Dynamic Automatic Differentiation of GPU Broadcast
Kernels" (2018): the arity experiment, and the HM-LSTM cell update (Eq. 6). The references share no formula with the
derivative rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import tanh
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualbcast.special import sigmoid

__all__ = [
    "cell_update",
    "cell_update_by_hand",
    "cell_update_by_masks",
    "cell_update_reference",
    "product",
    "product_reference",
    "reflect",
]

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


def cell_update(c: float, f: float, i: float, g: float, z: float, zb: float) -> float:
    """The new cell state from the old one, the gates, and the boundaries of this layer and of the one below."""
    if z == 1:  # FLUSH
        state = sigmoid(i) * tanh(g)
    elif zb == 0:  # COPY
        state = c
    else:  # UPDATE
        state = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return state


def cell_update_by_masks(c: float, f: float, i: float, g: float, z: float, zb: float) -> float:
    """The same for z and zb that are 0 or 1, with products for `if`, as without branches: everything is read."""
    copy = (1.0 - z) * (1.0 - zb)
    kept = copy + ((1.0 - z) * zb) * sigmoid(f)
    return kept * c + (1.0 - copy) * (sigmoid(i) * tanh(g))


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


def cell_update_reference(c: Array, f: Array, i: Array, g: Array, z: Array, zb: Array) -> tuple[Array, list[Array]]:
    """The cell update and its partials in (c, f, i, g), case by case.

    With s(x) = (1 + tanh(x/2)) / 2 for the logistic function, s'(x) = 1 / (4 cosh(x/2)²), and tanh'(x) = 1 / cosh(x)².

    Parameters
    ----------
    c, f, i, g, z, zb : float64 arrays of one shape

    Returns
    -------
    value : float64 array
    partials : list of four float64 arrays
    """
    flush = z == 1
    copy = ~flush & (zb == 0)
    update = ~flush & ~copy
    gated = flush | update
    value, (dc, df, di, dg) = np.zeros_like(c), (np.zeros_like(c) for _ in range(4))
    value[copy], dc[copy] = c[copy], 1.0
    value[gated] = _logistic(i[gated]) * np.tanh(g[gated])
    di[gated] = np.tanh(g[gated]) / (4 * np.cosh(i[gated] / 2) ** 2)
    dg[gated] = _logistic(i[gated]) / np.cosh(g[gated]) ** 2
    value[update] += _logistic(f[update]) * c[update]
    dc[update] = _logistic(f[update])
    df[update] = c[update] / (4 * np.cosh(f[update] / 2) ** 2)
    return value, [dc, df, di, dg]


def _logistic(x: Array) -> Array:
    return np.asarray((1 + np.tanh(x / 2)) / 2)


def cell_update_by_hand(xp: Any, c: Any, f: Any, i: Any, g: Any, z: Any, zb: Any) -> tuple[Any, list[Any]]:
    """The cell update and its partials in (c, f, i, g) as one writes them in NumPy: whole arrays, `where` for `if`.

    Parameters
    ----------
    xp : module
        `numpy`, or `cupy` for arrays on a GPU.
    c, f, i, g, z, zb : arrays that broadcast together

    Returns
    -------
    value : array
    partials : list of four arrays
    """
    flush, copy = z == 1, zb == 0
    sf, si, t = 1 / (1 + xp.exp(-f)), 1 / (1 + xp.exp(-i)), xp.tanh(g)
    kept = xp.where(flush, 0, xp.where(copy, 1, sf))
    gated = xp.where(~flush & copy, 0, si)
    value = kept * c + gated * t
    in_f = xp.where(flush | copy, 0, sf * (1 - sf) * c)
    return value, [kept, in_f, gated * (1 - si) * t, gated * (1 - t * t)]
