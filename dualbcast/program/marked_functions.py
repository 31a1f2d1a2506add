"""The refusal to differentiate functions that are marked as not differentiable."""

from __future__ import annotations

from collections.abc import Iterable

from dualbcast.autodiff.activity import Flow, activity, all_sources, flow_of, is_marked
from dualbcast.errors import CompileError
from dualbcast.ir import nodes as ir
from dualbcast.ir.traversal import assignments, results
from dualbcast.rules.table import CUSTOMS


def refuse_marked(function: ir.Function, wrt: Iterable[int]) -> None:
    """Refuse to differentiate a function that is marked as not differentiable, where an output depends on it.

    The derivatives are those in the parameters at `wrt`.
    """
    assigns = assignments(function.body)
    if not any(is_marked(stmt.value) for stmt in assigns):
        return
    seeds = {function.params[at].name: frozenset({at}) for at in wrt}
    active = activity([flow_of(stmt) for stmt in assigns if stmt.target.kind == "float"], seeds)
    carriers = [Flow(stmt.target.name, tuple((name, True) for name in _carriers(stmt))) for stmt in assigns]
    needed: set[str] | None = None
    for stmt in assigns:
        value = stmt.value
        if isinstance(value, ir.Op) and is_marked(value) and any(map(active.get, _names(value.args[1:]))):
            needed = needed or all_sources((leaf.name for leaf in results(function) if leaf.kind == "float"), carriers)
            if stmt.target.name in needed:
                name = CUSTOMS[value.name].label
                raise CompileError(
                    f"{name}() is marked as not differentiable, and its derivative is needed here",
                    stmt.location,
                    f"dualbcast.stop_derivative({name}(...)) for a derivative of zero, "
                    f"or give {name}() custom_partials",
                )


def _carriers(stmt: ir.Assign) -> list[str]:
    """The variables that a value is computed from, unless a step ends differentiation on purpose."""
    value = stmt.value
    if isinstance(value, ir.Op) and value.name not in CUSTOMS and (value.name == "to_float" or value.kind != "float"):
        # Tests look at values only.
        ends = value.kind == "bool" or (value.name == "to_int" and value.args[0].kind == "float")
        return [] if ends else _names(value.args)
    return [name for name, _ in flow_of(stmt).sources]


def _names(args: Iterable[ir.Expr]) -> list[str]:
    return [arg.name for arg in args if isinstance(arg, ir.Var)]
