"""Where the lines of a kernel's text come from: from a line of the user's file, from a function of the library, or from
the stores of results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dualbcast.errors import Location
from dualbcast.ir.nodes import NOWHERE, Expr, Op


@dataclass(frozen=True)
class Store:
    """A line that stores results, which are computed at a place of the user's, or before this line."""

    computed: Location | None = None


@dataclass(frozen=True)
class Unquoted:
    """A place in the user's file that the text does not quote."""

    location: Location


# Of a line of the text: the place in the user's file; a store; the name of a function of the library; or None.
Place: TypeAlias = "Location | Unquoted | Store | str | None"

_ASSIGNMENT = re.compile(r"\s*(\w+(?:, \w+)*) = ")


def store_of(values: Iterable[Expr]) -> Store:
    """The store of some values, which may be expressions."""
    places = [place.location for value in values if (place := expression_place(value))]
    return Store(places[0] if places else None)


def expression_place(value: Expr) -> Unquoted | None:
    """The place of an expression itself."""
    return Unquoted(value.location) if isinstance(value, Op) and value.location != NOWHERE else None


def with_readers(lines: Sequence[tuple[str, Place]]) -> list[Place]:
    """The places of lines, where an assignment without one, such as a load, has that of the first line that reads it.
    Lines may end in a comment, as `Writer` writes it.

    Examples
    --------
    >>> place = Location("f.py", 3, 0, 3, 9)
    >>> lines = [("x_k = x[k]", None), ("t = tanh(x_k)", place), ("out[k] = t", None)]
    >>> [each and each.line for each in with_readers(lines)]
    [3, 3, None]
    """
    places: list[Place] = [
        place.location if isinstance(place, Unquoted) else None if place == NOWHERE else place for _, place in lines
    ]
    codes = [text.partition("  # ")[0] for text, _ in lines]
    for at in reversed(range(len(lines))):
        found = _ASSIGNMENT.match(codes[at]) if places[at] is None else None
        if found:
            names = re.compile(rf"\b(?:{found[1].replace(', ', '|')})\b")
            later = range(at + 1, len(lines))
            readers = (places[each] for each in later if names.search(codes[each]) and places[each] is not None)
            places[at] = next(readers, None)
    return places
