"""The tape: nodes, the primitives that they apply, and the settings of each thread.

Comes in: a primitive with its inputs and outputs. Goes out: a node, through which a cotangent can be pulled back.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import ContextDecorator
from dataclasses import dataclass
from typing import Any, TypeAlias

# For each output or input of a node its cotangent: a Variable, or None if it is zero or not wanted.
Cotangents: TypeAlias = Sequence[Any]

next_serial: Callable[[], int] = itertools.count(1).__next__


class _State(threading.local):
    """The settings of a thread.

    Attributes
    ----------
    is_recording : bool
        Whether operations are recorded.
    is_fusing : bool
        Whether element-wise operations wait for one another.
    jacobian : str
        Whether recorded kernels keep their Jacobians: "auto", "cache" or "recompute".
    depth : int
        How many transformations are under way.
    outermost : object or None
        The identity of the outermost transformation that is under way; see `frozen.thaw_on_failure`.
    launches : tuple of list
        Each kernel that the graph launches is noted in each of these lists.
    observer : callable or None
        It is called with the inputs of every operation while a checkpointed function runs, to find what it captures.
    """

    def __init__(self) -> None:
        self.is_recording = True
        self.is_fusing = True
        self.jacobian = "auto"
        self.depth = 0
        self.outermost: object = None
        self.launches: tuple[list[Any], ...] = ()
        self.observer: Callable[[Sequence[Any]], None] | None = None


STATE = _State()


class setting(ContextDecorator):  # noqa: N801
    """A context manager and decorator: attributes of `STATE` have these values for a while. It may be entered again."""

    __slots__ = ("_before", "_values")

    def __init__(self, **values: Any) -> None:
        self._values = values
        self._before: list[dict[str, Any]] = []

    def _recreate_cm(self) -> setting:
        # The calls of a decorated function may be on several threads, which must not share `_before`.
        return setting(**self._values)

    def __enter__(self) -> None:
        state, before = STATE.__dict__, {}
        for name in self._values:
            before[name] = state[name]
        state.update(self._values)
        self._before.append(before)

    def __exit__(self, *_: object) -> None:
        STATE.__dict__.update(self._before.pop())


def observe(inputs: Sequence[Any]) -> None:
    """Tell a checkpointed function that runs which inputs an operation has. Every operation calls this."""
    if STATE.observer is not None:
        STATE.observer(inputs)


@dataclass(eq=False, slots=True)
class Primitive:
    """An operation of the graph.

    Attributes
    ----------
    name : str
        The name that messages use.
    forward : function
        It takes arrays (and numbers, as they were given) and static parameters, and gives an array, or a tuple of
        arrays. It is None where the outputs are computed elsewhere, and the primitive is only recorded.
    pullback : function
        It takes a node, the cotangents of its outputs, and for each input whether its cotangent is wanted; it gives the
        cotangents of the inputs. It is written with differentiable operations, so that it can be differentiated.
        It is None for a primitive that is never recorded.
    multiple : bool
        Whether `forward` gives a tuple.
    saves_outputs : bool
        Whether `pullback` needs the values of the outputs: the node then saves them.
    """

    name: str
    forward: Any
    pullback: Any
    multiple: bool = False
    saves_outputs: bool = False


def unary(
    name: str, forward: Callable[..., Any], pullback: Callable[[Node, Any], Any], saves_outputs: bool = False
) -> Primitive:
    """A primitive of one array. Its pullback takes a node and one cotangent, and returns one cotangent."""
    return Primitive(
        name, forward, lambda node, cotangents, _wanted: (pullback(node, cotangents[0]),), saves_outputs=saves_outputs
    )


class Node:
    """One application of a primitive.

    Attributes
    ----------
    primitive : Primitive
    inputs : tuple
        The Variables that it was applied to; anything else in it is a constant.
    static : dict
        Static parameters.
    serial : int
        Serials count upwards, so a node that is older than a Variable cannot depend on it.
    types : tuple of (shape, dtype)
        For each output its shape and dtype.
    outputs : tuple of weakref
        The output Variables. The references are weak because the outputs refer to the node: a cycle would keep their
        arrays until the next collection.
    saved : tuple of array
        The values of the outputs, if the primitive saves them.
    """

    __slots__ = ("__weakref__", "inputs", "outputs", "primitive", "saved", "serial", "static", "types")

    def __init__(
        self, primitive: Primitive, inputs: tuple[Any, ...], static: dict[str, Any], outputs: Sequence[Any]
    ) -> None:
        self.primitive, self.inputs, self.static = primitive, inputs, static
        self.serial = next_serial()
        self.types = tuple([(output.shape, output.dtype) for output in outputs])
        self.outputs = tuple([weakref.ref(output) for output in outputs])
        self.saved = tuple([output.array for output in outputs]) if primitive.saves_outputs else ()

    def __repr__(self) -> str:
        return f"<Node {self.serial}: {self.primitive.name}>"
