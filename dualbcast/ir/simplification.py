"""Simplification: folding of one operation, and global value numbering with common subexpressions and copy propagation.

Two names with the same number hold the same value at this point, on every path. All identities hold for NaN, infinities
and signed zeros. Sums and products of derivatives may be fused: their last bits may depend on how they are computed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Set
from dataclasses import replace
from typing import Any

from dualbcast.ir import nodes as ir
from dualbcast.ir.traversal import falls_through, read_counts, remove_dead, targets
from dualbcast.ir.value_numbers import ValueNumbers

_ORDER: tuple[ir.Kind, ...] = ("bool", "int", "float")

_SAME_NAME = ("add", "sub", "mul", "floordiv", "mod", "neg", "lt", "le", "gt", "ge", "eq", "ne", "invert")
_EXACT: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in _SAME_NAME},
    "div": operator.truediv,
    "not": operator.not_,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "select": lambda test, a, b: a if test else b,
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "to_float": float,
    "to_int": int,
}
# The rules' functions by their names in the IR, which the rule table enters.
FUNCTIONS: dict[str, Callable[..., float]] = {}
INTEGRAL = frozenset({"floor", "ceil", "rint", "trunc"})


def join(a: ir.Kind, b: ir.Kind) -> ir.Kind:
    """The kind that holds values of both: bool < int < float."""
    return _ORDER[max(_ORDER.index(a), _ORDER.index(b))]


def number(value: bool | int | float) -> ir.Const:
    """A Python number as a constant; an integer that 64 bits cannot hold becomes a float, as in a float expression."""
    if isinstance(value, bool):
        return ir.Const(value, "bool")
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return ir.Const(value, "int")
    return ir.Const(float(value), "float")


def zero(kind: ir.Kind) -> ir.Const:
    """The zero of a kind, which stands for the value of a variable that has none yet."""
    return {"float": ir.ZERO, "int": ir.Const(0, "int"), "bool": ir.FALSE}[kind]


def convert(value: ir.Expr, kind: ir.Kind) -> ir.Expr:
    """The value as another kind; converting to bool asks whether it differs from zero."""
    if value.kind == kind:
        return value
    if kind == "bool":
        return fold(ir.Op("ne", (value, ir.Const(0.0 if value.kind == "float" else 0, value.kind)), "bool"))
    return fold(ir.Op(f"to_{kind}", (value,), kind))


def fold(op: ir.Op) -> ir.Expr:
    """The operation, or a simpler expression of the same value (NaN, infinities and signed zeros included).

    Constants are computed in double precision, whatever the kernel's dtype is, and rounded once.
    """
    compute = _EXACT.get(op.name) or FUNCTIONS.get(op.name)
    constants = [arg.value for arg in op.args if isinstance(arg, ir.Const)]
    if compute is not None and len(constants) == len(op.args):
        return _computed(op, compute, constants)
    return _folded_choice(op) if op.name in ("select", "and", "or") else _folded_arithmetic(op)


def _computed(op: ir.Op, compute: Callable[..., Any], constants: list[bool | int | float]) -> ir.Expr:
    """The constant that an operation on constants gives; the operation itself where Python raises an exception."""
    try:
        result = compute(*constants)
        if op.kind == "float":
            return ir.Const(float(result), "float")
        if op.kind == "bool":
            return ir.Const(bool(result), "bool")
        if -(2**63) <= result < 2**63:
            return ir.Const(int(result), "int")
    except (ArithmeticError, ValueError, TypeError):
        pass  # The kernel computes it, with IEEE's answer.
    return op


def _folded_arithmetic(op: ir.Op) -> ir.Expr:
    match op.name, op.args:
        case "mul", (ir.Const(value=1), x) | (x, ir.Const(value=1)):
            return x
        case "mul", (ir.Const(value=-1), x) | (x, ir.Const(value=-1)):
            return fold(ir.Op("neg", (x,), op.kind, op.location))
        case "div" | "floordiv", (x, ir.Const(value=1)) if op.name == "div" or op.kind == "int":
            return x
        case "sub", (x, ir.Const() as subtrahend) if repr(subtrahend.value) in ("0", "0.0"):
            return x
        case "add", (ir.Const(value=0, kind="int"), x) | (x, ir.Const(value=0, kind="int")):
            return x
        case "neg" | "not", (ir.Op(name=inner, args=(x,)),) if inner == op.name:
            return x
        case _:
            return op


def _folded_choice(op: ir.Op) -> ir.Expr:
    match op.name, op.args:
        case "and", (ir.Const() as known, x) | (x, ir.Const() as known):
            return x if known.value else ir.FALSE
        case "or", (ir.Const() as known, x) | (x, ir.Const() as known):
            return ir.TRUE if known.value else x
        case "select", (ir.Const() as test, then, orelse):
            return then if test.value else orelse
        case "select", (_, then, orelse) if then == orelse:
            return then
        case "select", (test, ir.Const(value=True, kind="bool"), ir.Const(value=False)):
            return test
        case "select", (test, ir.Const(value=False, kind="bool"), ir.Const(value=True)):
            return fold(ir.Op("not", (test,), "bool", op.location))
        case _:
            return op


_COMMUTATIVE = frozenset({"add", "mul", "eq", "ne", "and", "or"})


def simplify(function: ir.Function, fusible: Set[str] = frozenset()) -> ir.Function:
    """The function with fewer operations, the same outputs, and no dead code.

    Before::

        function f(x: float, y: float)
            a: float = mul(x, y)
            b: float = mul(y, x)
            unused: float = sin(x)
            c: float = mul(b, 1.0)
            d: float = add(a, c)
            output out = d

    After::

        function f(x: float, y: float)
            a: float = mul(x, y)
            d: float = add(a, a)
            output out = d

    Sums and products with a name in `fusible` may be fused, with one rounding.
    """
    return remove_dead(_Numbering(function, fusible).run())


class _Numbering(ValueNumbers):
    def __init__(self, function: ir.Function, fusible: Set[str]) -> None:
        super().__init__()
        self.function, self.fusible, self.derived = function, fusible, frozenset(function.derived)
        self.reads = read_counts(function)
        # The operation that computed a value, and the numbers of its operands.
        self.definitions: dict[int, tuple[ir.Op, list[int]]] = {}

    def run(self) -> ir.Function:
        for param in self.function.params:
            self.renew(param)
        body = self.block(self.function.body)
        outputs = tuple([replace(output, value=self.atom(output.value)) for output in self.function.outputs])
        return replace(self.function, body=body, outputs=outputs)

    def operands(self, atom: ir.Expr, name: str) -> tuple[ir.Expr, ...] | None:
        """The operands of the operation of this name that computed an atom, if they still have their values."""
        definition, numbers = self.definitions.get(self.number(atom), (None, []))
        if definition is None or definition.name != name or not all(map(self.holds, definition.args, numbers)):
            return None
        return definition.args

    def block(self, block: ir.Block) -> ir.Block:
        new: list[ir.Stmt] = []
        for stmt in block:
            match stmt:
                case ir.Assign():
                    self.assign(stmt, new)
                    continue
                case ir.If():
                    self.branch(stmt, new)
                case ir.While() | ir.For():
                    self.loop(stmt, new)
                case _:
                    new.append(stmt)
            if not falls_through(tuple(new[-1:])):
                break
        return tuple(new)

    def assign(self, stmt: ir.Assign, new: list[ir.Stmt]) -> None:
        value = written = stmt.value
        if isinstance(value, ir.Op):
            value = self._rewrite(
                fold(ir.Op(value.name, tuple(map(self.atom, value.args)), value.kind, value.location))
            )
            if isinstance(value, ir.Op) and value.kind == "float" and stmt.target.name in self.derived:
                value = self._rescaled(value)
            if isinstance(value, ir.Op) and stmt.target.name in self.fusible:
                value = self._fused(value, written)
        if isinstance(value, ir.Op):
            arguments = [self.number(arg) for arg in value.args]
            key = (value.name, value.kind, *(sorted(arguments) if value.name in _COMMUTATIVE else arguments))
            number = self.computed.get(key)
            if number is None:
                number = self.computed[key] = self.new(stmt.target)
            if self.holds(self.holders[number], number):
                value = self.holders[number]
            else:
                self.definitions[number] = value, arguments
        else:
            value = self.atom(value)
            number = self.number(value)
        self.hold(stmt.target, number)
        new.append(ir.Assign(stmt.target, value, stmt.location))

    def _rewrite(self, value: ir.Expr) -> ir.Expr:
        """Signs of operands that meet in an operation on floats."""
        if not isinstance(value, ir.Op) or value.kind != "float":
            return value
        match value.name, tuple(map(self._negated, value.args)):
            case "neg", (ir.Const() | ir.Var() as inner,):
                return inner
            case "add" | "sub", (_, ir.Const() | ir.Var() as right):
                return replace(value, name="sub" if value.name == "add" else "add", args=(value.args[0], right))
            case "mul" | "div", (ir.Const() | ir.Var() as left, ir.Const() | ir.Var() as right):
                return replace(value, args=(left, right))
        return value

    def _negated(self, atom: ir.Expr) -> ir.Expr | None:
        """The atom that this one is the negative of."""
        if isinstance(atom, ir.Const) and isinstance(atom.value, float) and repr(atom.value).startswith("-"):
            return ir.Const(-atom.value, atom.kind)
        negated = self.operands(atom, "neg")
        return None if negated is None else negated[0]

    def _rescaled(self, value: ir.Op) -> ir.Op:
        """The product of a constant and a multiple or a reciprocal, with one constant."""
        match value.name, value.args:
            case "mul", (ir.Const() as factor, ir.Var() as scaled) | (ir.Var() as scaled, ir.Const() as factor):
                # A quotient that others read stays: a division takes much longer than a multiplication.
                for name in ("mul", "div") if self.reads[scaled.name] == 1 else ("mul",):
                    match self.operands(scaled, name):
                        case (ir.Const() as constant, rest):
                            pass
                        case (rest, ir.Const() as constant) if name == "mul":
                            pass
                        case _:
                            continue
                    product = factor.value * constant.value
                    # With larger or smaller constants, the product could overflow or underflow where the two do not.
                    if 1e-6 < abs(product) < 1e6:
                        return replace(value, name=name, args=(ir.Const(product, "float"), rest))
        return value

    def _fused(self, value: ir.Op, written: ir.Expr) -> ir.Op:
        """A sum fused with a product in it, the second one if there are two.

        It is fused however often the product is read: rounding does not depend on the other results that are asked for.
        """
        if value.name not in ("add", "sub") or value.kind != "float" or not isinstance(written, ir.Op):
            return value
        left, right = (
            self.operands(arg, "mul") if self._is_fusible(arg) and self._is_fusible(as_written) else None
            for arg, as_written in zip(value.args, written.args, strict=True)
        )
        if right is not None:
            return replace(value, name=ir.MULADD if value.name == "add" else ir.SUBMUL, args=(*right, value.args[0]))
        if left is not None:
            return replace(value, name=ir.MULADD if value.name == "add" else ir.MULSUB, args=(*left, value.args[1]))
        return value

    def _is_fusible(self, atom: ir.Expr) -> bool:
        return isinstance(atom, ir.Var) and atom.name in self.fusible

    def branch(self, stmt: ir.If, new: list[ir.Stmt]) -> None:
        test = self.atom(stmt.test)
        if isinstance(test, ir.Const):
            new.extend(self.block(stmt.then if test.value else stmt.orelse))
            return
        outside, old = self.before, self.numbers[test.name]
        sides: list[ir.Block] = []
        # The numbers after each side whose end is reached, of the names that it assigns.
        ends: list[dict[str, int]] = []
        before: dict[str, int | None] = {}
        for side, value in ((stmt.then, ir.TRUE), (stmt.orelse, ir.FALSE)):
            self.before = {test.name: old}
            self.numbers[test.name] = self.number(value)
            sides.append(self.block(side))
            if self.numbers[test.name] == self.number(value):
                self.numbers[test.name] = old
            if falls_through(sides[-1]):
                ends.append({name: self.numbers[name] for name in self.before})
                before |= self.before
            self.undo(self.before, outside)
        if ends:
            self.merge(test, before, ends)
        new.append(replace(stmt, test=test, then=sides[0], orelse=sides[1]))

    def loop(self, stmt: ir.While | ir.For, new: list[ir.Stmt]) -> None:
        bounds = [self.atom(bound) for bound in (stmt.start, stmt.stop, stmt.step)] if isinstance(stmt, ir.For) else []
        changed = [target for _, target in sorted(targets((stmt,)).items())]
        for target in changed:
            self.renew(target)
        outside, self.before = self.before, {}
        if isinstance(stmt, ir.For):
            start, stop, step = bounds
            new.append(replace(stmt, start=start, stop=stop, step=step, body=self.block(stmt.body)))
        else:
            pre = self.block(stmt.pre)
            test = self.atom(stmt.test)
            new.append(replace(stmt, pre=pre, test=test, body=self.block(stmt.body)))
        self.undo(self.before, outside)
        for target in changed:
            self.renew(target)
