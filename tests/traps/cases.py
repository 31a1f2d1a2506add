"""The traps: functions and points where automatic differentiation goes wrong, with what is right worked out by hand.

A row is a function, whose docstring says what goes wrong, and for each point the value and the partial derivatives in
the float arguments. The first point is the trap; the others are ordinary and keep an answer from being right by chance.
"""

# The functions are written as a compiler meets them.
# ruff: noqa: B007, SIM108

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dualbcast import differentiable_broadcast

__all__ = ["TRAPS", "Found", "Trap", "ours"]

Point = tuple[Any, ...]
Row = dict[Point, tuple[float, tuple[float, ...]]]
inf, nan = math.inf, math.nan


@dataclass
class Found:
    """What a library gives: a value for each point, and for each the partial derivatives."""

    values: list[float]
    partials: list[list[float]]


@dataclass(frozen=True)
class Trap:
    """One row.

    Attributes
    ----------
    group : str
        The table that the row is in.
    function : function
    row : dict
        For each point the value and the partials; all that float32 and float64 hold exactly is written as a number.
    conventions : tuple of tuple
        Other partials at the first point that may be defended: no derivative exists there.
    dtypes : tuple of str
        The float dtypes in which the row is a test.
    integer : dtype
        Of the arguments that are integers.
    run : function, optional
        Of the backend and the dtype; runs the row where calling the function on the points is not the point.
    waits : str
        Why the row is not right yet, if so.
    """

    group: str
    function: Callable[..., Any]
    row: Row
    conventions: tuple[tuple[float, ...], ...] = ()
    dtypes: tuple[str, ...] = ("float64", "float32")
    integer: Any = np.int16
    run: Callable[[str, str], Found] | None = None
    waits: str = ""
    points: tuple[Point, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", tuple(self.row))

    @property
    def name(self) -> str:
        return self.function.__name__

    def columns(self, dtype: str, repeat: int = 1) -> list[np.ndarray[Any, Any]]:
        """The points as one array for each argument, the whole list `repeat` times."""
        kinds = {float: dtype, int: self.integer}
        columns = zip(*self.points, strict=True)
        return [np.tile(np.array(column, kinds[type(column[0])]), repeat) for column in columns]

    @property
    def floats(self) -> tuple[int, ...]:
        """The positions of the float arguments."""
        return tuple(at for at, arg in enumerate(self.points[0]) if isinstance(arg, float))


TRAPS: list[Trap] = []


def trap(group: str, row: Row, **options: Any) -> Callable[[Any], Any]:
    """Add a row to a table."""

    def add(function: Any) -> Any:
        TRAPS.append(Trap(group, function, row, **options))
        return function

    return add


def broadcast(function: Any, backend: str) -> Any:
    return differentiable_broadcast(backend=backend)(function)


def ours(trap: Trap, backend: str, dtype: str, repeat: int = 1) -> Found:
    """What dualbcast gives at the points of a row, the whole list `repeat` times."""
    if trap.run is not None:
        return trap.run(backend, dtype)
    value, jacobian = broadcast(trap.function, backend).value_and_jacobian(*trap.columns(dtype, repeat))
    assert value.dtype == dtype
    return Found(value.tolist(), np.stack([jacobian[name] for name in jacobian.wrt], axis=1).tolist())


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
    """The NaN is made before the branch (sqrt at 0), and the side taken does not use it."""
    r = math.sqrt(x * x + y * y)
    if r > 0:
        return x / r
    return 0.0


# --- kinks and edges that are reached --------------------------------------------------------------------------------

EDGES = "Kinks and edges"


@trap(EDGES, {(0.0,): (0.0, (0.0,)), (-2.0,): (2.0, (-1.0,))}, conventions=((1.0,), (-1.0,)))
def abs_at_zero(x):
    """Any slope from -1 to 1 may be defended; NaN may not."""
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
    """A tie at every point, where the derivative exists."""
    return max(x, x)


@trap(EDGES, {(0.0,): (0.0, (1.0,)), (-1.0,): (0.0, (0.0,))}, conventions=((0.0,), (0.5,)))
def relu_at_zero(x):
    """0 and 1/2 are as good as 1."""
    return max(x, 0.0)


@trap(EDGES, {(0.0,): (0.0, (1.0,)), (2.0,): (1.0, (0.0,))}, conventions=((0.0,), (0.5,)))
def clip_at_bound(x):
    """At the bound: that of x, here; some take half."""
    return np.clip(x, 0.0, 1.0)


@trap(EDGES, {(0.0,): (0.0, (inf,)), (4.0,): (2.0, (0.25,))})
def sqrt_taken(x):
    """Where the root is what was asked for, its slope at 0 is inf, not NaN and not some large number."""
    return math.sqrt(x)


@trap(EDGES, {(0.0,): (1.0, (0.0,)), (2.0,): (1.0, (0.0,))})
def power_zero(x):
    """p · x**(p - 1) is 0 · inf."""
    return x**0


@trap(EDGES, {(0.0,): (0.0, (0.0,)), (3.0,): (9.0, (6.0,))})
def power_two(x):
    """x**p · log(x) for the exponent is 0 · inf, even where the exponent is a constant."""
    return x**2


@trap(
    EDGES,
    {(0.0, 2.0): (0.0, (0.0, 0.0)), (0.0, 1.0): (0.0, (1.0, 0.0)), (2.0, 3.0): (8.0, (12.0, 8 * math.log(2)))},
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
    """The angle of nothing: it has no derivative, so NaN tells the truth, and 0 is a choice."""
    return math.atan2(y, x)


@trap(EDGES, {(0.0, 0.0): (0.0, (0.0, 0.0)), (3.0, 4.0): (5.0, (0.6, 0.8))}, conventions=((nan, nan), (0.5, 0.5)))
def hypot_at_origin(x, y):
    """A kink like that of abs: NaN is honest; 0 and (1/2, 1/2) are subgradients."""
    return math.hypot(x, y)


# --- zero times infinity ---------------------------------------------------------------------------------------------

ZERO_TIMES = "Zero times infinity"


@trap(ZERO_TIMES, {(1.0, -1000.0): (inf, (inf, -inf)), (2.0, 0.0): (2.0, (1.0, -2.0))})
def overflowing_product(a, b):
    """Each argument's tangent is 0 in the other's direction; multiplied by inf it is NaN in both."""
    return a * math.exp(-b)


@trap(ZERO_TIMES, {(1.0, 0.5): (-inf, (1.0, 0.0)), (1.0, 2.0): (1 + math.log(2), (1.0, 0.0))})
def log_of_floor(x, y):
    """floor ends differentiation; a zero that is carried on meets the slope of log at 0, which is inf."""
    return x + math.log(np.floor(y))


@trap(
    ZERO_TIMES,
    {(1.0, 0.0): (-inf, (0.0, inf)), (3.0, 1.0): (math.log(4), (0.25, 0.25))},
    waits="a partial that is zero on the path taken is multiplied by an infinite slope",
)
def log_after_branch(x, y):
    """x takes no part on the path taken, so the slope in x is 0, whatever the slope of log is."""
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
    """The branch that Python takes is constant. Leaving single points out gives 2, the derivative of the limit."""
    return 1.0 if x == 1 else x * x


@trap(EQUAL, {(3.0,): (3.0, (1.0,)), (4.0,): (8.0, (2.0,))})
def threshold(x):
    """Duals compared by their tangents, too, call 3 > 3 true: another branch, and another value."""
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


# --- loops -----------------------------------------------------------------------------------------------------------

LOOPS = "Loops"


@trap(LOOPS, {(1.5, 3): (1.5**8, (8 * 1.5**7,)), (2.0, 0): (2.0, (1.0,))})
def repeated_square(x, n):
    """A loop that overwrites its variable, n times as the data says: reverse mode needs every value of it."""
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
    """`continue` beside a maximum: the largest of -2x, -x, x, 2x. The derivative is that of the turn that won."""
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
    """Made before a loop, used after it: x² · n x."""
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


@trap(LOOPS, {(5.0,): (0.625, (0.125,)), (0.5,): (0.5, (1.0,)), (8.0,): (1.0, (0.125,))})
def halve_until(x):
    """`while` with three, no and three turns, side by side."""
    while x > 1:
        x = x / 2
    return x


@trap(LOOPS, {(3.0,): (13.0, (7.0,)), (20.0,): (21.0, (1.0,))})
def stop_when_large(x):
    """`break`: 1 + x + x**2 + …, as far as the sum is at most 10."""
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
    """x is overwritten and used again, beside what was made of the old one: (x + x²) · x²."""
    y = x * x
    x = y + x
    return x * y


@trap(LOOPS, {(3.0, 3): (9.0, (6.0,)), (3.0, 0): (1.0, (0.0,))})
def pair_in_step(x, n):
    """A pair that is replaced at once; one after the other is wrong."""
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
    """Half goes to even, and the slope is 0, not NaN and not an error."""
    return round(x) * y


@trap(NUMBERS, {(0.0,): (0.0, (0.0,)), (-2.0,): (-4.0, (4.0,))})
def signed_square(x):
    """sign has slope 0, at 0 as well."""
    return np.sign(x) * x * x


@trap(NUMBERS, {(1.0,): (0.1, (0.1,)), (2.0,): (0.2, (0.1,))}, dtypes=("float64",))
def literal_in_float64(x):
    """A literal that was float32 on the way is 0.10000000149."""
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
    """One literal, or math.pi, turns all that follows into float64. Shown: the bits of the value and the derivative."""
    return 0.1 * x + math.pi


tenth = np.float64(0.1)


@trap(
    NUMBERS,
    {(1.0,): (32.0, (32.0,))},
    dtypes=("float32",),
    run=lambda backend, dtype: _creep(numpy_scalar_in_float32, backend, dtype),
)
def numpy_scalar_in_float32(x):
    """The same with a captured np.float64 number, which NumPy takes at its word."""
    return tenth * x


# --- arguments that take no part -------------------------------------------------------------------------------------

NO_PART = "Arguments that take no part"


@trap(NO_PART, {(1.0, nan): (1.0, (2.0, 0.0)), (-1.0, 5.0): (25.0, (0.0, 10.0))})
def unused_nan(x, y):
    """NaN marks what is missing, on the side not taken."""
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
    """f(x[:-1], out=x[1:]): results land on arguments that are still to be read."""
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
    waits="captured arrays are not arguments yet",
)
def captured_array(x):
    """An array that the function captures is as much an argument as the others, and its gradient is lost silently."""
    return weights * x
