"""Core dimensions: a signature as NumPy's generalised ufuncs have it, such as "(3),(3,3)->(3)".

The arguments of a call come in as arrays whose last axes are vectors or matrices. Out go a form of call with a
parameter for each of their elements, and the views of the arrays that are its values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dualbcast.adapters import adapter_for
from dualbcast.api.binding import COMPLEX, Binder, Form
from dualbcast.api.complex_arguments import is_complex, parts_named
from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.foreign_objects import called, is_variable, plain_arrays
from dualbcast.frontend.arrays.signatures import Core
from dualbcast.frontend.arrays.vectors import Dims
from dualbcast.frontend.values import Axes, Static
from dualbcast.runtime.arguments import forms_of, is_array
from dualbcast.runtime.launch_plan import Recent

_DIMENSIONS = re.compile(r"\(\s*(?:(?:[A-Za-z_]\w*|\d+)\s*(?:,\s*(?:[A-Za-z_]\w*|\d+)\s*)*,?\s*)?\)")
_EXAMPLE = "write it as NumPy does: signature='(3),(n,n),()->(3)'"
Shape = tuple[int, ...]
# The most elements of a vector or a matrix, which are parameters of the kernel one by one.
_LARGEST = 1024


class CoreSignature(NamedTuple):
    """The core dimensions of arguments and results, as the user writes them in `text`."""

    text: str
    inputs: tuple[Dims, ...]
    outputs: tuple[Dims, ...]

    @staticmethod
    def parse(text: Any) -> CoreSignature:
        """The signature in a text; an ArgumentError where it is none."""
        if not isinstance(text, str):
            raise ArgumentError(f"signature={text!r} is no text; {_EXAMPLE}")
        sides = text.split("->")
        if len(sides) != 2:
            raise ArgumentError(f"signature={text!r} has no '->' between arguments and results; {_EXAMPLE}")
        inputs, outputs = (_dimensions(side, text) for side in sides)
        if not outputs:
            raise ArgumentError(f"signature={text!r} has no result; {_EXAMPLE}")
        return CoreSignature(text, inputs, outputs)


def _dimensions(side: str, text: str) -> tuple[Dims, ...]:
    groups = _DIMENSIONS.findall(side)
    rest = _DIMENSIONS.sub("", side).replace(",", "").strip()
    if rest or (len(groups) - 1 != _DIMENSIONS.sub("", side).count(",") and groups):
        raise ArgumentError(f"signature={text!r} is no list of dimensions in parentheses; {_EXAMPLE}")
    names = [[each.strip() for each in group.strip("()").split(",") if each.strip()] for group in groups]
    return tuple([tuple([int(each) if each.isdecimal() else each for each in group]) for group in names])


class CoreBinder(Binder):
    """Binds the arguments of calls to the elements of vectors and matrices."""

    def __init__(
        self,
        subject: Callable[..., Any],
        static: str | Sequence[str],
        whole: str | Sequence[str],
        cores: CoreSignature,
    ) -> None:
        super().__init__(subject, static, whole)
        self.cores = cores
        self.plain = _Empty()  # since each call looks at the shapes
        # By the forms and shapes of a call and its arrays; and by the form of a call and the cores of its arrays.
        self._checked: Recent[tuple[Form, tuple[Shape, ...]]] = Recent()
        self._core_forms: dict[tuple[Form, tuple[Shape, ...], tuple[bool, ...]], Form] = {}

    def bind(self, args: tuple[Any, ...], named: dict[str, Any], wanted: Any) -> tuple[Form, tuple[Any, ...]]:
        """The form of a call with a parameter for each element, and the views that are its values."""
        form, values = super().bind(args, named, wanted)
        values = plain_arrays(values, form.names)
        # The forms of other libraries' arrays do not have their shapes.
        key = form, forms_of(values), *[getattr(value, "shape", ()) for value in values]
        known = self._checked.get(key)
        if known is None:
            known = self._checked.keep(key, self._check(form, values))
        flat, cores = known
        parts: list[Any] = []
        for value, shape in zip(values, cores, strict=True):
            for part in (value.real, value.imag) if is_complex(value) else (value,):
                if shape:
                    parts += elements(part, shape)
                else:
                    parts.append(part)
        return flat, tuple(parts)

    def _check(self, form: Form, values: tuple[Any, ...]) -> tuple[Form, tuple[Shape, ...]]:
        """The form with a parameter for each element, and the core of each array, whose shapes are checked."""
        dims = self._dims(form)
        for name, value, own in zip(form.names, values, dims, strict=True):
            if own:
                self._check_array(name, value)
        cores = tuple([shape_of(value)[-len(own) :] if own else () for value, own in zip(values, dims, strict=True)])
        key = form, cores, tuple(map(is_complex, values))
        flat = self._core_forms.get(key)
        if flat is None:
            flat = self._core_forms.setdefault(key, self._new_form(form, values, dims))
        # A whole array does not broadcast, and the lengths that follow it are numbers.
        whole, every = dict(form.whole), zip(form.names, values, cores, strict=True)
        self._check_rest([each for place, each in enumerate(every) if place not in whole])
        return flat, cores

    def _dims(self, form: Form) -> list[Dims]:
        """The core dimensions of the arrays of a call."""
        names = [name for name in form.parameters if name not in self.static | self.whole]
        if len(names) != len(self.cores.inputs):
            wanted = _counted(len(self.cores.inputs), "argument")
            raise ArgumentError(
                f"signature={self.cores.text!r} is for {wanted}, and this call of {self} has {len(names)} "
                f"that {'is' if len(names) == 1 else 'are'} neither static nor whole; {_EXAMPLE}"
            )
        by_name = dict(zip(names, self.cores.inputs, strict=True))
        return [by_name.get(name, ()) for name in form.names]

    def _new_form(self, form: Form, values: tuple[Any, ...], dims: list[Dims]) -> Form:
        """Check the shapes of the arrays, and make the form."""
        sizes: dict[str, tuple[int, str]] = {}
        cores: list[Shape] = []
        for name, value, own in zip(form.names, values, dims, strict=True):
            shape = shape_of(value)
            if len(shape) < len(own):
                raise self._misfit(name, own, shape, "its last axes are its core")
            core = shape[len(shape) - len(own) :]
            for each, length in zip(own, core, strict=True):
                wanted, who = (each, "") if isinstance(each, int) else sizes.setdefault(each, (length, name))
                if wanted != length:
                    reason = f"the signature says {wanted}" if not who else f"{who} has {each} = {wanted}"
                    raise self._misfit(name, own, shape, f"{reason}, and here it is {length}")
            if 0 in core:
                raise self._misfit(name, own, shape, "a core has an element at least")
            if math.prod(core) > _LARGEST:
                raise self._misfit(name, own, shape, f"a core may have {_LARGEST:,} elements at most")
            cores.append(core)
        are_complex = [*map(is_complex, values)]
        remaining = iter(zip(cores, are_complex, strict=True))
        slots: list[Static | Core | Axes | str | None] = []
        for slot in form.slots:
            shape, has_parts = ((), False) if isinstance(slot, Static) else next(remaining)
            slots.append(Core(shape, has_parts) if shape else COMPLEX if has_parts else slot)
            for _ in range(slot.ndim if isinstance(slot, Axes) else 0):
                next(remaining)
        flat_names = [
            [each for part in (parts_named(name) if has_parts else (name,)) for each in names_of(part, shape)]
            for name, shape, has_parts in zip(form.names, cores, are_complex, strict=True)
        ]
        whole = tuple([(sum(map(len, flat_names[:place])), axes) for place, axes in form.whole])
        every = tuple([each for own in flat_names for each in own])
        lengths: dict[int | str, int] = {each: length for each, (length, _) in sizes.items()}
        returns = tuple([tuple([lengths.get(each, each) for each in own]) for own in self.cores.outputs])
        return Form(tuple(slots), every, form.parameters, form.spread, whole, returns=returns)

    def _check_rest(self, given: list[tuple[str, Any, Shape]]) -> None:
        """Refuse shapes before the cores that do not broadcast together, of arguments with their names and cores."""
        rests = [shape_of(value)[: len(shape_of(value)) - len(core)] for _, value, core in given]
        if len(set(rests)) == 1:
            return
        try:
            # Lengths that are not known yet are compared when a chunk is computed.
            np.broadcast_shapes(*[tuple([1 if math.isnan(each) else each for each in rest]) for rest in rests])
        except ValueError:
            listing = ", ".join(
                f"{name} {shape_of(value)} with core {core}" if core else f"{name} {shape_of(value)}"
                for name, value, core in given
            )
            raise ShapeError(
                f"{self.name} has signature={self.cores.text!r}, and the axes before the cores do not broadcast "
                f"together: {listing}"
            ) from None

    def _check_array(self, name: str, value: Any) -> None:
        adapter = adapter_for(value)
        kinds = is_array(value, "numpy"), is_array(value, "cupy"), is_variable(value), hasattr(value, "reshape")
        if not any(kinds) or (adapter is not None and adapter.name not in ("PyTorch", "JAX", "Dask")):
            raise ArgumentError(
                f"{name} has core dimensions, and is {called(value)}. Pass an array of NumPy's, CuPy's, PyTorch's, "
                "JAX's or Dask's"
            )

    def _misfit(self, name: str, own: Dims, shape: tuple[int, ...], reason: str) -> ShapeError:
        dims = f"({','.join(map(str, own))})"
        return ShapeError(f"{name} is {dims} in signature={self.cores.text!r}, and has shape {shape}: {reason}")


class _Empty(dict[int, Form]):
    """A dict that stays empty."""

    def __setitem__(self, key: int, value: Form) -> None:
        pass


def names_of(name: str, shape: tuple[int, ...]) -> list[str]:
    """The names of the elements of an argument: `v[0]`, `v[1]`; its own if it has no core."""
    return [f"{name}[{','.join(map(str, index))}]" if index else name for index in np.ndindex(*shape)]


def elements(value: Any, shape: tuple[int, ...]) -> list[Any]:
    """The views of an array that each have one element of its core."""
    if not shape:
        return [value]
    if type(value) is np.ndarray:
        rest, axes = value.ndim - len(shape), value.ndim
        columns = value.transpose((*range(rest, axes), *range(rest)))
        if len(shape) == 1:
            return [*columns]
        if len(shape) == 2:
            return [column for row in columns for column in row]
    return [value[(..., *index)] for index in np.ndindex(*shape)]


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of an array or a number."""
    return tuple(getattr(value, "shape", ()))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"
