"""Operators: on numbers, on tuples, which `+` joins and `*` repeats, and on objects whose class defines them; and the
expressions that evaluate only what decides: `and`, `or`, comparisons in a chain, and `a if test else b`.
"""

from __future__ import annotations

import ast
import enum
import operator
import types
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, cast

from dualbcast.frontend import complex_values
from dualbcast.frontend.arithmetic import (
    as_in_numpy,
    as_scalar,
    binary,
    call_method,
    chain,
    equal,
    logical,
    ordered,
    truth,
    unary,
)
from dualbcast.frontend.arrays.vectors import contracted, elementwise, is_array
from dualbcast.frontend.environment import Environment, expression, lowers
from dualbcast.frontend.expressions import check_length, sequence
from dualbcast.frontend.notes import note
from dualbcast.frontend.objects.dictionaries import dictionary, has_key, is_dictionary, items_at
from dualbcast.frontend.paths import End, close_branch, lower_side
from dualbcast.frontend.records import are_of_one_enumeration, blank_like, class_of
from dualbcast.frontend.values import (
    Bindings,
    Key,
    Range,
    Record,
    Static,
    Unassigned,
    Value,
    describe,
    is_complex,
    is_member,
    same,
)
from dualbcast.ir.nodes import ARITHMETIC, COMPARISONS, FALSE, FUSED, LOGIC, TRUE, Assign, Atom, Const, Op

# Operations so cheap and total that running them early costs less than a branch.
_CHEAP = COMPARISONS | LOGIC | (ARITHMETIC - {"floordiv", "mod"}) | {"to_float", "select", *FUSED}
# Each operator's syntax, its name in the IR, its name in the module `operator`, and NumPy's names. The methods by which
# classes define it are named as in `operator`, such as `__and__`, or `__rand__` for the right operand.
OPERATORS: list[tuple[type[ast.AST], str, str, str]] = [
    (ast.Add, "add", "add", "add"),
    (ast.Sub, "sub", "sub", "subtract"),
    (ast.Mult, "mul", "mul", "multiply"),
    (ast.Div, "div", "truediv", "divide true_divide"),
    (ast.FloorDiv, "floordiv", "floordiv", ""),
    (ast.Mod, "mod", "mod", "mod"),
    (ast.Pow, "pow", "pow", ""),
    (ast.MatMult, "matmul", "matmul", ""),
    (ast.BitAnd, "bitand", "and_", "bitwise_and"),
    (ast.BitOr, "bitor", "or_", "bitwise_or"),
    (ast.BitXor, "bitxor", "xor", "bitwise_xor"),
    (ast.LShift, "shl", "lshift", "left_shift"),
    (ast.RShift, "shr", "rshift", "right_shift"),
    (ast.Lt, "lt", "lt", "less"),
    (ast.LtE, "le", "le", "less_equal"),
    (ast.Gt, "gt", "gt", "greater"),
    (ast.GtE, "ge", "ge", "greater_equal"),
    (ast.Eq, "eq", "eq", "equal"),
    (ast.NotEq, "ne", "ne", "not_equal"),
    (ast.Not, "not", "not_", "logical_not"),
    (ast.USub, "neg", "neg", "negative"),
    (ast.UAdd, "pos", "pos", "positive"),
    (ast.Invert, "invert", "invert", "invert"),
]
# Those of text, which is known when the kernel is compiled.
_OF_TEXT: dict[str, Callable[[Any, Any], Any]] = {"add": operator.add, "mul": operator.mul, "mod": operator.mod}
_NAMES = {syntax: name for syntax, name, _, _ in OPERATORS}
_METHODS = {syntax: method.rstrip("_") for syntax, _, method, _ in OPERATORS}


@lowers(ast.BinOp)
def _binary(env: Environment, node: ast.BinOp) -> Value:
    return binary_operator(type(node.op), env, node, expression(env, node.left), expression(env, node.right))


def binary_operator(syntax: type[ast.AST], env: Environment, node: ast.AST, left: Value, right: Value, /) -> Value:
    """An operator with two operands; the node is its own, or that of a call."""
    name, at = _NAMES[syntax], (node.left, node.right) if isinstance(node, ast.BinOp) else (node, node)
    env.refuse_outdated(left, at[0])
    if issubclass(syntax, ast.cmpop):
        return _compare_two(env, syntax(), (left, node), (right, node), node)
    if name == "pow" and (is_complex(left) or is_complex(right)):
        return complex_values.power(env, left, right, node)
    for first, second, prefix in ((left, right, "__"), (right, left, "__r")):
        own = call_method(env, first, f"{prefix}{_METHODS[syntax]}__", second, node=node)
        if own is not None:
            return own
    if is_array(left) or is_array(right):
        if name == "matmul":
            return matmul(env, node, left, right)
        return elementwise(env, partial(on_elements, syntax, env, node), (left, right), node)
    joined = _joined(env, name, left, right, node)
    if joined is not None:
        return joined
    if name in _OF_TEXT and any(isinstance(side, Static) and isinstance(side.object, str) for side in (left, right)):
        known = [side.value if isinstance(side, Const) else getattr(side, "object", None) for side in (left, right)]
        if None not in known:
            return Static(env.evaluate(node, _OF_TEXT[name], *known))
    classes = [side.object for side in (left, right) if isinstance(side, Static) and isinstance(side.object, type)]
    if len(classes) == 2 and name == "bitor":
        return Static(classes[0] | classes[1])  # for isinstance()
    if is_complex(left):
        as_scalar(env, right, at[1])  # what is no number is the fault, and not the complex number
    return binary(name, env, node, as_scalar(env, left, at[0]), as_scalar(env, right, at[1]))


def _joined(env: Environment, name: str, left: Value, right: Value, node: ast.AST) -> Value | None:
    """The tuple or list that `+` joins of two, or that `*` repeats; None for anything else."""
    if name == "bitor" and is_dictionary(left) and is_dictionary(right):
        return dictionary({**items_at(env, left, "", node), **items_at(env, right, "", node)})
    sequences = [side for side in (left, right) if isinstance(side, Record) and side.is_sequence]
    if name == "add" and len(sequences) == 2:
        if sequences[0].family is not sequences[1].family:
            env.fail(node, f"{describe(left)} and {describe(right)} cannot be joined", "two tuples, or two lists")
        return Record(sequences[0].family, (*sequences[0], *sequences[1]))
    if name == "mul" and sequences:
        (items, *_), count = sequences, right if sequences[0] is left else left
        if isinstance(count, Const) and count.kind != "float":
            check_length(env, len(items) * int(count.value), node)
            return Record(items.family, tuple(items) * int(count.value))
    return None


@lowers(ast.UnaryOp)
def _unary(env: Environment, node: ast.UnaryOp) -> Value:
    if isinstance(node.op, ast.Not):
        return unary("not", env, node, condition(env, node.operand))
    return unary_operator(type(node.op), env, node, expression(env, node.operand))


def in_place(env: Environment, node: ast.AugAssign, before: Value) -> Value | None:
    """The result of `__iadd__` or its like on an object whose class has such a method; None for anything else."""
    name = f"__i{_METHODS[type(node.op)]}__"
    if not isinstance(getattr(class_of(before), name, None), types.FunctionType):
        return None
    operand = expression(env, node.value)
    result = call_method(env, before, name, operand, node=node)
    return binary_operator(type(node.op), env, node, before, operand) if result is None else result


def unary_operator(syntax: type[ast.AST], env: Environment, node: ast.AST, value: Value, /) -> Value:
    """An operator with one operand; the node is its own, or that of a call."""
    own = call_method(env, value, f"__{_METHODS[syntax]}__", node=node)
    if is_array(value):
        return elementwise(env, partial(on_elements, syntax, env, node), (value,), node)
    return unary(_NAMES[syntax], env, node, value) if own is None else own


def on_elements(syntax: type[ast.AST], env: Environment, node: ast.AST, /, *items: Value) -> Value:
    """An operator on elements of arrays, real or complex."""
    if not any(map(is_complex, items)):
        return as_in_numpy(_NAMES[syntax], env, node, *cast("tuple[Atom, ...]", items))
    if issubclass(syntax, ast.cmpop):
        return _compare_two(env, syntax(), (items[0], node), (items[1], node), node)
    return (unary_operator if len(items) == 1 else binary_operator)(syntax, env, node, *items)


def matmul(env: Environment, node: ast.AST, left: Value, right: Value, /) -> Value:
    """`left @ right`, of arrays."""
    times, plus = (partial(binary_operator, syntax, env, node) for syntax in (ast.Mult, ast.Add))
    return contracted(env, left, right, times, plus, node)


# --- comparisons -----------------------------------------------------------------------------------------------------


@lowers(ast.Compare)
def _compare(env: Environment, node: ast.Compare) -> Value:
    """A chain of comparisons; each operand is evaluated once, and only if those before it hold."""

    def link(position: int, left: Value) -> Value:
        left_node = node.comparators[position - 1] if position else node.left
        right_node = node.comparators[position]
        right = expression(env, right_node)
        env.refuse_outdated(left, left_node)
        test = _compare_two(env, node.ops[position], (left, left_node), (right, right_node), node)
        if position + 1 == len(node.ops):
            return test
        return short_circuit(env, "and", test, lambda: link(position + 1, right), node)

    return link(0, expression(env, node.left))


def _compare_two(
    env: Environment, syntax: ast.cmpop, one: tuple[Value, ast.AST], two: tuple[Value, ast.AST], node: ast.AST
) -> Value:
    (left, left_node), (right, right_node) = one, two
    if type(syntax) in _NAMES and (is_array(left) or is_array(right)):
        return elementwise(env, partial(on_elements, type(syntax), env, node), (left, right), node)
    if isinstance(syntax, ast.Is | ast.IsNot):
        test = _identical(env, left, right, node)
    elif isinstance(syntax, ast.In | ast.NotIn):
        test = _contains(env, left, right, node, right_node)
    elif isinstance(syntax, ast.Eq | ast.NotEq) and not (isinstance(left, Atom) and isinstance(right, Atom)):
        if isinstance(syntax, ast.NotEq):
            for first, second in ((left, right), (right, left)):
                own = call_method(env, first, "__ne__", second, node=node)
                if own is not None:
                    return truth(env, node, own)
        test = equal(env, left, right, node)
    else:
        return ordered(env, _NAMES[type(syntax)], left, right, node, (left_node, right_node))
    return test if isinstance(syntax, ast.Is | ast.In | ast.Eq) else logical(env, "not", test, node=node)


def _identical(env: Environment, left: Value, right: Value, node: ast.AST) -> Atom:
    if isinstance(left, Static) and isinstance(right, Static):
        return TRUE if left.object is right.object else FALSE
    sides = (left, right)
    if are_of_one_enumeration([*sides]):
        return equal(env, left, right, node)
    if any(map(is_member, sides)):  # the number may be that of a member, if paths merge
        env.fail(node, "numbers have no identity in a kernel", "== instead of `is`")
    if Static(None) in sides or all(any(isinstance(side, kind) for side in sides) for kind in (Static, Atom)):
        return FALSE  # a number is no object that is known
    env.fail(node, "numbers have no identity in a kernel", "== instead of `is`")


def _contains(env: Environment, item: Value, container: Value, node: ast.AST, at: ast.AST) -> Atom:
    own = call_method(env, container, "__contains__", item, node=node)
    if own is not None:
        return truth(env, node, own)
    if is_dictionary(container):
        return TRUE if has_key(env, container, item, node) else FALSE
    if isinstance(container, Static) and not isinstance(container.object, enum.EnumMeta):
        problem = f"whether {describe(container)} has a number depends on the data"
        known = env.known_object(item, node, problem, "a tuple of numbers")
        return TRUE if env.evaluate(node, lambda: known in container.object) else FALSE
    if isinstance(container, Range) and isinstance(item, Const) and item.kind != "float":
        inside = container.known()
        if inside is not None:
            return TRUE if item.value in inside else FALSE
    return chain(env, "or", (equal(env, item, candidate, node) for candidate in sequence(env, container, at)), node)


# --- `and` and `or` --------------------------------------------------------------------------------------------------


def condition(env: Environment, node: ast.expr) -> Atom:
    """The truth of an expression."""
    if isinstance(node, ast.BoolOp):
        # Only the truth of each part counts here; as a value, `a and b` would be a or b itself.
        return truth(env, node, _boolean(env, node, node.values, condition))
    return truth(env, node, expression(env, node))


@lowers(ast.BoolOp)
def _and_or(env: Environment, node: ast.BoolOp) -> Value:
    return _boolean(env, node, node.values, expression)


def _boolean(
    env: Environment, node: ast.BoolOp, values: list[ast.expr], part: Callable[[Environment, ast.expr], Value]
) -> Value:
    """`a and b and …` or `a or b or …`, of which `part` lowers each."""
    first = part(env, values[0])
    if len(values) == 1:
        return first
    name = "and" if isinstance(node.op, ast.And) else "or"
    return short_circuit(env, name, first, lambda: _boolean(env, node, values[1:], part), node)


def short_circuit(env: Environment, name: str, first: Value, rest: Callable[[], Value], node: ast.AST) -> Value:
    """`first and rest` or `first or rest`: one of the two, and the rest is evaluated only if it decides."""
    test = truth(env, node, first)
    if isinstance(test, Const):
        return rest() if bool(test.value) == (name == "and") else first
    before = env.frame.bindings
    evaluated = lower_side(env, before, partial(_side, env, rest))
    block, after, _ = evaluated
    other = after[Key.CHOICE]
    assigns = any(key != Key.CHOICE and not same(before.get(key), value) for key, value in after.items())
    is_cheap = all(
        isinstance(stmt, Assign) and isinstance(stmt.value, Op) and stmt.value.name in _CHEAP for stmt in block
    )
    if isinstance(other, Atom) and other.kind == "bool" and test == first and not assigns and is_cheap:
        env.frame.bindings = before
        env.block.extend(block)
        return logical(env, name, test, other, node=node)
    ends = [evaluated, ([], {**before, Key.CHOICE: first}, True)]
    close_branch(env, test, node, ends if name == "and" else ends[::-1])
    return _chosen(env, node)


# --- conditional expressions -----------------------------------------------------------------------------------------


@lowers(ast.IfExp)
def _conditional(env: Environment, node: ast.IfExp) -> Value:
    test, *assigned = condition_of_branch(env, node.test)
    note(env, "test", "if", test, node.test)
    if isinstance(test, Const):
        env.frame.bindings.update(assigned[not test.value])
        return expression(env, node.body if test.value else node.orelse)
    then, orelse = (partial(expression, env, value) for value in (node.body, node.orelse))
    return choose(env, test, then, orelse, node, assigned)


def choose(
    env: Environment,
    test: Atom,
    then: Callable[[], Value],
    orelse: Callable[[], Value],
    node: ast.AST,
    assigned: Iterable[Bindings] = ({}, {}),
) -> Value:
    """One of two values, of which only the chosen one is evaluated, each with names that its side may read."""
    before = env.frame.bindings
    sides = zip((then, orelse), assigned, strict=True)
    ends = [lower_side(env, {**before, **names}, partial(_side, env, side)) for side, names in sides]
    close_branch(env, test, node, ends)
    return _chosen(env, node)


def _side(env: Environment, value: Callable[[], Value]) -> bool:
    env.frame.bindings[Key.CHOICE] = value()
    return True


def _chosen(env: Environment, node: ast.AST) -> Value:
    value = env.frame.bindings.pop(Key.CHOICE)
    if isinstance(value, Unassigned):
        instead = "two numbers, or tuples of one length; for functions, a choice between their results"
        env.fail(node, value.reason, instead)
    return value


# --- conditions that assign names ------------------------------------------------------------------------------------


def condition_of_branch(env: Environment, node: ast.expr) -> tuple[Atom, Bindings, Bindings]:
    """The truth of the condition of a branch; the names that it assigns where it is true, and those where it is false.

    Later parts of an `and` assign names wherever all of it is true, and those of an `or` wherever all of it is false.
    """
    if not isinstance(node, ast.BoolOp):
        return condition(env, node), {}, {}
    test, assigned = _assigning(env, node, node.values)
    return (test, assigned, {}) if isinstance(node.op, ast.And) else (test, {}, assigned)


def _assigning(env: Environment, node: ast.BoolOp, values: list[ast.expr]) -> tuple[Atom, Bindings]:
    """The truth of `a and b and …` or `a or b or …`, and the names that are assigned if b is evaluated.

    They are unassigned after it.
    """
    rest = values[1:]
    if not any(isinstance(part, ast.NamedExpr) for value in rest for part in ast.walk(value)):
        return truth(env, node, _boolean(env, node, values, condition)), {}
    test, goes_on = condition(env, values[0]), isinstance(node.op, ast.And)
    if isinstance(test, Const):
        return _assigning(env, node, rest) if bool(test.value) == goes_on else (test, {})

    def evaluate() -> Value:
        found, later = _assigning(env, node, rest)
        env.frame.bindings.update(later)
        return found

    before = env.frame.bindings
    evaluated = lower_side(env, before, partial(_side, env, evaluate))
    after = evaluated[1]
    names = [name for name in after if name[0] != "<" and isinstance(before.get(name, Unassigned("")), Unassigned)]
    # Where the rest is not evaluated, any number will do: it is not read.
    unread = {name: blank_like(after[name]) for name in names}
    skipped: End = ([], {**before, **unread, Key.CHOICE: FALSE if goes_on else TRUE}, True)
    close_branch(env, test, node, [evaluated, skipped] if goes_on else [skipped, evaluated])
    found, bindings = _chosen(env, node), env.frame.bindings
    assert isinstance(found, Atom), found
    assigned = {name: bindings[name] for name in names}
    bindings.update({name: Unassigned(f"{name} is not assigned on every path that leads here") for name in names})
    return found, assigned
