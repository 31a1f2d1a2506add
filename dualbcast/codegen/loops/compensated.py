"""Sums that keep what rounding takes from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dualbcast.codegen.values import Value

__all__ = ["add", "rounded"]


def add(total: Value, lost: Value, term: Value) -> tuple[Value, Value]:
    """The sum with one more term, and all that rounding has taken from it so far, by Knuth's two-sum."""
    new = total + term
    part = new - total
    return new, lost + ((total - (new - part)) + (term - part))


def rounded(total: Value, lost: Value) -> Value:
    """A sum that includes what it lost. Where the sum is infinite, what it lost is NaN and is left out."""
    return (lost - lost == 0.0).choose(total + lost, total)
