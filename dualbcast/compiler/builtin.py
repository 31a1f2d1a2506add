"""What Python's builtins mean on numbers and tuples of a scalar function, and NumPy's and `operator`'s operators.

A table from the Python object to the lowering that stands for it.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
import types
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dualbcast.compiler.expressions import Expressions
from dualbcast.compiler.fold import FALSE, TRUE, number
from dualbcast.compiler.ir import Atom, Const
from dualbcast.compiler.rules import by_spelling
from dualbcast.compiler.values import Range, Record, Static, Value, is_instance

__all__ = ["BUILTINS", "KEYWORDS", "Builtin"]

ZERO = Const(0, "int")

Builtin = Callable[..., Value]
BUILTINS: dict[Any, Builtin] = {}
# The keywords that may be given; all other arguments are positional.
KEYWORDS: dict[Any, frozenset[str]] = {
    **{function: frozenset({"start"}) for function in (sum, math.prod, enumerate)},
    **{function: frozenset({"default", "key"}) for function in (min, max)},
    zip: frozenset({"strict"}),
    sorted: frozenset({"reverse"}),
    round: frozenset({"ndigits"}),
}


def _builtin(*functions: Any) -> Callable[[Builtin], Builtin]:
    def register(lowering: Builtin) -> Builtin:
        BUILTINS.update(dict.fromkeys(functions, lowering))
        return lowering

    return register


@_builtin(abs, np.absolute)
def _abs(self: Expressions, node: ast.Call, value: Value) -> Value:
    x = self.as_scalar(value, node)
    if x.kind == "float":
        return self.apply(by_spelling("math.fabs"), (x,), node)
    where = self.locate(node)
    x = self.convert(x, "int", where)
    negative = self.comparison("lt", x, Const(0, "int"), where)
    return self.select(negative, self.op("neg", x, kind="int", location=where), x, where)


def _ufunc(operation: type[ast.operator]) -> Builtin:
    def lowering(self: Expressions, node: ast.Call, left: Value, right: Value) -> Value:
        return self.binary(operation(), self.as_scalar(left, node), self.as_scalar(right, node), node)

    return lowering


def _comparison(name: str) -> Builtin:
    def lowering(self: Expressions, node: ast.Call, left: Value, right: Value) -> Value:
        return self.comparison(name, self.as_scalar(left, node), self.as_scalar(right, node), self.locate(node))

    return lowering


def _logical(name: str) -> Builtin:
    def lowering(self: Expressions, node: ast.Call, left: Value, right: Value) -> Value:
        a, b = self.truth(left, node), self.truth(right, node)
        return self.op(name, a, b, kind="bool", location=self.locate(node))

    return lowering


def _unary_operator(operation: type[ast.unaryop]) -> Builtin:
    def lowering(self: Expressions, node: ast.Call, value: Value) -> Value:
        return self.unary(operation(), value, node)

    return lowering


# The operators under NumPy's names and those of the module `operator`.
for _names, _operation in (
    (("add",), ast.Add),
    (("subtract", "sub"), ast.Sub),
    (("multiply", "mul"), ast.Mult),
    (("divide", "true_divide", "truediv"), ast.Div),
    (("mod",), ast.Mod),
    (("floordiv",), ast.FloorDiv),
    (("bitwise_and", "and_"), ast.BitAnd),
    (("bitwise_or", "or_"), ast.BitOr),
    (("bitwise_xor", "xor"), ast.BitXor),
    (("left_shift", "lshift"), ast.LShift),
    (("right_shift", "rshift"), ast.RShift),
):
    for _module in (np, operator):
        BUILTINS.update({getattr(_module, name): _ufunc(_operation) for name in _names if hasattr(_module, name)})
for _names, _relation in (
    (("less", "lt"), "lt"),
    (("less_equal", "le"), "le"),
    (("greater", "gt"), "gt"),
    (("greater_equal", "ge"), "ge"),
    (("equal", "eq"), "eq"),
    (("not_equal", "ne"), "ne"),
):
    for _module in (np, operator):
        BUILTINS.update({getattr(_module, name): _comparison(_relation) for name in _names if hasattr(_module, name)})
BUILTINS.update({np.logical_and: _logical("and"), np.logical_or: _logical("or"), np.logical_xor: _logical("ne")})
BUILTINS.update(dict.fromkeys((np.logical_not, operator.not_), _unary_operator(ast.Not)))
BUILTINS.update(dict.fromkeys((np.negative, operator.neg), _unary_operator(ast.USub)))
BUILTINS.update(dict.fromkeys((np.positive, operator.pos), _unary_operator(ast.UAdd)))
BUILTINS.update(dict.fromkeys((np.invert, operator.invert), _unary_operator(ast.Invert)))


@_builtin(math.log)
def _log(self: Expressions, node: ast.Call, value: Value, base: Value | None = None) -> Value:
    x = self.apply(by_spelling("numpy.log"), (self.as_scalar(value, node),), node)
    if base is None:
        return x
    return self.binary(ast.Div(), x, self.apply(by_spelling("numpy.log"), (self.as_scalar(base, node),), node), node)


def _extremum(name: str) -> Builtin:
    def lowering(
        self: Expressions, node: ast.Call, *args: Value, default: Value | None = None, key: Value | None = None
    ) -> Value:
        items = self.sequence(args[0], node) if len(args) == 1 else args
        if default is not None and len(args) > 1:
            self.fail(node, "default= is for one tuple, which may be empty", "the numbers alone")
        if not items:
            if default is not None:
                return default
            self.fail(node, "the smallest or largest of nothing", "default=… for an empty tuple")
        where = self.locate(node)
        by_key = key is not None and key != Static(None)

        def measure(item: Value) -> Atom:
            return self.as_scalar(self.call_value(key, (item,), {}, node) if by_key and key else item, node)

        best, smallest = items[0], measure(items[0])
        for item in items[1:]:
            # As Python does it: the first of equal values stays, and a comparison with NaN is false.
            size = measure(item)
            test = self.comparison(name, size, smallest, where)
            smallest = self.select(test, size, smallest, where)
            best = self.choose(test, partial(_same, item), partial(_same, best), node) if by_key else smallest
        return best

    return lowering


def _same(value: Value) -> Value:
    return value


BUILTINS[min] = _extremum("lt")
BUILTINS[max] = _extremum("gt")


def _reduction(operation: type[ast.operator], initial: int) -> Builtin:
    def lowering(self: Expressions, node: ast.Call, items: Value, start: Value | None = None) -> Value:
        # The start is not left out: 0 + -0.0 is 0.0, as in Python.
        total = Const(initial, "int") if start is None else self.as_scalar(start, node)
        if total.kind == "bool":
            total = self.convert(total, "int", self.locate(node))
        for value in self.sequence(items, node):
            total = self.binary(operation(), total, self.as_scalar(value, node), node)
        return total

    return lowering


BUILTINS[sum] = _reduction(ast.Add, 0)
BUILTINS[math.prod] = _reduction(ast.Mult, 1)


@_builtin(sorted)
def _sorted(self: Expressions, node: ast.Call, items: Value, *, reverse: Value = FALSE) -> Value:
    where, numbers = self.locate(node), [self.as_scalar(item, node) for item in self.sequence(items, node)]
    if not isinstance(reverse, Const):
        self.fail(node, "whether sorted() reverses must be known when the kernel is compiled")
    name = "gt" if reverse.value else "lt"
    # Neighbours change places where the second must come first, so that equal numbers keep their order.
    for end in range(1, len(numbers)):
        for at in range(end, 0, -1):
            first, second = numbers[at - 1], numbers[at]
            test = self.comparison(name, second, first, where)
            numbers[at - 1], numbers[at] = (
                self.select(test, second, first, where),
                self.select(test, first, second, where),
            )
    return Record(list, numbers)


def _quantifier(name: str, empty: Const) -> Builtin:
    def lowering(self: Expressions, node: ast.Call, items: Value) -> Value:
        result: Atom = empty
        for item in self.sequence(items, node):
            result = self.op(name, result, self.truth(item, node), kind="bool", location=self.locate(node))
        return result

    return lowering


BUILTINS[all] = _quantifier("and", TRUE)
BUILTINS[any] = _quantifier("or", FALSE)


@_builtin(pow, math.pow, operator.pow)
def _pow(self: Expressions, node: ast.Call, base: Value, exponent: Value) -> Value:
    return self.power(self.as_scalar(base, node), self.as_scalar(exponent, node), node)


@_builtin(divmod, np.divmod)
def _divmod(self: Expressions, node: ast.Call, left: Value, right: Value) -> Value:
    a, b = self.as_scalar(left, node), self.as_scalar(right, node)
    return (self.binary(ast.FloorDiv(), a, b, node), self.binary(ast.Mod(), a, b, node))


def _integral(spelling: str) -> Builtin:
    def lowering(self: Expressions, node: ast.Call, value: Value) -> Value:
        x = self.as_scalar(value, node)
        if x.kind == "float":
            x = self.apply(by_spelling(spelling), (x,), node)
        return self.convert(x, "int", self.locate(node))

    return lowering


BUILTINS[math.floor] = _integral("numpy.floor")
BUILTINS[math.ceil] = _integral("numpy.ceil")
BUILTINS[math.trunc] = _integral("numpy.trunc")


@_builtin(round)
def _round(self: Expressions, node: ast.Call, value: Value, ndigits: Value | None = None) -> Value:
    if ndigits is None or ndigits == Static(None):
        return _integral("numpy.rint")(self, node, value)
    if not isinstance(ndigits, Const):
        self.fail(node, "the number of digits must be known when the kernel is compiled")
    if not abs(ndigits.value) <= 300:
        self.fail(node, f"a number of this kind has no {ndigits.value:g} digits", "fewer digits")
    x, scale = self.as_scalar(value, node), number(10.0 ** float(ndigits.value))
    scaled = self.apply(by_spelling("numpy.rint"), (self.binary(ast.Mult(), x, scale, node),), node)
    return self.binary(ast.Div(), scaled, scale, node)


@_builtin(int, np.int64)
def _int(self: Expressions, node: ast.Call, value: Value = ZERO) -> Value:
    return self.convert(self.as_scalar(value, node), "int", self.locate(node))


@_builtin(float, np.float64)
def _float(self: Expressions, node: ast.Call, value: Value = ZERO) -> Value:
    if isinstance(value, Static) and isinstance(value.object, str):
        try:
            return Const(float(value.object), "float")
        except ValueError:
            self.fail(node, f"{value.object!r} is not a number")
    return self.convert(self.as_scalar(value, node), "float", self.locate(node))


@_builtin(bool, np.bool_)
def _bool(self: Expressions, node: ast.Call, value: Value = FALSE) -> Value:
    return self.truth(value, node)


@_builtin(np.float32)
def _float32(self: Expressions, node: ast.Call, value: Value) -> Value:
    where = self.locate(node)
    return self.op("single", self.convert(self.as_scalar(value, node), "float", where), kind="float", location=where)


def _narrow(bits: int, *, signed: bool) -> Builtin:
    def lowering(self: Expressions, node: ast.Call, value: Value) -> Value:
        x: Atom = self.convert(self.as_scalar(value, node), "int", self.locate(node))
        half = Const(2 ** (bits - 1) if signed else 0, "int")
        x = self.binary(ast.BitAnd(), self.binary(ast.Add(), x, half, node), Const(2**bits - 1, "int"), node)
        return self.binary(ast.Sub(), x, half, node)

    return lowering


for _bits in (8, 16, 32):
    BUILTINS[getattr(np, f"int{_bits}")] = _narrow(_bits, signed=True)
    BUILTINS[getattr(np, f"uint{_bits}")] = _narrow(_bits, signed=False)


@_builtin(len)
def _len(self: Expressions, node: ast.Call, value: Value) -> Value:
    return number(len(self.sequence(value, node)))


@_builtin(tuple)
def _tuple(self: Expressions, node: ast.Call, value: Value = ()) -> Value:
    return self.sequence(value, node)


@_builtin(list)
def _list(self: Expressions, node: ast.Call, value: Value = ()) -> Value:
    return Record(list, self.sequence(value, node))


@_builtin(isinstance)
def _isinstance(self: Expressions, node: ast.Call, value: Value, kinds: Value) -> Value:
    classes: list[Any] = []
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        known = kind.object if isinstance(kind, Static) else None
        classes += known.__args__ if isinstance(known, types.UnionType) else (known,)
    if not all(isinstance(known, type) for known in classes):
        self.fail(node, "isinstance() needs a class, or a tuple of classes")
    return TRUE if is_instance(value, tuple(classes)) else FALSE


@_builtin(math.hypot)
def _hypot(self: Expressions, node: ast.Call, *values: Value) -> Value:
    sides = [self.as_scalar(value, node) for value in values] or [Const(0.0, "float")]
    if len(sides) == 1:
        return self.apply(by_spelling("math.fabs"), (sides[0],), node)
    length = sides[0]
    for side in sides[1:]:
        length = self.apply(by_spelling("numpy.hypot"), (length, side), node)
    return length


@_builtin(math.dist)
def _dist(self: Expressions, node: ast.Call, p: Value, q: Value) -> Value:
    starts, ends = self.sequence(p, node), self.sequence(q, node)
    if len(starts) != len(ends):
        self.fail(node, f"a point of {len(starts)} numbers and one of {len(ends)} have no distance")
    gaps = [
        self.binary(ast.Sub(), self.as_scalar(a, node), self.as_scalar(b, node), node)
        for a, b in zip(starts, ends, strict=True)
    ]
    return _hypot(self, node, *gaps)


@_builtin(map)
def _map(self: Expressions, node: ast.Call, function: Value, *values: Value) -> Value:
    rows = zip(*(self.sequence(value, node) for value in values), strict=False)
    return Record(map, [self.call_value(function, row, {}, node) for row in rows])


@_builtin(functools.reduce)
def _reduce(self: Expressions, node: ast.Call, function: Value, items: Value, start: Value | None = None) -> Value:
    values = [*(() if start is None else (start,)), *self.sequence(items, node)]
    if not values:
        self.fail(node, "reduce() of nothing", "a start value")
    total: Value = values[0]
    for value in values[1:]:
        total = self.call_value(function, (total, value), {}, node)
    return total


@_builtin(reversed)
def _reversed(self: Expressions, node: ast.Call, value: Value) -> Value:
    return Record(reversed, self.sequence(value, node)[::-1])


@_builtin(enumerate)
def _enumerate(self: Expressions, node: ast.Call, value: Value, start: Value = ZERO) -> Value:
    if not isinstance(start, Const) or start.kind == "float":
        self.fail(node, "the start of enumerate() must be an integer known when the kernel is compiled")
    items = self.sequence(value, node)
    return Record(enumerate, [(number(position), item) for position, item in enumerate(items, int(start.value))])


@_builtin(zip)
def _zip(self: Expressions, node: ast.Call, *values: Value, strict: Value = FALSE) -> Value:
    columns = [self.sequence(value, node) for value in values]
    if strict == TRUE and len({*map(len, columns)}) > 1:
        self.fail(node, f"zip() of {' and '.join(str(len(column)) for column in columns)} items, with strict=True")
    return Record(zip, zip(*columns, strict=False))


@_builtin(range)
def _range(self: Expressions, node: ast.Call, *bounds: Value) -> Value:
    if not 1 <= len(bounds) <= 3:
        self.fail(node, f"range() takes 1 to 3 arguments, not {len(bounds)}")
    numbers = [self.as_scalar(bound, node) for bound in bounds]
    if any(bound.kind == "float" for bound in numbers):
        self.fail(node, "range() needs integers", "int(x) around the numbers, or a while loop")
    numbers = [self.convert(bound, "int", self.locate(node)) for bound in numbers]
    start = numbers[0] if len(numbers) > 1 else Const(0, "int")
    step = numbers[2] if len(numbers) > 2 else Const(1, "int")
    if not isinstance(step, Const):
        self.fail(node, "the step of range() must be known when the kernel is compiled", "a while loop")
    if step.value == 0:
        self.fail(node, "the step of range() must not be zero")
    return Range(start, numbers[0] if len(numbers) == 1 else numbers[1], step)
