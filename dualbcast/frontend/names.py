"""The front end's places: what names, attributes and indices stand for, and what comes from outside the function."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import enum
import inspect
import numbers
import types
from collections.abc import Iterable
from typing import Any

import numpy as np

from dualbcast.frontend.operators import Operators
from dualbcast.frontend.values import (
    Frame,
    Keywords,
    Partial,
    Range,
    Record,
    Static,
    Unassigned,
    Value,
    describe,
    items_like,
)
from dualbcast.ir.constant_fold import number
from dualbcast.ir.nodes import Const, Var
from dualbcast.rules.guards import ABSENT, Capture

__all__ = ["Places"]

# Objects that may change unseen, and numbers that a kernel has no arithmetic for.
_REFUSED = (list, dict, set, bytearray, numbers.Number)


class Places(Operators):
    """Lowers names, attributes and subscripts; `expression` and `sequence` are supplied by the layer above."""

    def expression(self, node: ast.expr) -> Value:
        raise NotImplementedError

    def sequence(self, value: Value, node: ast.AST) -> tuple[Value, ...]:
        raise NotImplementedError

    # --- what comes from outside ---------------------------------------------------------------------------------

    def known(self, value: Any, capture: Capture) -> Value | None:
        """A Python object that exists when the kernel is compiled; None where a kernel cannot use it.

        An array becomes a parameter of the kernel, read through `capture` at every call.
        """
        if isinstance(value, bool | int | float) and not isinstance(value, enum.Enum):
            return number(value)
        if isinstance(value, np.bool_ | np.integer | np.floating):
            return number(value.item()) if not isinstance(value, np.longdouble) else number(float(value))
        kind = self.array_kind(value)
        if kind is not None:
            return self.array(capture, kind)
        if isinstance(value, tuple):
            items: list[Value] = []
            for position, item in enumerate(value):
                found = self.known(item, Capture(value, position, item, f"{capture.path}[{position}]"))
                if found is None:
                    return None
                items.append(found)
            return tuple(items) if type(value) is tuple else Record(type(value), items, getattr(value, "_fields", ()))
        if isinstance(value, range):
            return Range(number(value.start), number(value.stop), number(value.step))
        if (isinstance(value, _REFUSED) and not isinstance(value, enum.Enum)) or hasattr(type(value), "__array__"):
            return None
        return Static(value)

    def captured(self, capture: Capture, node: ast.AST) -> Value:
        """The meaning of something from outside the function; calls compare it with what is there then."""
        value = self.known(capture.value, capture)
        if value is None:
            kind = type(capture.value).__name__
            instead = f"a parameter for {capture.path}"
            if isinstance(capture.value, list | set):
                instead = f"a tuple, which cannot change, or {instead}"
            message = f"{capture.path} is captured from outside the function and is of type {kind}, "
            self.fail(node, message + "which a kernel cannot use", instead)
        if self.array_kind(capture.value) is None:
            self.guards.append(capture)
        return value

    def constant(self, node: ast.Constant) -> Value:
        """A literal."""
        value = None if node.value is Ellipsis else self.known(node.value, Capture((node.value,), 0, node.value, ""))
        if value is None:
            self.fail(node, f"a constant of type {type(node.value).__name__} cannot be compiled", "real numbers")
        return value

    # --- names ---------------------------------------------------------------------------------------------------

    def name(self, node: ast.Name) -> Value:
        """What a name stands for on this path."""
        frame: Frame | None = self.frame
        while frame is not None:
            if node.id in frame.local:
                value = frame.env.get(node.id)
                if value is None:
                    self.fail(
                        node, f"{node.id} is read before it is assigned", f"an assignment to {node.id} above this line"
                    )
                if isinstance(value, Unassigned):
                    self.fail(node, value.reason, f"an assignment to {node.id} that every path passes")
                return value
            outermost, frame = frame, frame.parent
        capture = outermost.source.capture(node.id)
        scope = outermost.source.function.__globals__
        if capture is None:
            self.fail(node, f"the name {node.id} is not defined", _nearest(node.id, [*self.frame.env, *scope]))
        if capture.place is vars(builtins):
            self.guards.append(Capture(scope, node.id, ABSENT, node.id))
        return self.captured(capture, node)

    # --- attributes ----------------------------------------------------------------------------------------------

    def attribute(self, node: ast.Attribute) -> Value:
        """`base.name`, of a module, a Python object, a named tuple or a dataclass."""
        base = self.expression(node.value)
        if node.attr.startswith("__") and not node.attr.endswith("__"):
            node = self._private(node)
        if isinstance(base, Static) and base.object is not None:
            return self.attribute_of_object(base.object, node)
        if isinstance(base, Record):
            if node.attr == "_replace" and issubclass(base.python_type, tuple):
                return Partial(Static(dataclasses.replace), (base,), {})
            if node.attr in base.fields:
                return self.merged(base[base.fields.index(node.attr)], node)
            found = inspect.getattr_static(base.python_type, node.attr, None)
            if isinstance(found, types.FunctionType):
                return Partial(Static(found), (base,), {})
            if isinstance(found, property) and isinstance(found.fget, types.FunctionType):
                return self.inline(found.fget, (base,), {}, node)
            own = isinstance(getattr(found, "__func__", None), types.FunctionType)  # not one of list or tuple
            if isinstance(found, bool | int | float) or (isinstance(found, staticmethod | classmethod) and own):
                return self.attribute_of_object(base.python_type, node)
            instead = _nearest(node.attr, base.fields) or ", ".join(base.fields)
            if base.python_type is list:
                instead = "a new list, such as [*items, item]"
            self.fail(node, f"{describe(base)} has no {node.attr} in a kernel", instead)
        if isinstance(base, Const | Var):
            self.fail(
                node,
                f"a number has no {node.attr} here: {_parameter(node.value)} is one element of its array",
                "the name alone; what comes from the whole array is another argument of the call",
            )
        instead = "its items by index, or a named tuple" if isinstance(base, tuple) else "plain numbers and functions"
        self.fail(node, f"{describe(base)} has no {node.attr} in a kernel", instead)

    def _private(self, node: ast.Attribute) -> ast.Attribute:
        """`self.__name` as Python reads it in a method: under the name of the class as well."""
        outer = self.frame.source.function.__qualname__.rpartition(".")[0]
        kind = outer.rpartition(".")[2].lstrip("_")
        if not kind or kind == "<locals>":
            return node
        return ast.copy_location(ast.Attribute(node.value, f"_{kind}{node.attr}", node.ctx), node)

    def attribute_of_object(self, owner: Any, node: ast.Attribute) -> Value:
        """An attribute of an object that exists when the kernel is compiled, guarded as a captured name is."""
        try:
            found = getattr(owner, node.attr)
        except Exception as error:
            message = f"{describe(Static(owner))} has no {node.attr}"
            if not isinstance(error, AttributeError):
                message = f"reading {node.attr} of {describe(Static(owner))} raises {type(error).__name__}: {error}"
            self.fail(node, message, _nearest(node.attr, dir(owner)))
        path = ast.unparse(node)
        if isinstance(owner, types.ModuleType) and callable(found) and not isinstance(found, types.FunctionType):
            return Static(found)  # a library's own; it is not expected to change, and many calls would look at it
        if type(owner) is types.ModuleType and node.attr in vars(owner):
            return self.captured(Capture(vars(owner), node.attr, found, path), node)
        return self.captured(Capture(owner, node.attr, found, path, attribute=True), node)

    def inline(self, function: Any, args: tuple[Value, ...], keywords: dict[str, Value], node: ast.AST) -> Value:
        """The result of a Python function; supplied by the layer above."""
        raise NotImplementedError

    # --- indices -------------------------------------------------------------------------------------------------

    def subscript(self, node: ast.Subscript) -> Value:
        """`items[index]` or a slice, by integers that are known."""
        base = self.expression(node.value)
        if isinstance(base, Const | Var):
            self.fail(
                node,
                f"{_parameter(node.value)} is one element of its array here, so it cannot be indexed",
                "the shifted or sliced array as another argument of the call",
            )
        if isinstance(base, Static) and not isinstance(base.object, str | bytes | types.NoneType):
            return self._item_of_object(base.object, node)
        if isinstance(base, Keywords):
            return self._keyword(base, node)
        if isinstance(base, Record) and not base.is_sequence:
            self.fail(node, f"{describe(base)} cannot be indexed", "its fields by name, or tuple(…) around an iterator")
        items = self.sequence(base, node.value)
        if isinstance(node.slice, ast.Slice):
            parts = (node.slice.lower, node.slice.upper, node.slice.step)
            bounds = [None if part is None else self._static_int(part) for part in parts]
            if bounds[2] == 0:
                self.fail(node.slice, "the step of a slice must not be zero")
            found = items[slice(*bounds)]
            return items_like(base, found) if isinstance(base, Record) and base.python_type is list else tuple(found)
        index = self._static_int(node.slice)
        if not -len(items) <= index < len(items):
            self.fail(node, f"index {index} is outside this tuple of {len(items)}", f"an index below {len(items)}")
        return self.merged(items[index], node)

    def _static_int(self, node: ast.expr) -> int:
        value = self.expression(node)
        if isinstance(value, Const) and value.kind != "float":
            return int(value.value)
        self.fail(
            node,
            "a tuple can only be indexed by an integer known when the kernel is compiled",
            "a for loop over the tuple, or if/elif on the index",
        )

    def _keyword(self, keywords: Keywords, node: ast.Subscript) -> Value:
        """An item of a `**` parameter."""
        key = self.expression(node.slice)
        name = key.object if isinstance(key, Static) else None
        if not isinstance(name, str) or name not in keywords:
            shown = ast.unparse(node.slice)
            self.fail(
                node, f"there is no argument {shown}", f"one of {', '.join(map(repr, keywords))}" if keywords else ""
            )
        found: Value = keywords[name]
        return found

    def _item_of_object(self, owner: Any, node: ast.Subscript) -> Value:
        """An item of an object such as a mapping, by a key that is known."""
        key = self.expression(node.slice)
        if not isinstance(key, Const | Static):
            self.fail(
                node.slice, f"{describe(Static(owner))} can only be indexed by what is known", "if/elif on the index"
            )
        plain = key.value if isinstance(key, Const) else key.object
        if not hasattr(type(owner), "__getitem__") and not hasattr(owner, "__class_getitem__"):
            self.fail(node, f"{describe(Static(owner))} cannot be indexed")
        try:
            found = owner[plain]
        except Exception as error:
            self.fail(node, f"this raises {type(error).__name__}: {error}")
        return self.captured(Capture(owner, plain, found, ast.unparse(node)), node)


def _parameter(node: ast.expr) -> str:
    """What a message calls the element of an array."""
    return node.id if isinstance(node, ast.Name) else "a parameter"


def _nearest(name: str, names: Iterable[str]) -> str:
    """A defined name that the user may have meant."""
    import difflib  # for errors alone

    return "".join(difflib.get_close_matches(name, [other for other in names if not other.startswith("<")], 1))
