"""Dask arrays as arguments: a call is lazy and runs one kernel for each chunk, and sums are reductions in a tree.

The kernel of a chunk gives all outputs of the call. Element functions travel to other processes by pickle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from operator import getitem
from typing import Any, NamedTuple

import dask
import dask.array
import numpy as np

from dualbcast.adapters import Adapter, has_shape, register
from dualbcast.api.whole_arrays import flat, spread
from dualbcast.complex_numbers import Complex
from dualbcast.errors import ArgumentError, BoundsError, IterationError, ShapeError
from dualbcast.ir.nodes import numbers
from dualbcast.program import pipeline
from dualbcast.program.element import Element
from dualbcast.runtime.arguments import DType, converted, is_array, sign, storage_name
from dualbcast.runtime.cpu.policy import num_threads
from dualbcast.runtime.iteration_space import result_shape

Shape = tuple[int, ...]
da: Any = dask.array  # its functions have no types


class DaskAdapter(Adapter):
    """For `dask.array.Array` with chunks of NumPy's or CuPy's. NumPy's arrays become Dask's, with the same chunks."""

    name, arrays, namespace = "Dask", "dask.array.Array", da
    takes_numpy = True

    def token(self, value: Any, name: str) -> Any:
        chunk = value._meta
        if not (is_array(chunk, "numpy") or is_array(chunk, "cupy")):
            kind = f"{type(chunk).__module__.partition('.')[0]}.{type(chunk).__name__}"
            raise ArgumentError(
                f"{name} has chunks of type {kind}, and kernels take those of NumPy and CuPy. Pass "
                f"{name}.map_blocks(…), with a function that makes one of these of a chunk."
            )
        return sign((np.empty((), value.dtype),), (name,)).tokens[0]

    def whole(self, value: Any, name: str) -> Any:
        self.token(value, name)
        return value.compute()

    def form(self, value: Any) -> Any:
        return value.dtype, type(value._meta)

    def apply(
        self,
        element: Element,
        values: tuple[Any, ...],
        dtypes: tuple[DType, ...],
        sums: tuple[int | None, ...] | None = None,
    ) -> tuple[Any, ...]:
        shapes = None if sums is None else tuple([None if at is None else np.shape(values[at]) for at in sums])
        return self.parts(element, values, dtypes, shapes, sums)

    def parts(
        self,
        element: Element,
        values: tuple[Any, ...],
        dtypes: tuple[DType, ...],
        shapes: tuple[Shape | None, ...] | None = None,
        sums: tuple[int | None, ...] | None = None,
    ) -> tuple[Any, ...]:
        """The outputs, summed to shapes; `sums` has the positions of the arguments that have these shapes."""
        shape, none = _shape(values, element.names), (None,) * len(dtypes)
        spans = tuple(
            [
                None if own is None else Span.of(own, shape, at)
                for own, at in zip(shapes or none, sums or none, strict=True)
            ]
        )
        stored = tuple([dtype if span is None else _wide(dtype) for dtype, span in zip(dtypes, spans, strict=True)])
        whole = _whole(element, values)
        call = ChunkCall(portable(element), stored, spans, tuple(whole))
        metas = [da.utils.meta_from_array(meta, len(shape)) for meta in call.metas(values)]
        function: Any = call
        axes, pairs, token = tuple(range(len(shape))), [], element.function.name.strip("<>")
        plain = tuple([0 if at in whole else value for at, value in enumerate(values)])
        for at, value in enumerate(_arrays(plain, shape)):
            value = dask.delayed(whole[at], pure=True) if at in whole else value  # which goes to each process once
            pairs += [value, axes[len(axes) - value.ndim :] if isinstance(value, da.Array) else None]
        if len(dtypes) > 1:
            # No output, but the tuple of all: a chunk of it is computed once for all outputs that are asked for.
            function, pairs = getitem, [da.blockwise(call, axes, *pairs, token=token, meta=metas[0]), axes]
        outputs = []
        for at, (dtype, span, meta) in enumerate(zip(dtypes, spans, metas, strict=True)):
            which = (at, None) if len(dtypes) > 1 else ()
            adjusted = {} if span is None else dict.fromkeys(span.summed, 1)
            output = da.blockwise(function, axes, *pairs, *which, token=token, meta=meta, adjust_chunks=adjusted)
            outputs.append(output if span is None else _total(output, span).astype(dtype))
        return tuple(outputs)

    def shape(self, values: tuple[Any, ...]) -> Shape:
        return _shape(values, ("",) * len(values))

    def fits(self, value: Any, values: tuple[Any, ...], exactly: bool = False) -> bool:
        shape, own = self.shape(values), np.shape(value)
        if not own:  # A number stands for an array of it, which Dask would make chunk by chunk.
            return True
        if len(own) > len(shape) or (exactly and len(own) < len(shape)):
            return False
        # Lengths that are not known yet are compared when a chunk is computed.
        return all(
            length == whole or (length == 1 and not exactly) or math.isnan(length) or math.isnan(whole)
            for length, whole in zip(own[::-1], shape[::-1], strict=False)
        )

    def stand_ins(self, values: tuple[Any, ...], names: Sequence[str]) -> tuple[Any, ...]:
        """Arrays of the size of the largest chunks, since a kernel gets no more."""
        for value, name in zip(values, names, strict=True):
            if isinstance(value, da.Array):
                self.token(value, name)
                if math.isnan(sum(value.shape)):
                    raise ShapeError(f"the shape of {name} is not known yet. Call {name}.compute_chunk_sizes() first.")
        arrays = _arrays(values, _shape(values, names))
        return tuple([np.empty(x.chunksize, x.dtype) if isinstance(x, da.Array) else x for x in arrays])

    def complex_of(self, real: Any, imag: Any) -> Any:
        return da.map_blocks(Complex, real, imag, dtype=np.result_type(real.dtype, imag.dtype, np.complex64))

    def cast(self, value: Any, dtype: DType, name: str) -> Any:
        return converted(value, dtype, name)

    def stack(self, blocks: Sequence[Any]) -> Any:
        return da.stack(blocks, axis=-1).rechunk({-1: -1})


class Span(NamedTuple):
    """How an output is summed: to a shape that spans some axes of the result and not others.

    `rank` is that of the shape, and `at` the position of the argument that has it, if it is that of one.
    """

    spanned: tuple[bool, ...]
    rank: int
    at: int | None

    @property
    def summed(self) -> Shape:
        """The axes that it does not span."""
        return tuple([axis for axis, is_spanned in enumerate(self.spanned) if not is_spanned])

    @classmethod
    def of(cls, own: Shape, shape: Shape, at: int | None) -> Span:
        """The span of an array in a result of this shape."""
        extra = len(shape) - len(own)
        # A length that is not known yet is one that it spans.
        spanned = [length != 1 or whole == 1 for length, whole in zip(own, shape[extra:], strict=True)]
        return cls((*[False] * extra, *spanned), len(own), at)


class ChunkCall:
    """The task of a chunk: an element function is applied to the chunks of its arguments.

    Output k has dtype `dtypes[k]`; it is summed over the axes that `spans[k]` does not have, and keeps them with length
    1. Several outputs are a tuple. The arguments at the places in `whole` are the elements of whole arrays, in an axis.
    """

    def __init__(
        self,
        element: Element,
        dtypes: tuple[DType, ...],
        spans: tuple[Span | None, ...],
        whole: tuple[int, ...] = (),
    ) -> None:
        self.element, self.dtypes, self.spans, self.whole = element, dtypes, spans, whole

    def __dask_tokenize__(self) -> Any:
        element = self.element
        details = repr((element.names, element.label, element.options, self.spans))
        return type(self).__name__, repr(element.function), details, [dtype.name for dtype in self.dtypes]

    def __call__(self, *values: Any) -> Any:
        shapes = None
        if self.whole:
            names = self.element.names
            values = tuple([spread(x, names[at])[0] if at in self.whole else x for at, x in enumerate(values)])
        if any(self.spans):
            whole = result_shape(tuple([(np.shape(value), (), None) for value in values]), self.element.names)
            shapes = tuple([None if span is None else self._summed(span, values, whole) for span in self.spans])
        try:
            # Other chunks are computed at the same time, on as many threads as Dask has chosen.
            with num_threads(1):
                outputs = self.element.parts(values, self.dtypes, shapes)
        except (BoundsError, IterationError) as error:
            error.add_note("The index counts from the beginning of a chunk.")
            raise
        return outputs if len(outputs) > 1 else outputs[0]

    def _summed(self, span: Span, values: tuple[Any, ...], whole: Shape) -> Shape:
        """The shape of a sum of a chunk."""
        shape = tuple([length if kept else 1 for length, kept in zip(whole, span.spanned, strict=True)])
        own = shape if span.at is None else np.shape(values[span.at])
        if own != shape[len(shape) - len(own) :]:
            # A length was not known when the call was made, and is 1.
            name = self.element.names[span.at or 0]
            raise ShapeError(
                f"a chunk of {name} has shape {own} where the result has {whole}: its lengths were not known, and it "
                "is broadcast. Call compute_chunk_sizes() of the Dask array before the call."
            )
        return shape

    def metas(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Outputs without elements for arguments without elements, so that errors come at the call."""
        plain = [value._meta if isinstance(value, da.Array) else value for value in values]
        empty = tuple([np.empty_like(value, shape=(0,)) if has_shape(value) else value for value in plain])
        return self.element.parts(empty, self.dtypes)


@lru_cache(maxsize=1024)
def portable(element: Element) -> Element:
    """The element function with its outputs in a tuple, which means the same in every process."""
    function = replace(element.function, structure=numbers(len(element.function.outputs)))
    return Element(pipeline.run(pipeline.portable(), function), element.names, element.label, element.options)


def _whole(element: Element, values: tuple[Any, ...]) -> dict[int, Any]:
    """The elements of the arguments that are whole arrays, by their places."""
    lengths = [name.partition(".shape[")[0] for name in element.names if ".shape[" in name]
    return {at: flat(values, at, lengths.count(element.names[at])) for at in element.whole}


def _wide(dtype: DType) -> DType:
    """The dtype in which sums of chunks are kept until the last one: that of the arithmetic."""
    return np.dtype(np.float32) if storage_name(dtype) in ("float16", "bfloat16") else dtype


def _shape(values: tuple[Any, ...], names: Sequence[str]) -> Shape:
    """The shape that the values broadcast to; a length that is not known yet is NaN."""
    forms = [tuple(getattr(value, "shape", ())) for value in values]
    rank = max(map(len, forms), default=0)
    # An axis of which some length is not known is not checked.
    unknown = {axis for form in forms for axis in range(-len(form), 0) if math.isnan(form[axis])}
    known = [tuple([1 if at - len(form) in unknown else form[at] for at in range(len(form))]) for form in forms]
    shape = result_shape(tuple([(form, (), None) for form in known]), tuple(names))
    return tuple([math.nan if at - rank in unknown else shape[at] for at in range(rank)])  # type: ignore[misc]


def _arrays(values: tuple[Any, ...], shape: Shape) -> list[Any]:
    """The values, with Dask arrays in place of all arrays. They have the same chunks, where they are not broadcast."""
    pairs: list[Any] = []
    for value in values:
        if isinstance(value, da.Array):
            pairs += [value, tuple(range(len(shape) - value.ndim, len(shape)))]
    try:
        chunks, unified = da.core.unify_chunks(*pairs)
    except ValueError as error:
        raise ShapeError(f"the chunks of the arguments do not fit together: {error}") from None
    remaining, arrays = iter(unified), []
    for value in values:
        if isinstance(value, da.Array):
            value = next(remaining)
        elif has_shape(value):
            own = []
            for axis, length in enumerate(value.shape, start=len(shape) - value.ndim):
                whole = sum(chunks.get(axis, ()))
                own.append(chunks[axis] if whole == length else -1 if math.isnan(whole) else "auto")
            value = da.from_array(value, tuple(own), asarray=False)
        arrays.append(value)
    return arrays


def _total(output: Any, span: Span) -> Any:
    """The sum of the sums of chunks, in a tree."""
    axes = tuple([axis for axis in span.summed if output.numblocks[axis] > 1])
    if axes:
        output = output.sum(axis=axes, dtype=output.dtype, keepdims=True)
    return output[(0,) * (output.ndim - span.rank)] if output.ndim > span.rank else output


register(DaskAdapter(), da.Array)
