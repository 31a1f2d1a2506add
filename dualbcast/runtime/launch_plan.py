"""Makes a call ready for launch: outputs allocated or checked, a pointer for each array, the geometry to walk them by.

Nothing is materialised: a broadcast argument has stride 0 where it does not span the result. Arrays of `out=` that a
kernel must not write to, because they overlap an input, say, get their values by a copy afterwards.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from dualbcast.errors import ArgumentError, DTypeError, ShapeError
from dualbcast.foreign_objects import called
from dualbcast.runtime.arguments import (
    Array,
    DType,
    Operands,
    are_plain,
    assign,
    device_addresses,
    host_addresses,
    is_array,
)
from dualbcast.runtime.buffer_pool import MIN_ARRAY_BYTES, MIN_CALL_BYTES, POOL
from dualbcast.runtime.cuda.memory import reserve, shared_block
from dualbcast.runtime.iteration_space import Form, Geometry, Shapes, Target, form_of, lay_out, result_shape
from dualbcast.runtime.reduction_blocks import WORK, combine, least_of

_MAX_WORK: Any = 10_000  # of NumPy's exact overlap test: under a millisecond (NumPy's own annotation allows only 0, -1)


class Plan(NamedTuple):
    """A call that is ready to be launched. It owns what the pointers point to: keep it until the kernel has run.

    `pointers` are the addresses of element 0 of each input and then of each target. `outputs` are the caller's arrays:
    those of `out=` where `given`, else new ones, which have no axes where the result has shape (). In the place of an
    output that is summed are its accumulators. `targets` are what the kernel writes: `outputs`, but others for arrays
    of `out=` that it cannot write to directly; and then the rounding errors of sums. `dtypes` are those of the outputs,
    `shapes` those of sums: for each output, None where it is not summed; None where none is. `fit` is that of the
    arrays of `out=`, if all outputs were given and are written directly.
    """

    geometry: Geometry
    pointers: tuple[int, ...]
    outputs: tuple[Array, ...]
    operands: Operands
    targets: tuple[Array, ...]
    given: tuple[bool, ...]
    dtypes: tuple[DType, ...]
    shapes: Shapes = None
    fit: Fit | None = None

    def written(self) -> tuple[Array, ...]:
        """The outputs after the kernel has succeeded: arrays of `out=` that it could not write directly are filled,
        and the accumulators of blocks are added up."""
        if self.targets is not self.outputs:
            for output, target in zip(self.outputs, self.targets, strict=False):
                if output is not target:
                    assign(output, target)
        if self.shapes is None:
            return self.outputs
        return _summed(self.geometry, self.shapes, self.dtypes, self.outputs, self.targets)


class FastPath:
    """The fast path of calls whose arguments have the same forms (`forms_of`) as those of one that was made: all that
    such calls have in common, on any device. `results` is the caller's own object."""

    def __init__(self, planned: Plan, kernel: Any, results: Any, _earlier: FastPath | None) -> None:
        geometry, shapes = planned.geometry, planned.shapes
        self.kernel, self.results = kernel, results
        # Whether the caller makes the arrays that are written to anew for each call, so that they overlap with nothing.
        self.writes_new = False
        self.geometry, self.dtypes, self._fit = geometry, planned.dtypes, planned.fit
        self._compute = planned.operands.signature.compute
        # None where the kernel writes the outputs as the caller gets them.
        is_written = geometry.split is None and {None, geometry.shape}.issuperset(shapes or ())
        self._shapes = None if is_written else shapes

    @classmethod
    def of(
        cls, planned: Plan, values: Sequence[Any], kernel: Any, results: Any, earlier: FastPath | None = None
    ) -> Self | None:
        """The fast path of a call that has run; None where the forms of `values` do not say it all. `earlier` is the
        path that did not serve the call."""
        operands = planned.operands
        pairs = zip(values, operands.arrays, strict=True)
        copied = [at for at, (x, array) in enumerate(pairs) if x is not array and at not in operands.numbers]
        is_known = operands.module != "numpy" or are_plain(values)
        # Some outputs were given, or not written directly.
        is_mixed = planned.fit is None and any(planned.given)
        return None if copied or is_mixed or not is_known else cls(planned, kernel, results, earlier)

    def run(self, values: tuple[Array, ...], out: tuple[Array, ...] = ()) -> Sequence[Array] | None:
        """Run the kernel on arguments of these forms, and on arrays to write to where the first call had such; its
        outputs, or None where it cannot read or write the arrays in place, and nothing has run."""
        raise NotImplementedError

    def finished(self, outputs: Sequence[Array], targets: Sequence[Array]) -> tuple[Array, ...]:
        """The outputs as the caller gets them, from what the kernel has written."""
        if self._shapes is None:
            return tuple(outputs)
        return _summed(self.geometry, self._shapes, self.dtypes, outputs, targets)


_T = TypeVar("_T")
# The most entries of a table whose keys are forms of arrays: new forms may come without end.
_MOST_ENTRIES = 1024


class Recent(dict[Any, _T]):
    """A dict that begins anew when it is full."""

    def keep(self, key: Any, value: _T) -> _T:
        """Remember `value`."""
        if len(self) >= _MOST_ENTRIES:
            self.clear()
        self[key] = value
        return value


def _summed(
    geometry: Geometry,
    shapes: tuple[tuple[int, ...] | None, ...],
    dtypes: tuple[DType, ...],
    outputs: Sequence[Array],
    targets: Sequence[Array],
) -> tuple[Array, ...]:
    """The outputs, some of which are sums, from what the kernel has written."""
    sums = (None,) * len(shapes) if geometry.split is None else geometry.split.sums
    rests = iter(targets[len(outputs) :])
    finished: list[Any] = []
    with np.errstate(all="ignore"):
        for y, shape, s, dtype in zip(outputs, shapes, sums, dtypes, strict=True):
            if s is not None:
                y = combine(s, y, next(rests, None), dtype)
            elif shape is not None:  # a sum of one term at most
                # (CuPy takes shape=() for none given.)
                y = (y if geometry.total else np.zeros_like(y, shape=(math.prod(shape),))).reshape(shape)
            finished.append(y)
    return tuple(finished)


def plan(
    operands: Operands,
    dtypes: Sequence[DType],
    out: Array | Sequence[Array | None] | None = None,
    shapes: Shapes = None,
    work: float = 0.0,
    is_interpreted: bool = False,
) -> Plan:
    """Broadcast the inputs, allocate or check the outputs, and lay everything out for a kernel.

    There is an output for each of `dtypes`. Arrays of `out` have exactly the result's shape and the output's dtype, and
    any strides. They may overlap inputs: then the result is computed aside and copied when the kernel has succeeded.
    None stands for a new array, which follows the memory order of the inputs, as with NumPy's order "K". `shapes` has
    for each output None where it has the shape of the result, or the shape, which broadcasts to that, of the sums that
    are made of it. `work` is the cost of an element in units of an addition, where something is summed.

    It raises a `ShapeError`, a `DTypeError` or an `ArgumentError` where the inputs do not broadcast together, or `out`
    has arrays of another number, kind, shape or dtype, a read-only one, or two that overlap.
    """
    inputs, dtypes = tuple(map(form_of, operands.arrays)), tuple(dtypes)
    xp = np if operands.module == "numpy" else sys.modules["cupy"]
    locate = host_addresses if xp is np else device_addresses
    target: Target = "python" if is_interpreted else "cpu" if xp is np else "cuda"
    least = WORK if shapes is None else least_of(work)
    slots = (None,) * len(dtypes) if out is None else _check_out(out, len(dtypes), operands.module)
    given = tuple([y is not None for y in slots])
    forms = tuple([None if y is None else form_of(y) for y in slots])
    fit = find_fit(inputs, forms, dtypes, operands.names, shapes, target, least)
    pointers = locate((*operands.arrays, *[y for y in slots if y is not None]))
    aside = aside_of(fit, pointers) if any(given) else fit.unfit
    if not aside and False not in given:
        return Plan(fit.geometry, pointers, slots, operands, slots, given, dtypes, None, fit)
    direct = [None if position in aside else y for position, y in enumerate(slots)]
    geometry = fit.geometry
    if aside != fit.unfit:
        written = tuple([None if position in aside else form for position, form in enumerate(forms)])
        geometry = lay_out(inputs, written, operands.names, shapes, target, least, _has_integers(dtypes))
    outputs, targets = fresh(geometry, dtypes, operands.signature.compute, xp, direct)
    pointers = locate((*operands.arrays, *targets))
    if any(given):
        outputs = tuple([target if y is None else y for y, target in zip(slots, outputs, strict=True)])
    return Plan(geometry, pointers, outputs, operands, targets, given, dtypes, shapes)


def fresh(
    geometry: Geometry, dtypes: tuple[DType, ...], compute: str, xp: Any, direct: Sequence[Array | None] = ()
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """An array for each output, new but for those that are `direct`; and all that the kernel writes: these and the
    rounding errors of sums."""
    if geometry.split is None and not direct:
        outputs = new_arrays(geometry, dtypes, xp)
        return outputs, outputs
    slots, rests = [*direct] or [None] * len(dtypes), list[Array]()
    if geometry.split is not None:
        # The terms of joined rows are of the outputs' dtype, such as that of sums, and others of the arithmetic's.
        is_joined = geometry.packing is not None and geometry.packing.sums
        is_compensated = any(dtype.itemsize == 8 for dtype in dtypes) if is_joined else compute == "float64"
        sums, rests = geometry.split.accumulators(is_compensated, xp)
        slots = [s if y is None else y for y, s in zip(slots, sums, strict=True)]
    new = iter(new_arrays(geometry, [dtype for y, dtype in zip(slots, dtypes, strict=True) if y is None], xp))
    outputs = tuple([next(new) if y is None else y for y in slots])
    return outputs, (*outputs, *rests) if rests else outputs


def new_arrays(geometry: Geometry, dtypes: Sequence[DType], xp: Any) -> tuple[Array, ...]:
    """Uninitialised arrays of the result's shape, contiguous in the order in which the kernel walks them.

    NumPy's each have memory of their own, so that one that is kept keeps no others. On a GPU they are one block,
    because allocating takes longer than the launch.
    """
    lengths, axes = geometry.memory
    arrays: Sequence[Array]
    if xp is not np and geometry.total:
        arrays = tuple(reserve(shared_block(lengths, tuple(dtypes))))
    elif xp is np and is_pooled(geometry, len(dtypes)):
        arrays = POOL.empties(lengths, dtypes)
    else:
        arrays = [xp.empty(lengths, dtype) for dtype in dtypes]
    return tuple(arrays if axes is None else [array.transpose(axes) for array in arrays])


def is_pooled(geometry: Geometry, count: int) -> bool:
    """Whether so many new arrays of NumPy's have memory of the pool."""
    most = 8 * geometry.total  # bytes an element
    return most >= MIN_ARRAY_BYTES and most * count >= MIN_CALL_BYTES


# ---- out= ------------------------------------------------------------------------------------------------------------


def _check_out(out: Array | Sequence[Array | None], count: int, module: str) -> tuple[Array | None, ...]:
    """`out=`, as the user gave it, as a tuple of arrays of a module, "numpy" or "cupy".

    It raises an `ArgumentError` where there are more or fewer than `count`, or one is no such array or is read-only.
    """
    slots = tuple(out) if isinstance(out, tuple | list) else (out,)
    if len(slots) != count:
        raise ArgumentError(f"out= has {len(slots)} arrays; one is needed for each of {count} outputs.")
    for position, y in enumerate(slots):
        if y is None:
            continue
        name = _out_name(position, count)
        if not is_array(y, module):
            library = "NumPy" if module == "numpy" else "CuPy"
            raise ArgumentError(f"{name} is {called(y)}; it must be a {library} array, as the inputs of this call are.")
        if module == "numpy" and not y.flags.writeable:
            raise ArgumentError(f"{name} is read-only. Pass an array that can be written to.")
    return slots


def _out_name(position: int, count: int) -> str:
    return f"out[{position}]" if count > 1 else "out"


def scalars(outputs: tuple[Any, ...], given: tuple[bool, ...]) -> tuple[Any, ...]:
    """The outputs, with scalars for those of shape () that were not given by the caller."""
    return tuple([y if is_given or y.shape else y[()] for y, is_given in zip(outputs, given, strict=True)])


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """The properties of a call that follow from the forms of its inputs and of its `out=`, made once for these.

    `geometry` is for a kernel that writes directly to all arrays of `out=` but those of the outputs `unfit`, which may
    repeat an element. `forms` and `extents` are those of the inputs, and then of the arrays of `out=`; `positions` says
    which output each of these is for.
    """

    geometry: Geometry
    forms: tuple[Form, ...]
    extents: tuple[tuple[int, int], ...]
    positions: tuple[int, ...]
    unfit: frozenset[int]


@lru_cache(maxsize=1024)
def find_fit(
    inputs: tuple[Form, ...],
    outs: tuple[Form | None, ...],
    dtypes: tuple[DType, ...],
    names: tuple[str, ...],
    shapes: Shapes,
    target: Target,
    least: int = WORK,
) -> Fit:
    """Check the forms of `out=`, and work out all that does not depend on addresses."""
    if shapes is not None and any(
        out is not None and shape is not None for out, shape in zip(outs, shapes, strict=True)
    ):
        raise ArgumentError("out= cannot take an output that is summed; give None in its place.")
    expected = result_shape(inputs, names)
    for position, (form, dtype) in enumerate(zip(outs, dtypes, strict=True)):
        if form is not None:
            name = _out_name(position, len(outs))
            if form[0] != expected:
                raise ShapeError(f"{name} has shape {form[0]}; it must have the shape of the result, {expected}.")
            if form[2] != dtype:
                raise DTypeError(f"{name} has dtype {form[2]}; it must be exactly that of the output, {dtype}.")
    unfit = frozenset(position for position, form in enumerate(outs) if form is not None and not _is_nested(form))
    written = tuple([None if position in unfit else form for position, form in enumerate(outs)])
    geometry = lay_out(inputs, written, names, shapes, target, least, _has_integers(dtypes))
    forms = (*inputs, *[form for form in outs if form is not None])
    positions = tuple([position for position, form in enumerate(outs) if form is not None])
    return Fit(geometry, forms, tuple(map(_extent, forms)), positions, unfit)


def _has_integers(dtypes: Sequence[DType]) -> bool:
    return any(dtype.kind in "biu" for dtype in dtypes)


@lru_cache(maxsize=1024)
def aside_of(fit: Fit, places: tuple[int, ...]) -> frozenset[int]:
    """The outputs whose arrays a kernel must not write to directly, where the arrays of `fit` begin at `places`.

    Kernels are compiled on the promise that no output shares memory with an input, and they run in parallel, so an
    array that overlaps an input or itself, or that is misaligned, gets its values by a copy afterwards.
    """
    count, aside = len(places) - len(fit.positions), {*fit.unfit}
    spans = [(place + start, place + stop) for place, (start, stop) in zip(places, fit.extents, strict=True)]
    for mine, position in enumerate(fit.positions, count):
        if places[mine] % fit.forms[mine][2].itemsize:
            aside.add(position)
    in_order = sorted(spans)
    if any(stop > start for (_, stop), (start, _) in pairwise(in_order)):
        aside |= _overlapping(fit, places, spans, count)
    return frozenset(aside)


def _overlapping(fit: Fit, places: tuple[int, ...], spans: list[tuple[int, int]], count: int) -> set[int]:
    """The outputs that share memory with one of the inputs, of which there are `count`."""
    found: set[int] = set()
    # In the order of their addresses an array can only meet those before it that have not ended: few of a thousand.
    reaching: list[int] = []
    for mine in sorted(range(len(spans)), key=spans.__getitem__):
        reaching = [other for other in reaching if spans[other][1] > spans[mine][0]]
        for other, output in [sorted((other, mine)) for other in reaching]:
            if output >= count and _may_overlap(fit, places, other, output):
                if other >= count:
                    raise ArgumentError("Two arrays of out= share memory, and would overwrite each other.")
                found.add(fit.positions[output - count])
        reaching.append(mine)
    return found


def _may_overlap(fit: Fit, places: tuple[int, ...], one: int, other: int) -> bool:
    """Whether two arrays share memory; true, too, where an exact answer would take too long."""
    theirs, ours = (_stand_in(fit.forms[at], places[at]) for at in (one, other))
    return bool(np.may_share_memory(theirs, ours, max_work=_MAX_WORK))


def _stand_in(form: Form, address: int) -> Array:
    """An array of NumPy's at an address, which may be on a device: its memory is never touched."""
    shape, strides, dtype = form
    data = address, False
    interface = {"shape": shape, "strides": strides, "typestr": f"|V{dtype.itemsize}", "data": data, "version": 3}
    return np.asarray(SimpleNamespace(__array_interface__=interface))


def _extent(form: Form) -> tuple[int, int]:
    """The bytes that an array spans, relative to its element 0: the first, and one past the last."""
    shape, strides, dtype = form
    if 0 in shape:
        return 0, 0
    offsets = [stride * (length - 1) for length, stride in zip(shape, strides, strict=True)]
    return sum(min(offset, 0) for offset in offsets), sum(max(offset, 0) for offset in offsets) + dtype.itemsize


def _is_nested(form: Form) -> bool:
    """Whether an array's dimensions nest in steps of whole elements, so that no two elements share a byte."""
    shape, strides, dtype = form
    if 0 in shape:
        return True
    reach = dtype.itemsize
    for step, length in sorted((abs(stride), length) for length, stride in zip(shape, strides, strict=True)):
        if length > 1:
            if step < reach or step % dtype.itemsize:
                return False
            reach = step * length
    return True
