"""sin and cos as LLVM IR; a kernel that takes both of one number reduces it once.

Beyond a limit the C library's functions take over, for each element alone, in a branch that is almost never taken.
"""

from __future__ import annotations

from dataclasses import dataclass

from dualbcast.codegen.mathlib.fallback import library, or_rarely
from dualbcast.codegen.mathlib.primitives import absolute, fma, for_format, format_of, polynomial, rounded, sign_of
from dualbcast.codegen.values import Value

__all__ = ["cos", "sin"]


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


def sin(x: Value) -> Value:
    sine, cosine, quarters = _reduced(x)
    is_odd = quarters.truncated(1)
    # The sign is that of x, and the opposite in every other half of a period.
    turned = quarters << (format_of(x).width - 2)
    sign = sign_of(turned ^ x.bits())
    return _or_library("sin", x, is_odd.choose(cosine, sine), sign)


def cos(x: Value) -> Value:
    sine, cosine, quarters = _reduced(x)
    is_odd = quarters.truncated(1)
    sign = sign_of(quarters + 1 << (format_of(x).width - 2))
    return _or_library("cos", x, is_odd.choose(sine, cosine), sign)


def _reduced(argument: Value) -> tuple[Value, Value, Value]:
    """sin(r), cos(r) and the whole number n with abs(x) = n * pi / 2 + r (Cody and Waite), in its last bits."""
    constants = for_format(argument, _FLOAT32, _FLOAT64)
    x = absolute(argument)
    shifted = fma(x, 1 / _FLOAT64.half_pi[0], format_of(x).shifter)
    n, r = rounded(shifted), x
    # The first of these is exact.
    for part in constants.half_pi:
        r = fma(n, -part, r)
    square = r * r
    sine = fma(r * square, polynomial(constants.sine, square), r)
    high = fma(square, -0.5, 1.0)
    cosine = fma(square * square, polynomial(constants.cosine, square), high)
    return sine, cosine, shifted.bits()


def _or_library(name: str, x: Value, size: Value, sign: Value) -> Value:
    """A number with its sign turned over or not, or where x is large what the C library has."""
    result = (size.bits() ^ sign).as_float()
    is_large = absolute(x) > for_format(x, _FLOAT32, _FLOAT64).limit
    return or_rarely(is_large, result, lambda: library(name, x))
