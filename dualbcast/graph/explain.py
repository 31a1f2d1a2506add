"""Explanations of a graph.

Comes in: a Variable. Goes out: a table of the kernels and operations that give its value, and of the backward pass.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from dualbcast.errors import ArgumentError, a_or_an
from dualbcast.graph.arrays import is_complex
from dualbcast.graph.fused_region import REGION, Region, pullback_of, region_of
from dualbcast.graph.lazy import Output, gather
from dualbcast.graph.primitives import tracked_positions
from dualbcast.graph.tape import Node
from dualbcast.graph.variable import Variable
from dualbcast.passes.cost_model import cost_of_element
from dualbcast.program.element import Element


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel, or one operation of the array library.

    Attributes
    ----------
    phase : str
        "forward" or "backward".
    name : str
        The names of its operations.
    is_kernel : bool
        Whether it is a kernel of this package.
    shape : tuple of int
        The shape to which the arguments of a kernel broadcast, or that of the result of another operation.
    operations : float
        The work of a kernel for an element, in units of an addition; a loop whose length depends on data counts as 8
        iterations.
    bytes_read : int
        The bytes that are read if every argument is read once.
    bytes_written : int
        The bytes that are written.
    note : str
        Whether it has run, and whether it keeps its Jacobian and why.
    """

    phase: str
    name: str
    is_kernel: bool
    shape: tuple[int, ...]
    operations: float
    bytes_read: int
    bytes_written: int
    note: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The kernels and operations of a graph, in the order in which they run. `print` shows a table.

    Attributes
    ----------
    rows : tuple of Row
    """

    rows: tuple[Row, ...]

    def kernels(self, phase: str = "") -> list[Row]:
        """The rows that are kernels of this package, of one phase or, by default, of both."""
        return [row for row in self.rows if row.is_kernel and row.phase.startswith(phase)]

    def __str__(self) -> str:
        figures = [Column(title, justify="right") for title in ("ops", "read", "written")]
        table = Table("phase", "what", "shape", *figures, "note", box=None, pad_edge=False)
        for row in self.rows:
            operations = f"{row.operations:.0f}" if row.is_kernel else ""
            moved = (f"{row.bytes_read:,}", f"{row.bytes_written:,}")
            kind = "kernel " if row.is_kernel else ""
            table.add_row(row.phase, kind + row.name, str(row.shape), operations, *moved, row.note)
        stream = io.StringIO()
        Console(file=stream, width=150, color_system=None).print(table)
        return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def explain(result: Variable) -> Explanation:
    """The kernels and array operations behind a Variable, without running any.

    Parameters
    ----------
    result : Variable
        Its value need not have been computed yet. The graph leads back to the Variables in which derivatives can be
        taken; operations that were not recorded do not appear.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> f, c, i, g = (graph.Variable(np.linspace(-1.0, 1.0, 4096)) for _ in range(4))
    >>> y = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
    >>> explanation = graph.explain(y)
    >>> [row.phase for row in explanation.kernels()], explanation.kernels()[0].bytes_read
    (['forward', 'backward'], 131072)
    """
    if not isinstance(result, Variable):
        raise ArgumentError(f"graph.explain takes a Variable, not {a_or_an(type(result).__name__)}")
    if is_complex(result):
        raise ArgumentError("this Variable is complex, and so a pair: explain its parts, z.real and z.imag")
    nodes = _nodes([result])
    waits = result._value is None
    if waits:
        # The node that the kernel will have.
        source: Output = result.source
        region = region_of(gather(source.expression), (source,))
        nodes = [Node(REGION, tuple(region.gathered.leaves), {"region": region}, [result])]
        nodes.extend(_nodes(region.gathered.leaves))
    rows = [_forward(node, "waits" if waits and node is nodes[0] else "has run") for node in reversed(nodes)]
    if result.tracked:
        rows.extend([_backward(node) for node in nodes if tracked_positions(node.inputs)])
    return Explanation(tuple(rows))


def _nodes(inputs: Sequence[Any]) -> list[Node]:
    """The recorded nodes behind some inputs, the latest first."""
    nodes: dict[int, Node] = {}
    pending = list(inputs)
    while pending:
        each = pending.pop()
        if isinstance(each, Variable) and each.node is not None and id(each.node) not in nodes:
            nodes[id(each.node)] = each.node
            pending.extend(each.node.inputs)
    return sorted(nodes.values(), key=lambda node: -node.serial)


def _bytes(types: Iterable[tuple[tuple[int, ...], Any]]) -> int:
    """The bytes of arrays of these shapes and dtypes."""
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in types)


def _types(inputs: Iterable[Any]) -> list[tuple[tuple[int, ...], Any]]:
    return [(each.shape, each.dtype) for each in inputs if isinstance(each, Variable)]


def _forward(node: Node, note: str) -> Row:
    read, written = _bytes(_types(node.inputs)), _bytes(node.types)
    region: Region | None = node.static.get("region")
    if region is None:
        return Row("forward", node.primitive.name, False, node.types[0][0], 0.0, read, written, note)
    decision = region.decision or (region.decide() if tracked_positions(node.inputs) else None)
    if decision is not None:
        note += f"; {'keeps its Jacobian' if decision.keeps else 'no Jacobian'}: {decision.reason}"
        if decision.keeps:
            written += decision.blocks
    return _kernel("forward", region, region.element, read, written, note)


def _backward(node: Node) -> Row:
    read, wrt = _bytes(_types(node.inputs)), tracked_positions(node.inputs)
    written = _bytes(_types(node.inputs[at] for at in wrt))
    region: Region | None = node.static.get("region")
    if region is None:
        name, read = f"backward of {node.primitive.name}", read + _bytes(node.types)
        return Row("backward", name, False, node.types[0][0], 0.0, read, written, "")
    present = region.element.floats
    element, blocks = pullback_of(region, present, wrt)
    cotangents = _bytes(node.types[at] for at in present)
    if blocks is None:
        return _kernel("backward", region, element, cotangents + read, written, "computes the derivatives anew")
    read = cotangents + sum(array.nbytes for array in blocks)
    return _kernel("backward", region, element, read, written, "contracts the Jacobian that was kept")


def _kernel(phase: str, region: Region, element: Element, read: int, written: int, note: str) -> Row:
    return Row(phase, element.label, True, region.shape, cost_of_element(element.function), read, written, note)
