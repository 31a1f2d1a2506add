"""Fast paths, which calls leave behind for later calls of the same form, and the tables that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from dualbcast.runtime.arguments import Array

__all__ = ["FastPath", "Recent"]

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


class FastPath(Protocol):
    """A kernel with all that calls of one form have in common, on any device.

    Attributes
    ----------
    results
        The caller's own object.
    """

    results: Any

    def run(self, values: tuple[Array, ...], out: tuple[Array, ...] = ()) -> Sequence[Array] | None:
        """Run the kernel on arguments of known forms; its outputs, or None where it cannot use them in place."""
