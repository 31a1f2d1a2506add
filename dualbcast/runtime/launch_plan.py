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
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dualbcast.errors import ArgumentError, DTypeError, ShapeError
from dualbcast.foreign_objects import called
from dualbcast.runtime.arguments import Array, DType, Operands, is_array, is_writeable
from dualbcast.runtime.call_key import device_addresses, host_addresses
from dualbcast.runtime.coalescing import Form
from dualbcast.runtime.iteration_space import (
    Geometry,
    Shapes,
    Target,
    extent,
    form_of,
    is_nested,
    lay_out,
    result_shape,
)
from dualbcast.runtime.reduction_blocks import WORK, combine, least_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_WORK: Any = 10_000  # of NumPy's exact overlap test: under a millisecond (NumPy's own annotation allows only 0, -1)


class Plan(NamedTuple):
    """A call that is ready to be launched. It owns what the pointers point to: keep it until the kernel has run.

    Attributes
    ----------
    pointers
        The address of element 0 of each input and then of each target.
    outputs
        The caller's arrays: those of `out=` where given, 0-d arrays where the result has shape (). In the place of an
        output that is summed, its accumulators.
    operands
        The inputs, kept alive.
    targets
        The arrays that the kernel writes: `outputs`, but others for arrays of `out=` that it cannot write to directly;
        and then the rounding errors of sums.
    given
        Which outputs came through `out=`.
    dtypes
        Of the outputs.
    shapes
        For each output the shape of its sums, None where it is not summed; None where none is.
    """

    geometry: Geometry
    pointers: tuple[int, ...]
    outputs: tuple[Array, ...]
    operands: Operands
    targets: tuple[Array, ...]
    given: tuple[bool, ...]
    dtypes: tuple[DType, ...]
    shapes: Shapes = None

    def is_repeatable(self) -> bool:
        """Whether calls of the same forms can be made alike: all outputs or none were given, and written directly."""
        return self.given in {(True,) * len(self.given), (False,) * len(self.given)} and (
            self.targets is self.outputs or not any(self.given)
        )

    def fit_of_outputs(self) -> Fit | None:
        """The fit of the arrays of `out=`, if all outputs were given."""
        if not all(self.given):
            return None
        operands = self.operands
        inputs, outs = tuple(map(form_of, operands.arrays)), tuple(map(form_of, self.outputs))
        target: Target = "cpu" if operands.module == "numpy" else "cuda"
        return find_fit(inputs, outs, self.dtypes, operands.names, None, target)

    def shapes_to_finish(self) -> Shapes:
        """`shapes`, but None where the kernel writes the outputs as the caller gets them."""
        is_written = self.geometry.split is None and {None, self.geometry.shape}.issuperset(self.shapes or ())
        return None if is_written else self.shapes

    def written(self) -> tuple[Array, ...]:
        """The outputs after the kernel has succeeded: arrays of `out=` that it could not write directly are filled,
        and the accumulators of blocks are added up."""
        if self.targets is not self.outputs:
            for output, target in zip(self.outputs, self.targets, strict=False):
                if output is not target:
                    output[...] = target
        if self.shapes is None:
            return self.outputs
        return summed(self.geometry, self.shapes, self.dtypes, self.outputs, self.targets)

    def finish(self) -> tuple[Any, ...]:
        """`written`, where a fresh NumPy output of shape () has become a NumPy scalar, as NumPy's own functions do."""
        outputs = self.written()
        return scalars(outputs, self.given) if self.operands.module == "numpy" else outputs


def summed(
    geometry: Geometry,
    shapes: tuple[tuple[int, ...] | None, ...],
    dtypes: tuple[DType, ...],
    outputs: tuple[Array, ...],
    targets: tuple[Array, ...],
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

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast.runtime.arguments import classify
    >>> x, y = np.ones((2, 3, 4)), np.ones(4)
    >>> call = plan(classify((x, y), ("x", "y")), [np.dtype(np.float64)])
    >>> laid = call.geometry
    >>> laid.layout.classes, laid.layout.which, laid.sizes, laid.strides
    (('s1', '01'), (0, 1, 0), (6, 4), (4,))
    """
    inputs, dtypes = tuple(map(form_of, operands.arrays)), tuple(dtypes)
    xp = np if operands.module == "numpy" else sys.modules["cupy"]
    locate = host_addresses if xp is np else device_addresses
    target: Target = "python" if is_interpreted else "cpu" if xp is np else "cuda"
    least = least_of(work)
    slots = (None,) * len(dtypes) if out is None else _check_out(out, len(dtypes), operands.module)
    given = tuple([y is not None for y in slots])
    forms = tuple([None if y is None else form_of(y) for y in slots])
    fit = find_fit(inputs, forms, dtypes, operands.names, shapes, target, least)
    pointers = locate((*operands.arrays, *[y for y in slots if y is not None]))
    aside = aside_of(fit, pointers) if any(given) else fit.unfit
    if not aside and False not in given:
        return Plan(fit.geometry, pointers, slots, operands, slots, given, dtypes)
    direct = [None if position in aside else y for position, y in enumerate(slots)]
    geometry = fit.geometry
    if aside != fit.unfit:
        written = tuple([None if position in aside else form for position, form in enumerate(forms)])
        geometry = lay_out(inputs, written, operands.names, shapes, target, least)
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
        outputs = geometry.allocate_all(dtypes, xp)
        return outputs, outputs
    slots, rests = [*direct] or [None] * len(dtypes), list[Array]()
    if geometry.split is not None:
        sums, rests = geometry.split.accumulators(compute, xp)
        slots = [s if y is None else y for y, s in zip(slots, sums, strict=True)]
    new = iter(geometry.allocate_all([dtype for y, dtype in zip(slots, dtypes, strict=True) if y is None], xp))
    outputs = tuple([next(new) if y is None else y for y in slots])
    return outputs, (*outputs, *rests) if rests else outputs


# ---- out= ------------------------------------------------------------------------------------------------------------


def _check_out(out: Array | Sequence[Array | None], count: int, module: str) -> tuple[Array | None, ...]:
    """`out=`, as the user gave it, as a tuple of arrays of a module, "numpy" or "cupy".

    It raises an `ArgumentError` where there are more or fewer than `count`, or one is no such array or is read-only.
    """
    slots = tuple(out) if isinstance(out, tuple | list) else (out,)
    if len(slots) != count:
        raise ArgumentError(f"out= has {len(slots)} arrays; one is needed for each of {count} outputs.")
    if [*map(type, slots)].count(np.ndarray) == count and module == "numpy" and all(map(is_writeable, slots)):
        return slots  # by far the most calls, and this runs at every one
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


def _check_forms(
    forms: Sequence[tuple[tuple[int, ...], Any, DType] | None], dtypes: Sequence[DType], shape: tuple[int, ...]
) -> None:
    """Check that the arrays of `out=` have exactly these dtypes, and all of them this shape. It depends on their forms
    alone, and can be remembered."""
    for position, (form, dtype) in enumerate(zip(forms, dtypes, strict=True)):
        if form is not None:
            name = _out_name(position, len(forms))
            if form[0] != shape:
                raise ShapeError(f"{name} has shape {form[0]}; it must have the shape of the result, {shape}.")
            if form[2] != dtype:
                raise DTypeError(f"{name} has dtype {form[2]}; it must be exactly that of the output, {dtype}.")


def _out_name(position: int, count: int) -> str:
    return f"out[{position}]" if count > 1 else "out"


def scalars(outputs: tuple[Any, ...], given: tuple[bool, ...]) -> tuple[Any, ...]:
    """The outputs, with scalars for those of shape () that were not given by the caller."""
    return tuple([y if is_given or y.shape else y[()] for y, is_given in zip(outputs, given, strict=True)])


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """The properties of a call that follow from the forms of its inputs and of its `out=`.

    A fit is made once for these forms, and so compared by identity.

    Attributes
    ----------
    geometry
        For a kernel that writes directly to all arrays of `out=` but those in `unfit`.
    forms, extents
        Of the inputs, then of the arrays of `out=`.
    positions
        Which output each array of `out=` is for.
    unfit
        Outputs whose arrays may repeat an element.
    """

    geometry: Geometry
    forms: tuple[Form, ...]
    extents: NDArray[np.int64]
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
    _check_forms(outs, dtypes, result_shape(inputs, names))
    unfit = frozenset(position for position, form in enumerate(outs) if form is not None and not is_nested(form))
    written = tuple([None if position in unfit else form for position, form in enumerate(outs)])
    geometry = lay_out(inputs, written, names, shapes, target, least)
    forms = (*inputs, *[form for form in outs if form is not None])
    positions = tuple([position for position, form in enumerate(outs) if form is not None])
    extents = np.array([extent(form) for form in forms], np.int64).reshape(-1, 2)
    return Fit(geometry, forms, extents, positions, unfit)


@lru_cache(maxsize=1024)
def aside_of(fit: Fit, places: tuple[int, ...]) -> frozenset[int]:
    """The outputs whose arrays a kernel must not write to directly, where the arrays of `fit` begin at `places`.

    Kernels are compiled on the promise that no output shares memory with an input, and they run in parallel, so an
    array that overlaps an input or itself, or that is misaligned, gets its values by a copy afterwards.
    """
    count = len(places) - len(fit.positions)
    skewed = [places[at] % fit.forms[at][2].itemsize for at in range(count, len(places))]
    aside = fit.unfit.union([position for position, rest in zip(fit.positions, skewed, strict=True) if rest])
    starts, stops = (fit.extents + np.array(places, np.int64)[:, None]).T
    # Whether the first to last bytes of an array of `out=` and of any array intersect.
    meeting = (starts[count:, None] < stops) & (starts < stops[count:, None])
    for at, other in np.argwhere(np.tril(meeting, count - 1)).tolist():
        mine = count + at
        if _overlap(fit.forms[other], places[other], fit.forms[mine], places[mine]):
            if other >= count:
                raise ArgumentError("Two arrays of out= share memory, and would overwrite each other.")
            aside |= {fit.positions[at]}
    return aside


def _overlap(a: Form, a_address: int, b: Form, b_address: int) -> bool:
    """Whether two arrays share a byte; also true where an exact answer would take too long."""
    return np.may_share_memory(_stand_in(a, a_address), _stand_in(b, b_address), max_work=_MAX_WORK)


def _stand_in(form: Form, address: int) -> Array:
    """An array of NumPy's at an address, which may be on a device: its memory is never touched."""
    shape, strides, dtype = form
    data = address, False
    interface = {"shape": shape, "strides": strides, "typestr": f"|V{dtype.itemsize}", "data": data, "version": 3}
    return np.asarray(SimpleNamespace(__array_interface__=interface))
