"""Statements and expressions of the IR as Python text, with the lines of the user's file as comments."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dualbcast.codegen.text_places import Place, expression_place, store_of
from dualbcast.errors import Location
from dualbcast.frontend.lower import FOREVER, INTEGER_FUNCTIONS, RANGE_STOP
from dualbcast.ir.nodes import (
    NOWHERE,
    Array,
    Assign,
    Block,
    Break,
    Const,
    Continue,
    Expr,
    For,
    Function,
    If,
    Load,
    Op,
    Stmt,
    Var,
    While,
)
from dualbcast.ir.simplification import fold
from dualbcast.ir.traversal import breaks
from dualbcast.kernel_spec import neighbour
from dualbcast.tracebacks import place_of

# Operators by Python's precedence; a higher number binds tighter.
_INFIX = {
    "or": ("or", 1),
    "and": ("and", 2),
    **{
        name: (sign, 4)
        for name, sign in zip(("lt", "le", "gt", "ge", "eq", "ne"), ["<", "<=", ">", ">=", "==", "!="], strict=True)
    },
    "bitor": ("|", 5),
    "bitxor": ("^", 6),
    "bitand": ("&", 7),
    "shl": ("<<", 8),
    "shr": (">>", 8),
    "add": ("+", 9),
    "sub": ("-", 9),
    "mul": ("*", 10),
    "div": ("/", 10),
    "floordiv": ("//", 10),
    "mod": ("%", 10),
}
_PREFIX = {"not": ("not ", 3), "neg": ("-", 11), "invert": ("~", 11)}
_CONDITIONAL, _ATOM = 0, 12
_HALVES = ("float16", "bfloat16")
_WIDEST = 96
_COMMENT_COLUMN, _PAGE = 56, 118


class Constants:
    """The constants of one text, which are variables of its module, in the compute dtype."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self._short = {"float32": "f32", "float64": "f64"}[dtype]
        self._locals: set[str] = set()
        self._floats: dict[str, str] = {}
        self._integers: dict[int, str] = {}

    def avoid(self, names: Iterable[str]) -> None:
        """Let no constant have the name of one of these local variables, which would hide it."""
        self._locals.update(names)

    def names(self) -> set[str]:
        """The names of the floats so far."""
        return set(self._floats.values())

    def floating(self, value: float) -> str:
        """The name of a constant of the compute dtype."""
        text = repr(value)
        if text not in self._floats:
            readable = text.removesuffix(".0").replace("-", "m").replace(".", "p").replace("+", "")
            plain = len(readable) <= 8 and re.fullmatch(r"\w+", readable)
            count = sum(name.startswith(f"{self._short}_c") for name in self._floats.values())
            name = f"{self._short}_{readable}" if plain else f"{self._short}_c{count + 1}"
            self._floats[text] = f"{name}_" if name in self._locals else name
        return self._floats[text]

    def integer(self, value: int) -> str:
        """The name of an integer constant."""
        self._integers[value] = f"i64_{value}".replace("-", "m")
        return self._integers[value]

    def definitions(self) -> list[str]:
        """The statements that define them."""

        def literal(text: str) -> str:
            return text if text[-1].isdigit() else f'"{text}"'

        in_order = sorted(self._floats.items(), key=lambda item: float(item[0]))
        floats = [f"{name} = {self.dtype}({literal(text)})" for text, name in in_order]
        return floats + [f"{name} = int64({value})" for value, name in sorted(self._integers.items())]


@dataclass(slots=True)
class Writer:
    """Writes the statements of one function."""

    constants: Constants
    called: Mapping[str, str]  # the names of helper functions in the text, by the names of their rules
    storage: dict[str, str]  # the dtype that each array is stored as
    address: dict[str, str]  # the index of each array's element
    lanes: int = 1  # how many neighbouring elements are computed
    # Whether the operators of the target's integers leave cases undefined, so that functions take their place.
    has_integer_functions: bool = False
    lines: list[tuple[str, Place]] = field(default_factory=list)

    def line(self, depth: int, text: str, where: Place = None) -> None:
        self.lines.append(("    " * depth + text, where))

    def text(self) -> list[tuple[str, Place]]:
        """The lines, the first of each user's line with that line as its comment, and where they come from."""
        lines: list[tuple[str, Place]] = []
        shown: tuple[str, int] | None = None
        for code, where in self.lines:
            comment = ""
            if isinstance(where, Location) and where != NOWHERE and (where.filename, where.line) != shown:
                comment = _quote(where)
                shown = (where.filename, where.line)
            if not comment:
                lines.append((code, where))
            elif len(code) <= _COMMENT_COLUMN:
                lines.append((_cut(f"{code:<{_COMMENT_COLUMN}}  # {comment}"), where))
            else:
                indent = code[: len(code) - len(code.lstrip())]
                # Beyond the page nothing of a comment would be left.
                lines += [(_cut(f"{indent}# {comment}"), None)] if len(indent) < _PAGE - 2 else []
                lines.append((code, where))
        return lines

    def function(self, function: Function, depth: int) -> None:
        """The body and the stores of the element function."""
        if function.body:
            self.block(function.body, depth)
        for first in range(0, len(function.outputs), self.lanes):
            name = function.outputs[first].name
            values = [output.value for output in function.outputs[first : first + self.lanes]]
            self.line(depth, self.store(name, values), store_of(values))

    # --- statements ----------------------------------------------------------------------------------------------

    def block(self, block: Block, depth: int) -> None:
        if not block:
            self.line(depth, "pass")
        for stmt, *neighbours in _group_loads(block, self.lanes):
            match stmt:
                case Assign() if neighbours:
                    self._wide_load(stmt, neighbours, depth)
                case Assign():
                    place = expression_place(stmt.value) if stmt.location == NOWHERE else stmt.location
                    self.line(depth, f"{stmt.target.name} = {self.assigned(stmt.value)}", place)
                case If():
                    self._if(stmt, depth)
                case While():
                    self._while(stmt, depth)
                case For():
                    bounds = [self.expression(expr) for expr in (stmt.start, stmt.stop, stmt.step)]
                    if self.has_integer_functions and _may_be_too_long(stmt):
                        bounds[1] = f"{RANGE_STOP}({', '.join(bounds)})"
                    if bounds[2] == "1":
                        bounds = bounds[1:2] if bounds[0] == "0" else bounds[:2]
                    self.line(depth, f"for {stmt.target.name} in range({', '.join(bounds)}):", stmt.location)
                    self.block(stmt.body, depth + 1)
                case Break():
                    self.line(depth, "break")
                case Continue():
                    self.line(depth, "continue")

    def _if(self, stmt: If, depth: int, word: str = "if") -> None:
        if not stmt.then:
            stmt = If(fold(Op("not", (stmt.test,), "bool")), stmt.orelse, (), stmt.location)
        test = self.expression(stmt.test)
        match stmt.then, stmt.orelse:
            case (Assign() as then,), (Assign() as orelse,) if then.target == orelse.target and word == "if":
                first, second = self.assigned(then.value, 1), self.assigned(orelse.value)
                line = f"{then.target.name} = {first} if {self.expression(stmt.test, 1)} else {second}"
                if len(line) <= _WIDEST:
                    self.line(depth, line, stmt.location)
                    return
        self.line(depth, f"{word} {test}:", stmt.location)
        self.block(stmt.then, depth + 1)
        if len(stmt.orelse) == 1 and isinstance(stmt.orelse[0], If):
            self._if(stmt.orelse[0], depth, "elif")
        elif stmt.orelse:
            self.line(depth, "else:")
            self.block(stmt.orelse, depth + 1)

    def _while(self, stmt: While, depth: int) -> None:
        test = self.expression(stmt.test)
        head = "True" if stmt.pre else test
        if head == "True" and breaks(stmt.body):
            # Where the one exit of a loop assigns a variable, Numba 0.68 takes the statements that follow in the text
            # for those that run next, and gives the loop's variables stale values. A second exit avoids that.
            head = FOREVER
            self.line(depth, f"{FOREVER} = True")
        self.line(depth, f"while {head}:", stmt.location)
        if stmt.pre:
            self.block(stmt.pre, depth + 1)
            self.line(depth + 1, f"if {self.expression(Op('not', (stmt.test,), 'bool'))}:")
            self.line(depth + 2, "break")
        if stmt.body or not stmt.pre:
            self.block(stmt.body, depth + 1)

    def _wide_load(self, first: Assign, neighbours: Sequence[Stmt], depth: int) -> None:
        """The statements that load an element and its neighbours in one access."""
        load = first.value
        names = [stmt.target.name for stmt in (first, *neighbours) if isinstance(stmt, Assign)]
        assert isinstance(load, Load)
        access = f"load_{self.lanes}({load.name}, {self.address[load.name]})"
        self.line(depth, f"{', '.join(names)} = {access}", first.location)
        for name in names:
            value, _ = self._from_storage(load, name, "from")
            if value != name:
                self.line(depth, f"{name} = {value}")

    def store(self, name: str, values: Sequence[Expr]) -> str:
        """The statement that stores an output, of one element or of several."""
        storage, index = self.storage[name], self.address[name]
        texts = [self.expression(value) for value in values]
        if storage in _HALVES and self.constants.dtype != "float32":
            texts = [f"float32({text})" for text in texts]
        if storage == "bool":
            texts = [f"uint8({text})" for text in texts]
        if len(values) > 1:
            if storage in _HALVES:
                texts = [f"to_{storage}({text})" for text in texts]
            return f"store_{len(values)}({name}, {index}, {', '.join(texts)})"
        if storage in _HALVES:
            return f"store_{storage}({name}, {index}, {texts[0]})"
        return f"{name}[{index}] = {texts[0]}"

    def assigned(self, value: Expr, binding: int = _CONDITIONAL) -> str:
        """A value as it is put into a variable: a bare integer would not be 64 bits wide on every target."""
        if isinstance(value, Const) and value.kind == "int":
            return self.constants.integer(int(value.value))
        return self.expression(value, binding)

    # --- expressions ---------------------------------------------------------------------------------------------

    def expression(self, expr: Expr, binding: int = _CONDITIONAL) -> str:
        """An expression, in parentheses where it binds less tightly than what is around it."""
        text, strength = self._parts(expr)
        return f"({text})" if strength < binding else text

    def _parts(self, expr: Expr) -> tuple[str, int]:
        match expr:
            case Var():
                return expr.name, _ATOM
            case Load():
                return self._element(expr, expr.name, self.address[expr.name])
            case Const(value=value, kind="float"):
                return self.constants.floating(float(value)), _ATOM
            case Const(value=value):
                return repr(value), _ATOM if value >= 0 else 11
            case Op():
                return self._operation(expr)
        raise AssertionError(expr)

    def _operation(self, op: Op) -> tuple[str, int]:
        match op:
            case Op(name="read", args=(Array(name=array) as whole, place)):
                return self._element(whole, array, self.expression(place))
            case Op(name=name, args=args) if name in _INFIX and not (self.has_integer_functions and _may_wrap(op)):
                sign, strength = _INFIX[name]
                left = self.expression(args[0], strength + (strength == 4))
                # Operators are left-associative, and a + (b + c) is not (a + b) + c.
                return f"{left} {sign} {self.expression(args[1], strength + 1)}", strength
            case Op(name=name, args=(arg,)) if name in _PREFIX:
                sign, strength = _PREFIX[name]
                return sign + self.expression(arg, strength), strength
            case Op(name="select", args=(test, then, orelse)):
                text = f"{self.expression(then, 1)} if {self.expression(test, 1)} else {self.expression(orelse)}"
                return text, _CONDITIONAL
            case Op(name="single", args=(arg,)):  # a value rounded to float32
                if self.constants.dtype == "float32":
                    return self._parts(arg)
                return f"float64(float32({self.expression(arg)}))", _ATOM
        named = {"to_float": self.constants.dtype, "to_int": "int64", **INTEGER_FUNCTIONS, **self.called}
        function = named.get(op.name, op.name)
        return f"{function}({', '.join(map(self.expression, op.args))})", _ATOM

    def _element(self, load: Load | Array, name: str, index: str) -> tuple[str, int]:
        """The element of an array at an index."""
        if self.storage[name] in _HALVES:
            return self._from_storage(load, f"{name}, {index}", "load")
        return self._from_storage(load, f"{name}[{index}]", "")

    def _from_storage(self, load: Load | Array, text: str, verb: str) -> tuple[str, int]:
        """A loaded element in the kind that it is computed with; `verb` is that of the functions for 16 bits."""
        storage = self.storage[load.name]
        if storage in _HALVES:
            text = f"{verb}_{storage}({text})"
            return (text if self.constants.dtype == "float32" else f"float64({text})"), _ATOM
        if load.kind == "bool":
            return f"{text} != 0", 4
        wanted = "int64" if load.kind == "int" else self.constants.dtype
        return (text if storage == wanted else f"{wanted}({text})"), _ATOM


def _may_wrap(op: Op) -> bool:
    """Whether an operation of integers has operands for which the operator may be undefined on a target."""
    if op.kind != "int" or op.name not in INTEGER_FUNCTIONS:
        return False
    match op.name, op.args[1]:
        case "floordiv", Const(value=divisor):
            return divisor == -1
        case "shl" | "shr", Const(value=places):
            return not 0 <= places < 64
    return True


def _may_be_too_long(loop: For) -> bool:
    """Whether a difference of a loop's bounds may be beyond the range of integers."""
    begins_at_zero = loop.start == Const(0, "int") and loop.step == Const(1, "int")
    return not begins_at_zero and not (isinstance(loop.start, Const) and isinstance(loop.stop, Const))


def _group_loads(block: Block, lanes: int) -> Iterator[tuple[Stmt, ...]]:
    """The statements of a block; loads of an element and its neighbours are one group."""
    at = 0
    while at < len(block):
        group = block[at : at + lanes]
        first, last = _loaded(group[0]), _loaded(group[-1])
        if not first or last != neighbour(first, lanes - 1):
            group = group[:1]
        yield group
        at += len(group)


def _loaded(stmt: Stmt) -> str:
    return stmt.value.name if isinstance(stmt, Assign) and isinstance(stmt.value, Load) else ""


def _cut(line: str) -> str:
    return line if len(line) <= _PAGE else line[: _PAGE - 1] + "…"


def _quote(where: Location) -> str:
    """A line of the user's source as a comment."""
    text = linecache.getline(where.filename, where.line).strip()
    return f"{os.path.basename(place_of(where.filename, where.line))}   {text}" if text else ""
