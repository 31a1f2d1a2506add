"""Code under a condition that is almost never true, for numbers and for vectors."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from dualbcast.codegen.mathlib import libm
from dualbcast.codegen.mathlib.primitives import Emit, attribute, called
from dualbcast.codegen.values import Value
from dualbcast.codegen.vector_types import Lanes, any_of, is_single, lone

__all__ = ["apart", "declared", "for_each", "instead", "library", "or_rarely"]

# The weights of the rare side of a branch and of the usual one.
_RARELY = (1, 2000)


def or_rarely(is_rare: Value, result: Value, otherwise: Callable[[], Value]) -> Value:
    """`result`, or where `is_rare` is true the value of `otherwise`, which is computed if that is so anywhere."""
    builder = result.builder
    here, rare, after = builder.block, builder.append_basic_block("rare"), builder.append_basic_block("common")
    builder.cbranch(any_of(builder, is_rare.value), rare, after).set_weights(_RARELY)
    builder.position_at_end(rare)
    value = otherwise()
    if is_rare.is_vector:
        value = is_rare.choose(value, result)
    builder.branch(after)
    builder.position_at_end(after)
    return _either(builder, [(result, here), (value, rare)])


def instead(is_rare: Value, usual: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
    """The value of `usual`; or all of it by `otherwise`, if `is_rare` is true anywhere."""
    builder = is_rare.builder
    ways = [builder.append_basic_block(name) for name in ("rare", "usual")]
    after = builder.append_basic_block()
    builder.cbranch(any_of(builder, is_rare.value), *ways).set_weights(_RARELY)
    values = []
    for way, compute in zip(ways, (otherwise, usual), strict=True):
        builder.position_at_end(way)
        values.append((compute(), builder.block))
        builder.branch(after)
    builder.position_at_end(after)
    return _either(builder, values)


def _either(builder: ir.IRBuilder, values: list[tuple[Value, ir.Block]]) -> Value:
    """The value of the block that this place is reached from."""
    phi = builder.phi(values[0][0].kind)
    for value, block in values:
        phi.add_incoming(value.value, block)
    return Value(builder, phi)


def apart(symbol: str, like: Value, write: Emit) -> ir.Function:
    """A function of two values of a type that stands apart from the code that seldom calls it."""
    module = like.builder.module
    function = module.globals.get(symbol)
    if function is None:
        function = ir.Function(module, ir.FunctionType(like.kind, [like.kind] * 2), symbol)
        function.linkage = "linkonce_odr"
        attribute(function, "noinline", "memory(none)", "nounwind", "willreturn", "cold")
        _write(function, write)
    return function


def _write(function: ir.Function, write: Emit) -> None:
    """Return from a function the value that is written for its arguments."""
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(write(*[Value(builder, argument) for argument in function.args]).value)


def declared(module: ir.Module, symbol: str, kind: ir.Type, arity: int, *attributes: str) -> ir.Function:
    """A function of values of one type that depends on nothing else."""
    function = module.globals.get(symbol)
    if function is None:
        function = ir.Function(module, ir.FunctionType(kind, [kind] * arity), symbol)
        attribute(function, "memory(none)", "nounwind", "willreturn", *attributes)
    return function


def for_each(function: ir.Function, lanes: int) -> ir.Function:
    """A function of vectors of so many, which calls a function of numbers for each."""
    module, arity = function.module, len(function.args)
    symbol = f"{function.name}_each_{lanes}"
    each = module.globals.get(symbol)
    if each is not None:
        return each
    vector = Lanes(function.return_value.type, lanes)
    each = ir.Function(module, ir.FunctionType(vector, [vector] * arity), symbol)
    each.linkage = "linkonce_odr"
    attribute(each, "noinline", "nounwind", "willreturn", "memory(none)")

    def one_by_one(*arguments: Value) -> Value:
        result = Value(arguments[0].builder, ir.Constant(vector, ir.Undefined))
        for lane in range(lanes):
            result = result.with_lane(lane, called(function, *[argument.lane(lane) for argument in arguments]))
        return result

    _write(each, one_by_one)
    return each


def library(name: str, *arguments: Value) -> Value:
    """The value of a function of the C library, called under a condition: of vectors, for each element."""
    kind, module = arguments[0].kind, arguments[0].builder.module
    symbol = libm.symbol(name + ("f" if is_single(kind) else ""))
    function = declared(module, symbol, lone(kind), len(arguments), "cold")
    if arguments[0].is_vector:
        return called(for_each(function, kind.count), *arguments)
    return called(function, *arguments)
