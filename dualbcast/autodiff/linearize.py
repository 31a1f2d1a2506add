"""Linearization: the statements that compute local partials, and the graph of a region, whose edges are these partials;
and the partials of its results in its sources, by elimination of all vertices between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count

from dualbcast.autodiff.activity import is_finite, is_zero, may_be_infinite, partials_at
from dualbcast.autodiff.eliminate import Kind, Plan, cheapest_order
from dualbcast.autodiff.presence import UNIT, Conditions, Edge
from dualbcast.errors import Location
from dualbcast.ir import nodes as ir
from dualbcast.ir.compose import copy
from dualbcast.ir.simplification import fold
from dualbcast.ir.traversal import assigned, hold, renamed


class Region:
    """The graph of a run of statements: the edges into each vertex, in the order of computation, and where it is
    computed. Vertices without an entry are sources."""

    _vertices = count()

    def __init__(self) -> None:
        self.edges: dict[int, dict[int, Edge]] = {}
        self.where: dict[int, Location] = {}

    @classmethod
    def source(cls) -> int:
        """A vertex that depends on no other one."""
        return next(cls._vertices)

    def vertex(self, edges: Mapping[int, Edge], where: Location) -> int:
        """A new vertex with these edges into it."""
        new = self.source()
        self.edges[new] = dict(edges)
        self.where[new] = where
        return new

    def into(self, vertex: int) -> dict[int, Edge]:
        """The edges into a vertex; of a source, the one from itself."""
        return self.edges.get(vertex, {vertex: UNIT})


class Emitter:
    """Appends statements to a block: local partials, and products and sums of partials."""

    def __init__(self, names: ir.Names) -> None:
        self.names = names
        self.block: list[ir.Stmt] = []
        self.plans: list[tuple[Location, Plan]] = []
        # Temporaries that are a constant times a variable, or divided by one: the constant first.
        self.scaled: dict[str, ir.Op] = {}
        # The atoms that temporaries are the negative of, and the conditions that flags are the conjunction of.
        self.negated: dict[str, ir.Atom] = {}
        self.conditions: dict[str, Conditions] = {}

    def emit(self, value: ir.Expr, where: Location) -> ir.Atom:
        """The value as an atom; if it is none, its assignment to a temporary is appended."""
        atom = hold(value, self.names, self.block, where)
        if atom is not value:
            self.note(self.block[-1])
        return atom

    def note(self, stmt: ir.Stmt) -> None:
        """Remember the value of a temporary, if it is a negative or a product with a constant."""
        match stmt:
            case ir.Assign(target, ir.Op("neg", (ir.Var() as negated,), "float")):
                self.negated[target.name] = negated
            case ir.Assign(target, ir.Op("mul" | "div", (ir.Const(), ir.Var()), "float") as value):
                self.scaled[target.name] = value
            case ir.Assign(target, ir.Op("mul", (ir.Var() as factor, ir.Const() as constant), "float") as value):
                self.scaled[target.name] = replace(value, args=(constant, factor))

    # --- local partials ------------------------------------------------------------------------------------------

    def local_edges(self, stmt: ir.Assign, vertices: Mapping[str, int], unstable: Iterable[str]) -> dict[int, Edge]:
        """The edges into the value of an assignment from those operands that have vertices.

        The statements that compute the partials are appended. The names in `unstable` change later in the block.
        """
        value, where = stmt.value, stmt.location
        assert isinstance(value, ir.Op)
        edges: dict[int, Edge] = {}
        if value.name == "select":
            test, *sides = value.args
            for side, flag in zip(sides, (test, self.opposite(test, where)), strict=True):
                if isinstance(side, ir.Var) and side.name in vertices:
                    assert isinstance(flag, ir.Atom)
                    self.add(edges, vertices[side.name], Edge(ir.ONE, flag, self.conditions_of(flag), is_bounded=True), where)
            return edges
        if not any(isinstance(arg, ir.Var) and arg.name in vertices for arg in value.args):
            return edges  # such as a conversion, which has no partial
        template, args, partials = partials_at(value)
        needed = [
            (vertices[arg.name], partial)
            for arg, partial in zip(value.args, partials, strict=True)
            if isinstance(arg, ir.Var) and arg.name in vertices and not is_zero(partial)
        ]
        # A template has no parameters for arguments that are known numbers.
        unknown = [arg for arg in (*args, stmt.target) if not isinstance(arg, ir.Const)] if template.params else []
        body, by = copy(template, unknown, self.names, ir.TEMPORARY, where)
        self.block.extend(body)
        names = assigned(body)
        for part in body if len(set(names)) == len(names) == len(body) else ():
            self.note(part)
        poles = may_be_infinite(value)
        for source, expr in needed:
            partial = self.emit(renamed(expr, by), where)
            is_negative = isinstance(partial, ir.Var) and partial.name in self.negated
            if is_negative:
                partial = self.negated[partial.name]
            if isinstance(partial, ir.Var) and partial.name in unstable:
                partial = self.held(partial, where)
            has_poles = poles and isinstance(partial, ir.Var)
            edge = Edge(partial, has_poles=has_poles, is_bounded=is_finite(partial), is_negative=is_negative)
            self.add(edges, source, edge, where)
        return edges

    def held(self, value: ir.Expr, where: Location) -> ir.Atom:
        """The value in a variable of its own."""
        target = ir.Var(self.names.fresh(ir.TEMPORARY), value.kind)
        self.block.append(ir.Assign(target, value, where))
        return target

    # --- presence ------------------------------------------------------------------------------------------------

    def opposite(self, test: ir.Expr, where: Location) -> ir.Atom:
        """The flag that is false where a test is true."""
        atom = self.emit(fold(ir.Op("not", (test,), "bool", where)), where)
        if isinstance(atom, ir.Var):
            assert isinstance(test, ir.Atom)
            self.conditions[atom.name] = frozenset({(test, False)})
        return atom

    def conditions_of(self, flag: ir.Atom) -> Conditions:
        """The tests whose conjunction a flag is, each with the result that it must have."""
        if isinstance(flag, ir.Const):
            return frozenset()
        return self.conditions.get(flag.name, frozenset({(flag, True)}))

    def conjunction(self, conditions: Conditions, where: Location) -> ir.Atom:
        """The flag that is true where all of some conditions are."""
        flag: ir.Atom = ir.TRUE
        for test, result in sorted(conditions, key=repr):
            flag = self._both(flag, test if result else self.opposite(test, where), where)
        return flag

    def exact(self, edge: Edge, where: Location) -> ir.Atom:
        """The partial of an edge with its sign, and zero where it is absent."""
        return self.signed(replace(edge, partial=self.masked(edge, where)), where)

    def signed(self, edge: Edge, where: Location) -> ir.Atom:
        """The partial of an edge with its sign."""
        if not edge.is_negative:
            return edge.partial
        return self.emit(fold(ir.Op("neg", (edge.partial,), "float", where)), where)

    def masked(self, edge: Edge, where: Location) -> ir.Atom:
        """The partial of an edge without its sign, and zero where it is absent."""
        return self._zero_unless(edge.unmasked, edge.partial, where)

    def _zero_unless(self, conditions: Conditions, partial: ir.Atom, where: Location) -> ir.Atom:
        if not conditions:
            return partial
        return self._chosen(self.conjunction(conditions, where), partial, ir.ZERO, where)

    def _chosen(self, flag: ir.Atom, one: ir.Atom, other: ir.Atom, where: Location) -> ir.Atom:
        conditions = self.conditions_of(flag)
        if len(conditions) == 1:
            ((flag, result),) = conditions
            one, other = (one, other) if result else (other, one)
        return self.emit(fold(ir.Op("select", (flag, one, other), "float", where)), where)

    # --- products and sums ---------------------------------------------------------------------------------------

    def product(self, one: Edge, other: Edge, where: Location) -> Edge | None:
        """The edge for a way along two edges; None if they are never present together."""
        if self._distinguishing(one.flag, other.flag) is not None:
            return None
        is_negative = one.is_negative != other.is_negative
        partial: ir.Expr
        if ir.MINUS_ONE in (one.partial, other.partial):
            partial = other.partial if one.partial == ir.MINUS_ONE else one.partial
            is_negative = not is_negative
        else:
            partial = self.multiplied(one.partial, other.partial, where)
        flag, unmasked, begins = self._both(one.flag, other.flag, where), one.unmasked | other.unmasked, True
        for edge, factor in ((one, other), (other, one)):
            if edge.flag != ir.TRUE:
                is_zero_then = edge.begins and not factor.has_poles
                begins &= is_zero_then
                if not (is_zero_then or factor.is_bounded):
                    unmasked |= self.conditions_of(edge.flag)
        if is_negative and isinstance(partial, ir.Const):
            partial, is_negative = ir.Const(-partial.value, "float"), False
        return Edge(
            self.emit(partial, where),
            flag,
            unmasked,
            begins and flag != ir.TRUE,
            one.has_poles or other.has_poles,
            one.is_bounded and other.is_bounded,
            is_negative,
        )

    def _both(self, one: ir.Atom, other: ir.Atom, where: Location) -> ir.Atom:
        if ir.TRUE in (one, other) or one == other:
            return other if one == ir.TRUE else one
        flag = self.emit(fold(ir.Op("and", (one, other), "bool", where)), where)
        if isinstance(flag, ir.Var):
            self.conditions[flag.name] = self.conditions_of(one) | self.conditions_of(other)
        return flag

    def add(self, edges: dict[int, Edge], source: int, edge: Edge, where: Location) -> None:
        """Add an edge from a source to those there are; edges whose sum is zero are none."""
        before = edges.get(source)
        edges[source] = edge if before is None else self.total(before, edge, where)
        if is_zero(edges[source].partial):
            del edges[source]

    def total(self, one: Edge, other: Edge, where: Location) -> Edge:
        """The sum of two edges from one source."""
        same_sign = one.is_negative == other.is_negative
        poles, is_bounded = one.has_poles or other.has_poles, one.is_bounded and other.is_bounded
        flag: ir.Atom = ir.TRUE
        if ir.TRUE not in (one.flag, other.flag):
            flag = one.flag
            if flag != other.flag:
                flag = self.emit(fold(ir.Op("or", (one.flag, other.flag), "bool", where)), where)
        if one.unmasked or other.unmasked:
            test = self._distinguishing(one.flag, other.flag)
            if test is not None:
                return self._alternative(one, other, test, flag, where)
        begins = flag != ir.TRUE and one.begins and other.begins
        if one.flag == other.flag and one.unmasked == other.unmasked:
            left, right, unmasked = one.partial, other.partial, one.unmasked
        else:
            left, right, unmasked = self.masked(one, where), self.masked(other, where), frozenset()
        is_negative = one.is_negative and other.is_negative
        if one.is_negative and not other.is_negative:
            left, right = right, left
        partial = self.emit(fold(ir.Op("add" if same_sign else "sub", (left, right), "float", where)), where)
        return Edge(partial, flag, unmasked, begins, poles, is_bounded, is_negative)

    def _distinguishing(self, one: ir.Atom, other: ir.Atom) -> ir.Atom | None:
        """A test that must be true where one flag is, and false where the other one is."""
        others = self.conditions_of(other)
        return next((test for test, result in self.conditions_of(one) if (test, not result) in others), None)

    def _alternative(self, one: Edge, other: Edge, test: ir.Atom, flag: ir.Atom, where: Location) -> Edge:
        """The sum of two edges of which one at most is present: that depends on a test."""
        same_sign = one.is_negative == other.is_negative
        sides = [edge.partial if same_sign else self.signed(edge, where) for edge in (one, other)]
        rests = [_without(self.conditions_of(edge.flag), test) for edge in (one, other)]
        unmasked, *others = [_without(edge.unmasked, test) for edge in (one, other)]
        if rests[0] == rests[1] and others == [unmasked]:
            flag = self.conjunction(rests[0], where)
        else:
            masks = unmasked, *others
            sides = [self._zero_unless(mask, side, where) for mask, side in zip(masks, sides, strict=True)]
            unmasked = frozenset()
        if (test, False) in self.conditions_of(one.flag):
            sides.reverse()
        return Edge(
            self._chosen(test, sides[0], sides[1], where),
            flag,
            unmasked,
            has_poles=one.has_poles or other.has_poles,
            is_bounded=one.is_bounded and other.is_bounded,
            is_negative=same_sign and one.is_negative,
        )

    def multiplied(self, one: ir.Atom, other: ir.Atom, where: Location) -> ir.Expr:
        """The product of two partials; constants in both become one."""
        for left, right in ((one, other), (other, one)):
            op = self.scaled.get(left.name) if isinstance(left, ir.Var) else None
            if op is not None and op.name == "mul":
                constant, rest = op.args
                rescaled = self._rescaled(right, constant)
                if rescaled is not None:
                    return fold(ir.Op("mul", (self.emit(rescaled, where), rest), "float", where))
            rescaled = self._rescaled(right, left)
            if rescaled is not None:
                return rescaled
        return fold(ir.Op("mul", (one, other), "float", where))

    def _rescaled(self, partial: ir.Atom, factor: ir.Expr) -> ir.Expr | None:
        """The product of a partial and a constant as one operation, if the partial has a constant in it."""
        op = self.scaled.get(partial.name) if isinstance(partial, ir.Var) else None
        if op is None or not isinstance(factor, ir.Const) or abs(factor.value) == 1:
            return None
        constant, rest = op.args
        assert isinstance(constant, ir.Const)
        product = constant.value * factor.value
        # With larger or smaller constants, the product could overflow or underflow where the original one does not.
        return replace(op, args=(ir.Const(product, "float"), rest)) if 1e-6 < abs(product) < 1e6 else None

    # --- elimination ---------------------------------------------------------------------------------------------

    def accumulate(self, region: Region, ends: Iterable[int]) -> None:
        """Give each of these vertices edges from sources of the region alone.

        The statements that compute them are appended.
        """
        needed = self._ancestors(region, ends)
        edges = {vertex: dict(region.edges[vertex]) for vertex in sorted(needed)}
        # An end may be on the way to another one: what is left at the last is a copy of it.
        last = {-1 - end: end for end in dict.fromkeys(ends) if end in needed}
        for copied, end in last.items():
            edges[copied] = {end: UNIT}
        for vertex, sources in edges.items():
            dead = [each for each in sources if each in region.edges and each not in needed]
            for each in dead:
                del sources[each]
        kinds = {vertex: {u: _kind(edge) for u, edge in sources.items()} for vertex, sources in edges.items()}
        plan = cheapest_order(kinds, last.keys())
        out: dict[int, list[int]] = {}
        for vertex, sources in edges.items():
            for source in sources:
                out.setdefault(source, []).append(vertex)
        for vertex in plan.order:
            sources, where = edges.pop(vertex), region.where[vertex]
            for target in out.pop(vertex):
                second = edges[target].pop(vertex)
                for source, first in sources.items():
                    was_there, way = source in edges[target], self.product(first, second, where)
                    if way is not None:
                        self.add(edges[target], source, way, where)
                    if was_there != (source in edges[target]):
                        (out[source].remove if was_there else out[source].append)(target)
            for source in sources:
                out[source].remove(vertex)
        for copied, end in last.items():
            region.edges[end] = edges[copied]
        if last:
            self.plans.append((region.where[next(iter(last.values()))], plan))

    def _ancestors(self, region: Region, ends: Iterable[int]) -> set[int]:
        """The vertices that are no sources, from a source to one of the ends."""
        found: set[int] = set()
        pending = [*ends]
        while pending:
            vertex = pending.pop()
            if vertex in region.edges and vertex not in found:
                found.add(vertex)
                pending += region.edges[vertex]
        # Without those that no source reaches.
        live: set[int] = set()
        for vertex in sorted(found):
            if any(source in live or source not in region.edges for source in region.edges[vertex]):
                live.add(vertex)
        return live


def _without(conditions: Conditions, test: ir.Atom) -> Conditions:
    return frozenset(each for each in conditions if each[0] != test)


def _kind(edge: Edge) -> Kind:
    if not isinstance(edge.partial, ir.Const):
        return Kind.VARYING
    return Kind.UNIT if abs(edge.partial.value) == 1 else Kind.CONSTANT
