"""What every pass of the compiler promises: checked IR, unchanged values, names apart, nothing left that is not needed.

Run on the corpus and on small programs built by hand; tests/fuzz checks them on random ones.
"""

from __future__ import annotations

import ast
import cProfile
import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from corpus import CORPUS, Case
from ir_invariants import verify, verify_single_assignment
from ir_text import parse
from run_ir import dual, execute, lowered, source

from dualbcast import differentiable_broadcast, rule
from dualbcast.frontend.lower import lower
from dualbcast.ir.nodes import Assign, Break, Const, For, Function, If, Op, Output, Var, While
from dualbcast.ir.simplification import simplify
from dualbcast.ir.traversal import most_live, remove_dead, statements
from dualbcast.passes.if_conversion import convert_ifs
from dualbcast.passes.statement_order import shorten_waits
from dualbcast.program.derived_functions import jacobian_of
from dualbcast.program.explain import operations

EVERY = pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)


# --- how it grows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("work", [simplify, lambda function: convert_ifs(function, set())])
def test_branches_are_looked_through_in_time_of_their_length(work: Callable[[Function], object]) -> None:
    """What a branch costs does not grow with the names before it."""

    def calls(count: int) -> int:
        text = "function f(x: float)\n    p: bool = gt(x, 0.5)\n    r: float = mul(x, 2.0)\n    if p:\n"
        for at in range(count):
            text += f"        t{at}: float = add(x, {at}.5)\n        p{at}: bool = gt(x, {at}.5)\n"
            text += f"        if p{at}:\n            r: float = mul(r, t{at})\n"
        function = parse(text + "    output out = r")
        profile = cProfile.Profile()
        profile.runcall(work, function)
        return sum(entry.callcount for entry in profile.getstats())

    few, many = calls(50), calls(400)
    assert many < 10 * few, "8 times as many branches"


@pytest.mark.parametrize("count", [20, 200])
def test_few_values_of_a_long_sum_wait(count: int) -> None:
    """Each term is added, and so is its derivative, before the next one; where few values wait nothing changes."""
    terms = "".join(
        f"    a{at}: float = mul(x, {at}.5)\n    s{at}: float = sin(a{at})\n"
        f"    c{at}: float = cos(a{at})\n    t{at + 1}: float = add(t{at}, s{at})\n"
        for at in range(count)
    )
    slopes = "".join(f"    u{at + 1}: float = add(u{at}, c{at})\n" for at in range(count))
    text = f"function f(x: float)\n    t0: float = neg(x)\n    u0: float = neg(x)\n{terms}{slopes}"
    function = parse(f"{text}    output out = t{count}\n    output out_dx = u{count}")
    shorter = verify(shorten_waits(function))
    if count == 20:
        assert shorter is function
    else:
        assert most_live(function) >= count
        assert most_live(shorter) < 10
        assert sorted(map(repr, shorter.body)) == sorted(map(repr, function.body))


# --- the corpus ------------------------------------------------------------------------------------------------------


@EVERY
def test_every_pass_gives_checked_ir(case: Case):
    verify_single_assignment(lowered(case))
    verify_single_assignment(simplify(lowered(case)))
    verify_single_assignment(dual(case))
    verify_single_assignment(simplify(dual(case)))
    verify_single_assignment(jacobian_of(simplify(dual(case)), case.floats).function)


ASSIGNED_AGAIN = {
    "t is assigned twice along a path": """
            t: float = x
            t: float = y
        """,
    "t is read where it is assigned": """
            p: bool = gt(x, y)
            if p:
                t: float = x
                u: float = mul(t, y)
            else:
                t: float = y
        """,
    "t = mul(x, y), and is assigned elsewhere": """
            p: bool = gt(x, y)
            if p:
                t: float = mul(x, y)
            else:
                t: float = y
        """,
    "x is assigned twice along a path": """
            x: float = y
            x: float = 1.0
        """,
}


@pytest.mark.parametrize("message", ASSIGNED_AGAIN)
def test_the_check_of_single_assignment_finds_what_is_wrong(message: str):
    function = parse(f"""
        function f(x: float, y: float)
    {ASSIGNED_AGAIN[message]}
            output out = x
    """)
    verify(function)
    with pytest.raises(AssertionError, match=re.escape(message)):
        verify_single_assignment(function)


@EVERY
def test_passes_keep_parameters_and_outputs(case: Case):
    before, after = lowered(case), simplify(dual(case))
    assert after.params == before.params
    assert [output.name for output in after.outputs][: len(before.outputs)] == [out.name for out in before.outputs]
    assert len({output.name for output in after.outputs}) == len(after.outputs)


@EVERY
def test_simplify_keeps_every_bit(case: Case):
    columns = list(zip(*case.points, strict=True))
    plain, simple = execute(dual(case), columns), execute(simplify(dual(case)), columns)
    for found, wanted in zip(simple, plain, strict=True):
        # Bits, where a sign of zero is one too, but not those of a NaN.
        np.testing.assert_array_equal(found, wanted, strict=True)
        np.testing.assert_array_equal(np.signbit(found.astype(float)), np.signbit(wanted.astype(float)))


@EVERY
def test_differentiation_keeps_values(case: Case):
    columns = list(zip(*case.points, strict=True))
    values = execute(lowered(case), columns)
    for found, wanted in zip(execute(dual(case), columns), values, strict=False):
        np.testing.assert_array_equal(found, wanted, strict=True)


@EVERY
def test_simplify_never_adds_operations(case: Case):
    def count(function: Function) -> int:
        return sum(isinstance(stmt, Assign) for stmt in statements(function.body))

    assert count(simplify(dual(case))) <= count(dual(case))


@EVERY
def test_names_in_text_are_apart(case: Case):
    """No variable of a function hides a constant, a function, or a name that the target supplies."""
    text = source(simplify(dual(case)))
    tree = ast.parse(text.text)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    outside = {node.name for node in functions}
    outside |= {target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}
    for function in functions:
        names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
        own = {arg.arg for arg in function.args.args} | {name.id for name in names if isinstance(name.ctx, ast.Store)}
        called = {node.func.id for node in ast.walk(function) if isinstance(node, ast.Call)}
        assert len(function.args.args) == len({arg.arg for arg in function.args.args})
        assert not own & (outside | called)


@EVERY
def test_structural_zeros_have_no_name(case: Case):
    """An output that no element ever has a derivative of, by the rules of dependence, has no partial in the text."""
    function = lowered(case)
    tainted = {position: _tainted(function, position) for position in case.floats}
    names = {output.name for output in dual(case).outputs}
    for output in function.outputs:
        for position in case.floats:
            depends = isinstance(output.value, Var) and output.value.name in tainted[position]
            if not depends or output.value.kind != "float":
                assert f"{output.name}_d{function.params[position].name}" not in names


def _tainted(function: Function, position: int) -> set[str]:
    """The names that data can flow to from a parameter; more than those with a derivative."""
    found, size = {function.params[position].name}, 0
    while size != len(found):
        size = len(found)
        for stmt in statements(function.body):
            if isinstance(stmt, Assign):
                args = stmt.value.args if isinstance(stmt.value, Op) else (stmt.value,)
                if any(isinstance(arg, Var) and arg.name in found for arg in args):
                    found.add(stmt.target.name)
    return found


def test_a_loop_lowered_again_starts_afresh():
    """`y` turns out to be a float only in the second branch; what the first lowering knew of its names must be gone."""

    def function(x, y, z):
        f = x
        z = 3
        z, y = (y, z)
        for k in range(3):
            if f:
                f, z = (y + x, z)
            elif k:
                z, y = (z, y + f)
            elif y - f:
                pass
            elif int(y % 5.0):
                g = z
                x *= g if z else g * x
        return z, x, y, f

    verify(lower(function, ["float"] * 3).function)
    points = [(1.5, 0.5, 1.0), (0.0, 2.0, 1.0), (-1.0, -2.0, 0.5)]
    found = execute(simplify(lower(function, ["float"] * 3).function), list(zip(*points, strict=True)))
    np.testing.assert_allclose(np.transpose(found), [function(*point) for point in points], rtol=1e-14)


# --- dead code and structural zeros in small -------------------------------------------------------------------------


def _simple(function: Any, *kinds: Any) -> list[Any]:
    return list(statements(simplify(lower(function, kinds).function).body))


def test_unused_work_is_gone():
    def function(x, y):
        a = math.exp(y)
        for i in range(10):
            a = a * i
            if a > 3:
                break
        if y > 0:  # noqa: SIM108
            b = math.sin(x)
        else:
            b = a  # noqa: F841
        return x + 1

    assert [type(stmt) for stmt in _simple(function, "float", "float")] == [Assign]


def test_a_loop_keeps_what_ends_it():
    def function(x, n):
        s = unused = 0.0
        for i in range(n):
            unused = unused + s * i
            s = s + x
            if s > 3:
                break
        return s

    body = _simple(function, "float", "int")
    assert sum(isinstance(stmt, Break) for stmt in body) == 1
    assert sum(isinstance(stmt, Assign) and isinstance(stmt.value, Op) for stmt in body) == 2  # s + x, s > 3


def test_what_a_name_is_given_too_late_needs_nothing_that_is_gone():
    """A name that is needed is assigned again at the end, for nobody, from another that nobody else needs."""
    a, x, y, z = (Var(name, "float") for name in "axyz")
    twice, thrice = (Op("mul", (a, Const(factor, "float")), "float") for factor in (2.0, 3.0))
    body = (Assign(x, twice), Assign(y, Op("add", (x, a), "float")), Assign(z, thrice), Assign(x, z))
    function = remove_dead(Function("f", (a,), body, (Output("out", y),)))
    assert {stmt.target.name for stmt in statements(function.body) if isinstance(stmt, Assign)} in ({*"xy"}, {*"xyz"})
    verify(function)
    (found,) = execute(function, [[1.0, 2.0]])
    np.testing.assert_array_equal(found, [3.0, 6.0])


def test_the_same_expression_is_computed_once():
    def function(x, y):
        return (x * y + 1) * (y * x + 1)

    body = _simple(function, "float", "float")
    assert sorted(stmt.value.name for stmt in body if isinstance(stmt.value, Op)) == ["add", "mul", "mul"]


def test_branches_that_choose_alike_are_one():
    def alike(x, y):
        if x > y:
            a, b = x, math.exp(y)
        else:
            a, b = y, math.exp(x)
        if x > y:
            c, d = x, math.exp(y)
        else:
            c, d = y, math.exp(x)
        return a * d - b * c

    body = _simple(alike, "float", "float")
    assert sum(isinstance(stmt, If) for stmt in body) == 1
    assert sorted(stmt.value.name for stmt in body if isinstance(stmt, Assign) and isinstance(stmt.value, Op)) == [
        *["exp", "exp", "gt", "mul", "sub"]
    ]

    def unlike(x, y):
        if x > y:  # noqa: SIM108
            a = x
        else:
            a = y
        if x > 1:  # noqa: SIM108
            b = x
        else:
            b = y
        return a - b

    points = [(2.0, 3.0), (3.0, 2.0), (0.5, 0.25), (0.25, 0.5)]
    (found,) = execute(simplify(lower(unlike, ["float"] * 2).function), [*zip(*points, strict=True)])
    np.testing.assert_array_equal(found, [unlike(*point) for point in points])


def test_a_known_branch_is_chosen():
    def function(x, y):
        larger = x > y
        if larger:
            return 1.0 if larger else math.exp(x)
        return math.sin(y) if larger else y

    body = _simple(function, "float", "float")
    assert [stmt.value.name for stmt in body if isinstance(stmt, Assign) and isinstance(stmt.value, Op)] == ["gt"]


def test_jacobian_text_has_only_what_depends():
    @differentiable_broadcast
    def function(x, y, n):
        return x * n, y if x > 0 else 1.0, n // 2, math.floor(x) * y

    text = function.inspect_source("float64", "float64", "int64")
    names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    partials = {name for name in names if name.startswith("out") and "_d" in name and not name.endswith("_k")}
    assert partials == {"out0_dx", "out1_dy", "out3_dy"}


# --- common subexpressions across reassignment -----------------------------------------------------------------------

X, Y, A, N, T, U, COUNT, P, Q = (
    *(Var(name, "float") for name in ("x", "y", "a", "n", "t", "u")),
    Var("i", "int"),
    *(Var(name, "bool") for name in ("p", "q")),
)
SUM = Op("add", (A, Y), "float")
MORE = Op("mul", (A, Y), "float")
POSITIVE = Assign(P, Op("gt", (X, Const(0.0, "float")), "bool"))


def _turns(*body: Any) -> For:
    return For(COUNT, Const(0, "int"), Const(3, "int"), Const(1, "int"), tuple(body))


REASSIGNED = {
    "in a loop": (Assign(T, SUM), _turns(Assign(A, MORE)), Assign(U, SUM)),
    "in a loop before the use in it": (Assign(T, SUM), _turns(Assign(U, SUM), Assign(A, MORE))),
    "on one side": (POSITIVE, Assign(T, SUM), If(P, (Assign(A, Y),), ()), Assign(U, SUM)),
    "on both sides": (POSITIVE, Assign(T, SUM), If(P, (Assign(A, Y),), (Assign(A, MORE),)), Assign(U, SUM)),
    "in a row": (Assign(T, SUM), Assign(A, MORE), Assign(U, SUM)),
    "the holder": (Assign(T, SUM), _turns(Assign(T, X)), Assign(U, SUM)),
    "the holder on one side": (POSITIVE, Assign(T, SUM), If(P, (Assign(T, X),), ()), Assign(U, SUM)),
    "behind a minus": (
        POSITIVE,
        Assign(N, Op("neg", (A,), "float")),
        Assign(T, Op("add", (Y, N), "float")),
        If(P, (Assign(A, Y),), ()),
        Assign(U, Op("add", (X, N), "float")),
    ),
    "behind a minus in a loop": (
        Assign(N, Op("neg", (A,), "float")),
        Assign(T, A),
        _turns(Assign(A, MORE), Assign(T, Op("sub", (T, N), "float"))),
        Assign(U, Op("mul", (N, N), "float")),
    ),
    "a copy": (Assign(T, A), Assign(A, Y), Assign(U, Op("sub", (T, A), "float"))),
    "a swap": (_turns(Assign(T, A), Assign(A, Y), Assign(U, T), Assign(A, Op("sub", (U, A), "float"))),),
    "the test": (
        POSITIVE,
        Assign(Q, P),
        Assign(T, A),
        If(P, (Assign(P, Op("lt", (A, Y), "bool")), Assign(T, Y)), (Assign(P, Op("gt", (A, Y), "bool")),)),
        Assign(U, Op("select", (P, A, X), "float")),
    ),
    "in a while's head": (
        Assign(T, A),
        Assign(U, SUM),
        While(
            (Assign(A, Op("sub", (A, Const(1.0, "float")), "float")), Assign(T, SUM)),
            Op("gt", (A, Const(0.0, "float")), "bool"),
            (Assign(U, SUM),),
        ),
    ),
}


@pytest.mark.parametrize("how", REASSIGNED)
def test_reassigned_names_are_not_merged(how: str):
    start = (Assign(A, Op("mul", (X, Y), "float")), Assign(T, Y), Assign(U, X))
    body = (*start, *REASSIGNED[how])
    if how == "in a while's head":  # tests are atoms in the IR
        loop = body[-1]
        body = (*body[:-1], While((*loop.pre, Assign(P, loop.test)), P, loop.body))
    function = verify(Function("f", (X, Y), body, (Output("out0", T), Output("out1", U), Output("out2", A))))
    columns = [[2.0, -3.0, 0.5, -0.25], [5.0, 7.0, 0.25, -1.5]]
    for found, wanted in zip(execute(verify(simplify(function)), columns), execute(function, columns), strict=True):
        np.testing.assert_array_equal(found, wanted)


# --- slopes that wait -------------------------------------------------------------------------------------------------


def multiplications(function: Any, arity: int) -> int:
    """How many there are beside those of the value."""
    value = lower(function, ["float"] * arity).function
    both = simplify(jacobian_of(value, range(arity)).function)
    counts = [operations(each).get("mul", 0) for each in (simplify(value), both)]
    return counts[1] - counts[0]


def test_the_slope_of_a_chain_is_found_before_its_partials() -> None:
    """One multiplication for each operation of the chain but one, and for each of the arguments."""

    def chain(a: float, b: float, c: float, d: float) -> float:
        return math.exp(math.exp(math.exp(math.exp(a + 2.0 * b + c * d))))

    # The first of the partials of what is inside is 1, and none of them takes a multiplication.
    assert multiplications(chain, 4) == 3 + 3

    def horner(a: float, b: float, c: float) -> float:
        x = a / b + c
        return ((x * 2.0 + 3.0) * x + 4.0) * x + 5.0

    # The slope in x is (4 * x + 3) * x + what is there already; 1 / b and -(x / b) times it; and x / b.
    assert multiplications(horner, 3) == 1 + 2 + 1


# How many multiplications there are beside those of the value and of the partials; of each slope the constant
# is first, in the numerator's place, last, or there are two. An exponential of a square takes four: into sixteenths,
# the square of those, what is left of the square, and what that has lost.
SCALED: dict[str, tuple[Any, int]] = {
    # And what it is multiplied by.
    "0.5 * erfc(x / 3)": (lambda x: 0.5 * math.erfc(x / 3.0), 4 + 1),
    # 3 / √(2x).
    "3 * sqrt(2 * x)": (lambda x: 3.0 * math.sqrt(2.0 * x), 0),
    # 5 / (7 log(10)) by x.
    "log10(5 * x) / 7": (lambda x: math.log10(5.0 * x) / 7.0, 0),
    # One constant by the exponential, and by the reciprocal of what log10 is of.
    "log10(erfc(x))": (lambda x: math.log10(math.erfc(x)), 4 + 2),
    # Two quotients stay two.
    "sqrt(log10(x + 3))": (lambda x: math.sqrt(math.log10(x + 3.0)), 1),
    # One constant by two exponentials.
    "-erfc(2 * erfc(x)) / 3": (lambda x: -math.erfc(2.0 * math.erfc(x)) / 3.0, 2 * 4 + 2),
}


@pytest.mark.parametrize("name", SCALED)
def test_constants_of_a_chain_become_one(name: str) -> None:
    chain, count = SCALED[name]

    def function(a: float, b: float) -> float:
        return chain(a * b)

    assert multiplications(function, 2) == count + 2
    columns = [[0.3, 0.8, 1.7], [1.5, 0.5, 0.9]]
    dual = simplify(jacobian_of(lower(function, ["float", "float"]).function, (0, 1)).function)
    _, in_a, in_b = execute(dual, columns)
    a, b = np.array(columns)
    code, names = compile(name, name, "eval"), {each: getattr(mpmath, each) for each in ("erfc", "sqrt", "log10")}
    slope = np.array([float(mpmath.diff(lambda x: eval(code, {**names, "x": x}), x)) for x in a * b])
    np.testing.assert_allclose([in_a, in_b], [slope * b, slope * a], rtol=1e-13)


def test_constants_whose_product_a_format_does_not_have_stay_two() -> None:
    f = differentiable_broadcast(lambda x, y: 1e20 * math.log10(1e20 * (x * y)), backend="python")
    one, small = np.array([1.0], np.float32), np.array([1e-15], np.float32)
    slope = f.value_and_jacobian(small, one)[1][0]
    np.testing.assert_allclose(slope, 1e35 / math.log(10.0), rtol=1e-6)


def test_a_slope_does_not_wait_for_what_changes() -> None:
    """Its variable is given another value, or the other factor is, before it is read."""

    def moved(a: float, b: float) -> float:
        x = a * b
        y = math.sin(x)
        x = a + b
        return math.exp(y) * x

    def scaled(a: float, b: float) -> float:
        x, scale = a * b, 3.0
        for _ in range(2):
            y = scale * x
            scale = scale * 2.0
            x = math.sin(y) + a
        return x

    def read_elsewhere(a: float, b: float) -> float:
        x = math.exp(a * b)
        if a > b:
            x = math.sin(x)
        y = math.cos(x)
        if b > 0:
            return math.exp(y)
        return y

    points = [(0.3, 0.7), (0.9, -0.4), (-1.1, 0.2)]
    for function in (moved, scaled, read_elsewhere):
        f = jacobian_of(lower(function, ("float", "float")).function, (0, 1)).function
        found = execute(simplify(verify(f)), list(zip(*points, strict=True)))
        step = 1e-6
        for row, (a, b) in enumerate(points):
            slopes = [
                (function(a + step, b) - function(a - step, b)) / (2 * step),
                (function(a, b + step) - function(a, b - step)) / (2 * step),
            ]
            np.testing.assert_allclose([each[row] for each in found], [function(a, b), *slopes], rtol=1e-8)


def test_a_multiple_of_an_integer_keeps_its_kind():
    """Multiples are rescaled among derivatives, and partials count with integers, too."""
    program = parse(
        """
        function f(x: float, n: int)
            a: int = mul(16, n)
            b: int = mul(a, 2)
            c: float = to_float(b)
            d: float = mul(c, x)
            output out = d
        """
    )
    found = verify(simplify(replace(program, derived=("a", "b", "c", "d"))))
    np.testing.assert_array_equal(execute(found, (np.array([0.5]), np.array([3])))[0], [48.0])


def test_partials_that_count_with_integers():
    """Kelvin's function ber and its derivative, by their series: J0(x exp(3 pi i / 4)) is ber(x) + i bei(x)."""

    def ber(x):
        term = total = 1.0
        for k in range(1, 12):
            term = -term * x**4 / (4 * (2 * k - 1) * 2 * k) ** 2
            total = total + term
        return total

    def slope(x):
        term = total = -(x**3) / 16
        for k in range(2, 12):
            term = -term * x**4 / (16 * (2 * k - 1) ** 2 * 2 * k * (2 * k - 2))
            total = total + term
        return total

    rule("ber", lambda x, y: (slope(x),), function=ber)  # noqa: ARG005
    x = np.linspace(0.1, 3.0, 7)
    value, jacobian = differentiable_broadcast(lambda x: ber(x)).value_and_jacobian(x)
    for at, point in enumerate(x.tolist()):
        assert abs(value[at] - float(mpmath.ber(0, point))) < 1e-14
        assert abs(jacobian["x"][at] - float(mpmath.diff(lambda t: mpmath.ber(0, t), point))) < 1e-13
