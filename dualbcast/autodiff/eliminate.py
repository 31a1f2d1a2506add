"""The order in which the intermediate vertices of a graph of local partials are eliminated: of forward, reverse and
Markowitz orders, the one that takes the fewest operations.

A graph is given by the edges into each vertex, whose order is that of computation. Eliminating a vertex replaces the
ways through it by edges: a product for each way, and a sum where there is an edge already.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Set
from enum import IntEnum
from typing import NamedTuple


class Kind(IntEnum):
    """What is known of a partial: a product with 1 or -1 is free, and so is one of two constants."""

    UNIT = 0
    CONSTANT = 1
    VARYING = 2


# For each vertex, the vertices that it depends on, and the kinds of the partials.
Graph = Mapping[int, Mapping[int, Kind]]


class Plan(NamedTuple):
    """The order that was chosen, its name, and what each order costs: multiplications and additions."""

    order: tuple[int, ...]
    name: str
    costs: dict[str, int]


def cheapest_order(edges: Graph, ends: Set[int], *, forward: bool = False) -> Plan:
    """The cheapest order to eliminate all vertices with edges into them that are not in `ends`.

    `edges` has the vertices in the order of computation; those without an entry are the sources of the graph. Each
    order is tried on all vertices; with those that depend on several sources directly, such as the variables of a
    loop, after the others; and with the results that other values depend on at the last. With `forward`
    chains are followed by forward order alone.
    """
    bare = _Bare(edges, ends)
    chain, spent = bare.chains()
    entries = {each for each in bare.inner if len(bare.into[each]) > 1 and bare.into[each].keys().isdisjoint(edges)}
    results = {each for each in bare.inner - entries if not bare.out[each].isdisjoint(ends) and len(bare.out[each]) > 1}
    costs: dict[str, int] = {}
    best: tuple[int, ...] = ()
    name = ""
    ways = {"": [bare.inner]}
    if entries and not forward:
        ways |= {" to the variables": [bare.inner - entries, entries]}
    if entries and results and not forward:
        ways |= {" to the variables and results": [bare.inner - entries - results, entries, results]}
    for label, parts in ways.items():
        for each, choose in _ORDERS.items():
            copy, order, cost = bare.copy(), tuple[int, ...](), spent
            for part in parts:
                more, rest = copy.eliminated(choose, set(part))
                order, cost = order + more, cost + rest
            costs[each + label] = cost
            if not name or cost < costs[name]:
                best, name = order, each + label
            if forward or len(bare.inner) < 2:
                break  # there is one order
    return Plan((*chain, *best), name, costs)


class _Bare:
    """A graph that is counted in, without partials."""

    def __init__(self, edges: Graph, ends: Set[int]) -> None:
        self.into = {vertex: dict(sources) for vertex, sources in edges.items()}
        self.out: dict[int, set[int]] = {vertex: set() for vertex in edges}
        self.place = {vertex: place for place, vertex in enumerate(edges)}
        for vertex, sources in edges.items():
            for source in sources:
                self.out.setdefault(source, set()).add(vertex)
        self.inner = set(edges) - ends

    def copy(self) -> _Bare:
        new = object.__new__(_Bare)
        new.into = {vertex: dict(sources) for vertex, sources in self.into.items()}
        new.out = {vertex: set(targets) for vertex, targets in self.out.items()}
        new.place, new.inner = self.place, set(self.inner)
        return new

    def cost(self, vertex: int) -> int:
        """The operations that the elimination of a vertex takes."""
        total = 0
        sources = self.into[vertex]
        for target in self.out[vertex]:
            there = self.into[target]
            second = there[vertex]
            for source, first in sources.items():
                total += first + second > Kind.VARYING  # more than one of 1 and one that varies, or two constants
                total += source in there
        return total

    def eliminate(self, vertex: int) -> None:
        sources, targets = self.into.pop(vertex), self.out.pop(vertex)
        for target in targets:
            there = self.into[target]
            second = there.pop(vertex)
            for source, first in sources.items():
                if source in there:
                    there[source] = Kind.VARYING
                else:
                    there[source] = max(first, second)
                    self.out[source].add(target)
        for source in sources:
            self.out[source].discard(vertex)
        self.inner.discard(vertex)

    def chains(self) -> tuple[list[int], int]:
        """Eliminate what has one way in and one way out, which never costs more than it saves; constants first."""
        order: list[int] = []
        total = 0
        for is_free in (True, False):
            for vertex in sorted(self.inner, key=self.place.__getitem__, reverse=True):
                if self.degree(vertex) == 1 and (not is_free or not self.cost(vertex)):
                    total += self.cost(vertex)
                    self.eliminate(vertex)
                    order.append(vertex)
        return order, total

    def eliminated(
        self, choose: Callable[[int, int], tuple[int, int]] | int, those: Set[int]
    ) -> tuple[tuple[int, ...], int]:
        """Eliminate some inner vertices in one order; the order, and the operations that it takes."""
        order: list[int] = []
        total = 0
        if isinstance(choose, int):
            for vertex in sorted(those, key=lambda vertex: choose * self.place[vertex]):
                total += self.cost(vertex)
                self.eliminate(vertex)
                order.append(vertex)
            return tuple(order), total
        current = {vertex: choose(self.degree(vertex), self.place[vertex]) for vertex in those}
        heap = [(*priority, vertex) for vertex, priority in current.items()]
        heapq.heapify(heap)
        while heap:
            *priority, vertex = heapq.heappop(heap)
            if vertex not in self.inner or tuple(priority) != current[vertex]:
                continue  # its degree has changed since
            near = self.into[vertex].keys() | self.out[vertex]
            total += self.cost(vertex)
            self.eliminate(vertex)
            order.append(vertex)
            for other in near & self.inner & those:
                current[other] = choose(self.degree(other), self.place[other])
                heapq.heappush(heap, (*current[other], other))
        return tuple(order), total

    def degree(self, vertex: int) -> int:
        """The number of ways through a vertex."""
        return len(self.into[vertex]) * len(self.out[vertex])


_ORDERS: dict[str, Callable[[int, int], tuple[int, int]] | int] = {
    "forward": 1,
    "reverse": -1,
    # The vertex with the fewest ways through it; of several, the first or the last.
    "Markowitz": lambda degree, place: (degree, place),
    "Markowitz from the end": lambda degree, place: (degree, -place),
}
