"""Steps of elementary functions as LLVM IR, and calls of the C library.

All take numbers or vectors. Comparisons are false for NaN. The bits of a NaN are shifted like others: it stays a NaN.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import llvmlite.binding as llvm
from llvmlite import ir

from dualbcast.codegen.llvm import target
from dualbcast.codegen.mathlib.formats import Format, format_of
from dualbcast.codegen.values import Value, any_of, attribute, declared, intrinsic, is_single, like, lone

# What writes an operation on some values, and gives its result.
Emit = Callable[..., Value]
# The same with one result or several.
Writer = TypeVar("Writer", bound=Callable[..., Any])


def has_scaling() -> bool:
    """Whether the host multiplies vectors by powers of two in one instruction, and LLVM knows; it would call a slow
    function for each element else."""
    return llvm.llvm_version_info[0] >= 22 and {"avx512f", "avx512vl"} <= target.features()


# --- what is computed once -------------------------------------------------------------------------------------------


def shared(write: Writer) -> Writer:
    """What writes the same as `write`, but once for the same values: the few passes of LLVM that run find no common
    subexpressions, and its code generator finds some.

    What is known in a block is known in those after it if `follow` says so.
    """

    def once(*arguments: Value) -> Any:
        builder = arguments[0].builder
        key = write, *[id(argument.value) for argument in arguments]
        written = _known(builder.block).get(key)
        if written is None:
            # With the arguments, whose places in memory are not to be taken by others.
            written = write(*arguments), arguments
            _known(builder.block)[key] = written
        return written[0]

    return cast(Writer, functools.wraps(write)(once))


def follow(block: ir.Block, before: ir.Block) -> None:
    """Let what is known at the end of a block be known in one that no path reaches without passing it."""
    block.known = dict(_known(before))


def _known(block: ir.Block) -> dict[Any, Any]:
    known: dict[Any, Any] = block.__dict__.setdefault("known", {})
    return known


# --- steps ------------------------------------------------------------------------------------------------------------

absolute = functools.partial(intrinsic, "fabs")
copysign = functools.partial(intrinsic, "copysign")
# a * b + c, rounded once.
fma = functools.partial(intrinsic, "fma")


def at_most(limit: float, x: Value) -> Value:
    """The lesser of two numbers; NaN stays."""
    return (x > limit).choose(limit, x)


def rounded(shifted: Value) -> Value:
    """The whole number in the last bits of a sum with `Format.shifter`."""
    return shifted - format_of(shifted).shifter


def is_even(x: Value) -> Value:
    """Whether a number is whole and even."""
    half = x * 0.5
    return intrinsic("trunc", half) == half


def sign_of(bits: Value) -> Value:
    """The bit of the sign among zeros, of the bits of a float."""
    width: int = lone(bits.kind).width
    return bits & (1 << (width - 1))


def polynomial(coefficients: Sequence[float], x: Value) -> Value:
    """Short ones in the fewest steps (Horner), long ones by halves (Estrin): then few wait for the one before."""
    terms = [x.constant(coefficient) for coefficient in coefficients]
    if len(terms) < 8:
        total = terms[-1]
        for term in terms[-2::-1]:
            total = fma(total, x, term)
        return total
    while len(terms) > 1:
        pairs = [fma(high, x, low) for low, high in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[2 * len(pairs) :]
        if len(terms) > 1:
            x = x * x
    return terms[0]


def power_of_two(n: Value, form: Format) -> Value:
    """2**n, which is normal; only the last bits of n count."""
    return (n + form.bias << form.fraction).as_float()


def twice_scaled(x: Value, n: Value) -> Value:
    """x * 2**n, though neither 2**n nor a subnormal result leaves room for one step.

    Without an instruction for it in two steps, of which the last rounds: the same bits.
    """
    form = format_of(x)
    if has_scaling():
        return _ldexp(x, n - x.constant(form.shifter).bits())
    # Shifted as if it had no sign, which takes AVX-512 else: the bits that it lets in are shifted out again.
    half = n >> 1
    return (x.bits() + (half << form.fraction)).as_float() * power_of_two(n - half, form)


def _ldexp(x: Value, n: Value) -> Value:
    builder, int32 = x.builder, like(x.kind, ir.IntType(32))
    kinds = [x.kind, int32]
    declared = builder.module.declare_intrinsic("llvm.ldexp", kinds, ir.FunctionType(x.kind, kinds))
    return Value(builder, builder.call(declared, [x.value, n.to("int32").value]))


def scaled_unless(is_zero: Value, x: Value, n: Value) -> Value:
    """`twice_scaled`, or 0. To round a product to 0 takes processors of Intel's as long as a hundred others."""
    none = x.constant(format_of(x).shifter).bits()
    return is_zero.choose(0.0, twice_scaled(x, is_zero.choose(none, n)))


# --- branches and calls ----------------------------------------------------------------------------------------------

# The weights of the rare side of a branch and of the usual one.
_RARELY = (1, 2000)


def or_rarely(is_rare: Value, result: Value, otherwise: Callable[[], Value]) -> Value:
    """`result`, or where `is_rare` is true the value of `otherwise`, which is computed if that is so anywhere."""

    def some() -> Value:
        return is_rare.choose(otherwise(), result) if is_rare.is_vector else otherwise()

    return instead(is_rare, lambda: result, some)


def instead(is_rare: Value, usual: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
    """The value of `usual`; or all of it by `otherwise`, if `is_rare` is true anywhere."""
    builder, before = is_rare.builder, is_rare.builder.block
    ways = [builder.append_basic_block(name) for name in ("rare", "usual")]
    after = builder.append_basic_block("common")
    builder.cbranch(any_of(builder, is_rare.value), *ways).set_weights(_RARELY)
    values = []
    for way, compute in zip(ways, (otherwise, usual), strict=True):
        builder.position_at_end(way)
        values.append((compute(), builder.block))
        builder.branch(after)
    builder.position_at_end(after)
    follow(after, before)
    phi = builder.phi(values[0][0].kind)
    for value, block in values:
        phi.add_incoming(value.value, block)
    return Value(builder, phi)


@shared
def ordinary_elsewhere(here: Value, x: Value) -> Value:
    """x where `here` is true, and 1 elsewhere, which is a rare argument of no function."""
    return here.choose(x, 1.0)


# The attributes of functions that depend on nothing but their arguments.
_PURE = ("memory(none)", "nounwind", "willreturn")


def library(name: str, *arguments: Value) -> Value:
    """The value of a function of the C library, of vectors for each element."""
    first = arguments[0]
    function = _external(target.symbol(_precise(name, first)), lone(first.kind), arguments)

    def of_each(*vectors: Value) -> Value:
        result = Value(vectors[0].builder, ir.Constant(first.kind, ir.Undefined))
        for lane in range(first.kind.count):
            result = result.with_lane(lane, _called(function, *[vector.lane(lane) for vector in vectors]))
        return result

    if not first.is_vector:
        return _called(function, *arguments)
    return apart(f"{function.name}_each_{first.kind.count}", of_each, *arguments)


def in_halves(compute: Emit, *arguments: Value) -> Value:
    """What `compute` computes of vectors, of each half by itself."""
    lanes = arguments[0].lanes
    parts = [range(lanes // 2), range(lanes // 2, lanes)]
    of_each = [tuple([value.shuffle(value, part) for value in arguments]) for part in parts]
    low, high = (compute(*part) for part in of_each)
    return low.shuffle(high, range(lanes))


def _called(function: ir.Function, *arguments: Value) -> Value:
    """The result of a function of the module that is being written."""
    builder = arguments[0].builder
    return Value(builder, builder.call(function, [argument.value for argument in arguments]))


def _precise(name: str, value: Value) -> str:
    """C's name of a function of numbers in the format of a value."""
    return name + ("f" if is_single(value.kind) else "")


def _external(symbol: str, kind: ir.Type, arguments: Sequence[Value]) -> ir.Function:
    return declared(arguments[0].builder.module, symbol, kind, [kind] * len(arguments), *_PURE)


def apart(symbol: str, write: Emit, *arguments: Value, cold: bool = False) -> Value:
    """The value of what `write` writes, in a function that stands apart from the code that seldom calls it."""
    function = _external(symbol, arguments[0].kind, arguments)
    if function.is_declaration:
        function.linkage = "linkonce_odr"
        attribute(function, "noinline", *(["cold"] if cold else []))
        builder = ir.IRBuilder(function.append_basic_block())
        builder.ret(write(*[Value(builder, argument) for argument in function.args]).value)
    return _called(function, *arguments)
