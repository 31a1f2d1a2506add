"""How many operations a value and its Jacobian take, beside the counts of `operation_counts.json`: those of forward and
reverse mode, which elimination has replaced. Both sides of a branch count.

`--update-golden` writes the table in docs/reference/operations.md; it adds functions to the JSON file, but changes no
count that is in it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from corpus import CORPUS
from exact_elimination import least_cost

from bench.paper.models import cell_update
from dualbcast import differentiable_broadcast
from dualbcast.cli.checking import product as product_of_tanh
from dualbcast.ir import nodes
from dualbcast.ir.traversal import blocks, expressions, known_iterations
from dualbcast.program import pipeline
from dualbcast.rules.table import RULES, add_later_rows

sys.path.append(str(Path(__file__).parents[2] / "bench"))

import bench_cliffs
import bench_matrix
import policy
import problems

add_later_rows()

BEFORE = Path(__file__).with_name("operation_counts.json")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "operations.md"
DTYPES: dict[type, str] = {float: "float64", int: "int64", bool: "bool"}


class Counts(NamedTuple):
    """Additions to divisions, of which a fused one is two, and calls such as exp, as they are written; the same with
    eight iterations of a loop, or fewer if it is known to have fewer; and all operations, with comparisons, signs and
    selects, of which a fused one is one."""

    arithmetic: int
    executed: int
    operations: int


class Case(NamedTuple):
    """A function, the dtypes of its arguments, the parameters of its derivatives, and what is computed."""

    function: Callable[..., Any]
    dtypes: Sequence[str]
    wrt: Sequence[Any] | None = None
    product: str = "value_and_jacobian"

    def counts(self) -> Counts:
        # Anew, also if it was decorated: nothing that was compiled before is taken.
        function = differentiable_broadcast(getattr(self.function, "__wrapped__", self.function))
        call = function._inspected(self.dtypes, self.wrt, self.product)
        body = pipeline.run(pipeline.plain(), call.spec.product.function).body
        written, executed = repeated(body, 1), repeated(body, 8)
        arithmetic = [sum(ARITHMETIC.get(name, name in CALLS) for name in names) for names in (written, executed)]
        return Counts(*arithmetic, len(written))


ARITHMETIC = {**dict.fromkeys(nodes.ARITHMETIC - {"neg"}, 1), **dict.fromkeys(nodes.FUSED, 2)}
CALLS = RULES.keys() - {"ceil", "copysign", "fabs", "floor", "rint", "sqrt", "trunc"}


def repeated(block: nodes.Block, most: int) -> list[str]:
    """The names of the operations on atoms in a block, those of a loop as often as it runs, but for this limit."""
    names: list[str] = []
    for stmt in block:
        names += [expr.name for expr in expressions(stmt) if isinstance(expr, nodes.Op)]
        known = known_iterations(stmt) if isinstance(stmt, nodes.For) else None
        times = 1 if isinstance(stmt, nodes.If) else most if known is None else min(known, most)
        names += [name for inner in blocks(stmt) for name in repeated(inner, most)] * times
    return names


def runge_kutta_step(angle: float, speed: float, length: float, friction: float) -> tuple[float, float]:
    """A pendulum with air drag after one step of Runge and Kutta's method."""

    def force(angle: float, speed: float) -> float:
        return -9.81 / length * math.sin(angle) - friction * speed * abs(speed)

    h = 0.02
    a = force(angle, speed)
    b = force(angle + h / 2 * speed, speed + h / 2 * a)
    c = force(angle + h / 2 * (speed + h / 2 * a), speed + h / 2 * b)
    d = force(angle + h * (speed + h / 2 * b), speed + h * c)
    return angle + h * (speed + h * (a + b + c) / 6), speed + h * (a + 2 * b + 2 * c + d) / 6


def runge_kutta_pendulum(angle: float, speed: float, length: float, friction: float) -> tuple[float, float]:
    """The pendulum after 25 steps."""
    for _ in range(25):
        angle, speed = runge_kutta_step(angle, speed, length, friction)
    return angle, speed


STRAINS = ("xx", "yy", "zz", "xy", "xz", "yz")
NAMED: dict[str, Case] = {
    "Runge-Kutta step of a pendulum": Case(runge_kutta_step, ["float64"] * 4),
    "Runge-Kutta pendulum": Case(runge_kutta_pendulum, ["float64"] * 4),
    "J2 plasticity": Case(problems.stress, ["float64"] * 7),
    "J2 plasticity, in the strains": Case(problems.stress, ["float64"] * 7, STRAINS),
    "Black-Scholes": Case(problems.call_price, ["float64"] * 5),
    "Black-Scholes, five Greeks": Case(problems.greeks, ["float64"] * 5, product="value"),
    **{f"product of {n} tanh": Case(product_of_tanh, ["float32"] * n) for n in (1, 2, 4, 8, 16, 32)},
    "HM-LSTM cell": Case(cell_update, ["float32"] * 6, ("c", "f", "i", "g")),
    "Kepler by Newton": Case(problems.eccentric_anomaly, ["float64"] * 2),
    "Kepler by Newton, derivative inside": Case(policy.kepler, ["float64"] * 2),
    "van der Pol's oscillator": Case(problems.oscillator, ["float64"] * 3),
    "logistic map": Case(policy.orbit, ["float64"] * 2),
    "tanh(x·w + b)": Case(problems.layer, ["float32"] * 3),
    "decay": Case(bench_matrix.decay, ["float64"] * 4, bench_matrix.PARAMETERS),
    "two nested loops": Case(bench_cliffs.two_loops, ["float64"] * 2),
    "three nested loops": Case(bench_cliffs.three_loops, ["float64"] * 2),
    "three nested while loops": Case(bench_cliffs.three_whiles, ["float64"] * 2),
    "five nested loops": Case(bench_cliffs.five_loops, ["float64"] * 2),
    "x ** y": Case(lambda x, y: x**y, ["float64"] * 2),
    "x % y": Case(lambda x, y: x % y, ["float64"] * 2),
    "gamma": Case(lambda x: math.gamma(x), ["float64"]),
    "log gamma": Case(lambda x: math.lgamma(x), ["float64"]),
    "sin(x) exp(-x²)": Case(lambda x: np.sin(x) * np.exp(-x * x), ["float64"]),
}
OF_CORPUS: dict[str, Case] = {
    case.name: Case(case.function, [DTYPES[type(arg)] for arg in case.points[0]], case.floats) for case in CORPUS
}
CASES = {**NAMED, **OF_CORPUS}
# At most so many additions, multiplications, divisions and calls.
MARKS = {"Runge-Kutta step of a pendulum": 165, "Black-Scholes": 85, "J2 plasticity": 155, "product of 32 tanh": 251}


@cache
def counts(name: str) -> Counts:
    return CASES[name].counts()


@pytest.fixture(scope="module")
def before(request: pytest.FixtureRequest) -> dict[str, Counts]:
    """The counts of the file."""
    found = {name: Counts(*each) for name, each in json.loads(BEFORE.read_text(encoding="utf-8")).items()}
    if request.config.getoption("--update-golden"):
        found = {name: found.get(name) or counts(name) for name in CASES}
        lines = ",\n".join(f"  {json.dumps(name, ensure_ascii=False)}: {[*each]}" for name, each in found.items())
        BEFORE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    return found


def test_every_function_has_a_count(before: dict[str, Counts]) -> None:
    assert list(before) == list(CASES)


@pytest.mark.parametrize("name", CASES)
def test_no_function_takes_many_more(name: str, before: dict[str, Counts]) -> None:
    then = before[name].arithmetic
    # Of fewer than fifty operations, one is more than two in a hundred. It may take more before a loop for fewer in it.
    takes_fewer = counts(name).executed < before[name].executed
    assert takes_fewer or counts(name).arithmetic <= max(1.02 * then, then + 1)


def test_the_corpus_takes_fewer(before: dict[str, Counts]) -> None:
    now, then = (sum(each[name].arithmetic for name in OF_CORPUS) for each in (counted(), before))
    assert now <= 0.95 * then


@pytest.mark.parametrize("name", MARKS)
def test_marks(name: str) -> None:
    assert counts(name).arithmetic <= MARKS[name]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("nothing_kept")
def test_orders_are_close_to_the_optimum(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all graphs that are small enough, those of attempts that were dropped among them."""
    from dualbcast.autodiff import linearize

    choose, graphs = linearize.cheapest_order, []

    def recorded(edges: Mapping[int, Mapping[int, Any]], ends: Set[int], *, forward: bool = False) -> Any:
        plan = choose(edges, ends, forward=forward)
        if not forward:
            graphs.append((edges, ends, min(plan.costs.values())))
        return plan

    monkeypatch.setattr(linearize, "cheapest_order", recorded)
    CASES[name].counts()
    for edges, ends, cost in graphs:
        preds = {vertex: {u: kind.name.lower() for u, kind in into.items()} for vertex, into in edges.items()}
        least = least_cost(preds, set().union(*preds.values()) - preds.keys(), ends)
        assert least is None or least <= cost <= 1.03 * least, preds


def counted() -> dict[str, Counts]:
    return {name: counts(name) for name in CASES}


# --- the page --------------------------------------------------------------------------------------------------------

TEXT = """\
# Operation counts

The tables have the operations of a function's value and its Jacobian, as [`explain`](dualbcast.md) counts them: both
sides of a branch, and the body of a loop once. *Arithmetic* counts additions, subtractions, multiplications, divisions
and calls of functions such as `exp`; a fused multiply-add counts as two. *Executed* counts eight iterations of a loop,
or as many as it has. *All* counts comparisons, selects and signs as well, and a fused multiply-add as one. *Before* is
the count of forward mode or reverse mode, whichever the compiler estimated to be shorter, before it eliminated vertices
of a graph of local partials.

`tests/derivatives/test_operation_counts.py` writes this page, and asserts that no function takes 2 % more
arithmetic than before, or one operation if it has fewer than fifty.

## Benchmarks

The functions are those of `bench/`. The five Greeks are a value, whose derivatives are inside the function.

{named}

## The corpus

These are the functions of `tests/oracles/corpus.py`.

{corpus}
"""


def row(name: str, now: Counts, then: Counts) -> str:
    """A line of a table; it has a ratio where the count has changed."""
    cells = [name]
    for new, old in zip(now, then, strict=True):
        cells += [str(old), str(new), "" if new == old else f"{new / old:.2f}" if old else "∞"]
    return f"| {' | '.join(cells)} |"


def table(cases: dict[str, Case], before: dict[str, Counts], quoted: bool) -> str:
    """A line for each function, and the sums."""

    def lines() -> Iterator[str]:
        yield "| | arithmetic before | now | ratio | executed before | now | ratio | all before | now | ratio |"
        yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
        for name in cases:
            yield row(f"`{name}`" if quoted else name, counts(name), before[name])
        sums = [Counts(*map(sum, zip(*(each[name] for name in cases), strict=True))) for each in (counted(), before)]
        yield row("sum", *sums)

    return "\n".join(lines())


def test_the_page_has_the_counts(before: dict[str, Counts], update_golden: bool) -> None:
    text = TEXT.format(named=table(NAMED, before, False), corpus=table(OF_CORPUS, before, True))
    if update_golden:
        PAGE.write_text(text, encoding="utf-8")
    assert text == PAGE.read_text(encoding="utf-8")
