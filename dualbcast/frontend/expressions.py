"""Literals, tuples, names, attributes and subscripts: their values on the present path, and assignments to names."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import enum
import functools
import inspect
import operator
import types
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from dualbcast.frontend.arithmetic import call_method
from dualbcast.frontend.arrays import whole_arrays
from dualbcast.frontend.arrays.vectors import attribute, captured, index_of, is_array, item_of, rows_of
from dualbcast.frontend.environment import KNOWN_INDEX, Environment, expression, held, lowers
from dualbcast.frontend.inlining import inline
from dualbcast.frontend.notes import note
from dualbcast.frontend.objects import dictionaries
from dualbcast.frontend.objects.members import attribute_of_member
from dualbcast.frontend.objects.outdated import Read
from dualbcast.frontend.values import (
    Arguments,
    Partial,
    Range,
    Record,
    Static,
    Unassigned,
    Value,
    Whole,
    describe,
    enumeration_of,
    without_name,
)
from dualbcast.ir.nodes import Atom, Const, Kind, Var
from dualbcast.ir.simplification import number, zero
from dualbcast.rules.guards import ABSENT, Capture

# The most items of a sequence: it exists at compile time only, and a loop over it is written out.
LONGEST_TUPLE = 1024
_METHODS_OF_NAMED_TUPLES: dict[str, Any] = {"_replace": dataclasses.replace, "_asdict": dict}
_METHODS_OF_NUMBERS: dict[str, Any] = {"conjugate": operator.pos, "is_integer": float.is_integer}
Change = Callable[[ast.Subscript, Value], bool]
# What to write instead of methods of tuples and lists.
_METHODS_OF_LISTS = {
    "copy": "the list itself, which does not change",
    "count": "sum(item == x for item in items)",
    "index": "a loop: for i, item in enumerate(items)",
    "pop": "items[:-1]",
    "reverse": "items[::-1]",
    "sort": "sorted(items)",
}

# --- literals --------------------------------------------------------------------------------------------------------


@lowers(ast.Constant)
def _constant(env: Environment, node: ast.Constant) -> Value:
    if node.value is Ellipsis:
        env.fail(node, "a constant of type ellipsis cannot be compiled", "real numbers")
    return env.usable(held(node.value, ""), node, "this")


@lowers(ast.Tuple, ast.List)
def _tuple(env: Environment, node: ast.Tuple | ast.List) -> Record:
    items = items_of(env, node.elts)
    for item in items:
        env.refuse_iterator(item, node, "an item here")
    return Record(tuple if isinstance(node, ast.Tuple) else list, items)


@lowers(ast.JoinedStr)
def _text(env: Environment, node: ast.JoinedStr) -> Static:
    """The text of an f-string; its values must be known when the kernel is compiled."""
    parts: list[str] = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
            continue
        assert isinstance(part, ast.FormattedValue)
        problem = "text is made when the kernel is compiled, and this is not known then"
        plain = env.known_object(expression(env, part.value), part.value, problem, "a known value")
        shown = f"{plain!r}" if part.conversion in (ord("r"), ord("a")) else plain
        layout = _text(env, part.format_spec).object if isinstance(part.format_spec, ast.JoinedStr) else ""
        parts.append(env.evaluate(part.value, format, shown, layout))
    return Static("".join(parts))


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
    own = call_method(env, value, "__iter__", node=node)
    if own is not None:
        return sequence(env, own, node)
    if isinstance(value, Record) and (value.is_sequence or value.is_iterator):
        return rows_of(value) if is_array(value) else tuple(value)
    if isinstance(value, Range):
        known = value.known()
        if known is not None:
            check_length(env, len(known), node)
            return tuple(number(item) for item in known)
        env.fail(node, "the length of this range is not known when the kernel is compiled", "a for loop over it")
    if isinstance(value, Static) and isinstance(value.object, str | enum.EnumMeta):
        return tuple(Static(item) for item in value.object)
    keys = dictionaries.keys_of(env, value)
    if keys is not None:
        return keys
    if isinstance(value, Whole):
        problem = "the length of a whole array is not known when the kernel is compiled"
        env.fail(node, problem, "a loop over range(len(…)), with array[i] in it")
    shown, instead = describe(value), "a tuple: (a, b)"
    if isinstance(value, Var):
        shown += ": one element of an array, not the array"
        instead += (
            "; for the whole array a parameter that the decorator names in whole=; a value computed from it must be "
            "another argument of the call"
        )
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


@lowers(ast.Name)
def _name(env: Environment, node: ast.Name) -> Value:
    """The value of a name on this path."""
    frame = env.frame
    while node.id not in frame.local and frame.parent is not None:
        frame = frame.parent
    if node.id in frame.local:
        value = frame.bindings.get(node.id)
        if value is None:
            env.fail(node, f"{node.id} is read before it is assigned", f"an assignment to {node.id} above this line")
        if isinstance(value, Unassigned):
            instead = "one kind of thing on every path" if value.conflict else None
            env.fail(node, value.reason, instead or f"an assignment to {node.id} that every path passes")
        env.reads.append(Read(node, value, frame, frame is not env.frame))
        return value
    capture = frame.source.capture(node.id)
    scope = frame.source.function.__globals__
    if capture is None:
        env.fail(node, f"the name {node.id} is not defined", _nearest(node.id, [*env.frame.bindings, *scope]))
    if capture.place is vars(builtins):
        env.guards.append(Capture(scope, node.id, ABSENT, node.id))
    return env.captured(capture, node)


# --- attributes ------------------------------------------------------------------------------------------------------


@lowers(ast.Attribute)
def _attribute(env: Environment, node: ast.Attribute) -> Value:
    """`base.name`, of a module, a Python object, a named tuple or a dataclass."""
    base = expression(env, node.value)
    if node.attr.startswith("__") and not node.attr.endswith("__"):
        node = _private(env, node)
    if dictionaries.is_dictionary(base):
        return dictionaries.method(env, base, node)
    if isinstance(base, Static) and base.object is not None:
        return _attribute_of_object(env, base.object, node)
    if is_array(base):
        return attribute(env, base, node)
    if isinstance(base, Record):
        return _attribute_of_record(env, base, node)
    if isinstance(base, Whole):
        return whole_arrays.attribute(env, base, node.attr, node)
    if isinstance(base, Atom) and node.attr in ("real", "imag"):
        kind: Kind = "int" if base.kind == "bool" else base.kind
        return env.convert(base, kind, node) if node.attr == "real" else zero(kind)
    if isinstance(base, Atom) and node.attr in _METHODS_OF_NUMBERS:
        return Partial(Static(_METHODS_OF_NUMBERS[node.attr]), Arguments((base,)))
    if isinstance(base, Atom):
        env.fail(
            node,
            f"a number has no {node.attr} here: {_parameter(node.value)} is one element of its array",
            "the name alone; a value computed from the whole array must be another argument of the call",
        )
    env.fail(node, f"{describe(base)} has no {node.attr} in a kernel", "plain numbers and functions")


def _attribute_of_record(env: Environment, record: Record, node: ast.Attribute) -> Value:
    kind = record.python_type
    if node.attr in _METHODS_OF_NAMED_TUPLES and record.fields and issubclass(kind, tuple):
        return Partial(Static(_METHODS_OF_NAMED_TUPLES[node.attr]), Arguments((record,)))
    if node.attr in record.fields:
        return env.merged(record[record.fields.index(node.attr)], node)
    member = inspect.getattr_static(kind, node.attr, None)
    if isinstance(member, types.FunctionType):
        return Partial(Static(member), Arguments((record,)))
    computed = member.fget if isinstance(member, property) else getattr(member, "func", None)
    if isinstance(member, property | functools.cached_property) and isinstance(computed, types.FunctionType):
        return inline(env, computed, Arguments((record,)), node)
    if enumeration_of(record) is not None:
        return attribute_of_member(env, record, node, lambda each: _attribute_of_object(env, each, node))
    is_own = isinstance(getattr(member, "__func__", None), types.FunctionType)  # not one of list or tuple
    is_constant = hasattr(kind, node.attr) and not hasattr(member, "__get__")
    if is_constant or (isinstance(member, staticmethod | classmethod) and is_own):
        return _attribute_of_object(env, kind, node)
    instead = _nearest(node.attr, record.fields) or ", ".join(record.fields) or "its items by index, or a named tuple"
    if record.is_sequence and node.attr in _METHODS_OF_LISTS:
        instead = _METHODS_OF_LISTS[node.attr]
    elif kind is list:
        instead = "a new list: items = [*items, item], or [x * i for i in range(3)] in place of a loop"
    env.fail(node, f"{describe(record)} has no {node.attr} in a kernel", instead)


def _private(env: Environment, node: ast.Attribute) -> ast.Attribute:
    """`self.__name` inside a method as Python reads it: with the name of the class before it."""
    outer = env.frame.source.function.__qualname__.rpartition(".")[0]
    kind = outer.rpartition(".")[2].lstrip("_")
    if not kind or kind == "<locals>":
        return node
    return ast.copy_location(ast.Attribute(node.value, f"_{kind}{node.attr}", node.ctx), node)


def _attribute_of_object(env: Environment, owner: Any, node: ast.Attribute) -> Value:
    """An attribute of an object that exists when the kernel is compiled, guarded as a captured name is."""
    try:
        member = getattr(owner, node.attr)
    except Exception as error:
        message = f"{describe(Static(owner))} has no {node.attr}"
        if not isinstance(error, AttributeError):
            message = f"reading {node.attr} of {describe(Static(owner))} raises {type(error).__name__}: {error}"
        env.fail(node, message, _nearest(node.attr, dir(owner)))
    path = ast.unparse(node)
    if isinstance(owner, types.ModuleType) and callable(member) and not isinstance(member, types.FunctionType):
        return Static(member)  # a guard would cost time at each call, and a library's functions do not change
    if type(owner) is types.ModuleType and node.attr in vars(owner):
        return env.captured(Capture(vars(owner), node.attr, member, path), node)
    return env.captured(Capture(owner, node.attr, member, path, attribute=True), node)


# --- indices ---------------------------------------------------------------------------------------------------------


@lowers(ast.Subscript)
def _subscript(env: Environment, node: ast.Subscript) -> Value:
    """`items[index]` or a slice, by integers that are known; an element of a whole array by any."""
    before = dict(env.arrays)
    base = expression(env, node.value)
    if isinstance(base, Whole):
        return whole_arrays.item(env, base, node)
    if any(param == base for param, _ in env.arrays.values()):
        base = _of_captured(env, base, before)
    if isinstance(base, Atom):
        name = _parameter(node.value)
        instead = (
            f'whole="{name}" in the decorator, or signature="(n)->()" for vectors along its last axis; or the shifted '
            "or sliced array as another argument"
        )
        if any(param == base for param, _ in env.arrays.values()):
            instead = "a tuple of the array's values, made outside of the function: tuple(array.tolist())"
        env.fail(node, f"{name} is one element of its array here, so it cannot be indexed", instead)
    if is_array(base):
        place = index_of(env, node.slice, partial(expression, env))
        env.refuse_outdated(base, node.value)
        return item_of(env, base, place, node)
    if dictionaries.is_dictionary(base):
        return dictionaries.item(env, base, node)
    if isinstance(base, Static) and not isinstance(base.object, str | bytes | types.NoneType):
        return _item_of_object(env, base.object, node)
    own = getattr(base.python_type, "__getitem__", None) if isinstance(base, Record) else None
    if isinstance(own, types.FunctionType):
        return inline(env, own, Arguments((base, expression(env, node.slice))), node)
    return _item(env, base, node)


def _item(env: Environment, base: Value, node: ast.Subscript) -> Value:
    """An item of a tuple, or a slice of it."""
    if isinstance(base, Record) and not base.is_sequence:
        env.fail(node, f"{describe(base)} cannot be indexed", "its fields by name, or tuple(…) around an iterator")
    items = sequence(env, base, node.value)
    if isinstance(node.slice, ast.Slice):
        parts = (node.slice.lower, node.slice.upper, node.slice.step)
        bounds = [None if part is None else _static_int(env, part) for part in parts]
        if bounds[2] == 0:
            env.fail(node.slice, "the step of a slice must not be zero")
        env.refuse_outdated(base, node.value)
        return Record(base.family if isinstance(base, Record) else tuple, items[slice(*bounds)])
    index = _static_int(env, node.slice)
    env.refuse_outdated(base, node.value)
    if not -len(items) <= index < len(items):
        env.fail(node, f"index {index} is outside this tuple of {len(items)}", f"an index below {len(items)}")
    return env.merged(items[index], node)


def _of_captured(env: Environment, element: Value, before: dict[str, tuple[Var, Capture]]) -> Value:
    """A captured array that is indexed, as an array of the parameters for its elements; else its element itself."""
    label, (param, capture) = next(item for item in env.arrays.items() if item[1][0] == element)
    array = captured(env, capture, param.kind)
    if array is None or not capture.value.ndim:
        return element
    if label not in before:  # nothing else reads it as a whole
        del env.arrays[label]
    return array


def _static_int(env: Environment, node: ast.expr) -> int:
    value = without_name(expression(env, node))
    if isinstance(value, Const) and value.kind != "float":
        return int(value.value)
    env.fail(
        node,
        "a tuple can only be indexed by an integer known when the kernel is compiled",
        "a for loop over the tuple, or if/elif on the index",
        KNOWN_INDEX,
    )


def _item_of_object(env: Environment, owner: Any, node: ast.Subscript) -> Value:
    """An item of an object such as a mapping, by a key that is known."""
    problem = f"{describe(Static(owner))} can only be indexed by a known value"
    key = env.known_object(expression(env, node.slice), node.slice, problem, "if/elif on the index")
    if not hasattr(type(owner), "__getitem__") and not hasattr(owner, "__class_getitem__"):
        env.fail(node, f"{describe(Static(owner))} cannot be indexed")
    item = env.evaluate(node, lambda: owner[key])
    return env.captured(Capture(owner, key, item, ast.unparse(node)), node)


def _parameter(node: ast.expr) -> str:
    """How messages name an element of an array."""
    return node.id if isinstance(node, ast.Name) else "a parameter"


def _nearest(name: str, names: Iterable[str]) -> str:
    """The defined name that the user may have meant, or an empty string."""
    import difflib  # used for errors only

    return "".join(difflib.get_close_matches(name, [other for other in names if not other.startswith("<")], 1))


# --- assignment ------------------------------------------------------------------------------------------------------


def assign(env: Environment, target: ast.expr, value: Value, change: Change = lambda *_: False) -> None:
    """Bind the names in a target to a value, or to its items; `change` may carry out an assignment to an item."""
    if isinstance(target, ast.Name):
        env.refuse_iterator(value, target, target.id)
        env.frame.bindings[target.id] = value = env.rename(value, target.id)
        note(env, "assign", target.id, value, target)
    elif isinstance(target, ast.Tuple | ast.List):
        _unpack(env, target, value, change)
    elif not isinstance(target, ast.Subscript):
        env.fail(target, "an attribute cannot be assigned in a kernel", "a local variable")
    elif not change(target, value):
        env.fail(
            target,
            "an element cannot be assigned: tuples do not change, and outputs are returned",
            "a new tuple, or another output",
        )


def _unpack(env: Environment, target: ast.Tuple | ast.List, value: Value, change: Change) -> None:
    items = sequence(env, value, target)
    starred = [isinstance(part, ast.Starred) for part in target.elts]
    fitted = fit_items(items, starred)
    if fitted is None:
        count = len(starred)
        targets = f"fill {count - 1} names and a starred one" if any(starred) else f"be unpacked into {count} names"
        env.fail(target, f"{len(items)} values cannot {targets}")
    for part, item in zip(target.elts, fitted, strict=True):
        assign(env, part.value if isinstance(part, ast.Starred) else part, item, change)


@lowers(ast.NamedExpr)
def _named(env: Environment, node: ast.NamedExpr) -> Value:
    assign(env, node.target, expression(env, node.value))
    return env.frame.bindings[node.target.id]
