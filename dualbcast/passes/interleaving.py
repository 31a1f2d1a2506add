"""Interleaving: the number of vectors that are computed side by side, so that instructions need not wait."""

from __future__ import annotations

from dataclasses import replace

from dualbcast.autodiff.operation_cost import (
    ITERATIONS,
    cost_of_block,
    cost_of_element,
    cost_of_operation,
    iterations_of,
)
from dualbcast.ir.liveness import most_carried
from dualbcast.ir.nodes import Assign, Block, Expr, For, Function, If, Op, Var, While

__all__ = ["vectors_to_interleave"]

# Limits for processors with 32 vector registers (docs/decisions/021-interleaving.md): the wanted number of operations
# of which none waits for another; and for all vectors together, the cost of their operations (for the sake of compile
# time), the number of arrays and of loop-carried variables.
WANTED_PARALLELISM = 12.0
COST_LIMIT = 1000.0
ARRAY_LIMIT = 48
CARRIED_LIMIT = 32


def vectors_to_interleave(function: Function, arrays: int, most: int, free: int = 1) -> int:
    """How many vectors of elements to interleave.

    Parameters
    ----------
    function : Function
        One that fits vectors.
    arrays : int
        How many arrays it reads or writes.
    most : int
        The most vectors.
    free : int, optional
        This many are allowed whatever the limits are.
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
