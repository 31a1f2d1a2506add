"""What every pass of the compiler promises: checked IR, unchanged values, names apart, nothing left that is not needed.

Run on the corpus, on small programs built by hand, and on random ones.
"""

from __future__ import annotations

import ast
import importlib.util
import math
import random
from functools import cache
from typing import Any

import numpy as np
import pytest
from corpus import CORPUS, Case
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracles import Result, differentiate

from dualbcast import differentiable_broadcast
from dualbcast.abi import KernelSource, Layout
from dualbcast.compiler.dualize import dualize
from dualbcast.compiler.emit import emit
from dualbcast.compiler.frontend import lower
from dualbcast.compiler.ir import Assign, Break, Const, For, Function, If, Op, Output, Var, While, check, statements
from dualbcast.compiler.simplify import simplify
from dualbcast.errors import CompileError
from dualbcast.runtime import python

EVERY = pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
KINDS = {float: "float", int: "int", bool: "bool"}
DTYPES = {"float": "float64", "int": "int64", "bool": "bool"}


@cache
def lowered(case: Case) -> Function:
    return lower(case.function, [KINDS[type(arg)] for arg in case.points[0]]).function


@cache
def dual(case: Case) -> Function:
    return dualize(lowered(case), case.floats).function


def source(function: Function) -> KernelSource:
    """The text of a function whose arguments and results are contiguous arrays."""
    inputs = [DTYPES[param.kind] for param in function.params]
    outputs = [DTYPES[output.value.kind] for output in function.outputs]
    layout = Layout(1, ("1",), (0,) * (len(inputs) + len(outputs)))
    return emit(function, layout, "float64", inputs, outputs, "python")


def execute(function: Function, columns: list[Any]) -> list[np.ndarray[Any, Any]]:
    """The outputs of a function for each row of the columns."""
    text = source(function)
    inputs = [np.array(column, dtype) for column, dtype in zip(columns, text.inputs, strict=True)]
    outputs = [np.zeros(len(inputs[0]), dtype) for dtype in text.outputs]
    stored = [array.view(np.uint8) if array.dtype == bool else array for array in (*inputs, *outputs)]
    size = len(inputs[0])
    python.launch(python.compile_kernel(text), size, (size,), stored)
    return outputs


# --- the corpus ------------------------------------------------------------------------------------------------------


@EVERY
def test_every_pass_gives_checked_ir(case: Case):
    check(lowered(case))
    check(simplify(lowered(case)))
    check(dual(case))
    check(simplify(dual(case)))
    check(simplify(simplify(dual(case))))


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
def test_dualize_keeps_values(case: Case):
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

    check(lower(function, ["float"] * 3).function)
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


def test_the_same_expression_is_computed_once():
    def function(x, y):
        return (x * y + 1) * (y * x + 1)

    body = _simple(function, "float", "float")
    assert sorted(stmt.value.name for stmt in body if isinstance(stmt.value, Op)) == ["add", "mul", "mul"]


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
    function = check(Function("f", (X, Y), body, (Output("out0", T), Output("out1", U), Output("out2", A))))
    columns = [[2.0, -3.0, 0.5, -0.25], [5.0, 7.0, 0.25, -1.5]]
    for found, wanted in zip(execute(check(simplify(function)), columns), execute(function, columns), strict=True):
        np.testing.assert_array_equal(found, wanted)


# --- random programs -------------------------------------------------------------------------------------------------


class Program:
    """A random scalar function `f(x, y, z, n)` as text, and points to evaluate it at.

    Everything it reads is assigned on the way, or Python says so at some point; loops are short; values stay small.
    """

    def __init__(self, generator: random.Random) -> None:
        self.random, self.count, self.lines = generator, 0, ["import math", ""]
        self.floats, self.ints, self.bools, self.locked, self.functions = ["u", "v"], ["2"], [], {"2"}, []
        self.outputs, self.budget = 1, generator.randint(1, 5)
        self.function("helper(u, v)")
        self.floats, self.ints, self.bools, self.locked, self.functions = ["x", "y", "z"], ["n"], [], set(), ["helper"]
        self.outputs, self.budget = self.pick(1, 3), generator.randint(4, 16)
        self.function("f(x, y, z, n)")
        self.text = "\n".join(self.lines) + "\n"
        number = generator.uniform
        self.points = [
            (self.pick(number(-3, 3), 1.0, 0.25), number(-3, 3), number(-3, 3), generator.randint(-2, 4))
            for _ in range(10)
        ]

    def pick(self, *options: Any) -> Any:
        return self.random.choice(options)

    def likely(self, probability: float) -> bool:
        return self.random.random() < probability

    def fresh(self, base: str) -> str:
        self.count += 1
        return f"{base}{self.count}"

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    # --- expressions -------------------------------------------------------------------------------------------------

    def number(self, depth: int = 0) -> str:
        """An expression whose value is a float, or now and then another number."""
        if depth > 2 or self.likely(0.25):
            return self.pick(*self.floats)
        a, b, c = self.number(depth + 1), self.number(depth + 1), self.truth(depth + 1)
        return self.pick(
            *(f"({a} {sign} {b})" for sign in "+-*+-*"),
            *(f"math.{name}({a})" for name in ("sin", "tanh", "cos", "atan")),
            f"({a} / (1.5 + math.fabs({b})))",
            f"{self.pick('min', 'max')}({a}, {b})",
            f"({a} if {c} else {b})",
            f"({a} if {c} else {b})",
            f"({c} {self.pick('and', 'or')} {a})",
            f"({a} {self.pick('and', 'or')} {b})",
            f"({a} % 1.75)",
            f"({a}) ** {self.pick('2', '3', '2.0')}",
            f"(lambda v, w={a}: v * w - {self.pick(*self.floats)})({b})",
            f"{self.pick('abs', 'float', '-')}({a})",
            self.pick("0.5", "1.5", "2.0", "-1.25", "1", "3"),
            self.whole(depth + 1),
            *(f"{name}({a}, {b})" for name in self.functions),
        )

    def whole(self, depth: int = 0) -> str:
        """An expression whose value is an integer."""
        if depth > 2 or self.likely(0.4):
            return self.pick(*self.ints)
        a, b = self.whole(depth + 1), self.whole(depth + 1)
        return self.pick(
            str(self.random.randint(-3, 4)),
            f"({a} {self.pick('+', '-')} {b})",
            f"({a} {self.pick('//', '%')} {self.pick('3', '-2', '2')})",
            f"int({self.number(depth + 1)} % 5.0)",
            f"({a} & 7)",
            f"({a} if {self.truth(depth + 1)} else {b})",
            f"{self.pick('min', 'max')}({a}, {b})",
            f"({self.truth(depth + 1)} + {a})",
        )

    def truth(self, depth: int = 0) -> str:
        """An expression whose value is a bool."""
        a, b = self.number(depth + 1), self.number(depth + 1)
        compared = f"({a} {self.pick('<', '>', '<=', '>=')} {b})"
        if depth > 2 or self.likely(0.5):
            return compared
        return self.pick(
            *self.bools[:2],
            f"({self.whole(depth + 1)} {self.pick('<', '==', '!=')} {self.whole(depth + 1)})",
            f"({a} < {b} <= {self.number(depth + 1)})",
            f"(not {compared})",
            *(f"({self.truth(depth + 1)} {word} {self.truth(depth + 1)})" for word in ("and", "or")),
            f"bool({self.whole(depth + 1)})",
        )

    # --- statements --------------------------------------------------------------------------------------------------

    def function(self, head: str) -> None:
        self.line(0, f"def {head}:")
        while self.budget > 0:
            self.statement(1, loop=False)
        self.line(1, self.returned())

    def returned(self) -> str:
        more = f", {self.pick(self.whole(), self.number())}, {self.number()}" if self.outputs > 1 else ""
        return f"return {self.number()}{more}"

    def block(self, depth: int, *, loop: bool) -> None:
        """One to four statements; the names they add are forgotten, for a path may not have passed here."""
        names = [list(self.floats), list(self.ints), list(self.bools)]
        for _ in range(self.random.randint(1, 4)):
            if self.statement(depth, loop=loop):
                break
        self.floats, self.ints, self.bools = names

    def statement(self, depth: int, *, loop: bool) -> bool:
        """Write a statement; whether it was a jump."""
        self.budget -= 1
        jumps = [*([self.jump] * 4 if loop else []), *([self.leave] if depth > 1 else [])]
        simple = [self.assign] * 6 + [self.swap, self.pack, self.nested]
        compound = [self.branch] * 5 + [self.range_loop] * 2 + [self.while_loop] + [self.tuple_loop] * 4
        deep = depth > 4 or self.budget < 0
        return bool(self.pick(*simple, *([] if deep else compound), *jumps)(depth, loop))

    def jump(self, depth: int, loop: bool) -> bool:  # noqa: ARG002
        self.line(depth, self.pick("break", "continue"))
        return True

    def leave(self, depth: int, loop: bool) -> bool:  # noqa: ARG002
        self.line(depth, self.returned())
        return True

    def assign(self, depth: int, loop: bool) -> None:  # noqa: ARG002
        kind = self.pick("float", "float", "float", "more", "int", "bool")
        if kind == "more":
            self.line(depth, f"{self.pick(*self.floats)} {self.pick('+=', '-=', '*=')} {self.number()}")
            return
        names, make = {
            "float": (self.floats, self.number),
            "int": (self.ints, self.whole),
            "bool": (self.bools, self.truth),
        }[kind]
        free = [name for name in names if name not in self.locked]
        name = self.pick(*free) if free and self.likely(0.5) else self.fresh(kind[0])
        second = f"{self.fresh('s')} = " if self.likely(0.1) else ""
        self.line(depth, f"{name} = {second}{make()}")
        names.extend({name} - set(names))

    def swap(self, depth: int, loop: bool) -> None:  # noqa: ARG002
        names = self.random.sample(self.floats, min(len(self.floats), self.pick(2, 3)))
        values = names[1:] + names[:1] if self.likely(0.5) else [self.number(1) for _ in names]
        self.line(depth, f"{', '.join(names)} = {', '.join(values)}")

    def pack(self, depth: int, loop: bool) -> None:  # noqa: ARG002
        items, name = self.fresh("t"), self.fresh("f")
        self.line(depth, f"{items} = ({self.number()}, {self.number()})")
        self.line(depth, f"{name} = {items}[0] * {items}[1] - {items}[-1]")
        self.floats.append(name)

    def nested(self, depth: int, loop: bool) -> None:
        """A function that reads its surroundings; it has a branch, a loop, and returns in them."""
        if loop:  # each turn would define another function, and a name that a loop carries holds one
            self.assign(depth, loop)
            return
        name, before = self.fresh("g"), (list(self.floats), self.functions, self.outputs)
        self.line(depth, f"def {name}(a, b=0.5):")
        self.floats, self.functions, self.outputs = [*self.floats, "a", "b"], [], 1
        self.line(depth + 1, f"if {self.truth()}:")
        self.line(depth + 2, self.returned())
        self.line(depth + 1, "for w in (a, b, 1.0):")
        self.line(depth + 2, f"if w > b: return w * {self.number()}")
        self.line(depth + 2, "a = a + w")
        self.line(depth + 1, self.returned())
        self.floats, self.functions, self.outputs = before
        if depth == 1:
            self.functions = [*self.functions, name]

    def branch(self, depth: int, loop: bool) -> None:
        self.line(depth, f"if {self.truth()}:")
        self.block(depth + 1, loop=loop)
        while self.likely(0.25):
            self.line(depth, f"elif {self.truth()}:")
            self.block(depth + 1, loop=loop)
        if self.likely(0.5):
            self.line(depth, "else:")
            self.block(depth + 1, loop=loop)

    def range_loop(self, depth: int, loop: bool) -> None:  # noqa: ARG002
        index = self.pick(self.fresh("k"), self.fresh("k"), "j", self.pick(*self.ints))
        if index in self.locked or index.isdigit():
            index = "j"
        bounds = ("n", "3", "n + 1", "1, 4", "3, -1, -1", "n, -2, -1", "0", f"-2, {self.whole()} % 4, 2")
        bound = self.pick(*bounds) if "n" in self.ints else "1, 4"
        self.line(depth, f"for {index} in range({bound}):")
        names = list(self.ints)
        self.ints = [*self.ints, index]
        self.block(depth + 1, loop=True)
        self.ints = names

    def while_loop(self, depth: int, loop: bool) -> None:  # noqa: ARG002
        index = self.fresh("k")
        self.line(depth, f"{index} = 0")
        self.ints.append(index)
        self.locked.add(index)
        test = f" and {self.truth()}" if self.likely(0.6) else ""
        self.line(depth, self.pick("while True:", f"while {index} < {self.random.randint(1, 4)}{test}:"))
        self.line(depth + 1, f"{index} += 1")
        self.line(depth + 1, f"if {index} > 4: break")
        self.block(depth + 1, loop=True)

    def tuple_loop(self, depth: int, loop: bool) -> None:  # noqa: ARG002
        item, index = self.fresh("e"), self.fresh("k")
        items = ", ".join(self.number(1) for _ in range(self.random.randint(1, 4)))
        names = (list(self.floats), list(self.ints))
        if self.likely(0.5):
            self.line(depth, f"for {item} in ({items},):")
        else:
            self.line(depth, f"for {index}, {item} in enumerate(({items},)):")
            self.ints.append(index)
        self.floats.append(item)
        self.block(depth + 1, loop=True)
        self.floats, self.ints = names


def _numbers(result: Result) -> list[float]:
    return [float(item) for item in result[0]] + [slope for slopes in result[1] for slope in slopes.values()]


def _examine(program: Program, folder: Any) -> None:
    """Compare one random program with the oracle, and check its IR after each pass."""
    path = folder / f"program_{abs(hash(program.text))}.py"
    path.write_text(program.text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    points, wanted = [], []
    for point in program.points:
        try:
            module.f(*point)
        except (UnboundLocalError, OverflowError, ValueError):
            continue
        result = differentiate(module.f, point, (0, 1, 2))
        nearby = differentiate(module.f, [arg * (1 + 1e-15) for arg in point[:3]] + [point[3]], (0, 1, 2))
        # Where a rounding of the arguments already matters, the result says nothing.
        if _numbers(nearby) == pytest.approx(_numbers(result), rel=1e-11, abs=1e-11) and max(_numbers(result)) < 1e6:
            points.append(point)
            wanted.append(result)
    try:
        function = check(lower(module.f, ["float", "float", "float", "int"]).function)
    except CompileError as error:
        assert "assigned" in str(error), error  # noqa: PT017
        return
    both = check(dualize(function, (0, 1, 2)).function)
    check(simplify(simplify(both)))
    if not points:
        return
    value, jacobian = differentiable_broadcast(backend="python")(module.f).value_and_jacobian(*np.transpose(points)[:3],
        np.array([point[3] for point in points]))  # fmt: skip
    for output, found in enumerate(value if isinstance(value, tuple) else (value,)):
        for at, (values, slopes) in enumerate(wanted):
            exact = [values[output], *(slopes[output][seed] for seed in range(3))]
            got = [found[at], *(jacobian[output, name][at] for name in "xyz")]
            assert [float(item) for item in got] == pytest.approx([float(item) for item in exact], rel=1e-9, abs=1e-9)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(generator=st.randoms(use_true_random=False))
def test_random_programs(generator: random.Random, tmp_path_factory: pytest.TempPathFactory):
    _examine(Program(generator), tmp_path_factory.getbasetemp())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300))
def test_many_random_programs(seed: int, tmp_path: Any):
    _examine(Program(random.Random(seed)), tmp_path)
