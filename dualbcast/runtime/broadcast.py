"""Turns validated arrays into what a kernel is launched with: its layout, sizes, strides, pointers and outputs.

Nothing is materialised: a broadcast argument has stride 0 where it does not span the result. All that depends only on
shapes and strides is worked out once and remembered, so a repeated call costs a look-up.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dualbcast.abi import Layout
from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.runtime.operands import Array, DType, Operands, check_out

__all__ = ["Geometry", "Plan", "plan"]

# How an array lies in memory: its shape, its strides in bytes, its item size.
_Form: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...], int]"
_INT32_MAX = 2**31 - 1
_MAX_WORK: Any = 10_000  # of NumPy's exact overlap test: under a millisecond (NumPy's own annotation allows only 0, -1)


@dataclass(frozen=True, slots=True)
class Geometry:
    """What follows from the shapes and strides of a call's arguments alone.

    Attributes
    ----------
    shape : tuple of int
        The shape of the result.
    total : int
        Its number of elements.
    order : tuple of int or None
        The axes of the result from the outermost in memory to the innermost; None where that is C order.
    layout : Layout
        What a kernel is specialised on.
    sizes, strides : tuple of int
        Of the coalesced dimensions, outermost first; strides in elements, class by class, one for each `s`.
    ints : tuple of int
        `sizes` and `strides`.
    """

    shape: tuple[int, ...]
    total: int
    order: tuple[int, ...] | None
    layout: Layout
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    ints: tuple[int, ...]

    def allocate(self, dtype: DType, xp: Any) -> Array:
        """An uninitialised array of the result's shape, contiguous in the order in which the kernel walks it."""
        if self.order is None:
            return xp.empty(self.shape, dtype)
        inverse = sorted(range(len(self.order)), key=self.order.__getitem__)
        return xp.empty([self.shape[axis] for axis in self.order], dtype).transpose(inverse)


class Plan(NamedTuple):
    """A call that is ready to be launched. It owns what the pointers point to: keep it until the kernel has run.

    Attributes
    ----------
    geometry : Geometry
        Shape, layout, sizes and strides.
    pointers : tuple of int
        The address of element 0 of each input and then of each output.
    outputs : tuple of array
        What the caller gets: the arrays of `out=` where given, 0-d arrays where the result has shape ().
    operands : Operands
        The inputs, kept alive.
    targets : tuple of array
        What the kernel writes: `outputs`, except for arrays of `out=` that a kernel cannot write to directly.
    given : tuple of bool
        Which outputs came through `out=`.
    """

    geometry: Geometry
    pointers: tuple[int, ...]
    outputs: tuple[Array, ...]
    operands: Operands
    targets: tuple[Array, ...]
    given: tuple[bool, ...]

    @property
    def layout(self) -> Layout:
        """What the kernel is specialised on."""
        return self.geometry.layout

    @property
    def total(self) -> int:
        """The number of elements; 0 means that there is nothing to launch."""
        return self.geometry.total

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the coalesced dimensions, outermost first."""
        return self.geometry.sizes

    @property
    def strides(self) -> tuple[int, ...]:
        """The run-time strides in elements, class by class, outermost first."""
        return self.geometry.strides

    @property
    def ints(self) -> tuple[int, ...]:
        """`sizes` and `strides`, as the kernel takes them."""
        return self.geometry.ints

    def finish(self) -> tuple[Any, ...]:
        """To be called once the kernel has succeeded: fill the arrays of `out=` that it could not write directly.

        Returns
        -------
        tuple
            `outputs`, where a fresh NumPy output of shape () has become a NumPy scalar, as NumPy's own functions do.
            CuPy's are 0-d arrays, so that nothing waits for the device.
        """
        if self.targets is not self.outputs:
            for output, target in zip(self.outputs, self.targets, strict=True):
                if output is not target:
                    output[...] = target
        if self.geometry.shape or self.operands.module != "numpy":
            return self.outputs
        return tuple(y if given else y[()] for y, given in zip(self.outputs, self.given, strict=True))


def plan(operands: Operands, dtypes: Sequence[DType], out: Array | Sequence[Array | None] | None = None) -> Plan:
    """Broadcast the inputs, allocate or check the outputs, and lay everything out for a kernel.

    Parameters
    ----------
    operands : Operands
        The inputs.
    dtypes : sequence of numpy.dtype
        One for each output. Every output has the shape of the result.
    out : array or sequence of (array or None), optional
        Arrays to write to, of exactly the result's shape and the output's dtype, with any strides. They may overlap
        inputs: then the result is computed aside and copied when the kernel has succeeded.

    Returns
    -------
    Plan
        Fresh outputs follow the memory order of the inputs, as with NumPy's order "K".

    Raises
    ------
    ShapeError
        The inputs do not broadcast together, or an array in `out` has another shape than the result.
    DTypeError
        An array in `out` has another dtype than its output.
    ArgumentError
        `out` has the wrong number of arrays or of the wrong kind, one is read-only, or two overlap.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast.runtime.operands import classify
    >>> x, y = np.ones((2, 3, 4)), np.ones(4)
    >>> call = plan(classify((x, y), ("x", "y")), [np.dtype(np.float64)])
    >>> call.layout.classes, call.layout.which, call.sizes, call.strides
    (('s1', '01'), (0, 1, 0), (6, 4), (4,))
    """
    inputs = tuple([(x.shape, x.strides, x.itemsize) for x in operands.arrays])
    xp = np if operands.module == "numpy" else sys.modules["cupy"]
    locate = _host_addresses if xp is np else _device_addresses
    pointers = locate(operands.arrays)
    if out is None:
        geometry = _geometry(inputs, (None,) * len(dtypes), operands.names)
        outputs = tuple([geometry.allocate(dtype, xp) for dtype in dtypes])
        pointers += locate(outputs)
        return Plan(geometry, tuple(pointers), outputs, operands, outputs, (False,) * len(dtypes))
    slots = check_out(out, dtypes, _result_shape(inputs, operands.names), operands.module)
    starts = locate([y for y in slots if y is not None])
    direct = _writable_in_place(slots, starts, inputs, pointers)
    forms = tuple([(y.shape, y.strides, y.itemsize) if y is not None else None for y in direct])
    geometry = _geometry(inputs, forms, operands.names)
    targets = tuple([
        geometry.allocate(dtype, xp) if y is None else y for y, dtype in zip(direct, dtypes, strict=True)
    ])
    outputs = tuple([target if y is None else y for y, target in zip(slots, targets, strict=True)])
    pointers += locate(targets)
    return Plan(geometry, tuple(pointers), outputs, operands, targets, tuple([y is not None for y in slots]))


# ---- out= ------------------------------------------------------------------------------------------------------------


def _writable_in_place(
    slots: tuple[Array | None, ...], starts: list[int], inputs: tuple[_Form, ...], addresses: list[int]
) -> tuple[Array | None, ...]:
    """The arrays of `out=`, which begin at `starts`, with None for each that a kernel must not write to directly.

    Kernels are compiled on the promise that no output shares memory with an input, and they run in parallel, so an
    array that overlaps an input or itself, or that is misaligned, gets its values by a copy afterwards.
    """
    outs = [(y.shape, y.strides, y.itemsize) for y in slots if y is not None]
    aside = {i for i, (form, start) in enumerate(zip(outs, starts, strict=True)) if _is_awkward(form, start % form[2])}
    # The outputs come first, so that the smaller index of a pair with an output is one.
    forms, places = (*outs, *inputs), [*starts, *addresses]
    for i, j in _meeting(forms, places):
        if i < len(outs) and _overlap(forms[i], places[i], forms[j], places[j]):
            if j < len(outs):
                raise ArgumentError("Two arrays of out= share memory, and would overwrite each other.")
            aside.add(i)
    if not aside:
        return slots
    given = iter(range(len(outs)))
    return tuple([None if y is None or next(given) in aside else y for y in slots])


def _meeting(forms: tuple[_Form, ...], places: list[int]) -> Iterator[tuple[int, int]]:
    """The pairs (i, j), i < j, of arrays whose first to last bytes intersect, found in one sweep over the addresses."""
    reaches = _reaches(forms)
    spans = sorted([
        (place + first, place + last, index)
        for index, (place, (first, last)) in enumerate(zip(places, reaches, strict=True))
    ])
    if all([a[1] <= b[0] for a, b in pairwise(spans)]):  # noqa: C419 (a generator takes twice as long)
        return
    live: list[tuple[int, int]] = []
    for first, last, index in spans:
        live = [other for other in live if other[0] > first]
        for _, other in live:
            yield min(index, other), max(index, other)
        live.append((last, index))


@lru_cache(maxsize=1024)
def _reaches(forms: tuple[_Form, ...]) -> tuple[tuple[int, int], ...]:
    """The bytes that each array spans, relative to its element 0: first, and one past the last."""
    reaches = []
    for shape, strides, itemsize in forms:
        offsets = [stride * (length - 1) for length, stride in zip(shape, strides, strict=True)]
        first, last = sum(min(offset, 0) for offset in offsets), sum(max(offset, 0) for offset in offsets) + itemsize
        reaches.append((0, 0) if 0 in shape else (first, last))
    return tuple(reaches)


class _StandIn:
    """An array's address, shape and strides in the form that NumPy takes them, so that it can reason about them.

    The memory is never touched, so this serves for device memory too.
    """

    def __init__(self, form: _Form, address: int) -> None:
        shape, strides, itemsize = form
        self.__array_interface__ = {
            "shape": shape,
            "strides": strides,
            "typestr": f"|V{itemsize}",
            "data": (address, False),
            "version": 3,
        }


def _overlap(a: _Form, a_address: int, b: _Form, b_address: int) -> bool:
    """Whether two arrays share a byte; also true where an exact answer would take too long."""
    pair = np.asarray(_StandIn(a, a_address)), np.asarray(_StandIn(b, b_address))
    return np.may_share_memory(*pair, max_work=_MAX_WORK)


@lru_cache(maxsize=1024)
def _is_awkward(form: _Form, misalignment: int) -> bool:
    """Whether an output is misaligned, or may overlap itself: its dimensions do not nest."""
    shape, strides, itemsize = form
    steps = sorted((abs(stride), length) for length, stride in zip(shape, strides, strict=True) if length > 1)
    if misalignment or any(step % itemsize for step, _ in steps):
        return 0 not in shape
    extent = itemsize
    for step, length in steps:
        if step < extent:
            return 0 not in shape
        extent = step * length
    return False


# ---- addresses -------------------------------------------------------------------------------------------------------

# `array.ctypes.data` and `__array_interface__` build objects and take 0.75 µs an array; a call has ten arrays. The data
# pointer is the first field after the object header, by NumPy's stable C ABI, and reading it takes 0.1 µs.
_HEADER = object.__basicsize__
_read_pointer = ctypes.c_size_t.from_address


def _host_addresses(arrays: Sequence[Array]) -> list[int]:
    return [_read_pointer(id(array) + _HEADER).value for array in arrays]


def _device_addresses(arrays: Sequence[Array]) -> list[int]:
    return [array.data.ptr for array in arrays]


# ---- geometry --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _geometry(inputs: tuple[_Form, ...], outs: tuple[_Form | None, ...], names: tuple[str, ...]) -> Geometry:
    """Broadcast, order and coalesce. None in `outs` is an output to be allocated."""
    shape = _result_shape(inputs, names)
    given = [form for form in outs if form is not None]
    total, rank = 1, len(shape)
    for length in shape:
        total *= length
    if total <= 1:
        # Nothing to walk. A function tried on single numbers then needs no other kernel than one for contiguous arrays.
        layout = Layout(1, ("1",), (0,) * (len(inputs) + len(outs)))
        return Geometry(shape, total, None, layout, (total,), (), (total,))
    steps = [_steps(form, shape) for form in (*inputs, *given)]
    order = _memory_order(steps, rank)
    fresh = [0] * rank
    step = 1
    for axis in reversed(order):
        fresh[axis] = step if shape[axis] > 1 else 0
        step *= shape[axis]
    rows = steps[: len(inputs)]
    others = iter(steps[len(inputs) :])
    rows += [tuple(fresh) if form is None else next(others) for form in outs]
    sizes, rows = _coalesced(shape, rows, order)
    wide = total > _INT32_MAX or any(
        sum(abs(step) * (size - 1) for step, size in zip(row, sizes, strict=True)) > _INT32_MAX for row in rows
    )
    distinct = list(dict.fromkeys(rows))
    layout = Layout(len(sizes), tuple(map(_pattern, distinct)), tuple(map(distinct.index, rows)), wide)
    strides = tuple(
        step
        for row, pattern in zip(distinct, layout.classes, strict=True)
        for step, mark in zip(row, pattern, strict=True)
        if mark == "s"
    )
    return Geometry(
        shape, total, None if order == tuple(range(rank)) else order, layout, sizes, strides, sizes + strides
    )


@lru_cache(maxsize=1024)
def _result_shape(inputs: tuple[_Form, ...], names: tuple[str, ...]) -> tuple[int, ...]:
    """The shape that the inputs broadcast to, by NumPy's rules."""
    rank = max((len(shape) for shape, _, _ in inputs), default=0)
    lengths = []
    for axis in range(-rank, 0):
        spanning = {shape[axis] for shape, _, _ in inputs if len(shape) >= -axis} - {1}
        if len(spanning) > 1:
            listing = ", ".join(f"{name} {shape}" for name, (shape, _, _) in zip(names, inputs, strict=True))
            found = " and ".join(map(str, sorted(spanning)))
            raise ShapeError(
                f"The shapes do not broadcast together: {listing}. "
                f"Axis {axis} has lengths {found}; lengths along an axis must be equal, or 1."
            )
        lengths.append(spanning.pop() if spanning else 1)
    return tuple(lengths)


def _steps(form: _Form, shape: tuple[int, ...]) -> tuple[int, ...]:
    """An array's strides in elements along each axis of the result, 0 where it does not span it."""
    own, strides, itemsize = form
    steps = [stride // itemsize if length > 1 else 0 for length, stride in zip(own, strides, strict=True)]
    return (0,) * (len(shape) - len(own)) + tuple(steps)


def _memory_order(steps: Sequence[tuple[int, ...]], rank: int) -> tuple[int, ...]:
    """The axes from the outermost in memory to the innermost, as NumPy's order "K" has them.

    An axis goes outside another where every array that spans both has the larger stride there; C order decides where no
    array spans both and where arrays disagree. That relation need not be transitive, so, as in NumPy, it is an
    insertion sort that defines the order: each axis moves past those it belongs inside of.
    """
    order: list[int] = []
    for axis in reversed(range(rank)):
        place = 0  # in `order`, which is outermost first, all of its axes being later ones than `axis`
        for position, other in enumerate(order):
            pairs = [(abs(row[axis]), abs(row[other])) for row in steps if row[axis] and row[other]]
            if not pairs:
                continue
            if any(mine >= its for mine, its in pairs):
                break
            place = position + 1
        order.insert(place, axis)
    return tuple(order)


def _coalesced(
    shape: tuple[int, ...], rows: Sequence[tuple[int, ...]], order: tuple[int, ...]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Sizes, and strides for each array, with axes of length 1 dropped and neighbours merged where all arrays allow."""
    axes = [axis for axis in order if shape[axis] > 1]
    sizes, columns = [shape[axes[0]]], [[row[axes[0]] for row in rows]]
    for axis in axes[1:]:
        size, inner = shape[axis], [row[axis] for row in rows]
        if all(outer == step * size for outer, step in zip(columns[-1], inner, strict=True)):
            sizes[-1], columns[-1] = sizes[-1] * size, inner
        else:
            sizes.append(size)
            columns.append(inner)
    return tuple(sizes), list(zip(*columns, strict=True))


def _pattern(row: tuple[int, ...]) -> str:
    """The address class of coalesced strides, as `Layout` describes it."""
    marks = ["s" if step else "0" for step in row]
    if row[-1] == 1:
        marks[-1] = "1"
    return "".join(marks)
