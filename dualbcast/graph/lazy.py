"""Lazy expressions: element-wise operations on Variables that wait until a value is needed.

Comes in: an element function with its inputs. Goes out: all expressions that wait for one another, with their leaves,
in the form from which one kernel is composed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from dualbcast.graph.arrays import is_float
from dualbcast.graph.variable import Variable
from dualbcast.program.element import Element

Shape = tuple[int, ...]


class Limits:
    """The limits of one kernel; an expression beyond them is computed in parts.

    Attributes
    ----------
    statements : int
        The greatest number of statements in the functions of all its operations.
    arrays : int
        The greatest number of arrays and numbers that it takes.
    elements : int
        Operations on fewer elements do not wait: a few kernels then serve for all of them, and compiling one for every
        expression would take longer than it saves.
    """

    statements = 200
    arrays = 24
    elements = 1024


LIMITS = Limits()


@dataclass(frozen=True, slots=True, eq=False)
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

    @property
    def key(self) -> tuple[int, int]:
        """The identity of the output."""
        return id(self.expression), self.index


class Expression:
    """An element function applied to Variables and numbers, computed or not.

    Attributes
    ----------
    element : Element
        The function.
    inputs : tuple
        For each parameter of the function a Variable with a value, an Output of another expression, or a number.
    shape : tuple of int
        The shape that the inputs broadcast to.
    compute : numpy.dtype
        The dtype of the arithmetic, by promotion.
    dtypes : tuple of numpy.dtype
        The dtypes of the outputs.
    sums : tuple of (tuple of int or None)
        For each output the shape that it is summed to, or None.
    tracked : bool
        Whether the outputs carry derivatives.
    serial : int
        Serials count upwards, so those of the expressions among the inputs are lower.
    outputs : tuple of weakref
        The Variables that stand for the outputs. An expression that does not wait has none, and none of the attributes
        `namespace`, `detached`, `behind`, `leaves` and `length`.
    namespace : module
        The array library.
    detached : bool
        Whether a derivative ends here: the outputs carry none, and some input does.
    behind : frozenset or None
        The expressions that it waits for; None if a kernel has computed it.
    leaves : frozenset
        The keys of the leaves of it and of the expressions behind it. Some of these may have been computed since.
    length : int
        The number of statements of itself and of the expressions behind it.
    has_run : bool
        Whether a kernel has computed it, so outputs of it may have values.
    composed_in : tuple or None
        The first composition, made for another expression, in which it was computed, and its position there.
    """

    __slots__ = (
        *("behind", "compute", "detached", "dtypes", "element", "has_run", "inputs", "composed_in", "leaves", "length"),
        *("namespace", "outputs", "serial", "shape", "sums", "tracked"),
    )

    def __init__(
        self,
        element: Element,
        inputs: tuple[Any, ...],
        shape: Shape,
        compute: np.dtype[Any],
        dtypes: tuple[np.dtype[Any], ...],
        sums: tuple[Shape | None, ...],
        tracked: bool,
    ) -> None:
        self.element, self.inputs, self.shape, self.compute = element, inputs, shape, compute
        self.dtypes, self.sums, self.tracked = dtypes, sums, tracked
        self.serial = _next_serial()
        self.outputs: tuple[ref[Variable], ...] = ()
        self.has_run = False
        self.composed_in: tuple[Any, int] | None = None

    def wait(self) -> tuple[Variable, ...]:
        """The Variables that stand for the outputs until they are computed; they are remembered weakly."""
        before: set[Expression] = set()
        own_leaves: set[Any] = set()
        carries = False
        namespace: Any = None
        for each in self.inputs:
            if type(each) is Output:
                expression = each.expression
                before.add(expression)
                carries = carries or expression.tracked or expression.detached
                namespace = namespace or expression.namespace
            else:
                own_leaves.add(_key(each))
                if isinstance(each, Variable):
                    carries = carries or each.tracked
                    namespace = namespace or each.namespace
        self.namespace: Any = namespace
        self.detached: bool = carries and not self.tracked
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
        self.behind: frozenset[Expression] | None = behind
        self.leaves: frozenset[Any] = leaves
        self.length = self.element.length + sum([each.element.length for each in behind])

    def forget(self) -> None:
        """Note that a kernel has computed it, so it waits no longer."""
        self.behind, self.leaves, self.has_run = None, frozenset(), True

    def exceeds_limits(self) -> bool:
        """Whether one kernel may not contain it with all expressions behind it."""
        return self.length > LIMITS.statements or len(self.leaves) > LIMITS.arrays

    def uncomputed(self) -> Iterator[tuple[Output, Variable]]:
        """The outputs, with the Variables that stand for them, if these exist and have no value yet."""
        for index, reference in enumerate(self.outputs):
            variable = reference()
            if variable is not None and variable._value is None:
                yield Output(self, index), variable


_next_serial = itertools.count().__next__
_serial = attrgetter("serial")


def _key(leaf: Any) -> Any:
    """The key of a leaf: each Variable has its own, and equal numbers of one type share theirs."""
    return id(leaf) if isinstance(leaf, Variable) else (type(leaf), repr(leaf))


class Gathered(NamedTuple):
    """Expressions with all that they wait for, in the form of a composition.

    Attributes
    ----------
    order : list of Expression
        Each stands after the expressions among its inputs; if one was asked for, it is the last.
    leaves : list
        The Variables and numbers among the inputs of all of them.
    refs : list of tuple of int
        For each expression the numbers of its inputs: the leaves are the first values, and the outputs of each
        expression are the next ones.
    computed : dict
        By the `key` of an output that has been computed, the leaf that stands for it.
    numbers : dict
        The number of a leaf, by its key; and of the first output of an expression, by its id.
    """

    order: list[Expression]
    leaves: list[Any]
    refs: list[tuple[int, ...]]
    computed: dict[tuple[int, int], Variable]
    numbers: dict[Any, int]

    def number(self, output: Output) -> int:
        """The number of an output among the values."""
        leaf = self.computed.get(output.key)
        return self.numbers[id(output.expression)] + output.index if leaf is None else self.numbers[id(leaf)]


def gather(
    *roots: Expression, stops: Mapping[tuple[int, int], Variable] | None = None, first: Iterable[Variable] = ()
) -> Gathered:
    """Collect some expressions and all that they wait for.

    Parameters
    ----------
    *roots : Expression
    stops : mapping, optional
        The outputs that count as computed: by their `key` the Variables that have their values. By default these are
        all outputs that have a value.
    first : iterable of Variable
        The first leaves, whether an expression reads them or not.
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
                leaf = computed.get(each.key) if computed else None
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
    roots: Sequence[Expression], stops: Mapping[tuple[int, int], Variable] | None
) -> tuple[Iterable[Expression], list[Expression], dict[tuple[int, int], Variable]]:
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
                    if not computed or output.key not in computed:
                        pending.append((output.expression, False))
    if is_depth_first or computed:
        return visited, order, computed
    order.sort(key=_serial)
    return order, order, computed


def _note_value(output: Output, computed: dict[tuple[int, int], Variable]) -> None:
    """Enter an output among those computed if the Variable that stands for it has a value."""
    if output.expression.has_run:
        variable = output.expression.outputs[output.index]()
        if variable is not None and variable._value is not None:
            computed[output.key] = variable
