"""A random program: its text, the functions in it, and the points to evaluate it at."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from constructs import record
from grammar import Frame, Writer, enabled
from hypothesis import strategies as st
from statements import function, returned

__all__ = ["POINTS", "Program", "programs"]

POINTS = 12
# Values at which something happens, and of which some are equal.
IMPORTS = {
    "math.": "import math",
    "np.": "import numpy as np",
    "@dataclass": "from dataclasses import dataclass, replace",
    "partial(": "from functools import partial",
    "(NamedTuple)": "from typing import NamedTuple",
}
NICE = (0.0, 1.0, -1.0, 0.5, 2.0, -0.5, 1.5, 3.0)


@dataclass(frozen=True)
class Program:
    """A scalar function `f` as source text, and how to call it.

    Attributes
    ----------
    text : str
        A module with `f` in it.
    kinds : tuple of str
        The kinds of its parameters.
    wrt : tuple of int
        The float parameters to differentiate in.
    scalar : int or None
        A parameter that is one number for all points.
    salt : int
        What the points are made of.
    single : bool
        Whether the arrays are of float32.
    """

    text: str
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    wrt: tuple[int, ...]
    scalar: int | None
    salt: int
    single: bool

    @cached_property
    def function(self) -> Callable[..., Any]:
        """`f`, with its text where `inspect` finds it."""
        filename = f"<fuzzed {hash(self.text) & 0xFFFFFFFFFFFF:012x}>"
        linecache.cache[filename] = (len(self.text), None, self.text.splitlines(True), filename)
        namespace: dict[str, Any] = {"__name__": "fuzzed"}
        exec(compile(self.text, filename, "exec", dont_inherit=True), namespace)
        return namespace["f"]  # type: ignore[no-any-return]

    @cached_property
    def columns(self) -> tuple[np.ndarray[Any, Any], ...]:
        """The arguments, an array for each."""
        generator = np.random.default_rng(self.salt)
        columns: list[np.ndarray[Any, Any]] = []
        for position, kind in enumerate(self.kinds):
            if kind == "float":
                column = np.where(
                    generator.random(POINTS) < 0.3,
                    generator.choice(NICE, POINTS),
                    generator.uniform(-3, 3, POINTS).round(3),
                ).astype(np.float32 if self.single else np.float64)
            elif kind == "int":
                # An integer type that float32 arrays are not widened by.
                column = generator.integers(-3, 6, POINTS).astype(np.int16 if self.single else np.int64)
            else:
                column = generator.random(POINTS) < 0.5
            columns.append(np.full_like(column, column[0]) if position == self.scalar else column)
        return tuple(columns)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What to call a kernel with."""
        return tuple(
            column[0].item() if position == self.scalar else column for position, column in enumerate(self.columns)
        )

    def point(self, at: int) -> tuple[Any, ...]:
        """The arguments of one element, as Python numbers."""
        return tuple(column[at].item() for column in self.columns)

    def __repr__(self) -> str:
        wrt = ", ".join(repr(self.names[at]) for at in self.wrt)
        scalar = "" if self.scalar is None else f", {self.names[self.scalar]} is one number"
        return (
            f"{self.text}# derivatives in {wrt}; {'float32' if self.single else 'float64'}{scalar}; salt {self.salt}\n"
        )


@st.composite
def programs(draw: Any) -> Program:
    """Programs of a few statements mostly, some of them longer."""
    writer = Writer(draw, 0)
    kinds = ["float"] * writer.pick(1, 2, 3, 2) + ["int"] * writer.pick(0, 1, 1, 2) + ["bool"] * writer.pick(0, 0, 1)
    spare = {"float": iter("xyz"), "int": iter("nm"), "bool": iter(("flag",))}
    names = [next(spare[kind]) for kind in kinds]
    writer.taken.update(names)
    floats = [at for at, kind in enumerate(kinds) if kind == "float"]
    body = _main(writer, names, kinds, writer.pick(4, 6, 8, 12))
    head = [line for use, line in IMPORTS.items() if use in body]
    text = "\n".join(head) + "\n" * (3 if head and body.startswith(("def ", "class ", "@")) else 2 * bool(head)) + body
    inactive = writer.below(4)
    return Program(
        text=text,
        names=tuple(names),
        kinds=tuple(kinds),
        wrt=tuple(at for at in floats if inactive != at + 1 or len(floats) == 1),
        scalar=writer.below(len(kinds)) if writer.likely(1, 8) else None,
        salt=writer.below(256),
        single=writer.likely(1, 8),
    )


def _main(writer: Writer, names: list[str], kinds: list[str], size: int) -> str:
    module = writer.frame
    if writer.likely(1, 4):
        writer.line("RATE = 0.75")
        module.names["RATE"] = "float"
    if writer.likely(1, 6):
        writer.line("WEIGHTS = (0.5, -1.25, 2.0)")
        module.names["WEIGHTS"] = ("float",) * 3
    if enabled("record") and writer.likely(1, 6):
        _space(writer)
        record(writer)
    for _ in range(writer.pick(0, 0, 1, 1, 2)):
        _space(writer)
        writer.budget = 4
        function(writer)
    _space(writer)
    results = writer.pick(
        ("float",), ("float", "float"), ("float", "int"), ("float", "float", "bool"), ("int", "float")
    )
    form = writer.pick("one", "nested", "list") if enabled("structure") and writer.likely(1, 8) else ""
    writer.line(f"def f({', '.join(names)}):")
    writer.frame = Frame(results, form=form, functions=dict(module.functions))
    writer.frame.names = {**dict(zip(names, kinds, strict=True)), **module.names}
    writer.frame.owned = {name for name, kind in zip(names, kinds, strict=True) if kind != "int"}
    writer.budget = size
    writer.frame.depth = 1
    while writer.budget > 0 and writer.below(8):
        if not writer.statement():
            break
    else:
        writer.line(returned(writer))
    return "\n".join(writer.lines) + "\n"


def _space(writer: Writer) -> None:
    if writer.lines:
        writer.lines += ["", ""]
