"""Random programs on the python and cpu backends against oracles; the generator itself; and what a failure looks like.

`pytest tests/fuzz --fuzz 20000 -n 2` is a long run; docs/background/testing.md has the rest.
"""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import sys
from typing import Any

import grammar
import pytest
from examine import Mismatch, Tally, compare, examine, expect, expectations
from program import Program
from session import Found, fuzz, program_of

# How many programs the default suite runs, and how many make one test.
DEFAULT, CHUNK = 24, 50
# Seconds for a chunk, shrinking included.
LONGEST = 1200.0
# A fuzzer that skips its points finds nothing.
MOST_SKIPPED = 0.25


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" in metafunc.fixturenames:
        count, first = metafunc.config.getoption("--fuzz"), metafunc.config.getoption("--fuzz-seed")
        last = first + (DEFAULT if count is None else count)
        chunk = 8 if count is None else CHUNK
        chunks = [range(at, min(at + chunk, last)) for at in range(first, last, chunk)]
        metafunc.parametrize("seeds", chunks, ids=[f"{seeds.start}-{seeds.stop - 1}" for seeds in chunks])


@pytest.fixture(autouse=True)
def features(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of the language that `--fuzz-with` adds."""
    wanted = {name for name in request.config.getoption("--fuzz-with").split(",") if name}
    unknown = wanted - grammar.UPCOMING - {"all"}
    assert not unknown, f"no such feature: {', '.join(unknown)}; there are {', '.join(sorted(grammar.UPCOMING))}"
    monkeypatch.setattr(grammar, "switched_on", set(grammar.UPCOMING) if "all" in wanted else wanted)


@pytest.fixture(scope="module")
def warm() -> None:
    """What a process imports and compiles before its first kernel, so that those forked from it need not."""
    examine(program_of(0), Tally())


@pytest.mark.gpu
@pytest.mark.parametrize("has_table", [False, True])
def test_random_programs_on_a_gpu(has_table: bool):
    pytest.importorskip("cupy")
    drawn = (program_of(seed) for seed in range(200))
    tally = Tally()
    for program in itertools.islice((each for each in drawn if each.has_table == has_table and each.wrt), 2):
        compare(program, "cuda", expectations(program, tally), tally)
    assert tally.comparisons["value"] > 5 and tally.comparisons["derivative"] > 5


@pytest.mark.usefixtures("warm")
def test_random_programs(
    seeds: range, request: pytest.FixtureRequest, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, record_property: Any
):
    # A folder that goes away, so that long runs do not fill the disk.
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path))
    is_long = request.config.getoption("--fuzz") is not None
    cpu = not request.config.getoption("--fuzz-python")
    tally, failure = (_apart if is_long and sys.platform != "win32" else _here)(seeds, cpu)
    skipped = {f"skipped: {name}": count for name, count in tally.skipped.items()}
    counts = {name: getattr(tally, name) for name in ("programs", "points", "slopes", "differenced")}
    record_property("fuzz", {**counts, **skipped})
    if failure:
        pytest.fail(failure, pytrace=False)
    if len(seeds) >= CHUNK:
        assert sum(tally.skipped.values()) <= MOST_SKIPPED * tally.points, tally
        assert tally.slopes > tally.points / 4, tally


def _here(seeds: range, cpu: bool) -> tuple[Tally, str]:
    """What was seen, and what was found."""
    tally = Tally()
    try:
        fuzz(seeds, tally, cpu=cpu)
    except Found as found:
        return tally, str(found)
    return tally, ""


def _apart(seeds: range, cpu: bool) -> tuple[Tally, str]:
    """The same in a process of its own: what compiling leaves behind goes with it, and it may crash or hang."""
    processes = multiprocessing.get_context("fork")
    receiver, sender = processes.Pipe(duplex=False)
    process = processes.Process(target=lambda: sender.send(_here(seeds, cpu)))
    gc.freeze()  # what is there now is not the collector's business in the other process, which saves a tenth
    process.start()
    sender.close()
    try:
        if receiver.poll(LONGEST):
            return receiver.recv()  # type: ignore[no-any-return]
        return Tally(), f"one of the programs {seeds} does not end"
    except EOFError:
        process.join()
        return Tally(), f"the process died of one of the programs {seeds}: exit code {process.exitcode}"
    finally:
        process.kill()
        process.join()


# --- the generator ---------------------------------------------------------------------------------------------------


def test_every_production_is_used_and_gives_python():
    grammar.used.clear()
    for seed in range(150):
        assert callable(program_of(seed).function)
    names = {
        entry.name
        for entries in grammar.TABLE.values()
        for entry in entries
        if not entry.feature or grammar.enabled(entry.feature)
    }
    assert not names - grammar.used.keys()


def test_a_seed_is_a_program():
    assert repr(program_of(7)) == repr(program_of(7)) != repr(program_of(8))


# --- what it says ----------------------------------------------------------------------------------------------------


def _program(text: str, names: str = "xy", **changes: Any) -> Program:
    settings: dict[str, Any] = {"wrt": tuple(range(len(names))), "scalar": None, "salt": 0, "single": False} | changes
    return Program(text=text, names=tuple(names), kinds=("float",) * len(names), **settings)


def test_a_wrong_derivative_is_a_mismatch(monkeypatch: pytest.MonkeyPatch):
    program = _program("def f(x, y):\n    return x * y\n")
    examine(program, Tally())
    examined = expect(program, 0, Tally())
    assert examined is not None
    x, y = program.point(0)
    assert examined.values == (x * y,)
    assert examined.slopes == ({0: y, 1: x},)
    wrong = type(examined)(
        examined.values, ({0: y, 1: x + 1e-9},), examined.value_tolerances, examined.slope_tolerances, examined.smooth
    )
    monkeypatch.setattr("examine.expect", lambda *_: wrong)
    with pytest.raises(Mismatch, match=r"d output 0 / d y is .*, and should be"):
        examine(program, Tally(), cpu=False)


def test_points_that_hang_on_a_rounding_are_skipped():
    tally = Tally()
    program = _program("import math\n\n\ndef f(x, y):\n    return x if math.sin(x) > math.sin(x + 0.0) else y\n")
    assert expect(program, 0, tally) is None
    assert tally.skipped == {"a decision hangs on a rounding": 1}


def test_ties_of_exact_numbers_are_not_skipped():
    tally = Tally()
    program = _program("def f(x, y):\n    return max(x + 1.0, 1.0 + x) * y\n")
    found = expect(program, 0, tally)
    assert found is not None
    assert not found.smooth
    assert not tally.skipped


def test_where_python_raises_nothing_is_compared():
    tally = Tally()
    program = _program("import math\n\n\ndef f(x, y):\n    return math.sqrt(x) if y > 9 else math.log(-1.0 - x * x)\n")
    assert expect(program, 0, tally) is None
    assert tally.skipped == {"Python raises": 1}
