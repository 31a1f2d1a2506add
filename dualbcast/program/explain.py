"""What a call will run, in numbers: dtypes, layout, operations, bytes, and a GPU kernel's registers and occupancy."""

from __future__ import annotations

import contextlib
import linecache
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dualbcast.codegen.kernel_text import operations
from dualbcast.errors import BackendError, MissingDependencyError
from dualbcast.frontend.rule_bodies import without_customs
from dualbcast.ir.nodes import ARITHMETIC, FUSED, Assign, For, Function, If, Load, While, statements
from dualbcast.kernel_spec import Layout
from dualbcast.passes.call_scheduling import INSTRUCTIONS
from dualbcast.passes.readable_form import place_loads
from dualbcast.passes.uniformity import steady_inputs
from dualbcast.passes.vectorization import together
from dualbcast.rules.table import RULES
from dualbcast.runtime.cpu.nontemporal_policy import goes_past_the_cache
from dualbcast.runtime.launch_plan import Plan

if TYPE_CHECKING:
    from dualbcast.runtime.cuda.kernel import CudaKernel

__all__ = ["Explanation", "explain_kernel"]


class Explanation(NamedTuple):
    """What a call will run. Print it.

    Attributes
    ----------
    name : str
        The function's.
    dtype : str
        Of the arithmetic.
    shape : tuple of int
        Of the result.
    outputs : tuple of str
        What the kernel stores.
    operations : dict
        For each operation how often the kernel's text has it: both sides of branches, one turn of loops.
    bytes_read, bytes_written : int
        With every element of an argument read once; an argument that the kernel never reads counts nothing.
    layout : str
        The coalesced dimensions that each argument spans: 1 contiguous, s strided, 0 broadcast. An input that is
        packed lies otherwise in memory, or repeats along short rows, and is read piece by piece; see `runtime.packing`.
    branches : tuple of str
        What becomes of each `if` and each loop in vectors on the CPU, with its place: a branch or a select, and why.
    cuda : CudaKernel or None
        Where a compute capability was given.
    streamed : bool
        Whether a CPU kernel stores its outputs past the cache; see `runtime.streams`.
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
        return "\n".join(lines)


def explain_kernel(
    function: Function, plan: Plan, dtypes: Sequence[np.dtype[Any]], compute: str, kernel: CudaKernel | None
) -> Explanation:
    """The explanation of a planned call."""
    function = without_customs(function)
    read = {
        stmt.value.name
        for stmt in statements(place_loads(function).body)
        if isinstance(stmt, Assign) and isinstance(stmt.value, Load)
    }
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
        kernel is None and _is_streamed(plan, dtypes) and together(function, steady_inputs(function, layout)).straight,
    )


def _is_streamed(plan: Plan, dtypes: Sequence[np.dtype[Any]]) -> bool:
    arrays = plan.operands.arrays
    if plan.operands.module != "numpy" or plan.total == 0:
        return False
    itemsizes = [kind.itemsize for kind in (*(array.dtype for array in arrays), *dtypes)]
    return goes_past_the_cache(plan.layout, plan.total, itemsizes, len(arrays))


def _branches(function: Function, layout: Layout) -> tuple[str, ...]:
    """What becomes of each branch and loop on the CPU; of several of one line, such as a rule's, each outcome once."""
    steady = steady_inputs(function, layout)
    chosen, choices, straight = together(function, steady)
    found = [(choice.location, str(choice)) for choice in choices]
    even = {stmt.location for stmt in statements(chosen.body) if isinstance(stmt, For)}
    for loop in [stmt for stmt in statements(function.body) if isinstance(stmt, For | While)]:
        if not straight:
            found.append((loop.location, "one element after the other"))
        elif loop.location in even:
            found.append((loop.location, "vectors (all elements take as many turns)"))
        else:
            found.append((loop.location, "vectors (several elements take each turn together)"))
            inside = [stmt.location for stmt in statements(loop.body) if isinstance(stmt, If)]
            found += [(where, "select (as its loop runs for several elements together)") for where in inside]
    lines: dict[str, None] = {}
    for where, outcome in sorted(found, key=lambda at: (at[0].filename, at[0].line)):
        text = linecache.getline(where.filename, where.line).strip()
        at = f"line {where.line}"
        if where.filename != function.location.filename:
            at = f"{os.path.basename(where.filename)}:{where.line}"
        lines[f"{at}  {text}  →  {outcome}"] = None
    return tuple(lines)
