"""The `print`, `assert` and `raise` statements of a function, for the elements that come to one.

The arguments of a call come in. A kernel finds the elements that print, or fail an assertion. These are evaluated step
by step in their order: their texts go to standard output, or an error goes out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualbcast.errors import FailedAssertion, RaisedError, also_of
from dualbcast.ir import nodes as ir
from dualbcast.program import pipeline
from dualbcast.program.element import Element, plain_errors
from dualbcast.program.evaluation import Evaluation, arguments_at, on_host, shown_arguments
from dualbcast.program.products import Options
from dualbcast.program.tracing import text_of
from dualbcast.runtime.arguments import beside, classify


class DebugStatements:
    """Those statements of a function with notes; the other parameters are as for an `Element`."""

    def __init__(self, function: ir.Function, names: tuple[str, ...], label: str, options: Options) -> None:
        self.function, self.names = function, names
        with plain_errors(function):
            flagged = pipeline.run(pipeline.speaking(), function)
        self._speaking = Element(flagged, names, label, options._replace(check=None))

    def run(self, values: tuple[Any, ...], masked: Any = None) -> None:
        """Run the statements for the arguments of a call, but not for the elements that are `masked`.

        Raises
        ------
        FailedAssertion, RaisedError
            An assertion does not hold, or a `raise` is reached. What the elements before it print has been printed.
        """
        # A byte for each element: its sum in the kernel would take 20 µs more for small arrays.
        (flags,) = self._speaking.parts(values)
        if masked is not None:
            flags = flags & ~masked
        if not flags.any():
            return
        operands = classify(values, self.names)
        dtype = operands.signature.compute
        speaking = _Speaking(dtype)
        try:
            with beside(values):
                for place in np.argwhere(on_host(flags)):
                    index = tuple(map(int, place))
                    given = arguments_at(self.function, operands.arrays, index, dtype)
                    speaking.element = index, shown_arguments(self.names, given)
                    speaking.run(self.function, given)
        finally:
            print("".join(speaking.texts), end="")


class _Speaking(Evaluation[None]):
    """An evaluation that collects what is printed; `element` is the index and the arguments of the present one."""

    def __init__(self, dtype: str) -> None:
        super().__init__(dtype)
        self.texts: list[str] = []
        self.element: tuple[tuple[int, ...], dict[str, Any]] = (), {}

    def noted(self, note: ir.Note) -> None:
        if note.what == "print":
            self.texts.append(text_of(note, list(map(self.number, note.values))))
        elif note.what == "raise":
            raised = also_of(RaisedError, note.kind or Exception)
            raise raised(text_of(note, list(map(self.number, note.values))), note.location, *self.element)
        elif note.what == "assert" and not self.number(note.values[0]):
            text = text_of(note, list(map(self.number, note.values)))
            raise FailedAssertion(text, note.location, *self.element)
