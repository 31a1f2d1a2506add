"""Lazy expressions: element-wise operations on Variables that wait until a value is needed.

Comes in: an element function with its inputs. Goes out: all expressions that wait for one another, with their leaves,
and the one element function that is composed of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from dualbcast.autodiff.differentiate import contraction_of
from dualbcast.graph.arrays import is_float
from dualbcast.graph.variable import Variable
from dualbcast.ir import nodes
from dualbcast.ir.compose import Step, compose
from dualbcast.program.element import Element
from dualbcast.program.products import Options

Shape = tuple[int, ...]


class Limits:
    """The limits of one kernel; an expression beyond them is computed in parts."""

    # The statements in the functions of all its operations.
    statements = 200
    # The arrays and numbers that it takes.
    arrays = 24
    # Operations on fewer elements do not wait: a few kernels then serve for all of them, and compiling one for every
    # expression would take longer than it saves.
    elements = 1024


@dataclass(frozen=True, slots=True)
class Output:
    """An output of an expression; a Variable that has no value yet stands for one."""

    expression: Expression
    index: int

    @property
    def summed(self) -> Shape | None:
        """The shape that it is summed to, or None."""
        return self.expression.sums[self.index]

    @property
    def shape(self) -> Shape:
        return self.expression.shape if self.summed is None else self.summed

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.expression.dtypes[self.index]

    @property
    def namespace(self) -> Any:
        """The array library."""
        return self.expression.namespace


@dataclass(eq=False, slots=True)
class Expression:
    """An element function applied to Variables and numbers, computed or not."""

    element: Element
    # For each parameter of the function a Variable with a value, an Output of another expression, or a number; and the
    # shape that they broadcast to.
    inputs: tuple[Any, ...]
    shape: Shape
    # The dtype of the arithmetic, by promotion.
    compute: np.dtype[Any]
    # For each output its dtype, and the shape that it is summed to, or None.
    dtypes: tuple[np.dtype[Any], ...]
    sums: tuple[Shape | None, ...]
    # Whether the outputs carry derivatives.
    tracked: bool
    # Serials count upwards, so those of the expressions among the inputs are lower.
    serial: int = field(default_factory=itertools.count().__next__)
    # Whether a kernel has computed it, so outputs of it may have values.
    has_run: bool = False
    # The first composition, made for another expression, in which it was computed, and its position there.
    composed_in: tuple[Composition, int] | None = None

    # --- of an expression that waits ---
    # The Variables that stand for the outputs.
    outputs: tuple[ref[Variable], ...] = ()
    # The array library.
    namespace: Any = None
    # Whether a derivative ends here: the outputs carry none, and some input does.
    detached: bool = False
    # The expressions that it waits for; None if a kernel has computed it.
    behind: frozenset[Expression] | None = None
    # The keys of the leaves of it and of the expressions behind it. Some of these may have been computed since.
    leaves: frozenset[Any] = frozenset()
    # The number of statements of itself and of the expressions behind it.
    length: int = 0

    def wait(self) -> tuple[Variable, ...]:
        """The Variables that stand for the outputs until they are computed; they are remembered weakly."""
        before: set[Expression] = set()
        own_leaves: set[Any] = set()
        is_derived = False
        for each in self.inputs:
            if type(each) is Output:
                expression = each.expression
                before.add(expression)
                is_derived = is_derived or expression.tracked or expression.detached
                self.namespace = expression.namespace
            else:
                own_leaves.add(_key(each))
                if isinstance(each, Variable):
                    is_derived = is_derived or each.tracked
                    self.namespace = self.namespace or each.namespace
        self.detached = is_derived and not self.tracked
        for expression in before:
            if expression.behind is None:
                expression.count_again()
        self._note(
            frozenset(before).union(*[each.behind or () for each in before]),
            frozenset(own_leaves).union(*[each.leaves for each in before]),
        )
        outputs = tuple(
            [
                Variable._pending(Output(self, index), self.tracked and is_float(dtype))
                for index, dtype in enumerate(self.dtypes)
            ]
        )
        self.outputs = tuple([ref(each) for each in outputs])
        return outputs

    def count_again(self) -> None:
        """Update the expressions that it waits for."""
        gathered = gather(self)
        self._note(frozenset(gathered.order[:-1]), frozenset(map(_key, gathered.leaves)))

    def _note(self, behind: frozenset[Expression], leaves: frozenset[Any]) -> None:
        self.behind, self.leaves = behind, leaves
        self.length = self.element.length + sum([each.element.length for each in behind])

    def forget(self) -> None:
        """Note that a kernel has computed it, so it waits no longer."""
        self.behind, self.leaves, self.has_run = None, frozenset(), True

    def exceeds_limits(self) -> bool:
        """Whether one kernel may not contain it with all expressions behind it."""
        return self.length > Limits.statements or len(self.leaves) > Limits.arrays

    def uncomputed(self) -> Iterator[tuple[Output, Variable]]:
        """The outputs, with the Variables that stand for them, if these exist and have no value yet."""
        for index, reference in enumerate(self.outputs):
            variable = reference()
            if variable is not None and variable._value is None:
                yield Output(self, index), variable


def _key(leaf: Any) -> Any:
    """The key of a leaf: each Variable has its own, and equal numbers of one type share theirs."""
    return id(leaf) if isinstance(leaf, Variable) else (type(leaf), repr(leaf))


class Gathered(NamedTuple):
    """Expressions with all that they wait for, in the form of a composition."""

    # Each stands after the expressions among its inputs; if one was asked for, it is the last.
    order: list[Expression]
    # The Variables and numbers among the inputs of all of them.
    leaves: list[Any]
    # For each expression the numbers of its inputs: the leaves are the first values, and the outputs of each expression
    # are the next ones.
    refs: list[tuple[int, ...]]
    # The outputs that have been computed, with the leaves that stand for them.
    computed: dict[Output, Variable]
    # The number of a leaf, by its key; and of the first output of an expression, by its id.
    numbers: dict[Any, int]

    def number(self, output: Output) -> int:
        """The number of an output among the values."""
        leaf = self.computed.get(output)
        return self.numbers[id(output.expression)] + output.index if leaf is None else self.numbers[id(leaf)]


def gather(
    *roots: Expression, stops: Mapping[Output, Variable] | None = None, first: Iterable[Variable] = ()
) -> Gathered:
    """Collect some expressions and all that they wait for.

    The outputs in `stops` count as computed, and Variables there have their values. By default these are all outputs
    that have a value. The first leaves are those in `first`, whether an expression reads them or not.
    """
    visited, order, computed = _reached(roots, stops)
    leaves = list(first)
    numbers: dict[Any, int] = {id(leaf): number for number, leaf in enumerate(leaves)}
    # The numbers of outputs are known when all leaves are.
    inputs: dict[Expression, list[int | Output]] = {}
    for expression in visited:
        numbered = inputs[expression] = []
        for each in expression.inputs:
            if type(each) is Output:
                leaf = computed.get(each) if computed else None
                if leaf is None:
                    numbered.append(each)
                    continue
            else:
                leaf = each
            key = _key(leaf)
            number = numbers.get(key)
            if number is None:
                number = numbers[key] = len(leaves)
                leaves.append(leaf)
            numbered.append(number)
    count = len(leaves)
    for expression in order:
        numbers[id(expression)] = count
        count += len(expression.dtypes)
    refs = [
        tuple([each if isinstance(each, int) else numbers[id(each.expression)] + each.index for each in numbered])
        for numbered in [inputs[expression] for expression in order]
    ]
    return Gathered(order, leaves, refs, computed, numbers)


def _reached(
    roots: Sequence[Expression], stops: Mapping[Output, Variable] | None
) -> tuple[Iterable[Expression], list[Expression], dict[Output, Variable]]:
    """The expressions that `gather` collects, and the computed outputs where it stops.

    The expressions are given twice: in the order in which their leaves are numbered, and in that in which they are
    computed. Both are the order of creation as long as no kernel has computed any of the expressions; afterwards, and
    with `stops`, they are visited depth first. The order decides how the sums of cotangents are rounded.
    """
    computed = {} if stops is None else dict(stops)
    if len(roots) == 1 and Output not in map(type, roots[0].inputs):
        return roots, list(roots), computed
    is_depth_first = stops is not None
    visited: dict[Expression, None] = {}
    order: list[Expression] = []
    pending = [(root, False) for root in reversed(roots)]
    while pending:
        expression, is_ready = pending.pop()
        if is_ready:
            order.append(expression)
        elif expression not in visited:
            visited[expression] = None
            pending.append((expression, True))
            is_depth_first = is_depth_first or expression.has_run
            for output in expression.inputs:
                if type(output) is Output:
                    if stops is None:
                        _note_value(output, computed)
                    if not computed or output not in computed:
                        pending.append((output.expression, False))
    if is_depth_first or computed:
        return visited, order, computed
    order.sort(key=attrgetter("serial"))
    return order, order, computed


def _note_value(output: Output, computed: dict[Output, Variable]) -> None:
    """Enter an output among those computed if the Variable that stands for it has a value."""
    if output.expression.has_run:
        variable = output.expression.outputs[output.index]()
        if variable is not None and variable._value is not None:
            computed[output] = variable


# --- compositions -----------------------------------------------------------------------------------------------------

# The identity function, whose output is summed.
_X = nodes.Var("x", "float")
TOTAL = Element(nodes.Function("total", (_X,), (), (nodes.Output("out", _X),)), ("x",), "sum", Options())
# The label of a composition names so many of its last functions.
_LABELLED = 4
# A model has some dozens of compositions.
_COMPOSITIONS_KEPT = 2048


@dataclass(eq=False, slots=True)
class Composition:
    """A structure of expressions, as in `Gathered`, with the element functions made of it by their outputs."""

    _elements: tuple[Element, ...]
    _refs: tuple[tuple[int, ...], ...]
    _leaves: int
    _composed: dict[tuple[int, ...], Element] = field(default_factory=dict)
    # Outputs of inner expressions that were asked for later, by the position of the expression and their own. The next
    # kernel stores them, too.
    learned: set[tuple[int, int]] = field(default_factory=set)

    def element(self, outputs: tuple[int, ...]) -> Element:
        """The element function that gives some of the values, by their numbers."""
        element = self._composed.get(outputs)
        if element is None:
            element = self._composed[outputs] = self._compose(outputs)
        return element

    def _compose(self, outputs: tuple[int, ...]) -> Element:
        first, *others = self._elements
        if not others and self._refs[0] == tuple(range(self._leaves)) and len(outputs) == len(first.function.outputs):
            return first
        labels = [element.label for element in self._elements]
        label = " → ".join(dict.fromkeys(labels[-_LABELLED:]))
        if len(labels) > _LABELLED:
            label = f"… {label}"
        kinds: dict[int, Any] = {}
        for element, inputs in zip(self._elements, self._refs, strict=True):
            kinds.update(zip(inputs, (param.kind for param in element.function.params), strict=True))
        steps = [Step(element.function, inputs) for element, inputs in zip(self._elements, self._refs, strict=True)]
        name = "expression" if others else first.function.name
        function = compose(name, [kinds.get(at, "float") for at in range(self._leaves)], steps, outputs)
        # The options differ at most in whether the Jacobian is kept. The first that is not "auto" counts.
        chosen = [element.options for element in self._elements]
        options = next((options for options in chosen if options.jacobian != "auto"), chosen[0])
        return Element(function, tuple(param.name for param in function.params), label, options)


_composition = lru_cache(maxsize=_COMPOSITIONS_KEPT)(Composition)


def composition_of(gathered: Gathered) -> Composition:
    """The composition of gathered expressions, which is the same object for the same structure."""
    elements = tuple([expression.element for expression in gathered.order])
    return _composition(elements, tuple(gathered.refs), len(gathered.leaves))


@lru_cache(maxsize=1024)
def contracted(pattern: tuple[tuple[float | None, ...], ...], label: str) -> Element:
    """The element function that contracts a kept Jacobian with cotangents; see `contraction_of`."""
    function = contraction_of(pattern)
    return Element(function, tuple(param.name for param in function.params), f"{label}: contraction", Options())
