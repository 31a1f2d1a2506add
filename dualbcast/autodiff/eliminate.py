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


Graph = dict[int, dict[int, Kind]]


class Plan(NamedTuple):
    """The order that was chosen, its name, and what each order costs: multiplications and additions."""

    order: tuple[int, ...]
    name: str
    costs: dict[str, int]


def cheapest_order(edges: Mapping[int, Mapping[int, Kind]], ends: Set[int]) -> Plan:
    """The cheapest order to eliminate all vertices with edges into them that are not in `ends`.

    `edges` has, for each vertex in the order of computation, its sources and what is known of the partials in them;
    those without an entry are the sources of the graph.
    """
    bare = _Bare(edges, ends)
    chain, spent = bare.chains()
    costs: dict[str, int] = {}
    best: tuple[int, ...] = ()
    name = ""
    for each, choose in _ORDERS.items():
        copy = bare.copy()
        order, cost = copy.eliminated(choose)
        costs[each] = spent + cost
        if not name or costs[each] < costs[name]:
            best, name = order, each
        if len(bare.inner) < 2:
            break  # there is one order
    return Plan((*chain, *best), name, costs)


class _Bare:
    """A graph that is counted in, without partials."""

    def __init__(self, edges: Mapping[int, Mapping[int, Kind]], ends: Set[int]) -> None:
        self.into: Graph = {vertex: dict(sources) for vertex, sources in edges.items()}
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
        """Eliminate what has one way in and one way out, which never costs more than it saves."""
        order: list[int] = []
        cost = 0
        for vertex in sorted(self.inner, key=self.place.__getitem__, reverse=True):
            if len(self.into[vertex]) == 1 and len(self.out[vertex]) == 1:
                cost += self.cost(vertex)
                self.eliminate(vertex)
                order.append(vertex)
        return order, cost

    def eliminated(self, choose: Callable[[int, int], tuple[int, int]] | int) -> tuple[tuple[int, ...], int]:
        """Eliminate all inner vertices in one order; the order, and the operations that it takes."""
        order: list[int] = []
        total = 0
        if isinstance(choose, int):
            for vertex in sorted(self.inner, key=lambda vertex: choose * self.place[vertex]):
                total += self.cost(vertex)
                self.eliminate(vertex)
                order.append(vertex)
            return tuple(order), total
        current = {vertex: choose(self.cost(vertex), self.place[vertex]) for vertex in self.inner}
        heap = [(*priority, vertex) for vertex, priority in current.items()]
        heapq.heapify(heap)
        while self.inner:
            *priority, vertex = heapq.heappop(heap)
            if vertex not in self.inner or tuple(priority) != current[vertex]:
                continue  # its cost has changed since
            near = self.into[vertex].keys() | self.out[vertex]
            total += self.cost(vertex)
            self.eliminate(vertex)
            order.append(vertex)
            # The costs of those around the neighbours change too, where an edge becomes a varying one: that is ignored.
            for other in near & self.inner:
                current[other] = choose(self.cost(other), self.place[other])
                heapq.heappush(heap, (*current[other], other))
        return tuple(order), total


_ORDERS: dict[str, Callable[[int, int], tuple[int, int]] | int] = {
    "forward": 1,
    "reverse": -1,
    # The vertex that takes the fewest operations; of several, the first or the last.
    "Markowitz, first": lambda cost, place: (cost, place),
    "Markowitz, last": lambda cost, place: (cost, -place),
}
