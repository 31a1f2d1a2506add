"""The order of operations, calls first, and the number of vectors that are computed side by side.

A vector function of the C library may change all vector registers: a value that is alive across a call is spilled. The
partials of a product of N factors would spill N² values in the order of the source.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from dualbcast.autodiff.operation_cost import (
    ITERATIONS,
    cost_of_block,
    cost_of_element,
    cost_of_operation,
    iterations_of,
)
from dualbcast.frontend.lower import helper_of
from dualbcast.ir.nodes import TEMPORARY, Assign, Block, Expr, For, Function, If, Names, Op, Stmt, Var, While, temporary
from dualbcast.ir.traversal import free_names, map_exprs, most_carried, operations_of, renamed, renamed_block, variables
from dualbcast.rules.table import RULES

# Rules that processors have an instruction for, or little more.
INSTRUCTIONS = frozenset({"ceil", "copysign", "fabs", "floor", "rint", "sqrt", "trunc"})
# Calls move only in runs of assignments with at least so many calls: few values are alive across a single one.
FEWEST_CALLS = 2


def schedule_calls(function: Function) -> Function:
    """The function, of operations on atoms, with calls and what they need first in each run of assignments.

    Before::

        function f(x: float, y: float)
            a: float = exp(x)
            b: float = mul(a, y)
            c: float = exp(y)
            d: float = mul(b, c)
            output out = d

    After::

        function f(x: float, y: float)
            a: float = exp(x)
            c: float = exp(y)
            b: float = mul(a, y)
            d: float = mul(b, c)
            output out = d
    """
    names = free_names(function, RULES)
    # Results of calls get names that are no temporaries', so that they stay statements of their own.
    named: dict[str, Var] = {}

    def order(block: Block) -> Block:
        new: list[Stmt] = []
        run: list[Assign] = []
        for stmt in block:
            if isinstance(stmt, Assign):
                run.append(stmt)
            else:
                new += [*_order(run, names, named), map_exprs(stmt, lambda expr: expr, order)]
                run = []
        return (*new, *_order(run, names, named))

    body = order(function.body)
    if not named and body == function.body:
        return function
    outputs = tuple(replace(output, value=renamed(output.value, named)) for output in function.outputs)
    return replace(function, body=renamed_block(body, named), outputs=outputs)


def _order(run: list[Assign], names: Names, named: dict[str, Var]) -> list[Assign]:
    calls = [stmt for stmt in run if _calls(stmt)]
    if len(calls) < FEWEST_CALLS:
        return run
    for stmt in calls:
        name = stmt.target.name
        if name.startswith(TEMPORARY) and isinstance(stmt.value, Op):
            own = temporary(name).removeprefix(TEMPORARY)
            named[name] = Var(names.fresh(own or stmt.value.name.partition("#")[0]), stmt.target.kind)
    first: list[Assign] = []
    last: list[Assign] = []
    needed: set[str] = set()
    written: set[str] = set()
    for stmt in reversed(run):
        read = {leaf.name for leaf in variables(stmt.value)}
        # A statement moves to the front with the definitions it reads, and with earlier reads and writes of its target.
        if _calls(stmt) or stmt.target.name in needed | written or read & written:
            first.append(stmt)
            needed |= read
            written.add(stmt.target.name)
        else:
            last.append(stmt)
    return first[::-1] + last[::-1]


def _calls(stmt: Assign) -> bool:
    return isinstance(stmt.value, Op) and is_call(stmt.value.name)


@lru_cache(maxsize=1024)
def is_call(name: str) -> bool:
    """Whether an operation is a call of the C library, or makes one."""
    row = RULES.get(name)
    if row is None or name in INSTRUCTIONS:
        return False
    return row.function is None or any(is_call(op.name) for op in operations_of(helper_of(row)))


# Limits for processors with 32 vector registers (docs/decisions/021-interleaving.md): the wanted number of operations
# of which none waits for another; and for all vectors together, the cost of their operations (for the sake of compile
# time), the number of arrays and of loop-carried variables.
WANTED_PARALLELISM = 12.0
COST_LIMIT = 1000.0
ARRAY_LIMIT = 48
CARRIED_LIMIT = 32


def vectors_to_interleave(function: Function, arrays: int, most: int, free: int = 1) -> int:
    """How many vectors of elements to interleave in a function that fits vectors: `most` of them at most.

    It reads or writes so many arrays. Up to `free` vectors are allowed whatever the limits are.
    """
    parallelism = cost_of_element(function) / max(1.0, _depth(function))
    written = cost_of_block(function.body, iterations=1) + cost_of_element(replace(function, body=()))
    limits = (written, COST_LIMIT), (arrays, ARRAY_LIMIT), (most_carried(function), CARRIED_LIMIT)
    fits = [n for n in (2, 4) if n <= most and (n <= free or all(n * each <= limit for each, limit in limits))]
    return next((n for n in (1, *fits) if n * parallelism >= WANTED_PARALLELISM), max((1, *fits)))


def _depth(function: Function) -> float:
    """The cost of the longest chain of operations that wait for one another."""
    done: dict[str, float] = {}
    # For each loop, the length that each iteration after the first one adds to the chains.
    longer: dict[int, dict[str, float]] = {}

    def of(expr: Expr) -> float:
        if isinstance(expr, Op):
            return cost_of_operation(expr.name) + max(map(of, expr.args), default=0.0)
        return done.get(expr.name, 0.0) if isinstance(expr, Var) else 0.0

    def visit(block: Block) -> None:
        for stmt in block:
            match stmt:
                case Assign():
                    # If several branches assign a name, the longest chain counts.
                    done[stmt.target.name] = max(of(stmt.value), done.get(stmt.target.name, 0.0))
                case If():
                    visit(stmt.then)
                    visit(stmt.orelse)
                case For() | While():
                    # Every later iteration lengthens a chain as the second one does.
                    visit(stmt.body)
                    if id(stmt) not in longer:
                        first = dict(done)
                        visit(stmt.body)
                        longer[id(stmt)] = {name: done[name] - length for name, length in first.items()}
                        done.update(first)
                    iterations = iterations_of(stmt) if isinstance(stmt, For) else ITERATIONS
                    for name, length in longer[id(stmt)].items():
                        done[name] += length * (iterations - 1)

    visit(function.body)
    return max([*done.values(), *[of(output.value) for output in function.outputs]], default=0.0)
