"""Traps of the program around it: loops, numbers and dtypes, arguments that take no part, captures and `out=`."""

# The functions are written as a compiler meets them.
# ruff: noqa: B007, SIM108

from __future__ import annotations

import math
from typing import Any

import numpy as np
from trap_table import Found, broadcast, trap

inf, nan = math.inf, math.nan

# --- loops -----------------------------------------------------------------------------------------------------------

LOOPS = "Loops"


@trap(LOOPS, {(1.5, 3): (1.5**8, (8 * 1.5**7,)), (2.0, 0): (2.0, (1.0,))})
def repeated_square(x, n):
    """A loop overwrites its variable n times, and n is data: reverse mode needs every value of it."""
    for _ in range(n):
        x = x * x
    return x


@trap(LOOPS, {(2.0,): (42.0, (93.0,)), (-1.0,): (-3.0, (9.0,))})
def odd_powers(x):
    """`continue`: x + x**3 + x**5."""
    total = 0.0
    term = 1.0
    for i in range(6):
        if i > 0:
            term = term * x
        if i % 2 == 0:
            continue
        total = total + term
    return total


@trap(LOOPS, {(1.0,): (2.0, (2.0,)), (-1.0,): (2.0, (-2.0,))})
def largest_product(x):
    """`continue` beside a maximum of -2x, -x, x, 2x. The derivative is that of the iteration with the largest value."""
    best = -1e20
    for i in range(5):
        d = i - 2
        if d == 0:
            continue
        v = x * d
        if v > best:
            best = v
    return best


@trap(LOOPS, {(2.0, 3): (24.0, (36.0,)), (2.0, 0): (0.0, (0.0,))})
def used_after_loop(x, n):
    """A variable is computed before a loop and used after it: x² · n x."""
    y = x * x
    total = 0.0
    for _ in range(n):
        total = total + x
    return y * total


@trap(LOOPS, {(0.5,): (1.0, (0.0,)), (2.0,): (12.0, (12.0,))})
def active_on_one_side(x):
    """A loop-carried variable that depends on x on one side only: the other must clear its derivative."""
    total = 0.0
    for _ in range(3):
        if x > 1:
            total = total + x * x
        else:
            total = 1.0
    return total


@trap(LOOPS, {(8.0,): (1.0, (0.125,)), (0.5,): (0.5, (1.0,)), (3.0,): (0.75, (0.25,))})
def halve_until(x):
    """`while` with three, no and two iterations in neighbouring elements; at 8 it ends on a tie."""
    while x > 1:
        x = x / 2
    return x


@trap(LOOPS, {(3.0,): (13.0, (7.0,)), (20.0,): (21.0, (1.0,))})
def stop_when_large(x):
    """`break`: 1 + x + x**2 + …, while the sum is at most 10."""
    total = 1.0
    term = 1.0
    for _ in range(8):
        term = term * x
        total = total + term
        if total > 10:
            break
    return total


@trap(LOOPS, {(2.0,): (24.0, (44.0,)), (-1.0,): (0.0, (-1.0,))})
def used_after_overwriting(x):
    """x is overwritten and used again, together with a value computed from the old x: (x + x²) · x²."""
    y = x * x
    x = y + x
    return x * y


@trap(LOOPS, {(3.0, 3): (9.0, (6.0,)), (3.0, 0): (1.0, (0.0,))})
def pair_in_step(x, n):
    """Both variables of a pair are replaced at once; one after the other would be wrong."""
    a, b = x, 1.0
    for _ in range(n):
        a, b = b, a * b
    return b


# --- numbers ---------------------------------------------------------------------------------------------------------

NUMBERS = "Numbers and dtypes"


@trap(
    NUMBERS,
    {(1.0, 100000, 100000): (1e10, (1e10,)), (2.0, 2, 3): (12.0, (6.0,))},
    integer=np.int32,
    dtypes=("float64",),
)
def integer_product(x, n, m):
    """100000² does not fit int32. Integers are 64 bits wide in a kernel, whatever the array's dtype."""
    return x * (n * m)


@trap(NUMBERS, {(2.0, -7, 2): (-7.0, (-4.0,)), (2.0, 7, 2): (7.0, (3.0,))})
def floor_division(x, n, m):
    """-7 // 2 is -4 and -7 % 2 is 1 in Python; C truncates to -3 and -1."""
    return x * (n // m) + n % m


@trap(NUMBERS, {(-7.5, 2.0): (0.5, (1.0, 4.0)), (7.5, 2.0): (1.5, (1.0, -3.0))})
def float_modulo(x, y):
    """The same for floats, with a slope in the divisor: -floor(x / y)."""
    return x % y


@trap(NUMBERS, {(-2.0, 3): (-8.0, (12.0,)), (2.0, 0): (1.0, (0.0,))})
def negative_base(x, n):
    """An integer exponent as exp(n · log(x)) is NaN for a negative base."""
    return x**n


@trap(NUMBERS, {(2.5, 3.0): (6.0, (0.0, 2.0)), (3.75, 1.0): (4.0, (0.0, 4.0))})
def rounded(x, y):
    """A half is rounded to even, and the slope is 0, not NaN and not an error."""
    return round(x) * y


@trap(NUMBERS, {(0.0,): (0.0, (0.0,)), (-2.0,): (-4.0, (4.0,))})
def signed_square(x):
    """sign has slope 0, at 0 as well."""
    return np.sign(x) * x * x


@trap(NUMBERS, {(1.0,): (0.1, (0.1,)), (2.0,): (0.2, (0.1,))}, dtypes=("float64",))
def literal_in_float64(x):
    """A literal that has passed through float32 is 0.10000000149."""
    return 0.1 * x


def _creep(function: Any, backend: str, dtype: str) -> Found:
    value, jacobian = broadcast(function, backend).value_and_jacobian(np.ones(3, dtype))
    return Found([8.0 * value.dtype.itemsize], [[8.0 * jacobian["x"].dtype.itemsize]])


@trap(
    NUMBERS,
    {(1.0,): (32.0, (32.0,))},
    dtypes=("float32",),
    run=lambda backend, dtype: _creep(literal_in_float32, backend, dtype),
)
def literal_in_float32(x):
    """One literal, or math.pi, makes all later results float64. Shown: the bits of the value and the derivative."""
    return 0.1 * x + math.pi


tenth = np.float64(0.1)


@trap(
    NUMBERS,
    {(1.0,): (32.0, (32.0,))},
    dtypes=("float32",),
    run=lambda backend, dtype: _creep(numpy_scalar_in_float32, backend, dtype),
)
def numpy_scalar_in_float32(x):
    """The same with a captured np.float64 number, which NumPy promotes to float64."""
    return tenth * x


# --- arguments that take no part -------------------------------------------------------------------------------------

NO_PART = "Arguments that take no part"


@trap(NO_PART, {(1.0, nan): (1.0, (2.0, 0.0)), (-1.0, 5.0): (25.0, (0.0, 10.0))})
def unused_nan(x, y):
    """NaN marks missing data, on the side not taken."""
    return x * x if x > 0 else y * y


@trap(NO_PART, {(-1.0, inf): (0.0, (0.0, 0.0)), (2.0, 3.0): (6.0, (3.0, 2.0))})
def unused_infinity(x, y):
    """The product with infinity is on the side not taken."""
    return x * y if x > 0 else 0.0


@trap(NO_PART, {(nan,): (5.0, (0.0,)), (1.0,): (2.0, (2.0,))})
def nan_compared(x):
    """A comparison with NaN is false, and the side taken does not use x."""
    return 2 * x if x > 0 else 5.0


# --- around the call -------------------------------------------------------------------------------------------------

CALLS = "Around the call"

factor = 3.0


def _rebound(backend: str, dtype: str) -> Found:
    global factor
    function = broadcast(captured_number, backend)
    found = Found([], [])
    try:
        for factor in (3.0, 5.0):
            value, jacobian = function.value_and_jacobian(np.array([2.0], dtype))
            found.values.append(float(value[0]))
            found.partials.append([float(jacobian["x"][0])])
    finally:
        factor = 3.0
    return found


@trap(CALLS, {(2.0, "factor 3"): (6.0, (3.0,)), (2.0, "factor 5"): (10.0, (5.0,))}, run=_rebound)
def captured_number(x):
    """A captured number is rebound between two calls; a compiled kernel goes on with the old one."""
    return factor * x


def _overlapping(backend: str, dtype: str) -> Found:
    x = np.array([1, 2, 3, 4], dtype)
    broadcast(square_shifted, backend)(x[:-1], out=x[1:])
    return Found([float(v) for v in x[1:]], [[], [], []])


@trap(CALLS, {(1.0,): (1.0, ()), (2.0,): (4.0, ()), (3.0,): (9.0, ())}, run=_overlapping)
def square_shifted(x):
    """f(x[:-1], out=x[1:]): results overwrite arguments that have not been read yet."""
    return x * x


weights = np.array([3.0, 4.0])


def _captured_array(backend: str, dtype: str) -> Found:
    x = np.array([2.0, 5.0], dtype)
    value, jacobian = broadcast(captured_array, backend).value_and_jacobian(x, wrt=("x", "weights"))
    partials = np.stack([jacobian["x"], jacobian["weights"]], axis=1)
    return Found(value.tolist(), partials.tolist())


@trap(
    CALLS,
    {(2.0, 3.0): (6.0, (3.0, 2.0)), (5.0, 4.0): (20.0, (4.0, 5.0))},
    dtypes=("float64",),
    run=_captured_array,
)
def captured_array(x):
    """A captured array is an argument like the others, but its gradient is lost silently."""
    return weights * x
