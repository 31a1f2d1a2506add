"""A library's functions of vectors as LLVM IR. Arguments outside their ranges, and those that the library would
compute element by element, are handled here.

glibc's libmvec hands zero, negative, subnormal and infinite bases, and powers beyond the format, to the function for
single numbers, which takes ten times as long. If a vector has any of these, the library gets the absolute values of the
bases instead, and 1 where IEEE 754 prescribes the power. The powers of all other numbers keep their bits.

Where an argument is outside a function's domain or infinite, or the value is infinite, glibc's libmvec calls the
function for single numbers, which takes up to six times as long. A branch of which both sides are computed has such
arguments where it does not need the value. So the library gets a harmless number, and the value is selected afterwards.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import llvmlite.binding as llvm
from llvmlite import ir

from dualbcast.codegen.llvm import target
from dualbcast.codegen.mathlib.primitives import (
    Emit,
    absolute,
    called,
    copysign,
    for_format,
    format_of,
    is_even,
    sign_of,
)
from dualbcast.codegen.values import Value, any_of, attribute, declared, intrinsic, is_single, lone

# The weights of the rare side of a branch and of the usual one.
_RARELY = (1, 2000)


def or_rarely(is_rare: Value, result: Value, otherwise: Callable[[], Value]) -> Value:
    """`result`, or where `is_rare` is true the value of `otherwise`, which is computed if that is so anywhere."""

    def some() -> Value:
        return is_rare.choose(otherwise(), result) if is_rare.is_vector else otherwise()

    return instead(is_rare, lambda: result, some)


def instead(is_rare: Value, usual: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
    """The value of `usual`; or all of it by `otherwise`, if `is_rare` is true anywhere."""
    builder = is_rare.builder
    ways = [builder.append_basic_block(name) for name in ("rare", "usual")]
    after = builder.append_basic_block("common")
    builder.cbranch(any_of(builder, is_rare.value), *ways).set_weights(_RARELY)
    values = []
    for way, compute in zip(ways, (otherwise, usual), strict=True):
        builder.position_at_end(way)
        values.append((compute(), builder.block))
        builder.branch(after)
    builder.position_at_end(after)
    phi = builder.phi(values[0][0].kind)
    for value, block in values:
        phi.add_incoming(value.value, block)
    return Value(builder, phi)


# The attributes of functions that depend on nothing but their arguments.
_PURE = ("memory(none)", "nounwind", "willreturn")


def library(name: str, *arguments: Value) -> Value:
    """The value of a function of the C library, of vectors for each element."""
    first = arguments[0]
    function = _external(target.symbol(_precise(name, first)), lone(first.kind), arguments)

    def of_each(*vectors: Value) -> Value:
        result = Value(vectors[0].builder, ir.Constant(first.kind, ir.Undefined))
        for lane in range(first.kind.count):
            result = result.with_lane(lane, called(function, *[vector.lane(lane) for vector in vectors]))
        return result

    if not first.is_vector:
        return called(function, *arguments)
    return apart(f"{function.name}_each_{first.kind.count}", of_each, *arguments)


def vector_library(name: str, *arguments: Value) -> Value:
    """The value of libmvec's function for vectors, in halves where these are longer than the processor's."""
    first = arguments[0]
    if not first.is_vector:
        return library(name, *arguments)
    lanes = first.kind.count
    version = _versions(_precise(name, first), first.kind.element, len(arguments)).get(lanes)
    if version is not None:
        return called(_external(version, first.kind, arguments), *arguments)
    parts = [range(lanes // 2), range(lanes // 2, lanes)]
    of_each = [tuple([value.shuffle(value, part) for value in arguments]) for part in parts]
    low, high = (vector_library(name, *part) for part in of_each)
    return low.shuffle(high, range(lanes))


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
    return called(function, *arguments)


# log2(1 + f) is more than f by at most this much, of which the last digits are for what is cut off.
_BEND = 0.0861


def of_any_base(library: Emit) -> Emit:
    """pow, by one that takes long for some bases and powers in a vector."""

    def emit(x: Value, y: Value) -> Value:
        if not x.is_vector:
            return library(x, y)
        form = format_of(x)
        smallest = x.constant(form.normal).bits()
        span = x.constant(math.inf).bits() - smallest
        is_normal = (x.bits() - smallest).unsigned("<", span)
        size = absolute(y * _power_logarithm(x))
        is_ordinary = is_normal & (size < form.bias - 3)
        symbol = f"dualbcast_pow_of_any_{x.kind.count}_{form.width}"
        of_all = functools.partial(_of_all, library)
        return instead(~is_ordinary, lambda: library(x, y), lambda: apart(symbol, of_all, x, y, cold=True))

    return emit


def _power_logarithm(x: Value) -> Value:
    """k + f of a positive x = 2**k * (1 + f): less than log2(x) by at most `_BEND`; of a subnormal x it is more."""
    form = format_of(x)
    if is_single(x.kind):
        # Of numbers that have a sign, too: nobody uses it.
        whole = Value(x.builder, x.builder.sitofp(x.bits().value, x.kind))
        return whole * 2.0**-form.fraction - form.bias
    # AVX2 cannot convert, so it goes to a float by way of the last bits of one.
    high = (x.bits() >> 32) | x.constant(2.0**form.fraction).bits()
    whole = high.as_float() - 2.0**form.fraction
    return whole * 2.0 ** (32 - form.fraction) - form.bias


def _of_all(library: Emit, x: Value, y: Value) -> Value:
    """The powers of vectors in which some number is not ordinary."""
    form, one = format_of(x), x.constant(1.0)
    base, size = absolute(x), absolute(y)
    # Where the power is surely infinite or 0, in absolute value.
    low = _power_logarithm(base)
    high = low + _BEND
    is_down = y < 0.0
    most, least = (y * is_down.choose(*ways) for ways in ((low, high), (high, low)))
    is_beyond = least > form.bias + 2
    is_below = most < -form.bias - form.fraction - 1
    is_end = (base == 0.0) | (base == math.inf) | (size == math.inf) | (is_beyond | is_below)
    is_nan = x.unordered("uno", y)
    is_known = is_end | is_nan
    power = library(*(is_known.choose(one, value) for value in (base, y)))
    grows = (base > 1.0) ^ is_down
    end = grows.choose(x.constant(math.inf), 0.0)
    # 1 to an infinite power is 1, that of -1 too.
    end = (base == 1.0).choose(one, end)
    power = is_end.choose(end, power)
    # Of a negative base the power has its sign where the exponent is odd, and is none where that is not whole.
    is_whole, even = intrinsic("trunc", y) == y, is_even(y)
    sign = sign_of(x.bits())
    signed = power.bits() | (is_whole & ~even).choose(sign, 0)
    power = signed.as_float()
    is_finite = (x < 0.0) & (x > -math.inf)
    power = (is_finite & ~is_whole).choose(math.nan, power)
    power = is_nan.choose(x + y, power)
    return ((y == 0.0) | (x == 1.0)).choose(one, power)


def _within(inside: Emit, beyond: Emit, harmless: float) -> Callable[[Emit], Emit]:
    """Around a function that takes long outside of a range: there it gets a harmless number, and `beyond` its value."""

    def around(library: Emit) -> Emit:
        def emit(x: Value) -> Value:
            if not x.is_vector:
                return library(x)
            is_inside = inside(x)

            def some() -> Value:
                return is_inside.choose(library(is_inside.choose(x, harmless)), beyond(x))

            return instead(~is_inside, lambda: library(x), some)

        return emit

    return around


def _nan(x: Value) -> Value:
    return x.constant(math.nan)


def _at_pole(x: Value, pole: float) -> Value:
    return (x == pole).choose(x.constant(-math.inf), math.nan)


def _atanh_beyond(x: Value) -> Value:
    infinite = copysign(x.constant(math.inf), x)
    return (absolute(x) == 1.0).choose(infinite, math.nan)


def _exp2_is_ordinary(x: Value) -> Value:
    form = format_of(x)
    is_above = x > -form.bias - form.fraction - 1
    return is_above & (x < form.bias + 1)


def _is_at_most_one(x: Value) -> Value:
    return absolute(x) <= 1.0


def _has_finite_exp(x: Value) -> Value:
    return absolute(x) < for_format(x, 90.0, 711.0)


# Of more than a pole. (Infinity takes twice as long, and a second test would cost all.)
_LOGARITHM = _within(lambda x: x > 0.0, lambda x: _at_pole(x, 0.0), 1.0)
# The code around the library's function of vectors.
AROUND: dict[str, Callable[[Emit], Emit]] = {
    "pow": of_any_base,
    "exp2": _within(_exp2_is_ordinary, lambda x: (x < 0.0).choose(0.0, x * math.inf), 0.0),
    "log2": _LOGARITHM,
    "log10": _LOGARITHM,
    "log1p": _within(lambda x: x > -1.0, lambda x: _at_pole(x, -1.0), 0.0),
    "asin": _within(_is_at_most_one, _nan, 0.0),
    "acos": _within(_is_at_most_one, _nan, 0.0),
    "atanh": _within(lambda x: absolute(x) < 1.0, _atanh_beyond, 0.0),
    "acosh": _within(lambda x: x >= 1.0, _nan, 2.0),
    "sinh": _within(_has_finite_exp, lambda x: x * math.inf, 0.0),
    "cosh": _within(_has_finite_exp, lambda x: absolute(x) * math.inf, 0.0),
    "tan": _within(lambda x: absolute(x) < math.inf, _nan, 0.0),
}
