"""The IR's printer and checker, and folding: every identity must hold for NaN, infinities and both zeros."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from ir_invariants import verify

from dualbcast.frontend.lower import lower
from dualbcast.ir.nodes import FALSE, TRUE, Assign, Break, Const, Expr, Function, If, Kind, Names, Op, Output, Var, dump
from dualbcast.ir.simplification import fold, number

X, N, B = Var("x", "float"), Var("n", "int"), Var("b", "bool")
SPECIAL = {
    "float": (0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan),
    "int": (0, 1, -1, 7),
    "bool": (True, False),
}
MEANING = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floordiv": lambda a, b: a // b,
    "neg": lambda a: -a,
    "not": lambda a: not a,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "select": lambda test, a, b: a if test else b,
}


def run(expr: Expr, value: float) -> float:
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Op):
        return MEANING[expr.name](*(run(arg, value) for arg in expr.args))
    return value


def constants(kind: Kind) -> list[Const]:
    return [Const(value, kind) for value in SPECIAL[kind]]


BINARY: list[tuple[str, Kind]] = [(name, kind) for kind in ("float", "int") for name in ("add", "sub", "mul")]
BINARY += [("div", "float"), ("floordiv", "int"), ("and", "bool"), ("or", "bool")]


@pytest.mark.parametrize(("name", "kind"), BINARY)
def test_folding_with_a_constant_keeps_every_value(name: str, kind: Kind) -> None:
    variable = {"float": X, "int": N, "bool": B}[kind]
    folded = 0
    for constant, swapped in itertools.product(constants(kind), (False, True)):
        op = Op(name, (constant, variable) if swapped else (variable, constant), kind)
        simple = fold(op)
        folded += simple != op
        for value in SPECIAL[kind]:
            try:
                expected = run(op, value)
            except ArithmeticError:  # Python's division; the kernel's has no exceptions
                continue
            assert repr(run(simple, value)) == repr(expected), (op, value)
    assert folded or (name, kind) == ("add", "float")  # x + 0.0 is not x where x is -0.0


@pytest.mark.parametrize("name", ["neg", "not"])
def test_twice_is_not_at_all(name: str) -> None:
    variable = X if name == "neg" else B
    assert fold(Op(name, (Op(name, (variable,), variable.kind),), variable.kind)) == variable


def test_selects_that_have_nothing_to_choose() -> None:
    assert fold(Op("select", (TRUE, X, Const(0.0, "float")), "float")) == X
    assert fold(Op("select", (FALSE, X, Const(0.0, "float")), "float")) == Const(0.0, "float")
    assert fold(Op("select", (B, X, X), "float")) == X
    kept = Op("select", (B, Const(0.0, "float"), Const(-0.0, "float")), "float")
    assert fold(kept) == kept


def test_constants_fold_in_double_precision_and_divisions_by_zero_are_left() -> None:
    assert fold(Op("mul", (number(0.1), number(3.0)), "float")) == Const(0.1 * 3.0, "float")
    for name, kind in (("div", "float"), ("floordiv", "int")):
        op = Op(name, (Const(1, kind), Const(0, kind)), kind)
        assert fold(op) == op


def test_integers_that_64_bits_cannot_hold_are_floats() -> None:
    assert number(2**63 - 1) == Const(2**63 - 1, "int")
    assert number(2**63) == Const(2.0**63, "float")
    assert number(True) == TRUE


def test_names_are_free_and_temporaries_have_their_own_numbers() -> None:
    names = Names(["x"])
    assert [names.fresh("x"), names.fresh("x"), names.fresh("%"), names.fresh("%")] == ["x_1", "x_2", "%", "%#1"]
    mark = names.mark()
    assert names.fresh("x") == "x_3"
    names.reset(mark)
    assert names.fresh("x") == "x_3"


def loops(x, n):
    while x < 4.0:
        x = x * 2.0
        if x == 3.0:
            break
    for i in range(n):
        if i == 2:
            continue
        x = x + i
    return x


def test_the_printer_shows_loops_and_jumps() -> None:
    function = verify(lower(loops, ["float", "int"]).function)
    text = dump(function)
    first = loops.__code__.co_firstlineno
    assert text.startswith("function loops(x: float, n: int)")
    for part, line in (("    while:", 1), ("break", 4), ("for i in range(0, n, 1):", 5), ("continue", 7)):
        (shown,) = [row for row in text.splitlines() if part in row]
        assert shown.rstrip().endswith(f"# line {first + line}"), shown
    assert text.splitlines()[-1].startswith("    output out = x_")


def function_of(*body: object, output: Expr = X) -> Function:
    return Function("f", (X, N, B), tuple(body), (Output("out", output),))  # type: ignore[arg-type]


Y = Var("y", "float")


@pytest.mark.parametrize(
    "wrong",
    [
        function_of(output=Y),
        function_of(Assign(Y, N)),
        function_of(Assign(Y, Op("add", (X, N), "float"))),
        function_of(Assign(Y, Op("lt", (X, X), "float"))),
        function_of(Assign(Y, X), Assign(replace(Y, kind="int"), N)),
        function_of(If(B, (Assign(Y, X),), ()), output=Y),
        function_of(If(X, (), ())),
        function_of(Break()),
    ],
)
def test_the_checker_refuses(wrong: Function) -> None:
    with pytest.raises(AssertionError):
        verify(wrong)


def test_the_checker_accepts_what_both_sides_assign() -> None:
    both = If(B, (Assign(Y, X),), (Assign(Y, Const(0.0, "float")),))
    assert verify(function_of(both, output=Y)).outputs == (Output("out", Y),)
