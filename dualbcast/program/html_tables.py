"""The small HTML tables that notebooks show for the derivatives of a call, for its explanation, and for a trace.

They have no colours of their own, so that they suit light and dark notebooks, and no elements of arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import islice, product
from typing import Any

# The most rows and columns of blocks that are shown.
_ROWS, _COLUMNS = 24, 12


def derivatives_table(blocks: Any) -> str:
    """The blocks of a Jacobian or Hessian, an `Index`: which are zero, or another number, and which are arrays.

    There is a row for each output, in a Hessian for each output and argument, and a column for each argument. Arrays
    are numbered in the order in which the kernel stores them. Blocks that are equal may share one.
    """
    results, stored, order, count = blocks._results, blocks._stored, blocks._order, len(blocks.wrt)
    names, labels = [f"∂/∂{name}" for name in blocks.wrt], [label or "out" for label in blocks.labels]
    rows = []
    for output, *first in islice(product(range(blocks.outputs), *[range(count)] * (order - 1)), _ROWS):
        cells = []
        for last in range(min(count, _COLUMNS)):
            # A block is for its arguments in the order of `wrt`.
            place = [results.positions[at] for at in sorted([*first, last])]
            which, number = results.blocks[output, *place]
            constant = "0" if number == 0 else repr(number)
            cells.append(constant if which is None else f"array {which - results.begins[order]}")
        rows.append(([labels[output], *[names[at] for at in first]], cells))
    dtype = stored[0].dtype if stored else results.signature.result_dtype
    size = sum(array.nbytes for array in stored)
    notes = [f"{len(stored)} array{'s' * (len(stored) != 1)} stored, {size:,} bytes"]
    left_out = blocks.outputs * count ** (order - 1) - _ROWS, count - _COLUMNS
    notes += [f"{more} {kind} more" for more, kind in zip(left_out, ("rows", "columns"), strict=True) if more > 0]
    title = f"{type(blocks).__name__}: blocks of shape {blocks.shape}, {dtype}"
    return _table(title, ["output", *[""] * (order - 1), *names[:_COLUMNS]], rows, notes)


def explanation_table(
    title: str,
    rows: Sequence[tuple[str, str]],
    passes: Sequence[tuple[str, str]],
    lines: tuple[Sequence[str], Sequence[Sequence[str]]] | None = None,
) -> str:
    """The labels and texts of an explanation as rows; a table with the heads and cells of `lines`, if there are some;
    and the IR after each pass, which can be unfolded."""
    unfolded = [
        f"<details><summary>{escape(name)}{'' if text else ': no change'}</summary><pre>{escape(text)}</pre></details>"
        for name, text in passes
    ]
    table = _table(title, [], [([label], [text]) for label, text in rows])
    by_line = "" if lines is None else _table("by line", lines[0], [([], cells) for cells in lines[1]])
    return "".join([table, by_line, *unfolded])


def trace_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], first: int, note: str) -> str:
    """The steps of a trace, a row for each; the note, if there is one, comes after the `first` of them."""
    lines = [([place], cells) for place, *cells in rows]
    if note:
        lines.insert(first, ([""], [note]))
    return _table(title, heads, lines)


def _table(
    title: str, heads: Sequence[str], rows: Sequence[tuple[Sequence[str], Sequence[str]]], notes: Sequence[str] = ()
) -> str:
    """A table under its title, whose rows are head cells and then others; `notes` stand below it."""
    lines = [f"<div>{escape(title)}</div>", "<table>"]
    if heads:
        lines.append(f"<thead><tr>{''.join([_cell('th', head) for head in heads])}</tr></thead>")
    lines.append("<tbody>")
    for head, cells in rows:
        row = [*[_cell("th", text) for text in head], *[_cell("td", text) for text in cells]]
        lines.append(f"<tr>{''.join(row)}</tr>")
    lines += ["</tbody></table>", *[f"<div><small>{escape(note)}</small></div>" for note in notes]]
    return "\n".join(lines)


def _cell(tag: str, text: str) -> str:
    style = "; opacity: 0.5" if tag == "td" and text == "0" else "; white-space: pre" if text[:1] == " " else ""
    return f'<{tag} style="text-align: left{style}">{escape(text)}</{tag}>'
