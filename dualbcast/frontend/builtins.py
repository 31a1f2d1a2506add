"""Python's builtin functions, and the operators of NumPy and of the module `operator`, on numbers and tuples.

A table from the Python object to the function that lowers a call of it.
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

from dualbcast import tables
from dualbcast.frontend import complex_values
from dualbcast.frontend.arithmetic import (
    apply,
    as_in_numpy,
    as_number,
    as_scalar,
    binary,
    chain,
    logical,
    ordered,
    select,
    truth,
    unary,
)
from dualbcast.frontend.arrays import whole_arrays
from dualbcast.frontend.environment import Environment, call_value, register
from dualbcast.frontend.expressions import sequence
from dualbcast.frontend.operators import OPERATORS, binary_operator, choose, unary_operator
from dualbcast.frontend.records import class_of
from dualbcast.frontend.values import Arguments, Range, Record, Static, Value, Whole, is_complex, is_instance
from dualbcast.ir.nodes import FALSE, TRUE, Atom, Const, Var
from dualbcast.ir.simplification import number

ZERO, NOTHING = Const(0, "int"), Record(tuple, ())
_NONE, _RAISE = Static(None), Static("raise")
# The lowerings of calls: each takes (env, node) and the arguments, of which those after `/` may be given by name. Those
# that are annotated as atoms are numbers.
BUILTINS: dict[Any, Callable[..., Value]] = {}

_builtin = partial(register, BUILTINS)


@_builtin(abs, np.absolute)
def _abs(env: Environment, node: ast.Call, x: Atom, /) -> Value:
    if x.kind == "float":
        return apply(env, "fabs", (x,), node)
    x = env.convert(x, "int", node)
    is_negative = binary("lt", env, node, x, ZERO)
    return select(env, is_negative, unary("neg", env, node, x), x, node)


# --- operators -------------------------------------------------------------------------------------------------------


def _logical(name: str, env: Environment, node: ast.Call, left: Value, right: Value, /) -> Value:
    return logical(env, name, truth(env, node, left), truth(env, node, right), node=node)


# NumPy's functions for operators take tuples for arrays, where operators join them; so theirs are of numbers only.
def _of_numbers(syntax: type[ast.AST], name: str, env: Environment, node: ast.Call, /, *args: Value) -> Value:
    numbers = [as_number(env, x, node) for x in args]
    truths = [x for x in numbers if isinstance(x, Atom) and x.kind == "bool"]
    if len(truths) == len(numbers):
        return as_in_numpy(name, env, node, *truths)
    operator_of = unary_operator if issubclass(syntax, ast.unaryop) else binary_operator
    return operator_of(syntax, env, node, *numbers)


for _syntax, _operation, _name, _names in OPERATORS:
    _of_any = unary_operator if issubclass(_syntax, ast.unaryop) else binary_operator
    _builtin(getattr(operator, _name))(partial(_of_any, _syntax))
    _builtin(*[getattr(np, _name) for _name in _names.split()])(partial(_of_numbers, _syntax, _operation))
for _operation, _ufunc in (("and", np.logical_and), ("or", np.logical_or), ("ne", np.logical_xor)):
    BUILTINS[_ufunc] = partial(_logical, _operation)


@_builtin(math.log)
def _log(env: Environment, node: ast.Call, x: Atom, base: Atom | None = None, /) -> Value:
    log = partial(apply, env, "log", node=node)
    return log((x,)) if base is None else binary("div", env, node, log((x,)), log((base,)))


def _extremum(
    name: str, env: Environment, node: ast.Call, /, *args: Value, default: Value | None = None, key: Value | None = None
) -> Value:
    items = sequence(env, args[0], node) if len(args) == 1 else args
    if default is not None and len(args) > 1:
        env.fail(node, "default= is for one tuple, which may be empty", "the numbers alone")
    if not items:
        if default is not None:
            return default
        env.fail(node, f"{'min' if name == 'lt' else 'max'}() of an empty tuple", "default=… for an empty tuple")
    by_key = key is not None and key != _NONE
    best, smallest = items[0], measure(env, items[0], key, node)
    for item in items[1:]:
        # As Python does it: the first of equal values stays, and a comparison with NaN is false.
        size = measure(env, item, key, node)
        test = ordered(env, name, size, smallest, node)
        smallest = one_of(env, test, size, smallest, node)
        best = one_of(env, test, item, best, node) if by_key else smallest
    return best


def measure(env: Environment, item: Value, key: Value | None, node: ast.Call) -> Value:
    """What decides the place of an item in an order."""
    if key is not None and key != _NONE:
        item = call_value(env, key, Arguments((item,)), node)
    return item if class_of(item) is not None and not is_complex(item) else as_scalar(env, item, node)


def one_of(env: Environment, test: Atom, then: Value, orelse: Value, node: ast.Call) -> Value:
    if isinstance(then, Atom) and isinstance(orelse, Atom):
        return select(env, test, then, orelse, node)
    if isinstance(test, Const):
        return then if test.value else orelse
    return choose(env, test, lambda: then, lambda: orelse, node)


BUILTINS[min] = partial(_extremum, "lt")
BUILTINS[max] = partial(_extremum, "gt")


def _reduction(
    name: str, initial: int, env: Environment, node: ast.Call, items: Value, /, start: Value | None = None
) -> Value:
    # The start is not left out: 0 + -0.0 is 0.0, as in Python.
    total: Any = Const(initial, "int") if start is None else start
    if isinstance(total, Atom):
        total = env.convert(total, "int", node) if total.kind == "bool" else total
    for value in sequence(env, items, node):
        if is_complex(total) or is_complex(value):
            total = complex_values.reduced(env, name, total, value, node)
            continue
        total = binary_operator(_SYNTAX[name], env, node, total, value)
    result: Value = total
    return result


_SYNTAX: dict[str, type[ast.AST]] = {"add": ast.Add, "mul": ast.Mult}
BUILTINS[sum] = partial(_reduction, "add", 0)
BUILTINS[math.prod] = partial(_reduction, "mul", 1)


def _quantifier(name: str, env: Environment, node: ast.Call, items: Value, /) -> Value:
    return chain(env, name, (truth(env, node, item) for item in sequence(env, items, node)), node)


BUILTINS[all] = partial(_quantifier, "and")
BUILTINS[any] = partial(_quantifier, "or")


# --- arithmetic and conversions --------------------------------------------------------------------------------------


_builtin(pow, math.pow)(partial(binary, "pow"))


@_builtin(divmod, np.divmod)
def _divmod(env: Environment, node: ast.Call, left: Atom, right: Atom, /) -> Value:
    return Record(tuple, [binary(name, env, node, left, right) for name in ("floordiv", "mod")])


def _integral(name: str, env: Environment, node: ast.Call, x: Atom, /) -> Atom:
    if x.kind == "float":
        x = apply(env, name, (x,), node)
    return env.convert(x, "int", node)


for _function in (math.floor, math.ceil, math.trunc):
    _builtin(_function)(partial(_integral, _function.__name__))


@_builtin(float.is_integer)
def _is_integer(env: Environment, node: ast.Call, x: Atom, /) -> Value:
    return TRUE if x.kind != "float" else binary("eq", env, node, binary("mod", env, node, x, Const(1, "int")), ZERO)


@_builtin(round)
def _round(env: Environment, node: ast.Call, value: Value, /, ndigits: Value | None = None) -> Value:
    if ndigits is None or ndigits == Static(None):
        return _integral("rint", env, node, as_scalar(env, value, node))
    if not isinstance(ndigits, Const):
        env.fail(node, "the number of digits must be known when the kernel is compiled")
    if not abs(ndigits.value) <= 300:
        env.fail(node, f"a number of this kind has no {ndigits.value:g} digits", "fewer digits")
    x, scale = as_scalar(env, value, node), number(10.0 ** float(ndigits.value))
    scaled = apply(env, "rint", (binary("mul", env, node, x, scale),), node)
    return binary("div", env, node, scaled, scale)


@_builtin(int, np.int64)
def _int(env: Environment, node: ast.Call, x: Atom = ZERO, /) -> Value:
    return env.convert(x, "int", node)


@_builtin(float, np.float64)
def _float(env: Environment, node: ast.Call, value: Value = ZERO, /) -> Value:
    if isinstance(value, Static) and isinstance(value.object, str):
        try:
            return Const(float(value.object), "float")
        except ValueError:
            env.fail(node, f"{value.object!r} is not a number")
    return env.convert(as_scalar(env, value, node), "float", node)


_builtin(bool, np.bool_)(truth)


_builtin(complex, np.complex128, np.complex64)(complex_values.from_parts)
_builtin(np.conjugate, np.real)(complex_values.real_of_real)
_builtin(np.imag)(complex_values.imag_of_real)


@_builtin(np.float32)
def _float32(env: Environment, node: ast.Call, x: Atom, /) -> Value:
    return env.op("single", env.convert(x, "float", node), kind="float", node=node)


def _narrow(bits: int, offset: int, env: Environment, node: ast.Call, x: Atom, /) -> Value:
    """An integer of so many bits, of which the smallest is `-offset`."""
    shift = Const(offset, "int")
    shifted = binary("add", env, node, env.convert(x, "int", node), shift)
    return binary("sub", env, node, binary("bitand", env, node, shifted, Const(2**bits - 1, "int")), shift)


for _bits in (8, 16, 32):
    _builtin(getattr(np, f"int{_bits}"))(partial(_narrow, _bits, 2 ** (_bits - 1)))
    _builtin(getattr(np, f"uint{_bits}"))(partial(_narrow, _bits, 0))


@_builtin(math.hypot)
def _hypot(env: Environment, node: ast.Call, /, *sides: Atom) -> Value:
    if len(sides) < 2:
        return apply(env, "fabs", sides or (Const(0.0, "float"),), node)
    length, *rest = sides
    # A length of 0 is a kink. So the longest side comes first, and there is none on the way to a length that is not 0.
    for at, side in enumerate(rest if len(rest) > 1 else ()):
        is_longer = binary("gt", env, node, apply(env, "fabs", (side,), node), apply(env, "fabs", (length,), node))
        rest[at] = select(env, is_longer, length, side, node)
        length = select(env, is_longer, side, length, node)
    return functools.reduce(lambda length, side: apply(env, "hypot", (length, side), node), rest, length)


# --- tuples and their items ------------------------------------------------------------------------------------------


@_builtin(len)
def _len(env: Environment, node: ast.Call, value: Value, /) -> Value:
    if isinstance(value, Whole):
        return value.shape[0]
    return number(len(sequence(env, value, node)))


def _items(kind: type, env: Environment, node: ast.Call, value: Value = NOTHING, /) -> Value:
    return Record(kind, sequence(env, value, node))


BUILTINS[tuple] = partial(_items, tuple)
BUILTINS[iter] = partial(_items, type(iter(())))
BUILTINS[list] = partial(_items, list)


@_builtin(isinstance)
def _isinstance(env: Environment, node: ast.Call, value: Value, kinds: Value, /) -> Value:
    classes: list[Any] = []
    for kind in kinds if isinstance(kinds, Record) else (kinds,):
        known = kind.object if isinstance(kind, Static) else None
        classes += known.__args__ if isinstance(known, types.UnionType) else (known,)
    if not all(isinstance(known, type) for known in classes):
        env.fail(node, "isinstance() needs a class, or a tuple of classes")
    return TRUE if is_instance(value, tuple(classes)) else FALSE


@_builtin(math.dist)
def _dist(env: Environment, node: ast.Call, p: Value, q: Value, /) -> Value:
    starts, ends = sequence(env, p, node), sequence(env, q, node)
    if len(starts) != len(ends):
        env.fail(node, f"a point of {len(starts)} numbers and one of {len(ends)} have no distance")
    gaps = [
        binary("sub", env, node, as_scalar(env, a, node), as_scalar(env, b, node))
        for a, b in zip(starts, ends, strict=True)
    ]
    return _hypot(env, node, *gaps)


@_builtin(np.take)
def _take(
    env: Environment, node: ast.Call, a: Value, indices: Value, /, axis: Value = _NONE, *, mode: Value = _RAISE
) -> Value:
    """An element of a whole array, or the part at the first index, with NumPy's ways to treat one out of range."""
    if not isinstance(a, Whole):
        env.fail(node, "np.take() takes from a whole array here", 'whole="…" in the decorator, with its name')
    if axis != ZERO and not (axis == _NONE and len(a.shape) == 1):
        env.fail(node, "np.take() takes along the first axis here", "axis=0")
    known = mode.object if isinstance(mode, Static) else None
    if known not in whole_arrays.MODES:
        env.fail(node, "the mode of np.take() must be known when the kernel is compiled", '"raise", "clip" or "wrap"')
    return whole_arrays.at(env, a, [(indices, node.args[1] if len(node.args) > 1 else node)], known, node)


@_builtin(tables.index)
def _index(env: Environment, node: ast.Call, axis: Atom, /) -> Value:
    if not isinstance(axis, Const) or axis.kind == "float":
        env.fail(node, "the axis of index() must be an integer known when the kernel is compiled")
    number = int(axis.value)
    if number not in env.indices:
        name = f"index_{number}" if number >= 0 else f"index_last_{-number}"
        env.indices[number] = Var(env.names.fresh(name), "int")
    return env.indices[number]


@_builtin(map)
def _map(env: Environment, node: ast.Call, function: Value, /, *values: Value) -> Value:
    rows = zip(*(sequence(env, value, node) for value in values), strict=False)
    return Record(map, [call_value(env, function, Arguments(row), node) for row in rows])


@_builtin(functools.reduce)
def _reduce(env: Environment, node: ast.Call, function: Value, items: Value, start: Value | None = None, /) -> Value:
    values = [*(() if start is None else (start,)), *sequence(env, items, node)]
    if not values:
        env.fail(node, "reduce() of an empty tuple", "a start value")
    total: Value = values[0]
    for value in values[1:]:
        total = call_value(env, function, Arguments((total, value)), node)
    return total


@_builtin(reversed)
def _reversed(env: Environment, node: ast.Call, value: Value, /) -> Value:
    return Record(reversed, sequence(env, value, node)[::-1])


@_builtin(enumerate)
def _enumerate(env: Environment, node: ast.Call, value: Value, /, start: Value = ZERO) -> Value:
    if not isinstance(start, Const) or start.kind == "float":
        env.fail(node, "the start of enumerate() must be an integer known when the kernel is compiled")
    items = sequence(env, value, node)
    return Record(enumerate, [Record(tuple, (number(at), item)) for at, item in enumerate(items, int(start.value))])


@_builtin(zip)
def _zip(env: Environment, node: ast.Call, /, *values: Value, strict: Value = FALSE) -> Value:
    columns = [sequence(env, value, node) for value in values]
    if strict == TRUE and len({*map(len, columns)}) > 1:
        env.fail(node, f"zip() of {' and '.join(str(len(column)) for column in columns)} items, with strict=True")
    return Record(zip, [Record(tuple, row) for row in zip(*columns, strict=False)])


@_builtin(range)
def _range(env: Environment, node: ast.Call, /, *bounds: Value) -> Value:
    if not 1 <= len(bounds) <= 3:
        env.fail(node, f"range() takes 1 to 3 arguments, not {len(bounds)}")
    numbers = [as_scalar(env, bound, node) for bound in bounds]
    if any(bound.kind == "float" for bound in numbers):
        env.fail(node, "range() needs integers", "int(x) around the numbers, or a while loop")
    numbers = [env.convert(bound, "int", node) for bound in numbers]
    start = numbers[0] if len(numbers) > 1 else ZERO
    step = numbers[2] if len(numbers) > 2 else Const(1, "int")
    if not isinstance(step, Const):
        env.fail(node, "the step of range() must be known when the kernel is compiled", "a while loop")
    if step.value == 0:
        env.fail(node, "the step of range() must not be zero")
    return Range(start, numbers[0] if len(numbers) == 1 else numbers[1], step)
