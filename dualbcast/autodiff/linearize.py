"""Linearization of a region: the graph of its values, whose edges are the local partials of operations; and the
partials of its results in its sources, by elimination of all vertices between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from itertools import count
from operator import itemgetter

from dualbcast.autodiff.activity import is_finite, is_zero, may_be_infinite, partials_at
from dualbcast.autodiff.eliminate import Kind, Plan, cheapest_order
from dualbcast.autodiff.presence import UNIT, Edge, EdgeBuilder
from dualbcast.errors import Location
from dualbcast.ir import nodes as ir
from dualbcast.ir.compose import copy
from dualbcast.ir.traversal import operations_of, renamed

Edges = Mapping[int, Edge]
_numbers = count()


def new_vertex() -> int:
    """A vertex that is in no region yet: a source."""
    return next(_numbers)


class Region:
    """The graph of a run of statements: the edges into each vertex, in the order of computation, and where that is.

    Vertices without edges are sources.
    """

    def __init__(self) -> None:
        self.edges: dict[int, dict[int, Edge]] = {}
        self.where: dict[int, Location] = {}

    def vertex(self, edges: Edges, where: Location) -> int:
        """A vertex with these edges into it: the source itself, if there is one edge, of 1."""
        if len(edges) == 1:
            ((source, edge),) = edges.items()
            if edge == UNIT:
                return source
        new = new_vertex()
        self.edges[new], self.where[new] = dict(edges), where
        return new

    def into(self, vertex: int) -> Edges:
        """The edges into a vertex; of a source, the one from itself."""
        return self.edges.get(vertex, {vertex: UNIT})

    def between(self, ends: Iterable[int], stops: Container[int] = ()) -> tuple[set[int], set[int]]:
        """The vertices with ways to some ends, and the sources with such ways; `stops` count as sources."""
        inner: set[int] = set()
        sources: set[int] = set()
        pending = [*ends]
        while pending:
            vertex = pending.pop()
            if vertex not in self.edges or vertex in stops:
                sources.add(vertex)
            elif vertex not in inner:
                inner.add(vertex)
                pending += self.edges[vertex]
        return inner, sources

    def ways_to(self, ends: Iterable[int], stops: Container[int]) -> dict[int, dict[int, Edge]]:
        """The part of the graph between the sources and some ends, in the order of computation; without the vertices
        whose ways from sources have all cancelled out."""
        inner, reached = self.between(ends, stops)
        edges: dict[int, dict[int, Edge]] = {}
        for vertex in sorted(inner):
            into = {source: edge for source, edge in self.edges[vertex].items() if source in reached}
            if into:
                edges[vertex] = into
                reached.add(vertex)
        return edges


class Linearizer(EdgeBuilder):
    """Appends the statements for local partials, and for those of results in sources; records each elimination."""

    def __init__(self, names: ir.Names) -> None:
        super().__init__(names)
        self.plans: list[tuple[Location, Plan]] = []

    def local_edges(self, stmt: ir.Assign, vertices: Mapping[str, int]) -> dict[int, Edge]:
        """The edges into the value of an assignment from those operands that have vertices.

        An operand has the same value where the edges are eliminated: a name is assigned once in each iteration.
        """
        value, where = stmt.value, stmt.location
        edges: dict[int, Edge] = {}
        if isinstance(value, ir.Var):
            return {vertices[value.name]: UNIT} if value.name in vertices else edges
        if not isinstance(value, ir.Op) or not any(isinstance(a, ir.Var) and a.name in vertices for a in value.args):
            return edges
        if value.name == "select":
            test, *sides = value.args
            assert isinstance(test, ir.Atom)
            for side, flag in zip(sides, (test, self.opposite(test, where)), strict=True):
                if isinstance(side, ir.Var) and side.name in vertices:
                    chosen = replace(UNIT, flag=flag, unmasked=self.conditions(flag))
                    self.add(edges, vertices[side.name], chosen, where)
            return edges
        template, args, partials = partials_at(value)
        # A template has no parameters for arguments that are known numbers.
        unknown = [arg for arg in (*args, stmt.target) if not isinstance(arg, ir.Const)] if template.params else []
        body, by = copy(template, unknown, self.names, ir.TEMPORARY, where)
        self.block.extend(body)
        multiples = dict(map(_multiple, body))
        has_poles = may_be_infinite(value)
        for arg, expr in zip(value.args, partials, strict=True):
            if not isinstance(arg, ir.Var) or arg.name not in vertices or is_zero(expr):
                continue
            partial = self.emit(renamed(expr, by), where)
            partial, factor = multiples.get(partial, (partial, 1.0))
            poles, known = has_poles and isinstance(partial, ir.Var), is_finite(partial)
            edge = Edge(partial, factor, has_poles=poles, is_fixed=known, is_finite=known)
            self.add(edges, vertices[arg.name], edge, where)
        return edges

    def add(self, edges: dict[int, Edge], source: int, edge: Edge, where: Location) -> None:
        """Add an edge from a source to those there are; edges whose sum is zero are none."""
        before = edges.get(source)
        edges[source] = edge if before is None else self.total(before, edge, where)
        if edges[source].partial == ir.ONE and edges[source].factor == 0:
            del edges[source]

    def accumulate(self, region: Region, ends: Iterable[int], stops: Container[int] = ()) -> None:
        """Give each of these vertices edges from sources alone; `stops` count as sources."""
        ends = [
            end
            for end in dict.fromkeys(ends)
            if end in region.edges and any(at in region.edges and at not in stops for at in region.edges[end])
        ]
        if not ends:
            return
        edges = region.ways_to(ends, stops)
        # An end may be on the way to another one: a copy of it is left at the last.
        copies = {-1 - end: end for end in ends if end in edges}
        edges |= {copied: {end: UNIT} for copied, end in copies.items()}
        kinds = {v: {at: _kind(edge) for at, edge in into.items()} for v, into in edges.items()}
        begins = any(edge.begins for into in edges.values() for edge in into.values())
        attempts = []
        # In forward order a partial that begins in a loop is added to others before it meets a pole.
        for forward in (False, True) if begins else (False,):
            made = {vertex: dict(into) for vertex, into in edges.items()}
            with self.inside([]) as new:
                plan = cheapest_order(kinds, copies.keys(), forward=forward)
                self._eliminate(plan.order, made, region.where)
            masks = begins and sum(operation.name == "select" for operation in operations_of(tuple(new)))
            attempts.append((masks, forward, plan, new, made))
            if not masks:
                break
        _, _, plan, new, made = min(attempts, key=itemgetter(0, 1))
        self.block += new
        region.edges.update({end: {} for end in ends})
        for copied, end in copies.items():
            region.edges[end] = {at: self.settled(edge, region.where[end]) for at, edge in made[copied].items()}
        if len(plan.order) > len(copies):
            self.plans.append((region.where[ends[-1]], plan))

    def _eliminate(
        self, order: Iterable[int], edges: dict[int, dict[int, Edge]], places: Mapping[int, Location]
    ) -> None:
        """Eliminate vertices of a graph in some order."""
        out: dict[int, set[int]] = defaultdict(set)
        for vertex, into in edges.items():
            for source in into:
                out[source].add(vertex)
        for vertex in order:
            into, targets, where = edges.pop(vertex), sorted(out.pop(vertex)), places[vertex]
            if len(targets) > 1:
                into = {source: self.settled(edge, where) for source, edge in into.items()}
            for target in targets:
                second = edges[target].pop(vertex)
                second = self.settled(second, where) if len(into) > 1 else second
                # The newest source first: on a GPU the product of 32 takes 40 registers then, and 64 else;
                # but that of 15 takes 64, and 40 else.
                for source, first in sorted(into.items(), reverse=True):
                    way = self.product(first, second, where)
                    if way is not None:
                        self.add(edges[target], source, way, where)
                    (out[source].add if source in edges[target] else out[source].discard)(target)
            for source in into:
                out[source].discard(vertex)


def _kind(edge: Edge) -> Kind:
    if edge.partial != ir.ONE:
        return Kind.VARYING
    return Kind.UNIT if abs(edge.factor) == 1 else Kind.CONSTANT


def _multiple(stmt: ir.Stmt) -> tuple[ir.Atom | None, tuple[ir.Atom, float]]:
    """The variable that is assigned a multiple of another one, that one, and the factor."""
    match stmt:
        case ir.Assign(target, ir.Op("neg", (ir.Var() as operand,), "float")):
            return target, (operand, -1.0)
        case ir.Assign(target, ir.Op("mul", (ir.Const() as factor, ir.Var() as operand), "float")):
            return target, (operand, float(factor.value))
        case ir.Assign(target, ir.Op("mul", (ir.Var() as operand, ir.Const() as factor), "float")):
            return target, (operand, float(factor.value))
    return None, (ir.ONE, 1.0)
