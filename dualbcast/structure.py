"""What a scalar function returns, as a tree: a number, or tuples, lists, named tuples and dataclasses of such trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dualbcast.errors import ArgumentError

__all__ = ["NUMBER", "Structure"]


@dataclass(frozen=True, slots=True)
class Structure:
    """One node of the tree.

    Attributes
    ----------
    type : type or None
        The Python type that holds the parts; None for a number.
    parts : tuple of Structure
    fields : tuple of str
        The names of the parts, where the type names them.
    """

    type: type | None = None
    parts: tuple[Structure, ...] = ()
    fields: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many numbers the tree has."""
        return 1 if self.type is None else sum(part.count for part in self.parts)

    def labels(self) -> tuple[str, ...]:
        """How each number is reached: `""` for the number itself, else field names and positions joined by dots."""
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
        return self._build(iter(leaves))

    def _build(self, leaves: Iterator[Any]) -> Any:
        if self.type is None:
            return next(leaves)
        parts = [part._build(leaves) for part in self.parts]
        if not self.fields:
            return self.type(parts)
        return self.type(**dict(zip(self.fields, parts, strict=True)))

    def flatten(self, value: Any, name: str = "out") -> tuple[Any, ...]:
        """The leaves of an object of this structure; a tuple or list may stand for any type of the same length.

        Raises
        ------
        ArgumentError
            The object has another structure; `name` is what the message calls it.
        """
        if self.type is None:
            return (value,)
        if self.fields and isinstance(value, self.type):
            items = [getattr(value, field) for field in self.fields]
        elif isinstance(value, tuple | list):
            items = list(value)
        else:
            items = []
        if len(items) != len(self.parts):
            raise ArgumentError(f"{name} must be a {self.type.__name__} of {len(self.parts)}, as the function returns")
        return tuple(
            leaf
            for position, (part, item) in enumerate(zip(self.parts, items, strict=True))
            for leaf in part.flatten(item, f"{name}[{position}]")
        )


NUMBER = Structure()
