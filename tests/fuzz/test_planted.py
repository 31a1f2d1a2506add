"""Bugs planted in the compiler, each of which the fuzzer must find: what it would miss is what it is not for."""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest
from bugs import BUGS, Bug
from program import Program
from session import Found, fuzz, program_of

from dualbcast import CompileError
from dualbcast.rules import library

# How many programs may be needed; most bugs take a few.
WITHIN = 1000
# Bugs that it takes many programs to find, minutes on a slow machine: `--fuzz 1000` looks for them, too.
RARE = {
    "activity not followed around loops: a silent zero",
    "partials handed on one after the other",
    "values handed on one after the other",
    "presence before a loop taken for that in each iteration",
    "a swap done one assignment after the other",
    "a temporary moved past an assignment to what it reads",
    "the flag of a product that of one factor",
    "the vertex of a value that a variable no longer has",
    "partials of carried variables without masks and signs",
    "own variables as sources beside jumps",
}
# From how many characters on a function has something to leave out.
LONG = 800


@pytest.fixture(scope="module", autouse=True)
def everything_imported() -> None:
    """A module first imported while a bug is planted would keep it for all that come after: import all before."""
    fuzz(range(20), cpu=False)


@pytest.fixture(autouse=True)
def fresh_caches() -> Iterator[None]:
    """What the compiler keeps of its own results is not kept between right and wrong ones."""
    _clear_caches()
    yield
    _clear_caches()


def _clear_caches() -> None:
    for name, module in list(sys.modules.items()):
        # Adapters keep what they have registered with other libraries, which refuse a second time.
        if name.split(".")[0] == "dualbcast" and not name.startswith("dualbcast.interop."):
            for member in list(vars(module).values()):
                if hasattr(member, "cache_clear"):
                    member.cache_clear()


def plant(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the module's functions the code that they have in its changed source."""
    monkeypatch.setattr("dualbcast.program.products.identity", lambda _: "")
    source = inspect.getsource(bug.module)
    if bug.module is library:
        from dualbcast.rules.table import RULES

        # Only the row counts; the table would refuse a second one of the name.
        monkeypatch.setitem(RULES, "tanh", _replaced_row(RULES["tanh"]))
        return
    planted, text, filename = ModuleType(bug.module.__name__), source.replace(bug.right, bug.wrong), f"<{bug.what}>"
    monkeypatch.setitem(linecache.cache, filename, (len(text), None, text.splitlines(True), filename))
    with monkeypatch.context() as meanwhile:
        meanwhile.setitem(sys.modules, planted.__name__, planted)  # for what looks itself up, as dataclasses do
        exec(compile(text, filename, "exec"), planted.__dict__)
    functions = _functions(planted)
    for name, function in _functions(bug.module).items():
        monkeypatch.setattr(function, "__code__", functions[name].__code__)


def _functions(module: ModuleType) -> dict[str, FunctionType]:
    """The functions and methods that a module defines, by their qualified names."""
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    members = [member for each in (module, *classes) for member in vars(each).values()]
    unwrapped = [inspect.unwrap(member) for member in members if callable(member)]
    functions = [member for member in unwrapped if isinstance(member, FunctionType)]
    # Not those that dataclasses write, whose globals are others.
    return {each.__qualname__: each for each in functions if each.__globals__ is vars(module)}


def _replaced_row(row: Any) -> Any:
    from dataclasses import replace

    return replace(row, partials=lambda x, y: (1.0 - y,))  # noqa: ARG005


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.what)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest):
    if bug.what in RARE and request.config.getoption("--fuzz") is None:
        pytest.skip("it takes many programs: --fuzz 1000")
    plant(bug, monkeypatch)
    with pytest.raises(Found) as found:
        fuzz(range(WITHIN), cpu=False, shrink=False)
    # A program refused, or a global name that the planted text has wrong, is no bug found.
    assert not isinstance(found.value.error, CompileError) and type(found.value.error) is not NameError, found.value
    print(f"{bug.what}: found at program {found.value.seed + 1}, {found.value.error!r:.200}")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.what)
def test_a_bug_has_a_place(bug: Bug):
    assert inspect.getsource(bug.module).count(bug.right) == 1, "the source has changed: plant this bug anew"


def test_rare_bugs_are_among_them():
    assert {bug.what for bug in BUGS} >= RARE


def _body(program: Program) -> str:
    return program.text.partition("def f(")[2]


@pytest.mark.slow
def test_a_found_bug_is_shrunk(monkeypatch: pytest.MonkeyPatch):
    plant(next(bug for bug in BUGS if bug.what == "negative terms added"), monkeypatch)
    # Else Hypothesis stops after five minutes, which a busy machine takes.
    monkeypatch.setattr("hypothesis.internal.conjecture.engine.MAX_SHRINKING_SECONDS", 3600)
    # Of the function itself: what stands before it hardly shrinks. Which program fails first depends on what else is
    # imported, since Hypothesis draws from the constants of local modules; so of those with something to leave out.
    long = (seed for seed in range(WITHIN) if len(_body(program_of(seed))) > LONG)
    with pytest.raises(Found) as found:
        fuzz(long, cpu=False)
    print(found.value)
    shrunk, original = _body(found.value.program), _body(found.value.original)
    assert len(shrunk.splitlines()) < 12 and len(shrunk) <= len(original) / 2


@pytest.mark.slow
def test_nothing_is_found_without_one():
    """The last test of the module, so that it also fails if a bug of an earlier one has stayed in."""
    fuzz(range(20), cpu=False)
