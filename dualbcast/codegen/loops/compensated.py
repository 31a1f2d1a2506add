"""Compensated sums, which keep their rounding errors; and the loop that adds rows to rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dualbcast.codegen.loops.builder import Function, Module
    from dualbcast.codegen.values import Value


def add(total: Value, lost: Value, term: Value) -> tuple[Value, Value]:
    """The sum with one more term, and its rounding errors so far, by Knuth's two-sum."""
    new = total + term
    part = new - total
    return new, lost + ((total - (new - part)) + (term - part))


def rounded(total: Value, lost: Value) -> Value:
    """A sum with its rounding errors. Where the sum is infinite these are NaN, and are left out."""
    return (lost - lost == 0.0).choose(total + lost, total)


def write_scatter_add(module: Module, dtype: str, is_compensated: bool) -> Function:
    """`scatter_add(sums, lost, rows, places, count, columns)`: add rows of a dtype to rows of `sums`, in their order.

    Sums are float64. What rounding takes from them is added to `lost` if the sums are compensated.
    """
    kinds = ["*float64", "*float64", f"*{dtype}", "*int64", "int64", "int64"]
    f = module.function("scatter_add", kinds, noalias=True)
    sums, lost, rows, places, count, columns = f.parameters
    with f.range(0, count) as i:
        place = places[i]
        with f.range(0, columns) as j:
            at, term = place * columns + j, rows[i * columns + j].to_float64()
            if is_compensated:
                sums[at], lost[at] = add(sums[at], lost[at], term)
            else:
                sums[at] = sums[at] + term
    f.return_()
    return f
