"""A kernel's text, which is a small part of Python, as LLVM IR: the first value of a variable gives its type.

Numba compiles the same text, to the same results. To find out types in all of Python, and to import all that knows how,
takes several times as long as LLVM's optimisation of a kernel.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from llvmlite import ir

from dualbcast.codegen.llvm.abi import KERNEL
from dualbcast.codegen.llvm.polling import Countdown
from dualbcast.codegen.llvm.scalar import ScalarBody
from dualbcast.codegen.llvm.unit import Shape, Unit, end_with
from dualbcast.codegen.llvm.values import Typed
from dualbcast.codegen.llvm.vectorize import VectorBody

__all__ = ["lower"]


def lower(unit: Unit, entry: str, signature: Sequence[str], streamed: Collection[int] = ()) -> None:
    """Put the functions of a text into its module.

    Parameters
    ----------
    unit : Unit
    entry : str
        The function that is called from outside. Its symbol is `KERNEL`, it returns a status, and its pointers do not
        overlap. All others are inlined.
    signature : sequence of str
        The types of its parameters, as of `Typed`.
    streamed : collection of int
        The pointers of the entry, by position among its pointers, to which vectors are stored past the cache.

    Raises
    ------
    TypeError
        An operation does not take what it is given.
    SyntaxError
        The text has something that kernels do not have.
    """
    unit.write = _write_function
    node = unit.definitions[entry]
    params = {argument.arg: dtype for argument, dtype in zip(node.args.args, signature, strict=True)}
    pointers = [name for name, dtype in params.items() if dtype[0] == "*"]
    unit.streamed = frozenset(pointers[position] for position in streamed)
    body = ScalarBody(unit, unit.declared(KERNEL, ir.IntType(32), params), node, signature)
    if unit.polling.functions:
        body.countdown = Countdown.begin(unit.module, body.start)
    body.block(node.body)
    if body.countdown is None:
        body.builder.ret(ir.Constant(ir.IntType(32), 0))
    else:
        body.countdown.end(body.builder)
    body.finish()


def _write_function(unit: Unit, function: ir.Function, node: ast.FunctionDef, shapes: Sequence[Shape]) -> str:
    """Write a function that is inlined, for arguments of some shapes; the type of its result."""
    body: ScalarBody | VectorBody
    if any(lanes for _, lanes in shapes):
        arguments = zip(node.args.args, function.args, shapes, strict=False)
        values = {each.arg: Typed(value, dtype) for each, value, (dtype, _) in arguments}
        body = VectorBody(unit, ir.IRBuilder(function.append_basic_block()), values, node.name)
    else:
        body = ScalarBody(unit, function, node, [dtype for dtype, _ in shapes])
    if node.name in unit.polling.functions:
        body.countdown = Countdown(unit.module, function.args[-1])
    result = ""
    match node.body:
        case [*statements, ast.Return(value=ast.expr() as returned)]:
            body.block(statements)
            value, result = body.expression(returned)
            end_with(body.builder, value)
        case _:
            body.block(node.body)
            body.builder.ret_void()
    if isinstance(body, ScalarBody):
        body.finish()
    return result
