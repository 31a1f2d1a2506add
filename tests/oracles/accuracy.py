"""How wrong functions are on the CPU backend: where to look, the exact values, and the largest error found there.

The unit is that of the last place of the exact value, below the smallest normal number that of all of them; what is
rounded correctly is at most half of one off. Points are screened against NumPy, SciPy or the C library in a wider
format, and what looks worst is computed again by mpmath, which alone says what the error is.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import dataclasses
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import mpmath
import numpy as np
import scipy.special
from range_oracles import normal_quantile

from dualbcast import arithmetic, differentiable_broadcast, special
from dualbcast.codegen import mathlib
from dualbcast.codegen.llvm import target
from dualbcast.codegen.mathlib import tables
from dualbcast.runtime.cpu import kernel as cpu_kernel

inf = float("inf")
Exact = Callable[..., Any]
Wide = Callable[..., np.ndarray]


def units_off(got: np.floating, exact: mpmath.mpf, scale: float = 0.0) -> float:
    """The error of `got` in units of the last place of `exact`; what overflows counts as the power of two beyond.

    With `scale` the unit is that of a number of this size where `exact` is smaller.
    """
    info = np.finfo(got.dtype)
    last = mpmath.mpf(float(info.smallest_subnormal))
    size = max(abs(exact), scale)
    if size != 0:
        exponent = int(mpmath.floor(mpmath.log(size, 2)))
        exponent = min(exponent, int(info.maxexp) - 1)
        last = max(last, mpmath.mpf(2) ** (exponent - int(info.nmant)))
    beyond = mpmath.mpf(2) ** int(info.maxexp)
    value = mpmath.sign(float(got)) * beyond if np.isinf(got) else mpmath.mpf(float(got))
    exact = max(min(exact, beyond), -beyond)
    return float(abs(value - exact) / last)


def screened(got: np.ndarray, wide: np.ndarray, scale: float = 0.0) -> np.ndarray:
    """The same for arrays, from a wider format; a NaN too many or too few is infinitely off."""
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        beyond = np.ldexp(wide.dtype.type(1), int(info.maxexp))
        exponents = np.clip(np.frexp(np.clip(np.abs(wide), scale, beyond))[1] - 1, info.minexp, info.maxexp - 1)
        got_wide = np.where(np.isinf(got), np.copysign(beyond, got), got.astype(wide.dtype))
        errors = np.abs(got_wide - np.clip(wide, -beyond, beyond)) * np.ldexp(
            wide.dtype.type(1), int(info.nmant) - exponents
        )
    errors = np.where(np.isnan(got) != np.isnan(wide), np.inf, np.where(np.isnan(wide), 0, errors))
    return errors.astype(np.float64)


# --- the functions ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Case:
    """A function, its exact value, its value in a wider format, and what is special about where it is looked at.

    `within` bounds the arguments; `near` are points that errors grow towards, or where the way of computing changes;
    `limits` are for float32 and float64, 4 unless a reason is given. Where the value is smaller than `scale`, the unit
    is the last place of that.
    """

    exact: Exact
    wide: Wide
    within: tuple[float, float] = (-inf, inf)
    near: tuple[float, ...] = ()
    limits: tuple[float, float] = (4.0, 4.0)
    reason: str = ""
    scale: float = 0.0


class _LongDouble(ctypes.c_longdouble):
    """Returned as it is: ctypes makes a Python float, and loses digits, of the type itself only."""


def _c_long_double(name: str) -> Wide:
    """A function of the C library in the widest format that it has."""
    function = getattr(target._c_library(), f"{name}l")
    function.argtypes, function.restype = [ctypes.c_longdouble], _LongDouble

    def wide(x: np.ndarray) -> np.ndarray:
        found = b"".join(bytes(function(float(value))) for value in x.ravel())
        return np.frombuffer(found, np.longdouble)

    return wide


def _gamma_like(name: str, function: Wide) -> Wide:
    return lambda x: _c_long_double(name)(x) if x.dtype == np.longdouble else function(x)


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


def _pi(x: np.ndarray) -> Any:
    return 4 * np.arctan(x.dtype.type(1))


def _wide_sinc(x: np.ndarray) -> np.ndarray:
    turn = x - 2 * np.rint(x / 2)
    turn = np.where(np.abs(turn) > 0.5, np.copysign(1, turn) - turn, turn)
    return np.where(x == 0, 1, np.sin(_pi(x) * turn) / (_pi(x) * np.where(x == 0, 1, x)))


def _exact_lgamma(x: Any) -> Any:
    return mpmath.log(abs(mpmath.gamma(x))) if x < 0 else mpmath.loggamma(x)


def _exact_erfc(x: Any) -> Any:
    return mpmath.mpf(1 - mpmath.sign(x)) if abs(x) > 150 else mpmath.erfc(x)


_OF_EXP = "the errors of exp and of the operations after it add up"
_ROUNDED = "its argument is rounded before the function is taken, which the function magnifies"

CASES: dict[str, Case] = {
    "sqrt": Case(mpmath.sqrt, np.sqrt, (0, inf), limits=(0.5, 0.5)),
    "root": Case(mpmath.sqrt, np.sqrt, (0, inf), limits=(0.5, 0.5)),
    "inverse_root": Case(lambda x: 1 / mpmath.sqrt(x), lambda x: 1 / np.sqrt(x), (0, inf), limits=(1.6, 1.6)),
    "root_cubed": Case(lambda x: x * mpmath.sqrt(x), lambda x: x * np.sqrt(x), (0, inf), limits=(1.6, 1.6)),
    "inverse_root_cubed": Case(
        lambda x: 1 / (x * mpmath.sqrt(x)), lambda x: 1 / np.sqrt(x) / x, (0, inf), limits=(2.1, 2.1)
    ),
    "cbrt": Case(lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), np.cbrt),
    "exp": Case(mpmath.exp, np.exp, (-800, 720), (0.0, 88.72, -87.33, -103.97, 709.78, -708.39, -745.13)),
    "exp2": Case(lambda x: mpmath.mpf(2) ** x, np.exp2, (-1100, 1030), (0.0, 128.0, -126.0, -149.0, 1024.0, -1022.0)),
    "expm1": Case(mpmath.expm1, np.expm1, (-800, 720), (0.0, 0.3466, -0.3466, 88.72, 709.78)),
    "log": Case(mpmath.log, np.log, (0, inf), (1.0, 0.7071, 1.4142)),
    "log2": Case(lambda x: mpmath.log(x) / mpmath.log(2), np.log2, (0, inf), (1.0, 0.7071, 1.4142)),
    "log10": Case(lambda x: mpmath.log(x) / mpmath.log(10), np.log10, (0, inf), (1.0, 0.7071, 1.4142)),
    "log1p": Case(mpmath.log1p, np.log1p, (-1, inf), (0.0, -1.0, 0.4142, -0.2929)),
    "sin": Case(mpmath.sin, np.sin, near=(0.0, 3.14159265358979, 1.5707963, 6.283185)),
    "cos": Case(mpmath.cos, np.cos, near=(0.0, 1.57079632679489, 4.7123889, 3.1415926)),
    "tan": Case(mpmath.tan, np.tan, near=(0.0, 1.57079632679489, 3.14159265358979)),
    "asin": Case(mpmath.asin, np.arcsin, (-1, 1), (0.0, 0.5, 1.0, -1.0)),
    "acos": Case(mpmath.acos, np.arccos, (-1, 1), (0.0, 0.5, 1.0, -1.0)),
    "atan": Case(mpmath.atan, np.arctan, near=(0.0, 0.5, 1.0, 2.0)),
    "sinh": Case(mpmath.sinh, np.sinh, (-720, 720), (0.0, 89.4, 710.47)),
    "cosh": Case(mpmath.cosh, np.cosh, (-720, 720), (0.0, 89.4, 710.47)),
    "tanh": Case(mpmath.tanh, np.tanh, near=(0.0, 0.1733, 0.32, 0.5199, 9.01, 19.06)),
    "asinh": Case(mpmath.asinh, np.arcsinh, near=(0.0, 1.0)),
    "acosh": Case(mpmath.acosh, np.arccosh, (1, inf), (1.0, 2.0)),
    "atanh": Case(mpmath.atanh, np.arctanh, (-1, 1), (0.0, 0.5, 1.0, -1.0)),
    "erf": Case(mpmath.erf, _gamma_like("erf", scipy.special.erf), near=(0.0, 0.84375, 1.25, 4.0)),
    "erfc": Case(
        _exact_erfc,
        _gamma_like("erfc", scipy.special.erfc),
        near=(0.0, 0.84375, 1.25, 10.05, 26.5),
        limits=(4.0, 5.0),
        reason="the C library's, just below 1.25",
    ),
    "lgamma": Case(
        _exact_lgamma,
        _gamma_like("lgamma", scipy.special.gammaln),
        (-30, inf),
        (0.0, 1.0, 2.0, 3.0, 5.0, 8.0, -2.457, -2.747, -3.9226),
        (10.0, 10.0),
        "the C library's, where its argument is negative",
    ),
    "tgamma": Case(
        mpmath.gamma,
        _gamma_like("tgamma", scipy.special.gamma),
        (-30, 172),
        (1.0, 2.0, 0.5, 3.5, 5.5, -0.5, -1.0, -2.0, 35.04, 171.6),
        (10.0, 10.0),
        "the C library's, whose manual allows 9",
    ),
    "sigmoid": Case(
        lambda x: 1 / (1 + mpmath.exp(-x)),
        lambda x: 1 / (1 + np.exp(-x)),
        (-800, inf),
        (0.0, -87.33, -103.97),
        (4.0, 5.0),
        _OF_EXP,
    ),
    "softplus": Case(
        lambda x: mpmath.log1p(mpmath.exp(x)), _softplus, (-800, inf), (0.0, -87.33, -103.97), (4.0, 6.0), _OF_EXP
    ),
    "log_sigmoid": Case(
        lambda x: -mpmath.log1p(mpmath.exp(-x)), lambda x: -_softplus(-x), (-inf, 800), (0.0,), (4.0, 6.0), _OF_EXP
    ),
    "logit": Case(
        lambda x: mpmath.log(x) - mpmath.log1p(-x),
        lambda x: np.where(abs(x - 0.5) < 0.25, 2 * np.arctanh(2 * x - 1), np.log(x) - np.log1p(-x)),
        (0, 1),
        (0.5, 1.0),
        reason="near 1/2, where it is 0, " + _ROUNDED,
        scale=1.0,
    ),
    "exp10": Case(
        lambda x: mpmath.mpf(10) ** x, lambda x: np.power(x.dtype.type(10), x), (-330, 310), (0.0, 38.53, -37.9, -44.8)
    ),
    "erfinv": Case(
        mpmath.erfinv,
        scipy.special.erfinv,
        (-1, 1),
        (0.0, 0.85, 1.0),
        (8.0, 8.0),
        "a quotient of polynomials, a root and a logarithm",
    ),
    "ndtr": Case(
        mpmath.ncdf,
        scipy.special.ndtr,
        (-40, 40),
        (0.0, -1.15, -5.6, -13.0, -37.5),
        (5.0, 5.0),
        "the errors of erfc and of the corrected argument add up",
    ),
    "ndtri": Case(
        lambda p: normal_quantile(p) if 0 < p < 1 else mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1),
        scipy.special.ndtri,
        (0, 1),
        (0.0, 0.075, 0.5, 0.925, 1.0),
        (8.0, 8.0),
        "a quotient of polynomials, a root and a logarithm",
    ),
    "digamma": Case(
        mpmath.digamma,
        scipy.special.digamma,
        (1e-300, inf),
        (1.4616,),
        (16.0, 8.0),
        "a sum of up to ten quotients and a logarithm, which cancel near its zero at 1.46",
        scale=1.0,
    ),
    "sinc": Case(
        mpmath.sincpi,
        _wide_sinc,
        (-1e6, 1e6),
        (0.0, 1.0, 2.0),
        limits=(4.0, 5.0),
        reason="a sine and a quotient",
    ),
}
PAIRS: dict[str, Case] = {
    "atan2": Case(mpmath.atan2, np.arctan2),
    "hypot": Case(mpmath.hypot, np.hypot),
    "pow": Case(mpmath.power, np.power),
    "fmod": Case(mpmath.fmod, np.fmod, limits=(0.5, 0.5)),
}

_SPELLINGS = {"lgamma": "lgamma", "tgamma": "gamma"}
# float64 functions of these have no reference but mpmath.
MPMATH_ONLY = {"erfinv", "digamma", "ndtr", "ndtri"}


def function_of(name: str) -> Callable[..., Any]:
    """A scalar function that returns the named one of its arguments, as a user would write it."""
    if name in special.__all__:
        return getattr(special, name)  # type: ignore[no-any-return]
    if name in arithmetic.__all__:
        return getattr(arithmetic, name)  # type: ignore[no-any-return]
    return written(f"math.{_SPELLINGS.get(name, name)}", 2 if name in PAIRS else 1)


def written(spelling: str, arity: int) -> Callable[..., Any]:
    """A scalar function of x0, x1, … that calls what is spelled so."""
    arguments = ", ".join(f"x{position}" for position in range(arity))
    modules = "import math\nimport dualbcast.arithmetic\nimport dualbcast.special\nimport numpy\nimport scipy.special\n"
    text = f"{modules}\ndef of({arguments}):\n    return {spelling}({arguments})\n"
    path = os.path.join(_folder(), f"{spelling}.py")  # the compiler reads the source of what it compiles
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    namespace: dict[str, Any] = {}
    exec(compile(text, path, "exec"), namespace)
    return namespace["of"]  # type: ignore[no-any-return]


@functools.cache
def _folder() -> str:
    folder = tempfile.mkdtemp(prefix="dualbcast-accuracy-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextlib.contextmanager
def computed_by(*, inlined: bool = True, in_tables: bool = True) -> Iterator[None]:
    """Kernels of now on inline what can be only if `inlined`, and look numbers up in registers only if `in_tables`."""
    inlined, in_tables = inlined and mathlib.has_fma(), in_tables and tables.available()
    with tempfile.TemporaryDirectory() as cache, contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, DUALBCAST_CACHE_DIR=cache))
        stack.enter_context(mock.patch.object(mathlib, "has_fma", return_value=inlined))
        stack.enter_context(mock.patch.object(tables, "available", return_value=in_tables))
        stack.enter_context(mock.patch.dict(cpu_kernel._kernels, clear=True))
        mathlib.names.cache_clear()
        try:
            yield
        finally:
            mathlib.names.cache_clear()


# --- where to look ---------------------------------------------------------------------------------------------------


def points(case: Case, dtype: str, count: int, seed: int = 0) -> np.ndarray:
    """About `count` arguments: of all exponents alike, ordinary ones, and many near what is special."""
    random = np.random.default_rng(seed)
    info = np.finfo(dtype)
    integer = np.uint32 if dtype == "float32" else np.uint64
    # Bit patterns at random are log-uniform over the format, subnormal numbers included.
    patterns = random.integers(0, np.iinfo(integer).max, count // 4, integer, endpoint=True).view(dtype)
    low, high = max(case.within[0], -100.0), min(case.within[1], 100.0)
    ordinary = random.uniform(low, high, count // 4)
    small = random.normal(0, 1, count // 4) * np.exp2(random.integers(-6, 4, count // 4))
    parts = [patterns.astype(dtype), ordinary.astype(dtype), small.astype(dtype)]
    for place in case.near or (1.0,):
        each = count // 4 // len(case.near or (1,))
        away = np.exp2(random.uniform(-int(info.nmant), -1, each)) * random.choice([-1.0, 1.0], each)
        parts.append((place + away * max(abs(place), 1.0)).astype(dtype))
    x = np.concatenate(parts)
    x = x[np.isfinite(x) & (x > case.within[0]) & (x < case.within[1])]
    return np.ascontiguousarray(x[: x.size - x.size % 64])


def every(case: Case, stride: int, block: int) -> np.ndarray:
    """Each `stride`-th float32 of the `block`-th sixteenth of all bit patterns, as far as they are arguments."""
    start = block << 28
    patterns = np.arange(start + block % stride, start + (1 << 28), stride, dtype=np.uint32)
    x = patterns.view(np.float32)
    with np.errstate(invalid="ignore"):
        x = x[np.isfinite(x) & (x > case.within[0]) & (x < case.within[1])]
    return np.ascontiguousarray(x[: x.size - x.size % 64])


def around(x: float, case: Case, dtype: str) -> np.ndarray:
    """The neighbours of a number, half a million on either side in float32; in float64 as many, spread wider."""
    integer = np.int32 if dtype == "float32" else np.int64
    steps = np.arange(-(1 << 19), 1 << 19, dtype=integer) * integer(1 if dtype == "float32" else (1 << 24) + 1)
    near = (np.array(x, dtype).view(integer) + steps).view(dtype)
    with np.errstate(invalid="ignore"):
        near = near[np.isfinite(near) & (near > case.within[0]) & (near < case.within[1])]
    return np.ascontiguousarray(near[: near.size - near.size % 64])


def pairs(name: str, dtype: str, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Arguments of a function of two: of all exponents, ordinary ones, and for `pow` results of all sizes."""
    random = np.random.default_rng(seed)
    half = count // 2
    top = np.finfo(dtype).maxexp - 40
    wide = [np.exp2(random.uniform(-top, top, half)) * random.choice([-1, 1], half) for _ in range(2)]
    near = [random.normal(0, 3, half) * np.exp2(random.integers(-3, 4, half)) for _ in range(2)]
    if name == "pow":
        wide[0] = np.abs(wide[0])
        wide[1] = random.uniform(-top, top, half) / np.log2(wide[0])
        near[0] = np.where(
            random.random(half) < 0.5, np.abs(near[0]), 1 + near[0] * 2.0 ** -random.uniform(5, 20, half)
        )
        near[0] = np.abs(near[0])
    elif name == "fmod":  # mpmath's quotient needs all its digits
        wide = near
    else:
        wide[1] = wide[0] * np.exp2(random.uniform(-30, 30, half))
    x, y = (np.concatenate(two).astype(dtype) for two in zip(wide, near, strict=True))
    fits = np.isfinite(x) & np.isfinite(y) & (x != 0) & (y != 0)
    return x[fits], y[fits]


# --- the largest error -----------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Worst:
    """The largest error found, where it is, and at how many points it was looked for."""

    error: float = 0.0
    at: tuple[float, ...] = ()
    count: int = 0

    def add(self, other: Worst) -> None:
        if other.error > self.error:
            self.error, self.at = other.error, other.at
        self.count += other.count


def worst(name: str, kernel: Any, arguments: tuple[np.ndarray, ...], confirmed: int = 12) -> Worst:
    """The largest error of `kernel`, the function `name`, at `arguments`."""
    case = CASES.get(name) or PAIRS[name]
    got = kernel(*arguments)
    if got.dtype == np.float64 and name in MPMATH_ONLY:
        suspects = np.arange(got.size)
    else:
        wide = np.float64 if got.dtype == np.float32 else np.longdouble
        with np.errstate(all="ignore"):
            errors = screened(got, case.wide(*(array.astype(wide) for array in arguments)), case.scale)
        if name == "fmod":  # exact, as NumPy's is, and not mpmath's
            at = int(errors.argmax())
            return Worst(float(errors[at]), tuple(float(array[at]) for array in arguments), got.size)
        suspects = np.argsort(errors)[-confirmed:]
    found = Worst(count=got.size)
    with mpmath.workprec(200):
        for index in suspects:
            point = tuple(float(array[index]) for array in arguments)
            exact = case.exact(*map(mpmath.mpf, point))
            error = inf if np.isnan(got[index]) else units_off(got[index], exact, case.scale)
            if error > found.error:
                found.error, found.at = error, point
    return found


STRIDE, COUNT, FEW = 97, 1_000_000, 20_000


def thorough(name: str, dtype: str) -> Worst:
    """The worst of a function, computed as the current `computed_by` has it, at some ten million points in float32."""
    kernel = compiled(name, dtype)
    if name in PAIRS:
        return worst(name, kernel, pairs(name, dtype, COUNT))
    case = CASES[name]
    few = dtype == "float64" and name in MPMATH_ONLY
    found = worst(name, kernel, (points(case, dtype, FEW if few else COUNT),))
    for block in range(16) if dtype == "float32" else ():
        x = every(case, STRIDE, block)
        if x.size:
            found.add(worst(name, kernel, (x,)))
    x = around(found.at[0], case, dtype)
    found.add(worst(name, kernel, (x[:: FEW // 4 if few else 1].copy(),)))
    return found


def compiled(name: str, dtype: str) -> Any:
    """The function, with its kernel compiled for one dtype as the current `computed_by` has it."""
    function: Any = differentiable_broadcast(function_of(name))
    ones = np.full(64, 0.5, dtype)
    function(*([ones, ones] if name in PAIRS else [ones]))
    return function
