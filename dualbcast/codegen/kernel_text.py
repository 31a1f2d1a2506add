"""A kernel as text, for people, for Python and for Numba-CUDA: from readable IR to a Python module of the element
function and its helpers.

The same text serves all; each gives a meaning to its free names (`tanh`, `float32`, `load_float16`, …). The element
function stores the terms of sums at an index of their own. For a GPU, `cuda.kernel_shell` writes the C++ around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dualbcast.codegen.cuda.kernel_shell import cuda_shell
from dualbcast.codegen.statement_text import Constants, Writer
from dualbcast.codegen.text_places import Place, with_readers
from dualbcast.frontend.lower import RESERVED, helper_of
from dualbcast.ir.nodes import Function, Names
from dualbcast.ir.traversal import assigned, operations_of
from dualbcast.kernel_spec import KernelSource, Layout
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
        # Each function in the text but the element function: its lines, and where they come from.
        self._helpers: list[list[tuple[str, Place]]] = []
        # The functions of rules in the text, by the names of the rules, and in the order in which they are compiled.
        self._called: dict[str, str] = {}
        self._compiled: list[str] = []
        self._locals: set[str] = set()

    def open_text(self, function: Function) -> Function:
        """Name the parts of the text, and write the helpers that are called; the function itself is returned."""
        params, stored = [param.name for param in function.params], [output.name for output in function.outputs]
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

    def source(self, function: Function, places: list[Place] | None = None) -> KernelSource:
        """The kernel's text, with all that is needed to compile and call it; `places` gets where its lines are from."""
        layout, summed, term, element = self.layout, self._summed, self._term, self._element
        params = [param.name for param in function.params]
        # Each output once where a thread computes several elements.
        stored = [output.name for output in function.outputs[:: layout.lanes]]
        outputs = [self.dtype if position in summed else kind for position, kind in enumerate(self.outputs)]
        storage = dict(zip((*params, *stored), (*self.inputs, *outputs), strict=True))
        address = dict(zip((*params, *stored), (self._indices[which] for which in layout.which), strict=True))
        address |= {stored[position]: term for position in summed}
        writer = Writer(self._constants, self._called, storage, address, layout.lanes, self.target == "cuda")
        writer.function(function, 1)
        used = [self._indices[position] for position in layout.indexed(len(params))]
        used += [term] if term != "0" else []
        head = f"def {element}({', '.join([*used, *params, *stored])}):"
        sections: list[list[tuple[str, Place]]] = [*self._helpers, [(head, None), *writer.text()]]
        functions = (*self._compiled, element)
        entry = shell = ""
        if self.target == "cuda":
            entry = f"{element}_kernel" if element.isascii() else "element_kernel"
            shell = cuda_shell(layout, entry, self.inputs, outputs, self.dtype)
        outputs = ["float64" if position in summed else kind for position, kind in enumerate(outputs)]
        prelude = [*([f"# {self.title}"] if self.title else []), *self._constants.definitions()]
        blocks: list[list[tuple[str, Place]]] = [[(line, None) for line in prelude], *sections]
        blocks = blocks if prelude else sections
        if places is not None:
            # Two empty lines stand between blocks.
            places += [place for block in blocks for place in (*with_readers(block), None, None)]
        return KernelSource(
            "\n\n\n".join(["\n".join([line for line, _ in block]) for block in blocks]) + "\n",
            functions,
            entry,
            self.dtype,
            tuple(self.inputs),
            tuple(outputs),
            layout,
            shell,
        )

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
        writer = Writer(self._constants, self._called, {}, {}, 1, self.target == "cuda")
        writer.block(helper.body, 1)
        writer.line(1, f"return {writer.expression(helper.outputs[0].value)}")
        head = f"def {called}({', '.join(param.name for param in helper.params)}):"
        # The lines of a function of the library are not the user's.
        lines = [(line, place if row.by_user else called) for line, place in writer.text()]
        self._helpers.append([(head, None), *lines])
