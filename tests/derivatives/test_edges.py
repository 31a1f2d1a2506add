"""Products and sums of partials of which some are absent, beside numbers with a mark of whether they are there."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any, NamedTuple

import numpy as np
import pytest
from run_ir import execute

from dualbcast.autodiff.presence import UNIT, Edge, EdgeBuilder
from dualbcast.ir.nodes import FALSE, NOWHERE, ONE, TRUE, Atom, Const, Function, Names, Output, Var
from dualbcast.ir.traversal import operations_of

# Two conditions of branches, and whether a loop has had its first iteration.
T, U, LATE = (Var(name, "bool") for name in ("t", "u", "late"))
ROWS = np.array([*itertools.product((True, False), repeat=3)])
P, Q = Var("p", "float"), Var("q", "float")
WHEN_T = frozenset({(T, True)})
NAMES = ["t", "u", "late", "p", "q"]


class Number(NamedTuple):
    """A partial in each row, and whether it is there."""

    value: np.ndarray[Any, Any]
    there: np.ndarray[Any, Any]

    def __mul__(self, other: Number) -> Number:
        return _number(self.value * other.value, self.there & other.there)

    def __add__(self, other: Number) -> Number:
        return _number(self.value + other.value, self.there | other.there)


def _number(value: Any, there: Any) -> Number:
    """An absent partial is zero."""
    return Number(np.where(there, value, 0.0), np.broadcast_to(there, len(ROWS)))


class Drawing:
    """Draws edges, and numbers that they should stand for."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.out = EdgeBuilder(Names(NAMES))
        self.params: list[Var] = [T, U, LATE]
        self.columns: list[Any] = [*ROWS.T]

    def run(self, *atoms: Atom) -> list[np.ndarray[Any, Any]]:
        """The values of atoms in each row."""
        outputs = tuple(Output(f"out{at}", atom) for at, atom in enumerate(atoms))
        return execute(Function("f", tuple(self.params), tuple(self.out.block), outputs), self.columns)

    def flag(self) -> tuple[Atom, np.ndarray[Any, Any]]:
        """The conjunction of conditions."""
        flag, there = TRUE, np.full(len(ROWS), True)
        for test, column in zip((T, U), ROWS.T, strict=False):
            match self.random.choice(("", "", "is", "is not")):
                case "is":
                    flag, there = self.out.both(flag, test, NOWHERE), there & column
                case "is not":
                    flag, there = self.out.both(flag, self.out.opposite(test, NOWHERE), NOWHERE), there & ~column
        return flag, there

    def edge(self) -> tuple[Edge, Number]:
        """A local partial, or one from a branch or a loop."""
        draw, every = self.random, np.full(len(ROWS), True)
        factor = draw.choice((1.0, 1.0, -1.0, 2.0, -0.5))
        kind = draw.choice(("constant", "choice", "number", "number", "branch", "first iterations"))
        if kind == "constant":
            return Edge(Const(factor, "float"), is_fixed=True, is_finite=True), _number(factor, every)
        flag, there = self.flag()
        conditions = self.out.conditions(flag)
        if kind == "choice":
            return Edge(ONE, factor, flag, conditions, is_fixed=True, is_finite=True), _number(factor, there)
        value = np.array([draw.choice((2.0, 3.0, -5.0, 0.0, math.inf)) for _ in ROWS])
        has_poles, unmasked = draw.random() < 0.4, frozenset[Any]()
        if kind == "number":
            flag, there = TRUE, every
        elif kind == "first iterations":
            flag, there = LATE, ROWS[:, 2]
        elif draw.random() < 0.5:
            unmasked = frozenset(draw.sample(sorted(conditions, key=repr), min(len(conditions), 1)))
        # A partial is finite in the first iterations if it has no poles.
        value = np.where(ROWS[:, 2] | has_poles, value, np.where(np.isfinite(value), value, 7.0))
        given = np.where(there, value, 0.0)
        for test, result in unmasked:
            given = np.where(ROWS[:, int(test == U)] == result, given, math.nan)
        name = self.out.names.fresh("p")
        self.params.append(Var(name, "float"))
        self.columns.append(given)
        edge = Edge(Var(name, "float"), factor, flag, unmasked, kind == "first iterations", has_poles)
        return edge, _number(factor * value, there)

    def tree(self, depth: int) -> tuple[Edge, Number] | None:
        """A sum of products of edges; None if there is no way."""
        if not depth:
            return self.edge()
        one, other = self.tree(depth - 1), self.tree(depth - 1)
        if self.random.random() < 0.5:
            if one is None or other is None:
                return one or other
            return self.out.total(one[0], other[0], NOWHERE), one[1] + other[1]
        if one is None or other is None:
            return None
        product = self.out.product(one[0], other[0], NOWHERE)
        if product is None:
            assert not (one[1] * other[1]).there.any()
            return None
        return product, one[1] * other[1]


@pytest.mark.parametrize("depth", [1, 2, 3])
@np.errstate(invalid="ignore")
def test_sums_and_products_are_those_of_numbers_that_are_there(depth: int) -> None:
    drawn = 0
    for seed in range(150):
        drawing = Drawing(seed)
        found = drawing.tree(depth)
        if found is None:
            continue
        edge, number = found
        exact, flag = drawing.run(drawing.out.exact(edge, NOWHERE), edge.flag)
        np.testing.assert_array_equal(flag, number.there, err_msg=str(seed))
        np.testing.assert_array_equal(exact, number.value, err_msg=str(seed))
        drawn += 1
    assert drawn > 75


# --- one by one -------------------------------------------------------------------------------------------------------


def built() -> EdgeBuilder:
    return EdgeBuilder(Names(NAMES))


def written(out: EdgeBuilder) -> list[str]:
    """The operations that a builder has appended."""
    return [op.name for op in operations_of(tuple(out.block))]


def product(one: Edge, other: Edge) -> tuple[Edge, list[str]]:
    out = built()
    edge = out.product(one, other, NOWHERE)
    assert edge is not None
    return edge, written(out)


def test_a_product_with_a_constant_takes_no_operation() -> None:
    assert product(UNIT, Edge(P)) == (Edge(P), [])
    assert product(Edge(P, -1.0), UNIT) == (Edge(P, -1.0), [])
    two, minus = (
        Edge(Const(2.0, "float"), is_fixed=True, is_finite=True),
        Edge(ONE, -1.0, is_fixed=True, is_finite=True),
    )
    assert product(two, Edge(P)) == product(Edge(P), two) == (Edge(P, 2.0), [])
    assert product(minus, Edge(P, -3.0)) == (Edge(P, 3.0), [])
    assert product(minus, minus) == (UNIT, [])


def test_constants_go_through_products() -> None:
    assert product(Edge(P, -2.0), Edge(Q, 3.0))[1] == ["mul"]
    assert product(Edge(P, -2.0), Edge(Q, 3.0))[0].factor == -6.0


def test_constants_whose_product_is_large_are_not_multiplied() -> None:
    """They could overflow, where the product of all does not."""
    edge, operations = product(Edge(P, 1e5), Edge(Q, 1e5))
    assert edge.factor == 1e5
    assert operations == ["mul", "mul"]
    assert product(Edge(P, 1e30), Edge(Q, -1.0))[0].factor == -1e30


def test_a_product_is_multiplied_by_a_constant_itself_and_has_the_sign_of_an_operand() -> None:
    """Several products may share that."""
    for factor, operations in ((2.0, ["mul", "mul"]), (-1.0, ["mul", "neg", "mul"])):
        out = built()
        edge = out.product(Edge(P, factor), Edge(Q), NOWHERE)
        assert edge is not None
        out.exact(edge, NOWHERE)
        assert written(out) == operations


@pytest.mark.parametrize(
    ("factors", "operations", "factor"),
    [
        ((1.0, 1.0), ["add"], 1.0),
        ((1.0, -1.0), ["sub"], 1.0),
        ((-1.0, 1.0), ["sub"], 1.0),
        ((-1.0, -1.0), ["add"], -1.0),
        ((2.0, 2.0), ["add"], 2.0),
        ((2.0, -2.0), ["sub"], 2.0),
        ((-2.0, 1.0), ["mul", "sub"], 1.0),
        ((-2.0, -3.0), ["mul", "mul", "add"], -1.0),
    ],
)
def test_a_sum_takes_one_operation_with_any_signs(
    factors: tuple[float, float], operations: list[str], factor: float
) -> None:
    out = built()
    one, other = (Edge(partial, each) for partial, each in zip((P, Q), factors, strict=True))
    total = out.total(one, other, NOWHERE)
    assert written(out) == operations
    assert total.factor == factor


def test_a_product_of_edges_with_contradictory_flags_is_none() -> None:
    out = built()
    then, orelse = Edge(P, 1.0, T), Edge(Q, 1.0, out.opposite(T, NOWHERE))
    written_before = written(out)
    assert out.product(then, orelse, NOWHERE) is None
    assert out.product(then, Edge(Q, 1.0, out.both(U, orelse.flag, NOWHERE)), NOWHERE) is None
    assert [name for name in written(out) if name == "mul"] == []
    assert written_before == ["not"]
    assert out.product(then, Edge(Q, 1.0, U), NOWHERE) is not None


def test_a_sum_of_edges_of_which_one_is_there_takes_one_select() -> None:
    """Of the two sides of a select: their sum is always there."""
    out = built()
    then, orelse = (
        Edge(P, 1.0, T, WHEN_T, is_fixed=True, is_finite=True),
        Edge(Q, 1.0, out.opposite(T, NOWHERE), frozenset({(T, False)}), is_fixed=True, is_finite=True),
    )
    total = out.total(then, orelse, NOWHERE)
    assert (total.flag, total.unmasked) == (TRUE, frozenset())
    assert [name for name in written(out) if name not in ("not", "or")] == ["select"]


def test_a_sum_of_edges_with_one_flag_and_one_mask_keeps_both() -> None:
    out = built()
    total = out.total(Edge(P, 1.0, T, WHEN_T), Edge(Q, 1.0, T, WHEN_T), NOWHERE)
    assert (total.flag, total.unmasked) == (T, WHEN_T)
    assert written(out) == ["add"]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_sum_of_edges_with_one_flag_masks_the_one_that_may_be_any_number(is_first: bool) -> None:
    out = built()
    edges = [Edge(P, 1.0, T, WHEN_T), Edge(Q, 1.0, T)]
    total = out.total(*(edges if is_first else edges[::-1]), NOWHERE)
    assert (total.flag, total.unmasked) == (T, frozenset())
    assert written(out) == ["select", "add"]


def test_a_product_is_masked_by_a_flag_unless_the_factor_is_finite() -> None:
    """A zero that stands for an absent partial stays zero beside a finite constant, and not beside another number."""
    there = Edge(P, 1.0, T)
    edge, _ = product(there, Edge(Const(2.0, "float"), is_fixed=True, is_finite=True))
    assert (edge.flag, edge.unmasked) == (T, frozenset())
    edge, _ = product(there, Edge(Q))
    assert (edge.flag, edge.unmasked) == (T, WHEN_T)
    edge, _ = product(Edge(Q, has_poles=True), there)
    assert (edge.flag, edge.unmasked) == (T, WHEN_T)


def test_a_partial_of_later_iterations_is_masked_beside_a_pole_alone() -> None:
    begins = Edge(P, 1.0, LATE, begins=True)
    edge, _ = product(begins, Edge(Q))
    assert (edge.begins, edge.unmasked) == (True, frozenset())
    edge, _ = product(begins, Edge(Q, has_poles=True))
    assert (edge.begins, edge.unmasked) == (False, frozenset({(LATE, True)}))
    # Nor is what is absent for another reason zero.
    edge, _ = product(begins, Edge(Q, 1.0, T))
    assert (edge.begins, edge.unmasked) == (False, WHEN_T)


@pytest.mark.parametrize(
    ("other", "begins"), [(Edge(Q, 1.0, LATE, begins=True), True), (Edge(Q, 1.0, T), False), (Edge(Q), False)]
)
def test_a_sum_is_absent_in_first_iterations_alone_if_both_are(other: Edge, begins: bool) -> None:
    out = built()
    assert out.total(Edge(P, 1.0, LATE, begins=True), other, NOWHERE).begins == begins
    assert out.total(other, Edge(P, 1.0, LATE, begins=True), NOWHERE).begins == begins


@pytest.mark.parametrize(("name", "combined"), [("has_poles", any), ("is_fixed", all), ("is_finite", all)])
def test_what_is_known_of_products_and_sums(name: str, combined: Any) -> None:
    for kinds in itertools.product((False, True), repeat=2):
        out = built()
        edges = [Edge(partial, **{name: kind}) for partial, kind in zip((P, Q), kinds, strict=True)]
        for combine in (out.product, out.total):
            assert getattr(combine(*edges, NOWHERE), name) == combined(kinds)


def test_flags_of_constants() -> None:
    out = built()
    assert out.both(TRUE, T, NOWHERE) == out.both(T, TRUE, NOWHERE) == out.both(T, T, NOWHERE) == T
    assert out.both(FALSE, T, NOWHERE) == FALSE
    assert out.conjunction(frozenset(), NOWHERE) == TRUE
    assert out.conditions(TRUE) == frozenset()
    assert out.exact(Edge(ONE), NOWHERE) == ONE
    assert written(out) == []
