"""Powers as LLVM IR, and what they share: the logarithm of the base, and the power with an exponent that is less by 1.

A power is 2**(y * log2(x)). Its logarithm is the sum of two numbers, so that the product with y, which may be as large
as the exponents of the format, still has all digits behind the point. The logarithm depends on the base alone, and is
computed once for all powers of one base. A power of a base that is known is an exponential with steps of another size.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np

from dualbcast.codegen.mathlib import tables
from dualbcast.codegen.mathlib.elementary import cube_root
from dualbcast.codegen.mathlib.exponentials import binary_exponential, binary_root, parts_of, power_of
from dualbcast.codegen.mathlib.formats import Format, format_of
from dualbcast.codegen.mathlib.logarithms import area_argument, cell, halved, log
from dualbcast.codegen.mathlib.primitives import (
    Emit,
    absolute,
    apart,
    at_most,
    fma,
    in_halves,
    instead,
    is_even,
    or_rarely,
    polynomial,
    scaled_unless,
    shared,
    sign_of,
)
from dualbcast.codegen.values import Value, intrinsic

# `docs/generate_coefficients.py` finds these. For float32, in float64: L in log2(1 + f) = f * L(f) from sqrt(1/2) to
# sqrt(2), and E in 2**r = 1 + r * E(r) for abs(r) <= 1/2.
_LOGARITHM = (
    *(1.4426950408710328, -0.7213475209708019, 0.4808983600896932, -0.36067365375866733),
    *(0.2885374015097425, -0.24045442909032358, 0.2061726577864715, -0.18026873041872704),
    *(0.1587843622435105, -0.14351601851737106, 0.14496738242394488, -0.14134209581191587),
    0.0753963473902749,
)
_EXPONENTIAL = (
    *(0.6931472067106199, 0.24022651084149668, 0.05550327214209201, 0.009618035958601058),
    *(0.0013400432165385696, 0.00015467364972853427),
)
# The same with tables, for abs(f) < 0.0326 and abs(r) <= 1/32.
_SHORT_LOGARITHM = (
    *(1.4426950408966397, -0.7213475204488004, 0.4808982165922832, -0.36067365519600325, 0.28886695498295245),
    -0.24072930169388185,
)
_SHORT_EXPONENTIAL = (0.693147180162568, 0.2402343343197213, 0.055505736315523184)
# For float64: C and D, each with what it lacks, and P in log2((1 + s) / (1 - s)) = s * (C + D * s**2 + s**4 * P(s**2)).
_FIRST, _FIRST_LOW = 2.8853900817779268, 4.0710547481862066e-17
_SECOND, _SECOND_LOW = 0.9617966939259756, 5.0577616648125907e-17
_TAIL = (
    *(0.5770780163555853, 0.41219858311114393, 0.3205988979671268, 0.2623081914737236),
    *(0.22195278805489357, 0.19238059191781123, 0.16888466474590988, 0.16913566786993894),
)
# For float64, with tables: P in log(1 + z) = z - z**2 / 2 + z**3 * P(z), and 1 / log(2), with what it lacks.
_SHORT_TAIL = (
    *(0.3333333333333333, -0.24999999999998823, 0.1999999999999911, -0.16666666675552858, 0.14285714293358082),
    *(-0.1249997764620712, 0.11111091101542242, -0.1002299806951379, 0.091118971287275),
)
_LOG2E, _LOG2E_LOW = 1.4426950408889634, 2.0355273740931033e-17


def pow(x: Value, y: Value) -> Value:
    """x to the power y, for all numbers."""
    if x.known is not None and x.known != 1.0 and format_of(x).normal <= x.known < math.inf:
        return power_of(x.known, y)
    if y.known is not None and (thirds := _thirds(format_of(x), y.known)):
        return or_rarely(~_is_normal(x), _of_thirds(x, y.known, thirds), lambda: _apart("pow", _of_any, x, y))
    is_rare = ~_is_normal(x) | absolute(y).unordered(">=", math.inf)
    logarithm = _logarithm(x)
    # Ordinary numbers have the same bits either way.
    return instead(is_rare, lambda: _power(logarithm, y), lambda: _apart("pow", _of_any, x, y))


def _thirds(form: Format, y: float) -> int:
    """How many thirds an exponent is that a program writes as a quotient, such as 2 / 3; 0 for others."""
    thirds = round(3 * y) if abs(y) < 2 else 0
    nearest = thirds / 3 if form.width == 64 else float(np.float32(thirds / 3))
    return thirds if thirds in (-2, -1, 1, 2, 4, 5) and y == nearest else 0


def _of_thirds(x: Value, y: float, thirds: int) -> Value:
    """x to the power y, which is a number of thirds but for its rounding, by the cube root."""
    form = format_of(x)
    root, low, n, shifted = cube_root(x)
    # What the exponent has lost, times log(x), of which a digit will do.
    lost = n * (float(Fraction(y) - Fraction(thirds, 3)) * form.log2)
    if thirds % 3 == 1:
        power, places = root + fma(root, lost, low), shifted
    else:
        square = root * root
        square_low = fma(root + root, low, fma(root, root, -square))
        power, places = square + fma(square, lost, square_low), shifted << 1
    scaled = (power.bits() + (places << form.fraction)).as_float()
    return scaled / x if thirds < 0 else scaled * x if thirds > 3 else scaled


def base_logarithm(x: Value) -> Value:
    """log(x), by the code that powers of x have."""
    form = format_of(x)
    high, *low = _logarithm(x)
    result = (
        fma(high, form.log2, fma(high, form.log2_low, low[0] * form.log2))
        if low
        else (high * math.log(2.0)).to("float32")
    )
    return or_rarely(~_is_normal(x), result, lambda: _apart("log", log, x))


def divided_power(x: Value, p: Value, y: Value) -> Value:
    """x to the power p - 1, given the power y to p: y / x, unless one of these has lost digits or is no number."""
    ratio = y / x
    is_rare = ~(_is_normal(absolute(y)) & _is_normal(absolute(ratio)))
    return or_rarely(is_rare, ratio, lambda: _apart("divided_power", _divided_of_any, x, p, y))


def _apart(name: str, write: Emit, *arguments: Value) -> Value:
    """What `write` writes of the arguments, in a function that stands apart."""
    first = arguments[0]
    if first.lanes * format_of(first).width > 512:  # Several vectors share a function, which takes long to compile.
        return in_halves(functools.partial(_apart, name, write), *arguments)
    symbol = f"dualbcast_{name}_of_any_{first.lanes}_{format_of(first).width}"
    return apart(symbol, write, *arguments, cold=True)


@shared
def _is_normal(x: Value) -> Value:
    """Whether a number is positive, finite and normal."""
    smallest = x.constant(format_of(x).normal).bits()
    span = x.constant(math.inf).bits() - smallest
    return (x.bits() - smallest).unsigned("<", span)


@shared
def _logarithm(x: Value, *lift: Value) -> tuple[Value, ...]:
    """log2(x) - lift of a normal positive x: in float64 for float32, for float64 as the sum of two numbers of which the
    second is small.

    With x = 2**n * m the first is n + f * L(f), where f = m - 1. The second is n + s * (C + D * s**2 + s**4 * P(s**2)),
    where s = (m - 1) / (m + 1), and the terms with C and D are sums of two numbers, too. What is lost is less than
    2**-35 of the logarithm, and 2**-64.
    """
    form, in_tables = format_of(x), tables.available()
    exponent, m, place = halved(x, tables.START if in_tables else math.sqrt(0.5))
    n = exponent - (2.0**form.fraction + form.bias)
    if lift:
        n = n - lift[0]
    if form.width == 32:
        m, n = m.to("float64"), n.to("float64")
        if in_tables:
            reciprocal, logarithm, _ = cell(place.to("int64"), 2)
            f = fma(m, reciprocal, -1.0)
            return (fma(f, polynomial(_SHORT_LOGARITHM, f), n + logarithm),)
        f = m - 1.0
        return (fma(f, polynomial(_LOGARITHM, f), n),)
    if in_tables:
        return _looked_up(n, m, place)
    s, s_low = area_argument(m)
    square = s * s
    square_low = fma(s + s, s_low, fma(s, s, -square))
    term = square * _SECOND
    term_low = fma(square, _SECOND, -term) + fma(square_low, _SECOND, square * _SECOND_LOW)
    tail = fma(square * square, polynomial(_TAIL, square), term_low + _FIRST_LOW)
    factor = term + _FIRST
    factor_low = (_FIRST - factor + term) + tail
    product = s * factor
    product_low = fma(s, factor, -product) + fma(s, factor_low, s_low * factor)
    high = n + product
    low = (n - high + product) + product_low
    return _normalised(high, low)


def _looked_up(n: Value, m: Value, place: Value) -> tuple[Value, Value]:
    """log2(2**n * m) as the sum of two numbers, of which the second is small."""
    reciprocal, logarithm, lacking = cell(place, 2)
    product = m * reciprocal
    z, z_low = product - 1.0, fma(m, reciprocal, -product)
    # log(1 + z) is z - z**2 / 2 + z**3 * P(z), and its slope is nearly 1 - z + z**2.
    square = z * z
    first = fma(square, -0.5, z)
    lost = fma(fma(z, z, -square), -0.5, fma(z_low, square - z, z_low))
    first_low = fma(square, -0.5, z - first) + lost
    rest = fma(square * z, polynomial(_SHORT_TAIL, z), first_low)
    high = first * _LOG2E
    low = fma(first, _LOG2E, -high) + fma(first, _LOG2E_LOW, rest * _LOG2E)
    # Exact, and larger than what is added, or 0.
    whole = n + logarithm
    total = whole + high
    return _normalised(total, (whole - total + high) + (low + lacking))


def _normalised(high: Value, low: Value) -> tuple[Value, Value]:
    """Two numbers with the same sum, of which the second is as small as can be."""
    total = high + low
    return total, high - total + low


def _power(logarithm: tuple[Value, ...], y: Value) -> Value:
    """2**(y * logarithm), where the product is not NaN."""
    form = format_of(y)
    high, *low = logarithm
    y = y.to("float64")
    # Beyond these it is 0 or infinite.
    least, most = -form.bias - form.fraction - 1.0, form.bias + 8.0
    product = at_most(most, y * high)
    is_zero = product < least
    rest, place, n = parts_of(product)
    if not low:
        # A float64 has room for the exponents of all float32 and more.
        if tables.available():
            root = tables.entry(tables.roots_of_two()[0], place)
            power = fma(root, rest * polynomial(_SHORT_EXPONENTIAL, rest), root)
        else:
            power = fma(rest, polynomial(_EXPONENTIAL, rest), rest.constant(1.0))
        return is_zero.choose(0.0, (power.bits() + (n << 52)).as_float()).to("float32")
    product_low = (product < most).choose(fma(y, low[0], fma(y, high, -product)), 0.0)
    if tables.available():
        return scaled_unless(is_zero, binary_root(rest + product_low, place), n)
    r = rest + product_low
    r_low = rest - r + product_low
    # What 1 + log(2) * r loses comes in with the terms that are smaller, so that only the last sum rounds.
    first = r * form.log2
    total = first + 1.0
    first_low = fma(r, form.log2, -first) + fma(r, form.log2_low, r_low * form.log2)
    small = fma(r * r, polynomial(binary_exponential(form), r), first_low)
    return scaled_unless(is_zero, total + ((1.0 - total + first) + small), n)


def _of_any(x: Value, y: Value) -> Value:
    """The powers of vectors in which some number is not ordinary."""
    form, one = format_of(x), x.constant(1.0)
    base, lift = absolute(x), 2 * form.fraction
    is_subnormal = base < form.normal
    is_finite = (base > 0.0) & (base < math.inf)
    normal = is_finite.choose(is_subnormal.choose(base * 2.0**lift, base), one)
    high, *low = _logarithm(normal, is_subnormal.choose(x.constant(lift), 0.0))
    high = is_finite.choose(high, (base == 0.0).choose(high.constant(-math.inf), math.inf))
    power = _power((high, *low), y)
    # 1 to an infinite power is 1, that of -1 too.
    power = (base == 1.0).choose(one, power)
    # Of a negative base the power has its sign where the exponent is odd, and is none where that is not whole.
    is_whole, even = intrinsic("trunc", y) == y, is_even(y)
    power = (power.bits() | (is_whole & ~even).choose(sign_of(x.bits()), 0)).as_float()
    power = ((x < 0.0) & (x > -math.inf) & ~is_whole).choose(math.nan, power)
    power = (x.unordered("uno", y)).choose(x + y, power)
    return ((y == 0.0) | (x == 1.0)).choose(one, power)


def _divided_of_any(x: Value, p: Value, y: Value) -> Value:
    """As the rule's function in the scalar language: where p - 1 is not exact, the power would magnify its rounding."""
    lower = p - 1.0
    is_exact = (absolute(p) >= 1.0) & (p - lower == 1.0)
    is_power = is_exact | (x == 0.0) | (absolute(x) == math.inf)
    return is_power.choose(_of_any(x, lower), y / x)
