"""The methods of `scipy.stats` distributions, with location and scale.

Comes in: the functions of the three files of distributions. Goes out: functions in the language of scalar
functions with SciPy's arguments, by the dotted names that they have there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dualbcast.special.probability import closed_form_distributions, distributions, share_and_count_distributions

# All parts around a standard function have the same parameters; some need only a few of them.
# ruff: noqa: ARG001


def standardised(x: float, loc: float, scale: float) -> float:
    """The number x in units of the scale from the location on."""
    return (x - loc) / scale if scale > 0 else math.nan


def as_given(q: float, loc: float, scale: float) -> float:
    """The probability q itself."""
    return q


def per_scale(density: float, loc: float, scale: float) -> float:
    """The density of a scaled number."""
    return density / scale


def less_log_scale(logarithm: float, loc: float, scale: float) -> float:
    """The logarithm of the density of a scaled number."""
    return logarithm - math.log(scale)


def placed(z: float, loc: float, scale: float) -> float:
    """The number that is z in units of the scale from the location on."""
    return loc + scale * z if scale > 0 else math.nan


# What is done with the argument before, and with the result after the standard function.
_AROUND: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "pdf": (standardised, per_scale),
    "logpdf": (standardised, less_log_scale),
    **dict.fromkeys(("cdf", "sf", "logcdf", "logsf"), (standardised, as_given)),
    **dict.fromkeys(("ppf", "isf"), (as_given, placed)),
}


Standard = Callable[..., Any]


# SciPy's names of the shape parameters, as a call may give them by keyword.


def _none(standard: Standard, before: Standard, after: Standard) -> Standard:
    def method(x: float, loc: float = 0.0, scale: float = 1.0) -> Any:
        return after(standard(before(x, loc, scale)), loc, scale)

    return method


def _a(standard: Standard, before: Standard, after: Standard) -> Standard:
    def method(x: float, a: float, loc: float = 0.0, scale: float = 1.0) -> Any:
        return after(standard(before(x, loc, scale), a), loc, scale)

    return method


def _b(standard: Standard, before: Standard, after: Standard) -> Standard:
    def method(x: float, b: float, loc: float = 0.0, scale: float = 1.0) -> Any:
        return after(standard(before(x, loc, scale), b), loc, scale)

    return method


def _c(standard: Standard, before: Standard, after: Standard) -> Standard:
    def method(x: float, c: float, loc: float = 0.0, scale: float = 1.0) -> Any:
        return after(standard(before(x, loc, scale), c), loc, scale)

    return method


def _s(standard: Standard, before: Standard, after: Standard) -> Standard:
    def method(x: float, s: float, loc: float = 0.0, scale: float = 1.0) -> Any:
        return after(standard(before(x, loc, scale), s), loc, scale)

    return method


def _df(standard: Standard, before: Standard, after: Standard) -> Standard:
    def method(x: float, df: float, loc: float = 0.0, scale: float = 1.0) -> Any:
        return after(standard(before(x, loc, scale), df), loc, scale)

    return method


def _a_b(standard: Standard, before: Standard, after: Standard) -> Standard:
    def method(x: float, a: float, b: float, loc: float = 0.0, scale: float = 1.0) -> Any:
        return after(standard(before(x, loc, scale), a, b), loc, scale)

    return method


def _dfn_dfd(standard: Standard, before: Standard, after: Standard) -> Standard:
    def method(x: float, dfn: float, dfd: float, loc: float = 0.0, scale: float = 1.0) -> Any:
        return after(standard(before(x, loc, scale), dfn, dfd), loc, scale)

    return method


def _mu(standard: Standard, before: Standard, after: Standard) -> Standard:
    def method(k: float, mu: float, loc: float = 0.0) -> Any:
        return standard(k - loc, mu)

    return method


def _p(standard: Standard, before: Standard, after: Standard) -> Standard:
    def method(k: float, p: float, loc: float = 0.0) -> Any:
        return standard(k - loc, p)

    return method


def _n_p(standard: Standard, before: Standard, after: Standard) -> Standard:
    def method(k: float, n: float, p: float, loc: float = 0.0) -> Any:
        return standard(k - loc, n, p)

    return method


_BY_NAMES = {
    (): _none,
    ("a",): _a,
    ("b",): _b,
    ("c",): _c,
    ("s",): _s,
    ("df",): _df,
    ("a", "b"): _a_b,
    ("dfn", "dfd"): _dfn_dfd,
    ("mu",): _mu,
    ("p",): _p,
    ("n", "p"): _n_p,
}


def _located(name: str, standard: Any) -> Standard:
    """The method that a function such as `gamma_pdf` is the standard form of."""
    method = name.rpartition("_")[2]
    names = standard.__code__.co_varnames[1 : standard.__code__.co_argcount]
    located = _BY_NAMES[names](standard, *_AROUND.get(method, _AROUND["cdf"]))
    located.__doc__ = standard.__doc__
    return located


METHODS: dict[str, Standard] = {
    f"scipy.stats.{'.'.join(name.rsplit('_', 1))}": _located(name, standard)
    for module in (distributions, closed_form_distributions, share_and_count_distributions)
    for name, standard in vars(module).items()
    if name.rpartition("_")[2] in (*_AROUND, "pmf", "logpmf") and standard.__module__ == module.__name__
}
