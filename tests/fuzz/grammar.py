"""The machinery of the program generator: the table of productions, and the writer that draws from it.

A production writes a piece of Python and may ask the writer for parts of it; `expressions.py` and `statements.py` hold
them. What is drawn first among alternatives is what Hypothesis shrinks to, so simple productions stand first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from hypothesis import strategies as st

__all__ = [
    "TABLE",
    "UPCOMING",
    "Frame",
    "Kind",
    "Production",
    "Signature",
    "Writer",
    "bare",
    "closed",
    "enabled",
    "production",
]

# Parts of Python that kernels do not have yet. Their productions are off, but for `--fuzz-with`, until they leave here.
UPCOMING: frozenset[str] = frozenset()
switched_on: set[str] = set()

# Kinds of names. A tuple's kind is the tuple of its items' kinds.
Kind = str | tuple[str, ...]
Make = Callable[..., Any]

# What new names are taken from.
FRESH: dict[str, Sequence[str]] = {
    "float": "abcdeghuvw",
    "int": "ijkl",
    "bool": "pqr",
    "tuple": "st",
    "function": "GHK",
    "helper": ("helper", "other"),
}
# How deep expressions and blocks may nest, and how many operations one statement should have.
DEEPEST_EXPRESSION, DEEPEST_BLOCK, LARGEST_EXPRESSION = 4, 4, 5


@dataclass(frozen=True)
class Production:
    """One way to write something of a sort: a kind of expression, or a statement.

    `leaf` says that it asks for no parts, `when` whether it can be used at this place, `feature` which part of the
    language it needs where that is not there yet.
    """

    name: str
    make: Make
    weight: int
    leaf: bool
    when: Callable[[Writer], bool]
    feature: str


TABLE: dict[str, list[Production]] = {}
used: dict[str, int] = {}


def production(
    sort: str,
    weight: int = 1,
    *,
    leaf: bool = False,
    when: Callable[[Writer], bool] = lambda writer: True,  # noqa: ARG005
    feature: str = "",
) -> Callable[[Make], Make]:
    """Enter a function into the table."""

    def enter(make: Make) -> Make:
        name = f"{sort}: {make.__name__.strip('_').replace('_', ' ')}"
        TABLE.setdefault(sort, []).append(Production(name, make, weight, leaf, when, feature))
        return make

    return enter


def enabled(feature: str) -> bool:
    return feature not in UPCOMING or feature in switched_on


@dataclass(frozen=True)
class Signature:
    """What a call of a function needs, and what it gives.

    Each parameter is (name, kind, "positional", "default" or "keyword").
    """

    params: tuple[tuple[str, str, str], ...]
    results: tuple[str, ...]


@dataclass
class Frame:
    """The function being written: the names it may read and assign, and where in it the writer is."""

    results: tuple[str, ...]
    # What the results are packed in: nothing, "one" (a tuple of one), "nested", "list".
    form: str = ""
    names: dict[str, Kind] = field(default_factory=dict)
    functions: dict[str, Signature] = field(default_factory=dict)
    # Names of this function, but for those that a loop relies on.
    owned: set[str] = field(default_factory=set)
    depth: int = 0
    # The depth of its `def`.
    top: int = 0
    loops: tuple[str, ...] = ()
    loop_depth: int = 0
    is_nested: bool = False
    # Inside a lambda or comprehension, where `:=` would assign another name.
    is_inner: bool = False

    def of(self, kind: Kind, *, assignable: bool = False) -> list[str]:
        """The names of a kind."""
        return [name for name, its in self.names.items() if its == kind and (name in self.owned or not assignable)]


@cache
def _below(count: int) -> st.SearchStrategy[int]:
    return st.integers(0, count - 1)


@st.composite
def _part(draw: Any, writer: Writer, make: Make, args: tuple[Any, ...]) -> Any:
    outer, writer.draw = writer.draw, draw
    try:
        return make(writer, *args)
    finally:
        writer.draw = outer


class Writer:
    """Draws productions and collects what they write."""

    def __init__(self, draw: Any, budget: int) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.taken: set[str] = set()
        self.budget = budget
        self.nodes = 0
        self.frame = Frame(("float",))

    # --- drawing -------------------------------------------------------------------------------------------------

    def below(self, count: int) -> int:
        return int(self.draw(_below(count))) if count > 1 else 0

    def pick(self, *options: Any) -> Any:
        return options[self.below(len(options))]

    def likely(self, times: int, of: int) -> bool:
        """True `times` out of `of`; shrinks to False."""
        return self.below(of) >= of - times

    def part(self, make: Make, *args: Any) -> Any:
        """What a production writes, as a unit that can be shrunk away."""
        return self.draw(_part(self, make, args))

    def choose(self, sort: str, *, leaf: bool = False) -> Production:
        """A production of a sort that can be used here."""
        options = [
            option
            for option in TABLE[sort]
            if (option.leaf or not leaf) and (not option.feature or enabled(option.feature)) and option.when(self)
        ]
        at = self.below(sum(option.weight for option in options))
        for option in options:
            at -= option.weight
            if at < 0:
                used[option.name] = used.get(option.name, 0) + 1
                return option
        raise AssertionError(sort)

    # --- expressions ---------------------------------------------------------------------------------------------

    def expr(self, kind: str, depth: int = 1) -> str:
        """An expression of a kind, in parentheses where it needs them."""
        self.nodes += 1
        leaf = depth > DEEPEST_EXPRESSION or self.nodes > LARGEST_EXPRESSION
        return str(self.part(self.choose(kind, leaf=leaf).make, depth + 1))

    def fresh_expr(self, kind: str, depth: int = 1) -> str:
        """An expression that stands on its own: without outer parentheses, with a size of its own."""
        self.nodes = 0
        return bare(self.expr(kind, depth))

    def exprs(self, kinds: Sequence[str], depth: int = 1) -> str:
        return ", ".join(bare(self.expr(kind, depth)) for kind in kinds)

    def name(self, kind: Kind) -> str:
        names = self.frame.of(kind)
        # A comprehension or lambda is for its own name.
        return names[0] if self.frame.is_inner and self.likely(1, 3) else str(self.pick(*names))

    @contextmanager
    def inside(self, *names: str, kind: Kind = "float") -> Iterator[None]:
        """In a lambda or comprehension, with names of its own."""
        frame, before, was_inner = self.frame, self.frame.names, self.frame.is_inner
        frame.names, frame.is_inner = {**dict.fromkeys(names, kind), **before}, True
        yield
        frame.names, frame.is_inner = before, was_inner

    def tuple_kinds(self) -> list[tuple[str, ...]]:
        """The kinds of tuples at hand."""
        return list(dict.fromkeys(kind for kind in self.frame.names.values() if isinstance(kind, tuple)))

    # --- statements ----------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append("    " * self.frame.depth + text)

    def fresh(self, sort: str) -> str:
        """A name that the program does not have yet."""
        for name in FRESH[sort]:
            if name not in self.taken:
                break
        else:
            number = 1
            while (name := f"{FRESH[sort][0]}{number}") in self.taken:
                number += 1
        self.taken.add(name)
        return name

    def bind(self, name: str, kind: Kind) -> None:
        """A name is assigned here."""
        self.frame.names[name] = kind
        self.frame.owned.add(name)

    def block(self) -> bool:
        """Statements one level deeper; False where they end in a jump. Names from inside stay in `frame.names`."""
        self.frame.depth += 1
        start, falls = len(self.lines), True
        while falls and self.budget > 0 and (len(self.lines) == start or self.below(3)):
            falls = self.statement()
        if len(self.lines) == start:
            self.line("pass")
        self.frame.depth -= 1
        return falls

    def statement(self) -> bool:
        """Write a statement; False where nothing after it is reached."""
        self.budget -= 1
        self.nodes = 0
        return self.part(self.choose("statement").make) is not False

    def sides(self, *makes: Callable[[], bool]) -> bool:
        """Blocks of which one runs; what all that reach their end assign can be read afterwards."""
        frame, before, functions = self.frame, dict(self.frame.names), dict(self.frame.functions)
        ends: list[dict[str, Kind]] = []
        for make in makes:
            frame.names, frame.functions = dict(before), dict(functions)
            if make():
                ends.append(frame.names)
        frame.functions = functions
        first = ends[0] if ends else before
        frame.names = {name: kind for name, kind in first.items() if all(end.get(name) == kind for end in ends)}
        return bool(ends)

    def loop(self, how: str, *locked: str, extra: dict[str, Kind] | None = None, orelse: bool = True) -> None:
        """The block of a loop; what it assigns first cannot be read afterwards, `locked` names are not assigned in it.

        Sometimes with an `else` where it may have one, which may not run either.
        """
        frame, owned = self.frame, self.frame.owned
        before, functions = dict(frame.names), dict(frame.functions)
        frame.names = {**before, **(extra or {})}
        frame.owned = (owned | (extra or {}).keys()) - set(locked)
        outer, frame.loops, frame.loop_depth = (frame.loops, frame.loop_depth), (*frame.loops, how), frame.depth + 1
        self.block()
        frame.names, frame.functions, frame.owned = dict(before), dict(functions), owned
        frame.loops, frame.loop_depth = outer
        if orelse and enabled("loop-else") and self.likely(1, 6):
            self.line("else:")
            self.block()
            frame.names, frame.functions, frame.owned = before, functions, owned


def bare(text: str) -> str:
    """An expression without the parentheses around all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and at < len(text) - 1:
            return text
    # A tuple is nothing without its parentheses, and a generator or walrus may not be either.
    return text if _has_comma(text[1:-1]) or ":=" in text or " for " in text else text[1:-1]


def closed(text: str) -> str:
    """The same for what has lost its parentheses, and needs them beside an operator."""
    return f"({text})" if " " in text or text.startswith(("-", "~")) else text


def _has_comma(text: str) -> bool:
    depth = 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            return True
    return False
