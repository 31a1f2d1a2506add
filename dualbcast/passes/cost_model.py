"""The cost of operations on a CPU in units of a vectorised addition, to compare equivalent programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from dualbcast.frontend.lower import helper_of
from dualbcast.ir import nodes as ir
from dualbcast.ir.traversal import blocks, expressions, iterations_of
from dualbcast.rules.table import RULES

# Measured with a kernel of each operation. A rule that is not here costs as much as its helper function, if it has one,
# and else as much as an addition.
_WEIGHTS = {
    **dict.fromkeys(("div", "sqrt", "floordiv", "mod"), 5.0),
    "hypot": 9.0,
    **dict.fromkeys(("cosine", "sine", "over_length"), 10.0),
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "cbrt"), 12.0),
    **dict.fromkeys(("asin", "acos", "atan", "fmod", "lgamma", "nextafter"), 12.0),
    **dict.fromkeys(("tanh", "sinh", "cosh", "asinh", "acosh", "atanh", "erf", "atan2"), 15.0),
    "erfc": 20.0,
    "pow": 32.0,
    "divided_power": 6.0,
    "tgamma": 20.0,
}


def cost_of_element(function: ir.Function) -> float:
    """The cost of one element; both sides of a branch count half."""
    return cost_of_block(function.body) + sum(cost_of_expression(output.value) for output in function.outputs)


def cost_of_block(block: ir.Block) -> float:
    """The cost of a block."""
    total = 0.0
    for stmt in block:
        total += sum(map(cost_of_expression, expressions(stmt)))
        match stmt:
            case ir.If():
                total += (cost_of_block(stmt.then) + cost_of_block(stmt.orelse)) / 2
            case ir.For() | ir.While():
                total += iterations_of(stmt) * sum(map(cost_of_block, blocks(stmt)))
    return total


def cost_of_line(line: Sequence[ir.Assign]) -> float:
    """The cost of assignments to different names, where an operation of several of them counts once."""
    keys = value_keys(line)
    operations = {keys[stmt.target.name]: stmt.value.name for stmt in line if isinstance(stmt.value, ir.Op)}
    return sum(map(cost_of_operation, operations.values()))


def value_keys(line: Iterable[ir.Assign]) -> dict[str, object]:
    """A key for each name that a line assigns, which names with the same value have in common."""
    numbers: dict[object, int] = {}
    keys: dict[str, object] = {}
    for stmt in line:
        key = value_key(stmt.value, keys)
        keys[stmt.target.name] = numbers.setdefault(key, len(numbers)) if isinstance(stmt.value, ir.Op) else key
    return keys


def value_key(expr: ir.Expr, keys: Mapping[str, object]) -> object:
    """The key of an atom or of an operation, from those of names."""
    match expr:
        case ir.Op():
            return (expr.name, *[value_key(arg, keys) for arg in expr.args])
        case ir.Var():
            return keys.get(expr.name, expr.name)
    return repr(expr)  # in which 0.0 and -0.0 differ


def cost_of_expression(expr: ir.Expr) -> float:
    """The cost of an expression."""
    if not isinstance(expr, ir.Op):
        return 0.0
    return cost_of_operation(expr.name) + sum(map(cost_of_expression, expr.args))


@lru_cache(maxsize=1024)
def cost_of_operation(name: str) -> float:
    """The cost of one operation or call."""
    if name in _WEIGHTS:
        return _WEIGHTS[name]
    row = RULES.get(name)
    return cost_of_element(helper_of(row)) if row is not None and row.function is not None else 1.0
