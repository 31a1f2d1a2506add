"""Checkpoints: the intermediate values of a function are not kept, but computed again in the backward pass.

Comes in: a function of Variables. Goes out: the same function, which records one node.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from dualbcast.graph.arrays import is_array
from dualbcast.graph.backward import backward, key_of
from dualbcast.graph.frozen import Frozen, freeze
from dualbcast.graph.nesting import check_results, name_of
from dualbcast.graph.primitives import alias, run_multiple
from dualbcast.graph.tape import STATE, Cotangents, Node, Primitive, recording
from dualbcast.graph.trees import leaves, rebuild
from dualbcast.graph.variable import Variable

__all__ = ["checkpoint"]

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
        at = [place for place, leaf in enumerate(given) if isinstance(leaf, Variable) and leaf.tracked]

        def call(inputs: Sequence[Variable]) -> Any:
            """The function, with other Variables in the place of the given ones."""
            values = dict(zip(at, inputs, strict=False))
            new = [values.get(place, leaf) for place, leaf in enumerate(template)]
            again, options = rebuild(tree, new)
            return function(*again, **options)

        # The structure of the arguments is kept, and their leaves that carry no derivative.
        template = [None if place in at else leaf for place, leaf in enumerate(given)]
        frozen = []
        for place, leaf in enumerate(template):
            if is_array(leaf) and not isinstance(leaf, np.generic):
                template[place], need = freeze(leaf)
                frozen.append(need)
        tree = rebuild((args, named), [False] * len(given))
        inputs = [given[place] for place in at]
        captured = _Captured()
        with captured, recording(False):
            result = call([Variable(each, tracked=False) for each in inputs])
        check_results(result, name_of(function))
        outputs = leaves(result)
        variables = [place for place, leaf in enumerate(outputs) if isinstance(leaf, Variable)]
        arrays = tuple([outputs[place].array for place in variables])
        frozen.extend(captured.frozen)
        static = {"arrays": _Once(arrays), "call": call, "count": len(inputs), "frozen": frozen}
        recorded = run_multiple(_CHECKPOINT, (*inputs, *captured.variables), static)
        for place, variable in zip(variables, recorded, strict=True):
            variable.frozen, outputs[place] = outputs[place].frozen, variable
        return rebuild(result, outputs)

    return checkpointed  # type: ignore[return-value]


class _Once:
    """The results of the first evaluation, which the node must not keep."""

    def __init__(self, arrays: tuple[Any, ...]) -> None:
        self._arrays: tuple[Any, ...] | None = arrays

    def take(self) -> tuple[Any, ...]:
        arrays, self._arrays = self._arrays, None
        assert arrays is not None
        return arrays


class _Captured:
    """Notes the tracked Variables from before that are used meanwhile, and the arrays of the user's."""

    def __init__(self) -> None:
        self.variables: list[Variable] = []
        # The needs of arrays that the function has used, and will use again.
        self.frozen: set[Frozen] = set()
        self._seen: set[tuple[int, int]] = set()

    def __enter__(self) -> None:
        self._since = Variable(0.0).serial
        self._before, STATE.observer = STATE.observer, self._observe

    def __exit__(self, *_: object) -> None:
        STATE.observer = self._before

    def _observe(self, inputs: Sequence[Any]) -> None:
        for each in inputs:
            is_from_before = isinstance(each, Variable) and each.tracked and each.serial < self._since
            if is_from_before and key_of(each) not in self._seen:
                self._seen.add(key_of(each))
                self.variables.append(each)
            elif isinstance(each, Variable) and each.frozen is not None:
                self.frozen.add(each.frozen)
        if self._before is not None:
            self._before(inputs)


def _forward(*_: Any, arrays: _Once, **__: Any) -> tuple[Any, ...]:
    return arrays.take()


def _pull(node: Node, cotangents: Cotangents, _wanted: tuple[bool, ...]) -> Cotangents:
    count, call = node.static["count"], node.static["call"]
    record = STATE.is_recording
    # Aliases stand for the arguments, and captured Variables for themselves; the inner backward pass ends at both.
    aliases = [alias(each) for each in node.inputs[:count]]
    with recording(True, level=1):
        outputs = [leaf for leaf in leaves(call(aliases)) if isinstance(leaf, Variable)]
    heads = [
        (output, cotangent)
        for output, cotangent in zip(outputs, cotangents, strict=True)
        if cotangent is not None and output.tracked
    ]
    del outputs
    return backward(heads, [*aliases, *node.inputs[count:]], record, stop=True)


_CHECKPOINT = Primitive("checkpoint", _forward, _pull, multiple=True)
