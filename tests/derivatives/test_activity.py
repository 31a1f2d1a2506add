"""The analyses before differentiation: on what each variable depends, on some path and on every path, and in loops."""

from __future__ import annotations

from typing import Any

import pytest
from ir_text import parse

from dualbcast.autodiff.activity import Flow, activity, all_sources, fixed, flow_of, presence
from dualbcast.autodiff.loop_presence import LoopPresence
from dualbcast.autodiff.presence import UNIT
from dualbcast.frontend.lower import lower
from dualbcast.ir.nodes import For, Var, While
from dualbcast.ir.traversal import assigned, assignments

NONE: frozenset[int] = frozenset()

X, Y = frozenset({0}), frozenset({1})
XY = X | Y


def flow(target: str, *sources: str, by: bool = False, is_choice: bool = False) -> Flow:
    """A dependence through constants, or through other numbers: `by`."""
    return Flow(target, tuple((name, not by) for name in sources), is_choice)


def test_activity_goes_along_some_path_and_around_loops() -> None:
    flows = [flow("s", "t"), flow("t", "u"), flow("u", "s", "x"), flow("v", "y"), flow("w", "k")]
    assert activity(flows, {"x": X, "y": Y}) == {"x": X, "y": Y, "s": X, "t": X, "u": X, "v": Y}


def test_presence_goes_along_every_path() -> None:
    # s on both sides of a branch, t on both with a constant on one; and a choice between x and y.
    flows = [flow("s", "x"), flow("s", "x", "y"), flow("t", "x"), flow("t"), flow("u", "x", "y", is_choice=True)]
    active = activity(flows, {"x": X, "y": Y})
    present, _ = presence(flows, active, {"x": X, "y": Y})
    assert present == {"x": X, "y": Y, "s": X, "t": NONE, "u": NONE}
    # In a loop, from what its variables have before an iteration: the first result has that, the second what is new.
    present, new = presence([flow("t", "s"), flow("s", "t", "x")], {"x": X, "s": X, "t": X}, {"x": X, "s": NONE})
    assert (present["s"], present["t"]) == (NONE, NONE)
    assert new["s"] == X


def test_partials_of_constants_alone_are_fixed() -> None:
    flows = [flow("v", "u"), flow("s", "x"), flow("t", "s", "y"), flow("u", "t", by=True), flow("w", "z")]
    assert fixed(flows, ["z"]) == {"s", "t"}


def test_all_sources_go_around_loops() -> None:
    flows = [flow("s", "t"), flow("t", "u"), flow("u", "s", "x"), flow("v", "y")]
    assert all_sources(["s"], flows) == {"s", "t", "u", "x"}


def test_a_partial_of_zero_is_no_dependence() -> None:
    function = parse("""
        function f(x: float, y: float)
            a: float = sub(x, y)
            b: float = mul(x, y)
            c: float = floor(x)
            p: bool = gt(x, y)
            d: float = select(p, x, 2.0)
            e: float = mul(x, 3.0)
            output out = d
        """)
    flows = {stmt.target.name: flow_of(stmt) for stmt in assignments(function.body) if stmt.target.kind == "float"}
    assert flows["a"] == Flow("a", (("x", True), ("y", True)))
    assert flows["b"] == Flow("b", (("x", False), ("y", False)))
    assert flows["c"] == Flow("c", ())
    assert flows["d"] == Flow("d", (("x", True), ("", True)), is_choice=True)
    assert flows["e"] == Flow("e", (("x", True),))


def presence_of(function: Any) -> tuple[LoopPresence, dict[str, str]]:
    """The presence in the first loop of a function of x and y, which are read in it; and the names of its variables.

    By the start of a variable's name as in the source; the one that the iterations hand on.
    """
    f = lower(function, ("float", "float")).function
    loop = next(stmt for stmt in f.body if isinstance(stmt, For | While))
    inside, before = assigned((loop,)), assigned(f.body[: f.body.index(loop)])
    carried = [name for name in dict.fromkeys(inside) if name in before]
    flows = [flow_of(stmt) for stmt in assignments((loop,)) if stmt.target.kind == "float"]
    given = {"x": {0: UNIT}, "y": {1: UNIT}}
    for stmt in assignments(f.body[: f.body.index(loop)]):
        if isinstance(stmt.value, Var) and stmt.value.name in given:
            given[stmt.target.name] = given[stmt.value.name]
    return LoopPresence(loop, flows, given, carried), {name[0]: name for name in carried}


def test_a_variable_depends_after_the_first_iterations() -> None:
    def f(x: float, y: float) -> float:
        s, t, u = x, 1.0, 1.0
        for _ in range(3):
            u, t = t, s * 2.0
            s = s * y
        return s + t + u

    loop, names = presence_of(f)
    s, t, u = (names[name] for name in "stu")
    assert (loop.entry[s], loop.entry[t], loop.entry[u]) == (X, NONE, NONE)
    assert (loop.late[s], loop.late[t], loop.late[u]) == (XY, XY, XY)
    # After three iterations s depends on both; t has the s of two iterations before, and u that of one.
    assert (loop.after[s], loop.after[t], loop.after[u]) == (XY, XY, XY)
    assert not loop.needs_flag(s, 0)
    assert loop.needs_flag(s, 1)


@pytest.mark.parametrize(("iterations", "after"), [(1, (X, NONE)), (2, (X, X)), (3, (X, X))])
def test_what_depends_after_a_loop_hangs_on_its_iterations(iterations: int, after: tuple[Any, Any]) -> None:
    def f(x: float, y: float) -> float:
        s, t = 1.0, y
        for _ in range(iterations):
            t, s = s, x
        return s + t

    loop, names = presence_of(f)
    assert (loop.after[names["s"]], loop.after[names["t"]]) == after
    # t begins with y, and has it in the first iteration alone.
    assert loop.entry[names["t"]] == NONE


def test_what_may_have_no_iteration_depends_as_before() -> None:
    def counted(x: float, y: float) -> float:
        s = 1.0
        for _ in range(int(y)):
            s = s * x
        return s

    def tested(x: float, y: float) -> float:
        s = 1.0
        while s < y:
            s = s * x
        return s

    def left(x: float, y: float) -> float:
        s = 1.0
        for k in range(3):
            if k > y:
                break
            s = s * x
        return s

    for f in (counted, tested, left):
        loop, names = presence_of(f)
        s = names["s"]
        assert (loop.entry[s], loop.after[s], loop.late[s]) == (NONE, NONE, X if f is not left else loop.late[s])


def test_what_an_iteration_may_leave_as_it_was_depends_as_before() -> None:
    def continued(x: float, y: float) -> float:
        s = 1.0
        for k in range(3):
            if k > y:
                continue
            s = s * x
        return s

    def chosen(x: float, y: float) -> float:
        s = 1.0
        for k in range(3):
            if k > y:
                s = s * x
        return s

    for f in (continued, chosen):
        loop, names = presence_of(f)
        s = names["s"]
        assert (loop.entry[s], loop.after[s], loop.late[s]) == (NONE, NONE, NONE)
