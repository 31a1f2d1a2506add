"""The tape: nodes, the primitives that they apply, and the settings of each thread.

Comes in: a primitive with its inputs and outputs. Goes out: a node, through which a cotangent can be pulled back.

The settings are changed by context managers, which are decorators, too. One of them, `launches`, lists the kernels that
are launched while it is active.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ContextDecorator, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from dualbcast.errors import ArgumentError

# For each output or input of a node its cotangent: a Variable, or None if it is zero or not wanted.
Cotangents: TypeAlias = Sequence[Any]

next_serial: Callable[[], int] = itertools.count(1).__next__


@dataclass(eq=False, slots=True)
class Primitive:
    """An operation of the graph."""

    # The name that messages use.
    name: str
    # From arrays (and numbers, as they were given) and static parameters to an array. It is None where the outputs are
    # computed elsewhere, and the primitive is only recorded.
    forward: Any
    # From a node, the cotangents of its outputs, and for each input whether its cotangent is wanted, to the cotangents
    # of the inputs. It is written with differentiable operations, so that it can be differentiated. It is None for a
    # primitive that is never recorded.
    pullback: Any
    # Whether `pullback` needs the values of the outputs: the node then saves them.
    saves_outputs: bool = False
    # Whether it is linear in all inputs together ("all"), as a sum is, in each of them ("each"), as a product is, or
    # in neither way; then complex numbers are refused, unless `complex_outputs` is given.
    linear_in: Literal["all", "each", ""] = ""
    # For each output, whether it is complex where inputs are. Then `forward` and `pullback` take complex arrays and
    # Variables as well; see `complex_numbers.primitives`.
    complex_outputs: tuple[bool, ...] = ()


def unary(
    name: str,
    forward: Callable[..., Any],
    pullback: Callable[[Node, Any], Any],
    saves_outputs: bool = False,
    is_linear: bool = False,
    complex_outputs: tuple[bool, ...] = (),
) -> Primitive:
    """A primitive of one array. Its pullback takes a node and one cotangent, and returns one cotangent."""

    def pulled(node: Node, cotangents: Cotangents, _wanted: tuple[bool, ...]) -> Cotangents:
        return (pullback(node, cotangents[0]),)

    return Primitive(name, forward, pulled, saves_outputs, "all" if is_linear else "", complex_outputs)


class Node:
    """One application of a primitive to inputs: Variables and constants."""

    __slots__ = ("__weakref__", "inputs", "primitive", "saved", "serial", "static", "types")

    def __init__(
        self, primitive: Primitive, inputs: tuple[Any, ...], static: dict[str, Any], outputs: Sequence[Any]
    ) -> None:
        self.primitive, self.inputs, self.static = primitive, inputs, static
        # Serials count upwards, so a node that is older than a Variable cannot depend on it.
        self.serial = next_serial()
        self.types = tuple([(output.shape, output.dtype) for output in outputs])
        # The outputs refer to the node. A reference back would make a cycle, and keep their arrays for longer.
        self.saved = tuple([output.array for output in outputs]) if primitive.saves_outputs else ()

    def __repr__(self) -> str:
        return f"<Node {self.serial}: {self.primitive.name}>"


class _State(threading.local):
    """The settings of a thread."""

    def __init__(self) -> None:
        self.is_recording = True
        # Whether element-wise operations wait for one another.
        self.is_fusing = True
        # Whether recorded kernels keep their Jacobians: "auto", "cache" or "recompute".
        self.jacobian = "auto"
        # How many transformations are under way, and the identity of the outermost; see `frozen.thaw_on_failure`.
        self.depth = 0
        self.outermost: object = None
        # Each kernel that the graph launches is noted in each of these lists.
        self.launches: tuple[list[Launch], ...] = ()
        # It is called with the inputs of every operation of a checkpointed function, to find what this captures.
        self.observer: Callable[[Sequence[Any]], None] | None = None
        # The recording that notes what is computed; see `recording`.
        self.recorder: Any = None
        # The calls of `vmap` under way, the outermost first: the number and the size of the batch; see `batched`.
        self.batches: tuple[tuple[int, int], ...] = ()
        # Whether a compiled function runs as it is written; see `compilation`.
        self.is_compiling = False

    def __reduce__(self) -> str:
        """Its name: functions that transformations return read it, and may go to other processes."""
        return "STATE"


STATE = _State()


def observe(inputs: Sequence[Any]) -> None:
    """Tell a checkpointed function that runs which inputs an operation has. Every operation calls this."""
    if STATE.observer is not None:
        STATE.observer(inputs)


class setting(ContextDecorator):  # noqa: N801
    """A context manager and decorator that gives attributes of `STATE` these values. It may be entered again."""

    __slots__ = ("_before", "_values")

    def __init__(self, **values: Any) -> None:
        self._values = values
        self._before: list[dict[str, Any]] = []

    def _recreate_cm(self) -> setting:
        # The calls of a decorated function may be on several threads, which must not share `_before`.
        return setting(**self._values)

    def __enter__(self) -> None:
        self._before.append({name: getattr(STATE, name) for name in self._values})
        STATE.__dict__.update(self._values)

    def __exit__(self, *_: object) -> None:
        STATE.__dict__.update(self._before.pop())


def no_grad() -> setting:
    """A context manager, or a decorator `@no_grad()`, that records no operations.

    Results computed inside are constants for later derivatives. Transformations that are called inside still work.

    Examples
    --------
    >>> from dualbcast import graph
    >>> v = graph.Variable(2.0)
    >>> with graph.no_grad():
    ...     square = v * v
    >>> square.tracked
    False
    """
    return setting(is_recording=False)


def fusion(on: bool) -> setting:
    """A context manager that sets whether element-wise operations of this thread wait to become one kernel together.

    Without fusion each operation is computed where it is written, by a kernel of its own. Results differ by roundings
    only (a kernel computes float16 in float32, and rounds when it stores).

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> x = graph.Variable(np.linspace(0.0, 1.0, 2000))
    >>> with graph.fusion(False), graph.launches() as kernels:
    ...     y = np.sin(x) * x + 1
    >>> [kernel.label for kernel in kernels]
    ['sin', 'multiply', 'add']
    """
    return setting(is_fusing=bool(on))


def jacobian_policy(mode: Literal["auto", "cache", "recompute"]) -> setting:
    """A context manager that sets whether recorded kernels of this thread keep their Jacobians.

    Parameters
    ----------
    mode : {"auto", "cache", "recompute"}
        "cache": the forward pass computes values and derivatives in one launch and keeps both; the backward pass
        multiplies. "recompute": the forward pass computes the values alone; the backward pass computes the derivatives
        and contracts them in registers. "auto" chooses the one that should be faster. Results differ by roundings only.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> x = graph.Variable(np.linspace(0.0, 1.0, 2000))
    >>> with graph.jacobian_policy("cache"), graph.launches() as kernels:
    ...     gradient = graph.vjp(lambda x: np.sin(x) * x, x.value)[1](x.value)
    >>> [kernel.product for kernel in kernels]
    ['value_and_jacobian', 'value']
    """
    if mode not in ("auto", "cache", "recompute"):
        raise ArgumentError(f"jacobian={mode!r} is no policy; choose auto, cache or recompute")
    return setting(jacobian=mode)


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel that has run.

    Attributes
    ----------
    label : str
        The names of its functions.
    product : str
        "value", or "value_and_jacobian" if the Jacobian is kept.
    shape : tuple of int
        The shape to which its arguments broadcast.
    reads : int
        The number of arrays that it reads.
    writes : int
        The number of arrays that it writes.
    """

    label: str
    product: str
    shape: tuple[int, ...]
    reads: int
    writes: int


@contextmanager
def launches() -> Iterator[list[Launch]]:
    """A context manager that lists the element-wise kernels that the graph launches on this thread.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> v = graph.Variable(np.linspace(0.0, 1.0, 5000))
    >>> with graph.launches() as kernels:
    ...     total = np.sum(np.tanh(v) * v + 1)
    >>> len(kernels)
    1
    """
    noted: list[Launch] = []
    with setting(launches=(*STATE.launches, noted)):
        yield noted


def launched(label: str, product: str, shape: tuple[int, ...], reads: int, writes: int) -> None:
    """Note a kernel."""
    for noted in STATE.launches:
        noted.append(Launch(label, product, shape, reads, writes))
