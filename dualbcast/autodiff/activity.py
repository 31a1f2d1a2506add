"""The analyses before differentiation: local partials of operations, the directions in which each variable has a
derivative along some path or along every path, and the variables whose derivatives are needed.

A name has one value, or copies of several where paths merge, so that the order of assignments does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from dualbcast.frontend.lower import partials_of
from dualbcast.ir import nodes as ir
from dualbcast.ir.traversal import operations_of
from dualbcast.rules.curvatures import quotient_slope
from dualbcast.rules.table import CUSTOMS

# The partial of a function that is marked as not differentiable. It is an error if an output depends on it.
UNKNOWN = ir.Const(math.nan, "float")
_NOTHING = ir.Function("", (), (), ())
# Operations through which a partial becomes infinite where the value need not be.
_POLES = frozenset({"div", "log", "log2", "log10", "log1p", "pow", "lgamma", "tgamma", "digamma", "polygamma"})

# --- local partials -------------------------------------------------------------------------------------------------

# The rules of operators, in the form of the table's. Their arguments are floats; integers carry no derivative.
_OPERATORS: dict[str, Callable[..., object]] = {
    "add": lambda a, b, y: (1.0, 1.0),  # noqa: ARG005
    "sub": lambda a, b, y: (1.0, -1.0),  # noqa: ARG005
    "mul": lambda a, b, y: (b, a),  # noqa: ARG005
    # One slow division serves both partials. It overflows only for a subnormal b, as the partial in a does; then 0 / b
    # has nan for its partial in b, where -(y / b) would not.
    "div": lambda a, b, y: (1.0 / b, -quotient_slope(y, b)),  # noqa: ARG005
    "neg": lambda a, y: (-1.0,),  # noqa: ARG005
    "single": lambda a, y: (1.0,),  # noqa: ARG005
}


def partials_at(value: ir.Op) -> tuple[ir.Function, Sequence[ir.Expr], list[ir.Expr]]:
    """The partials of an operation in its arguments, as a function of some of those and of its result."""
    if value.name in ("to_float", "to_int", ir.READ, ir.BOUNDED):
        return _NOTHING, (), [ir.ZERO] * len(value.args)
    if is_marked(value):
        return _NOTHING, (), [ir.ZERO, *[UNKNOWN] * (len(value.args) - 1)]
    template, args, partials = partials_of(value, _OPERATORS)
    # The first argument of a custom derivative is its value, in which the partial is zero by definition.
    return template, args, [ir.ZERO] * (value.name in CUSTOMS) + partials


def is_marked(value: ir.Expr) -> bool:
    """Whether a value is that of a function that is marked as not differentiable."""
    return isinstance(value, ir.Op) and value.name in CUSTOMS and CUSTOMS[value.name].partials is None


def is_zero(partial: ir.Expr) -> bool:
    """Whether a partial is zero everywhere: it is absent, and never multiplied."""
    return isinstance(partial, ir.Const) and partial.value == 0


def is_finite(partial: ir.Expr) -> bool:
    """Whether a partial is one finite number everywhere."""
    return isinstance(partial, ir.Const) and math.isfinite(partial.value)


def may_be_infinite(value: ir.Op) -> bool:
    """Whether a partial of an operation can be infinite at finite arguments."""
    operations = operations_of(partials_at(value)[0])
    return any(op.name in _POLES and not isinstance(op.args[-1], ir.Const) for op in operations)


# --- dependences ----------------------------------------------------------------------------------------------------

# The sources that names depend on: any that can be compared.
Directions = Mapping[str, frozenset[int]]
NONE: frozenset[int] = frozenset()


class Flow(NamedTuple):
    """The variables that the value of a float depends on through partials that are not zero everywhere, each with
    whether its partial is one finite number. A choice depends on one of its sources, another value on all of them."""

    target: str
    sources: tuple[tuple[str, bool], ...]
    is_choice: bool = False


def flow_of(stmt: ir.Assign) -> Flow:
    """The dependences of what a statement assigns."""
    target, value = stmt.target.name, stmt.value
    if isinstance(value, ir.Var):
        return Flow(target, ((value.name, True),))
    if not isinstance(value, ir.Op):
        return Flow(target, ())
    if value.name == "select":
        sides = [(side.name, True) if isinstance(side, ir.Var) else ("", True) for side in value.args[1:]]
        return Flow(target, tuple(sides), is_choice=True)
    pairs = zip(value.args, partials_at(value)[2], strict=True)
    sources = [(arg.name, is_finite(to)) for arg, to in pairs if isinstance(arg, ir.Var) and not is_zero(to)]
    return Flow(target, tuple(sources))


def activity(flows: Sequence[Flow], seeds: Directions) -> dict[str, frozenset[int]]:
    """For every name, the directions that its value depends on along some path; `seeds` are those of other names."""
    active = dict(seeds)
    changed = True
    while changed:
        changed = False
        for target, sources, _ in flows:
            more = NONE.union(*[active.get(name, NONE) for name, _ in sources]) - active.get(target, NONE)
            if more:
                active[target] = active.get(target, NONE) | more
                changed = True
    return active


def presence(flows: Sequence[Flow], active: Directions, start: Directions) -> tuple[Directions, Directions]:
    """For every name, the directions that its value depends on along every path; `start` are those of names from
    before. The first result has those names at the start, and the second what is assigned to them."""
    present = {**active, **start}
    while True:
        assigned: dict[str, frozenset[int]] = {}
        for target, sources, is_choice in flows:
            those = [present.get(name, NONE) for name, _ in sources]
            here = NONE.union(*those) if not (is_choice and those) else those[0].intersection(*those)
            assigned[target] = assigned.get(target, here) & here
        new = {**present, **assigned, **start}
        if new == present:
            return present, assigned
        present = new


def fixed(flows: Sequence[Flow], varying: Iterable[str]) -> set[str]:
    """The names whose derivatives are made of constants alone, where those of some names are not."""
    varying = set(varying)
    size = -1
    while size != len(varying):
        size = len(varying)
        varying.update(to for to, sources, _ in flows if any(name in varying or not known for name, known in sources))
    return {flow.target for flow in flows} - varying


def all_sources(names: Iterable[str], flows: Sequence[Flow]) -> set[str]:
    """The names, and all that their values depend on."""
    needed = set(names)
    size = -1
    while size != len(needed):
        size = len(needed)
        for target, sources, _ in reversed(flows):
            if target in needed:
                needed.update(name for name, _ in sources)
    return needed
