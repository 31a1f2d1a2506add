"""Complex arguments: a form of call comes in, and one in which each is its real and its imaginary part goes out; so do
the parts of tangents, and cotangents that are whole again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from dualbcast.api.binding import COMPLEX, Form
from dualbcast.complex_numbers import Complex
from dualbcast.errors import ArgumentError
from dualbcast.foreign_objects import called
from dualbcast.frontend.values import Axes


def is_complex(value: Any) -> bool:
    """Whether a value is a complex number, or an array or a Variable of such."""
    dtype = getattr(value, "dtype", None)
    # PyTorch's dtypes have no kind.
    return isinstance(value, complex) or getattr(dtype, "kind", "") == "c" or getattr(dtype, "is_complex", False)


def split(form: Form, values: tuple[Any, ...]) -> tuple[Form, tuple[Any, ...]]:
    """The form and the values of a call, with two numbers in the place of each complex one."""
    places = tuple([at for at, value in enumerate(values) if is_complex(value)])
    if not places:
        return form, values
    parts: list[Any] = []
    for at, value in enumerate(values):
        if at in places and not hasattr(value, "real"):
            name = form.names[at]
            raise ArgumentError(
                f"{name} is {called(value)} of complex numbers, which knows no parts of them. Pass np.asarray({name})."
            )
        parts += (value.real, value.imag) if at in places else (value,)
    return _form(form, places), tuple(parts)


def parts_named(name: str) -> list[str]:
    """The names of the two parts of a complex argument."""
    return [f"{name}.{part}" for part in Complex.fields]


@lru_cache(maxsize=1024)
def _form(form: Form, places: tuple[int, ...]) -> Form:
    names: list[str] = []
    pairs: list[int] = []
    moved: dict[int, int] = {}
    for at, name in enumerate(form.names):
        moved[at] = len(names)
        if at in places:
            pairs.append(len(names))
        names += parts_named(name) if at in places else [name]
    count, slots = 0, list(form.slots)
    for position, slot in enumerate(form.slots):
        if slot is None and count in places:
            slots[position] = COMPLEX
        count += 1 if slot is None else 2 if slot == COMPLEX else 1 + slot.ndim if isinstance(slot, Axes) else 0
    pairs = sorted([*pairs, *[moved[place] for place in form.pairs]])  # those of a form that has been split before
    whole = tuple([(moved[place], axes) for place, axes in form.whole])
    return replace(form, slots=tuple(slots), names=tuple(names), pairs=tuple(pairs), whole=whole)


def parts_of(tangents: Sequence[Any], wrt: Sequence[int], pairs: Sequence[int]) -> list[Any]:
    """The tangents of the parameters in `wrt`, where one of a complex argument stands for two."""
    if not pairs:
        return list(tangents)
    given, parts, at = list(tangents), list[Any](), 0
    while at < len(wrt) and given:
        tangent = given.pop(0)
        if _is_pair(wrt, at, pairs):
            parts += (tangent.real, tangent.imag)
            at += 2
        else:
            parts.append(tangent)
            at += 1
    return [*parts, *given]


def joined(cotangents: Sequence[Any], wrt: Sequence[int], pairs: Sequence[int]) -> tuple[Any, ...]:
    """The cotangents, or the names, of the parameters in `wrt`, where the two of a complex argument are one."""
    if not pairs:
        return tuple(cotangents)
    whole, at = list[Any](), 0
    while at < len(wrt):
        if _is_pair(wrt, at, pairs):
            first, second = cotangents[at : at + 2]
            whole.append(first.removesuffix(".real") if isinstance(first, str) else Complex(first, second))
            at += 2
        else:
            whole.append(cotangents[at])
            at += 1
    return tuple(whole)


def _is_pair(wrt: Sequence[int], at: int, pairs: Sequence[int]) -> bool:
    """Whether the parameters from a place of `wrt` on are the two parts of an argument."""
    return wrt[at] in pairs and tuple(wrt[at : at + 2]) == (wrt[at], wrt[at] + 1)
