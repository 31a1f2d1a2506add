"""What a call will run, in numbers: dtypes, layout, operations, bytes, and a GPU kernel's registers and occupancy."""

from __future__ import annotations

import contextlib
import linecache
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from dualbcast.abi import Layout
from dualbcast.compiler.arrange import place_loads
from dualbcast.compiler.emit import operations
from dualbcast.compiler.ir import ARITHMETIC, Assign, Function, Load, statements
from dualbcast.compiler.rules import RULES
from dualbcast.compiler.selects import into_selects
from dualbcast.compiler.templates import without_customs
from dualbcast.compiler.uniform import steady_inputs
from dualbcast.errors import MissingDependencyError
from dualbcast.runtime.broadcast import Plan

if TYPE_CHECKING:
    from dualbcast.runtime.cuda import CudaKernel

__all__ = ["Explanation", "explain_kernel"]

_BLOCK = 256
# Rows of the table that processors have an instruction for, or little more.
_INSTRUCTIONS = frozenset({"ceil", "copysign", "fabs", "floor", "rint", "sqrt", "trunc"})


@dataclass(frozen=True, slots=True)
class Explanation:
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
        The coalesced dimensions that each argument spans: 1 contiguous, s strided, 0 broadcast.
    branches : tuple of str
        What becomes of each `if` on the CPU, with its place: a branch or a select, and why.
    cuda : CudaKernel or None
        Where a compute capability was given.
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

    @property
    def arithmetic(self) -> int:
        """Additions, subtractions, multiplications and divisions."""
        return sum(count for name, count in self.operations.items() if name in ARITHMETIC - {"neg"})

    @property
    def calls(self) -> int:
        """Functions of the rule table that are more than an instruction."""
        return sum(count for name, count in self.operations.items() if name in RULES.keys() - _INSTRUCTIONS)

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
        lines += [f"  {'branches' if at == 0 else '':<10}  {branch}" for at, branch in enumerate(self.branches)]
        if self.cuda is not None:
            major, minor = self.cuda.cc
            spills = self.cuda.spill_loads + self.cuda.spill_stores
            lines.append(
                f"  sm_{major}{minor}       {self.cuda.registers} registers, {spills} bytes spilled, "
                f"occupancy {self.cuda.occupancy(_BLOCK):.0%} in blocks of {_BLOCK}"
            )
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
    patterns = [f"{name} {layout.classes[which]}" for name, which in zip([*names, "out"], layout.which, strict=False)]
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
    )


def _branches(function: Function, layout: Layout) -> tuple[str, ...]:
    """What becomes of each branch on the CPU; of several of one line, such as those of one rule, each outcome once."""
    _, choices = into_selects(function, steady_inputs(function, layout))
    found: dict[str, None] = {}
    for choice in sorted(choices, key=lambda choice: (choice.location.filename, choice.location.line)):
        where = choice.location
        text = linecache.getline(where.filename, where.line).strip()
        found[f"{PurePath(where.filename).name}:{where.line}  {text}  →  {choice}"] = None
    return tuple(found)
