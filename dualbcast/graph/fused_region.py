"""Fused regions: lazy expressions that have become one kernel.

Comes in: an element function with its inputs, which joins the expressions that wait. Goes out: their values once they
are needed, and a node. The pullback of a region is an expression again, so it joins the operations before and after it,
and can be differentiated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dualbcast.graph import checkpoint_policy
from dualbcast.graph.arrays import as_array, is_array, is_float
from dualbcast.graph.composition import TOTAL, composition_of, contracted
from dualbcast.graph.dispatch import registered
from dualbcast.graph.launch_log import launched
from dualbcast.graph.lazy import LIMITS, Expression, Gathered, Output, gather, waiting
from dualbcast.graph.primitives import arrays_of, is_any_tracked
from dualbcast.graph.tape import STATE, Cotangents, Node, Primitive
from dualbcast.graph.variable import Variable
from dualbcast.program.element import Element
from dualbcast.runtime.cuda.memory import beside

__all__ = ["REGION", "Region", "compute", "defer", "pullback_of", "region_of", "reopen", "settle", "total"]

Shape = tuple[int, ...]
# By output and leaf, the Jacobian: arrays, and numbers where it is constant.
Blocks = dict[tuple[int, int], Any]


def defer(
    element: Element,
    inputs: Sequence[Any],
    shape: Shape,
    compute_dtype: np.dtype[Any],
    dtypes: tuple[np.dtype[Any], ...],
    sums: tuple[Shape | None, ...] | None = None,
) -> tuple[Variable, ...]:
    """Variables for the outputs of an element function, which is computed when one of their values is needed.

    Parameters
    ----------
    element : Element
        The function.
    inputs : sequence
        For each of its parameters a Variable or a number.
    shape : tuple of int
        The shape that they broadcast to.
    compute_dtype : numpy.dtype
        The dtype of the arithmetic.
    dtypes : tuple of numpy.dtype
        The dtypes of the outputs.
    sums : tuple of (tuple of int or None), optional
        For each output the shape that it is summed to, if it is.
    """
    tracked = STATE.is_recording and is_any_tracked(inputs)
    sums = (None,) * len(dtypes) if sums is None else sums
    if not STATE.is_fusing or math.prod(shape) < LIMITS.elements:
        for each in inputs:
            if isinstance(each, Variable):
                settle(each)
        if tracked:
            return _recorded(Expression(element, tuple(inputs), shape, compute_dtype, dtypes, sums, tracked))
        return tuple([Variable._of(array, False) for array in _values(element, inputs, shape, dtypes, sums)])

    def joins(each: Any) -> Any:
        if not isinstance(each, Variable) or each._value is not None:
            return each
        output = each.source
        assert output is not None
        expression = output.expression
        fits = (
            expression.shape == shape
            and expression.compute == compute_dtype
            and expression.element.options.runs_like(element.options)
            and expression.sums[output.index] is None
            and (expression.tracked or not tracked or not expression.detached or not is_float(each.dtype))
        )
        if fits:
            return output
        settle(each)
        return each

    expression = Expression(
        element, tuple([joins(each) for each in inputs]), shape, compute_dtype, dtypes, sums, tracked
    )
    outputs = expression.wait()
    if expression.exceeds_limits():
        # Some of it may have been computed in the meantime.
        expression.count_again(gather(expression))
        if expression.exceeds_limits():
            for each in waiting(expression.inputs):
                compute(each)
            expression = Expression(element, tuple(inputs), shape, compute_dtype, dtypes, sums, tracked)
            outputs = expression.wait()
    return outputs


def total(variable: Variable, shape: Shape) -> Variable:
    """The sum of a Variable over the axes where `shape` has length 1, by the kernel that computes the Variable."""
    sums = None if shape == variable.shape else shape
    return defer(TOTAL, (variable,), variable.shape, variable.dtype, (variable.dtype,), (sums,))[0]


def _recorded(expression: Expression) -> tuple[Variable, ...]:
    """The outputs of an expression that does not wait, and that no other waits for."""
    gathered, count = gather(expression), len(expression.dtypes)
    first, element = len(gathered.leaves), expression.element
    if first < len(expression.inputs):  # some are the same
        element = composition_of(gathered).element(tuple(range(first, first + count)))
    origin = tuple([Output(expression, index) for index in range(count)])
    region = Region(element, gathered, origin, expression.shape, expression.compute)
    arrays, blocks = region.run(expression.dtypes, expression.sums, tracked=True)
    outputs = tuple([Variable._of(array, is_float(array.dtype)) for array in arrays])
    _record(region, outputs, blocks)
    return outputs


def _values(
    element: Element,
    inputs: Sequence[Any],
    shape: Shape,
    dtypes: tuple[np.dtype[Any], ...],
    sums: tuple[Shape | None, ...],
) -> list[Any]:
    """The arrays of the outputs of an element function, from Variables and numbers."""
    values = arrays_of(inputs)
    launched(element.label, "value", shape, len(values), len(dtypes))
    shapes = None if sums.count(None) == len(sums) else sums
    return [as_array(each) for each in element.parts(values, dtypes, shapes)]


def _record(region: Region, outputs: tuple[Variable, ...], blocks: Blocks | None) -> None:
    """Give the outputs of a region the node that they come from."""
    node = region.node(outputs, blocks)
    for place, output in enumerate(outputs):
        if output.tracked:
            output.node, output.index = node, place


def settle(variable: Variable) -> None:
    """Compute a Variable that waits."""
    if variable._value is None and variable.source is not None:
        compute(variable.source.expression)


@registered
def compute(expression: Expression) -> None:
    """Run the kernel of an expression and all that it waits for, and give its Variables their values."""
    gathered = gather(expression)
    composition = composition_of(gathered)
    last = len(gathered.order) - 1
    wanted = [(last, index, held) for index, held in expression.uncomputed()]
    for at, inner in enumerate(gathered.order[:-1]):
        for index, held in inner.uncomputed() if inner.tracked == expression.tracked else ():
            # Sums are wanted sooner or later, and cost little to write. Uncomputed, they would keep all their inputs.
            if inner.sums[index] is not None or (at, index) in composition.learned:
                wanted.append((at, index, held))
        if inner.seen is None:
            inner.seen = composition, at
    for each in gathered.order:
        each.forget()
    if expression.seen is not None:
        # It was an inner expression once, and was not stored: the same composition will store it the next time.
        earlier, at = expression.seen
        earlier.learned.update((at, index) for place, index, _ in wanted if place == last)
    dtypes = tuple([gathered.order[at].dtypes[index] for at, index, _ in wanted])
    sums = tuple([gathered.order[at].sums[index] for at, index, _ in wanted])
    origin = tuple([Output(gathered.order[at], index) for at, index, _ in wanted])
    element = composition.element(tuple([gathered.number(output) for output in origin]))
    region = Region(element, gathered, origin, expression.shape, expression.compute)
    arrays, blocks = region.run(dtypes, sums, expression.tracked)
    outputs = tuple([held for _, _, held in wanted])
    if expression.tracked:
        _record(region, outputs, blocks)
    for held, array in zip(outputs, arrays, strict=True):
        held._value = array
        if held.node is None:
            # Otherwise a loop without derivatives would keep everything that it has ever computed.
            held.source = None


class Region:
    """The expressions that a kernel was made of, which the node that records it keeps.

    Attributes
    ----------
    element : Element
        The function, of the leaves.
    gathered : Gathered
        The expressions in it.
    outputs : tuple of Output
        For each output of the function the output of an expression that it is.
    shape, compute
        As for an Expression.
    decision : Decision or None
        Whether it keeps its Jacobian, and why.
    """

    __slots__ = ("compute", "decision", "element", "gathered", "outputs", "shape")

    def __init__(
        self,
        element: Element,
        gathered: Gathered,
        outputs: tuple[Output, ...],
        shape: Shape,
        compute: np.dtype[Any],
    ) -> None:
        self.element, self.gathered, self.outputs = element, gathered, outputs
        self.shape, self.compute = shape, compute
        self.decision: checkpoint_policy.Decision | None = None

    @property
    def tracked(self) -> tuple[int, ...]:
        """The leaves that carry derivatives."""
        leaves = enumerate(self.gathered.leaves)
        return tuple([at for at, leaf in leaves if isinstance(leaf, Variable) and leaf.tracked])

    def bytes_of(self, output: Output) -> int:
        """The size of an output's array."""
        return math.prod(output.shape) * output.dtype.itemsize

    def decide(self) -> checkpoint_policy.Decision | None:
        """Whether to keep the Jacobian; None where no derivative can be asked for, or something is summed."""
        wrt = self.tracked
        if not wrt or True in [output.expression.sums[output.index] is not None for output in self.outputs]:
            return None
        return checkpoint_policy.decide(self.element, self.gathered.leaves, wrt, self.shape, self.compute)

    def run(
        self, dtypes: tuple[np.dtype[Any], ...], sums: tuple[Shape | None, ...], tracked: bool
    ) -> tuple[list[Any], Blocks | None]:
        """The arrays of the outputs, and the Jacobian where it pays to keep it for the backward pass."""
        leaves = self.gathered.leaves
        self.decision = self.decide() if tracked else None
        if self.decision is not None and self.decision.keeps:
            kept = self._keep(self.tracked, dtypes)
            if kept is not None:
                return kept
            self.decision = checkpoint_policy.Decision(False, "there was no memory for the Jacobian")
        return _values(self.element, leaves, self.shape, dtypes, sums), None

    def like(self, gathered: Gathered, outputs: tuple[Output, ...]) -> Region:
        """A region of the same shape and dtype."""
        numbers = tuple([gathered.number(output) for output in outputs])
        return Region(composition_of(gathered).element(numbers), gathered, outputs, self.shape, self.compute)

    def node(self, outputs: tuple[Variable, ...], blocks: Blocks | None = None) -> Node:
        """The node that records it."""
        return Node(REGION, tuple(self.gathered.leaves), {"region": self, "blocks": blocks}, outputs)

    def _keep(self, wrt: tuple[int, ...], dtypes: tuple[np.dtype[Any], ...]) -> tuple[list[Any], Blocks] | None:
        """Value and Jacobian; None where there is no memory for them, or the outputs have dtypes of their own."""
        values = arrays_of(self.gathered.leaves)
        try:
            with beside(values):
                call = self.element.prepare("value_and_jacobian", values, wrt)
                if call.spec.dtypes[: len(dtypes)] != dtypes:
                    return None
                outputs = call.run()
        except MemoryError:
            return None
        launched(self.element.label, "value_and_jacobian", self.shape, len(values), len(outputs))
        blocks: Blocks = {}
        for place, block in call.spec.product.blocks.items():
            blocks[place[0], place[1]] = block.constant if block.stored is None else as_array(outputs[block.stored])
        return [as_array(each) for each in outputs[: len(dtypes)]], blocks


def _never(*_: Any) -> Any:
    raise AssertionError("regions are run by `compute`")


def _pull(node: Node, cotangents: tuple[Any, ...], wanted: tuple[bool, ...]) -> Cotangents:
    """The cotangents of a region's leaves, by one kernel, which sums over the axes along which a leaf was broadcast."""
    region: Region = node.static["region"]
    blocks: Blocks | None = node.static["blocks"]
    present = tuple([at for at, each in enumerate(cotangents) if each is not None])
    wrt = tuple([at for at, is_wanted in enumerate(wanted) if is_wanted])
    given = [cotangents[at] for at in present]
    leaves = [node.inputs[at] for at in wrt]
    # Kernels write no other byte order; `backward` converts.
    dtypes = tuple([dtype if dtype.isnative else dtype.newbyteorder("=") for dtype in [leaf.dtype for leaf in leaves]])
    sums = tuple([None if leaf.shape == region.shape else leaf.shape for leaf in leaves])
    # The products with a kept Jacobian have no derivative in the leaves.
    element, kept = pullback_of(region, present, wrt, None if STATE.is_recording else blocks)
    sources = node.inputs if kept is None else [Variable._of(each, False) for each in kept]
    forms = tuple([(each.shape, each.dtype) for each in given if each is not None])
    places, stored = _destinations(element, forms, region.shape, dtypes, sums)
    inputs, results = [*sources, *given], list(given)
    if stored:
        parts = tuple([dtypes[at] for at in stored]), tuple([sums[at] for at in stored])
        results += defer(element.select(stored), inputs, region.shape, region.compute, *parts)
    remaining = iter(places)
    return [results[next(remaining)] if is_wanted else None for is_wanted in wanted]


@lru_cache(maxsize=1024)
def _destinations(
    element: Element,
    given: tuple[tuple[Shape, np.dtype[Any]], ...],
    shape: Shape,
    dtypes: tuple[np.dtype[Any], ...],
    sums: tuple[Shape | None, ...],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """For each output of a pullback its place, and which outputs are computed.

    The places count the given cotangents first, and then the computed outputs. Equal outputs are computed once. An
    output that is one of the given cotangents, handed on, is not computed at all.
    """
    params = element.function.params[len(element.function.params) - len(given) :]
    # The cotangents of sums are broadcast.
    known: list[Any] = [
        (param, dtype, None) if own == shape else None for param, (own, dtype) in zip(params, given, strict=True)
    ]
    stored: list[int] = []
    places: list[int] = []
    for at, output in enumerate(element.function.outputs):
        key = output.value, dtypes[at], sums[at]
        if key not in known:
            known.append(key)
            stored.append(at)
        places.append(known.index(key))
    return tuple(places), tuple(stored)


def pullback_of(
    region: Region, present: tuple[int, ...], wrt: tuple[int, ...], blocks: Blocks | None
) -> tuple[Element, list[Any] | None]:
    """The element function of a pullback for cotangents of some outputs, and the blocks of the Jacobian that it takes.

    The blocks are None where it takes the leaves instead.
    """
    if blocks is None:
        return region.element.select(present).derive("pullback", wrt), None
    pattern = tuple([tuple([None if is_array(blocks[i, p]) else float(blocks[i, p]) for p in wrt]) for i in present])
    kept = [blocks[i, p] for i in present for p in wrt]
    return contracted(pattern, region.element.label), [each for each in kept if is_array(each)]


def region_of(gathered: Gathered, index: int) -> Region:
    """The region that will run to compute an output of the last of some expressions."""
    expression = gathered.order[-1]
    output = Output(expression, index)
    element = composition_of(gathered).element((gathered.number(output),))
    return Region(element, gathered, (output,), expression.shape, expression.compute)


def reopen(node: Node, targets: Mapping[tuple[int, int], Variable]) -> None:
    """Make Variables that exist only inside a region inputs of it, so that they can be differentiated in.

    Parameters
    ----------
    node : Node
        The node of a region.
    targets : mapping
        The Variables, by the `key` of their source.
    """
    region: Region = node.static["region"]
    used = {
        each.key
        for expression in region.gathered.order
        for each in expression.inputs
        if isinstance(each, Output) and each.key not in region.gathered.known
    }
    inner = {key: each for key, each in targets.items() if key in used}
    if not inner:
        return
    for each in inner.values():
        if each.node is node:
            # It gets a node of its own, in which nothing else depends on it.
            source = region.outputs[each.index]
            own_region = region.like(gather(source.expression, stops=region.gathered.known), (source,))
            each.node, each.index = own_region.node((each,)), 0
    roots = {id(output.expression): output.expression for output in region.outputs}
    stops = {**region.gathered.known, **inner}
    opened = region.like(gather(*roots.values(), stops=stops, first=inner.values()), region.outputs)
    node.inputs, node.static = tuple(opened.gathered.leaves), {"region": opened, "blocks": None}


REGION = Primitive("kernel", _never, _pull, multiple=True)
