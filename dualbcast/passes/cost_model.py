"""What operations cost on a CPU, in units of a vectorised addition, and which of them cannot be vectorised."""

from __future__ import annotations

from functools import lru_cache

from dualbcast.frontend.rule_bodies import helper_of
from dualbcast.ir.liveness import most_carried
from dualbcast.ir.nodes import Assign, Block, Const, Expr, For, Function, If, Op, Var, While
from dualbcast.ir.walk import assigned, expressions, operations_of, statements
from dualbcast.rules.table import RULES

__all__ = ["blocks_vectors", "fusible", "is_scalar", "side_by_side", "weigh", "work"]

# From the times of kernels of each. (Those that are not vectorised in the same units once more: what a scalar loop
# costs comes on top.) What is not here, and has a helper function, costs what that does.
_WEIGHTS = {
    **dict.fromkeys(("div", "sqrt", "floordiv", "mod"), 5.0),
    "hypot": 9.0,
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "cbrt"), 12.0),
    **dict.fromkeys(("asin", "acos", "atan", "fmod", "lgamma", "nextafter"), 12.0),
    **dict.fromkeys(("tanh", "sinh", "cosh", "asinh", "acosh", "atanh", "erf", "atan2"), 15.0),
    "erfc": 20.0,
    "pow": 36.0,
    "tgamma": 20.0,
}
# Of vectors that are computed side by side, with 32 registers: how many operations should be at hand at a time, none of
# which waits for another, and how much work all may be, which takes the compiler its time, and of how many arrays. Of
# the time of one vector two and four take, in kernels with derivatives in both formats,
#     one chain of log, sin and exp, three of them                   0.83 to 0.91 and 0.65 to 0.71
#     Black-Scholes with five derivatives, six Greeks                0.80 to 0.85 and 0.75 to 0.80
#     5 and 10 tanh that do not wait for each other                  0.84 to 0.94 and 0.82 to 0.92
#     8 products of sin and exp; 8 logarithms, quotients and roots   0.98 to 1.03
# Of 12 tanh and their product with all partials, 25 arrays, and J2 plasticity, 49, two take longer than one.
_AT_HAND, _MOST_WORK, _MOST_ARRAYS = 12.0, 1000.0, 48
# Variables of a loop that are in registers from turn to turn, of all vectors side by side: with 32, four vectors of the
# 8 of Van der Pol's oscillator take 0.76 and of a pendulum's 0.68 of the time of two; of 8 in a recurrence, 1.06.
_MOST_CARRIED = 32
# How often a loop runs whose length depends on data.
_TURNS = 8


def work(function: Function) -> float:
    """The operations that an element takes, in units of an addition; of a branch both sides count half."""
    return weigh(function.body) + sum(_expression(output.value) for output in function.outputs)


def side_by_side(function: Function, arrays: int, most: int, free: int = 1) -> int:
    """How many vectors of elements to compute side by side, so that not each instruction waits for the one before.

    Parameters
    ----------
    function : Function
        Of which elements may be computed side by side.
    arrays : int
        How many arrays it reads or writes.
    most : int
        How many at most.
    free : int, optional
        How many may be, however much work that is.
    """
    at_hand = work(function) / max(1.0, _depth(function))
    written = weigh(function.body, turns=1) + sum(_expression(output.value) for output in function.outputs)
    limits = (written, _MOST_WORK), (arrays, _MOST_ARRAYS), (most_carried(function), _MOST_CARRIED)
    fits = [n for n in (2, 4) if n <= most and (n <= free or all(n * each <= limit for each, limit in limits))]
    return next((n for n in (1, *fits) if n * at_hand >= _AT_HAND), max((1, *fits)))


def _depth(function: Function) -> float:
    """The work of the longest chain of operations that wait for one another."""
    done: dict[str, float] = {}
    # By how much each turn of a loop after the first makes what is done longer.
    longer: dict[int, dict[str, float]] = {}

    def of(expr: Expr) -> float:
        if isinstance(expr, Op):
            return _weight(expr.name) + max(map(of, expr.args), default=0.0)
        return done.get(expr.name, 0.0) if isinstance(expr, Var) else 0.0

    def walk(block: Block) -> None:
        for stmt in block:
            match stmt:
                case Assign():
                    # Of a name that several branches assign, the longest.
                    done[stmt.target.name] = max(of(stmt.value), done.get(stmt.target.name, 0.0))
                case If():
                    walk(stmt.then)
                    walk(stmt.orelse)
                case For() | While():
                    # All turns after the first add to a chain what the second one does, wherever they begin.
                    walk(stmt.body)
                    if id(stmt) not in longer:
                        first = dict(done)
                        walk(stmt.body)
                        longer[id(stmt)] = {name: done[name] - length for name, length in first.items()}
                        done.update(first)
                    turns = _turns(stmt) if isinstance(stmt, For) else _TURNS
                    for name, length in longer[id(stmt)].items():
                        done[name] += length * (turns - 1)

    walk(function.body)
    return max([*done.values(), *[of(output.value) for output in function.outputs]], default=0.0)


def weigh(block: Block, turns: int | None = None) -> float:
    """The operations of a block, as `work` counts them; if it is said, with so many turns of each loop."""
    total = 0.0
    for stmt in block:
        own = sum(_expression(expr) for expr in expressions(stmt))
        match stmt:
            case Assign():
                total += own
            case If():
                total += own + (weigh(stmt.then, turns) + weigh(stmt.orelse, turns)) / 2
            case For():
                total += own + (turns or _turns(stmt)) * weigh(stmt.body, turns)
            case While():
                total += (turns or _TURNS) * (own + weigh(stmt.pre, turns) + weigh(stmt.body, turns))
    return total


def fusible(function: Function) -> frozenset[str]:
    """The names of sums and products that are better one operation: of derivatives, but for those that loops of sums
    and products alone assign.

    There each turn waits for the one before, and a sum of two products waits longer as a multiplication and what
    multiplies and adds (seven cycles of Zen 5) than as two multiplications side by side and an addition (five). Of the
    time of kernels so, predators and prey through 50 steps take 1.16 and the logistic map 1.08 to 1.15 the other way;
    in loops that call functions that is hidden: Kepler's equation takes 0.85, a GARCH likelihood 0.84 to 0.87.
    """
    loops = [(stmt,) for stmt in statements(function.body) if isinstance(stmt, For | While)]
    plain = [loop for loop in loops if all(_weight(op.name) == 1 for op in operations_of(loop))]
    return frozenset(function.derived).difference(*map(assigned, plain))


def _turns(loop: For) -> int:
    bounds = [bound.value for bound in (loop.start, loop.stop, loop.step) if isinstance(bound, Const)]
    return len(range(*map(int, bounds))) if len(bounds) == 3 and bounds[2] != 0 else _TURNS


def _expression(expr: Expr) -> float:
    if not isinstance(expr, Op):
        return 0.0
    return _weight(expr.name) + sum(map(_expression, expr.args))


@lru_cache(maxsize=1024)
def _weight(name: str) -> float:
    known = _WEIGHTS.get(name)
    if known is not None:
        return known
    row = RULES.get(name)
    return work(helper_of(row)) if row is not None and row.function is not None else 1.0


def is_scalar(function: Function) -> bool:
    """Whether something in an element keeps the loop over elements from being vectorised."""
    if any(isinstance(stmt, For | While) for stmt in statements(function.body)):
        return True
    return any(blocks_vectors(op.name) for op in operations_of(function))


@lru_cache(maxsize=1024)
def blocks_vectors(name: str) -> bool:
    """Whether an operation keeps the loop over elements from being vectorised."""
    row = RULES.get(name)
    return row is not None and row.function is not None and is_scalar(helper_of(row))
