"""The explanation of a call: dtypes, layout, operations, bytes, passes, and a GPU kernel's registers and occupancy.

The passes are imported where they are needed: a process whose kernels are on disk needs none.
"""

from __future__ import annotations

import contextlib
import linecache
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dualbcast.errors import BackendError, Location, MissingDependencyError
from dualbcast.ir.nodes import ARITHMETIC, FUSED, For, Function, If, While, dump
from dualbcast.ir.traversal import operations_of, read_counts, statements
from dualbcast.program.element import Call
from dualbcast.rules.table import RULES
from dualbcast.runtime.cpu.policy import goes_past_the_cache
from dualbcast.runtime.launch_plan import Plan
from dualbcast.tracebacks import place_of

if TYPE_CHECKING:
    from dualbcast.autodiff.eliminate import Plan as Elimination
    from dualbcast.counting.counted_launch import CountedLaunch
    from dualbcast.runtime.cuda.kernel import CudaKernel

# Rules that processors have an instruction for, or little more.
_INSTRUCTIONS = frozenset({"ceil", "copysign", "fabs", "floor", "rint", "sqrt", "trunc"})


class Explanation(NamedTuple):
    """Figures of the kernel that a call runs: `print` shows them as a table.

    Attributes
    ----------
    name : str
        The function's name.
    dtype : str
        The dtype of the arithmetic.
    shape : tuple of int
        The shape of the result.
    outputs : tuple of str
        The names of the outputs that the kernel stores.
    operations : dict
        How often each operation stands in the kernel's text, with both sides of a branch and one iteration of a loop.
    bytes_read : int
        The bytes of its inputs. Each element of an array counts once; an argument that the kernel never reads does not.
    bytes_written : int
        The bytes of its outputs.
    layout : str
        How each array spans the coalesced dimensions: 1 contiguous, s strided, 0 broadcast. A packed input has another
        order in memory, or repeats along short rows; it is copied piece by piece before it is read.
    branches : tuple of str
        For each `if` and each loop in vectors on the CPU, its line, and whether it is a branch or a select, and why.
    cuda : object or None
        The compiled CUDA kernel, where a compute capability was given: `registers`, `spill_loads`, `spill_stores`,
        `stack`, `shared` and `occupancy()` say how much of a GPU a launch takes.
    orders : tuple of str
        For each straight run of statements, the order in which the vertices of its graph of local partials were
        eliminated, and how many multiplications and additions that takes; in brackets, those of the other orders.
    streamed : bool
        Whether a CPU kernel stores its outputs past the cache.
    passes : tuple of (str, str)
        With `passes=True`, the name of each pass and the IR after it, which is empty for a pass that changes nothing.
        The first entry is the product before all passes.
    counted : object or None
        With `counted=True`, what a GPU would do for the launch (a `CountedLaunch`): in all, and by line of the function
        (`counted.lines`). `counted.plot()` draws it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    outputs: tuple[str, ...]
    operations: dict[str, int]
    bytes_read: int
    bytes_written: int
    layout: str
    branches: tuple[str, ...] = ()
    orders: tuple[str, ...] = ()
    cuda: CudaKernel | None = None
    streamed: bool = False
    passes: tuple[tuple[str, str], ...] = ()
    counted: CountedLaunch | None = None

    @property
    def arithmetic(self) -> int:
        """The number of additions, subtractions, multiplications and divisions."""
        each = dict.fromkeys(ARITHMETIC - {"neg"}, 1) | dict.fromkeys(FUSED, 2)
        return sum(count * each.get(name, 0) for name, count in self.operations.items())

    @property
    def calls(self) -> int:
        """The number of functions of the rule table that take more than one instruction, such as `tanh`."""
        return sum(count for name, count in self.operations.items() if name in RULES.keys() - _INSTRUCTIONS)

    @property
    def bytes(self) -> int:
        """The bytes that are read and written."""
        return self.bytes_read + self.bytes_written

    def _title(self) -> str:
        """The first line of the table: the function, its outputs, their shape, and the dtype of the arithmetic."""
        outputs = f"{len(self.outputs)} outputs ({', '.join(self.outputs)})"
        return f"{self.name}: {outputs} of shape {self.shape}, {self.dtype}"

    def _rows(self) -> list[tuple[str, str]]:
        """The other lines of the table: each a label, which is empty where it is that of the line above, and a text."""
        counted = ", ".join(f"{count} {name}" for name, count in sorted(self.operations.items(), key=lambda at: -at[1]))
        rows = [
            ("layout", self.layout),
            ("operations", counted),
            ("memory", f"{self.bytes_read:,} bytes read, {self.bytes_written:,} written"),
        ]
        if self.streamed:
            rows.append(("stores", "streamed past the cache"))
        rows += [("" if at else "branches", branch) for at, branch in enumerate(self.branches)]
        rows += [("" if at else "orders", order) for at, order in enumerate(self.orders)]
        if self.cuda is not None:
            rows += _rows_of(self.cuda)
        if self.counted is not None:
            rows += [("" if at else "counted", text) for at, text in enumerate(self.counted.summary())]
        return rows

    def __str__(self) -> str:
        rows = self._rows()
        if self.counted is not None:
            rows += [("" if at else "lines", text) for at, text in enumerate(self.counted.text())]
        lines = [self._title(), *[f"  {label:<10}  {text}" for label, text in rows]]
        lines += ["", *(f"{name}\n{text}" if text else f"{name}: no change\n" for name, text in self.passes)]
        return "\n".join(lines).rstrip()

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # what IPython shows in a terminal
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from dualbcast.program.html_tables import explanation_table  # which only notebooks need

        lines = None if self.counted is None else self.counted.table()
        return explanation_table(self._title(), self._rows(), self.passes, lines)


def _rows_of(kernel: CudaKernel) -> list[tuple[str, str]]:
    """What the assembler and the disassembler say of a kernel."""
    major, minor = kernel.cc
    lanes = kernel.source.layout.lanes
    resources = f"{kernel.registers} registers, {kernel.spill_loads + kernel.spill_stores} bytes spilled"
    with contextlib.suppress(BackendError):  # a GPU that is newer than the table
        resources += f", occupancy {kernel.occupancy():.0%} in blocks of {kernel.block}"
    elements = f"{'one element' if lanes == 1 else f'{lanes} elements'} a thread"
    with contextlib.suppress(MissingDependencyError, BackendError):  # no nvdisasm, or one that does not know the GPU
        elements += f": {kernel.instructions()}"
    return [(f"sm_{major}{minor}", resources), ("", elements)]


def explain_call(
    call: Call, cc: tuple[int, int] | None = None, with_passes: bool = False, is_counted: bool = False
) -> Explanation:
    """The explanation of a planned call; of its CUDA kernel for a compute capability, if that is given, and then also
    of what a GPU would do."""
    from dualbcast.program import pipeline

    counted = None
    if is_counted and cc is not None:
        call, counted = _counted(call, cc)
    product, plan, dtypes = call.spec.product, call.plan, call.spec.dtypes
    arrays, layout = plan.operands.arrays, plan.geometry.layout
    kernel = None if cc is None else call.cuda_kernel(cc)
    function = product.function if cc is None else product.forward
    passes: list[tuple[str, str]] = []
    if with_passes:
        target, trace = call.backend() if cc is None else "cuda", [("product", function)]
        if target == "cpu":
            call.spec.program(layout, trace)
        else:
            call.spec.source(call.spec.wide(layout) if target == "cuda" else layout, target, trace)
        passes.append(("product", dump(function)))
        for (_, before), (name, after) in pairwise(trace):
            passes.append((name, "" if after == before else dump(after)))
    function = pipeline.run(pipeline.plain(), function)
    read = read_counts(function)
    is_on_cpu = kernel is None and plan.operands.module == "numpy"
    branches, streamed = _on_cpu(function, plan, dtypes) if is_on_cpu else ((), False)
    names = [param.name for param in function.params]
    kinds = [layout.classes[which] for which in layout.which]
    for position in () if plan.geometry.packing is None else plan.geometry.packing.inputs:
        kinds[position] = "packed"
    patterns = [f"{name} {kind}" for name, kind in zip([*names, "out"], kinds, strict=False)]
    return Explanation(
        name=function.name,
        dtype=call.spec.signature.compute,
        shape=plan.geometry.shape,
        outputs=tuple(output.name for output in function.outputs),
        operations=operations(function),
        bytes_read=sum(array.nbytes for array, name in zip(arrays, names, strict=True) if name in read),
        bytes_written=sum(
            dtype.itemsize * (plan.geometry.total if shape is None else math.prod(shape))
            for dtype, shape in zip(dtypes, plan.shapes or (None,) * len(dtypes), strict=True)
        ),
        layout=", ".join(patterns),
        branches=branches,
        orders=() if cc is not None else tuple(dict.fromkeys(_order(*plan) for plan in product.make_plans())),
        cuda=kernel,
        streamed=streamed,
        passes=tuple(passes),
        counted=counted,
    )


def _counted(call: Call, cc: tuple[int, int]) -> tuple[Call, CountedLaunch]:
    """The call as it would be on a GPU, with arrays of NumPy's; and what was counted, for which its kernel has run."""
    from dualbcast.counting.count import check_countable, count_launch  # which most processes never need
    from dualbcast.counting.launch import planned_for_gpu

    check_countable(call.plan)
    call = replace(call, plan=planned_for_gpu(call.plan))
    kernel, places = call.cuda_kernel(cc), list[Any]()
    source, function = call.spec.source(kernel.source.layout, "cuda", None, places), call.spec.product.function
    return call, count_launch(function.name, kernel, call.plan, source, places, function.location)


def _order(where: Location, plan: Elimination) -> str:
    """How a region was eliminated."""
    # Those that leave some vertices for the last are variants of the same orders.
    others = ", ".join(
        f"{name} {cost}" for name, cost in plan.costs.items() if name != plan.name and " to " not in name
    )
    text = f"line {where.line}  {linecache.getline(where.filename, where.line).strip()}  →  "
    return f"{text}{plan.name}: {plan.costs[plan.name]} operations" + (f" ({others})" if others else "")


def operations(function: Function) -> dict[str, int]:
    """The number of operations of each name in a function: both sides of a branch, one iteration of a loop."""
    from dualbcast.program import pipeline

    return dict(Counter(op.name for op in operations_of(pipeline.run(pipeline.plain(), function))))


def _on_cpu(function: Function, plan: Plan, dtypes: Sequence[np.dtype[Any]]) -> tuple[tuple[str, ...], bool]:
    """What a CPU's kernel makes of each branch and loop, of several on one line, such as a rule's, each outcome once;
    and whether it stores its outputs past the cache, which only kernels of vectors do."""
    from dualbcast.passes.if_conversion import branch_choices
    from dualbcast.passes.vector_analysis import fits_vectors, uniform_inputs
    from dualbcast.program import pipeline

    layout, total = plan.geometry.layout, plan.geometry.total
    uniform, trace = uniform_inputs(function, layout), pipeline.Trace()
    converted = pipeline.run(pipeline.for_vectors(uniform), function, trace)
    is_in_vectors = fits_vectors(converted, uniform)
    itemsizes = [*[array.itemsize for array in plan.operands.arrays], *[dtype.itemsize for dtype in dtypes]]
    count = len(plan.operands.arrays)
    streamed = is_in_vectors and total > 0 and goes_past_the_cache(layout, total, itemsizes, count)
    (_, before), _ = trace[-2:]
    outcomes = [(choice.location, str(choice)) for choice in branch_choices(before, uniform)]
    uniform_loops = {stmt.location for stmt in statements(converted.body) if isinstance(stmt, For)}
    for loop in [stmt for stmt in statements(function.body) if isinstance(stmt, For | While)]:
        if not is_in_vectors:
            outcomes.append((loop.location, "one element after the other"))
        elif loop.location in uniform_loops:
            outcomes.append((loop.location, "vectors (all elements have as many iterations)"))
        else:
            outcomes.append((loop.location, "vectors (elements leave the masked loop one by one)"))
            inside = [stmt.location for stmt in statements(loop.body) if isinstance(stmt, If)]
            outcomes += [(where, "select (in a masked loop)") for where in inside]
    lines: dict[str, None] = {}
    for where, outcome in sorted(outcomes, key=lambda at: (at[0].filename, at[0].line)):
        text = linecache.getline(where.filename, where.line).strip()
        at = f"line {where.line}"
        if where.filename != function.location.filename:
            at = os.path.basename(place_of(where.filename, where.line))
        lines[f"{at}  {text}  →  {outcome}"] = None
    return tuple(lines), streamed
