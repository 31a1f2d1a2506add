"""How operations go over a batch, inside `vmap`.

Comes in: an operation, with inputs of which some are `Batched`. Goes out: the result of one operation for the whole
batch where a rule says how; else of one for each element.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError
from dualbcast.graph import indexing, shapes
from dualbcast.graph.array_functions.sequences import BELOW
from dualbcast.graph.arrays import is_complex, leaves, map_leaves, rebuild
from dualbcast.graph.batched import batched, is_at, level_of
from dualbcast.graph.linalg import products
from dualbcast.graph.primitives import constant, run
from dualbcast.graph.tape import Primitive
from dualbcast.graph.variable import Variable, registered

# From the inputs with the batch along their first axes, whether each has it, and the static parameters, to the result.
_Rule = Callable[[tuple[Any, ...], tuple[bool, ...], dict[str, Any]], Any]


@registered
def run_batched(runner: Callable[..., Any], primitive: Primitive, inputs: tuple[Any, ...], static: Any) -> Any:
    """What `runner`, which is `run` or `run_several`, gives for inputs that are batched."""
    level = level_of(inputs)
    is_batched = tuple([is_at(each, level) for each in inputs])
    parts = tuple([each.inner if at else each for each, at in zip(inputs, is_batched, strict=True)])
    rule = _RULES.get(primitive.name)
    if primitive.name in _OF_LAST_AXES:
        result = runner(primitive, _aligned(parts, is_batched), **static)
    elif primitive.name in _ALONG_AXES:
        axis = static["axis"]
        shifted = tuple([at + 1 for at in axis]) if isinstance(axis, tuple) else axis + 1
        result = runner(primitive, parts, **{**static, "axis": shifted})
    else:
        result = None if rule is None else rule(parts, is_batched, static)
    if result is None:
        rows = [runner(primitive, each, **static) for each in _elements(parts, is_batched)]
        several = isinstance(rows[0], tuple)
        result = tuple(map(shapes.stack, zip(*rows, strict=True))) if several else shapes.stack(rows)
    return map_leaves(lambda _, leaf: batched(leaf, level), result)


@registered
def call_batched(function: Callable[..., Any], inputs: Sequence[Any], whole: Sequence[int] = ()) -> Any:
    """What an element-wise function gives for inputs that are batched; it reads those at the places `whole` as a whole.

    If one of the latter is batched, it runs for each element of the batch.
    """
    level = level_of(inputs)
    is_batched = [is_at(each, level) for each in inputs]
    parts = [each.inner if at else each for each, at in zip(inputs, is_batched, strict=True)]
    if any(is_batched[place] for place in whole):
        rows = [function(*each) for each in _elements(parts, is_batched)]
        columns = zip(*map(leaves, rows), strict=True)
        result = rebuild(rows[0], map(shapes.stack, columns))
    else:
        apart = [place for place in range(len(parts)) if place not in whole]
        aligned = _aligned([parts[place] for place in apart], [is_batched[place] for place in apart])
        for place, part in zip(apart, aligned, strict=True):
            parts[place] = part
        result = function(*parts)
    return map_leaves(lambda _, leaf: batched(leaf, level), result)


def _aligned(parts: Sequence[Any], is_batched: Sequence[bool]) -> tuple[Any, ...]:
    """The inputs with axes of length 1 behind that of the batch, so that they broadcast together."""
    ndim = max(getattr(each, "ndim", 0) - at for each, at in zip(parts, is_batched, strict=True))
    return tuple(
        [
            shapes.reshape(each, (each.shape[0], *[1] * (ndim + 1 - each.ndim), *each.shape[1:])) if at else each
            for each, at in zip(parts, is_batched, strict=True)
        ]
    )


def _elements(parts: Sequence[Any], is_batched: Sequence[bool]) -> list[tuple[Any, ...]]:
    """The inputs for each element of the batch."""
    (size, *_) = [each.shape[0] for each, at in zip(parts, is_batched, strict=True) if at]
    if size == 0:
        raise ArgumentError("vmap: this operation goes from element to element, and the batch is empty")
    pairs = list(zip(parts, is_batched, strict=True))
    return [tuple([each[index] if at else each for each, at in pairs]) for index in range(size)]


# Operations on the matrices in the last two axes, which have the batch before these, or over axes that count from the
# back.
_OF_LAST_AXES = {
    *("matmul", "solve", "det", "cofactors", "slogdet", "pinv"),
    *("cholesky", "qr", "eigh", "eigvalsh", "eig", "svd", "svdvals"),
    *("fft", "rfft", "irfft"),
}
# Those along `axis`, which is one or several numbers from the front.
_ALONG_AXES = {"max", "min", "prod", "cumsum", "cumprod", "logsumexp", "softmax", "sort"}


def _shifted(axis: Any) -> Any:
    """Axes of an array, as those of the array with the batch before them."""
    if isinstance(axis, tuple | list):
        return tuple(map(_shifted, axis))
    return axis + 1 if axis >= 0 else axis


def _whole(part: Any, is_batched: bool, size: int) -> Variable:
    """An input that has the batch in any case."""
    part = constant(part)
    return part if is_batched else shapes.broadcast_to(part, (size, *part.shape))


def _roll(x: Variable, shift: Any, axis: Any) -> Variable:
    if axis is None:
        return shapes.reshape(shapes.roll(shapes.reshape(x, (x.shape[0], -1)), shift, 1), x.shape)
    return shapes.roll(x, shift, _shifted(axis))


def _broadcast(parts: Any, _is_batched: Any, static: Any) -> Variable:
    (x,), shape = parts, static["shape"]
    apart = shapes.reshape(x, (x.shape[0], *[1] * (len(shape) + 1 - x.ndim), *x.shape[1:]))
    return shapes.broadcast_to(apart, (x.shape[0], *shape))


def _concat(parts: Any, is_batched: Any, static: Any) -> Variable:
    size = next(each.shape[0] for each, at in zip(parts, is_batched, strict=True) if at)
    whole = [_whole(each, at, size) for each, at in zip(parts, is_batched, strict=True)]
    return shapes.concat(whole, static["axis"] + 1)


def _einsum(parts: Any, is_batched: Any, static: Any) -> Variable:
    names, result = static["names"], static["result"]
    batch = next(letter for letter in string.ascii_letters if letter not in "".join(names))
    terms = [batch * at + each for each, at in zip(names, is_batched, strict=True)]
    return products.einsum(f"{','.join(terms)}->{batch}{result}", *parts)


def _behind_batch(key: Any) -> Any:
    """A key as one of the array with the batch before its axes; None where NumPy would move the batch."""
    parts = key if isinstance(key, tuple) else (key,)
    places = [at for at, part in enumerate(parts) if hasattr(part, "dtype") or isinstance(part, int | np.integer)]
    is_apart = len(places) <= places[-1] - places[0] if places else False
    return None if is_apart and any(hasattr(part, "dtype") for part in parts) else (slice(None), *parts)


def _getitem(parts: Any, _is_batched: Any, static: Any) -> Variable | None:
    key = _behind_batch(static["key"])
    return None if key is None else indexing.getitem(parts[0], key)


def _scatter(parts: Any, _is_batched: Any, static: Any) -> Variable | None:
    keys = [_behind_batch(key) for key in static["keys"]]
    if len(parts) > 1 or None in keys:
        return None
    return indexing.scatter(parts[0], keys[0], (parts[0].shape[0], *static["shape"]))


_RULES: dict[str, _Rule] = {
    "astype": lambda parts, _, static: parts[0].astype(static["dtype"]),
    "sum": lambda parts, _, static: shapes.sum(parts[0], _shifted(static["axes"]), keepdims=static["keepdims"]),
    "reshape": lambda parts, _, static: shapes.reshape(parts[0], (parts[0].shape[0], *static["shape"])),
    "expand_dims": lambda parts, _, static: shapes.expand_dims(parts[0], _shifted(static["axis"])),
    "broadcast_to": _broadcast,
    "transpose": lambda parts, _, static: shapes.permute_dims(
        parts[0], (0, *_shifted(static["args"][0] if static["args"] else [*range(parts[0].ndim - 2, -1, -1)]))
    ),
    "swapaxes": lambda parts, _, static: shapes.swapaxes(parts[0], *map(_shifted, static["args"])),
    "moveaxis": lambda parts, _, static: shapes.moveaxis(parts[0], *map(_shifted, static["args"])),
    "flip": lambda parts, _, static: shapes.flip(
        parts[0], tuple(range(1, parts[0].ndim)) if static["args"][0] is None else _shifted(static["args"][0])
    ),
    "roll": lambda parts, _, static: _roll(parts[0], *static["args"]),
    "concat": _concat,
    # The points may be shared.
    "interp": lambda parts, is_batched, _: None if is_batched[0] else run(BELOW, parts),
    "einsum": _einsum,
    "indexing": _getitem,
    "scatter": _scatter,
}


# --- keys of the brackets that are batched ----------------------------------------------------------------------------


@registered
def getitem_batched(x: Variable, key: Any) -> Variable:
    """`x[key]` where the key is batched, or a part of it."""
    if is_complex(x):  # its parts may be batched
        return Variable.__join_complex__(*[getitem_batched(part, key) for part in (x.real, x.imag)])
    parts = key if isinstance(key, tuple) else (key,)
    level = level_of((x, *parts))
    is_batched = [is_at(each, level) for each in (x, *parts)]
    if any(at and part.dtype == np.bool_ for part, at in zip(parts, is_batched[1:], strict=True)):
        raise ArgumentError("inside vmap a mask as an index would give another shape for each element; write np.where")
    inner = [each.inner if at else each for each, at in zip((x, *parts), is_batched, strict=True)]
    if len(parts) == 1 and not is_batched[0]:
        return batched(indexing.getitem(x, inner[1]), level)
    rows = [indexing.getitem(array, tuple(own)) for array, *own in _elements(inner, is_batched)]
    return batched(shapes.stack(rows), level)


@registered
def take_along_axis_batched(x: Variable, indices: Variable, axis: int) -> Variable:
    """`take_along_axis` where the array is batched, or the indices are."""
    if is_complex(x):
        return Variable.__join_complex__(*[take_along_axis_batched(part, indices, axis) for part in (x.real, x.imag)])
    level = level_of((x, indices))
    size = next(each.inner.shape[0] for each in (x, indices) if is_at(each, level))  # type: ignore[attr-defined]
    array, places = (
        each.inner if is_at(each, level) else _whole(each, False, size)  # type: ignore[attr-defined]
        for each in (x, indices)
    )
    return batched(indexing.take_along_axis(array, places, axis + 1), level)


# --- where derivatives begin ------------------------------------------------------------------------------------------


@registered
def alias_batched(alias: Callable[[Any], Variable], leaf: Any, batches: tuple[tuple[int, int], ...]) -> Variable:
    """A Variable to differentiate in, inside these calls of `vmap`: each element of the batches has its own."""
    if not batches:
        return alias(leaf)
    *outer, (level, size) = batches
    inner = leaf.inner if is_at(leaf, level) else _whole(leaf, False, size)
    return batched(alias_batched(alias, inner, tuple(outer)), level)
