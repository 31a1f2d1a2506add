"""Regions: expressions that have become one kernel, and the node that carries cotangents back through it.

The pullback of a region is an expression again, so that it joins with what comes before and after it, and can be
differentiated.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dualbcast.graph import checkpoint_policy
from dualbcast.graph.composition import TOTAL, composed, contracted
from dualbcast.graph.launch_log import launched
from dualbcast.graph.lazy import LIMITS, Expression, Gathered, Output, gather, waiting
from dualbcast.graph.tape import STATE, Node, Primitive, Pulled, arrays_of, as_array, is_any_tracked, is_array, is_float
from dualbcast.graph.variable import Variable
from dualbcast.program.element import Element
from dualbcast.runtime.cuda.memory import beside

__all__ = ["Composition", "composition_of", "compute", "defer", "reopen", "settle"]

Shape = tuple[int, ...]
# Compositions that are remembered: a model has some dozens.
_KEPT = 2048


def _never(*_: Any) -> Any:
    raise AssertionError("regions are run by `compute`")


class Composition:
    """One structure of expressions, with the element functions made of it.

    Attributes
    ----------
    learned : set of (int, int)
        Outputs of inner expressions that were asked for after all: the kernel gives them, too, the next time.
    """

    __slots__ = ("_elements", "_leaves", "_options", "_steps", "learned")

    def __init__(self, gathered: Gathered) -> None:
        elements = [expression.element for expression in gathered.order]
        self._steps, self._leaves = list(zip(elements, gathered.refs, strict=True)), len(gathered.leaves)
        # They differ at most in whether the Jacobian is kept: who says something about that is heard.
        chosen = [element.options for element in elements]
        self._options = next((options for options in chosen if options.jacobian != "auto"), chosen[0])
        self._elements: dict[tuple[int, ...], Element] = {}
        self.learned: set[tuple[int, int]] = set()

    def element(self, outputs: tuple[int, ...]) -> Element:
        """The element function that gives some of the values, which are numbered as in `compose`."""
        found = self._elements.get(outputs)
        if found is None:
            found = self._elements[outputs] = composed(self._steps, self._leaves, outputs, self._options)
        return found


_COMPOSITIONS: OrderedDict[Any, Composition] = OrderedDict()


def composition_of(gathered: Gathered) -> Composition:
    """The composition of this structure; the same object for the same structure."""
    key = (
        tuple([expression.element for expression in gathered.order]),
        tuple(gathered.refs),
        len(gathered.leaves),
    )
    found = _COMPOSITIONS.get(key)
    if found is None:
        found = _COMPOSITIONS[key] = Composition(gathered)
        if len(_COMPOSITIONS) > _KEPT:
            _COMPOSITIONS.popitem(last=False)
    else:
        _COMPOSITIONS.move_to_end(key)
    return found


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
        What they broadcast to.
    compute_dtype : numpy.dtype
        The dtype of the arithmetic.
    dtypes : tuple of numpy.dtype
        Of the outputs.
    sums : tuple of (tuple of int or None), optional
        What each output is summed to.
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
    made = expression.wait()
    if expression.is_too_much():
        # Some of it may have been computed in the meantime.
        expression.weigh(gather(expression))
        if expression.is_too_much():
            for each in waiting(expression.inputs):
                compute(each)
            expression = Expression(element, tuple(inputs), shape, compute_dtype, dtypes, sums, tracked)
            made = expression.wait()
    return made


def total(variable: Variable, shape: Shape) -> Variable:
    """The sum of a Variable that waits over the axes where `shape` has length 1, by the kernel that computes it."""
    sums = None if shape == variable.shape else shape
    (found,) = defer(TOTAL, (variable,), variable.shape, variable.dtype, (variable.dtype,), (sums,))
    return found


def _recorded(expression: Expression) -> tuple[Variable, ...]:
    """The outputs of an expression that does not wait, nor anything for it."""
    gathered, count = gather(expression), len(expression.dtypes)
    first, element = len(gathered.leaves), expression.element
    if first < len(expression.inputs):  # some are the same
        element = composition_of(gathered).element(tuple(range(first, first + count)))
    origin = tuple([Output(expression, index) for index in range(count)])
    region = Region(element, gathered, origin, expression.shape, expression.compute)
    arrays, blocks = region.run(expression.dtypes, expression.sums, tracked=True)
    made = tuple([Variable._of(array, is_float(array.dtype)) for array in arrays])
    _record(region, made, blocks)
    return made


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
    """Compute what a Variable waits for."""
    if variable._value is None and variable.source is not None:
        compute(variable.source.expression)


def compute(expression: Expression) -> None:
    """Run the kernel of an expression and all that it waits for, and give its Variables their values."""
    gathered = gather(expression)
    composition = composition_of(gathered)
    last = len(gathered.order) - 1
    wanted = [(last, index, held) for index, held in expression.unknown()]
    for at, inner in enumerate(gathered.order[:-1]):
        for index, held in inner.unknown() if inner.tracked == expression.tracked else ():
            # Sums are wanted sooner or later, cost little to write, and would keep all that they are made of.
            if inner.sums[index] is not None or (at, index) in composition.learned:
                wanted.append((at, index, held))
        if inner.seen is None:
            inner.seen = composition, at
    for each in gathered.order:
        each.forget()
    if expression.seen is not None:
        # It was an inner expression once, and nobody stored it: the same kernel will, when it is met again.
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
            # Else a loop without derivatives would keep all that it has ever computed.
            held.source = None


class Region:
    """What a kernel was made of: kept by the node that records it.

    Attributes
    ----------
    element : Element
        The function, of the leaves.
    gathered : Gathered
        The expressions in it.
    outputs : tuple of Output
        What the outputs of the function are.
    shape, compute
        As for an Expression.
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

    def of(self, gathered: Gathered, outputs: tuple[Output, ...]) -> Region:
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


Blocks = dict[tuple[int, int], Any]


def _pull(node: Node, cotangents: tuple[Variable | None, ...], wanted: tuple[bool, ...]) -> Pulled:
    """The cotangents of a region's leaves: one kernel, which sums over what a leaf was broadcast along."""
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
    inputs, found = [*sources, *given], list(given)
    if stored:
        parts = tuple([dtypes[at] for at in stored]), tuple([sums[at] for at in stored])
        found += defer(element.select(stored), inputs, region.shape, region.compute, *parts)
    every = iter(places)
    return [found[next(every)] if is_wanted else None for is_wanted in wanted]


@lru_cache(maxsize=1024)
def _destinations(
    element: Element,
    given: tuple[tuple[Shape, np.dtype[Any]], ...],
    shape: Shape,
    dtypes: tuple[np.dtype[Any], ...],
    sums: tuple[Shape | None, ...],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of a pullback which outputs are to be computed, and where each is among the cotangents given and then these: what
    is equal is computed once, and what a cotangent is handed on as is not computed at all."""
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
    """The element function that carries cotangents of some outputs back, and the blocks of the Jacobian that it takes.

    These are None where it takes the leaves instead.
    """
    if blocks is None:
        return region.element.select(present).pullback(wrt), None
    pattern = tuple([tuple([None if is_array(blocks[i, p]) else float(blocks[i, p]) for p in wrt]) for i in present])
    kept = [blocks[i, p] for i in present for p in wrt]
    return contracted(pattern, region.element.label), [each for each in kept if is_array(each)]


def region_of(gathered: Gathered, output: Output) -> Region:
    """What computing an expression will run."""
    expression = output.expression
    element = composition_of(gathered).element((gathered.number(output),))
    return Region(element, gathered, (output,), expression.shape, expression.compute)


def reopen(node: Node, targets: Mapping[tuple[int, int], Variable]) -> None:
    """Take a region apart where something inside it is to be differentiated in: it becomes an input.

    Parameters
    ----------
    node : Node
        Of a region.
    targets : mapping
        By the `key` of their source, the Variables.
    """
    region: Region = node.static["region"]
    used = {
        each.key
        for expression in region.gathered.order
        for each in expression.inputs
        if isinstance(each, Output) and each.key not in region.gathered.known
    }
    found = {key: each for key, each in targets.items() if key in used}
    if not found:
        return
    for each in found.values():
        if each.node is node:
            # It gets a node of its own, in which nothing else depends on it.
            source = region.outputs[each.index]
            own = region.of(gather(source.expression, stops=region.gathered.known), (source,))
            each.node, each.index = own.node((each,)), 0
    roots = {id(output.expression): output.expression for output in region.outputs}
    stops = {**region.gathered.known, **found}
    opened = region.of(gather(*roots.values(), stops=stops, first=found.values()), region.outputs)
    node.inputs, node.static = tuple(opened.gathered.leaves), {"region": opened, "blocks": None}


REGION = Primitive("kernel", _never, _pull, multiple=True)
