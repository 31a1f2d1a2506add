"""The analyses before differentiation: the directions in which each variable has a derivative, the variables whose
derivatives are needed, and the local partials of operations.

The sets of directions are the smallest that the program's assignments allow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeGuard

from dualbcast.errors import CompileError
from dualbcast.frontend.lower import partials_of
from dualbcast.ir import nodes as ir
from dualbcast.ir.traversal import assignments, operations_of, results
from dualbcast.rules.curvatures import quotient_slope
from dualbcast.rules.table import CUSTOMS

# The partial of a function that is marked as not differentiable. It is an error if an output depends on it.
UNKNOWN = ir.Const(math.nan, "float")
_NOTHING = ir.Function("", (), (), ())
# A set of directions for every name.
Directions = Mapping[str, frozenset[Hashable]]
NONE: frozenset[Hashable] = frozenset()
# Operations through which a partial becomes infinite where the value need not be.
_POLES = frozenset({"div", "log", "log2", "log10", "log1p", "pow", "lgamma", "tgamma", "digamma", "polygamma"})


# For each assignment of a block, in order: its target, and the variables that the value depends on differentiably.
Flows = Sequence[tuple[str, Sequence[str]]]


def flows(block: ir.Block) -> Flows:
    """The differentiable dependences of the floats that a block assigns."""
    return [
        (stmt.target.name, [source.name for source in differentiable(stmt.value)])
        for stmt in assignments(block)
        if stmt.target.kind == "float"
    ]


def activity(steps: Flows, seeds: Directions) -> dict[str, frozenset[Hashable]]:
    """For every name, the directions that its value can depend on; `seeds` are those of names that have their values
    before."""
    sets = dict(seeds)
    changed = True
    while changed:
        changed = False
        for name, sources in steps:
            more = NONE.union(*[sets.get(source, NONE) for source in sources]) - sets.get(name, NONE)
            if more:
                sets[name] = sets.get(name, NONE) | more
                changed = True
    return sets


def all_sources(names: Iterable[str], steps: Flows) -> set[str]:
    """The names, and all that their values depend on."""
    needed = set(names)
    size = -1
    while size != len(needed):
        size = len(needed)
        for name, sources in reversed(steps):
            if name in needed:
                needed.update(sources)
    return needed


def differentiable(value: ir.Expr) -> list[ir.Var]:
    """The variables that a value depends on through a partial that is not zero everywhere."""
    return [source for source, _ in links(value)]


def links(value: ir.Expr) -> list[tuple[ir.Var, ir.Expr]]:
    """The variables that a value depends on, and its partial in each; 1 for a copy and for the sides of a select."""
    if isinstance(value, ir.Var):
        return [(value, ir.ONE)]
    if not isinstance(value, ir.Op) or value.name in ("to_float", "to_int"):
        return []
    if value.name == "select":
        return [(side, ir.ONE) for side in value.args[1:] if isinstance(side, ir.Var)]
    pairs = zip(value.args, partials_at(value)[2], strict=True)
    return [(arg, partial) for arg, partial in pairs if isinstance(arg, ir.Var) and not is_zero(partial)]


def is_finite(partial: ir.Expr) -> bool:
    """Whether a partial is one finite number everywhere."""
    return isinstance(partial, ir.Const) and math.isfinite(partial.value)


def is_zero(partial: ir.Expr) -> bool:
    """Whether a partial is zero everywhere: it is absent, and never multiplied."""
    return isinstance(partial, ir.Const) and partial.value == 0


def is_marked(value: ir.Expr) -> TypeGuard[ir.Op]:
    """Whether a value is of a function that is marked as not differentiable."""
    return isinstance(value, ir.Op) and value.name in CUSTOMS and CUSTOMS[value.name].partials is None


def refuse_marked(function: ir.Function, active: Directions) -> None:
    """Refuse to differentiate a function that is marked as not differentiable, where an output depends on it."""
    assigns = assignments(function.body)
    marked = [
        (stmt, CUSTOMS[stmt.value.name].label)
        for stmt in assigns
        if is_marked(stmt.value) and any(active.get(arg.name) for arg in stmt.value.args[1:] if isinstance(arg, ir.Var))
    ]
    if not marked:
        return
    steps = [(stmt.target.name, [source.name for source in _carriers(stmt.value)]) for stmt in assigns]
    needed = all_sources((value.name for value in results(function) if value.kind == "float"), steps)
    for stmt, name in marked:
        if stmt.target.name in needed:
            raise CompileError(
                f"{name}() is marked as not differentiable, and its derivative is needed here",
                stmt.location,
                f"dualbcast.stop_derivative({name}(...)) for a derivative of zero, or give {name}() custom_partials",
            )


def _carriers(value: ir.Expr) -> list[ir.Var]:
    """The variables that a value is computed from, unless a step ends differentiation on purpose."""
    if isinstance(value, ir.Op) and value.name not in CUSTOMS and (value.name == "to_float" or value.kind == "int"):
        ends = value.name == "to_int" and value.args[0].kind == "float"
        return [] if ends else [arg for arg in value.args if isinstance(arg, ir.Var)]
    # Tests look at values only.
    is_test = isinstance(value, ir.Op) and value.kind == "bool" and value.name not in CUSTOMS
    return [] if is_test else differentiable(value)


# --- partials of operators and rules --------------------------------------------------------------------------------

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
    if is_marked(value):
        return _NOTHING, (), [ir.ZERO, *[UNKNOWN] * (len(value.args) - 1)]
    template, args, partials = partials_of(value, _OPERATORS)
    # The first argument of a custom derivative is its value, in which the partial is zero by definition.
    return template, args, [ir.ZERO] * (value.name in CUSTOMS) + partials


def may_be_infinite(value: ir.Op) -> bool:
    """Whether a partial of an operation can be infinite at finite arguments."""
    operations = operations_of(partials_at(value)[0])
    return any(op.name in _POLES and not isinstance(op.args[-1], ir.Const) for op in operations)
