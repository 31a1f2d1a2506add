"""Settings of a thread for a while: whether operations are recorded, fused, and keep their Jacobians.

Comes in: a choice. Goes out: a context manager, which is a decorator, too.
"""

from __future__ import annotations

from typing import Literal

from dualbcast.errors import ArgumentError
from dualbcast.graph.tape import setting

__all__ = ["fusion", "jacobian", "no_grad"]


def no_grad() -> setting:
    """Record nothing for a while: `with no_grad(): …`, or as a decorator `@no_grad()`.

    Everything computed meanwhile is a constant for derivatives taken later. Transformations applied inside work as
    ever.

    Examples
    --------
    >>> from dualbcast import graph
    >>> v = graph.Variable(2.0)
    >>> with graph.no_grad():
    ...     square = v * v
    >>> square.tracked
    False
    """
    return setting(is_recording=False)


def fusion(on: bool) -> setting:
    """Say, for a while and on this thread, whether element-wise operations wait for one another to become one kernel.

    Without fusion each operation is computed where it is written, by a kernel of its own. The results are the same but
    for roundings (a kernel computes float16 in float32 and rounds when it stores).

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> x = graph.Variable(np.linspace(0.0, 1.0, 2000))
    >>> with graph.fusion(False), graph.launches() as kernels:
    ...     y = np.sin(x) * x + 1
    >>> [kernel.label for kernel in kernels]
    ['sin', 'multiply', 'add']
    """
    return setting(is_fusing=bool(on))


def jacobian(mode: Literal["auto", "cache", "recompute"]) -> setting:
    """Say, for a while and on this thread, whether recorded kernels keep their Jacobians.

    Parameters
    ----------
    mode : {"auto", "cache", "recompute"}
        "cache": the forward pass computes values and derivatives in one launch and keeps both; the backward pass
        multiplies. "recompute": the forward pass computes the values alone; the backward pass computes the derivatives
        and contracts them in registers. "auto" takes the way that is expected to be faster. The results are the same
        but for roundings.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> x = graph.Variable(np.linspace(0.0, 1.0, 2000))
    >>> with graph.jacobian("cache"), graph.launches() as kernels:
    ...     gradient = graph.vjp(lambda x: np.sin(x) * x, x.value)[1](x.value)
    >>> [kernel.product for kernel in kernels]
    ['value_and_jacobian', 'value']
    """
    if mode not in ("auto", "cache", "recompute"):
        raise ArgumentError(f"jacobian={mode!r} is no policy; choose auto, cache or recompute")
    return setting(jacobian=mode)
