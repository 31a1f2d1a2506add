"""The least cost of eliminating all intermediate vertices of a graph of local partials, over all orders.

The graph after some vertices have been eliminated does not depend on their order: an edge from u to w stands for all
paths through these vertices, and its kind is that of the only path, or varying. So the search goes over sets of
vertices and not over orders.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

# More intermediate vertices than these have too many sets.
LARGEST = 14

# Of each vertex the vertices that it has edges to, as bits: all of them, those of edges of 1 or -1, those of constants.
_Edges = tuple[tuple[int, int, int], ...]


def least_cost(preds: Mapping[int, Mapping[int, str]], sources: Set[int], sinks: Set[int]) -> int | None:
    """The least number of multiplications and additions; None if more than `LARGEST` vertices are to be eliminated.

    `preds` has for each vertex the vertices that it depends on, each with the kind of its edge: "unit" (1 or -1),
    "constant" or "varying". No edge leads into a source or out of a sink. A product of two edges is free if one of them
    is a unit or both are constants, and else takes a multiplication; a sum of two edges takes an addition. A product of
    constants is a constant, and a sum is varying. Vertices that no source reaches, or that reach no sink, cost nothing.

    Examples
    --------
    The derivative of a chain of three steps, the middle one of which multiplies by a constant.

    >>> least_cost({1: {0: "varying"}, 2: {1: "constant"}, 3: {2: "varying"}}, {0}, {3})
    2
    """
    used = _reached(preds, sources, sinks)
    inner = sorted(used - sources - sinks)
    if len(inner) > LARGEST:
        return None
    edges = _as_bits(preds, [*inner, *sorted(used & sources), *sorted(used & sinks)])
    # The graph and the least cost for each set of eliminated vertices; all sets have as many vertices.
    states: dict[int, tuple[_Edges, int]] = {0: (edges, 0)}
    for _ in inner:
        larger: dict[int, tuple[_Edges, int]] = {}
        for gone, (graph, cost) in states.items():
            for at in range(len(inner)):
                if not gone >> at & 1:
                    total = cost + _cost(graph, at)
                    known = larger.get(gone | 1 << at)
                    if known is None:
                        larger[gone | 1 << at] = _eliminated(graph, at), total
                    elif total < known[1]:
                        larger[gone | 1 << at] = known[0], total
        states = larger
    ((_, least),) = states.values()
    return least


def _reached(preds: Mapping[int, Mapping[int, str]], sources: Set[int], sinks: Set[int]) -> set[int]:
    """The vertices on the paths from sources to sinks."""
    succs: dict[int, list[int]] = {}
    for vertex, into in preds.items():
        if into and vertex in sources:
            raise ValueError(f"an edge leads into source {vertex}")
        for before in into:
            if before in sinks:
                raise ValueError(f"an edge leads out of sink {before}")
            succs.setdefault(before, []).append(vertex)
    ends = []
    for pending, step in ((list(sources), succs), (list(sinks), preds)):
        found = set(pending)
        while pending:
            new = set(step.get(pending.pop(), ())) - found
            found |= new
            pending += new
        ends.append(found)
    return ends[0] & ends[1]


def _as_bits(preds: Mapping[int, Mapping[int, str]], order: list[int]) -> _Edges:
    """The edges between some vertices, which are numbered in this order."""
    number = {vertex: at for at, vertex in enumerate(order)}
    edges = [[0, 0, 0] for _ in order]
    for vertex in order:
        for before, kind in preds.get(vertex, {}).items():
            if before in number:
                for which in (0, {"unit": 1, "constant": 2, "varying": 0}[kind]):
                    edges[number[before]][which] |= 1 << number[vertex]
    return tuple((every, unit, constant) for every, unit, constant in edges)


def _cost(graph: _Edges, at: int) -> int:
    """The operations to eliminate a vertex."""
    every, unit, constant = graph[at]
    total = 0
    for before, unit_before, constant_before in graph:
        if before >> at & 1:
            free = every if unit_before >> at & 1 else unit | constant if constant_before >> at & 1 else unit
            total += (every & ~free).bit_count() + (every & before).bit_count()
    return total


def _eliminated(graph: _Edges, at: int) -> _Edges:
    """The graph without a vertex."""
    every, unit, constant = graph[at]
    rest = []
    for before, unit_before, constant_before in graph:
        if before >> at & 1:
            # Units and constants among the products; where an edge was, there is a sum.
            units, constants = 0, 0
            if unit_before >> at & 1:
                units, constants = unit, constant
            elif constant_before >> at & 1:
                constants = unit | constant
            single = ~(before & every | 1 << at)
            units, constants = (unit_before | units) & single, (constant_before | constants) & single
            rest.append(((before | every) & ~(1 << at), units, constants))
        else:
            rest.append((before, unit_before, constant_before))
    rest[at] = 0, 0, 0
    return tuple(rest)
