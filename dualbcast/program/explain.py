"""The explanation of a call: dtypes, layout, operations, bytes, passes, and a GPU kernel's registers and occupancy."""

from __future__ import annotations

import contextlib
import linecache
import math
import os
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dualbcast.errors import BackendError, MissingDependencyError
from dualbcast.ir.nodes import ARITHMETIC, FUSED, For, Function, If, While, dump
from dualbcast.ir.traversal import operations_of, statements, use_counts
from dualbcast.kernel_spec import Layout
from dualbcast.passes.if_conversion import branch_choices
from dualbcast.passes.scheduling import INSTRUCTIONS
from dualbcast.passes.vector_analysis import fits_vectors, uniform_inputs
from dualbcast.program import pipeline
from dualbcast.rules.table import RULES
from dualbcast.runtime.cpu.policy import goes_past_the_cache
from dualbcast.runtime.launch_plan import Plan

if TYPE_CHECKING:
    from dualbcast.runtime.cuda.kernel import CudaKernel


class Explanation(NamedTuple):
    """The kernel that a call runs, in figures. Print it.

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
        For each operation how often it stands in the kernel's text: both sides of branches, one iteration of loops.
    bytes_read, bytes_written : int
        Each element of an argument counts once. An argument that the kernel never reads counts nothing.
    layout : str
        The coalesced dimensions that each argument spans: 1 contiguous, s strided, 0 broadcast. An input that is
        packed has another order in memory, or repeats along short rows, and is read piece by piece.
    branches : tuple of str
        The outcome of each `if` and each loop in vectors on the CPU, with its line: a branch or a select, and why.
    cuda : CudaKernel or None
        The compiled CUDA kernel, where a compute capability was given: `registers`, `spill_loads`, `spill_stores`,
        `stack`, `shared` and `occupancy()` say how much of a GPU a launch takes.
    streamed : bool
        Whether a CPU kernel stores its outputs past the cache.
    passes : tuple of (str, str)
        With `passes=True`, the name of each pass and the IR after it, which is empty for a pass that changes nothing.
        The first entry is the product before all passes.
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
    cuda: CudaKernel | None = None
    streamed: bool = False
    passes: tuple[tuple[str, str], ...] = ()

    @property
    def arithmetic(self) -> int:
        """Additions, subtractions, multiplications and divisions."""
        each = dict.fromkeys(ARITHMETIC - {"neg"}, 1) | dict.fromkeys(FUSED, 2)
        return sum(count * each.get(name, 0) for name, count in self.operations.items())

    @property
    def calls(self) -> int:
        """Functions of the rule table that are more than an instruction."""
        return sum(count for name, count in self.operations.items() if name in RULES.keys() - INSTRUCTIONS)

    @property
    def bytes(self) -> int:
        """Read and written."""
        return self.bytes_read + self.bytes_written

    def __str__(self) -> str:
        counted = ", ".join(f"{count} {name}" for name, count in sorted(self.operations.items(), key=lambda at: -at[1]))
        lines = [
            f"{self.name}: {len(self.outputs)} outputs ({', '.join(self.outputs)}) of shape {self.shape}, {self.dtype}",
            f"  layout      {self.layout}",
            f"  operations  {counted}",
            f"  memory      {self.bytes_read:,} bytes read, {self.bytes_written:,} written",
        ]
        if self.streamed:
            lines.append("  stores      streamed past the cache")
        lines += [f"  {'branches' if at == 0 else '':<10}  {branch}" for at, branch in enumerate(self.branches)]
        if self.cuda is not None:
            major, minor = self.cuda.cc
            spills = self.cuda.spill_loads + self.cuda.spill_stores
            lines.append(f"  sm_{major}{minor}       {self.cuda.registers} registers, {spills} bytes spilled")
            with contextlib.suppress(BackendError):  # a GPU that is newer than the table
                lines[-1] += f", occupancy {self.cuda.occupancy():.0%} in blocks of {self.cuda.block}"
            lanes = self.cuda.source.layout.lanes
            lines.append(f"              {'one element' if lanes == 1 else f'{lanes} elements'} a thread")
            with contextlib.suppress(MissingDependencyError):  # nvdisasm
                lines[-1] += f": {self.cuda.instructions()}"
        lines += ["", *(f"{name}\n{text}" if text else f"{name}: no change\n" for name, text in self.passes)]
        return "\n".join(lines).rstrip()


def explain_kernel(
    function: Function,
    plan: Plan,
    dtypes: Sequence[np.dtype[Any]],
    compute: str,
    kernel: CudaKernel | None,
    trace: pipeline.Trace | None = None,
) -> Explanation:
    """The explanation of a planned call; with the `trace` of its passes, their IR too."""
    passes = [] if trace is None else [("product", dump(function))]
    for (_, before), (name, after) in zip([("", function), *(trace or ())], trace or (), strict=False):
        passes.append((name, "" if after == before else dump(after)))
    function = pipeline.run(pipeline.plain(), function)
    read = use_counts(function)
    operands = plan.operands
    arrays = operands.arrays
    layout = plan.layout
    names = [param.name for param in function.params]
    kinds = [layout.classes[which] for which in layout.which]
    for position in () if plan.geometry.packing is None else plan.geometry.packing.inputs:
        kinds[position] = "packed"
    patterns = [f"{name} {kind}" for name, kind in zip([*names, "out"], kinds, strict=False)]
    return Explanation(
        function.name,
        compute,
        plan.geometry.shape,
        tuple(output.name for output in function.outputs),
        operations(function),
        sum(array.nbytes for array, name in zip(arrays, names, strict=True) if name in read),
        sum(
            dtype.itemsize * (plan.total if shape is None else math.prod(shape))
            for dtype, shape in zip(dtypes, plan.shapes or (None,) * len(dtypes), strict=True)
        ),
        ", ".join(patterns),
        () if kernel is not None or operands.module != "numpy" else _branches(function, layout),
        kernel,
        kernel is None and _is_streamed(plan, dtypes) and _is_in_vectors(function, layout),
        tuple(passes),
    )


def operations(function: Function) -> dict[str, int]:
    """The number of operations of each name in a function: both sides of a branch, one iteration of a loop."""
    return dict(Counter(op.name for op in operations_of(pipeline.run(pipeline.plain(), function))))


def _is_streamed(plan: Plan, dtypes: Sequence[np.dtype[Any]]) -> bool:
    arrays = plan.operands.arrays
    if plan.operands.module != "numpy" or plan.total == 0:
        return False
    itemsizes = [kind.itemsize for kind in (*(array.dtype for array in arrays), *dtypes)]
    return goes_past_the_cache(plan.layout, plan.total, itemsizes, len(arrays))


def _is_in_vectors(function: Function, layout: Layout) -> bool:
    """Whether a row's elements are computed as vectors on the CPU; only such kernels have streaming stores."""
    uniform = uniform_inputs(function, layout)
    return fits_vectors(pipeline.run(pipeline.for_vectors(uniform), function), uniform)


def _branches(function: Function, layout: Layout) -> tuple[str, ...]:
    """The outcome of each branch and loop on the CPU; of several on one line, such as a rule's, each outcome once."""
    uniform, trace = uniform_inputs(function, layout), pipeline.Trace()
    converted = pipeline.run(pipeline.for_vectors(uniform), function, trace)
    (_, before), _ = trace[-2:]
    outcomes = [(choice.location, str(choice)) for choice in branch_choices(before, uniform)]
    is_in_vectors = fits_vectors(converted, uniform)
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
            at = f"{os.path.basename(where.filename)}:{where.line}"
        lines[f"{at}  {text}  →  {outcome}"] = None
    return tuple(lines)
