"""Settings of a thread for a while, and the log of the kernels that the graph launches.

Comes in: a choice. Goes out: a context manager, which is a decorator, too.

Comes in: a note of each kernel. Goes out: a list of them, for those who listen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from dualbcast.errors import ArgumentError
from dualbcast.graph.tape import STATE, setting


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


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel that has run.

    Attributes
    ----------
    label : str
        The functions in it.
    product : str
        "value", or "value_and_jacobian" where the Jacobian is kept.
    shape : tuple of int
        The shape that its arguments broadcast to.
    reads, writes : int
        How many arrays it takes and gives.
    """

    label: str
    product: str
    shape: tuple[int, ...]
    reads: int
    writes: int


@contextmanager
def launches() -> Iterator[list[Launch]]:
    """Note the element-wise kernels that the graph launches, on this thread, while this lasts.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> v = graph.Variable(np.linspace(0.0, 1.0, 5000))
    >>> with graph.launches() as kernels:
    ...     total = np.sum(np.tanh(v) * v + 1)
    >>> len(kernels)
    1
    """
    noted: list[Launch] = []
    with setting(launches=(*STATE.launches, noted)):
        yield noted


def launched(label: str, product: str, shape: tuple[int, ...], reads: int, writes: int) -> None:
    """Note a kernel."""
    for noted in STATE.launches:
        noted.append(Launch(label, product, shape, reads, writes))
