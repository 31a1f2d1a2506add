"""Bugs for `test_planted.py`: each is a change of a module's source that the fuzzer must find."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

from dualbcast.autodiff import activity, differentiate, eliminate, linearize, loop_presence, partial_variables, presence
from dualbcast.frontend import paths
from dualbcast.ir import simplification, traversal, value_numbers
from dualbcast.passes import readable_form
from dualbcast.rules import library

__all__ = ["BUGS", "Bug"]


@dataclass(frozen=True)
class Bug:
    """A fragment of a module's source, which must be there once, and what it is replaced by."""

    what: str
    module: ModuleType
    right: str
    wrong: str


BUGS = [
    Bug(
        "a product subtracted the wrong way round where both become one operation",
        simplification,
        'name=ir.MULADD if value.name == "add" else ir.SUBMUL',
        'name=ir.MULADD if value.name == "add" else ir.MULSUB',
    ),
    Bug(
        "the partial of select's second side dropped",
        linearize,
        "zip(sides, (test, self.opposite(test, where)), strict=True)",
        "[(sides[0], test)]",
    ),
    Bug(
        "the sides of a select exchanged",
        linearize,
        "zip(sides, (test,",
        "zip(sides[::-1], (test,",
    ),
    Bug(
        "the partial of the side that is not chosen counted",
        linearize,
        "chosen = replace(UNIT, flag=flag, unmasked=self.conditions(flag))",
        "chosen = replace(UNIT, flag=flag)",
    ),
    Bug(
        "one of two uses of a name in one operation forgotten",
        linearize,
        "edge if before is None else self.total(before, edge, where)",
        "edge",
    ),
    Bug(
        "the sign of a negated partial forgotten",
        linearize,
        "return target, (operand, -1.0)",
        "return target, (operand, 1.0)",
    ),
    Bug(
        "a way through a vertex that forgets the partial before it",
        linearize,
        "way = self.product(first, second, where)",
        "way = second",
    ),
    Bug(
        "a value that is one along some paths only taken for its source",
        linearize,
        "if edge == UNIT:",
        "if edge.partial == ir.ONE:",
    ),
    Bug(
        "the last vertex of each order left out",
        linearize,
        "        for vertex in order:\n            into,",
        "        for vertex in [*order][:-1]:\n            into,",
    ),
    Bug(
        "chains left in the graph",
        eliminate,
        "return Plan((*chain, *best), name, costs)",
        "return Plan(best, name, costs)",
    ),
    Bug(
        "an end eliminated",
        eliminate,
        "self.inner = set(edges) - ends",
        "self.inner = set(edges)",
    ),
    Bug(
        "the flag of a product that of one factor",
        presence,
        "flag, unmasked, begins = self.both(one.flag, other.flag, where),",
        "flag, unmasked, begins = one.flag,",
    ),
    Bug(
        "the masks of one factor forgotten",
        presence,
        "one.unmasked | other.unmasked, True",
        "one.unmasked, True",
    ),
    Bug(
        "negative terms added",
        presence,
        'self.operate("sub" if signs[0] != signs[1] else "add", *partials',
        'self.operate("add", *partials',
    ),
    Bug(
        "a difference the wrong way round",
        presence,
        "            if signs == (-1, 1):\n                partials.reverse()\n            elif signs == (-1, -1):",
        "            if signs == (-1, -1):",
    ),
    Bug(
        "the sides of exclusive terms exchanged",
        presence,
        "            if (test, False) in self.conditions(one.flag):\n                partials.reverse()\n",
        "",
    ),
    Bug(
        "a product of two negative partials that is negative",
        presence,
        "factor, operands = one.factor * other.factor, (one.partial, other.partial)",
        "factor, operands = min(one.factor * other.factor, one.factor), (one.partial, other.partial)",
    ),
    Bug(
        "a sum that is there only where both terms are",
        presence,
        'self.operate("or", one.flag',
        'self.operate("and", one.flag',
    ),
    Bug(
        "two factors with one condition taken for exclusive",
        presence,
        "if (test, not result) in others",
        "if (test, result) in others",
    ),
    Bug(
        "a mask by a false test on the wrong side",
        presence,
        "if result else (ir.ZERO, partial)",
        "if True else (ir.ZERO, partial)",
    ),
    Bug(
        "terms with different masks added without them",
        presence,
        "            partials = [self._masked(*pair, where) for pair in zip(partials, masks, strict=True)]\n",
        "",
    ),
    Bug(
        "a flag of the opposite test taken for that of the test",
        presence,
        "self._conditions[flag.name] = frozenset({(test, False)})",
        "self._conditions[flag.name] = frozenset({(test, True)})",
    ),
    Bug(
        "a conjunction that is its last condition",
        presence,
        "flag = self.both(flag, test if result else",
        "flag = self.both(ir.TRUE, test if result else",
    ),
    Bug(
        "presence before a loop taken for that in each iteration",
        loop_presence,
        "here & ends.get(name, here)",
        "here",
    ),
    Bug(
        "activity not followed around loops: a silent zero",
        activity,
        "active[target] = active.get(target, NONE) | more\n                changed = True",
        "active[target] = active.get(target, NONE) | more",
    ),
    Bug(
        "conditions of the sides of a branch exchanged",
        differentiate,
        "if flags == [ir.TRUE, ir.FALSE]:",
        "if flags == [ir.FALSE, ir.TRUE]:",
    ),
    Bug(
        "no zero on the side without a derivative",
        differentiate,
        "                    out.assign(partial, value, where)",
        "                    if edge is not None:\n                        out.assign(partial, value, where)",
    ),
    Bug(
        "a side's partial without its sign",
        differentiate,
        "value = out.scaled(edge, where) if factor == 1 else edge.partial",
        "value = edge.partial",
    ),
    Bug(
        "one side's edge for both",
        differentiate,
        "if both[0] == both[1]:",
        "if there[0] == there[-1]:",
    ),
    Bug(
        "own variables as sources beside jumps",
        differentiate,
        "if facts.jumps or not self.is_local(",
        "if not self.is_local(",
    ),
    Bug(
        "values handed on one after the other",
        differentiate,
        "assign_together(values, self.names, self.out.block, where)",
        "[self.out.assign(ir.Var(name, value.kind), value, where) for name, value in values.items()]",
    ),
    Bug(
        "the vertex of a value that a variable no longer has",
        differentiate,
        "                    scope.vertices.pop(target.name, None)\n                    if",
        "                    if",
    ),
    Bug(
        "partials handed on one after the other",
        differentiate,
        "values |= self.variables.values(partials, self.edges(name, scope), where)",
        "self.variables.assign(partials, self.edges(name, scope), where)",
    ),
    Bug(
        "derivatives from before a loop forgotten",
        differentiate,
        "self.variables.assign(carried[name], given.get(name, {}), where)",
        "self.variables.assign(carried[name], {}, where)",
    ),
    Bug(
        "partials of carried variables without masks and signs",
        partial_variables,
        "ir.ZERO if edge is None else self.out.exact(edge, where)",
        "ir.ZERO if edge is None else edge.partial",
    ),
    Bug(
        "outputs without masks and signs",
        differentiate,
        "outputs.append(ir.Output(name, self.out.exact(edges[sources[seed]], where)))",
        "outputs.append(ir.Output(name, edges[sources[seed]].partial))",
    ),
    Bug(
        "derivatives of one side only",
        differentiate,
        "within = self.within(live, given, scope, where)",
        "within = self.within(live if block is stmt.then else {}, given, scope, where)",
    ),
    Bug(
        "the partials of the source of a copy",
        differentiate,
        "self.hand_on(handed_on, exported, scope)\n        self",
        "self.hand_on(handed_on[:1], exported, scope)\n        self",
    ),
    Bug(
        "tangents beside the values: a value's tangent in one source named for all",
        differentiate,
        'partial=by.get(partials.get(source, ""), edge.partial)',
        "partial=next(iter(by.values()), edge.partial)",
    ),
    Bug(
        "the constant factor of a sum forgotten",
        presence,
        "partials = [self.scaled(part, where) for part in parts]",
        "partials = [part.partial for part in parts]",
    ),
    Bug(
        "the factor of one of two equal factors and opposite signs",
        presence,
        "signs, factor = (1, -1) if factor > 0 else (-1, 1), abs(factor)",
        "signs, factor = (1, -1), abs(factor)",
    ),
    Bug(
        "the factor of a mask forgotten",
        presence,
        "return self.scaled(Edge(masked, edge.factor), where)",
        "return masked",
    ),
    Bug(
        "a factor multiplied twice",
        presence,
        "return replace(edge, partial=self.scaled(edge, where), factor=1.0)",
        "return replace(edge, partial=self.scaled(edge, where))",
    ),
    Bug(
        "a way to another end left out",
        linearize,
        "if source in reached}",
        "if source in reached and source not in {*ends}}",
    ),
    Bug(
        "edges through other variables taken for those from sources",
        differentiate,
        "into = {inner.get(source, source): edge for source, edge in edges[vertex].items()}",
        "into = {source: edge for source, edge in edges[vertex].items()}",
    ),
    Bug(
        "only the first of several targets of a vertex",
        linearize,
        "            for target in targets:\n                second",
        "            for target in targets[:1]:\n                second",
    ),
    Bug(
        "the second way to one source dropped",
        linearize,
        "                    if way is not None:\n",
        "                    if way is not None and source not in edges[target]:\n",
    ),
    Bug(
        "factors of both sides taken for equal",
        differentiate,
        "factor = there[0].factor if len({edge.factor for edge in there}) == len(there[1:]) else 1.0",
        "factor = there[0].factor",
    ),
    Bug(
        "value numbering that does not see a loop's assignments",
        simplification,
        "            self.renew(target)\n        outside, self.before = self.before, {}",
        "            pass\n        outside, self.before = self.before, {}",
    ),
    Bug(
        "after a branch, a name taken to hold what its first side gave it",
        value_numbers,
        "if number != found[-1]:",
        "if False:",
    ),
    Bug(
        "a common subexpression whose holder has another value by now",
        simplification,
        "if self.holds(self.holders[number], number):\n                value",
        "if self.holders[number] != stmt.target:\n                value",
    ),
    Bug(
        "`continue` removed as dead code",
        traversal,
        "                is_needed = in_live_loop\n",
        "                is_needed = in_live_loop and isinstance(stmt, ir.Break)\n",
    ),
    Bug(
        "dead-code removal that drops what only a loop's next iteration needs",
        traversal,
        "    while size != len(live):\n        size = len(live)\n        needed = map",
        "    if size != len(live):\n        size = len(live)\n        needed = map",
    ),
    Bug(
        "a temporary moved past an assignment to what it reads",
        readable_form,
        "                    new += self.flush(self.touched({stmt.target.name}))\n",
        "",
    ),
    Bug(
        "a swap done one assignment after the other",
        paths,
        "if not any(target in variables(other) for _, other in others):",
        "if True:",
    ),
    Bug(
        "a wrong row of the rule table",
        library,
        'rule("sinh", lambda x, y: (math.cosh(x),)',
        'rule("sinh", lambda x, y: (math.cosh(y),)',
    ),
]
