"""Elimination of the vertices between sources and results: the orders and their costs, and that partials are right in
each order, and the same whichever of them are asked for.
"""

from __future__ import annotations

import itertools
import math
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest
from bits import same_bits
from corpus import CORPUS, Case
from corpus_calls import expected
from exact_elimination import least_cost
from forced_ways import WAYS, forced
from ir_invariants import verify_single_assignment
from models import cell_update
from run_ir import execute
from run_ir import lowered as lowered_case
from suites import sampled
from test_exact_elimination import cost_of_order, random_graph

from dualbcast import differentiable_broadcast, num_threads
from dualbcast.autodiff.eliminate import Kind, Plan, cheapest_order
from dualbcast.cli import checking
from dualbcast.frontend.lower import lower
from dualbcast.ir.nodes import Function
from dualbcast.ir.simplification import simplify
from dualbcast.program import pipeline
from dualbcast.program.derived_functions import jacobian_of
from dualbcast.program.explain import operations
from dualbcast.program.products import make_product

V, C, U = "varying", "constant", "unit"
KINDS = {V: Kind.VARYING, C: Kind.CONSTANT, U: Kind.UNIT}
Graph = dict[int, dict[int, str]]
# The backends and ways to differentiate that a function is tested on.
HOW = pytest.mark.parametrize(("backend", "way"), [*(("python", way) for way in WAYS), ("cpu", "natural")])
EVERY = pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)


def lowered(function: Any, arity: int) -> Function:
    return lower(function, ["float"] * arity).function


def executed(function: Function, columns: Any) -> dict[str | None, Any]:
    """The outputs by name."""
    return dict(zip([output.name for output in function.outputs], execute(function, columns), strict=True))


def count(function: Function) -> int:
    return sum(operations(function).values())


# --- orders -----------------------------------------------------------------------------------------------------------


def plan_of(graph: Graph, ends: set[int]) -> Plan:
    return cheapest_order({at: {u: KINDS[kind] for u, kind in into.items()} for at, into in graph.items()}, ends)


def product_graph(length: int) -> Graph:
    """x0 · x1 · …: sources below `length`, and a chain of products."""
    graph: Graph = {length: {0: V, 1: V}}
    return graph | {length + at: {length + at - 1: V, at + 1: V} for at in range(1, length - 1)}


@pytest.mark.parametrize("length", [3, 4, 7, 20])
def test_a_product_is_eliminated_from_its_end(length: int) -> None:
    """Forward, the first k factors have k partials, each to be multiplied by the next factor."""
    plan = plan_of(product_graph(length), {2 * length - 2})
    assert plan.costs["reverse" if length > 3 else plan.name] == 2 * (length - 2)
    assert plan.order == tuple(range(2 * length - 3, length - 1, -1))
    if length > 3:
        assert plan.costs["forward"] == sum(range(2, length))


def test_one_source_of_many_results_is_eliminated_forward() -> None:
    """y1 = f(x), and then y_k of y_{k-1} and of x: forward, there is one partial each."""
    graph: Graph = {1: {0: V}, 2: {0: V, 1: V}, 3: {0: V, 2: V}, 4: {0: V, 3: V}}
    graph |= {10 + at: {at: V} for at in range(1, 5)}
    plan = plan_of(graph, {11, 12, 13, 14})
    # To each of 1 to 3 two results, or one and the next value: a product each, and a sum in the latter.
    assert plan.costs["forward"] == 3 * (2 + 1) + 1
    assert plan.name == "forward"
    assert plan.order == (1, 2, 3, 4)
    assert plan.costs["reverse"] > plan.costs["forward"]


def test_the_vertex_with_the_fewest_ways_is_not_always_first() -> None:
    """Five sources, a vertex on one of them again, and five results."""
    graph: Graph = {10: dict.fromkeys(range(5), V), 11: {10: V, 0: V}}
    graph |= {20 + at: {11: V} for at in range(5)}
    plan = plan_of(graph, set(range(20, 25)))
    # 10 first: five products, of which one meets an edge there is; then five by five.
    assert plan.costs["forward"] == 5 + 1 + 25
    # 11 first: two by five products; then five by five, of which five meet an edge.
    assert plan.costs["reverse"] == 10 + 25 + 5
    assert plan.order == (10, 11)


def test_a_graph_that_is_wide_at_both_ends_takes_neither_forward_nor_reverse() -> None:
    """Two halves: one from a source to many results, and one from many sources to a result, in one region."""
    fan_out: Graph = {at: {at - 1: V, 0: V} if at > 1 else {0: V} for at in range(1, 7)}
    fan_out |= {20 + at: {at: V} for at in range(1, 7)}
    fan_in = {100 + at: {u + 100: kind for u, kind in into.items()} for at, into in product_graph(8).items()}
    ends = {20 + at for at in range(1, 7)} | {114}
    plan = plan_of(fan_out | fan_in, ends)
    # Forward in the first half: two products and a sum for each vertex but the last. Reverse in the second.
    best = (5 * 3 + 1) + 2 * 6
    assert best <= plan.costs[plan.name] <= 1.1 * best
    assert plan.costs["forward"] > plan.costs[plan.name] < plan.costs["reverse"]


@pytest.mark.parametrize(
    ("kinds", "cost"),
    [((V, V, V), 2), ((U, V, U), 0), ((C, V, C), 2), ((C, C, V), 1), ((C, C, C), 0), ((V, U, V), 1), ((C, U, C), 0)],
)
def test_a_chain_costs_the_products_of_numbers_that_are_not_known(kinds: tuple[str, ...], cost: int) -> None:
    plan = plan_of({at + 1: {at: kind} for at, kind in enumerate(kinds)}, {len(kinds)})
    assert set(plan.costs.values()) == {cost}


def test_parallel_ways_cost_a_sum() -> None:
    plan = plan_of({1: {0: V}, 2: {0: V}, 3: {1: V, 2: U}}, {3})
    assert set(plan.costs.values()) == {1 + 1}
    # Two constants in parallel: their sum counts as a number that is not known.
    plan = plan_of({1: {0: C}, 2: {0: C}, 3: {1: C, 2: C}, 4: {3: V}}, {4})
    assert plan.costs[plan.name] == least_cost({1: {0: C}, 2: {0: C}, 3: {1: C, 2: C}, 4: {3: V}}, {0}, {4})


def test_ends_and_sources_stay() -> None:
    plan = plan_of({1: {0: V}, 2: {1: V}}, {1, 2})
    assert plan == Plan((), "forward", {"forward": 0})


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_costs_are_those_of_the_orders(first: int) -> None:
    """By the rules of the model, edge by edge; and the least of all orders is not far."""
    chosen = least = 0
    for seed in range(first, first + 100):
        preds, sources, sinks = random_graph(seed)
        # In the order of computation, and without vertices that no source reaches.
        graph: Graph = {}
        pending = {v: into for v, into in preds.items() if v not in sources}
        while ready := [v for v, into in pending.items() if not pending.keys() & into.keys()]:
            graph |= {v: {u: k for u, k in pending[v].items() if u in sources or graph.get(u)} for v in ready}
            pending = {v: into for v, into in pending.items() if v not in ready}
        graph = {v: into for v, into in graph.items() if into}
        needed = _before(graph, sinks)
        graph = {v: into for v, into in graph.items() if v in needed}
        plan = plan_of(graph, sinks)
        assert sorted(plan.order) == sorted(graph.keys() - sinks)
        assert plan.costs[plan.name] == min(plan.costs.values()) == cost_of_order(graph, plan.order), seed
        optimum = least_cost(preds, sources, sinks)
        assert optimum is not None
        assert plan.costs[plan.name] >= optimum
        chosen, least = chosen + plan.costs[plan.name], least + optimum
    assert chosen <= 1.03 * least


def _before(graph: Graph, ends: set[int]) -> set[int]:
    found, pending = set(ends), [*ends]
    while pending:
        new = graph.get(pending.pop(), {}).keys() - found
        found |= new
        pending += new
    return found


# --- how many operations ----------------------------------------------------------------------------------------------


def price(spot: float, strike: float, rate: float, volatility: float, time: float) -> float:
    spread = volatility * math.sqrt(time)
    d = (math.log(spot / strike) + rate * time) / spread + spread / 2
    return spot * math.erfc(-d) - strike * math.exp(-rate * time) * math.erfc(spread - d)


@pytest.mark.parametrize("arity", [8, 16, 32])
def test_a_product_takes_operations_for_each_factor_and_not_for_each_two(arity: int) -> None:
    """Its factors come from branches, as the experiment of the paper has them."""
    function = lowered(checking.product, arity)
    counts = {}
    for way in ("natural", "forward"):
        with forced(way):
            counts[way] = count(simplify(jacobian_of(function, range(arity)).function))
    assert counts["natural"] < 10 * arity
    assert counts["forward"] > arity * arity / 2


def test_no_order_takes_fewer_operations_than_the_one_chosen() -> None:
    """But for what simplification saves: it is right to a twentieth."""
    cell, stress = (lambda *x: cell_update(*x)), (lambda a, b, c: (a * b, b * c, c * a, a + b))
    for function, arity in ((price, 5), (checking.product, 8), (cell, 6), (stress, 3)):
        f, counts = lowered(function, arity), {}
        for way in WAYS:
            with forced(way):
                counts[way] = count(simplify(jacobian_of(f, range(arity)).function))
        assert counts["natural"] <= 1.05 * min(counts.values()), counts


def test_a_gpu_has_the_partials_forward() -> None:
    """More values are alive at a time on the way back, and registers are what it has few of."""
    product = make_product(lowered(checking.product, 16), "value_and_jacobian", range(16))
    assert count(product.forward) > 1.5 * count(product.function)
    assert [output.name for output in product.forward.outputs] == [output.name for output in product.function.outputs]
    call = differentiable_broadcast(checking.product)._inspected(["float32"] * 16, None, "value_and_jacobian")
    cuda, cpu = (call.spec.source(call.plan.geometry.layout, target).text for target in ("cuda", "cpu"))
    assert cuda.count(" * ") > 1.5 * cpu.count(" * ")


# --- which partials ---------------------------------------------------------------------------------------------------


def gated(a: float, b: float, c: float, d: float, e: float, f: float) -> float:
    """Branches in a chain: each reads what one before it has made."""
    u = a * b + c
    v = math.sin(u) * d if u > 0.3 else u * d * e
    w = v * e + u
    x = math.exp(w) if v > 0 else 1 / (1 + w * w)
    return x * f + math.cos(v) * w


def counted(a: float, b: float, c: float, d: float, e: float, f: float) -> float:
    """A loop in a branch in the middle."""
    u = a * b * c + d
    if u > 0.4:
        v = u * d
        while v > 0.2:
            v = v * math.sin(u)
    else:
        v = u + d
    return math.exp(v * f) * u * a + b * e


def wide_branch(a: float, b: float, c: float, d: float, e: float, f: float) -> tuple[float, float]:
    """A branch that reads two values, each of all arguments, with results that go on together."""
    u = a * b * c - d * e * f
    v = math.tanh(a + 2 * b + 3 * c) * math.cos(d - e + f)
    if u > v:
        s, t = math.sin(u * v) * u, math.exp(v) - u
        s = s * t
    elif u < -1:
        s = t = u / (2 + v * v)
    else:
        s, t = v, u * u
    return s * t + a, math.atan2(s, 2 + t * t)


def exactly(function: Any, arguments: Any) -> Any:
    """A function of numbers, computed by mpmath."""
    names = {**function.__globals__, "math": mpmath}
    return type(function)(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)(
        *arguments
    )


@cache
def points_and_partials(function: Any) -> tuple[Any, dict[tuple[int, int], Any]]:
    """Some points, and for each output and argument mpmath's differences of the function there."""
    arity = function.__code__.co_argcount
    points = np.random.default_rng(5).uniform(0.2, 1.4, (arity, 24))
    wanted = {}
    for at, output in itertools.product(range(arity), range(2 if function is wide_branch else 1)):

        def along(x: Any, point: Any, at: int = at, output: int = output) -> Any:
            results = exactly(function, [*map(mpmath.mpf, point[:at]), x, *map(mpmath.mpf, point[at + 1 :])])
            return results[output] if isinstance(results, tuple) else results

        column = [mpmath.diff(lambda x, point=point, along=along: along(x, point), point[at]) for point in points.T]
        wanted[output, at] = np.array(column, float)
    return points, wanted


@HOW
@pytest.mark.parametrize("function", [price, gated, counted, wide_branch], ids=lambda function: function.__name__)
def test_partials(function: Any, backend: str, way: str) -> None:
    """Beside mpmath's differences of the same function, which must be written for it."""
    points, wanted = points_and_partials(function)
    with forced(way):
        _, jacobian = differentiable_broadcast(backend=backend)(function).value_and_jacobian(*points)
    for block, partials in wanted.items():
        np.testing.assert_allclose(jacobian[block], partials, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("case", sampled(CORPUS, 2), ids=lambda case: case.name)
def test_every_way_gives_the_partials_of_the_oracle(case: Case) -> None:
    function, columns = lowered_case(case), [*zip(*case.points, strict=True)]
    slopes = [slopes for _, slopes in expected(case, "float64")]
    for way in WAYS:
        with forced(way):
            dual = jacobian_of(function, case.floats)
        found = executed(verify_single_assignment(simplify(verify_single_assignment(dual.function))), columns)
        for output, at in itertools.product(range(len(function.outputs)), case.floats):
            wanted = np.array([float(each[output][at]) for each in slopes])
            error = abs(found.get(dual.partials.get((output, at)), 0.0) - wanted) / (1 + abs(wanted))
            assert np.all(error <= case.allowance * np.finfo(float).eps), f"{way}: partial of {output} in {at}"


def cancelled(x: float, y: float) -> tuple[float, ...]:
    """The partials of `a` are sums of 1 and -1: it depends on nothing, and neither does what is made of it alone."""
    a = ((x - y) - x) + y
    s = a if a < 1 else 2.0
    t = math.exp(s)
    u = a * y + s * x
    for _ in range(3):
        u = u + a * u + x
        a = a + (y - x) + (x - y)
    return a, t, u, x * y + s * t


@HOW
def test_ways_that_cancel_out_leave_no_partial(backend: str, way: str) -> None:
    with forced(way):
        f = differentiable_broadcast(backend=backend)(cancelled)
        value, jacobian = f.value_and_jacobian(np.array([3.0]), np.array([2.0]))
    np.testing.assert_array_equal([each[0] for each in value], [0, 1, 9, 6])
    wanted = [[0, 0], [0, 0], [3, 0], [2, 3]]
    np.testing.assert_array_equal([[jacobian[i, at][0] for at in range(2)] for i in range(4)], wanted)


# --- presence ---------------------------------------------------------------------------------------------------------


def skipped(a: float, b: float, c: float, d: float) -> float:
    """At a = b = 0 the root's slope is infinite, and the value does not depend on it."""
    u = math.sqrt(a * b)
    v = u * c if d > 0 else c
    return v * d * c


def chosen(a: float, b: float, c: float, d: float) -> float:
    return np.where(d > 0, math.sqrt(a * b) * c, c) * d * c


@HOW
@pytest.mark.parametrize("function", [skipped, chosen], ids=lambda function: function.__name__)
def test_what_is_not_there_is_not_multiplied_by_infinity(function: Any, backend: str, way: str) -> None:
    with forced(way):
        f = differentiable_broadcast(backend=backend)(function)
        _, jacobian = f.value_and_jacobian(np.zeros(2), np.zeros(2), np.full(2, 3.0), np.full(2, -2.0))
    np.testing.assert_array_equal([jacobian[at] for at in range(4)], [[0, 0], [0, 0], [-12, -12], [9, 9]])


def root_of_a_side(a: float, b: float, c: float, d: float, e: float) -> float:
    u = a * b * c * d * e
    side = b / c if a > 0 else d
    w = u * e + e
    z = w * w * u
    return z * math.exp(z) + b + c + d + math.sqrt(side)


@HOW
def test_a_side_that_is_not_taken_is_not_multiplied_by_infinity(backend: str, way: str) -> None:
    """The root's slope is infinite at 0."""
    with forced(way):
        f = differentiable_broadcast(backend=backend)(root_of_a_side)
        _, jacobian = f.value_and_jacobian(*np.array([[-1.0], [2.0], [5.0], [0.0], [0.0]]))
    assert [jacobian[at].tolist() for at in range(5)] == [[0.0], [1.0], [1.0], [math.inf], [0.0]]


# --- bits -------------------------------------------------------------------------------------------------------------


def fused(function: Function) -> Function:
    """As kernels have it."""
    return pipeline.run(pipeline.product(fused=True), function)


@EVERY
def test_bits_do_not_depend_on_the_parameters_that_are_asked_for(case: Case) -> None:
    function, columns = lowered_case(case), [*zip(*case.points, strict=True)]
    whole = jacobian_of(function, case.floats)
    values = executed(fused(whole.function), columns)
    for at in case.floats:
        dual = jacobian_of(function, (at,))
        assert {place for place in whole.partials if place[1] == at} == set(dual.partials)
        found = executed(fused(dual.function), columns)
        for place, name in dual.partials.items():
            same_bits(found[name], values[whole.partials[place]])


COMPILED = [price, gated, counted, wide_branch]


@pytest.mark.parametrize("function", COMPILED, ids=lambda function: function.__name__)
def test_bits_of_machine_code_do_not_depend_on_the_parameters_or_on_threads(function: Any) -> None:
    f = differentiable_broadcast(backend="cpu")(function)
    arity = function.__code__.co_argcount
    x = np.random.default_rng(0).uniform(0.2, 0.8, (arity, 40_003))
    with num_threads(1):
        _, whole = f.value_and_jacobian(*x)
    with num_threads(3):
        _, again = f.value_and_jacobian(*x)
    outputs = range(2 if function is wide_branch else 1)
    for name in function.__code__.co_varnames[:arity]:
        _, some = f.value_and_jacobian(*x, wrt=name)
        for output in outputs:
            same_bits(again[output, name], whole[output, name])
            same_bits(some[output, name], whole[output, name])
