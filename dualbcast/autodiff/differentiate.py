"""Differentiation: from a function to one with its tangents in some directions. Each region, a straight run of
statements, is linearized, and what is between its sources and its results is eliminated.

A branch or a loop in a region is a vertex for each of its results. The partials of these are those in the variables
that it reads, or in the sources of the region around it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dualbcast.autodiff.activity import Flow, all_sources, flow_of
from dualbcast.autodiff.dual import Direction, Dual, label_of, unused_names
from dualbcast.autodiff.linearize import Edges, Linearizer, Region, new_vertex
from dualbcast.autodiff.loop_presence import LoopPresence
from dualbcast.autodiff.partial_variables import Partials, PartialVariables
from dualbcast.autodiff.presence import UNIT, Edge, kinds_of
from dualbcast.errors import Location
from dualbcast.ir import nodes as ir
from dualbcast.ir.builder import assign_together
from dualbcast.ir.traversal import (
    among,
    assigned,
    assignments,
    blocks,
    expressions,
    falls_through,
    read_counts,
    remove_dead,
    renamed_block,
    results,
    statements,
    targets,
    variables,
    work,
)


class _Locally(NamedTuple):
    """Whether branches and loops that read fewer variables than there are sources are differentiated in these."""

    branches: bool
    loops: bool


def differentiate(
    function: ir.Function,
    directions: Mapping[int, Direction],
    names: ir.Names | None = None,
    *,
    at_once: bool = False,
) -> Dual:
    """The function that returns the outputs of `function` and their tangents in some directions.

    `function` is as the front end gives it, or as `simplify` does: operations on atoms. `names` are those of the
    function that the result becomes part of, if it does. With `at_once` tangents are computed beside the values, but
    for those in loops, for targets with few registers: fewer values wait for others.
    """
    names = names or unused_names(function)
    mark = names.mark()
    first = _Differentiation(function, directions, names, _Locally(not at_once, True), at_once)
    duals = [first.run()]
    others = [_Locally(False, True)] * (first.used.branches and not at_once)
    for locally in others + [_Locally(False, False)] * first.used.loops:
        names.reset(mark)
        duals.append(_Differentiation(function, directions, names, locally, at_once).run())
    best = min(duals, key=lambda dual: work(remove_dead(dual.function).body)) if len(duals) > 1 else duals[0]
    names.take(assigned(best.function.body))
    names.take(output.name for output in best.function.outputs)
    return best


class _Scope(NamedTuple):
    """What the statements of a block belong to: the graph; the vertices of variables; the variables for the partials of
    what a loop around them carries, and of what is assigned in one iteration and read after the loop."""

    region: Region
    vertices: dict[str, int]
    carried: Mapping[str, Partials]
    exported: Mapping[str, Partials]


class _Facts:
    """What a branch or a loop contains; `inner` has the facts of those in it."""

    def __init__(self, stmt: ir.Stmt, flows: Mapping[int, Flow], inner: Mapping[int, _Facts]) -> None:
        self.targets: dict[str, ir.Var] = {}
        self.writes, self.reads = Counter[str](), Counter[str]()
        self.flows: list[Flow] = []
        # Whether the loop around a branch is left, or its next iteration started, on some path.
        self.jumps = False
        for part in (stmt, *[part for block in blocks(stmt) for part in block]):
            if facts := inner.get(id(part)):
                self.targets |= facts.targets
                self.writes.update(facts.writes)
                self.reads.update(facts.reads)
                self.flows += facts.flows
                self.jumps |= facts.jumps and isinstance(part, ir.If)
                continue
            self.jumps |= isinstance(part, ir.Break | ir.Continue)
            if isinstance(part, ir.Assign | ir.For):
                self.targets[part.target.name] = part.target
                self.writes[part.target.name] += 1
            self.reads.update([leaf.name for expr in expressions(part) for leaf in variables(expr)])
            if id(part) in flows:
                self.flows.append(flows[id(part)])

    def sources(self) -> set[str]:
        """The variables that derivatives come from."""
        return {name for flow in self.flows for name, _ in flow.sources}


class _Differentiation:
    def __init__(
        self,
        function: ir.Function,
        directions: Mapping[int, Direction],
        names: ir.Names,
        locally: _Locally,
        at_once: bool = False,
    ) -> None:
        self.function, self.directions, self.names = function, directions, names
        self.locally, self.at_once = locally, at_once
        # Where `locally` makes a difference.
        self.used = _Locally(False, False)
        self.out = Linearizer(names)
        self.reads, self.writes = read_counts(function), Counter(assigned(function.body))
        self.flows = {id(stmt): flow_of(stmt) for stmt in assignments(function.body) if stmt.target.kind == "float"}
        # Of branches and loops, from those inside to those outside.
        self.facts: dict[int, _Facts] = {}
        for stmt in reversed(statements(function.body)):
            if blocks(stmt):
                self.facts[id(stmt)] = _Facts(stmt, self.flows, self.facts)
        # The variables whose derivatives the outputs need.
        ends = [leaf.name for leaf in results(function) if leaf.kind == "float"]
        self.useful = all_sources(ends, [*self.flows.values()])
        self.variables = PartialVariables(self.out)

    def run(self) -> Dual:
        function, region, where = self.function, Region(), self.function.location
        sources = {seed: new_vertex() for seed in self.directions}
        into: dict[str, dict[int, Edge]] = {}
        for seed, direction in self.directions.items():
            self.variables.labels[sources[seed]] = direction.label
            for position, tangent in direction.tangents.items():
                edge = UNIT if tangent == ir.ONE else Edge(tangent)
                into.setdefault(function.params[position].name, {})[sources[seed]] = edge
        vertices = {name: region.vertex(edges, where) for name, edges in into.items()}
        self.block(function.body, _Scope(region, vertices, {}, {}))
        values = [output.value for output in function.outputs]
        ends = {at: vertices[x.name] for at, x in enumerate(values) if isinstance(x, ir.Var) and x.name in vertices}
        self.out.accumulate(region, ends.values())
        outputs, partials = list(function.outputs), {}
        for at, vertex in ends.items():
            edges = region.into(vertex)
            for seed in [seed for seed, source in sources.items() if source in edges]:
                name = self.names.fresh(f"{function.outputs[at].name}_d{self.directions[seed].label}")
                outputs.append(ir.Output(name, self.out.exact(edges[sources[seed]], where)))
                partials[at, seed] = name
        body = tuple(self.out.block)
        values_ = {*(param.name for param in function.params), *assigned(function.body)} - {*function.derived}
        derived = among({*assigned(body)} - values_, body)
        both = replace(function, body=body, outputs=tuple(outputs), derived=derived)
        return Dual(both, partials, tuple(self.out.plans))

    # --- statements ----------------------------------------------------------------------------------------------

    def block(self, block: ir.Block, scope: _Scope) -> None:
        """Append the statements of a block, with derivatives; the vertices of `scope` become those after it."""
        handed_on: list[ir.Assign] = []
        exported: list[str] = []
        jump: list[ir.Stmt] = []
        for stmt in block:
            match stmt:
                case ir.Assign(target=target):
                    (handed_on if target.name in scope.carried else self.out.block).append(stmt)
                    exported += [target.name] * (target.name in scope.exported)
                    scope.vertices.pop(target.name, None)
                    if target.name in self.useful and id(stmt) in self.flows:
                        edges = self.out.local_edges(stmt, scope.vertices)
                        if edges:
                            vertex = scope.vertices[target.name] = scope.region.vertex(edges, stmt.location)
                            if self.at_once and not scope.carried:
                                self.name_tangents(target, vertex, scope.region)
                case ir.If():
                    self.branch(stmt, self.facts[id(stmt)], scope)
                case ir.For() | ir.While():
                    self.loop(stmt, self.facts[id(stmt)], scope)
                case _:
                    jump.append(stmt)
        self.hand_on(handed_on, exported, scope)
        self.out.block += jump

    def name_tangents(self, target: ir.Var, vertex: int, region: Region) -> None:
        """Compute the partials of a value in the sources at once, in variables with names, which no pass moves."""
        if vertex not in region.edges or len(region.edges[vertex]) < 2 <= len(region.between([vertex])[1]):
            return  # a chain from a value with several partials is multiplied out at its end
        start = len(self.out.block)
        self.out.accumulate(region, [vertex])
        new, edges = targets(tuple(self.out.block[start:])), region.edges[vertex]
        partials = {at: edge.partial.name for at, edge in edges.items() if isinstance(edge.partial, ir.Var)}
        by = {name: self.variables.partial(target, at) for at, name in partials.items() if name in new}
        self.out.block[start:] = renamed_block(tuple(self.out.block[start:]), by)
        for source, edge in edges.items():
            edges[source] = replace(edge, partial=by.get(partials.get(source, ""), edge.partial))

    def hand_on(self, stmts: Sequence[ir.Assign], exported: Sequence[str], scope: _Scope) -> None:
        """Assign variables that a loop carries, together with their partials and those of variables that it exports."""
        values: dict[str, ir.Expr] = {}
        for stmt in stmts:
            same = values.get(stmt.value.name) if isinstance(stmt.value, ir.Var) else None
            values[stmt.target.name] = stmt.value if same is None else same
        names = [*values, *exported]
        where = stmts[0].location if stmts else self.function.location
        self.out.accumulate(scope.region, [scope.vertices[name] for name in names if name in scope.vertices])
        for name in names:
            partials = scope.carried[name] if name in scope.carried else scope.exported[name]
            values |= self.variables.values(partials, self.edges(name, scope), where)
        assign_together(values, self.names, self.out.block, where)

    def edges(self, name: str, scope: _Scope) -> Edges:
        """The edges into the vertex of a variable, if it has one."""
        return scope.region.into(scope.vertices[name]) if name in scope.vertices else {}

    # --- branches and loops --------------------------------------------------------------------------------------

    def live(self, facts: _Facts, scope: _Scope) -> dict[str, int]:
        """The vertices of the variables from before a branch or a loop that derivatives go through."""
        within = facts.targets.keys() | facts.sources()
        return {name: vertex for name, vertex in scope.vertices.items() if name in within}

    def is_local(self, kind: str, live: Mapping[str, int], scope: _Scope) -> bool:
        """Whether the live variables are the sources in a branch or a loop."""
        _, sources = scope.region.between(live.values())
        if len({*live.values()}) >= len(sources):
            return False
        self.used = self.used._replace(**{kind: True})
        self.variables.labels = {vertex: label_of(name) for name, vertex in live.items()} | self.variables.labels
        return bool(getattr(self.locally, kind))

    def within(self, names: Mapping[str, int], edges: Mapping[int, Edges], scope: _Scope, where: Location) -> _Scope:
        """The scope of a block inside a branch or a loop, from the vertices of names around it, with the edges into
        these from sources or from each other."""
        region = Region()
        inner: dict[int, int] = {}
        for vertex in sorted(edges):
            into = {inner.get(source, source): edge for source, edge in edges[vertex].items()}
            inner[vertex] = region.vertex(into, where)
        return scope._replace(region=region, vertices={name: inner[vertex] for name, vertex in names.items()})

    def after(self, facts: _Facts, into: Mapping[str, Edges], scope: _Scope, where: Location) -> None:
        """Give the results of a branch or a loop their vertices."""
        for name in facts.targets:
            if name not in scope.carried:
                scope.vertices.pop(name, None)
        scope.vertices.update({name: scope.region.vertex(edges, where) for name, edges in into.items() if edges})

    def branch(self, stmt: ir.If, facts: _Facts, scope: _Scope) -> None:
        """Append a branch with its partials; its results get vertices."""
        where, out = stmt.location, self.out
        found = [var for name, var in facts.targets.items() if name in self.useful and name not in scope.carried]
        found = [var for var in found if var.kind == "float" and self.reads[var.name] > facts.reads[var.name]]
        live = self.live(facts, scope)
        given: dict[int, Edges] = {vertex: {vertex: UNIT} for vertex in live.values()}
        # The partials of the variables that a loop carries are those in the sources of its region.
        if facts.jumps:
            out.accumulate(scope.region, given)
        if facts.jumps or not self.is_local("branches", live, scope):
            for vertex in sorted(given):
                out.accumulate(scope.region, [vertex], stops=given.keys() - {vertex})
                given[vertex] = scope.region.into(vertex)
        sides: list[list[ir.Stmt]] = []
        ends: list[tuple[list[ir.Stmt], _Scope]] = []
        for block in (stmt.then, stmt.orelse):
            within = self.within(live, given, scope, where)
            with out.inside([]) as side:
                self.block(block, within)
                sides.append(side)
                if falls_through(block):
                    vertices = within.vertices
                    out.accumulate(within.region, [vertices[var.name] for var in found if var.name in vertices])
                    ends.append((side, within))
        into: dict[str, Edges] = {}
        for var in found if ends else ():
            edges = [self.edges(var.name, within) for _, within in ends]
            into[var.name] = edges[0] if len(ends) < 2 else self.merged(stmt, var, edges, sides)
        out.block.append(ir.If(stmt.test, tuple(sides[0]), tuple(sides[1]), where))
        self.after(facts, into, scope, where)

    def merged(self, stmt: ir.If, var: ir.Var, edges: Sequence[Edges], sides: Sequence[list[ir.Stmt]]) -> Edges:
        """The edges into a result of a branch, from those at the ends of its sides; these get assignments."""
        where, out, into = stmt.location, self.out, dict[int, Edge]()
        assert isinstance(stmt.test, ir.Atom)
        for source in sorted({*edges[0], *edges[1]}):
            both = [each.get(source) for each in edges]
            there = [edge for edge in both if edge is not None]
            if both[0] == both[1]:
                into[source] = there[0]
                continue
            partial = self.variables.partial(var, source)
            flags = [ir.FALSE if edge is None else edge.flag for edge in both]
            factor = there[0].factor if len({edge.factor for edge in there}) == len(there[1:]) else 1.0
            for side, edge in zip(sides, both, strict=True):
                with out.inside(side):
                    value: ir.Atom = ir.ZERO
                    if edge is not None:
                        value = out.scaled(edge, where) if factor == 1 else edge.partial
                    out.assign(partial, value, where)
            flag: ir.Atom = ir.TRUE
            if flags == [ir.TRUE, ir.FALSE]:
                flag = stmt.test
            elif flags == [ir.FALSE, ir.TRUE]:
                flag = out.opposite(stmt.test, where)
            elif flags != [ir.TRUE, ir.TRUE]:
                flag = merged = self.variables.flag(partial)
                for side, there_ in zip(sides, flags, strict=True):
                    side.append(ir.Assign(merged, there_, where))
            into[source] = Edge(
                partial,
                factor,
                flag,
                frozenset({(flag, True)} if any(edge.unmasked for edge in there) else ()),
                begins=flag != ir.TRUE and len(there) == 2 and all(e.begins or e.flag == ir.TRUE for e in there),
                **kinds_of(*there),
            )
        return into

    def loop(self, stmt: ir.For | ir.While, facts: _Facts, scope: _Scope) -> None:
        """Append a loop with its partials; the variables that it changes get vertices."""
        where, out = stmt.location, self.out
        live = self.live(facts, scope)
        if self.is_local("loops", live, scope):
            given: dict[str, Edges] = {name: {vertex: UNIT} for name, vertex in live.items()}
        else:
            out.accumulate(scope.region, live.values())
            given = {name: scope.region.into(vertex) for name, vertex in live.items()}
        # The variables with a value from before the loop, and those of one iteration that are read after it.
        carried: dict[str, Partials] = {name: {} for name in facts.targets if self.writes[name] > facts.writes[name]}
        exported: dict[str, Partials] = {}
        loop = LoopPresence(stmt, facts.flows, given, carried)
        for name in facts.targets:
            if self.is_read(name, facts, inside=name in carried):
                partials = (carried if name in carried else exported).setdefault(name, {})
                partials.update(self.variables.of(facts.targets[name], loop))
            if name in carried:
                self.variables.assign(carried[name], given.get(name, {}), where)

        inner = [list[ir.Stmt]() for _ in blocks(stmt)]
        with out.inside(inner[0]):
            names = {name: vertex for name, vertex in live.items() if name not in carried}
            edges = {vertex: given[name] for name, vertex in names.items()}
            for name, partials in carried.items():
                if at_entry := self.variables.edges(name, partials, loop, loop.entry, where, begins=True):
                    names[name] = new_vertex()
                    edges[names[name]] = at_entry
            within = self.within(names, edges, scope._replace(carried=carried, exported=exported), where)
        for block, new in zip(blocks(stmt), inner, strict=True):
            with out.inside(new):
                self.block(block, within)
        *pre, body = map(tuple, inner)
        if isinstance(stmt, ir.While):
            stmt = replace(stmt, pre=pre[0])
        out.block.append(replace(stmt, body=body))
        every = {**carried, **exported}
        results = {name: self.variables.edges(name, held, loop, loop.after, where) for name, held in every.items()}
        self.after(facts, results, scope, where)

    def is_read(self, name: str, facts: _Facts, *, inside: bool) -> bool:
        """Whether the derivative of a variable is needed after a loop, or in its next iteration."""
        return name in self.useful and (self.reads[name] > facts.reads[name] or (inside and name in facts.reads))
