"""From a function with notes to one that says whether an element prints something, fails an assertion or raises."""

from __future__ import annotations

from dataclasses import replace

from dualbcast.ir import nodes as ir
from dualbcast.ir.traversal import free_names, map_blocks


def flag_speaking_elements(function: ir.Function) -> ir.Function:
    """The function whose only output is whether it comes to a `print`, a `raise`, or an `assert` that does not hold.

    Before::

        function f(x: float)
            test: bool = gt(x, 0.0)
            note assert ['x is {1}']: test, x
            y: float = mul(x, x)
            if test:
                note print ['y = {0}']: y
            output out = y

    After::

        function f(x: float)
            speaks: bool = False
            test: bool = gt(x, 0.0)
            if test:
            else:
                speaks: bool = True
            y: float = mul(x, x)
            if test:
                speaks: bool = True
            output speaks = speaks
    """
    speaks = ir.Var(free_names(function).fresh("speaks"), "bool")

    def visit(block: ir.Block) -> ir.Block:
        new: list[ir.Stmt] = []
        for stmt in block:
            match stmt:
                case ir.Note(what="print" | "raise", location=where):
                    new.append(ir.Assign(speaks, ir.TRUE, where))
                case ir.Note(what="assert", values=(test, *_), location=where):
                    new.append(ir.If(test, (), (ir.Assign(speaks, ir.TRUE, where),), where))
                case ir.Note():
                    pass
                case _:
                    new.append(map_blocks(stmt, visit))
        return tuple(new)

    body = (ir.Assign(speaks, ir.FALSE), *visit(function.body))
    return replace(function, body=body, outputs=(ir.Output("speaks", speaks),), structure=ir.NUMBER, derived=())
