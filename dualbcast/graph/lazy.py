"""Lazy expressions: element-wise operations on Variables that wait until a value is needed.

Comes in: an element function with its inputs. Goes out: all expressions that wait for one another, with their leaves,
and the one element function that is composed of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from dualbcast.graph.arrays import is_float
from dualbcast.graph.variable import Variable
from dualbcast.ir import nodes
from dualbcast.ir.compose import Step, compose
from dualbcast.program.derived_functions import contraction_of
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


class Output(NamedTuple):
    """An output of an expression; a Variable that has no value yet stands for one."""

    expression: Expression
    at: int

    @property
    def summed(self) -> Shape | None:
        """The shape that it is summed to, or None."""
        return self.expression.sums[self.at]

    @property
    def shape(self) -> Shape:
        return self.expression.shape if self.summed is None else self.summed

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.expression.dtypes[self.at]

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
    # The first composition, made for another expression, in which it was computed, and its position there.
    composed_in: tuple[Composition, int] | None = None

    # --- of an expression that waits ---
    # The Variables that stand for the outputs.
    outputs: tuple[ref[Variable], ...] = ()
    # The array library.
    namespace: Any = None
    # Whether a derivative ends here: the outputs carry none, and some input does.
    detached: bool = False
    # The expressions that it waits for, and the keys of all leaves; some may have been computed since. It is None if a
    # kernel has computed this expression.
    behind: set[Any] | None = None

    def wait(self) -> tuple[Variable, ...]:
        """The Variables that stand for the outputs until they are computed; they are remembered weakly."""
        for each in self.inputs:
            if isinstance(each, Variable):
                self.namespace, is_derived = each.namespace, each.tracked
            elif isinstance(each, Output):
                self.namespace, is_derived = each.namespace, each.expression.tracked or each.expression.detached
            else:
                continue
            self.detached = self.detached or (is_derived and not self.tracked)
        outputs = [
            Variable._of(None, self.tracked and is_float(dtype), source=Output(self, index))
            for index, dtype in enumerate(self.dtypes)
        ]
        self.outputs = tuple([ref(each) for each in outputs])
        return tuple(outputs)

    def count(self) -> None:
        """Note what it waits for, from what its inputs wait for."""
        self.behind = set()
        for each in self.inputs:
            if type(each) is Output:
                before = each.expression
                if before.behind is None:
                    before.count_again()
                self.behind.update(before.behind or (), (before,))
            else:
                self.behind.add(_key(each))

    def count_again(self) -> None:
        """Note what it waits for, without what has been computed in the meantime."""
        gathered = gather(self)
        self.behind = {*gathered.order[:-1], *map(_key, gathered.leaves)}

    def exceeds_limits(self) -> bool:
        """Whether one kernel may not contain it with all expressions behind it."""
        behind = self.behind or ()
        lengths = [each.element.length for each in behind if type(each) is Expression]
        return self.element.length + sum(lengths) > Limits.statements or len(behind) - len(lengths) > Limits.arrays

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
    """Expressions with all that they wait for."""

    # Each stands after the expressions among its inputs; if one was asked for, it is the last.
    order: list[Expression]
    # The Variables and numbers among the inputs of all of them.
    leaves: list[Any]
    # The outputs that have been computed, with the leaves that stand for them.
    computed: dict[Output, Variable]
    # The number of a leaf, by its key; and of the first output of an expression, by its id. The leaves are the first
    # values, and the outputs of each expression are the next ones.
    numbers: dict[Any, int]

    def number(self, value: Any) -> int:
        """The number of an output or a leaf among the values."""
        leaf = self.computed.get(value) if type(value) is Output else value
        return self.numbers[id(value.expression)] + value.at if leaf is None else self.numbers[_key(leaf)]


def gather(
    *roots: Expression, stops: Mapping[Output, Variable] | None = None, first: Iterable[Variable] = ()
) -> Gathered:
    """Collect some expressions and all that they wait for.

    The Variables in `stops` have the values of outputs, by default all that are computed. The first leaves are `first`.
    """
    computed = {} if stops is None else dict(stops)
    reached: set[Expression] = set()
    pending = list(roots)
    while pending:
        expression = pending.pop()
        if expression not in reached:
            reached.add(expression)
            for each in expression.inputs:
                if type(each) is Output:
                    variable = each.expression.outputs[each.at]() if stops is None else None
                    if variable is not None and variable._value is not None:
                        computed[each] = variable
                    elif each not in computed:
                        pending.append(each.expression)
    # In the order of creation each stands after those among its inputs.
    order = sorted(reached, key=attrgetter("serial"))
    leaves = list(first)
    numbers: dict[Any, int] = {id(leaf): number for number, leaf in enumerate(leaves)}
    for expression in order:
        for each in expression.inputs:
            leaf = computed.get(each) if type(each) is Output else each
            if leaf is not None and numbers.setdefault(_key(leaf), len(leaves)) == len(leaves):
                leaves.append(leaf)
    count = len(leaves)
    for expression in order:
        numbers[id(expression)] = count
        count += len(expression.dtypes)
    return Gathered(order, leaves, computed, numbers)


# The identity function, whose output is summed.
_X = nodes.Var("x", "float")
TOTAL = Element(nodes.Function("total", (_X,), (), (nodes.Output("out", _X),)), ("x",), "sum", Options())
# The label of a composition names so many of its last functions.
_LABELLED = 4
# A model has some dozens of compositions.
_COMPOSITIONS_KEPT = 2048


@dataclass(eq=False, slots=True)
class Composition:
    """A structure of expressions."""

    # Of each expression the element function, and the numbers of its inputs; and the number of leaves. See `Gathered`.
    _elements: tuple[Element, ...]
    _refs: tuple[tuple[int, ...], ...]
    _leaves: int
    # Outputs of inner expressions that were asked for later, by the position of the expression and their own. The next
    # kernel stores them, too.
    learned: set[tuple[int, int]] = field(default_factory=set)

    @lru_cache(maxsize=_COMPOSITIONS_KEPT)  # noqa: B019 (compositions are kept, too)
    def element(self, outputs: tuple[int, ...]) -> Element:
        """The element function that gives some of the values, by their numbers."""
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
    refs = tuple([tuple(map(gathered.number, expression.inputs)) for expression in gathered.order])
    return _composition(elements, refs, len(gathered.leaves))


@lru_cache(maxsize=1024)
def contracted(pattern: tuple[tuple[float | None, ...], ...], label: str) -> Element:
    """The element function that contracts a kept Jacobian with cotangents; see `contraction_of`."""
    function = contraction_of(pattern)
    return Element(function, tuple(param.name for param in function.params), f"{label}: contraction", Options())
