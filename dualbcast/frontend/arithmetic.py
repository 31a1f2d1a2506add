"""Python's arithmetic, comparisons and truth on values, in operations of the IR and functions of the rule table."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterable
from types import FunctionType
from typing import Any

from dualbcast.frontend.arrays.vectors import is_array
from dualbcast.frontend.environment import Environment
from dualbcast.frontend.inlining import inline
from dualbcast.frontend.objects.dictionaries import keys_of
from dualbcast.frontend.records import (
    are_compared,
    as_comparable,
    class_of,
    is_captured_dataclass,
    of_one_class,
)
from dualbcast.frontend.values import (
    Arguments,
    Record,
    Static,
    Value,
    Whole,
    describe,
    is_complex,
    is_function,
    is_member,
    is_number,
    without_name,
)
from dualbcast.ir.nodes import BITWISE, COMPARISONS, FALSE, TEMPORARY, TRUE, Atom, Const, Kind, Op, Var
from dualbcast.ir.simplification import convert, join, number
from dualbcast.rules.library import INVERSE_POWERS, LARGEST_PRODUCT, ROOTS
from dualbcast.rules.table import RULES, Custom

# The operations that Python defines for floats by other functions than for integers, which have rules.
_OF_FLOATS = {"floordiv": "floor_divide", "mod": "modulo"}
# No product stands for an exponent of this size or more, so whether it is whole does not matter.
_LARGE_EXPONENT = 99
# The order that a right operand is asked for.
_REFLECTED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
# The methods by which Python's functions ask an object for their result.
_METHODS: dict[Any, str] = {
    abs: "__abs__",
    float: "__float__",
    int: "__int__",
    iter: "__iter__",
    len: "__len__",
    round: "__round__",
}


# --- values as numbers -----------------------------------------------------------------------------------------------


def as_scalar(env: Environment, value: Value, node: ast.AST) -> Atom:
    """The value as a number; an error if it is none."""
    value = without_name(value)
    if isinstance(value, Atom):
        return value
    env.merged(value, node)
    instead = "a number"
    if is_complex(value):
        instead = "z.real, z.imag or abs(z); functions of complex numbers are in cmath"
    elif isinstance(value, Record):
        instead = "one item of it"
    elif isinstance(value, Whole):
        instead = "an element of it, with an index for each axis"
    elif is_function(value):
        instead = "a call of it"
    env.fail(node, f"a number is needed here, and this is {describe(value)}", instead)


def as_number(env: Environment, value: Value, node: ast.AST) -> Value:
    """The value if it is a number, real or complex; an error if it is none."""
    return value if is_complex(value) else as_scalar(env, value, node)


def truth(env: Environment, node: ast.AST, value: Value = FALSE, /) -> Atom:
    """Whether Python takes a value for true."""
    for name in ("__bool__", "__len__"):
        own = call_method(env, value, name, node=node)
        if own is not None:
            value = own
            break
    if is_array(value):
        env.fail(node, f"{describe(value)} is neither true nor false", "np.all or np.any of it")
    value = without_name(value) if isinstance(value, Record) else value
    keys = keys_of(env, value)
    match value:
        case _ if keys is not None:
            return TRUE if keys else FALSE
        case Record():
            return TRUE if value or not value.is_sequence else FALSE
        case Static(known):
            return TRUE if env.evaluate(node, bool, known) else FALSE
        case _ if is_function(value):
            return TRUE
    return env.emit(convert(as_scalar(env, value, node), "bool"), node)


def call_method(env: Environment, value: Value, name: str, *args: Value, node: ast.AST) -> Value | None:
    """The result of a method that the author of a named tuple, a dataclass or the class of a known object has written.

    None if there is none, or if it returns `NotImplemented`. Complex numbers have methods of numbers only, as
    Python's do.
    """
    if is_complex(value) and not all(map(is_number, args)):
        return None
    kind = class_of(value)
    if isinstance(value, Static) and name != "__bool__" and not isinstance(value.object, type | enum.Enum):
        kind = type(value.object)
    method = getattr(kind, name, None)
    # Methods that the dataclass decorator makes have no file.
    if not isinstance(method, FunctionType) or method.__code__.co_filename == "<string>":
        return None
    result = inline(env, method, Arguments((value, *args)), node)
    return None if result == Static(NotImplemented) else result


def of_object(env: Environment, function: Any, arguments: Arguments, node: ast.Call) -> Value | None:
    """The result of a builtin function for which the class of its argument has a method; None for any other call."""
    args, keywords = arguments
    if function not in _METHODS or not args or keywords:
        return None
    return call_method(env, args[0], _METHODS[function], *args[1:], node=node)


def apply(env: Environment, name: str, args: tuple[Atom, ...], node: ast.AST) -> Atom:
    """A function of the rule table on numbers."""
    rule = RULES[name]
    if name == "pow":
        if isinstance(args[1], Const) and _is_whole(args[1].value) and abs(args[1].value) <= LARGEST_PRODUCT:
            return power(env, args[0], args[1], node)
        if args[0] == Const(2.0, "float") or args[0] == Const(2, "int"):
            return apply(env, "exp2", args[1:], node)
        if isinstance(args[1], Const) and args[1].value in ROOTS:
            return apply(env, ROOTS[args[1].value], args[:1], node)
    numbers: list[Atom] = []
    for position, arg in enumerate(args):
        is_integer = position in rule.integer
        if is_integer and arg.kind == "float":
            env.fail(node, f"argument {position + 1} of {rule.label}() must be an integer", "int(x)")
        numbers.append(env.convert(arg, "int" if is_integer else "float", node))
    return env.op(name, *numbers, kind="float", node=node)


def with_custom_derivative(
    env: Environment, custom: Custom, value: Value, given: tuple[Value, ...], node: ast.AST
) -> Value:
    """Mark a value as one whose derivative in the given arguments is custom; known arguments have no derivative."""
    numbers: list[Atom] = []
    for position, arg in enumerate(given):
        if not isinstance(arg, Atom):
            problem = f"argument {position + 1} of {custom.label}() is {describe(arg)}"
            env.fail(node, f"{problem}, and {custom.label}() has a custom derivative, which is in numbers", "a number")
        numbers.append(arg)
    if not any(isinstance(arg, Var) for arg in numbers):
        return value
    if isinstance(value, Record):
        if custom.partials is not None:
            problem = f"{custom.label}() returns a tuple of {len(value)}"
            env.fail(
                node, f"{problem}, and custom partials are for a function of one number", "a function for each output"
            )
        return value.like(with_custom_derivative(env, custom, item, given, node) for item in value)
    result = as_scalar(env, value, node)
    if custom.partials is not None and any(arg.kind == "float" for arg in numbers):
        result = env.convert(result, "float", node)
    marked = env.emit(Op(custom.name, (result, *numbers), result.kind, env.locate(node)), node)
    return env.rename(marked, TEMPORARY + custom.label)


# --- operators -------------------------------------------------------------------------------------------------------


def binary(name: str, env: Environment, node: ast.AST, left: Atom, right: Atom, /) -> Atom:
    """Python's operator on two numbers, by the name of the operation in the IR, or `pow` or `matmul`."""
    kind = join(left.kind, right.kind)
    if name in COMPARISONS:
        # An integer that is not known is compared as a float, as in NumPy.
        if not (isinstance(left, Const) and isinstance(right, Const)):
            left, right = env.convert(left, kind, node), env.convert(right, kind, node)
        return logical(env, name, left, right, node=node)
    if name in BITWISE:
        return _bitwise(env, name, left, right, kind, node)
    if name == "matmul":
        env.fail(node, "@ multiplies matrices, and these are numbers", "*, or a sum of products")
    if name == "pow":
        return power(env, left, right, node)
    if kind == "bool":
        kind = "int"
    if name in _OF_FLOATS:
        if kind == "float":
            return apply(env, _OF_FLOATS[name], (left, right), node)
        if right == Const(0, "int"):
            env.fail(node, "an integer division by zero")
    return _of_kind(env, name, "float" if name == "div" else kind, left, right, node=node)


def _of_kind(env: Environment, name: str, kind: Kind, *args: Atom, node: ast.AST) -> Atom:
    """The result of an operation whose arguments are converted to its own kind."""
    return env.op(name, *[env.convert(arg, kind, node) for arg in args], kind=kind, node=node)


def _bitwise(env: Environment, name: str, left: Atom, right: Atom, kind: Kind, node: ast.AST) -> Atom:
    if kind == "float":
        word = {"bitand": ", or `and` between conditions", "bitor": ", or `or` between conditions"}
        env.fail(node, "a bit operation needs integers", "int(x) around the numbers" + word.get(name, ""))
    if kind == "bool" and name in ("bitand", "bitor", "bitxor"):
        return logical(env, {"bitand": "and", "bitor": "or", "bitxor": "ne"}[name], left, right, node=node)
    if name in ("shl", "shr") and isinstance(right, Const) and not 0 <= right.value < 64:
        env.fail(node, f"a shift by {right.value} is outside the 64 bits of an integer")
    return _of_kind(env, name, "int", left, right, node=node)


def power(env: Environment, base: Atom, exponent: Atom, node: ast.AST) -> Atom:
    """`base ** exponent`: a product for small whole exponents, else the rule for pow, or for a faster function."""
    if isinstance(exponent, Const) and isinstance(base, Const):
        try:
            result = base.value**exponent.value
            if not isinstance(result, complex):
                return number(result)
        except ArithmeticError:
            pass
    if isinstance(exponent, Const) and _is_whole(exponent.value):
        count = int(exponent.value)
        kind: Kind = "float" if base.kind == "float" or exponent.kind == "float" or count < 0 else "int"
        if 1 <= abs(count) <= (LARGEST_PRODUCT if kind == "float" else 64):
            base = env.convert(base, kind, node)
            product = _product(env, base, abs(count), kind, node)
            if count > 0:
                return product
            quotient = env.op("div", Const(1.0, "float"), product, kind="float", node=node)
            if count == -1:
                return quotient
            return env.emit(Op(INVERSE_POWERS[-count].name, (quotient, base), "float", env.locate(node)), node)
        if count == 0:
            return Const(1.0, "float") if kind == "float" else Const(1, "int")
    return apply(env, "pow", (base, exponent), node)


def _is_whole(exponent: float) -> bool:
    return exponent == int(exponent if abs(exponent) < _LARGE_EXPONENT else 0)


def _product(env: Environment, base: Atom, count: int, kind: Kind, node: ast.AST) -> Atom:
    """A power as a product, by repeated squaring."""
    if count == 1:
        return base
    half = _product(env, base, count // 2, kind, node)
    square = env.op("mul", half, half, kind=kind, node=node)
    return env.op("mul", square, base, kind=kind, node=node) if count % 2 else square


def unary(name: str, env: Environment, node: ast.AST, value: Value, /) -> Atom:
    """Python's `-`, `+`, `~` and `not`: `neg`, `pos`, `invert` and `not`."""
    if name == "not":
        return logical(env, "not", truth(env, node, value), node=node)
    x = as_scalar(env, value, node)
    if name == "invert":
        if x.kind == "float":
            env.fail(node, "a bit operation needs integers", "int(x) around the number")
        return _of_kind(env, "invert", "int", x, node=node)
    kind: Kind = "int" if x.kind == "bool" else x.kind
    return env.convert(x, kind, node) if name == "pos" else _of_kind(env, "neg", kind, x, node=node)


_OF_TRUTH_VALUES = {"invert": "not", "add": "or", "mul": "and"}


def as_in_numpy(name: str, env: Environment, node: ast.AST, /, *args: Atom) -> Atom:
    """An operator as NumPy has it for elements of arrays, where `~`, `+` and `*` of truth values are truth values.

    Those of Python are integers: `~True` is -2.
    """
    if name in _OF_TRUTH_VALUES and all(x.kind == "bool" for x in args):
        return logical(env, _OF_TRUTH_VALUES[name], *args, node=node)
    return unary(name, env, node, *args) if len(args) == 1 else binary(name, env, node, *args)


# --- truth values and choices ----------------------------------------------------------------------------------------


def logical(env: Environment, name: str, *args: Atom, node: ast.AST) -> Atom:
    """An operation that gives a truth value: a comparison, or `and`, `or` or `not` of truth values."""
    return env.op(name, *args, kind="bool", node=node)


def chain(env: Environment, name: str, tests: Iterable[Atom], node: ast.AST) -> Atom:
    """`and` or `or` of any number of tests."""
    result: Atom = TRUE if name == "and" else FALSE
    for test in tests:
        result = logical(env, name, result, test, node=node)
    return result


def equal(env: Environment, left: Value, right: Value, node: ast.AST) -> Atom:
    """`left == right`, of numbers, tuples and known objects."""
    env.merged(left, node)
    env.merged(right, node)
    left, right = as_comparable(left, right)
    if isinstance(left, Atom) and isinstance(right, Atom):
        return binary("eq", env, node, left, right)
    if is_array(left) or is_array(right):
        env.fail(node, "arrays are compared element by element", "np.all(a == b)")
    if all(isinstance(side, Record) or is_captured_dataclass(side) for side in (left, right)):
        test = _own_equality(env, left, right, node)
        if test is not None:
            return test
        records = of_one_class(env, [left, right])
        if isinstance(records[0], Record) and are_compared(records[0]) is not None:
            left, right = records
    if isinstance(left, Record) and isinstance(right, Record):
        return _equal_items(env, left, right, node)
    for value, other in ((left, right), (right, left)):
        own = call_method(env, value, "__eq__", other, node=node) if is_complex(value) else None
        if own is not None:
            return truth(env, node, own)
        if is_member(value) and isinstance(other, Atom):
            return binary("eq", env, node, as_scalar(env, value, node), other)
    if isinstance(left, Static) and isinstance(right, Static):
        return TRUE if env.evaluate(node, lambda: bool(left.object == right.object)) else FALSE
    if isinstance(left, Static | Record) or isinstance(right, Static | Record):
        return FALSE
    env.fail(node, f"{describe(left)} and {describe(right)} cannot be compared", "two numbers")


def ordered(
    env: Environment, name: str, left: Value, right: Value, node: ast.AST, at: tuple[ast.AST, ast.AST] | None = None
) -> Atom:
    """`left < right` or another order, of numbers, tuples and objects whose class defines it.

    `at` has the nodes of both sides.
    """
    if isinstance(left, Atom) and isinstance(right, Atom):
        return binary(name, env, node, left, right)
    for one, two, method in ((left, right, name), (right, left, _REFLECTED[name])):
        own = call_method(env, one, f"__{method}__", two, node=node)
        if own is not None:
            return truth(env, node, own)
    one, two = of_one_class(env, [left, right])
    if isinstance(one, Record) and isinstance(two, Record) and one.family is two.family and _has_order(one):
        return _ordered_items(env, name, one, two, node)
    left_node, right_node = at or (node, node)
    return binary(name, env, node, as_scalar(env, left, left_node), as_scalar(env, right, right_node))


def _has_order(record: Record) -> bool:
    """Whether Python orders records of this class by their items."""
    settings = getattr(record.python_type, "__dataclass_params__", None)
    return bool(settings.order) if settings is not None else record.family in (tuple, list)


def _ordered_items(env: Environment, name: str, left: Record, right: Record, node: ast.AST) -> Atom:
    """The order of two tuples: that of the first items that differ, or of the lengths if none do."""
    result: Atom = binary(name, env, node, number(len(left)), number(len(right)))
    compared = are_compared(left) or [True for _ in left]
    for one, two, counts in reversed([*zip(left, right, compared, strict=False)]):
        are_equal = equal(env, one, two, node) if counts else TRUE
        if are_equal != TRUE:
            result = select(env, are_equal, result, ordered(env, name, one, two, node), node)
    return result


def _own_equality(env: Environment, left: Value, right: Value, node: ast.AST) -> Atom | None:
    """`left == right` by an `__eq__` that the author of one of the classes has written; None if there is none."""
    for one, two in ((left, right), (right, left)):
        own = call_method(env, one, "__eq__", two, node=node)
        if own is not None:
            return truth(env, node, own)
    return None


def _equal_items(env: Environment, left: Record, right: Record, node: ast.AST) -> Atom:
    if left.family is not right.family or len(left) != len(right) or left.is_iterator:
        return FALSE
    if left.fields != right.fields and left.python_type is dict:
        env.fail(node, "dictionaries with other keys, or in another order, cannot be compared", "their items")
    compared = are_compared(left)
    if compared is None:
        name = left.python_type.__name__
        env.fail(
            node, f"objects of {name} are compared by identity, which a kernel does not know", f"eq=True in {name}"
        )
    pairs = (pair for pair, is_compared in zip(zip(left, right, strict=True), compared, strict=True) if is_compared)
    return chain(env, "and", (equal(env, a, b, node) for a, b in pairs), node)


def select(env: Environment, test: Atom, then: Atom, orelse: Atom, node: ast.AST) -> Atom:
    """One of two numbers that are both computed already."""
    if isinstance(test, Const):
        return then if test.value else orelse
    kind = join(then.kind, orelse.kind)
    sides = env.convert(then, kind, node), env.convert(orelse, kind, node)
    return env.op("select", test, *sides, kind=kind, node=node)
