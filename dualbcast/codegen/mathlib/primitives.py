"""Steps of elementary functions as LLVM IR, facts about floating-point formats, and calls of libm and libmvec.

All take numbers or vectors. Comparisons are false for NaN. The bits of a NaN are shifted like others: it stays a NaN.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import llvmlite.binding as llvm
from llvmlite import ir

from dualbcast.codegen.llvm import target
from dualbcast.codegen.values import Value, any_of, attribute, declared, intrinsic, is_single, like, lone

# What writes an operation on some values, and gives its result.
Emit = Callable[..., Value]


def has_scaling() -> bool:
    """Whether the host multiplies vectors by powers of two in one instruction, and LLVM knows; it would call a slow
    function for each element else."""
    return llvm.llvm_version_info[0] >= 22 and {"avx512f", "avx512vl"} <= target.features()


# --- floating-point formats -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Format:
    """What depends on the floating-point format. `docs/generate_coefficients.py` finds the coefficients of log and
    erfc; the others interpolate at Chebyshev's points.

    exp(r) is 1 + r + r**2 * P(r) for abs(r) <= log(2) / 2. P leaves out less than a tenth of a unit in the last place.

    log(1 + f) is f - f**2 / 2 + f**3 * P(f) from sqrt(1/2) to sqrt(2).

    erfc(x) is exp(-x**2) * (1 + x * A(x) / (1 + x * B(x))) / (1 + 2 * x) for 0 <= x <= `erfc_end`. All coefficients are
    positive, so nothing cancels; and the quotient is at most 0.29, so its errors count little.

    sin(r) is r + r**3 * S(r**2), and cos(r) is 1 - r**2 / 2 + r**4 * C(r**2), for abs(r) <= pi / 4.
    """

    fraction: int  # its bits
    bias: int  # of the exponent
    width: int  # all bits
    log2: float  # log(2)
    log2_low: float  # what that lacks
    # For logarithms to these bases, log(2) / log(base), in so few digits that products with exponents are exact, and
    # 1 / log(base), each with what it lacks.
    bases: dict[int, tuple[float, float, float, float]]
    # Where exp is infinite, where it is 0, where expm1 is -1, and where tanh is 1, with a little to spare.
    largest: float
    smallest: float
    minus_one: float
    saturated: float
    tiny: float  # below this expm1(x) is x
    erfc_end: float  # from here on erfc is 0, and the square is not yet clamped for exp
    half_pi: tuple[float, float, float]  # three numbers whose sum is pi / 2, each rounded
    farthest: float  # up to here a multiple of them leaves the right remainder
    exponential: tuple[float, ...]  # P of exp, from the constant on
    logarithm: tuple[float, ...]  # P of log
    erfc_above: tuple[float, ...]  # A
    erfc_below: tuple[float, ...]  # B
    sine: tuple[float, ...]  # S
    cosine: tuple[float, ...]  # C

    @property
    def normal(self) -> float:
        """The smallest normal number."""
        return 2.0 ** (1 - self.bias)

    @property
    def shifter(self) -> float:
        """Added to a small number it rounds it to a whole one, which the last bits of the sum then hold."""
        return 1.5 * 2.0**self.fraction


FLOAT32 = Format(
    fraction=23,
    bias=127,
    width=32,
    log2=0.6931471824645996,
    log2_low=-1.9046542121259336e-09,
    bases={
        2: (1.0, 0.0, 1.4426950216293335, 1.925963033500011e-08),
        10: (0.301025390625, 4.605039066518657e-06, 0.4342944920063019, -1.0103049952192578e-08),
    },
    largest=89.0,
    smallest=-104.0,
    minus_one=-18.0,
    saturated=10.0,
    tiny=2.0**-25,
    erfc_end=10.19,
    half_pi=(1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    farthest=2.0**17,
    exponential=(0.5, 0.16666576266288757, 0.041666556149721146, 0.008363178931176662, 0.0013926184037700295),
    logarithm=(
        *(0.3333335518836975, -0.2500085234642029, 0.19999825954437256, -0.16621370613574982, 0.14227114617824554),
        *(-0.13202103972434998, 0.1262032687664032, -0.07362867891788483),
    ),
    erfc_above=(0.8716210722923279, 0.8367740511894226, 0.39160871505737305, 0.09431421756744385, 0.008563670329749584),
    erfc_below=(2.4018921852111816, 2.480891227722168, 1.3997302055358887, 0.44168105721473694, 0.06670189648866653),
    sine=(-0.1666666716337204, 0.008333331905305386, -0.00019840085587929934, 2.7249864160694415e-06),
    cosine=(0.0416666641831398, -0.001388830249197781, 2.454789137118496e-05),
)
FLOAT64 = Format(
    fraction=52,
    bias=1023,
    width=64,
    log2=0.6931471805599453,
    log2_low=2.3190468138462996e-17,
    bases={
        2: (1.0, 0.0, 1.4426950408889634, 2.0355273740931033e-17),
        10: (0.3010299956640665, -8.532344317057107e-14, 0.4342944819032518, 1.098319650216765e-17),
    },
    largest=710.0,
    smallest=-746.0,
    minus_one=-38.0,
    saturated=20.0,
    tiny=2.0**-54,
    erfc_end=27.3,
    half_pi=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
    farthest=2.0**40,
    exponential=(
        *(0.5000000000000001, 0.16666666666666669, 0.04166666666662413, 0.008333333333330062, 0.0013888888917213717),
        *(0.00019841269863053618, 2.4801521295954376e-05, 2.7557268459997064e-06, 2.7620088445409746e-07),
        2.510038549551032e-08,
    ),
    logarithm=(
        *(0.3333333333333286, -0.24999999999988237, 0.2000000000015019, -0.1666666666979154, 0.14285714271206917),
        *(-0.12499999689720186, 0.11111111620272714, -0.10000015584842055, 0.09090909746386354, -0.08332893867515177),
        *(0.07691778451952211, -0.0714992981357431, 0.06682130776502695, -0.06190163458644951, 0.05679883651136751),
        *(-0.057222804813101484, 0.06498536047744115, -0.058586638532475796, 0.025120062610375953),
    ),
    erfc_above=(
        *(0.8716208329044876, 1.7831245672575717, 1.8270761585231294, 1.2076444055999798, 0.5637479853017717),
        *(0.19293373621770568, 0.048843481062885906, 0.009015964116475955, 0.0011605482301868609),
        *(9.399803182262009e-05, 3.617385932762937e-06),
    ),
    erfc_below=(
        *(3.487620748254554, 5.6933303922036895, 5.754361406117451, 4.010904579673181, 2.0302507090841213),
        *(0.7642040747099568, 0.21482770146779076, 0.044441784690802726, 0.006490271328915694, 0.0006083592915899163),
        2.817735941585227e-05,
    ),
    sine=(
        *(-0.16666666666666666, 0.008333333333333331, -0.0001984126984126506, 2.7557319219335453e-06),
        *(-2.5052106231157904e-08, 1.605853141458901e-10, -7.586685070091267e-13),
    ),
    cosine=(
        *(0.041666666666666664, -0.0013888888888887395, 2.4801587298763433e-05, -2.7557317270560326e-07),
        *(2.0876146024689747e-09, -1.1382614868556325e-11),
    ),
)


def format_of(x: Value) -> Format:
    """The format of a number."""
    return FLOAT32 if is_single(x.kind) else FLOAT64


# --- steps ------------------------------------------------------------------------------------------------------------

absolute = functools.partial(intrinsic, "fabs")
copysign = functools.partial(intrinsic, "copysign")
# a * b + c, rounded once.
fma = functools.partial(intrinsic, "fma")


def at_most(limit: float, x: Value) -> Value:
    """The lesser of two numbers; NaN stays."""
    return (x > limit).choose(limit, x)


def at_least(limit: float, x: Value) -> Value:
    """The greater of two numbers; NaN stays."""
    return (x < limit).choose(limit, x)


def rounded(shifted: Value) -> Value:
    """The whole number in the last bits of a sum with `Format.shifter`."""
    return shifted - format_of(shifted).shifter


def halved(x: Value) -> tuple[Value, Value]:
    """2**fraction + bias + n and m, of a normal x = 2**n * m with m from sqrt(1/2) to sqrt(2)."""
    form = format_of(x)
    # Counted from sqrt(1/2) the exponent is n, and what is left is the distance from there. It goes to a float by way
    # of the last bits of one, since AVX2 cannot convert.
    root, one = x.constant(math.sqrt(0.5)).bits(), x.constant(1.0).bits()
    counted = x.bits() - root + one
    exponent = (counted >> form.fraction) | x.constant(2.0**form.fraction).bits()
    return exponent.as_float(), ((counted & ((1 << form.fraction) - 1)) + root).as_float()


def area_argument(m: Value) -> tuple[Value, Value]:
    """s = (m - 1) / (m + 1) of an m from 1/2 to 2, and what s lacks: log(m) is 2 * atanh(s)."""
    above, below = m - 1.0, m + 1.0
    reciprocal = 1.0 / below
    s = above * reciprocal
    # m - (below - 1) is what the sum has lost.
    rest = fma(-s, m - (below - 1.0), fma(-s, below, above))
    return s, rest * reciprocal


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


def reduced_expm1(x: Value) -> tuple[Value, Value]:
    """s and n, so that exp(x) = 2**n * (1 + s), where s is r + r**2 * P(r) (Cody and Waite).

    The integer n is in the last bits of what is returned, which has others above them.
    """
    form = format_of(x)
    shifted = fma(x, 1 / math.log(2.0), form.shifter)
    n = rounded(shifted)
    # The first of these is exact.
    r = fma(n, -form.log2_low, fma(n, -form.log2, x))
    return fma(r * r, polynomial(form.exponential, r), r), shifted.bits()


def clamped(x: Value) -> Value:
    """Above what is left, exp is infinite."""
    return at_most(format_of(x).largest, x)


def exp(x: Value) -> Value:
    s, n = reduced_expm1(clamped(x))
    return scaled_unless(x < format_of(x).smallest, 1.0 + s, n)


def scaled_unless(is_zero: Value, x: Value, n: Value) -> Value:
    """`twice_scaled`, or 0. To round a product to 0 takes processors of Intel's as long as a hundred others."""
    none = x.constant(format_of(x).shifter).bits()
    return is_zero.choose(0.0, twice_scaled(x, is_zero.choose(none, n)))


def half_expm1(x: Value) -> Value:
    """expm1(x) / 2: halved, it is finite wherever 2**(n - 1) is."""
    return half_scaled_expm1(*reduced_expm1(x))


def half_scaled_expm1(s: Value, n: Value) -> Value:
    """expm1(x) / 2, of what `reduced_expm1` gives."""
    scale = power_of_two(n - 1, format_of(s))
    return fma(scale, s, scale - 0.5)


@functools.cache
def binary_exponential(form: Format) -> tuple[float, ...]:
    """P in 2**r = 1 + log(2) * r + r**2 * P(r) for abs(r) <= 1/2."""
    return tuple(c * math.log(2.0) ** (k + 2) for k, c in enumerate(form.exponential))


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
            result = result.with_lane(lane, _called(function, *[vector.lane(lane) for vector in vectors]))
        return result

    if not first.is_vector:
        return _called(function, *arguments)
    return apart(f"{function.name}_each_{first.kind.count}", of_each, *arguments)


def vector_library(name: str, *arguments: Value) -> Value:
    """The value of libmvec's function for vectors, in halves where these are longer than the processor's."""
    first = arguments[0]
    if not first.is_vector:
        return library(name, *arguments)
    lanes = first.kind.count
    version = _versions(_precise(name, first), first.kind.element, len(arguments)).get(lanes)
    if version is not None:
        return _called(_external(version, first.kind, arguments), *arguments)
    parts = [range(lanes // 2), range(lanes // 2, lanes)]
    of_each = [tuple([value.shuffle(value, part) for value in arguments]) for part in parts]
    low, high = (vector_library(name, *part) for part in of_each)
    return low.shuffle(high, range(lanes))


def _versions(name: str, kind: ir.Type, arity: int) -> dict[int, str]:
    """The functions of libmvec that compute C's `name`, by how many are a vector."""
    # The vector function ABI for x86-64: b is SSE, d AVX2 (glibc's also uses FMA), e AVX-512.
    sets = {"b": 128}
    if {"avx2", "fma"} <= target.features():
        sets["d"] = 256
    if {"avx512f", "avx512dq"} <= target.features():
        sets["e"] = 512
    counts = {letter: bits // (32 if is_single(kind) else 64) for letter, bits in sets.items()}
    return {lanes: f"_ZGV{letter}N{lanes}{'v' * arity}_{name}" for letter, lanes in counts.items()}


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
