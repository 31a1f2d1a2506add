"""erfc as LLVM IR, in steps that it shares with exp(-x * x), which its derivative takes."""

from __future__ import annotations

from dataclasses import dataclass

from dualbcast.codegen.mathlib.primitives import (
    absolute,
    at_most,
    clamped,
    fma,
    for_format,
    polynomial,
    reduced_expm1,
    twice_scaled,
)
from dualbcast.codegen.values import Value

__all__ = ["erfc"]


@dataclass(frozen=True)
class _Tail:
    """What depends on the format; the coefficients are by docs/generate_coefficients.py.

    Attributes
    ----------
    largest : float
        From here on erfc is 0, and the square is not yet clamped for exp.
    above, below : tuple of float
        A and B in erfc(x) = exp(-x**2) * (1 + x * A(x) / (1 + x * B(x))) / (1 + 2 * x) for 0 <= x <= largest. All are
        positive, so nothing cancels; and the quotient is at most 0.29, so its errors count little.
    """

    largest: float
    above: tuple[float, ...]
    below: tuple[float, ...]


_FLOAT32 = _Tail(
    largest=10.19,
    above=(0.8716210722923279, 0.8367740511894226, 0.39160871505737305, 0.09431421756744385, 0.008563670329749584),
    below=(2.4018921852111816, 2.480891227722168, 1.3997302055358887, 0.44168105721473694, 0.06670189648866653),
)
_FLOAT64 = _Tail(
    largest=27.3,
    above=(
        *(0.8716208329044876, 1.7831245672575717, 1.8270761585231294, 1.2076444055999798, 0.5637479853017717),
        *(0.19293373621770568, 0.048843481062885906, 0.009015964116475955, 0.0011605482301868609),
        *(9.399803182262009e-05, 3.617385932762937e-06),
    ),
    below=(
        *(3.487620748254554, 5.6933303922036895, 5.754361406117451, 4.010904579673181, 2.0302507090841213),
        *(0.7642040747099568, 0.21482770146779076, 0.044441784690802726, 0.006490271328915694, 0.0006083592915899163),
        2.817735941585227e-05,
    ),
)


def erfc(argument: Value) -> Value:
    """exp(-x * x) * (1 + S) / (1 + 2 * x) for positive x, with S = x * A(x) / (1 + x * B(x)); and the mirror image."""
    constants = for_format(argument, _FLOAT32, _FLOAT64)
    # As the rules in the table write it, so that LLVM sees that it is the same.
    square = clamped(-argument * argument)
    x = at_most(constants.largest, absolute(argument))
    above = x * polynomial(constants.above, x)
    below = fma(x, polynomial(constants.below, x), 1.0)
    head = (above + below) / fma(x + x, below, below)
    # What the square lost when it was rounded, which exp would magnify.
    rest = fma(x, x, square) * -head
    # exp without its 1: all of it is added to what is there in one step, so that only this rounds.
    small, n = reduced_expm1(square)
    tail = twice_scaled(head + fma(small, head + rest, rest), n)
    return (argument < 0.0).choose(2.0 - tail, tail)
