"""Folding of one operation: constants are computed, and identities that hold for every IEEE value are applied."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from dualbcast.ir.nodes import FALSE, TRUE, ZERO, Const, Expr, Kind, Op

_ORDER: tuple[Kind, ...] = ("bool", "int", "float")

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


def join(a: Kind, b: Kind) -> Kind:
    """The kind that holds values of both: bool < int < float."""
    return _ORDER[max(_ORDER.index(a), _ORDER.index(b))]


def number(value: bool | int | float) -> Const:
    """A Python number as a constant; an integer that 64 bits cannot hold becomes a float, as in a float expression."""
    if isinstance(value, bool):
        return Const(value, "bool")
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return Const(value, "int")
    return Const(float(value), "float")


def zero(kind: Kind) -> Const:
    """The zero of a kind, which stands for the value of a variable that has none yet."""
    return {"float": ZERO, "int": Const(0, "int"), "bool": FALSE}[kind]


def convert(value: Expr, kind: Kind) -> Expr:
    """The value as another kind; converting to bool asks whether it differs from zero."""
    if value.kind == kind:
        return value
    if kind == "bool":
        return fold(Op("ne", (value, Const(0.0 if value.kind == "float" else 0, value.kind)), "bool"))
    return fold(Op(f"to_{kind}", (value,), kind))


def fold(op: Op) -> Expr:
    """The operation, or a simpler expression of the same value (NaN, infinities and signed zeros included).

    Constants are computed in double precision, whatever the kernel's dtype is, and rounded once.
    """
    compute = _EXACT.get(op.name) or FUNCTIONS.get(op.name)
    constants = [arg.value for arg in op.args if isinstance(arg, Const)]
    if compute is not None and len(constants) == len(op.args):
        return _computed(op, compute, constants)
    return _folded_choice(op) if op.name in ("select", "and", "or") else _folded_arithmetic(op)


def _computed(op: Op, compute: Callable[..., Any], constants: list[bool | int | float]) -> Expr:
    """The constant that an operation on constants gives; the operation itself where Python raises an exception."""
    try:
        result = compute(*constants)
        if op.kind == "float":
            return Const(float(result), "float")
        if op.kind == "bool":
            return Const(bool(result), "bool")
        if -(2**63) <= result < 2**63:
            return Const(int(result), "int")
    except (ArithmeticError, ValueError, TypeError):
        pass  # The kernel computes it, with IEEE's answer.
    return op


def _folded_arithmetic(op: Op) -> Expr:
    match op.name, op.args:
        case "mul", (Const(value=1), x) | (x, Const(value=1)):
            return x
        case "mul", (Const(value=-1), x) | (x, Const(value=-1)):
            return fold(Op("neg", (x,), op.kind, op.location))
        case "div" | "floordiv", (x, Const(value=1)) if op.name == "div" or op.kind == "int":
            return x
        case "sub", (x, Const() as subtrahend) if repr(subtrahend.value) in ("0", "0.0"):
            return x
        case "add", (Const(value=0, kind="int"), x) | (x, Const(value=0, kind="int")):
            return x
        case "neg" | "not", (Op(name=inner, args=(x,)),) if inner == op.name:
            return x
        case _:
            return op


def _folded_choice(op: Op) -> Expr:
    match op.name, op.args:
        case "and", (Const() as known, x) | (x, Const() as known):
            return x if known.value else FALSE
        case "or", (Const() as known, x) | (x, Const() as known):
            return TRUE if known.value else x
        case "select", (Const() as test, then, orelse):
            return then if test.value else orelse
        case "select", (_, then, orelse) if then == orelse:
            return then
        case "select", (test, Const(value=True, kind="bool"), Const(value=False)):
            return test
        case "select", (test, Const(value=False, kind="bool"), Const(value=True)):
            return fold(Op("not", (test,), "bool", op.location))
        case _:
            return op
