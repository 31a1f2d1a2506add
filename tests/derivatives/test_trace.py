"""The trace of one element: its steps against CPython's own tracing, its derivatives against kernels and the oracle."""

from __future__ import annotations

import math
import re
import sys
from types import FrameType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from corpus import CORPUS, Case
from corpus_calls import compiled, expected
from oracles import numbers_of

from dualbcast import differentiable_broadcast, from_source, graph
from dualbcast.errors import ArgumentError, BoundsError, CompileError
from dualbcast.program.trace import Trace, TraceRow

EVERY = pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)


def values_of(trace: Trace) -> list[float]:
    return [float(number) for number in numbers_of(trace.value)]


# --- against Python and the kernels ----------------------------------------------------------------------------------


class Line(NamedTuple):
    """A line that CPython has run, with the names of its frame after it."""

    line: int
    names: dict[str, Any]


def lines_that_run(case: Case, point: tuple[Any, ...]) -> list[Line]:
    """The lines of a case's own file in the order in which they end."""
    ended: list[Line] = []
    begun: dict[FrameType, int] = {}

    def trace(frame: FrameType, *_: Any) -> Any:
        if frame.f_code.co_filename != case.function.__code__.co_filename:
            return None
        if frame in begun:
            ended.append(Line(begun[frame], dict(frame.f_locals)))
        begun[frame] = frame.f_lineno
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        case.function(*point)
    finally:
        sys.settrace(before)
    return ended


@EVERY
def test_each_assignment_is_one_that_python_makes(case: Case) -> None:
    """In the same order, on the same line, of the same value."""
    if case.name == "closures_in_comprehensions" and (3, 13) <= sys.version_info < (3, 13, 3):
        pytest.skip("Python's crash on the locals of such a frame: https://github.com/python/cpython/issues/128396")
    for point in case.points:
        ran, at, names = lines_that_run(case, point), 0, set[str]()
        for row in compiled(case, "python").trace(*point, limit=10_000).rows:
            is_own = row.filename == case.function.__code__.co_filename
            if row.what != "assign" or not row.name.isidentifier() or not is_own:
                continue
            # A line may assign several names, each once.
            start = at + (row.name in names)
            found = (k for k in range(start, len(ran)) if ran[k].line == row.line and is_equal(ran[k], row))
            now = next(found, None)
            assert now is not None, f"{row.name} = {row.value} of line {row.line} is no step of Python's"
            at, names = now, {row.name, *(names if now == at else ())}


def is_equal(line: Line, row: TraceRow) -> bool:
    value = line.names.get(row.name)
    return isinstance(value, int | float | np.number | np.ndarray) and math.isclose(value, row.value, rel_tol=1e-12)


@EVERY
def test_values_and_partials_are_those_of_kernels(case: Case) -> None:
    function, wanted = compiled(case, "python"), expected(case, "float64")
    for at, point in enumerate(case.points):
        trace = function.trace(*point, limit=10_000)
        value, jacobian = function.value_and_jacobian(*point)
        assert values_of(trace) == [float(number) for number in numbers_of(value)]  # bit by bit
        returned = [row for row in trace.rows if row.what == "return" and row.depth == 0]
        finals = returned[len(returned) - jacobian.outputs :]
        for output, row in enumerate(finals):
            assert float(row.value) == values_of(trace)[output]
            for place, name in zip(case.floats, trace.wrt, strict=True):
                if row.partials:
                    exact = float(wanted[at][1][output][place])
                    scale = case.allowance * np.finfo(float).eps * (1 + abs(exact))
                    assert row.partials[name] == pytest.approx(exact, rel=0, abs=scale)


@pytest.mark.parametrize("case", CORPUS[::3], ids=lambda case: case.name)
def test_float32_is_rounded_as_in_a_kernel(case: Case) -> None:
    function = compiled(case, "python")
    for point in case.points:
        given = [np.float32(x) if isinstance(x, float) else np.int16(x) if type(x) is int else x for x in point]
        trace = function.trace(*given)
        floats = [row.value for row in trace.rows if row.partials]
        assert all(type(value) is np.float32 for value in floats)
        assert values_of(trace) == [float(number) for number in numbers_of(function(*given))]


# --- one function, step by step --------------------------------------------------------------------------------------


def scaled(t: float, scale: float = 2.0) -> float:
    u = t * scale
    return math.exp(-u)


WEIGHTS = np.array([[1.0, 10.0, 100.0]])


@differentiable_broadcast
def total(x: float, n: int) -> tuple[float, int]:
    sum_ = 0.0
    for i in range(n):
        t = x + i
        if t > 2.0:
            break
        sum_ += scaled(t)
    return sum_ * WEIGHTS, n


def test_the_steps_of_a_loop() -> None:
    rows = total.trace(0.5, 3, index=(0, 1), wrt="x").rows
    steps = [(row.function, row.depth, row.what, row.name, row.value) for row in rows]
    of_call = lambda t: [  # noqa: E731
        ("scaled", 1, "argument", "t", t),
        ("scaled", 1, "argument", "scale", 2.0),
        ("scaled", 1, "assign", "u", 2 * t),
        ("scaled", 1, "return", "return", math.exp(-2 * t)),
    ]
    first, second = math.exp(-1.0), math.exp(-1.0) + math.exp(-3.0)
    assert steps == [
        ("total", 0, "argument", "x", 0.5),
        ("total", 0, "argument", "n", 3),
        ("total", 0, "assign", "sum_", 0.0),
        *[("total", 0, "assign", "i", 0), ("total", 0, "assign", "t", 0.5), ("total", 0, "test", "if", False)],
        *of_call(0.5),
        ("total", 0, "assign", "sum_", first),
        *[("total", 0, "assign", "i", 1), ("total", 0, "assign", "t", 1.5), ("total", 0, "test", "if", False)],
        *of_call(1.5),
        ("total", 0, "assign", "sum_", second),
        *[("total", 0, "assign", "i", 2), ("total", 0, "assign", "t", 2.5), ("total", 0, "test", "if", True)],
        ("total", 0, "return", "return[0]", second * 10.0),
        ("total", 0, "return", "return[1]", 3),
    ]
    assert [row.source for row in rows[:3]] == ["def total(x: float, n: int) -> tuple[float, int]:"] * 2 + [
        "sum_ = 0.0"
    ]
    derivatives = [row.partials["x"] for row in rows if row.name in ("sum_", "return[0]")]
    assert derivatives == pytest.approx([0.0, -2 * first, -2 * second, -20 * second], rel=1e-15)
    assert rows[1].partials == rows[-1].partials == {}


def test_the_element_at_an_index() -> None:
    x, n = np.linspace(0.0, 1.5, 4)[:, None], np.array([1, 2, 3], np.int32)
    value, jacobian = total.value_and_jacobian(x, n)
    for index in ((0, 0), (3, 1), (-1, -2)):
        trace = total.trace(x, n, index=index)
        assert trace.value[0] == value[0][index]
        assert trace.rows[-2].partials["x"] == pytest.approx(jacobian[0, "x"][index], rel=1e-15)
        assert trace.arguments == {"x": x[index[0], 0], "n": n[index[1]], "WEIGHTS": WEIGHTS[0, index[1]]}


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (None, r"have shape \(2, 3\); say which element, as in index=\(0, 0\)"),
        ((0,), "is no index of an element"),
        ((0, 1.0), "is no index"),
        ((True, 0), "is no index"),
        ("ab", "is no index"),
        ((2, 0), r"index=\(2, 0\) is outside"),
        ((0, -4), "is outside"),
    ],
)
def test_an_index_that_is_none(index: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        total.trace(np.ones((2, 1)), 3, index=index)


def test_one_axis_takes_a_number() -> None:
    assert differentiable_broadcast(lambda x: x * x).trace(np.arange(4.0), index=3).value == 9.0
    assert differentiable_broadcast(lambda x: x * x).trace(np.array([[3.0]])).value == 9.0


def test_a_long_loop_has_its_first_and_last_steps() -> None:
    trace = total.trace(-1e6, 1000, index=(0, 0), limit=11)
    assert len(trace.rows) == 11
    assert [row.name for row in trace.rows] == [
        *["x", "n", "sum_", "i", "t", "if"],
        *["u", "return", "sum_"],
        "return[0]",
        "return[1]",
    ]
    assert trace.left_out == 3 + 8 * 1000 + 2 - 11
    lines = str(trace).splitlines()
    assert lines[8] == f"      … {trace.left_out:,} steps left out; limit= shows more"
    assert len(lines) == 2 + 11 + 1
    assert total.trace(-1e6, 1000, index=(0, 0), limit=8005).left_out == 0
    assert len(total.trace(0.0, 1, index=(0, 0), limit=1).rows) == 1


@pytest.mark.parametrize("limit", [0, -1, 2.0, True, None])
def test_a_limit_that_is_none(limit: Any) -> None:
    with pytest.raises(ArgumentError, match="is no number of rows"):
        total.trace(0.5, 3, index=(0, 0), limit=limit)


# --- kinds of values and of functions --------------------------------------------------------------------------------


def test_dtypes() -> None:
    product = differentiable_broadcast(lambda x, y: x * y)
    assert product.trace(np.float16(0.1), np.float16(3.0)).dtype == "float32"
    assert product.trace(ml_dtypes.bfloat16(0.1), 3.0).arguments["x"] == np.float32(ml_dtypes.bfloat16(0.1))
    assert product.trace(np.uint8(200), np.uint8(200)).value == 40_000
    assert product.trace(True, 2.5).rows[0].partials == {}
    assert product.trace(True, 2.5).rows[-1].partials == {"y": 1.0}


def test_structures_branches_and_matches() -> None:
    function = from_source(
        """
def f(x, y):
    pair = (x, (y, 2))
    small, *rest = x, y, 1
    match x > y:
        case True:
            z = x if y > 0 else -x
        case _:
            z = (w := y) * 2
    while z > 1:
        z = z / 2
    total = sum(k * z for k in (1, 2))
    return {"return": z}["return"] if False else (lambda u: u + total)(z)
"""
    )
    rows = function.trace(3.0, 1.0).rows
    found = {(row.line, row.what, row.name): row.value for row in rows}
    assert [row.value for row in rows if row.name == "while"] == [True, True, False]
    assert found[3, "assign", "pair[1][0]"] == 1.0
    assert found[3, "assign", "pair[1][1]"] == 2
    assert found[4, "assign", "rest[1]"] == 1
    assert found[6, "test", "case"]
    assert found[7, "test", "if"]
    assert (9, "assign", "w") not in found
    assert found[12, "assign", "total"] == 3 * 0.75
    assert [row.depth for row in rows if row.name in ("u", "return")] == [1, 1, 0]
    assert [row.name for row in function.trace(1.0, 3.0).rows if row.line == 9] == ["w", "z"]
    assert not any(row.name.startswith("%") for row in rows)


def test_derivatives_that_users_define() -> None:
    function = from_source(
        """
import math
from dualbcast import derivative
def inner(x):
    y = x * x
    return math.sin(y)
def f(x):
    slope = derivative(inner)(x)
    return slope
"""
    )
    trace = function.trace(0.5)
    assert [(row.name, row.depth) for row in trace.rows] == [
        *[("x", 0), ("x", 1), ("y", 1), ("return", 1), ("slope", 0), ("return", 0)]
    ]
    x, square = 0.5, 0.25
    assert trace.value == pytest.approx(2 * x * math.cos(square), rel=1e-15)
    exact = 2 * math.cos(square) - 4 * square * math.sin(square)
    assert trace.rows[-1].partials["x"] == pytest.approx(exact, rel=1e-15)


def test_whole_arrays() -> None:
    function = from_source("def f(x, table):\n    i = int(x)\n    return table[i, -1] * x\n", whole="table")
    table = np.arange(6.0).reshape(3, 2)
    trace = function.trace(np.array([0.5, 2.5]), table, index=1)
    assert trace.value == 5.0 * 2.5
    assert trace.rows[-1].partials == {"x": 5.0}
    assert trace.arguments == {"x": 2.5, "table.shape[0]": 3, "table.shape[1]": 2}
    with pytest.raises(BoundsError) as caught:
        function.trace(3.5, table)
    assert (caught.value.lineno, caught.value.offset) == (3, 18)
    with pytest.raises(ArgumentError, match="table is whole"):
        function.trace(1.5, table, wrt="table")


def test_complex_numbers() -> None:
    function = from_source("def f(z, x):\n    w = z * z\n    return w * x\n")
    trace = function.trace(1 + 2j, 3.0)
    assert trace.value == (1 + 2j) ** 2 * 3.0
    assert [(row.name, row.value) for row in trace.rows[3:]] == [
        *[("w.real", -3.0), ("w.imag", 4.0), ("return.real", -9.0), ("return.imag", 12.0)]
    ]
    assert trace.rows[-1].partials == {"z.real": 12.0, "z.imag": 6.0, "x": 4.0}


def test_what_a_trace_cannot_have() -> None:
    product = differentiable_broadcast(lambda x, y: x * y)
    with pytest.raises(ArgumentError, match="trace the function itself"):
        product.partial("x").trace(1.0, 2.0)
    with pytest.raises(ArgumentError, match="trace takes numbers"):
        product.trace(graph.Variable(1.0), 2.0)
    with pytest.raises(ArgumentError, match=r"wrt='z' is no argument"):
        product.trace(1.0, 2.0, wrt="z")
    with pytest.raises(CompileError, match="try cannot be compiled"):
        from_source("def f(x):\n    try:\n        return x\n    except ValueError:\n        return 0.0\n").trace(1.0)


# --- the tables ------------------------------------------------------------------------------------------------------


def test_the_text() -> None:
    text = """
def f(x, n):
    a, b = x * n, -x
    for _ in range(n):
        a += b
    return a
"""
    assert repr(from_source(text).trace(0.125, 2)).splitlines() == [
        "f(x=0.125, n=2), computed in float64",
        "line  source              name    value   ∂/∂x",
        "   2  def f(x, n):        x       0.125   1",
        "   2                      n       2",
        "   3  a, b = x * n, -x    a       0.25    2",
        "   3                      b       -0.125  -1",
        "   4  for _ in range(n):  _       0",
        "   5  a += b              a       0.125   1",
        "   4  for _ in range(n):  _       1",
        "   5  a += b              a       0       0",
        "   6  return a            return  0       0",
    ]


def test_the_table_of_a_notebook() -> None:
    trace = total.trace(0.5, 3, index=(0, 1), limit=4)
    page = trace._repr_html_()
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", page)]
    assert cells[0] == ["line", "source", "name", "value", "∂/∂x"]
    assert [row[2] for row in (*cells[1:3], *cells[4:])] == [row.name for row in trace.rows]
    assert cells[3][1] == f"… {trace.left_out} steps left out; limit= shows more"
    assert "float, n: int) -&gt; tuple" in cells[1][1]
    assert "color" not in page
