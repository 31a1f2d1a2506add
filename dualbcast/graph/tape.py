"""What is recorded: nodes, the primitives they stand for, and whether operations are recorded at present."""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from dualbcast.errors import DTypeError, DualbcastError, ShapeError
from dualbcast.graph.frozen import GIVEN_UP
from dualbcast.graph.variable import Variable

__all__ = [
    "ALIAS",
    "STATE",
    "IndexingError",
    "Node",
    "Primitive",
    "Pulled",
    "alias",
    "arrays_of",
    "as_array",
    "constant",
    "is_any_tracked",
    "is_array",
    "is_float",
    "is_read_only",
    "namespace",
    "observe",
    "recording",
    "run",
    "zeros",
]

Array: TypeAlias = Any  # numpy.ndarray or cupy.ndarray: CuPy is optional and has no types
# Of each input its cotangent; None where there is none, or nobody asked.
Pulled: TypeAlias = Sequence["Variable | None"]

_serials = itertools.count(1)


class IndexingError(ShapeError, IndexError):
    """An index does not fit the Variable that it is used on."""


# --- tracking state ---------------------------------------------------------------------------------------------------


class _State(threading.local):
    """Of each thread: whether operations are recorded, how many transformations are under way, and who is watching."""

    is_recording: bool = True
    # Whether element-wise operations wait for one another.
    is_fusing: bool = True
    # Whether recorded kernels keep their Jacobians: "auto", "cache" or "recompute".
    jacobian: str = "auto"
    depth: int = 0
    # Called with the inputs of every operation while a checkpointed function runs, to find what it captures.
    observer: Callable[[Sequence[Any]], None] | None = None


STATE = _State()


class recording:  # noqa: N801
    """Record operations or do not, for a while, with `level` more transformations under way."""

    # No generator: every backward pass begins with one.
    __slots__ = ("_before", "_level", "_wanted")

    def __init__(self, wanted: bool, level: int = 0) -> None:
        self._wanted, self._level = wanted, level

    def __enter__(self) -> None:
        self._before = STATE.is_recording
        STATE.is_recording = self._wanted
        STATE.depth += self._level

    def __exit__(self, *_: object) -> None:
        STATE.is_recording = self._before
        STATE.depth -= self._level


def observe(inputs: Sequence[Any]) -> None:
    """Tell who is watching which Variables are used; to be called with all inputs of an operation."""
    if STATE.observer is not None:
        STATE.observer(inputs)


# --- primitives and nodes ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Primitive:
    """An operation of the graph.

    Attributes
    ----------
    name : str
        What messages call it.
    forward : function
        From arrays (and numbers, as they were given) and static parameters to an array, or a tuple of arrays.
    pull : function
        From a node, the cotangents of its outputs (None for zero) and for each input whether its cotangent is wanted,
        to the cotangents of the inputs. It is written with differentiable operations, so that it can be differentiated.
    multiple : bool
        Whether `forward` gives a tuple.
    keeps : bool
        Whether `pull` needs the values of the outputs: the node then keeps them.
    """

    name: str
    forward: Callable[..., Any]
    pull: Callable[[Node, tuple[Variable | None, ...], tuple[bool, ...]], Pulled]
    multiple: bool = False
    keeps: bool = False


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
        Nodes count upwards, so that a node that is older than a Variable cannot depend on it.
    forms : tuple of (shape, dtype)
        Of each output.
    """

    __slots__ = ("__weakref__", "_kept", "_outputs", "forms", "inputs", "primitive", "serial", "static")

    def __init__(
        self, primitive: Primitive, inputs: tuple[Any, ...], static: dict[str, Any], outputs: Sequence[Variable]
    ) -> None:
        self.primitive, self.inputs, self.static = primitive, inputs, static
        self.serial = next(_serials)
        self.forms = tuple([(output.shape, output.dtype) for output in outputs])
        # Weak, because the outputs refer to the node: a cycle would keep their arrays until the next collection.
        self._outputs = tuple([weakref.ref(output) for output in outputs])
        self._kept = tuple([output.array for output in outputs]) if primitive.keeps else ()

    def output(self, index: int = 0) -> Variable:
        """An output: the Variable itself or, if nobody holds it any more, another that stands for it."""
        found = self._outputs[index]()
        return found if found is not None else Variable._of(self._kept[index], True, self, index)

    def __repr__(self) -> str:
        return f"<Node {self.serial}: {self.primitive.name}>"


def run(primitive: Primitive, inputs: tuple[Any, ...], **static: Any) -> Any:
    """Apply a primitive: compute its outputs, and record a node where a derivative may be asked for.

    Returns
    -------
    Variable, or tuple of Variable if the primitive has `multiple` outputs

    Raises
    ------
    ShapeError, DTypeError
        The arrays do not fit; the message names the operation and the shapes.
    """
    observe(inputs)
    values = arrays_of(inputs)
    try:
        found = primitive.forward(*values, **static)
    except ShapeError as error:
        raise ShapeError(f"{primitive.name}: {error}") from None
    except DualbcastError:
        raise
    except IndexError as error:
        raise IndexingError(_blame(primitive.name, values, error)) from None
    except ValueError as error:
        raise ShapeError(_blame(primitive.name, values, error)) from None
    except TypeError as error:
        raise DTypeError(_blame(primitive.name, values, error)) from None
    is_tracked = STATE.is_recording and is_any_tracked(inputs)
    arrays = found if primitive.multiple else (found,)
    outputs = tuple([Variable._of(as_array(array), is_tracked and is_float(array.dtype)) for array in arrays])
    if len(inputs) == 1 and isinstance(inputs[0], Variable) and inputs[0].frozen is not None:
        # Of many arrays none of these operations gives a view.
        for output in outputs:
            if output._value is values[0] or output._value.base is not None:
                output.frozen = inputs[0].frozen
    if is_tracked:
        node = Node(primitive, inputs, static, outputs)
        for index, output in enumerate(outputs):
            if output.tracked:
                output.node, output.index = node, index
    return outputs if primitive.multiple else outputs[0]


def is_any_tracked(inputs: Sequence[Any]) -> bool:
    """Whether any of some inputs carries a derivative."""
    return True in [isinstance(each, Variable) and each.tracked for each in inputs]


def arrays_of(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The arrays of the Variables among some inputs, and all else as it is."""
    if GIVEN_UP:
        for each in inputs:
            if isinstance(each, Variable) and each.frozen is not None:
                each.frozen.check()
    return tuple([each.array if isinstance(each, Variable) else each for each in inputs])


def _blame(name: str, values: Sequence[Any], error: Exception) -> str:
    """The message for arrays that NumPy refuses."""
    shapes = [f"{value.dtype}{list(value.shape)}" for value in values if hasattr(value, "shape")]
    return f"{name} of {', '.join(shapes)}: {error}" if shapes else f"{name}: {error}"


# --- arrays -----------------------------------------------------------------------------------------------------------

_NUMPYS = (np.ndarray, np.generic)


def namespace(*arrays: Any) -> Any:
    """The array library of the first of the arguments that is an array: NumPy, or CuPy as array-api-compat wraps it."""
    for array in arrays:
        if isinstance(array, Variable):
            return array.namespace
        if isinstance(array, _NUMPYS):
            return np
        if is_array(array):
            return _cupy()
    return np


@lru_cache
def _cupy() -> Any:
    from array_api_compat import cupy

    return cupy


def is_array(value: Any) -> bool:
    """Whether a value is an array of NumPy's or CuPy's, or a NumPy scalar."""
    if isinstance(value, _NUMPYS):
        return True
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(value, cupy.ndarray)


def as_array(value: Any) -> Array:
    """An array for what a reduction of NumPy's gives, or a user: numbers and lists are turned into arrays."""
    if type(value) is np.ndarray or (is_array(value) and not isinstance(value, np.generic)):
        return value
    return np.asarray(value)


def is_float(dtype: Any) -> bool:
    """Whether arrays of this dtype carry derivatives."""
    return bool(dtype.kind == "f") or dtype.name == "bfloat16"


def is_read_only(array: Array) -> bool:
    """Whether nobody can write to it; CuPy has no such arrays."""
    return isinstance(array, np.ndarray) and not array.flags.writeable


def constant(value: Any) -> Variable:
    """The argument of an operation as a Variable; one that is none yet carries no derivative."""
    return value if isinstance(value, Variable) else Variable(value, tracked=False)


def zeros(like: Variable) -> Variable:
    """The cotangent of what is not depended on."""
    return Variable._of(namespace(like).zeros(like.shape, dtype=like.dtype), False)


# --- aliases ----------------------------------------------------------------------------------------------------------


def _same(node: Node, cotangents: tuple[Variable | None, ...], wanted: tuple[bool, ...]) -> Pulled:  # noqa: ARG001
    return cotangents


ALIAS = Primitive("alias", lambda array: array, _same)


def alias(value: Any) -> Variable:
    """A Variable to differentiate in, which is apart from all others and still depends on what it is made of."""
    observe((value,))
    if isinstance(value, Variable) and value.tracked and STATE.is_recording:
        made: Variable = run(ALIAS, (value,))
        return made
    return Variable(value)
