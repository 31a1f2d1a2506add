"""The analyses before vectorisation: the variables whose values can differ between the elements of a row, whether these
can be lanes of vectors, and which operations may run for all of them.

A value is *uniform* if it is the same for all elements of a row, and *varying* if it need not be.
"""

from __future__ import annotations

from collections.abc import Set
from functools import lru_cache

from dualbcast.autodiff.operation_cost import cost_of_block
from dualbcast.frontend.lower import helper_of
from dualbcast.ir.nodes import (
    ARITHMETIC,
    BITWISE,
    COMPARISONS,
    FUSED,
    LOGIC,
    Assign,
    Block,
    Break,
    Const,
    Continue,
    Expr,
    For,
    Function,
    If,
    Load,
    Op,
    Stmt,
    Var,
    While,
)
from dualbcast.ir.traversal import atoms, expressions, has_loops, jumps, operations_of, statements
from dualbcast.kernel_spec import Layout
from dualbcast.rules.table import RULES


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


def is_scalar(function: Function) -> bool:
    """Whether a loop or an operation in a function keeps the loop over elements from being vectorised."""
    return has_loops(function.body) or any(blocks_vectors(op.name) for op in operations_of(function))


@lru_cache(maxsize=1024)
def blocks_vectors(name: str) -> bool:
    """Whether an operation keeps the loop over elements from being vectorised."""
    row = RULES.get(name)
    return row is not None and row.function is not None and is_scalar(helper_of(row))


def fits_vectors(function: Function, uniform: Set[str]) -> bool:
    """Whether the elements of a row can be lanes of vectors.

    Its varying branches must be selects or have no `else`, and its varying loops must be masked.
    """
    if any(blocks_vectors(op.name) for op in operations_of(function)):
        return False
    forks = [stmt for stmt in statements(function.body) if isinstance(stmt, If | For | While)]
    varying = varying_names(function, uniform) if forks else set()
    return all(_fits(stmt, varying) for stmt in forks)


def _fits(stmt: If | For | While, varying: Set[str]) -> bool:
    match stmt:
        case If():
            return not stmt.orelse or not varies(stmt.test, varying)
        case For():
            return is_uniform_loop(stmt, varying)
        case While():
            return stmt.masked


def has_varying_branches(function: Function, uniform: Set[str]) -> bool:
    """Whether a branch is left whose condition varies."""
    tests = [stmt.test for stmt in statements(function.body) if isinstance(stmt, If)]
    varying = varying_names(function, uniform) if tests else set()
    return any(varies(test, varying) for test in tests)


# The least saving, in additions, of a vector that skips a side (docs/decisions/022-branch-or-select.md); and the least
# ratio of that saving to the cost of the operations that the sides share, which selects compute once.
LEAST_SAVING = 30.0
_LEAST_RATIO = 8.0
_SPECULATABLE = COMPARISONS | LOGIC | ARITHMETIC | BITWISE | {"to_float", "to_int", "select", "single", *FUSED}


def is_speculatable(op: Op) -> bool:
    """Whether an operation may run on any numbers, including those for which a branch would skip it."""
    if op.name in ("floordiv", "mod") and op.kind == "int":
        divisor = op.args[1]
        return isinstance(divisor, Const) and divisor.value not in (0, -1)
    return op.name in _SPECULATABLE or _is_speculatable_rule(op.name)


@lru_cache(maxsize=1024)
def _is_speculatable_rule(name: str) -> bool:
    row = RULES.get(name)
    if row is None or row.integer:
        return False
    if row.function is None:
        return True
    helper = helper_of(row)
    # A conversion to an integer is undefined for numbers that do not fit, and no branch may depend on it.
    operations = list(operations_of(helper))
    return all(is_speculatable(op) and op.name != "to_int" for op in operations) and not any(
        isinstance(stmt, For | While) for stmt in statements(helper.body)
    )


def may_run_for_all(stmt: If) -> bool:
    """Whether both sides of a branch may run for all elements."""
    is_line = all(isinstance(part, Assign | If) for part in statements((stmt,)))
    return is_line and all(map(is_speculatable, operations_of((stmt,))))


def skipping_saves(stmt: If, seen: Set[str]) -> bool:
    """Whether a branch that vectors can skip beats selects; `seen` are the names that were assigned before it.

    Selects compute both sides, and shared operations once. A vector that skips a side saves the cost of that side.
    """
    selected = _cost_of_selects(stmt, seen)
    return selected - _cheapest_path(stmt) > max(LEAST_SAVING, _LEAST_RATIO * (_cost_of_all_paths(stmt) - selected))


def is_short(side: Block) -> bool:
    """Whether a side may run for all elements at almost no cost."""
    is_line = all(isinstance(part, Assign) for part in side)
    return is_line and all(map(is_speculatable, operations_of(side))) and cost_of_block(side) <= LEAST_SAVING


def _cheapest_path(part: Stmt) -> float:
    """The cost of the cheapest path through a statement without loops."""
    if isinstance(part, If):
        return min(sum(map(_cheapest_path, side)) for side in (part.then, part.orelse))
    return cost_of_block((part,))


def _cost_of_all_paths(part: Stmt) -> float:
    """The cost of all paths through a statement without loops, one after the other."""
    return sum(map(_cost_of_all_paths, (*part.then, *part.orelse))) if isinstance(part, If) else cost_of_block((part,))


def _cost_of_selects(stmt: If, seen: Set[str]) -> float:
    """The cost of all paths through a statement without loops, where an operation of several paths counts once."""
    numbers: dict[object, int] = {}
    total = 0.0

    def visit(block: Block, held: dict[str, int]) -> dict[str, None]:
        """The names that a block assigns and that may be read after it; `held` gets the value number of each."""
        nonlocal total

        def number(expr: Expr) -> int:
            nonlocal total
            if not isinstance(expr, Op):
                known = held.get(expr.name) if isinstance(expr, Var) else None
                return numbers.setdefault(expr, len(numbers)) if known is None else known
            key = (expr.name, *map(number, expr.args))
            if key not in numbers:
                numbers[key] = len(numbers)
                total += cost_of_block((Assign(Var("", expr.kind), expr),))
            return numbers[key]

        changed: dict[str, None] = {}
        for part in block:
            if isinstance(part, If):
                then, orelse = dict(held), dict(held)
                for name in visit(part.then, then) | visit(part.orelse, orelse):
                    sides = then.get(name), orelse.get(name)
                    if None in sides and name not in seen:
                        continue
                    merged = (part.test, *sides)
                    held[name] = then[name] if sides[0] == sides[1] else numbers.setdefault(merged, len(numbers))
                    changed[name] = None
            else:
                assert isinstance(part, Assign)
                held[part.target.name] = number(part.value)
                changed[part.target.name] = None
        return changed

    visit((stmt,), {})
    return total
