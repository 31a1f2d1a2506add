"""sin and cos as LLVM IR; a kernel that takes both of one number reduces it once.

Beyond some limit the C library's functions take over, for each element alone: a branch that is next to never taken,
and whose calls nothing else is laid out for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from dualbcast.codegen.mathlib.fallback import library, or_rarely
from dualbcast.codegen.mathlib.primitives import Steps
from dualbcast.codegen.mathlib.vector_types import is_single, like

__all__ = ["FUNCTIONS"]


@dataclass(frozen=True)
class _Trigonometry:
    """What depends on the format.

    Attributes
    ----------
    half_pi : tuple of float
        Three numbers whose sum is pi / 2, each rounded.
    limit : float
        Up to here a multiple of them leaves the right remainder.
    sine, cosine : tuple of float
        S and C in sin(r) = r + r**3 * S(r**2) and cos(r) = 1 - r**2 / 2 + r**4 * C(r**2) for abs(r) <= pi / 4; they
        interpolate at Chebyshev's points.
    """

    half_pi: tuple[float, float, float]
    limit: float
    sine: tuple[float, ...]
    cosine: tuple[float, ...]


_FLOAT32 = _Trigonometry(
    half_pi=(1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    limit=2.0**17,
    sine=(-0.1666666716337204, 0.008333331905305386, -0.00019840085587929934, 2.7249864160694415e-06),
    cosine=(0.0416666641831398, -0.001388830249197781, 2.454789137118496e-05),
)
_FLOAT64 = _Trigonometry(
    half_pi=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
    limit=2.0**40,
    sine=(
        *(-0.16666666666666666, 0.008333333333333331, -0.0001984126984126506, 2.7557319219335453e-06),
        *(-2.5052106231157904e-08, 1.605853141458901e-10, -7.586685070091267e-13),
    ),
    cosine=(
        *(0.041666666666666664, -0.0013888888888887395, 2.4801587298763433e-05, -2.7557317270560326e-07),
        *(2.0876146024689747e-09, -1.1382614868556325e-11),
    ),
)


def _sin(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    (x,) = arguments
    f = Steps(builder, x.type)
    sine, cosine, quarters = _reduced(f, x)
    odd = builder.trunc(quarters, like(f.kind, ir.IntType(1)))
    # The sign is that of x, turned over in every other half of a turn.
    turned = builder.shl(quarters, f.integer(f.width - 2))
    sign = builder.and_(builder.xor(turned, f.bits(x)), f.integer(1 << (f.width - 1)))
    return _or_library(f, "sin", x, _with_sign(f, builder.select(odd, cosine, sine), sign))


def _cos(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    (x,) = arguments
    f = Steps(builder, x.type)
    sine, cosine, quarters = _reduced(f, x)
    odd = builder.trunc(quarters, like(f.kind, ir.IntType(1)))
    turned = builder.shl(builder.add(quarters, f.integer(1)), f.integer(f.width - 2))
    sign = builder.and_(turned, f.integer(1 << (f.width - 1)))
    return _or_library(f, "cos", x, _with_sign(f, builder.select(odd, sine, cosine), sign))


FUNCTIONS = {"sin": _sin, "cos": _cos}


def _reduced(f: Steps, argument: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """sin(r), cos(r) and the whole number n with abs(x) = n * pi / 2 + r (Cody and Waite), in its last bits."""
    builder, constants = f.builder, _FLOAT32 if is_single(f.kind) else _FLOAT64
    x = f.absolute(argument)
    shifted = f.fma(x, f.number(1 / _FLOAT64.half_pi[0]), f.number(f.shifter))
    n, r = builder.fsub(shifted, f.number(f.shifter)), x
    # The first of these is exact.
    for part in constants.half_pi:
        r = f.fma(n, f.number(-part), r)
    square = builder.fmul(r, r)
    sine = f.fma(builder.fmul(r, square), f.polynomial(constants.sine, square), r)
    high = f.fma(square, f.number(-0.5), f.number(1))
    cosine = f.fma(builder.fmul(square, square), f.polynomial(constants.cosine, square), high)
    return sine, cosine, f.bits(shifted)


def _with_sign(f: Steps, x: ir.Value, sign: ir.Value) -> ir.Value:
    return f.builder.bitcast(f.builder.xor(f.bits(x), sign), f.kind)


def _or_library(f: Steps, name: str, x: ir.Value, result: ir.Value) -> ir.Value:
    """`result`, or where x is large the C library's."""
    builder, limit = f.builder, (_FLOAT32 if is_single(f.kind) else _FLOAT64).limit
    large = builder.fcmp_ordered(">", f.absolute(x), f.number(limit))
    return or_rarely(builder, large, result, lambda: library(f, name, [x]))
