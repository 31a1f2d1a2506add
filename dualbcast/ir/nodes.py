"""The nodes of the intermediate representation, a structured scalar program in which each node has its source location;
the structure of its results; and a program as text, as `inspect_ir` shows it.

A name is assigned once, except where paths merge: on both sides of an `if`, and in the iterations of a loop. Tests
assert this and the other invariants after every pass (`tests/oracles/ir_invariants.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dualbcast.complex_numbers import Complex
from dualbcast.errors import ArgumentError, DTypeError, Location, a_or_an


@dataclass(frozen=True, slots=True)
class Structure:
    """One node of the tree: a type that holds parts, with their names if the type has some; or a number, without."""

    type: type | None = None
    parts: tuple[Structure, ...] = ()
    fields: tuple[str, ...] = ()
    # How many numbers the tree has, and whether all parts are numbers.
    count: int = field(init=False, compare=False, repr=False)
    is_flat: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", 1 if self.type is None else sum(part.count for part in self.parts))
        object.__setattr__(self, "is_flat", all(part.type is None for part in self.parts))

    def labels(self) -> tuple[str, ...]:
        """The path to each number: `""` for the number itself, else field names and positions joined by dots.

        Examples
        --------
        >>> Structure(tuple, (NUMBER, Structure(list, (NUMBER, NUMBER)))).labels()
        ('0', '1.0', '1.1')
        """
        if self.type is None:
            return ("",)
        names = self.fields or tuple(map(str, range(len(self.parts))))
        return tuple(
            f"{name}.{label}".rstrip(".")
            for name, part in zip(names, self.parts, strict=True)
            for label in part.labels()
        )

    def pack(self, leaves: Sequence[Any]) -> Any:
        """The Python object of this structure with `leaves` in the place of the numbers."""
        if self.type is None:
            return leaves[0]
        if self.type is tuple and self.is_flat:
            return tuple(leaves)
        return self._build(iter(leaves))

    def _build(self, leaves: Iterator[Any]) -> Any:
        if self.type is None:
            return next(leaves)
        parts = [part._build(leaves) for part in self.parts]
        if not self.fields:
            return self.type(parts)
        if self.type is Complex:
            return Complex(*parts)
        if issubclass(self.type, tuple):  # a named tuple, whatever its __new__ takes
            return tuple.__new__(self.type, parts)
        if not hasattr(self.type, "__post_init__"):
            return self.type(**dict(zip(self.fields, parts, strict=True)))
        # Its __post_init__ is for numbers, and would see arrays. The kernel has carried it out on each number already.
        built = object.__new__(self.type)
        for name, part in zip(self.fields, parts, strict=True):
            object.__setattr__(built, name, part)
        return built

    def holds(self, value: Any) -> bool:
        """Whether `value` is a tuple, a list or the type of this structure, to be flattened; an array is not, but where
        the structure is that of complex numbers."""
        if self.type is Complex:
            return not isinstance(value, tuple | list)
        return self.type is not None and isinstance(value, (tuple, list, self.type))

    def flatten(self, value: Any, name: str = "out") -> tuple[Any, ...]:
        """The leaves of an object of this structure.

        A tuple or a list may stand for any type of the same length, and for all of the tree if it is as long as the
        tree has numbers. None stands for a part whose leaves are all None. An ArgumentError says that the object has
        another structure; `name` is what it calls the object.
        """
        if self.type is None or value is None:
            return (value,) * self.count
        items: list[Any] = []
        if isinstance(value, tuple | list):
            # A leaf is an array or a number, so that a tuple without tuples in it has one meaning.
            if len(value) == self.count and (self.is_flat or not any(map(_is_branch, value))):
                return tuple(value)
            items = list(value)
        elif self.type is Complex and name.startswith("out") and value.dtype.kind != "c":
            raise DTypeError(
                f"{name} has dtype {value.dtype}, and this result is complex; pass an array of complex numbers"
            )
        elif self.fields and (isinstance(value, self.type) or self.type is Complex):
            items = [value[field] if self.type is dict else getattr(value, field) for field in self.fields]
        if len(items) != len(self.parts):
            given = (
                f"{len(items)} are given"
                if isinstance(value, tuple | list)
                else f"this is {a_or_an(type(value).__name__)}"
            )
            raise ArgumentError(
                f"{name} must be {a_or_an(self.type.__name__)} of {len(self.parts)}, as the function returns, or a "
                f"tuple with one array for each of {self.count} outputs; {given}"
            )
        labels = self.fields or range(len(items))
        return tuple(
            leaf
            for label, part, item in zip(labels, self.parts, items, strict=True)
            for leaf in part.flatten(item, f"{name}.{label}" if self.fields else f"{name}[{label}]")
        )


def _is_branch(value: Any) -> bool:
    return isinstance(value, tuple | list | dict) or hasattr(type(value), "__dataclass_fields__")


NUMBER = Structure()


def numbers(count: int) -> Structure:
    """A tuple of numbers."""
    return Structure(tuple, (NUMBER,) * count)


Kind = Literal["bool", "int", "float"]
# The prefix of the compiler's own names, until they get readable ones.
TEMPORARY = "%"
# Names of operators.
COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
ARITHMETIC = frozenset({"add", "sub", "mul", "div", "floordiv", "mod", "neg"})
# The operations a * b + c, a * b - c and c - a * b of a, b and c, with one rounding or two, whichever is fastest.
MULADD, MULSUB, SUBMUL = FUSED = "muladd", "mulsub", "submul"
# The element of a whole array at a place in its memory, and an index that is to be in an axis of a length: of two ints
# the first one, counted from the end where it is negative, until a pass checks it.
READ, BOUNDED = "read", "bounded"
LOGIC = frozenset({"and", "or", "not"})
BITWISE = frozenset({"bitand", "bitor", "bitxor", "shl", "shr", "invert"})
NOWHERE = Location("<dualbcast>", 1, 0, 1, 0)


@dataclass(frozen=True, slots=True)
class Const:
    """A number known at compile time; floats are weak, they take the compute dtype when emitted."""

    value: bool | int | float
    kind: Kind

    def __eq__(self, other: object) -> bool:
        # repr tells 0.0 from -0.0, and says that nan is nan.
        return isinstance(other, Const) and (self.kind, repr(self.value)) == (other.kind, repr(other.value))

    def __hash__(self) -> int:
        return hash((self.kind, repr(self.value)))


TRUE = Const(True, "bool")
FALSE = Const(False, "bool")
ZERO = Const(0.0, "float")
ONE = Const(1.0, "float")


@dataclass(frozen=True, slots=True)
class Var:
    """A local variable or a parameter."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Load:
    """The element of an input array, after the pass that places loads."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Array:
    """A parameter that is a whole array, as the first operand of `read`, whose second one is a place in its memory."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Op:
    """A pure operation: an operator by its name (`add`, `lt`, `select`, `to_float`, …) or a rule's function."""

    name: str
    args: tuple[Expr, ...]
    kind: Kind
    location: Location = field(default=NOWHERE, compare=False, repr=False)


Atom = Const | Var
Expr = Const | Var | Load | Array | Op


@dataclass(frozen=True, slots=True)
class Assign:
    """`target = value`."""

    target: Var
    value: Expr
    location: Location = field(default=NOWHERE, repr=False)


@dataclass(frozen=True, slots=True)
class If:
    """Only the taken side runs."""

    test: Expr
    then: Block
    orelse: Block
    location: Location = field(default=NOWHERE, repr=False)


@dataclass(frozen=True, slots=True)
class While:
    """In each iteration `pre` runs, `test` decides, and `body` runs; `Continue` goes back to `pre`.

    A `masked` loop has no `pre`, and an iteration changes nothing for an element whose `test` is false: several
    elements may iterate until it is false for all of them.
    """

    pre: Block
    test: Expr
    body: Block
    location: Location = field(default=NOWHERE, repr=False)
    masked: bool = False


@dataclass(frozen=True, slots=True)
class For:
    """A loop over `range(start, stop, step)`; `target` is assigned by nothing else."""

    target: Var
    start: Expr
    stop: Expr
    step: Expr
    body: Block
    location: Location = field(default=NOWHERE, repr=False)


@dataclass(frozen=True, slots=True)
class Break:
    """Leave the innermost loop."""

    location: Location = field(default=NOWHERE, repr=False)


@dataclass(frozen=True, slots=True)
class Continue:
    """Start the next iteration of the innermost loop."""

    location: Location = field(default=NOWHERE, repr=False)


@dataclass(frozen=True, slots=True)
class Note:
    """What a step of the user's function does, for those who watch it run; kernels have none.

    `labels` are the names of the `values`; the first label of `print`, `assert` and `raise` is a template of
    `str.format`, and the first value of `assert` its condition. `depth` counts the inlined calls around it; `function`
    is the innermost. `kind` is the class of the error that a `raise` names.
    """

    what: Literal["argument", "assign", "test", "return", "print", "assert", "raise"]
    labels: tuple[str, ...]
    values: tuple[Expr, ...]
    function: str = ""
    depth: int = 0
    location: Location = field(default=NOWHERE, repr=False)
    kind: type[Exception] | None = field(default=None, repr=False)


Stmt = Assign | If | While | For | Break | Continue | Note
Block = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """A result of a function under the name it is stored by."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Function:
    """A scalar function: parameters, body, and the outputs read when the body has ended.

    `structure` is the shape of the user's result; its numbers are the outputs, in order. `derived` are the names of
    derivatives, whose last bits may depend on how they are computed.
    """

    name: str
    params: tuple[Var, ...]
    body: Block
    outputs: tuple[Output, ...]
    location: Location = field(default=NOWHERE, repr=False)
    structure: Structure = field(default=NUMBER, repr=False)
    derived: tuple[str, ...] = ()


def temporary(name: str) -> str:
    """The name of a variable as that of a temporary, without its number."""
    return TEMPORARY + name.removeprefix(TEMPORARY).partition("#")[0]


class Names:
    """Hands out names that are still free: for `x` taken `x_1`, `x_2`, …, for a temporary `%x` `%x#1`, `%x#2`, …"""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._counts: dict[str, int] = {}

    def fresh(self, base: str) -> str:
        name, count = base, self._counts.get(base, 0)
        while name in self._taken:
            count += 1
            name = f"{base}{'#' if base[:1] == TEMPORARY else '_'}{count}"
        self._taken.add(name)
        self._counts[base] = count
        return name

    def take(self, names: Iterable[str]) -> None:
        """Mark names as taken."""
        self._taken.update(names)

    def mark(self) -> frozenset[str]:
        """The names taken so far, for `reset`."""
        return frozenset(self._taken)

    def reset(self, mark: frozenset[str]) -> None:
        """Give back the names taken since `mark`, when the work that they were taken for is thrown away."""
        self._taken = set(mark)
        self._counts.clear()


def format_expr(expr: Expr) -> str:
    """An expression in prefix form, as `inspect_ir` shows it."""
    match expr:
        case Const():
            return repr(expr.value)
        case Var() | Array():
            return expr.name
        case Load():
            return f"load({expr.name})"
        case Op():
            return f"{expr.name}({', '.join(map(format_expr, expr.args))})"


def dump(function: Function) -> str:
    """The function as text, each statement with the line of the user's source it comes from."""
    lines: list[tuple[str, Location | None]] = []

    def emit(block: Block, depth: int) -> None:
        for stmt in block:
            # The lines of the statement itself, and the block below each.
            parts: list[tuple[str, Block]] = []
            match stmt:
                case Assign():
                    parts = [(f"{stmt.target.name}: {stmt.target.kind} = {format_expr(stmt.value)}", ())]
                case If():
                    parts = [(f"if {format_expr(stmt.test)}:", stmt.then)]
                    parts += [("else:", stmt.orelse)] if stmt.orelse else []
                case While(masked=True):
                    parts = [(f"masked while {format_expr(stmt.test)}:", stmt.body)]
                case While():
                    parts = [("while:", stmt.pre), (f"test {format_expr(stmt.test)}:", stmt.body)]
                case For():
                    bounds = ", ".join(map(format_expr, (stmt.start, stmt.stop, stmt.step)))
                    parts = [(f"for {stmt.target.name} in range({bounds}):", stmt.body)]
                case Note():
                    values = ", ".join(map(format_expr, stmt.values))
                    parts = [(f"note {stmt.what} {list(stmt.labels)}: {values}", ())]
                case Break() | Continue():
                    parts = [(type(stmt).__name__.lower(), ())]
            for text, inner in parts:
                lines.append(("    " * depth + text, None if text == "else:" else stmt.location))
                emit(inner, depth + 1)

    emit(function.body, 1)
    width = min(72, max((len(text) for text, _ in lines), default=0))
    params = ", ".join(f"{param.name}: {param.kind}" for param in function.params)
    rows = [f"function {function.name}({params})"]
    rows += [f"{text:<{width}}  # line {at.line}" if at not in (None, NOWHERE) else text for text, at in lines]
    rows += [f"    output {output.name} = {format_expr(output.value)}" for output in function.outputs]
    return "\n".join(rows) + "\n"
