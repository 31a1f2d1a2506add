"""A kernel as text: from IR in readable form to a Python module with the element function, its helpers and its loops.

The same text serves all targets; each gives a meaning to its free names (`tanh`, `float32`, `load_float16`, …).
`cpu_loops` and `cuda.kernel_shell` write the loops around the element function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dualbcast.codegen.cpu_loops import index_names, loops, summing_loops
from dualbcast.codegen.cuda.kernel_shell import cuda_shell, summing_shell
from dualbcast.codegen.statement_text import Constants, Writer
from dualbcast.frontend.lower import RESERVED, helper_of
from dualbcast.ir.nodes import Function, Names
from dualbcast.ir.traversal import assigned, has_loops, operations_of
from dualbcast.kernel_spec import KernelSource, Layout
from dualbcast.passes.scheduling import vectors_to_interleave
from dualbcast.passes.vector_analysis import fits_vectors, has_varying_branches, uniform_inputs
from dualbcast.rules.table import RULES, Rule

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
            if summed:
                shell = summing_shell(layout, entry, self.dtype, self.inputs, outputs)
            else:
                shell = cuda_shell(layout, entry, self.inputs, outputs)
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
