"""Lazy expressions: element-wise operations on Variables that wait until a value is needed.

Comes in: an element function with its inputs. Goes out: all expressions that wait for one another, with their leaves,
in the form of which one kernel is made.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from dualbcast.graph.arrays import is_float
from dualbcast.graph.variable import Variable
from dualbcast.program.element import Element

__all__ = ["LIMITS", "Expression", "Gathered", "Limits", "Output", "gather", "waiting"]

Shape = tuple[int, ...]


class Limits:
    """The limits of one kernel; an expression beyond them is computed in parts.

    Attributes
    ----------
    statements : int
        The statements of the functions of all its operations together.
    arrays : int
        The arrays and numbers that it takes.
    elements : int
        Operations on fewer elements do not wait: then few kernels serve for all, and compiling one for every expression
        would take longer than it saves.
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
    def shape(self) -> Shape:
        summed = self.expression.sums[self.index]
        return self.expression.shape if summed is None else summed

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.expression.dtypes[self.index]

    @property
    def namespace(self) -> Any:
        """The array library."""
        return self.expression.namespace

    @property
    def key(self) -> tuple[int, int]:
        """It is the same for the same output, and for no other."""
        return id(self.expression), self.index


class Expression:
    """An element function applied to Variables and numbers, computed or not.

    Attributes
    ----------
    element : Element
        The function.
    inputs : tuple
        For each of its parameters a Variable with a value, an Output of another expression, or a number.
    shape : tuple of int
        The shape that the inputs broadcast to.
    compute : numpy.dtype
        The dtype of the arithmetic, by promotion.
    dtypes : tuple of numpy.dtype
        The dtypes of the outputs.
    sums : tuple of (tuple of int or None)
        For each output the shape that it is summed to, or None.
    namespace : module
        The array library.
    tracked : bool
        Whether the outputs carry derivatives.
    outputs : tuple of weakref
        The Variables that stand for the outputs.
    detached : bool
        Whether a derivative ends here: the outputs carry none, and some input does.
    behind : frozenset or None
        The expressions that it waits for; None where it has been computed itself, inside of a kernel.
    leaves : frozenset
        The keys of the leaves that it and the expressions behind it are made of. Some of them may have been computed
        since.
    length : int
        The number of statements of itself and of the expressions behind it.
    serial : int
        It is higher than those of the expressions that it is made of.
    seen : tuple, optional
        If it was computed inside the kernel of another expression: the composition, and its place in there.

    An expression that does not wait has no `outputs`, and none of `namespace`, `detached`, `behind`, `leaves`, `length`
    and `serial`.
    """

    __slots__ = (
        *("behind", "compute", "detached", "dtypes", "element", "inputs", "leaves", "length", "namespace", "outputs"),
        *("seen", "serial", "shape", "sums", "tracked"),
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
        self.outputs: tuple[ref[Variable], ...] = ()
        self.seen: tuple[Any, int] | None = None

    def wait(self) -> tuple[Variable, ...]:
        """The Variables that stand for the outputs until they are computed; they are remembered weakly."""
        own_leaves: list[Any] = []
        before: dict[int, Expression] = {}
        carries = False
        namespace: Any = None
        for each in self.inputs:
            if isinstance(each, Output):
                expression = each.expression
                before[id(expression)] = expression
                carries = carries or expression.tracked or expression.detached
                namespace = namespace or expression.namespace
            else:
                own_leaves.append(_key(each))
                if isinstance(each, Variable):
                    carries = carries or each.tracked
                    namespace = namespace or each.namespace
        self.namespace: Any = namespace
        self.detached: bool = carries and not self.tracked
        for expression in before.values():
            if expression.behind is None:
                expression.count_again(gather(expression))
        inner = before.values()
        self.serial = next(_serials)
        self._note(
            frozenset(inner).union(*[each.behind or () for each in inner]),
            frozenset(own_leaves).union(*[each.leaves for each in inner]),
            next(iter(inner)).length if len(before) == 1 else None,
        )
        variables = tuple(
            [
                Variable._pending(Output(self, index), self.tracked and is_float(dtype))
                for index, dtype in enumerate(self.dtypes)
            ]
        )
        self.outputs = tuple([ref(each) for each in variables])
        return variables

    def count_again(self, gathered: Gathered) -> None:
        """Note the expressions that it waits for at present."""
        self._note(frozenset(gathered.order[:-1]), frozenset(map(_key, gathered.leaves)))

    def _note(self, behind: frozenset[Expression], leaves: frozenset[Any], before: int | None = None) -> None:
        self.behind: frozenset[Expression] | None = behind
        self.leaves: frozenset[Any] = leaves
        before = sum([each.element.length for each in behind]) if before is None else before
        self.length = self.element.length + before

    def forget(self) -> None:
        """It has been computed, by itself or inside of a kernel, and waits no longer."""
        self.behind, self.leaves = None, frozenset()

    def exceeds_limits(self) -> bool:
        """Whether it and the expressions behind it are more than one kernel may have."""
        return self.length > LIMITS.statements or len(self.leaves) > LIMITS.arrays

    def variable(self, index: int) -> Variable | None:
        """The Variable that stands for an output, if somebody holds it."""
        return self.outputs[index]()

    def uncomputed(self) -> Iterator[tuple[int, Variable]]:
        """The outputs that somebody holds and that have no value yet."""
        for index, reference in enumerate(self.outputs):
            variable = reference()
            if variable is not None and variable._value is None:
                yield index, variable


def _key(leaf: Any) -> Any:
    return id(leaf) if isinstance(leaf, Variable) else (type(leaf), repr(leaf))


_serials = itertools.count()
_serial = attrgetter("serial")


def waiting(inputs: tuple[Any, ...]) -> list[Expression]:
    """The different expressions among some inputs."""
    return list({id(each.expression): each.expression for each in inputs if isinstance(each, Output)}.values())


class Gathered(NamedTuple):
    """Expressions with all that they wait for, in the form of a composition.

    Attributes
    ----------
    order : list of Expression
        Each stands after the expressions that it is made of; where one was asked for, it is the last.
    leaves : list
        The Variables and numbers that all of them are made of.
    refs : list of tuple of int
        For each expression where its inputs come from: leaves are the first values, and the outputs of each
        expression the next ones.
    known : dict
        By the `key` of an output that has been computed, the leaf that stands for it.
    place : dict
        The number of a leaf, by its id; and of the first output of an expression, by its id.
    """

    order: list[Expression]
    leaves: list[Any]
    refs: list[tuple[int, ...]]
    known: dict[tuple[int, int], Variable]
    place: dict[Any, int]

    def number(self, output: Output) -> int:
        """The number of an output among the values."""
        held = self.known.get(output.key)
        return self.place[id(output.expression)] + output.index if held is None else self.place[id(held)]


def gather(
    *roots: Expression, stops: Mapping[tuple[int, int], Variable] | None = None, first: Iterable[Variable] = ()
) -> Gathered:
    """Some expressions and all that they wait for.

    Parameters
    ----------
    *roots : Expression
    stops : mapping, optional
        Outputs, by their `key`, that count as computed, with the Variables that have their values. Without it these
        are the ones that have been computed.
    first : iterable of Variable
        Leaves in any case.
    """
    if len(roots) == 1 and stops is None:
        gathered = _gather_uncomputed(roots[0])
        if gathered is not None:
            return gathered
    known: dict[tuple[int, int], Variable] = {} if stops is None else dict(stops)
    order: list[Expression] = []
    leaves: list[Any] = []
    # Where a leaf is, by its key: equal numbers are one.
    place: dict[Any, int] = {}
    # The inputs of each expression: the numbers of leaves, and outputs, whose numbers are not known before the end.
    inputs_of: dict[int, list[int | Output]] = {}
    stack = [(root, False) for root in reversed(roots)]

    def leaf(key: Any, value: Any) -> int:
        number = place.get(key)
        if number is None:
            number = place[key] = len(leaves)
            leaves.append(value)
        return number

    for each in first:
        leaf(id(each), each)
    while stack:
        expression, is_ready = stack.pop()
        if is_ready:
            order.append(expression)
            continue
        if id(expression) in inputs_of:
            continue
        inputs = inputs_of[id(expression)] = []
        stack.append((expression, True))
        for each in expression.inputs:
            held = _held(each, known, stops is not None) if isinstance(each, Output) else each
            if held is not None:
                inputs.append(leaf(_key(held), held))
                continue
            inputs.append(each)
            if id(each.expression) not in inputs_of:
                stack.append((each.expression, False))

    count = len(leaves)
    for expression in order:
        place[id(expression)] = count
        count += len(expression.dtypes)

    def number(of: int | Output) -> int:
        return place[id(of.expression)] + of.index if isinstance(of, Output) else of

    refs = [tuple(map(number, inputs_of[id(expression)])) for expression in order]
    return Gathered(order, leaves, refs, known, place)


def _gather_uncomputed(root: Expression) -> Gathered | None:
    """The same in much less time where nothing that an expression waits for has been computed.

    It is None if something may have been.
    """
    order = [root]
    if Output in map(type, root.inputs):
        if root.behind is None or any(each.behind is None or each.seen is not None for each in root.behind):
            return None
        order = [*sorted(root.behind, key=_serial), root]
    place: dict[Any, int] = {}
    leaves: list[Any] = []
    inputs: list[list[Any]] = []
    seen: set[int] = set()
    for expression in order:
        refs: list[Any] = []
        for each in expression.inputs:
            if isinstance(each, Output):
                if id(each.expression) not in seen:  # it was computed before its reader was counted again
                    return None
                refs.append(each)
                continue
            key = _key(each)
            number = place.get(key)
            if number is None:
                number = place[key] = len(leaves)
                leaves.append(each)
            refs.append(number)
        inputs.append(refs)
        seen.add(id(expression))
    count = len(leaves)
    for expression in order:
        place[id(expression)] = count
        count += len(expression.dtypes)
    numbers = [
        tuple([place[id(each.expression)] + each.index if isinstance(each, Output) else each for each in refs])
        for refs in inputs
    ]
    return Gathered(order, leaves, numbers, {}, place)


def _held(output: Output, known: dict[tuple[int, int], Variable], is_complete: bool) -> Variable | None:
    """The Variable with an output's value, if it has been computed.

    `known` has the Variables that were found before, or all there are if it `is_complete`.
    """
    key = output.key
    leaf = known.get(key)
    if leaf is None and not is_complete:
        held = output.expression.variable(output.index)
        if held is not None and held._value is not None:
            leaf = known[key] = held
    return leaf
