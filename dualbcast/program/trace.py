"""The table that `trace` returns: the steps of a scalar function for one element, as rows and as text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dualbcast.tracebacks import place_of

# The widest source text in the table.
_WIDEST = 60


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One step of a scalar function.

    Attributes
    ----------
    what : str
        The kind of step: "argument", where a parameter gets its value, "assign", "test", "return", "print",
        "assert" or "raise".
    name : str
        The name that is assigned, as `p.x` or `t[0]` where it is part of a tuple or a record; else the keyword.
    value : object
        The number, in the dtype that kernels compute in; the text of a `print`.
    partials : dict
        The partial derivatives of a float in the arguments of `wrt`, by name; empty for other values.
    function : str
        The function whose step it is.
    depth : int
        How many calls that function is inside the one that is traced.
    filename : str
        The file.
    line : int
        The line, which counts from 1.
    source : str
        The text of the line, without the space around it.
    """

    what: str
    name: str
    value: Any
    partials: dict[str, Any]
    function: str
    depth: int
    filename: str
    line: int
    source: str


@dataclass(frozen=True)
class Trace:
    """What a scalar function does for one element, step by step. `trace` makes it, and `str` gives a table of it.

    Attributes
    ----------
    rows : tuple of TraceRow
        The steps in the order in which they happen: loops by iteration, only the branches that are taken, and the
        steps of functions that are called before the statement that calls them.
    left_out : int
        The number of steps in the middle that are not among the rows, because there were more than `limit`.
    label : str
        The name of the function.
    dtype : str
        The dtype that kernels compute in.
    arguments : dict
        The arguments of the element, by name.
    wrt : tuple of str
        The arguments that it is differentiated in.
    value : object
        What the function returns: a number, or a structure of numbers.
    """

    label: str
    dtype: str
    arguments: dict[str, Any]
    wrt: tuple[str, ...]
    rows: tuple[TraceRow, ...]
    value: Any
    left_out: int = 0
    _first: int = field(default=0, repr=False)

    def _title(self) -> str:
        given = ", ".join(f"{name}={shown(value)}" for name, value in self.arguments.items())
        return f"{self.label}({given}), computed in {self.dtype}"

    def _note(self) -> str:
        return f"… {self.left_out:,} steps left out; limit= shows more" if self.left_out else ""

    def _heads(self) -> list[str]:
        return ["line", "source", "name", "value", *[f"∂/∂{name}" for name in self.wrt]]

    def _cells(self) -> list[list[str]]:
        """The rows as text."""
        main, cells = self.rows[0].filename if self.rows else "", []
        last, names = ("", 0, 0), set[str]()
        for row in self.rows:
            place = str(row.line) if row.filename == main else place_of(row.filename, row.line)
            at = row.filename, row.line, row.depth
            # A line with several values shows its text once, and again when it runs again.
            is_shown = at == last and row.name not in names
            last, names = at, {row.name, *(names if is_shown else ())}
            text = "" if is_shown else "    " * row.depth + _cut(row.source)
            partials = [shown(row.partials[name]) if row.partials else "" for name in self.wrt]
            cells.append([place, text, row.name, _cut(shown(row.value)), *partials])
        return cells

    def __str__(self) -> str:
        table = [self._heads(), *self._cells()]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = []
        for place, *cells in table:
            padded = [place.rjust(widths[0]), *map(str.ljust, cells, widths[1:])]
            lines.append("  ".join(padded).rstrip())
        if self.left_out:
            lines.insert(1 + self._first, " " * widths[0] + "  " + self._note())
        return "\n".join([self._title(), *lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from dualbcast.program.html_tables import trace_table  # which only notebooks need

        return trace_table(self._title(), self._heads(), self._cells(), self._first, self._note())


def shown(value: Any) -> str:
    """A number in a table, with nine digits."""
    if isinstance(value, str):
        return value
    return format(float(value), ".9g") if getattr(value, "dtype", None) in ("float32", "float64") else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
