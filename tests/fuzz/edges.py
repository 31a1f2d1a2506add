"""What is right where an argument is an infinity, NaN, a zero of either sign, subnormal, tiny or huge.

Values are those of `ieee`. Derivatives are those of dual numbers, where nothing on the way to them comes near the ends
of the format: there the order in which slopes are multiplied decides, and each order is a convention.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import ieee
import numpy as np
from examine import ALLOWED, DISTURBANCE, LOOSEST, Expected, Mismatch, Tally, rebuilt
from oracles import Watch, evaluate, independences, numbers_of
from program import Program

__all__ = ["at_an_edge", "is_edge"]

# What of the format has no name, and neither has its square.
SAFE, SAFE_SINGLE = (1e-140, 1e140), (1e-17, 1e17)

# Where tuples are compared, or searched.
TUPLES = re.compile(r"\) [=!]= \(|\bin \(")


def is_edge(point: Sequence[Any]) -> bool:
    """Whether a point has a float that ordinary points have not."""
    return any(
        isinstance(x, float) and (not 1e-3 <= abs(x) <= 10 and not (x == 0 and math.copysign(1, x) > 0)) for x in point
    )


def at_an_edge(program: Program, at: int, tally: Tally, runs: int) -> Expected | None:
    """The result at a point, with relative tolerances; None, and why is counted, where nothing is sure."""
    point, unit = program.point(at), 2.0**-24 if program.single else 2.0**-53
    least = 1e-45 if program.single else 5e-324
    if program.single and "math.pi" in program.text:
        # Of sin(math.pi) nothing is left but a rounding error: that of float32, or of float64 where it is folded.
        tally.skipped["edge: π in float32"] += 1
        return None
    nans = ieee.nans
    try:
        exact, *others = [_values(program, point, DISTURBANCE * unit * bool(seed), seed) for seed in range(runs + 1)]
    except ieee.NoInteger:
        tally.skipped["edge: no integer"] += 1
        return None
    except (ArithmeticError, ValueError):
        tally.skipped["edge: Python raises"] += 1
        return None
    if ieee.nans > nans and TUPLES.search(program.text):
        tally.skipped["edge: a NaN in a tuple is itself to Python"] += 1
        return None
    tolerances = []
    for value, *disturbed in zip(exact, *others, strict=True):
        if any(not (_same(value, other) or abs(value - other) < math.inf) for other in disturbed):
            tally.skipped["edge: the value hangs on a rounding"] += 1
            return None
        spread = max(0.0 if _same(value, other) else abs(value - other) for other in disturbed)
        by = ALLOWED * (spread + 16 * unit * abs(value)) + 64 * least
        if not math.isfinite(value):
            by = 0.0
        if by > max(LOOSEST, 4096 * unit) * abs(value) + 64 * least:
            tally.skipped["edge: the value is ill-conditioned"] += 1
            return None
        tolerances.append(by)
    if not program.single and not any(other in program.text for other in ("np.", "round(")):
        _check_oracle(program, point, exact)
    slopes, slope_tolerances, smooth = _slopes(program, point, tally, runs, unit)
    if not slopes:
        slopes = slope_tolerances = tuple({} for _ in exact)
    return Expected(exact, slopes, tuple(tolerances), slope_tolerances, smooth, edge=True)


def _values(program: Program, point: Sequence[Any], noise: float, seed: int) -> tuple[float, ...]:
    if "_ieee" not in program.__dict__:
        program.__dict__["_ieee"] = ieee.rebuilt(program.function)
    with ieee.arithmetic(single=program.single, noise=noise, seed=seed):
        return tuple(map(float, ieee.values(program.__dict__["_ieee"], point)))


def _same(a: float, b: float) -> bool:
    return a == b or (a != a and b != b)


def _check_oracle(program: Program, point: Sequence[Any], exact: Sequence[float]) -> None:
    """Python itself says the same, where it does not raise."""
    try:
        result = numbers_of(program.function(*point))
    except (ArithmeticError, ValueError):
        return
    for found, value in zip(result, exact, strict=True):
        close = isinstance(found, complex) or _same(float(found), value)
        if not (close or abs(float(found) - value) <= 1e-9 * abs(value)):
            raise Mismatch(f"the oracle of edges is wrong: {value} at {point}, and Python gives {found}")


def _slopes(program: Program, point: Sequence[Any], tally: Tally, runs: int, unit: float) -> Any:
    """The derivatives by output and argument, and their tolerances; none where none can be compared."""
    nothing = (), (), False
    low, high = SAFE_SINGLE if program.single else SAFE
    if not all(math.isfinite(x) for x in point):
        return _zeros(program, point, tally, "at an infinity or NaN")
    # The watch sees what it computes with dual numbers only, and not an argument that is not differentiated in.
    if not all(x == 0 or low <= abs(x) <= high for x in point):
        return _zeros(program, point, tally, "near the ends of the format")
    watch = Watch(single=program.single)
    results = []
    try:
        with np.errstate(all="ignore"):
            for seed in range(runs + 1):
                noisy = Watch(single=program.single, noise=DISTURBANCE * unit, seed=seed) if seed else watch
                results.append(evaluate(rebuilt(program), point, program.wrt, noisy)[1])
    except (ArithmeticError, ValueError):
        tally.skipped["edge: derivative where Python raises"] += 1
        return nothing
    if watch.doubts:
        tally.skipped["edge: derivative whose branch hangs on a rounding"] += 1
        return nothing
    if not (low <= watch.least and watch.most <= high):
        return _zeros(program, point, tally, "near the ends of the format")
    slopes, tolerances = [], []
    for exact, *others in zip(*results, strict=True):
        kept, bounds = {}, {}
        for seed, slope in exact.items():
            spread = max(abs(float(slope) - float(other[seed])) for other in others)
            by = ALLOWED * (spread + 16 * unit * abs(float(slope)))
            if by <= max(LOOSEST, 4096 * unit) * abs(float(slope)):
                kept[seed], bounds[seed] = float(slope), by
            else:
                tally.skipped["edge: derivative that is ill-conditioned"] += 1
        slopes.append(kept)
        tolerances.append(bounds)
    return tuple(slopes), tuple(tolerances), False


def _zeros(program: Program, point: Sequence[Any], tally: Tally, where: str) -> Any:
    """The derivatives in what an output does not depend on along the path that is taken: these are zero anywhere."""
    watch = Watch(single=program.single)
    try:
        with np.errstate(all="ignore"):
            absent = independences(rebuilt(program), point, program.wrt, watch)
    except (ArithmeticError, ValueError):
        tally.skipped["edge: derivative where Python raises"] += 1
        return (), (), False
    if watch.doubts:
        tally.skipped["edge: derivative whose branch hangs on a rounding"] += 1
        return (), (), False
    zeros = tuple(dict.fromkeys(seeds, 0.0) for seeds in absent)
    tally.skipped[f"edge: derivative {where}"] += any(len(seeds) < len(program.wrt) for seeds in absent)
    tally.comparisons["derivative that is absent at an edge"] += sum(map(len, zeros))
    return zeros, zeros, False
