"""The front end's arithmetic: what Python's operators do to numbers of each kind, in operations of the IR."""

from __future__ import annotations

import ast
from typing import Any

from dualbcast.errors import Location
from dualbcast.frontend.environment import Builder
from dualbcast.frontend.values import Closure, Derived, Keywords, Partial, Static, Unassigned, Value, describe
from dualbcast.ir.constant_fold import FALSE, TRUE, convert, join, number
from dualbcast.ir.nodes import Atom, Const, Kind, Op, Var
from dualbcast.rules.powers import INVERSE_POWERS, LARGEST_PRODUCT, ROOTS
from dualbcast.rules.table import RULES, Rule, by_spelling

__all__ = ["Operators"]

_ARITHMETIC = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
_BITWISE = {
    ast.BitAnd: "bitand",
    ast.BitOr: "bitor",
    ast.BitXor: "bitxor",
    ast.LShift: "shl",
    ast.RShift: "shr",
}


class Operators(Builder):
    """Lowers operators; `apply` is supplied by the layer above."""

    def as_scalar(self, value: Value, node: ast.AST) -> Atom:
        if isinstance(value, Const | Var):
            return value
        if isinstance(value, Static) and isinstance(value.object, int | float):  # a member of an IntEnum
            return number(int(value.object) if isinstance(value.object, int) else float(value.object))
        self.merged(value, node)
        instead = "a number"
        if isinstance(value, tuple):
            instead = "one item of it"
        elif isinstance(value, Closure | Partial | Derived) or (isinstance(value, Static) and callable(value.object)):
            instead = "a call of it"
        self.fail(node, f"a number is needed here, and this is {describe(value)}", instead)

    def merged(self, value: Value, node: ast.AST) -> Value:
        """A value that is read; one that paths could not agree on is an error then."""
        if isinstance(value, Unassigned):
            self.fail(node, value.reason, "one kind of thing on every path")
        return value

    def truth(self, value: Value, node: ast.AST) -> Atom:
        """Whether Python takes a value for true."""
        match value:
            case tuple() | Keywords():
                return TRUE if value else FALSE
            case Closure() | Partial() | Derived():
                return TRUE
            case Static(known):
                try:
                    return TRUE if known else FALSE
                except Exception as error:  # a class may run anything to tell
                    self.fail(node, f"this raises {type(error).__name__}: {error}")
        return self.emit(convert(self.as_scalar(value, node), "bool"), self.locate(node))

    def binary(self, operator: ast.operator, left: Atom, right: Atom, node: ast.AST) -> Atom:
        """Python's arithmetic on two numbers."""
        kind = join(left.kind, right.kind)
        if type(operator) in _BITWISE:
            return self._bitwise(operator, left, right, kind, node)
        if kind == "bool":
            kind = "int"
        where = self.locate(node)
        if isinstance(operator, ast.FloorDiv | ast.Mod) and kind == "int" and right == Const(0, "int"):
            self.fail(node, "an integer division by zero")
        match operator:
            case ast.Add() | ast.Sub() | ast.Mult():
                return self._same_kind(_ARITHMETIC[type(operator)], left, right, kind, where)
            case ast.Div():
                return self._same_kind("div", left, right, "float", where)
            case ast.FloorDiv() if kind == "int":
                return self._same_kind("floordiv", left, right, kind, where)
            case ast.Mod() if kind == "int":
                return self._same_kind("mod", left, right, kind, where)
            case ast.FloorDiv():
                return self.apply(by_spelling("numpy.floor_divide"), (left, right), node)
            case ast.Mod():
                return self.apply(by_spelling("numpy.remainder"), (left, right), node)
            case ast.Pow():
                return self.power(left, right, node)
        self.fail(node, "@ multiplies matrices, and these are numbers", "*, or a sum of products")

    def apply(self, meaning: Any, args: tuple[Atom, ...], node: ast.AST) -> Atom:
        """A function of the rule table on numbers; supplied by the layer above."""
        raise NotImplementedError

    def _same_kind(self, name: str, left: Atom, right: Atom, kind: Kind, where: Location) -> Atom:
        return self.op(
            name, self.convert(left, kind, where), self.convert(right, kind, where), kind=kind, location=where
        )

    def _bitwise(self, operator: ast.operator, left: Atom, right: Atom, kind: Kind, node: ast.AST) -> Atom:
        name, where = _BITWISE[type(operator)], self.locate(node)
        if kind == "float":
            word = {ast.BitAnd: ", or `and` between conditions", ast.BitOr: ", or `or` between conditions"}
            instead = "int(x) around the numbers" + word.get(type(operator), "")
            self.fail(node, "a bit operation needs integers", instead)
        if kind == "bool" and name in ("bitand", "bitor", "bitxor"):
            name = {"bitand": "and", "bitor": "or", "bitxor": "ne"}[name]
            return self.op(name, left, right, kind="bool", location=where)
        if name in ("shl", "shr") and isinstance(right, Const) and not 0 <= right.value < 64:
            self.fail(node, f"a shift by {right.value} is outside the 64 bits of an integer")
        return self._same_kind(name, left, right, "int", where)

    def power(self, base: Atom, exponent: Atom, node: ast.AST) -> Atom:
        """`base ** exponent`: a product for small whole exponents, else the rule for pow, or for what is faster."""
        where = self.locate(node)
        if isinstance(exponent, Const) and isinstance(base, Const):
            try:
                result = base.value**exponent.value
                if not isinstance(result, complex):
                    return number(result)
            except ArithmeticError:
                pass
        if isinstance(exponent, Const) and exponent.value == int(exponent.value if abs(exponent.value) < 99 else 0):
            count = int(exponent.value)
            kind: Kind = "float" if base.kind == "float" or exponent.kind == "float" or count < 0 else "int"
            if 1 <= abs(count) <= (LARGEST_PRODUCT if kind == "float" else 64):
                base = self.convert(base, kind, where)
                result = self._product(base, abs(count), kind, where)
                if count > 0:
                    return result
                result = self.op("div", Const(1.0, "float"), result, kind="float", location=where)
                if count == -1:
                    return result
                return self.emit(Op(INVERSE_POWERS[-count].name, (result, base), "float", where), where)
            if count == 0:
                return Const(1.0, "float") if kind == "float" else Const(1, "int")
        return self.apply(by_spelling("numpy.power"), (base, exponent), node)

    def instead_of_pow(self, base: Atom, exponent: Atom) -> tuple[Rule, tuple[Atom, ...]] | None:
        """A function that takes less time than pow and has the same values, if one of the two numbers is known."""
        if base == Const(2.0, "float") or base == Const(2, "int"):
            return RULES["exp2"], (exponent,)
        row = ROOTS.get(exponent.value) if isinstance(exponent, Const) else None
        return None if row is None else (RULES[row], (base,))

    def _product(self, base: Atom, count: int, kind: Kind, where: Location) -> Atom:
        if count == 1:
            return base
        half = self._product(base, count // 2, kind, where)
        square = self.op("mul", half, half, kind=kind, location=where)
        return self.op("mul", square, base, kind=kind, location=where) if count % 2 else square

    def unary(self, operator: ast.unaryop, value: Value, node: ast.AST) -> Atom:
        """Python's `-`, `+`, `~` and `not`."""
        where = self.locate(node)
        if isinstance(operator, ast.Not):
            return self.op("not", self.truth(value, node), kind="bool", location=where)
        x = self.as_scalar(value, node)
        if isinstance(operator, ast.Invert):
            if x.kind == "float":
                self.fail(node, "a bit operation needs integers", "int(x) around the number")
            return self.op("invert", self.convert(x, "int", where), kind="int", location=where)
        kind: Kind = "int" if x.kind == "bool" else x.kind
        x = self.convert(x, kind, where)
        return x if isinstance(operator, ast.UAdd) else self.op("neg", x, kind=kind, location=where)

    def comparison(self, name: str, left: Atom, right: Atom, where: Location) -> Atom:
        """Python's comparison of two numbers; an integer that is not known is compared as a float, as in NumPy."""
        if isinstance(left, Const) and isinstance(right, Const):
            return self.op(name, left, right, kind="bool", location=where)
        kind = join(left.kind, right.kind)
        left, right = self.convert(left, kind, where), self.convert(right, kind, where)
        return self.op(name, left, right, kind="bool", location=where)

    def select(self, test: Atom, then: Atom, orelse: Atom, where: Location) -> Atom:
        """One of two numbers that are both at hand."""
        if isinstance(test, Const):
            return then if test.value else orelse
        kind = join(then.kind, orelse.kind)
        then, orelse = self.convert(then, kind, where), self.convert(orelse, kind, where)
        return self.op("select", test, then, orelse, kind=kind, location=where)
