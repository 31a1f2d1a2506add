"""Sums and products of derivatives are fused to multiply-adds where that is faster.

The last bits of derivatives may depend on how they are computed; values keep all roundings of the source.
"""

from __future__ import annotations

from dualbcast.autodiff.operation_cost import cost_of_operation
from dualbcast.ir.nodes import For, Function, While
from dualbcast.ir.traversal import assigned, operations_of, statements
from dualbcast.ir.value_numbering import simplify

__all__ = ["fuse_multiply_adds"]


def fuse_multiply_adds(function: Function) -> Function:
    """The function, simplified, with multiply-adds in place of sums of products.

    Before (derived=("p", "s"))::

        function f(x: float, y: float)
            p: float = mul(x, y)
            s: float = add(x, p)
            output out_dx = s

    After::

        function f(x: float, y: float)
            s: float = muladd(x, y, x)
            output out_dx = s
    """
    return simplify(function, _fusible(function))


def _fusible(function: Function) -> frozenset[str]:
    """The names of derivatives, without those that are assigned in loops of nothing but sums and products.

    In such a loop each iteration waits for the one before, and a multiply-add has the longer latency
    (docs/decisions/023-multiply-adds-in-loops.md).
    """
    loops = [(stmt,) for stmt in statements(function.body) if isinstance(stmt, For | While)]
    plain = [loop for loop in loops if all(cost_of_operation(op.name) == 1 for op in operations_of(loop))]
    return frozenset(function.derived).difference(*map(assigned, plain))
