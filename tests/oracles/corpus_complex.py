"""Functions of complex numbers, with ranges of their arguments; plain Python runs them on its own complex numbers."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

HALF, TURN = 0.5 + 0.25j, 1j


@dataclass(eq=False)
class ComplexCase:
    """A function, and for each argument whether it is complex; the arguments are of size 2 or so."""

    function: Callable[..., Any]
    kinds: tuple[type, ...]
    is_holomorphic: bool

    @property
    def name(self) -> str:
        return self.function.__name__

    def arguments(self, count: int, dtype: Any = np.float64) -> list[Any]:
        random = np.random.default_rng(len(self.name))
        drawn = []
        for kind in self.kinds:
            x = random.normal(size=count).astype(dtype)
            y = random.normal(size=count).astype(dtype)
            # As Python's numbers they are added without rounding.
            drawn.append(x + (1j * y).astype(np.result_type(dtype, np.complex64)) if kind is complex else x)
        return drawn


COMPLEX: list[ComplexCase] = []


def complex_case(*kinds: type, holomorphic: bool = True) -> Callable[[Any], Any]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        COMPLEX.append(ComplexCase(function, kinds, holomorphic))
        return function

    return add


@complex_case(complex, complex)
def arithmetic(z, w):
    return (z + w) * (z - 2.0) / (w + 3j) - 1 / z + (-z) * 0.5 + +w


@complex_case(complex, float)
def with_real_numbers(z, a):
    return a * z + z * a - z / (2.0 + a * a) + (1.0 + a) / z + (a - z)


@complex_case(complex)
def whole_powers(z):
    return z**2 + z**3 - z**-2 + z**5 / 8 + z**0


@complex_case(complex, complex)
def general_powers(z, w):
    return z**w + 2.0**w + z**0.5 + z**1.25


@complex_case(complex)
def exponentials(z):
    return cmath.exp(z) + cmath.log(z) + cmath.sqrt(z) + cmath.log10(z) + cmath.log(z, 2)


@complex_case(complex)
def circular(z):
    return cmath.sin(z) * cmath.cos(z) + cmath.tan(z)


@complex_case(complex)
def hyperbolic(z):
    return cmath.sinh(z) - cmath.cosh(z) * cmath.tanh(z)


@complex_case(complex)
def inverse_circular(z):
    return cmath.asin(z) + cmath.acos(0.5 * z) * cmath.atan(z)


@complex_case(complex)
def inverse_hyperbolic(z):
    return cmath.asinh(z) + cmath.acosh(z) * cmath.atanh(0.5 * z)


@complex_case(complex, holomorphic=False)
def parts(z):
    return abs(z) ** 2 + z.real * z.imag + cmath.phase(z), z.conjugate() * z


@complex_case(complex, holomorphic=False)
def numpys_names(z):
    return np.exp(np.conj(z)) + np.abs(z) + np.angle(z) + np.real(z) * np.imag(z) + np.square(z) - np.reciprocal(z)


@complex_case(float, float, holomorphic=False)
def made_of_parts(x, y):
    z = complex(x, y)
    r, phi = cmath.polar(z)
    return cmath.rect(r, phi) + z * HALF - TURN, r


@complex_case(complex, complex)
def branches(z, w):
    if z.real > 0:
        return cmath.exp(z) * w
    if w == z or z.imag < -0.5:
        return z * w + 1j
    return w - z if abs(w) > 1 else w * w


@complex_case(complex)
def iterated(z):
    w = 0j
    for _ in range(6):
        w = w * w + 0.3 * z
    return w


@complex_case(complex)
def newton(z):
    for _ in range(50):
        step = (z**3 - 1) / (3 * z**2)
        z = z - step
        if abs(step) < 1e-12:
            break
    return z


@complex_case(complex, float, holomorphic=False)
def fresnel_reflection(index, cosine):
    c = 1 / (1 + cosine * cosine)
    inner = cmath.sqrt(1 - (1 - c * c) / index**2)
    r = (c - index * inner) / (c + index * inner)
    return abs(r) ** 2


@complex_case(float, float, holomorphic=False)
def impedance(frequency, resistance):
    z = resistance + 1j * frequency * 0.1 + 1 / (1j * (frequency + 3.0) * 0.2)
    return 20 * math.log10(abs(z)), cmath.phase(z)


@complex_case(complex, holomorphic=False)
def truth_and_equality(z):
    count = 0
    if z:
        count += 1
    if z != 0 and z != z + 1:
        count += 1
    return count * z.real, count + z.imag


def squared(z):
    return z * z


@complex_case(complex)
def helpers(z):
    return sum([squared(z), squared(z + 1)], 0j) if isinstance(z, complex) else z
