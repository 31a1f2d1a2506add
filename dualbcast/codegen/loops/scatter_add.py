"""The loop that adds rows to rows of a table, in their order."""

from __future__ import annotations

import ctypes
from functools import cache as once
from typing import TYPE_CHECKING, Any

from dualbcast.codegen.llvm.target import compiled
from dualbcast.codegen.loops import compensated
from dualbcast.codegen.loops.recipe import Recipe

if TYPE_CHECKING:
    from dualbcast.codegen.loops.builder import Function, Module

__all__ = ["scatter_adding"]


@once
def scatter_adding(dtype: str, is_compensated: bool) -> Any:
    """A function of the addresses of sums, of what they lost, of rows of a dtype, and of each row's place, and of the
    numbers of rows and columns. Sums are float64; what they lose is kept only if the sums are compensated."""
    address = compiled(Recipe(write_scatter_add, (dtype, is_compensated)), "scatter_add", optimise=True)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, *[ctypes.c_int64] * 2)(address)


def write_scatter_add(module: Module, dtype: str, is_compensated: bool) -> Function:
    """The loop of `scatter_adding`."""
    kinds = ["*float64", "*float64", f"*{dtype}", "*int64", "int64", "int64"]
    f = module.function("scatter_add", kinds, noalias=True)
    sums, lost, rows, places, count, columns = f.parameters
    with f.range(0, count) as i:
        place = places[i]
        with f.range(0, columns) as j:
            at, term = place * columns + j, rows[i * columns + j].to_float64()
            if is_compensated:
                sums[at], lost[at] = compensated.add(sums[at], lost[at], term)
            else:
                sums[at] = sums[at] + term
    f.return_()
    return f
