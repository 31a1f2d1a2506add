"""Explanations of a graph.

Comes in: a Variable. Goes out: a table of the kernels and operations that give its value, and of the backward pass.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from dualbcast.errors import ArgumentError, a_or_an
from dualbcast.graph.cost import work
from dualbcast.graph.fused_region import REGION, Region, pullback_of, region_of
from dualbcast.graph.lazy import gather
from dualbcast.graph.tape import Node
from dualbcast.graph.variable import Variable
from dualbcast.program.element import Element

__all__ = ["Explanation", "Row", "explain"]


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
        Its value need not have been computed yet. The recorded part of the graph leads back to the Variables that
        derivatives may be asked for; operations that were not recorded are not known any more.

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
    steps: list[tuple[Region | Node, bool]] = []
    source = result.source
    if result._value is None and source is not None:
        region = region_of(gather(source.expression), source.index)
        steps.append((region, False))
        before = [leaf for leaf in region.gathered.leaves if isinstance(leaf, Variable)]
    else:
        before = [result]
    steps.extend((node, True) for node in _nodes(before))
    forward = [_forward(step, is_done) for step, is_done in reversed(steps)]
    backward = [row for step, _ in steps for row in _backward(step)] if result.tracked else []
    return Explanation((*forward, *backward))


def _nodes(variables: Sequence[Variable]) -> list[Node]:
    """The recorded nodes behind some Variables, the latest first."""
    nodes: dict[int, Node] = {}
    pending = [each.node for each in variables if each.node is not None]
    while pending:
        node = pending.pop()
        if id(node) not in nodes:
            nodes[id(node)] = node
            pending.extend(each.node for each in node.inputs if isinstance(each, Variable) and each.node is not None)
    return sorted(nodes.values(), key=lambda node: -node.serial)


def _sizes(inputs: Sequence[Any]) -> int:
    return sum(each.size * each.dtype.itemsize for each in inputs if isinstance(each, Variable))


def _forward(step: Region | Node, is_done: bool) -> Row:
    note = "has run" if is_done else "waits"
    if isinstance(step, Node) and step.primitive is not REGION:
        written = sum(math.prod(shape) * dtype.itemsize for shape, dtype in step.forms)
        return Row("forward", step.primitive.name, False, step.forms[0][0], 0.0, _sizes(step.inputs), written, note)
    region: Region = step.static["region"] if isinstance(step, Node) else step
    inputs = step.inputs if isinstance(step, Node) else tuple(region.gathered.leaves)
    decision = region.decision or region.decide()
    if decision is not None:
        note += f"; {'keeps its Jacobian' if decision.keeps else 'no Jacobian'}: {decision.reason}"
    written = sum(region.bytes_of(output) for output in region.outputs)
    if decision is not None and decision.keeps:
        written += decision.blocks
    element = region.element
    return _kernel("forward", element, region.shape, inputs, written, note)


def _backward(step: Region | Node) -> Iterator[Row]:
    if isinstance(step, Node) and step.primitive is not REGION:
        tracked = [each for each in step.inputs if isinstance(each, Variable) and each.tracked]
        if tracked:
            read = _sizes(step.inputs) + sum(math.prod(shape) * dtype.itemsize for shape, dtype in step.forms)
            name = f"backward of {step.primitive.name}"
            yield Row("backward", name, False, step.forms[0][0], 0.0, read, _sizes(tracked), "")
        return
    region: Region = step.static["region"] if isinstance(step, Node) else step
    inputs = step.inputs if isinstance(step, Node) else tuple(region.gathered.leaves)
    wrt = tuple([at for at, each in enumerate(inputs) if isinstance(each, Variable) and each.tracked])
    if not wrt:
        return
    present = region.element.floats
    blocks = step.static["blocks"] if isinstance(step, Node) else None
    element, kept = pullback_of(region, present, wrt, blocks)
    cotangents = sum(region.bytes_of(region.outputs[at]) for at in present)
    read = cotangents + sum(array.nbytes for array in kept) if kept is not None else cotangents + _sizes(inputs)
    written = _sizes([inputs[at] for at in wrt])
    note = "computes the derivatives anew" if kept is None else "contracts the Jacobian that was kept"
    yield Row("backward", element.label, True, region.shape, work(element.function), read, written, note)


def _kernel(
    phase: str, element: Element, shape: tuple[int, ...], inputs: Sequence[Any], written: int, note: str
) -> Row:
    return Row(phase, element.label, True, shape, work(element.function), _sizes(inputs), written, note)
