"""The HM-LSTM cell update as a user would write it, its reference in float64 NumPy, and versions to compare it with.

The update is Eq. 6 of Revels, Besard, Churavy, De Sutter and Vielma, "Dynamic Automatic Differentiation of GPU
Broadcast Kernels" (2018). The reference shares no formula with the derivative rules.
"""

from __future__ import annotations

from math import tanh
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualbcast.special import sigmoid

__all__ = ["cell_update", "cell_update_by_hand", "cell_update_by_masks", "cell_update_reference"]

Array = NDArray[np.float64]


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
