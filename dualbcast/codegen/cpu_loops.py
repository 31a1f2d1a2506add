"""The loops around an element function for the `python` and `cpu` targets, specialised on a layout.

The entry handles the linear indices in [start, stop) of the coalesced space, so that any split over threads is right.
Its innermost loop goes through one row, so that a compiler can vectorise it.
"""

from __future__ import annotations

from collections.abc import Sequence

from dualbcast.ir.nodes import Names
from dualbcast.kernel_spec import Layout

__all__ = ["index_names", "loops", "run_time_strides", "step"]


def index_names(layout: Layout, params: Sequence[str], names: Names) -> list[str]:
    """A name for the index of each address class: `k` for the outputs', `k_x` where only `x` and its like have it.

    A class that spans no dimension has the index `0`.
    """
    summed = layout.summed(len(params))
    whole = [which for position, which in enumerate(layout.which[len(params) :]) if position not in summed]
    main = whole[-1] if whole else layout.which[0]
    indices: list[str] = []
    for position, pattern in enumerate(layout.classes):
        if set(pattern) == {"0"}:
            indices.append("0")
        elif position == main:
            indices.append(names.fresh("k"))
        else:
            owners = [name for name, which in zip(params, layout.which, strict=False) if which == position]
            indices.append(names.fresh(f"k_{owners[0]}" if owners else f"k_{position}"))
    return indices


def loops(
    layout: Layout,
    element: str,
    entry: str,
    pointers: Sequence[str],
    indices: Sequence[str],
    names: Names,
) -> str:
    """The text of the entry: a function of start, stop, sizes, strides and pointers that calls the element function."""
    sizes = [names.fresh(f"n{dimension}") for dimension in range(layout.rank)]
    strides = run_time_strides(layout, indices, names)
    flat = [stride for by_dimension in strides for stride in by_dimension.values()]
    start, stop, inner = names.fresh("start"), names.fresh("stop"), names.fresh("j")
    head = f"def {entry}({', '.join([start, stop, *sizes, *flat, *pointers])}):"

    def row_loop(low: str, high: str, by_class: Sequence[str], indent: str) -> list[str]:
        call = f"{element}({', '.join([*filter(None, by_class), *pointers])})"
        return [f"{indent}for {inner} in range({low}, {high}):", f"{indent}    {call}"]

    if layout.rank == 1:
        arguments = [step(pattern, by.get(0), inner, "") for pattern, by in zip(layout.classes, strides, strict=True)]
        lines = [f"# Elements [{start}, {stop}).", head]
        return "\n".join([*lines, *row_loop(start, stop, arguments, "    ")])

    last = layout.rank - 1
    at, row, first, end = (names.fresh(name) for name in ("at", "row", "first", "end"))
    lines = [
        f"# Elements [{start}, {stop}) of {' by '.join(sizes)}, row by row.",
        head,
        f"    {at} = {start}",
        # One division is enough; it takes as long as a short row.
        f"    {row} = {at} // {sizes[last]}",
        f"    while {at} < {stop}:",
        f"        {first} = {at} - {row} * {sizes[last]}",
        f"        {end} = min({sizes[last]}, {first} + {stop} - {at})",
    ]
    # The row's place in the outer dimensions, and from it where each class starts.
    places: dict[int, str] = {0: row}
    remaining = row
    for dimension in range(last - 1, 0, -1):
        quotient = names.fresh("row")
        place = names.fresh(f"i{dimension}")
        lines.append(f"        {quotient} = {remaining} // {sizes[dimension]}")
        lines.append(f"        {place} = {remaining} - {quotient} * {sizes[dimension]}")
        places[dimension], remaining = place, quotient
    places[0] = remaining
    arguments = []
    for pattern, by, index in zip(layout.classes, strides, indices, strict=True):
        if index == "0":
            arguments.append("")
            continue
        terms = [f"{places[dimension]} * {stride}" for dimension, stride in by.items() if dimension != last]
        base = ""
        if terms:
            base = names.fresh(f"{index}_row")
            lines.append(f"        {base} = {' + '.join(terms)}")
        arguments.append(step(pattern[last], by.get(last), inner, base))
    lines += row_loop(first, end, arguments, "        ")
    lines += [f"        {at} += {end} - {first}", f"        {row} += 1"]
    return "\n".join(lines)


def run_time_strides(layout: Layout, indices: Sequence[str], names: Names) -> list[dict[int, str]]:
    """The names of the run-time strides of each class, by dimension."""
    return [
        {dimension: names.fresh(f"{index}_s{dimension}") for dimension, kind in enumerate(pattern) if kind == "s"}
        for pattern, index in zip(layout.classes, indices, strict=True)
    ]


def step(kind: str, stride: str | None, inner: str, base: str) -> str:
    """The index of a class in the innermost loop; empty for a class that spans nothing."""
    stepped = {"1": inner, "s": f"{inner} * {stride}", "0": ""}[kind]
    return " + ".join(part for part in (base, stepped) if part)
