"""What is exact at any point: also at zeros, infinities and the edges of domains, by limits or by convention.

A zero or an infinity stands for the limit, which arguments far beyond the formats show; where a convention says
something else, or the function leaps there, that is written out.
"""

# ruff: noqa: ARG005

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import probability_oracles as probability
import transcendental_oracles
from range_oracles import ANY, P27, PRECISION, THIRD, Form

__all__ = ["exact"]

inf, nan, pi = math.inf, math.nan, math.pi
# Far beyond the formats, so that its place shows what a limit is.
_FAR = 6000

# --- conventions ---------------------------------------------------------------------------------------------------

_NONE = (nan, nan, nan)
# Where the value, the slopes and the curvatures are a convention, or the limit takes a hand: as C, IEEE 754, Python,
# PyTorch and JAX have it.
_AT: dict[str, dict[float | str, tuple[float | None, ...]]] = {
    **transcendental_oracles.ENDS,
    "sqrt": {"-0": (-0.0, -inf, ANY)},
    "root": {"-0": (0.0, inf, -inf), -inf: (inf, ANY, ANY)},
    "inverse_root": {"-0": (inf, -inf, inf), -inf: (0.0, ANY, ANY)},
    "root_cubed": {"-0": (0.0, 0.0, inf), -inf: (inf, ANY, ANY)},
    "inverse_root_cubed": {"-0": (inf, -inf, inf), -inf: (0.0, ANY, ANY)},
    **{name: {"-0": (-inf, ANY, ANY)} for name in ("log", "log2", "log10")},
    **{f"x ** {p:.4g}": {"-0": (0.0, ANY, ANY), -inf: (inf, ANY, ANY)} for p in (THIRD, P27, 2.5, 12.25)},
    f"x ** {-P27:.4g}": {"-0": (inf, ANY, ANY), -inf: (0.0, ANY, ANY)},
    "log1p": {-1.0: (-inf, inf, -inf)},
    "asin": {1.0: (pi / 2, inf, inf), -1.0: (-pi / 2, inf, -inf)},
    "acos": {1.0: (0.0, -inf, -inf), -1.0: (pi, -inf, inf)},
    "acosh": {1.0: (0.0, inf, -inf)},
    "atanh": {1.0: (inf, inf, inf), -1.0: (-inf, inf, -inf)},
    "erfinv": {1.0: (inf, inf, inf), -1.0: (-inf, inf, -inf)},
    "ndtri": {"+0": (-inf, inf, -inf), "-0": (-inf, inf, -inf), 1.0: (inf, inf, inf)},
    "logit": {"-0": (-inf, ANY, ANY), 1.0: (inf, inf, inf)},
    **{name: {inf: _NONE, -inf: _NONE} for name in ("sin", "cos", "tan")},
    "sinc": {inf: (nan, ANY, ANY), -inf: (nan, ANY, ANY)},
    **{name: {"+0": (0.0, 0.0, 0.0), "-0": (0.0, 0.0, 0.0)} for name in ("fabs", "abs", "sign")},
    **{name: {"+0": (0.0, 0.0, 0.0), "-0": (-0.0, 0.0, 0.0)} for name in ("floor", "ceil", "trunc", "rint")},
    **probability.AT,
    "lgamma": {-inf: (inf, ANY, ANY)},
    **{name: {-inf: (nan, ANY, ANY)} for name in ("tgamma", "digamma", "polygamma 0")},
}


def _ends_of_pow(x: float, p: float) -> tuple[float | None, ...] | None:
    """Where the base or the exponent is a zero or an infinity, the value is C's."""
    if x != x or p != p or (x and p and math.isfinite(x) and math.isfinite(p)):
        return None
    try:
        value = math.pow(x, p)
    except ValueError:  # 0 to a negative power
        value = math.copysign(inf, x) if p == math.floor(p) and p % 2 == 1 else inf
    if p == 0 and math.isfinite(x):
        return (1.0, 0.0, nan if x < 0 else -inf if x == 0 else float(mp.log(x)), *[ANY] * 3)
    if x == 0 and math.copysign(1.0, x) > 0 and 0 < p < inf:
        slope, curvature = (0.0 if p > q else q if p == q else inf for q in (1.0, 2.0))
        return (value, slope, 0.0, curvature if p > 1 else -inf if p < 1 else 0.0, ANY, 0.0)
    if x == 0 and math.copysign(1.0, x) > 0 and -inf < p < 0:
        return (inf, -inf, -inf, inf, ANY, inf)
    if x == inf and -inf < p < 0:
        return (0.0, 0.0, 0.0, 0.0, ANY, 0.0)
    if x == inf and 0 < p < inf:
        slope, curvature = (inf if p > q else q if p == q else 0.0 for q in (1.0, 2.0))
        return (inf, slope, inf, curvature, ANY, inf)
    return (value, *[ANY] * 5)


def _ends_of_remainder(signed_as: int) -> Callable[[float, float], tuple[float | None, ...] | None]:
    """A remainder of 0 has the sign of the one argument or of the other."""

    def of(a: float, b: float) -> tuple[float | None, ...] | None:
        if b == 0 or math.isinf(a):
            return (nan, *[ANY] * 5)
        if math.isinf(b):
            return (ANY, 1.0, *[ANY] * 4)
        zero = math.copysign(0.0, (a, b)[signed_as])
        return (zero, 1.0, 0.0, 0.0, 0.0, 0.0) if a == 0 and b == b else None

    return of


def _ends_of_floor_divide(a: float, b: float) -> tuple[float | None, ...] | None:
    zeros = (0.0,) * 5
    if math.isinf(a):
        return (ANY if b == 0 else nan, *zeros)
    zero = math.copysign(0.0, math.copysign(1.0, a) * b)
    return (zero, *zeros) if a == 0 and b == b and b != 0 else None


def _zero_times(end: float) -> Callable[[float, float], tuple[float | None, ...] | None]:
    """0 times a logarithm is 0, also where that is none."""

    def of(a: float, b: float) -> tuple[float | None, ...] | None:
        if a == 0 and b <= end:
            return (0.0, *[ANY] * 5)
        if b == end and a == a:  # also at -0.0
            return (math.copysign(inf, -a), -inf, *[ANY] * 4)
        if math.isinf(a) and b == 1 + end:  # infinity times 0
            return (nan, *[ANY] * 5)
        return (ANY,) * 6 if b == -inf else None

    return of


_PAIRS: dict[str, Callable[[float, float], tuple[float | None, ...] | None]] = {
    "pow": _ends_of_pow,
    "x ** y": _ends_of_pow,
    "fmod": _ends_of_remainder(0),
    "modulo": _ends_of_remainder(1),
    "ieee_remainder": _ends_of_remainder(0),
    "floor_divide": _ends_of_floor_divide,
    "xlogy": _zero_times(0.0),
    "xlog1py": _zero_times(-1.0),
    "copysign": lambda a, b: (math.copysign(a, b), *[0.0] * 5) if a == 0 and b == b else None,
    "heaviside": lambda a, b: (b, 0.0, 1.0, 0.0, 0.0, 0.0) if a == 0 else None,
    "ldexp": lambda a, n: (a, *[ANY] * 5) if a == 0 or not math.isfinite(a) else None,
}


# --- exact results -------------------------------------------------------------------------------------------------


def exact(form: Form, point: tuple[float, ...]) -> tuple[Any, ...]:
    """The exact results at a point; ANY where nothing is promised."""
    count = 3 if form.arity == 1 else 6
    if form.arity == 1:
        (x,) = point
        convention = _AT.get(form.name, {}).get(("-0" if math.copysign(1.0, x) < 0 else "+0") if x == 0 else x)
    else:
        convention = _PAIRS.get(form.name, lambda *_: None)(*point)
    if convention is not None:
        return convention
    if any(x != x for x in point):
        # A choice or a step may not see it, and a slope may not depend on it.
        return (nan, ANY, ANY) if form.arity == 1 else (ANY,) * count
    ends = [x == 0 or math.isinf(x) for x in point]
    if sum(ends) > 1:
        return (ANY,) * count
    with mp.workprec(PRECISION):
        if not any(ends):
            return tuple(form.exact(*map(mp.mpf, point)))
        sides = [form.exact(*(_stand_in(x, far) for x in point)) for far in (_FAR, 2 * _FAR)]
        return tuple(map(_limit, *sides))


def _stand_in(x: float, far: int) -> Any:
    if x == 0:
        return mp.mpf(math.copysign(1.0, x)) * mp.mpf(2) ** -far
    return mp.mpf(math.copysign(1.0, x)) * mp.mpf(2) ** far if math.isinf(x) else mp.mpf(x)


def _limit(near: Any, far: Any) -> Any:
    """What a result tends to, from what it is at two far arguments."""
    if near is ANY or far is ANY or not mp.isfinite(near) or not mp.isfinite(far):
        return far
    if abs(far - near) <= abs(near) * mp.mpf(2) ** -200:
        return far
    return mp.sign(far) * mp.inf if abs(far) > abs(near) else mp.mpf(0)
