"""The log of the kernels that the graph launches.

Comes in: a note of each kernel. Goes out: a list of them, for those who listen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dualbcast.graph.tape import STATE, setting

__all__ = ["Launch", "launched", "launches"]


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
