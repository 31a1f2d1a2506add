"""Presence in a loop: the directions that its variables depend on along every path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dualbcast.autodiff.activity import NONE, Directions, Flow, activity, fixed, presence
from dualbcast.autodiff.linearize import Edges
from dualbcast.ir import nodes as ir
from dualbcast.ir.traversal import breaks, known_iterations, statements


class LoopPresence:
    """The directions that the variables of a loop depend on along every path: when an iteration begins, when one after
    the first few begins, and after the loop; and the names whose partials are made of constants alone."""

    def __init__(
        self, stmt: ir.For | ir.While, flows: Sequence[Flow], given: Mapping[str, Edges], carried: Iterable[str]
    ) -> None:
        every = {name: frozenset(edges) for name, edges in given.items()}
        self.active = activity(flows, every)
        self.fixed = fixed(
            flows, [name for name, edges in given.items() if not all(edge.is_fixed for edge in edges.values())]
        )
        before = {
            name: frozenset(at for at, edge in edges.items() if edge.flag == ir.TRUE) for name, edges in given.items()
        }
        start: Directions = {**before} | {name: before.get(name, NONE) for name in carried if name in self.active}
        while True:
            present, ends = presence(flows, self.active, start)
            kept = {name: here & ends.get(name, here) for name, here in start.items()}
            if kept == start:
                break
            start = kept
        self.entry: Directions = start
        self.after: Directions = present
        self.late: Directions = start
        if any(isinstance(part, ir.Continue) for part in statements(stmt.body, in_loops=False)):
            return  # an iteration may leave variables as they were
        least = 0 if isinstance(stmt, ir.While) or breaks(stmt.body) else known_iterations(stmt) or 0
        while True:
            _, ends = presence(flows, self.active, start)
            later = {**start} | {name: ends[name] for name in start.keys() & ends.keys()}
            if least > 0:
                self.after, least = {**present, **later}, least - 1
            if later == start:
                break
            start = later
        self.late = start

    def needs_flag(self, name: str, source: int) -> bool:
        """Whether the value of a variable may be absent when an iteration begins, or after the loop."""
        sure = self.entry.get(name, NONE) & self.after.get(name, NONE)
        return name not in self.fixed and source not in sure
