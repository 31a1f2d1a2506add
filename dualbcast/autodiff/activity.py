"""Activity analysis: the directions in which each variable has a derivative; and the local partials of operations.

The sets of directions are the smallest that the program's assignments allow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard

from dualbcast.errors import CompileError
from dualbcast.frontend.rule_bodies import partials_of, source_of
from dualbcast.ir.nodes import ZERO, Const, Expr, Function, Op, Var
from dualbcast.ir.traversal import assignments
from dualbcast.rules.curvatures import quotient_slope
from dualbcast.rules.table import CUSTOMS

__all__ = ["activity", "differentiable", "is_marked", "partials_at", "refuse_marked"]

# The partial of a function that is marked as not differentiable. It is an error if an output depends on it.
UNKNOWN = Const(math.nan, "float")
_NOTHING = Function("", (), (), ())


def activity(function: Function, seeds: Mapping[str, frozenset[int]]) -> dict[str, frozenset[int]]:
    """For every name, the directions that its value can depend on differentiably; `seeds` are those of parameters."""
    active = dict(seeds)
    assigns = assignments(function.body)
    changed = True
    while changed:
        changed = False
        for stmt in assigns:
            if stmt.target.kind != "float":
                continue
            directions = active.get(stmt.target.name, frozenset()).union(
                *(active.get(arg.name, frozenset()) for arg in differentiable(stmt.value))
            )
            if directions != active.get(stmt.target.name, frozenset()):
                active[stmt.target.name] = directions
                changed = True
    return active


def differentiable(value: Expr) -> list[Var]:
    """The variables that a value depends on through a partial that is not zero everywhere."""
    if isinstance(value, Var):
        return [value]
    if not isinstance(value, Op):
        return []
    if value.name in ("to_float", "to_int"):
        return []
    if value.name == "select":
        return [arg for arg in value.args[1:] if isinstance(arg, Var)]
    flat = [not (isinstance(part, Const) and part.value == 0) for part in partials_at(value)[2]]
    return [arg for arg, smooth in zip(value.args, flat, strict=True) if smooth and isinstance(arg, Var)]


def is_marked(value: Expr) -> TypeGuard[Op]:
    """Whether a value is of a function that is marked as not differentiable."""
    return isinstance(value, Op) and value.name in CUSTOMS and CUSTOMS[value.name].partials is None


def refuse_marked(function: Function, active: dict[str, frozenset[int]]) -> None:
    """Refuse to differentiate a function that is marked as not differentiable, where an output depends on it."""
    assigns = assignments(function.body)
    marked = [
        (stmt, stmt.value)
        for stmt in assigns
        if is_marked(stmt.value) and any(active.get(arg.name) for arg in stmt.value.args[1:] if isinstance(arg, Var))
    ]
    if not marked:
        return
    outputs = [output.value for output in function.outputs]
    needed = {value.name for value in outputs if isinstance(value, Var) and value.kind == "float"}
    size = -1
    while size != len(needed):
        size = len(needed)
        for stmt in assigns:
            if stmt.target.name in needed:
                needed.update(arg.name for arg in _carriers(stmt.value))
    for stmt, value in marked:
        if stmt.target.name in needed:
            name = CUSTOMS[value.name].label
            raise CompileError(
                f"{name}() is marked as not differentiable, and its derivative is needed here",
                stmt.location,
                f"dualbcast.stop_derivative({name}(...)) for a derivative of zero, or give {name}() custom_partials",
            )


def _carriers(value: Expr) -> list[Var]:
    """The variables that a value is computed from, unless a step ends differentiation on purpose."""
    if isinstance(value, Op) and value.name not in CUSTOMS and (value.name == "to_float" or value.kind == "int"):
        ends = value.name == "to_int" and value.args[0].kind == "float"
        return [] if ends else [arg for arg in value.args if isinstance(arg, Var)]
    # Tests look at values only.
    return [] if isinstance(value, Op) and value.kind == "bool" and value.name not in CUSTOMS else differentiable(value)


# --- partials of operators and rules --------------------------------------------------------------------------------

# The rules of operators, in the form of the table's. Their arguments are floats; integers carry no derivative.
_OPERATORS: dict[str, Callable[..., object]] = {
    "add": lambda a, b, y: (1.0, 1.0),  # noqa: ARG005
    "sub": lambda a, b, y: (1.0, -1.0),  # noqa: ARG005
    "mul": lambda a, b, y: (b, a),  # noqa: ARG005
    # One slow division serves both partials. It overflows only for a subnormal b, as the partial in a does; then 0 / b
    # has nan for its partial in b, where -(y / b) would not.
    "div": lambda a, b, y: (1.0 / b, quotient_slope(y, b)),  # noqa: ARG005
    "neg": lambda a, y: (-1.0,),  # noqa: ARG005
    "single": lambda a, y: (1.0,),  # noqa: ARG005
}


def partials_at(value: Op) -> tuple[Function, Sequence[Expr], list[Expr]]:
    """The partials of an operation in its arguments, as a function of some of those and of its result."""
    if is_marked(value):
        return _NOTHING, (), [ZERO, *[UNKNOWN] * (len(value.args) - 1)]
    source, args = source_of(value)
    template, partials = partials_of(source or _OPERATORS[value.name], args)
    # The first argument of a custom derivative is its value, in which the partial is zero by definition.
    return template, args, [ZERO] * (value.name in CUSTOMS) + partials
