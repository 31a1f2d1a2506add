"""The complex hyperbolic and circular functions that have poles or cuts: tanh, tan and the inverse ones.

Their parts have derivatives by the equations of Cauchy and Riemann (`rules/library.py`), from the slopes and curvatures
that are written beside them.
"""

from __future__ import annotations

import math
from typing import Any

from dualbcast.complex_numbers import reciprocal, sqrt, square

# Beyond this, exp(-2 x) is nothing beside 1.
_LARGE = 22.0


def tanh(z: Any) -> Any:
    """The hyperbolic tangent, which does not overflow."""
    return complex(tanh_real(z.real, z.imag), tanh_imag(z.real, z.imag))


def tanh_real(x: float, y: float) -> float:
    """The real part of tanh(x + i y)."""
    if abs(x) > _LARGE:
        return math.copysign(1.0, x)
    t, sine, cosine = math.tanh(x), math.sin(y), math.cos(y)
    # With tan(y) multiplied out, which is infinite at odd multiples of pi / 2.
    return t * (1.0 / (cosine * cosine + (t * sine) * (t * sine)))


def tanh_imag(x: float, y: float) -> float:
    """The imaginary part of tanh(x + i y)."""
    sine, cosine = math.sin(y), math.cos(y)
    if abs(x) > _LARGE:
        return 4.0 * sine * cosine * math.exp(-2.0 * abs(x))
    t, inverse = math.tanh(x), 1.0 / math.cosh(x)
    return sine * cosine * inverse * inverse / (cosine * cosine + (t * sine) * (t * sine))


def tanh_slope(x: float, y: float) -> Any:
    """The derivative of tanh at x + i y, of the same factors: 1 / (cosh(x) * (cos(y) + i tanh(x) * sin(y)))**2."""
    cosine, other = math.cos(y), math.tanh(x) * math.sin(y)
    scale = 1.0 / math.cosh(x) * (1.0 / (cosine * cosine + other * other))
    return square(complex(scale * cosine, -scale * other))


def tanh_curvature(x: float, y: float) -> Any:
    """The second derivative of tanh, by its value and the first one."""
    return -2.0 * (complex(tanh_real(x, y), tanh_imag(x, y)) * tanh_slope(x, y))


def tan(z: Any) -> Any:
    """The tangent."""
    return _by_i(tanh, z)


def asinh(z: Any) -> Any:
    """The inverse hyperbolic sine, by W. Kahan's formula (*Branch cuts for complex elementary functions*, 1987)."""
    return complex(asinh_real(z.real, z.imag), asinh_imag(z.real, z.imag))


def asinh_real(x: float, y: float) -> float:
    """The real part of asinh(x + i y)."""
    below, above = sqrt(complex(1.0 + y, -x)), sqrt(complex(1.0 - y, x))
    return math.asinh(below.real * above.imag - above.real * below.imag)


def asinh_imag(x: float, y: float) -> float:
    """The imaginary part of asinh(x + i y)."""
    below, above = sqrt(complex(1.0 + y, -x)), sqrt(complex(1.0 - y, x))
    return math.atan2(y, below.real * above.real - below.imag * above.imag)


def asinh_slope(x: float, y: float) -> Any:
    """The derivative of asinh at x + i y, 1 / sqrt(1 + z * z), of numbers that do not overflow."""
    scale = 1.0 / max(abs(x), abs(y), 1.0)
    a, b = scale * x, scale * y
    return scale * reciprocal(sqrt(complex((scale - b) * (scale + b) + a * a, 2.0 * a * b)))


def asinh_curvature(x: float, y: float) -> Any:
    """The second derivative of asinh, by the first one."""
    slope = asinh_slope(x, y)
    return -(complex(x, y) * slope * square(slope))


def acosh(z: Any) -> Any:
    """The inverse hyperbolic cosine, by Kahan's formula."""
    return complex(acosh_real(z.real, z.imag), acosh_imag(z.real, z.imag))


def acosh_real(x: float, y: float) -> float:
    """The real part of acosh(x + i y)."""
    below, above = sqrt(complex(x - 1.0, y)), sqrt(complex(x + 1.0, y))
    return math.asinh(below.real * above.real + below.imag * above.imag)


def acosh_imag(x: float, y: float) -> float:
    """The imaginary part of acosh(x + i y)."""
    below, above = sqrt(complex(x - 1.0, y)), sqrt(complex(x + 1.0, y))
    return 2.0 * math.atan2(below.imag, above.real)


def acosh_slope(x: float, y: float) -> Any:
    """The derivative of acosh at x + i y, by that of acos."""
    return _towards(y, acos_slope(x, y))


def acosh_curvature(x: float, y: float) -> Any:
    """The second derivative of acosh, by that of acos."""
    return _towards(y, acos_curvature(x, y))


def _towards(y: float, w: Any) -> Any:
    """w turned by a right angle, towards the side of the real axis that y is on: acosh is i acos above it."""
    side = math.copysign(1.0, y)
    return complex(-side * w.imag, side * w.real)


def atanh(z: Any) -> Any:
    """The inverse hyperbolic tangent, by Kahan's formula."""
    return complex(atanh_real(z.real, z.imag), atanh_imag(z.real, z.imag))


def atanh_real(x: float, y: float) -> float:
    """The real part of atanh(x + i y)."""
    size, side = abs(x), math.copysign(1.0, x)
    if size == 1 and abs(y) < 1e-100:  # whose square may underflow
        share, top, bottom = 0.5, 2.0, abs(y)
    else:
        share, top, bottom = 0.25, 4.0 * size, (1.0 - size) * (1.0 - size) + y * y
    return side * (share * math.log1p(top * (1.0 / bottom)))


def atanh_imag(x: float, y: float) -> float:
    """The imaginary part of atanh(x + i y)."""
    side = math.copysign(1.0, x)
    return 0.5 * side * math.atan2(2.0 * (side * y), (1.0 - side * x) * (1.0 + side * x) - y * y)


def atanh_slope(x: float, y: float) -> Any:
    """The derivative of atanh at x + i y, 1 / (1 - z * z)."""
    size = abs(x)
    below, above = 1.0 - size, 1.0 + size
    # Without the square of a y that may underflow, and in an order in which far out nothing overflows.
    inverse, far = 1.0 / (y if below == 0 else below * below + y * y), 1.0 / (above * above + y * y)
    near = inverse if below == 0 else y * inverse
    return complex((below * inverse * above + near * y) * far, 2.0 * (x * near * far))


def atanh_curvature(x: float, y: float) -> Any:
    """The second derivative of atanh, by the first one."""
    return 2.0 * (complex(x, y) * square(atanh_slope(x, y)))


def asin(z: Any) -> Any:
    """The inverse sine."""
    return _by_i(asinh, z)


def acos(z: Any) -> Any:
    """The inverse cosine, by Kahan's formula."""
    return complex(acos_real(z.real, z.imag), acos_imag(z.real, z.imag))


def acos_real(x: float, y: float) -> float:
    """The real part of acos(x + i y)."""
    below, above = sqrt(complex(1.0 - x, -y)), sqrt(complex(1.0 + x, y))
    return 2.0 * math.atan2(below.real, above.real)


def acos_imag(x: float, y: float) -> float:
    """The imaginary part of acos(x + i y)."""
    below, above = sqrt(complex(1.0 - x, -y)), sqrt(complex(1.0 + x, y))
    return math.asinh(above.real * below.imag - above.imag * below.real)


def acos_slope(x: float, y: float) -> Any:
    """The derivative of acos at x + i y, -1 / sqrt(1 - z * z), by that of asinh at i z."""
    return -asinh_slope(-y, x)


def acos_curvature(x: float, y: float) -> Any:
    """The second derivative of acos, by the first one."""
    slope = acos_slope(x, y)
    return complex(x, y) * slope * square(slope)


def atan(z: Any) -> Any:
    """The inverse tangent."""
    return _by_i(atanh, z)


def _by_i(function: Any, z: Any) -> Any:
    """-i f(i z)."""
    turned = function(complex(-z.imag, z.real))
    return complex(turned.imag, -turned.real)
