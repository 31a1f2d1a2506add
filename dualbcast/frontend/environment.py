"""The state of one lowering (the open block, names, the frame, captures), and the dispatch table of the front end.

The table leads from a class of syntax node to the function that lowers it. Each file registers the lowerings of its
nodes. It lowers the nodes inside them through `expression` and `paths.statements`, and calls through `call_value`, so
the files need not import each other in a circle.
"""

from __future__ import annotations

import ast
import enum
import numbers
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn, TypeVar, cast

import numpy as np

from dualbcast.complex_numbers import Complex
from dualbcast.errors import CompileError, Location, a_or_an
from dualbcast.frontend.objects.outdated import COPY, Read, changes_of, missed_change, note_late
from dualbcast.frontend.values import Arguments, Frame, Range, Record, Static, Unassigned, Value, describe, is_function
from dualbcast.ir.nodes import TEMPORARY, Array, Assign, Atom, Block, Const, Expr, Kind, Names, Op, Stmt, Var
from dualbcast.ir.simplification import INTEGRAL, convert, fold, number
from dualbcast.ir.traversal import assigned_always, renamed_block
from dualbcast.rules.guards import Capture, has_own_operators
from dualbcast.rules.table import RULES, Rule, watch
from dualbcast.tracebacks import PACKAGE

# The most operations that a function may have.
LONGEST = 20_000
# Objects that may change unnoticed, and numbers that a kernel has no arithmetic for.
_REFUSED = (list, set, bytearray, numbers.Number)

# The kind of the elements of a captured array, or None where an object is no array.
ArrayKind = Callable[[Any], Kind | None]

# What an error has as `tried` where an index must be known: a loop that is written out may know it.
KNOWN_INDEX = ast.AST()
# The attributes that another try at a lowering starts anew with.
_UNDONE = ("length", "arrays", "indices", "taken", "cores", "derived", "_definitions", "_renamed")

_Result = TypeVar("_Result")


def locate(node: ast.AST, filename: str) -> Location:
    """The place of a syntax node."""
    line = getattr(node, "lineno", 1)
    column = getattr(node, "col_offset", 0)
    end_line = getattr(node, "end_lineno", None) or line
    return Location(filename, line, column, end_line, getattr(node, "end_col_offset", None) or column + 1)


def held(value: Any, path: str) -> Capture:
    """An object that nothing outside refers to as a capture, under this path."""
    return Capture((value,), 0, value, path)


@dataclass(eq=False)
class Environment:
    """The state of one lowering. It knows the IR, and no Python syntax."""

    names: Names  # in use
    array_kind: ArrayKind  # of the elements of a captured array
    # The function whose body is being lowered, with its bindings on the present path.
    frame: Frame
    # The outermost block, whose statements always run, and the open block, to which statements are appended.
    root: list[Stmt] = field(default_factory=list)
    block: list[Stmt] = field(init=False)
    outermost: Frame = field(init=False)
    # The captures that are compiled in.
    guards: list[Capture] = field(default_factory=list)
    # The captured arrays by label, each with the parameter that stands for its element; and the labels in use.
    arrays: dict[str, tuple[Var, Capture]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    # By axis, the parameters that have the place of the element in the result.
    indices: dict[int, Var] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)  # the names that were read
    # With core dimensions: what makes outputs of the value of a return, and arrays of captured ones; and those.
    finish: Callable[[Value, ast.AST], Value] | None = None
    core: Callable[[Capture, Kind], Value | None] | None = None
    complex_array: Callable[[Capture, Kind], Value] = field(init=False)  # of the element of a captured complex array
    cores: dict[tuple[int, Any], Value] = field(default_factory=dict)
    derived: set[str] = field(default_factory=set)  # the names of derivatives
    inlined: list[object] = field(default_factory=list)  # the functions that are being inlined, outermost first
    # Whether notes say what each step does; None where `print` and `assert` are refused, as in the function of a rule.
    notes: bool | None = None
    speaks: bool = False  # whether the function prints, or asserts what is not known
    # How many loops have been written out, and how many operations there are.
    unrolled: int = 0
    length: int = 0
    # The operation that assigns each name, and the block it is in.
    _definitions: dict[str, tuple[Op, list[Stmt]]] = field(default_factory=dict)
    # The new names of temporaries that were given a user's name; other values may still hold the old ones.
    _renamed: dict[str, Var] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.block, self.outermost = self.root, self.frame

    # --- errors ---------------------------------------------------------------------------------------

    def locate(self, node: ast.AST) -> Location:
        return locate(node, self.frame.source.filename)

    def place(self, node: ast.AST) -> Location:
        """The place in the user's code: that of the call where a node is in a function of this package."""
        where = self.locate(node)
        if not where.filename.startswith(PACKAGE):
            return where
        outside = (place for _, place in reversed(self.frame.calls) if not place.filename.startswith(PACKAGE))
        return next(outside, where)

    def fail(self, node: ast.AST, message: str, hint: str = "", tried: ast.AST | None = None) -> NoReturn:
        """An error at a node; `tried` is the statement or expression that may be lowered in another way instead."""
        error = CompileError(message, self.locate(node), hint, self.frame.calls)
        error.tried = tried  # type: ignore[attr-defined]
        raise error

    def evaluate(self, node: ast.AST, function: Callable[..., _Result], *args: Any, **named: Any) -> _Result:
        """The result of a function that is called now, while the kernel is compiled; it may be a user's."""
        try:
            return function(*args, **named)
        except Exception as error:
            self.fail(node, f"this raises {type(error).__name__}: {error}")

    def known_object(self, value: Value, node: ast.AST, problem: str, hint: str = "") -> Any:
        """The Python object that a value stands for; this error where it is not known."""
        if isinstance(value, Record) and value.python_type in (tuple, list):
            return value.python_type([self.known_object(item, node, problem, hint) for item in value])
        if not isinstance(value, Const | Static):
            self.fail(node, problem, hint)
        return value.value if isinstance(value, Const) else value.object

    def refuse_outdated(self, value: object, node: ast.AST) -> None:
        """Refuse what a change in place under another name would have changed in Python, too."""
        if change := missed_change(value, changes_of(self.frame.bindings)):
            self.fail(node, change.problem(getattr(node, "id", "this")), COPY)

    def merged(self, value: Value, node: ast.AST) -> Value:
        """The value itself; an error if it stands for values that paths could not merge."""
        if isinstance(value, Unassigned):
            self.fail(node, value.reason, "one kind of thing on every path")
        return value

    def refuse_iterator(self, value: Value, node: ast.AST, label: str) -> None:
        """Refuse to bind an iterator: it gives its items once, and under a name it would seem to give them again."""
        if isinstance(value, Record) and value.is_iterator:
            name = "generator" if value.python_type.__name__ == "generator" else f"{value.python_type.__name__}()"
            self.fail(node, f"{label} is {a_or_an(name)}, which can be used once only", "tuple(…) around it")

    # --- captures ------------------------------------------------------------------------------------------------

    def array(self, capture: Capture, kind: Kind) -> Var:
        """The element of a captured array: a parameter like those of the call."""
        for param, known in self.arrays.values():
            if known.place is capture.place and known.key == capture.key:
                return param
        paths = [capture.path, f"{self.frame.name}.{capture.path}"]
        paths += [f"{paths[1]}_{count}" for count in range(2, len(self.arrays) + 3)]
        label = next(path for path in paths if path not in self.taken)
        self.taken.add(label)
        param = Var(self.names.fresh(re.sub(r"\W+", "_", label).strip("_")), kind)
        self.arrays[label] = param, capture
        return param

    def known(self, capture: Capture) -> Value | None:
        """A Python object that exists when the kernel is compiled; None where a kernel cannot use it.

        An array becomes a parameter of the kernel, read through `capture` at every call.
        """
        value = capture.value
        if isinstance(value, bool | int | float) and not isinstance(value, enum.Enum):
            return None if has_own_operators(value) else number(value)
        if isinstance(value, np.bool_ | np.integer | np.floating):
            return number(value.item()) if not isinstance(value, np.longdouble) else number(float(value))
        if isinstance(value, complex | np.complexfloating):
            return Record(Complex, (number(float(value.real)), number(float(value.imag))), Complex.fields)
        kind = self.array_kind(value)
        if kind is not None:
            array = self.core or (self.complex_array if value.dtype.kind == "c" else self.array)
            return array(capture, kind)
        if isinstance(value, tuple):
            items: list[Value] = []
            for position, item in enumerate(value):
                inner = self.known(Capture(value, position, item, f"{capture.path}[{position}]"))
                if inner is None:
                    return None
                items.append(inner)
            return Record(type(value), items, getattr(value, "_fields", ()))
        if isinstance(value, range):
            return Range(number(value.start), number(value.stop), number(value.step))
        if (isinstance(value, _REFUSED) and not isinstance(value, enum.Enum)) or hasattr(type(value), "__array__"):
            return None
        return Static(value)

    def usable(self, capture: Capture, node: ast.AST, label: str, hint: str = "") -> Value:
        """The value of a capture, which messages call `label`; an error where a kernel cannot use it."""
        try:
            value = self.known(capture)
        except OverflowError:
            self.fail(node, f"{label} has an integer beyond the range of floats", "smaller numbers, or math.inf")
        if value is None:
            self.fail(node, f"{label} is of type {type(capture.value).__name__}, which a kernel cannot use", hint)
        return value

    def captured(self, capture: Capture, node: ast.AST) -> Value:
        """The value of a capture, which becomes a guard: each call compares it with the object that is there then."""
        instead = f"a parameter for {capture.path}"
        if isinstance(capture.value, list | set):
            instead = f"a tuple, which cannot change, or {instead}"
        value = self.usable(capture, node, f"{capture.path} is captured from outside the function and", instead)
        if self.array_kind(capture.value) is None:
            self.guards.append(capture)
        return value

    def meaning(self, function: Any) -> Any:
        """The rule, custom derivative or function that a callable stands for; a guard watches that it still does."""
        guard = watch(function)
        if not isinstance(guard.value, Rule) or guard.value.by_user:
            self.guards.append(guard)
        return guard.value

    # --- statements ----------------------------------------------------------------------------------------------

    def emit(self, value: Expr, node: ast.AST, name: str = TEMPORARY) -> Atom:
        """The value as an atom: a new name for the result of an operation."""
        if isinstance(value, Atom):
            return value
        location = self.place(node)
        if isinstance(value, Op):
            value = replace(
                value,
                args=tuple([arg if isinstance(arg, Array) else self.emit(arg, node) for arg in value.args]),
                location=location,
            )
            if name == TEMPORARY and value.name in RULES:
                name, first = name + value.name, value.args[0]
                if isinstance(first, Var) and not first.name.startswith(TEMPORARY):  # the user's name
                    name += f"_{first.name}"
        target = Var(self.names.fresh(name), value.kind)
        if isinstance(value, Op):
            self._definitions[target.name] = value, self.block
        self.length += 1
        if self.length > LONGEST:
            message = f"this function has more than {LONGEST:,} operations when its calls and loops are written out"
            self.fail(node, message, "a loop over range, or fewer calls within calls")
        self.block.append(Assign(target, value, location))
        return target

    def op(self, name: str, *args: Expr, kind: Kind, node: ast.AST) -> Atom:
        """The result of an operation, folded where it can be."""
        value = fold(Op(name, args, kind, self.place(node)))
        if isinstance(value, Op) and kind == "int" and all(isinstance(arg, Const) for arg in value.args):
            self.fail(node, "this integer does not fit 64 bits", "a float, such as 2.0**64")
        return self.emit(value, node)

    def convert(self, value: Atom, kind: Kind, node: ast.AST) -> Atom:
        """The value as another kind; `float(int(x))` is the whole part of x, however large it is, but never -0.0."""
        if value.kind == kind:
            return value
        definition = self._definition(value) if kind == "float" else None
        if definition is not None and definition.name == "to_int" and definition.args[0].kind == "float":
            (inner,) = definition.args
            whole = self._definition(inner)
            if whole is None or whole.name not in INTEGRAL:
                inner = self.op("trunc", inner, kind="float", node=node)
            return self.op("add", inner, Const(0.0, "float"), kind="float", node=node)
        return self.emit(convert(value, kind), node)

    def _definition(self, value: Expr) -> Op | None:
        """The operation that assigns a name in the open block, where its operands still have the same values."""
        definition, block = self._definitions.get(value.name, (None, None)) if isinstance(value, Var) else (None, None)
        return definition if block is self.block else None

    def snapshot(self) -> Callable[[], None]:
        """A function that undoes all lowering since this call, so that it can be tried again."""
        frame, block, bindings = self.frame, self.block, dict(self.frame.bindings)
        lists: tuple[list[Any], ...] = (block, self.guards, frame.loops, self.reads)
        lengths, mark = [len(each) for each in lists], self.names.mark()
        saved = {name: copy(getattr(self, name)) for name in _UNDONE}

        def restore() -> None:
            self.names.reset(mark)
            self.frame, self.block, frame.bindings = frame, block, dict(bindings)
            for name, value in saved.items():
                setattr(self, name, copy(value))
            for each, length in zip(lists, lengths, strict=True):
                del each[length:]

        return restore

    @contextmanager
    def into(self, block: list[Stmt]) -> Generator[None]:
        """Append statements to another block, inside `with`."""
        self.block, outer = block, self.block
        try:
            yield
        finally:
            self.block = outer

    def rename(self, value: Value, name: str) -> Value:
        """Give a value the user's name, if it was just computed into a temporary."""
        if isinstance(value, Var) and value.name.startswith(TEMPORARY):
            for assigned in assigned_always(self.block[-1:]):
                last = self.current(Var(assigned, value.kind))
                if last == value:
                    new = self._renamed[value.name] = Var(self.names.fresh(name), value.kind)
                    return new
        return value

    def current(self, value: Atom) -> Atom:
        """The value, under its present name if it is a temporary."""
        while isinstance(value, Var) and value.name in self._renamed:
            value = self._renamed[value.name]
        return value

    def freeze(self, block: list[Stmt]) -> Block:
        """The block with every list in it made a tuple, and with every temporary under its present name."""
        present = {name: cast(Var, self.current(new)) for name, new in self._renamed.items()}
        return renamed_block(open_block(block), present)


def open_block(block: list[Stmt]) -> Block:
    """A list as the block of a statement, since jumps are appended to it later; `freeze` makes it a tuple."""
    return cast(Block, block)


# --- the dispatch table ----------------------------------------------------------------------------------------------

# The lowering of an expression takes (env, node) and gives its value. The lowering of a statement takes (env, node,
# rest), where `rest` has the statements after it in its block. It gives None if those are to be lowered next. Otherwise
# `rest` is lowered already or never reached, and the result says if the block's end is reached.
LOWERINGS: dict[type[ast.AST], Callable[..., Any]] = {}
# How a value is called, by its class: takes (env, callee, arguments, node) and gives the result.
CALLS: dict[type, Callable[..., Value]] = {}
# The syntax that cannot be compiled, by the names of its classes: what messages call it, and what to write instead.
REFUSED: dict[str, tuple[str, str]] = {
    "Set": ("a set", "a tuple"),
    "SetComp": ("a set comprehension", "tuple(… for …)"),
    "Await": ("await", "plain code: a scalar function runs to its end"),
    "Try": ("try", "a test of the values beforehand"),
    "TryStar": ("try", "a test of the values beforehand"),
    "With": ("with", "plain statements"),
    "Import": ("import inside the function", "the import at the top of the file"),
    "ImportFrom": ("import inside the function", "the import at the top of the file"),
    "Global": ("global", "another output: a kernel cannot change what is outside it"),
    "Nonlocal": ("nonlocal", "a returned value: a function cannot change what is outside it"),
    "Delete": ("del", "nothing: variables cost nothing"),
    "ClassDef": ("a class definition", "the class outside the function: a named tuple or a dataclass"),
    "AsyncFunctionDef": ("async", "a plain function"),
    "AsyncFor": ("async", "a plain loop"),
    "AsyncWith": ("async", "plain statements"),
    "TypeAlias": ("a type alias", "the alias outside the function"),
}

_Lowering = TypeVar("_Lowering", bound=Callable[..., Any])


def register(table: dict[Any, Any], *keys: Any) -> Callable[[_Lowering], _Lowering]:
    """Enter the decorated function into a table, under each of the keys."""

    def enter(function: _Lowering) -> _Lowering:
        table.update(dict.fromkeys(keys, function))
        return function

    return enter


# Registers the lowering of classes of syntax nodes.
lowers = partial(register, LOWERINGS)


def lowering_of(env: Environment, node: ast.expr | ast.stmt) -> Callable[..., Any]:
    """The lowering of an expression or a statement; an error if it cannot be compiled."""
    lowering = LOWERINGS.get(type(node))
    if lowering is None:
        word, name = "expression" if isinstance(node, ast.expr) else "statement", type(node).__name__
        shown, instead = REFUSED.get(name, (f"this {word} ({name})", ""))
        env.fail(node, f"{shown} cannot be compiled", instead)
    return lowering


def expression(env: Environment, node: ast.expr) -> Value:
    """The value of an expression; the operations that compute it are appended to the open block."""
    value: Value = lowering_of(env, node)(env, node)
    env.refuse_outdated(value, node)
    return value


def call_value(env: Environment, callee: Value, arguments: Arguments, node: ast.Call) -> Value:
    """The result of calling a value."""
    if not is_function(callee):
        env.fail(node.func, f"{describe(callee)} cannot be called")
    env.refuse_outdated(arguments, node)
    reads = len(env.reads)
    return note_late(CALLS[type(callee)](env, callee, arguments, node), arguments.args, env.reads[reads:])
