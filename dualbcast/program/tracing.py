"""The steps of a scalar function for one element, with the value and the partial derivatives of each.

A function in IR with notes and an element's arguments come in, and a `Trace` goes out. Derivatives are those of dual
numbers, with the local partials of the same rules that kernels are made of.
"""

from __future__ import annotations

import linecache
import string
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from dualbcast.autodiff.activity import is_zero, partials_at
from dualbcast.errors import Location
from dualbcast.ir import nodes as ir
from dualbcast.program.evaluation import Evaluation, converted, shown_arguments
from dualbcast.program.trace import Trace, TraceRow
from dualbcast.tracebacks import PACKAGE

# The partials of a number by the position of the parameter; one that is zero along the path taken is missing.
Partials = dict[int, Any]


def trace_of(
    function: ir.Function,
    names: Sequence[str],
    label: str,
    wrt: Sequence[int],
    given: Sequence[tuple[Any, None]],
    dtype: str,
    limit: int,
) -> Trace:
    """The trace of a function with notes for the arguments of an element, with the partials in the parameters `wrt`."""
    one = converted(1.0, "float", dtype)
    tracing = _Tracing(dtype, label, tuple(wrt), tuple(names), limit)
    outputs = tracing.run(function, [(x, {at: one} if at in wrt else None) for at, (x, _) in enumerate(given)])
    value = function.structure.pack([number for number, _ in outputs])
    rows, arguments = (*tracing.first, *tracing.last), shown_arguments(names, given)
    differentiated = tuple([names[at] for at in wrt])
    left_out = tracing.count - len(rows)
    return Trace(label, dtype, arguments, differentiated, rows, value, left_out, len(tracing.first))


class _Tracing(Evaluation[Partials]):
    """An evaluation with dual numbers, which keeps the first and the last of its steps."""

    def __init__(self, dtype: str, label: str, wrt: tuple[int, ...], names: tuple[str, ...], limit: int) -> None:
        super().__init__(dtype, label)
        self._wrt, self._names, self._most_first = wrt, names, limit - limit // 2
        self.first: list[TraceRow] = []
        self.last: deque[TraceRow] = deque(maxlen=limit // 2)
        self.count = 0
        self._zero = converted(0.0, "float", dtype)

    def found(
        self,
        op: ir.Op,
        args: Sequence[tuple[Any, Partials | None]],
        result: Any,
        where: Location,  # noqa: ARG002
    ) -> Partials | None:
        """The partials of a result by the chain rule."""
        if op.kind != "float" or not any(partials for _, partials in args):
            return None
        template, arguments, exprs = partials_at(op)
        # A template has no parameters for arguments that are known numbers.
        by_argument = {id(arg): number for arg, (number, _) in zip(op.args, args, strict=True)}
        unknown = [by_argument[id(arg)] for arg in arguments if not isinstance(arg, ir.Const)]
        local = Evaluation[None](self.dtype)
        local.run(template, [(x, None) for x in (*unknown, result)] if template.params else [])
        total: Partials = {}
        for expr, (_, partials) in zip(exprs, args, strict=True):
            if partials and not is_zero(expr):
                factor = local.number(expr)
                for at, partial in partials.items():
                    total[at] = total[at] + factor * partial if at in total else factor * partial
        return total

    def noted(self, note: ir.Note) -> None:
        """Keep the steps of a note, but not those of the library's own functions."""
        if note.location.filename.startswith(PACKAGE):
            return
        values = [self.value(value, note.location) for value in note.values]
        if note.what in ("print", "assert", "raise"):
            text = text_of(note, [number for number, _ in values])
            if note.what == "raise":
                name = note.kind.__name__ if note.kind else "error"
                self._keep(note, f"raise {name}", text, None)
                return
            value = text.rstrip("\n") if note.what == "print" else bool(values[0][0])
            name = note.what if note.what == "print" or value or not text else f"assert: {text}"
            self._keep(note, name, value, None)
            return
        for name, (number, partials) in zip(note.labels, values, strict=True):
            self._keep(note, name, number, partials)

    def _keep(self, note: ir.Note, name: str, value: Any, partials: Partials | None) -> None:
        self.count += 1
        by_name: dict[str, Any] = {}
        if getattr(value, "dtype", None) == self.dtype:
            by_name = {self._names[at]: (partials or {}).get(at, self._zero) for at in self._wrt}
        source = linecache.getline(note.location.filename, note.location.line).strip()
        place = note.location.filename, note.location.line
        row = TraceRow(note.what, name, value, by_name, note.function or self.label, note.depth, *place, source)
        (self.first if len(self.first) < self._most_first else self.last).append(row)


class _Formatter(string.Formatter):
    """Writes numbers as Python writes its own, and those of float32 with the digits that they have. A field of two
    numbers, as `{0&1}`, is a complex one."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:  # noqa: ARG002
        real, _, imag = field_name.partition("&")
        number = args[int(real)]
        if imag:
            number = np.array([number, args[int(imag)]]).view("c8" if number.dtype == "float32" else "c16")[0]
        return number, real

    def format_field(self, value: Any, format_spec: str) -> str:
        is_single = value.dtype in ("float32", "complex64")
        return str(value) if is_single and not format_spec else format(value.item(), format_spec)


def text_of(note: ir.Note, numbers: Sequence[Any]) -> str:
    """The text of a `print`, or the message of an `assert`."""
    (template,) = note.labels
    return _Formatter().format(template, *map(np.asarray, numbers))
