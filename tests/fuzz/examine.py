"""Runs one program on the backends and holds its values and Jacobian against Python's own and two oracles."""

from __future__ import annotations

import importlib
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from forced_ways import WAYS, forced
from ir_invariants import verify
from oracles import Result, Watch, evaluate, finite_differences, numbers_of, rebuild, second_derivatives
from program import Program

from dualbcast import differentiable_broadcast, gradient
from dualbcast.ir.simplification import simplify
from dualbcast.program.derived_functions import jacobian_of

__all__ = ["Expected", "Mismatch", "Tally", "compare", "examine", "expect", "expectations", "hold"]

# How much the last bits are disturbed to see what hangs on them, and how much of what that changes is allowed.
DISTURBANCE, ALLOWED = 8, 16
DISTURBED_RUNS = 2
# Of the ways to differentiate, a program that is not examined thoroughly takes one in so many.
WAYS_APART = 3
# A point whose result is no better determined than this, relatively, says nothing.
LOOSEST = 1e-4


class Mismatch(AssertionError):
    """A kernel gave something else than the oracle."""


@dataclass
class Tally:
    """What a run of the fuzzer saw.

    Attributes
    ----------
    programs, points
    slopes, seconds : int
        First derivatives that are not zero, and second ones.
    skipped : Counter
        Points by the reason.
    differenced, ordinary : int
        Programs held against finite differences, and programs of a campaign that went the ordinary way.
    comparisons : Counter
        Numbers held against an oracle, by what they are.
    """

    programs: int = 0
    points: int = 0
    slopes: int = 0
    seconds: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    differenced: int = 0
    ordinary: int = 0
    comparisons: Counter[str] = field(default_factory=Counter)

    def counts(self) -> dict[str, int]:
        """The numbers alone."""
        return {name: number for name, number in vars(self).items() if isinstance(number, int)}

    def __add__(self, other: Tally) -> Tally:
        return Tally(**{name: number + getattr(other, name) for name, number in vars(self).items()})


@dataclass(frozen=True)
class Expected:
    """The outputs of a program at one point, their derivatives, and how far a kernel may be from each.

    At an edge of the format derivatives that cannot be compared are missing.
    """

    values: tuple[float, ...]
    slopes: tuple[dict[int, float], ...]
    value_tolerances: tuple[float, ...]
    slope_tolerances: tuple[dict[int, float], ...]
    smooth: bool
    edge: bool = False


def examine(
    program: Program,
    tally: Tally,
    *,
    cpu: bool = True,
    thorough: bool = False,
    expected: dict[int, Expected] | None = None,
) -> None:
    """Raise `Mismatch` where a backend gives another value or derivative than the oracle.

    Parameters
    ----------
    program : Program
    tally : Tally
        What was seen is added to it.
    cpu : bool
        Also compile for the CPU.
    thorough : bool
        Also differentiate in every way that there is, hold a point against finite differences, verify the IR after
        each pass, and take the derivatives inside a kernel, which has second derivatives then.
    expected : dict of int to Expected, optional
        What is right, where it is known already.
    """
    if expected is None:
        expected = expectations(program, tally)
    for backend in ("python", "cpu") if cpu else ("python",):
        compare(program, backend, expected, tally)
    function, seen = program.lowered(), set[str]()
    ways = [*WAYS][1:]  # the first is the natural one
    for way in ways if thorough else ways[program.salt % WAYS_APART :: WAYS_APART]:
        with forced(way):
            text = repr(jacobian_of(function, program.wrt).function)
            if text not in seen:
                compare(program, "python", expected, tally, agree=False)
            seen.add(text)
    if thorough:
        _check_passes(program)
        smooth = next((at for at, found in expected.items() if found.smooth and not found.edge), None)
        if smooth is not None:
            _difference(program, smooth, expected[smooth])
            tally.differenced += 1
        if program.wrt and not program.has_table:
            _take_inside(program, expected, smooth)


def expectations(program: Program, tally: Tally, runs: int = DISTURBED_RUNS) -> dict[int, Expected]:
    """What is right at each point of a program of which something can be said."""
    from edges import at_an_edge, is_edge

    expected: dict[int, Expected] = {}
    for at in range(program.points):
        edge = bool(program.edges) and is_edge(program.point(at))
        found = (at_an_edge if edge else expect)(program, at, tally, runs)
        if found is not None:
            expected[at] = found
    tally.programs += 1
    tally.points += program.points
    tally.slopes += sum(
        bool(slope != 0) for found in expected.values() for slopes in found.slopes for slope in slopes.values()
    )
    return expected


# --- what is right ---------------------------------------------------------------------------------------------------


def expect(program: Program, at: int, tally: Tally, runs: int = DISTURBED_RUNS) -> Expected | None:
    """The result at a point with its tolerances; None, and why is counted, where it hangs on the last bits."""
    function, point = rebuilt(program), program.point(at)
    watch = Watch(single=program.single)
    unit = 2.0**-24 if program.single else 2.0**-53
    try:
        exact = evaluate(function, point, program.wrt, watch)
        if not all(map(math.isfinite, _numbers(exact))) or max(map(abs, _numbers(exact))) > 1e9:
            tally.skipped["not finite or large"] += 1
            return None
        if watch.doubts:
            tally.skipped["a decision hangs on a rounding"] += 1
            return None
        disturbed = [
            evaluate(function, point, program.wrt, Watch(single=program.single, noise=DISTURBANCE * unit, seed=seed))
            for seed in range(runs)
        ]
    except (ArithmeticError, ValueError):
        tally.skipped["Python raises"] += 1
        return None
    spread = [
        max(abs(float(a) - float(b)) for b in others)
        for a, *others in zip(*map(_numbers, (exact, *disturbed)), strict=True)
    ]
    tolerances = [ALLOWED * (by + 16 * unit * (1 + abs(x))) for x, by in zip(_numbers(exact), spread, strict=True)]
    if any(
        not by <= max(LOOSEST, 4096 * unit) * (1 + abs(x)) for x, by in zip(_numbers(exact), tolerances, strict=True)
    ):
        tally.skipped["ill-conditioned"] += 1
        return None
    values, slopes = exact
    bounds = iter(tolerances)
    value_tolerances = tuple(next(bounds) for _ in values)
    slope_tolerances = tuple({seed: next(bounds) for seed in by} for by in slopes)
    if not program.single and "np." not in program.text:
        _check_oracle(program, point, values, value_tolerances)
    return Expected(tuple(map(float, values)), slopes, value_tolerances, slope_tolerances, not watch.ties)


def rebuilt(program: Program) -> Any:
    if "_rebuilt" not in program.__dict__:
        program.__dict__["_rebuilt"] = rebuild(program.function)
    return program.__dict__["_rebuilt"]


def _numbers(result: Result) -> list[float]:
    return [*map(float, result[0]), *(float(slope) for slopes in result[1] for slope in slopes.values())]


def _check_oracle(program: Program, point: tuple[Any, ...], values: Any, tolerances: tuple[float, ...]) -> None:
    """Python itself, without any stand-ins. (NumPy's functions of bools compute in float16, so not with those.)"""
    result = program.function(*point)
    for found, value, by in zip(numbers_of(result), values, tolerances, strict=True):
        if abs(float(found) - float(value)) > by:
            raise Mismatch(f"the oracle is wrong: {value} at {point}, and Python gives {found}")


def _check_passes(program: Program) -> None:
    function = verify(program.lowered())
    verify(simplify(function))
    verify(simplify(simplify(verify(jacobian_of(function, program.wrt).function))))


# --- what the kernels give -------------------------------------------------------------------------------------------


def _on_host(array: Any) -> Any:
    return array.get() if hasattr(array, "get") else array


def compare(program: Program, backend: Any, expected: dict[int, Expected], tally: Tally, agree: bool = True) -> None:
    """Hold value and Jacobian of one backend against what is right; on `python` other products against these, too."""
    kernel = program.kernel(backend)
    wrt = tuple(program.names[at] for at in program.wrt)
    arguments = program.arguments
    if backend == "cuda":
        on_device = importlib.import_module("cupy").asarray
        arguments = tuple(on_device(each) if isinstance(each, np.ndarray) else each for each in arguments)
    value, jacobian = kernel.value_and_jacobian(*arguments, wrt=wrt)
    columns = [program.flat(_on_host(column)) for column in numbers_of(value)]
    blocks = [
        {seed: program.flat(_on_host(jacobian[output, program.names[seed]])) for seed in program.wrt}
        for output in range(len(columns))
    ]
    for at, want in expected.items():
        if len(want.values) != len(columns):
            raise Mismatch(f"{backend}: {len(columns)} outputs, and Python gives {len(want.values)}")
        where = " at an edge" if want.edge else ""
        for output, (exact, by) in enumerate(zip(want.values, want.value_tolerances, strict=True)):
            hold(program, f"{backend} backend", at, f"output {output}", columns[output][at], exact, by)
            tally.comparisons["value" + where] += 1
            for seed, slope in want.slopes[output].items():
                what = f"d output {output} / d {program.names[seed]}"
                hold(
                    program,
                    f"{backend} backend",
                    at,
                    what,
                    blocks[output][seed][at],
                    slope,
                    want.slope_tolerances[output][seed],
                )
                tally.comparisons["derivative" + where] += 1
    if agree and backend == "python":
        _agree(program, kernel, wrt, columns, blocks)


def _take_inside(program: Program, expected: dict[int, Expected], smooth: int | None) -> None:
    """The gradient that a kernel takes inside is the Jacobian of the function, and has that of the gradient."""
    kernel = differentiable_broadcast(gradient(program.function, wrt=program.wrt), backend="python")
    value, jacobian = kernel.value_and_jacobian(*program.arguments, wrt=program.wrt)
    parts = {seed: numbers_of(part) for seed, part in zip(program.wrt, value, strict=True)}
    for at, want in expected.items():
        for output, (slopes, by) in enumerate(zip(want.slopes, want.slope_tolerances, strict=True)):
            for seed, slope in slopes.items():
                what = f"inside a kernel, d output {output} / d {program.names[seed]}"
                hold(program, "python backend", at, what, program.flat(parts[seed][output])[at], slope, by[seed])
    if smooth is None or program.single:
        return
    seconds = second_derivatives(program.function, program.point(smooth), program.wrt)
    for output, second in enumerate(seconds):
        for (seed, moved), slope in second.items():
            block = jacobian[program.wrt.index(seed) * len(seconds) + output, f"args_{moved}"]
            by = 1e-6 * (1 + abs(slope)) + expected[smooth].slope_tolerances[output][seed]
            what = f"d² output {output} / d {program.names[seed]} d {program.names[moved]}"
            hold(program, "python backend", smooth, what, program.flat(block)[smooth], slope, by)


def hold(program: Program, which: str, at: int, what: str, found: Any, want: float, by: float) -> None:
    """Raise `Mismatch` where a number is not the one that is right: NaN is NaN, and infinities are themselves."""
    found = float(found)
    if not (abs(found - want) <= by or found == want or (found != found and want != want)):
        args = ", ".join(f"{name}={value!r}" for name, value in zip(program.names, program.point(at), strict=True))
        raise Mismatch(f"{which}, at {args}: {what} is {found}, and should be {want} within {by:.1e}")


def _agree(
    program: Program, kernel: Any, wrt: tuple[str, ...], columns: list[Any], blocks: list[dict[int, Any]]
) -> None:
    """The products of one function give the same numbers, to the last bit; also where the oracle says nothing."""
    value, jacobian = kernel(*program.arguments), kernel.jacobian(*program.arguments, wrt=wrt)
    for output, column in enumerate(numbers_of(value)):
        _same(f"output {output} of the value product", program.flat(column), columns[output])
        for seed in program.wrt:
            name = program.names[seed]
            block = program.flat(jacobian[output, name])
            _same(f"d output {output} / d {name} of the Jacobian product", block, blocks[output][seed])


def _same(what: str, found: Any, other: Any) -> None:
    if not np.array_equal(found, other, equal_nan=found.dtype.kind == "f"):
        raise Mismatch(f"{what} is {found}, and {other} in value_and_jacobian")


def _difference(program: Program, at: int, want: Expected) -> None:
    """Finite differences of the Python function at 40 digits, which is the derivative to 13 or so."""
    found = finite_differences(program.function, program.point(at), program.wrt)
    for output, slopes in enumerate(found):
        for seed, slope in slopes.items():
            by = 1e-7 * (1 + abs(slope)) + want.slope_tolerances[output][seed]
            what = f"d output {output} / d {program.names[seed]}"
            hold(program, "dual numbers instead of a", at, what, want.slopes[output][seed], slope, by)
