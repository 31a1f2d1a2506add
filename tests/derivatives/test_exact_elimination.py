"""The exact optimum of vertex elimination, beside all orders tried one by one, and beside costs found by hand."""

from __future__ import annotations

import itertools
import random

import pytest
from exact_elimination import LARGEST, least_cost

KINDS = ("unit", "constant", "varying")
Preds = dict[int, dict[int, str]]


def cost_of_order(preds: Preds, order: tuple[int, ...]) -> int:
    """The operations of eliminating vertices one after the other, by the rules of the model, edge by edge."""
    edges = {(u, v): kind for v, into in preds.items() for u, kind in into.items()}
    cost = 0
    for v in order:
        into = {u: kind for (u, end), kind in edges.items() if end == v}
        out = {w: kind for (start, w), kind in edges.items() if start == v}
        for (u, a), (w, b) in itertools.product(into.items(), out.items()):
            kinds = {a, b}
            cost += "unit" not in kinds and kinds != {"constant"}
            product = "varying" if "varying" in kinds else "constant" if "constant" in kinds else "unit"
            if (u, w) in edges:
                cost += 1
                product = "varying"
            edges[u, w] = product
        edges = {ends: kind for ends, kind in edges.items() if v not in ends}
    return cost


def is_path_between(preds: Preds, start: int, end: int) -> bool:
    return start == end or any(is_path_between(preds, start, before) for before in preds.get(end, {}))


def brute_force(preds: Preds, sources: set[int], sinks: set[int]) -> int:
    """The least of all orders."""
    vertices = sources | sinks | set(preds)
    used = {
        v
        for v in vertices
        if any(is_path_between(preds, u, v) for u in sources) and any(is_path_between(preds, v, w) for w in sinks)
    }
    kept = {v: {u: kind for u, kind in into.items() if u in used} for v, into in preds.items() if v in used}
    return min(cost_of_order(kept, order) for order in itertools.permutations(used - sources - sinks))


def random_graph(seed: int) -> tuple[Preds, set[int], set[int]]:
    """One to three sources, one to three sinks, and up to six vertices between them."""
    draw = random.Random(seed)
    inputs, inner, outputs = draw.randint(1, 3), draw.randint(1, 6), draw.randint(1, 3)
    density = draw.uniform(0.2, 0.9)
    # The numbers of vertices say nothing about their order.
    names = draw.sample(range(100), inputs + inner + outputs)
    preds: Preds = {}
    for v in range(inputs, len(names)):
        before = [u for u in range(min(v, inputs + inner)) if draw.random() < density]
        preds[names[v]] = {names[u]: draw.choice(KINDS) for u in before}
    return preds, set(names[:inputs]), set(names[inputs + inner :])


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_the_optimum_is_the_least_of_all_orders(first: int) -> None:
    for seed in range(first, first + 50):
        graph = random_graph(seed)
        assert least_cost(*graph) == brute_force(*graph), seed


def test_orders_differ() -> None:
    """Else the comparison with all orders would say little."""
    different = 0
    for seed in range(100):
        preds, sources, sinks = random_graph(seed)
        orders = itertools.permutations(set(preds) - sources - sinks)
        different += len({cost_of_order(preds, order) for order in orders}) > 1
    assert different > 40


def product(length: int) -> tuple[Preds, set[int], set[int]]:
    """x0 · x1 · … by a chain of products, the last of which is the output."""
    preds = {length + 1: {0: "varying", 1: "varying"}}
    preds |= {length + at: {at: "varying", length + at - 1: "varying"} for at in range(2, length)}
    return preds, set(range(length)), {2 * length - 1}


def test_a_product_takes_two_multiplications_a_factor() -> None:
    """From the output back: each factor but the first two has an edge of its own, and one to hand on."""
    assert least_cost(*product(2)) == 0
    assert least_cost(*product(3)) == 2
    assert least_cost(*product(10)) == 2 * 8
    assert least_cost(*product(LARGEST + 2)) == 2 * LARGEST
    assert least_cost(*product(LARGEST + 3)) is None


def test_costs_by_hand() -> None:
    # Two paths of two steps each from 0 to 3: two products and a sum.
    assert least_cost({1: {0: "varying"}, 2: {0: "varying"}, 3: {1: "varying", 2: "varying"}}, {0}, {3}) == 3
    # 2 (x + x²): a sum, which varies, and its product with the constant.
    assert least_cost({1: {0: "varying"}, 2: {0: "unit", 1: "unit"}, 3: {2: "constant"}}, {0}, {3}) == 2
    # Five directions through one narrow vertex to five outputs: the chain before it is shared.
    wide = {v: {5: "varying"} for v in range(7, 12)} | {5: {6: "varying"}, 6: dict.fromkeys(range(5), "varying")}
    assert least_cost(wide, set(range(5)), set(range(7, 12))) == 5 + 25
    # Nothing between.
    assert least_cost({1: {0: "varying"}}, {0}, {1}) == 0


def test_what_no_partial_needs_costs_nothing() -> None:
    chain = {1: {0: "varying"}, 2: {1: "varying"}}
    from_nowhere, to_nowhere = {8: {7: "varying"}, 2: {1: "varying", 8: "varying"}}, {9: {1: "varying", 0: "varying"}}
    assert least_cost(chain | from_nowhere | to_nowhere, {0}, {2}) == least_cost(chain, {0}, {2}) == 1


@pytest.mark.parametrize(
    ("preds", "end"), [({0: {1: "unit"}, 1: {0: "unit"}}, "source 0"), ({3: {2: "unit"}}, "sink 2")]
)
def test_sources_and_sinks_are_ends(preds: Preds, end: str) -> None:
    with pytest.raises(ValueError, match=end):
        least_cost(preds, {0}, {2})
