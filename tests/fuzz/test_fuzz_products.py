"""Random programs: jvp, vjp, Hessians and products with them on the python backend, against the fuzzer's oracles.

First derivatives are those of dual numbers, with the tolerances of `examine`; second ones are differences at 60 digits,
at points where nothing is about to turn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from examine import Expected, Mismatch, Tally, expect
from oracles import numbers_of, second_differences
from program import POINTS, Program
from session import program_of

from dualbcast import differentiable_broadcast

DEFAULT, LONG = range(24), range(24, 424)
# Of second derivatives, relative to one more than the sum of what was added up.
CLOSE = 1e-6
SMOOTH_POINTS = 4


def column(block: Any, at: int) -> float:
    return float(np.broadcast_to(block, POINTS)[at])


def hold(program: Program, what: str, at: int, found: float, wanted: float, by: float) -> None:
    if not abs(found - wanted) <= by:
        raise Mismatch(f"{what} at {program.point(at)} is {found}, and should be {wanted} within {by:.1e}\n{program!r}")


def examine_products(program: Program) -> tuple[int, int]:
    """Hold the products of one program against the oracles; how many second derivatives were compared, and not zero."""
    expected = {at: found for at in range(POINTS) if (found := expect(program, at, Tally())) is not None}
    if program.single or not expected:
        return 0, 0
    function: Any = differentiable_broadcast(backend="python")(program.function)
    args, names = program.arguments, tuple(program.names[at] for at in program.wrt)
    weights = {name: float(place + 1) for place, name in enumerate(names)}
    with np.errstate(all="ignore"):
        _, tangent = function.jvp(args, weights)
        value, pullback = function.vjp(*args, wrt=names)
        hessian, product = function.hessian(*args, wrt=names), function.hvp(args, weights)
        partial = function.partial(names[-1]).jacobian(*args, wrt=names)
    floats = [np.asarray(each).dtype.kind == "f" for each in numbers_of(value)]
    for output, is_float in enumerate(floats):
        chosen = [np.full(pullback.shape, float(other == output)) for other in range(len(floats))]
        pulled = pullback(*chosen) if is_float else [0.0] * len(names)
        for at, want in expected.items():
            slopes, by = want.slopes[output], want.slope_tolerances[output]
            _first(program, want, output, at, numbers_of(tangent)[output])
            for place, seed in enumerate(program.wrt):
                if pullback.shape == (POINTS,) and seed != program.scalar:  # else it is a sum
                    hold(program, f"vjp of {output}", at, column(pulled[place], at), slopes[seed], 2 * by[seed])
    compared = nonzero = 0
    for at in [at for at, want in expected.items() if want.smooth][:SMOOTH_POINTS]:
        try:
            rows = second_differences(program.function, program.point(at), program.wrt)
        except (ArithmeticError, ValueError, TypeError):  # not in mpmath, or a difference leaves the domain
            continue
        for output, row in enumerate(rows):
            for place, p in enumerate(program.wrt):
                terms = []
                for other, q in enumerate(program.wrt):
                    wanted = row[min(p, q), max(p, q)]
                    terms.append(wanted * (other + 1))
                    by = CLOSE * (1 + abs(wanted))
                    hold(program, f"∂²{output}", at, column(hessian[output, place, other], at), wanted, by)
                    if place == len(names) - 1:
                        hold(program, f"∂(∂{output})", at, column(partial[output, other], at), wanted, by)
                    compared, nonzero = compared + 1, nonzero + (wanted != 0)
                by = CLOSE * (1 + sum(map(abs, terms)))
                hold(program, f"hvp of {output}", at, column(product[output, place], at), sum(terms), by)
    return compared, nonzero


def _first(program: Program, want: Expected, output: int, at: int, tangent: Any) -> None:
    pairs = list(enumerate(program.wrt, 1))
    wanted = sum(weight * want.slopes[output][seed] for weight, seed in pairs)
    by = 2 * sum(weight * want.slope_tolerances[output][seed] for weight, seed in pairs)
    hold(program, f"jvp of {output}", at, column(tangent, at), wanted, by)


@pytest.mark.parametrize("seeds", [DEFAULT, pytest.param(LONG, marks=pytest.mark.slow)], ids=str)
def test_products_of_random_programs(seeds: range) -> None:
    counts = [examine_products(program_of(seed)) for seed in seeds]
    assert sum(compared for compared, _ in counts) > 10 * len(seeds)
    assert sum(nonzero for _, nonzero in counts) > len(seeds)


def test_a_wrong_second_derivative_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Second derivatives of a function that has lost one of its first."""
    from dualbcast.compiler import transform

    whole = transform.dualize

    def lossy(function: Any, seeds: Any, **how: Any) -> Any:
        dual = whole(function, seeds, **how)
        if len(function.outputs) > 1:  # the second pass
            dual.partials.pop(max(dual.partials), None)
        return dual

    monkeypatch.setattr(transform, "dualize", lossy)
    monkeypatch.setattr("dualbcast.kept.identity", lambda _: "")
    program = Program("import math\n\n\ndef f(x):\n    return math.sin(x)\n", ("x",), ("float",), (0,), None, 0, False)
    with pytest.raises(Mismatch, match="∂²0 at"):
        examine_products(program)
