"""Differentiation: from a function to one with its partials in some directions, by linearization of each region and
elimination of what is between its sources and its results.

A region is a straight run of statements. A branch or a loop in it is one vertex, or several, with partials of its own:
either in the variables that it reads, or in the sources of the region around it, whichever are fewer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dualbcast.autodiff.activity import NONE, Directions, activity, all_sources, flows, refuse_marked
from dualbcast.autodiff.eliminate import Plan
from dualbcast.autodiff.linearize import Emitter, Region
from dualbcast.autodiff.presence import UNIT, Edge, bounded_names, loop_presence
from dualbcast.errors import Location
from dualbcast.ir import nodes as ir
from dualbcast.ir.traversal import (
    among,
    assigned,
    blocks,
    expressions,
    falls_through,
    free_names,
    jumps,
    read_counts,
    remove_dead,
    results,
    statements,
    targets,
)
from dualbcast.rules.table import RULES

# The assumed number of iterations of a loop.
_ITERATIONS = 8
_UNNAMED = re.compile(rf"{ir.TEMPORARY}(#\d+)?")


@dataclass(frozen=True, slots=True)
class Dual:
    """A function of values and tangents; `partials[i, d]` names the output that is the tangent of i in direction d.

    The directions of a Jacobian are parameters. A missing pair is a structural zero. `plans` are the orders in which the
    regions were eliminated, with their places.
    """

    function: ir.Function
    partials: dict[tuple[int, int], str]
    plans: tuple[tuple[Location, Plan], ...] = field(default=(), compare=False)

    def tangents(self) -> dict[tuple[int, int], ir.Atom]:
        """The tangents by output and direction; a structural zero is missing."""
        values = {output.name: output.value for output in self.function.outputs if isinstance(output.value, ir.Atom)}
        return {place: values[name] for place, name in self.partials.items()}


class Direction(NamedTuple):
    """A direction to differentiate in: the tangents of the parameters that have one, and a label for the names."""

    label: str
    tangents: Mapping[int, ir.Atom]


def unused_names(function: ir.Function) -> ir.Names:
    """Names that are not in use in a function, and mean nothing else in a kernel."""
    return free_names(function, [*(output.name for output in function.outputs), *RULES])


def unit_directions(params: Sequence[ir.Var], seeds: Iterable[int]) -> dict[int, Direction]:
    """The directions of the parameters at `seeds`."""
    return {
        seed: Direction(params[seed].name.removeprefix(ir.TEMPORARY).replace("#", "_"), {seed: ir.ONE})
        for seed in seeds
    }


def differentiate(
    function: ir.Function, directions: Mapping[int, Direction], names: ir.Names | None = None
) -> Dual:
    """The function that returns the outputs of `function` and their tangents in some directions.

    `function` is as the front end gives it, or as `simplify` does: operations on atoms. `names` are those of the
    function that the result becomes part of, if it does.
    """
    names = names or unused_names(function)
    best: tuple[int, Dual] | None = None
    mark = names.mark()
    pending = [_Policy(True, True), _Policy(False, True), _Policy(True, False), _Policy(False, False)]
    while pending:
        policy = pending.pop(0)
        run = _Differentiation(function, directions, names, policy)
        dual = run.run()
        cost = _work(remove_dead(dual.function).body)
        if best is None or cost < best[0]:
            best = cost, dual
        if not run.used.branches:
            pending = [each for each in pending if each.branches == policy.branches]
        if not run.used.loops:
            pending = [each for each in pending if each.loops == policy.loops]
        names.reset(mark)
    assert best is not None
    names.take(assigned(best[1].function.body))
    names.take(output.name for output in best[1].function.outputs)
    return best[1]


class _Policy(NamedTuple):
    """Whether branches and loops that read fewer variables than there are sources are differentiated in these."""

    branches: bool
    loops: bool


def _work(block: ir.Block) -> int:
    """The operations of a block, of both sides of a branch, and of several iterations of a loop."""
    count = 0
    for stmt in block:
        own = [expr for expr in expressions(stmt) if isinstance(expr, ir.Op)]
        inside = sum(map(_work, blocks(stmt)))
        count += len(own) + (_ITERATIONS * inside if isinstance(stmt, ir.For | ir.While) else inside)
    return count


# The partials of a variable that is assigned on several paths, by source, and the flags of those that may be absent.
_Places = dict[int, tuple[ir.Var, ir.Var | None]]
_Edges = Mapping[int, Edge]


class _Scope(NamedTuple):
    """What the statements of a block belong to: the graph; the vertices of the variables; and the variables that
    a loop around them carries to its next iteration, or out of it, with the places of their partials."""

    region: Region
    vertices: dict[str, int]
    carried: Mapping[str, _Places]
    # The names that change later in the block, or in one around it.
    unstable: frozenset[str] = frozenset()


class _Differentiation:
    def __init__(
        self, function: ir.Function, directions: Mapping[int, Direction], names: ir.Names, policy: _Policy
    ) -> None:
        self.function, self.directions, self.names, self.policy = function, directions, names, policy
        # Where the policy made a difference.
        self.used = _Policy(False, False)
        # The names of values, which are no derivatives.
        self.values = {*(param.name for param in function.params), *assigned(function.body)} - {*function.derived}
        self.out = Emitter(names)
        self.reads, self.writes = read_counts(function), Counter(assigned(function.body))
        self.flows = flows(function.body)
        ends = [leaf.name for leaf in results(function) if leaf.kind == "float"]
        # The variables whose derivatives the outputs need.
        self.useful = all_sources(ends, self.flows)
        # Names for the sources.
        self.labels: dict[int, str] = {}

    def run(self) -> Dual:
        function, region, where = self.function, Region(), self.function.location
        sources = {seed: region.source() for seed in self.directions}
        vertices: dict[str, int] = {}
        seeds: dict[str, frozenset[int]] = {}
        into: dict[int, dict[int, Edge]] = {}
        for seed, direction in self.directions.items():
            self.labels[sources[seed]] = direction.label
            for position, tangent in direction.tangents.items():
                into.setdefault(position, {})[sources[seed]] = Edge(tangent, is_bounded=tangent == ir.ONE)
        for position, edges in into.items():
            name = function.params[position].name
            vertices[name] = self.vertex_of(region, edges, where)
            seeds[name] = frozenset(edges)
        refuse_marked(function, activity(self.flows, seeds))
        self.block(function.body, _Scope(region, vertices, {}))
        ends = {
            at: vertices[output.value.name]
            for at, output in enumerate(function.outputs)
            if isinstance(output.value, ir.Var) and output.value.name in vertices
        }
        self.out.accumulate(region, ends.values())
        outputs, partials = list(function.outputs), {}
        for at, vertex in ends.items():
            edges = region.into(vertex)
            for seed, source in sources.items():
                if source in edges:
                    name = self.names.fresh(f"{function.outputs[at].name}_d{self.directions[seed].label}")
                    outputs.append(ir.Output(name, self.out.exact(edges[source], where)))
                    partials[at, seed] = name
        body = tuple(self.out.block)
        derived = among({*assigned(body)} - self.values, body)
        both = replace(function, body=body, outputs=tuple(outputs), derived=derived)
        return Dual(both, partials, tuple(self.out.plans))

    def vertex_of(self, region: Region, edges: Mapping[int, Edge], where: Location) -> int:
        """A vertex with these edges into it: the source itself, if there is one edge, of 1."""
        if len(edges) == 1:
            ((source, edge),) = edges.items()
            if edge == UNIT:
                return source
        return region.vertex(edges, where)

    # --- statements ----------------------------------------------------------------------------------------------

    def block(self, block: ir.Block, scope: _Scope) -> None:
        """Append the statements of a block, with derivatives; the vertices of `scope` become those after it."""
        held: list[ir.Assign] = []
        scope = scope._replace(unstable=scope.unstable | _changing(block))
        for stmt in block:
            match stmt:
                case ir.Assign() if stmt.target.name in scope.carried:
                    held.append(stmt)
                    self.value(stmt, scope)
                case ir.Assign():
                    self.out.block.append(stmt)
                    self.value(stmt, scope)
                case ir.If():
                    self.branch(stmt, scope)
                case ir.For() | ir.While():
                    self.loop(stmt, scope)
                case _:
                    self.hand_on(held, scope)
                    self.out.block.append(stmt)
                    return
        self.hand_on(held, scope)

    def value(self, stmt: ir.Assign, scope: _Scope) -> None:
        """Give the target of an assignment the vertex of its value, if it has one."""
        name, value, vertices = stmt.target.name, stmt.value, scope.vertices
        vertices.pop(name, None)
        if name not in self.useful or stmt.target.kind != "float":
            return
        if isinstance(value, ir.Var):
            if value.name in vertices:
                vertices[name] = vertices[value.name]
        elif isinstance(value, ir.Op):
            edges = self.out.local_edges(stmt, vertices, scope.unstable)
            if edges:
                vertices[name] = scope.region.vertex(edges, stmt.location)

    def hand_on(self, held: Sequence[ir.Assign], scope: _Scope) -> None:
        """Assign variables that a loop carries, together with their partials."""
        if not held:
            return
        region, out, where = scope.region, self.out, held[0].location
        values: dict[str, tuple[ir.Var, ir.Atom]] = {}
        for stmt in held:
            value = stmt.value
            if not isinstance(value, ir.Atom):
                value = out.emit(value, stmt.location)
            elif isinstance(value, ir.Var) and value.name in values:
                value = values[value.name][1]
            values[stmt.target.name] = stmt.target, value
        ends = {name: scope.vertices[name] for name in values if name in scope.vertices}
        out.accumulate(region, ends.values())
        pairs = [*values.values()]
        for name in values:
            pairs += self.parts(scope.carried[name], region.into(ends[name]) if name in ends else {}, where)
        self.assign_together(pairs, where)

    def assign_together(self, pairs: Sequence[tuple[ir.Var, ir.Atom]], where: Location) -> None:
        """Append assignments of variables, as if they were simultaneous."""
        left = [(target, value) for target, value in pairs if target != value]
        while left:
            read = Counter(value.name for _, value in left if isinstance(value, ir.Var))
            ready = [pair for pair in left if read[pair[0].name] == 0]
            if not ready:
                target, value = left[0]
                copy = self.out.held(target, where)
                left = [(each, copy if of == target else of) for each, of in left]
                ready = [(target, value)]
            self.out.block += [ir.Assign(target, value, where) for target, value in ready]
            left = [pair for pair in left if pair not in ready]

    # --- branches ------------------------------------------------------------------------------------------------

    def live(self, part: ir.Stmt, scope: _Scope) -> dict[str, int]:
        """The variables from before a branch or a loop that derivatives in it, or after it, go through."""
        sources = {name for target, names in flows((part,)) if target in self.useful for name in names}
        sources.update(targets((part,)))
        return {name: vertex for name, vertex in scope.vertices.items() if name in sources}

    def given(self, live: Mapping[str, int], scope: _Scope, *, local: bool) -> dict[str, dict[int, Edge]]:
        """The edges into the live variables from the sources of a region for a branch or a loop.

        The sources are those variables themselves, where `local`, and else the sources of the region around it.
        """
        if local:
            for name, vertex in live.items():
                self.labels.setdefault(vertex, name.removeprefix(ir.TEMPORARY).replace("#", "_"))
            return {name: {vertex: UNIT} for name, vertex in live.items()}
        self.out.accumulate(scope.region, live.values())
        return {name: dict(scope.region.into(vertex)) for name, vertex in live.items()}

    def is_fewer(self, live: Mapping[str, int], scope: _Scope) -> bool:
        """Whether the live variables are fewer than the sources that they depend on."""
        reached: set[int] = set()
        seen: set[int] = set()
        pending = [*live.values()]
        while pending:
            vertex = pending.pop()
            if vertex in seen:
                continue
            seen.add(vertex)
            if vertex in scope.region.edges:
                pending += scope.region.edges[vertex]
            else:
                reached.add(vertex)
        return len(set(live.values())) < len(reached)

    def within(
        self, given: Mapping[str, _Edges], carried: Mapping[str, _Places], unstable: frozenset[str], where: Location
    ) -> _Scope:
        """The scope of a block inside a branch or a loop."""
        region = Region()
        vertices = {name: self.vertex_of(region, edges, where) for name, edges in given.items() if edges}
        return _Scope(region, vertices, carried, unstable)

    def branch(self, stmt: ir.If, scope: _Scope) -> None:
        """Append a branch with its partials; its results get vertices."""
        inside = read_counts((stmt,))
        found = {name: var for name, var in targets((stmt,)).items() if name in self.useful}
        names = [name for name, var in found.items() if var.kind == "float" and self.reads[name] > inside[name]]
        names = [name for name in names if name not in scope.carried]
        live = self.live(stmt, scope)
        # The variables that a loop carries have their partials in the sources of its region.
        is_bound = jumps(stmt) or any(name in scope.carried for name in targets((stmt,)))
        is_fewer = not is_bound and self.is_fewer(live, scope)
        self.used = self.used._replace(branches=self.used.branches or is_fewer)
        given = self.given(live, scope, local=is_fewer and self.policy.branches)
        sides: list[list[ir.Stmt]] = []
        edges: list[dict[str, dict[int, Edge]]] = []
        ends: list[int] = []
        for at, block in enumerate((stmt.then, stmt.orelse)):
            within = self.within(given, scope.carried, scope.unstable, stmt.location)
            outer, self.out.block = self.out.block, []
            self.block(block, within)
            last = {name: within.vertices[name] for name in names if name in within.vertices}
            if falls_through(block):
                self.out.accumulate(within.region, last.values())
                ends.append(at)
            edges.append({name: within.region.into(vertex) for name, vertex in last.items()})
            sides.append(self.out.block)
            self.out.block = outer
        merged = {
            name: self.merged(stmt, found[name], [edges[at].get(name, {}) for at in ends], [sides[at] for at in ends])
            for name in names
        }
        self.out.block.append(ir.If(stmt.test, tuple(sides[0]), tuple(sides[1]), stmt.location))
        for name in targets((stmt,)):
            if name not in scope.carried:
                scope.vertices.pop(name, None)
        for name, into in merged.items():
            if into:
                scope.vertices[name] = self.vertex_of(scope.region, into, stmt.location)

    def merged(
        self, stmt: ir.If, result: ir.Var, edges: Sequence[_Edges], sides: Sequence[list[ir.Stmt]]
    ) -> dict[int, Edge]:
        """The edges into a result of a branch, from those at the ends of its sides, to which assignments are appended."""
        if len(sides) < 2:
            return dict(edges[0]) if edges else {}
        into: dict[int, Edge] = {}
        for source in dict.fromkeys([*edges[0], *edges[1]]):
            both = [each.get(source) for each in edges]
            one, other = both
            if one is not None and one == other:
                into[source] = one
                continue
            partial, outer = self.place(result, source), self.out.block
            flags = [ir.FALSE if edge is None else edge.flag for edge in both]
            there = [edge for edge in both if edge is not None]
            is_negative = len(there) == 2 and all(edge.is_negative for edge in there)
            for side, edge in zip(sides, both, strict=True):
                value: ir.Atom = ir.ZERO
                if edge is not None:
                    self.out.block = side
                    value = edge.partial if is_negative else self.out.signed(edge, stmt.location)
                side.append(ir.Assign(partial, value, stmt.location))
            self.out.block = outer
            flag: ir.Atom = ir.TRUE
            if flags == [ir.TRUE, ir.FALSE]:
                assert isinstance(stmt.test, ir.Atom)
                flag = stmt.test
            elif flags == [ir.FALSE, ir.TRUE]:
                flag = self.out.opposite(stmt.test, stmt.location)
            elif flags != [ir.TRUE, ir.TRUE]:
                flag = ir.Var(self.names.fresh(f"{partial.name}_there"), "bool")
                for side, value in zip(sides, flags, strict=True):
                    side.append(ir.Assign(flag, value, stmt.location))
            into[source] = Edge(
                partial,
                flag,
                frozenset({(flag, True)} if any(edge.unmasked for edge in there) else ()),
                begins=flag != ir.TRUE and len(there) == 2 and all(e.begins or e.flag == ir.TRUE for e in there),
                has_poles=any(edge.has_poles for edge in there),
                is_bounded=all(edge.is_bounded for edge in there),
                is_negative=is_negative,
            )
        return into

    def place(self, var: ir.Var, source: int) -> ir.Var:
        """A variable for the partial of another one in a source."""
        label = self.labels[source]
        base = ir.TEMPORARY if label[:1] == "_" or _UNNAMED.fullmatch(var.name) else f"{var.name}_d{label}"
        return ir.Var(self.names.fresh(base), "float")

    # --- loops ---------------------------------------------------------------------------------------------------

    def loop(self, stmt: ir.For | ir.While, scope: _Scope) -> None:
        """Append a loop with its partials; the variables that it changes get vertices."""
        where, out = stmt.location, self.out
        live = self.live(stmt, scope)
        is_fewer = self.is_fewer(live, scope)
        self.used = self.used._replace(loops=self.used.loops or is_fewer)
        given = self.given(live, scope, local=is_fewer and self.policy.loops)
        active = activity(flows((stmt,)), {name: frozenset(edges) for name, edges in given.items()})
        sure = {
            name: frozenset(source for source, edge in edges.items() if edge.flag == ir.TRUE)
            for name, edges in given.items()
        }
        presence = loop_presence(stmt, sure, active)
        bounded = bounded_names(stmt, given, active)
        reads, writes, found = read_counts((stmt,)), Counter(assigned((stmt,))), targets((stmt,))
        # The variables with a value from before the loop; and those of one iteration that are read after it.
        carried: dict[str, _Places] = {name: {} for name in found if self.writes[name] > writes[name]}
        exported: dict[str, _Places] = {}
        for name, var in found.items():
            is_read_later = self.reads[name] > reads[name]
            if name not in self.useful or not (is_read_later or (name in carried and name in reads)):
                continue
            places = carried[name] if name in carried else exported.setdefault(name, {})
            for source in sorted(active.get(name, ())):
                is_sure = source in presence.entry.get(name, NONE) & presence.after.get(name, NONE)
                place = self.place(var, source)
                flag = None if is_sure or name in bounded else ir.Var(self.names.fresh(f"{place.name}_there"), "bool")
                places[source] = place, flag
            if name in carried:
                pairs = self.parts(places, given.get(name, {}), where)
                out.block += [ir.Assign(*pair, where) for pair in pairs]

        def edges_of(name: str, places: _Places, sure: Directions, late: Directions) -> dict[int, Edge]:
            edges = {}
            for source, (place, flag) in places.items():
                there: ir.Atom = ir.TRUE
                if source not in sure.get(name, NONE):
                    there = flag or out.emit(ir.Op("ne", (place, ir.ZERO), "bool", where), where)
                begins = there != ir.TRUE and source in late.get(name, NONE)
                edges[source] = Edge(place, there, begins=begins, has_poles=True, is_bounded=name in bounded)
            return edges

        inner: list[ir.Block] = []
        within: _Scope | None = None
        for block in blocks(stmt):
            outer, out.block = out.block, []
            if within is None:
                initial = {name: edges for name, edges in given.items() if name not in carried}
                initial |= {
                    name: edges_of(name, places, presence.entry, presence.late) for name, places in carried.items()
                }
                unstable = scope.unstable.union(*map(_changing, blocks(stmt)))
                within = self.within(initial, carried, unstable, where)
            self.block(block, within)
            if falls_through(block):
                self.export({name: exported[name] for name in among(exported, block)}, within, where)
            inner.append(tuple(out.block))
            out.block = outer
        out.block.append(replace(stmt, body=inner[-1], **({} if len(inner) == 1 else {"pre": inner[0]})))
        for name in found:
            if name not in scope.carried:
                scope.vertices.pop(name, None)
        for name, places in {**carried, **exported}.items():
            if into := edges_of(name, places, presence.after, {}):
                scope.vertices[name] = scope.region.vertex(into, where)

    def export(self, exported: Mapping[str, _Places], scope: _Scope, where: Location) -> None:
        """Assign the partials of variables of one iteration that are read after the loop."""
        ends = {name: scope.vertices[name] for name in exported if name in scope.vertices}
        self.out.accumulate(scope.region, ends.values())
        for name, places in exported.items():
            edges: _Edges = scope.region.into(ends[name]) if name in ends else {}
            self.out.block += [ir.Assign(*pair, where) for pair in self.parts(places, edges, where)]

    def parts(self, places: _Places, edges: _Edges, where: Location) -> list[tuple[ir.Var, ir.Atom]]:
        """The partials and flags of a variable, by their places."""
        pairs: list[tuple[ir.Var, ir.Atom]] = []
        for source, (place, flag) in places.items():
            edge = edges.get(source)
            pairs.append((place, ir.ZERO if edge is None else self.out.exact(edge, where)))
            if flag is not None:
                pairs.append((flag, ir.FALSE if edge is None else edge.flag))
        return pairs


def _changing(block: ir.Block) -> frozenset[str]:
    """The names that loops in a block assign."""
    return frozenset(name for stmt in statements(block) if isinstance(stmt, ir.For | ir.While) for name in assigned((stmt,)))
