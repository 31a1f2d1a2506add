"""Divergence analysis: the variables whose values can differ between the elements of a row, given those that cannot.

A value is *uniform* if it is the same for all elements of a row, and *varying* if it need not be.
"""

from __future__ import annotations

from collections.abc import Set

from dualbcast.ir.nodes import Assign, Block, Break, Const, Continue, Expr, For, Function, If, Load, Var, While
from dualbcast.ir.traversal import atoms, expressions, jumps
from dualbcast.kernel_spec import Layout

__all__ = ["has_divergent_jumps", "is_uniform_loop", "uniform_inputs", "varies", "varying_names"]


def uniform_inputs(function: Function, layout: Layout) -> set[str]:
    """The parameters that do not change within a row."""
    positions = zip(function.params, layout.which, strict=False)
    return {param.name for param, position in positions if layout.classes[position][-1] == "0"}


def varying_names(function: Function, uniform: Set[str]) -> set[str]:
    """The parameters and variables whose values can vary, where the parameters in `uniform` cannot."""
    varying = {param.name for param in function.params} - uniform

    def visit(block: Block, is_divergent: bool) -> None:
        """Add the names that a block makes varying; `is_divergent` says whether only some elements may reach it."""
        for stmt in block:
            inside = is_divergent or (
                not isinstance(stmt, Assign) and any(varies(expr, varying) for expr in expressions(stmt))
            )
            match stmt:
                case Assign():
                    if is_divergent or varies(stmt.value, varying):
                        varying.add(stmt.target.name)
                case If():
                    visit(stmt.then, inside)
                    visit(stmt.orelse, inside)
                case While():
                    inside = inside or has_divergent_jumps(stmt.body, varying)
                    visit((*stmt.pre, *stmt.body), inside)
                case For():
                    inside = inside or has_divergent_jumps(stmt.body, varying)
                    if inside:
                        varying.add(stmt.target.name)
                    visit(stmt.body, inside)

    size = -1
    while size != len(varying):
        size = len(varying)
        visit(function.body, False)
    return varying


def varies(expr: Expr, varying: Set[str]) -> bool:
    """Whether an expression can vary, where the variables and arrays in `varying` can."""
    return any(isinstance(leaf, Var | Load) and leaf.name in varying for leaf in atoms(expr))


def is_uniform_loop(loop: For, varying: Set[str]) -> bool:
    """Whether a loop has the same number of iterations for all elements of a row."""
    bounds = (loop.start, loop.stop, loop.step)
    has_uniform_bounds = isinstance(loop.step, Const) and not any(varies(bound, varying) for bound in bounds)
    return has_uniform_bounds and not any(map(jumps, loop.body))


def has_divergent_jumps(block: Block, varying: Set[str], is_divergent: bool = False) -> bool:
    """Whether some elements jump in a block where others do not; `is_divergent` says that only some reach it."""
    for stmt in block:
        match stmt:
            case Break() | Continue() if is_divergent:
                return True
            case If():
                inside = is_divergent or varies(stmt.test, varying)
                if has_divergent_jumps(stmt.then, varying, inside) or has_divergent_jumps(stmt.orelse, varying, inside):
                    return True
    return False
