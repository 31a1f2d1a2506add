"""A random program: its text, the functions in it, and the arrays to call it with."""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from constructs import record
from grammar import Frame, Writer, enabled
from hypothesis import strategies as st
from statements import function, returned

from dualbcast import differentiable_broadcast
from dualbcast.frontend.lower import WholeArray, lower
from dualbcast.frontend.values import Axes

__all__ = ["POINTS", "Program", "programs", "written"]

POINTS = 12
IMPORTS = {
    "math.": "import math",
    "np.": "import numpy as np",
    "@dataclass": "from dataclasses import dataclass, replace",
    "partial(": "from functools import partial",
    "(NamedTuple)": "from typing import NamedTuple",
}
# Values at which something happens, and of which some are equal.
NICE = (0.0, 1.0, -1.0, 0.5, 2.0, -0.5, 1.5, 3.0)


# Values at the ends of the format, and where a function overflows or has no more digits to give.
EDGES = (
    *(0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, -1e-310, 2.2250738585072014e-308, 1.7976931348623157e308),
    *(1e-160, -1e-40, 1e-20, 1e-8, -1e-4, 36.5, -88.75, 708.5, 710.0, -746.0, 1e8, -1e16, 1e40, -1e153, 1e200),
)
EDGES_SINGLE = (
    *(0.0, -0.0, math.inf, -math.inf, math.nan, 1.401298464324817e-45, -1e-39, 1.1754943508222875e-38),
    *(3.4028234663852886e38, 1e-20, -1e-10, 1e-4, 16.5, -88.5, 89.0, -104.0, 1e4, -1e7, 1e15, -1e30),
)
# The numbers of a whole array, which float32 holds. To Python it is a tuple.
TABLE = (0.5, -1.25, 2.0, 1.5, -0.75)
# The exponents of ten of what is merely large or small.
EXPONENTS, EXPONENTS_SINGLE = 60, 8


@dataclass(frozen=True)
class Program:
    """A scalar function `f` as source text, and how to call it.

    Attributes
    ----------
    text : str
        A module with `f` in it.
    names : tuple of str
        Its parameters.
    kinds : tuple of str
        The kinds of these.
    wrt : tuple of int
        The float parameters to differentiate in.
    scalar : int or None
        A parameter that is one number for all points.
    salt : int
        What the points are made of.
    single : bool
        Whether the arrays are of float32.
    dtypes : tuple of str
        Those of the arrays, where they are given; then kernels may compute in either, and `single` says which.
    shape : tuple of int
        That of the results.
    layout : bool
        Whether the arrays span some of the axes only, and lie in memory in other ways than one after the other.
    edges : float
        Which part of the floats are of the edges of the format.
    """

    text: str
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    wrt: tuple[int, ...]
    scalar: int | None
    salt: int
    single: bool
    dtypes: tuple[str, ...] = ()
    shape: tuple[int, ...] = (POINTS,)
    layout: bool = False
    edges: float = 0.0

    @cached_property
    def function(self) -> Callable[..., Any]:
        """`f`, with its text where `inspect` finds it."""
        filename = f"<fuzzed {hash(self.text) & 0xFFFFFFFFFFFF:012x}>"
        linecache.cache[filename] = (len(self.text), None, self.text.splitlines(True), filename)
        namespace: dict[str, Any] = {"__name__": "fuzzed"}
        exec(compile(self.text, filename, "exec", dont_inherit=True), namespace)
        return namespace["f"]  # type: ignore[no-any-return]

    @property
    def has_table(self) -> bool:
        """Whether a whole array is the last parameter."""
        return ", table=(" in self.text

    def kernel(self, backend: Any) -> Any:
        """The function, decorated."""
        return differentiable_broadcast(backend=backend, whole="table" if self.has_table else ())(self.function)

    def lowered(self) -> Any:
        """The function in IR."""
        return lower(self.function, [*self.kinds, *[WholeArray("float", Axes(1, False))] * self.has_table]).function

    @property
    def points(self) -> int:
        """How many elements the results have."""
        return math.prod(self.shape)

    @cached_property
    def arrays(self) -> tuple[np.ndarray[Any, Any], ...]:
        """An array for each parameter, of the axes that it spans."""
        generator = np.random.default_rng(self.salt)
        arrays: list[np.ndarray[Any, Any]] = []
        whole = next((at for at in range(len(self.kinds)) if at != self.scalar), 0)
        for position, kind in enumerate(self.kinds):
            shape = self.shape
            if self.layout and position not in (whole, self.scalar):  # one spans all of them
                shape = tuple(size if generator.random() < 0.7 else 1 for size in shape)
            values = self._values(generator, kind, shape)
            values = values.astype(self.dtypes[position]) if self.dtypes else values
            arrays.append(values.reshape(-1)[0].reshape(()) if position == self.scalar else values)
        return tuple(arrays)

    def _values(self, generator: Any, kind: str, shape: tuple[int, ...]) -> Any:
        if kind == "int":
            # An integer type that float32 arrays are not widened by.
            return np.asarray(generator.integers(-3, 6, shape)).astype(np.int16 if self.single else np.int64)
        if kind == "bool":
            return np.asarray(generator.random(shape) < 0.5)
        values = np.where(
            generator.random(shape) < 0.3,
            generator.choice(NICE, shape),
            generator.uniform(-3, 3, shape).round(3),
        )
        if self.edges:
            most = EXPONENTS_SINGLE if self.single else EXPONENTS
            drawn = generator.choice((-1.0, 1.0), shape) * 10.0 ** generator.uniform(-most, most, shape)
            special = generator.choice(EDGES_SINGLE if self.single else EDGES, shape)
            edge = np.where(generator.random(shape) < 0.3, drawn, special)
            values = np.where(generator.random(shape) < self.edges, edge, values)
        with np.errstate(over="ignore"):
            return values.astype(np.float32 if self.single else np.float64)

    @cached_property
    def columns(self) -> tuple[np.ndarray[Any, Any], ...]:
        """What each parameter is at each point."""
        return tuple(np.broadcast_to(array, self.shape).reshape(-1) for array in self.arrays)

    @cached_property
    def arguments(self) -> tuple[Any, ...]:
        """What to call a kernel with."""
        generator = np.random.default_rng(self.salt)
        return (
            tuple(
                array.item()
                if position == self.scalar
                else _laid_out(array, generator)
                if self.layout
                else np.ascontiguousarray(np.broadcast_to(array, self.shape))
                for position, array in enumerate(self.arrays)
            )
            + (np.array(TABLE, np.float32 if self.single else np.float64),) * self.has_table
        )

    def flat(self, block: Any) -> np.ndarray[Any, Any]:
        """An output, or a block of a Jacobian, with one number for each point."""
        return np.broadcast_to(block, self.shape).reshape(-1)

    def point(self, at: int) -> tuple[Any, ...]:
        """The arguments of one element, as Python numbers."""
        return tuple(column[at].item() for column in self.columns)

    def __repr__(self) -> str:
        wrt = ", ".join(repr(self.names[at]) for at in self.wrt)
        scalar = "" if self.scalar is None else f", {self.names[self.scalar]} is one number"
        arrays = ", ".join(self.dtypes) or ("float32" if self.single else "float64")
        if self.layout:
            arrays += f" of shape {self.shape}, laid out"
        edges = f"; {self.edges:g} of them edges" if self.edges else ""
        return f"{self.text}# derivatives in {wrt}; {arrays}{scalar}{edges}; salt {self.salt}\n"


def _laid_out(array: np.ndarray[Any, Any], generator: Any) -> np.ndarray[Any, Any]:
    """The same numbers in memory in one of several ways."""
    match generator.integers(6):
        case 0:
            return np.asfortranarray(array)
        case 1:  # every other number
            wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
            wide[..., ::2] = array
            return wide[..., ::2]
        case 2:  # backwards
            return np.ascontiguousarray(array[..., ::-1])[..., ::-1]
        case 3:  # away from where vectors begin
            long = np.zeros(array.size + 3, array.dtype)
            long[3:] = array.reshape(-1)
            return long[3:].reshape(array.shape)
        case 4 if array.shape[0] == 1:
            return array[0]
    return np.ascontiguousarray(array)


@st.composite
def programs(draw: Any) -> Program:
    """Programs of a few statements mostly, some of them longer."""
    return written(Writer(draw, 0))


def written(writer: Writer) -> Program:
    """The program that a writer draws."""
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
    table = [f"table={TABLE}"] if writer.likely(1, 5) else []
    writer.line(f"def f({', '.join([*names, *table])}):")
    writer.frame = Frame(results, form=form, functions=dict(module.functions))
    writer.frame.names = {
        **dict(zip(names, kinds, strict=True)),
        **module.names,
        **({"table": "table"} if table else {}),
    }
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
