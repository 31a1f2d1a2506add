"""`dataclass` for what is made at each import and by the thousand in a compilation: frozen as far as types are checked.

At run time the fields can be set. A class that forbids it takes twice as long to make, and three times as long to fill.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool = False, eq: bool = True, slots: bool = False) -> Any:
        """`dataclasses.dataclass`; with `frozen` it is hashed by its fields, if it is compared by them."""

        def made(kind: type) -> type:
            hashed = frozen and eq and vars(kind).get("__hash__") is None
            return dataclasses.dataclass(eq=eq, slots=slots, unsafe_hash=hashed)(kind)

        return made
