"""Branches into selects on the CPU: which are, that no bit of a result depends on it, and that nothing harmful runs."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from bits import same_bits
from corpus import CORPUS, Case
from ir_invariants import verify
from models import cell_update, cell_update_by_hand
from run_ir import dual, execute, lowered

from dualbcast import differentiable_broadcast, special
from dualbcast.frontend.lower import lower
from dualbcast.ir.nodes import TEMPORARY, Assign, Const, Function, If, Op, Output, Var
from dualbcast.ir.simplification import simplify
from dualbcast.ir.traversal import statements
from dualbcast.passes import vector_analysis
from dualbcast.passes.if_conversion import branch_choices, convert_ifs
from dualbcast.passes.inlining import drop_custom_derivatives
from dualbcast.program import pipeline

EVERY = pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
INF, NAN = math.inf, math.nan


# --- the pass ---------------------------------------------------------------------------------------------------------


@EVERY
def test_values_and_partials_keep_every_bit(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_analysis, "LEAST_SAVING", INF)
    columns = list(zip(*case.points, strict=True))
    for function in (drop_custom_derivatives(simplify(lowered(case))), drop_custom_derivatives(simplify(dual(case)))):
        selected = convert_ifs(function, set())
        for found, wanted in zip(execute(verify(selected), columns), execute(function, columns), strict=True):
            same_bits(found, wanted)


@EVERY
def test_what_does_not_change_in_a_row_stays_a_branch(case: Case) -> None:
    function = drop_custom_derivatives(simplify(dual(case)))
    assert convert_ifs(function, {param.name for param in function.params}) == function


@EVERY
def test_each_branch_has_its_choice(case: Case) -> None:
    function = drop_custom_derivatives(simplify(dual(case)))
    selected, choices = convert_ifs(function, set()), branch_choices(function, set())
    branches = sum(isinstance(stmt, If) for stmt in statements(function.body))
    assert len(choices) == branches
    left = [stmt for stmt in statements(selected.body) if isinstance(stmt, If)]
    if all(choice.selects for choice in choices):
        assert not left
    if all("takes it" in choice.reason for choice in choices):
        assert not any(stmt.orelse for stmt in left)


def by_hand(then: Any, orelse: Any, test: Any = Var("t", "bool")) -> Function:  # noqa: B008
    """`x, y = 1·p, 2·p` and then a branch that gives them other values."""
    p, x, y = (Var(name, "float") for name in "pxy")
    start = [Assign(x, Op("add", (p, Const(1.0, "float")), "float")), Assign(y, Op("mul", (p, p), "float"))]
    body = (*start, Assign(Var("t", "bool"), Op("lt", (p, Const(0.0, "float")), "bool")), If(test, then, orelse))
    outputs = tuple(Output(f"out_{at}", var) for at, var in enumerate((x, y)))
    return verify(Function("f", (p,), body, outputs))


def test_sides_that_exchange_variables() -> None:
    """The selects are written one after the other, and must not read what those before them have written."""
    x, y, z = (Var(name, "float") for name in ("x", "y", TEMPORARY))
    swap = (Assign(z, x), Assign(x, y), Assign(y, z))
    one = (Assign(x, Const(7.0, "float")),)
    columns = [[-2.0, 0.5]]
    for then, orelse, wanted in (
        (swap, (), [[4.0, 1.5], [-1.0, 0.25]]),
        ((), swap, [[-1.0, 0.25], [4.0, 1.5]]),
        (one, (Assign(y, x),), [[7.0, 1.5], [4.0, 1.5]]),
        ((Assign(y, x), *one), (Assign(x, y), Assign(y, Const(3.0, "float"))), [[7.0, 0.25], [-1.0, 3.0]]),
    ):
        function = by_hand(then, orelse)
        selected, choices = convert_ifs(function, set()), branch_choices(function, set())
        assert [choice.selects for choice in choices] == [True]
        np.testing.assert_array_equal(execute(verify(selected), columns), wanted)


def test_a_condition_that_the_sides_change() -> None:
    t, x, y = Var("t", "bool"), Var("x", "float"), Var("y", "float")
    side = (Assign(t, Const(False, "bool")), Assign(x, Const(5.0, "float")), Assign(y, Const(6.0, "float")))
    selected = convert_ifs(by_hand(side, ()), set())
    np.testing.assert_array_equal(execute(verify(selected), [[-2.0, 0.5]]), [[5.0, 1.5], [6.0, 0.25]])


def choices_of(function: Any, *kinds: Any, steady: set[str] = frozenset()) -> list[tuple[bool, str]]:  # type: ignore[assignment]
    choices = branch_choices(simplify(lower(function, kinds).function), steady)
    return [(choice.selects, choice.reason) for choice in choices]


EACH = "each side runs for vectors with an element that takes it"
LONGER = "the longer side runs for vectors with an element that takes it"


def test_what_stays_a_branch_and_why() -> None:
    def turns(x: float, y: float) -> float:
        if y > 0:
            while x > 1:
                x = x / 2
        return x

    assert choices_of(turns, "float", "float") == [(False, "there is a loop in the function")]

    def halves(x: float, n: int, m: int) -> float:
        return x + n // m if m != 0 else x

    assert choices_of(halves, "float", "int", "int") == [(False, LONGER)]

    def by_a_loop(x: float) -> float:
        return special.digamma(x) if x > 0 else x

    assert choices_of(by_a_loop, "float") == [(False, "digamma has no version for vectors")]

    def series(x: float) -> float:
        if x > 0:
            for k in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10) * 5:
                x = x + math.sin(k * x)
        return x

    assert choices_of(series, "float") == [(False, LONGER)]

    def both(x: float, y: float) -> float:
        return math.sin(x * math.exp(y)) ** 2.5 if x > y else math.cos(y - math.log(x * x)) ** 1.5

    assert choices_of(both, "float", "float") == [(False, EACH)]
    assert choices_of(power, "float", "float") == [(False, EACH), (False, LONGER)]

    def shares(x: float, y: float) -> float:
        if x > y:
            return math.exp(math.sin(x)) * math.tanh(y) + y
        return math.exp(math.sin(x)) * math.tanh(y) * math.sqrt(x)

    assert choices_of(shares, "float", "float") == [(True, "both sides computed: 5 + 6 operations")]

    def mixed(x: float, mode: float) -> float:
        if mode > 0:
            return math.exp(x) if x < 0 else x
        return special.digamma(x) if x > 1 else -x

    found = choices_of(mixed, "float", "float", steady={"mode"})
    assert sorted(found) == sorted(
        [
            (False, "does not change within a row"),
            (True, "both sides computed: 1 + 0 operations"),
            (False, "digamma has no version for vectors"),
        ]
    )


# --- kernels ----------------------------------------------------------------------------------------------------------


def guarded(x: float, y: float) -> float:
    root = math.sqrt(x) if x > 0 else 0.0
    ratio = y / x if x != 0 else y
    return root + (math.log(y) if y > 0 else -1.0) + ratio


def power(x: float, y: float) -> float:
    if x > 0:
        return x**y
    return 0.0 if x == 0 else -((-x) ** y)


def nested(x: float, y: float) -> float:
    r = x * y
    if x > 0:
        if y > 0:
            r = math.sqrt(x) * math.log(y)
        elif y < -1:
            return 1 / (x + y)
    elif x < 0:
        s = math.exp(x)
        r = s * s if y > 0 else r / s
    return r + x


def on_nan(x: float, y: float) -> float:
    if x != x:
        return y
    if x < 0 or x >= 0:
        return x * y if not y != y else x  # noqa: SIM202
    return 7.0


def divided(x: float, y: float) -> float:
    n = int(y)
    if n != 0:
        return x + 7 // n + 7 % n
    return x


def looping(x: float, y: float) -> float:
    total = 0.0
    for k in range(4):
        if x > k:
            total += math.sqrt(x - k) * y
        elif y < 0:
            continue
        else:
            break
    return total


EDGES = [0.0, -0.0, 1e-300, -1e-300, 0.5, -0.5, 1.0, -1.0, -1.5, 3.0, 700.0, -700.0, INF, -INF, NAN]
MODELS = [guarded, power, nested, on_nan, divided, looping]


@pytest.fixture
def branches(monkeypatch: pytest.MonkeyPatch, nothing_kept: None) -> Any:  # noqa: ARG001
    """Everything as branches, from here on."""

    def leave_branches() -> None:
        monkeypatch.setattr(pipeline, "for_vectors", lambda _: [drop_custom_derivatives])
        monkeypatch.setattr(pipeline, "fits_vectors", lambda *_: False)

    return leave_branches


@pytest.mark.parametrize("function", MODELS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("fastmath", [False, True])
def test_selects_branches_and_python_agree(function: Any, fastmath: bool, branches: Any) -> None:
    values = [value for value in EDGES if function is not divided or abs(value) < 1e9]
    x, y = (np.repeat(axis.ravel(), 5) for axis in np.meshgrid(values, values))
    x, y = x[:-3], y[:-3]  # some elements after the last vector
    # Selected and not; the `python` backend runs the branches.
    found = differentiable_broadcast(backend="cpu", fastmath=fastmath)(function).value_and_jacobian(x, y)
    wanted = differentiable_broadcast(backend="python")(function).value_and_jacobian(x, y)
    branches()
    plain = differentiable_broadcast(backend="cpu", fastmath=fastmath)(function).value_and_jacobian(x, y)
    for value, jacobian in (found, plain):
        for ours, theirs in ((value, wanted[0]), (jacobian["x"], wanted[1]["x"]), (jacobian["y"], wanted[1]["y"])):
            np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-15, equal_nan=True)


def test_the_side_that_is_not_taken_leaves_no_trace() -> None:
    """At the guard's boundary and beyond, where the other side is NaN or infinite, value and partials are finite."""
    x = np.repeat([0.0, -1.0, -INF, -1e-300], 9)
    y = np.repeat([-2.0, 0.0, -1.0, -0.5], 9)
    value, jacobian = differentiable_broadcast(backend="cpu")(guarded).value_and_jacobian(x, y)
    # root = 0, log → -1, ratio = y / x or y
    safe = np.where(x == 0, 1.0, x)
    np.testing.assert_allclose(value, np.where(x == 0, y, y / safe) - 1)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(jacobian["x"], np.where(x == 0, 0.0, -y / safe / safe))
    np.testing.assert_allclose(jacobian["y"], np.where(x == 0, 1.0, 1 / safe))


@pytest.mark.parametrize("function", MODELS, ids=lambda function: function.__name__)
def test_pullbacks_and_tangents_agree(function: Any, branches: Any) -> None:
    x, y = (axis.ravel() for axis in np.meshgrid([0.0, -0.5, 0.5, 2.0, -3.0], [0.0, 1.5, -0.5, -2.5, 3.0]))
    weights = np.linspace(-1, 1, x.size)

    def products() -> list[Any]:
        f = differentiable_broadcast(backend="cpu")(function)
        return [*f.vjp(x, y)[1](weights), *f.jvp((x, y), (weights, weights))]

    found = products()
    branches()
    for ours, theirs in zip(found, products(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-300)


def test_control_by_element_computes_what_is_shared_once() -> None:
    r = np.random.default_rng(3)
    gates = r.normal(size=(4, 33, 70)).astype("f4")
    control = (r.random((2, 33, 70)) < 0.5).astype("f4")
    f = differentiable_broadcast(backend="cpu", wrt=tuple("cfig"))(cell_update)
    value, jacobian = f.value_and_jacobian(*gates, *control)
    wanted, partials = cell_update_by_hand(*gates, *control)
    np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-6)
    for name, partial in partials.items():
        np.testing.assert_allclose(jacobian[name], partial, rtol=1e-5, atol=1e-6)
    text = f.inspect_source(*gates, *control)
    element = text[text.index("def cell_update") :]
    code = "\n".join(line.partition("#")[0] for line in element.splitlines())
    assert code.count("tanh(") == 1
    assert not re.search(r"^ *(if|elif|else)\b", code, re.MULTILINE)


def test_an_update_calls_no_function_twice() -> None:
    f = differentiable_broadcast(backend="cpu", wrt=tuple("cfig"))(cell_update)
    text = f.inspect_source(*["float32"] * 6)
    element = text[text.index("def cell_update") :]
    code = [line.partition("#")[0] for line in element.splitlines()[1:]]
    called = [
        name for line in code for name in re.findall(r"(\w+)\(", line) if name not in ("select", "fabs", "submul")
    ]
    assert sorted(called) == ["exp", "exp", "tanh"]


def test_explain_says_what_becomes_of_branches() -> None:
    full, row = np.ones((4, 6), "f4"), np.ones((4, 1), "f4")
    f = differentiable_broadcast(backend="cpu", wrt=tuple("cfig"))(cell_update)
    by_element = f.explain(full, full, full, full, full, full)
    assert [line.partition("→")[2].split()[0] for line in by_element.branches] == ["select", "select"]
    assert "if z == 1:" in by_element.branches[0]
    assert by_element.branches[0] in str(by_element)
    mixed = f.explain(full, full, full, full, row, full)
    assert mixed.branches[0].endswith("branch (does not change within a row)")
    assert mixed.branches[1].endswith(f"branch ({LONGER})")
    assert f.explain("float32", "float32", "float32", "float32", "float32", "float32", cc=None).branches
