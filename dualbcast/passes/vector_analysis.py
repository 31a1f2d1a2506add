"""The analyses before vectorisation: the variables whose values can differ between the elements of a row, whether these
can be lanes of vectors, and which operations may run for all of them.

A value is *uniform* if it is the same for all elements of a row, and *varying* if it need not be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Set
from functools import lru_cache

from dualbcast.frontend.lower import helper_of
from dualbcast.ir import nodes as ir
from dualbcast.ir.traversal import (
    assignments,
    atoms,
    blocks,
    expressions,
    has_loops,
    jumps,
    operations_of,
    statements,
)
from dualbcast.kernel_spec import Layout
from dualbcast.passes.cost_model import cost_of_block, cost_of_line
from dualbcast.rules.table import RULES


def uniform_inputs(function: ir.Function, layout: Layout) -> set[str]:
    """The parameters that do not change within a row."""
    positions = zip(function.params, layout.which, strict=False)
    return {param.name for param, position in positions if layout.classes[position][-1] == "0"}


def varying_names(function: ir.Function, uniform: Set[str]) -> set[str]:
    """The parameters and variables whose values can vary, where the parameters in `uniform` cannot."""
    # For each name, the variables that vary if it does. The inside of a branch or loop is an object; it varies if only
    # some elements get there.
    users: dict[object, list[object]] = defaultdict(list)

    def visit(block: ir.Block, around: object) -> None:
        for stmt in block:
            if isinstance(stmt, ir.Assign):
                for reason in (around, *_names(stmt.value)):
                    users[reason].append(stmt.target.name)
                continue
            inside = object()
            jumps_on = _tests_of_jumps(stmt.body) if isinstance(stmt, ir.For | ir.While) else set()
            for reason in (around, *_reads(stmt), *jumps_on):
                users[reason].append(inside)
            if isinstance(stmt, ir.For):
                users[inside].append(stmt.target.name)
            for inner in blocks(stmt):
                visit(inner, inside)

    visit(function.body, None)
    varying: set[object] = set()
    pending: list[object] = [param.name for param in function.params if param.name not in uniform]
    while pending:
        reason = pending.pop()
        if reason not in varying:
            varying.add(reason)
            pending += users[reason]
    return {name for name in varying if isinstance(name, str)}


def varies(expr: ir.Expr, varying: Set[str]) -> bool:
    """Whether an expression can vary, where the variables and arrays in `varying` can."""
    return any(name in varying for name in _names(expr))


def is_uniform_loop(loop: ir.For, varying: Set[str]) -> bool:
    """Whether a loop has the same number of iterations for all elements of a row."""
    bounds = (loop.start, loop.stop, loop.step)
    has_uniform_bounds = isinstance(loop.step, ir.Const) and not any(varies(bound, varying) for bound in bounds)
    return has_uniform_bounds and not any(map(jumps, loop.body))


def has_divergent_jumps(body: ir.Block, varying: Set[str]) -> bool:
    """Whether some elements jump in the body of a loop where others do not."""
    return not _tests_of_jumps(body).isdisjoint(varying)


def _tests_of_jumps(body: ir.Block, around: Set[str] = frozenset()) -> set[str]:
    """The names that the tests of all branches around the jumps in the body of a loop read."""
    names: set[str] = set()
    for stmt in body:
        match stmt:
            case ir.Break() | ir.Continue():
                names |= around
            case ir.If():
                inside = around | _reads(stmt)
                names |= _tests_of_jumps(stmt.then, inside) | _tests_of_jumps(stmt.orelse, inside)
    return names


def _reads(stmt: ir.Stmt) -> set[str]:
    """The variables and arrays that a statement reads itself."""
    return {name for expr in expressions(stmt) for name in _names(expr)}


def _names(expr: ir.Expr) -> list[str]:
    """The variables and arrays in an expression."""
    return [leaf.name for leaf in atoms(expr) if isinstance(leaf, ir.Var | ir.Load)]


def is_scalar(function: ir.Function) -> bool:
    """Whether a loop or an operation in a function keeps the loop over elements from being vectorised."""
    return has_loops(function.body) or any(blocks_vectors(op.name) for op in operations_of(function))


@lru_cache(maxsize=1024)
def blocks_vectors(name: str) -> bool:
    """Whether an operation keeps the loop over elements from being vectorised."""
    row = RULES.get(name)
    return row is not None and row.function is not None and is_scalar(helper_of(row))


def fits_vectors(function: ir.Function, uniform: Set[str]) -> bool:
    """Whether the elements of a row can be lanes of vectors.

    Its varying branches must be selects or have no `else`, and its varying loops must be masked.
    """
    if any(blocks_vectors(op.name) for op in operations_of(function)):
        return False
    forks = [stmt for stmt in statements(function.body) if isinstance(stmt, ir.If | ir.For | ir.While)]
    varying = varying_names(function, uniform) if forks else set()
    for stmt in forks:
        match stmt:
            case ir.If():
                fits = not stmt.orelse or not varies(stmt.test, varying)
            case ir.For():
                fits = is_uniform_loop(stmt, varying)
            case ir.While():
                fits = stmt.masked
        if not fits:
            return False
    return True


def has_varying_branches(function: ir.Function, uniform: Set[str]) -> bool:
    """Whether a branch is left whose condition varies."""
    tests = [stmt.test for stmt in statements(function.body) if isinstance(stmt, ir.If)]
    varying = varying_names(function, uniform) if tests else set()
    return any(varies(test, varying) for test in tests)


# The least saving, in additions, of a vector that skips a side (docs/decisions/022-branch-or-select.md); and the least
# ratios of that saving to the cost of what selects compute once: the operations that the sides share, and fused ones.
LEAST_SAVING = 20.0
_LEAST_RATIO = 8.0
_LEAST_RATIO_OF_FUSED = 0.5
# The most that a short side costs.
_SHORT = 30.0
_SPECULATABLE = (
    ir.COMPARISONS
    | ir.LOGIC
    | ir.ARITHMETIC
    | ir.BITWISE
    # A place that is read is in the array for all elements.
    | {"to_float", "to_int", "select", "single", ir.READ, *ir.FUSED}
)


def is_speculatable(op: ir.Op) -> bool:
    """Whether an operation may run on any numbers, including those for which a branch would skip it."""
    if op.name in ("floordiv", "mod") and op.kind == "int":
        divisor = op.args[1]
        return isinstance(divisor, ir.Const) and divisor.value not in (0, -1)
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
    may_run = all(is_speculatable(op) and op.name != "to_int" for op in operations_of(helper))
    return may_run and not has_loops(helper.body)


def may_run_for_all(stmt: ir.If) -> bool:
    """Whether both sides of a branch may run for all elements."""
    is_line = all(isinstance(part, ir.Assign | ir.If) for part in statements((stmt,)))
    return is_line and all(map(is_speculatable, operations_of((stmt,))))


def skipping_saves(stmt: ir.If, line: Iterable[ir.Stmt], fused: float) -> bool:
    """Whether a branch that vectors can skip beats selects, which run the statements of `line`; `fused` is the cost of
    the operations that they save because these run once for both sides.

    A vector that skips a side saves the cost of that side. Selects compute operations once that are in both sides.
    """
    selected = cost_of_line(assignments(tuple(line)))
    shared = _cost_of_paths(stmt, sum) - selected - fused
    least = max(LEAST_SAVING, _LEAST_RATIO * shared, _LEAST_RATIO_OF_FUSED * fused)
    return selected - _cost_of_paths(stmt, min) > least


def is_short(side: ir.Block) -> bool:
    """Whether a side may run for all elements at almost no cost."""
    is_line = all(isinstance(part, ir.Assign) for part in side)
    return is_line and all(map(is_speculatable, operations_of(side))) and cost_of_block(side) <= _SHORT


def _cost_of_paths(part: ir.Stmt, total: Callable[[Iterable[float]], float]) -> float:
    """The total cost of the paths through a statement without loops: the least one's, or the sum of all."""
    if isinstance(part, ir.If):
        return total([sum(_cost_of_paths(inner, total) for inner in side) for side in (part.then, part.orelse)])
    return cost_of_block((part,))
