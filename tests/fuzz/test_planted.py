"""Bugs planted in the compiler, each of which the fuzzer must find: what it would miss is what it is not for."""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
from program import Program
from session import Found, fuzz, program_of

from dualbcast import CompileError
from dualbcast.autodiff import activity, eliminate, linearize, loop_jacobians
from dualbcast.frontend import paths
from dualbcast.ir import simplification, traversal
from dualbcast.passes import readable_form
from dualbcast.rules import library

# How many programs may be needed; most bugs take a few.
WITHIN = 1000
# From how many characters on a function has something to leave out.
LONG = 800


@dataclass(frozen=True)
class Bug:
    """A fragment of a module's source, which must be there once, and what it is replaced by."""

    what: str
    module: ModuleType
    right: str
    wrong: str


BUGS = [
    Bug(
        "a product subtracted the wrong way round where both become one operation",
        simplification,
        'name=ir.MULADD if value.name == "add" else ir.SUBMUL',
        'name=ir.MULADD if value.name == "add" else ir.MULSUB',
    ),
    Bug(
        "a wrong sign where a term of the tangent is negated",
        linearize,
        'Op("sub", (self.emit(total, where), *term.args)',
        'Op("add", (self.emit(total, where), *term.args)',
    ),
    Bug(
        "no zero tangent for a name that is active on another path",
        linearize,
        "            self.set(self.tangent(stmt.target, seed)",
        "            if not terms.get(seed):\n                continue\n"
        "            self.set(self.tangent(stmt.target, seed)",
    ),
    Bug(
        "the partial of select's second side dropped",
        linearize,
        "self.tangent(then, seed), self.tangent(orelse, seed))",
        "self.tangent(then, seed), ir.ZERO)",
    ),
    Bug(
        "activity not followed around loops: a silent zero",
        activity,
        "                sets[name] = sets.get(name, _NONE) | more\n                changed = True",
        "                sets[name] = sets.get(name, _NONE) | more",
    ),
    Bug(
        "one of two uses of a name in one operation forgotten",
        linearize,
        "partial if total is None else self.emit(self.total([total, partial], where), where)",
        "partial",
    ),
    Bug(
        "a partial along a chain that forgets the one before",
        linearize,
        "partial = self.emit(self.product(partial, inner, where), where)",
        "partial = inner",
    ),
    Bug(
        "on the way back, a name that changes with the first of its readers only",
        eliminate,
        "before = cotangents.get(source.name)",
        "before = None",
    ),
    Bug(
        "in a loop's iteration, a result that does not depend on an earlier result",
        loop_jacobians,
        "new.get((source, seed)) if source in ends else self._old(",
        "self._old(",
    ),
    Bug(
        "value numbering that does not see a loop's assignments",
        simplification,
        "            self.renew(target)\n        before = self.state.copy()",
        "            pass\n        before = self.state.copy()",
    ),
    Bug(
        "after a branch, a name taken to hold what its first side gave it",
        simplification,
        "if number == orelse.get(name):",
        "if name in orelse:",
    ),
    Bug(
        "a common subexpression whose holder has another value by now",
        simplification,
        "if number is None or not self.holds(self.holders[number], number):",
        "if number is None:",
    ),
    Bug(
        "`continue` removed as dead code",
        traversal,
        "                is_needed = in_live_loop\n",
        "                is_needed = in_live_loop and isinstance(stmt, ir.Break)\n",
    ),
    Bug(
        "dead-code removal that drops what only a loop's next iteration needs",
        traversal,
        "    while size != len(live):\n        size = len(live)\n        body = _live(",
        "    if size != len(live):\n        size = len(live)\n        body = _live(",
    ),
    Bug(
        "a temporary moved past an assignment to what it reads",
        readable_form,
        "                    new += self.flush(self.touched({stmt.target.name}))\n",
        "",
    ),
    Bug(
        "a swap done one assignment after the other",
        paths,
        "if not any(target in variables(other) for _, other in others):",
        "if True:",
    ),
    Bug(
        "a wrong row of the rule table",
        library,
        'rule("sinh", lambda x, y: (math.cosh(x),)',
        'rule("sinh", lambda x, y: (math.cosh(y),)',
    ),
]


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
        if name.split(".")[0] == "dualbcast":
            for member in list(vars(module).values()):
                if hasattr(member, "cache_clear"):
                    member.cache_clear()


def plant(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the module's changed source, and put its functions where the package uses them."""
    monkeypatch.setattr("dualbcast.program.products.identity", lambda _: "")
    source = inspect.getsource(bug.module)
    assert source.count(bug.right) == 1, "the source has changed: plant this bug anew"
    if bug.module is library:
        from dualbcast.rules.table import RULES

        # Only the row counts; the table would refuse a second one of the name.
        monkeypatch.setitem(RULES, "tanh", _replaced_row(RULES["tanh"]))
        return
    planted, text, filename = ModuleType(bug.module.__name__), source.replace(bug.right, bug.wrong), f"<{bug.what}>"
    monkeypatch.setitem(linecache.cache, filename, (len(text), None, text.splitlines(True), filename))
    monkeypatch.setitem(sys.modules, bug.module.__name__, planted)  # for what looks itself up, as dataclasses do
    exec(compile(text, filename, "exec"), planted.__dict__)
    functions = {name: value for name, value in vars(bug.module).items() if not name.startswith("_")}
    # The module itself too: others may call its functions by way of it, and `sys.modules` no longer holds it.
    for user in [bug.module, *sys.modules.values()]:
        if getattr(user, "__name__", "").startswith("dualbcast"):
            for name, function in functions.items():
                if getattr(user, name, None) is function:
                    monkeypatch.setattr(user, name, getattr(planted, name))


def _replaced_row(row: Any) -> Any:
    from dataclasses import replace

    return replace(row, partials=lambda x, y: (1.0 - y,))  # noqa: ARG005


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.what)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch):
    plant(bug, monkeypatch)
    with pytest.raises(Found) as found:
        fuzz(range(WITHIN), cpu=False, shrink=False)
    # A program refused, or a global name that the planted text has wrong, is no bug found.
    assert not isinstance(found.value.error, CompileError) and type(found.value.error) is not NameError, found.value
    print(f"{bug.what}: found at program {found.value.seed + 1}, {found.value.error!r:.200}")


def _body(program: Program) -> str:
    return program.text.partition("def f(")[2]


@pytest.mark.slow
def test_a_found_bug_is_shrunk(monkeypatch: pytest.MonkeyPatch):
    plant(BUGS[2], monkeypatch)
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
    assert sys.modules["dualbcast.autodiff.linearize"] is linearize
    fuzz(range(20), cpu=False)
