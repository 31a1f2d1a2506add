"""Literals, tuples, lists, f-strings and inner functions; and the items of values that can be iterated over."""

from __future__ import annotations

import ast
import enum

from dualbcast.frontend.dispatch import expression, lowers, refuses
from dualbcast.frontend.environment import Environment
from dualbcast.frontend.values import Closure, Keywords, Range, Record, Static, Value, describe, is_sequence, object_of
from dualbcast.ir.constant_fold import number
from dualbcast.ir.nodes import Const, Var

__all__ = ["check_length", "fit_items", "items_of", "make_closure", "sequence"]

# The most items of a sequence: it exists at compile time only, and a loop over it is written out.
LONGEST_TUPLE = 1024

# --- literals --------------------------------------------------------------------------------------------------------


@lowers(ast.Constant)
def _constant(env: Environment, node: ast.Constant) -> Value:
    value = None if node.value is Ellipsis else env.constant(node.value, "")
    if value is None:
        env.fail(node, f"a constant of type {type(node.value).__name__} cannot be compiled", "real numbers")
    return value


@lowers(ast.Tuple)
def _tuple(env: Environment, node: ast.Tuple | ast.List) -> tuple[Value, ...]:
    items = items_of(env, node.elts)
    for item in items:
        env.refuse_iterator(item, node, "an item here")
    return items


@lowers(ast.List)
def _list(env: Environment, node: ast.List) -> Value:
    return Record(list, _tuple(env, node))


@lowers(ast.JoinedStr)
def _text(env: Environment, node: ast.JoinedStr) -> Value:
    return Static(_format(env, node))


def _format(env: Environment, node: ast.JoinedStr) -> str:
    """The text of an f-string; its values must be known when the kernel is compiled."""
    parts: list[str] = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
            continue
        assert isinstance(part, ast.FormattedValue)
        value = expression(env, part.value)
        if not isinstance(value, Const | Static):
            problem = "text is made when the kernel is compiled, and this is not known then"
            env.fail(part.value, problem, "a known value")
        plain = object_of(value)
        shown = f"{plain!r}" if part.conversion in (ord("r"), ord("a")) else plain
        layout = _format(env, part.format_spec) if isinstance(part.format_spec, ast.JoinedStr) else ""
        parts.append(env.evaluate(part.value, format, shown, layout))
    return "".join(parts)


@lowers(ast.Lambda)
def make_closure(env: Environment, node: ast.FunctionDef | ast.Lambda) -> Closure:
    """A function that is defined inside the one being compiled."""
    spec = node.args
    positional = [*spec.posonlyargs, *spec.args]
    parameters = (*positional[len(positional) - len(spec.defaults) :], *spec.kwonlyargs)
    pairs = zip(parameters, (*spec.defaults, *spec.kw_defaults), strict=True)
    defaults = {param.arg: expression(env, default) for param, default in pairs if default is not None}
    return Closure(node, env.frame, defaults)


for _kind, _name, _instead in (
    (ast.Dict, "a dictionary", "separate variables, or a named tuple"),
    (ast.Set, "a set", "a tuple"),
    (ast.SetComp, "a set comprehension", "tuple(… for …)"),
    (ast.DictComp, "a dictionary comprehension", "tuple(… for …)"),
    (ast.Await, "await", "plain code: a scalar function runs to its end"),
    (ast.Yield, "yield", "return: a scalar function gives one value for each element"),
    (ast.YieldFrom, "yield from", "return: a scalar function gives one value for each element"),
):
    refuses(_kind, _name, _instead)


# --- items -----------------------------------------------------------------------------------------------------------


def items_of(env: Environment, nodes: list[ast.expr]) -> tuple[Value, ...]:
    """The values of a list of expressions, starred ones spread."""
    values: list[Value] = []
    for node in nodes:
        if isinstance(node, ast.Starred):
            values.extend(sequence(env, expression(env, node.value), node.value))
        else:
            values.append(expression(env, node))
    return tuple(values)


def sequence(env: Environment, value: Value, node: ast.AST) -> tuple[Value, ...]:
    """The items of an iterable; their number must be known when the kernel is compiled."""
    if is_sequence(value) or (isinstance(value, Record) and value.is_iterator):
        return tuple(value)
    if isinstance(value, Range):
        known = value.known()
        if known is not None:
            check_length(env, len(known), node)
            return tuple(number(item) for item in known)
        env.fail(node, "the length of this range is not known when the kernel is compiled", "a for loop over it")
    if isinstance(value, Static) and isinstance(value.object, str | enum.EnumMeta):
        return tuple(Static(item) for item in value.object)
    if isinstance(value, Keywords):
        return tuple(Static(name) for name in value)
    shown, instead = describe(value), "a tuple: (a, b)"
    if isinstance(value, Var):
        shown += ": one element of an array, not the array"
        instead += "; a value computed from the whole array must be another argument of the call"
    env.fail(node, f"a tuple is needed here, and this is {shown}", instead)


def fit_items(items: tuple[Value, ...], starred: list[bool]) -> tuple[Value, ...] | None:
    """The items for as many targets, of which a starred one takes a list of the rest; None if they do not fit."""
    if True not in starred:
        return items if len(items) == len(starred) else None
    if len(items) < len(starred) - 1:
        return None
    start = starred.index(True)
    end = len(items) - (len(starred) - start - 1)
    return (*items[:start], Record(list, items[start:end]), *items[end:])


def check_length(env: Environment, length: int, node: ast.AST) -> None:
    """Refuse to write out a sequence that would be too long to compile."""
    if length > LONGEST_TUPLE:
        env.fail(node, f"this would be written out {length:,} times; {LONGEST_TUPLE} is the most", "a loop over range")
