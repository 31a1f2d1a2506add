"""Complex numbers in the language of scalar functions: a pair of floats, its operators, and the functions of `cmath`.

In plain Python the functions take and return Python's complex numbers. In a kernel a complex number is a `Complex`, and
these functions stand for `cmath`'s and NumPy's of the same names.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from dualbcast.adapters import adapter_for
from dualbcast.arithmetic import isfinite, isinf, isnan

# The largest whole exponent, of either sign, whose power is a product.
LARGEST_PRODUCT = 16


class Complex:
    """A complex number of a kernel; of arrays of its parts it makes an array of complex numbers."""

    real: float
    imag: float
    fields = ("real", "imag")

    def __new__(cls, real: Any, imag: Any) -> Any:
        """The complex number, or the array, with these parts."""
        if real is None and imag is None:
            return None
        if isinstance(real, int | float | np.generic):
            return np.result_type(real, imag, np.complex64).type(complex(real, imag))
        of_variables = getattr(type(real), "__join_complex__", None)
        if of_variables is not None:
            return of_variables(real, imag)
        adapter = adapter_for(real)
        if adapter is not None:
            return adapter.complex_of(real, imag)
        module = sys.modules[type(real).__module__.partition(".")[0]]
        whole = real.base
        if whole is not None and whole is imag.base and whole.dtype.kind == "c" and _are_parts(real, imag, whole):
            return whole  # it was given to be written to
        result = module.empty(real.shape, np.result_type(real.dtype, np.complex64))
        result.real, result.imag = real, imag
        return result

    def conjugate(self) -> Any:
        return complex(self.real, -self.imag)

    def __bool__(self) -> bool:
        return self.real != 0 or self.imag != 0

    def __abs__(self) -> float:
        return math.hypot(self.real, self.imag)

    def __pos__(self) -> Any:
        return self

    def __neg__(self) -> Any:
        return complex(-self.real, -self.imag)

    def __eq__(self, other: Any) -> Any:
        other = complex(other)
        return self.real == other.real and self.imag == other.imag

    def __add__(self, other: Any) -> Any:
        other = complex(other)
        return complex(self.real + other.real, self.imag + other.imag)

    def __radd__(self, other: Any) -> Any:
        return complex(other + self.real, self.imag)

    def __sub__(self, other: Any) -> Any:
        other = complex(other)
        return complex(self.real - other.real, self.imag - other.imag)

    def __rsub__(self, other: Any) -> Any:
        return complex(other - self.real, -self.imag)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, complex):
            real = self.real * other.real - self.imag * other.imag
            return complex(real, self.real * other.imag + self.imag * other.real)
        return complex(self.real * other, self.imag * other)

    def __rmul__(self, other: Any) -> Any:
        return complex(other * self.real, other * self.imag)

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, complex):
            return quotient(self, other)
        return complex(self.real / other, self.imag / other)

    def __rtruediv__(self, other: Any) -> Any:
        return quotient(complex(other), self)

    def __pow__(self, other: Any) -> Any:
        return power(self, other)

    def __rpow__(self, other: Any) -> Any:
        return power(complex(other), self)


def _are_parts(real: Any, imag: Any, whole: Any) -> bool:
    """Whether arrays are the parts of a complex array, and not other views of it."""
    pairs = (real, whole.real), (imag, whole.imag)
    return all(a.shape == b.shape and a.strides == b.strides and _address(a) == _address(b) for a, b in pairs)


def _address(array: Any) -> int:
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr


def abs2(x: Any) -> Any:
    """The square of the absolute value of a number, real or complex."""
    return x.real * x.real + x.imag * x.imag if isinstance(x, (complex, np.complexfloating)) else x * x


def quotient(a: Any, b: Any) -> Any:
    """a / b; R. L. Smith's way (Communications of the ACM 5, 1962), in which no square overflows."""
    if abs(b.real) >= abs(b.imag):
        ratio = b.imag / b.real
        size = b.real + b.imag * ratio
        return complex((a.real + a.imag * ratio) / size, (a.imag - a.real * ratio) / size)
    ratio = b.real / b.imag
    size = b.real * ratio + b.imag
    return complex((a.real * ratio + a.imag) / size, (a.imag * ratio - a.real) / size)


def power(z: Any, w: Any) -> Any:
    """z ** w as exp(w * log(z)); where z is 0, a product for small whole w, and else the power of a real number."""
    if z == 0:
        exponent = w.real if isinstance(w, complex) else w
        if 1 <= exponent <= LARGEST_PRODUCT and exponent == math.floor(exponent):
            product = z  # whose derivatives of any order are those of the power
            for _ in range(int(exponent) - 1):
                product = product * z
            return product
        return complex(math.pow(z.real + 0.0, exponent), 0.0)
    if isinstance(w, complex):
        return exp(w * log(z))
    scaled = log(z)
    return exp(complex(w * scaled.real, w * scaled.imag))


def exp(z: Any) -> Any:
    """The exponential."""
    size = math.exp(z.real)
    return complex(size * math.cos(z.imag), size * math.sin(z.imag))


def log(z: Any) -> Any:
    """The principal logarithm, cut along the negative real axis. Near the unit circle no digits cancel."""
    return complex(_log_of_size(z), math.atan2(z.imag, z.real))


def _log_of_size(z: Any) -> float:
    size, large, small = math.hypot(z.real, z.imag), z.real, z.imag
    if not 0.7 < size < 1.75:
        return math.log(size)
    if abs(large) < abs(small):
        large, small = small, large
    return 0.5 * math.log1p((large - 1.0) * (large + 1.0) + small * small)


def log10(z: Any) -> Any:
    """The principal logarithm to the base 10."""
    return log(z) / math.log(10.0)


def sqrt(z: Any) -> Any:
    """The principal square root. At 0 its partials are not finite."""
    # Absolute values have no slope at 0, and so would parts on the axes.
    x = z.real if z.real >= 0 else -z.real
    size = math.sqrt(0.5 * x + 0.5 * math.hypot(z.real, z.imag))
    other = z.imag / (2.0 * size) if size > 0 else size
    if z.real >= 0:
        return complex(size, other)
    side = math.copysign(1.0, z.imag)
    return complex(side * other, side * size)


def sinh(z: Any) -> Any:
    """The hyperbolic sine."""
    return complex(math.sinh(z.real) * math.cos(z.imag), math.cosh(z.real) * math.sin(z.imag))


def cosh(z: Any) -> Any:
    """The hyperbolic cosine."""
    return complex(math.cosh(z.real) * math.cos(z.imag), math.sinh(z.real) * math.sin(z.imag))


def sin(z: Any) -> Any:
    """The sine."""
    return complex(math.sin(z.real) * math.cosh(z.imag), math.cos(z.real) * math.sinh(z.imag))


def cos(z: Any) -> Any:
    """The cosine."""
    return complex(math.cos(z.real) * math.cosh(z.imag), -math.sin(z.real) * math.sinh(z.imag))


def phase(z: Any) -> float:
    """The angle of a complex number, from -pi to pi."""
    return math.atan2(z.imag, z.real)


def polar(z: Any) -> tuple[float, float]:
    """The size and the angle."""
    return math.hypot(z.real, z.imag), math.atan2(z.imag, z.real)


def rect(r: float, phi: float) -> Any:
    """The number of this size and angle."""
    return complex(r * math.cos(phi), r * math.sin(phi))


def square(z: Any) -> Any:
    """z * z."""
    return complex((z.real - z.imag) * (z.real + z.imag), 2.0 * z.real * z.imag)


def reciprocal(z: Any) -> Any:
    """1 / z."""
    return quotient(complex(1.0, 0.0), z)


def is_nan(z: Any) -> bool:
    """Whether a part is NaN."""
    return isnan(z.real) or isnan(z.imag)


def is_inf(z: Any) -> bool:
    """Whether a part is infinite."""
    return isinf(z.real) or isinf(z.imag)


def is_finite(z: Any) -> bool:
    """Whether both parts are finite."""
    return isfinite(z.real) and isfinite(z.imag)


def real(z: Any) -> Any:
    """The real part."""
    return z.real


def imag(z: Any) -> Any:
    """The imaginary part."""
    return z.imag


def conjugate(z: Any) -> Any:
    """The complex conjugate."""
    return complex(z.real, -z.imag)


def size(z: Any) -> float:
    """The absolute value."""
    return math.hypot(z.real, z.imag)
