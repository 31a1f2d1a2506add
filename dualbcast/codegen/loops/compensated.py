"""Compensated sums, which keep their rounding errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dualbcast.codegen.values import Value


def add(total: Value, lost: Value, term: Value) -> tuple[Value, Value]:
    """The sum with one more term, and its rounding errors so far, by Knuth's two-sum."""
    new = total + term
    part = new - total
    return new, lost + ((total - (new - part)) + (term - part))


def rounded(total: Value, lost: Value) -> Value:
    """A sum with its rounding errors. Where the sum is infinite these are NaN, and are left out."""
    return (lost - lost == 0.0).choose(total + lost, total)
