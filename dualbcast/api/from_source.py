"""`from_source`: the decorator for a string of Python source, where no file or notebook keeps a function's text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from dualbcast.api.function import BroadcastFunction, DecoratorOptions, differentiable_broadcast
from dualbcast.errors import entry_point
from dualbcast.frontend.source_text import SourceText


@entry_point
def from_source(
    source: str,
    name: str | None = None,
    *,
    namespace: Mapping[str, Any] | None = None,
    **options: Unpack[DecoratorOptions],
) -> BroadcastFunction:
    """Make a function in a string of Python source broadcast over arrays, with exact derivatives.

    It is for functions whose text Python does not keep: at the prompt before Python 3.13, in a program on standard
    input, in text for `exec`.

    Parameters
    ----------
    source : str
        The text. It may define several functions that call one another, import modules, and be indented; or it is one
        lambda expression. It is run once.
    name : str, optional
        The function to take; by default the last one.
    namespace : mapping of str to object, optional
        Objects for names that the text does not define, such as `globals()`. Only those that the text uses are kept.
        If a name is given another object later, the function does not see it. An array is read at each call.
    **options
        As for `differentiable_broadcast`: `wrt`, `static`, `whole`, `fastmath`, `backend`, `jacobian`,
        `max_iterations`, `check`, `debug` and `signature`.

    Returns
    -------
    BroadcastFunction
        It can be pickled, together with its text and the objects of `namespace` that it uses.

    Raises
    ------
    CompileError
        The text is no Python. The error shows the line with a caret.
    ArgumentError
        The text does not define the function.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import differentiable_broadcast
    >>> f = differentiable_broadcast.from_source('''
    ... import math
    ... def damped(x, rate):
    ...     return math.exp(-rate * x) if x > 0 else 1.0
    ... ''')
    >>> value, J = f.value_and_jacobian(np.array([-1.0, 2.0]), 0.5)
    >>> value.round(4), J["x"].round(4)
    (array([1.    , 0.3679]), array([ 0.    , -0.1839]))
    >>> scaled = differentiable_broadcast.from_source("lambda x: x * SCALE", namespace={"SCALE": 3.0})
    >>> scaled(np.array([1.0, 2.0]))
    array([3., 6.])
    """
    return differentiable_broadcast(SourceText(source, namespace).function(name), **options)


differentiable_broadcast.from_source = from_source  # type: ignore[method-assign]
