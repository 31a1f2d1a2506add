"""Where differentiation ends because the user says so: `no_grad` and `stop_gradient`."""

from __future__ import annotations

from contextlib import ContextDecorator
from types import TracebackType
from typing import Any

import numpy as np

from dualbcast.graph.foreign import has_own_arithmetic, refused_argument
from dualbcast.graph.tape import STATE
from dualbcast.graph.trees import map_leaves
from dualbcast.graph.variable import Variable

__all__ = ["no_grad", "stop_gradient"]


class no_grad(ContextDecorator):  # noqa: N801
    """Record nothing for a while: `with no_grad(): …`, or as a decorator `@no_grad()`.

    What is computed meanwhile is a constant for derivatives taken later. Transformations applied inside work as ever.

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


def stop_gradient(x: Any) -> Any:
    """The value of a Variable, or of those in a container, as a constant.

    Examples
    --------
    >>> from dualbcast import graph
    >>> graph.grad(lambda x: x * graph.stop_gradient(x))(3.0)
    np.float64(3.0)
    """

    def stopped(path: str, leaf: Any) -> Any:
        if isinstance(leaf, Variable):
            return Variable(leaf, tracked=False)
        if has_own_arithmetic(leaf) or (isinstance(leaf, np.ndarray) and leaf.dtype.hasobject):
            # Variables inside would go on carrying derivatives.
            raise refused_argument(leaf, path)
        return leaf

    return map_leaves(stopped, x, "x")
