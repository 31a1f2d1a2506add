"""The structure of a result, as a tree: a number, or tuples, lists, named tuples and dataclasses of such trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dualbcast.errors import ArgumentError, a_or_an


@dataclass(frozen=True, slots=True)
class Structure:
    """One node of the tree: a type that holds parts, with their names if the type has some; or a number, without."""

    type: type | None = None
    parts: tuple[Structure, ...] = ()
    fields: tuple[str, ...] = ()
    # How many numbers the tree has, and whether all parts are numbers.
    count: int = field(init=False, compare=False, repr=False)
    is_flat: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", 1 if self.type is None else sum(part.count for part in self.parts))
        object.__setattr__(self, "is_flat", all(part.type is None for part in self.parts))

    def labels(self) -> tuple[str, ...]:
        """The path to each number: `""` for the number itself, else field names and positions joined by dots.

        Examples
        --------
        >>> Structure(tuple, (NUMBER, Structure(list, (NUMBER, NUMBER)))).labels()
        ('0', '1.0', '1.1')
        """
        if self.type is None:
            return ("",)
        names = self.fields or tuple(map(str, range(len(self.parts))))
        return tuple(
            f"{name}.{label}".rstrip(".")
            for name, part in zip(names, self.parts, strict=True)
            for label in part.labels()
        )

    def pack(self, leaves: Sequence[Any]) -> Any:
        """The Python object of this structure with `leaves` in the place of the numbers."""
        if self.type is None:
            return leaves[0]
        if self.type is tuple and self.is_flat:
            return tuple(leaves)
        return self._build(iter(leaves))

    def _build(self, leaves: Iterator[Any]) -> Any:
        if self.type is None:
            return next(leaves)
        parts = [part._build(leaves) for part in self.parts]
        if not self.fields:
            return self.type(parts)
        if issubclass(self.type, tuple):  # a named tuple, whatever its __new__ takes
            return tuple.__new__(self.type, parts)
        if not hasattr(self.type, "__post_init__"):
            return self.type(**dict(zip(self.fields, parts, strict=True)))
        # Its __post_init__ is for numbers, and would see arrays. The kernel has carried it out on each number already.
        built = object.__new__(self.type)
        for name, part in zip(self.fields, parts, strict=True):
            object.__setattr__(built, name, part)
        return built

    def holds(self, value: Any) -> bool:
        """Whether `value` is a tuple, a list or the type of this structure, to be flattened; an array is not."""
        return self.type is not None and isinstance(value, (tuple, list, self.type))

    def flatten(self, value: Any, name: str = "out") -> tuple[Any, ...]:
        """The leaves of an object of this structure.

        A tuple or a list may stand for any type of the same length, and for all of the tree if it is as long as the
        tree has numbers. None stands for a part whose leaves are all None. An ArgumentError says that the object has
        another structure; `name` is what it calls the object.
        """
        if self.type is None or value is None:
            return (value,) * self.count
        if isinstance(value, tuple | list):
            # A leaf is an array or a number, so that a tuple without tuples in it has one meaning.
            if len(value) == self.count and (self.is_flat or not any(map(_is_branch, value))):
                return tuple(value)
            items = list(value)
        elif self.fields and isinstance(value, self.type):
            items = [getattr(value, field) for field in self.fields]
        else:
            items = []
        if len(items) != len(self.parts):
            given = (
                f"{len(items)} are given"
                if isinstance(value, tuple | list)
                else f"this is {a_or_an(type(value).__name__)}"
            )
            kind = a_or_an(self.type.__name__)
            raise ArgumentError(
                f"{name} must be {kind} of {len(self.parts)}, as the function returns, or a tuple with one array for "
                f"each of {self.count} outputs; {given}"
            )
        labels = self.fields or range(len(items))
        return tuple(
            leaf
            for label, part, item in zip(labels, self.parts, items, strict=True)
            for leaf in part.flatten(item, f"{name}.{label}" if self.fields else f"{name}[{label}]")
        )


def _is_branch(value: Any) -> bool:
    return isinstance(value, tuple | list) or hasattr(type(value), "__dataclass_fields__")


NUMBER = Structure()


def numbers(count: int) -> Structure:
    """A tuple of numbers."""
    return Structure(tuple, (NUMBER,) * count)
