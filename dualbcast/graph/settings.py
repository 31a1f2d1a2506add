"""What a user sets for a while, on one thread: whether operations are recorded, fused, and keep their Jacobians."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ContextDecorator, contextmanager
from types import TracebackType
from typing import Literal

from dualbcast.errors import ArgumentError
from dualbcast.graph.tape import STATE

__all__ = ["fusion", "jacobian", "no_grad"]

Mode = Literal["auto", "cache", "recompute"]


class no_grad(ContextDecorator):  # noqa: N801
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

    def __init__(self) -> None:
        self._before: list[bool] = []

    def _recreate_cm(self) -> no_grad:
        return no_grad()

    def __enter__(self) -> no_grad:
        self._before.append(STATE.is_recording)
        STATE.is_recording = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        STATE.is_recording = self._before.pop()


@contextmanager
def fusion(on: bool) -> Iterator[None]:
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
    before, STATE.is_fusing = STATE.is_fusing, bool(on)
    try:
        yield
    finally:
        STATE.is_fusing = before


@contextmanager
def jacobian(mode: Mode) -> Iterator[None]:
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
    before, STATE.jacobian = STATE.jacobian, mode
    try:
        yield
    finally:
        STATE.jacobian = before
