"""The logarithm of the gamma function as LLVM IR; the C library takes negative numbers.

Near its zeros, at 1 and 2, it is a quotient of polynomials, beyond some limit Stirling's series; between the two an
argument is made smaller step by step, and the logarithm of the product is added.
"""

from __future__ import annotations

from typing import NamedTuple

from dualbcast.codegen.mathlib.fallback import library, or_rarely
from dualbcast.codegen.mathlib.log import log
from dualbcast.codegen.mathlib.primitives import fma, for_format, polynomial
from dualbcast.codegen.values import Value

__all__ = ["lgamma"]


class _Constants(NamedTuple):
    """What depends on the format; `docs/generate_coefficients.py` finds them.

    Attributes
    ----------
    steps : int
        From 3 and this on Stirling's series is taken; below, an argument is brought between 2 and 3 in so many steps.
    above, below : tuple of float
        A and B in lgamma(1 + d) = d * (d - 1) * (1/2 + A(d) / B(d)) for 0 <= d <= 2.
    far : tuple of float
        W in lgamma(x) = (x - 1/2) * log(x) - x + log(2 * pi) / 2 + W(1 / x**2) / x.
    """

    steps: int
    above: tuple[float, ...]
    below: tuple[float, ...]
    far: tuple[float, ...]


_FLOAT32 = _Constants(
    steps=2,
    above=(
        *(0.07721566408872604, -0.12334825843572617, -0.17724812030792236, -0.03649625927209854),
        -0.00011480622197268531,
    ),
    below=(1.0, 1.5787334442138672, 0.7059047222137451, 0.08244781196117401),
    far=(0.0833333358168602, -0.002777284709736705, 0.0007600902463309467),
)
_FLOAT64 = _Constants(
    steps=5,
    above=(
        *(0.07721566490153287, 0.01440452663600505, -0.3238868264240903, -0.4580914358107913, -0.2523427607661919),
        *(-0.06286509581832742, -0.006592823866126638, -0.00021315214411439707, -4.96008946595292e-08),
    ),
    below=(
        *(1.0, 3.3627359874412033, 4.473114504064916, 2.9969069258876435, 1.0664404591324066),
        *(0.19510630707305127, 0.016221571501007465, 0.0004401892324153569),
    ),
    far=(
        *(0.0833333333333333, -0.0027777777776081224, 0.0007936506659056197, -0.0005952027660288251),
        *(0.000837295914412631, -0.0016529188473655067),
    ),
)
_REST = 0.4189385332046727  # log(2 * pi) / 2 - 1 / 2


def lgamma(x: Value) -> Value:
    constants, one = for_format(x, _FLOAT32, _FLOAT64), x.constant(1.0)
    is_small = x < 1.0
    is_large = x >= 3 + constants.steps
    # gamma(x) is (x - 1) * gamma(x - 1), down to an argument below 3; below 1 it is gamma(1 + x) / x.
    d, product = x - 1.0, one
    for step in range(constants.steps):
        # Each is exact: of a number below 8 one that is at least 1.
        next_d = x - (2 + step)
        is_left = d >= 2.0
        product = is_left.choose(product * d, product)
        d = is_left.choose(next_d, d)
    d = is_small.choose(x, d)
    logarithm = log((is_small | is_large).choose(x, product))
    above = is_large.choose(one, polynomial(constants.above, d))
    below = is_large.choose(x, polynomial(constants.below, d))
    quotient = above / below
    # The zeros at 1 and 2 are taken out, and one half of what is left, so that the quotient's errors count little.
    zeros = d * (d - 1.0)
    near = fma(zeros, quotient, zeros * 0.5) + is_small.choose(-logarithm, logarithm)
    series = fma(polynomial(constants.far, quotient * quotient), quotient, _REST)
    far = fma(x - 0.5, logarithm - 1.0, series)
    is_negative = x < 0.0
    return or_rarely(is_negative, is_large.choose(far, near), lambda: library("lgamma", x))
