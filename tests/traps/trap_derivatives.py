"""Traps of the derivative: branches not taken, kinks and edges, zero times infinity, comparisons of equal values."""

from __future__ import annotations

import math

import numpy as np
from trap_table import trap

inf, nan = math.inf, math.nan

# --- what an untaken branch computes ---------------------------------------------------------------------------------

UNTAKEN = "Branches not taken"


@trap(UNTAKEN, {(0.0,): (0.0, (0.0,)), (4.0,): (2.0, (0.25,))})
def sqrt_guarded(x):
    """Where both sides are computed, the slope of sqrt at 0 is inf, and 0 · inf is NaN."""
    return math.sqrt(x) if x > 0 else 0.0


@trap(UNTAKEN, {(0.0,): (0.0, (0.0,)), (1.0,): (0.0, (1.0,))})
def entropy(x):
    """The same with log(0): the value is right, the gradient is NaN."""
    return x * math.log(x) if x > 0 else 0.0


@trap(UNTAKEN, {(0.0,): (1.0, (0.0,)), (2.0,): (math.sin(2) / 2, ((2 * math.cos(2) - math.sin(2)) / 4,))})
def cardinal_sine(x):
    """0 / 0 on the side not taken."""
    return math.sin(x) / x if x != 0 else 1.0


@trap(UNTAKEN, {(1000.0,): (1000.0, (1.0,)), (0.0,): (math.log(2), (0.5,))})
def softplus(x):
    """exp overflows on the side not taken."""
    return math.log1p(math.exp(x)) if x < 20 else x


@trap(UNTAKEN, {(1.0,): (0.0, (0.0,)), (0.0,): (math.pi / 2, (-1.0,))})
def angle(x):
    """acos has an infinite slope at the end of its interval."""
    return math.acos(x) if x < 1 else 0.0


@trap(UNTAKEN, {(-1.0, 0.5): (0.0, (0.0, 0.0)), (4.0, 0.5): (2.0, (0.25, 2 * math.log(4)))})
def power_guarded(x, p):
    """A negative base on the side not taken: NaN in both arguments."""
    return x**p if x > 0 else 0.0


@trap(UNTAKEN, {(1.0, 0.0): (0.0, (0.0, 0.0)), (1.0, 2.0): (0.5, (0.5, -0.25))})
def ratio(a, b):
    """Division by zero on the side not taken."""
    return a / b if b != 0 else 0.0


@trap(UNTAKEN, {(0.0, 0.0): (0.0, (0.0, 0.0)), (3.0, 4.0): (3 / 5, (16 / 125, -12 / 125))})
def direction(x, y):
    """The NaN arises before the branch (sqrt at 0), and the side taken does not use it."""
    r = math.sqrt(x * x + y * y)
    if r > 0:
        return x / r
    return 0.0


# --- kinks and edges that are reached --------------------------------------------------------------------------------

EDGES = "Kinks and edges"


@trap(EDGES, {(0.0,): (0.0, (0.0,)), (-2.0,): (2.0, (-1.0,))}, conventions=((1.0,), (-1.0,)))
def abs_at_zero(x):
    """Any slope from -1 to 1 is a subgradient; NaN is wrong."""
    return abs(x)


@trap(EDGES, {(1.0, 1.0): (1.0, (1.0, 0.0)), (2.0, 3.0): (3.0, (0.0, 1.0))}, conventions=((0.5, 0.5), (0.0, 1.0)))
def max_tie(x, y):
    """On a tie the slopes must add up to 1. Python's max returns the first argument, so its derivative is taken."""
    return max(x, y)


@trap(EDGES, {(1.0, 1.0): (1.0, (1.0, 0.0)), (2.0, 3.0): (2.0, (1.0, 0.0))}, conventions=((0.5, 0.5), (0.0, 1.0)))
def min_tie(x, y):
    """The same for min."""
    return min(x, y)


@trap(EDGES, {(2.0,): (2.0, (1.0,))})
def max_of_itself(x):
    """There is a tie at every point, although the derivative exists."""
    return max(x, x)


@trap(EDGES, {(0.0,): (0.0, (1.0,)), (-1.0,): (0.0, (0.0,))}, conventions=((0.0,), (0.5,)))
def relu_at_zero(x):
    """0 and 1/2 are as good as 1."""
    return max(x, 0.0)


@trap(EDGES, {(0.0,): (0.0, (1.0,)), (2.0,): (1.0, (0.0,))}, conventions=((0.0,), (0.5,)))
def clip_at_bound(x):
    """At the bound the derivative is that of x here; some systems take half of it."""
    return np.clip(x, 0.0, 1.0)


@trap(EDGES, {(0.0,): (0.0, (inf,)), (4.0,): (2.0, (0.25,))})
def sqrt_taken(x):
    """If the root itself is wanted, its slope at 0 is inf, not NaN and not some large number."""
    return math.sqrt(x)


@trap(EDGES, {(0.0,): (1.0, (0.0,)), (2.0,): (1.0, (0.0,))})
def power_zero(x):
    """p · x**(p - 1) is 0 · inf."""
    return x**0


@trap(EDGES, {(0.0,): (0.0, (0.0,)), (3.0,): (9.0, (6.0,))})
def power_two(x):
    """The slope in the exponent, x**p · log(x), is 0 · inf, even if the exponent is a constant."""
    return x**2


@trap(
    EDGES,
    {
        (0.0, 2.0): (0.0, (0.0, 0.0)),
        (0.0, 1.0): (0.0, (1.0, 0.0)),
        (0.0, 0.5): (0.0, (inf, 0.0)),
        (2.0, 3.0): (8.0, (12.0, 8 * math.log(2))),
    },
)
def zero_to_the_p(x, p):
    """The exponent is an argument: 0**p · log(0) is 0 · inf, where 0**p = 0 for all p nearby."""
    return x**p


@trap(EDGES, {(0.0, 0.0): (1.0, (0.0, -inf)), (2.0, 0.0): (1.0, (0.0, math.log(2)))}, conventions=((0.0, 0.0),))
def zero_to_the_zero(x, p):
    """x**0 is 1 for every x, so the slope in x is 0. In p it falls from 1 to 0 at once."""
    return x**p


@trap(EDGES, {(0.0, 0.0): (0.0, (nan, nan)), (1.0, 1.0): (math.pi / 4, (0.5, -0.5))}, conventions=((0.0, 0.0),))
def atan2_at_origin(y, x):
    """The angle has no derivative at the origin, so NaN is right, and 0 is a convention."""
    return math.atan2(y, x)


@trap(EDGES, {(0.0, 0.0): (0.0, (0.0, 0.0)), (3.0, 4.0): (5.0, (0.6, 0.8))}, conventions=((nan, nan), (0.5, 0.5)))
def hypot_at_origin(x, y):
    """A kink like that of abs: NaN says that no derivative exists; 0 and (1/2, 1/2) are subgradients."""
    return math.hypot(x, y)


# --- zero times infinity ---------------------------------------------------------------------------------------------

ZERO_TIMES = "Zero times infinity"


@trap(ZERO_TIMES, {(1.0, -1000.0): (inf, (inf, -inf)), (2.0, 0.0): (2.0, (1.0, -2.0))})
def overflowing_product(a, b):
    """Each argument's tangent is 0 in the other's direction; multiplied by inf it is NaN in both."""
    return a * math.exp(-b)


@trap(ZERO_TIMES, {(1.0, 0.5): (-inf, (1.0, 0.0)), (1.0, 2.0): (1 + math.log(2), (1.0, 0.0))})
def log_of_floor(x, y):
    """floor ends differentiation; a zero that is propagated is multiplied by the slope of log at 0, which is inf."""
    return x + math.log(np.floor(y))


@trap(
    ZERO_TIMES,
    {(1.0, 0.0): (-inf, (0.0, inf)), (3.0, 1.0): (math.log(4), (0.25, 0.25))},
)
def log_after_branch(x, y):
    """The path taken does not depend on x, so the slope in x is 0, whatever the slope of log is."""
    s = x if x > 2 else 0.0
    return math.log(s + y)


# --- comparisons of equal values -------------------------------------------------------------------------------------

EQUAL = "Comparisons of equal values"


@trap(EQUAL, {(3.0, 3.0): (9.0, (3.0, 3.0)), (3.0, 2.0): (0.0, (0.0, 0.0))})
def product_if_equal(x, y):
    """The values are equal and the tangents are not. A dual compared as a pair takes the other side."""
    return x * y if x == y else 0.0


@trap(EQUAL, {(1.0,): (1.0, (0.0,)), (3.0,): (9.0, (6.0,))}, conventions=((2.0,),))
def special_point(x):
    """The branch that Python takes is constant. The derivative of the limit, without this point, would be 2."""
    return 1.0 if x == 1 else x * x


@trap(EQUAL, {(3.0,): (3.0, (1.0,)), (4.0,): (8.0, (2.0,))})
def threshold(x):
    """If duals are also compared by their tangents, 3 > 3 is true: another branch, and another value."""
    return 2 * x if x > 3 else x


@trap(
    EQUAL,
    {
        (2.0, 2.0, 1.0): (221.0, (10.0, 100.0, 1.0)),
        (3.0, 1.0, 2.0): (321.0, (100.0, 1.0, 10.0)),
    },
)
def sorted_digits(a, b, c):
    """Sorting by swaps: the derivatives travel with the values, on a tie as well."""
    if a > b:
        a, b = b, a
    if b > c:
        b, c = c, b
    if a > b:
        a, b = b, a
    return a + 10 * b + 100 * c
