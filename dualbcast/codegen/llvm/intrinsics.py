"""The free names of a kernel's text as LLVM IR: mathematics that LLVM can vectorise, 16-bit storage, sums."""

from __future__ import annotations

import functools
from collections.abc import Sequence, Set

import llvmlite.binding as llvm
from llvmlite import ir

from dualbcast.codegen.llvm.values import Operation, Storage
from dualbcast.codegen.mathlib import division as division_code
from dualbcast.codegen.mathlib import libm
from dualbcast.codegen.mathlib import table as mathlib
from dualbcast.codegen.mathlib.fallback import for_each
from dualbcast.codegen.mathlib.primitives import Emit, Steps, attribute, keep
from dualbcast.codegen.mathlib.ranges import AROUND
from dualbcast.codegen.mathlib.vector_types import Lanes, is_single, like, lone, shuffled

__all__ = ["DIVISION", "LIBERTIES", "SUM_TERMS", "inlined", "names"]

# What LLVM has an operation for, and so has the host.
_LLVM = ("sqrt", "fabs", "floor", "ceil", "trunc", "rint", "copysign")


@functools.cache
def names(vector: bool) -> dict[str, Operation | Storage]:
    """What a kernel's text calls.

    Parameters
    ----------
    vector : bool
        Whether calls may become calls of libmvec, which must then be loaded in the process that runs the kernel.
    """
    found: dict[str, Operation | Storage] = {name: Operation(_llvm_intrinsic(name)) for name in _LLVM}
    for name in libm.FUNCTIONS:
        called = _library_call(name, vector and name in libm.VECTORISED)
        around = AROUND.get(name) if vector else None
        found[name] = Operation(around(called), is_long=True) if around else Operation(called)
    found |= {name: Operation(mathlib.FUNCTIONS[name], is_long=True) for name in inlined()}
    return found | {
        "divided": _quotient(),
        "muladd": Operation(_fused),
        "mulsub": Operation(lambda builder, numbers: _fused(builder, [*numbers[:2], builder.fneg(numbers[2])])),
        "submul": Operation(lambda builder, numbers: _fused(builder, [builder.fneg(numbers[0]), *numbers[1:]])),
        "nextafter": Operation(_nextafter),
        "load_float16": Storage(_from_float16, stores=False),
        "store_float16": Storage(_to_float16, stores=True),
        "load_bfloat16": Storage(_from_bfloat16, stores=False),
        "store_bfloat16": Storage(_to_bfloat16, stores=True),
    }


def inlined() -> Set[str]:
    """The functions that are not calls of the C library."""
    return mathlib.FUNCTIONS.keys() if mathlib.has_fma() else frozenset()


def _quotient() -> Operation:
    if not mathlib.has_fma():
        return DIVISION
    if division_code.divides_fast():
        return Operation(division_code.divided_by_constants)
    return Operation(division_code.divided, is_long=True)


# Of a, b and 1 / b.
DIVISION = Operation(lambda builder, arguments: builder.fdiv(*arguments[:2]))

# The sum of a row's first elements in float64, in an order that suits vectors but depends on nothing else: the function
# and the liberties that LLVM may take with its floats.
SUM_TERMS = """\
def sum_terms(terms, count):
    total = float64(0)
    for j in range(count):
        total += float64(terms[j])
    return total
"""
LIBERTIES = {"sum_terms": frozenset({"reassoc"})}


def _llvm_intrinsic(name: str) -> Emit:
    def emit(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
        kind = arguments[0].type
        function_type = ir.FunctionType(kind, [kind] * len(arguments))
        return builder.call(builder.module.declare_intrinsic(f"llvm.{name}", [kind], function_type), arguments)

    return emit


def _fused(builder: ir.IRBuilder, numbers: Sequence[ir.Value]) -> ir.Value:
    """a * b + c, rounded once where the processor does that."""
    kind = numbers[0].type
    function_type = ir.FunctionType(kind, [kind] * 3)
    return builder.call(builder.module.declare_intrinsic("llvm.fmuladd", [kind], function_type), numbers)


def _library_call(name: str, vector: bool) -> Emit:
    def emit(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
        kind, module = arguments[0].type, builder.module
        precise = name + ("f" if is_single(kind) else "")
        if vector and isinstance(kind, ir.VectorType):
            return _vector_call(builder, precise, arguments)
        is_new = libm.symbol(precise) not in module.globals
        function = _declared(module, libm.symbol(precise), lone(kind), len(arguments))
        if is_new and vector:
            _offer_vector_versions(function, precise)
        if isinstance(kind, ir.VectorType):
            function = for_each(function, kind.count)
        return builder.call(function, arguments)

    return emit


def _vector_call(builder: ir.IRBuilder, name: str, arguments: Sequence[ir.Value]) -> ir.Value:
    """What libmvec computes of vectors, in halves where they are longer than the processor's."""
    kind, module = arguments[0].type, builder.module
    version = _versions(name, kind.element, len(arguments)).get(kind.count)
    if version is not None:
        return builder.call(_declared(module, version, kind, len(arguments)), arguments)
    half = kind.count // 2
    parts = [range(half), range(half, kind.count)]
    of_each = [[shuffled(builder, value, value, part) for value in arguments] for part in parts]
    low, high = (_vector_call(builder, name, part) for part in of_each)
    return shuffled(builder, low, high, range(kind.count))


def _declared(module: ir.Module, symbol: str, kind: ir.Type, arity: int) -> ir.Function:
    function = module.globals.get(symbol)
    if function is None:
        function = ir.Function(module, ir.FunctionType(kind, [kind] * arity), symbol)
        attribute(function, "memory(none)", "nounwind", "willreturn")
    return function


def _offer_vector_versions(function: ir.Function, name: str) -> None:
    """Tell LLVM's vectoriser which functions of libmvec compute `function`, C's `name`, on 128, 256 and 512 bits."""
    kind, arity = function.return_value.type, len(function.args)
    mappings, versions = [], []
    for lanes, symbol in _versions(name, kind, arity).items():
        mappings.append(f"_ZGV_LLVM_N{lanes}{'v' * arity}_{function.name}({symbol})")
        versions.append(_declared(function.module, symbol, Lanes(kind, lanes), arity))
    attribute(function, f'"vector-function-abi-variant"="{",".join(mappings)}"')
    keep(function.module, versions)


def _versions(name: str, kind: ir.Type, arity: int) -> dict[int, str]:
    """The functions of libmvec that compute C's `name`, by how many are a vector."""
    features = llvm.get_host_cpu_features()
    # The vector function ABI for x86-64: b is SSE, d AVX2 (glibc's also uses FMA), e AVX-512.
    sets = {"b": 128}
    if features.get("avx2") and features.get("fma"):
        sets["d"] = 256
    if features.get("avx512f") and features.get("avx512dq"):
        sets["e"] = 512
    counts = {letter: bits // (32 if is_single(kind) else 64) for letter, bits in sets.items()}
    return {lanes: f"_ZGV{letter}N{lanes}{'v' * arity}_{name}" for letter, lanes in counts.items()}


def _nextafter(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    """The neighbour of x towards y: one more or one less in the bits, which order floats of one sign."""
    x, y = arguments
    f = Steps(builder, x.type)
    zero, one = f.number(0), f.integer(1)
    bits = f.bits(x)
    away = builder.icmp_unsigned("==", builder.fcmp_ordered("<", x, y), builder.fcmp_ordered(">", x, zero))
    stepped = builder.select(away, builder.add(bits, one), builder.sub(bits, one))
    smallest = builder.or_(builder.and_(f.bits(y), f.integer(1 << (f.width - 1))), one)
    moved = builder.select(builder.fcmp_ordered("==", x, zero), smallest, stepped)
    result = builder.select(builder.fcmp_ordered("==", x, y), y, builder.bitcast(moved, f.kind))
    return builder.select(builder.fcmp_unordered("uno", x, y), builder.fadd(x, y), result)


def _converts_half() -> bool:
    """Whether the host converts between float16 and float32 in hardware; LLVM would call functions it may not find."""
    return "aarch64" in llvm.get_process_triple() or bool(llvm.get_host_cpu_features().get("f16c"))


class _Bits:
    """Integers of 32 bits, as many as there are of what is converted."""

    def __init__(self, kind: ir.Type) -> None:
        self.kind, self.float, self.half = (
            like(kind, each) for each in (ir.IntType(32), ir.FloatType(), ir.HalfType())
        )
        self.short = like(kind, ir.IntType(16))

    def __call__(self, value: int) -> ir.Constant:
        return ir.Constant(self.kind, value)


def _from_float16(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    word = _Bits(arguments[0].type)
    if _converts_half():
        return builder.fpext(builder.bitcast(arguments[0], word.half), word.float)
    bits = builder.zext(arguments[0], word.kind)
    sign = builder.shl(builder.and_(bits, word(0x8000)), word(16))
    # Exponent and fraction where float32 has them: a float32 too small by 2**112, the difference of the biases. The
    # multiplication is exact, and normalises what was subnormal.
    small = builder.shl(builder.and_(bits, word(0x7FFF)), word(13))
    scaled = builder.fmul(builder.bitcast(small, word.float), ir.Constant(word.float, 2.0**112))
    special = builder.or_(small, word(0x7F800000))
    is_special = builder.icmp_unsigned(">=", small, word(0x7C00 << 13))
    magnitude = builder.select(is_special, special, builder.bitcast(scaled, word.kind))
    return builder.bitcast(builder.or_(sign, magnitude), word.float)


def _to_float16(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    word = _Bits(arguments[0].type)
    if _converts_half():
        return builder.bitcast(builder.fptrunc(arguments[0], word.half), word.short)
    bits = builder.bitcast(arguments[0], word.kind)
    sign = builder.and_(builder.lshr(bits, word(16)), word(0x8000))
    magnitude = builder.and_(bits, word(0x7FFFFFFF))
    normal = builder.sub(_round_to_even(builder, word, magnitude, 13), word(112 << 10))
    # Below 2**-14 the last place is 2**-24, as it is for float32 between 1/2 and 1: the addition rounds.
    half = ir.Constant(word.float, 0.5)
    shifted = builder.fadd(builder.bitcast(magnitude, word.float), half)
    subnormal = builder.sub(builder.bitcast(shifted, word.kind), builder.bitcast(half, word.kind))
    result = builder.select(builder.icmp_unsigned("<", magnitude, word(113 << 23)), subnormal, normal)
    # Rounding up the largest float16 carries into infinity by itself; beyond 2**16 the exponent does not fit.
    result = builder.select(builder.icmp_unsigned(">=", magnitude, word(143 << 23)), word(0x7C00), result)
    quiet = builder.or_(word(0x7E00), builder.and_(builder.lshr(magnitude, word(13)), word(0x3FF)))
    result = builder.select(builder.icmp_unsigned(">", magnitude, word(0x7F800000)), quiet, result)
    return builder.trunc(builder.or_(sign, result), word.short)


def _from_bfloat16(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    word = _Bits(arguments[0].type)
    return builder.bitcast(builder.shl(builder.zext(arguments[0], word.kind), word(16)), word.float)


def _to_bfloat16(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    # By integers: the instructions for it (AVX512-BF16) flush subnormals to zero.
    word = _Bits(arguments[0].type)
    bits = builder.bitcast(arguments[0], word.kind)
    rounded = _round_to_even(builder, word, bits, 16)
    quiet = builder.or_(builder.lshr(bits, word(16)), word(0x40))
    nan = builder.fcmp_unordered("uno", arguments[0], arguments[0])
    return builder.trunc(builder.select(nan, quiet, rounded), word.short)


def _round_to_even(builder: ir.IRBuilder, word: _Bits, bits: ir.Value, places: int) -> ir.Value:
    """Shift right by `places`, rounding: add just under half of the last place kept, and one more if that is odd."""
    odd = builder.and_(builder.lshr(bits, word(places)), word(1))
    addend = builder.add(word((1 << (places - 1)) - 1), odd)
    return builder.lshr(builder.add(bits, addend), word(places))
