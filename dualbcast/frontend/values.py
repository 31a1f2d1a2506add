"""The values of names and expressions while a function is lowered: numbers, tuples, functions.

Bindings map names to values on one path; a frame is one call of a function that is being inlined.
"""

from __future__ import annotations

import ast
import enum
import inspect
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np

from dualbcast.complex_numbers import Complex
from dualbcast.errors import ArgumentError, Location, a_or_an
from dualbcast.frontend.source import FunctionNode, Source
from dualbcast.ir.nodes import Array, Atom, Const, Expr, Kind, Stmt, Var
from dualbcast.ir.simplification import number


class Key:
    """The keys of bindings that are not the user's names."""

    RETURNED, RESULT, RETURNED_AT = "<returned>", "<result>", "<returned at>"
    CHOICE, SKIPPING = "<choice>", "<skipping>"
    YIELDED = "<what this generator gives>"
    # The names that are assigned only where a flag is set, as pairs of the flag and the name.
    PARTLY = "<partly>"
    CHANGED = "<changed in place>"  # see `outdated.py`


@dataclass(frozen=True, slots=True)
class Static:
    """A Python object that exists at compile time only: a function, a module, a string."""

    object: Any


class Record(tuple[Any, ...]):
    """The items of a tuple, a list, a small array, a named tuple, a dataclass or an iterator, which is used once.

    The one item of a member of an enumeration that depends on the data is its number, or its place in the class.
    `fields` has the names of the items, if the type gives them names.
    """

    python_type: type
    fields: tuple[str, ...]
    # What an array is a view of; the arrays or lists of which this is one, by the path or the iteration.
    bases: tuple[Record, ...] = ()
    # Of an iterator: what it goes over, and the names that Python reads when it comes to an item.
    late: tuple[Any, ...] = ()
    made: int  # when, by the clock

    def __new__(cls, kind: type, items: Iterable[Value], fields: tuple[str, ...] = ()) -> Record:
        self = super().__new__(cls, items)
        self.python_type, self.fields, self.made = kind, fields, next(CLOCK)
        return self

    def like(self, items: Iterable[Value]) -> Record:
        """The same type with other items."""
        return Record(self.python_type, items, self.fields)

    @property
    def family(self) -> type:
        """The type of its slices and sums, and that another must have to equal it."""
        return tuple if issubclass(self.python_type, tuple) else self.python_type

    @property
    def is_sequence(self) -> bool:
        """Whether it can be indexed, unpacked and looped over: a tuple, a list or an array, and no other."""
        return self.family in (tuple, list, np.ndarray)

    @property
    def can_change(self) -> bool:
        """Whether Python can change it in place."""
        return self.python_type in (list, dict, np.ndarray)

    @property
    def is_iterator(self) -> bool:
        return issubclass(self.python_type, Iterator)


class Arguments(NamedTuple):
    """The arguments of a call."""

    args: tuple[Value, ...]
    keywords: Mapping[str, Value] = MappingProxyType({})

    def after(self, first: Arguments) -> Arguments:
        """The arguments with others before them; these values win for names that are in both."""
        return Arguments((*first.args, *self.args), {**first.keywords, **self.keywords})


@dataclass(frozen=True, slots=True, eq=False)
class Partial:
    """A function with some of its arguments: a `functools.partial`, or a method with its object."""

    function: Value
    arguments: Arguments


@dataclass(frozen=True, slots=True)
class Operator:
    """A way to differentiate a function: the name of the public function, and the arguments to differentiate in.

    These are given by position or name; None stands for all.
    """

    name: str
    wrt: int | str | tuple[int | str, ...] | None

    def __post_init__(self) -> None:
        for item in self.items:
            if not isinstance(item, int | str) or isinstance(item, bool):
                raise ArgumentError(f"wrt={item!r} is no argument; give names or positions: wrt=1 or wrt='x'")
        if not self.name.endswith("gradient") and (self.wrt is None or isinstance(self.wrt, tuple)):
            raise ArgumentError(
                f"{self.name}() is taken in one argument, not in wrt={self.wrt!r}; gradient() is taken in several"
            )

    @property
    def items(self) -> tuple[int | str, ...]:
        """The positions and names in `wrt`."""
        return self.wrt if isinstance(self.wrt, tuple) else () if self.wrt is None else (self.wrt,)

    @property
    def has_value(self) -> bool:
        """Whether the function's value comes first."""
        return self.name.startswith("value_and_")


@dataclass(frozen=True, slots=True, eq=False)
class Derived:
    """`derivative(function)` and its kin; if `function` returns functions, `calls` has the arguments so far."""

    operator: Operator
    function: Value
    calls: tuple[Arguments, ...] = ()


class Keywords(dict[str, Any]):
    """The value of a `**` parameter: values by name."""


@dataclass(frozen=True, slots=True, eq=False)
class Closure:
    """A function defined inside the compiled one; it sees the values that its frame's names have when it is called."""

    node: FunctionNode
    frame: Frame
    defaults: dict[str, Value]

    @property
    def name(self) -> str:
        return getattr(self.node, "name", "<lambda>")


@dataclass(frozen=True, slots=True)
class Range:
    """`range(start, stop, step)`."""

    start: Atom
    stop: Atom
    step: Atom

    def known(self) -> range | None:
        """The range as a Python object, if its bounds are known."""
        if isinstance(self.start, Const) and isinstance(self.stop, Const) and isinstance(self.step, Const):
            return range(int(self.start.value), int(self.stop.value), int(self.step.value))
        return None


class Axes(NamedTuple):
    """How many axes a whole array has, and whether it has no elements."""

    ndim: int
    is_empty: bool


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole array, or the part of it at some leading indices: where that begins, the lengths of its axes, and whether
    the array has no elements."""

    array: Array
    begin: Atom
    shape: tuple[Atom, ...]
    is_empty: bool


@dataclass(frozen=True, slots=True)
class Unassigned:
    """The value of a name that some path has not assigned, or (`conflict`) whose values on two paths cannot merge."""

    reason: str
    conflict: bool = False


# The result of a function on a path that ends with an error.
RAISES = Unassigned("every path through this function raises an error")

Value = Const | Var | Static | Closure | Partial | Derived | Keywords | Range | Whole | Unassigned | Record
Bindings = dict[str, Value]
CLOCK = itertools.count(1)
Copies = list[tuple[Var, Expr]]


@dataclass(eq=False, slots=True)
class Edge:
    """A path that leaves an iteration of a loop, with the line of the jump, and the assignments before the jump."""

    block: list[Stmt]
    bindings: Bindings
    location: Location
    copies: Copies = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Loop:
    """A loop of the kernel that is being lowered."""

    # The assignments before the loop; the bindings at the start of each iteration; those that an iteration changes.
    before: Copies
    start: Bindings
    carried: Bindings
    # The paths that leave the loop, and those that start its next iteration.
    breaks: list[Edge] = field(default_factory=list)
    continues: list[Edge] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Unrolled:
    """A loop that is written out, with the names of the flags that skip the rest of the loop or of an iteration.

    `lacking` has, for each flag, the names that were not assigned where it was set.
    """

    broke: str
    skip: str
    lacking: dict[str, set[str]] = field(default_factory=dict)
    over: tuple[Value, ...] = ()  # what it reads when it comes to each item
    places: frozenset[str] = frozenset()  # what it may change of that: `t[i]`


@dataclass(eq=False, slots=True)
class Frame:
    """One call of a function that is being inlined."""

    source: Source
    node: FunctionNode
    local: frozenset[str]
    bindings: Bindings
    parent: Frame | None = None
    calls: tuple[tuple[str, Location], ...] = ()
    caller: Frame | None = None  # which calls it
    loops: list[Loop | Unrolled] = field(default_factory=list)
    returned_at: ast.AST | None = None
    name: str = ""

    @property
    def flags(self) -> list[str]:
        """The flags that skip statements: that of a return, and those of the loops that are written out."""
        loops = [loop for loop in self.loops if isinstance(loop, Unrolled)]
        return [Key.RETURNED, *(flag for loop in loops for flag in (loop.skip, loop.broke))]

    def scope(self, node: FunctionNode, local: Iterable[str], bindings: Bindings) -> Frame:
        """A scope inside this one: a comprehension's, or the loop's that stands for it."""
        return Frame(self.source, node, frozenset(local), bindings, self, self.calls, name=self.name)


def describe(value: Value) -> str:
    """A value as error messages name it."""
    match value:
        case Const() | Var():
            return "a number"
        case Record():
            return _describe_record(value)
        case Partial():
            return describe(value.function)
        case Derived():
            return f"the function {value.operator.name}({describe(value.function).removeprefix('the function ')})"
        case Keywords():
            return "a dictionary of arguments"
        case Closure():
            return f"the function {value.name}"
        case Static():
            if value.object is None or isinstance(value.object, str):
                return "None" if value.object is None else "text"
            name = getattr(value.object, "__name__", None)
            if isinstance(name, str) and (callable(value.object) or isinstance(value.object, ModuleType)):
                return f"{'the function ' if callable(value.object) else 'the module '}{name}"
            return f"an object of type {type(value.object).__name__}"
        case Range():
            return "a range"
        case Whole():
            return "a whole array"
        case _:
            return "unassigned"


def _describe_record(record: Record) -> str:
    if record.python_type in (Complex, np.ndarray):
        return "a complex number" if record.python_type is Complex else f"an array of shape {_shape_of(record)}"
    length = f" of {len(record)}" if record.python_type in (tuple, list) else ""
    return a_or_an(record.python_type.__name__) + length


def _shape_of(value: Value) -> tuple[int, ...]:
    return (len(value), *(_shape_of(value[0]) if value else ())) if isinstance(value, Record) else ()


# What a name that a loop carries must hold: a kind of number, or what is made of numbers.
Raised = Kind | Literal["complex", "record"]


def complex_number(parts: Iterable[Value]) -> Record:
    """The complex number with these parts."""
    return Record(Complex, parts, Complex.fields)


def is_complex(value: Value) -> bool:
    """Whether a value is a complex number."""
    return isinstance(value, Record) and value.python_type is Complex


def is_number(value: Value) -> bool:
    """Whether a value is a number, real or complex; a member of an IntEnum is one."""
    return isinstance(value, Atom) or is_complex(value) or is_member(value)


def enumeration_of(value: Value) -> type[enum.Enum] | None:
    """The class of a member of an enumeration; None for anything else, and where the class has an `==` of its own."""
    kind: Any = type(value.object) if isinstance(value, Static) else getattr(value, "python_type", None)
    if not isinstance(kind, type) or not issubclass(kind, enum.Enum) or issubclass(kind, enum.Flag):
        return None
    return kind if not isinstance(kind.__eq__, FunctionType) else None


def is_member(value: Value) -> bool:
    """Whether a value is a member of an enumeration of numbers, such as an IntEnum."""
    if isinstance(value, Record):
        return issubclass(value.python_type, enum.Enum) and issubclass(value.python_type, int | float)
    return isinstance(value, Static) and isinstance(value.object, int | float)


def without_name(value: Value) -> Value:
    """A member of an enumeration of numbers as its number; any other value as it is."""
    if not is_member(value):
        return value
    if isinstance(value, Record):
        return value[0]  # type: ignore[no-any-return]
    assert isinstance(value, Static)
    return number(int(value.object) if isinstance(value.object, int) else float(value.object))


def is_function(value: Value) -> bool:
    """Whether a value can be called."""
    if isinstance(value, Record):
        return isinstance(inspect.getattr_static(value.python_type, "__call__", None), FunctionType)
    return isinstance(value, Closure | Partial | Derived) or (isinstance(value, Static) and callable(value.object))


def is_instance(value: Value, kind: type | tuple[type, ...]) -> bool:
    """Whether the Python object that a value stands for is of a class; an element of an array is a plain number."""
    match value:
        case Const() | Var():
            return issubclass({"bool": bool, "int": int, "float": float}[value.kind], kind)
        case Record():
            return issubclass(complex if value.python_type is Complex else value.python_type, kind)
        case Static():
            return isinstance(value.object, kind)
        case Range():
            return issubclass(range, kind)
        case _:
            return issubclass(FunctionType, kind)


def are_alike(values: Iterable[tuple[Value, ...]]) -> bool:
    """Whether tuples are of one type and length."""
    kinds = {(getattr(value, "python_type", tuple), len(value), getattr(value, "fields", ())) for value in values}
    return len(kinds) == 1


def same(a: Any, b: Any) -> bool:
    """Whether two values are the same, so that nothing needs to merge."""
    match a, b:
        case Static(), Static():
            return a.object is b.object
        case tuple(), tuple():  # also the arguments of calls
            return are_alike((a, b)) and all(map(same, a, b))
        case dict(), dict():
            return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
        case (Partial(), Partial()) | (Derived(), Derived()) | (Closure(), Closure()):
            return all(same(getattr(a, part), getattr(b, part)) for part in a.__slots__)
    return bool(a == b)
