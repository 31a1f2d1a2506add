"""Checkpoints: the intermediate values of a function are not kept, but computed again in the backward pass.

Comes in: a function of Variables. Goes out: the same function, which records one node.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from dualbcast.graph.arrays import is_array, leaves, rebuild
from dualbcast.graph.backward import backward, key_of
from dualbcast.graph.frozen import Frozen, freeze
from dualbcast.graph.nesting import check_results, name_of
from dualbcast.graph.primitives import alias, record, tracked_positions
from dualbcast.graph.tape import STATE, Cotangents, Node, Primitive, next_serial, observe, setting
from dualbcast.graph.variable import Variable

Function = TypeVar("Function", bound=Callable[..., Any])


def checkpoint(function: Function) -> Function:
    """The same function, whose intermediate values are not kept: the backward pass calls it again.

    This saves memory, and takes the time of one more evaluation. The function must compute the same again from the same
    arguments. Variables that it captures are differentiated in, too. Arrays that it captures are read-only until the
    backward pass. CuPy's arrays cannot be read-only: pass those that may change in the meantime as arguments.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> layer = graph.checkpoint(lambda x: np.exp(np.log(x) * 2))
    >>> graph.grad(lambda x: np.sum(layer(layer(x))))(np.array([1.0, 2.0])).round(9)
    array([ 4., 32.])
    """

    @functools.wraps(function)
    def checkpointed(*args: Any, **named: Any) -> Any:
        if not STATE.is_recording:
            return function(*args, **named)
        given = leaves((args, named))
        positions = tracked_positions(given)
        arguments = [given[at] for at in positions]
        # The node refers to the structure of the arguments, and to their leaves that carry no derivative.
        structure = rebuild((args, named), [False] * len(given))
        constants, frozen = _constants(given, positions)

        def call(inputs: Sequence[Variable]) -> Any:
            """The function, with other Variables in the place of the arguments that carry derivatives."""
            values = dict(zip(positions, inputs, strict=True))
            again, options = rebuild(structure, [values.get(at, leaf) for at, leaf in enumerate(constants)])
            return function(*again, **options)

        captured = _Captured()
        with setting(observer=captured.observe, is_recording=False):
            result = call([Variable(each, tracked=False) for each in arguments])
        check_results(result, name_of(function))
        inputs = (*arguments, *captured.variables)
        observe(inputs)
        tracked = bool(inputs)
        outputs = [Variable(leaf, tracked) if isinstance(leaf, Variable) else leaf for leaf in leaves(result)]
        if tracked:
            static = {"call": call, "count": len(arguments), "frozen": [*frozen, *captured.frozen]}
            record(_CHECKPOINT, inputs, static, [leaf for leaf in outputs if isinstance(leaf, Variable)])
        return rebuild(result, outputs)

    return checkpointed  # type: ignore[return-value]


def _constants(given: list[Any], positions: Sequence[int]) -> tuple[list[Any], list[Frozen | None]]:
    """The leaves of arguments except those at some positions. Arrays among them are frozen."""
    constants = [None if at in positions else leaf for at, leaf in enumerate(given)]
    frozen = []
    for at, leaf in enumerate(constants):
        if is_array(leaf) and not isinstance(leaf, np.generic):
            constants[at], need = freeze(leaf)
            frozen.append(need)
    return constants, frozen


class _Captured:
    """Notes which tracked Variables and user's arrays a function captures.

    Attributes
    ----------
    variables : list of Variable
    frozen : set of Frozen
        The needs of arrays that the function has used, and will use again.
    """

    def __init__(self) -> None:
        self.variables: list[Variable] = []
        self.frozen: set[Frozen] = set()
        self._since, self._before = next_serial(), STATE.observer
        self._seen: set[tuple[int, int]] = set()

    def observe(self, inputs: Sequence[Any]) -> None:
        """Note the inputs of an operation."""
        for each in inputs:
            is_from_before = isinstance(each, Variable) and each.tracked and each.serial < self._since
            if is_from_before and key_of(each) not in self._seen:
                self._seen.add(key_of(each))
                self.variables.append(each)
            elif isinstance(each, Variable) and each.frozen is not None:
                self.frozen.add(each.frozen)
        if self._before is not None:
            self._before(inputs)


def _pullback(node: Node, cotangents: Cotangents, _wanted: tuple[bool, ...]) -> Cotangents:
    count, call = node.static["count"], node.static["call"]
    is_recorded = STATE.is_recording
    # Aliases stand for the arguments, and captured Variables for themselves; the inner backward pass ends at both.
    aliases = [alias(each) for each in node.inputs[:count]]
    with setting(is_recording=True, depth=STATE.depth + 1):
        outputs = [leaf for leaf in leaves(call(aliases)) if isinstance(leaf, Variable)]
    heads = [
        (output, cotangent)
        for output, cotangent in zip(outputs, cotangents, strict=True)
        if cotangent is not None and output.tracked
    ]
    del outputs
    return backward(heads, [*aliases, *node.inputs[count:]], is_recorded, stop=True)


_CHECKPOINT = Primitive("checkpoint", None, _pullback)
