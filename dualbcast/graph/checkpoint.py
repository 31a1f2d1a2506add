"""Checkpoints: functions whose intermediate values are computed again in the backward pass, and not kept."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from dualbcast.graph.backward import backward, key_of
from dualbcast.graph.foreign import check_results
from dualbcast.graph.frozen import Frozen, freeze
from dualbcast.graph.tape import STATE, Node, Primitive, Pulled, alias, is_array, recording, run
from dualbcast.graph.trees import leaves, rebuild
from dualbcast.graph.variable import Variable

__all__ = ["checkpoint"]

Function = TypeVar("Function", bound=Callable[..., Any])


def checkpoint(function: Function) -> Function:
    """The same function, but what it computes on the way is not kept for the backward pass, which calls it again.

    It saves memory for the time of one more evaluation. The function must compute the same again from the same
    arguments; the Variables that it captures are differentiated in, too. Arrays that it captures are read-only until
    then. CuPy's cannot be: pass what may change in the meantime as an argument.

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
            """The function, with other Variables in the place of those that were given."""
            values = dict(zip(at, inputs, strict=False))
            new = [values.get(place, leaf) for place, leaf in enumerate(template)]
            again, options = rebuild(tree, new)
            return function(*again, **options)

        # What is kept: the arguments' structure, and those of their leaves that carry no derivative.
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
        check_results(result, f"{getattr(function, '__name__', repr(function))}()")
        outputs = leaves(result)
        variables = [place for place, leaf in enumerate(outputs) if isinstance(leaf, Variable)]
        arrays = tuple([outputs[place].array for place in variables])
        node_inputs = (*inputs, *captured.found)
        frozen.extend(captured.frozen)
        made = run(_CHECKPOINT, node_inputs, arrays=_Once(arrays), call=call, count=len(inputs), frozen=frozen)
        for place, variable in zip(variables, made, strict=True):
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
    """Notes the tracked Variables that are used meanwhile and were there before, and arrays of the user's."""

    def __init__(self) -> None:
        self.found: list[Variable] = []
        # Of arrays that the function has used, and will use again.
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
                self.found.append(each)
            elif isinstance(each, Variable) and each.frozen is not None:
                self.frozen.add(each.frozen)
        if self._before is not None:
            self._before(inputs)


def _forward(*_: Any, arrays: _Once, **__: Any) -> tuple[Any, ...]:
    return arrays.take()


def _pull(node: Node, cotangents: tuple[Variable | None, ...], wanted: tuple[bool, ...]) -> Pulled:  # noqa: ARG001
    count, call = node.static["count"], node.static["call"]
    record = STATE.is_recording
    # The arguments go by aliases, the captured Variables are used as they are; the way back ends at both.
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
