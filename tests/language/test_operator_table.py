"""Every operator on every kind of operand, and every builtin function of Python: compiled, or one clear error.

What is compiled gives what plain Python gives, and nothing but results and CompileError comes out.
"""

from __future__ import annotations

import builtins
import itertools
import math
import operator as operator_module
from typing import Any, NamedTuple

import numpy as np
import pytest
from cells import Cell, check_traceback, program

from dualbcast import differentiable_broadcast
from dualbcast.errors import CompileError


class Pair(NamedTuple):
    first: float
    second: float


# Each kind as an expression of the numbers x and y.
KINDS = {
    "float": "x",
    "int": "int(y)",
    "bool": "(x < 5)",
    "constant": "2",
    "complex": "complex(x, y)",
    "tuple": "(x, y)",
    "list": "[x, 1]",
    "text": "'a'",
    "None": "None",
    "function": "math.sin",
    "lambda": "(lambda a: a)",
    "namedtuple": "Pair(x, y)",
    "module": "math",
    "range": "range(2)",
    "iterator": "zip((x, y), (1, 2))",
    "class": "float",
}
BINARY = ["+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>"]
COMPARISONS = ["<", "<=", ">", ">=", "==", "!=", "is", "is not", "in", "not in"]
UNARY = ["-", "+", "~", "not "]
NUMBERS = ("float", "int", "bool", "constant")

X, Y = np.array([1.5, 0.25]), np.array([2.75, 4.5])


def outcome(cell: Cell) -> tuple[Any, CompileError | None]:
    """The results of the program's `f`, or its error; anything else that is raised is a fault."""
    caught: list[CompileError] = []
    found = None
    try:
        found = differentiable_broadcast(backend="python")(cell.names["f"])(X, Y)
    except CompileError as error:
        caught.append(error)
    for error in caught:
        assert error.filename == cell.filename
        assert error.message
        assert "^" in str(error)
        check_traceback(error)
    return found, caught[0] if caught else None


def judge(expression: str) -> CompileError | None:
    """Run an expression of x and y as a kernel, and compare with plain Python."""
    cell = Cell(program(f"return {expression}"), {"Pair": Pair, "operator": operator_module})
    found, error = outcome(cell)
    if error is None:
        points = zip(X.tolist(), Y.tolist(), strict=True)
        wanted = np.array([_numbers(cell.names["f"](*point)) for point in points], float).T
        np.testing.assert_allclose(np.array(_numbers(found), float), wanted, rtol=1e-14)
    return error


def _numbers(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [number for part in value for number in _numbers(part)]
    return [value.real, value.imag] if np.iscomplexobj(value) else [value]


@pytest.mark.parametrize("operator", BINARY)
def test_binary_operators(operator: str) -> None:
    for left, right in itertools.product(KINDS, KINDS):
        error = judge(f"{KINDS[left]} {operator} {KINDS[right]}")
        numbers = left in NUMBERS and right in NUMBERS
        if operator in ("+", "-", "*", "/", "//", "%", "**") and numbers:
            assert error is None, (left, right)
        if operator == "@" and numbers:
            assert error is not None
            assert "@ multiplies matrices" in error.message
        if operator in ("&", "|", "^", "<<", ">>") and numbers:
            floats = "float" in (left, right)
            assert (error is not None) == floats, (left, right)


@pytest.mark.parametrize("operator", COMPARISONS)
def test_comparisons(operator: str) -> None:
    for left, right in itertools.product(KINDS, KINDS):
        error = judge(f"{KINDS[left]} {operator} {KINDS[right]}")
        if left in NUMBERS and right in NUMBERS:
            assert (error is not None) == (operator in ("is", "is not", "in", "not in")), (left, right)
        if right in ("tuple", "list", "range", "namedtuple") and left in NUMBERS and operator in ("in", "not in"):
            assert error is None, (left, right)


@pytest.mark.parametrize("operator", UNARY)
def test_unary_operators(operator: str) -> None:
    for kind, operand in KINDS.items():
        error = judge(f"{operator}{operand}")
        if kind in NUMBERS:
            assert (error is not None) == (operator == "~" and kind == "float"), kind


@pytest.mark.parametrize("operator", [*BINARY, *COMPARISONS])
def test_an_operator_on_what_is_no_number_names_it(operator: str) -> None:
    for kind in ("tuple", "text", "None", "function", "module"):
        cell = Cell(program(f"return x {operator} {KINDS[kind]}"))
        found, error = outcome(cell)
        if error is None:
            assert operator in ("==", "!=", "in", "not in", "is", "is not"), kind
            assert np.asarray(found).dtype == np.bool_
        elif operator not in ("is", "is not"):
            names = {"tuple": "a tuple of 2", "text": "text", "None": "None", "function": "sin", "module": "math"}
            assert names[kind] in error.message


FUNCTIONS = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "truediv",
    "//": "floordiv",
    "%": "mod",
    "**": "pow",
    "@": "matmul",
    "&": "and_",
    "|": "or_",
    "^": "xor",
    "<<": "lshift",
    ">>": "rshift",
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
    "==": "eq",
    "!=": "ne",
}


@pytest.mark.parametrize("operator", FUNCTIONS)
def test_the_function_of_an_operator_does_what_the_operator_does(operator: str) -> None:
    kinds = [KINDS[kind] for kind in ("float", "int", "complex", "tuple", "text", "None", "namedtuple")]
    for left, right in itertools.product(kinds, kinds):
        error, other = judge(f"{left} {operator} {right}"), judge(f"operator.{FUNCTIONS[operator]}({left}, {right})")
        assert (error and error.message) == (other and other.message)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "float_power", "equal", "not_equal"])
def test_numpys_functions_of_operators_take_complex_numbers(name: str) -> None:
    numbers = [KINDS[kind] for kind in ("float", "constant", "complex")]
    for left, right in itertools.product(numbers, numbers):
        assert judge(f"np.{name}({left}, {right})") is None
        if "complex" in left + right:
            error = judge(f"np.{name}({left}, (x, {right}))")
            assert error is not None
            assert "this is a tuple of 2" in error.message


# --- builtins --------------------------------------------------------------------------------------------------------

# Arguments for each builtin function or class, where two numbers would say too little.
ARGUMENTS = {
    "all": "(x, y)",
    "any": "(x, y)",
    "enumerate": "(x, y)",
    "filter": "None, (x, y)",
    "isinstance": "x, float",
    "issubclass": "float, int",
    "len": "(x, y)",
    "list": "(x, y)",
    "map": "abs, (x, y)",
    "max": "x, y",
    "min": "x, y",
    "range": "3",
    "reversed": "(x, y)",
    "sorted": "(x, y)",
    "sum": "(x, y)",
    "tuple": "(x, y)",
    "zip": "(x, y), (y, x)",
    "divmod": "x, y",
    "pow": "x, y",
    "round": "x, 1",
    "getattr": "Pair(x, y), 'first'",
    "hasattr": "Pair(x, y), 'first'",
    "callable": "math.sin",
    "slice": "1",
    "complex": "x, y",
    "input": "",
    "breakpoint": "",
    "globals": "",
    "locals": "",
    "super": "",
    "object": "",
    "dict": "a=x",
    "exec": "'x'",
    "eval": "'x'",
    "open": "'x'",
    "compile": "'x', 'x', 'eval'",
    "setattr": "math, 'x', x",
    "delattr": "math, 'x'",
    "__import__": "'math'",
}
COMPILED = {
    *("abs", "all", "any", "bool", "divmod", "float", "int", "isinstance", "len", "list", "max", "min", "pow", "round"),
    *("complex", "dict", "getattr", "sorted", "sum", "tuple"),
}
# Their results are no outputs, but what goes over them is compiled.
ITERATORS = {"enumerate", "map", "range", "reversed", "zip"}


def _functions() -> list[str]:
    return sorted(name for name, thing in vars(builtins).items() if callable(thing) and name != "_")


@pytest.mark.parametrize("name", _functions())
def test_builtins(name: str) -> None:
    tries = [ARGUMENTS.get(name, "x"), "", "x", "x, y", "(x, y)", "x, y, 2", "'a'", "None", "math", "*(x,)", "a=1"]
    for position, arguments in enumerate(tries):
        call = f"{name}({arguments})"
        error = None
        if position == 0:
            within = {"complex": "abs", "dict": "len", **dict.fromkeys(ITERATORS, "tuple")}.get(name, "")
            error = judge(f"{within}({call})" if within else call)
            assert (error is None) == (name in COMPILED | ITERATORS), error
        else:
            outcome(Cell(program(f"return {call}")))
        if error is not None and isinstance(getattr(builtins, name), type) and "object" not in error.message:
            assert name in str(error)


def test_side_effects_are_named() -> None:
    for call in ("print(x)", "input()", "open('a')"):
        _, error = outcome(Cell(program(f"return {call}")))
        assert error is not None
        assert "side effect" in error.message


def test_functions_of_math_with_wrong_arguments() -> None:
    functions = [name for name, thing in vars(math).items() if callable(thing) and not name.startswith("_")]
    for name, arguments in itertools.product(functions, ("", "x", "x, y, x, y", "(x, y)", "'a'", "None", "x=1")):
        outcome(Cell(program(f"return math.{name}({arguments})")))
