"""The intermediate representation: a structured scalar program whose every node knows its place in the user's source.

Names are assigned once, except those that merge two paths (both sides of an `if`, the turns of a loop). Here are the
node types, the printer behind `inspect_ir`, and the checker that tests run after every pass.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import is_
from typing import Literal

from dualbcast.errors import Location
from dualbcast.ir.structure import NUMBER, Structure

__all__ = [
    "Assign",
    "Atom",
    "Block",
    "Break",
    "Const",
    "Continue",
    "Expr",
    "For",
    "Function",
    "If",
    "Kind",
    "Load",
    "Names",
    "Op",
    "Output",
    "Stmt",
    "Var",
    "While",
    "among",
    "assigned",
    "atoms",
    "check",
    "dump",
    "floats",
    "format_expr",
    "map_expr",
    "map_exprs",
    "statements",
]

Kind = Literal["bool", "int", "float"]
# What the compiler's own names start with; emission gives them readable ones.
TEMPORARY = "%"
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


@dataclass(frozen=True, slots=True)
class Var:
    """A local variable or a parameter."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Load:
    """The element of an input array: what a parameter is once `simplify` has placed its load."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Op:
    """A pure operation: an operator by its name (`add`, `lt`, `select`, `to_float`, …) or a rule's function."""

    name: str
    args: tuple[Expr, ...]
    kind: Kind
    location: Location = field(default=NOWHERE, compare=False)


Atom = Const | Var
Expr = Const | Var | Load | Op


@dataclass(frozen=True, slots=True)
class Assign:
    """`target = value`."""

    target: Var
    value: Expr
    location: Location = NOWHERE


@dataclass(frozen=True, slots=True)
class If:
    """Only the taken side runs."""

    test: Expr
    then: Block
    orelse: Block
    location: Location = NOWHERE


@dataclass(frozen=True, slots=True)
class While:
    """Before each turn `pre` runs and then `test` decides; `Continue` goes back to `pre`.

    With `together` there is no `pre`, and a turn changes nothing for an element for which `test` is false: several
    elements may take turns until it is false for all of them.
    """

    pre: Block
    test: Expr
    body: Block
    location: Location = NOWHERE
    together: bool = False


@dataclass(frozen=True, slots=True)
class For:
    """A loop over `range(start, stop, step)`; `target` is assigned by nothing else."""

    target: Var
    start: Expr
    stop: Expr
    step: Expr
    body: Block
    location: Location = NOWHERE


@dataclass(frozen=True, slots=True)
class Break:
    """Leave the innermost loop."""

    location: Location = NOWHERE


@dataclass(frozen=True, slots=True)
class Continue:
    """Start the innermost loop's next turn."""

    location: Location = NOWHERE


Stmt = Assign | If | While | For | Break | Continue
Block = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """A result of a function under the name it is stored by."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Function:
    """A scalar function: parameters, body, and the outputs read when the body has ended.

    `structure` is what the user's function returns; its numbers are the outputs, in order. `derived` are the names of
    derivatives, which nobody can tell by their last bits.
    """

    name: str
    params: tuple[Var, ...]
    body: Block
    outputs: tuple[Output, ...]
    location: Location = NOWHERE
    structure: Structure = NUMBER
    derived: tuple[str, ...] = ()


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

    def mark(self) -> frozenset[str]:
        """The names taken so far, for `reset`."""
        return frozenset(self._taken)

    def reset(self, mark: frozenset[str]) -> None:
        """Give back what was taken since `mark`: the work it was taken for is thrown away."""
        self._taken = set(mark)
        self._counts.clear()


# --- walking -----------------------------------------------------------------------------------------------------


def blocks(stmt: Stmt) -> tuple[Block, ...]:
    """The blocks inside a statement, in the order they are written."""
    match stmt:
        case If():
            return (stmt.then, stmt.orelse)
        case While():
            return (stmt.pre, stmt.body)
        case For():
            return (stmt.body,)
        case _:
            return ()


def statements(block: Block) -> Iterator[Stmt]:
    """Every statement of a block, outer ones before those inside them."""
    # A generator inside a generator for each depth would take the square of the length of a chain of `elif`.
    pending = [*reversed(block)]
    while pending:
        stmt = pending.pop()
        yield stmt
        if not isinstance(stmt, Assign):
            for inner in reversed(blocks(stmt)):
                pending.extend(reversed(inner))


def jumps(stmt: Stmt) -> bool:
    """Whether a statement leaves the loop around it, or goes to its next turn, on some path."""
    match stmt:
        case Break() | Continue():
            return True
        case If():
            return any(map(jumps, (*stmt.then, *stmt.orelse)))
        case _:
            return False


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions a statement evaluates itself, not those of its blocks."""
    match stmt:
        case Assign():
            return (stmt.value,)
        case If() | While():
            return (stmt.test,)
        case For():
            return (stmt.start, stmt.stop, stmt.step)
        case _:
            return ()


def atoms(expr: Expr) -> list[Expr]:
    """The leaves of an expression."""
    if not isinstance(expr, Op):
        return [expr]
    found: list[Expr] = []
    for arg in expr.args:
        if isinstance(arg, Op):
            found += atoms(arg)
        else:
            found.append(arg)
    return found


def assigned(block: Block) -> Iterator[str]:
    """The names a block assigns, with repetitions."""
    for stmt in statements(block):
        if isinstance(stmt, Assign | For):
            yield stmt.target.name


def among(names: Container[str], block: Block) -> tuple[str, ...]:
    """Those of some names that a block assigns, each once."""
    return tuple([name for name in dict.fromkeys(assigned(block)) if name in names])


def assigned_always(block: Iterable[Stmt]) -> set[str]:
    """The names that a block assigns on every path through it; loops may take no turn."""
    found: set[str] = set()
    for stmt in block:
        if isinstance(stmt, Assign):
            found.add(stmt.target.name)
        elif isinstance(stmt, If):
            found |= assigned_always(stmt.then) & assigned_always(stmt.orelse)
    return found


def floats(function: Function) -> tuple[int, ...]:
    """The positions of the outputs that are floats: those that have derivatives, and cotangents."""
    return tuple(at for at, output in enumerate(function.outputs) if output.value.kind == "float")


def map_expr(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with `change` applied to each leaf; the same object where that changes nothing."""
    if not isinstance(expr, Op):
        return change(expr)
    args = tuple([map_expr(arg, change) for arg in expr.args])
    if all(map(is_, args, expr.args)):
        return expr
    return Op(expr.name, args, expr.kind, expr.location)


def renamed(expr: Expr, by: Mapping[str, Atom]) -> Expr:
    """The expression with what is said for some of its variables."""
    return map_expr(expr, lambda leaf: by.get(leaf.name, leaf) if isinstance(leaf, Var) else leaf)


def map_exprs(stmt: Stmt, change: Callable[[Expr], Expr], inner: Callable[[Block], Block]) -> Stmt:
    """The statement with `change` applied to its own expressions and `inner` to its blocks."""
    match stmt:
        case Assign():
            value = change(stmt.value)
            return stmt if value is stmt.value else Assign(stmt.target, value, stmt.location)
        case If():
            return If(change(stmt.test), inner(stmt.then), inner(stmt.orelse), stmt.location)
        case While():
            return While(inner(stmt.pre), change(stmt.test), inner(stmt.body), stmt.location, stmt.together)
        case For():
            start, stop, step = change(stmt.start), change(stmt.stop), change(stmt.step)
            return For(stmt.target, start, stop, step, inner(stmt.body), stmt.location)
        case _:
            return stmt


# --- printing ----------------------------------------------------------------------------------------------------


def format_expr(expr: Expr) -> str:
    """An expression in prefix form, as `inspect_ir` shows it."""
    match expr:
        case Const():
            return repr(expr.value)
        case Var():
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
            pad = "    " * depth
            match stmt:
                case Assign():
                    text = f"{stmt.target.name}: {stmt.target.kind} = {format_expr(stmt.value)}"
                    lines.append((pad + text, stmt.location))
                case If():
                    lines.append((f"{pad}if {format_expr(stmt.test)}:", stmt.location))
                    emit(stmt.then, depth + 1)
                    if stmt.orelse:
                        lines.append((f"{pad}else:", None))
                        emit(stmt.orelse, depth + 1)
                case While():
                    lines.append((f"{pad}while:", stmt.location))
                    emit(stmt.pre, depth + 1)
                    lines.append((f"{pad}test {format_expr(stmt.test)}:", stmt.location))
                    emit(stmt.body, depth + 1)
                case For():
                    bounds = ", ".join(map(format_expr, (stmt.start, stmt.stop, stmt.step)))
                    lines.append((f"{pad}for {stmt.target.name} in range({bounds}):", stmt.location))
                    emit(stmt.body, depth + 1)
                case Break():
                    lines.append((f"{pad}break", stmt.location))
                case Continue():
                    lines.append((f"{pad}continue", stmt.location))

    emit(function.body, 1)
    width = min(72, max((len(text) for text, _ in lines), default=0))
    params = ", ".join(f"{param.name}: {param.kind}" for param in function.params)
    rows = [f"function {function.name}({params})"]
    rows += [f"{text:<{width}}  # line {at.line}" if at not in (None, NOWHERE) else text for text, at in lines]
    rows += [f"    output {output.name} = {format_expr(output.value)}" for output in function.outputs]
    return "\n".join(rows) + "\n"


# --- checking ----------------------------------------------------------------------------------------------------

COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
ARITHMETIC = frozenset({"add", "sub", "mul", "div", "floordiv", "mod", "neg"})
# Of a, b and c: a * b + c, a * b - c and c - a * b, with one rounding or two, as is fastest.
MULADD, MULSUB, SUBMUL = FUSED = "muladd", "mulsub", "submul"
LOGIC = frozenset({"and", "or", "not"})
BITWISE = frozenset({"bitand", "bitor", "bitxor", "shl", "shr", "invert"})


def check(function: Function) -> Function:
    """Assert what every pass may rely on: kinds agree, names are assigned before they are read, jumps are in loops.

    Returns the function, so that a pass can end with it.
    """
    kinds = {param.name: param.kind for param in function.params}
    # For each open loop, the names known at its breaks.
    breaks: list[list[set[str]]] = []

    def expression(expr: Expr, known: set[str]) -> None:
        if isinstance(expr, Var):
            assert expr.name in known, f"{expr.name} is read before it is assigned"
            assert kinds[expr.name] == expr.kind, f"{expr.name} is {kinds[expr.name]}, read as {expr.kind}"
        elif isinstance(expr, Op):
            for arg in expr.args:
                expression(arg, known)
            inner = [arg.kind for arg in expr.args]
            if expr.name in COMPARISONS:
                assert expr.kind == "bool" and len(set(inner)) == 1, format_expr(expr)
            elif expr.name in LOGIC:
                assert expr.kind == "bool" and set(inner) == {"bool"}, format_expr(expr)
            elif expr.name in (*ARITHMETIC, *BITWISE, *FUSED):
                assert set(inner) == {expr.kind}, format_expr(expr)
            elif expr.name == "select":
                assert inner == ["bool", expr.kind, expr.kind], format_expr(expr)

    def target(var: Var) -> None:
        assert kinds.setdefault(var.name, var.kind) == var.kind, f"{var.name} changes its kind"

    def block(body: Block, known: set[str]) -> set[str] | None:
        """The names known after the block, or None where no path reaches its end."""
        for position, stmt in enumerate(body):
            if not isinstance(stmt, While):
                for expr in expressions(stmt):
                    expression(expr, known)
            after: set[str] | None = known
            match stmt:
                case Assign():
                    target(stmt.target)
                    assert stmt.value.kind == stmt.target.kind, f"{stmt.target.name} = {format_expr(stmt.value)}"
                    after = known | {stmt.target.name}
                case If():
                    assert stmt.test.kind == "bool"
                    sides = [block(stmt.then, known), block(stmt.orelse, known)]
                    ends = [side for side in sides if side is not None]
                    after = set.intersection(*ends) if ends else None
                case While():
                    assert stmt.test.kind == "bool"
                    breaks.append([])
                    inside = block(stmt.pre, known)
                    assert inside is not None
                    expression(stmt.test, inside)
                    block(stmt.body, inside)
                    ways_out = breaks.pop() + ([inside] if stmt.test != Const(True, "bool") else [])
                    after = set.intersection(*ways_out) if ways_out else None
                case For():
                    target(stmt.target)
                    breaks.append([])
                    block(stmt.body, known | {stmt.target.name})
                    breaks.pop()
                    after = known | set(assigned((stmt,)))
                case Break() | Continue():
                    assert breaks, "a jump outside a loop"
                    if isinstance(stmt, Break):
                        breaks[-1].append(known)
                    after = None
            if after is None:
                assert position == len(body) - 1, "statements after a jump"
                return None
            known = after
        return known

    end = block(function.body, set(kinds))
    assert end is not None
    for output in function.outputs:
        expression(output.value, end)
    return function
