"""Fused regions: lazy expressions that have become one kernel.

Comes in: an element function with its inputs, which joins the expressions that wait. Goes out: their values once they
are needed, and a node. The pullback of a region is an expression again, so it joins the operations before and after it,
and can be differentiated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dualbcast.graph import checkpoint_policy
from dualbcast.graph.arrays import as_array, is_array, is_float, lazy_adapter
from dualbcast.graph.lazy import TOTAL, Expression, Gathered, Limits, Output, Shape, composition_of, contracted, gather
from dualbcast.graph.primitives import arrays_of, record, tracked_positions
from dualbcast.graph.recording import performed
from dualbcast.graph.tape import STATE, Cotangents, Node, Primitive, launched
from dualbcast.graph.variable import Variable, registered
from dualbcast.program.element import Element
from dualbcast.runtime.arguments import beside, sign


def defer(
    element: Element,
    inputs: Sequence[Any],
    shape: Shape,
    compute_dtype: np.dtype[Any],
    dtypes: tuple[np.dtype[Any], ...],
    sums: tuple[Shape | None, ...] | None = None,
) -> tuple[Variable, ...]:
    """Variables for the outputs of an `Expression`, which is computed when one of their values is needed."""
    tracked = STATE.is_recording and bool(tracked_positions(inputs))
    sums = (None,) * len(dtypes) if sums is None else sums
    is_computed_now = not STATE.is_fusing or math.prod(shape) < Limits.elements
    if is_computed_now:
        settle(inputs)
        if not tracked:
            return tuple([Variable._of(array, False) for array in _values(element, inputs, shape, dtypes, sums)])
    expression = Expression(element, tuple(inputs), shape, compute_dtype, dtypes, sums, tracked)
    if is_computed_now:
        return _recorded(expression)
    expression.inputs = tuple([_joined(each, expression) for each in inputs])
    expression.count()
    if expression.exceeds_limits():
        # Some of it may have been computed in the meantime.
        expression.count_again()
        if expression.exceeds_limits():
            settle(inputs)
            expression.inputs = tuple(inputs)
            expression.count()
    return expression.wait()


def _joined(each: Any, reader: Expression) -> Any:
    """An input as its reader takes it: the Output that a Variable stands for if one kernel can compute both."""
    if not isinstance(each, Variable) or each._value is not None:
        return each
    output: Output = each.source
    expression = output.expression
    fits = (
        expression.shape == reader.shape
        and expression.compute == reader.compute
        and expression.element.options.runs_like(reader.element.options)
        and output.summed is None
        and (expression.tracked or not reader.tracked or not expression.detached or not is_float(each.dtype))
    )
    if fits:
        return output
    compute(expression)
    return each


def total(variable: Variable, shape: Shape) -> Variable:
    """The sum of a Variable over the axes where `shape` has length 1, by the kernel that computes the Variable."""
    sums = None if shape == variable.shape else shape
    return defer(TOTAL, (variable,), variable.shape, variable.dtype, (variable.dtype,), (sums,))[0]


def _recorded(expression: Expression) -> tuple[Variable, ...]:
    """The outputs of an expression that is computed at once, and recorded."""
    gathered = gather(expression)
    outputs = tuple([Output(expression, index) for index in range(len(expression.dtypes))])
    # Most often no input is there twice, so the element function serves as it is.
    is_composed = len(gathered.leaves) < len(expression.inputs)
    region = region_of(gathered, outputs) if is_composed else Region(expression.element, gathered, outputs)
    variables = tuple([Variable._of(array, is_float(array.dtype)) for array in region.run()])
    region.record(variables)
    return variables


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
    adapter = lazy_adapter(values)
    if adapter is not None:
        return [as_array(each) for each in adapter.parts(element, values, dtypes, shapes)]
    if STATE.recorder is None:  # the usual case, without the names that a recording needs
        return [as_array(each) for each in element.parts(values, dtypes, shapes)]
    outputs: list[Any] = performed(parts_of, *values, element=element, dtypes=dtypes, shapes=shapes)
    return outputs


def parts_of(*values: Any, element: Element, dtypes: tuple[np.dtype[Any], ...], shapes: Any) -> list[Any]:
    """The outputs of an element function, as arrays; see `Element.parts`."""
    return [as_array(each) for each in element.parts(values, dtypes, shapes)]


def value_and_jacobian_of(*values: Any, element: Element, wrt: tuple[int, ...]) -> list[Any]:
    """The outputs of an element function, and then the blocks of its Jacobian that are stored."""
    with beside(values):
        return [as_array(each) for each in element.prepare("value_and_jacobian", values, wrt).run()]


def settle(inputs: Iterable[Any]) -> None:
    """Compute those of the inputs that are Variables without a value."""
    for each in inputs:
        if isinstance(each, Variable) and each._value is None:
            compute(each.source.expression)


@registered
def compute(expression: Expression) -> None:
    """Run the kernel of an expression and all that it waits for, and give its Variables their values."""
    gathered = gather(expression)
    composition = composition_of(gathered)
    wanted = list(expression.uncomputed())
    if expression.composed_in is not None:
        # A kernel has computed it before and did not store it. The same composition will store it the next time.
        earlier, at = expression.composed_in
        earlier.learned.update([(at, output.at) for output, _ in wanted])
    for at, inner in enumerate(gathered.order[:-1]):
        for output, variable in inner.uncomputed() if inner.tracked == expression.tracked else ():
            # Sums are wanted sooner or later, and cost little to write. Uncomputed, they would keep all their inputs.
            if output.summed is not None or (at, output.at) in composition.learned:
                wanted.append((output, variable))
        if inner.composed_in is None:
            inner.composed_in = composition, at
    for each in gathered.order:
        each.behind = None
    outputs = tuple([output for output, _ in wanted])
    region = Region(composition.element(tuple(map(gathered.number, outputs))), gathered, outputs)
    arrays = region.run()
    variables = tuple([variable for _, variable in wanted])
    if expression.tracked:
        region.record(variables)
    for variable, array in zip(variables, arrays, strict=True):
        variable._value = array
        if variable.node is None:
            # Otherwise a loop without derivatives would keep every value that it has ever computed.
            variable.source = None


class Region:
    """The expressions that a kernel was made of, which the node that records it keeps."""

    __slots__ = ("blocks", "compute", "decision", "dtypes", "element", "gathered", "outputs", "shape", "sums")

    def __init__(self, element: Element, gathered: Gathered, outputs: tuple[Output, ...]) -> None:
        # The function of the leaves, and for each of its outputs the output of an expression that it is.
        self.element, self.gathered, self.outputs = element, gathered, outputs
        self.dtypes = tuple([output.expression.dtypes[output.at] for output in outputs])
        self.sums = tuple([output.expression.sums[output.at] for output in outputs])
        self.shape, self.compute = gathered.order[-1].shape, gathered.order[-1].compute
        # Whether it keeps its Jacobian, and why; None before it has run, and where no derivative can be asked for,
        # something is summed, or the arrays are lazy.
        self.decision: checkpoint_policy.Decision | None = None
        # The Jacobian that it keeps, by output and leaf: arrays, and numbers where it is constant.
        self.blocks: dict[tuple[int, int], Any] | None = None

    def decide(self) -> checkpoint_policy.Decision | None:
        """Whether to keep the Jacobian of a region in which a derivative may be asked for."""
        if self.sums.count(None) < len(self.sums) or lazy_adapter(arrays_of(self.gathered.leaves)):
            return None
        return checkpoint_policy.decide(self.element, self.gathered.leaves, self.shape, self.compute)

    def run(self) -> list[Any]:
        """Compute the arrays of the outputs, and the Jacobian as well if that is expected to be faster."""
        self.decision = self.decide() if self.outputs[0].expression.tracked else None
        if self.decision is not None and self.decision.keeps:
            arrays = self._value_and_jacobian()
            if arrays is not None:
                return arrays
            self.decision = checkpoint_policy.Decision(False, "there was no memory for the Jacobian")
        return _values(self.element, self.gathered.leaves, self.shape, self.dtypes, self.sums)

    def _value_and_jacobian(self) -> list[Any] | None:
        """Compute the arrays and `blocks`. It is None if memory is short, or the kernel would store other dtypes."""
        count, values, wrt = len(self.dtypes), arrays_of(self.gathered.leaves), tracked_positions(self.gathered.leaves)
        try:
            spec = self.element.typed("value_and_jacobian", wrt, sign(values, self.element.names), None)
            if spec.dtypes[:count] != self.dtypes:
                return None
            outputs = performed(value_and_jacobian_of, *values, element=self.element, wrt=wrt)
        except MemoryError:
            return None
        launched(self.element.label, "value_and_jacobian", self.shape, len(values), len(outputs))
        self.blocks = {
            (key[0], key[1]): block.constant if block.stored is None else outputs[block.stored]
            for key, block in spec.product.blocks.items()
        }
        return list(outputs[:count])

    def record(self, outputs: tuple[Variable, ...]) -> None:
        """Give the outputs the node that they come from."""
        record(REGION, tuple(self.gathered.leaves), {"region": self}, outputs)


def region_of(gathered: Gathered, outputs: tuple[Output, ...]) -> Region:
    """The region that computes these outputs of gathered expressions."""
    numbers = tuple([gathered.number(output) for output in outputs])
    return Region(composition_of(gathered).element(numbers), gathered, outputs)


def _pullback(node: Node, cotangents: tuple[Any, ...], wanted: tuple[bool, ...]) -> Cotangents:
    """The cotangents of a region's leaves, by one kernel, which sums over the axes along which a leaf was broadcast."""
    region: Region = node.static["region"]
    present = tuple([at for at, each in enumerate(cotangents) if each is not None])
    wrt = tuple([at for at, is_wanted in enumerate(wanted) if is_wanted])
    given = [cotangents[at] for at in present]
    leaves = [node.inputs[at] for at in wrt]
    # Kernels write no other byte order; `backward` converts.
    dtypes = tuple([dtype if dtype.isnative else dtype.newbyteorder("=") for dtype in [leaf.dtype for leaf in leaves]])
    sums = tuple([None if leaf.shape == region.shape else leaf.shape for leaf in leaves])
    # A pullback that takes the Jacobian has no derivative in the leaves.
    element, blocks = pullback_of(region, present, wrt, takes_jacobian=not STATE.is_recording)
    sources = node.inputs if blocks is None else [Variable._of(each, False) for each in blocks]
    types = tuple([(each.shape, each.dtype) for each in given])
    positions, stored = _destinations(element, types, region.shape, dtypes, sums)
    inputs, results = [*sources, *given], list(given)
    if stored:
        parts = tuple([dtypes[at] for at in stored]), tuple([sums[at] for at in stored])
        results += defer(element.select(stored), inputs, region.shape, region.compute, *parts)
    remaining = iter(positions)
    return [results[next(remaining)] if is_wanted else None for is_wanted in wanted]


@lru_cache(maxsize=1024)
def _destinations(
    element: Element,
    given: tuple[tuple[Shape, np.dtype[Any]], ...],
    shape: Shape,
    dtypes: tuple[np.dtype[Any], ...],
    sums: tuple[Shape | None, ...],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """For each output of a pullback its position among the given cotangents and then the computed outputs; and which
    outputs are computed: equal ones once, and none that is a given cotangent, handed on."""
    params = element.function.params[len(element.function.params) - len(given) :]
    # A cotangent of a sum is broadcast, so it is never handed on as it is.
    known: list[Any] = [
        (param, dtype, None) if own == shape else None for param, (own, dtype) in zip(params, given, strict=True)
    ]
    stored: list[int] = []
    keys = list(zip([output.value for output in element.function.outputs], dtypes, sums, strict=True))
    for at, key in enumerate(keys):
        if key not in known:
            known.append(key)
            stored.append(at)
    return tuple(map(known.index, keys)), tuple(stored)


def pullback_of(
    region: Region, present: tuple[int, ...], wrt: tuple[int, ...], takes_jacobian: bool = True
) -> tuple[Element, list[Any] | None]:
    """The element function of a pullback for cotangents of some outputs, and the blocks of the Jacobian that it takes;
    None where it takes the leaves instead."""
    blocks = region.blocks
    if blocks is None or not takes_jacobian:
        return region.element.select(present).derive("pullback", wrt), None
    pattern = tuple([tuple([None if is_array(blocks[i, p]) else float(blocks[i, p]) for p in wrt]) for i in present])
    ordered = [blocks[i, p] for i in present for p in wrt]
    return contracted(pattern, region.element.label), [each for each in ordered if is_array(each)]


def reopen(node: Node, targets: Mapping[Output, Variable]) -> None:
    """Turn those targets that exist only inside a node's region into its inputs. `targets` has them by their source."""
    region: Region = node.static["region"]
    used = {each for expression in region.gathered.order for each in expression.inputs if isinstance(each, Output)}
    inner = {source: targets[source] for source in targets if source in used - region.gathered.computed.keys()}
    if not inner:
        return
    for each in inner.values():
        if each.node is node:
            # It is also an output of the node. A node of its own keeps the two apart.
            source = region.outputs[each.index]
            region_of(gather(source.expression, stops=region.gathered.computed), (source,)).record((each,))
    roots = dict.fromkeys([output.expression for output in region.outputs])
    stops = {**region.gathered.computed, **inner}
    opened = region_of(gather(*roots, stops=stops, first=inner.values()), region.outputs)
    node.inputs, node.static = tuple(opened.gathered.leaves), {"region": opened}


REGION = Primitive("kernel", None, _pullback)
