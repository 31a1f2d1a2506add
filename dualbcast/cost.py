"""What kernels cost, counted in their IR: operations for an element, and the numbers that move."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dualbcast.compiler.ir import Assign, Block, Const, Expr, For, Function, If, Op, While, expressions, statements
from dualbcast.compiler.rules import RULES
from dualbcast.compiler.templates import helper_of
from dualbcast.element import Element
from dualbcast.products import make_product

__all__ = ["Counts", "count", "work"]

# Operations in units of a vectorised addition, from the times of kernels of each. (Those that are not vectorised in the
# same units once more: what a scalar loop costs comes on top.) What is not here, and has a helper function, costs what
# that does.
_WEIGHTS = {
    **dict.fromkeys(("div", "sqrt", "floordiv", "mod"), 5.0),
    "hypot": 9.0,
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "cbrt"), 12.0),
    **dict.fromkeys(("asin", "acos", "atan", "lgamma", "fmod", "nextafter"), 12.0),
    **dict.fromkeys(("tanh", "sinh", "cosh", "asinh", "acosh", "atanh", "erf", "atan2"), 15.0),
    "erfc": 20.0,
    "pow": 36.0,
    "tgamma": 48.0,
}
# Functions of the C library that have no version for vectors.
_UNVECTORISED = {"lgamma", "tgamma", "fmod", "nextafter"}
# How often a loop runs whose length depends on data.
_TURNS = 8


@dataclass(frozen=True, slots=True)
class Counts:
    """What an element takes, of an element function and its derivatives in some parameters.

    Attributes
    ----------
    value, both, pullback : float
        Operations for the value, for value and Jacobian, and for the pullback, in units of an addition.
    blocks, outputs : int
        How many numbers the Jacobian has that vary, and how many outputs there are.
    scalar : bool
        Whether something in it, such as a loop of its own, keeps the loop over elements from being vectorised.
    """

    value: float
    both: float
    pullback: float
    blocks: int
    outputs: int
    scalar: bool


@lru_cache(maxsize=1024)
def count(element: Element, wrt: tuple[int, ...]) -> Counts:
    """The counts of an element function and of its derivatives in the parameters at `wrt`."""
    value = make_product(element.function, "value", ()).function
    both = make_product(element.function, "value_and_jacobian", wrt)
    pullback = element.pullback(wrt).function
    outputs = len(element.function.outputs)
    return Counts(
        work(value), work(both.function), work(pullback), len(both.kinds) - both.values, outputs, _is_scalar(value)
    )


def work(function: Function) -> float:
    """The operations that an element takes, in units of an addition; of a branch both sides count half."""
    return _block(function.body) + sum(_expression(output.value) for output in function.outputs)


def _block(block: Block) -> float:
    total = 0.0
    for stmt in block:
        own = sum(_expression(expr) for expr in expressions(stmt))
        match stmt:
            case Assign():
                total += own
            case If():
                total += own + (_block(stmt.then) + _block(stmt.orelse)) / 2
            case For():
                total += own + _turns(stmt) * _block(stmt.body)
            case While():
                total += _TURNS * (own + _block(stmt.pre) + _block(stmt.body))
    return total


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


def _is_scalar(function: Function) -> bool:
    """Whether something in an element keeps the loop over elements from being vectorised."""
    pending = [expr for stmt in statements(function.body) for expr in expressions(stmt)]
    pending.extend(output.value for output in function.outputs)
    while pending:
        expr = pending.pop()
        if isinstance(expr, Op):
            if _blocks_vectors(expr.name):
                return True
            pending.extend(expr.args)
    return any(isinstance(stmt, For | While) for stmt in statements(function.body))


@lru_cache(maxsize=1024)
def _blocks_vectors(name: str) -> bool:
    row = RULES.get(name)
    return name in _UNVECTORISED or (row is not None and row.function is not None and _is_scalar(helper_of(row)))
