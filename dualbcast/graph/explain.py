"""Explanations of a graph.

Comes in: a Variable. Goes out: a table of the kernels and operations that give its value, and of the backward pass.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from dualbcast.autodiff.operation_cost import cost_of_element
from dualbcast.errors import ArgumentError, a_or_an
from dualbcast.graph.fused_region import REGION, Region, pullback_of, region_of
from dualbcast.graph.lazy import Output, gather
from dualbcast.graph.primitives import tracked_positions
from dualbcast.graph.tape import Node
from dualbcast.graph.variable import Variable
from dualbcast.program.element import Element


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel, or one operation of the array library.

    Attributes
    ----------
    phase : str
        "forward" or "backward".
    name : str
        The operations in it.
    is_kernel : bool
        Whether it is a kernel of this package.
    shape : tuple of int
        The shape that its arguments broadcast to, or that of its result.
    operations : float
        The operations of a kernel for an element, in units of an addition; a loop whose length depends on data counts
        as 8 iterations.
    bytes_read, bytes_written : int
        The bytes moved if every argument is read once.
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
    """The kernels and operations of a graph, in their order. Print it.

    Attributes
    ----------
    rows : tuple of Row
    """

    rows: tuple[Row, ...]

    def kernels(self, phase: str = "") -> list[Row]:
        """The kernels of this package, of one phase or of both."""
        return [row for row in self.rows if row.is_kernel and row.phase.startswith(phase)]

    def __str__(self) -> str:
        table = Table(box=None, pad_edge=False)
        for title in ("phase", "what", "shape", "ops", "read", "written", "note"):
            table.add_column(title, justify="right" if title in ("ops", "read", "written") else "left")
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
    source: Output | None = result.source
    steps: list[_Step] = []
    if result._value is None and source is not None:
        region = region_of(gather(source.expression), (source,))
        steps.append(_Step(None, region, region.gathered.leaves))
        nodes = _nodes(region.gathered.leaves)
    else:
        nodes = _nodes([result])
    for node in nodes:
        steps.append(_Step(node, node.static["region"] if node.primitive is REGION else None, node.inputs))
    rows = [_forward(step) for step in reversed(steps)]
    for step in steps if result.tracked else ():
        wrt = tracked_positions(step.inputs)
        if wrt:
            rows.append(_backward(step, wrt))
    return Explanation(tuple(rows))


class _Step(NamedTuple):
    """An operation of the array library, which has no region; or a region, which has no node while it waits."""

    node: Node | None
    region: Region | None
    inputs: Sequence[Any]


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


def _bytes(*arrays: Any) -> int:
    """The bytes of the Variables and outputs among some inputs."""
    return sum(math.prod(each.shape) * each.dtype.itemsize for each in arrays if isinstance(each, Variable | Output))


def _bytes_of_outputs(node: Node) -> int:
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in node.types)


def _forward(step: _Step) -> Row:
    note = "waits" if step.node is None else "has run"
    read, region = _bytes(*step.inputs), step.region
    if region is None:
        assert step.node is not None
        return _operation("forward", step.node, step.node.primitive.name, read, _bytes_of_outputs(step.node), note)
    written = _bytes(*region.outputs)
    decision = region.decision or (region.decide() if tracked_positions(step.inputs) else None)
    if decision is not None:
        note += f"; {'keeps its Jacobian' if decision.keeps else 'no Jacobian'}: {decision.reason}"
        if decision.keeps:
            written += decision.blocks
    return _kernel("forward", region, region.element, read, written, note)


def _backward(step: _Step, wrt: tuple[int, ...]) -> Row:
    read, region = _bytes(*step.inputs), step.region
    written = _bytes(*[step.inputs[at] for at in wrt])
    if region is None:
        assert step.node is not None
        name = f"backward of {step.node.primitive.name}"
        return _operation("backward", step.node, name, read + _bytes_of_outputs(step.node), written)
    present = region.element.floats
    element, blocks = pullback_of(region, present, wrt)
    cotangents = _bytes(*[region.outputs[at] for at in present])
    if blocks is None:
        return _kernel("backward", region, element, cotangents + read, written, "computes the derivatives anew")
    read = cotangents + sum(array.nbytes for array in blocks)
    return _kernel("backward", region, element, read, written, "contracts the Jacobian that was kept")


def _operation(phase: str, node: Node, name: str, read: int, written: int, note: str = "") -> Row:
    return Row(phase, name, False, node.types[0][0], 0.0, read, written, note)


def _kernel(phase: str, region: Region, element: Element, read: int, written: int, note: str) -> Row:
    return Row(phase, element.label, True, region.shape, cost_of_element(element.function), read, written, note)
