"""A row of the table of results that are off by more than their bounds, and what such a row is asked about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Exceptional", "Found"]


@dataclass(frozen=True)
class Found:
    """What is known of one result of a form, at all points."""

    form: str
    result: str
    arguments: Sequence[np.ndarray]
    error: np.ndarray
    exact: dict[str, np.ndarray]
    dtype: np.dtype[np.floating]

    @property
    def wanted(self) -> np.ndarray:
        return self.exact[self.result]

    @property
    def eps(self) -> float:
        """The unit of the last place of 1, in the format that is computed in."""
        return float(np.finfo(np.float32 if self.dtype == np.float16 else self.dtype).eps)

    @property
    def tiny(self) -> float:
        """The smallest normal number."""
        return float(np.finfo(self.dtype).tiny)

    @property
    def largest(self) -> float:
        return float(np.finfo(self.dtype).max)

    @property
    def stored(self) -> float:
        """The error of storing a result: half a unit of its last place, and a little."""
        return 0.51 * float(np.finfo(self.dtype).eps)

    def within(self, units: Any, of: Any, and_of_the_smallest: Any = 1.0) -> np.ndarray:
        """Whether the error is that many units of the last place of something, apart from being stored."""
        smallest = float(np.finfo(self.dtype).smallest_subnormal) * and_of_the_smallest
        return np.asarray(self.error <= units * self.eps * np.abs(of) + self.stored * np.abs(self.wanted) + smallest)


@dataclass(frozen=True, eq=False)
class Exceptional:
    """One row of the table."""

    forms: tuple[str, ...]
    results: tuple[str, ...]
    where: str
    bound: str
    reason: str
    allows: Callable[[Found], np.ndarray]

    def line(self) -> str:
        """The row as the page has it."""
        names = {"value": "value", "x": "∂x", "y": "∂y", "xx": "∂²x", "xy": "∂x∂y", "yy": "∂²y"}
        forms = ", ".join(f"`{name}`" for name in self.forms)
        results = ", ".join(names[result] for result in self.results)
        return f"| {forms} | {results} | {self.where} | {self.bound} | {self.reason} |"
