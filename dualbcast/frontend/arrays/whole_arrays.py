"""Whole arrays: an element or a part at computed indices comes in as syntax and goes out as operations on places."""

from __future__ import annotations

import ast

from dualbcast.frontend.arithmetic import as_scalar
from dualbcast.frontend.environment import Environment, expression
from dualbcast.frontend.values import Record, Value, Whole
from dualbcast.ir.nodes import BOUNDED, READ, Atom, Const, Op
from dualbcast.ir.simplification import number

# What happens to an index that is not in its axis, by NumPy's words.
MODES = ("raise", "clip", "wrap")


def item(env: Environment, whole: Whole, node: ast.Subscript) -> Value:
    """`array[i]`, `array[i, j]`: an element, or the part at fewer indices than there are axes."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    for part in parts:
        if isinstance(part, ast.Slice) or (isinstance(part, ast.Constant) and part.value in (None, Ellipsis)):
            env.fail(part, "a whole array is indexed by integers only", "a loop over range(len(…)) with an index each")
    indices = [(expression(env, part), part) for part in parts]
    if len(indices) == 1 and isinstance(indices[0][0], Record):
        indices = [(index, parts[0]) for index in indices[0][0]]
    return at(env, whole, indices, "raise", node)


def at(env: Environment, whole: Whole, indices: list[tuple[Value, ast.expr]], mode: str, node: ast.AST) -> Value:
    """The element, or the part, at leading indices."""
    if len(indices) > len(whole.shape):
        axes = "1 axis" if len(whole.shape) == 1 else f"{len(whole.shape)} axes"
        env.fail(node, f"{len(indices)} indices for a whole array of {axes}", f"{len(whole.shape)} at most")
    place: Atom | None = None
    for position, length in enumerate(whole.shape):
        if place is not None:
            place = env.op("mul", place, length, kind="int", node=node)
        if position < len(indices):
            inner = _bounded(env, *indices[position], length, mode)
            if whole.is_empty and mode != "raise":  # then one of the lengths is 0, and there is nothing to read instead
                inner = env.emit(Op(BOUNDED, (inner, length), "int", env.locate(indices[position][1])), node)
            place = inner if place is None else env.op("add", place, inner, kind="int", node=node)
    assert place is not None
    begin = env.op("add", whole.begin, place, kind="int", node=node)
    if len(indices) < len(whole.shape):
        return Whole(whole.array, begin, whole.shape[len(indices) :], whole.is_empty)
    return env.emit(Op(READ, (whole.array, begin), whole.array.kind, env.locate(node)), node)


def _bounded(env: Environment, value: Value, node: ast.expr, length: Atom, mode: str) -> Atom:
    """An index as a place of its axis."""
    index = as_scalar(env, value, node)
    if index.kind == "float":
        env.fail(node, "an index must be an integer, and this is a float", "int(…) around it")
    index = env.convert(index, "int", node)
    if mode == "raise":
        return env.emit(Op(BOUNDED, (index, length), "int", env.locate(node)), node)
    if mode == "wrap":
        return env.op("mod", index, length, kind="int", node=node)
    last = env.op("sub", length, Const(1, "int"), kind="int", node=node)
    is_less = env.op("lt", index, last, kind="bool", node=node)
    least = env.op("select", is_less, index, last, kind="int", node=node)
    # Last, since an array may be empty: it has a place in memory all the same.
    is_positive = env.op("gt", least, Const(0, "int"), kind="bool", node=node)
    return env.op("select", is_positive, least, Const(0, "int"), kind="int", node=node)


def attribute(env: Environment, whole: Whole, name: str, node: ast.AST) -> Value:
    """`array.shape`, `array.ndim` or `array.size`."""
    if name == "shape":
        return Record(tuple, whole.shape)
    if name == "ndim":
        return number(len(whole.shape))
    if name == "size":
        size: Atom = Const(1, "int")
        for length in whole.shape:
            size = env.op("mul", size, length, kind="int", node=node)
        return size
    env.fail(node, f"a whole array has no {name} in a kernel", "array[i], len(array), array.shape, ndim or size")
