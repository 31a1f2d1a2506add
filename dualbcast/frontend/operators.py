"""Operators: on numbers, on tuples, which `+` joins and `*` repeats, and on objects whose class defines them."""

from __future__ import annotations

import ast
import enum

from dualbcast.frontend.arithmetic import as_scalar, binary, call_method, chain, comparison, equal, logical, unary
from dualbcast.frontend.conditionals import condition, short_circuit
from dualbcast.frontend.dispatch import expression, lowers
from dualbcast.frontend.environment import Environment
from dualbcast.frontend.expressions import check_length, sequence
from dualbcast.frontend.values import (
    Range,
    Record,
    Static,
    Value,
    describe,
    is_list,
    is_sequence,
    object_of,
)
from dualbcast.ir.nodes import FALSE, TRUE, Atom, Const

__all__: list[str] = []

_COMPARISONS = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}
# The methods by which a class defines operators: `__add__`, and `__radd__` for the right operand.
_METHODS = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.USub: "neg",
    ast.UAdd: "pos",
    ast.Invert: "invert",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
}


@lowers(ast.BinOp)
def _binary(env: Environment, node: ast.BinOp) -> Value:
    """An operator with two operands."""
    left, right, operator = expression(env, node.left), expression(env, node.right), node.op
    for first, second, prefix in ((left, right, "__"), (right, left, "__r")):
        own = call_method(env, first, f"{prefix}{_METHODS[type(operator)]}__", second, node=node)
        if own is not None:
            return own
    if isinstance(operator, ast.Add) and is_sequence(left) and is_sequence(right):
        if is_list(left) != is_list(right):
            env.fail(node, f"{describe(left)} and {describe(right)} cannot be joined", "two tuples, or two lists")
        joined = (*sequence(env, left, node.left), *sequence(env, right, node.right))
        return Record(list, joined) if is_list(left) else joined
    if isinstance(operator, ast.Mult):
        for items, count in ((left, right), (right, left)):
            if is_sequence(items) and isinstance(count, Const) and count.kind in ("int", "bool"):
                check_length(env, len(items) * int(count.value), node)
                repeated = sequence(env, items, node) * int(count.value)
                return Record(list, repeated) if is_list(items) else repeated
    classes = [side.object for side in (left, right) if isinstance(side, Static) and isinstance(side.object, type)]
    if len(classes) == 2 and isinstance(operator, ast.BitOr):
        return Static(classes[0] | classes[1])  # for isinstance()
    return binary(env, operator, as_scalar(env, left, node.left), as_scalar(env, right, node.right), node)


@lowers(ast.UnaryOp)
def _unary(env: Environment, node: ast.UnaryOp) -> Value:
    if isinstance(node.op, ast.Not):
        return unary(env, node.op, condition(env, node.operand), node)
    value = expression(env, node.operand)
    own = call_method(env, value, f"__{_METHODS[type(node.op)]}__", node=node)
    return unary(env, node.op, value, node) if own is None else own


# --- comparisons -----------------------------------------------------------------------------------------------------


@lowers(ast.Compare)
def _compare(env: Environment, node: ast.Compare) -> Value:
    """A chain of comparisons; each operand is evaluated once, and only if those before it hold."""

    def link(position: int, left: Value) -> Value:
        left_node = node.comparators[position - 1] if position else node.left
        right_node = node.comparators[position]
        right = expression(env, right_node)
        test = _compare_two(env, node.ops[position], (left, left_node), (right, right_node), node)
        if position + 1 == len(node.ops):
            return test
        return short_circuit(env, "and", test, lambda: link(position + 1, right), node)

    return link(0, expression(env, node.left))


def _compare_two(
    env: Environment,
    operator: ast.cmpop,
    one: tuple[Value, ast.expr],
    two: tuple[Value, ast.expr],
    node: ast.Compare,
) -> Atom:
    (left, left_node), (right, right_node) = one, two
    match operator:
        case ast.Is() | ast.IsNot():
            return _positive(env, isinstance(operator, ast.Is), _identical(env, left, right, node), node)
        case ast.In() | ast.NotIn():
            return _positive(env, isinstance(operator, ast.In), _contains(env, left, right, node, right_node), node)
        case ast.Eq() | ast.NotEq():
            if not (isinstance(left, Atom) and isinstance(right, Atom)):
                return _positive(env, isinstance(operator, ast.Eq), equal(env, left, right, node), node)
    numbers = as_scalar(env, left, left_node), as_scalar(env, right, right_node)
    return comparison(env, _COMPARISONS[type(operator)], *numbers, node)


def _positive(env: Environment, positive: bool, test: Atom, node: ast.AST) -> Atom:
    return test if positive else logical(env, "not", test, node=node)


def _identical(env: Environment, left: Value, right: Value, node: ast.AST) -> Atom:
    if isinstance(left, Static) and isinstance(right, Static):
        return TRUE if left.object is right.object else FALSE
    if Static(None) in (left, right):
        return FALSE
    env.fail(node, "numbers have no identity in a kernel", "== instead of `is`")


def _contains(env: Environment, item: Value, container: Value, node: ast.AST, at: ast.AST) -> Atom:
    if isinstance(container, Static) and not isinstance(container.object, enum.EnumMeta):
        if not isinstance(item, Static | Const):
            env.fail(node, f"whether {describe(container)} has a number depends on the data", "a tuple of numbers")
        return TRUE if env.evaluate(node, lambda: object_of(item) in container.object) else FALSE
    if isinstance(container, Range) and isinstance(item, Const) and item.kind != "float":
        inside = container.known()
        if inside is not None:
            return TRUE if item.value in inside else FALSE
    return chain(env, "or", (equal(env, item, candidate, node) for candidate in sequence(env, container, at)), node)
