"""The products beyond value and Jacobian of one program: jvp, vjp, Hessian, product with it, partial, each alone.

First derivatives are those of dual numbers, with the tolerances of `examine`; second ones are differences at 60 digits,
at points where nothing is about to turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from examine import Expected, Tally, hold
from oracles import numbers_of, second_differences
from program import Program

__all__ = ["PRODUCTS", "examine_products"]

# Of second derivatives, relative to one more than the sum of what was added up.
CLOSE, CLOSE_SINGLE = 1e-6, 2e-3
FIRST, SECOND = ("jvp", "vjp", "value", "jacobian"), ("hessian", "hvp", "partial")
PRODUCTS = (*FIRST, *SECOND)


def examine_products(
    program: Program,
    expected: dict[int, Expected],
    tally: Tally,
    which: Sequence[str] = PRODUCTS,
    backend: Any = "python",
    points: int = 4,
) -> None:
    """Raise `Mismatch` where a product of a program is not what is right.

    Parameters
    ----------
    program : Program
    expected : dict of int to Expected
        See `examine.expectations`.
    tally : Tally
        What was seen is added to it.
    which : sequence of str
        Of `PRODUCTS`.
    backend : str
    points : int
        At how many points second derivatives are compared.
    """
    if not program.wrt:
        return
    function: Any = program.kernel(backend)
    names = tuple(program.names[at] for at in program.wrt)
    with np.errstate(all="ignore"):
        for name in FIRST:
            if name in which:
                _FIRST[name](program, function, names, expected, tally)
        if not set(which) & set(SECOND):
            return
        seconds = _seconds(program, expected, points)
        for name in SECOND:
            if name in which:
                _hold_seconds(program, name, _computed(program, function, name, names), seconds, tally)


def _weights(program: Program) -> dict[int, float]:
    return {at: float(place + 1) for place, at in enumerate(program.wrt)}


def _jvp(program: Program, function: Any, _: Any, expected: dict[int, Expected], tally: Tally) -> None:
    weights = _weights(program)
    value, tangent = function.jvp(program.arguments, {program.names[at]: weight for at, weight in weights.items()})
    _hold_values(program, "jvp", value, expected, tally)
    for output, tangents in enumerate(map(program.flat, numbers_of(tangent))):
        for at, want in expected.items():
            slopes, by = want.slopes[output], want.slope_tolerances[output]
            if slopes.keys() == weights.keys():
                wanted = sum(weight * slopes[seed] for seed, weight in weights.items())
                hold(program, "jvp", at, f"of {output}", tangents[at], wanted, 2 * sum(
                    weight * (by[seed] + _unit(program, seed) * abs(slopes[seed])) for seed, weight in weights.items()
                ))  # fmt: skip
                tally.comparisons["jvp"] += 1


def _vjp(program: Program, function: Any, names: Any, expected: dict[int, Expected], tally: Tally) -> None:
    value, pullback = function.vjp(*program.arguments, wrt=names)
    _hold_values(program, "vjp", value, expected, tally)
    if pullback.shape != program.shape:  # numbers, and no array
        return
    floats = [np.asarray(each).dtype.kind == "f" for each in numbers_of(value)]
    for output in [at for at, is_float in enumerate(floats) if is_float]:
        chosen = [np.full(pullback.shape, float(other == output)) for other in range(len(floats))]
        for seed, pulled in zip(program.wrt, pullback(*chosen), strict=True):
            # Where numbers are not finite, a cotangent of zero does not leave out what depends.
            known = [
                output < len(want.slopes)
                and all(seed in slopes for slopes in (want.slopes if want.edge else want.slopes[output : output + 1]))
                for want in expected.values()
            ]
            if np.shape(pulled) == program.shape:
                places = {at: (at,) for at, is_known in zip(expected, known, strict=True) if is_known}
            elif len(known) == program.points and all(known):
                places = _summed(program, np.shape(pulled))
            else:
                tally.skipped["vjp: a term of the sum is not known"] += 1
                continue
            gradient = np.asarray(pulled).reshape(-1)
            for place, ats in places.items():
                terms = [expected[at].slopes[output][seed] for at in ats]
                by = 2 * sum(expected[at].slope_tolerances[output][seed] for at in ats)
                by += 64 * _unit(program, seed) * sum(map(abs, terms))
                wanted = sum(terms)
                if _unit(program, seed) > 1e-10:  # it is stored in float32
                    wanted, by = float(np.float32(wanted)), by + 3e-45
                hold(program, "vjp", ats[0], f"of {output} in {program.names[seed]}", gradient[place], wanted, by)
                tally.comparisons["vjp"] += 1


def _summed(program: Program, shape: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    """The points that each element of an argument takes part in."""
    owner = np.broadcast_to(np.arange(int(np.prod(shape))).reshape(shape), program.shape).reshape(-1)
    return {int(place): tuple(map(int, np.flatnonzero(owner == place))) for place in np.unique(owner)}


def _unit(program: Program, seed: int) -> float:
    """The rounding of what has the dtype of an argument."""
    single = program.single or (bool(program.dtypes) and program.dtypes[seed] == "float32" and seed != program.scalar)
    return 2.0**-24 if single else 2.0**-53


def _value(program: Program, function: Any, _: Any, expected: dict[int, Expected], tally: Tally) -> None:
    _hold_values(program, "value", function(*program.arguments), expected, tally)


def _hold_values(program: Program, what: str, value: Any, expected: dict[int, Expected], tally: Tally) -> None:
    for output, column in enumerate(map(program.flat, numbers_of(value))):
        for at, want in expected.items():
            hold(program, what, at, f"output {output}", column[at], want.values[output], want.value_tolerances[output])
            tally.comparisons[f"value of {what}" if what != "value" else "value alone"] += 1


def _jacobian(program: Program, function: Any, names: Any, expected: dict[int, Expected], tally: Tally) -> None:
    jacobian = function.jacobian(*program.arguments, wrt=names)
    for at, want in expected.items():
        for output, slopes in enumerate(want.slopes):
            for seed, slope in slopes.items():
                found = program.flat(jacobian[output, program.names[seed]])[at]
                hold(program, "jacobian", at, f"of {output}", found, slope, want.slope_tolerances[output][seed])
                tally.comparisons["derivative alone"] += 1


_FIRST = {"jvp": _jvp, "vjp": _vjp, "value": _value, "jacobian": _jacobian}


# --- second derivatives ----------------------------------------------------------------------------------------------

Seconds = dict[int, tuple[dict[tuple[int, int], float], ...]]


def _seconds(program: Program, expected: dict[int, Expected], points: int) -> Seconds:
    found: Seconds = {}
    for at in [at for at, want in expected.items() if want.smooth and not want.edge][:points]:
        try:
            found[at] = second_differences(program.function, program.point(at), program.wrt)
        except (ArithmeticError, ValueError, TypeError):  # not in mpmath, or a difference leaves the domain
            continue
    return found


def _computed(program: Program, function: Any, name: str, names: Any) -> Any:
    """Second derivatives by output, and by one or two places in `wrt`."""
    if name == "hessian":
        return function.hessian(*program.arguments, wrt=names)
    if name == "partial":
        return function.partial(names[-1]).jacobian(*program.arguments, wrt=names)
    return function.hvp(program.arguments, {program.names[at]: by for at, by in _weights(program).items()})


def _hold_seconds(program: Program, name: str, found: Any, seconds: Seconds, tally: Tally) -> None:
    close = CLOSE_SINGLE if program.single else CLOSE
    for at, rows in seconds.items():
        for output, row in enumerate(rows):
            for place, p in enumerate(program.wrt):
                terms = [row[min(p, q), max(p, q)] for q in program.wrt]
                if name == "hvp":
                    terms = [(other + 1) * term for other, term in enumerate(terms)]
                    pairs = [(found[output, place], sum(terms), sum(map(abs, terms)))]
                elif name == "hessian":
                    pairs = [(found[output, place, other], term, abs(term)) for other, term in enumerate(terms)]
                elif place == len(program.wrt) - 1:
                    pairs = [(found[output, other], term, abs(term)) for other, term in enumerate(terms)]
                else:
                    continue
                for block, wanted, size in pairs:
                    hold(program, name, at, f"of {output}", program.flat(block)[at], wanted, close * (1 + size))
                    tally.comparisons[name] += 1
                    tally.seconds += wanted != 0
