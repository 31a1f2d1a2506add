"""The variables for partials of values that several paths assign: results of branches, and what loops carry."""

from __future__ import annotations

import re

from dualbcast.autodiff.activity import NONE, Directions
from dualbcast.autodiff.linearize import Edges, Linearizer
from dualbcast.autodiff.loop_presence import LoopPresence
from dualbcast.autodiff.presence import Edge
from dualbcast.errors import Location
from dualbcast.ir import nodes as ir

_UNNAMED = re.compile(rf"{ir.TEMPORARY}(#\d+)?")
# The variables for the partials of another one, by source, and for the flags of those that may be absent.
Partials = dict[int, tuple[ir.Var, ir.Var | None]]


class PartialVariables:
    """Names such variables, assigns them, and has the edges that they hold."""

    def __init__(self, out: Linearizer) -> None:
        self.out = out
        # Names for the sources.
        self.labels: dict[int, str] = {}

    def partial(self, var: ir.Var, source: int) -> ir.Var:
        """A variable for the partial of another one in a source."""
        label = self.labels[source]
        base = ir.TEMPORARY if label[:1] == "_" or _UNNAMED.fullmatch(var.name) else f"{var.name}_d{label}"
        return ir.Var(self.out.names.fresh(base), "float")

    def flag(self, partial: ir.Var) -> ir.Var:
        """A variable that tells whether a partial is present."""
        return ir.Var(self.out.names.fresh(f"{partial.name}_there"), "bool")

    def of(self, var: ir.Var, loop: LoopPresence) -> Partials:
        """The variables for the partials of another one in a loop."""
        partials: Partials = {}
        for source in sorted(loop.active.get(var.name, NONE)):
            partial = self.partial(var, source)
            partials[source] = partial, self.flag(partial) if loop.needs_flag(var.name, source) else None
        return partials

    def values(self, partials: Partials, edges: Edges, where: Location) -> dict[str, ir.Atom]:
        """The values of the partials and flags of a variable, by the names of the variables that hold them."""
        values: dict[str, ir.Atom] = {}
        for source, (partial, flag) in partials.items():
            edge = edges.get(source)
            values[partial.name] = ir.ZERO if edge is None else self.out.exact(edge, where)
            if flag is not None:
                values[flag.name] = ir.FALSE if edge is None else edge.flag
        return values

    def assign(self, partials: Partials, edges: Edges, where: Location) -> None:
        """Assign the partials and flags of a variable."""
        for name, value in self.values(partials, edges, where).items():
            self.out.assign(ir.Var(name, value.kind), value, where)

    def edges(
        self, name: str, held: Partials, loop: LoopPresence, sure: Directions, where: Location, *, begins: bool = False
    ) -> Edges:
        """The edges into a variable of a loop where it depends on the directions in `sure` along every path; `begins`
        at the beginning of an iteration."""
        edges = {}
        for source, (partial, flag) in held.items():
            there: ir.Atom = ir.TRUE
            if source not in sure.get(name, NONE):
                # A partial made of constants is zero only where it is absent.
                there = flag or self.out.operate("ne", partial, ir.ZERO, kind="bool", where=where)
            is_late = begins and there != ir.TRUE and source in loop.late.get(name, NONE)
            is_fixed = name in loop.fixed
            edges[source] = Edge(partial, 1.0, there, begins=is_late, has_poles=not is_fixed, is_fixed=is_fixed)
        return edges
