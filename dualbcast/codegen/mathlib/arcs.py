"""The inverses of the circular functions as LLVM IR: polynomials on a short interval, to which angles lead back.

Comes in: a slope, the sides of a triangle, a sine or a cosine. Goes out: the angle.
"""

from __future__ import annotations

import math

from dualbcast.codegen.mathlib.formats import format_of
from dualbcast.codegen.mathlib.primitives import (
    absolute,
    copysign,
    fma,
    or_rarely,
    polynomial,
    shared,
)
from dualbcast.codegen.values import Value, intrinsic


def atan(x: Value) -> Value:
    one = x.constant(1.0)
    size = absolute(x)
    is_steep = size > one
    longer, shorter = is_steep.choose(size, one), is_steep.choose(one, size)
    return copysign(_angle(shorter, longer, is_steep, is_steep.choose(one + one, 0.0), one), x)


def atan2(y: Value, x: Value) -> Value:
    angle, longer = _angle_of_sides(y, x)

    def scaled() -> Value:
        """That of sides whose sum is finite: a quarter of them; or, if one is infinite, 1 for each infinite one."""
        a, b = absolute(x), absolute(y)
        is_infinite = (a == math.inf) | (b == math.inf)
        sides = [
            copysign(is_infinite.choose((side == math.inf).choose(side.constant(1.0), side * 0.0), side * 0.25), of)
            for side, of in ((b, y), (a, x))
        ]
        return _angle_of_sides(*sides)[0]

    return or_rarely(longer > 2.0 ** (format_of(x).bias - 1), angle, scaled)


def _angle_of_sides(y: Value, x: Value) -> tuple[Value, Value]:
    """The angle, and the longer one of two sides whose sum is finite."""
    one = x.constant(1.0)
    a, b = absolute(x), absolute(y)
    is_steep, is_left = b > a, x.bits() < 0
    longer, shorter = is_steep.choose(b, a), is_steep.choose(a, b)
    longer = (longer == 0.0).choose(one, longer)  # the angle of (0, 0) is that of (1, 0)
    axis = is_steep.choose(x.constant(2.0), is_left.choose(x.constant(4.0), 0.0))
    diagonal = is_left.choose(x.constant(3.0), one)
    return copysign(_angle(shorter, longer, is_steep ^ is_left, axis, diagonal), y), longer


def _angle(shorter: Value, longer: Value, is_before: Value, axis: Value, diagonal: Value) -> Value:
    """An angle between 0 and pi by the nearer one of two lines, which are some eighths of a turn from 0.

    The sides are those of the triangle with the axis; `is_before` says whether the angle is less than the axis.
    """
    form = format_of(shorter)
    is_diagonal = shorter > longer * 0.5
    # Seen from the diagonal the sides are their difference, which is exact, and their sum.
    across = shorter - is_diagonal.choose(longer, 0.0)
    along = longer + is_diagonal.choose(shorter, 0.0)
    slope = is_before.choose(-across, across) / along
    square = slope * slope
    rest = slope * square * polynomial(form.arctangent, square)
    line = is_diagonal.choose(diagonal, axis)
    quarter, quarter_low = form.quarter_pi
    return fma(line, quarter, slope + fma(line, quarter_low, rest))


def asin(x: Value) -> Value:
    is_far, sine, rest = _near_arc(x)
    high, low, _ = format_of(x).half_pi
    # Of the larger summands first, whose difference is exact where rounding it would count most.
    far = fma(sine, -2.0, sine.constant(high)) - fma(rest, 2.0, rest.constant(-low))
    return copysign(is_far.choose(far, sine + rest), x)


def acos(x: Value) -> Value:
    is_far, sine, rest = _near_arc(x)
    high, low, _ = format_of(x).half_pi
    is_negative = x < 0.0
    # The angle is near 0 or pi, or else near pi / 2.
    halves = is_far.choose(is_negative.choose(x.constant(2.0), 0.0), 1.0)
    arc = sine + rest
    arc = is_far.choose(arc + arc, arc)
    return fma(halves, high, fma(halves, low, (is_far ^ is_negative).choose(arc, -arc)))


@shared
def _near_arc(x: Value) -> tuple[Value, Value, Value]:
    """Whether abs(x) is above 1/2, and the sine of an angle and what the angle is longer: that of arc sine abs(x), or,
    above 1/2, of half of arc cosine abs(x). Beyond 1 they are NaN."""
    size = absolute(x)
    is_far = size > 0.5
    square = is_far.choose(fma(size, -0.5, size.constant(0.5)), size * size)
    sine = is_far.choose(intrinsic("sqrt", square), size)
    return is_far, sine, sine * square * polynomial(format_of(x).arcsine, square)
