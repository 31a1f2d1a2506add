"""Checks of derivatives for users' tests: custom partials against automatic ones, Jacobians against differences."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import ml_dtypes
import numpy as np

from dualbcast.adapters import refuse_other_libraries
from dualbcast.api.binding import Wrt
from dualbcast.api.cores.generalised import GeneralisedFunction
from dualbcast.api.dispatch import wrt_key
from dualbcast.api.function import BroadcastFunction, differentiable_broadcast
from dualbcast.errors import ArgumentError, DerivativeError
from dualbcast.program.outputs import library_of
from dualbcast.rules.table import Custom, Interval, Rule, lookup

__all__ = ["DerivativeError", "check_derivatives", "check_partials"]


def __dir__() -> list[str]:
    """The public names, for completion at the prompt."""
    return __all__


Array = np.ndarray[Any, Any]

EPS = float(np.finfo(np.float64).eps)
SAMPLES = 64
MAX_TABLE_LINES = 8
# Where a derivative is below this share of the largest one, its error is measured against that share of the largest.
SMALLEST_SHARE = 1e-6
# The default tolerance of a Jacobian, in roundings of its dtype.
ROUNDINGS = 100
# The steps of the differences in units of the argument, and the highest order of extrapolation.
STEPS = tuple(4.0**-power for power in range(2, 14))
MAX_ORDER = 4
# One-sided differences cannot be compared with the other side. They count where they converge to within this share.
ONE_SIDED_TOLERANCE = 1e-6


def check_partials(function: Any, *points: Any, rtol: float | None = None) -> float:
    """Compare a function's custom partials with the automatic partials of its body.

    Parameters
    ----------
    function : callable
        A scalar function with `custom_partials`, also decorated with `differentiable_broadcast`; or a callable for
        which a user has added a `rule`.
    *points : array
        One array for each argument; they broadcast. If none are given, random points of the function's domain.
    rtol : float, optional
        How far they may differ, relative to the larger of the two; by default 1.5e-8, the square root of float64's eps.

    Returns
    -------
    float
        The largest relative difference.

    Raises
    ------
    DerivativeError
        They differ by more than `rtol` somewhere, or the custom ones are not finite where the automatic ones are.
    ArgumentError
        The function has no partials of its own, or no point is left to compare at.

    Notes
    -----
    Everything is computed in float64. Points where an automatic partial is not finite are left out: custom ones may be
    needed just there. Where a partial is below a millionth of the largest over all points, the difference is measured
    against a millionth of the largest. At a kink the automatic partial is that of the branch that Python takes.
    A custom derivative that differs from that of the body on purpose, such as a straight-through one, is reported.

    Examples
    --------
    >>> import math
    >>> import dualbcast
    >>> from dualbcast.testing import check_partials
    >>> @dualbcast.custom_partials(lambda x, y: (-2.0 * x * y,), domain=((-2, 2),))
    ... def bell(x):
    ...     return math.exp(-x * x)
    >>> check_partials(bell) < 1e-14
    True
    """
    body, domain, integer, label = _described(function)
    arrays = [np.asarray(point) for point in points] if points else _sample(domain, integer, label)
    if any(array.dtype.kind not in "biuf" for array in arrays):
        raise ArgumentError("points are arrays of numbers, one array for each argument")
    wide = [array.astype(np.float64) if array.dtype.kind == "f" else array for array in np.broadcast_arrays(*arrays)]
    ours = differentiable_broadcast(backend="cpu")(body).jacobian(*wide)
    theirs = differentiable_broadcast(backend="cpu")(_plain(body)).jacobian(*wide)
    table = _Table(f"the custom partials of {label} differ from the automatic ones", "custom", "automatic", wide)
    most = EPS**0.5 if rtol is None else rtol
    for name in ours:
        table.compare(f"∂{label}/∂{name}", ours[name], theirs[name], np.isfinite(theirs[name]), most, SMALLEST_SHARE)
    return table.judge()


def check_derivatives(function: Any, *arrays: Any, wrt: Wrt = None, rtol: float | None = None, **named: Any) -> float:
    """Compare a Jacobian with finite differences of the value.

    Parameters
    ----------
    function : BroadcastFunction
        The function to check, without a `signature`; a plain scalar function is decorated first.
    *arrays, **named : array
        The arguments at which to check, of NumPy or CuPy. Each element counts, so a few well chosen ones are better
        than many. Of complex arguments and results the parts are checked; whole arrays stay as they are.
    wrt : str, int, or sequence of them, optional
        The arguments to differentiate in, as for `value_and_jacobian`.
    rtol : float, optional
        How far the Jacobian may be off, relative to its size; by default 100 roundings of the dtype it is computed in.

    Returns
    -------
    float
        The largest relative difference.

    Raises
    ------
    DerivativeError
        Somewhere the Jacobian is further off than `rtol` and ten times the differences' own error allow, or it is not
        finite where they are.
    ArgumentError
        No element is left to compare at, the arrays are of another library, or the function has a signature.

    Notes
    -----
    The Jacobian is computed in the dtype of the arrays. The differences are central ones of the value in float64,
    extrapolated from twelve steps to zero, and the difference between extrapolations is their error. An argument x is
    moved by no more than `abs(x) / 16`, so that it keeps its sign, and stays in the domain of a logarithm, say. An
    argument that is 0 is moved by a sixteenth of its largest element in this call, or of 1. (Where the function changes
    over a much longer distance than x, differences are less exact, and the bound is wider.) Where the function is not
    finite on one side, or raises an exception, differences to the other side are used. Elements are left out where the
    value is not finite at the point or on both sides, and where differences to the left and to the right, or with ever
    shorter steps, do not converge to one number: at kinks and jumps the derivative is a convention. Derivatives that
    differ on purpose from those of the value, by `custom_partials` or `stop_derivative`, are reported.

    Examples
    --------
    >>> import math
    >>> import numpy as np
    >>> from dualbcast import differentiable_broadcast
    >>> from dualbcast.testing import check_derivatives
    >>> @differentiable_broadcast
    ... def f(x, y):
    ...     return x * math.tanh(y) if x > y else y
    >>> check_derivatives(f, np.array([0.5, 3.0]), np.array([[1.0], [2.0]])) < 1e-8
    True
    """
    f = function if isinstance(function, BroadcastFunction) else differentiable_broadcast(function)
    if isinstance(f, GeneralisedFunction):
        raise ArgumentError(
            f"{f!r} is a function of vectors, and check_derivatives takes functions of numbers. Check one without "
            "signature= whose arguments are those numbers"
        )
    refuse_other_libraries("check_derivatives", [*arrays, *named.values()])
    result, jacobian = f.value_and_jacobian(*arrays, wrt=wrt, **named)
    if not jacobian.wrt:
        raise ArgumentError(f"there is no argument to differentiate in{jacobian._left_out()}")
    values = jacobian.structure.flatten(result)
    library = library_of(values[0])
    bound = inspect.signature(f).bind(*arrays, **named)
    binder = f._dispatch.binder
    form, operands = binder.bind(arrays, named, f._dispatch.asked(wrt_key(wrt)))
    # The arguments that broadcast; a whole array stays as it is, and so do the lengths that follow it.
    whole = [form.names[at] for place, axes in form.whole for at in range(place, place + axes + 1)]
    pairs = [pair for pair in zip(form.names, operands, strict=True) if pair[0] not in whole]
    given = {name: np.broadcast_to(_host(array), jacobian.shape) for name, array in pairs}
    numbers = _movable(given)
    title = str(getattr(f, "__name__", f))

    def outputs(which: Any, moved: Array) -> list[Array]:
        """The outputs with one argument, or one part of a complex one, replaced."""
        spread, now = [], {**numbers, which: moved}
        for name in given:
            value = library.asarray(now[name] if name in now else _complex(now[f"{name}.real"], now[f"{name}.imag"]))
            if name in form.spread:
                spread.append(value)
            else:
                bound.arguments[name] = value
        if spread:
            bound.arguments[binder.vararg] = spread
        return [_host(each) for each in jacobian.structure.flatten(f(*bound.args, **bound.kwargs))]

    wrong = f"the Jacobian of {title} differs from finite differences"
    table = _Table(wrong, "Jacobian", "differences", list(given.values()))
    for name in jacobian:
        if name not in numbers:
            raise ArgumentError(f"{name} is captured, so it cannot be moved here; make it an argument to check it")
        found = slopes(outputs, name, numbers[name])
        for output, (value, (wanted, error, usable)) in enumerate(zip(values, found, strict=True)):
            if value.dtype.kind in "biu":
                continue
            got = _host(jacobian[output, name]).astype(np.float64)
            which = f"[{output}]" if len(values) > 1 else ""
            most = _rounding(value.dtype) if rtol is None else rtol
            table.compare(f"∂{title}{which}/∂{name}", got, wanted, usable, most, SMALLEST_SHARE**0.5, 10 * error)
    return table.judge()


# --- points and differences -------------------------------------------------------------------------------------------


def _described(function: Any) -> tuple[FunctionType, tuple[Interval, ...] | None, tuple[int, ...], str]:
    """The scalar function behind a callable, its domain, which of its arguments are integers, and its name."""
    meaning = lookup(function)
    if meaning is None:
        meaning = lookup(getattr(function, "__wrapped__", None))
    if isinstance(meaning, Custom) and meaning.partials is not None:
        return meaning.function, meaning.domain, (), meaning.label
    if isinstance(meaning, Rule) and meaning.by_user and meaning.function is not None:
        return meaning.function, meaning.domain, meaning.integer, meaning.label
    name = getattr(function, "__name__", repr(function))
    raise ArgumentError(f"{name} has no partials of its own; give them with custom_partials or rule")


def _plain(function: FunctionType) -> FunctionType:
    """The same function without rules and custom partials, so that its body is differentiated."""
    code, scope, name = function.__code__, function.__globals__, function.__name__
    return FunctionType(code, scope, name, function.__defaults__, function.__closure__)


def _sample(domain: tuple[Interval, ...] | None, integer: tuple[int, ...], label: str) -> list[Array]:
    """Points of the domain, the same in every run."""
    if domain is None:
        raise ArgumentError(f"{label}() takes any number of arguments; give points, an array for each")
    draw = np.random.default_rng(0)
    return [
        draw.integers(round(low), round(high), SAMPLES, endpoint=True)
        if position in integer
        else draw.uniform(low, high, SAMPLES)
        for position, (low, high) in enumerate(domain)
    ]


def slopes(outputs: Callable[[Any, Array], list[Array]], position: Any, x: Array) -> list[tuple[Array, Array, Array]]:
    """For each output its slope in an argument, the error of the slope, and whether there is a slope at all."""
    scale = np.where(x == 0, np.max(_magnitudes(x), initial=0.0) or 1.0, np.abs(x))
    middles = outputs(position, x)
    with np.errstate(all="ignore"):
        steps = np.multiply.outer(STEPS, scale)
        below, above = x - steps, x + steps
        lows, highs = (
            np.array([_evaluated(outputs, position, x, moved, len(middles)) for moved in side])
            for side in (below, above)
        )
        return [
            _slope(middle.astype(np.float64), x, below, above, lows[:, output], highs[:, output])
            for output, middle in enumerate(middles)
        ]


def _evaluated(
    outputs: Callable[[Any, Array], list[Array]], position: Any, x: Array, moved: Array, count: int
) -> list[Array]:
    """The outputs at moved points, in float64; NaN where a point is not finite, or the function raises there."""
    try:
        results = [output.astype(np.float64) for output in outputs(position, np.where(np.isfinite(moved), moved, x))]
    except Exception:  # a user's function may raise anything at some points: each point is evaluated by itself
        results = [np.full(x.shape, np.nan) for _ in range(count)]
        for at in np.ndindex(x.shape):
            alone = x.copy()
            alone[at] = moved[at]
            try:
                values = outputs(position, alone)
            except Exception:
                continue
            for output, value in zip(results, values, strict=True):
                output[at] = value[at]
    for output in results:
        output[~np.isfinite(moved)] = np.nan
    return results


def _slope(middle: Array, x: Array, below: Array, above: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
    """The slope of an output, its error, and whether there is one, from the output at steps to both sides of x."""
    noise = 4 * EPS * np.maximum(np.maximum(_magnitudes(low), _magnitudes(high)), _magnitudes(middle)) / (above - x)
    lefts, rights = (middle - low) / (x - below), (high - middle) / (above - x)
    # Errors of central differences are even powers of the step, which falls to a quarter.
    best, least = _extrapolated((high - low) / (above - below), noise, 16.0)
    gaps = np.abs(rights - lefts)
    # Between two steps, one a sixteenth of the other, the gap of a smooth function falls to a sixteenth.
    usable = np.isfinite(best) & ((gaps[-1] <= 100 * noise[-1]) | (gaps[-1] < 0.25 * gaps[-3]))
    for quotients, other in ((rights, low[-1]), (lefts, high[-1])):
        slope, error = _extrapolated(quotients, noise, 4.0)
        alone = ~np.isfinite(other) & np.isfinite(slope)
        best, least = np.where(alone, slope, best), np.where(alone, error, least)
        largest = np.max(_magnitudes(quotients), axis=0)
        usable = np.where(alone, error <= ONE_SIDED_TOLERANCE * largest + 100 * noise[-1], usable)
    return best, least, np.isfinite(middle) & usable


def _extrapolated(quotients: Array, noises: Array, ratio: float) -> tuple[Array, Array]:
    """Quotients for ever shorter steps, extrapolated to a step of zero, and the error of that.

    From one step to the next the leading term of a quotient's own error falls by `ratio`.
    """
    best, least = np.full(quotients[0].shape, np.nan), np.full(quotients[0].shape, np.inf)
    before: list[Array] = []
    for quotient, noise in zip(quotients, noises, strict=True):
        row = [quotient]
        for order in range(1, min(len(before), MAX_ORDER) + 1):
            row.append(row[-1] + (row[-1] - before[order - 1]) / (ratio**order - 1))
        for order in range(1, len(row)):
            error = np.maximum(np.abs(row[order] - row[order - 1]), np.abs(row[order] - before[order - 1])) + noise
            # Where two steps contradict each other, the shorter one counts: the longer went over a kink or a jump.
            better = (error < least) | (np.abs(row[order] - best) > 10 * (error + least))
            best, least = np.where(better, row[order], best), np.where(better, error, least)
        before = row
    return best, least


def _magnitudes(numbers: Array) -> Array:
    """The sizes of numbers, 0 for those that are not finite."""
    return np.where(np.isfinite(numbers), np.abs(numbers), 0.0)


def _rounding(dtype: np.dtype[Any]) -> float:
    """The default tolerance of a derivative of this dtype; 16-bit floats are computed in float32."""
    if dtype.itemsize > 2:
        return ROUNDINGS * float(np.finfo(dtype).eps)
    eps = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    return 2 * eps + ROUNDINGS * float(np.finfo(np.float32).eps)


def _movable(given: dict[str, Array]) -> dict[str, Array]:
    """The arguments in double precision, with the two parts of each that is complex."""
    numbers: dict[str, Array] = {}
    for name, array in given.items():
        is_complex = array.dtype.kind == "c"
        parts = {f"{name}.real": array.real, f"{name}.imag": array.imag} if is_complex else {name: array}
        numbers |= {each: part if part.dtype.kind in "biu" else part.astype(np.float64) for each, part in parts.items()}
    return numbers


def _complex(real: Array, imag: Array) -> Array:
    """The complex numbers of these parts, of which each may be infinite or NaN."""
    both = np.empty(np.shape(real), np.complex128)
    both.real, both.imag = real, imag
    return both


def _host(array: Any) -> Array:
    """A NumPy array, also of one on a GPU."""
    return np.asarray(array.get() if hasattr(array, "get") else array)


# --- the table of differences -----------------------------------------------------------------------------------------


class _Table:
    """Collects differences, and raises the error that shows them."""

    def __init__(self, title: str, got: str, wanted: str, arguments: Sequence[Array]) -> None:
        self.title, self.arguments = title, arguments
        self.lines = [("derivative", "element", "arguments", got, wanted, "relative difference")]
        self.compared = self.wrong = 0
        self.largest = 0.0

    def compare(
        self, label: str, got: Array, wanted: Array, usable: Array, rtol: float, least: float, slack: Any = 0.0
    ) -> None:
        """Add the usable elements that differ by more than `rtol` of their size and `slack` together.

        The size is that of the larger one, and at least the share `least` of the largest of all.
        """
        size = np.maximum(_magnitudes(got), _magnitudes(wanted))
        size = np.maximum(size, least * np.max(size, initial=0.0))
        with np.errstate(all="ignore"):
            error = np.where(got == wanted, 0.0, np.abs(got - wanted))
            relative = np.where(error == 0, 0.0, error / size)
        relative = np.where(np.isnan(relative), np.inf, relative)
        self.compared += int(np.sum(usable))
        self.largest = max(self.largest, float(np.max(relative, initial=0.0, where=usable)))
        wrong = np.argwhere(usable & ~(error <= rtol * size + slack))
        for index in wrong[: max(0, MAX_TABLE_LINES - self.wrong)].tolist():
            at = tuple(index)
            point = ", ".join(f"{array[at]:.6g}" for array in self.arguments)
            numbers = (f"{got[at]:.10g}", f"{wanted[at]:.10g}", f"{relative[at]:.2g}")
            self.lines.append((label, str(index), f"({point})", *numbers))
        self.wrong += len(wrong)

    def judge(self) -> float:
        """The largest relative difference; raises the error where an element differs by too much."""
        if not self.compared:
            raise ArgumentError("there is nothing to compare with at any of these points; give other points")
        if self.wrong:
            widths = [max(map(len, column)) for column in zip(*self.lines, strict=True)]
            lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in self.lines]
            if self.wrong > MAX_TABLE_LINES:
                lines.append(f"… and {self.wrong - MAX_TABLE_LINES} more")
            counted = f"{self.wrong} of {self.compared} elements"
            raise DerivativeError("\n".join([f"{self.title} ({counted})", *lines]))
        return self.largest
