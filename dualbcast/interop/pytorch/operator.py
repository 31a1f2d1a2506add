"""Operations where PyTorch traces or compiles: one registered operator stands for all of them.

A call on tensors that have no memory yet comes in. Out goes a call of the operator `dualbcast::apply` with the key of
an operation, which the operator looks up when it runs.
"""

from __future__ import annotations

import hashlib
import itertools
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from dualbcast.errors import BackendError
from dualbcast.interop.pytorch.memory import numpy_dtype_of, tensor_of
from dualbcast.interop.pytorch.operations import Operation, Symbol
from dualbcast.program import products
from dualbcast.runtime.iteration_space import result_shape

Tensor = torch.Tensor


# --- keys -------------------------------------------------------------------------------------------------------------
# PyTorch keeps compiled graphs on disk, with the keys in them. So a key follows from the meaning of an operation, and a
# derived operation can be made again from its key: `root/pullback:0,2:0:float32,float32/tangent:0`.

_OPERATIONS: dict[str, Operation] = {}
_numbers = itertools.count()


def key_of(operation: Operation) -> str:
    """The key of an operation."""
    if not operation.key:
        operation.key = _root(operation) if operation.origin is None else _derived(*operation.origin)
        _OPERATIONS.setdefault(operation.key, operation)
    return operation.key


def _root(operation: Operation) -> str:
    element = operation.element
    # A rule of the user's has a meaning in this process only.
    meaning = products.identity(element.function) or f"{next(_numbers)} in {id(_OPERATIONS)}"
    names = [dtype.name for dtype in operation.dtypes]
    text = repr((meaning, element.names, element.label, element.options, names, operation.sums))
    return f"{element.function.name}_{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def _derived(parent: Operation, method: str, *details: tuple[Any, ...]) -> str:
    parts = [",".join([str(getattr(each, "name", each)) for each in detail]) for detail in details]
    return f"{key_of(parent)}/{':'.join([method, *parts])}"


def operation_of(key: str) -> Operation:
    """The operation that has this key."""
    found = _OPERATIONS.get(key)
    if found is not None:
        return found
    parent, slash, step = key.rpartition("/")
    if not slash:
        raise BackendError(
            f"a compiled graph calls {key}, which this process has not compiled. Call torch.compiler.reset(), and "
            "compile again."
        )
    method, *details = step.split(":")
    positions = [tuple(map(int, detail.split(","))) for detail in details[:2]]
    operation = operation_of(parent)
    if method == "tangent":
        found = operation.tangent(positions[0])
    else:
        dtypes = tuple([numpy_dtype_of(name) for name in details[2].split(",")])
        found = operation.pullback(positions[0], positions[1], dtypes)
    return _OPERATIONS.setdefault(key, found)


# --- the operator -----------------------------------------------------------------------------------------------------

library = torch.library.Library("dualbcast", "FRAGMENT")
library.define(
    "apply(str key, str kinds, Tensor[] tensors, float[] floats, SymInt[] integers) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def dispatched(operation: Operation, values: Sequence[Any]) -> tuple[Any, ...]:
    """The outputs of an operation by the operator."""
    _shape_of(values, operation.element.names)
    return tuple(torch.ops.dualbcast.apply(key_of(operation), *split(values)))


def split(values: Sequence[Any]) -> tuple[str, list[Any], list[Any], list[Any]]:
    """The kinds of the values, one letter each, and the tensors, floats and integers among them."""
    kinds, tensors, floats, integers = "", list[Any](), list[Any](), list[Any]()
    for value in values:
        kind = value.dtype if isinstance(value, Symbol) else type(value)
        number = value.number if isinstance(value, Symbol) else value
        if isinstance(value, Tensor):
            tensors.append(value)
            kinds += "t"
        elif kind is float:
            floats.append(number)
            kinds += "f"
        elif kind is int or kind is bool:
            integers.append(number)
            kinds += "i" if kind is int else "b"
        elif isinstance(value, np.ndarray):
            integers.append(_number_of(value))
            kinds += "c"
        else:  # a number of NumPy's
            tensors.append(tensor_of(np.asarray(value)))
            kinds += "t"
    return kinds, tensors, floats, integers


def joined(kinds: str, tensors: Sequence[Any], floats: Sequence[Any], integers: Sequence[Any]) -> tuple[Any, ...]:
    """The values that `split` has split."""
    sources: dict[str, Iterator[Any]] = {"t": iter(tensors), "f": iter(floats), "i": iter(integers)}
    meanings: dict[str, Any] = {"b": bool, "c": lambda number: _CAPTURED[int(number)]}
    return tuple([meanings[kind](next(sources["i"])) if kind in meanings else next(sources[kind]) for kind in kinds])


# The arrays that functions have captured, by numbers in graphs: as a tensor, an array would be copied when a graph is
# made. The numbers are random, since a graph on disk must not find another array in another process.
_CAPTURED: dict[int, Any] = {}


def _number_of(array: Any) -> int:
    for number, other in _CAPTURED.items():
        if other is array:
            return number
    number = secrets.randbits(62)
    _CAPTURED[number] = array
    return number


def _run(key: str, *split: Any) -> list[Any]:
    """The operator on tensors with memory. PyTorch's compiler wants to know the strides before it runs."""
    return [y.contiguous() for y in operation_of(key).run(joined(*split))]


def _fake(key: str, *split: Any) -> list[Any]:
    """The shapes and dtypes of the outputs, for tensors without memory."""
    operation, values = operation_of(key), joined(*split)
    shape = _shape_of(values, operation.element.names)
    sums = operation.sums or (None,) * len(operation.kinds)
    shapes = [np.shape(values[at]) if isinstance(at, int) else shape for at in sums]
    return [split[1][0].new_empty(each, dtype=kind) for each, kind in zip(shapes, operation.kinds, strict=True)]


def _shape_of(values: Sequence[Any], names: tuple[str, ...]) -> tuple[Any, ...]:
    """The shape that the values broadcast to; a `ShapeError` where they do not."""
    shapes = [tuple(getattr(value, "shape", ())) for value in values]
    try:
        return tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        return result_shape(tuple([(shape, (), np.dtype(float)) for shape in shapes]), names)


library.impl("apply", _run, "CPU")
library.impl("apply", _run, "CUDA")
torch.library.register_fake("dualbcast::apply", _fake, lib=library)
