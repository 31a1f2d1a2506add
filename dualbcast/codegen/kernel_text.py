"""A kernel as text: from readable IR to a Python module of the element function, its helpers and the loops around it.

The entry handles the linear indices in [start, stop) of the coalesced space, so that any split over threads is right.
Its innermost loop goes through one row, so that a compiler can vectorise it.

The element function stores the terms of a sum in a row of at most a tile, which is then added to the accumulators. Its
loop is like any other to a vectoriser, and the order of the additions is fixed.

The same text serves all targets; each gives a meaning to its free names (`tanh`, `float32`, `load_float16`, …).
For a GPU, `cuda.kernel_shell` writes the C++ around the element function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dualbcast.codegen.cuda.kernel_shell import cuda_shell
from dualbcast.codegen.statement_text import Constants, Writer
from dualbcast.frontend.lower import RESERVED, helper_of
from dualbcast.ir.nodes import Function, Names
from dualbcast.ir.traversal import assigned, has_loops, operations_of
from dualbcast.kernel_spec import TILE, KernelSource, Layout
from dualbcast.passes.arithmetic import vectors_to_interleave
from dualbcast.passes.vector_analysis import fits_vectors, has_varying_branches, uniform_inputs
from dualbcast.rules.table import RULES, Rule


def index_names(layout: Layout, params: Sequence[str], names: Names) -> list[str]:
    """A name for the index of each address class: `k` for the outputs', `k_x` where only `x` and its like have it.

    A class that spans no dimension has the index `0`.
    """
    summed = layout.summed(len(params))
    whole = [which for position, which in enumerate(layout.which[len(params) :]) if position not in summed]
    main = whole[-1] if whole else layout.which[0]
    indices: list[str] = []
    for position, pattern in enumerate(layout.classes):
        if set(pattern) == {"0"}:
            indices.append("0")
        elif position == main:
            indices.append(names.fresh("k"))
        else:
            owners = [name for name, which in zip(params, layout.which, strict=False) if which == position]
            indices.append(names.fresh(f"k_{owners[0]}" if owners else f"k_{position}"))
    return indices


def loops(
    layout: Layout,
    element: str,
    entry: str,
    pointers: Sequence[str],
    indices: Sequence[str],
    names: Names,
) -> str:
    """The text of the entry: a function of start, stop, sizes, strides and pointers that calls the element function."""
    sizes = [names.fresh(f"n{dimension}") for dimension in range(layout.rank)]
    strides = run_time_strides(layout, indices, names)
    flat = [stride for by_dimension in strides for stride in by_dimension.values()]
    start, stop, inner = names.fresh("start"), names.fresh("stop"), names.fresh("j")
    head = f"def {entry}({', '.join([start, stop, *sizes, *flat, *pointers])}):"
    if layout.rank == 1:
        arguments = [step(pattern, by.get(0), inner, "") for pattern, by in zip(layout.classes, strides, strict=True)]
        return f"""\
# Elements [{start}, {stop}).
{head}
    for {inner} in range({start}, {stop}):
        {element}({", ".join([*filter(None, arguments), *pointers])})"""

    last = layout.rank - 1
    length = sizes[last]
    at, row, first, end = (names.fresh(name) for name in ("at", "row", "first", "end"))
    # The row's place in the outer dimensions, and from it where each class starts.
    inside: list[str] = []
    places: dict[int, str] = {}
    remaining = row
    for dimension in range(last - 1, 0, -1):
        quotient, places[dimension] = names.fresh("row"), names.fresh(f"i{dimension}")
        inside.append(f"{quotient} = {remaining} // {sizes[dimension]}")
        inside.append(f"{places[dimension]} = {remaining} - {quotient} * {sizes[dimension]}")
        remaining = quotient
    places[0] = remaining
    arguments = []
    for pattern, by, index in zip(layout.classes, strides, indices, strict=True):
        terms = [f"{places[dimension]} * {stride}" for dimension, stride in by.items() if dimension != last]
        base = names.fresh(f"{index}_row") if terms else ""
        if terms:
            inside.append(f"{base} = {' + '.join(terms)}")
        arguments.append(step(pattern[last], by.get(last), inner, base))
    lines = "".join(f"\n        {line}" for line in inside)
    # One division is enough; it takes as long as a short row.
    return f"""\
# Elements [{start}, {stop}) of {" by ".join(sizes)}, row by row.
{head}
    {at} = {start}
    {row} = {at} // {length}
    while {at} < {stop}:
        {first} = {at} - {row} * {length}
        {end} = min({length}, {first} + {stop} - {at}){lines}
        for {inner} in range({first}, {end}):
            {element}({", ".join([*filter(None, arguments), *pointers])})
        {at} += {end} - {first}
        {row} += 1"""


def run_time_strides(layout: Layout, indices: Sequence[str], names: Names) -> list[dict[int, str]]:
    """The names of the run-time strides of each class, by dimension."""
    return [
        {dimension: names.fresh(f"{index}_s{dimension}") for dimension, kind in enumerate(pattern) if kind == "s"}
        for pattern, index in zip(layout.classes, indices, strict=True)
    ]


def step(kind: str, stride: str | None, inner: str, base: str) -> str:
    """The index of a class in the innermost loop; empty for a class that spans nothing."""
    stepped = {"1": inner, "s": f"{inner} * {stride}", "0": ""}[kind]
    return " + ".join(part for part in (base, stepped) if part)


# The most bytes of terms on the stack, of all sums: they stay in the first-level cache, and a thread may have 32 KiB in
# all. And the fewest bytes for each sum, which are some vectors.
_BYTES_OF_TERMS, _BYTES_OF_A_SUM = 16384, 256
# The most elements of a row before the next row, where accumulators lie along it: they stay in the second-level cache.
_PANEL = 8 * TILE

# A sum of float64 is compensated by Knuth's two-sum.
_ADD_TO = """\
def {name}(sums, rests, k, term):
    old = sums[k]
    new = old + term
    part = new - old
    sums[k] = new
    rests[k] += (old - (new - part)) + (term - part)"""


def summing_loops(
    layout: Layout,
    dtype: str,
    element: str,
    entry: str,
    params: Sequence[str],
    stored: Sequence[str],
    indices: Sequence[str],
    names: Names,
) -> tuple[dict[str, str], str, int]:
    """The entry of a kernel that sums: a function of sizes, strides and pointers, which covers the whole space.

    The element function takes the indices that `Layout.indexed` lists, the place in the tile, and the pointers, those
    to terms in the place of those to sums. Returned are helper functions, texts by name; the text of the entry; and how
    many pointers follow those of the outputs: one for each sum of float64, to its rounding errors.
    """
    summed = {stored[position]: layout.which[len(params) + position] for position in layout.summed(len(params))}
    compensated = dtype == "float64"
    helper = names.fresh("add_to") if compensated else ""
    rests = {name: names.fresh(f"{name}_rest") for name in summed} if compensated else {}
    terms = {name: names.fresh(f"{name}_terms") for name in summed}
    sizes = [names.fresh(f"n{dimension}") for dimension in range(layout.rank)]
    strides = run_time_strides(layout, indices, names)
    places = [names.fresh(f"i{dimension}") for dimension in range(layout.rank - 1)]
    first, count, inner = (names.fresh(name) for name in ("first", "count", "j"))
    length, last = sizes[-1], layout.rank - 1
    tile = _tile_length(len(summed), 8 if compensated else 4)
    flat = [stride for by_dimension in strides for stride in by_dimension.values()]
    lines = [
        f"# Adds the sums over {' by '.join(sizes)} to {', '.join(summed)}, tile by tile of a row.",
        f"def {entry}({', '.join([*sizes, *flat, *params, *stored, *rests.values()])}):",
        *(f"    {row} = scratch({dtype}, {tile})" for row in terms.values()),
    ]
    depth = 1

    def line(text: str) -> None:
        nonlocal depth
        lines.append("    " * depth + text)
        depth += text.endswith(":")

    panel, stop = "0", length
    if layout.rank > 1 and any(layout.classes[which][last] != "0" for which in summed.values()):
        panel = names.fresh("panel")
        line(f"for {panel} in range(0, {length}, {_PANEL}):")
        stop = f"min({length}, {panel} + {_PANEL})"
    for place, size in zip(places, sizes, strict=False):
        line(f"for {place} in range({size}):")
    # The text of each class's index: of its first element in the row, then in the tile, then of the tile's element `j`.
    at = []
    for by, index in zip(strides, indices, strict=True):
        row = " + ".join(f"{places[dimension]} * {stride}" for dimension, stride in by.items() if dimension != last)
        at.append(names.fresh(f"{index}_row") if row else "")
        if row:
            line(f"{at[-1]} = {row}")
    line(f"for {first} in range({panel}, {stop}, {tile}):")
    line(f"{count} = min({length} - {first}, {tile})")
    along_row = [position for position, pattern in enumerate(layout.classes) if pattern[last] != "0"]
    for position in along_row:
        kind, stride = layout.classes[position][last], strides[position].get(last)
        start = step(kind, stride, first, at[position])
        at[position] = start if start == first else names.fresh(f"{indices[position]}_tile")
        if start != first:
            line(f"{at[position]} = {start}")
        at[position] = step(kind, stride, inner, at[position])
    arguments = [at[position] for position in layout.indexed(len(params))]
    line(f"for {inner} in range({count}):")
    line(f"{element}({', '.join([*arguments, inner, *params, *(terms.get(name, name) for name in stored)])})")
    depth -= 1

    def addition(name: str, index: str, term: str) -> str:
        return f"{helper}({name}, {rests[name]}, {index}, {term})" if compensated else f"{name}[{index}] += {term}"

    along = [name for name, which in summed.items() if layout.classes[which][last] != "0"]
    if along:
        line(f"for {inner} in range({count}):")
        for name in along:
            line(addition(name, at[summed[name]], f"{terms[name]}[{inner}]"))
        depth -= 1
    for name in [name for name in summed if name not in along]:
        line(addition(name, at[summed[name]] or "0", f"sum_terms({terms[name]}, {count})"))
    return {helper: _ADD_TO.format(name=helper)} if compensated else {}, "\n".join(lines), len(rests)


def _tile_length(sums: int, itemsize: int) -> int:
    """The most terms of each of some sums at a time."""
    length = TILE
    while length * itemsize > _BYTES_OF_A_SUM and length * itemsize * sums > _BYTES_OF_TERMS:
        length //= 2
    return length


# The readable form of a helper function. It is given the names in the text, and a step that writes the functions which
# the helper calls; that must come after the last pass that may change the calls.
HelperForm = Callable[[Function, Names, Callable[[Function], Function]], Function]


@dataclass
class KernelText:
    """The text of a kernel, written in two steps: `open_text` amid the passes of a target, `source` after them.

    `inputs` and `outputs` are the dtypes that parameters and outputs are stored as; for an output that is summed, the
    dtype of its sums. The variables of the element function must not take any of `names`.
    """

    layout: Layout
    dtype: str  # the compute dtype
    inputs: Sequence[str]
    outputs: Sequence[str]
    target: str  # "python", "cpu" or "cuda"
    title: str  # a description of the product, for the reader
    helper_form: HelperForm
    names: Names = field(default_factory=lambda: Names(RESERVED | RULES.keys()))

    def __post_init__(self) -> None:
        self._constants = Constants(self.dtype)
        self._helpers: list[str] = []
        # The functions of rules in the text, by the names of the rules, and in the order in which they are compiled.
        self._called: dict[str, str] = {}
        self._compiled: list[str] = []
        self._locals: set[str] = set()

    def open_text(self, function: Function) -> Function:
        """Name the parts of the text, and write the helpers that are called; the function itself is returned."""
        params, stored = [param.name for param in function.params], [output.name for output in function.outputs]
        self._fits_vectors = self._has_branches = False
        if self.target == "cpu":
            uniform = uniform_inputs(function, self.layout)
            self._fits_vectors = fits_vectors(function, uniform)
            self._has_branches = self._fits_vectors and has_varying_branches(function, uniform)
        self._locals = {*assigned(function.body), *params}
        self._constants.avoid(self._locals)
        self._write_helpers(function)
        self.names.take(self._compiled)
        for name in (*params, *stored):
            self.names.fresh(name)
        self._element = self.names.fresh(function.name if function.name.isidentifier() else "element")
        self._indices = index_names(self.layout, params, self.names)
        self._summed = self.layout.summed(len(params))
        # A sum's terms go to a row of their own, for the one element of a CUDA thread to one of length one.
        self._term = self.names.fresh("t") if self._summed and self.target != "cuda" else "0"
        return function

    def source(self, function: Function) -> KernelSource:
        """The kernel's text, with all that is needed to compile and call it."""
        layout, summed, term, element = self.layout, self._summed, self._term, self._element
        params = [param.name for param in function.params]
        # Each output once where a thread computes several elements.
        stored = [output.name for output in function.outputs[:: layout.lanes]]
        outputs = [self.dtype if position in summed else kind for position, kind in enumerate(self.outputs)]
        storage = dict(zip((*params, *stored), (*self.inputs, *outputs), strict=True))
        address = dict(zip((*params, *stored), (self._indices[which] for which in layout.which), strict=True))
        address |= {stored[position]: term for position in summed}
        writer = Writer(self._constants, self._called, self.target, storage, address, layout.lanes)
        writer.function(function, 1)
        used = [self._indices[position] for position in layout.indexed(len(params))]
        used += [term] if term != "0" else []
        head = f"def {element}({', '.join([*used, *params, *stored])}):"
        sections = [*self._helpers, "\n".join([head, *writer.text()])]
        functions = (*self._compiled, element)
        shell = ""
        if self.target == "cuda":
            entry = f"{element}_kernel" if element.isascii() else "element_kernel"
            shell = cuda_shell(layout, entry, self.inputs, outputs, self.dtype)
        elif summed:
            entry = self.names.fresh("kernel")
            added, loop, rests = summing_loops(
                layout, self.dtype, element, entry, params, stored, self._indices, self.names
            )
            sections += [*added.values(), loop]
            functions = (*added, *functions)
            outputs = [*outputs, *["float64"] * rests]
        else:
            entry, pointers = self.names.fresh("kernel"), [*params, *stored]
            sections.append(loops(layout, element, entry, pointers, self._indices, self.names))
        outputs = ["float64" if position in summed else kind for position, kind in enumerate(outputs)]
        prelude = "\n".join([*([f"# {self.title}"] if self.title else []), *self._constants.definitions()])
        return KernelSource(
            "\n\n\n".join([prelude, *sections] if prelude else sections) + "\n",
            functions,
            entry,
            self.dtype,
            tuple(self.inputs),
            tuple(outputs),
            layout,
            shell,
            self._vectors(function, len(params) + len(stored)),
        )

    def _vectors(self, function: Function, arrays: int) -> int:
        """How many vectors the CPU computes side by side; 0 where it computes one element after the other."""
        if not self._fits_vectors:
            return 0
        # Rows may be shorter. A vector of float64 is a cache line, and memory likes pairs of lines.
        if self.layout.rank == 1 or has_loops(function.body):
            most = 4
        else:
            most = 2 if self.dtype == "float64" and not self._summed else 1
        return vectors_to_interleave(function, arrays, most, 2 if self._has_branches else 1)

    # --- helper functions ----------------------------------------------------------------------------------------

    def _write_helpers(self, function: Function) -> None:
        """Write the helper functions that a function calls, callees before callers."""
        for op in operations_of(function):
            row = RULES.get(op.name)
            if row is not None and row.function is not None and op.name not in self._called:
                self._write_helper(row)

    def _write_helper(self, row: Rule) -> None:
        # A rule of the library has its own name everywhere; a user's has one that nothing else in this text has.
        taken = RESERVED | RULES.keys() | self._locals | set(self._called.values()) | self._constants.names()
        called = self._called[row.name] = Names(taken).fresh(row.label) if row.by_user else row.name
        self._constants.avoid([called])
        self._locals.add(called)
        names = Names(RESERVED | RULES.keys())

        def write_callees(helper: Function) -> Function:
            self._write_helpers(helper)
            self._compiled.append(called)
            names.take(self._called.values())
            return helper

        helper = self.helper_form(helper_of(row), names, write_callees)
        writer = Writer(self._constants, self._called, self.target, {}, {})
        writer.block(helper.body, 1)
        writer.line(1, f"return {writer.expression(helper.outputs[0].value)}")
        head = f"def {called}({', '.join(param.name for param in helper.params)}):"
        self._helpers.append("\n".join([head, *writer.text()]))
