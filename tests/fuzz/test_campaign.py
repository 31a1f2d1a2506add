"""The campaign: a slice of it, programs that have failed once, its log, and its oracle of the edges of the format."""

from __future__ import annotations

import ast
import math
import os
import re
from pathlib import Path
from typing import Any

import campaign
import ieee
import numpy as np
import pytest
from campaign import Failure, examine_drawn, main, run_range
from choices import drawn, redrawn, shrunk
from click.testing import CliRunner
from edges import at_an_edge, is_edge
from examine import Mismatch, Tally, expectations, hold
from found_before import CASES
from log import Log
from oracles import independences, rebuild
from products import PRODUCTS, examine_products
from program import Program
from test_planted import BUGS, plant

SLICE, LONG = range(1_000_000, 1_000_012), range(1_000_012, 1_000_132)
GRAPHS, LONG_GRAPHS = range(1_000_000, 1_000_002), range(1_000_002, 1_000_033)


def _said(failures: list[Failure]) -> str:
    return "\n\n".join(
        f"{each.seed}: {each.error}\n{(each.small or each.program or {}).get('text')}" for each in failures
    )


@pytest.mark.parametrize("seeds", [SLICE, pytest.param(LONG, marks=pytest.mark.slow)], ids=str)
def test_a_slice_of_programs(seeds: range):
    tally, failures, _ = run_range("programs", seeds, apart=False)
    assert not failures, _said(failures)
    assert tally.programs == len(seeds)
    assert tally.comparisons["value at an edge"] > len(seeds) and tally.comparisons["derivative at an edge"] > len(
        seeds
    )
    if len(seeds) > 100:
        for product in (*(set(PRODUCTS) - {"value", "jacobian"}), "value alone", "derivative alone"):
            assert tally.comparisons[product] > len(seeds) // 10, product


@pytest.mark.parametrize("name", CASES)
def test_what_failed_once(name: str):
    program = CASES[name]
    for seed in (0, 1):  # the ordinary way, and the campaign's
        examine_drawn(program, seed, Tally())
    with np.errstate(all="ignore"):
        examine_products(program, expectations(program, Tally()), Tally(), backend="cpu")


# --- the log ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Seeds of programs that fail, where all others pass at once; the ranges are short."""
    failing: set[int] = set()

    def examine(seed: int, tally: Tally) -> Failure | None:
        tally.programs += 1
        tally.comparisons["value"] += seed
        return Failure(seed, "Mismatch: planted") if seed in failing else None

    monkeypatch.setitem(campaign.EXAMINE, "programs", examine)
    monkeypatch.setitem(campaign.RANGE, "programs", 10)
    monkeypatch.setattr(campaign, "_warm", lambda: None)
    return failing


def _run(path: Path, *options: str) -> str:
    result = CliRunner().invoke(main, ["--log", str(path), *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.usefixtures("quick")
def test_a_campaign_goes_on_where_its_log_ends(tmp_path: Path):
    path = tmp_path / "log.jsonl"
    _run(path, "--programs", "40", "--shard", "1/2")
    assert Log(path).done("programs") == {10, 30}
    with open(path, "a", encoding="utf-8") as file:
        file.write('{"what": "range", "ki')  # stopped in the middle of a line
    before = path.read_text().splitlines()
    said = _run(path, "--programs", "55")
    assert Log(path).done("programs") == {0, 10, 20, 30, 40, 50}
    assert path.read_text().splitlines()[: len(before)] == before
    summary = Log(path).summary("programs")
    assert summary.counts["programs"] == 55 and summary.comparisons == {"value": sum(range(55))}
    assert said.startswith("programs: 55 programs") and "0 are open" in said
    lines = path.read_text()
    assert _run(path, "--programs", "55") == said and path.read_text() == lines


def test_what_fails_is_open_until_it_passes(tmp_path: Path, quick: set[int]):
    path = tmp_path / "log.jsonl"
    quick |= {3, 17}
    assert "failed 2: 0 have passed since, 2 are open" in _run(path, "--programs", "20")
    quick.remove(3)
    said = _run(path, "--again")
    assert "programs 3: passes now" in said and "failed 2: 1 have passed since, 1 are open" in said
    assert list(Log(path).summary("programs").failed) == [17]


@pytest.mark.usefixtures("quick")
def test_what_ends_its_process_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    examine = campaign.EXAMINE["programs"]
    monkeypatch.setitem(
        campaign.EXAMINE, "programs", lambda seed, tally: os._exit(1) if seed == 4 else examine(seed, tally)
    )
    said = _run(tmp_path / "log.jsonl", "--programs", "10")
    assert "9 programs" in said and "open: seed 4: the process died of it" in said


def test_a_shard_that_is_none_is_refused(tmp_path: Path):
    result = CliRunner().invoke(main, ["--log", str(tmp_path / "log"), "--shard", "2/2"])
    assert result.exit_code == 2 and "0/2: the first of two" in result.output


# --- programs --------------------------------------------------------------------------------------------------------


def test_a_seed_is_a_program_and_so_are_its_choices():
    program, choices = drawn(7)
    assert repr(drawn(7)[0]) == repr(program) != repr(drawn(8)[0])
    again, writer = redrawn(program, choices)
    assert again.text == program.text and writer.made == choices


def test_every_loop_ends():
    """A `while` counts, and ends by its count: in its test, or by a break. The test of 36725 speaks of the count."""
    loops = 0
    for seed in (*range(200), 36725):
        for loop in ast.walk(ast.parse(drawn(seed)[0].text)):
            if isinstance(loop, ast.While):
                loops += 1
                tests = loop.test.values if isinstance(loop.test, ast.BoolOp) else [loop.test]
                count = ast.unparse(loop.body[0]).removesuffix(" += 1")
                leaves = [
                    part for part in loop.body[1:2] if isinstance(part, ast.If) and isinstance(part.body[0], ast.Break)
                ]
                ends = [ast.unparse(test) for test in (*tests, *[leave.test for leave in leaves])]
                assert any(re.fullmatch(rf"{count} [<>] \d", end) for end in ends), ast.unparse(loop)
    assert loops > 50


def test_arguments_are_what_the_points_say():
    layouts = 0
    for seed in range(60):
        program, _ = drawn(seed)
        # A whole array is the last argument, and no column.
        for argument, column, dtype in zip(program.arguments, program.columns, program.dtypes, strict=False):
            np.testing.assert_array_equal(program.flat(np.asarray(argument, dtype)), column)
            if isinstance(argument, np.ndarray):
                layouts += not argument.flags.c_contiguous or argument.shape != program.shape
    assert layouts > 40


@pytest.mark.slow
def test_a_planted_bug_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch):
    bug = next(bug for bug in BUGS if bug.what == "the sign of a negated partial forgotten")
    plant(bug, monkeypatch)
    seed = next(seed for seed in range(200) if _mismatches(drawn(seed)[0]))
    program, choices = drawn(seed)
    small = shrunk(program, choices, _mismatches)
    assert _mismatches(small) and len(small.text) < len(program.text) / 2, small


def _mismatches(program: Program) -> bool:
    try:
        examine_drawn(program, 1, Tally())
    except Mismatch:
        return True
    except Exception:
        return False
    return False


# --- the edges of the format -----------------------------------------------------------------------------------------


def _values(text: str, *point: Any, single: bool = False) -> tuple[Any, ...]:
    program = Program("import math\nimport numpy as np\n\n\n" + text, ("x", "y"), ("float",) * 2, (), None, 0, single)
    with ieee.arithmetic(single=single):
        return ieee.values(ieee.rebuilt(program.function), point)


@pytest.mark.parametrize(
    ("expression", "x", "y", "expected"),
    [
        ("x / y", 1.0, 0.0, math.inf),
        ("x / y", 1.0, -0.0, -math.inf),
        ("x / y", 0.0, 0.0, math.nan),
        ("1 / x", -math.inf, 0.0, -0.0),
        ("x * y", 1e200, -1e200, -math.inf),
        ("math.exp(x)", 800.0, 0.0, math.inf),
        ("math.log(x)", 0.0, 0.0, -math.inf),
        ("math.sqrt(x)", -1.0, 0.0, math.nan),
        ("math.sin(x)", math.inf, 0.0, math.nan),
        ("math.lgamma(x)", -2.0, 0.0, math.inf),
        ("x ** y", 0.0, -2.0, math.inf),
        ("x ** y", -8.0, 0.5, math.nan),
        ("x % y", -5.0, math.inf, math.inf),
        ("x % y", 5.0, 0.0, math.nan),
        ("max(x, y)", math.nan, 1.0, math.nan),
        ("max(x, y)", 1.0, math.nan, 1.0),
        ("np.maximum(x, y)", 1.0, math.nan, math.nan),
        ("2.0 if x < y else 3.0", math.nan, 1.0, 3.0),
        ("math.copysign(x, y)", 2.0, -0.0, -2.0),
        ("sum((x, y))", math.inf, -math.inf, math.nan),
    ],
)
def test_floats_that_never_raise(expression: str, x: float, y: float, expected: float):
    (found,) = _values(f"def f(x, y):\n    return {expression}\n", x, y)
    np.testing.assert_array_equal(float(found), expected)
    assert math.copysign(1, found) == math.copysign(1, expected) or math.isnan(expected)


def test_float32_overflows_where_it_does():
    text = "def f(x, y):\n    return x * x, x * 0.1\n"
    assert _values(text, 1e30, 0.0) == (1e30 * 1e30, 1e30 * 0.1)
    x = np.float32(1e30)
    assert _values(text, x.item(), 0.0, single=True) == (math.inf, float(x * np.float32(0.1)))


def test_no_integer_is_made_of_nan():
    with pytest.raises(ieee.NoInteger):
        _values("def f(x, y):\n    return math.floor(x)\n", math.nan, 0.0)


def test_arguments_near_the_ends_of_the_format_have_no_derivatives_to_compare():
    text = "import math\n\n\ndef f(x, y):\n    return math.atan2(x, 1.5 + abs(y))\n"
    program = Program(text, ("x", "y"), ("float", "float"), (1,), None, 3, False, shape=(4000,), edges=0.5)
    tally = Tally()
    points = map(program.point, range(4000))
    at = next(at for at, (x, y) in enumerate(points) if 1e200 < abs(x) < math.inf and 1e-3 < abs(y) < 10)
    want = at_an_edge(program, at, tally, 2)
    assert want is not None
    assert want.slopes == ({},)
    assert tally.skipped["edge: derivative near the ends of the format"] == 1


def test_the_sign_of_a_nan_is_open():
    tally = Tally()
    program = _edged("import math\n\n\ndef f(x):\n    return math.copysign(1.0, math.fmod(x, 1.25))\n")
    at = next(at for at in range(200) if math.isinf(program.point(at)[0]))
    assert at_an_edge(program, at, tally, 2) is None
    assert tally.skipped["edge: the value is ill-conditioned"] == 1


def _edged(text: str, **how: Any) -> Program:
    return Program(text, ("x",), ("float",), (0,), None, 3, False, shape=(200,), edges=1.0, **how)


def test_values_are_held_at_edges_and_derivatives_where_they_are_safe():
    program = _edged("def f(x):\n    return x * x\n")
    tally = Tally()
    found = {program.point(at)[0]: at_an_edge(program, at, tally, 2) for at in range(200) if is_edge(program.point(at))}
    assert any(math.isinf(x) for x in found) and any(0 < abs(x) < 1e-20 for x in found)
    for x, want in found.items():
        assert want is not None
        np.testing.assert_array_equal(want.values, (x * x,))
        if 1e-130 < abs(x) < 1e130:
            assert want.slopes == ({0: 2 * x},)
        if not math.isfinite(x):
            assert want.slopes == ({},)
    assert tally.skipped["edge: derivative at an infinity or NaN"] > 0


def test_a_derivative_that_is_absent_is_zero_at_an_infinity():
    program = _edged("def f(x):\n    return (x if x < 0 else 1.0), x * 2.0\n")
    points = {program.point(at)[0]: at for at in range(200)}
    expected = {sign: at_an_edge(program, points[sign * math.inf], Tally(), 2) for sign in (-1, 1)}
    assert [want and want.slopes for want in expected.values()] == [({}, {}), ({0: 0.0}, {})]


@pytest.mark.parametrize("function", [lambda x, y: np.maximum(x, y), lambda x, y: np.minimum(x, y)])
@pytest.mark.parametrize(("point", "absent"), [((math.nan, 1.0), 1), ((1.0, math.nan), 0)])
def test_the_larger_and_the_smaller_of_a_nan_and_a_number_depend_on_the_nan(
    function: Any, point: tuple[float, float], absent: int
):
    (found,) = independences(rebuild(function), point, (0, 1))
    assert found == {absent}


@pytest.mark.parametrize(
    ("found", "wanted"), [(1.0, math.nan), (math.nan, 1.0), (math.inf, -math.inf), (1e308, math.inf)]
)
def test_nan_and_infinities_are_not_close_to_anything(found: float, wanted: float):
    program = _edged("def f(x):\n    return x\n")
    hold(program, "here", 0, "a number", wanted, wanted, 0.0)
    with pytest.raises(Mismatch, match="should be"):
        hold(program, "here", 0, "a number", found, wanted, 1.0)


def test_what_is_nan_to_python_alone_is_not_compared():
    tally = Tally()
    expectations(_edged("def f(x):\n    return x, int((x, 1) == (x, 1))\n"), tally)
    assert tally.skipped["edge: a NaN in a tuple is itself to Python"] > 0


# --- graphs, last: processes are not forked when JAX has been imported ------------------------------------------------


@pytest.mark.parametrize("seeds", [GRAPHS, pytest.param(LONG_GRAPHS, marks=pytest.mark.slow)], ids=str)
def test_a_slice_of_graphs(seeds: range):
    pytest.importorskip("jax")
    tally, failures, _ = run_range("graphs", seeds, apart=False)
    assert not failures, _said(failures)
    assert tally.programs == len(seeds)
    assert tally.comparisons["second derivatives"] > 0 and tally.comparisons["second derivatives of mixed dtypes"] > 0
